"""What a row may not see never matters to it: NaN and infinity behind every way of hiding keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.kernel_cases import FLOATS, VARIANTS, variants_in_turn
from e2e.page.attention import has_variant
from e2e.page.gradients import FORMS, HALVES
from e2e.page.hidden import (
    check_hidden,
    check_hidden_decode,
    check_largest,
    check_largest_gradients,
    check_weight_zero,
)
from e2e.test_kernels_attention import TILES

Case = dict[str, Any]
#: What hides keys, and what changes scores besides.
HIDING = (
    ["bool"],
    ["float"],
    ["mask_mod"],
    ["score_mod"],
    ["causal"],
    ["window"],
    ["lengths"],
    ["bool", "causal", "lengths"],
    ["float", "softcap", "window"],
    ["mask_mod", "bias", "softcap"],
)
WHERE = (["value"], ["key"], ["key", "value"], ["query", "grad"], ["query", "key", "value", "grad"])
WHAT = (["nan"], ["inf"], ["nan", "inf", "-inf"])


@pytest.fixture(scope="module")
def check(lab, error_ratios):
    """Run cases in the page; every ratio must be at most 1."""

    def run(*cases: Case, function: Callable[..., Any] = check_hidden) -> None:
        for case, answer in zip(cases, lab.check(function, cases), strict=True):
            for name, ratio in answer.items():
                way = (
                    f"backward {name.partition(' ')[2]}"
                    if name.startswith("d_")
                    else case.get("variant", "decode")
                )
                error_ratios.note(["hidden"], way, ratio)

    return run


def hidden(**changes: Any) -> Case:
    """A case; the fields are those of `check_hidden`."""
    case = {
        "seed": 1,
        "batch": 2,
        "heads": 4,
        "kv_heads": 2,
        "rows": 21,
        "keys": 37,
        "head_dim": 8,
        "value_dim": 12,
        "dtype": "float32",
        "variant": "naive",
        "hide": ["bool"],
        "where": ["key", "value"],
        "what": ["nan"],
        "share": 0.1,
    }
    return case | changes


@st.composite
def cases_of_anything(draw: st.DrawFn) -> Case:
    heads, kv_heads = draw(st.sampled_from(((1, 1), (4, 2), (6, 1))))
    return hidden(
        seed=draw(st.integers(0, 1 << 20)),
        heads=heads,
        kv_heads=kv_heads,
        rows=draw(st.sampled_from((1, 5, 21, 40))),
        keys=draw(st.sampled_from((1, 7, 37, 70))),
        head_dim=draw(st.sampled_from((3, 8, 40))),
        value_dim=draw(st.sampled_from((4, 33))),
        dtype=draw(st.sampled_from(FLOATS)),
        variant=draw(st.sampled_from(VARIANTS)),
        view=draw(st.sampled_from(("plain", "swapped", "steps", "offset"))),
        hide=draw(st.sampled_from(HIDING)),
        where=draw(st.sampled_from(WHERE)),
        what=draw(st.sampled_from(WHAT)),
        share=draw(st.sampled_from((0.02, 0.1, 0.5, 1.0))),
        sinks=draw(st.booleans()),
        forms=[draw(st.sampled_from(FORMS))],
    )


#: What a kernel reads when it runs, so that cases which differ in nothing else share its pipelines.
RUN_TIME = ("seed", "keys", "where", "what", "share")


@settings(max_examples=4)
@given(some=st.lists(cases_of_anything(), min_size=3, max_size=3))
def test_anything(check, some):
    check(*(some[0] | {name: case[name] for name in RUN_TIME} for case in some))


@pytest.mark.quick("score_mod", "bool+causal+lengths", "mask_mod+bias+softcap")
@pytest.mark.parametrize("hide", HIDING, ids="+".join)
def test_every_way_of_hiding(check, hide):
    n = HIDING.index(hide)
    common = hidden(hide=hide, seed=n, sinks=n % 4 == 1)
    check(
        *(
            common | {"variant": variant, "where": WHERE[m % 3], "what": WHAT[m % 2], "forms": [FORMS[m % 4]]}
            for m, variant in enumerate(variants_in_turn(n), n)
        )
    )


@pytest.mark.quick("score_mod", "bool+causal+lengths")
@pytest.mark.parametrize("hide", HIDING, ids="+".join)
def test_gradients(check, hide):
    # Two of the forms; the way of hiding before this one and that after it have the others.
    forms = HALVES[HIDING.index(hide) % 2]
    check(
        *(
            hidden(hide=hide, where=where, seed=n, what=WHAT[n % 3], forms=forms)
            for n, where in enumerate(WHERE)
        )
    )


@pytest.mark.quick("tiled")
@pytest.mark.parametrize("variant", ["tiled", "subgroup"])
def test_split_tiles_and_unrolled(check, variant):
    tile = dataclasses.asdict(TILES["two buffers"])
    common = {"variant": variant, "tile": tile, "rows": 40, "keys": 150, "forward_only": True}
    check(
        hidden(**common),
        hidden(**common, hide=["causal"], unrolled=True),
        hidden(**common, hide=["lengths"], tail_split=(5, 2), where=["value"], what=["nan"]),
        hidden(**common, hide=["lengths"], tail_split=(9, 1), where=["value"], what=["inf"], share=0.02),
        hidden(
            **common,
            hide=["lengths", "softcap"],
            tail_split=(5, 2),
            where=["query", "key", "value"],
            share=0.01,
        ),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("variant", VARIANTS)
def test_infinite_values_where_keys_end_within_a_step(check, variant):
    # In place of the keys that would follow, kernels read the last one again.
    common = {"variant": variant, "where": ["value"], "what": ["inf"], "share": 0.5, "forward_only": True}
    sizes = ({"keys": 37}, {"keys": 1, "rows": 5}, {"keys": 70, "rows": 40, "head_dim": 33, "value_dim": 40})
    ways: tuple[list[str], ...] = ([], ["lengths"], ["softcap"])
    check(*(hidden(**common, **size, hide=hide) for size in sizes for hide in ways))
    packed = {"row_lengths": [3, 0, 35, 4], "key_lengths": [7, 4, 33, 9]}
    check(hidden(**common, **packed, hide=[]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_keys_of_weight_zero(check, variant):
    common = {"seed": 4, "variant": variant}
    check(
        *({**common, "keys": keys, "lengths": lengths} for keys in (64, 70, 5) for lengths in (False, True)),
        function=check_weight_zero,
    )


PACKED_HIDING = (["causal"], ["window"], ["mask_mod"], ["score_mod"], ["bias", "causal"])


@pytest.mark.quick("bias+causal")
@pytest.mark.parametrize("hide", PACKED_HIDING, ids="+".join)
def test_packed_sequences(check, hide):
    n = PACKED_HIDING.index(hide)
    lengths = {"row_lengths": [3, 0, 35, 4], "key_lengths": [7, 4, 33, 9], "forms": HALVES[n % 2]}
    everywhere = {"where": ["query", "value", "grad"], "what": ["nan", "inf"], "seed": 2}
    cases = [hidden(variant=variant, hide=hide, **lengths) for variant in variants_in_turn(n)]
    check(*cases, *(case | everywhere for case in cases))


def test_matrix(check, lab):
    if not lab.call(has_variant, "matrix", "float16"):
        pytest.skip("this adapter has no subgroup matrices")
    common = {"variant": "matrix", "dtype": "float16", "forward_only": True, "head_dim": 32, "value_dim": 40}
    check(
        *(hidden(**common, hide=hide, where=WHERE[n % 3], what=WHAT[n % 3]) for n, hide in enumerate(HIDING))
    )


def decoded(**changes: Any) -> Case:
    """A case of `check_hidden_decode`."""
    case = {
        "seed": 1,
        "batch": 2,
        "heads": 4,
        "kv_heads": 2,
        "rows": 3,
        "keys": 67,
        "capacity": 67,
        "head_dim": 32,
        "value_dim": 20,
        "dtype": "float32",
        "splits": 1,
        "hide": ["causal"],
        "where": ["key", "value"],
        "what": ["nan"],
        "share": 0.2,
    }
    return case | changes


DECODE_HIDING = (
    ["causal"],
    ["window"],
    ["mask_mod"],
    ["padding"],
    ["ragged"],
    ["ragged", "window"],
    ["padding", "mask_mod", "softcap"],
)


@pytest.mark.quick("padding+mask_mod+softcap")
@pytest.mark.parametrize("hide", DECODE_HIDING, ids="+".join)
def test_decode(check, hide):
    cases = [
        decoded(hide=hide, splits=splits, seed=n, what=WHAT[n % 3], share=share, sinks=n % 2 == 1)
        for n, (splits, share) in enumerate(((1, 0.2), (3, 0.02), (7, 0.2), (7, 1.0)))
    ]
    cases += [decoded(hide=hide, dtype=dtype, splits=3, share=0.1, seed=7) for dtype in FLOATS[1:]]
    cases.append(decoded(hide=hide, head_dim=24, value_dim=130, splits=2, seed=9))
    if "padding" not in hide:
        cases += [decoded(hide=hide, capacity=40, sink_tokens=n, splits=3, seed=8) for n in (0, 4)]
    check(*cases, function=check_hidden_decode)


def test_infinite_values_where_a_decode_ends_within_a_step(check):
    common = {"rows": 1, "hide": [], "where": ["value"], "what": ["inf"]}
    cases = [
        decoded(**common, keys=keys, capacity=keys, splits=splits, share=share, dtype=dtype)
        for dtype in FLOATS
        for keys, splits, share in ((67, 1, 0.3), (67, 3, 0.9), (1, 1, 0.9), (45, 7, 0.9))
    ]
    cases += [decoded(**common, share=0.9, splits=2, sink_tokens=n, capacity=40) for n in (0, 4)]
    cases += [decoded(**common | {"hide": [hide]}, share=0.9, splits=3) for hide in ("softcap", "ragged")]
    # On a GPU, steps in pairs too (see `test_steps_in_pairs` of test_kernels_decode.py).
    gpu = {"adapter": {"software": False}, "share": 0.9}
    cases += [decoded(**common, **gpu, dtype=dtype, splits=3) for dtype in FLOATS]
    cases += [
        decoded(**common, **gpu, batch=4, heads=33, kv_heads=33, keys=n, capacity=n, splits="auto")
        for n in (40, 150)
    ]
    check(*cases, function=check_hidden_decode)


def test_nothing_overflows_on_its_way(check):
    tile = dataclasses.asdict(TILES["two buffers"])
    common = {"seed": 3, "rows": 40, "keys": 300}
    check(
        *({**common, "variant": variant} for variant in (*VARIANTS, "merge")),
        *({**common, "variant": variant, "tile": tile, "tail_split": (9, 2)} for variant in VARIANTS[2:]),
        *({**common, "variant": "decode", "rows": 1, "splits": splits} for splits in (1, 3, 7)),
        function=check_largest,
    )
    check({"seed": 5}, function=check_largest_gradients)
