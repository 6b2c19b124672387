"""A visitor's kernel as a cell of Python that needs nothing of the page."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from py_attn.gpu.binding import Workgroups
from py_attn.gpu.kernel import Launch
from py_attn.gpu.shader import Shader
from py_attn.viewer.panels.operations import OPERATIONS
from py_attn.viewer.sources.source import Masking

_HEAD = """# {name}: {label} with a WGSL text of your own, on random input, compared with float64.
import numpy as np
import py_attn as pa
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, from_text

wgsl = {wgsl}
mine = from_text(
    wgsl, {kernel!r}, {name!r},
    params=ParamsLayout({params}),
    bindings=(
{bindings}
    ),
    header=False,  # the text declares its constants, params and buffers itself
)

try:
    device = pa.default_device()
except pa.WebGPUUnavailableError:
    device = await pa.request_device()
rng = np.random.default_rng(0)
query, key, value = (rng.standard_normal(shape, np.float32) for shape in {shapes})
"""
_ATTENTION = """
masking = {masking}
with device.replacing({label!r}, mine{workgroups}):
    out = pa.attention(*map(device.tensor, (query, key, value)), variant={variant!r}, **masking)
exact = pa.reference.attention(query, key, value, **masking)
{{"largest error against float64": float(abs(await out.numpy() - exact).max())}}
"""
_OPERATION = """
# The call that the page times beside attention.
from py_attn.viewer.panels.operations import OPERATIONS

operation = OPERATIONS[{variant!r}]
prepared = operation.prepare(device, [device.tensor(x) for x in (query, key, value)])
with device.replacing({label!r}, mine{workgroups}):
    results = [await x.numpy() for x in operation.run(prepared)]
exact = (await operation.exact((query, key, value), prepared))(np.float64)
{{"largest error against float64": max(float(abs(x - y).max()) for x, y in zip(results, exact))}}
"""


class Fork(NamedTuple):
    """A text, its name, and what it takes the place of: a row of the panel, and the launch that this plans.

    ``workgroups`` is None for as many as planned; ``shapes`` are those of query, key and value.
    """

    name: str
    wgsl: str
    of: str
    planned: Launch
    workgroups: Workgroups | None
    shapes: list[tuple[int, ...]]


def cell(fork: Fork, masking: Masking) -> str:
    """Source that makes the shader with :func:`py_attn.gpu.shader.from_text` and runs it.

    The plan is that of the public call, in which :meth:`py_attn.gpu.device.Device.replacing` puts the text.

    Raises
    ------
    ValueError
        Where the kernel contains a score_mod of the visitor.
    """
    is_operation = fork.of in OPERATIONS
    if masking.mods and not is_operation:
        raise ValueError("The kernel contains your score_mod or mask_mod. Take it away, then copy.")
    shader = fork.planned.shader
    head = _HEAD.format(
        name=fork.name,
        label=shader.label,
        kernel=shader.name,
        wgsl=_literal(fork.wgsl),
        params=", ".join(f"{name}={kind!r}" for name, kind in shader.params.fields.items()),
        bindings=_bindings(shader),
        shapes=fork.shapes,
    )
    workgroups = "" if fork.workgroups is None else f", workgroups={fork.workgroups}"
    body = (_OPERATION if is_operation else _ATTENTION).format(
        label=shader.label, variant=fork.of, workgroups=workgroups, masking=_masking(masking)
    )
    return head + body


def _bindings(shader: Shader) -> str:
    lines = (
        f"        Binding({one.name!r}, {one.type!r}{', writes=True' if one.writes else ''}),"
        for one in shader.bindings
    )
    return "\n".join(lines)


def _literal(text: str) -> str:
    """The text as a Python literal, in lines where that is possible."""
    plain = '"""' not in text and not text.endswith(('"', "\\"))
    return f'r"""{text}"""' if plain else repr(text)


def _masking(masking: Masking) -> str:
    """The keyword arguments as source; a mask is drawn at random, as the input is."""

    def source(value: Any) -> str:
        if not isinstance(value, np.ndarray):
            return repr(value)
        if value.size == 1:
            return f"np.array({value.tolist()}, np.{value.dtype})"
        if value.dtype == np.bool_:
            return f"rng.random({value.shape}) < 0.7"
        return f"rng.standard_normal({value.shape}, np.float32)"

    return f"dict({', '.join(f'{name}={source(value)}' for name, value in masking.keywords().items())})"
