"""`pa.scaled_dot_product_attention` in the page against the float64 reference."""

from pathlib import Path

import pytest

CHECKS = (Path(__file__).parent / "page_checks.py").read_text(encoding="utf-8")
HELPERS = '''
def mask_of(random, kind, shape):
    """A boolean mask with some rows all hidden, or a float one with some keys at -inf; None without a kind."""
    if kind is None:
        return None
    if kind == "bool":
        mask = random.random(shape) < 0.6
        mask[..., :1, :] = False
        return mask
    return np.where(random.random(shape) < 0.2, -np.inf, normal(random, shape, "float32"))

async def check_sdpa(lead, kv_heads, sizes, dtype="float32", mask=None, mask_shape=None, upload=False, **options):
    device, random = pa.default_device(), np.random.default_rng(3)
    queries, keys, dim, value_dim = sizes
    kv_lead = (*lead[:-1], kv_heads) if kv_heads else lead
    query = normal(random, (*lead, queries, dim), dtype)
    key, value = (normal(random, (*kv_lead, keys, n), dtype) for n in (dim, value_dim))
    attn_mask = mask_of(random, mask, mask_shape)
    with poisoned(device):
        given = [device.tensor(x, dtype) for x in (query, key, value)]
        on_gpu = device.tensor(attn_mask) if upload else attn_mask
        out = pa.scaled_dot_product_attention(*given, on_gpu, **options)
        got = await out.numpy()
    assert out.dtype == dtype
    def reference(q, k, compute=np.float32):
        return pa.reference.scaled_dot_product_attention(
            q, k, value, attn_mask, **options, compute_dtype=compute
        )
    exact = reference(query, key, np.float64)
    return over_bound(got, exact, in_orders(reference, query, key), dtype)
'''
PLAIN = (9, 13, 16, 20)


@pytest.mark.parametrize(
    "call",
    [
        {"lead": (), "sizes": PLAIN},
        {"lead": (3,), "sizes": PLAIN, "is_causal": True},
        {"lead": (2, 3), "sizes": (13, 9, 16, 6), "is_causal": True},
        {"lead": (2, 3), "sizes": PLAIN, "scale": 0.01, "dtype": "float16"},
        {"lead": (2, 6), "kv_heads": 2, "sizes": PLAIN, "enable_gqa": True, "dtype": "bfloat16"},
        {"lead": (6,), "kv_heads": 2, "sizes": PLAIN, "enable_gqa": True, "is_causal": True},
        {"lead": (2, 3), "sizes": PLAIN, "mask": "bool", "mask_shape": (9, 13)},
        {"lead": (2, 3), "sizes": PLAIN, "mask": "float", "mask_shape": (2, 1, 1, 13)},
        {"lead": (2, 2, 3), "sizes": PLAIN},
        {"lead": (2, 2, 4), "kv_heads": 2, "sizes": PLAIN, "enable_gqa": True, "is_causal": True},
        {"lead": (2, 3, 2), "sizes": PLAIN, "mask": "float", "mask_shape": (3, 1, 9, 13)},
        {"lead": (2, 3, 2), "sizes": PLAIN, "mask": "bool", "mask_shape": (2, 1, 2, 9, 13), "upload": True},
        {"lead": (2, 1, 3, 2), "sizes": PLAIN, "mask": "bool", "mask_shape": (1, 1, 1, 1, 9, 1)},
    ],
    ids=lambda call: "-".join(f"{value}" for value in call.values()),
)
def test_against_the_reference(lab, call):
    lab.run(CHECKS + HELPERS)
    assert lab.run(f"await check_sdpa(**{dict(kv_heads=None) | call!r})") <= 1


def test_views_whose_axes_do_not_merge(lab):
    lab.run(CHECKS + HELPERS)
    same = lab.run("""
device, random = pa.default_device(), np.random.default_rng(4)
arrays = [random.standard_normal((3, 2, 2, 5, 8)).astype(np.float32) for _ in range(3)]
views = [device.tensor(x).transpose(1, 0, 2, 3, 4) for x in arrays]
plain = [device.tensor(np.ascontiguousarray(x.transpose(1, 0, 2, 3, 4))) for x in arrays]
a, b = [await pa.scaled_dot_product_attention(*xs).numpy() for xs in (views, plain)]
bool(np.array_equal(a, b)) and a.shape == (2, 3, 2, 5, 8)
""")
    assert same
