"""Copies on the GPU: views made contiguous, converted, or joined."""

from __future__ import annotations

import functools
from typing import Any

from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, Shader, render
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.options import output_type

_WORKGROUP = 64
_PARAMS = ParamsLayout(
    shape="vec4<u32>",
    source_strides="vec4<u32>",
    second_strides="vec4<u32>",
    source_first="u32",
    second_first="u32",
    split="u32",
    count="u32",
)


def contiguous(tensor: Tensor, dtype: str | None = None) -> Tensor:
    """The elements one behind the other, as ``dtype``; ``tensor`` itself where they lie so already.

    Parameters
    ----------
    tensor : Tensor
        A floating or boolean one. Strides of 0 (an axis that repeats) are written out.
    dtype : str, optional
        A floating dtype to convert to.

    Raises
    ------
    ValueError
        When the view's axes do not merge into four or fewer.
    """
    target = dtype or tensor.dtype
    if tensor.is_contiguous and target == tensor.dtype:
        return tensor
    return _copy(_four_axes(tensor), None, target).reshape(*tensor.shape)


def join(first: Tensor, second: Tensor) -> Tensor:
    """``second`` [B, H, S2, D] behind ``first`` [B, H, S1, D] along their third axis, in second's dtype."""
    return _copy(first, second, second.dtype)


def broadcast(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view of a shape that ``tensor``'s broadcasts to; repeated axes have a stride of 0."""
    missing = len(shape) - tensor.ndim
    strides = [0 if n == 1 else s for n, s in zip(tensor.shape, tensor.strides, strict=True)]
    return Tensor(tensor.storage(), tensor.kind, shape, (*[0] * missing, *strides), tensor.offset)


def _copy(source: Tensor, second: Tensor | None, dtype: str) -> Tensor:
    device = source.device
    shape = list(source.shape)
    if second is not None:
        shape[2] += second.shape[2]
    out = device.empty(shape, dtype)
    if not out.size:
        return out
    tensors = [("source", source)] + ([("second", second)] if second is not None else [])
    bound = [device.bind(tensor, name) for name, tensor in tensors]
    params = _PARAMS.pack(
        shape=shape,
        source_strides=source.strides,
        second_strides=(0, 0, 0, 0) if second is None else second.strides,
        source_first=bound[0].first,
        second_first=bound[-1].first,
        split=source.shape[2],
        count=out.size,
    )
    shader = _shader(source.dtype, None if second is None else second.dtype, dtype)
    grid = device.grid(-(-out.size // (4 * _WORKGROUP)), "tensor")
    device.dispatch(shader, params, [*bound, device.bind(out, "out")], grid)
    return out


def _four_axes(tensor: Tensor) -> Tensor:
    """The view with axes merged where that moves nothing, and axes of length 1 in front, four in all."""
    runs: list[tuple[int, int]] = []
    for length, stride in zip(tensor.shape, tensor.strides, strict=True):
        if runs and runs[-1][1] == length * stride:
            runs[-1] = (runs[-1][0] * length, stride)
        elif length != 1:
            runs.append((length, stride))
    if len(runs) > 4:
        raise ValueError(
            f"tensor: {list(tensor.shape)} with strides {list(tensor.strides)} has more than four axes "
            "that do not lie one behind the other; copy it in parts"
        )
    shape, strides = zip(*([(1, 0)] * (4 - len(runs)) + runs), strict=True)
    return Tensor(tensor.storage(), tensor.kind, shape, strides, tensor.offset)


@functools.lru_cache(maxsize=64)
def _shader(source: str, second: str | None, out: str) -> Shader:
    bindings = [Binding("source", _element(source))]
    constants: dict[str, Any] = {"source_dtype": source, "out_dtype": out, "joined": second is not None}
    if second is not None:
        bindings.append(Binding("second", _element(second)))
        constants["second_dtype"] = second
    bindings.append(Binding("out", "u32" if out == "bool" else output_type(out), writes=True))
    constants["dtypes"] = (source, second, out)
    constants["WORKGROUP"] = _WORKGROUP
    return render(
        "copy.wgsl",
        "copy",
        f"{source}-{out}",
        params=_PARAMS,
        bindings=tuple(bindings),
        constants=constants,
    )


def _element(dtype: str) -> str:
    return "f32" if dtype == "float32" else "u32"
