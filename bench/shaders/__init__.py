"""The bench's own shaders: fills, ceilings, the empty dispatch."""

from __future__ import annotations

from pathlib import Path

from py_attn.gpu.binding import BoundBuffer
from py_attn.gpu.device import Device
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, Shader, environment, render
from py_attn.gpu.tensor import Tensor

_FOLDER = str(Path(__file__).parent)


def bench_shader(
    name: str,
    params: ParamsLayout,
    bindings: tuple[Binding, ...],
    enable: tuple[str, ...] = (),
    requires: tuple[str, ...] = (),
) -> Shader:
    """Render one of the templates of this folder, with WGSL's extensions and language features."""
    paths = environment().loader.searchpath  # type: ignore[union-attr]
    if _FOLDER not in paths:
        paths.append(_FOLDER)
    return render(
        f"{name}.wgsl",
        f"bench_{name}",
        "bench",
        params=params,
        bindings=bindings,
        constants={},
        enable=enable,
        requires=requires,
    )


def bound(device: Device, *tensors: Tensor) -> list[BoundBuffer]:
    """How a dispatch takes its buffers."""
    return [device.bind(tensor, "values") for tensor in tensors]
