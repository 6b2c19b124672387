"""`nn.choose_token`, `nn.token_statistics` and `nn.compare_distributions` in the page against numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.page.sampling import check_choice, check_statistics, frequencies
from py_attn import sampling_reference as plain

KINDS = ("normal", "peaked", "flat", "ties", "hidden", "wide", "zeros")
WITHOUT_PROBABILITIES = ("NaN", "infinite", "nothing")
VOCABULARIES = (1, 2, 4, 9, 10, 11, 64, 100, 255, 257, 1000, 1028, 5000, 49152)
INVOCATIONS = (None, None, 1, 32, 128, 256)


def choice(**changes):
    """A plain choice at position 4 with some fields changed; see `check_choice`."""
    case = {
        "seed": 1,
        "vocabulary": 1000,
        "kind": "normal",
        "first": 0,
        "temperature": 0.0,
        "top_k": None,
        "top_p": None,
        "given": 2,
        "position": 3,
        "advance": 1,
        "finished": False,
        "end": False,
        "alternatives": True,
        "invocations": None,
    }
    assert changes.keys() <= case.keys()
    return case | changes


def statistics(**changes):
    """Plain rows with some fields changed; see `check_statistics`."""
    case = {
        "seed": 1,
        "rows": 5,
        "vocabulary": 1000,
        "kinds": ["normal", "normal"],
        "nearness": None,
        "first": 0,
        "invocations": None,
    }
    assert changes.keys() <= case.keys()
    return case | changes


@pytest.fixture(scope="module")
def check(lab, error_ratios):
    """Run cases in the page; every ratio must be at most 1."""

    def run(function, *cases):
        for answer in lab.check(function, cases):
            for name, ratio in answer.items():
                error_ratios.note([name], "sampling", ratio)

    return run


@st.composite
def choices(draw):
    seldom = st.sampled_from((False, False, False, True))
    return choice(
        seed=draw(st.integers(0, 1 << 20)),
        vocabulary=draw(st.sampled_from(VOCABULARIES)),
        kind=draw(st.sampled_from((*KINDS, *KINDS, *WITHOUT_PROBABILITIES))),
        first=draw(st.sampled_from((0, 0, 1, 4))),
        temperature=draw(st.sampled_from((0.0, 1e-39, 1e-3, 0.3, 0.7, 1.0, 1.0, 5.0, 1e30))),
        top_k=draw(st.none() | st.sampled_from((1, 2, 5, 40, 1 << 30))),
        top_p=draw(st.none() | st.sampled_from((1e-30, 0.1, 0.5, 0.9, 0.999, 1.0))),
        given=draw(st.integers(0, 12)),
        position=draw(st.integers(0, 12)),
        advance=draw(st.sampled_from((1, 1, 1, 3, 40))),
        finished=draw(seldom),
        end=draw(seldom),
        alternatives=draw(st.booleans()),
        invocations=draw(st.sampled_from(INVOCATIONS)),
    )


@settings(max_examples=12)
@given(cases=st.lists(choices(), min_size=1, max_size=8))
def test_any_choice(check, cases):
    check(check_choice, *cases)


@st.composite
def statistics_cases(draw):
    vocabulary = draw(st.sampled_from(VOCABULARIES))
    kinds = st.sampled_from((*KINDS, *KINDS, *WITHOUT_PROBABILITIES))
    return statistics(
        seed=draw(st.integers(0, 1 << 20)),
        rows=draw(st.sampled_from((1, 2, 7) if vocabulary > 10_000 else (0, 1, 2, 7, 30))),
        vocabulary=vocabulary,
        kinds=[draw(kinds), draw(kinds)],
        nearness=draw(st.none() | st.sampled_from((0.0, 1e-6, 1e-3, 0.1))),
        first=draw(st.sampled_from((0, 0, 1, 4))),
        invocations=draw(st.sampled_from(INVOCATIONS)),
    )


@settings(max_examples=12)
@given(case=statistics_cases())
def test_any_statistics(check, case):
    check(check_statistics, case)


@pytest.mark.parametrize("kind", [*KINDS, *WITHOUT_PROBABILITIES])
def test_kinds_of_logits(check, kind):
    options = [{}, {"temperature": 0.8}, {"temperature": 0.8, "top_k": 20, "top_p": 0.8}]
    check(
        check_choice,
        *(choice(kind=kind, **more, vocabulary=n) for more in options for n in (3, 10, 49152)),
    )


@pytest.mark.parametrize("kind", [*KINDS, *WITHOUT_PROBABILITIES])
def test_statistics_of_kinds(check, kind):
    check(
        check_statistics,
        *(statistics(kinds=[kind, other], vocabulary=203) for other in ("normal", "hidden", "peaked")),
        statistics(kinds=["normal", kind], vocabulary=203),
        *(statistics(kinds=[kind, kind], nearness=near) for near in (0.0, 1e-6, 1e-4)),
    )


def test_thresholds(check):
    sampled = [
        choice(temperature=t, top_k=k, top_p=p, kind=kind, vocabulary=5000, seed=seed, alternatives=False)
        for (t, k, p, kind), seed in zip(
            itertools.product((0.5, 1.0), (None, 1, 17, 4999), (None, 1e-30, 0.3, 0.99), ("normal", "ties")),
            itertools.count(),
            strict=False,
        )
    ]
    check(check_choice, *sampled)


def test_every_size_of_workgroup(check):
    for invocations in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        check(
            check_choice,
            choice(invocations=invocations, temperature=1.0, top_k=30, top_p=0.9, kind="ties"),
            choice(invocations=invocations, vocabulary=101),
        )
        check(check_statistics, statistics(invocations=invocations), statistics(vocabulary=17))


def test_states(check):
    check(
        check_choice,
        choice(finished=True),
        choice(position=11),
        choice(given=5),
        choice(given=4),
        choice(given=12, temperature=1.0, end=True),
        choice(end=True),
        choice(end=True, temperature=1.0),
        choice(position=0, advance=11),
        choice(position=0, advance=12),
    )


def test_all_of_the_best_may_belong_to_one_invocation(lab):
    # Descending logits at a distance of the workgroup's size.
    assert lab.run("""
import numpy as np
import py_attn as pa
from py_attn import sampling_reference as plain
from py_attn.kernels import nn
from py_attn.kernels.steps import new_state
device = pa.default_device()
right = []
for invocations in (1, 8, 64):
    logits = np.zeros(4096, np.float32)
    logits[5 :: 4 * invocations] = -np.arange(logits[5 :: 4 * invocations].size)
    logits[3 :: 4 * invocations] = 2
    state, tokens, log_probs = new_state(device), device.empty((2,), "uint32"), device.empty((2,))
    pair = device.empty((2, 10), "uint32"), device.empty((2, 10))
    nn.choose_token(
        device.tensor(logits), tokens, log_probs, state, alternatives=pair, invocations=invocations
    )
    right.append((await pair[0].numpy())[1].tolist() == plain.alternatives(logits)[0].tolist())
right
""") == [True, True, True]  # fmt: skip


LOGITS = [0.0, 1.0, 2.0, -1.0, 0.5, 2.0, -np.inf, 1.5]


@pytest.mark.quick("options0")
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0},
        {"temperature": 2.0},
        {"temperature": 1.0, "top_k": 3},
        {"temperature": 1.0, "top_p": 0.6},
        {"temperature": 0.5, "top_k": 4, "top_p": 0.9},
    ],
)
def test_frequencies_match_probabilities(lab, options):
    draws = 4000
    source = [value if np.isfinite(value) else -3e38 for value in LOGITS]
    counts, differing, state = lab.call(frequencies, source, draws, options)
    # A tie of two scores to float32's rounding is rare.
    assert differing <= 2
    assert state == [draws, 0, 0, 2026]
    stays = plain.staying(np.array(LOGITS), **options)
    weights = np.where(stays, np.exp(np.array(LOGITS) / options["temperature"]), 0)
    expected = draws * weights / weights.sum()
    counts = np.array(counts)
    assert (counts[~stays] == 0).all()
    chi_square = ((counts[stays] - expected[stays]) ** 2 / expected[stays]).sum()
    # The chance of more than this with up to 6 degrees of freedom is below 1 in 1,000.
    assert chi_square < 22.5


def test_the_same_seed_repeats_a_text(lab):
    assert lab.run("""
import numpy as np
import py_attn as pa
from py_attn.kernels import nn
device = pa.default_device()
logits = device.tensor(np.zeros(100, np.float32))
async def text(seed):
    state = device.tensor([0, 0, 0, seed], "uint32")
    tokens, log_probs = device.empty((9,), "uint32"), device.empty((9,))
    for _ in range(8):
        nn.choose_token(logits, tokens, log_probs, state, temperature=1.0)
    return (await tokens.numpy())[1:].tolist()
texts = [await text(seed) for seed in (1, 1, 2, 4294967295)]
[texts[0] == texts[1], len({tuple(t) for t in texts}), len(set(texts[0])) > 4]
""") == [True, 3, True]  # fmt: skip
