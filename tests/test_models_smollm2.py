"""Loading SmolLM2 and writing with it on a recording bridge: arguments, dispatches, failures. No GPU."""

import asyncio
import gc
import subprocess
import sys

import numpy as np
import pytest

from py_attn import DeviceLostError, GPUOutOfMemoryError, models
from py_attn.gpu import device as gpu_device
from py_attn.gpu.bridge import BridgeError
from py_attn.models import smollm2, smollm2_steps
from py_attn.models.files import open_file
from py_attn.models.gguf import GGUF
from tests.fake_page import FakePage
from tests.recording_bridge import RecordingBridge
from tests.tiny_gguf import tiny_gguf, tiny_model, write_gguf

SIZES = {"head_dim": 32, "heads": 4, "kv_heads": 2, "layers": 2}
FILE = tiny_gguf(**SIZES)
VOCABULARY = 291
CONTEXT = 24
END = 2
PROMPT = [5, 6, 7, 8]


def load(file=FILE, **options):
    return models.load("smollm2", weights=file, **{"context": CONTEXT} | options)


@pytest.fixture
def model(bridge, device):
    model = asyncio.run(load())
    will_write(model, range(100, 200))
    return model


def will_write(model, ids):
    """Let these ids lie where the steps, which compute nothing here, would write them."""
    memory = model.device.queue.bridge.memory[model._text._tokens.storage().handle]
    count = len(memory) // 4
    ids = [*ids, *[100] * count][: count - len(PROMPT)]
    memory[:] = np.array([*PROMPT, *ids], np.uint32).tobytes()


async def nothing_is_dispatched(model, call, error, words):
    """The call fails with these words, and the text is as it was before."""
    await model.device.synchronize()
    bridge = model.device.queue.bridge
    before, tokens = len(bridge.log), model.tokens

    async def made():
        result = call()
        return await result if asyncio.iscoroutine(result) else result

    with pytest.raises(error, match=words):
        await made()
    await model.device.synchronize()
    assert [entry for entry in bridge.log[before:] if entry[0] != "synchronize"] == []
    assert model.tokens == tokens


# Loading


def changed(**keys):
    metadata, tensors = tiny_model(**SIZES)
    return write_gguf(metadata | {name.replace("__", "."): value for name, value in keys.items()}, tensors)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (b"", "the file has only 0 bytes"),
        (b"<html>no such file</html>", "GGUF"),
        (FILE[:-40], "truncated|ends|bytes"),
        (FILE[: len(FILE) // 2], "truncated|ends|bytes"),
        (FILE[:3000], "truncated|ends|bytes"),
        (changed(general__architecture=("string", "mamba")), "architecture 'mamba', supported is 'llama'"),
        (changed(tokenizer__ggml__pre=("string", "qwen2")), "tokenizer.ggml.pre is 'qwen2'"),
        (changed(llama__attention__head_count_kv=("uint32", 3)), "3 key/value heads for 4 heads"),
        (tiny_gguf(head_dim=16), "weights: a head_dim of 16, supported are multiples of 32"),
    ],
)
def test_a_file_that_is_no_such_model_is_refused_before_the_upload(bridge, device, file, words):
    with pytest.raises(ValueError, match=words):
        asyncio.run(load(file))
    assert bridge.of("create_buffer") == []


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cache": "int8"}, ValueError, "expected one of float32, float16"),
        ({"cache": ("float32",)}, ValueError, "expected one dtype or a pair"),
        ({"context": 0}, ValueError, "context: expected at least 1, got 0"),
        ({"context": 129}, ValueError, "context: expected at most the 128 positions of this model, got 129"),
        ({"context": 2.5}, TypeError, "context: expected an integer"),
        ({"ring": 1}, TypeError, "ring: expected True or False, got 1"),
        ({"sink_tokens": 4}, ValueError, "sink_tokens: expected 0 without a ring, got 4"),
        ({"sink_tokens": CONTEXT, "ring": True}, ValueError, "sink_tokens: expected 0 to 23"),
        ({"sink_tokens": -1, "ring": True}, ValueError, "sink_tokens: expected 0 to 23"),
        ({"history": CONTEXT + 1}, ValueError, "history: expected 24, the context, without a ring, got 25"),
        ({"history": CONTEXT - 1, "ring": True}, ValueError, "history: expected 24 to 128, got 23"),
        ({"history": 129, "ring": True}, ValueError, "history: expected 24 to 128, got 129"),
        ({"backend": "numpy"}, ValueError, 'backend: expected "webgpu" for smollm2'),
    ],
)
def test_options_that_do_not_fit_are_refused_before_the_upload(bridge, device, options, error, words):
    with pytest.raises(error, match=words):
        asyncio.run(load(**options))
    assert bridge.of("create_buffer") == []


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_cancelled_load_leaves_nothing(bridge, device, monkeypatch, share):
    monkeypatch.setattr(gpu_device, "_PART_BYTES", 1 << 14)

    async def main():
        def cancel(stage, loaded, total):
            if stage == "upload" and loaded >= share * total:
                task.cancel()

        task = asyncio.create_task(load(progress=cancel))
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    gc.collect()
    assert device.memory_allocated() == 0


def test_a_download_that_is_cancelled_or_fails_leaves_nothing(bridge, device):
    for error in (asyncio.CancelledError(), OSError("smollm2/model.gguf: the server answered 404")):
        bridge.assets["smollm2/model.gguf"] = error
        with pytest.raises(type(error)):
            asyncio.run(load(None))
    assert device.memory_allocated() == 0


def test_a_load_without_memory_leaves_nothing(bridge, device):
    bridge.errors = [BridgeError("out-of-memory", "file", "no room")]
    with pytest.raises(GPUOutOfMemoryError, match="no room"):
        asyncio.run(load())
    gc.collect()
    assert device.memory_allocated() == 0


def test_a_load_reports_every_byte_and_destroy_frees_all(bridge, device):
    bridge.assets["smollm2/model.gguf"] = FILE
    seen = []
    model = asyncio.run(load(None, progress=lambda *step: seen.append(step)))
    assert list(dict.fromkeys(stage for stage, _, _ in seen)) == ["weights", "upload"]
    assert all(loaded == total for _, loaded, total in (seen[-1], seen[1]))
    assert device.memory_allocated() > len(FILE) / 2
    model.destroy()
    model.destroy()
    assert device.memory_allocated() == 0


def test_a_model_without_a_chat_template_says_so(device):
    metadata, tensors = tiny_model(**SIZES)
    del metadata["tokenizer.chat_template"]
    model = asyncio.run(load(write_gguf(metadata, tensors)))
    with pytest.raises(ValueError, match="chat: the model's file has no chat template"):
        model.chat([{"role": "user", "content": "hello"}])


def test_the_language_model_is_imported_when_it_is_asked_for():
    source = """
import sys
import py_attn as pa
assert not any("smollm2" in name for name in sys.modules)
assert pa.models.SmolLM2.__module__ == "py_attn.models.smollm2"
assert pa.models.Token.__module__ == "py_attn.models.smollm2_values"
assert all(hasattr(pa.models, name) for name in pa.models.__all__)
assert not hasattr(pa.models, "GPT5")
"""
    subprocess.run([sys.executable, "-c", source], check=True)


# Arguments

WRONG_IDS = [
    ([], ValueError, "ids: expected at least one token, got none"),
    ([5, VOCABULARY], ValueError, "ids: expected ids from 0 to 290, got 291"),
    ([-1], ValueError, "ids: expected ids from 0 to 290, got -1"),
    ([1.5], TypeError, "ids: expected an integer, got 1.5"),
    ([True], TypeError, "ids: expected an integer, got True"),
    ("hello", TypeError, "ids: expected an integer, got 'h'"),
    (7, TypeError, "ids: expected a sequence of token ids, got 7"),
    ([5] * (CONTEXT + 1), ValueError, "ids: expected at most 24 tokens, which is what the context holds"),
]


@pytest.mark.parametrize(("ids", "error", "words"), WRONG_IDS)
@pytest.mark.parametrize("method", ["start", "score", "generate", "stream"])
async def test_wrong_ids(model, method, ids, error, words):
    count = (3,) if method in ("generate", "stream") else ()
    await nothing_is_dispatched(model, lambda: getattr(model, method)(ids, *count), error, words)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"max_new_tokens": -1}, ValueError, "max_new_tokens: expected a number >= 0, got -1"),
        ({"max_new_tokens": 2.0}, TypeError, "max_new_tokens: expected an integer, got 2.0"),
        ({"temperature": -0.1}, ValueError, "temperature: expected a number >= 0, got -0.1"),
        ({"temperature": float("nan")}, ValueError, "temperature: "),
        ({"temperature": "hot"}, TypeError, "temperature: expected a number, got 'hot'"),
        ({"top_k": 0}, ValueError, "top_k: expected a number >= 1 or None, got 0"),
        ({"top_k": 1.5}, TypeError, "top_k: expected an integer, got 1.5"),
        ({"top_p": 0}, ValueError, "top_p: expected a number above 0 and up to 1, or None, got 0"),
        ({"top_p": 1.01}, ValueError, "top_p: expected a number above 0 and up to 1"),
        ({"seed": -1}, ValueError, "seed: expected a number from 0 to 4294967295, got -1"),
        ({"seed": 2**32}, ValueError, "seed: expected a number from 0 to 4294967295, got 4294967296"),
        ({"seed": 0.5}, TypeError, "seed: expected an integer, got 0.5"),
        ({"stop": ""}, ValueError, "stop: expected texts that are not empty, got ''"),
        ({"stop": ["a", ""]}, ValueError, "stop: expected texts that are not empty"),
        ({"stop": 5}, TypeError, "stop: expected a text or a list of texts, got 5"),
        ({"stop": [5]}, TypeError, r"stop: expected a text or a list of texts, got \[5\]"),
    ],
)
@pytest.mark.parametrize("method", ["generate", "stream"])
async def test_wrong_options_of_writing(model, method, options, error, words):
    given = {"max_new_tokens": 3} | options
    await nothing_is_dispatched(model, lambda: getattr(model, method)(PROMPT, **given), error, words)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((2,), ValueError, "layer: expected 0 to 1, got 2"),
        ((-1,), ValueError, "layer: expected 0 to 1, got -1"),
        (("a",), TypeError, "layer: expected an integer"),
        ((0, 4), ValueError, "heads: expected numbers from -4 to 3, got 4"),
        ((0, [0, 9]), ValueError, "heads: expected numbers from -4 to 3, got 9"),
        ((0, "a"), TypeError, "heads: expected an integer"),
        ((0, None, 3), TypeError, "rows: expected a slice"),
        ((0, None, slice(None, None, -1)), ValueError, "rows: expected a positive step, got -1"),
        ((0, None, slice(0.5, 2)), TypeError, "rows: expected a slice of integers"),
        ((0, None, slice(None), [1]), TypeError, "columns: expected a slice"),
        ((0, None, slice(None), slice(None, None, 0)), ValueError, "columns: expected a positive step"),
    ],
)
async def test_wrong_windows_of_a_map(model, arguments, error, words):
    await model.start(PROMPT)
    await nothing_is_dispatched(model, lambda: model.attention(*arguments), error, words)


@pytest.mark.parametrize("layer", [-1, 2])
async def test_tensors_of_no_layer(model, layer):
    await model.start(PROMPT)
    call = lambda: model.layer_tensors(layer)  # noqa: E731
    await nothing_is_dispatched(model, call, ValueError, f"layer: expected 0 to 1, got {layer}")


async def test_windows_of_a_map(model):
    await model.start(PROMPT)
    assert model.attention(0).shape == (4, 3, 3)  # the last token waits for the next step
    assert model.attention(1, 2, slice(1, None), slice(0, 3, 2)).shape == (1, 2, 2)
    assert model.attention(1, [3, -1], slice(0, 9, 2)).shape == (2, 2, 3)
    assert model.attention(0, np.int64(1), slice(2, 1)).shape == (1, 0, 3)
    assert model.attention(0, [], slice(3), slice(0)).shape == (0, 3, 0)


async def test_a_map_before_anything_was_processed(model):
    await nothing_is_dispatched(model, lambda: model.attention(0), ValueError, "nothing was written yet")
    await model.start([5])
    words = "a prompt's last token waits for the next step"
    await nothing_is_dispatched(model, lambda: model.attention(0), ValueError, words)


@pytest.mark.parametrize(
    ("heads", "error", "words"),
    [
        ([(2, 0)], ValueError, r"heads_off: expected layers from 0 to 1 and heads from 0 to 3, got \(2, 0\)"),
        ([(0, 4)], ValueError, r"got \(0, 4\)"),
        ([(0, -1)], ValueError, r"got \(0, -1\)"),
        ([(0, "a")], TypeError, "heads_off: expected an integer, got 'a'"),
        ([3], TypeError, r"heads_off: expected pairs of a layer and a head, got \[3\]"),
        ([(0, 1, 2)], TypeError, "heads_off: expected pairs of a layer and a head"),
        (None, TypeError, "heads_off: expected pairs of a layer and a head, got None"),
    ],
)
async def test_wrong_heads_to_switch_off(model, heads, error, words):
    model.heads_off = {(1, 2)}

    def switch():
        model.heads_off = heads

    await nothing_is_dispatched(model, switch, error, words)
    assert model.heads_off == {(1, 2)}


async def test_switching_heads_off_writes_what_changes(bridge, model):
    await model.start(PROMPT)
    await model.device.synchronize()
    before, launches = len(bridge.of("write_buffer")), len(bridge.launches)
    model.heads_off = [(1, 2), (1, 2), (1, 0)]
    model.heads_off = {(1, 0)}
    await model.device.synchronize()
    written = [np.frombuffer(data, "<f4").tolist() for *_, data in bridge.of("write_buffer")[before:]]
    assert written == [[0, 1, 0, 1], [0, 1, 1, 1]]
    assert len(bridge.launches) == launches


@pytest.mark.parametrize(
    ("length", "ids", "error", "words"),
    [
        (-1, [], ValueError, "length: expected 0 to 4, got -1"),
        (5, [], ValueError, "length: expected 0 to 4, got 5"),
        (1.5, [], TypeError, "length: expected an integer"),
        (0, [], ValueError, "ids: expected at least one token, got none"),
        (2, [VOCABULARY], ValueError, "ids: expected ids from 0 to 290, got 291"),
        (2, 7, TypeError, "ids: expected a sequence of token ids, got 7"),
        (4, [5] * CONTEXT, ValueError, "ids: expected at most 24 tokens"),
    ],
)
async def test_wrong_rewinds(model, length, ids, error, words):
    await model.start(PROMPT)
    await nothing_is_dispatched(model, lambda: model.rewind(length, ids), error, words)


@pytest.mark.parametrize("index", [0, -1, 5])
async def test_alternatives_of_no_place(model, index):
    call = lambda: model.alternatives(index)  # noqa: E731
    await nothing_is_dispatched(model, call, ValueError, "text: nothing was written yet")
    await model.start(PROMPT)
    await nothing_is_dispatched(model, call, ValueError, f"index: expected 1 to 4, got {index}")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cache": "int4"}, "expected one of float32"),
        ({"context": 3}, "context: "),
        ({"context": 500}, "context: expected at most the 128 positions"),
        ({"context": 8, "sink_tokens": 2}, "sink_tokens: expected 0 without a ring"),
        ({"context": 8, "ring": True, "sink_tokens": 8}, "sink_tokens: expected 0 to 7"),
    ],
)
@pytest.mark.parametrize("method", ["compare", "use_cache"])
async def test_caches_that_do_not_fit(model, method, options, words):
    await model.start(PROMPT)
    given = {"context": CONTEXT} | options
    await nothing_is_dispatched(model, lambda: getattr(model, method)(**given), ValueError, words)
    assert model.cache_options.context == CONTEXT


async def test_nothing_to_compare_or_to_profile(model):
    for call in (model.compare, model.read_exactly):
        await nothing_is_dispatched(model, call, ValueError, "text: expected at least two tokens")
    for measure in (model.profile, model.time_step):
        await nothing_is_dispatched(model, measure, ValueError, "text: nothing was written yet")
    stream = lambda: model.stream()  # noqa: E731
    await nothing_is_dispatched(
        model, stream, ValueError, "ids: expected a prompt, since nothing was written"
    )


async def test_a_comparison_leaves_the_text_and_no_memory(model):
    await model.start(PROMPT)
    await model.device.synchronize()
    before = model.device.memory_allocated()
    # A ring that is longer than the text, with more first tokens than it has, holds all of it.
    for options in ({}, {"cache": "float16"}, {"context": 64, "ring": True, "sink_tokens": 9}):
        await model.compare(**options)
    gc.collect()
    assert model.tokens == PROMPT
    assert model.device.memory_allocated() <= before + 64


async def entries_of(bridge, call):
    """How many entries of the bridge's log a call makes."""
    before = len(bridge.log)
    await call()
    return len(bridge.log) - before


async def test_a_text_that_was_read_exactly_serves_several_comparisons(bridge, model):
    await model.start(PROMPT)
    await model.device.synchronize()
    before = model.device.memory_allocated()
    exact = await model.read_exactly()
    gc.collect()
    # The last layer's vectors in float32, and no cache.
    vectors = 4 * model.config.width * len(PROMPT)
    assert model.device.memory_allocated() <= before + vectors + 64
    alone = await entries_of(bridge, lambda: model.compare("float16"))
    together = await entries_of(bridge, lambda: model.compare("float16", exact=exact))
    nothing_to_read = await entries_of(bridge, lambda: model.compare(exact=exact))
    assert nothing_to_read < together < alone
    await model.start(PROMPT[:-1])
    call = lambda: model.compare(exact=exact)  # noqa: E731
    await nothing_is_dispatched(model, call, ValueError, "exact: it was read of another text")
    await model.start(PROMPT)
    model.heads_off = {(0, 1)}
    await nothing_is_dispatched(model, call, ValueError, "or with other heads")
    exact.destroy()
    gc.collect()
    assert model.device.memory_allocated() <= before + 64


# Writing


async def test_no_tokens_take_no_step(bridge, model):
    assert await model.generate(PROMPT, 0) == []
    assert bridge.of("submit_program") == []
    assert model.tokens == PROMPT


async def test_tokens_are_read_before_the_next_steps_are_submitted(bridge, model):
    await model.generate(PROMPT, 9)
    order = [entry[0] for entry in bridge.of("submit_program", "read_buffer")]
    assert order == ["submit_program", "read_buffer", "read_buffer"] * (len(order) // 3)
    assert len(order) >= 6


async def test_the_context_ends_a_text(model):
    assert await model.generate(PROMPT, 1000) == list(range(100, 120))
    assert (len(model.tokens), model.room) == (CONTEXT, 0)
    assert [token async for token in model.stream()] == []
    assert await model.generate([5] * CONTEXT, 5) == []


async def test_a_ring_goes_on_up_to_its_history(bridge, device):
    model = await load(context=8, ring=True, sink_tokens=2, history=40)
    will_write(model, range(100, 200))
    assert len(await model.generate(PROMPT, 1000)) == 36
    assert model.room == 0


async def test_an_end_token_ends_a_text(model):
    will_write(model, [100, 101, END, 103])
    assert await model.generate(PROMPT, 10) == [100, 101, END]
    assert model.tokens == [*PROMPT, 100, 101, END]


async def test_stop_texts_end_a_text_where_one_has_appeared(model):
    ids = model.tokenize("hello world and hello user")
    will_write(model, ids)
    text = "".join(model.detokenize([number]) for number in await model.generate(PROMPT, 10, stop="world"))
    assert text == "hello world"
    text = model.detokenize(await model.generate(PROMPT, 10, stop=["user", "d a"]))
    assert text == "hello world and"


async def test_a_character_of_several_tokens_appears_whole_also_step_by_step(model):
    ids = model.tokenize("é😀x")
    assert len(ids) > 4
    will_write(model, ids)
    whole = [token.text async for token in model.stream(PROMPT, len(ids))]
    await model.start(PROMPT)
    single = []
    for _ in ids:
        single += [token.text async for token in model.stream(None, 1)]
    assert "".join(whole) == "é😀x"
    assert single == whole


async def test_a_second_call_while_one_writes_is_refused_and_the_first_goes_on(model):
    stream = model.stream(PROMPT, 10)
    first = await anext(stream)
    calls = (
        lambda: model.generate(PROMPT, 1),
        lambda: anext(model.stream(None, 1)),
        lambda: model.start(PROMPT),
        lambda: model.rewind(2),
        lambda: model.score(PROMPT),
        lambda: model.alternatives(1),
        lambda: model.compare(),
        lambda: model.read_exactly(),
        lambda: model.use_cache("float16", CONTEXT),
        lambda: model.profile(),
    )
    for call in calls:
        await nothing_is_dispatched(model, call, RuntimeError, "model: it is at work; stop that first")
    assert [first.id, *[token.id async for token in stream]] == list(range(100, 110))


@pytest.mark.parametrize("close", [True, False])
async def test_a_text_that_is_left_early_stays_as_far_as_it_was_seen(model, close):
    seen = []
    stream = model.stream(PROMPT, 20)
    async for token in stream:
        seen.append(token.id)
        if len(seen) == 3:
            break
    if close:
        await stream.aclose()
    del stream
    assert seen == [100, 101, 102]
    assert model.tokens == [*PROMPT, *seen]
    assert [token.id async for token in model.stream(None, 2)] == [103, 104]
    assert await model.generate(PROMPT, 2) == [100, 101]


async def test_a_cancelled_call_stops_writing(model, monkeypatch):
    monkeypatch.setattr(model._steps, "_at_a_time", lambda: 2)
    task = asyncio.ensure_future(model.generate(PROMPT, 20))
    while len(model.tokens) < 7:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    seen = len(model.tokens) - 4
    assert 3 <= seen < 20
    assert model.tokens == [*PROMPT, *range(100, 100 + seen)]
    assert [token.id async for token in model.stream(None, 1)] == [100 + seen]


async def test_going_on_processes_a_turned_ring_again_only_where_it_forgot(bridge, device):
    model = await load(context=8, ring=True, history=40)
    will_write(model, [*range(100, 120), END])

    async def launches_of(call):
        await device.synchronize()
        before = sum(launch.label.startswith("embed") for launch in bridge.launches)
        await call
        await device.synchronize()
        return sum(launch.label.startswith("embed") for launch in bridge.launches) - before

    await model.generate(PROMPT, 15)
    assert await launches_of(model.rewind(19, [7])) == 1  # the last token, which no step has taken yet
    assert await launches_of(model.rewind(12)) > 1
    await model.generate(PROMPT, 30)
    assert model.tokens[-1] == END
    assert await launches_of(model.rewind(25, [7])) == 1  # steps behind an end token overwrite nothing


async def test_one_stream_after_the_other_left_by_break(model):
    for _ in range(3):
        async for _ in model.stream(PROMPT, 20):
            break
        model.stream(PROMPT)  # never begun
    assert await model.generate(PROMPT, 2) == [100, 101]


# In a notebook


async def test_in_a_notebook_the_weights_cross_once(monkeypatch, tmp_path):
    (tmp_path / "smollm2").mkdir()
    (tmp_path / "smollm2" / "model.gguf").write_bytes(FILE)
    monkeypatch.setenv("PY_ATTN_MODELS", str(tmp_path))
    fake = FakePage()
    device = await fake.page.request_device()
    begun = len(fake.gpu.of("write_buffer"))
    seen = []
    model = await load(None, device=device, progress=lambda *step: seen.append(step))
    assert seen[0] == ("weights", len(FILE), len(FILE))

    def crossed(first):
        return [len(data) for *_, data in fake.gpu.of("write_buffer")[first:]]

    tensors = GGUF(open_file(FILE)).tensors.values()
    weights = max(info.stop for info in tensors) - min(info.start for info in tensors)
    norms = sum(info.stop - info.start for info in tensors if info.type == "F32")
    state_and_tables = 2 * SIZES["layers"] * 16 + 16 + CONTEXT * SIZES["head_dim"] * 4
    assert weights <= sum(crossed(begun)) <= weights + norms + state_and_tables
    await device.synchronize()
    loaded = len(fake.gpu.of("write_buffer"))
    handle = fake.handles[model._text._tokens.storage().handle]
    fake.gpu.memory[handle][:] = np.arange(100, 101 + CONTEXT, dtype=np.uint32).tobytes()
    messages = len(fake.messages)
    assert await model.generate(PROMPT, 8) == list(range(104, 112))
    assert sum(crossed(loaded)) < 1000
    assert len(fake.messages) - messages < 60
    assert model.attention(0, rows=slice(4)).shape == (4, 4, 11)
    model.destroy()


# The end of a model, and of its device


async def test_a_destroyed_model_says_so(bridge, model):
    await model.generate(PROMPT, 3)
    model.destroy()

    def switch():
        model.heads_off = {(0, 0)}

    calls = (
        lambda: model.start(PROMPT),
        lambda: model.rewind(2),
        lambda: model.generate(PROMPT, 1),
        lambda: model.stream(),
        lambda: model.score(PROMPT),
        lambda: model.alternatives(1),
        lambda: model.attention(0),
        lambda: model.compare(),
        lambda: model.read_exactly(),
        lambda: model.use_cache("float16", CONTEXT),
        lambda: model.profile(),
        lambda: model.time_step(),
        switch,
    )
    for call in calls:
        await nothing_is_dispatched(model, call, ValueError, "^model: it was destroyed; load it again$")
    assert model.tokens == [*PROMPT, 100, 101, 102]
    assert model.text == model.detokenize(model.tokens)


async def test_a_model_that_is_destroyed_while_it_writes(model):
    stream = model.stream(PROMPT, 20)
    await anext(stream)
    model.destroy()
    with pytest.raises(ValueError, match="model: it was destroyed"):
        await anext(stream)
    await stream.aclose()
    assert model.tokens == [*PROMPT, 100]
    gc.collect()
    assert model.device.memory_allocated() == 0


async def test_a_device_that_is_lost_while_a_model_writes_leaves_the_text(device, model):
    stream = model.stream(PROMPT, 20)
    seen = [(await anext(stream)).id]
    device.destroy()

    async def read_on():
        while True:
            seen.append((await anext(stream)).id)

    with pytest.raises(DeviceLostError):
        await read_on()
    assert model.tokens == [*PROMPT, *seen]
    for call in (
        lambda: model.start(PROMPT),
        lambda: model.generate(PROMPT, 2),
        lambda: anext(model.stream()),
    ):
        with pytest.raises(DeviceLostError):
            await call()
    model.destroy()
    other = await load(device=await gpu_device.request_device(RecordingBridge()))
    will_write(other, range(100, 200))
    await other.start(model.tokens)
    goes_on = [token.id async for token in other.stream(None, 3)]
    assert goes_on == list(range(100 + len(seen), 103 + len(seen)))


async def test_warming_up_leaves_no_text(model):
    await model.warm_up()
    assert model.tokens == []
    will_write(model, range(100, 200))
    assert await model.generate(PROMPT, 3) == [100, 101, 102]
    with pytest.raises(RuntimeError, match="model: it has a text already"):
        await model.warm_up()


# Timing


class GPUClock:
    """A clock that goes on only where the GPU works: steps of 1 ms, and read-backs of 3 ms.

    It stands in the place of the ``time`` module.
    """

    STEP, READ = 0.001, 0.003

    def __init__(self, bridge, monkeypatch):
        self.now = self.busy_until = 1.0
        self._waiting = []
        submit, read = bridge.submit_program, bridge.read_buffer

        def submit_program(program, params, times=1):
            self.busy_until = max(self.busy_until, self.now) + times * self.STEP
            submit(program, params, times)

        async def read_buffer(buffer, offset, out):
            done = asyncio.get_running_loop().create_future()
            self._waiting.append((max(self.busy_until, self.now) + self.READ, done))
            await done
            await read(buffer, offset, out)

        monkeypatch.setattr(bridge, "submit_program", submit_program)
        monkeypatch.setattr(bridge, "read_buffer", read_buffer)
        for module in (smollm2, smollm2_steps):
            monkeypatch.setattr(module, "time", self)

    def perf_counter(self):
        return self.now

    async def run(self, call):
        """The result of a coroutine. The time goes on when nothing else does."""
        task = asyncio.ensure_future(call)
        while not task.done():
            for _ in range(30):
                await asyncio.sleep(0)
            if self._waiting:
                then, done = self._waiting.pop(0)
                self.now = max(self.now, then)
                done.set_result(None)
        return await task


async def test_tokens_per_second_are_never_more_than_the_gpu_writes(bridge, device, monkeypatch):
    model = await load(context=128)
    will_write(model, range(100, 240))
    clock = GPUClock(bridge, monkeypatch)
    assert await clock.run(model.generate(PROMPT, 1)) == [100]
    assert model.timing == (pytest.approx(clock.STEP + clock.READ), 1, 0)
    assert model.timing.tokens_per_second is None
    for count in (2, 5, 30, 100):
        called = clock.now
        await clock.run(model.generate(PROMPT, count))
        first, tokens, others = model.timing
        assert tokens == count
        assert first == pytest.approx(clock.STEP + clock.READ)
        assert called + first + others == pytest.approx(clock.now)  # to the last token's read-back
        assert (count - 1) * clock.STEP <= others + 1e-9
        assert model.timing.tokens_per_second <= 1 / clock.STEP + 1e-6
    assert model.timing.tokens_per_second > 0.8 / clock.STEP


async def test_the_first_token_has_also_waited_for_an_earlier_streams_end(bridge, model, monkeypatch):
    clock = GPUClock(bridge, monkeypatch)

    async def leave_early():
        async for _ in model.stream(PROMPT, 20):
            if len(model.tokens) == 7:
                break

    await clock.run(leave_early())
    called = clock.now
    await clock.run(model.generate(PROMPT, 1))
    assert clock.now - called > clock.STEP + clock.READ + 1e-6  # the reads of the other stream came first
    assert model.timing.first_s == pytest.approx(clock.now - called)


async def test_without_a_token_there_is_no_timing(model):
    await model.generate(PROMPT, 3)
    await model.generate(PROMPT, 0)
    assert model.timing is None
