"""Measures what TurboQuant's choices do, as the Markdown tables of docs/turboquant.md.

Run it with ``.venv/bin/python -m scripts.measure_turboquant``; numpy in float64, two minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn import reference
from py_attn.codebooks import book_of
from py_attn.models import load_sample
from py_attn.turboquant_reference import pack, quantize, roundtrip

Array = npt.NDArray[Any]
BITS = (1, 2, 3, 4)
# Whether keys and values are quantised, and whether the keys spend a bit on QJL.
REAL_CASES = ((True, False, False), (False, True, False), (True, True, False), (True, False, True))
SAMPLE = Path(__file__).parent.parent / "web" / "public" / "sample" / "minilm.npz"


def normal(*shape: int, seed: int = 0) -> Array:
    """Standard normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape)


def distortion(x: Array, x_hat: Array) -> float:
    """The squared error divided by the squared norm."""
    return float(((x - x_hat) ** 2).sum() / (x**2).sum())


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a Markdown table."""
    head = list(head)
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def distortions() -> None:
    """Squared error by head dim, of normal vectors, of ones with outliers, and of basis vectors."""

    def outliers(dim: int) -> Array:
        x = normal(4000, dim)
        x[:, normal(dim).argsort()[:3]] *= 50
        return x

    inputs: dict[str, Callable[[int], Array]] = {
        "normal": lambda dim: normal(4000, dim),
        "three channels ×50": outliers,
        "basis vectors": lambda dim: np.eye(dim),
    }
    table(
        "Squared error over the squared norm",
        ["head dim", "input", *(f"{bits} bit" for bits in BITS)],
        [
            [str(dim), name, *(f"{distortion(x, roundtrip(x, bits)):.4f}" for bits in BITS)]
            for dim in (64, 80, 96, 112, 128, 256)
            for name, make in inputs.items()
            for x in [make(dim)]
        ],
    )
    table(
        "The distortion of the codebook alone",
        ["head dim", *(f"{bits} bit" for bits in BITS)],
        [
            [name, *(f"{book_of(bits, dim, uniform=False).distortion:.4f}" for bits in BITS)]
            for dim, name in ((64, "64"), (128, "128"), (256, "256"), (1 << 20, "∞ (normal)"))
        ],
    )


def scales() -> None:
    """Three choices of a vector's scale: distortion, slope of inner products, attention's error."""
    dim = 128
    x, other = normal(20_000, dim), normal(20_000, dim, seed=1)
    query = x + other
    problem = attention_problem(dim, 3.0)
    ways: dict[str, Callable[[Array, Array], Array]] = {
        "least squares (used)": lambda x, x_hat: x_hat,
        "same norm": lambda x, x_hat: x_hat * np.sqrt((x * x).sum(-1) / (x_hat * x_hat).sum(-1))[..., None],
        "unbiased": lambda x, x_hat: x_hat * ((x * x).sum(-1) / (x * x_hat).sum(-1))[..., None],
    }
    rows = []
    for name, way in ways.items():
        for bits in BITS:
            x_hat = way(x, roundtrip(x, bits))
            slope = (query * x_hat).sum() / (query * x).sum()
            key = problem[1]
            error = attention_error(problem, way(key, roundtrip(key, bits)))
            rows.append([name, str(bits), f"{distortion(x, x_hat):.4f}", f"{slope:.3f}", f"{error:.3f}"])
    table(
        f"The scale of a vector (head dim {dim})",
        ["scale", "bits", "distortion", "inner products' slope", "attention's error"],
        rows,
    )


def attention_problem(dim: int, sharpness: float) -> tuple[Array, Array, Array]:
    """Query, key and value of 8 heads, 2048 keys; ``sharpness`` is the standard deviation of the scores."""
    return (
        sharpness * normal(1, 8, 32, dim, seed=1),
        normal(1, 8, 2048, dim, seed=2),
        normal(1, 8, 2048, dim, seed=3),
    )


def attention_error(problem: tuple[Array, Array, Array], key_hat: Array) -> float:
    """The relative error of the output, when only the keys are quantised."""
    query, key, value = problem
    exact = reference.attention(query, key, value)
    return math.sqrt(distortion(exact, reference.attention(query, key_hat, value)))


def levels() -> None:
    """TurboQuant's levels of 4 bits and levels at equal distances: distortion, attention's error."""
    rows = []
    for dim in (64, 128, 256):
        x, problem = normal(4000, dim), attention_problem(dim, 3.0)
        for name, uniform in (("TurboQuant", False), ("at equal distances", True)):
            found = distortion(x, roundtrip(x, 4, uniform=uniform))
            error = attention_error(problem, roundtrip(problem[1], 4, uniform=uniform))
            rows.append([str(dim), name, f"{found:.4f}", f"{error:.3f}"])
    table("Levels of 4 bits", ["head dim", "levels", "distortion", "attention's error"], rows)


def qjl() -> None:
    """One bit for the residual's signs, or for finer levels: inner products, and attention."""
    dim = 128
    x, other = normal(20_000, dim), normal(20_000, dim, seed=1)
    rows = []
    for bits in (2, 3, 4):
        for with_qjl in (False, True):
            x_hat = roundtrip(x, bits, qjl=with_qjl)
            slope = ((x + other) * x_hat).sum() / ((x + other) * x).sum()
            spread = np.sqrt((((other * (x_hat - x)).sum(-1)) ** 2).mean() / dim)
            # The mean of many inner products with a common direction: noise averages out, a bias does not.
            groups = ((0.25 * x + other) * np.stack([x, x_hat])).sum(-1).reshape(2, -1, 1000).mean(-1)
            mean_error = np.sqrt(((groups[1] / groups[0] - 1) ** 2).mean())
            problems = [attention_problem(dim, sharpness) for sharpness in (1.0, 3.0, 6.0)]
            errors = [attention_error(p, roundtrip(p[1], bits, qjl=with_qjl)) for p in problems]
            rows.append(
                [
                    str(bits),
                    f"{bits - 1} + sign" if with_qjl else f"{bits}",
                    f"{slope:.3f}",
                    f"{spread:.3f}",
                    f"{mean_error:.1%}",
                    *(f"{error:.3f}" for error in errors),
                ]
            )
    table(
        f"QJL (head dim {dim}; keys only)",
        ["bits", "spent on", "slope", "spread", "mean of 1000", "attention, σ=1", "σ=3", "σ=6"],
        rows,
    )


def real_keys() -> None:
    """The committed sample of a real model: its own queries, keys and values."""
    sample = load_sample(SAMPLE.read_bytes())
    rows = []
    for bits in BITS:
        errors = []
        for keys, values, with_qjl in REAL_CASES:
            if with_qjl and bits == 1:
                errors.append("–")
                continue
            exact, found = [], []
            for layer in sample.layers:
                query, key, value = (np.asarray(t, np.float64) for t in (layer.query, layer.key, layer.value))
                exact.append(reference.attention(query, key, value))
                key_hat = roundtrip(key, bits, qjl=with_qjl) if keys else key
                value_hat = roundtrip(value, bits) if values else value
                found.append(reference.attention(query, key_hat, value_hat))
            errors.append(f"{math.sqrt(distortion(np.stack(exact), np.stack(found))):.3f}")
        rows.append([str(bits), *errors])
    table(
        "MiniLM, the sample sentence, all layers (head dim 32): error of attention's output",
        ["bits", "keys", "values", "both", "keys with QJL"],
        rows,
    )


def sizes() -> None:
    """Bytes of a vector."""
    rows = []
    for dim in (64, 80, 128, 256):
        words = [pack(quantize(normal(1, dim), bits)).shape[1] for bits in BITS]
        rows.append([str(dim), str(4 * dim), str(2 * dim), *(str(4 * n) for n in words)])
    table("Bytes of a vector", ["head dim", "f32", "f16", *(f"{bits} bit" for bits in BITS)], rows)


def main() -> None:
    """Print all tables."""
    for measure in (sizes, distortions, scales, levels, qjl, real_keys):
        measure()


if __name__ == "__main__":
    main()
