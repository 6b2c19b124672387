"""The Write panel's methods, on a stand-in for the language model."""

import asyncio

import numpy as np
import pytest

from e2e.page.fake_writer import CHARACTER, END, WORDS, FakeWriter
from py_attn import reference
from py_attn.viewer import Viewer
from py_attn.viewer.panels import write
from py_attn.viewer.writing import Writer


def call(viewer, method, **payload):
    return asyncio.run(viewer.call(method, payload))


def writing(prompt="the old light house", **given):
    viewer = Viewer()
    viewer.writer = Writer(FakeWriter(**given))
    call(viewer, "write_start", prompt=prompt)
    return viewer


def write_all(viewer, count, **sampling):
    told = []
    while len(told) < count:
        answer = call(viewer, "write_next", count=count - len(told), **sampling)
        told += answer["tokens"]
        if answer["finished"]:
            break
    return told, answer


def test_a_prompt_is_told_and_what_is_written_follows_it():
    viewer = writing()
    told, answer = write_all(viewer, 12)
    assert (answer["prompt"], answer["length"], answer["finished"]) == (4, 16, "")
    assert [token["id"] for token in told] == viewer.writer.model.tokens[4:]
    assert all(token["logProbability"] <= 0 for token in told)
    assert "".join(token["text"] for token in told) == viewer.writer.model.detokenize(
        viewer.writer.model.tokens[4:]
    )
    assert answer["timing"]["rate"] > 0
    assert answer["timing"]["firstToken"] > 0


def test_a_call_writes_as_many_tokens_as_fit_in_its_time():
    viewer = writing(seconds=0.01)
    counts = [len(call(viewer, "write_next", count=500, seconds=0.08)["tokens"]) for _ in range(4)]
    assert counts[0] == 1
    assert max(counts) <= 8
    assert counts[-1] > 1


def test_without_a_model_it_says_so():
    with pytest.raises(ValueError, match="not loaded yet"):
        call(Viewer(), "write_next", count=1)
    with pytest.raises(ValueError, match="needs WebGPU"):
        call(Viewer(), "write_load")


@pytest.mark.parametrize("prompt", ["", "  \n"])
def test_an_empty_prompt_is_refused(prompt):
    viewer = writing()
    with pytest.raises(ValueError, match="the prompt is empty"):
        call(viewer, "write_start", prompt=prompt)
    assert len(viewer.writer.texts) == 4  # the text that was there stays


def test_a_prompt_beyond_the_context_is_refused_but_not_by_a_ring():
    with pytest.raises(ValueError, match="the prompt has 9 tokens, and the cache has room for 8"):
        writing("the " * 9, context=8)
    assert len(writing("the " * 9, context=8, ring=True).writer.texts) == 9


def test_a_text_ends_where_the_context_does():
    viewer = writing(context=10)
    told, answer = write_all(viewer, 50)
    assert (len(told), answer["finished"]) == (6, "context")
    assert call(viewer, "write_next", count=1) | {"timing": 0} == {
        **answer,
        "from": 10,
        "tokens": [],
        "timing": 0,
    }
    _, answer = write_all(writing(context=10, ring=True), 50)
    assert (answer["length"], answer["finished"]) == (54, "")


def test_a_text_ends_where_the_model_ends_it():
    told, answer = write_all(writing(end_at=7), 50)
    assert (told[-1]["id"], answer["length"], answer["finished"]) == (END, 8, "end")


def test_nothing_is_written_for_a_count_of_zero():
    answer = call(writing(), "write_next", count=0)
    assert (answer["tokens"], answer["finished"]) == ([], "")


@pytest.mark.parametrize("sampling", [{"temperature": -1.0}, {"top_p": 0.0}])
def test_a_refused_sampling_leaves_the_text_as_it_was(sampling):
    viewer = writing()
    with pytest.raises(ValueError, match="expected"):
        call(viewer, "write_next", count=3, **sampling)
    assert call(viewer, "write_next", count=1)["length"] == 5


def test_back_to_a_token_and_on_with_another_one():
    viewer = writing()
    write_all(viewer, 8)
    found = call(viewer, "write_alternatives", index=6)
    assert len(found) == 10
    answer = call(viewer, "write_back", length=6, token=found[3]["id"])
    assert answer["tokens"] == [found[3]]
    assert (answer["from"], answer["length"]) == (6, 7)
    told, _ = write_all(viewer, 2)
    assert viewer.writer.model.tokens[6:] == [found[3]["id"], *(token["id"] for token in told)]
    answer = call(viewer, "write_back", length=2)
    assert (answer["length"], answer["prompt"], answer["tokens"]) == (2, 2, [])
    with pytest.raises(ValueError, match="length: expected 1 to 2, got 3"):
        call(viewer, "write_back", length=3)


def test_all_tokens_but_the_first_have_alternatives():
    assert len(call(writing(), "write_alternatives", index=2)) == 10
    assert call(writing(), "write_alternatives", index=0) == []


def test_gpu_times_come_most_first():
    answer = call(writing(), "write_profile")
    assert list(answer["gpu"].items()) == [("project_qkv", 210), ("decode_split", 88), ("logits", 61)]


def test_a_character_of_four_tokens_belongs_to_the_last():
    texts = writing(f"the {CHARACTER} sea").writer.texts
    assert texts == [" the", "", "", "", CHARACTER, " sea"]
    # Cut in the middle, as while it is written.
    viewer = writing(f"the {CHARACTER}")
    ids = viewer.writer.model.tokens
    answer = call(viewer, "write_restore", ids=ids[:3], prompt=1)
    assert [token["text"] for token in answer["tokens"]] == [" the", "", ""]


def test_a_text_of_an_address_is_read_again_with_its_probabilities():
    viewer = writing()
    told, answer = write_all(viewer, 6)
    ids, prompt = list(viewer.writer.model.tokens), answer["prompt"]
    other = Viewer()
    other.writer = Writer(FakeWriter())
    again = call(other, "write_restore", ids=ids, prompt=prompt, scored=True)
    assert [token["id"] for token in again["tokens"]] == ids
    assert all(token["logProbability"] is None for token in again["tokens"][:prompt])
    assert again["tokens"][prompt:] == told
    assert again["prompt"] == prompt
    assert call(other, "write_restore", ids=ids, prompt=len(ids), scored=True)["length"] == len(ids)
    assert call(other, "write_restore", ids=ids[:1], prompt=0, scored=True)["length"] == 1
    with pytest.raises(ValueError, match="prompt: expected 0 to 2 tokens, got 3"):
        call(other, "write_restore", ids=[1, 2], prompt=3)


def test_the_cache_that_is_there_already_is_kept():
    viewer = writing()
    write_all(viewer, 3)
    options = viewer.writer.model.cache_options
    answer = call(viewer, "write_cache", cache="float32", context=2048)
    assert viewer.writer.model.cache_options is options
    assert (answer["from"], answer["length"]) == (7, 7)


def test_another_cache_keeps_the_text():
    viewer = writing()
    write_all(viewer, 5)
    ids = viewer.writer.model.tokens
    answer = call(viewer, "write_cache", cache="float16", context=64, ring=True, sink_tokens=4)
    assert viewer.writer.model.tokens == ids
    assert (answer["cache"], answer["capacity"], answer["ring"], answer["sinkTokens"]) == (
        "float16", 64, True, 4,
    )  # fmt: skip
    with pytest.raises(ValueError, match="the text has 9 tokens, and this cache has room for 8"):
        call(viewer, "write_cache", cache="float16", context=8)
    assert viewer.writer.model.cache_options.context == 64


def test_heads_are_switched_off():
    viewer = writing()
    assert call(viewer, "write_heads_off", heads=[[0, 1], [29, 8]]) == {"off": 2}
    assert viewer.writer.model.heads_off == {(0, 1), (29, 8)}


def test_caches_are_compared_on_the_text():
    viewer = writing()
    write_all(viewer, 30)
    full = call(viewer, "write_compare", cache="float32")
    assert (full["equal"], full["kl"].max(), len(full["kl"])) == (1, 0, 33)
    ring = call(viewer, "write_compare", cache="float32", context=16, ring=True)
    kept = call(viewer, "write_compare", cache="float32", context=16, ring=True, sink_tokens=4)
    assert ring["perplexity"] > kept["perplexity"] > full["perplexity"]


FULL = {"cache": "float32", "more": True}


def test_the_float32_text_is_read_once_for_all_caches_and_not_kept():
    viewer = writing()
    write_all(viewer, 30)
    read = viewer.writer.model.read
    alone = [call(viewer, "write_compare", cache=cache) for cache in ("float16", "turboquant4")]
    assert [each.destroyed for each in read] == [True, True]
    together = [
        call(viewer, "write_compare", cache=cache, more=more)
        for cache, more in (("float16", True), ("turboquant4", False))
    ]
    assert [each.destroyed for each in read] == [True, True, True]
    for ours, theirs in zip(together, alone, strict=True):
        np.testing.assert_array_equal(ours.pop("kl"), theirs.pop("kl"))
        assert ours == theirs


@pytest.mark.parametrize(
    ("method", "payload"),
    [
        ("write_next", {"count": 1}),
        ("write_back", {"length": 3}),
        ("write_start", {"prompt": "the sea"}),
        ("write_cache", {"cache": "float16"}),
        ("write_heads_off", {"heads": [[0, 1]]}),
    ],
)
def test_a_comparison_that_is_left_keeps_nothing_once_the_text_changes(method, payload):
    viewer = writing()
    write_all(viewer, 5)
    call(viewer, "write_compare", **FULL)
    assert not viewer.writer.model.read[0].destroyed
    call(viewer, method, **payload)
    assert viewer.writer.model.read[0].destroyed
    call(viewer, "write_compare", **FULL)
    assert [each.destroyed for each in viewer.writer.model.read] == [True, False]


def test_a_comparison_that_fails_keeps_nothing():
    viewer = writing()
    write_all(viewer, 5)
    call(viewer, "write_compare", **FULL)
    model = viewer.writer.model

    async def fail(**_):
        raise RuntimeError("the device was lost")

    model.compare = fail
    with pytest.raises(RuntimeError, match="the device was lost"):
        call(viewer, "write_compare", **FULL)
    assert model.read[0].destroyed


def test_the_text_is_the_source():
    viewer = writing()
    write_all(viewer, 6)
    answer = call(viewer, "write_view", growing=True)
    assert (answer["kind"], answer["layers"], answer["heads"], answer["kvHeads"]) == ("written", 30, 9, 3)
    assert (answer["length"], answer["growing"]) == (10, True)
    assert answer["tokens"] == viewer.writer.texts
    found = call(viewer, "row", layer=7, head=2, query=9)["weights"]
    query, key, _ = viewer.writer.model.layer_tensors(7)
    exact = reference.attention_weights(query, key, causal=True)[0]
    np.testing.assert_allclose(found, exact[2, 9], atol=1e-5)
    mean = call(viewer, "row", layer=7, head=2, query=9, over="layer")["weights"]
    np.testing.assert_allclose(mean, exact[:, 9].mean(0), atol=1e-5)
    assert call(viewer, "row", layer=7, head=2, query=9, over="all")["weights"].sum() == pytest.approx(1)
    strips = call(viewer, "overview_row", query=4)
    assert (strips["size"], strips["rgba"].size) == (5, 30 * 9 * 5 * 4)
    maps = call(viewer, "overview", layer=7)["rgba"].reshape(9, 10, 10, 4)
    np.testing.assert_array_equal(strips["rgba"].reshape(30, 9, 5, 4)[7], maps[:, 4, :5])


def test_a_text_that_grows_leaves_the_decode_panel_alone():
    viewer = writing()
    write_all(viewer, 4)
    call(viewer, "write_view")
    call(viewer, "decode_open", layer=0, capacity=8)
    write_all(viewer, 4)
    call(viewer, "write_view", growing=True)
    assert call(viewer, "decode_step", position=7, head=0)["length"] == 8
    call(viewer, "write_view")
    assert viewer.decode is None


@pytest.mark.parametrize("sinks", [0, 2])
def test_a_ring_sees_its_newest_keys_and_those_that_it_keeps(sinks):
    viewer = writing("the " * 12, context=6, ring=True, sink_tokens=sinks)
    call(viewer, "write_view")
    weights = call(viewer, "row", layer=0, head=0, query=11)["weights"]
    newest = 6 - sinks
    assert set(np.flatnonzero(weights)) == {*range(sinks), *range(12 - newest, 12)}
    assert weights.sum() == pytest.approx(1)


def test_only_the_layers_that_are_looked_at_are_read():
    viewer = writing()
    asked = []
    model = viewer.writer.model
    read = model.layer_tensors
    model.layer_tensors = lambda layer: asked.append(layer) or read(layer)
    call(viewer, "write_view")
    call(viewer, "row", layer=12, head=0, query=1)
    assert asked == [0, 12]


def test_the_estimate_for_numpy_is_measured():
    answer = call(Viewer(), "write_estimate")
    assert answer["bytes"] == 4 * write.WEIGHTS
    assert 0 < answer["seconds"] < 100


def test_the_fake_knows_its_words():
    model = FakeWriter()
    assert model.detokenize(model.tokenize(" ".join(WORDS))) == "".join(f" {word}" for word in WORDS)
