"""Fixtures that several test modules share."""

import asyncio
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from py_attn.gpu import device as gpu_device
from tests.recording_bridge import RecordingBridge


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Runs a test that is a coroutine function, each in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.function(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def this_computers_card(monkeypatch):
    """Hides this computer's own graphics card, which Python would find where wgpu is installed."""
    monkeypatch.setitem(sys.modules, "py_attn.native", None)


@dataclass(frozen=True)
class MiniLMFiles:
    weights: Path
    vocabulary: Path


@pytest.fixture(scope="session")
def minilm_files():
    """The published model's files, as the setup script fetched them."""
    folder = Path(__file__).parent.parent / ".cache" / "assets" / "models" / "minilm"
    files = MiniLMFiles(folder / "model.safetensors", folder / "vocab.txt")
    if not (files.weights.exists() and files.vocabulary.exists()):
        pytest.skip(f"no MiniLM in {folder}: npm test fetches it")
    return files


class DiskFile:
    """A file on the disk, as the readers of models take it."""

    def __init__(self, path):
        self.path = path
        self.size = path.stat().st_size

    def read(self, begin, end):
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read(end - begin)


@pytest.fixture(scope="session")
def smollm2_file():
    """SmolLM2's published file, as the setup script fetched it."""
    folder = Path(__file__).parent.parent / ".cache" / "assets" / "models" / "smollm2"
    path = folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.exists():
        pytest.skip(f"no SmolLM2 in {folder}: npm test fetches it")
    return DiskFile(path)


@pytest.fixture
def bridge(monkeypatch):
    """A bridge that records instead of running; no device was requested from it yet."""
    monkeypatch.setattr(gpu_device, "_default", None)
    return RecordingBridge()


@pytest.fixture
def device(bridge):
    """A device on the recording bridge, which is also the default device."""
    return asyncio.run(gpu_device.request_device(bridge))
