"""The adapter's ceilings: bandwidths, multiply-adds, time of an empty dispatch; do its clocks agree?"""

from __future__ import annotations

import functools
import time
from statistics import median
from typing import Any

from bench.clocks import gpu_time, recorded
from bench.shaders import bench_shader, bound
from py_attn.gpu.device import Device
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import SUBGROUP_ID, Binding, Shader
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.matrix import ENABLE, missing

_PARAMS = ParamsLayout(count="u32", never="f32")
_WORKGROUP = 256
_NEVER = 12345.678
#: Multiply-adds of one invocation and turn of ceiling_fma.wgsl: 4 times 8 chains of vec4s.
_FMA_TURN = 4 * 8 * 4
#: Multiply-adds of one workgroup and turn of ceiling_matrix.wgsl: eight products in each of eight subgroups.
_MATRIX_TURN = 8 * 8 * 16**3


@functools.cache
def _shader(name: str) -> Shader:
    source = (Binding("source", "vec4<f32>"),) if name in ("read", "copy") else ()
    bindings = (*source, Binding("sink", "vec4<f32>", writes=True))
    extensions = (ENABLE, (SUBGROUP_ID,)) if name == "matrix" else ((), ())
    return bench_shader(f"ceiling_{name}", _PARAMS, bindings, *extensions)


def _dispatch(
    device: Device, name: str, tensors: list[Tensor], count: int, groups: int, never: float
) -> None:
    params = _PARAMS.pack(count=count, never=never)
    device.dispatch(_shader(name), params, bound(device, *tensors), (groups, 1, 1))


async def ceilings(device: Device) -> dict[str, Any]:
    """Measure all ceilings.

    Returns
    -------
    dict
        ``read_gbs``, ``copy_gbs`` (bytes read plus bytes written), ``fma_tflops``, ``empty_us`` (one empty
        dispatch among many), ``empty_pair_us`` (a pass of two), ``empty_wall_us`` (one, submitted and waited
        for), ``clock_ratio`` (wall over timestamps on a long pass; None without timestamps),
        ``matrix_tflops`` (float16 subgroup matrices with float32 sums; None without them).
    """
    software = device.info.software
    size = 1 << 26 if software else _largest(device, 1 << 30)
    source, target = device.empty((size // 4,)), device.empty((size // 4,))
    vec4s = size // 16
    try:
        groups = 256 if software else 4096
        read = await gpu_time(
            device, lambda n: _dispatch(device, "read", [source, target], vec4s, groups, _NEVER)
        )
        copy = await gpu_time(
            device, lambda n: _dispatch(device, "copy", [source, target], vec4s, groups, _NEVER)
        )
        turns, fma_groups = (64, 64) if software else (1024, 8192)
        fma = await gpu_time(device, lambda n: _dispatch(device, "fma", [target], turns, fma_groups, 0.5))
        empty = lambda n: _dispatch(device, "empty", [target], 0xFFFFFFFF, 1, _NEVER)  # noqa: E731
        alone = await gpu_time(device, empty, calls=64)
        pair = await gpu_time(device, empty, calls=2)
        matrix = None
        if not missing(device.info):
            turn = lambda n: _dispatch(device, "matrix", [target], turns, fma_groups, _NEVER)  # noqa: E731
            matrix = 2 * _MATRIX_TURN * turns * fma_groups / (await gpu_time(device, turn)).gpu_us / 1e6
        flops = 2 * _FMA_TURN * turns * fma_groups * _WORKGROUP
        result = {
            "read_gbs": size / read.gpu_us / 1e3,
            "copy_gbs": 2 * size / copy.gpu_us / 1e3,
            "fma_tflops": flops / fma.gpu_us / 1e6,
            "matrix_tflops": matrix,
            "empty_us": alone.gpu_us,
            "empty_pair_us": 2 * pair.gpu_us,
            "empty_wall_us": await _empty_wall(device, empty),
            "clock_ratio": await _clock_ratio(device, turns, fma_groups, target, fma.gpu_us),
            "timestamps": read.timestamps,
        }
    finally:
        source.destroy()
        target.destroy()
    return result


def _largest(device: Device, wanted: int) -> int:
    limits = device.info.limits
    return (
        min(wanted, limits["maxBufferSize"], limits["maxStorageBufferBindingSize"]) // (1 << 26) * (1 << 26)
    )


async def _empty_wall(device: Device, empty: Any) -> float:
    """Time of an empty dispatch from its submission until Python knows that it is done."""
    program = recorded(device, empty, 1)
    samples = []
    for _ in range(12):
        begun = time.perf_counter()
        program.submit()
        await device.synchronize()
        samples.append(time.perf_counter() - begun)
    program.destroy()
    return 1e6 * median(samples)


async def _clock_ratio(
    device: Device, turns: int, groups: int, target: Tensor, one_us: float
) -> float | None:
    """Wall time over GPU time of one pass that is long enough for messages not to matter."""
    calls = max(2, min(64, round(50_000 / one_us)))
    program = recorded(device, lambda n: _dispatch(device, "fma", [target], turns, groups, 0.5), calls)
    ratios = []
    for _ in range(3):
        clock = await program.time()
        if clock.gpu_us is None:
            return None
        ratios.append(clock.wall_us / clock.gpu_us)
    program.destroy()
    return median(ratios)
