"""Checks of ONNX's and PyTorch's signatures."""

import base64
import io
from typing import Any

import numpy as np

import py_attn as pa
from e2e.page.bounds import numpy_errors, over_bound
from e2e.page.inputs import make_mask, mask_tensor, normal, poisoned

OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")


async def run_onnx_cases(data, cases):
    """Outputs of calls as a npz in base64, named case/output, and their dtypes.

    `cases`: {case: {"inputs": {name: dtype}, "attributes"}}; the inputs' values are in the npz `data`. As
    npz does not know bfloat16, such values travel as float32. "operator" names another than attention.
    """
    device = pa.default_device()
    arrays = np.load(io.BytesIO(base64.b64decode(data)))
    results: dict[str, Any] = {}
    dtypes: dict[str, dict[str, str]] = {}
    for name, case in cases.items():
        inputs = {key: device.tensor(arrays[f"{name}/{key}"], dtype) for key, dtype in case["inputs"].items()}
        with poisoned(device):
            outputs = getattr(pa.onnx, case.get("operator", "attention"))(**inputs, **case["attributes"])
            for key, tensor in zip(
                OUTPUTS, outputs if isinstance(outputs, tuple) else [outputs], strict=False
            ):
                if tensor is not None:
                    results[f"{name}/{key}"] = await tensor.numpy()
                    dtypes.setdefault(name, {})[key] = tensor.dtype
    packed = io.BytesIO()
    np.savez(packed, **results)
    return [base64.b64encode(packed.getvalue()).decode(), dtypes]


async def check_flex(sizes, dtype, **mods):
    """The largest error over its bound of FlexAttention; sizes: B, Hq, Hkv, Sq, Sk, D, Dv."""
    device = pa.default_device()
    batch, heads, kv_heads, queries, keys, dim, value_dim = sizes
    random = np.random.default_rng(8)
    query = normal(random, (batch, heads, queries, dim), dtype)
    key = normal(random, (batch, kv_heads, keys, dim), dtype)
    value = normal(random, (batch, kv_heads, keys, value_dim), dtype)
    with poisoned(device):
        out = pa.onnx.flex_attention(*(device.tensor(x, dtype) for x in (query, key, value)), **mods)
        got = await out.numpy()

    def reference(q, k, precision):
        return [pa.onnx.reference_flex_attention(q, k, value, compute_dtype=precision, **mods)]

    (exact,), (error,) = reference(query, key, np.float64), numpy_errors(reference, query, key)
    return over_bound(got, exact, error, dtype)


async def check_onnx(
    sizes, dtype, past=0, lengths=None, mask=None, mask_shape=None, flat=False, **attributes
):
    """The largest error over its bound of a call's outputs; sizes: B, Hq, Hkv, Sq, Skv, D, Dv."""
    device = pa.default_device()
    batch, heads, kv_heads, queries, keys, dim, value_dim = sizes
    random = np.random.default_rng(6)
    inputs = {
        name: normal(random, shape, dtype)
        for name, shape in {
            "Q": (batch, heads, queries, dim),
            "K": (batch, kv_heads, keys, dim),
            "V": (batch, kv_heads, keys, value_dim),
            "past_key": (batch, kv_heads, past, dim),
            "past_value": (batch, kv_heads, past, value_dim),
        }.items()
    }
    if not past:
        del inputs["past_key"], inputs["past_value"]
    if flat:
        for name in ("Q", "K", "V"):
            x = inputs[name]
            inputs[name] = x.swapaxes(1, 2).reshape(batch, x.shape[2], -1)
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    given: dict[str, Any] = {name: device.tensor(x, dtype) for name, x in inputs.items()}
    if mask:
        spec = {"dtype": mask, "shape": mask_shape, "rows": "hidden"}
        inputs["attn_mask"] = make_mask(random, spec)
        given["attn_mask"] = mask_tensor(device, inputs["attn_mask"], spec)
    if lengths:
        inputs["nonpad_kv_seqlen"] = given["nonpad_kv_seqlen"] = np.array(lengths)
    with poisoned(device):
        outputs = pa.onnx.attention(**given, **attributes)
        got = [None if x is None else await x.numpy() for x in outputs]

    exact = pa.onnx.reference_attention(**inputs, **attributes)
    plain = pa.onnx.reference_attention(**inputs, **attributes, compute_dtype=np.float32)
    worst = 0.0
    for name, tensor, result, right, single in zip(OUTPUTS, outputs, got, exact, plain, strict=True):
        assert (tensor is None) == (right is None) == (single is None), name
        if tensor is None or result is None or right is None or single is None:
            continue
        assert tensor.dtype == dtype, name
        assert np.array_equal(np.isneginf(result), np.isneginf(right)), name
        seen = np.isfinite(right)
        numpy_error = np.abs(single[seen] - right[seen]).max()
        worst = max(worst, over_bound(result[seen], right[seen], numpy_error, dtype))
    return worst


def mask_of(random, kind, shape):
    """A boolean mask that hides all of its first row, or a float one with some keys at -inf."""
    if kind == "bool":
        mask = random.random(shape) < 0.6
        mask[..., :1, :] = False
        return mask
    return np.where(random.random(shape) < 0.2, -np.inf, normal(random, shape, "float32"))


async def check_sdpa(
    lead,
    sizes,
    kv_heads=None,
    key_lead=None,
    value_lead=None,
    dtype="float32",
    mask=None,
    mask_shape=None,
    upload=False,
    **options,
):
    """The error of PyTorch's call over its bound; sizes: L, S, E, Ev."""
    device, random = pa.default_device(), np.random.default_rng(3)
    queries, keys, dim, value_dim = sizes
    kv_lead = (*lead[:-1], kv_heads) if kv_heads else lead
    query = normal(random, (*lead, queries, dim), dtype)
    key = normal(random, (*(key_lead or kv_lead), keys, dim), dtype)
    value = normal(random, (*(value_lead or kv_lead), keys, value_dim), dtype)
    attn_mask = mask_of(random, mask, mask_shape) if mask else None
    with poisoned(device):
        q, k, v = (device.tensor(x, dtype) for x in (query, key, value))
        on_gpu = device.tensor(attn_mask) if upload else attn_mask
        out = pa.scaled_dot_product_attention(q, k, v, on_gpu, **options)
        got = await out.numpy()
    assert out.dtype == dtype

    def reference(q, k, compute):
        out = pa.reference.scaled_dot_product_attention(
            q, k, value, attn_mask, **options, compute_dtype=compute
        )
        return (out,)

    (exact,) = reference(query, key, np.float64)
    (numpy_error,) = numpy_errors(reference, query, key)
    return over_bound(got, exact, numpy_error, dtype)
