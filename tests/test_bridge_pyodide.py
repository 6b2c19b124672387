"""The bridge to the page's JavaScript: what crosses, and what the page keeps meanwhile."""

import asyncio
import json
import sys
from array import array
from dataclasses import asdict
from types import ModuleType

import pytest

from py_attn.errors import DeviceLostError
from tests.recording_bridge import RecordingBridge


class Page:
    """Stands in for the page's ``DeviceBridge``: notes its calls, and which programs it keeps."""

    def __init__(self):
        self.calls = []
        self.programs = {}
        self.reason_told = None
        self.waiting = []
        self.settled = False
        self._next = 0

    def info(self):
        words = asdict(RecordingBridge().info)
        return json.dumps({**words, "features": sorted(words["features"])})

    def onLost(self, told):
        self.reason_told = told

    def createProgram(self, words):
        self._next += 1
        self.programs[self._next] = words.tobytes()
        self.calls.append(("createProgram", list(words)))
        return self._next

    def destroyProgram(self, program):
        del self.programs[program]
        self.calls.append(("destroyProgram", program))

    def submitProgram(self, program, params, times):
        assert program in self.programs
        self.calls.append(("submitProgram", program, params and bytes(params), times))

    def submitTimed(self, program, params, together, times):
        self.calls.append(("submitTimed", program, bytes(params), together, times))
        return 1

    def answer(self, method, told, *given):
        self.calls.append((method, *given))
        self.waiting.append(told)

    def isSettled(self):
        return self.settled

    def takeErrors(self):
        return ""

    def __getattr__(self, name):
        def call(*given):
            self.calls.append((name, *(bytes(x) if isinstance(x, (array, bytearray)) else x for x in given)))

        return call


@pytest.fixture
def page():
    return Page()


@pytest.fixture
def bridge(page, monkeypatch):
    """The bridge, on plain CPython, where the modules of Pyodide stand in."""
    for name, names in {
        "js": {},
        "pyodide": {},
        "pyodide.code": {"run_js": None},
        "pyodide.ffi": {
            "JsException": Exception,
            "create_proxy": None,
            "create_once_callable": lambda function, _may_syncify=False: function,
        },
    }.items():
        module = ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "py_attn.gpu.bridge_pyodide", raising=False)
    from py_attn.gpu import bridge_pyodide

    yield bridge_pyodide.PyodideDeviceBridge(page)
    sys.modules.pop("py_attn.gpu.bridge_pyodide", None)


WORDS = array("I", [1, 0, 16, 4, 1, 1, 1, 9, 0, 64])
OTHERS = array("I", [1, 0, 16, 4, 1, 1, 1, 8, 0, 64])
PARAMS = bytearray(256)
CHANGED = bytearray([1]) + bytearray(255)


def names(page):
    return [name for name, *_ in page.calls]


def test_words_that_come_again_cross_twice_and_then_never(bridge, page):
    for _ in range(4):
        bridge.run_program(array("I", WORDS), bytearray(PARAMS))
    assert names(page) == ["runProgram", "createProgram", "submitProgram", "submitProgram", "submitProgram"]
    assert [call[2] for call in page.calls[2:]] == [bytes(PARAMS), None, None]


def test_other_words_are_another_program(bridge, page):
    for words in (WORDS, OTHERS, WORDS, OTHERS):
        bridge.run_program(words, PARAMS)
    assert names(page) == ["runProgram"] * 2 + ["createProgram", "submitProgram"] * 2
    assert len(page.programs) == 2


def test_params_cross_when_they_have_changed(bridge, page):
    program = bridge.create_program(WORDS)
    params = bytearray(PARAMS)
    bridge.submit_program(program, params)
    bridge.submit_program(program, params, 3)
    params[0] = 1
    bridge.submit_program(program, params)
    bridge.submit_program(program, params)
    bridge.submit_timed(program, PARAMS)
    bridge.submit_program(program, PARAMS)
    assert page.calls[1:] == [
        ("submitProgram", program, bytes(PARAMS), 1),
        ("submitProgram", program, None, 3),
        ("submitProgram", program, bytes(CHANGED), 1),
        ("submitProgram", program, None, 1),
        ("submitTimed", program, bytes(PARAMS), False, 1),
        ("submitProgram", program, None, 1),
    ]


@pytest.mark.parametrize("destroy", ["destroy_buffer", "destroy_pipeline"])
def test_nothing_is_kept_that_a_destroyed_buffer_or_pipeline_might_belong_to(bridge, page, destroy):
    mine = bridge.create_program(OTHERS)
    for _ in range(2):
        bridge.run_program(WORDS, PARAMS)
    getattr(bridge, destroy)(9)
    assert list(page.programs) == [mine]
    assert page.calls[-1][1] == 9
    bridge.run_program(WORDS, PARAMS)
    assert names(page)[-1] == "runProgram"
    bridge.submit_program(mine, PARAMS)


def test_the_number_of_kept_programs_is_bounded(bridge, page):
    for n in range(1000):
        for _ in range(2):
            bridge.run_program(array("I", [*WORDS[:-1], n]), PARAMS)
        assert len(page.programs) <= 256
        assert len(bridge._streams) <= 256
        assert len(bridge._sent) <= 256


def test_a_destroyed_program_is_forgotten(bridge, page):
    program = bridge.create_program(WORDS)
    bridge.submit_program(program, PARAMS)
    bridge.destroy_program(program)
    assert not page.programs
    assert not bridge._sent


def test_the_loss_of_the_device_is_told_and_clears_what_is_kept(bridge, page):
    assert bridge.lost() == ""
    for _ in range(2):
        bridge.run_program(WORDS, PARAMS)
    page.reason_told("unknown: gone")
    assert bridge.lost() == "unknown: gone"
    assert not page.programs
    assert not bridge._streams
    assert not bridge._sent


class Staging:
    """What JavaScript gives for a read-back."""

    def __init__(self, data=b""):
        self.bytes = self
        self.released = 0
        self._data = data

    def assign_to(self, out):
        out[:] = self._data

    def release(self):
        self.released += 1


async def turn():
    """A turn of the event loop, in which tasks begin and go on."""
    await asyncio.sleep(0)


async def from_outside(call, *given):
    """Call from the event loop, as JavaScript does: no task is running then."""
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: done.set_result(call(*given)))
    return await done


async def test_a_task_goes_on_within_the_call_that_tells_it(bridge, page):
    steps = []

    async def wait():
        await bridge.synchronize()
        steps.append("went on")

    task = asyncio.ensure_future(wait())
    await turn()

    def tell():
        page.waiting.pop()(None, "")
        steps.append("told")

    await from_outside(tell)
    assert steps == ["went on", "told"]
    await task


async def test_while_a_task_is_running_another_one_goes_on_later(bridge, page):
    task = asyncio.ensure_future(bridge.synchronize())
    await turn()
    page.waiting.pop()(None, "")
    assert not task.done()
    assert await task == []


async def test_a_read_back_fills_the_array_and_gives_its_memory_back(bridge, page):
    out, staging = bytearray(4), Staging(b"four")
    task = asyncio.ensure_future(bridge.read_buffer(7, 16, out))
    await turn()
    await from_outside(page.waiting.pop(), staging, "")
    await task
    assert (out, staging.released, page.calls[-1]) == (b"four", 1, ("readBuffer", 7, 16, 4))


async def test_a_read_back_that_fails_says_why(bridge, page):
    task = asyncio.ensure_future(bridge.read_buffer(7, 0, bytearray(4)))
    await turn()
    await from_outside(page.waiting.pop(), None, "gone")
    with pytest.raises(DeviceLostError, match="reading back failed: gone"):
        await task


@pytest.mark.parametrize("error", ["", "gone"])
async def test_a_cancelled_read_back_gives_its_memory_back_when_it_comes(bridge, page, error):
    staging = Staging()
    task = asyncio.ensure_future(bridge.read_buffer(7, 0, bytearray(4)))
    await turn()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await from_outside(page.waiting.pop(), None if error else staging, error)
    assert staging.released == (0 if error else 1)


async def test_an_answer_that_comes_before_the_cancelled_task_goes_on_does_no_harm(bridge, page):
    task = asyncio.ensure_future(bridge.synchronize())
    await turn()
    task.cancel()
    page.waiting.pop()(None, "")
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_waiting_over_and_over_for_an_idle_device_lets_others_have_their_turn(bridge, page):
    turns = []

    async def others():
        while True:
            turns.append(1)
            await turn()

    page.settled = True
    other = asyncio.ensure_future(others())
    for n in range(10):
        await bridge.synchronize()
        assert len(turns) > n
    other.cancel()


async def test_after_a_wait_there_is_nothing_more_to_wait_for(bridge, page):
    task = asyncio.ensure_future(bridge.read_buffer(7, 16, bytearray(4)))
    await turn()
    await from_outside(page.waiting.pop(), Staging(b"four"), "")
    await task
    page.settled = True
    # It ends without a turn of the event loop.
    with pytest.raises(StopIteration):
        bridge.synchronize().send(None)
    assert "settle" not in names(page)
