"""No room for a buffer, in every family of kernels: an error that names it, and then the device goes on."""

import asyncio
import gc

import numpy as np
import pytest

import py_attn as pa
from e2e.page.families import FAMILIES
from py_attn.errors import GPUOutOfMemoryError, GPUValidationError
from py_attn.gpu import device as gpu_device
from py_attn.gpu.bridge import BridgeError
from tests.recording_bridge import RecordingBridge


class SmallBridge(RecordingBridge):
    """It has no room for the next buffers, counted down to one that fails.

    As in WebGPU, the buffer is made all the same, and whoever uses it fails; that is reported later.
    """

    countdown = 0
    created = 0

    def __init__(self):
        super().__init__()
        self.broken = set()

    def create_buffer(self, size, label):
        handle = super().create_buffer(size, label)
        self.created += 1
        if self.created == self.countdown:
            self.broken.add(handle)
            self.errors.append(BridgeError("out-of-memory", label, "no room"))
        return handle

    def _check(self, access, size, workgroups, triples):
        super()._check(access, size, workgroups, triples)
        for handle, *_ in triples:
            self._use(handle)

    def write_buffer(self, buffer, offset, data):
        self._use(buffer)
        super().write_buffer(buffer, offset, data)

    def _use(self, handle):
        if handle in self.broken:
            self.errors.append(BridgeError("validation", "dispatch", f"buffer {handle} is invalid"))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(gpu_device, "_default", None)
    return SmallBridge()


async def run(family, device):
    return await FAMILIES[family](device, np.random.default_rng(0), 7)


def at_rest(device):
    """What is there once nothing is in use and nothing is kept."""
    gc.collect()
    device._memory.release()
    device.flush()
    device.queue._memory.destroy_doomed()
    return device.memory_allocated(), set(device.queue.bridge.buffers)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_buffer_may_lack_room(small, family):
    async def lack():
        device = await gpu_device.request_device(small)
        await run(family, device)  # tables that live as long as the device
        before = at_rest(device)
        small.created = 0
        await run(family, device)
        count = small.created
        assert at_rest(device) == before
        for number in range(1, count + 1):
            small.created, small.countdown = 0, number
            with pytest.raises(GPUOutOfMemoryError, match=r"of [\d,]+ bytes: no room"):
                await run(family, device)
            small.countdown = 0
            gc.collect()
            # Freed, the broken buffer must not come back from those that are kept.
            await run(family, device)
            assert small.errors == []
            assert at_rest(device) == before
        return count

    assert asyncio.run(lack()) > 2


def test_a_buffer_that_was_made_before_is_kept(small):
    """Only those of which WebGPU has not said yet that there was room are given up."""

    async def lack():
        device = await gpu_device.request_device(small)
        good = device.empty((64,))
        await device.synchronize()
        small.countdown = small.created + 1
        bad = device.empty((1000,))
        with pytest.raises(GPUOutOfMemoryError):
            await device.synchronize()
        handles = [x.storage("x").handle for x in (good, bad)]
        del good, bad
        gc.collect()
        return handles, device.empty((64,)).storage("x").handle, device.empty((1000,)).storage("x").handle

    (good, bad), again, other = asyncio.run(lack())
    assert again == good
    assert other != bad


def test_what_is_kept_makes_room(small):
    async def lack():
        device = await gpu_device.request_device(small)
        kept = device.empty((4096,))
        await device.synchronize()
        del kept
        gc.collect()
        assert device._memory.kept == 4 * 4096
        small.countdown = small.created + 1
        bad = device.empty((1000,))
        with pytest.raises(GPUOutOfMemoryError):
            await device.synchronize()
        return device._memory.kept, len(small.buffers), bad.shape

    assert asyncio.run(lack()) == (0, 1, (1000,))


def test_kept_buffers_go_when_they_are_released(device, bridge):
    dropped, live = device.empty((4096,)), device.empty((16,))
    handle = dropped.storage("x").handle
    del dropped
    gc.collect()
    assert handle in bridge.buffers
    device.release_memory()
    assert list(bridge.buffers) == [live.storage("x").handle]


def test_a_wait_that_is_cancelled_takes_no_errors_with_it(small):
    """A bridge leaves what a cancelled wait would have been told to the next one."""

    async def lack():
        device = await gpu_device.request_device(small)
        synchronize, told = small.synchronize, asyncio.Event()

        async def slowly():
            await told.wait()
            return await synchronize()

        small.synchronize = slowly
        small.countdown = small.created + 1
        bad = device.empty((1000,))
        handle = bad.storage("x").handle
        waiting = asyncio.ensure_future(device.synchronize())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        told.set()
        with pytest.raises(GPUOutOfMemoryError, match="4,000 bytes"):
            await device.synchronize()
        del bad
        gc.collect()
        assert device.empty((1000,)).storage("x").handle != handle

    asyncio.run(lack())


def test_the_lack_is_named_before_what_follows_from_it(small):
    async def lack():
        device = await gpu_device.request_device(small)
        small.errors = [
            BridgeError("validation", "copy", "invalid"),
            BridgeError("out-of-memory", "x", "no room\n"),
        ]
        with pytest.raises(GPUOutOfMemoryError, match=r"x: no room \(1 more errors\)"):
            await device.synchronize()

    asyncio.run(lack())


def test_a_lack_is_told_to_all_who_wait(small):
    """WebGPU tells it to one of them, and what the others get may have been computed without the buffer."""

    async def lack():
        device = await gpu_device.request_device(small)
        x = device.tensor(np.ones((1, 2, 9, 8), np.float32))
        other = device.tensor(np.ones(5, np.float32))
        await device.synchronize()
        small.countdown = small.created + 1
        out = pa.attention(x, x, x)
        answers = await asyncio.gather(out.numpy(), other.numpy(), return_exceptions=True)
        assert [type(answer) for answer in answers] == [GPUOutOfMemoryError] * 2
        # It is over then.
        await pa.attention(x, x, x).numpy()

    asyncio.run(lack())


def test_what_follows_from_a_lack_may_be_told_later(small):
    """An error of one buffer can be told to a wait that began before, and a use of the buffer to the next."""

    async def lack():
        device = await gpu_device.request_device(small)
        invalid = BridgeError("validation", "device", "buffer x is invalid")
        for follows in ([invalid], [invalid, invalid]):
            small.errors = [BridgeError("out-of-memory", "x", "no room")]
            with pytest.raises(GPUOutOfMemoryError, match=r"x: no room$"):
                await device.synchronize()
            small.errors = follows
            with pytest.raises(GPUOutOfMemoryError, match=rf"x: no room \({len(follows)} more errors\)"):
                await device.synchronize()
            # What comes after a wait without errors has another cause.
            await device.synchronize()
            small.errors = [invalid]
            with pytest.raises(GPUValidationError, match="buffer x is invalid"):
                await device.synchronize()
            await device.synchronize()

    asyncio.run(lack())


def test_a_table_that_lives_as_long_as_the_device_is_uploaded_again(small):
    async def lack():
        device = await gpu_device.request_device(small)
        small.countdown = small.created + 1
        table = device.cached("table", lambda: np.ones(8, np.float32))
        with pytest.raises(GPUOutOfMemoryError):
            await table.numpy()
        again = device.cached("table", lambda: np.ones(8, np.float32))
        assert again is not table
        await again.numpy()
        assert device.cached("table", list) is again

    asyncio.run(lack())
