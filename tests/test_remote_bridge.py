"""The bridge to a page elsewhere, through a channel that carries JSON and bytes."""

import asyncio
import gc
import threading

import numpy as np
import pytest

import py_attn as pa
from py_attn.remote.bridge import RemoteDeviceBridge
from py_attn.remote.protocol import pack, unpack
from tests.fake_page import FakePage
from tests.recording_bridge import RecordingBridge


def ops(fake):
    return [command["op"] for message in fake.messages for command in message.get("ops", [])]


@pytest.mark.parametrize(
    "value",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.arange(12, dtype=np.float16).reshape(3, 4).T,
        np.zeros((0, 3), np.int32),
        np.array(2.5),
    ],
)
def test_arrays_travel_in_buffers(value):
    buffers = []
    packed = pack({"a": [value, 1], "b": None}, buffers)
    back = unpack(packed, [bytes(b) for b in buffers])
    np.testing.assert_array_equal(back["a"][0], value)
    assert back["a"][0].dtype == value.dtype
    assert back["a"][1:] == [1]


async def test_a_tensor_comes_back_as_it_went():
    fake = FakePage()
    device = await fake.page.request_device()
    array = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    np.testing.assert_array_equal(await device.tensor(array).numpy(), array)
    kinds = [(m["kind"], [c["op"] for c in m["ops"]]) for m in fake.messages]
    # what is made is sent with what waits for it
    assert kinds[1] == ("bridge", ["create_buffer", "write_buffer", "read_buffer"])


async def test_the_same_programs_as_on_a_local_bridge():
    rng = np.random.default_rng(1)
    query, key, value = (rng.standard_normal((1, 2, 40, 16)).astype(np.float32) for _ in range(3))

    async def run(device):
        out, lse = pa.attention(
            device.tensor(query), device.tensor(key), device.tensor(value), causal=True, return_lse=True
        )
        pa.attention_weights(device.tensor(query), device.tensor(key), lse, rows=slice(3, 9))
        with device.record() as program:
            pa.attention_weights(device.tensor(query), device.tensor(key), lse)
        program.submit(times=3)
        await program.time(times=2)
        await out.numpy()
        await device.synchronize()

    fake, local = FakePage(subgroup_size=4), RecordingBridge(subgroup_size=4)
    await run(await fake.page.request_device())
    await run(await pa.request_device(local))
    far = [[(launch.label, launch.params, launch.workgroups) for launch in p] for p in fake.gpu.programs]
    near = [[(launch.label, launch.params, launch.workgroups) for launch in p] for p in local.programs]
    assert far == near


async def test_large_transfers_go_in_parts(monkeypatch):
    monkeypatch.setattr(RemoteDeviceBridge, "chunk_bytes", 1 << 10)
    fake = FakePage()
    device = await fake.page.request_device()
    array = np.arange(3000, dtype=np.int32)
    np.testing.assert_array_equal(await device.tensor(array).numpy(), array)
    assert ops(fake).count("write_buffer") == 12
    assert ops(fake).count("read_buffer") == 12


async def test_everything_made_is_given_back():
    fake = FakePage()
    device = await fake.page.request_device()
    big = device.tensor(np.zeros(40 << 20, np.uint8).view(np.float32))
    other = device.tensor(np.zeros(40 << 20, np.uint8).view(np.float32))
    del big
    thread = threading.Thread(target=other.destroy)
    thread.start()
    thread.join()
    del other
    gc.collect()
    await device.synchronize()
    assert device.memory_allocated() == 0
    device.destroy()
    assert device.lost
    assert ops(fake).count("create_buffer") == 2
    assert ops(fake).count("destroy_buffer") == 1  # the other one waits in the pool
    assert ops(fake)[-1] == "destroy"


async def test_timings_and_errors_come_back():
    fake = FakePage(features=["timestamp-query"])
    device = await fake.page.request_device()
    x = np.ones((1, 1, 4, 8), np.float32)
    with device.timer() as timer:
        pa.attention(device.tensor(x), device.tensor(x), device.tensor(x))
    rows = await timer.results()
    assert [(row.gpu_us, row.wall_us, row.compile_us) for row in rows] == [(5.0, 10.0, 1000.0)]
    fake.errors = [{"kind": "validation", "label": "this", "message": "no", "line": 0}]
    with pytest.raises(pa.GPUValidationError, match="this: no"):
        await device.synchronize()
    await device.synchronize()


async def test_a_page_without_webgpu_says_why():
    fake = FakePage()
    fake.refuse = "no adapter"
    with pytest.raises(pa.WebGPUUnavailableError, match="no adapter"):
        await fake.page.request_device()
    fake.refuse = None
    assert await fake.page.request_device() is await fake.page.request_device()


async def test_a_silent_page_is_an_error_and_no_hang():
    fake = FakePage()
    fake.page.ping_seconds = 0.01
    device = await fake.page.request_device()
    tensor = device.tensor(np.ones(4, np.float32))
    fake.deaf = True
    with pytest.raises(pa.DeviceLostError, match="has not answered"):
        await tensor.numpy()
    assert device.lost
    with pytest.raises(pa.DeviceLostError):
        device.tensor([1.0])
    assert [m["kind"] for m in fake.messages].count("ping") == fake.page.max_missed_pings


async def test_many_who_wait_at_once_send_no_more_pings_than_one():
    fake = FakePage()
    fake.page.ping_seconds = 0.05
    device = await fake.page.request_device()
    tensor = device.tensor(np.ones(4, np.float32))
    fake.deaf = True
    readings = [asyncio.create_task(tensor.numpy()) for _ in range(16)]
    await asyncio.sleep(0.12)
    assert not fake.page.gone
    assert 1 <= [m["kind"] for m in fake.messages].count("ping") <= 3
    results = await asyncio.gather(*readings, return_exceptions=True)
    assert {type(result) for result in results} == {pa.DeviceLostError}


async def test_a_slow_page_that_lives_is_waited_for():
    fake = FakePage()
    fake.page.ping_seconds = 0.01
    device = await fake.page.request_device()
    tensor = device.tensor(np.ones(4, np.float32))
    held = []
    fake.answer = lambda message, buffers: (
        held.append((message, buffers))
        if message["kind"] == "bridge-answer"
        else fake.page.receive(message, buffers)
    )
    reading = asyncio.create_task(tensor.numpy())
    await asyncio.sleep(0.2)
    assert not reading.done()
    fake.answer = fake.page.receive
    for answer in held:
        fake.page.receive(*answer)
    np.testing.assert_array_equal(await reading, np.ones(4))


async def test_a_closed_page_ends_what_waits_for_it():
    fake = FakePage()
    device = await fake.page.request_device()
    tensor = device.tensor(np.ones(4, np.float32))
    fake.deaf = True
    reading = asyncio.create_task(tensor.numpy())
    await asyncio.sleep(0.01)
    # from another thread, as a subshell delivers it
    thread = threading.Thread(target=fake.page.close, args=("the page was closed",))
    thread.start()
    thread.join()
    with pytest.raises(pa.DeviceLostError, match="closed"):
        await reading
    assert not fake.page._pending


async def test_a_lost_device_is_replaced_at_the_next_request():
    fake = FakePage()
    device = await fake.page.request_device()
    name = fake.messages[0]["device"]
    fake.page.receive({"kind": "lost", "device": name, "reason": "unplugged"}, [])
    with pytest.raises(pa.DeviceLostError, match="unplugged"):
        device.tensor([1.0])
    again = await fake.page.request_device()
    assert again is not device
    np.testing.assert_array_equal(await again.tensor([1.0]).numpy(), [1.0])


async def test_a_cancelled_wait_leaves_nothing():
    fake = FakePage()
    device = await fake.page.request_device()
    tensor = device.tensor(np.ones(4, np.float32))
    fake.deaf = True

    async def asked(op):
        """The number of the one question that is open, once it is this one."""
        async with asyncio.timeout(60):
            while True:
                commands = [command for message in fake.messages for command in message.get("ops", ())]
                open_ones = {c["id"]: c["op"] for c in commands if c.get("id") in fake.page._pending}
                if list(open_ones.values()) == [op] and len(fake.page._pending) == 1:
                    return next(iter(open_ones))
                await asyncio.sleep(0)

    reading = asyncio.create_task(tensor.numpy())
    await asked("read_buffer")
    reading.cancel()
    # reading back asks for errors at its end; cancelling ends that wait too
    number = await asked("synchronize")
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    # what the page answers to that is kept for whoever waits next, and nothing else is left
    assert list(fake.page._pending) == [number]
    error = {"kind": "validation", "label": "x", "message": "it went wrong", "line": 0}
    fake.answer({"kind": "bridge-answer", "id": number, "result": [error]}, [])
    async with asyncio.timeout(60):
        while fake.page._pending:
            await asyncio.sleep(0)
    fake.deaf = False
    with pytest.raises(pa.GPUValidationError, match="it went wrong"):
        await device.synchronize()
    await device.synchronize()
    assert not fake.page._pending
