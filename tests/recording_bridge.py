"""Stands in for the browser's side: keeps what it is told, stores bytes, computes nothing."""

import asyncio
from dataclasses import dataclass

from py_attn.errors import DeviceLostError
from py_attn.gpu.bridge import AdapterInfo, MatrixConfig, RawTiming, ShaderMessage

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


#: An adapter with subgroup matrices, as the keywords of `RecordingBridge`.
MATRIX_ADAPTER = {
    "software": False,
    "features": (
        "shader-f16",
        "subgroups",
        "chromium-experimental-subgroup-matrix",
        "subgroup_id",
        "subgroup_uniformity",
    ),
    "subgroup_size": 32,
    "matrix_configs": (MatrixConfig("f16", "f32", 16, 16, 16),),
    "maxComputeWorkgroupStorageSize": 48 << 10,
    "maxComputeInvocationsPerWorkgroup": 1024,
    "maxComputeWorkgroupSizeX": 1024,
}


class RecordingBridge:
    """A site with assets, and its one device.

    Attributes
    ----------
    assets : dict
        Bytes of a file, or the exception that fetching it raises.
    notes : dict
        Texts that are kept, by name.
    programs : list of list of Launch
        What was submitted, in order.
    log : list of tuple
        Every call that makes, changes or uses something: its name and what it was about, in order.
    buffers : dict
        Handle and size of every buffer that is not destroyed.
    memory : dict
        Their bytes; a new buffer holds 0xA5, as WebGPU's zeros would hide mistakes.
    fail_upload : int or None
        Number of the write that raises.
    reason : str
        Why the device is lost; "" while it lives.
    errors : list of BridgeError
        What the next `synchronize` reports.
    """

    def __init__(self, *, software=True, subgroup_size=0, features=(), matrix_configs=(), **limits):
        assert limits.keys() <= LIMITS.keys()
        sizes = (subgroup_size, subgroup_size)
        self.info = AdapterInfo(
            "fake", "", "", software, frozenset(features), LIMITS | limits, *sizes, tuple(matrix_configs)
        )
        self.assets = {}
        self.notes = {}
        self.programs = []
        self.log = []
        self.buffers = {}
        self.memory = {}
        self.uploads = 0
        self.fail_upload = None
        self.reason = ""
        self.errors = []
        self.pipelines = {}
        self._words = {}
        self._tickets = {}
        self._handles = 0

    def _handle(self):
        self._handles += 1
        return self._handles

    @property
    def launches(self):
        """The dispatches of all submissions."""
        return [launch for program in self.programs for launch in program]

    def of(self, *names):
        """The log's entries of these calls."""
        return [entry for entry in self.log if entry[0] in names]

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

    async def open_asset(self, name, progress=None):
        from py_attn.models.files import BytesFile

        return BytesFile(await self.fetch_asset(name, progress))

    async def load_note(self, name):
        return self.notes.get(name, "")

    async def save_note(self, name, text):
        self.notes[name] = text

    def lost(self):
        return self.reason

    def destroy(self):
        self.reason = self.reason or "destroyed"

    def create_buffer(self, size, label):
        assert size > 0
        assert size % 4 == 0
        handle = self._handle()
        self.buffers[handle] = size
        self.memory[handle] = bytearray(b"\xa5" * size)
        self.log.append(("create_buffer", handle, size, label))
        return handle

    def destroy_buffer(self, buffer):
        del self.buffers[buffer], self.memory[buffer]
        self.log.append(("destroy_buffer", buffer))

    def write_buffer(self, buffer, offset, data):
        self.uploads += 1
        if self.uploads == self.fail_upload:
            raise RuntimeError("the queue is gone")
        view = memoryview(data).cast("B")
        assert offset % 4 == 0
        assert view.nbytes % 4 == 0
        assert offset + view.nbytes <= self.buffers[buffer]
        self.memory[buffer][offset : offset + view.nbytes] = view
        self.log.append(("write_buffer", buffer, offset, bytes(view)))

    def write_file(self, buffer, offset, file, begin, end):
        self.write_buffer(buffer, offset, file.read(begin, end))

    async def read_buffer(self, buffer, offset, out):
        if self.reason:
            raise DeviceLostError(f"reading back failed: {self.reason}")
        view = memoryview(out).cast("B")
        assert offset % 4 == 0
        assert view.nbytes % 4 == 0
        assert offset + view.nbytes <= self.buffers[buffer]
        view[:] = self.memory[buffer][offset : offset + view.nbytes]
        self.log.append(("read_buffer", buffer, offset, view.nbytes))

    def create_pipeline(self, label, wgsl, access):
        handle = self._handle()
        self.pipelines[handle] = (label, wgsl, access)
        self.log.append(("create_pipeline", handle, label))
        return handle

    def destroy_pipeline(self, pipeline):
        del self.pipelines[pipeline]
        self.log.append(("destroy_pipeline", pipeline))

    async def check_shader(self, wgsl):
        self.log.append(("check_shader", wgsl))
        return [] if "fn main" in wgsl else [ShaderMessage("error", "no entry point", 1, 1)]

    async def compile_us(self, pipeline):
        assert pipeline in self.pipelines
        return 1000.0

    def run_program(self, words, params):
        self.programs.append(self._launches(list(words), params))
        self.log.append(("run_program",))

    def create_program(self, words):
        handle = self._handle()
        self._words[handle] = list(words)
        self.log.append(("create_program", handle))
        return handle

    def submit_program(self, program, params, times=1):
        self.programs.append(self._launches(self._words[program], params) * times)
        self.log.append(("submit_program", program))

    def submit_timed(self, program, params, together=False, times=1):
        self.submit_program(program, params, times)
        ticket = self._handle()
        self._tickets[ticket] = 1 if together else len(self.programs[-1]) // times
        return ticket

    async def timings(self, ticket):
        clock = 5.0 if "timestamp-query" in self.info.features else None
        return [RawTiming(clock, 10.0 + n) for n in range(self._tickets.pop(ticket))]

    def _launches(self, words, params):
        launches = []
        first = 0
        while words:
            pipeline, size, x, y, z, count = words[:6]
            triples = tuple(zip(*[iter(words[6 : 6 + 3 * count])] * 3, strict=True))
            label, wgsl, access = self.pipelines[pipeline]
            self._check(access, size, (x, y, z), triples)
            block = bytes(params[first : first + size])
            assert len(block) == size
            launches.append(Launch(label, wgsl, block, (x, y, z), triples))
            words = words[6 + 3 * count :]
            first += -(-size // 256) * 256
        assert first == len(params)
        return launches

    def _check(self, access, size, workgroups, triples):
        """What WebGPU would refuse: https://www.w3.org/TR/webgpu/#dom-gpudevice-createbindgroup"""
        limits = self.info.limits
        assert size % 16 == 0
        assert all(1 <= n <= limits["maxComputeWorkgroupsPerDimension"] for n in workgroups)
        assert len(triples) == len(access) <= limits["maxStorageBuffersPerShaderStage"]
        for handle, offset, length in triples:
            assert offset % limits["minStorageBufferOffsetAlignment"] == 0
            assert 0 < length <= limits["maxStorageBufferBindingSize"]
            assert length % 4 == 0
            assert offset + length <= self.buffers[handle]
        written = {handle for letter, (handle, *_) in zip(access, triples, strict=True) if letter == "w"}
        assert sum(handle in written for handle, *_ in triples) == len(written), "read and written at once"

    def destroy_program(self, program):
        del self._words[program]
        self.log.append(("destroy_program", program))

    async def synchronize(self):
        self.log.append(("synchronize",))
        # A GPU takes a moment, in which others run.
        await asyncio.sleep(0)
        errors, self.errors = self.errors, []
        return errors
