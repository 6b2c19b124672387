"""Checks of scores far from zero, of NaN, and of what lies behind a sequence's keys.

Queries and keys are small integers, so that every kernel computes the same dot products; a score then rounds
in one way only. What is exact is the float64 formula on scores as float32 holds them.
"""

import itertools
from typing import Any

import numpy as np

import py_attn as pa
from e2e.page.bounds import over_bound
from e2e.page.configs import variant_of
from e2e.page.gradients import FORMS, in_each_form
from e2e.page.inputs import normal, poisoned
from py_attn.arguments import resolve
from py_attn.gpu.dtypes import round_to

_TRIES = 4
LOWEST = float(np.finfo(np.float32).min)


def integers(random, shape):
    """Integers from -3 to 3 as float32."""
    return random.integers(-3, 4, shape).astype(np.float32)


def mask_of(name, rows, keys):
    """A float mask [rows, keys] with extreme entries."""
    mask = np.zeros((rows, keys), np.float32)
    if name == "plus":
        mask[:, 1::3] = 3e38
    elif name == "apart":
        mask[:] = -3e38
        mask[:, 1::3] = -1.5e38
    elif name == "infinite":
        mask[:, 1::3] = -np.inf
        mask[0] = -np.inf
    elif name == "padding":
        mask[:] = LOWEST
        mask[1:, 1::3] = 0
    elif name == "nan":
        mask[1, 2] = np.nan
    elif name:
        mask[:] = LOWEST if name == "lowest" else float(name)
    return mask


def extreme_mod(name, upload=np.asarray):
    """A score_mod; NaN comes of the logarithm of a negative number and of what keeps NaN.

    1e8 is added with either sign by the same pipelines, as it is read from what ``upload`` makes of an array.
    """
    if name in ("+1e8", "-1e8"):
        added = upload(np.full(4, float(name), np.float32))
        return lambda score, b, h, q, k: score + added[h]
    if name == "-3e38":
        return lambda score, b, h, q, k: score - 3e38
    if name == "same":
        return lambda score, b, h, q, k: score + 0.0

    def logarithm(score, b, h, q, k):
        return pa.where((q == 1) & (k == 2), pa.log(0 * score - 1), score)

    def smallest(score, b, h, q, k):
        return pa.minimum(
            score, pa.where((q == 1) & (k == 2), pa.sqrt(0 * score - 1), pa.maximum(score, 5.3))
        )

    return {"log": logarithm, "min": smallest}[name]


def exactly(query, key, value, grad, *, sinks=None, **keywords):
    """What everything is in float64, and the largest error of each in plain numpy in float32.

    With a float mask or a mod, exact is what follows from float32's scores. Without, numpy computes weights
    and gradients from its LSE, as in the other checks. It gets several tries, as there: keys in another
    order, and queries a little larger where scores need not stay as they are.
    """
    extreme = getattr(keywords.get("mask"), "dtype", None) == np.float32 or "score_mod" in keywords
    exact: Any = None
    worst: list[float] = []
    for n in range(_TRIES):
        q = query if extreme else (query * (1 + n / 17)).astype(np.float32)
        with np.errstate(all="ignore"):
            scores, problem, options = scores_and_mask(q, key, value, **keywords)
            options = {**(options if extreme else keywords), "sinks": sinks}
            out, lse = pa.reference.attention(q, key, value, return_lse=True, **options)
            weights = pa.reference.attention_weights(q, key, **options)
            wanted = out, lse, weights, *pa.reference.attention_backward(grad, q, key, value, **options)
            order = np.random.default_rng(n).permutation(key.shape[2])
            moved = key[:, :, order], value[:, :, order]
            found = list(
                in_float32(scores[..., order], q, *moved, grad, problem, sinks, from_lse=not extreme)
            )
            back = np.argsort(order)
            found[2], found[4], found[5] = found[2][..., back], found[4][:, :, back], found[5][:, :, back]
            errors = [np.abs(a.astype(np.float64) - b) for a, b in zip(found, wanted, strict=True)]
        errors = [float(error[np.isfinite(error)].max(initial=0)) for error in errors]
        worst = [max(pair) for pair in zip(worst, errors, strict=True)] if worst else errors
        exact = exact or wanted
    if not extreme:
        # One rounding of the LSE, which numpy's may happen to cancel; as in page_checks.py.
        lse, weights = (x[np.isfinite(x)] for x in exact[1:3])
        worst[2] += np.finfo(np.float32).eps / 2 * np.abs(lse).max(initial=0) * weights.max(initial=0)
    return exact, worst


def scores_and_mask(query, key, value, **keywords):
    """Scores in float32, and what makes them in float64: scale, softcap and a mask that holds all else."""
    options: dict[str, Any] = {name: keywords[name] for name in ("scale", "softcap") if name in keywords}
    problem = resolve(query.shape, key.shape, value.shape, **options, causal=keywords.get("causal", False))
    rest = [keywords.get(name) for name in ("mask", "kv_lengths", "score_mod", "mask_mod")]
    scores = pa.reference.scores(query, key, problem, *rest)
    plain = pa.reference.capped_scores(query.astype(np.float64), key.astype(np.float64), problem)
    options["mask"] = np.where(np.isneginf(scores), -np.inf, scores.astype(np.float64) - plain)
    return scores, problem, options


def in_float32(scores, query, key, value, grad, problem, sinks, *, from_lse):
    """Output, LSE, weights and gradients, written out; the slope of a score_mod is 1 here."""
    weighed, hidden = pa.reference._sum_of_seen, np.isneginf(scores)
    k, v = (np.repeat(x, problem.group, axis=1) for x in (key, value))
    weights, lse = pa.reference.softmax(scores, None if sinks is None else sinks[:, None, None])
    out = weighed(weights, hidden, v)
    if from_lse:
        weights = np.where(hidden, np.float32(0), np.exp(scores - lse[..., None]))
    dp = grad @ v.swapaxes(-1, -2)
    ds = weights * (dp - (grad * out).sum(-1, keepdims=True)) * np.float32(problem.masking.scale)
    if problem.masking.softcap:
        capped = pa.reference.capped_scores(query, key, problem)
        ds = ds * (1 - (capped / np.float32(problem.masking.softcap)) ** 2)
    ds = np.where(hidden, np.float32(0), ds)
    behind = hidden.swapaxes(-1, -2)
    grouped = (problem.batch, problem.kv_heads, problem.group, problem.keys, -1)
    sides = ((ds.swapaxes(-1, -2), query), (weights.swapaxes(-1, -2), grad))
    d_key, d_value = (weighed(x, behind, y).reshape(grouped).sum(axis=2) for x, y in sides)
    found = out, lse, weights, weighed(ds, hidden, k), d_key, d_value
    if sinks is None:
        return found
    share = np.exp(sinks[:, None] - lse)
    return *found, -(share * (grad * out).sum(-1)).sum(axis=(0, 2))


def compare(name, got, exact, numpy_error):
    """Error over bound of the numbers; NaN must be where it is expected, and only there."""
    assert got.shape == exact.shape, f"{name}: shape {got.shape}, expected {exact.shape}"
    lost, found = np.isnan(exact), np.isnan(got)
    assert not (lost & ~found).any(), f"{name}: {np.count_nonzero(lost & ~found)} values should be NaN"
    assert not (found & ~lost).any(), f"{name}: {np.count_nonzero(found & ~lost)} are NaN"
    numbers = ~(lost | found)
    if name == "lse":
        assert np.array_equal(np.isneginf(got), np.isneginf(exact)), "lse: -inf in other rows"
        numbers &= np.isfinite(exact)
    if not numbers.any():
        return 0.0
    return over_bound(got[numbers], exact[numbers], numpy_error)


NAMES = ("out", "lse", "weights", "d_query", "d_key", "d_value", "d_sinks")


async def check_extreme(case):
    """Forward, LSE, weights and gradients of one dense call."""
    device, random = pa.default_device(), np.random.default_rng(case.get("seed", 1))
    rows, keys = case.get("rows", 5), case.get("keys", 39)
    query, key = integers(random, (1, 4, rows, 8)), integers(random, (1, 2, keys, 8))
    value, grad = normal(random, (1, 2, keys, 8), "float32"), normal(random, (1, 4, rows, 8), "float32")
    keywords: dict[str, Any] = dict(case.get("keywords", {}), scale=0.5)
    if case.get("mask"):
        keywords["mask"] = mask_of(case["mask"], rows, keys)
    if case.get("mod"):
        keywords["score_mod"] = extreme_mod(case["mod"])
    if case.get("seen"):
        keywords["mask"] = np.ones((rows, keys), bool)
    if case.get("sinks"):
        keywords["sinks"] = np.array([float(x) for x in case["sinks"]], np.float32)
    if case.get("nan"):
        {"query": query, "key": key, "value": value}[case["nan"]][0, 0, 1, 3] = np.nan
    if case.get("behind"):
        # What lies behind kv_lengths may be anything.
        for x in (key, value):
            x[:, :, keywords["kv_lengths"][0] :] = float(case["behind"])
    with poisoned(device):
        asked = dict(keywords)
        if case.get("mod"):
            asked["score_mod"] = extreme_mod(case["mod"], device.tensor)
        if "mask" in asked:
            kind = case.get("mask_dtype")
            asked["mask"] = device.tensor(asked["mask"], kind) if kind else asked["mask"]
        variant = variant_of(case, (query, key, value), asked)
        out, lse = pa.attention(query, key, value, variant=variant, return_lse=True, **asked)
        found = in_each_form(
            lambda form: pa.attention_backward(grad, query, key, value, out, lse, **asked, variant=form),
            forms=case.get("forms", FORMS),
        )
        gradients = list(itertools.chain(*found.values()))
        asked.pop("sinks", None)
        weights = pa.attention_weights(query, key, lse, **asked)
        pooled = pa.attention_weights(query, key, lse, size=(1, 1), **asked)
        colors = pa.attention_weights(query, key, lse, colormap="viridis", **asked)
        # An LSE that was sliced is still the kernel's own.
        part = pa.attention_weights(query[:, :2], key[:, :1], lse[:, :2], **asked)
        got = [await x.numpy() for x in (out, lse, weights, *gradients)]
        shown, painted, sliced = [await x.numpy() for x in (pooled, colors, part)]
    assert np.array_equal(sliced, got[2][:, :2], equal_nan=True), "weights: others from a part of the LSE"
    exact, errors = exactly(query, key, value, grad, **keywords)
    assert np.array_equal(painted == 0, np.isnan(exact[2])), (
        "colours: NaN is not transparent, or something else is"
    )
    assert np.array_equal(np.isnan(shown)[..., 0, 0], np.isnan(exact[2]).any((2, 3))), "pooled: NaN is lost"
    sums = got[2].astype(np.float64).sum(-1)
    if not case.get("sinks"):
        assert (np.abs(sums - 1) < 1e-5)[np.isfinite(exact[1])].all(), f"weights: rows sum to {sums.max()}"
    wanted = dict(zip(NAMES, zip(exact, errors, strict=True), strict=False))
    names = [*NAMES[:3], *(f"{name} {form}" for form in found for name in [*wanted][3:])]
    answer = {}
    for name, ours in zip(names, got, strict=True):
        answer[name] = compare(name, ours, *wanted[name.partition(" ")[0]])
    return answer


async def check_extreme_packed(case):
    """The same of packed sequences; each is compared by itself."""
    device, random = pa.default_device(), np.random.default_rng(2)
    cu_q, cu_k = np.cumsum([0, 3, 0, 35, 4]), np.cumsum([0, 7, 4, 33, 9])
    query, key = integers(random, (cu_q[-1], 4, 8)), integers(random, (cu_k[-1], 2, 8))
    value, grad = normal(random, (cu_k[-1], 2, 8), "float32"), normal(random, (cu_q[-1], 4, 8), "float32")
    keywords: dict[str, Any] = {"scale": 0.5} | (
        {"score_mod": extreme_mod(case["mod"])} if case.get("mod") else {}
    )
    if case.get("nan"):
        {"query": query, "key": key, "value": value}[case["nan"]][8, 1, 3] = np.nan
    with poisoned(device):
        cu = cu_q.tolist(), cu_k.tolist()
        asked = dict(keywords)
        if case.get("mod"):
            asked["score_mod"] = extreme_mod(case["mod"], device.tensor)
        out, lse = pa.varlen_attention(
            query, key, value, *cu, variant=case["variant"], return_lse=True, **asked
        )
        found = in_each_form(
            lambda form: pa.varlen_attention_backward(
                grad, query, key, value, out, lse, *cu, **asked, variant=form
            ),
            forms=case.get("forms", FORMS),
        )
        got_out, got_lse, *got = [await x.numpy() for x in (out, lse, *itertools.chain(*found.values()))]
    names = [f"{name} {form}" for form in found for name in NAMES[3:6]]
    answer = dict.fromkeys(("out", "lse", *names), 0.0)
    for n in range(len(cu_q) - 1):
        rows, columns = slice(*cu_q[n : n + 2]), slice(*cu_k[n : n + 2])
        heads_first = [
            x.swapaxes(0, 1)[None] for x in (query[rows], key[columns], value[columns], grad[rows])
        ]
        exact, errors = exactly(*heads_first, **keywords)
        sides = (rows, columns, columns) * len(found)
        parts = (got_out[rows], *(x[side] for x, side in zip(got, sides, strict=True)))
        first, *rest = [x.swapaxes(0, 1)[None] for x in parts]
        for name, ours in zip(answer, (first, got_lse[None, :, rows], *rest), strict=True):
            at = NAMES.index(name.partition(" ")[0])
            answer[name] = max(answer[name], compare(name, ours, exact[at], errors[at]))
    return answer


async def check_extreme_decode(case):
    """Decode over a cache with several splits, and the weights from its LSE."""
    device, random = pa.default_device(), np.random.default_rng(3)
    keys = 67
    query, key = integers(random, (1, 4, 1, 8)), integers(random, (1, 2, keys, 8))
    value = np.asarray(round_to(normal(random, (1, 2, keys, 8), "float32"), case["dtype"]), np.float32)
    keywords: dict[str, Any] = {"scale": 0.5}
    if case.get("mod") == "log":
        keywords["score_mod"] = lambda score, b, h, q, k: pa.where(
            (h == 1) & (k == 40), pa.log(0 * score - 1), score
        )
    elif case.get("mod"):
        keywords["score_mod"] = extreme_mod(case["mod"])
    if case.get("softcap"):
        keywords["softcap"] = case["softcap"]
    if case.get("nan"):
        {"query": query, "key": key, "value": value}[case["nan"]][0, 1, -1, 3] = np.nan
    sinks: dict[str, Any] = (
        {"sinks": np.array([float(x) for x in case["sinks"]], np.float32)} if case.get("sinks") else {}
    )
    with poisoned(device):
        cache = pa.KVCache(1, 2, keys, 8, dtype=case["dtype"])
        cache.append(key, value)
        asked = dict(keywords)
        if case.get("mod", "log") != "log":
            asked["score_mod"] = extreme_mod(case["mod"], device.tensor)
        out, lse = pa.decode_attention(query, cache, splits=case["splits"], return_lse=True, **asked, **sinks)
        # Queries are counted from the first append there, and from 0 here, which no function above looks at.
        weights = pa.attention_weights(query, key, lse, **asked)
        got = [await x.numpy() for x in (out, lse, weights)]
        cache.destroy()
    grad = np.zeros_like(query)
    exact, errors = exactly(query, key, value, grad, **keywords, **sinks)
    return {
        name: compare(name, ours, wanted, error)
        for name, ours, wanted, error in zip(NAMES, got, exact, errors, strict=False)
    }
