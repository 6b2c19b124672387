"""How far a kernel's result may be from float64.

The bound is the design's: a kernel may be at most twice as far from float64 as plain numpy in float32, plus
a tiny absolute term of a few roundings (`_ULPS`) at the size of the largest result, for results that numpy
happens to hit exactly. Where two large scores nearly tie, float32's error is a lottery that few rows decide;
numpy therefore gets several tries, and the largest of its errors counts. A result stored as a half type may
then be off by one rounding to it: half a unit in its last place.
"""

import numpy as np

_ULPS = 4 * float(np.finfo(np.float32).eps)
_TRIES = 4
# Below this a row saw nothing but keys pushed away by finfo.min; how far down it lies means nothing.
_PUSHED_AWAY = -1e30


def half_ulp(values, dtype):
    """What one rounding to `dtype` may change values by."""
    if dtype == "float32":
        return 0.0
    digits, smallest = {"float16": (10, -14), "bfloat16": (7, -126)}[dtype]
    exponent = np.floor(np.log2(np.maximum(np.abs(values), 2.0**smallest)))
    return 2.0 ** (np.maximum(exponent, smallest) - digits - 1)


def numpy_errors(compute, query, key):
    """The largest error in float32 of each result of `compute(query, key, dtype)`.

    A try has the head dim in another order and the query a little larger, so that everything rounds anew.
    """
    worst: list[float] = []
    for n in range(_TRIES):
        order = np.random.default_rng(n).permutation(query.shape[-1]) if n else slice(None)
        q, k = (query[..., order] * (1 + n / 16)).astype(np.float32), key[..., order]
        with np.errstate(over="ignore", invalid="ignore"):
            exact, single = compute(q, k, np.float64), compute(q, k, np.float32)
        errors = []
        for a, b in zip(single, exact, strict=True):
            shown = np.isfinite(b) & (b > _PUSHED_AWAY)
            errors.append(float(np.abs(a - b, where=shown, out=np.zeros(b.shape)).max(initial=0)))
        assert np.isfinite(errors).all()
        worst = [max(pair) for pair in zip(worst, errors, strict=True)] if worst else errors
    return worst


def bound_of(exact, numpy_error):
    """How far a float32 result may be from `exact`."""
    return 2 * numpy_error + _ULPS * np.abs(exact).max()


def over_bound(got, exact, numpy_error, dtype="float32"):
    """The largest error over its bound."""
    got = np.asarray(got, np.float64)
    assert got.shape == exact.shape, f"shape {got.shape}, expected {exact.shape}"
    if not got.size:
        return 0.0
    assert np.isfinite(got).all(), (
        f"{np.count_nonzero(~np.isfinite(got))} of {got.size} values are not finite"
    )
    bound = bound_of(exact, numpy_error)
    rounding = half_ulp(np.maximum(np.abs(exact), np.abs(got)), dtype)
    error = (np.abs(got - exact) - rounding).max()
    return max(0.0, float(error / bound)) if bound else float(error > 0)


def lse_over_bound(got, exact, numpy_error):
    """The same for log-sum-exps, where -inf must be -inf."""
    assert got.shape == exact.shape, f"lse: shape {got.shape}, expected {exact.shape}"
    assert np.array_equal(np.isneginf(got), np.isneginf(exact)), "lse: -inf in other rows than expected"
    pushed = np.isfinite(exact) & (exact < _PUSHED_AWAY)
    assert (got[pushed] < _PUSHED_AWAY).all(), "lse: too high for rows with nothing but the lowest bias"
    rows = np.isfinite(exact) & ~pushed
    return over_bound(got[rows], exact[rows], numpy_error) if rows.any() else 0.0
