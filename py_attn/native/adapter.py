"""The adapter that wgpu finds, and a device with its limits and the features that kernels may use."""

from __future__ import annotations

from typing import Any

import wgpu

from py_attn.errors import WebGPUUnavailableError
from py_attn.gpu.bridge import AdapterInfo
from py_attn.gpu.shader import SUBGROUP_ID

_LIMITS = {
    "maxBufferSize": "max-buffer-size",
    "maxStorageBufferBindingSize": "max-storage-buffer-binding-size",
    "minStorageBufferOffsetAlignment": "min-storage-buffer-offset-alignment",
    "maxStorageBuffersPerShaderStage": "max-storage-buffers-per-shader-stage",
    "maxComputeWorkgroupStorageSize": "max-compute-workgroup-storage-size",
    "maxComputeInvocationsPerWorkgroup": "max-compute-invocations-per-workgroup",
    "maxComputeWorkgroupSizeX": "max-compute-workgroup-size-x",
    "maxComputeWorkgroupSizeY": "max-compute-workgroup-size-y",
    "maxComputeWorkgroupsPerDimension": "max-compute-workgroups-per-dimension",
}
#: WebGPU's names of the features that kernels use where there are any, and wgpu's.
_FEATURES = {"timestamp-query": "timestamp-query", "subgroups": "subgroup", "shader-f16": "shader-f16"}
#: What kernels rely on, which WebGPU guarantees in its compatibility mode too.
_LEAST = {"maxStorageBuffersPerShaderStage": 8, "maxComputeInvocationsPerWorkgroup": 128}


async def request_device() -> tuple[wgpu.GPUDevice, AdapterInfo]:
    """A device with all that its adapter offers.

    Raises
    ------
    WebGPUUnavailableError
        When there is no adapter, or it offers less than WebGPU guarantees.
    """
    try:
        adapter = await wgpu.gpu.request_adapter_async(power_preference="high-performance")
    except (RuntimeError, ValueError) as error:
        raise WebGPUUnavailableError(f"wgpu found no graphics adapter ({error}); {_ADVICE}") from None
    info = describe(adapter)
    lacking = [f"{name} {info.limits[name]} (at least {least})" for name, least in _LEAST.items()
               if info.limits[name] < least]  # fmt: skip
    if lacking:
        raise WebGPUUnavailableError(
            f"the adapter {adapter.summary} offers too little for WebGPU: {', '.join(lacking)}; {_ADVICE}"
        )
    features: list[Any] = [theirs for theirs in _FEATURES.values() if theirs in adapter.features]
    limits: Any = {theirs: adapter.limits[theirs] for theirs in _LIMITS.values()}
    try:
        return await adapter.request_device_async(required_features=features, required_limits=limits), info
    except (RuntimeError, wgpu.GPUError) as error:
        raise WebGPUUnavailableError(f"{adapter.summary} gave no device: {error}") from None


_ADVICE = (
    "on Linux a Vulkan driver is needed (mesa-vulkan-drivers has one for every machine, also without a "
    "graphics card); `python -c 'import wgpu; print(wgpu.gpu.enumerate_adapters_sync())'` lists what there is"
)


def describe(adapter: wgpu.GPUAdapter) -> AdapterInfo:
    """The adapter in its own words."""
    info: Any = adapter.info
    features = {ours for ours, theirs in _FEATURES.items() if theirs in adapter.features}
    smallest, largest = 0, 0
    if "subgroups" in features:
        smallest, largest = _subgroup_sizes(adapter)
        # naga has the built-in value of this name wherever there are subgroups.
        features.add(SUBGROUP_ID)
    return AdapterInfo(
        vendor=info["vendor"],
        architecture=info["architecture"],
        description=info["device"] or info["description"],
        software=info["adapter_type"] == "CPU",
        features=frozenset(features),
        limits={ours: int(adapter.limits[theirs]) for ours, theirs in _LIMITS.items()},
        subgroup_min_size=smallest,
        subgroup_max_size=largest,
    )


def _subgroup_sizes(adapter: wgpu.GPUAdapter) -> tuple[int, int]:
    """The adapter's subgroup sizes; WebGPU's widest range where wgpu does not tell them.

    wgpu 0.32 asks the library for them by a wrong name, and shows the widest range.
    """
    from wgpu.backends.wgpu_native import ffi, lib

    found = ffi.new("WGPUAdapterInfo *")
    lib.wgpuAdapterGetInfo(adapter._internal, found)
    sizes = int(found.subgroupMinSize), int(found.subgroupMaxSize)
    lib.wgpuAdapterInfoFreeMembers(found[0])
    return sizes if 0 < sizes[0] <= sizes[1] else (4, 128)
