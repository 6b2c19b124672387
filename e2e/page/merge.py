"""Checks of `pa.merge`: see `check_given` and `check_parts`."""

import numpy as np

import py_attn as pa
from e2e.page.bounds import lse_over_bound, numpy_errors, over_bound
from e2e.page.inputs import laid_out, normal, poisoned

_TRIES = 4


async def check_given(case):
    """Random outputs and LSEs, a sixth of which are -inf with NaN for an output, against the formula."""
    device, random, dtype = pa.default_device(), np.random.default_rng(case["seed"]), case["dtype"]
    shape = case["batch"], case["heads"], case["queries"]
    parts = []
    for _ in range(case["parts"]):
        out = normal(random, (*shape, case["value_head_dim"]), dtype)
        lse = normal(random, shape, "float32", case["size"])
        unseen = random.random(shape) < 1 / 6
        out[unseen], lse[unseen] = np.nan, -np.inf
        parts.append((out, lse))
    ours = [
        (
            laid_out(device, out, dtype, case["view"]),
            laid_out(device, lse[..., None], "float32", case["view"])[..., 0],
        )
        for out, lse in parts
    ]
    with poisoned(device):
        out, lse = [await x.numpy() for x in pa.merge(ours, return_lse=True)]
        assert np.array_equal(out, await pa.merge(ours).numpy()), "another result without the LSE"
    exact = pa.reference.merge(parts, return_lse=True)
    errors = [0.0, 0.0]
    for n in range(_TRIES):
        order = np.random.default_rng(n).permutation(len(parts)) if n else range(len(parts))
        single = pa.reference.merge([parts[i] for i in order], return_lse=True, compute_dtype=np.float32)
        for i in range(2):
            seen = np.isfinite(exact[i])
            errors[i] = max(errors[i], float(np.abs(single[i] - exact[i])[seen].max(initial=0)))
    assert (out[np.isneginf(exact[1])] == 0).all(), "a row that no part saw is not zero"
    return {
        "out": over_bound(out, exact[0], errors[0], dtype),
        "lse": lse_over_bound(lse, exact[1], errors[1]),
    }


def part_keywords(kind):
    """A mod that changes no score, or hides all of a part's keys."""
    return {
        "plain": {},
        "mod": {"score_mod": lambda score, b, h, q, k: score + 0.0},
        "hidden": {"mask_mod": lambda b, h, q, k: k < 0},
    }[kind]


async def check_parts(case):
    """Attention over runs of the keys that end at `case["ends"]`, merged, against attention over all seen."""
    device, random = pa.default_device(), np.random.default_rng(case["seed"])
    shape = case["batch"], case["heads"]
    query = normal(random, (*shape, case["queries"], 16), "float32", case["size"])
    keys, values = (normal(random, (*shape, case["ends"][-1], dim), "float32") for dim in (16, 12))
    begins = [0, *case["ends"][:-1]]
    runs = [slice(begin, end) for begin, end in zip(begins, case["ends"], strict=True)]

    def parts(attend, query, keys, values, **keywords):
        return [
            attend(
                query, keys[:, :, run], values[:, :, run], **part_keywords(kind), **keywords, return_lse=True
            )
            for run, kind in zip(runs, case["kinds"], strict=True)
        ]

    def reference(query, keys, compute=np.float64):
        found = parts(pa.reference.attention, query, keys, values, compute_dtype=compute)
        return pa.reference.merge(found, return_lse=True, compute_dtype=compute)

    with poisoned(device):
        found = parts(pa.attention, device.tensor(query), device.tensor(keys), device.tensor(values))
        out, lse = [await x.numpy() for x in pa.merge(found, return_lse=True)]
    seen = np.concatenate(
        [
            np.full(run.stop - run.start, kind != "hidden")
            for run, kind in zip(runs, case["kinds"], strict=True)
        ]
    )
    exact = pa.reference.attention(query, keys[:, :, seen], values[:, :, seen], return_lse=True)
    errors = numpy_errors(reference, query, keys)
    return {
        "out": over_bound(out, exact[0], errors[0]),
        "lse": lse_over_bound(lse, exact[1], errors[1]),
    }
