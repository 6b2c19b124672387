"""The language model in the page: small random models against float64, and SmolLM2 against its fixtures."""

import base64
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.page import language
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
def cases(draw):
    model = draw(st.sampled_from(sorted(MODELS)))
    length = draw(st.integers(1, 40))
    case = {
        "model": model,
        "ids": text_of(length, draw(st.integers(0, 9))),
        "first": draw(st.integers(1, length)),
        "cache": draw(st.sampled_from(["float32", "float16", "bfloat16", "turboquant4", "turboquant2"])),
        "context": draw(st.sampled_from([40, 64, 127])),
        "heads_off": draw(st.sets(st.tuples(st.just(0), st.integers(0, HEADS[model] - 1)), max_size=2)),
    }
    if draw(st.booleans()):
        case |= {"ring": True, "context": draw(st.integers(4, 24)), "history": 40}
        case["sink_tokens"] = draw(st.integers(0, 3))
    return case


@settings(max_examples=12)
@given(st.lists(cases(), min_size=4, max_size=4))
def test_logits(tiny, some):
    tiny.check(language.logits_match, some)


@settings(max_examples=5)
@given(st.lists(cases(), min_size=3, max_size=3), st.data())
def test_maps(tiny, some, data):
    for case in some:
        length = len(case["ids"])
        case["rows"] = (data.draw(st.integers(0, length - 1)), data.draw(st.integers(1, length)), 1)
        case["columns"] = (data.draw(st.integers(0, length - 1)), None, data.draw(st.integers(1, 3)))
        case["heads"] = data.draw(st.sampled_from([None, [0], [1, 0]]))
    tiny.check(language.maps_match, some)


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
def test_steps_that_are_only_timed(tiny, ring):
    more = {"ring": True, "context": 14, "sink_tokens": 2, "history": 64} if ring else {"context": 64}
    tiny.check(
        language.timed_steps_change_nothing,
        [{"model": "like SmolLM2", "ids": text_of(9, 4), "count": 12, "warmup_runs": 8, **more}],
    )
