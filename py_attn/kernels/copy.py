"""Copies on the GPU: views made contiguous, converted, or joined."""

from __future__ import annotations

import math
from typing import Any

from py_attn.gpu.device import Device
from py_attn.gpu.kernel import Arg, Kernel, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.operands import output_type, scalar_type

_WORKGROUP = 64
_COPY = Kernel(
    "copy",
    "copy.wgsl",
    ParamsLayout(
        shape="vec4<u32>",
        source_strides="vec4<u32>",
        second_strides="vec4<u32>",
        source_first="u32",
        second_first="u32",
        split="u32",
        count="u32",
    ),
)


def contiguous(tensor: Tensor, dtype: str | None = None) -> Tensor:
    """The elements in order as ``dtype``; ``tensor`` itself where they already lie so.

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
    return _copy(four_axes(tensor), None, target).reshape(*tensor.shape)


def join(first: Tensor, second: Tensor) -> Tensor:
    """``second`` [B, H, S2, D] behind ``first`` [B, H, S1, D] along their third axis, in second's dtype."""
    return _copy(first, second, second.dtype)


def broadcast(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view of a shape that ``tensor``'s broadcasts to; repeated axes have a stride of 0."""
    missing = len(shape) - tensor.ndim
    strides = [0 if n == 1 else s for n, s in zip(tensor.shape, tensor.strides, strict=True)]
    return Tensor(tensor.storage(), tensor.kind, shape, (*[0] * missing, *strides), tensor.offset)


def _copy(source: Tensor, second: Tensor | None, dtype: str) -> Tensor:
    device: Device = source.device
    shape = list(source.shape)
    tensors = {"source": source}
    dtypes: tuple[str | None, ...] = (source.dtype, None, dtype)
    constants: dict[str, Any] = {"source_dtype": source.dtype, "out_dtype": dtype}
    if second is not None:
        shape[2] += second.shape[2]
        tensors["second"] = second
        constants["second_dtype"] = second.dtype
        dtypes = (source.dtype, second.dtype, dtype)
    constants |= {"joined": second is not None, "dtypes": dtypes, "WORKGROUP": _WORKGROUP}
    out, count = NewTensor("out", tuple(shape), dtype), math.prod(shape)
    if not count:
        return device.run(Plan((out,), ()), tensors)["out"]
    only = launch(
        _COPY,
        [
            *(Arg(name, scalar_type(tensor.dtype)) for name, tensor in tensors.items()),
            Arg("out", "u32" if dtype == "bool" else output_type(dtype), writes=True),
        ],
        tensors,
        device.info.limits,
        variant=f"{source.dtype}-{dtype}",
        workgroups=-(-count // (4 * _WORKGROUP)),
        params={
            "shape": shape,
            "source_strides": source.strides,
            "second_strides": (0, 0, 0, 0) if second is None else second.strides,
            "split": source.shape[2],
            "count": count,
        },
        constants=constants,
        grid_name="tensor",
    )
    return device.run(Plan((out,), (only,)), tensors)["out"]


def four_axes(tensor: Tensor) -> Tensor:
    """The view with axes merged where that moves no element, with axes of length 1 in front, four in all."""
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
