"""Checks of caches and of `pa.decode_attention`: see `check_decode`."""

from functools import partial
from typing import Any

import numpy as np

import py_attn as pa
from e2e.page.bounds import lse_over_bound, numpy_errors, over_bound
from e2e.page.inputs import laid_out, make_sinks, normal, poisoned
from py_attn.gpu.dtypes import round_to


def decode_reference(query, keys, compute=np.float64, *, values, **keywords):
    return pa.reference.decode_attention(
        query, keys, values, return_lse=True, compute_dtype=compute, **keywords
    )


def decode_mods(device, case, random):
    """(keywords for the kernels, keywords for the reference) of what `case["mod"]` names."""
    name = case.get("mod")
    total = sum(step[1] for step in case["steps"] if step[0] == "append")
    slopes = np.abs(normal(random, (case["heads"],), "float32"))
    documents = np.sort(random.integers(0, 4, total)).astype(np.int32)

    def document(_, documents):
        return {"mask_mod": lambda b, h, q, k: (documents[q] == documents[k]) | (k % 5 == 0)}

    def both(slopes, documents):
        alibi = {"score_mod": lambda score, b, h, q, k: score - slopes[h] * pa.abs(q - k)}
        return alibi | document(slopes, documents)

    if name is None:
        return {}, {}
    make = {"document": document, "both": both}[name]
    return make(device.tensor(slopes), device.tensor(documents)), make(slopes, documents)


class Loop:
    """Appends and decode calls on one cache as they are recorded, with what each decode call should see.

    Parameters
    ----------
    case
        See :func:`check_decode`.
    """

    def __init__(self, case):
        self.case, self.device = case, pa.default_device()
        self.random = np.random.default_rng(case["seed"])
        self.dims = case["head_dim"], case["value_head_dim"]
        shape = case["batch"], case["kv_heads"], 0
        self.held = [np.zeros((*shape, dim), np.float32) for dim in self.dims]
        self.ring = {"capacity": case["capacity"], "sink_tokens": case.get("sink_tokens", 0)}
        self.ours, self.theirs = decode_mods(self.device, case, self.random)
        self.sinks: dict[str, Any] = {}
        if case.get("sinks"):
            self.theirs["sinks"] = make_sinks(self.random, case["heads"], case["sinks"])
            self.sinks["sinks"] = self.device.tensor(self.theirs["sinks"], case["sinks"])
        self.cache = pa.KVCache(
            case["batch"], case["kv_heads"], case["capacity"], self.dims[0], value_head_dim=self.dims[1],
            dtype=tuple(case["cache_dtypes"]), sink_tokens=self.ring["sink_tokens"],
        )  # fmt: skip

    def append(self, count):
        case, dtype = self.case, self.case["source_dtype"]
        shape = case["batch"], case["kv_heads"], count
        new = [normal(self.random, (*shape, dim), dtype) for dim in self.dims]
        view = case.get("source_view", "plain")
        self.cache.append(*(laid_out(self.device, x, dtype, view) for x in new))
        for i, (x, kind) in enumerate(zip(new, case["cache_dtypes"], strict=True)):
            self.held[i] = np.concatenate([self.held[i], round_to(x, kind)], 2)
        assert self.cache.length == min(self.held[0].shape[2], case["capacity"])

    def decode(self, count, window=None, splits="auto", **keywords):
        """Tensors of one call, and a function from query and keys to its reference."""
        case, dtype = self.case, self.case["query_dtype"]
        shape = case["batch"], case["heads"], count, self.dims[0]
        query = normal(self.random, shape, dtype, case.get("size", 1.0))
        tensor = laid_out(self.device, query, dtype, case.get("query_view", "plain"))
        if window is not None:
            keywords["window"] = tuple(window) if isinstance(window, list) else window
        asked = {**keywords, **self.ours, "splits": splits}
        out, lse = pa.decode_attention(tensor, self.cache, return_lse=True, **asked, **self.sinks)
        alone = pa.decode_attention(tensor, self.cache, **asked, **self.sinks)
        parts = pa.decode_partials(tensor, self.cache, **asked)
        keys, values = self.held
        reference = partial(decode_reference, values=values, **keywords, **self.theirs, **self.ring)
        return (out, lse, alone, *parts), partial(self.compare, query, keys, reference)

    def compare(self, query, keys, reference, out, lse, alone, part_out, part_lse):
        """Errors over bounds of one call's results."""
        exact = reference(query, keys)
        out_error, lse_error = numpy_errors(reference, query, keys)
        assert np.array_equal(out, alone), "another result without the LSE"
        assert (out[np.isneginf(exact[1])] == 0).all(), "a row that sees nothing is not zero"
        assert part_out.shape == (*out.shape[:3], part_lse.shape[3], self.dims[1])
        combined = combine(part_out, part_lse, self.theirs.get("sinks"))
        return {
            "out": over_bound(out, exact[0], out_error, self.case["query_dtype"]),
            "lse": lse_over_bound(lse, exact[1], lse_error),
            "partials": over_bound(combined, exact[0], out_error),
        }


def combine(part_out, part_lse, sinks):
    """The output of all splits together, in float64."""
    part_lse = part_lse.astype(np.float64)
    with np.errstate(divide="ignore"):
        weights = np.exp(part_lse).sum(-1)
        if sinks is not None:
            weights = weights + np.exp(sinks.astype(np.float64))[:, None]
        total = np.log(weights)
    share = np.exp(part_lse - np.where(np.isneginf(total), 0, total)[..., None])
    return (share[..., None] * part_out).sum(-2)


async def check_decode(case):
    """Appends and decode calls in the order of `case["steps"]`; each decode against what was cached then.

    A step is ["append", S] or ["decode", S, keywords]. Nothing is read back before all steps are recorded.
    The reference gets every position ever appended, and is told what the cache still holds.
    """
    recorded = []
    with poisoned(pa.default_device()):
        loop = Loop(case)
        for step, count, *keywords in case["steps"]:
            if step == "append":
                loop.append(count)
            else:
                recorded.append(loop.decode(count, **(keywords[0] if keywords else {})))
        worst = {"out": 0.0, "lse": 0.0, "partials": 0.0}
        for tensors, compare in recorded:
            ratios = compare(*[await tensor.numpy() for tensor in tensors])
            worst = {name: max(worst[name], ratio) for name, ratio in ratios.items()}
        loop.cache.destroy()
    return worst
