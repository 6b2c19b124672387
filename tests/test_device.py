"""The device on a recording bridge: memory, order of work, programs, clocks, errors, loss."""

import asyncio
import gc

import numpy as np
import pytest

import py_attn as pa
from py_attn.errors import (
    DeviceLostError,
    GPUOutOfMemoryError,
    GPUValidationError,
    PyAttnError,
    ShaderError,
    WebGPUUnavailableError,
)
from py_attn.gpu import device as gpu_device
from py_attn.gpu import memory
from py_attn.gpu.bridge import AdapterInfo, BridgeError
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, render, shader_folder
from tests.recording_bridge import RecordingBridge


def run(coroutine):
    return asyncio.run(coroutine)


def device_on(bridge):
    return run(gpu_device.request_device(bridge))


def qkv(device, batch=1, heads=2, length=5, dim=4):
    return [device.tensor(np.ones((batch, heads, length, dim), np.float32)) for _ in range(3)]


# Asking for one


def test_no_webgpu_in_this_python():
    with pytest.raises(WebGPUUnavailableError, match="this Python has no"):
        run(pa.request_device())


def test_no_device_yet(bridge):
    with pytest.raises(WebGPUUnavailableError, match="request_device"):
        pa.default_device()


def test_the_last_one_is_the_default(bridge):
    first, second = device_on(bridge), device_on(RecordingBridge())
    assert pa.default_device() is second
    assert first is not second
    second.destroy()
    with pytest.raises(DeviceLostError, match="request a new one"):
        pa.default_device()


def test_why_there_is_none_is_passed_on(bridge):
    async def refuse():
        raise WebGPUUnavailableError("no adapter")

    bridge.request_device = refuse
    with pytest.raises(WebGPUUnavailableError, match="no adapter"):
        device_on(bridge)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("nvidia", "hopper", "NVIDIA H200"), "nvidia hopper NVIDIA H200"),
        (("google", "swiftshader", "swiftshader"), "google swiftshader"),
        (("", "", ""), "unnamed GPU"),
    ],
)
def test_adapter_in_words(words, text):
    assert str(AdapterInfo(*words, False, frozenset(), {})) == text


def test_a_software_adapter_without_words_has_a_name():
    assert str(AdapterInfo("", "", "", True, frozenset(), {})) == "unnamed software adapter"


# Memory


def test_memory_is_counted_and_comes_back(device, bridge):
    a = device.tensor(np.zeros(100, np.float32))
    b = device.tensor(np.zeros(3, np.float16))
    assert device.memory_allocated() == 400 + 16
    view = a[10:]
    del a
    gc.collect()
    assert device.memory_allocated() == 400 + 16
    del view
    b.destroy()
    gc.collect()
    assert device.memory_allocated() == 0


def test_results_dropped_before_they_ran_are_kept_until_then(device, bridge):
    pa.attention(*qkv(device))
    gc.collect()
    # Nobody holds a tensor any more, but the recorded dispatch needs its buffers.
    assert device.memory_allocated() == 0
    device.tensor(np.zeros(40, np.float32))
    (launch,) = bridge.programs[0]
    assert len({handle for handle, *_ in launch.buffers}) == 4
    log = [name for name, *_ in bridge.log]
    assert log.index("run_program") < len(log) - log[::-1].index("write_buffer") - 1


def test_freed_buffers_are_used_again(device, bridge):
    first = device.tensor(np.zeros(100, np.float32))
    handle = first._storage.handle
    first.destroy()
    again = device.tensor(np.ones(98, np.float32))
    assert again._storage.handle == handle
    assert device.tensor(np.ones(100, np.float32))._storage.handle != handle
    assert len(bridge.of("create_buffer")) == 2
    np.testing.assert_array_equal(run(again.numpy()), 1)


def test_the_pool_has_an_end(bridge, monkeypatch):
    monkeypatch.setattr(memory, "_POOL_BYTES", 1000)
    device = device_on(bridge)
    tensors = [device.tensor(np.zeros(100, np.float32)) for _ in range(4)]
    for tensor in tensors:
        tensor.destroy()
    assert len(bridge.buffers) == 2
    assert device.memory_allocated() == 0


def test_the_pool_lets_go_of_what_has_waited_the_longest(bridge, monkeypatch):
    monkeypatch.setattr(memory, "_POOL_BYTES", 1000)
    device = device_on(bridge)
    tensors = [device.tensor(np.zeros(n, np.float32)) for n in (80, 100, 120, 20)]
    handles = [tensor._storage.handle for tensor in tensors]
    for tensor in tensors:
        tensor.destroy()
    assert set(bridge.buffers) == set(handles[1:])
    assert device.tensor(np.zeros(120, np.float32))._storage.handle == handles[2]


def test_large_results_that_are_dropped_use_one_buffer(bridge, monkeypatch):
    monkeypatch.setattr(memory, "_POOL_BYTES", 64)
    device = device_on(bridge)
    inputs = qkv(device, length=64)
    made = len(bridge.buffers)
    for _ in range(40):
        pa.attention(*inputs)
    assert len(bridge.of("create_buffer")) == len(bridge.buffers) == made + 1
    for tensor in inputs:
        tensor.destroy()
    device.flush()
    # No more lies idle than was in use when the last one was dropped.
    assert len(bridge.buffers) == 1


def test_one_that_is_larger_than_all_others_is_kept_for_the_next_one(bridge, monkeypatch):
    monkeypatch.setattr(memory, "_POOL_BYTES", 64)
    device = device_on(bridge)
    for _ in range(3):
        device.empty((1 << 16,))
    assert len(bridge.of("create_buffer")) == len(bridge.buffers) == 1


def test_a_buffer_is_destroyed_behind_the_work_that_uses_it(bridge, monkeypatch):
    monkeypatch.setattr(memory, "_POOL_BYTES", 0)
    device = device_on(bridge)
    inputs = qkv(device)
    pa.attention(*inputs)
    out = pa.attention(*inputs)
    for tensor in (out, *inputs):
        tensor.destroy()
    assert bridge.of("destroy_buffer") == []
    device.flush()
    names = [name for name, *_ in bridge.of("run_program", "destroy_buffer")]
    assert names == ["run_program"] * 2 + ["destroy_buffer"] * 3
    # The last one is kept for a tensor of its size.
    assert len(bridge.buffers) == 1


@pytest.mark.parametrize("make", ["tensor", "empty"])
def test_buffers_beyond_the_limit_are_refused(make):
    bridge = RecordingBridge(maxBufferSize=1 << 10)
    device = device_on(bridge)
    with pytest.raises(ValueError, match=r"1,200 bytes asked .* allows 1,024 \(maxBufferSize\)"):
        device.tensor(np.zeros(300, np.float32)) if make == "tensor" else device.empty((3, 100))
    assert bridge.log == []
    assert device.memory_allocated() == 0
    assert device.tensor(np.zeros(256, np.float32)).nbytes == 1 << 10


@pytest.mark.parametrize(
    ("shape", "error"), [((-1,), ValueError), ((1.5,), TypeError), ((True,), TypeError), (("a",), TypeError)]
)
def test_wrong_shapes_are_refused(device, shape, error):
    with pytest.raises(error, match="shape: expected"):
        device.empty(shape)


def test_more_elements_than_a_word_counts(device):
    # The product must not wrap around.
    with pytest.raises(ValueError, match="maxBufferSize"):
        device.empty((1 << 33, 1 << 33))


def test_outputs_are_poisoned_where_asked(device):
    device.poison_outputs = True
    assert np.isnan(run(device.empty((3, 5)).numpy())).all()
    assert np.isnan(run(device.empty((3, 5), "float16", pitch=8).numpy())).all()
    assert np.isnan(run(device.empty((7,), "bfloat16").numpy())).all()
    assert device.empty((0, 5)).size == 0


# Order of work


def test_work_is_sent_on_when_it_is_read(device, bridge):
    inputs = qkv(device)
    out = pa.attention(*inputs)
    pa.attention(*inputs)
    assert [len(program) for program in bridge.programs] == [1]
    run(out.numpy())
    assert [len(program) for program in bridge.programs] == [1, 1]
    assert [name for name, *_ in bridge.log][-3:] == ["run_program", "read_buffer", "synchronize"]


def test_an_idle_gpu_starts_at_once_and_batches_grow(device, bridge):
    inputs = qkv(device)
    for _ in range(51):
        pa.attention(*inputs)
    assert [len(program) for program in bridge.programs] == [1, 2, 4, 8, 16, 16]
    device.flush()
    assert [len(program) for program in bridge.programs] == [1, 2, 4, 8, 16, 16, 4]
    device.flush()
    assert len(bridge.programs) == 7
    run(device.synchronize())
    for _ in range(4):
        pa.attention(*inputs)
    assert [len(program) for program in bridge.programs[7:]] == [1, 2]


def test_an_upload_does_not_make_batches_small_again(device, bridge):
    inputs = qkv(device)
    for _ in range(4):
        pa.attention(*inputs)
    device.tensor(np.zeros(4))
    for _ in range(4):
        pa.attention(*inputs)
    assert [len(program) for program in bridge.programs] == [1, 2, 1, 4]


def test_after_reading_back_the_gpu_starts_at_once(device, bridge):
    inputs = qkv(device)
    for _ in range(3):
        pa.attention(*inputs)
        run(pa.attention(*inputs).numpy())
    assert [len(program) for program in bridge.programs] == [1] * 6


def test_a_write_comes_after_what_was_recorded_before_it(device, bridge):
    inputs = qkv(device)
    pa.attention(*inputs)
    pa.attention(*inputs)
    bridge.log.clear()
    device.tensor(np.zeros(4))
    assert [name for name, *_ in bridge.log] == ["create_buffer", "run_program", "write_buffer"]


def test_poison_comes_before_the_kernel(device, bridge):
    inputs = qkv(device)
    device.poison_outputs = True
    out = pa.attention(*inputs)
    device.flush()
    (launch,) = bridge.programs[0]
    assert launch.buffers[-1][0] == out._storage.handle
    log = [name for name, *_ in bridge.log]
    assert "write_buffer" not in log[log.index("run_program") :]
    assert np.isnan(run(out.numpy())).all()


def test_params_blocks_are_apart(device, bridge):
    inputs = qkv(device)
    for window in ((1, 1), (1, 1), (2, 0)):
        pa.attention(*inputs, window=window)
    first, second = (launch.params for launch in bridge.programs[1])
    assert len(first) == len(second)
    assert first != second
    assert len(bridge.pipelines) == 1


# Programs


def test_a_program_is_recorded_once_and_crosses_once_a_submission(device, bridge):
    inputs = qkv(device)
    with device.record() as program:
        out = pa.attention(*inputs)
        pa.attention(*inputs, causal=True)
        bridge.log.clear()
    assert len(program) == 2
    assert [d.shader.name for d in program.dispatches] == ["attention"] * 2
    assert bridge.programs == []
    for _ in range(3):
        program.submit()
    assert [name for name, *_ in bridge.log] == ["create_program", *["submit_program"] * 3]
    assert bridge.programs[0] == bridge.programs[1] == bridge.programs[2]
    assert out.shape == (1, 2, 5, 4)


def test_a_program_runs_many_times_in_one_submission(device, bridge):
    inputs = qkv(device)
    with device.record() as program:
        pa.attention(*inputs)
        pa.attention(*inputs, causal=True)
    program.submit()
    program.submit(times=3)
    once, thrice = bridge.programs
    assert thrice == once * 3
    assert [name for name, *_ in bridge.log].count("submit_program") == 2


@pytest.mark.parametrize(
    ("times", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_a_program_runs_at_least_once(device, bridge, times, error):
    inputs = qkv(device)
    with device.record() as program:
        pa.attention(*inputs)
    with pytest.raises(error, match=r"^times: "):
        program.submit(times)
    assert bridge.programs == []


def test_a_timer_times_each_of_a_program_s_runs(device):
    inputs = qkv(device)
    with device.record() as program:
        pa.attention(*inputs)
    with device.timer() as timer:
        program.submit(times=3)
    assert len(run(timer.results())) == 3


def test_a_program_runs_after_what_was_called_before_it(device, bridge):
    inputs = qkv(device)
    with device.record() as program:
        pa.attention(*inputs)
    for _ in range(3):
        pa.attention(*inputs, causal=True)
    pa.attention(*inputs, causal=True)
    program.submit()
    assert [len(launches) for launches in bridge.programs] == [1, 2, 1, 1]


def test_params_can_be_changed_between_submissions(device, bridge):
    with device.record() as program:
        pa.attention(*qkv(device))
    program.submit()
    layout = program.dispatches[0].shader.params
    at = layout.dtype.fields["window_right"][1]
    program.params[at : at + 4] = (3).to_bytes(4, "little")
    program.submit()
    windows = [layout.unpack(launch.params)["window_right"] for (launch,) in bridge.programs]
    assert windows == [1 << 30, 3]


def test_a_program_keeps_its_tensors(device, bridge):
    with device.record() as program:
        pa.attention(*qkv(device))
    gc.collect()
    assert device.memory_allocated() == 4 * 160
    program.submit()
    program.destroy()
    gc.collect()
    assert device.memory_allocated() == 0
    assert len(bridge.of("destroy_program")) == 1
    program.submit()
    assert len(bridge.programs) == 1


def test_a_dropped_program_goes_from_the_bridge_too(device, bridge):
    with device.record() as program:
        out = pa.attention(*qkv(device))
    program.submit()
    del program
    gc.collect()
    assert len(bridge.of("destroy_program")) == 1
    # What was submitted is computed nevertheless.
    assert [len(launches) for launches in bridge.programs] == [1]
    assert device.memory_allocated() == out.nbytes


def test_a_program_of_a_destroyed_tensor_is_refused(device, bridge):
    inputs = qkv(device)
    with device.record() as program:
        pa.attention(*inputs)
    inputs[1].destroy()
    with pytest.raises(ValueError, match="program: a tensor that it uses was destroyed"):
        program.submit()
    assert bridge.programs == []


def test_an_empty_program(device, bridge):
    with device.record() as program:
        pass
    program.submit()
    program.destroy()
    assert bridge.log == []


def test_programs_do_not_nest(device):
    with device.record(), pytest.raises(RuntimeError, match="recorded already"), device.record():
        pass
    with device.record() as program:
        pa.attention(*qkv(device))
    assert len(program) == 1


def test_recording_ends_when_the_block_raises(device, bridge):
    def fail():
        with device.record():
            pa.attention(*qkv(device), causal="no")

    with pytest.raises(ValueError, match="causal"):
        fail()
    pa.attention(*qkv(device))
    device.flush()
    assert len(bridge.programs) == 1


def test_a_program_survives_forgotten_pipelines(device, bridge):
    with device.record() as program:
        pa.attention(*qkv(device))
    program.submit()
    device.clear_pipelines()
    assert bridge.pipelines == {}
    pa.attention(*qkv(device))
    device.flush()
    assert len(bridge.of("create_pipeline")) == 2


# Clocks


def test_timings_one_a_dispatch(bridge):
    bridge = RecordingBridge(features=("timestamp-query",))
    device = device_on(bridge)
    inputs = qkv(device)
    pa.attention(*inputs)
    with device.timer() as timer:
        pa.attention(*inputs)
        pa.attention(*inputs, softcap=2.0)
        pa.attention(*inputs, softcap=3.0)
    rows = run(timer.results())
    assert [(r.kernel, r.variant, r.gpu_us) for r in rows] == [("attention", "naive", 5.0)] * 3
    assert [r.compile_us for r in rows] == [None, 1000.0, None]
    assert all(r.wall_us >= 10 and r.workgroups == (1, 1, 1) for r in rows)
    assert rows[1].shader.constants["softcap"] is True
    assert "fn main" in rows[1].shader.wgsl
    # What was called before the timer is not in it.
    assert [len(program) for program in bridge.programs] == [1, 1, 1, 1]
    assert run(timer.results()) == []


def test_without_timestamps_there_is_no_gpu_time(device):
    with device.timer() as timer:
        pa.attention(*qkv(device))
    (row,) = run(timer.results())
    assert row.gpu_us is None
    assert row.wall_us == 10.0


def test_a_program_can_be_timed(device):
    with device.record() as program:
        pa.attention(*qkv(device))
        pa.attention(*qkv(device))
    with device.timer() as timer:
        program.submit()
    assert [row.wall_us for row in run(timer.results())] == [10.0, 11.0]


def test_timers_do_not_nest(device):
    with device.timer(), pytest.raises(RuntimeError, match="timed already"), device.timer():
        pass
    with device.timer():
        pass


def test_compiling_again(device, bridge):
    inputs = qkv(device)
    for _ in range(2):
        with device.timer() as timer:
            pa.attention(*inputs)
        (row,) = run(timer.results())
        assert row.compile_us == 1000.0
        device.clear_pipelines()
    assert bridge.pipelines == {}


# Errors


def broken_shader():
    """A real shader; which of its lines is said to be wrong is up to the test."""
    return render(
        "decode/append.wgsl", "cache_append", "test",
        params=ParamsLayout(count="u32"),
        bindings=(Binding("source", "f32"), Binding("cache", "vec4<f32>", writes=True)),
        constants={
            "source_dtype": "float32", "source_packed": False, "cache_dtype": "float32",
            "dtypes": ("float32",), "has_state": False, "has_totals": False,
            "has_pages": False, "turns": False, "D": 4, "D4": 1, "WORKGROUP": 64,
        },
    )  # fmt: skip


def dispatch(device, shader):
    source, target = device.tensor(np.zeros(4, np.float32)), device.empty((4,))
    params = shader.params.pack(count=1)
    device.dispatch(shader, params, [device.bind(source, "source"), device.bind(target, "cache")], (1, 1, 1))


def test_shader_errors_name_the_line_of_the_template(device, bridge):
    shader = broken_shader()
    dispatch(device, shader)
    line = next(n for n, text in enumerate(shader.wgsl.splitlines(), 1) if "let head = row" in text)
    bridge.errors = [BridgeError("shader", shader.label, "no such thing as 'slot'", line)]
    with pytest.raises(ShaderError, match=r"cache_append/test, decode/append.wgsl:\d+: no such") as caught:
        run(device.synchronize())
    number = int(str(caught.value).split("decode/append.wgsl:")[1].split(":")[0])
    template = (shader_folder() / "decode/append.wgsl").read_text(encoding="utf-8").splitlines()
    assert "let head = row" in template[number - 1]


def test_a_broken_shader_is_named_before_what_it_broke(device, bridge):
    shader = broken_shader()
    dispatch(device, shader)
    bridge.errors = [
        BridgeError("validation", shader.label, "the pipeline is invalid"),
        BridgeError("shader", shader.label, "expected ';'", 3),
    ]
    with pytest.raises(ShaderError, match="expected ';'"):
        run(device.synchronize())


def test_a_pipeline_that_failed_is_made_again(device, bridge):
    shader = broken_shader()
    for _ in range(2):
        dispatch(device, shader)
        bridge.errors = [BridgeError("shader", shader.label, "no", 0)]
        with pytest.raises(ShaderError, match="unknown line: no"):
            run(device.synchronize())
    assert len(bridge.of("create_pipeline")) == 2


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("validation", GPUValidationError),
        ("internal", GPUValidationError),
        ("out-of-memory", GPUOutOfMemoryError),
    ],
)
def test_what_webgpu_reports_is_raised_once(device, bridge, kind, error):
    tensor = device.tensor(np.arange(4))
    bridge.errors = [BridgeError(kind, "value of 64 bytes", "because"), BridgeError(kind, "b", "c")]
    with pytest.raises(error, match=r"^value of 64 bytes: because \(1 more errors?\)$") as caught:
        run(tensor.numpy())
    assert isinstance(caught.value, PyAttnError)
    assert isinstance(caught.value, MemoryError) == (kind == "out-of-memory")
    assert run(tensor.numpy()).tolist() == [0, 1, 2, 3]


def test_errors_come_up_in_timings_too(device, bridge):
    with device.timer() as timer:
        pa.attention(*qkv(device))
    bridge.errors = [BridgeError("validation", "attention/naive", "too many")]
    with pytest.raises(GPUValidationError, match="attention/naive: too many"):
        run(timer.results())


# Loss


def test_everything_on_a_lost_device_says_so(device, bridge):
    inputs = qkv(device)
    with device.record() as program:
        pa.attention(*inputs)
    cache = pa.KVCache(1, 1, 8, 4)
    before = len(bridge.log)
    device.destroy()
    assert device.lost
    attempts = [
        lambda: device.tensor([1.0]),
        lambda: device.empty((1,)),
        lambda: pa.attention(*inputs),
        lambda: pa.attention(*np.ones((3, 1, 1, 1, 1))),
        lambda: cache.append(*np.ones((2, 1, 1, 1, 4))),
        lambda: pa.decode_attention(np.ones((1, 1, 1, 4)), cache),
        lambda: pa.KVCache(1, 1, 8, 4),
        program.submit,
        lambda: run(device.synchronize()),
        lambda: run(inputs[0].numpy()),
        lambda: device.record().__enter__(),
        lambda: device.timer().__enter__(),
    ]
    for attempt in attempts:
        with pytest.raises(DeviceLostError, match=r"lost \(destroyed\)|request a new one"):
            attempt()
    assert len(bridge.log) == before
    program.destroy()
    cache.destroy()
    for tensor in inputs:
        tensor.destroy()
    assert bridge.of("destroy_buffer", "destroy_program") == []


def test_recorded_work_of_a_lost_device_is_dropped(device, bridge):
    pa.attention(*qkv(device))
    out = pa.attention(*qkv(device))
    bridge.reason = "unknown: the driver"
    device.flush()
    assert len(bridge.launches) == 1
    with pytest.raises(DeviceLostError, match="the driver"):
        run(out.numpy())


def test_tensors_of_two_devices_do_not_mix(bridge):
    first, second = device_on(bridge), device_on(RecordingBridge())
    query, key, value = qkv(first)
    other = qkv(second)[1]
    with pytest.raises(ValueError, match=r"^key: the tensor is on another device"):
        pa.attention(query, other, value)
    cache = pa.KVCache(1, 2, 8, 4, device=first)
    with pytest.raises(ValueError, match=r"^value: the tensor is on another device"):
        cache.append(key, other)
    assert cache.length == 0
    # Tensors decide where the work is done, not the default device.
    pa.attention(query, key, value)
    first.flush()
    assert len(bridge.programs) == 1


def test_assets_come_through_the_bridge(device, bridge):
    bridge.assets["sample"] = b"abcd"
    seen = []
    data = run(device.fetch_asset("sample", lambda *progress: seen.append(progress)))
    assert bytes(data) == b"abcd"
    assert seen == [(2, 4), (4, 4)]


def test_shaders_of_one_name_are_told_apart(device, bridge):
    query, key, value = qkv(device)
    pa.attention(query, key, value)
    pa.attention(query, key, value, softcap=2.0)
    assert len({label for label, *_ in bridge.pipelines.values()}) == len(bridge.pipelines) == 2


def test_a_tensor_is_not_read_while_it_is_written(device, bridge):
    cache = pa.KVCache(1, 2, 8, 4)
    cache.append(np.ones((1, 2, 1, 4)), np.ones((1, 2, 1, 4)))
    device.flush()
    bridge.log.clear()
    with pytest.raises(ValueError, match="read while it is written"):
        cache.append(cache.keys[:, :, :1], cache.values[:, :, :1])
    assert cache.length == 1


def test_axes_and_shapes_also_come_as_tuples(device):
    tensor = device.tensor(np.arange(6.0).reshape(2, 3))
    assert tensor.transpose((1, 0)).shape == tensor.reshape((3, 2)).shape == (3, 2)


def test_a_program_is_timed_as_a_whole(device, bridge):
    with device.record() as program:
        pa.attention(*qkv(device))
        pa.attention(*qkv(device))
    for times in (1, 3):
        clock = run(program.time(times))
        assert (clock.gpu_us, clock.wall_us) == (None, 10.0)
    once, thrice = bridge.programs
    assert thrice == once * 3
    with pytest.raises(ValueError, match=r"^times: "):
        run(program.time(0))
    program.destroy()
    with pytest.raises(ValueError, match="nothing was recorded"):
        run(program.time())
