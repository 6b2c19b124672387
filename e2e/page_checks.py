"""Runs in the page: builds a case's inputs, runs our kernels on them, and measures the error against float64.

The bound is the design's: a kernel may be at most twice as far from float64 as plain numpy in float32, plus
a tiny absolute term of a few roundings (`_ULPS`) at the size of the largest result, for results that numpy
happens to hit exactly. Where two large scores nearly tie, float32's error is a lottery that few rows decide;
numpy therefore gets several tries, and the largest of its errors counts. A result stored as a half type may
then be off by one rounding to it: half a unit in its last place.

A check answers with the largest error over its bound; anything else that is wrong raises.
"""

import asyncio
import contextlib
import gc
from functools import partial
from unittest import mock

import numpy as np

import py_attn as pa
from py_attn.arguments import resolve
from py_attn.gpu.dtypes import round_to
from py_attn.kernels.attention import forward as attention_module
from py_attn.kernels.attention import tiles as _tiles

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
    worst = []
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


# Inputs


def normal(random, shape, dtype, size=1.0):
    """Normal numbers as `dtype` holds them."""
    return np.asarray(round_to(random.standard_normal(shape) * size, dtype))


def laid_out(device, values, dtype, view="plain"):
    """`values` [B, H, S, D] as a tensor whose elements lie in memory as `view` says."""
    b, h, s, d = values.shape
    if view == "plain":
        return device.tensor(values, dtype)
    if view == "swapped":
        return device.tensor(values.transpose(0, 2, 1, 3), dtype).transpose(0, 2, 1, 3)
    if view == "columns":
        return device.tensor(values.transpose(0, 1, 3, 2), dtype).transpose(0, 1, 3, 2)
    if view == "offset":
        flat = np.concatenate([np.full(1, np.nan), values.ravel()])
        return device.tensor(flat, dtype)[1:].reshape(*values.shape)
    if view == "steps":
        # Everything that is not meant to be read is NaN.
        base = np.full((b + 1, h, 2 * s + 1, d + 3), np.nan)
        base[1:, :, 1 : 2 * s : 2, 2 : 2 + d] = values
        return device.tensor(base, dtype)[1:, :, 1 : 2 * s : 2, 2 : 2 + d]
    raise ValueError(view)


def make_mask(random, spec):
    """A mask's numbers: {"dtype", "shape", "rows": what some rows are filled with or None}."""
    shape = spec["shape"]
    if spec["dtype"] == "bool":
        mask = random.random(shape) < 0.7
        hidden = False
    else:
        mask = normal(random, shape, spec["dtype"], 2.0)
        mask[random.random(shape) < 0.2] = -np.inf
        lowest = {"float16": -65504.0}.get(spec["dtype"], float(np.finfo(np.float32).min))
        hidden = round_to(lowest, spec["dtype"]) if spec.get("rows") == "lowest" else -np.inf
    if spec.get("rows") and len(shape) > 1:
        mask[..., random.random(shape[-2]) < 0.4, :] = hidden
    return mask


def make_sinks(random, heads, dtype):
    """Logits of about the scores' size; one of several heads has none."""
    sinks = normal(random, (heads,), dtype, 2.0)
    if heads > 2:
        sinks[random.integers(heads)] = -np.inf
    return sinks


def mask_tensor(device, mask, spec):
    dtype = None if spec["dtype"] == "bool" else spec["dtype"]
    if spec.get("transposed") and mask.ndim > 1:
        axes = (*range(mask.ndim - 2), mask.ndim - 1, mask.ndim - 2)
        return device.tensor(mask.transpose(axes), dtype).transpose(*axes)
    return device.tensor(mask, dtype)


def masking(case):
    """The keywords that kernel and reference share."""
    names = ("causal", "window", "scale", "softcap")
    found = {name: case[name] for name in names if case.get(name) is not None}
    if isinstance(found.get("window"), list):
        found["window"] = tuple(found["window"])
    return found


class Inputs:
    """A case's arrays, on the device and as the reference takes them (always BHSD)."""

    def __init__(self, device, case):
        random = np.random.default_rng(case["seed"])
        b, s_q, s_k, d = case["batch"], case["queries"], case["keys"], case["head_dim"]
        shapes = {
            "query": (b, case["heads"], s_q, d),
            "key": (b, case["kv_heads"], s_k, d),
            "value": (b, case["kv_heads"], s_k, case["value_head_dim"]),
        }
        swap = case.get("layout", "BHSD") == "BSHD"
        self.arrays, self.tensors = [], []
        for name, shape in shapes.items():
            dtype = case["dtypes"][name]
            values = normal(random, shape, dtype, case.get("size", 1.0) if name != "value" else 1.0)
            tensor = laid_out(device, values, dtype, case.get("views", {}).get(name, "plain"))
            self.arrays.append(values)
            self.tensors.append(tensor.transpose(0, 2, 1, 3) if swap else tensor)
        self.out_shape = (b, case["heads"], s_q, case["value_head_dim"])
        self.shared = masking(case)
        self.kernel = {"layout": "BSHD"} if swap else {}
        self.reference = {}
        if case.get("mask"):
            mask = make_mask(random, case["mask"])
            self.reference["mask"] = mask
            self.kernel["mask"] = mask_tensor(device, mask, case["mask"])
        if case.get("kv_lengths") is not None:
            lengths = case["kv_lengths"]
            self.reference["kv_lengths"] = lengths
            kind = case.get("lengths_as", "list")
            self.kernel["kv_lengths"] = lengths if kind == "list" else device.tensor(np.array(lengths, kind))
        if case.get("sinks"):
            sinks = make_sinks(random, case["heads"], case["sinks"])
            self.reference["sinks"] = sinks
            self.kernel["sinks"] = device.tensor(sinks, case["sinks"])


@contextlib.contextmanager
def tile_forced(tile, unrolled):
    """The tiled kernels with this tile, whatever the adapter would get."""
    render = attention_module._render
    with contextlib.ExitStack() as stack:
        if tile is not None:
            chosen = _tiles.Tile(**tile)
            stack.enter_context(mock.patch.object(attention_module, "choose_tile", return_value=chosen))
        if unrolled is not None:
            forced = lambda variant, tile, _, *rest: render(variant, tile, unrolled, *rest)  # noqa: E731
            stack.enter_context(mock.patch.object(attention_module, "_render", forced))
        yield


@contextlib.contextmanager
def last_tiles_cut(cut):
    """The last tiles in pieces as on a GPU: ``cut`` is how many of them, and the steps of a piece."""
    if cut is None:
        yield
        return

    def cut_of(tiles, keys, tile, wide4):
        pieces = -(-keys // (cut[1] * tile.keys))
        return _tiles.Cut(min(cut[0], tiles), pieces, cut[1] * tile.keys) if pieces else None

    with (
        mock.patch.object(attention_module, "cut_of", cut_of),
        # Plans are kept by what a call looks like, which is the same without the cut.
        mock.patch.object(pa.Device, "known", return_value=None),
    ):
        yield


@contextlib.contextmanager
def poisoned(device):
    device.poison_outputs = True
    try:
        yield
    finally:
        device.poison_outputs = False


def half_weights_error(inputs, exact, keywords):
    """How far weights rounded to float16 may move a result: 2^-11 of each value's distance from it."""
    query, key, value = inputs.arrays
    size = pa.reference.attention(query, key, np.abs(value), **keywords)[0]
    # Below 2^-14 of the row's largest weight float16 has fewer digits.
    smallest = 2.0**-25 * key.shape[2] * np.abs(value).max(initial=0)
    return float((2.0**-11 * (size + np.abs(exact)) + smallest).max(initial=0))


# Checks


async def check_attention(case):
    """One call of `pa.attention`: the ratios of output and LSE, and the variant that ran."""
    device = pa.default_device()
    forced = tile_forced(case.get("tile"), case.get("unrolled"))
    with poisoned(device), forced, last_tiles_cut(case.get("cut")):
        inputs = Inputs(device, case)
        asked = {**inputs.shared, **inputs.kernel, "variant": case.get("variant", "auto")}
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
    if case.get("variant") == "matrix":
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


async def check_decode(case):
    """Appends and decode calls in the order of `case["steps"]`; each decode against what was cached then.

    A step is ["append", S] or ["decode", S, keywords]. Nothing is read back before all steps are recorded.
    The reference gets every position ever appended, and is told what the cache still holds.
    """
    device = pa.default_device()
    random = np.random.default_rng(case["seed"])
    batch, kv_heads, heads = case["batch"], case["kv_heads"], case["heads"]
    dims = case["head_dim"], case["value_head_dim"]
    kinds = case["cache_dtypes"]
    held = [np.zeros((batch, kv_heads, 0, dim), np.float32) for dim in dims]
    ring = {"capacity": case["capacity"], "sink_tokens": case.get("sink_tokens", 0)}
    given = {"dtype": tuple(kinds), "sink_tokens": ring["sink_tokens"]}
    ours, theirs = decode_mods(device, case, random)
    if case.get("sinks"):
        theirs["sinks"] = make_sinks(random, heads, case["sinks"])
        sinks = {"sinks": device.tensor(theirs["sinks"], case["sinks"])}
    else:
        sinks = {}
    recorded = []
    with poisoned(device):
        cache = pa.KVCache(batch, kv_heads, case["capacity"], dims[0], value_head_dim=dims[1], **given)
        for step, count, *rest in case["steps"]:
            if step == "append":
                new = [normal(random, (batch, kv_heads, count, dim), case["source_dtype"]) for dim in dims]
                view = case.get("source_view", "plain")
                cache.append(*(laid_out(device, x, case["source_dtype"], view) for x in new))
                for i, (x, kind) in enumerate(zip(new, kinds, strict=True)):
                    held[i] = np.concatenate([held[i], round_to(x, kind)], 2)
                assert cache.length == min(held[0].shape[2], case["capacity"])
                continue
            keywords = dict(rest[0]) if rest else {}
            query = normal(random, (batch, heads, count, dims[0]), case["query_dtype"], case.get("size", 1.0))
            tensor = laid_out(device, query, case["query_dtype"], case.get("query_view", "plain"))
            window = keywords.pop("window", None)
            if window is not None:
                keywords["window"] = tuple(window) if isinstance(window, list) else window
            splits = keywords.pop("splits", "auto")
            asked = {**keywords, **ours, "splits": splits}
            results = pa.decode_attention(tensor, cache, return_lse=True, **asked, **sinks)
            alone = pa.decode_attention(tensor, cache, **asked, **sinks)
            parts = pa.decode_partials(tensor, cache, **asked)
            recorded.append((query, *held, {**keywords, **theirs, **ring}, results, alone, parts))
        worst = {"out": 0.0, "lse": 0.0, "partials": 0.0}
        for query, keys, values, keywords, results, alone, parts in recorded:
            reference = partial(decode_reference, values=values, **keywords)
            exact = reference(query, keys)
            out_error, lse_error = numpy_errors(reference, query, keys)
            out, lse = [await t.numpy() for t in results]
            part_out, part_lse = [(await t.numpy()).astype(np.float64) for t in parts]
            assert np.array_equal(out, await alone.numpy()), "another result without the LSE"
            assert (out[np.isneginf(exact[1])] == 0).all(), "a row that sees nothing is not zero"
            assert part_out.shape[:3] == out.shape[:3]
            assert part_out.shape[3:] == (
                part_lse.shape[3],
                dims[1],
            )
            with np.errstate(divide="ignore"):
                weights = np.exp(part_lse).sum(-1)
                if sinks:
                    weights = weights + np.exp(theirs["sinks"].astype(np.float64))[:, None]
                total = np.log(weights)
            share = np.exp(part_lse - np.where(np.isneginf(total), 0, total)[..., None])
            combined = (share[..., None] * part_out).sum(-2)
            for name, ratio in (
                ("out", over_bound(out, exact[0], out_error, case["query_dtype"])),
                ("lse", lse_over_bound(lse, exact[1], lse_error)),
                ("partials", over_bound(combined, exact[0], out_error)),
            ):
                worst[name] = max(worst[name], ratio)
        cache.destroy()
    return worst


async def check_all(check, cases):
    """Every case's answer, or {"failed": why}; memory must not grow."""
    # The page shares the device and may upload its own tensors meanwhile, once; a leak grows every time.
    for _ in range(4):
        device = pa.default_device()
        before = device.memory_allocated()
        answers = [await answer_of(check, case) for case in cases]
        gc.collect()
        grown = device.memory_allocated() - before
        # A table of heads or colours lives as long as the device.
        if grown <= 1 << 14:
            return answers
        await asyncio.sleep(1)
    raise AssertionError(f"{grown} bytes were not freed")


async def answer_of(check, case):
    try:
        return await check(case)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}
