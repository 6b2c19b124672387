"""Checks of `pa.attention` and `pa.attention_weights`: see `check_attention` and `check_weights`."""

import numpy as np

import py_attn as pa
from e2e.page.bounds import bound_of, lse_over_bound, numpy_errors, over_bound
from e2e.page.configs import variant_of
from e2e.page.emulated_half_matrices import emulated_for
from e2e.page.inputs import Inputs, normal, poisoned
from py_attn.arguments import resolve
from py_attn.kernels.attention.config import device_variants


def half_weights_error(inputs, exact, keywords):
    """How far weights rounded to float16 may move a result: 2^-11 of each value's distance from it."""
    query, key, value = inputs.arrays
    size = pa.reference.attention(query, key, np.abs(value), **keywords)[0]
    # Below 2^-14 of the row's largest weight float16 has fewer digits.
    smallest = 2.0**-25 * key.shape[2] * np.abs(value).max(initial=0)
    return float((2.0**-11 * (size + np.abs(exact)) + smallest).max(initial=0))


def has_variant(variant, dtype):
    """Whether this adapter can run a variant on a dtype."""
    return variant in device_variants(pa.default_device(), dtype)


async def check_attention(case):
    """One call of `pa.attention`: the ratios of output and LSE."""
    device = pa.default_device()
    with emulated_for(case, device), poisoned(device):
        inputs = Inputs(device, case)
        asked = {**inputs.shared, **inputs.kernel}
        asked["variant"] = variant_of(case, inputs.tensors, asked)
        out, lse = pa.attention(*inputs.tensors, **asked, return_lse=True)
        alone = pa.attention(*inputs.tensors, **asked) if case.get("without_lse") else out
        got, got_lse, got_alone = await out.numpy(), await lse.numpy(), await alone.numpy()
    assert out.dtype == case["dtypes"]["query"]
    assert lse.dtype == "float32"
    assert np.array_equal(got, got_alone), "another result without the LSE"
    if "layout" in inputs.kernel:
        got = got.swapaxes(1, 2)
    keywords = {**inputs.shared, **inputs.reference, "return_lse": True}
    query, key, value = inputs.arrays

    def reference(q, k, compute=np.float64):
        return pa.reference.attention(q, k, value, **keywords, compute_dtype=compute)

    exact, exact_lse = reference(query, key)
    out_error, lse_error = numpy_errors(reference, query, key)
    if case.get("variant") == "matrix" and out.dtype == "float16":
        out_error += half_weights_error(inputs, exact, keywords) / 2
    assert (got[np.isneginf(exact_lse)] == 0).all(), "a row that sees nothing is not zero"
    return {
        "out": over_bound(got, exact, out_error, out.dtype),
        "lse": lse_over_bound(got_lse, exact_lse, lse_error),
    }


async def check_weights(case):
    """One call of `pa.attention_weights`, with the LSE that `pa.attention` gives."""
    device = pa.default_device()
    with poisoned(device):
        inputs = Inputs(device, case)
        query, key, value = inputs.tensors
        shared = {**inputs.shared, **inputs.kernel}
        lse = pa.attention(query, key, value, **shared, return_lse=True)[1]
        # The LSE has them; nothing else needs them.
        shared.pop("sinks", None)
        shown = dict(case["show"])
        rows, columns = (slice(*shown.pop(name, [None])) for name in ("rows", "columns"))
        gradient = shown.pop("gradient", False)
        grad = normal(np.random.default_rng(1), inputs.out_shape, case["dtypes"]["value"])
        with_gradient = {}
        if gradient:
            tensor = device.tensor(
                grad.swapaxes(1, 2) if "layout" in shared else grad, case["dtypes"]["value"]
            )
            with_gradient = {"value": value, "grad_out": tensor}
        weights = pa.attention_weights(
            query, key, lse, rows=rows, columns=columns, **shown, **with_gradient, **shared
        )
        got = await weights.numpy()
    heads = shown.get("heads")
    heads = list(range(case["heads"])) if heads is None else [heads] if isinstance(heads, int) else heads
    keywords = {**inputs.shared, **inputs.reference}

    def reference(q, k, compute=np.float64):
        # From query, key and LSE as the kernel does it: exp(score - lse).
        options = {**keywords, "compute_dtype": compute}
        row_lse = pa.reference.attention(q, k, k, **options, return_lse=True)[1][..., None]
        scores = scores_of(q, k, {n: x for n, x in keywords.items() if n != "sinks"}, compute)
        full = np.exp(scores - np.where(np.isneginf(row_lse), 0, row_lse))
        pool = shown.get("pool", "max")
        if gradient:
            v = np.repeat(inputs.arrays[2].astype(compute), q.shape[1] // k.shape[1], axis=1)
            full = full * (grad.astype(compute) @ v.swapaxes(-1, -2))
            pool = pool.replace("max", "furthest")
        part = full[:, heads][:, :, rows, columns]
        return [pa.reference.pool(part, shown["size"], pool) if shown.get("size") else part]

    query, key, value = inputs.arrays
    exact_lse = pa.reference.attention(query, key, value, **keywords, return_lse=True)[1]
    (exact,), (error,) = reference(query, key), numpy_errors(reference, query, key)
    # One rounding of the LSE, which float32 cannot avoid, though numpy's may cancel that of a score.
    finite = exact_lse[np.isfinite(exact_lse)]
    error += (
        float(np.finfo(np.float32).eps) / 2 * np.abs(finite).max(initial=0) * np.abs(exact).max(initial=0)
    )
    if not shown.get("colormap"):
        return {"weights": over_bound(got, exact, error)}
    return {"colors": share_of_other_colors(got, exact, error, shown)}


def scores_of(query, key, keywords, compute):
    """The reference's masked scores."""
    keywords = dict(keywords)
    mask, lengths = keywords.pop("mask", None), keywords.pop("kv_lengths", None)
    query, key = query.astype(compute), key.astype(compute)
    problem = resolve(query.shape, key.shape, None, **keywords)
    return pa.reference.scores(query, key, problem, mask, lengths)


def share_of_other_colors(got, exact, numpy_error, shown):
    """Colours must be those of a weight within the bound of the true one; how many are not the true one's."""
    paint = {
        "colormap": shown["colormap"],
        "scale": shown.get("color_scale", "linear"),
        "maximum": shown.get("color_max", 1.0),
    }
    assert got.dtype == np.uint32
    assert got.shape == exact.shape
    bound = bound_of(exact, numpy_error)
    steps = [
        pa.colormaps.position(np.clip(exact + sign * bound, 0, None), paint["scale"], paint["maximum"]) * 255
        for sign in (-1, 1)
    ]
    # Ties may round either way.
    low, high = np.floor(steps[0] + 0.5 - 1e-3).astype(int), np.floor(steps[1] + 0.5 + 1e-3).astype(int)
    pixels = got.view(np.uint8).reshape(*got.shape, 4)
    table = pa.colormaps.table(paint["colormap"])
    allowed = np.zeros(got.shape, bool)
    for offset in range(int((high - low).max()) + 1):
        index = np.clip(low + offset, 0, 255)
        allowed |= (table[index] == pixels).all(axis=-1) & (low + offset <= high)
    assert allowed.all(), f"{np.count_nonzero(~allowed)} of {allowed.size} cells have a wrong colour"
    return float((pixels != pa.colormaps.paint(exact, **paint)).any(axis=-1).mean())
