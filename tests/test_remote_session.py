"""The session between a kernel and its pages, with views that are no widgets and without a browser."""

import asyncio
import sys
from types import ModuleType

import numpy as np
import pytest

import py_attn as pa
from py_attn.remote.host import Host
from py_attn.remote.session import Session
from tests.fake_page import FakePage
from tests.front_end import FrontEnd
from tests.recording_bridge import RecordingBridge


class PlainView:
    """Adds up an array on the shared device."""

    def __init__(self, session):
        self.reachable, self.traits, self.released = True, {}, 0
        self._link = session.open(self)

    def _on_message(self, _, message, buffers):
        self._link.receive(message, buffers)

    def send(self, message, buffers=None):
        raise AssertionError("nobody shows this view")

    def take_traits(self, traits):
        self.traits |= traits

    def release(self):
        self.released += 1

    async def answer(self, method, payload, acquire, progress):
        progress("uploading", 0, 1)
        if method == "fail":
            raise ValueError("method: expected another one")
        tensor = (await acquire()).tensor(payload["array"])
        return {"total": float((await tensor.numpy()).sum()), "given": sorted(payload), "back": tensor.nbytes}

    def close(self):
        self.reachable = False
        self._link.close()


class NotebookHost(Host):
    """A cell and a kind of kernel that the test chooses."""

    cell, browser = ("", ""), False

    def running_cell(self):
        return self.cell

    def in_browser(self):
        return self.browser


@pytest.fixture
def session():
    return Session(NotebookHost())


async def shown(session, gpu=None, name="page"):
    view = PlainView(session)
    front = FrontEnd(view, gpu, name)
    await front.hello()
    return view, front


async def ask(front, method="sum", **payload):
    """Call a method with the array [0, 1, 2, 3]."""
    array = {"$buffer": 0, "dtype": "float32", "shape": [4]}
    return await front.call(method, np.arange(4, dtype=np.float32).tobytes(), array=array, **payload)


async def test_a_call_computes_on_the_page_and_reports_progress(session):
    view, front = await shown(session)
    answer = await ask(front, nothing=None)
    assert answer == {"total": 6.0, "given": ["array"], "back": 16}
    assert front.kinds.count("progress") == 1
    assert front.gpu.gpu.buffers
    with pytest.raises(RuntimeError, match="ValueError: method: expected another one"):
        await ask(front, "fail")
    front.to_kernel({"kind": "set", "traits": {"layer": 1}})
    await asyncio.sleep(0)
    assert view.traits == {"layer": 1}


async def test_a_message_for_no_page_and_a_message_after_the_end_are_ignored(session):
    view, front = await shown(session)
    for message in ("text", {"kind": "hello"}, {"kind": "unknown", "page": "page"}):
        view._link.receive(message, [])
    front.to_kernel({"kind": "hello", "webgpu": True, "reason": ""})
    view.close()  # before the loop has handled that message
    await asyncio.sleep(0.01)
    front.to_kernel({"kind": "hello", "webgpu": True, "reason": ""})
    await asyncio.sleep(0.01)
    assert front.kinds == ["welcome"]
    assert session.links == []
    assert session.page("page") is None


async def test_the_last_view_of_a_page_takes_its_device_with_it(session):
    gpu = FakePage()
    first, _ = await shown(session, gpu)
    second, front = await shown(session, gpu)
    device = await session.shared_device()
    first.close()
    await ask(front)
    assert not device.lost
    second.close()
    assert device.lost
    session.shown_seconds = 0.01
    with pytest.raises(pa.WebGPUUnavailableError, match="no view is shown in a browser now"):
        await session.shared_device()


async def test_a_page_with_webgpu_is_preferred_and_a_device_is_kept(session):
    _, without = await shown(session, name="without")
    without.to_kernel({"kind": "hello", "webgpu": False, "reason": "no GPU in this browser"})
    await asyncio.sleep(0)
    with pytest.raises(pa.WebGPUUnavailableError, match="no GPU in this browser"):
        await session.shared_device()
    await shown(session, name="second")
    device = await session.shared_device()
    await shown(session, name="third")
    assert await session.shared_device() is device


async def test_what_is_sent_to_a_page_goes_through_the_newest_view_that_is_there(session):
    gpu = FakePage()
    _, first = await shown(session, gpu)
    second, newest = await shown(session, gpu)
    device = await session.shared_device()
    assert ("bridge" in first.kinds, "bridge" in newest.kinds) == (False, True)
    second.reachable = False
    gpu.answer = first.to_kernel
    np.testing.assert_array_equal(await device.tensor([1.0]).numpy(), [1.0])
    assert "bridge" in first.kinds
    first.view.reachable = False
    with pytest.raises(pa.DeviceLostError, match="no view is left in the browser page"):
        await device.tensor([1.0]).numpy()


async def test_only_views_of_earlier_runs_that_nobody_shows_are_closed(session):
    gpu, views = FakePage(), []
    for cell in (("a", "run 1"), ("a", "run 1"), ("b", "run 2"), ("", ""), ("a", "run 3")):
        session.host.cell = cell
        views.append((await shown(session, gpu))[0])
    assert session.links == [view._link for view in views]
    for view in views:
        view._on_message(None, {"kind": "views", "page": "page", "count": 0}, [])
    await asyncio.sleep(0.01)
    assert [view._link.closed for view in views] == [True, True, False, False, False]
    assert all(view.released for view in views)


async def test_two_who_ask_at_once_get_one_device(session):
    gpu = FakePage()
    asking = [asyncio.create_task(session.shared_device()) for _ in range(2)]
    with pytest.raises(pa.WebGPUUnavailableError, match="this Python has no navigator"):
        await asking[0]
    with pytest.raises(pa.WebGPUUnavailableError, match="AttentionView"):
        await asking[1]
    view = PlainView(session)
    asking = [asyncio.create_task(session.shared_device()) for _ in range(2)]
    await asyncio.sleep(0.01)
    await FrontEnd(view, gpu).hello()
    first, second = await asyncio.gather(*asking)
    assert first is second


async def test_a_closed_view_ends_the_calls_that_it_was_asked(session):
    view, front = await shown(session)
    front.gpu.deaf = True
    asking = asyncio.create_task(ask(front))
    await asyncio.sleep(0.02)
    view.close()
    await asyncio.sleep(0.02)
    assert "answer" not in front.kinds
    assert not view._link._tasks
    asking.cancel()


async def test_a_kernel_in_the_browser_computes_on_its_own_device(session, monkeypatch):
    bridge_pyodide = ModuleType("py_attn.gpu.bridge_pyodide")
    bridge_pyodide.PyodideBridge = RecordingBridge
    monkeypatch.setitem(sys.modules, bridge_pyodide.__name__, bridge_pyodide)
    session.host.browser = True
    view, front = await shown(session)
    own = await session.device(session.page("page"))
    assert await session.device(session.page("page")) is own is pa.default_device()
    await ask(front)
    view.close()
    assert not own.lost
    assert "bridge" not in front.kinds
    own.destroy()
    _, again = await shown(session)
    await ask(again)
    assert not pa.default_device().lost
