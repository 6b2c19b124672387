"""The model's kernels and the model itself, in the page, on the GPU that the browser has."""

import pytest

# Bound of every kernel: twice the error of the same formula in numpy's float32, and a few rounding
# steps of the largest value for where numpy happens to be exact.
HELPERS = """
import numpy as np
import py_attn as pa
from py_attn.kernels import nn
from py_attn.models import minilm_reference as plain

random = np.random.default_rng(7)
device = pa.default_device()

def normal(*shape):
    return random.standard_normal(shape).astype(np.float32)

async def over_bound(tensor, formula, *arrays):
    exact = formula(*(a.astype(np.float64) for a in arrays))
    single = formula(*arrays)
    result = await tensor.numpy()
    assert result.dtype == np.float32 and result.shape == exact.shape, (result.dtype, result.shape)
    bound = 2 * np.abs(single - exact).max() + 4e-7 * max(1, np.abs(exact).max())
    return float(np.abs(result - exact).max() / bound)
"""

SIZES = [(1, 1, 1), (3, 5, 7), (16, 64, 16), (17, 65, 33), (32, 63, 15), (33, 130, 100), (70, 66, 384)]
MODEL_SIZES = [(20, 1152, 384), (20, 384, 1536), (65, 1536, 384)]


@pytest.fixture(scope="module")
def run(lab):
    lab.run(HELPERS)
    return lab.run


@pytest.mark.parametrize(("rows", "columns", "inner"), SIZES + MODEL_SIZES)
@pytest.mark.parametrize("activation", ["gelu", None])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(run, rows, columns, inner, activation, bias):
    ratio = run(f"""
x, w = normal({rows}, {inner}), normal({columns}, {inner}) / np.float32({inner} ** 0.5)
b = normal({columns}) if {bias} else np.zeros({columns}, np.float32)
def formula(x, w, b):
    y = x @ w.T + b
    return plain.gelu(y) if {activation!r} else y
out = nn.linear(
    device.tensor(x), device.tensor(w), device.tensor(b) if {bias} else None, activation={activation!r}
)
await over_bound(out, formula, x, w, b)
""")
    assert ratio <= 1


def test_gelu_stays_accurate_over_its_range(run):
    # The identity as weight, so that only the activation is seen.
    error = run("""
x = np.concatenate([np.linspace(-12, 12, 4001), [0.0, -0.0, 1e-30, -1e-30, 80.0, -80.0]]).astype(np.float32)
one = device.tensor(np.ones((1, 1), np.float32))
result = await nn.linear(device.tensor(x[:, None]), one, activation="gelu").numpy()
float(np.abs(result[:, 0] - plain.gelu(x.astype(np.float64))).max())
""")
    # 1.5e-7 of the error function's approximation times |x| / 2, and float32's rounding of |x| <= 80.
    assert error < 1e-6


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (1, 7), (5, 63), (20, 384), (3, 64), (2, 1000)])
def test_layer_norm(run, rows, width, residual):
    ratio = run(f"""
x, r = 3 + normal({rows}, {width}), normal({rows}, {width})
weight, bias = normal({width}), normal({width})
def formula(x, r, weight, bias):
    return plain.layer_norm(x + r if {residual} else x, weight, bias)
out = nn.layer_norm(
    *map(device.tensor, (x, weight, bias)), residual=device.tensor(r) if {residual} else None
)
await over_bound(out, formula, x, r, weight, bias)
""")
    assert ratio <= 1


def test_layer_norm_of_many_rows(run):
    # More rows than one dimension of a dispatch may have workgroups.
    assert run("""
x = normal(70_000, 3)
one = np.ones(3, np.float32)
out = nn.layer_norm(device.tensor(x), device.tensor(one), device.tensor(one))
await over_bound(out, plain.layer_norm, x, one, one)
""") <= 1  # fmt: skip


@pytest.mark.parametrize("width", [1, 30, 384])
def test_embedding(run, width):
    assert run(f"""
word, position, kind = normal(100, {width}), normal(16, {width}), normal(2, {width})
ids = [99, 0, 7, 7, 50]
out = await nn.embedding(ids, *map(device.tensor, (word, position, kind))).numpy()
bool((out == word[ids] + position[:5] + kind[0]).all())
""")


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (1, 384), (7, 5), (20, 384), (300, 600)])
def test_mean_pool(run, rows, width):
    ratio = run(f"""
x = normal({rows}, {width})
await over_bound(nn.mean_pool(device.tensor(x)), plain.mean_pool, x)
""")
    assert ratio <= 1


def test_mean_pool_of_zeros_is_zero(run):
    assert (
        run("(await nn.mean_pool(device.tensor(np.zeros((3, 4), np.float32))).numpy()).tolist()") == [0] * 4
    )


def test_kernels_read_views(run):
    assert run("""
x, w = normal(6, 32), normal(10, 32)
out = nn.linear(device.tensor(x)[2:5], device.tensor(w)[3:])
await over_bound(out, lambda x, w: x[2:5] @ w[3:].T, x, w)
""") <= 1  # fmt: skip
