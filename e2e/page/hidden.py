"""Checks that what a row may not see never matters: NaN and infinity behind every way of hiding keys.

Numbers that are not finite lie at random places of query, key, value and of the output's gradient.
Results must be finite exactly where those of the float64 reference are, for which hidden entries are zeros.
"""

import itertools
from typing import Any

import numpy as np

import py_attn as pa
from e2e.page.attention import half_weights_error
from e2e.page.bounds import numpy_errors, over_bound
from e2e.page.configs import another_adapter, variant_of
from e2e.page.emulated_half_matrices import emulated_for
from e2e.page.gradients import FORMS, in_each_form, with_cancelled
from e2e.page.inputs import laid_out, normal, poisoned
from py_attn.gpu.dtypes import round_to

GRADIENTS = ("d_query", "d_key", "d_value", "d_sinks")


def hidden_mod(b, h, q, k):
    """A mask_mod that leaves some rows without a key."""
    return ((q + k + h) % 3 != 0) & (q % 7 != 5)


def hiding_score(score, b, h, q, k):
    """A score_mod that hides keys itself."""
    return pa.where((q + 2 * k + h) % 3 == 0, -np.inf, score)


def hiding_score_of_numpy(score, b, h, q, k):
    """The same for the reference."""
    return np.where((q + 2 * k + h) % 3 == 0, -np.inf, score)


def bias(score, b, h, q, k):
    """A score_mod that hides nothing."""
    return score - 0.125 * abs(q - k)


def ways_of_hiding(random, names, rows, keys, batch):
    """The keywords for the kernel and for the reference."""
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    seen = random.random((rows, keys)) < 0.5
    seen[random.random(rows) < 0.1] = False
    # Some keys are seen by nobody, as padding is.
    seen[:, random.random(keys) < 0.2] = False
    for name in names:
        if name == "bool":
            ours["mask"] = theirs["mask"] = seen
        elif name == "float":
            ours["mask"] = theirs["mask"] = np.where(
                seen, random.standard_normal(seen.shape), -np.inf
            ).astype(np.float32)
        elif name == "mask_mod":
            ours["mask_mod"] = theirs["mask_mod"] = hidden_mod
        elif name == "score_mod":
            ours["score_mod"], theirs["score_mod"] = hiding_score, hiding_score_of_numpy
        elif name == "bias":
            ours["score_mod"] = theirs["score_mod"] = bias
        elif name == "causal":
            ours["causal"] = theirs["causal"] = True
        elif name == "window":
            ours["window"] = theirs["window"] = (3, 2)
        elif name == "softcap":
            ours["softcap"] = theirs["softcap"] = 5.0
        elif name == "lengths":
            ours["kv_lengths"] = theirs["kv_lengths"] = [max(0, keys - 3 - 5 * b) for b in range(batch)]
        else:
            raise ValueError(name)
    return ours, theirs


def poison(random, x, what, share):
    """Put what is not finite into some of the vectors: into one number, or into all."""
    lines = np.argwhere(random.random(x.shape[:-1]) < share)
    for line in lines:
        element = slice(None) if random.random() < 0.3 else int(random.integers(x.shape[-1]))
        x[(*line, element)] = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}[
            what[random.integers(len(what))]
        ]


def compare(name, got, exact, error, dtype="float32"):
    """Error over bound of the finite numbers, which must be those that are finite in float64."""
    assert got.shape == exact.shape, f"{name}: shape {got.shape}, expected {exact.shape}"
    lost, found = ~np.isfinite(exact), ~np.isfinite(got)
    assert np.array_equal(lost, found), (
        f"{name}: {np.count_nonzero(found & ~lost)} numbers are not finite that should be, "
        f"and {np.count_nonzero(lost & ~found)} are that should not"
    )
    if name in ("out", "lse"):
        assert np.array_equal(got[lost], exact[lost], equal_nan=True), f"{name}: another infinity or NaN"
    numbers = ~lost
    return over_bound(got[numbers], exact[numbers], error, dtype) if numbers.any() else 0.0


async def check_hidden(case):
    """Forward, LSE, gradients and weights of a dense call, or of packed sequences of the lengths given."""
    device, random = pa.default_device(), np.random.default_rng(case["seed"])
    b, hq, hkv, dtype = case["batch"], case["heads"], case["kv_heads"], case["dtype"]
    rows, keys, d, dv = case["rows"], case["keys"], case["head_dim"], case["value_dim"]
    packed = [np.cumsum([0, *case[name]]).tolist() for name in ("row_lengths", "key_lengths") if name in case]
    if packed:
        rows, keys = (cu[-1] for cu in packed)
        b = len(packed[0]) - 1
    sizes = (hq, rows, d), (hkv, keys, d), (hkv, keys, dv), (hq, rows, dv)
    shapes: Any = [(s, h, n) for h, s, n in sizes] if packed else [(b, *size) for size in sizes]
    arrays = dict(
        zip(
            ("query", "key", "value", "grad"), (normal(random, shape, dtype) for shape in shapes), strict=True
        )
    )
    hides = not set(case["hide"]) <= {"lengths", "softcap"}
    for name in case["where"]:
        # A score of minus infinity that comes from an infinite key hides it only in calls that hide keys.
        # In others its value has the weight 0, as in PyTorch, and 0 · infinity is NaN.
        what = case["what"] if hides or name in ("value", "grad") else ["nan"]
        poison(random, arrays[name], what, case["share"])
    query, key, value, grad = arrays.values()
    ours, theirs = ways_of_hiding(random, case["hide"], rows, keys, b)
    if case.get("sinks"):
        ours["sinks"] = theirs["sinks"] = random.standard_normal(hq).astype(np.float32)
    of_kernels = Calls(pa, packed)
    of_reference = Calls(pa.reference, packed)
    view = case.get("view", "plain")
    q, k, v, g = (
        device.tensor(x, dtype) if packed else laid_out(device, x, dtype, view) for x in arrays.values()
    )
    with emulated_for(case, device), poisoned(device):
        variant = case["variant"] if packed else variant_of(case, (q, k, v), ours)
        out, lse = of_kernels.forward(q, k, v, variant=variant, return_lse=True, **ours)
        results, found = [out, lse], {}
        if not case.get("forward_only"):
            found = in_each_form(
                lambda form: of_kernels.backward(g, q, k, v, out, lse, **ours, variant=form),
                forms=case.get("forms", FORMS),
            )
            results += itertools.chain(*found.values())
        if not case.get("forward_only") and not packed:
            plain = {name: x for name, x in ours.items() if name != "sinks"}
            results.append(pa.attention_weights(q, k, lse, value=v, grad_out=g, **plain))
        got = [await x.numpy() for x in results]

    def forward(q, k, precision):
        return of_reference.forward(q, k, value, return_lse=True, compute_dtype=precision, **theirs)

    def backward(q, k, precision):
        options = {"compute_dtype": precision, **theirs}
        if precision != np.float64:
            found, row_lse = forward(q, k, precision)
            options |= {"out": round_to(found, dtype), "lse": row_lse}
        found = of_reference.backward(grad, q, k, value, **options)
        options = {"value": value, "grad_out": grad, "compute_dtype": precision, **theirs}
        return found if packed else (*found, pa.reference.attention_weights(q, k, **options))

    with np.errstate(all="ignore"):
        exact, errors = forward(query, key, np.float64), errors_of(forward, query, key)
        if case["variant"] == "matrix" and dtype == "float16":
            finite = Clean(query, key, value)
            errors[0] += half_weights_error(finite, np.where(np.isfinite(exact[0]), exact[0], 0), theirs) / 2
        if not case.get("forward_only"):
            exact = *exact, *backward(query, key, np.float64)
            # A term of a gradient, of which little may be left when all are added up.
            terms = np.abs(np.where(np.isfinite(grad), grad, 0)).sum(-1).max(initial=0) * 4
            queries, keys = Clean(query, key).arrays
            errors += with_cancelled(errors_of(backward, query, key), terms, queries, keys, theirs)
    names = ("out", "lse", *GRADIENTS[: 4 if case.get("sinks") else 3], "weights")
    kinds = (dtype, "float32", dtype, dtype, dtype, *["float32"] * 2)
    wanted = dict(zip(names, zip(exact, errors, kinds, strict=False), strict=False))
    gradients = [f"{name} {form}" for form in found for name in names if name in GRADIENTS]
    answer = {}
    for name, values in zip((*names[:2], *gradients, "weights"), got, strict=False):
        answer[name] = compare(name, values, *wanted[name.partition(" ")[0]])
    return answer


class Calls:
    """The functions of kernels or reference, for a batch or for packed sequences."""

    def __init__(self, module, packed):
        self.module, self.packed = module, packed

    def forward(self, *operands, **keywords):
        call = self.module.varlen_attention if self.packed else self.module.attention
        return call(*operands, *self.packed, **keywords)

    def backward(self, *operands, **keywords):
        call = self.module.varlen_attention_backward if self.packed else self.module.attention_backward
        return call(*operands, *self.packed, **keywords)


class Clean:
    """Inputs whose entries that are not finite are zeros."""

    def __init__(self, *arrays):
        self.arrays = [np.where(np.isfinite(x), x, 0) for x in arrays]


def errors_of(compute, query, key):
    """`numpy_errors` of results some of whose numbers are not finite."""

    def finite(q, k, precision):
        return [np.where(np.isfinite(x), x, -np.inf) for x in compute(q, k, precision)]

    def both(q, k, precision):
        # What is not finite in float64 is left out, and so is what rounds to it in float32.
        return [
            np.where(np.isfinite(b), a, -np.inf)
            for a, b in zip(finite(q, k, precision), finite(q, k, np.float64), strict=True)
        ]

    return numpy_errors(both, query, key)


def behind_mod(b, h, q, k):
    """A mask_mod of a cache's positions."""
    return (q + 2 * k + h) % 3 != 0


async def check_hidden_decode(case):
    """A decode over a cache with NaN and infinities at positions that some or all rows do not see."""
    device, random = pa.default_device(), np.random.default_rng(case["seed"])
    b, hq, hkv, rows, keys = case["batch"], case["heads"], case["kv_heads"], case["rows"], case["keys"]
    query = normal(random, (b, hq, rows, case["head_dim"]), "float32")
    shapes = (b, hkv, keys, case["head_dim"]), (b, hkv, keys, case["value_dim"])
    new = [normal(random, shape, case["dtype"]) for shape in shapes]
    for name, x in zip(("key", "value"), new, strict=True):
        if name in case["where"]:
            poison(random, x, case["what"], case["share"])
    ways: dict[str, dict[str, Any]] = {
        "causal": {},
        "window": {"window": (5, 0)},
        "mask_mod": {"mask_mod": behind_mod},
        "padding": {"left_padding": [keys - 2 * rows - 3 * n for n in range(b)]},
        "softcap": {"softcap": 5.0},
        "ragged": {},
    }
    keywords: dict[str, Any] = {}
    for name in case["hide"]:
        keywords |= ways[name]
    ragged = "ragged" in case["hide"]
    lengths = [max(0, keys - 7 * n) for n in range(b)]
    ring = {"capacity": case["capacity"], "sink_tokens": case.get("sink_tokens", 0)}
    if case.get("sinks"):
        keywords["sinks"] = random.standard_normal(hq).astype(np.float32)
    with another_adapter(device, case.get("adapter", {})), poisoned(device):
        cache = pa.KVCache(
            b, hkv, ring["capacity"], case["head_dim"], value_head_dim=case["value_dim"],
            dtype=case["dtype"], sink_tokens=ring["sink_tokens"], ragged=ragged,
        )  # fmt: skip
        tensors = [device.tensor(x) for x in new]
        cache.append(*tensors, lengths=lengths if ragged else None)
        splits = case["splits"]
        out, lse = pa.decode_attention(query, cache, splits=splits, return_lse=True, **keywords)
        got = [await x.numpy() for x in (out, lse)]
        cache.destroy()

    def reference(q, keys, precision):
        options = {**keywords, **ring, **({"lengths": lengths} if ragged else {})}
        return pa.reference.decode_attention(
            q, keys, new[1], return_lse=True, compute_dtype=precision, **options
        )

    with np.errstate(all="ignore"):
        exact, errors = reference(query, new[0], np.float64), errors_of(reference, query, new[0])
    return {
        name: compare(name, found, wanted, error)
        for name, found, wanted, error in zip(("out", "lse"), got, exact, errors, strict=True)
    }


async def check_weight_zero(case):
    """Where a call hides no key, an infinite one may have the weight 0, and 0 · infinity is NaN."""
    device, random, keys = pa.default_device(), np.random.default_rng(case["seed"]), case["keys"]
    query, key, value = (normal(random, (1, 2, n, 8), "float32") for n in (21, keys, keys))
    query, distant = np.abs(query), random.random(keys) < 0.3
    distant[[0, -1]] = False, True
    key[:, :, distant, 3] = -np.inf
    value[:, :, distant, 5] = np.inf
    lengths: dict[str, Any] = {"kv_lengths": [keys]} if case["lengths"] else {}
    with poisoned(device):
        config = variant_of(case, (query, key, value), lengths)
        got = await pa.attention(query, key, value, variant=config, **lengths).numpy()

    def reference(q, k, precision):
        return [pa.reference.attention(q, k, value, compute_dtype=precision)]

    with np.errstate(all="ignore"):
        (exact,), (error,) = reference(query, key, np.float64), errors_of(reference, query, key)
    exact[..., 5] = np.nan
    return {"out": compare("out", got, exact, error)}


async def check_largest(case):
    """Outputs near the largest number of float32: no kernel overflows on its way to them."""
    device, random = pa.default_device(), np.random.default_rng(case["seed"])
    rows, keys, d = case["rows"], case["keys"], 8
    query, key = (normal(random, (1, 2, n, d), "float32", 0.3) for n in (rows, keys))
    signs = np.where(random.random((1, 2, 1, d)) < 0.5, -1, 1)
    value = (signs * (2.9e38 + 0.4e38 * random.random((1, 2, keys, d)))).astype(np.float32)
    variant = case["variant"]
    with poisoned(device):
        if variant == "decode":
            cache = pa.KVCache(1, 2, keys, d)
            cache.append(key, value)
            out = pa.decode_attention(query, cache, splits=case["splits"])
        elif variant == "merge":
            halves = [(key[:, :, n::2], value[:, :, n::2]) for n in range(2)]
            out = pa.merge([pa.attention(query, *half, return_lse=True) for half in halves])
        else:
            config = variant_of(case, (query, key, value), {})
            out = pa.attention(query, key, value, variant=config)
        got = await out.numpy()
    # A sum of thousands of weights is a rounding or more away from 1.
    causal = variant == "decode"
    exact = pa.reference.attention(query, key, value, causal=causal)
    return {"out": float(np.abs(got / exact - 1).max() / 1e-5)}


async def check_largest_gradients(case):
    """d_query and d_key whose sums fit in float32 only after they are scaled."""
    random = np.random.default_rng(case["seed"])
    query, key, value, grad = (
        normal(random, (1, 1, n, 8), "float32", size)
        for n, size in ((20, 30.0), (30, 30.0), (30, 1.0), (20, 1e37))
    )
    keywords: dict[str, Any] = {"scale": 1e-4}
    out, lse = pa.attention(query, key, value, return_lse=True, **keywords)
    exact = pa.reference.attention_backward(grad, query, key, value, **keywords)
    # Without the scale they would not fit.
    assert all(np.abs(x).max() > 3.4e38 * keywords["scale"] for x in exact[:2])
    answer = {}
    gradients = in_each_form(
        lambda form: pa.attention_backward(grad, query, key, value, out, lse, **keywords, variant=form)
    )
    for form, found in gradients.items():
        for name, ours, wanted in zip(GRADIENTS, found, exact, strict=False):
            error = np.abs(await ours.numpy() - wanted).max()
            answer[f"{name} {form}"] = float(error / (1e-4 * np.abs(wanted).max()))
    return answer
