"""Gradients, packed sequences, score_mod and mask_mod in the page against the float64 reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.kernel_cases import FLOATS, VARIANTS, mask_shapes, variants_in_turn
from e2e.lab import PythonError
from e2e.page.gradients import (
    FORMS,
    HALVES,
    check_gaps,
    check_gradients,
    check_in_turns,
    check_many_queries,
    check_packed,
    check_with_eight_buffers,
    check_with_tile,
)
from py_attn.kernels.attention.tiles import Tile

Case = dict[str, Any]
MODS = ("alibi", "relative", "capped", "arithmetic", "functions", "document", "listed", "many")


@pytest.fixture(scope="module")
def check(lab, error_ratios):
    """Run cases in the page; every ratio must be at most 1."""

    def run(function: Callable[..., Any], *cases: Case) -> None:
        for case, answer in zip(cases, lab.check(function, cases), strict=True):
            sinks = ["sinks"] if case.get("sinks") else []
            kind = "varlen" if "query_lengths" in case else "score_mod" if case.get("mod") else "dense"
            for name, ratio in answer.items():
                way = f"backward {name.partition(' ')[2]}" if name.startswith("d_") else case["variant"]
                note = [kind, *(["gradients"] if name.startswith("d_") else []), *sinks]
                error_ratios.note(note, way, ratio)

    return run


def in_turn(n: int) -> tuple[list[str], list[str]]:
    """Of the forms, that of one case and that of another: four numbers in a row meet all forms twice."""
    return [FORMS[n % 4]], [FORMS[(n + 2) % 4]]


def dense(**changes: Any) -> Case:
    """A dense case; the fields are those of `check_gradients`."""
    case = {
        "seed": 1,
        "batch": 2,
        "heads": 4,
        "kv_heads": 2,
        "queries": 21,
        "keys": 37,
        "head_dim": 16,
        "value_dim": 16,
        "dtype": "float32",
        "view": "plain",
        "variant": "naive",
        "keywords": {},
    }
    return case | changes


SIDE = st.none() | st.integers(0, 20)
HIDING = st.fixed_dictionaries(
    {},
    optional={
        "causal": st.sampled_from((True, "top-left")),
        "window": st.integers(0, 20) | st.tuples(SIDE, SIDE),
    },
).filter(bool)
SCALES = st.fixed_dictionaries({}, optional={"scale": st.sampled_from((-0.3, 0.5))})
SOFTCAPS = st.fixed_dictionaries({"softcap": st.sampled_from((0.7, 5.0))})


@st.composite
def keywords(draw: st.DrawFn) -> st.SearchStrategy[Case]:
    """Keywords with which calls share pipelines: their numbers are read when these run."""
    hiding, softcap = draw(st.sampled_from((st.just({}), HIDING, HIDING))), draw(st.booleans())
    parts = st.tuples(hiding, SCALES, SOFTCAPS if softcap else st.just({}))
    return parts.map(lambda found: {name: x for part in found for name, x in part.items()})


@st.composite
def dense_cases(draw: st.DrawFn, count: int) -> list[Case]:
    """Cases that share their pipelines, which take longer to compile than to run."""
    compiled = {
        "head_dim": draw(st.sampled_from((1, 6, 32, 72))),
        "value_dim": draw(st.sampled_from((3, 32))),
        "dtype": draw(st.sampled_from(FLOATS)),
        "view": draw(st.sampled_from(("plain", "swapped", "steps", "offset"))),
        "sinks": draw(st.booleans()),
        "forms": [draw(st.sampled_from(FORMS))],
    }
    # A single row, or a single key, has tiles of its own.
    queries = draw(st.sampled_from(((1,), (5, 32, 45), (5, 32, 45))))
    keys = draw(st.sampled_from(((1,), (7, 33, 64), (7, 33, 64))))
    given, mask = draw(keywords()), draw(st.none() | st.sampled_from(("bool", "float32")))
    cases = []
    for _ in range(count):
        heads, kv_heads = draw(st.sampled_from(((1, 1), (2, 2), (4, 2), (6, 1))))
        case = dense(
            **compiled,
            seed=draw(st.integers(0, 1 << 20)),
            batch=draw(st.integers(1, 2)),
            heads=heads,
            kv_heads=kv_heads,
            queries=draw(st.sampled_from(queries)),
            keys=draw(st.sampled_from(keys)),
            keywords=draw(given),
        )
        if mask:
            shapes = mask_shapes((case["batch"], heads, case["queries"], case["keys"]))
            case["mask"] = {
                "dtype": mask,
                "shape": draw(st.sampled_from(shapes)),
                "rows": draw(st.sampled_from((None, "hidden"))),
            }
        cases.append(case)
    return cases


@settings(max_examples=5)
@given(cases=dense_cases(2))
def test_gradients_of_anything(check, cases):
    check(check_gradients, *cases)


def test_gradients_without_a_visible_key(check):
    check(check_gradients, dense(keywords={"kv_lengths": [0, 30], "causal": True}, queries=40))


@pytest.mark.thorough
def test_sums_over_many_queries(lab):
    lab.check(check_many_queries, [{"seed": 0, "rows": 1200}])


@pytest.mark.thorough
def test_gradients_of_the_widest_heads(check):
    check(
        check_gradients,
        dense(head_dim=512, value_dim=300, forms=HALVES[0]),
        dense(head_dim=300, value_dim=512, forms=HALVES[1]),
    )


@pytest.mark.quick("many")
@pytest.mark.parametrize("mod", MODS)
def test_mods(check, mod):
    number = MODS.index(mod)
    forms, others = in_turn(number)
    cases = [
        dense(mod=mod, variant=variant, seed=n, forms=forms)
        for n, variant in enumerate(variants_in_turn(number))
    ]
    cases.append(dense(mod=mod, seed=9, keywords={"causal": True, "softcap": 5.0}, forms=others))
    check(check_gradients, *cases)


@pytest.mark.thorough
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_keys_shared_by_the_batch(check, kv_heads):
    common = {"shared": True, "kv_heads": kv_heads}
    cases = [dense(**common, batch=3, variant=v, seed=n, forms=FORMS) for n, v in enumerate(VARIANTS)]
    cases += [
        dense(**common, dtype=dtype, head_dim=10, forms=forms)
        for dtype, forms in zip(FLOATS[1:], HALVES, strict=True)
    ]
    hiding = {"kv_lengths": [37, 12], "causal": True}
    cases.append(dense(shared=True, keywords=hiding, view="swapped", forms=HALVES[kv_heads % 2]))
    check(check_gradients, *cases)


@pytest.mark.parametrize("sinks", [False, True])
def test_gradients_through_the_lse(check, sinks):
    check(
        check_gradients,
        dense(grad_lse=True, sinks=sinks),
        dense(grad_lse=True, sinks=sinks, queries=40, keywords={"kv_lengths": [0, 30], "causal": True}),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_of_masks(check, dtype):
    shapes = ((2, 4, 21, 37), (4, 1, 37), (21, 37), (2, 1, 21, 1), (37,), (1, 4, 1, 1), ())
    n = FLOATS.index(dtype)
    forms, others = HALVES[n % 2], HALVES[(n + 1) % 2]
    cases = [
        dense(mask={"dtype": dtype, "shape": list(shape)}, mask_gradient=True, seed=n, forms=forms)
        for n, shape in enumerate(shapes)
    ]
    changed = {"keywords": {"causal": True, "softcap": 2.0}, "sinks": True, "shared": True, "forms": others}
    cases.append(cases[1] | changed)
    cases.append(cases[2] | {"queries": 130, "keys": 67, "mask": {"dtype": dtype, "shape": [4, 1, 1]}})
    check(check_gradients, *cases)


READING = ("alibi", "relative", "learned", "bucketed", "placed", "many")


@pytest.mark.quick("many")
@pytest.mark.parametrize("mod", READING)
def test_gradients_of_what_a_score_mod_reads(check, mod):
    n = READING.index(mod)
    forms, others = in_turn(n)
    # The reference computes a gradient for each number that is read; "placed" reads one for each score.
    sizes = {"queries": 9, "keys": 13} if mod == "placed" else {}
    reading = dense(mod=mod, captured=True, forms=forms, **sizes)
    keys = reading["keys"]
    if n % 2:
        changed = {"keywords": {"causal": True, "softcap": 5.0}, "grad_lse": True}
    else:
        changed = {"keywords": {"kv_lengths": [keys // 2, keys], "window": 9}, "shared": True}
    check(check_gradients, reading, reading | {"seed": 2}, reading | changed | {"forms": others})


@st.composite
def packed_cases(draw: st.DrawFn, count: int) -> list[Case]:
    """The same for packed sequences."""
    compiled = {
        "head_dim": draw(st.sampled_from((5, 16, 32))),
        "value_dim": draw(st.sampled_from((4, 16))),
        "dtype": draw(st.sampled_from(FLOATS)),
        "variant": draw(st.sampled_from(VARIANTS)),
        "on_gpu": draw(st.booleans()),
        "sinks": draw(st.booleans()),
        "forms": draw(st.sampled_from(HALVES)),
    }
    given = draw(keywords())
    cases = []
    for _ in range(count):
        heads, kv_heads = draw(st.sampled_from(((1, 1), (4, 2), (3, 1))))
        sequences = draw(st.integers(1, 6))
        lengths = st.lists(
            st.sampled_from((0, 1, 2, 9, 32, 33, 70)), min_size=sequences, max_size=sequences
        ).filter(any)
        changes = {
            "seed": draw(st.integers(0, 1 << 20)),
            "heads": heads,
            "kv_heads": kv_heads,
            "query_lengths": draw(lengths),
            "key_lengths": draw(lengths),
            "keywords": draw(given),
        }
        cases.append(compiled | changes)
    return cases


@settings(max_examples=5)
@given(cases=packed_cases(2))
def test_packed_sequences(check, cases):
    check(check_packed, *cases)


# A head of the largest sequence fits, and of others perhaps several heads, or several sequences.
ROOM = st.integers(70 * 72 * 4 * 3, 200_000)


@pytest.mark.thorough
@settings(max_examples=5)
@given(cases=packed_cases(2), room=st.lists(ROOM, min_size=2, max_size=2))
def test_packed_sequences_in_turns(check, cases, room):
    sizes = zip(cases, room, strict=True)
    check(check_in_turns, *(case | {"bytes": size, "on_gpu": False} for case, size in sizes))


def test_gradients_in_turns(check):
    case = dense(bytes=37 * 24 * 4 * 2, seed=2, heads=8, kv_heads=4)
    check(check_in_turns, case, case | {"bytes": 3 * case["bytes"], "keywords": {"causal": True}})


@pytest.mark.thorough
@pytest.mark.parametrize("buffers", [1, 2])
def test_gradients_with_tall_tiles(check, buffers):
    # Rows and columns that no tile divides, more than two tiles of both, and odd numbers of chunks.
    tile, product = Tile(4, 4, 4, 32, 2, 8, buffers=buffers), Tile(8, 8, 4, 8, 2, 8)
    common = {"tile": asdict(tile), "product": asdict(product), "forms": ("separate",)}
    common |= {"queries": 71, "keys": 53}
    mask = {"dtype": "bool", "shape": [2, 1, 71, 53], "rows": "hidden"}
    causal = {"causal": True, "kv_lengths": [0, 50]}
    check(
        check_with_tile,
        dense(**common, head_dim=20, value_dim=12),
        dense(**common, head_dim=20, value_dim=12, seed=2, keywords=causal),
        dense(**common, head_dim=12, value_dim=40, dtype="float16", keywords={"window": (9, 3)}),
        dense(**common, head_dim=40, value_dim=40, mask=mask, shared=True, kv_heads=1),
    )


@pytest.mark.parametrize("form", ["tiled", "stored"])
@pytest.mark.parametrize(
    ("tile", "product", "head_dim"),
    [
        (Tile(16, 8, 8, 64, 4, 16), Tile(16, 8, 8, 16, 2, 16), 64),
        (Tile(8, 16, 4, 64, 2, 32), Tile(8, 16, 8, 16, 2, 16), 28),
    ],
    ids=["64x64 by 16x8", "64x64 by 8x16"],
)
def test_gradients_with_the_tiles_that_gpus_take_most(check, form, tile, product, head_dim):
    common = {"tile": asdict(tile), "product": asdict(product), "forms": (form,)}
    case = dense(**common, queries=130, keys=67, head_dim=head_dim, value_dim=head_dim)
    check(check_with_tile, case, case | {"seed": 2, "keywords": {"causal": True}})


@pytest.mark.quick("rows-*", "tiled-*", "subgroup-*")
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_gaps_between_packed_sequences_hold_does_not_matter(lab, variant, sinks):
    lab.check(check_gaps, [{"variant": variant, "sinks": sinks}])


def learned(**changes: Any) -> Case:
    """Packed sequences with a score_mod that reads two tensors, whose gradients are asked for."""
    case = {
        "seed": 1,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 16,
        "value_dim": 12,
        "query_lengths": [9, 0, 33, 1],
        "key_lengths": [2, 9, 32, 70],
        "dtype": "float32",
        "variant": "naive",
        "on_gpu": True,
        "learned": True,
        "keywords": {"causal": True},
    }
    return case | changes


@pytest.mark.thorough
def test_gradients_where_few_buffers_are_bound(check):
    # Key and value then have a launch each, as the table of packed tiles and a mask are buffers too.
    mask = {"dtype": "bool", "shape": [2, 4, 21, 37], "rows": "hidden"}
    check(
        check_with_eight_buffers,
        learned(),
        learned(seed=2, head_dim=40, sinks=True, keywords={"window": 8, "softcap": 5.0}),
        dense(mask=mask, mod="many", captured=True),
        dense(mask=mask, mod="relative", captured=True, shared=True, grad_lse=True, head_dim=40),
    )


@pytest.mark.quick("bfloat16")
@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_of_what_a_score_mod_reads_for_packed_sequences(check, dtype):
    changes = ({}, {}, {"seed": 2, "on_gpu": False, "sinks": True, "keywords": {"window": 8, "softcap": 5.0}})
    check(check_packed, learned(dtype=dtype, **changes[FLOATS.index(dtype)]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("pa.varlen_attention(x, x, x, [0, 3, 2, 4], [0, 1, 2, 4])", ("cu_seqlens_q", "never fall")),
        ("pa.varlen_attention(x, x, x, [0, 5], [0, 4])", ("cu_seqlens_q", "4 packed rows")),
        ("pa.varlen_attention(x, x, x, [1, 4], [0, 4])", ("cu_seqlens_q", "begin with 0")),
        ("pa.varlen_attention(x, x, x, [0, 4], [0, 2, 4])", ("cu_seqlens_k", "1 sequences")),
        ("pa.varlen_attention(x, x, x, [0.0, 4.0], [0, 4])", ("cu_seqlens_q", "integers")),
        ("pa.varlen_attention(x[None], x, x, [0, 4], [0, 4])", ("query", "3 dimensions")),
        ("pa.attention_backward(y[..., :2], y, y, y, y, y[..., 0])", ("grad_out", "[1, 4, 2, 8]")),
        ("pa.attention_backward(y, y, y, y, y, y[0, ..., 0])", ("lse", "[1, 4, 2]")),
        ("pa.attention(y, y, y, score_mod=lambda s, b, h, q, k: s if q > k else 0)", ("pa.where",)),
        ("pa.attention(y, y, y, score_mod=lambda s: s)", ("score, b, h, q_idx, kv_idx",)),
        ("pa.attention(y, y, y, mask_mod=lambda b, h, q, k: q)", ("mask_mod", "condition")),
    ],
)
def test_bad_input_is_refused_and_the_next_call_works(lab, call, words):
    lab.run("import numpy as np; import py_attn as pa")
    lab.run("x = np.ones((4, 2, 8), np.float32); y = np.ones((1, 4, 2, 8), np.float32)")
    with pytest.raises(PythonError) as caught:
        lab.run(call)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert lab.run("(await pa.varlen_attention(x, x, x, [0, 4], [0, 4]).numpy()).max().item()") == 1.0
