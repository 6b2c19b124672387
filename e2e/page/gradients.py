"""Checks of gradients, packed sequences, score_mod and mask_mod: `check_gradients` and `check_packed`."""

from collections.abc import Callable, Iterable
from typing import Any, cast
from unittest.mock import patch

import numpy as np

import py_attn as pa
from e2e.page.bounds import lse_over_bound, numpy_errors, over_bound
from e2e.page.inputs import laid_out, make_mask, make_sinks, normal, poisoned
from py_attn.gpu.dtypes import round_to
from py_attn.gpu.kernel import PlanCache
from py_attn.kernels.attention import backward_config
from py_attn.kernels.attention.backward_config import BackwardVariant
from py_attn.kernels.attention.tiles import Tile

#: The forms of the backward pass, whichever the adapter would choose: variants, and the one with a launch
#: each for key and value, which "stored" otherwise takes for wide heads.
FORMS = ("rows", "tiled", "stored", "separate")
#: The same for two cases that share them, since each form has its own pipelines, which take long to compile.
HALVES = (("rows", "stored"), ("tiled", "separate"))


def in_each_form(
    call: Callable[[BackwardVariant], Any], refused: bool = False, forms: Iterable[str] = FORMS
) -> dict[str, Any]:
    """``call`` of each form by its name, without those that store where that may be ``refused``."""
    got: dict[str, Any] = {}
    for form in forms:
        try:
            got[form] = separately(call) if form == "separate" else call(cast("BackwardVariant", form))
        except ValueError as error:
            if form not in ("stored", "separate") or not refused or "variant: " not in str(error):
                raise
    return got


def separately(call: Callable[[BackwardVariant], Any]) -> Any:
    """``call`` with a launch each for key and value, where scores have no softcap and no score_mod."""

    def of_key(options: Any, info: Any, heads: int) -> tuple[Tile, bool]:
        separate = backward_config.may_separate(options)
        return backward_config._fastest(options, info, "key", heads, separate)[0], separate

    with (
        patch.object(backward_config, "_of_key", of_key),
        patch.object(pa.default_device(), "plans", PlanCache()),
    ):
        return call("stored")


def binds(buffers: int) -> bool:
    """Whether this adapter binds so many buffers at a time; storing the gradients of scores takes many."""
    return bool(pa.default_device().info.limits["maxStorageBuffersPerShaderStage"] >= buffers)


def mods_of(name, random, case):
    """Keywords for the kernels and for the reference of one of the functions below, and what they read."""
    device = pa.default_device()
    if name is None:
        return {}, {}, None, None
    keys, heads = case["keys"], case["heads"]
    slopes = normal(random, (heads,), "float32")
    table = normal(random, (heads, case["queries"] + keys), "float16")
    documents = np.sort(random.integers(0, 3, (case["batch"], max(keys, case["queries"]))), axis=1).astype(
        np.int32
    )
    allowed = random.random((heads, keys)) < 0.7

    def alibi(slopes):
        return {"score_mod": lambda score, b, h, q, k: score - slopes[h] * pa.abs(q - k)}

    def relative(table):
        return {"score_mod": lambda score, b, h, q, k: score + table[h, q - k + keys]}

    def capped(_):
        return {
            "score_mod": lambda score, b, h, q, k: (
                2 * pa.tanh(score / 2) + pa.where((q - k) % 3 == 1, -np.inf, 0)
            )
        }

    def arithmetic(_):
        def score_mod(score, b, h, q, k):
            near = pa.maximum(score, 0.3 * score) * pa.exp(-pa.abs(score) / 8)
            far = np.float64(0.5) * score**2 / (1 + pa.sqrt(1.0 + k)) - ((q // 2 - k) % 5) * 0.1
            return pa.where((b + h) % 2 == 0, near, pa.minimum(far, 3.0)) + pa.log(2.0 + pa.abs(score))

        return {"score_mod": score_mod}

    def functions(_):
        def score_mod(score, b, h, q, k):
            waves = pa.sin(score) + pa.cos(3.0 * score + q) * pa.tan(0.5 * pa.tanh(score))
            steps = pa.floor(0.3 * q) - pa.ceil(0.3 * k) + np.round(0.7 * k) * pa.sign(q - k)
            smooth = pa.sigmoid(2.0 * score) * pa.erf(score) + pa.log2(
                1.5 + pa.exp2(np.clip(score, -1, 1.25))
            )
            return waves + 0.01 * steps + smooth + 0.1 * pa.square(score)

        return {"score_mod": score_mod}

    def document(documents):
        return {"mask_mod": lambda b, h, q, k: (documents[b, q] == documents[b, k]) | (k == 0)}

    def listed(allowed):
        def pairs(b, h, q, k):
            return allowed[h, k] & ~((q > 3) ^ (k > 1)) | ((q >> 1) << 1 == k & ~1)

        return {"mask_mod": pairs}

    def learned(scales):
        def score_mod(score, b, h, q, k):
            return pa.where(k > q + 30, -np.inf, pa.tanh(score * scales[h]) + scales[k])

        return {"score_mod": score_mod}

    def bucketed(table):
        return {"score_mod": lambda score, b, h, q, k: score * table[(q * k + h) % 5] + table[k % 7]}

    def placed(table):
        return {"score_mod": lambda score, b, h, q, k: 0.5 * score + table[h, q, k]}

    if name == "many":
        return many(random, case)
    make, captured = {
        "alibi": (alibi, slopes),
        "relative": (relative, table),
        "capped": (capped, slopes),
        "arithmetic": (arithmetic, slopes),
        "functions": (functions, slopes),
        "learned": (learned, normal(random, (heads + keys,), "float32")),
        "bucketed": (bucketed, normal(random, (7,), "bfloat16")),
        "placed": (placed, normal(random, (heads, case["queries"], keys), "float16")),
        "document": (document, documents),
        "listed": (listed, allowed),
    }[name]
    numbers = captured.astype(np.float64) if captured.dtype.kind == "f" else captured
    dtype = {"relative": "float16", "placed": "float16", "bucketed": "bfloat16"}.get(name)
    tensor = device.tensor(captured, dtype)
    return make(tensor), make(numbers), tensor, numbers


def many(random, case):
    """The same for a function that reads more tensors than are bound one by one: of all dtypes, and views."""
    heads = case["heads"]
    arrays = {
        "scales": (normal(random, (heads,), "float32"), "float32"),
        "steps": (normal(random, (heads, 6), "float32"), "float32"),
        "turned": (normal(random, (5, 7), "float16"), "float16"),
        "short": (normal(random, (3,), "bfloat16"), "bfloat16"),
        "signed": (random.integers(-3, 3, (case["batch"], 4)).astype(np.int32), "int32"),
        "places": (random.integers(0, 4, (4,)).astype(np.uint32), "uint32"),
        "chosen": (random.random((3, 5)) < 0.5, "bool"),
    }

    def mod(scales, steps, turned, short, signed, places, chosen):
        steps, turned = steps[:, ::2], turned.transpose(1, 0)

        def score_mod(score, b, h, q, k):
            one = score * scales[h] + steps[h, q % 3] * turned[k % 7, q % 5] + short[(q + k) % 3]
            return pa.where(chosen[q % 3, k % 5], one, score + 0.1 * signed[b, places[q % 4]])

        return {"score_mod": score_mod}

    numbers = [x.astype(np.float64) if x.dtype.kind == "f" else x for x, _ in arrays.values()]
    tensors = [pa.default_device().tensor(x, dtype) for x, dtype in arrays.values()]
    return mod(*tensors), mod(*numbers), tensors[0], numbers[0]


async def check_gradients(case):
    """Forward and backward of a dense case: {"out", "d_query rows", "d_query tiled", …}, error over bound.

    The forms are those of ``case["forms"]``, all unless given; so it is in the other checks.
    """
    device = pa.default_device()
    random = np.random.default_rng(case["seed"])
    b, hq, hkv = case["batch"], case["heads"], case["kv_heads"]
    sq, sk, d, dv = case["queries"], case["keys"], case["head_dim"], case["value_dim"]
    dtype = case["dtype"]
    kv = 1 if case.get("shared") else b
    shapes = ((b, hq, sq, d), (kv, hkv, sk, d), (kv, hkv, sk, dv), (b, hq, sq, dv))
    query, key, value, grad = (normal(random, shape, dtype) for shape in shapes)
    keywords = dict(case["keywords"])
    mask_dtype = "float32"
    if case.get("mask"):
        keywords["mask"] = make_mask(random, case["mask"])
        mask_dtype = case["mask"]["dtype"]
    ours, theirs, tensor, numbers = mods_of(case.get("mod"), random, case)
    backward_too, reference_too, kinds = {}, {}, {"d_sinks": "float32"}
    if case.get("grad_lse"):
        backward_too["grad_lse"] = reference_too["grad_lse"] = normal(random, (b, hq, sq), "float32")
    if case.get("mask_gradient"):
        backward_too["mask_gradient"] = reference_too["mask_gradient"] = True
        kinds["d_mask"] = mask_dtype
        ours["mask"] = device.tensor(keywords["mask"], mask_dtype)
    if case.get("captured"):
        backward_too["captured"], reference_too["captured"] = [tensor], [numbers]
        kinds["d_captured"] = tensor.dtype
    if case.get("sinks"):
        theirs["sinks"] = make_sinks(random, hq, "float32")
        ours["sinks"] = device.tensor(theirs["sinks"])
    q, k, v, g = (laid_out(device, x, dtype, case["view"]) for x in (query, key, value, grad))
    asked = keywords | ours
    with poisoned(device):
        out, lse = pa.attention(q, k, v, variant=case["variant"], return_lse=True, **asked)
        got, again = (
            in_each_form(
                lambda form: pa.attention_backward(
                    g, q, k, v, out, lse, **asked, **backward_too, variant=form
                ),
                # No tile of the product is that wide.
                refused=not binds(10) or d > 256,
                forms=case.get("forms", FORMS),
            )
            for _ in range(2)
        )

    def forward(q, k, precision):
        return pa.reference.attention(
            q, k, value, return_lse=True, compute_dtype=precision, **keywords, **theirs
        )

    def from_forward(q, k, precision, **results):
        return pa.reference.attention_backward(
            grad, q, k, value, compute_dtype=precision, **keywords, **theirs, **reference_too, **results
        )

    backward = recomputed(forward, from_forward, dtype)
    answer = {}
    exact = forward(query, key, np.float64)[0]
    answer["out"] = over_bound(await out.numpy(), exact, numpy_errors(forward, query, key)[0], dtype)
    expected, errors = backward(query, key, np.float64), numpy_errors(backward, query, key)
    terms = pa.reference.attention_weights(query, key, value=value, grad_out=grad, **keywords, **theirs)
    errors = with_cancelled(errors, np.abs(terms).max(initial=0), query, key, keywords)
    names = ["d_query", "d_key", "d_value", *(["d_sinks"] if case.get("sinks") else [])]
    names += [name for name in ("d_mask", "d_captured") if name in kinds]
    for form in got:
        results = zip(names, got[form], again[form], expected, errors, strict=True)
        for name, tensor, twin, wanted, error in results:
            kind = kinds.get(name, dtype)
            assert tensor.dtype == kind, f"{name}: {tensor.dtype}"
            values = await tensor.numpy()
            assert np.array_equal(values, await twin.numpy()), f"{name}: differs from run to run"
            answer[f"{name} {form}"] = over_bound(values, wanted, error, kind)
    return answer


async def check_many_queries(case):
    """d_value of a long causal sequence, for whose first keys thousands of shrinking weights are added up.

    The bound is twice the error of numpy when it adds up parts of 256 queries, as bench/runs.py does.
    """
    random, rows, part = np.random.default_rng(case["seed"]), case["rows"], 256
    query, key, value, grad = (normal(random, (1, 1, rows, 32), "float32") for _ in range(4))
    out, lse = pa.attention(query, key, value, causal=True, return_lse=True)
    found = in_each_form(
        lambda form: pa.attention_backward(grad, query, key, value, out, lse, causal=True, variant=form)[2]
    )
    sums = {}
    for precision in (np.float64, np.float32):
        (weights,) = pa.reference.attention_weights(query, key, causal=True, compute_dtype=precision)[0]
        parts = (slice(n, n + part) for n in range(0, rows, part))
        sums[precision] = sum(weights[each].T @ grad[0, 0, each].astype(precision) for each in parts)
    error = np.abs(sums[np.float32] - sums[np.float64]).max()
    return {
        f"d_value {form}": over_bound((await x.numpy())[0, 0], sums[np.float64], error)
        for form, x in found.items()
    }


def with_cancelled(errors, largest, query, key, keywords):
    """`errors` of d_query and d_key with a rounding each of p·dp and p·delta, of which little may be left.

    With one visible key nothing is: the gradient is zero, and all of what float32 gives is rounding.
    """
    scale = abs(keywords.get("scale") or query.shape[-1] ** -0.5)
    rounding = float(np.finfo(np.float32).eps) * float(largest) * scale
    d_query, d_key, *rest = errors
    sizes = [float(np.abs(x).max(initial=0)) for x in (key, query)]
    return [d_query + rounding * sizes[0], d_key + rounding * sizes[1], *rest]


def recomputed(forward, backward, dtype):
    """`backward` in float32 from the rounded results of `forward`, as kernels do."""

    def compute(q, k, precision):
        if precision == np.float64:
            return backward(q, k, precision)
        out, lse = forward(q, k, precision)
        return backward(q, k, precision, out=round_to(out, dtype), lse=lse)

    return compute


def distances(scales, table):
    """A learned factor of each head, and a learned bias by distance."""
    return lambda score, b, h, q, k: score * scales[h] + table[h, pa.clip(q - k, -4, 4) + 4]


async def check_packed(case):
    """Forward and backward of packed sequences."""
    device = pa.default_device()
    random = np.random.default_rng(case["seed"])
    dtype, hq, hkv = case["dtype"], case["heads"], case["kv_heads"]
    d, dv = case["head_dim"], case["value_dim"]
    cu_q, cu_k = (np.cumsum([0, *case[n]]) for n in ("query_lengths", "key_lengths"))
    case = case | {"batch": len(cu_q) - 1, "queries": int(cu_q[-1]), "keys": int(cu_k[-1])}
    shapes = ((cu_q[-1], hq, d), (cu_k[-1], hkv, d), (cu_k[-1], hkv, dv), (cu_q[-1], hq, dv))
    query, key, value, grad = (normal(random, shape, dtype) for shape in shapes)
    keywords, ours = dict(case["keywords"]), {}
    if case.get("sinks"):
        keywords["sinks"] = make_sinks(random, hq, "float32")
        ours["sinks"] = device.tensor(keywords["sinks"])
    more: dict[str, Any] = {}
    reference_more: dict[str, Any] = {}
    names = ["d_query", "d_key", "d_value"]
    names += ["d_sinks"] if case.get("sinks") else []
    if case.get("learned"):
        arrays = [
            normal(random, (hq,), "float32").astype(np.float64),
            normal(random, (hq, 9), "float32").astype(np.float64),
        ]
        tensors = [device.tensor(x) for x in arrays]
        keywords["score_mod"], ours["score_mod"] = distances(*arrays), distances(*tensors)
        grad_lse = normal(random, (hq, cu_q[-1]), "float32")
        more = {"captured": tensors, "grad_lse": grad_lse}
        reference_more = {"captured": arrays, "grad_lse": grad_lse}
        names += ["d_scales", "d_table"]
    q, k, v, g = (device.tensor(x, dtype) for x in (query, key, value, grad))
    if case["on_gpu"]:
        cu: tuple[Any, Any] = device.tensor(cu_q.astype(np.int32)), device.tensor(cu_k.astype(np.int32))
    else:
        cu = cu_q, cu_k.tolist()
    with poisoned(device):
        asked = keywords | ours
        out, lse = pa.varlen_attention(q, k, v, *cu, variant=case["variant"], return_lse=True, **asked)
        got, again = (
            in_each_form(
                lambda form: pa.varlen_attention_backward(
                    g, q, k, v, out, lse, *cu, **(asked | more), variant=form
                ),
                refused=case["on_gpu"] or not binds(9 + len(more.get("captured", []))),
                forms=case.get("forms", FORMS),
            )
            for _ in range(2)
        )

    def forward(q, k, precision):
        return pa.reference.varlen_attention(
            q, k, value, cu_q, cu_k, return_lse=True, compute_dtype=precision, **keywords
        )

    def from_forward(q, k, precision, **results):
        return pa.reference.varlen_attention_backward(
            grad, q, k, value, cu_q, cu_k, compute_dtype=precision, **keywords, **results, **reference_more
        )

    backward = recomputed(forward, from_forward, dtype)
    answer = {}
    exact, errors = forward(query, key, np.float64), numpy_errors(forward, query, key)
    answer["out"] = over_bound(await out.numpy(), exact[0], errors[0], dtype)
    answer["lse"] = lse_over_bound(await lse.numpy(), exact[1], errors[1])
    expected, errors = backward(query, key, np.float64), numpy_errors(backward, query, key)
    for form in got:
        results = zip(names, got[form], again[form], expected, errors, strict=True)
        for name, tensor, twin, wanted, error in results:
            kind = dtype if name in ("d_query", "d_key", "d_value") else "float32"
            values = await tensor.numpy()
            assert np.array_equal(values, await twin.numpy()), f"{name}: differs from run to run"
            answer[f"{name} {form}"] = over_bound(values, wanted, error, kind)
    return answer


async def check_with_eight_buffers(case):
    """`check_packed`, or `check_gradients` of a dense case, as on adapters that bind 8 buffers at a time."""
    device = pa.default_device()
    limits: Any = device.info.limits
    given, plans = dict(limits), device.plans
    limits["maxStorageBuffersPerShaderStage"] = 8
    device.plans = PlanCache()
    try:
        return await (check_packed if "query_lengths" in case else check_gradients)(case)
    finally:
        limits.update(given)
        device.plans = plans


async def check_in_turns(case):
    """`check_packed`, or `check_gradients` of a dense case, where `bytes` is all that "stored" may keep."""
    device = pa.default_device()
    case = case | {"forms": ("stored", "separate")}
    plans, device.plans = device.plans, PlanCache()
    try:
        with patch.multiple(backward_config, MOST_BYTES=2 * (case["bytes"],), BUSY_WORKGROUPS=1):
            return await (check_packed if "query_lengths" in case else check_gradients)(case)
    finally:
        device.plans = plans


async def check_with_tile(case):
    """`check_gradients` where `tile` computes every gradient but those that the tile `product` is for."""
    with (
        patch.object(backward_config, "_fastest", lambda *_, **__: (Tile(**case["tile"]), 1.0)),
        patch.object(backward_config, "product_tiles", lambda *_: {Tile(**case["product"]): 1.0}),
        patch.object(pa.default_device(), "plans", PlanCache()),
    ):
        return await check_gradients(case)


async def check_gaps(case):
    """The errors of packed sequences with gaps that hold NaN, over 1e-5; the gaps must give zeros.

    The LSE there is that of rows without keys: -inf, or the head's sink.
    """
    device = pa.default_device()
    random = np.random.default_rng(3)
    arrays = [normal(random, (40, heads, 16), "float32") for heads in (4, 2, 2, 4)]
    # Two sequences of 20, of which 13 and 20 are used: the gap is a sequence of queries and one of keys.
    gap = slice(13, 20)
    for x in arrays:
        x[gap] = np.nan
    query, key, value, grad = (device.tensor(x) for x in arrays)
    cu = [0, 20, 40], [0, 20, 40]
    used: dict[str, Any] = {"causal": True, "seqused_q": [13, 20], "seqused_k": [13, 20]}
    variant = case["variant"]
    sinks = np.array([0.5, -1.0, 2.0, -np.inf], np.float32) if case["sinks"] else None
    if sinks is not None:
        used["sinks"] = sinks
    biases = np.array([0.5, -1.0], np.float32)

    def steep(biases):
        return {"mask_mod": lambda b, h, q, k: biases[b] * (q - k) < 3.0}

    ours, theirs = (used | steep(x) for x in (device.tensor(biases), biases))
    with poisoned(device):
        out, lse = pa.varlen_attention(query, key, value, *cu, variant=variant, return_lse=True, **ours)
        got = in_each_form(
            lambda form: pa.varlen_attention_backward(
                grad, query, key, value, out, lse, *cu, **ours, variant=form
            )
        )
    q, k, v, g = arrays
    exact, exact_lse = pa.reference.varlen_attention(q, k, v, *cu, return_lse=True, **theirs)
    gradients = pa.reference.varlen_attention_backward(g, q, k, v, *cu, **theirs)
    results = [("out", out, exact)]
    for form, tensors in got.items():
        kinds = ("d_query", "d_key", "d_value", *(() if sinks is None else ("d_sinks",)))
        results += zip((f"{kind} {form}" for kind in kinds), tensors, gradients, strict=True)
    answer = {}
    for name, tensor, expected in results:
        found = await tensor.numpy()
        if not name.startswith("d_sinks"):
            assert not expected[gap].any()
            assert not found[gap].any(), f"{name}: the gap is not zeros"
        assert np.isfinite(found).all(), f"{name}: NaN of a gap"
        answer[name] = float(np.abs(found - expected).max()) / 1e-5
    of_gap = np.broadcast_to((np.full(4, -np.inf) if sinks is None else sinks)[:, None], (4, 7))
    np.testing.assert_array_equal(exact_lse[:, gap], of_gap)
    np.testing.assert_allclose((await lse.numpy())[:, gap], of_gap, atol=1e-6)
    return answer
