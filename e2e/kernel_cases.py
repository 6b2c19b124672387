"""Cases for the kernels' end-to-end tests: hypothesis strategies whose examples are plain JSON.

What the fields mean is in `e2e/page/`, which runs them.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Case = dict[str, Any]

FLOATS = ("float32", "float16", "bfloat16")
VIEWS = ("plain", "swapped", "columns", "offset", "steps")
#: Those of `pa.attention` that every adapter of the tests has.
VARIANTS = ("naive", "rows", "tiled", "subgroup")
LENGTHS = (0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 64, 67, 97, 130)
HEAD_DIMS = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    13,
    16,
    17,
    30,
    32,
    33,
    48,
    64,
    80,
    96,
    100,
    127,
    128,
    160,
    255,
    256,
    320,
    511,
    512,
)
HEADS = ((1, 1), (2, 2), (3, 1), (4, 2), (6, 3), (8, 1))


def attention_case(**changes: Any) -> Case:
    """A plain case with some fields changed."""
    case: Case = {
        "seed": 1,
        "batch": 2,
        "heads": 4,
        "kv_heads": 2,
        "queries": 19,
        "keys": 37,
        "head_dim": 24,
        "value_head_dim": changes.get("head_dim", 24),
        "dtypes": {"query": "float32", "key": "float32", "value": "float32"},
        "variant": "naive",
    }
    assert changes.keys() <= case.keys() | OPTIONAL, changes.keys() - case.keys() - OPTIONAL
    return case | changes


OPTIONAL = {
    *("mask", "causal", "window", "scale", "softcap", "kv_lengths", "lengths_as", "layout", "views", "size"),
    *("tile", "unrolled", "tail_split", "without_lse", "show", "sinks", "growth"),
}


def dtypes(query: str, key: str | None = None, value: str | None = None) -> dict[str, str]:
    """The three operands' dtypes; key and value are the query's unless given."""
    return {"query": query, "key": key or query, "value": value or key or query}


def variants_in_turn(n: int) -> tuple[str, ...]:
    """Two of the variants for a list's n-th item, the others for the next: they share what finds a score."""
    return VARIANTS[n % 2 :: 2]


def mask_shapes(score_shape: tuple[int, int, int, int]) -> list[list[int]]:
    """Every shape of four axes or fewer that broadcasts to [B, Hq, Sq, Sk]."""
    shapes = [[]]
    for length in reversed(score_shape):
        shapes = [s for tail in shapes for s in ([length, *tail], [1, *tail])]
    full = [list(s) for s in dict.fromkeys(map(tuple, shapes))]
    short = [list(score_shape[axis:]) for axis in range(1, 5)]
    return full + short


@st.composite
def kernels(draw: st.DrawFn, variant: str) -> Case:
    """What pipelines are compiled for; all other fields of a case are read when they run."""

    def sometimes(strategy: st.SearchStrategy[Any]) -> Any:
        return draw(st.none() | st.none() | strategy)

    head_dim = draw(st.sampled_from(HEAD_DIMS))
    return {
        "variant": variant,
        "head_dim": head_dim,
        "value_head_dim": draw(st.just(head_dim) | st.sampled_from(HEAD_DIMS)),
        "dtypes": {name: draw(st.sampled_from(FLOATS)) for name in ("query", "key", "value")},
        "views": {name: draw(st.sampled_from(VIEWS)) for name in ("query", "key", "value")},
        "layout": draw(st.sampled_from(("BHSD", "BSHD"))),
        "softcap": sometimes(st.just(True)),
        "mask": draw(st.none() | st.sampled_from(("bool", "bool", *FLOATS))),
        "lengths_as": draw(st.none() | st.sampled_from(("list", "int32", "uint32"))),
        "sinks": sometimes(st.sampled_from(FLOATS)),
        "without_lse": draw(st.booleans()),
    }


@st.composite
def attention_cases(draw: st.DrawFn, variant: str = "naive", kernel: Case | None = None) -> Case:
    """Any combination of the arguments of `pa.attention`, or any for which a kernel was compiled."""
    kernel = kernel or draw(kernels(variant))
    # Large head dims with few rows: the reference and a software adapter take their time.
    most = (1 << 13) // max(kernel["head_dim"], kernel["value_head_dim"])
    lengths = st.sampled_from([n for n in LENGTHS if n <= most])
    heads, kv_heads = draw(st.sampled_from(HEADS))
    window = st.integers(0, 40) | st.lists(st.none() | st.integers(0, 40), min_size=2, max_size=2)
    case = attention_case(
        **kernel
        | {
            "seed": draw(st.integers(0, 1 << 20)),
            "batch": draw(st.integers(1, 3)),
            "heads": heads,
            "kv_heads": kv_heads,
            "queries": draw(lengths),
            "keys": draw(lengths),
            "causal": draw(st.sampled_from((False, False, True, "bottom-right", "top-left"))),
            "window": draw(st.none() | st.none() | window),
            "scale": draw(st.none() | st.none() | st.sampled_from((0.0, -0.3, 1e-3, 0.5))),
            "softcap": draw(st.sampled_from((1e-2, 0.7, 5.0, 50.0))) if kernel["softcap"] else None,
            "size": draw(st.sampled_from((1.0, 1.0, 1e-3, 4.0))),
        }
    )
    if kernel["mask"]:
        shapes = mask_shapes((case["batch"], heads, case["queries"], case["keys"]))
        # float16's lowest number leaves scores seven bits; with few rows that is a lottery.
        lowest = "hidden" if kernel["mask"] == "float16" else "lowest"
        case["mask"] = {
            "dtype": kernel["mask"],
            "shape": draw(st.sampled_from(shapes)),
            "rows": draw(st.sampled_from((None, "hidden", lowest))),
            "transposed": draw(st.booleans()),
        }
    if kernel["lengths_as"]:
        lengths_of_batch = st.integers(0, case["keys"])
        case["kv_lengths"] = [draw(lengths_of_batch) for _ in range(case["batch"])]
    return case


@st.composite
def sharing_cases(draw: st.DrawFn, variant: str, count: int) -> list[Case]:
    """Cases of anything that share pipelines, which take longer to compile than to run."""
    kernel = draw(kernels(variant))
    return [draw(attention_cases(kernel=kernel)) for _ in range(count)]


def features(case: Case) -> list[str]:
    """The arguments that a case is about, for the table of error ratios."""
    found = {
        "float16 or bfloat16": set(case["dtypes"].values()) != {"float32"},
        "mask": case.get("mask"),
        "causal": case.get("causal"),
        "window": case.get("window") is not None,
        "softcap": case.get("softcap"),
        "kv_lengths": case.get("kv_lengths") is not None,
        "sinks": case.get("sinks"),
        "grouped heads": case["heads"] != case["kv_heads"],
        "views": set(case.get("views", {}).values()) - {"plain"},
        "head dim over 128": max(case["head_dim"], case["value_head_dim"]) > 128,
        "split tiles": case.get("tail_split"),
        "large scores": case.get("size", 1.0) > 1,
    }
    return [name for name, present in found.items() if present]
