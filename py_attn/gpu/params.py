"""Uniform parameters: declared once, packed from there, and rendered into the WGSL from there."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

# WGSL type: (struct code, count, alignment in bytes); https://www.w3.org/TR/WGSL/#alignment-and-size
_TYPES = {
    "u32": ("I", 1, 4),
    "i32": ("i", 1, 4),
    "f32": ("f", 1, 4),
    "vec2<u32>": ("I", 2, 8),
    "vec3<u32>": ("I", 3, 16),
    "vec4<u32>": ("I", 4, 16),
    "vec4<f32>": ("f", 4, 16),
}
_NUMPY = {"I": np.uint32, "i": np.int32, "f": np.float32}


class ParamsLayout:
    """One uniform struct.

    Parameters
    ----------
    **fields : str
        Name and WGSL type in order: ``ParamsLayout(rows="u32", strides="vec4<u32>")``.

    Attributes
    ----------
    dtype : numpy.dtype
        The structured dtype with WGSL's offsets and padding.
    wgsl : str
        The declaration of ``struct Params``.
    size : int
        Bytes of one packed struct, a multiple of 16 as the uniform address space wants.
    """

    def __init__(self, **fields: str) -> None:
        self.fields = fields
        offsets, codes, position = [], ["<"], 0
        for name, wgsl_type in fields.items():
            if wgsl_type not in _TYPES:
                raise ValueError(
                    f"{name}: expected a WGSL type out of {', '.join(_TYPES)}, got {wgsl_type!r}"
                )
            code, count, align = _TYPES[wgsl_type]
            start = -(-position // align) * align
            codes.append("x" * (start - position) + code * count)
            offsets.append(start)
            position = start + 4 * count
        self.size = -(-position // 16) * 16
        codes.append("x" * (self.size - position))
        self._struct = struct.Struct("".join(codes))
        self.dtype = np.dtype(
            {
                "names": list(fields),
                "formats": [_numpy_format(t) for t in fields.values()],
                "offsets": offsets,
                "itemsize": self.size,
            }
        )
        body = "".join(f"  {name}: {wgsl_type},\n" for name, wgsl_type in fields.items())
        self.wgsl = f"struct Params {{\n{body}}}"

    def pack(self, **values: Any) -> bytes:
        """Pack one value per field; vectors are sequences.

        Raises
        ------
        TypeError
            When a field is missing or unknown.
        ValueError
            When a value does not fit its field.
        """
        if values.keys() != self.fields.keys():
            raise TypeError(f"params: expected {sorted(self.fields)}, got {sorted(values)}")
        flat: list[Any] = []
        for name, wgsl_type in self.fields.items():
            value = values[name]
            count = _TYPES[wgsl_type][1]
            if count == 1:
                flat.append(value)
            elif len(value) == count:
                flat.extend(value)
            else:
                raise ValueError(f"params: {name} is a {wgsl_type}, got {value!r}")
        try:
            return self._struct.pack(*flat)
        except (struct.error, OverflowError) as error:
            raise ValueError(f"params: a value does not fit its field ({error}): {values}") from None

    def unpack(self, data: bytes) -> dict[str, Any]:
        """The fields of a packed struct, for tests and for showing them."""
        record = np.frombuffer(data, self.dtype)[0]
        return {name: record[name].tolist() for name in self.fields}


def _numpy_format(wgsl_type: str) -> Any:
    code, count, _ = _TYPES[wgsl_type]
    return _NUMPY[code] if count == 1 else (_NUMPY[code], (count,))
