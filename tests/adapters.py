"""What real adapters let a page or a program do: limits, features and subgroup sizes, each with its source.

Every number is one that its source states. What a source leaves open is WebGPU's default limit, below which
no adapter goes (https://www.w3.org/TR/webgpu/#limits); ``note`` then says so. Browsers round an adapter's own
limits down to a few steps, so that many adapters report the same: Chromium by the table in
dawn/native/Limits.cpp, Firefox by the buckets of wgpu-core/src/limits.rs.
"""

from dataclasses import dataclass, field

from py_attn.gpu.bridge import AdapterInfo
from tests.recording_bridge import LIMITS

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# What Firefox reports, from the bucket whose values an adapter reaches. Read on 2026-11-23.
FIREFOX = (
    "https://github.com/gfx-rs/wgpu/blob/01bc21cdcafe1131bd70c9b76b99927bb72e9ba6/wgpu-core/src/limits.rs"
)
# How Chromium rounds limits down, and what it gives in compatibility mode. Read on 2026-11-23.
CHROMIUM = "https://dawn.googlesource.com/dawn/+/refs/heads/main/src/dawn/native/Limits.cpp"

_LARGE_WORKGROUPS = {
    "maxComputeInvocationsPerWorkgroup": 1024,
    "maxComputeWorkgroupSizeX": 1024,
    "maxComputeWorkgroupSizeY": 1024,
}
# The bucket "uplevel-defaults", on which Firefox's others build.
_FIREFOX = {**_LARGE_WORKGROUPS, "maxBufferSize": GIB, "maxComputeWorkgroupStorageSize": 32 * KIB}
_BINDINGS = "maxStorageBuffersPerShaderStage"
_BINDING_SIZE = "maxStorageBufferBindingSize"
_MEMORY = "maxComputeWorkgroupStorageSize"


@dataclass(frozen=True)
class Adapter:
    """One adapter as a browser reports it.

    Attributes
    ----------
    source : str
        Where the numbers are from.
    note : str
        What of them the source does not state.
    limits : dict
        Those above WebGPU's defaults, or below them.
    subgroups : (int, int)
        The smallest and the largest size; zeros where there are no subgroups.
    features : tuple of str
        Of those that py_attn asks for, and of WGSL's language features.
    software : bool
        Whether it computes on the CPU.
    """

    source: str
    note: str = ""
    limits: dict[str, int] = field(default_factory=dict)
    subgroups: tuple[int, int] = (0, 0)
    features: tuple[str, ...] = ()
    software: bool = False

    def info(self) -> AdapterInfo:
        """As py_attn is told."""
        sizes, features = self.subgroups, frozenset(self.features)
        return AdapterInfo("recorded", "", "", self.software, features, LIMITS | self.limits, *sizes)


_EVERY_FEATURE = ("timestamp-query", "subgroups", "shader-f16")

ADAPTERS = {
    "Apple M series, Chrome 151": Adapter(
        source="https://bestiaryofvanishings.com/v2/probe.html",
        note="its results of 2026-08-15, as that site's public repository keeps them; complete",
        limits={
            **_LARGE_WORKGROUPS,
            _MEMORY: 32 * KIB,
            _BINDINGS: 10,
            _BINDING_SIZE: 4 * GIB - 4,
            "maxBufferSize": 4 * GIB - 4,
        },
        subgroups=(32, 32),
        features=(*_EVERY_FEATURE, "subgroup_id"),
    ),
    "Apple M series, Firefox": Adapter(
        source=FIREFOX,
        limits={**_FIREFOX, _BINDINGS: 9, _BINDING_SIZE: GIB},
        subgroups=(4, 64),
        features=_EVERY_FEATURE,
    ),
    "Intel Xe, Arc, UHD 600, Firefox": Adapter(
        source=FIREFOX,
        limits={**_FIREFOX, _BINDINGS: 16, _BINDING_SIZE: GIB // 2},
        subgroups=(8, 32),
        features=_EVERY_FEATURE,
    ),
    "Intel Xe (Tiger Lake), Vulkan": Adapter(
        source="https://github.com/google/uVkCompute/issues/43",
        note="subgroup sizes; invocations by https://github.com/gpuweb/gpuweb/issues/6243; else defaults",
        limits=_LARGE_WORKGROUPS,
        subgroups=(8, 32),
        features=("subgroups",),
    ),
    "Intel HD 530, Firefox on Direct3D 12": Adapter(
        source="https://github.com/zen-browser/desktop/issues/8932",
        note="a report of Firefox's about:support; it lists no subgroups; number of buffers: the default",
        limits={
            **_LARGE_WORKGROUPS,
            _MEMORY: 32 * KIB,
            "maxBufferSize": 2 * GIB - 4,
        },
        features=("timestamp-query",),
    ),
    "AMD RDNA (RX 6000 to 9000), Firefox": Adapter(
        source=FIREFOX,
        limits={**_FIREFOX, _BINDINGS: 16, _BINDING_SIZE: GIB},
        subgroups=(32, 64),
        features=_EVERY_FEATURE,
    ),
    "AMD RDNA 2 (RX 6650 XT), Vulkan": Adapter(
        source="https://github.com/sharpemu/sharpemu/pull/332",
        note="subgroup sizes and invocations, by its driver's own words; else defaults",
        limits=_LARGE_WORKGROUPS,
        subgroups=(32, 64),
        features=("subgroups",),
    ),
    "AMD Vega, Firefox": Adapter(
        source=FIREFOX,
        limits={**_FIREFOX, _MEMORY: 64 * KIB, _BINDINGS: 16, _BINDING_SIZE: GIB},
        subgroups=(64, 64),
        features=_EVERY_FEATURE,
    ),
    "NVIDIA GTX 1650 to RTX 50, Firefox": Adapter(
        source=FIREFOX,
        limits={**_FIREFOX, _MEMORY: 48 * KIB, _BINDINGS: 16, _BINDING_SIZE: GIB},
        subgroups=(32, 32),
        features=_EVERY_FEATURE,
    ),
    "NVIDIA GTX 1050, Firefox": Adapter(
        source=FIREFOX,
        note="the bucket without shader-f16, which AMD's WX 5100 is in too",
        limits={**_FIREFOX, _MEMORY: 48 * KIB, _BINDINGS: 16, _BINDING_SIZE: GIB},
        subgroups=(32, 64),
        features=("timestamp-query", "subgroups"),
    ),
    "Qualcomm Adreno 7xx, Mesa's driver": Adapter(
        source="https://gitlab.freedesktop.org/mesa/mesa/-/blob/main/src/freedreno/vulkan/tu_device.cc",
        note="subgroup sizes: threads of 64 and 128; at least 1,024 invocations; else defaults",
        limits=_LARGE_WORKGROUPS,
        subgroups=(64, 128),
        features=("subgroups",),
    ),
    "Qualcomm Adreno 610": Adapter(
        source="https://github.com/gpuweb/gpuweb/issues/2832",
        note="less than 32 KiB of workgroup memory in all 53 reports; all limits are the defaults",
    ),
    "Arm Mali-G77 (Valhall)": Adapter(
        source="http://infocenter.arm.com/help/topic/com.arm.doc.101574_0302_00_en/nic1465568963198.html",
        note="16 neighbouring threads run together, as a subgroup does; all limits: the defaults",
        subgroups=(16, 16),
        features=("subgroups",),
    ),
    "Arm Mali-G76 (Bifrost)": Adapter(
        source="http://infocenter.arm.com/help/topic/com.arm.doc.101574_0302_00_en/nic1465568963198.html",
        note="8 neighbouring threads run together; all limits: the defaults",
        subgroups=(8, 8),
        features=("subgroups",),
    ),
    "Arm Mali-G72 (Bifrost)": Adapter(
        source="http://infocenter.arm.com/help/topic/com.arm.doc.101574_0302_00_en/nic1465568963198.html",
        note="4 neighbouring threads run together; all limits: the defaults",
        subgroups=(4, 4),
        features=("subgroups",),
    ),
    "Direct3D 12, Chromium": Adapter(
        source="https://dawn.googlesource.com/dawn/+/refs/heads/main/src/dawn/native/d3d12/PhysicalDeviceD3D12.cpp",
        note="it gives 128 for the largest subgroup of every adapter; 16 is Intel's least for compute by "
        "https://github.com/gpuweb/gpuweb/issues/6241; all limits: the defaults",
        subgroups=(16, 128),
        features=("subgroups",),
    ),
    "WebGPU's default limits": Adapter(source="https://www.w3.org/TR/webgpu/#limits"),
    "Chromium's compatibility mode": Adapter(
        source=CHROMIUM,
        note="the column compat",
        limits={
            "maxComputeInvocationsPerWorkgroup": 128,
            "maxComputeWorkgroupSizeX": 128,
            "maxComputeWorkgroupSizeY": 128,
        },
    ),
    "128 invocations and subgroups of 16": Adapter(
        source=CHROMIUM,
        note="no adapter of its own: the limits of compatibility mode, and Mali-G77's subgroups",
        limits={
            "maxComputeInvocationsPerWorkgroup": 128,
            "maxComputeWorkgroupSizeX": 128,
            "maxComputeWorkgroupSizeY": 128,
        },
        subgroups=(16, 16),
        features=("subgroups",),
    ),
    "llvmpipe, Firefox": Adapter(
        source=FIREFOX,
        limits={**_FIREFOX, _BINDINGS: 16},
        subgroups=(8, 8),
        features=_EVERY_FEATURE,
        software=True,
    ),
    "Direct3D's WARP, Firefox": Adapter(
        source=FIREFOX,
        limits={**_FIREFOX, _BINDINGS: 16},
        subgroups=(4, 128),
        features=_EVERY_FEATURE,
        software=True,
    ),
}
