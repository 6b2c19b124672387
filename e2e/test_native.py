"""What is special about Python without a browser: event loops, threads, waits, and what is kept on disk."""

import asyncio
import gc
import threading
import time

import numpy as np
import pytest
from wgpu import GPUPromise

import py_attn as pa
from py_attn.gpu import device as devices

X = np.random.default_rng(0).standard_normal((1, 2, 64, 32)).astype(np.float32)
EXACT = pa.reference.attention(X, X, X)


@pytest.fixture(autouse=True)
def default_device(lab):
    """The other tests' device stays the default one."""
    kept = devices._default
    yield
    devices._default = kept


async def error_of(device):
    x = device.tensor(X)
    return float(np.abs(await pa.attention(x, x, x).numpy() - EXACT).max())


def long_work(device):
    """A call that takes seconds on a software adapter."""
    size = 1024 if device.info.software else 8192
    x = device.tensor(np.zeros((1, 8, size, 64), np.float32))
    return pa.attention(x, x, x, variant="naive")


def test_one_event_loop_after_another(lab):
    device = asyncio.run(pa.request_device())
    assert [asyncio.run(error_of(device)) < 1e-5 for _ in range(2)] == [True, True]
    device.destroy()


def test_a_wait_leaves_no_promise_behind(lab):
    async def promises():
        x = pa.default_device().tensor(X)
        for _ in range(20):
            await pa.attention(x, x, x).numpy()
        await pa.default_device().synchronize()
        await asyncio.sleep(0)
        gc.collect()
        return sum(isinstance(each, GPUPromise) for each in gc.get_objects())

    async def work():
        device = await pa.request_device()
        found = [await promises() for _ in range(2)]
        device.destroy()
        return found

    before, after = asyncio.run(work())
    assert after <= before


def test_threads_with_a_device_each(lab):
    errors = []

    async def work():
        device = await pa.request_device()
        errors.append(await error_of(device))
        device.destroy()

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [error < 1e-5 for error in errors] == [True] * 3


def test_a_wait_leaves_the_loop_free_and_can_be_cancelled(lab):
    async def cancelled():
        device = await pa.request_device()
        task = asyncio.ensure_future(long_work(device).numpy())
        await asyncio.sleep(0.01)
        begun = time.perf_counter()
        # Other work can be handed over meanwhile.
        device.tensor(X)
        device.flush()
        elapsed = time.perf_counter() - begun
        waited = not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return device, waited, elapsed

    device, waited, elapsed = asyncio.run(cancelled())
    assert waited
    assert elapsed < 0.5
    # The event loop of the cancelled wait is closed.
    assert asyncio.run(error_of(device)) < 1e-5
    device.destroy()


def test_a_loss_ends_the_wait(lab):
    async def lose():
        device = await pa.request_device()
        task = asyncio.ensure_future(long_work(device).numpy())
        await asyncio.sleep(0.01)
        begun = time.perf_counter()
        device.destroy()
        with pytest.raises(pa.DeviceLostError, match="destroyed"):
            await task
        return time.perf_counter() - begun

    assert asyncio.run(lose()) < 0.5


def test_wgpus_device_may_be_destroyed_by_others(lab):
    async def lose():
        device = await pa.request_device()
        x = device.tensor(X)
        task = asyncio.ensure_future(long_work(device).numpy())
        await asyncio.sleep(0.01)
        device._bridge._device.destroy()
        for work in (task, device.synchronize(), x.numpy()):
            with pytest.raises(pa.DeviceLostError, match=r"the device was lost \(destroyed\)"):
                await asyncio.wait_for(work, 5)
        another = await pa.request_device()
        with pytest.raises(pa.DeviceLostError, match="request a new one and upload again"):
            pa.attention(another.tensor(X), x, x)
        found = await error_of(another)
        another.destroy()
        return found

    assert asyncio.run(lose()) < 1e-5


def test_no_memory_left(lab):
    if "SwiftShader" not in lab.info["adapter"]:
        pytest.skip("other drivers hand out memory that they do not have, or have very much")

    async def fill_up(device, kept):
        size = device.info.limits["maxBufferSize"] // 4
        while True:
            kept.append(device.empty((size,)))
            await device.synchronize()

    async def fill():
        device = await pa.request_device()
        kept = []
        with pytest.raises(pa.GPUOutOfMemoryError, match="bytes"):
            await fill_up(device, kept)
        kept.clear()
        found = await error_of(device)
        device.destroy()
        return found

    assert asyncio.run(fill()) < 1e-5


def test_the_tuner_finds_what_an_earlier_process_measured(lab):
    async def keep():
        device = await pa.request_device()
        earlier = await device.tuner._bridge.load_note(device.tuner._name)
        await device.tuner._bridge.save_note(device.tuner._name, '{"a bucket": "a tile"}')
        try:
            return dict((await pa.request_device()).tuner.choices)
        finally:
            await device.tuner._bridge.save_note(device.tuner._name, earlier)

    assert asyncio.run(keep())["a bucket"] == "a tile"


def test_a_small_call_that_is_waited_for(lab):
    # 0.3 to 0.4 ms on a software adapter. The shortest counts, as test machines are busy.
    async def shortest():
        device = await pa.request_device()
        x = device.tensor(X[:, :, :4, :8])
        times = []
        for _ in range(100):
            begun = time.perf_counter()
            await pa.attention(x, x, x).numpy()
            times.append(time.perf_counter() - begun)
        device.destroy()
        return min(times)

    assert asyncio.run(shortest()) < 4e-3
