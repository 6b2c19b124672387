"""Stands in for the browser's side: keeps what it is told, computes nothing."""

from dataclasses import dataclass

from py_attn.gpu.bridge import AdapterInfo

# WebGPU's default limits, below which no adapter goes (https://www.w3.org/TR/webgpu/#limits).
LIMITS = {
    "maxBufferSize": 1 << 28,
    "maxStorageBufferBindingSize": 1 << 27,
    "minStorageBufferOffsetAlignment": 256,
    "maxStorageBuffersPerShaderStage": 8,
    "maxComputeWorkgroupsPerDimension": 65535,
    "maxComputeWorkgroupStorageSize": 16384,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupSizeY": 256,
    "maxComputeWorkgroupSizeZ": 64,
}


@dataclass(frozen=True)
class Launch:
    """One dispatch of a submitted program; buffers as (handle, offset, size)."""

    label: str
    wgsl: str
    params: bytes
    workgroups: tuple[int, int, int]
    buffers: tuple[tuple[int, int, int], ...]


class RecordingBridge:
    """A site with assets, and its one device.

    Attributes
    ----------
    assets : dict
        Bytes of a file, or the exception that fetching it raises.
    programs : list of list of Launch
        What was submitted, in order.
    buffers : dict
        Handle and size of every buffer that is not destroyed.
    fail_upload : int or None
        Number of the write that raises.
    reason : str
        Why the device is lost; "" while it lives.
    errors : list of BridgeError
        What the next `synchronize` reports.
    """

    def __init__(self):
        self.info = AdapterInfo("fake", "", "", True, frozenset(), dict(LIMITS))
        self.assets = {}
        self.programs = []
        self.buffers = {}
        self.uploads = 0
        self.fail_upload = None
        self.reason = ""
        self.errors = []
        self._pipelines = []
        self._words = []
        self._handles = 0

    async def request_device(self):
        return self

    async def fetch_asset(self, name, progress=None):
        data = self.assets[name]
        if isinstance(data, BaseException):
            raise data
        if progress:
            progress(len(data) // 2, len(data))
            progress(len(data), len(data))
        return memoryview(data)

    def lost(self):
        return self.reason

    def create_buffer(self, size, label):
        self._handles += 1
        self.buffers[self._handles] = size
        return self._handles

    def destroy_buffer(self, buffer):
        del self.buffers[buffer]

    def write_buffer(self, buffer, offset, data):
        self.uploads += 1
        if self.uploads == self.fail_upload:
            raise RuntimeError("the queue is gone")
        assert offset + memoryview(data).nbytes <= self.buffers[buffer]

    def create_pipeline(self, label, wgsl, access):
        self._pipelines.append((label, wgsl))
        return len(self._pipelines) - 1

    def create_program(self, words):
        self._words.append(list(words))
        return len(self._words) - 1

    def submit_program(self, program, params):
        words, launches = self._words[program], []
        while words:
            pipeline, first, size, x, y, z, count = words[:7]
            triples = zip(*[iter(words[7 : 7 + 3 * count])] * 3, strict=True)
            block = bytes(params[first : first + size])
            launches.append(Launch(*self._pipelines[pipeline], block, (x, y, z), tuple(triples)))
            words = words[7 + 3 * count :]
        self.programs.append(launches)

    def destroy_program(self, program):
        self._words[program] = []

    async def synchronize(self):
        errors, self.errors = self.errors, []
        return errors
