"""Checks of the kernel that sums rows of weights, and of what the viewer finds, against numpy."""

import time

import numpy as np

import py_attn as pa
from e2e.page.bounds import over_bound
from py_attn.findings.scores import SUMS, row_sums
from py_attn.findings.tokens import identities, key_sets, kinds
from py_attn.kernels.maps.row_sums import row_sums as row_sums_on_gpu
from py_attn.viewer import Viewer

WORDS = ("the", " The", "cat", ".", ",", "##s", "[SEP]", "ran", "", "…")


async def check_row_sums(case):
    """Each sum's largest error over its bound."""
    names = "heads", "rows", "keys", "begin", "step", "sharpness", "causal"
    heads, rows, keys, begin, step, sharpness, causal = (case[name] for name in names)
    random = np.random.default_rng(case["seed"])
    tokens = [WORDS[i] for i in random.integers(len(WORDS), size=keys)]
    scores = sharpness * random.standard_normal((heads, rows, keys))
    position = begin + step * np.arange(rows)
    if causal:
        scores = np.where(np.arange(keys) > position[:, None], -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = (weights / weights.sum(-1, keepdims=True)).astype(np.float32)
    device = pa.default_device()
    given = device.tensor(weights), device.tensor(kinds(tokens)), device.tensor(identities(tokens))
    sums = row_sums_on_gpu(*given, row_begin=begin, row_step=step, causal=causal)
    sets = key_sets(tokens, position, causal=causal)
    exact = row_sums(weights, sets)
    single = _row_sums_in_float32(weights, sets)
    got = await sums.numpy()
    return {
        name: over_bound(got[..., n], exact[..., n], np.abs(single[..., n] - exact[..., n]).max())
        for n, name in enumerate(SUMS)
    }


def _row_sums_in_float32(weights, sets):
    logs = np.log2(weights, out=np.zeros_like(weights), where=weights > 0)
    parts = [weights, weights * logs, weights * weights, *(weights * sets[name] for name in SUMS[3:])]
    return np.stack([part.sum(-1, dtype=np.float32) for part in parts], axis=-1)


async def compare_viewers(sample, mods):
    """How far apart what the GPU and what numpy find about the sample are, and the milliseconds of each."""
    device = pa.default_device()
    answers, times = [], []
    for use in (device, None):
        viewer = Viewer()
        viewer.use(use)
        await viewer.call("open_sample", {"data": sample})
        if mods:
            assert (await viewer.call("edit", {"text": mods}))["error"] is None
        await viewer.call("heads", {})
        began = time.perf_counter()
        answers.append(await viewer.call("heads", {}))
        times.append(1000 * (time.perf_counter() - began))
    names = "scores", "entropy", "sparsity"
    differences = [np.nanmax(np.abs(answers[0][name] - answers[1][name])) for name in names]
    same = [np.array_equal(np.isnan(answers[0][name]), np.isnan(answers[1][name])) for name in names]
    return {"difference": float(max(differences)), "same": all(same), "ms": times}
