"""`pa.scaled_dot_product_attention` in the page against the float64 reference."""

import pytest

from e2e.page.adapters import check_sdpa

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
        {"lead": (3, 2), "key_lead": (1, 2), "value_lead": (1, 2), "sizes": PLAIN, "is_causal": True},
        {"lead": (3, 2), "key_lead": (1, 2), "value_lead": (1, 1), "sizes": PLAIN, "dtype": "float16"},
        {"lead": (1, 1), "key_lead": (3, 2), "value_lead": (3, 2), "sizes": PLAIN},
        {"lead": (2, 3, 2), "key_lead": (2, 1, 2), "value_lead": (1, 3, 1), "sizes": PLAIN},
        {
            "lead": (1, 4),
            "key_lead": (3, 2),
            "value_lead": (1, 2),
            "sizes": PLAIN,
            "enable_gqa": True,
            "mask": "bool",
            "mask_shape": (3, 1, 9, 13),
        },
    ],
    ids=lambda call: "-".join(f"{value}" for value in call.values()),
)
def test_against_the_reference(lab, error_ratios, call):
    ratio = lab.call(check_sdpa, **call)
    assert ratio <= 1
    error_ratios.note(["PyTorch's signature"], "auto", ratio)


def test_views_whose_axes_do_not_merge(lab):
    same = lab.run("""
import numpy as np
import py_attn as pa
device, random = pa.default_device(), np.random.default_rng(4)
arrays = [random.standard_normal((3, 2, 2, 5, 8)).astype(np.float32) for _ in range(3)]
views = [device.tensor(x).transpose(1, 0, 2, 3, 4) for x in arrays]
plain = [device.tensor(np.ascontiguousarray(x.transpose(1, 0, 2, 3, 4))) for x in arrays]
a, b = [await pa.scaled_dot_product_attention(*xs).numpy() for xs in (views, plain)]
bool(np.array_equal(a, b)) and a.shape == (2, 3, 2, 5, 8)
""")
    assert same
