"""Checks of batch elements with lengths of their own, and of left padding: see `check_ragged`."""

from functools import partial
from typing import Any

import numpy as np

import py_attn as pa
from e2e.page.bounds import lse_over_bound, numpy_errors, over_bound
from e2e.page.inputs import laid_out, normal, poisoned
from py_attn.gpu.dtypes import round_to


def document(b, h, q, k):
    """A mask_mod that differs between batch elements and uses positions of both sides."""
    return ((q + b) % 3 != 0) | (k % 2 == 0)


def distance(score, b, h, q, k):
    """A score_mod likewise."""
    return score - 0.1 * (q - k) + 0.01 * b


MODS: dict[str, dict[str, Any]] = {
    "document": {"mask_mod": document},
    "both": {"mask_mod": document, "score_mod": distance},
}


class RaggedLoop:
    """Appends and decodes as they are recorded, and what each batch element holds then."""

    def __init__(self, case):
        self.case, self.device = case, pa.default_device()
        self.random = np.random.default_rng(case["seed"])
        self.dims = case["head_dim"], case["value_head_dim"]
        self.held = [
            [np.zeros((case["kv_heads"], 0, dim), np.float32) for _ in range(case["batch"])]
            for dim in self.dims
        ]
        self.ring = {"capacity": case["capacity"], "sink_tokens": case["sink_tokens"]}
        self.cache = pa.KVCache(
            case["batch"], case["kv_heads"], case["capacity"], self.dims[0], value_head_dim=self.dims[1],
            dtype=case["cache_dtype"], sink_tokens=case["sink_tokens"], ragged=case["ragged"],
        )  # fmt: skip

    def append(self, count, lengths=None, kind="list"):
        case = self.case
        shape = case["batch"], case["kv_heads"], count
        new = [normal(self.random, (*shape, dim), "float32") for dim in self.dims]
        counts = [count] * case["batch"] if lengths is None else lengths
        for x in new:
            for b, n in enumerate(counts):
                # What is padding must not matter.
                x[b, :, n:] = np.nan
        given = [laid_out(self.device, x, "float32", case["view"]) for x in new]
        if lengths is None:
            self.cache.append(*given)
        else:
            as_given = lengths if kind == "list" else self.device.tensor(np.array(lengths), kind)
            self.cache.append(*given, lengths=as_given)
        for held, x in zip(self.held, new, strict=True):
            rounded = round_to(x, case["cache_dtype"])
            for b, n in enumerate(counts):
                held[b] = np.concatenate([held[b], rounded[b, :, :n]], 1)

    def decode(self, count, left_padding=None, mod=None, **keywords):
        """Tensors of one call, and a function that compares them with the reference."""
        case = self.case
        splits = keywords.pop("splits", "auto")
        query = normal(self.random, (case["batch"], case["heads"], count, self.dims[0]), "float32")
        tensor = self.device.tensor(query)
        keywords |= MODS[mod] if mod else {}
        if left_padding is not None:
            keywords["left_padding"] = left_padding
        if isinstance(keywords.get("window"), list):
            keywords["window"] = tuple(keywords["window"])
        out, lse = pa.decode_attention(tensor, self.cache, splits=splits, return_lse=True, **keywords)
        parts = pa.decode_partials(tensor, self.cache, splits=splits, **keywords)
        lengths = [x.shape[1] for x in self.held[0]]
        keys, values = (
            np.stack([np.pad(x, ((0, 0), (0, max(lengths) - x.shape[1]), (0, 0))) for x in held])
            for held in self.held
        )
        fixed = {**keywords, **self.ring, "lengths": lengths, "values": values}
        return (out, lse, *parts), partial(self.compare, query, keys, fixed)

    def compare(self, query, keys, fixed, out, lse, part_out, part_lse):
        def reference(query, keys, compute=np.float64):
            return pa.reference.decode_attention(query, keys, return_lse=True, compute_dtype=compute, **fixed)

        exact = reference(query, keys)
        out_error, lse_error = numpy_errors(reference, query, keys)
        assert (out[np.isneginf(exact[1])] == 0).all(), "a row that sees nothing is not zero"
        split = [(part_out[:, :, :, n], part_lse[..., n]) for n in range(part_lse.shape[3])]
        return {
            "out": over_bound(out, exact[0], out_error),
            "lse": lse_over_bound(lse, exact[1], lse_error),
            "partials": over_bound(pa.reference.merge(split), exact[0], out_error),
        }


async def check_ragged(case):
    """Steps ["append", S, lengths or None, how these are given] and ["decode", S, keywords].

    Nothing is read back before all steps are recorded.
    """
    recorded = []
    with poisoned(pa.default_device()):
        loop = RaggedLoop(case)
        for step, count, *rest in case["steps"]:
            if step == "append":
                loop.append(count, *rest)
            else:
                recorded.append(loop.decode(count, **(rest[0] if rest else {})))
        worst = {"out": 0.0, "lse": 0.0, "partials": 0.0}
        for tensors, compare in recorded:
            ratios = compare(*[await tensor.numpy() for tensor in tensors])
            worst = {name: max(worst[name], ratio) for name, ratio in ratios.items()}
        if case["ragged"]:
            totals = await loop.cache.totals.numpy()
            assert totals.tolist() == [x.shape[1] for x in loop.held[0]], totals
        loop.cache.destroy()
    return worst
