"""Wrong arguments of the public functions: refused by name, and nothing reaches the GPU."""

import numpy as np
import pytest

import py_attn as pa
from py_attn.arguments import check_window, resolve
from py_attn.kernels.decode.formats import CACHE_DTYPES

NAN, INF = float("nan"), float("inf")


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def refused(bridge, error, message, call, *arguments, uploads=False, **options):
    """`call` raises before anything is dispatched, and before anything is uploaded unless said otherwise."""
    bridge.log.clear()
    with pytest.raises(error, match=message):
        call(*arguments, **options)
    allowed = ("create_buffer", "write_buffer") if uploads else ()
    assert [entry for entry in bridge.log if entry[0] not in allowed] == []
    assert bridge.programs == []


QUERY, KEY, VALUE = (2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)

SHAPES = [
    ({"query": (4, 5, 8)}, r"^query: expected 4 dimensions \[B, H, S, D\], got 3"),
    ({"query": (1, 2, 4, 5, 8)}, "^query: expected 4 dimensions"),
    ({"query": ()}, "^query: expected 4 dimensions"),
    ({"key": (2, 7, 8)}, "^key: expected 4 dimensions"),
    ({"value": (7, 6)}, "^value: expected 4 dimensions"),
    ({"key": (3, 2, 7, 8)}, "^key: expected the query's batch size 2, got 3"),
    ({"key": (2, 2, 7, 9)}, "^key: expected the query's head dim 8, got 9"),
    ({"value": (2, 2, 6, 6)}, "^value: expected the key's batch, heads and length"),
    ({"value": (2, 1, 7, 6)}, "^value: expected the key's batch, heads and length"),
    ({"value": (1, 2, 7, 6)}, "^value: expected the key's batch, heads and length"),
    ({"key": (2, 3, 7, 8), "value": (2, 3, 7, 6)}, "^query: expected heads to be a multiple of the 3"),
    ({"key": (2, 8, 7, 8), "value": (2, 8, 7, 6)}, "^query: expected heads to be a multiple of the 8"),
    ({"key": (2, 0, 7, 8), "value": (2, 0, 7, 6)}, "^query: expected heads to be a multiple of the 0"),
    ({"query": (2, 4, 5, 0), "key": (2, 2, 7, 0)}, "^query: expected a head dim from 1 to 576, got 0"),
    ({"query": (2, 4, 5, 577), "key": (2, 2, 7, 577)}, "^query: expected a head dim from 1 to 576, got 577"),
    ({"value": (2, 2, 7, 0)}, "^value: expected a head dim from 1 to 576, got 0"),
    ({"value": (2, 2, 7, 577)}, "^value: expected a head dim from 1 to 576, got 577"),
]


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize(("changes", "message"), SHAPES)
def test_shapes(device, bridge, changes, message, tensors):
    shapes = {"query": QUERY, "key": KEY, "value": VALUE} | changes
    inputs = [device.empty(s) if tensors else ones(*s) for s in shapes.values()]
    refused(bridge, ValueError, message, pa.attention, *inputs)


@pytest.mark.parametrize("variant", ["tiled", "subgroup"])
def test_head_dims_that_are_too_wide_for_tiles(device, bridge, variant):
    query, key, value = ones(1, 4, 5, 576), ones(1, 1, 7, 576), ones(1, 1, 7, 512)
    assert pa.attention(query, key, value).shape == (1, 4, 5, 512)
    device.flush()
    bridge.programs.clear()
    message = f"^variant: {variant} takes head dims up to 512, got 576 and 512; naive and rows take more"
    refused(bridge, ValueError, message, pa.attention, query, key, value, uploads=True, variant=variant)


def test_head_dims_that_are_too_wide_for_the_backward_pass(device, bridge):
    inputs = [
        ones(*s) for s in ((1, 4, 5, 512), (1, 4, 5, 576), (1, 1, 7, 576), (1, 1, 7, 512), (1, 4, 5, 512))
    ]
    message = "^query: the backward pass takes head dims up to 512, got 576 and 512"
    refused(bridge, ValueError, message, pa.attention_backward, *inputs, ones(1, 4, 5), uploads=True)


@pytest.mark.parametrize("layout", ["BHSD", "BSHD"])
def test_axes_that_may_be_missing(device, layout):
    for missing in (1, 2):
        shapes = [(1,) * (4 - len(s)) + s for s in ((4, 5, 8), (2, 7, 8), (2, 7, 6), (4, 5, 6))]
        lse = (4, 5)
        if missing == 2:
            shapes, lse = [(1, 1, *s[2:]) for s in shapes], (5,)
        if layout == "BSHD":
            shapes = [(b, s, h, d) for b, h, s, d in shapes]
        own = [s[1:] if missing == 1 else tuple(n for n in s if n > 1) for s in shapes]
        *inputs, grad = (device.empty(shape) for shape in own)
        out, got = pa.attention(*inputs, layout=layout, return_lse=True)
        assert (out.shape, got.shape) == (own[3], lse)
        for rows in (got, np.zeros(lse)):
            gradients = pa.attention_backward(grad, *inputs, grad, rows, grad_lse=rows, layout=layout)
            assert [x.shape for x in gradients] == own[:3]
        assert pa.attention_weights(*inputs[:2], got, layout=layout).shape == (*lse, 7)


def test_keys_that_the_batch_shares(device, bridge):
    query, key, value, grad = (device.empty(s) for s in (QUERY, (1, *KEY[1:]), (1, *VALUE[1:]), (2, 4, 5, 6)))
    out, lse = pa.attention(query, key, value, return_lse=True)
    gradients = pa.attention_backward(grad, query, key, value, out, lse)
    assert [x.shape for x in gradients] == [QUERY, key.shape, value.shape]
    device.flush()
    bridge.programs.clear()
    message = "^key: expected the query's batch size 1, got 2"
    refused(bridge, ValueError, message, pa.attention, ones(1, 4, 5, 8), ones(*KEY), ones(*VALUE))


MORE_GRADIENTS = [
    ({"mask_gradient": True}, ValueError, "^mask_gradient: expected a mask of floats, got none"),
    (
        {"mask_gradient": True, "mask": np.ones((5, 7), bool)},
        ValueError,
        "^mask_gradient: expected a mask of floats, got one of booleans",
    ),
    ({"mask_gradient": 1}, TypeError, "^mask_gradient: expected True or False, got 1"),
    ({"grad_lse": np.ones((2, 4, 6))}, ValueError, r"^grad_lse: expected \[B, Hq, Sq\] = \[2, 4, 5\]"),
    ({"captured": [np.ones(4)]}, TypeError, r"^captured\[0\]: expected a Tensor, got ndarray"),
]


@pytest.mark.parametrize(("options", "error", "message"), MORE_GRADIENTS)
def test_more_gradients(device, bridge, options, error, message):
    inputs = [device.empty(s) for s in ((2, 4, 5, 6), QUERY, KEY, VALUE, (2, 4, 5, 6), (2, 4, 5))]
    refused(bridge, error, message, pa.attention_backward, *inputs, uploads=True, **options)


def test_captured_tensors_that_cannot_be_differentiated(device, bridge):
    inputs = [device.empty(s) for s in ((2, 4, 5, 6), QUERY, KEY, VALUE, (2, 4, 5, 6), (2, 4, 5))]
    table, other, numbers = device.empty((4, 5)), device.empty((4,)), device.empty((4,), "int32")

    def score_mod(score, b, h, q, k):
        return pa.where(other[h] > 0, score + numbers[h], table[h, q] * score)

    def check(error, message, *captured):
        refused(
            bridge, error, message, pa.attention_backward, *inputs, score_mod=score_mod, captured=captured
        )

    d_table = pa.attention_backward(*inputs, score_mod=score_mod, captured=[table])[3]
    assert (d_table.shape, d_table.dtype) == ((4, 5), "float32")
    device.flush()
    bridge.programs.clear()
    check(TypeError, r"^captured\[1\]: expected a Tensor of floats, got int32", table, numbers)
    # Only its sign counts, in a condition.
    check(ValueError, r"^captured\[0\]: the score does not depend on it", other)
    check(ValueError, r"^captured\[0\]: the score does not depend on it", table[:2])
    check(ValueError, r"^captured\[1\]: the score does not depend on it", table, table)


MASKINGS = [
    (
        {"causal": "yes"},
        ValueError,
        'causal: expected False, True, "bottom-right" or "top-left", got \'yes\'',
    ),
    ({"causal": 2}, ValueError, "causal: expected"),
    ({"window": -1}, ValueError, "window: expected a number of keys >= 0"),
    ({"window": (3, -1)}, ValueError, r"window \(right\): expected a number of keys >= 0"),
    ({"window": (-2, None)}, ValueError, r"window \(left\): expected"),
    ({"window": (1, 2, 3)}, ValueError, r"window: expected \(left, right\), got 3 values"),
    ({"window": ()}, ValueError, "window: expected"),
    ({"query_offset": 1.5}, TypeError, "query_offset: expected an integer"),
    ({"query_offset": 0, "causal": "top-left"}, ValueError, "query_offset: .* give one of the two"),
    ({"window": 1.5}, TypeError, "window: expected an integer, got 1.5"),
    ({"window": (True, 1)}, TypeError, r"window \(left\): expected an integer, got True"),
    ({"window": "all"}, TypeError, "window: expected an integer"),
    ({"scale": NAN}, ValueError, "scale: expected a finite number .*, got nan"),
    ({"scale": INF}, ValueError, "scale: expected a finite number .*, got inf"),
    ({"scale": "1"}, TypeError, "scale: expected a number, got '1'"),
    ({"scale": True}, TypeError, "scale: expected a number"),
    ({"scale": 1j}, TypeError, "scale: expected a number"),
    ({"scale": [1.0]}, TypeError, "scale: expected a number"),
    ({"softcap": -1}, ValueError, "softcap: expected a number > 0, or None or 0"),
    ({"softcap": NAN}, ValueError, "softcap: expected a finite number"),
    ({"softcap": "x"}, TypeError, "softcap: expected a number"),
    ({"layout": "BHDS"}, ValueError, 'layout: expected "BHSD" or "BSHD", got \'BHDS\''),
    ({"layout": None}, ValueError, "layout: expected"),
    (
        {"mask": np.ones((5, 8), bool)},
        ValueError,
        r"mask: expected a shape that broadcasts to .*= \[2, 4, 5, 7\]",
    ),
    ({"mask": np.ones((3, 1, 1, 7), bool)}, ValueError, "mask: expected a shape"),
    ({"mask": np.ones((1, 2, 4, 5, 7), bool)}, ValueError, "mask: expected a shape"),
    ({"kv_lengths": [7]}, ValueError, r"kv_lengths: expected shape \[2\]"),
    ({"kv_lengths": [[7, 7]]}, ValueError, r"kv_lengths: expected shape \[2\]"),
    ({"kv_lengths": 7}, ValueError, r"kv_lengths: expected shape \[2\]"),
    ({"kv_lengths": [7, 8]}, ValueError, "kv_lengths: expected values from 0 to the 7 keys"),
    ({"kv_lengths": [-1, 7]}, ValueError, "kv_lengths: expected values from 0"),
    ({"kv_lengths": [1.0, 7.0]}, TypeError, "kv_lengths: expected integers"),
    ({"kv_lengths": [True, False]}, TypeError, "kv_lengths: expected integers"),
    ({"kv_lengths": "77"}, TypeError, "kv_lengths: expected integers"),
]


@pytest.mark.parametrize(("options", "error", "message"), MASKINGS)
def test_maskings_of_attention(device, bridge, options, error, message):
    refused(bridge, error, f"^{message}", pa.attention, ones(*QUERY), ones(*KEY), ones(*VALUE), **options)


@pytest.mark.parametrize(("options", "error", "message"), MASKINGS)
def test_maskings_of_weights(device, bridge, options, error, message):
    lse = ones(2, 4, 5)
    refused(bridge, error, f"^{message}", pa.attention_weights, ones(*QUERY), ones(*KEY), lse, **options)


@pytest.mark.parametrize(
    ("options", "error", "message"), [m for m in MASKINGS if m[0].keys().isdisjoint({"mask", "kv_lengths"})]
)
def test_the_reference_refuses_the_same(options, error, message):
    with pytest.raises(error, match=message):
        pa.reference.attention(ones(*QUERY), ones(*KEY), ones(*VALUE), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": np.ones((5, 7), int)}, "^mask: expected booleans .* or floats"),
        ({"mask": np.full((5, 7), "a")}, "^mask: expected"),
        ({"mask": np.full((5, 7), 1j)}, "^mask: expected"),
    ],
)
def test_types_of_masks(device, bridge, options, message):
    inputs = [device.empty(shape) for shape in (QUERY, KEY, VALUE)]
    refused(bridge, TypeError, message, pa.attention, *inputs, **options, uploads=True)


def test_tensors_of_wrong_types(device, bridge):
    query, key, value = [device.empty(shape) for shape in (QUERY, KEY, VALUE)]
    whole = device.empty(KEY, "int32")
    refused(
        bridge,
        TypeError,
        "^key: expected float32, float16 or bfloat16, got int32",
        pa.attention,
        query,
        whole,
        value,
    )
    whole = device.empty(QUERY, "bool")
    refused(bridge, TypeError, "^query: expected float32", pa.attention, whole, key, value)
    mask = device.empty((5, 7), "uint32")
    refused(bridge, TypeError, "^mask: expected booleans", pa.attention, query, key, value, mask=mask)
    lengths = device.empty((2,), "float32")
    refused(
        bridge,
        TypeError,
        "^kv_lengths: expected integers",
        pa.attention,
        query,
        key,
        value,
        kv_lengths=lengths,
    )


@pytest.mark.parametrize("wrong", [None, "abc", [[1, 2], [3]], object(), {}])
def test_things_that_are_no_arrays(device, bridge, wrong):
    inputs = [ones(*QUERY), ones(*KEY), ones(*VALUE)]
    for n, name in enumerate(("query", "key", "value")):
        given = [*inputs[:n], wrong, *inputs[n + 1 :]]
        refused(bridge, (TypeError, ValueError), f"^{name}: expected", pa.attention, *given)


def test_integers_are_no_operands(device, bridge):
    inputs = [ones(*QUERY, dtype=int), ones(*KEY), ones(*VALUE)]
    refused(bridge, TypeError, "^query: expected float32", pa.attention, *inputs, uploads=True)


def test_destroyed_tensors(device, bridge):
    inputs = [device.empty(shape) for shape in (QUERY, KEY, VALUE)]
    mask = device.empty((5, 7))
    mask.destroy()
    refused(bridge, ValueError, "^mask: the tensor was destroyed", pa.attention, *inputs, mask=mask)
    inputs[1].destroy()
    refused(bridge, ValueError, "^key: the tensor was destroyed", pa.attention, *inputs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 1e39}, "scale: expected a finite number within"),
        ({"scale": -1e300}, "scale: expected a finite number within"),
        ({"softcap": 3e38}, "softcap: expected a finite number within"),
        ({"softcap": 10**400}, "softcap: expected a finite number within"),
        (
            {"scale": 1e20, "softcap": 1e-30},
            "softcap: expected a number large enough that scale / softcap is finite in float32, got 1e-30",
        ),
    ],
    ids=["scale", "negative scale", "softcap", "huge softcap", "tiny softcap"],
)
def test_numbers_that_single_precision_lacks(device, bridge, options, message):
    inputs = [device.empty(shape) for shape in (QUERY, KEY, VALUE)]
    refused(bridge, ValueError, f"^{message}", pa.attention, *inputs, **options)


# pa.attention_weights

SHOWN = [
    ({"rows": 3}, TypeError, r"rows: expected a slice such as slice\(0, 64\), got 3"),
    ({"rows": [1, 2]}, TypeError, "rows: expected a slice"),
    ({"columns": None}, TypeError, "columns: expected a slice"),
    ({"rows": slice(None, None, -1)}, ValueError, "rows: expected a positive step"),
    ({"rows": slice(0, 3, 0)}, ValueError, "rows: expected a positive step"),
    ({"rows": slice(0, 3, 0.5)}, TypeError, "rows: expected an integer"),
    ({"columns": slice("a", 3)}, TypeError, "columns: expected a slice of integers"),
    ({"columns": slice(1.5)}, TypeError, "columns: expected a slice of integers"),
    ({"heads": 4}, ValueError, "heads: expected numbers from -4 to 3, got 4"),
    ({"heads": [0, -5]}, ValueError, "heads: expected numbers from -4 to 3, got -5"),
    ({"heads": 1.0}, TypeError, "heads: expected an integer"),
    ({"heads": "0"}, TypeError, "heads: expected an integer"),
    ({"heads": [True]}, TypeError, "heads: expected an integer"),
    ({"size": 3}, ValueError, r"size: expected \(height, width\)"),
    ({"size": (3,)}, ValueError, r"size: expected \(height, width\)"),
    ({"size": (0, 3)}, ValueError, "size: expected at least 1"),
    ({"size": (3, 2.5)}, TypeError, "size: expected an integer"),
    ({"pool": "sum"}, ValueError, 'pool: expected "max" or "mean"'),
    ({"colormap": "jet"}, ValueError, "colormap: expected one of"),
    ({"color_scale": "cubic"}, ValueError, "color_scale: expected one of linear, sqrt, log"),
    ({"color_max": 0}, ValueError, "color_max: expected a number > 0"),
    ({"color_max": NAN}, ValueError, "color_max: expected a finite number"),
    ({"color_max": "1"}, TypeError, "color_max: expected a number"),
]


@pytest.mark.parametrize(("options", "error", "message"), SHOWN)
def test_parts_of_weights(device, bridge, options, error, message):
    inputs = [device.empty(QUERY), device.empty(KEY), device.empty((2, 4, 5))]
    refused(bridge, error, f"^{message}", pa.attention_weights, *inputs, **options)


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "message"),
    [
        ((2, 4, 6), "float32", ValueError, r"lse: expected \[B, Hq, Sq\] = \[2, 4, 5\], got \[2, 4, 6\]"),
        ((2, 5, 4), "float32", ValueError, "lse: expected"),
        ((4, 5), "float32", ValueError, "lse: expected"),
        ((2, 4, 5), "float16", TypeError, "lse: expected float32, got float16"),
        ((2, 4, 5), "int32", TypeError, "lse: expected float"),
    ],
)
def test_lse_of_weights(device, bridge, shape, dtype, error, message):
    inputs = [device.empty(QUERY), device.empty(KEY), device.empty(shape, dtype)]
    refused(bridge, error, message, pa.attention_weights, *inputs)


# pa.KVCache


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"batch": 0}, ValueError, "batch: expected at least 1, got 0"),
        ({"kv_heads": -1}, ValueError, "kv_heads: expected at least 1"),
        ({"capacity": 0}, ValueError, "capacity: expected at least 1"),
        ({"capacity": 1.5}, TypeError, "capacity: expected an integer"),
        ({"batch": True}, TypeError, "batch: expected an integer"),
        ({"head_dim": 0}, ValueError, "head_dim: expected"),
        ({"head_dim": 577}, ValueError, "head_dim: expected a head dim from 1 to 576, got 577"),
        ({"value_head_dim": 0}, ValueError, "value_head_dim: expected"),
        ({"value_head_dim": 577}, ValueError, "value_head_dim: expected a head dim from 1 to 576"),
        (
            {"head_dim": 576, "dtype": ("turboquant4", "float32")},
            ValueError,
            "dtype: turboquant4 takes head dims up to 512, got 576",
        ),
        ({"dtype": "int32"}, ValueError, "dtype: expected one of"),
        ({"dtype": ("float32",)}, ValueError, "dtype: expected one dtype or a pair"),
        ({"dtype": ("float32", "float64")}, ValueError, "dtype: expected one of"),
        ({"dtype": None}, ValueError, "dtype: expected one of"),
    ],
)
def test_caches(device, bridge, changes, error, message):
    options = {"batch": 2, "kv_heads": 3, "capacity": 10, "head_dim": 8} | changes
    refused(bridge, error, f"^{message}", pa.KVCache, **options)


def test_a_cache_too_large_for_the_device(device, bridge):
    refused(bridge, ValueError, "maxBufferSize", pa.KVCache, 1, 1, 1 << 30, 512)
    assert device.memory_allocated() == 0


@pytest.mark.parametrize("dtype", CACHE_DTYPES[:3])
def test_dtypes_of_caches(device, dtype):
    assert pa.KVCache(1, 1, 2, 4, dtype=dtype).keys.dtype == dtype
    mixed = pa.KVCache(1, 1, 2, 4, dtype=(dtype, "float32"))
    assert (mixed.keys.dtype, mixed.values.dtype) == (dtype, "float32")


@pytest.fixture
def cache(device):
    cache = pa.KVCache(2, 3, 10, 8, value_head_dim=6)
    cache.append(device.empty((2, 3, 4, 8)), device.empty((2, 3, 4, 6)))
    device.flush()
    device._bridge.programs.clear()
    return cache


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            (2, 3, 4, 9),
            (2, 3, 4, 6),
            r"^key: expected \[2, 3, S >= 1, 8\] for this cache, got \[2, 3, 4, 9\]",
        ),
        ((1, 3, 4, 8), (1, 3, 4, 6), "^key: expected"),
        ((2, 2, 4, 8), (2, 2, 4, 6), "^key: expected"),
        ((2, 3, 0, 8), (2, 3, 0, 6), "^key: expected"),
        ((3, 4, 8), (2, 3, 4, 6), "^key: expected"),
        ((2, 3, 4, 8), (2, 3, 4, 8), r"^value: expected \[2, 3, S >= 1, 6\]"),
        ((2, 3, 4, 8), (2, 3, 5, 6), "^value: expected the key's 4 positions"),
    ],
)
def test_appends(device, bridge, cache, key, value, message):
    refused(bridge, ValueError, message, cache.append, ones(*key), ones(*value))
    assert cache.length == 4


@pytest.mark.parametrize(("key", "value"), [("int32", "float32"), ("float32", "int32")])
def test_types_of_appends(device, bridge, cache, key, value):
    # Also when only the second of the two is wrong, nothing has been written.
    tensors = device.empty((2, 3, 4, 8), key), device.empty((2, 3, 4, 6), value)
    refused(bridge, TypeError, "^(key|value): expected float32", cache.append, *tensors)
    assert cache.length == 4


# Sinks

SINKS = [
    (ones(3), ValueError, r"^sinks: expected \[Hq\] = \[4\], one logit a query head, got \[3\]"),
    (ones(1, 4), ValueError, "^sinks: expected"),
    (1.0, ValueError, "^sinks: expected"),
    ([0, NAN, 0, 0], ValueError, r"^sinks: expected numbers within ±2e\+38 or -inf"),
    ([0, INF, 0, 0], ValueError, "^sinks: expected numbers within"),
    ([0, 1e39, 0, 0], ValueError, "^sinks: expected numbers within"),
    (["a"] * 4, TypeError, "^sinks: expected numbers, got"),
    ([1j] * 4, TypeError, "^sinks: expected numbers, got complex128"),
    ([True] * 4, TypeError, "^sinks: expected numbers, got bool"),
]


@pytest.mark.parametrize(("sinks", "error", "message"), SINKS)
def test_sinks(device, bridge, sinks, error, message):
    inputs = ones(*QUERY), ones(*KEY), ones(*VALUE)
    refused(bridge, error, message, pa.attention, *inputs, sinks=sinks)
    out, lse = ones(2, 4, 5, 6), ones(2, 4, 5)
    refused(bridge, error, message, pa.attention_backward, out, *inputs, out, lse, sinks=sinks)
    packed = [ones(7, n, 8) for n in (4, 2, 2)]
    refused(bridge, error, message, pa.varlen_attention, *packed, [0, 7], [0, 7], sinks=sinks)
    cache = pa.KVCache(1, 2, 8, 8)
    cache.append(ones(1, 2, 3, 8), ones(1, 2, 3, 8))
    device.flush()
    bridge.programs.clear()
    refused(bridge, error, message, pa.decode_attention, ones(1, 4, 1, 8), cache, sinks=sinks)


def test_sinks_on_the_gpu(device, bridge):
    inputs = [device.empty(shape) for shape in (QUERY, KEY, VALUE)]
    refused(
        bridge, TypeError, "^sinks: expected float32, float16", pa.attention, *inputs,
        sinks=device.empty((4,), "int32"), uploads=True,
    )  # fmt: skip
    *_, d_sinks = pa.attention_backward(
        ones(2, 4, 5, 6), *inputs, ones(2, 4, 5, 6), ones(2, 4, 5), sinks=device.empty((4,), "float16")
    )
    assert (d_sinks.shape, d_sinks.dtype) == ((4,), "float32")


# pa.decode_attention

DECODING = [
    ((2, 3, 8), {}, ValueError, "query: expected 4 dimensions"),
    ((1, 3, 1, 8), {}, ValueError, "key: expected the query's batch size 1, got 2"),
    ((2, 4, 1, 8), {}, ValueError, "query: expected heads to be a multiple of the 3"),
    ((2, 3, 1, 6), {}, ValueError, "key: expected the query's head dim 6, got 8"),
    ((2, 3, 1, 8), {"splits": 0}, ValueError, 'splits: expected "auto" or a number from 1 to 1024, got 0'),
    ((2, 3, 1, 8), {"splits": 1025}, ValueError, "splits: expected"),
    ((2, 3, 1, 8), {"splits": 1.5}, TypeError, "splits: expected an integer"),
    ((2, 3, 1, 8), {"splits": "many"}, TypeError, "splits: expected an integer"),
    ((2, 3, 1, 8), {"splits": None}, TypeError, "splits: expected an integer"),
    ((2, 3, 1, 8), {"window": -1}, ValueError, "window: expected"),
    ((2, 3, 1, 8), {"scale": NAN}, ValueError, "scale: expected"),
    ((2, 3, 1, 8), {"softcap": -2}, ValueError, "softcap: expected"),
]


@pytest.mark.parametrize("call", [pa.decode_attention, pa.decode_partials])
@pytest.mark.parametrize(("shape", "options", "error", "message"), DECODING)
def test_decoding(device, bridge, cache, call, shape, options, error, message):
    refused(bridge, error, f"^{message}", call, ones(*shape), cache, **options)


@pytest.mark.parametrize("call", [pa.decode_attention, pa.decode_partials])
def test_caches_to_decode_from(device, bridge, cache, call):
    query = ones(2, 3, 1, 8)
    for wrong in (None, query, (query, query)):
        refused(bridge, TypeError, "^cache: expected a KVCache, got", call, query, wrong)
    refused(bridge, ValueError, "^cache: it is empty", call, query, pa.KVCache(2, 3, 10, 8))
    whole = device.empty((2, 3, 1, 8), "int32")
    refused(bridge, TypeError, "^query: expected float32", call, whole, cache)
    cache.destroy()
    refused(bridge, ValueError, "^cache: the tensor was destroyed", call, query, cache)


# What is allowed


@pytest.mark.parametrize(
    ("window", "sides"),
    [
        (None, (None, None)), (3, (3, 3)), ((2, None), (2, None)), ([0, 5], (0, 5)), (np.int64(4), (4, 4)),
        ((np.uint8(1), None), (1, None)),
    ],
)  # fmt: skip
def test_windows(window, sides):
    assert check_window(window) == sides


def test_a_problem_in_numbers():
    problem = resolve(QUERY, KEY, VALUE, causal=True, window=(4, 2))
    assert (problem.batch, problem.heads, problem.kv_heads, problem.group) == (2, 4, 2, 2)
    assert (problem.queries, problem.keys, problem.head_dim, problem.value_head_dim) == (5, 7, 8, 6)
    assert problem.score_shape == (2, 4, 5, 7)
    assert (problem.masking.window_left, problem.masking.window_right) == (4, 0)
    assert problem.masking.scale == pytest.approx(8**-0.5)


@pytest.mark.parametrize(
    "options",
    [
        {"kv_lengths": np.array([3, 7], np.uint8)},
        {"kv_lengths": (0, 7)},
        {"mask": [True] * 7},
        {"mask": np.float64(-1.5)},
        {"softcap": 0},
        {"softcap": None},
        {"scale": np.float32(2)},
        {"scale": 3},
        {"window": (None, None)},
        {"causal": None},
        {"causal": np.bool_(True)},
    ],
)
def test_welcome_forms(device, bridge, options):
    out = pa.attention(ones(*QUERY), ones(*KEY).tolist(), ones(*VALUE, dtype=np.float64), **options)
    device.flush()
    assert out.shape == (2, 4, 5, 6)
    assert len(bridge.programs[-1]) == 1
