"""The model's kernels and the model itself, in the page, on the GPU that the browser has."""

import json
from pathlib import Path

import numpy as np
import pytest

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures"

# Bound of every kernel: twice the error of the same formula in numpy's float32, and a few rounding
# steps of the largest value for where numpy happens to be exact.
HELPERS = """
import numpy as np
import py_attn as pa
from py_attn.kernels import nn
from py_attn.models import minilm_reference as plain

random = np.random.default_rng(7)
device = pa.default_device()

def normal(*shape):
    return random.standard_normal(shape).astype(np.float32)

def product(x, w):
    # One product after the other, as x @ w in the page. Other Pythons have a BLAS, which sums more exactly.
    total = np.zeros((x.shape[0], w.shape[1]), x.dtype)
    for n in range(x.shape[1]):
        total += x[:, n : n + 1] * w[n]
    return total

async def over_bound(tensor, formula, *arrays):
    exact = formula(*(a.astype(np.float64) for a in arrays))
    single = formula(*arrays)
    result = await tensor.numpy()
    assert result.dtype == np.float32 and result.shape == exact.shape, (result.dtype, result.shape)
    bound = 2 * np.abs(single - exact).max() + 4e-7 * max(1, np.abs(exact).max())
    return float(np.abs(result - exact).max() / bound)
"""

SIZES = [(1, 1, 1), (3, 5, 7), (16, 64, 16), (17, 132, 8), (33, 130, 100), (63, 127, 33), (70, 68, 386)]
MODEL_SIZES = [(20, 1152, 384), (20, 384, 1536), (65, 1536, 384)]


@pytest.fixture(scope="module")
def run(lab):
    lab.run(HELPERS)
    return lab.run


@pytest.mark.parametrize(("rows", "columns", "inner"), SIZES + MODEL_SIZES)
@pytest.mark.parametrize("activation", ["gelu", None])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(run, rows, columns, inner, activation, bias):
    ratio = run(f"""
x, w = normal({rows}, {inner}), normal({inner}, {columns}) / np.float32({inner} ** 0.5)
b = normal({columns}) if {bias} else np.zeros({columns}, np.float32)
def formula(x, w, b):
    y = product(x, w) + b
    return plain.gelu(y) if {activation!r} else y
out = nn.linear(
    device.tensor(x), device.tensor(w), device.tensor(b) if {bias} else None, activation={activation!r}
)
await over_bound(out, formula, x, w, b)
""")
    assert ratio <= 1


def test_gelu_stays_accurate_over_its_range(run):
    # The identity as weight, so that only the activation is seen.
    error = run("""
x = np.concatenate([np.linspace(-12, 12, 4001), [0.0, -0.0, 1e-30, -1e-30, 80.0, -80.0]]).astype(np.float32)
one = device.tensor(np.ones((1, 1), np.float32))
result = await nn.linear(device.tensor(x[:, None]), one, activation="gelu").numpy()
float(np.abs(result[:, 0] - plain.gelu(x.astype(np.float64))).max())
""")
    # 1.5e-7 of the error function's approximation times |x| / 2, and float32's rounding of |x| <= 80.
    assert error < 1e-6


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (1, 7), (5, 63), (20, 384), (3, 64), (2, 1000)])
def test_layer_norm(run, rows, width, residual):
    ratio = run(f"""
x, r = 3 + normal({rows}, {width}), normal({rows}, {width})
weight, bias = normal({width}), normal({width})
def formula(x, r, weight, bias):
    return plain.layer_norm(x + r if {residual} else x, weight, bias)
out = nn.layer_norm(
    *map(device.tensor, (x, weight, bias)), residual=device.tensor(r) if {residual} else None
)
await over_bound(out, formula, x, r, weight, bias)
""")
    assert ratio <= 1


@pytest.mark.thorough
def test_layer_norm_of_many_rows(run):
    # More rows than one dimension of a dispatch may have workgroups.
    assert run("""
x = normal(70_000, 3)
one = np.ones(3, np.float32)
out = nn.layer_norm(device.tensor(x), device.tensor(one), device.tensor(one))
await over_bound(out, plain.layer_norm, x, one, one)
""") <= 1  # fmt: skip


@pytest.mark.parametrize("width", [1, 30, 384])
def test_embedding(run, width):
    assert run(f"""
word, position, kind = normal(100, {width}), normal(16, {width}), normal(2, {width})
ids = [99, 0, 7, 7, 50]
out = await nn.embedding(ids, *map(device.tensor, (word, position, kind))).numpy()
bool((out == word[ids] + position[:5] + kind[0]).all())
""")


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (1, 384), (7, 5), (20, 384), (300, 600)])
def test_mean_pool(run, rows, width):
    ratio = run(f"""
x = normal({rows}, {width})
await over_bound(nn.mean_pool(device.tensor(x)), plain.mean_pool, x)
""")
    assert ratio <= 1


def test_mean_pool_of_zeros_is_zero(run):
    assert (
        run("(await nn.mean_pool(device.tensor(np.zeros((3, 4), np.float32))).numpy()).tolist()") == [0] * 4
    )


def test_kernels_read_views(run):
    assert run("""
x, w = normal(6, 29), normal(32, 10)
out = nn.linear(device.tensor(x)[2:5], device.tensor(w)[3:])
await over_bound(out, lambda x, w: x[2:5] @ w[3:], x, w)
""") <= 1  # fmt: skip


# The model. Loading takes the published weights from the built site.


@pytest.fixture(scope="module")
def published():
    with np.load(FIXTURES / "minilm.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def model(run):
    progress = run("""
import asyncio
steps = []
before = device.memory_allocated()
model = await pa.models.load("minilm", progress=lambda *step: steps.append(step))
[list(step) for step in steps]
""")
    yield progress
    run("model.destroy()")


def test_loading_tells_every_stage_and_byte(run, model):
    assert list(dict.fromkeys(stage for stage, _, _ in model)) == ["vocabulary", "weights", "upload"]
    for name in ("vocabulary", "weights", "upload"):
        steps = [(loaded, total) for stage, loaded, total in model if stage == name]
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1]
    uploaded = max(loaded for stage, loaded, _ in model if stage == "upload")
    assert run("device.memory_allocated() - before") == uploaded
    assert run("[model.layers, model.heads, model.head_dim, model.max_tokens]") == [6, 12, 32, 512]


def cosine_distance(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return 1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def embed(run, text, model="model"):
    return run(f"""
embedding = await {model}.encode({text!r})
np.asarray(await embedding.numpy() if isinstance(embedding, pa.Tensor) else embedding).tolist()
""")


@pytest.mark.quick("?")
@pytest.mark.parametrize("number", range(11))
def test_embeddings_are_the_published_ones(run, model, published, number):
    embedding = embed(run, published["texts"][number].item())
    assert len(embedding) == 384
    assert cosine_distance(embedding, published["embeddings"][number]) < 1e-4
    np.testing.assert_allclose(embedding, published["embeddings"][number], rtol=0, atol=1e-5)


def test_tokens_are_the_published_ones(run, model):
    # In the page's Python, whose Unicode tables are newer than those of the machine's.
    pairs = json.loads((FIXTURES / "wordpiece.json").read_text(encoding="utf-8"))
    ids = run(f"[model.tokenizer.encode(text).ids for text in {[text for text, _ in pairs]!r}]")
    assert ids == [expected for _, expected in pairs]


def test_attention_is_the_published_one(run, model, published):
    weights = run(f"""
embedding, weights = await model.encode({published["texts"][0].item()!r}, return_weights=True)
assert [w.shape for w in weights] == [(12, 13, 13)] * 6, weights
[(await w.numpy()).tolist() for w in weights]
""")
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, rtol=0, atol=1e-5)
    np.testing.assert_allclose(weights[2], published["attention"], rtol=0, atol=1e-5)


def test_trace_holds_what_the_kernels_saw(run, model):
    trace = run("""
trace = await model.trace("The cat sat on the mat \U0001f600 <script>.")
def attend(part):
    return lambda *qkv: pa.reference.attention(*qkv, return_lse=True, compute_dtype=qkv[0].dtype)[part]
worst = 0
for layer in trace.layers:
    qkv = [await t.numpy() for t in (layer.query, layer.key, layer.value)]
    for part, tensor in enumerate((layer.out, layer.lse)):
        worst = max(worst, await over_bound(tensor, attend(part), *qkv))
{"tokens": trace.tokens, "ids": trace.ids == model.tokenize(trace.text), "truncated": trace.truncated,
 "shapes": [list(layer.query.shape) for layer in trace.layers], "worst": worst}
""")
    assert trace["tokens"] == (
        ["[CLS]", "the", "cat", "sat", "on", "the", "mat", "[UNK]", "<", "script", ">", ".", "[SEP]"]
    )
    assert trace["ids"]
    assert not trace["truncated"]
    assert trace["shapes"] == [[1, 12, 13, 32]] * 6
    assert trace["worst"] <= 1


@pytest.mark.parametrize("text", ["", " ", "\n\t\u3000\u200b"])
def test_empty_text_is_refused(run, model, text):
    with pytest.raises(Exception, match="ValueError: text: expected at least one word"):
        run(f"await model.encode({text!r})")


def test_unknown_model(run):
    with pytest.raises(Exception, match="ValueError: name: expected one of 'minilm', 'smollm2', got 'bert'"):
        run("await pa.models.load('bert')")


def test_cancelled_load_leaves_no_tensors(run):
    assert run("""
import asyncio
before = device.memory_allocated()

async def cancelled_in(stage_to_stop):
    def stop(stage, loaded, total):
        if stage == stage_to_stop and loaded > total // 2:
            task.cancel()
    task = asyncio.ensure_future(pa.models.load("minilm", progress=stop))
    try:
        await task
    except asyncio.CancelledError:
        return device.memory_allocated() - before
    return "not cancelled"

[await cancelled_in(stage) for stage in ("weights", "upload")]
""") == [0, 0]  # fmt: skip


def test_model_of_a_lost_device(run):
    # Its own device, so that the others' stays alive; request_device makes a new one the default.
    assert run("""
from py_attn.gpu import device as devices
try:
    other = await pa.request_device()
    lonely = await pa.models.load("minilm")
    trace = await lonely.trace("hello")
    await trace.embedding.numpy()
    other.destroy()
    said = []
    for attempt in (lambda: lonely.encode("hello"), lambda: trace.embedding.numpy()):
        try:
            await attempt()
        except pa.DeviceLostError as error:
            said.append("request a new one" in str(error))
finally:
    devices._default = device
said
""") == [True, True]  # fmt: skip


def test_numpy_backend_agrees(run, published):
    run("cpu = await pa.models.load('minilm', backend='numpy')")
    embedding = embed(run, published["texts"][0].item(), "cpu")
    run("cpu.destroy()")
    np.testing.assert_allclose(embedding, published["embeddings"][0], rtol=0, atol=1e-5)


@pytest.mark.needs_page("the sample is a file of the site")
def test_sample_opens_in_the_page(run):
    assert run("""
sample = pa.models.load_sample(await device.fetch_asset("sample/minilm.npz"))
[sample.model, len(sample.tokens), list(sample.layers[5].key.shape)]
""") == ["sentence-transformers/all-MiniLM-L6-v2", 20, [1, 12, 20, 32]]  # fmt: skip
