"""The bridge to wgpu without any adapter: a device that notes its calls takes wgpu's part."""

import asyncio
import hashlib
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import wgpu

import py_attn as pa
from py_attn.gpu.bridge import AdapterInfo
from py_attn.native import NativeBridge, adapter, files
from py_attn.native import device as native_device
from py_attn.native.device import NativeDeviceBridge
from py_attn.native.errors import compiler_message, words_of
from py_attn.native.read_backs import ReadBacks
from py_attn.native.waiting import Waits
from py_attn.remote import session

INFO = AdapterInfo("", "", "fake", True, frozenset(), {})
PARSING = (
    "Validation Error\n\nCaused by:\n  In wgpuDeviceCreateShaderModule, label = 'L'\n\n"
    "Shader 'L' parsing error: no definition in scope for identifier: `y`\n  ┌─ wgsl:12:49\n  │\n"
    "12 │ fn main() { let x = y; }\n   │                     ^ unknown identifier\n\n"
)
INVALID = (
    "Validation Error\n\nCaused by:\n  In wgpuDeviceCreateShaderModule, label = 'L'\n\n"
    "Shader validation error: Function [0] 'f' is invalid\n  ┌─ L:2:1\n  │\n"
    "2 │ fn f(x:u32)->f32{ return x; }\n"
    "  = The `return` expression does not match the declared return type\n\n\n"
)


@pytest.fixture(autouse=True)
def this_computers_card():
    """Not hidden here: wgpu is installed, and a test says what it finds."""


def refusal(words):
    """As wgpu raises it."""
    return wgpu.GPUValidationError(f"Validation Error\n\nCaused by:\n  {words}")


def open_promise():
    """wgpu's own, which nobody keeps; as in wgpu it belongs to the running event loop."""
    return wgpu.GPUPromise("fake", None)


def kept_promise():
    """Kept at once, as by the thread that polls the device."""
    promise = open_promise()
    promise._wgpu_set_input(None)
    return promise


class FakeBuffer:
    def __init__(self, size):
        self.size, self.bytes = size, bytearray(size)
        self.mapped, self.destroyed = range(0), False

    def map_async(self, mode, offset=0, size=None):
        assert not self.mapped
        self.mapped = range(offset, self.size if size is None else offset + size)
        return kept_promise()

    def read_mapped(self, offset=0, size=None, copy=True):
        wanted = range(offset, self.size if size is None else offset + size)
        assert {*wanted} <= {*self.mapped}
        return memoryview(self.bytes)[wanted.start : wanted.stop]

    def unmap(self):
        self.mapped = range(0)

    def destroy(self):
        self.destroyed = True


class FakeEncoder:
    """Encoder and compute pass in one: what is written into it is in ``calls``."""

    def __init__(self):
        self.calls = []

    def copy_buffer_to_buffer(self, source, begin, target, at, size):
        target.bytes[at : at + size] = source.bytes[begin : begin + size]

    def begin_compute_pass(self, timestamp_writes=None):
        return self

    def finish(self):
        return self

    def __getattr__(self, name):
        return lambda *given: self.calls.append((name, *given))


class FakeDevice:
    """A ``wgpu.GPUDevice`` that makes names instead of objects; ``refuse`` maps calls to exceptions."""

    features = frozenset()

    def __init__(self):
        self.submitted, self.groups, self.refuse, self.destroyed = [], [], {}, False
        self._poller = SimpleNamespace(stop=lambda: None)
        self.queue = SimpleNamespace(submit=self._submit, write_buffer=self._write)

    def _submit(self, encoders):
        self.submitted += [call for encoder in encoders for call in encoder.calls]

    def _write(self, buffer, offset, data):
        view = memoryview(data).cast("B")
        buffer.bytes[offset : offset + view.nbytes] = view

    def create_buffer(self, *, size, usage, label=""):
        if "create_buffer" in self.refuse:
            raise self.refuse.pop("create_buffer")
        return FakeBuffer(size)

    def create_bind_group(self, *, layout, entries):
        self.groups.append(entries)
        return len(self.groups)

    def create_command_encoder(self):
        return FakeEncoder()

    def create_shader_module(self, *, label, code):
        if "create_shader_module" in self.refuse:
            raise self.refuse.pop("create_shader_module")
        return code

    def destroy(self):
        self.destroyed = True

    def __getattr__(self, name):
        return lambda **given: (name, given.get("label", ""))


@pytest.fixture
def fake():
    return FakeDevice()


@pytest.fixture
def bridge(fake):
    made = NativeDeviceBridge(fake, INFO)
    yield made
    made.destroy()


def words(*rows):
    """A stream of dispatches: pipeline, then (buffer, offset, size) of each binding."""
    stream = []
    for pipeline, *buffers in rows:
        stream += [pipeline, 16, 2, 3, 4, len(buffers), *(x for buffer in buffers for x in buffer)]
    return np.array(stream, np.uint32)


# What is dispatched


async def test_a_program_runs_in_order_and_as_often_as_asked(bridge, fake):
    first, second = (bridge.create_pipeline(name, "text", "rw") for name in ("a/x", "b/x"))
    one, two = bridge.create_buffer(16, "one"), bridge.create_buffer(16, "two")
    rows = words((first, (one, 0, 16), (two, 0, 16)), (second, (two, 0, 16), (one, 0, 16)))
    program = bridge.create_program(rows)
    bridge.submit_program(program, bytearray(512), 2)
    pipelines = [call[1][1] for call in fake.submitted if call[0] == "set_pipeline"]
    assert pipelines == ["a/x", "b/x", "a/x", "b/x"]
    assert [c[1:] for c in fake.submitted if c[0] == "dispatch_workgroups"] == [(2, 3, 4)] * 4
    assert await bridge.synchronize() == []


#: Declarations of params, and whether they stand behind two buffers in group 0.
DECLARATIONS = [
    ("@group(0) @binding(2) var<uniform> params: Params;", True),
    ("@binding(2u) @group( 0 )\n  var< uniform > p : Params;", True),
    ("@group(1) @binding(0) var<uniform> params: Params;", False),
    ("@group(1) @binding(0) var<uniform> params: Params; // @group(0) @binding(2) var<uniform> p", False),
    ("/* @group(0) @binding(2)\nvar<uniform> p */@group(1) @binding(0) var<uniform> params: Params;", False),
]


@pytest.mark.parametrize(("text", "behind"), DECLARATIONS)
async def test_params_are_bound_where_the_text_declares_them(bridge, fake, text, behind):
    pipeline = bridge.create_pipeline("a/x", text, "rw")
    rows = words((pipeline, (bridge.create_buffer(16, "x"), 0, 16), (bridge.create_buffer(16, "y"), 0, 16)))
    for _ in range(2):
        bridge.run_program(rows, bytearray(256))
    assert [len(entries) for entries in fake.groups] == ([3] if behind else [2, 1])  # found by the second run
    bound = [call[1:] for call in fake.submitted if call[0] == "set_bind_group"]
    assert bound == ([(0, 1)] if behind else [(0, 1), (1, 2)]) * 2
    assert await bridge.synchronize() == []


async def test_bytes_come_back(bridge):
    buffer, out = bridge.create_buffer(16, "x"), np.zeros(2, np.float32)
    bridge.write_buffer(buffer, 4, np.array([1.5, 2.5], np.float32))
    await bridge.read_buffer(buffer, 4, out)
    assert out.tolist() == [1.5, 2.5]


def test_buffers_are_read_back_through_again(fake):
    read_backs = ReadBacks(fake)
    first = read_backs.take(100)
    assert read_backs.take(100) is not first
    read_backs.release(first)
    assert not first.mapped
    assert read_backs.take(3000) is first
    sizes = [4, 4096, 4100, 65_536, 65_540, 16 << 20, (16 << 20) + 4, 100 << 20]
    assert all(size <= read_backs.take(size).size <= max(4096, 2 * size - 4) for size in sizes)


def test_of_buffers_to_read_back_through_large_and_old_ones_go(fake):
    read_backs = ReadBacks(fake)
    large, *several = [read_backs.take(mib << 20) for mib in (17, 8, 8, 8, 8, 8)]
    for buffer in (large, *several):
        read_backs.release(buffer)
    assert [buffer.destroyed for buffer in (large, *several)] == [True, True, False, False, False, False]


def test_directives_that_naga_does_not_know_leave_an_empty_line(bridge, fake):
    seen = []
    fake.create_shader_module = lambda label, code: seen.append(code)
    bridge.create_pipeline("a/x", "enable subgroups;\nrequires subgroup_id;\nenable f16;\nfn", "r")
    assert seen == ["\n\nenable f16;\nfn"]


# Errors


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        (PARSING, 12, 49, "no definition in scope for identifier: `y`: unknown identifier"),
        (
            INVALID,
            2,
            1,
            "Function [0] 'f' is invalid: The `return` expression does not match the declared return type",
        ),
        ("Validation Error\n\nCaused by:\n  In wgpuX\n    something else", 0, 0, "something else"),
    ],
)
def test_what_the_compiler_says(text, line, column, message):
    found = compiler_message(wgpu.GPUValidationError(text))
    assert (found.line, found.column, found.message) == (line, column, message)


async def test_a_broken_text_is_told_once_and_its_use_too(bridge, fake):
    fake.refuse["create_shader_module"] = wgpu.GPUValidationError(PARSING)
    pipeline, buffer = bridge.create_pipeline("a/x", "text", "r"), bridge.create_buffer(16, "one")
    bridge.run_program(words((pipeline, (buffer, 0, 16))), bytes(256))
    shader, use = await bridge.synchronize()
    assert (shader.kind, shader.label, shader.line) == ("shader", "a/x", 12)
    assert (use.kind, use.label) == ("validation", "a/x")
    assert not fake.submitted
    assert await bridge.synchronize() == []


async def test_no_memory_for_a_buffer(bridge, fake):
    fake.refuse["create_buffer"] = refusal("In wgpuX, label = 'big'\n    Not enough memory left.")
    buffer = bridge.create_buffer(16, "big")
    bridge.write_buffer(buffer, 0, bytes(16))
    error, *others = await bridge.synchronize()
    assert (error.kind, error.label, error.message) == ("out-of-memory", "big", "Not enough memory left.")
    assert {other.kind for other in others} <= {"validation"}


def test_words_are_one_line_without_the_names_of_calls():
    assert words_of(refusal("In wgpuX, label = 'a b'\n    too\n  large")) == "too large"


async def test_a_loss_is_no_error_but_the_reason(bridge, fake):
    pipeline, buffer = bridge.create_pipeline("a/x", "text", "r"), bridge.create_buffer(16, "one")

    def lose(encoders):
        raise refusal("In wgpuQueueSubmit\n    Parent device is lost")

    fake.queue.submit = lose
    bridge.run_program(words((pipeline, (buffer, 0, 16))), bytes(256))
    assert bridge.lost() == "Parent device is lost"
    assert await bridge.synchronize() == []
    with pytest.raises(pa.DeviceLostError, match="Parent device is lost"):
        await bridge.read_buffer(buffer, 0, bytearray(16))


# Waits


async def test_a_wait_ends_with_the_device():
    waits = Waits()
    waiting = asyncio.ensure_future(waits.until(open_promise))
    await asyncio.sleep(0)
    waits.end("destroyed")
    with pytest.raises(pa.DeviceLostError, match="destroyed"):
        await waiting
    with pytest.raises(pa.DeviceLostError, match="destroyed"):
        await waits.until(kept_promise)


def test_a_wait_of_a_closed_loop_does_no_harm():
    waits, loop = Waits(), asyncio.new_event_loop()
    waiting = loop.create_task(waits.until(open_promise))
    loop.run_until_complete(asyncio.sleep(0))
    waiting.cancel()
    loop.run_until_complete(asyncio.gather(waiting, return_exceptions=True))
    loop.close()
    waits.end("destroyed")


# The adapter


async def test_no_adapter_says_what_to_install(monkeypatch):
    async def none(**_):
        raise RuntimeError("no suitable adapter")

    monkeypatch.setattr(wgpu.gpu, "request_adapter_async", none)
    with pytest.raises(pa.WebGPUUnavailableError, match=r"no suitable adapter.*mesa-vulkan-drivers"):
        await NativeBridge().request_device()


async def test_an_adapter_that_offers_too_little(monkeypatch):
    limits = dict.fromkeys(adapter._LIMITS.values(), 1 << 20) | {"max-storage-buffers-per-shader-stage": 4}
    info = {"vendor": "", "architecture": "", "device": "old card", "description": "", "adapter_type": "CPU"}
    old = SimpleNamespace(limits=limits, features=set(), info=info, summary="old card")

    async def one(**_):
        return old

    monkeypatch.setattr(wgpu.gpu, "request_adapter_async", one)
    with pytest.raises(
        pa.WebGPUUnavailableError, match=r"old card offers too little.*maxStorageBuffers\w+ 4"
    ):
        await NativeBridge().request_device()


async def test_without_wgpu_the_message_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("py_attn.native")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "wgpu", None)
    monkeypatch.setattr(session, "current", session.Session())
    with pytest.raises(pa.WebGPUUnavailableError, match=r"pip install py-attn\[native\]"):
        await pa.request_device()


# Files and notes


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PY_ATTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PY_ATTN_MODELS", raising=False)
    return tmp_path / "cache"


async def test_notes_outlive_the_bridge(cache):
    await NativeBridge().save_note("choices of card, 4 to 4", '{"a": "b"}')
    assert await NativeBridge().load_note("choices of card, 4 to 4") == '{"a": "b"}'
    assert await NativeBridge().load_note("another") == ""


async def test_notes_that_cannot_be_written_are_left(cache):
    cache.write_text("a file where the folder should be")
    await NativeBridge().save_note("name", "text")
    assert await NativeBridge().load_note("name") == ""


@pytest.fixture
def locked(cache, tmp_path, monkeypatch):
    """A lock of one file of 3 MB, that a file:// address gives."""
    data = np.random.default_rng(0).bytes(3_000_000)
    source = tmp_path / "source.bin"
    source.write_bytes(data)
    item = {"name": "some/file.bin", "path": "models/file.bin", "bytes": len(data)}
    item |= {"sha256": hashlib.sha256(data).hexdigest(), "sources": [{"kind": "url", "url": source.as_uri()}]}
    monkeypatch.setattr(files, "_locked", lambda name: item if name == item["name"] else None)
    return source


async def test_a_locked_file_is_downloaded_once(cache, locked):
    data, steps = locked.read_bytes(), []
    assert bytes(await NativeBridge().fetch_asset("some/file.bin", lambda *step: steps.append(step))) == data
    assert steps == sorted(steps)
    assert steps[-1] == (3_000_000, 3_000_000)
    locked.unlink()
    file = await NativeBridge().open_asset("some/file.bin")
    assert file.read(10, 20) == data[10:20]


async def test_a_file_with_another_hash_is_not_kept(cache, locked):
    locked.write_bytes(bytes(3_000_000))
    with pytest.raises(OSError, match=r"PY_ATTN_MODELS.*another SHA-256"):
        await NativeBridge().fetch_asset("some/file.bin")
    assert not [path for path in cache.rglob("*") if path.is_file()]


async def test_a_download_can_be_cancelled(cache, locked):
    task = asyncio.ensure_future(NativeBridge().fetch_asset("some/file.bin", lambda *_: task.cancel()))
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_file_that_nobody_knows(cache, locked):
    with pytest.raises(OSError, match="no such file: not on this computer"):
        await NativeBridge().fetch_asset("no such file")


def test_the_lock_is_found():
    lock = json.loads((files.Path(pa.__file__).parent.parent / "assets.lock.json").read_text("utf-8"))
    for item in lock["assets"]:
        assert files._locked(item["name"]) == item


def test_the_folder_of_the_cache(monkeypatch):
    monkeypatch.delenv("PY_ATTN_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert files.cache_folder().as_posix() == "/somewhere/py-attn"
    monkeypatch.setenv("PY_ATTN_CACHE", "/elsewhere")
    assert files.cache_folder().as_posix() == "/elsewhere"


def test_the_bridge_answers_to_the_whole_protocol():
    from py_attn.gpu.bridge import DeviceBridge

    asked = {name for name in vars(DeviceBridge) if not name.startswith("_")} - {"info"}
    assert asked <= set(vars(native_device.NativeDeviceBridge))
