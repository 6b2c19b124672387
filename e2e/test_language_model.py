"""The language model in the page: small random models against float64, and SmolLM2 against its fixtures."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.page import language
from e2e.page.bounds import over_bound
from py_attn.models import smollm2_reference as plain
from py_attn.models.files import open_file
from scripts.common import CACHE
from scripts.fetch import read_lock
from tests.tiny_gguf import tiny_gguf

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures"
# Heads of 32 and of 64 numbers, grouped and not.
MODELS = {
    "grouped": {"layers": 2, "head_dim": 32, "heads": 4, "kv_heads": 2, "inner": 96, "seed": 1},
    "like SmolLM2": {"layers": 3, "head_dim": 64, "heads": 3, "kv_heads": 1, "inner": 160, "seed": 2},
    "single": {"layers": 1, "head_dim": 32, "heads": 2, "kv_heads": 2, "inner": 64, "seed": 3},
}
HEADS = {"grouped": 4, "like SmolLM2": 3, "single": 2}
VOCABULARY = 291


@pytest.fixture(scope="module")
def tiny(lab):
    for name, sizes in MODELS.items():
        lab.call(language.keep, name, base64.b64encode(tiny_gguf(**sizes)).decode())
    return lab


def text_of(length, seed):
    return np.random.default_rng(seed).integers(3, VOCABULARY, length).tolist()


@st.composite
def cases(draw, count):
    """Cases of one model and one kind of cache, so that they share pipelines."""
    model = draw(st.sampled_from(sorted(MODELS)))
    cache = draw(st.sampled_from(["float32", "float16", "bfloat16", "turboquant4", "turboquant2"]))
    ring = draw(st.booleans())
    return [draw(case_of(model, cache, ring)) for _ in range(count)]


@st.composite
def case_of(draw, model, cache, ring):
    length = draw(st.integers(1, 40))
    case = {
        "model": model,
        "ids": text_of(length, draw(st.integers(0, 9))),
        "first": draw(st.integers(1, length)),
        "cache": cache,
        "context": draw(st.sampled_from([40, 64, 127])),
        "heads_off": draw(st.sets(st.tuples(st.just(0), st.integers(0, HEADS[model] - 1)), max_size=2)),
    }
    if ring:
        case |= {"ring": True, "context": draw(st.integers(4, 24)), "history": 40}
        case["sink_tokens"] = draw(st.integers(0, 3))
    return case


@pytest.mark.thorough
@pytest.mark.parametrize("ring", [False, True])
def test_a_lack_of_room_leaves_the_text(tiny, ring):
    """Loading says what lacks room, and so does writing; then it goes on, also with a smaller cache."""
    case = {"model": "grouped", "ids": text_of(9, 4), "count": 6, "context": 16 if ring else 64}
    tiny.check(language.lacks_room, [case | ({"ring": True, "sink_tokens": 2} if ring else {})])


@settings(max_examples=3)
@given(cases(3))
def test_logits(tiny, some):
    tiny.check(language.logits_match, some)


@pytest.mark.thorough
@settings(max_examples=3)
@given(cases(3), st.data())
def test_maps(tiny, some, data):
    for case in some:
        length = len(case["ids"])
        case["rows"] = (data.draw(st.integers(0, length - 1)), data.draw(st.integers(1, length)), 1)
        case["columns"] = (data.draw(st.integers(0, length - 1)), None, data.draw(st.integers(1, 3)))
        case["heads"] = data.draw(st.sampled_from([None, [0], [1, 0]]))
    tiny.check(language.maps_match, some)


@pytest.mark.thorough
@pytest.mark.parametrize("ring", [False, True])
def test_scores(tiny, ring):
    ids = text_of(100, 5)
    more = {"ring": True, "context": 30, "sink_tokens": 2, "history": 128} if ring else {"context": 100}
    tiny.check(language.scores_match, [{"model": name, "ids": ids, **more} for name in MODELS])


@pytest.mark.parametrize("heads_off", [(), ((0, 1),)])
def test_greedy_continuations(tiny, heads_off):
    case = {"ids": text_of(9, 4), "count": 20, "context": 64, "heads_off": heads_off}
    tiny.check(language.greedy_matches, [{"model": name, **case} for name in MODELS])


@pytest.mark.parametrize("ring", [False, True])
def test_seeds(tiny, ring):
    case = {"ids": text_of(6, 7), "count": 24, "context": 12 if ring else 40}
    case |= {"ring": True, "history": 40} if ring else {}
    tiny.check(language.seeds_matter, [{"model": name, **case} for name in MODELS])


@pytest.mark.parametrize("ring", [False, True])
def test_a_text_that_was_left_is_gone_on_with(tiny, ring):
    case = {"ids": text_of(6, 8), "count": 20, "context": 9 if ring else 40}
    case |= {"ring": True, "sink_tokens": 2, "history": 40} if ring else {}
    tiny.check(language.left_early, [{"model": name, **case} for name in MODELS])


@pytest.mark.quick("options0")
@pytest.mark.parametrize(
    "options",
    [
        {"cache": "float16", "context": 40},
        {"cache": "turboquant3", "context": 40},
        {"context": 8, "ring": True, "sink_tokens": 2, "history": 48},
        {"context": 44, "ring": True, "sink_tokens": 41, "history": 48},
    ],
)
def test_caches_compared(tiny, options):
    case = {"model": "grouped", "ids": text_of(36, 10), "options": options}
    tiny.check(language.compared_and_changed, [case])


def test_alternatives(tiny):
    case = {"model": "grouped", "ids": text_of(6, 11), "count": 4, "context": 40}
    tiny.check(language.alternatives_match, [case])


# The published model. Its continuations were written by another implementation; see make_smollm2.py.

PUBLISHED = json.loads((FIXTURES / "smollm2.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def published(lab):
    lab.call(language.load_published, 256)
    yield lab
    lab.call(language.drop_published)


def test_a_greedy_continuation_is_the_published_one(published):
    expected = PUBLISHED["continuations"][0]
    ids, text = published.call(language.write, expected["ids"], 12)
    assert ids == expected["written"][:12]
    assert expected["text"].startswith(text)


# The float64 reference writes all of them: tests/test_models_smollm2_reference.py.
@pytest.mark.thorough
@pytest.mark.parametrize("number", range(0, len(PUBLISHED["continuations"]), 2))
def test_every_token_of_a_published_continuation_is_the_likeliest(published, number):
    expected = PUBLISHED["continuations"][number]
    prompt, written = expected["ids"], expected["written"]
    likeliest = published.call(language.likeliest, prompt + written)
    assert likeliest[len(prompt) - 1 :] == written


@pytest.mark.thorough
def test_scores_are_the_published_ones(published):
    text = PUBLISHED["text"]
    got = published.call(language.score, text["ids"][:100])
    np.testing.assert_allclose(got, text["log_probabilities"][:99], rtol=0, atol=1e-4)


def test_a_map_is_the_published_one(published):
    attention = PUBLISHED["attention"]
    got = published.call(language.whole_map, attention["ids"], attention["layer"])
    np.testing.assert_allclose(got, attention["weights"], rtol=0, atol=1e-5)


@pytest.mark.thorough
def test_logits_are_as_close_to_float64_as_numpy_s(published):
    ids = PUBLISHED["continuations"][0]["ids"]
    data = base64.b64decode(published.call(language.all_logits, ids))
    asset = next(asset for asset in read_lock() if asset.name == "smollm2/model.gguf")
    config, weights = plain.read_weights(open_file(CACHE / "assets" / asset.path))
    exact, single = (
        plain.logits(config, weights, plain.forward(config, weights, ids, dtype=dtype).hidden, dtype)
        for dtype in (np.float64, np.float32)
    )
    got = np.frombuffer(data, np.float32).reshape(exact.shape)
    assert over_bound(got, exact, np.abs(single - exact).max()) <= 1


def test_a_cancelled_load_leaves_nothing_on_the_device(lab):
    assert lab.call(language.bytes_left_by_a_cancelled_load) == 0


@pytest.mark.parametrize("ring", [False, True])
def test_steps_that_are_only_timed(tiny, ring):
    more = {"ring": True, "context": 14, "sink_tokens": 2, "history": 64} if ring else {"context": 64}
    tiny.check(
        language.timed_steps_change_nothing,
        [{"model": "like SmolLM2", "ids": text_of(9, 4), "count": 12, "warmup_runs": 8, **more}],
    )


@pytest.mark.thorough
def test_a_lost_device_leaves_the_text(tiny):
    # The last test, as a new device compiles everything again.
    case = {"model": "grouped", "ids": text_of(6, 9), "count": 20, "context": 40}
    tiny.check(language.survives_its_device, [case])
