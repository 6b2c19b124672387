"""Messages reach a widget while a cell waits, in kernels that would keep them behind the cell."""

import asyncio
import queue
import sys
from types import ModuleType, SimpleNamespace

import pytest

from py_attn.remote.host import Host


class OldKernel:
    """ipykernel 6 as far as its queue goes: (order, handler, arguments), the message in the arguments."""

    def __init__(self):
        self.msg_queue = asyncio.Queue()
        self.parent, self._parent_ident = {"header": {"msg_id": "the cell"}}, {"shell": b"cell"}
        self.handled = []
        self.session = SimpleNamespace(
            feed_identities=lambda frames, copy: (b"", frames),
            deserialize=lambda frames, content, copy: {"header": {"msg_type": frames[0]}},
        )

    def put(self, *frames):
        self.msg_queue.put_nowait((0, self.dispatch_shell, (list(frames),)))

    def get_parent(self, channel):
        return self.parent

    def set_parent(self, ident, parent, channel):
        self.parent = parent

    async def dispatch_shell(self, frames):
        self.parent = {"header": {"msg_id": "the message"}}
        self.handled.append(frames)


@pytest.fixture
def old_kernel(monkeypatch):
    kernel = OldKernel()
    base = ModuleType("ipykernel.kernelbase")
    base.Kernel = SimpleNamespace(initialized=lambda: True, instance=lambda: kernel)
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "ipykernel.kernelbase", base)
    monkeypatch.delitem(sys.modules, "marimo", raising=False)
    return kernel


async def test_an_old_ipykernel_gives_comm_messages_to_a_waiting_cell(old_kernel):
    host = Host()
    old_kernel.put("execute_request", 1)
    old_kernel.put("comm_msg", 2)
    old_kernel.msg_queue.put_nowait((0, print, ()))
    with host.waiting(), host.waiting():  # two who wait share one who looks
        await asyncio.sleep(0.05)
        old_kernel.put("execute_request", 3)
        old_kernel.put("comm_msg", 4)
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.02)
    old_kernel.put("comm_msg", 5)
    await asyncio.sleep(0.05)
    assert old_kernel.handled == [["comm_msg", 2], ["comm_msg", 4]]
    kept = [entry[-1] for entry in list(old_kernel.msg_queue._queue)]
    assert kept == [(["execute_request", 1],), (), (["execute_request", 3],), (["comm_msg", 5],)]
    assert old_kernel.parent["header"]["msg_id"] == "the cell"


async def test_a_kernel_that_delivers_by_itself_is_left_alone(old_kernel):
    del old_kernel.msg_queue
    with Host().waiting():
        await asyncio.sleep(0.02)
    assert not old_kernel.handled


async def test_marimo_gives_messages_to_widgets_ahead_of_their_turn(monkeypatch):
    commands = pytest.importorskip("marimo._runtime.commands")
    from marimo._plugins.ui._impl.anywidget.init import WIDGET_COMM_MANAGER
    from marimo._runtime import context

    set_ui_element_queue: queue.Queue = queue.Queue()

    def enqueue(request):
        set_ui_element_queue.put_nowait(request)

    kernel = SimpleNamespace(enqueue_control_request=enqueue)
    monkeypatch.setattr(context, "safe_get_context", lambda: SimpleNamespace(_kernel=kernel))
    got = []
    monkeypatch.setattr(WIDGET_COMM_MANAGER, "receive_comm_message", got.append)
    custom = commands.ModelCommand("m", commands.ModelCustomMessage({"kind": "pong"}), [])
    update = commands.ModelCommand("m", commands.ModelUpdateMessage({"layer": 1}, []), [])
    enqueue(update)
    enqueue(custom)
    with Host().waiting():
        await asyncio.sleep(0.05)
    assert got == [custom]
