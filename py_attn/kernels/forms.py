"""Which calls are alike: what was checked and planned for one of them holds for all."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from py_attn.gpu.device import Device
from py_attn.gpu.program import BoundBuffer
from py_attn.gpu.shader import Shader
from py_attn.gpu.tensor import Tensor


class Launch(NamedTuple):
    """A dispatch but for its buffers, which is all that differs between calls of one form."""

    shader: Shader
    params: bytes
    workgroups: tuple[int, int, int]

    def record(self, device: Device, buffers: Sequence[BoundBuffer]) -> None:
        """Record it with these buffers, in the order of the shader's bindings."""
        device.dispatch(self.shader, self.params, buffers, self.workgroups)


_PLAIN = frozenset({type(None), bool, int, float, str})


class _NotPlainError(Exception):
    """An option is something else than a plain value."""


def form_of(tensors: Sequence[Any], options: Sequence[Any]) -> Hashable | None:
    """What a call looks like but for the tensors' contents, or None where that cannot be told.

    Two calls of one form differ in nothing but the buffers that their tensors lie in.

    Parameters
    ----------
    tensors : sequence
        Tensors or None; with anything else, an array say, a call has no form.
    options : sequence
        Numbers, strings, booleans, None and tuples of them; with anything else a call has no form.
    """
    parts: list[Hashable] = []
    for tensor in tensors:
        if tensor is None:
            parts.append(None)
        elif type(tensor) is Tensor:
            parts.append(tensor.form)
        else:
            return None
    try:
        parts += map(_plain, options)
    except _NotPlainError:
        return None
    return tuple(parts)


def _plain(value: Any) -> Hashable:
    # With its type, as 1, 1.0 and True are equal but not all of them may be right.
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is tuple:
        return tuple(map(_plain, value))
    raise _NotPlainError
