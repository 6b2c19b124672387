"""Scores far from zero, NaN, and what lies behind a sequence's keys, in every kernel that meets them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from e2e.kernel_cases import FLOATS, VARIANTS
from e2e.page.extremes import check_extreme, check_extreme_decode, check_extreme_packed
from e2e.page.gradients import FORMS, HALVES
from e2e.test_kernels_attention import TILES

Case = dict[str, Any]
MASKS = ("-1e4", "-65504", "-1e6", "-1e8", "-1e9", "lowest", "plus", "apart", "infinite", "padding")
MODS = ("+1e8", "-1e8", "-3e38")
#: Ways of calling attention in which a NaN must come through.
WAYS: dict[str, Case] = {
    "plain": {},
    "float mask": {"mask": "0"},
    "softcap": {"keywords": {"softcap": 5.0}},
    "score_mod": {"mod": "same"},
    "bool mask": {"seen": True},
    "causal": {"keywords": {"causal": True}},
    "lengths": {"keywords": {"kv_lengths": [34]}},
    "sinks": {"sinks": [0.5, 1.0, -2.0, 0.0]},
}


@pytest.fixture(scope="module")
def check(lab, error_ratios):
    """Run cases in the page; every ratio must be at most 1."""

    def run(function: Callable[..., Any], *cases: Case) -> None:
        for case, answer in zip(cases, lab.check(function, cases), strict=True):
            for name, ratio in answer.items():
                way = (
                    f"backward {name.partition(' ')[2]}"
                    if name.startswith("d_")
                    else case.get("variant", "decode")
                )
                error_ratios.note(["extreme scores"], way, ratio)

    return run


def with_forms(cases: Iterable[Case]) -> list[Case]:
    """The cases with two forms of the backward pass each, as they have pipelines of their own: in turn."""
    return [{"forms": HALVES[n % 2], **case} for n, case in enumerate(cases)]


@pytest.mark.quick("subgroup")
@pytest.mark.parametrize("variant", VARIANTS)
def test_masks_far_from_zero(check, variant):
    # Each mask meets every form of the backward pass, with another variant.
    cases = [
        {"variant": variant, "mask": mask, "forms": [FORMS[n % 4]]}
        for n, mask in enumerate(MASKS, VARIANTS.index(variant))
    ]
    soft = [{"variant": variant, "mask": mask, "keywords": {"softcap": 5.0}} for mask in ("-1e9", "apart")]
    check(check_extreme, *cases, *with_forms(soft))


def test_masks_in_half_types_and_with_sinks(check):
    sinks = [0.5, 1.0, -1e9, "-inf"]
    cases: list[Case] = [
        {"variant": "naive", "mask": "-65504", "mask_dtype": "float16"},
        {"variant": "tiled", "mask": "-65504", "mask_dtype": "float16"},
        {"variant": "naive", "mask": "-1e9", "sinks": [*sinks[2:], -1e9, -1e9]},
        {"variant": "tiled", "mask": "padding", "sinks": sinks},
        {"variant": "rows", "mask": "lowest", "sinks": ["-inf"] * 4},
    ]
    check(check_extreme, *with_forms(cases))


@pytest.mark.quick("rows", "tiled", "subgroup")
@pytest.mark.parametrize("variant", VARIANTS)
def test_mods_far_from_zero(check, variant):
    check(check_extreme, *with_forms({"variant": variant, "mod": mod} for mod in MODS))


@pytest.mark.quick(
    "naive+tiled-softcap", "naive+tiled-bool mask", "rows+subgroup-score_mod", "rows+subgroup-lengths"
)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("half", [VARIANTS[::2], VARIANTS[1::2]], ids="+".join)
def test_nan_comes_through(check, half, way):
    # The variants share the text that finds a score: each way meets one of either half, in turn.
    n = list(WAYS).index(way)
    given = {"variant": half[n % 2], "forms": HALVES[n // 2 % 2]}
    check(check_extreme, *({**given, "nan": which, **WAYS[way]} for which in ("query", "key", "value")))


@pytest.mark.quick("tiled", "subgroup")
@pytest.mark.parametrize("variant", VARIANTS)
def test_nan_from_masks_and_mods(check, variant):
    cases: list[Case] = [
        {"variant": variant, "mask": "nan"},
        {"variant": variant, "mask": "nan", "keywords": {"softcap": 5.0}, "sinks": [0.5, 1.0, -2.0, 0.0]},
        {"variant": variant, "mod": "log"},
        {"variant": variant, "mod": "min"},
    ]
    check(check_extreme, *with_forms(cases))


@pytest.mark.quick("tiled")
@pytest.mark.parametrize("variant", ["tiled", "subgroup"])
def test_split_tiles_and_unrolled(check, variant):
    tile = dataclasses.asdict(TILES["two buffers"])
    common = {"variant": variant, "tile": tile, "rows": 40, "keys": 150}
    check(
        check_extreme,
        {**common, "tail_split": (5, 2), "nan": "query"},
        {**common, "tail_split": (5, 2), "nan": "key"},
        {**common, "mask": "-1e9"},
        {**common, "mask": "nan"},
    )


@pytest.mark.thorough
def test_what_lies_behind_the_keys(check):
    behind = with_forms({"behind": value, "keywords": {"kv_lengths": [34]}} for value in ("nan", "inf"))
    check(
        check_extreme,
        *({"variant": variant, **case} for variant in VARIANTS for case in behind),
        *({"variant": "naive", **case, "forms": HALVES[0], "mask": "0"} for case in behind),
        *({"variant": "naive", **case, "forms": HALVES[1], "mod": "same"} for case in behind),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("variant", VARIANTS)
def test_packed_sequences(check, variant):
    changes = [*({"mod": mod} for mod in (*MODS, "log")), *({"nan": x} for x in ("query", "key", "value"))]
    check(check_extreme_packed, *with_forms({"variant": variant, **case} for case in changes))


@pytest.mark.quick("3", "7")
@pytest.mark.parametrize("splits", [1, 3, 7])
def test_decode(check, splits):
    changes: list[Case] = [{"mod": mod} for mod in (*MODS, "log")]
    changes += [{"nan": which, "dtype": kind} for which in ("query", "key", "value") for kind in FLOATS]
    changes += [{"nan": "key", "softcap": 5.0}, {"mod": "-1e8", "sinks": [-1e8, 0.5, 1.0, "-inf"]}]
    changes += [{"nan": "query", "sinks": [0.5, 1.0, -2.0, 0.0]}]
    check(check_extreme_decode, *({"splits": splits, "dtype": "float32", **case} for case in changes))
