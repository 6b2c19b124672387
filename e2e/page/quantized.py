"""Checks of the kernels with quantised weights against `py_attn.nn_reference`.

A case is a dict of plain data. Logs hold NaN wherever a kernel must not read, and all elements that it must
not write are compared with what was there before.
"""

from typing import Any

import numpy as np

import py_attn as pa
from e2e.page.bounds import over_bound
from e2e.page.inputs import poisoned
from py_attn import nn_reference as plain
from py_attn.gpu.dtypes import encode, round_to
from py_attn.kernels import nn
from py_attn.kernels.nn.quantized_linear import LinearConfig
from py_attn.kernels.nn.quantized_matmul import MatmulConfig
from py_attn.kernels.steps import Word, new_state
from py_attn.rope import rope_table

_EPSILON = 1e-5
_TRIES = 4
_FEW = 64


class Matrices:
    """Random matrices of the same format: packed into one on the device, and their weights."""

    def __init__(self, random, form, rows, inner, *, interleave=False):
        raw = [random_blocks(random, form, count * inner // plain.BLOCK) for count in rows]
        device = pa.default_device()
        blocks = [device.tensor(as_words(part)) for part in raw]
        self.packed = nn.pack_quantized(blocks, rows, inner, form, interleave=interleave)
        self._parts = list(zip(raw, rows, strict=True))
        self._sizes = inner, form
        self._interleave = interleave

    def weights(self, precision):
        parts = [plain.dequantize(raw, rows, *self._sizes, precision) for raw, rows in self._parts]
        if self._interleave:
            return np.stack(parts, axis=1).reshape(-1, self._sizes[0])
        return np.concatenate(parts)


def random_blocks(random, form, count):
    """The bytes of blocks of weights of about unit size."""
    d = random.uniform(0.5, 2, (count, 1)) * (0.25 if form == "Q4_1" else 0.015)
    codes = random.integers(0, 256, (count, 16 if form == "Q4_1" else 32), np.uint8)
    scales = [d]
    if form == "Q4_1":
        scales.append(-d * random.uniform(6, 9, (count, 1)))
    halves = np.concatenate(scales, axis=1).astype(np.float16)
    return np.concatenate([halves.view(np.uint8), codes], axis=1).reshape(-1)


def as_words(data):
    """Bytes as uint32; what is left of the last word is no part of the blocks."""
    return np.concatenate([data, np.full(-data.size % 4, 0xEE, np.uint8)]).view(np.uint32)


def state_at(position):
    device = pa.default_device()
    words = np.zeros(len(Word), np.uint32)
    words[Word.POSITION] = position
    state = new_state(device)
    device.queue.write(state.storage().handle, words.view(np.uint8))
    return state


def config_of(case):
    config = case.get("config")
    if not config:
        return None
    return (MatmulConfig if "tile_tokens" in config else LinearConfig)(**config)


def log_with(rows, position, history, fill=np.nan):
    """A log of which only the rows from the position on are known."""
    log = np.full((history, *rows.shape[1:]), fill, np.float32)
    log[position : position + len(rows)] = rows
    return log


def compare(results, compute, x, dtypes=None):
    """The largest error of each result over its bound; `compute(x, precision)` gives what they should be."""
    exact = compute(x, np.float64)
    errors = [0.0] * len(exact)
    for n in range(tries_for(exact)):
        larger = (x * (1 + n / 64)).astype(np.float32)
        pair = [compute(larger, precision) for precision in (np.float32, np.float64)]
        for i, (single, double) in enumerate(zip(*pair, strict=True)):
            assert single.dtype == np.float32, single.dtype
            errors[i] = max(errors[i], float(np.abs(single - double).max(initial=0)))
    dtypes = dtypes or ["float32"] * len(exact)
    return [over_bound(*each) for each in zip(results, exact, errors, dtypes, strict=True)]


def tries_for(exact):
    """How often numpy's error is taken: that of a few numbers may be anything, so they get more tries."""
    return _TRIES if min(x.size for x in exact) >= _FEW else 8 * _TRIES


def make_x(random, case):
    width, count = case["inner"], case["count"]
    x = random.standard_normal((count, width)).astype(np.float32) * np.float32(case.get("size", 1.0))
    return x, random.uniform(0.5, 2, width).astype(np.float32)


def unchanged(after, before, written):
    """Everything but what was written is as it was."""
    keep = np.ones(before.shape, bool)
    keep[written] = False
    assert np.array_equal(after[keep], before[keep], equal_nan=True), "a kernel wrote where it should not"


async def check_weights(case):
    """Packing and widening alone: every weight exactly, as rows of an embedding."""
    random = np.random.default_rng(case["seed"])
    device = pa.default_device()
    matrices = Matrices(random, case["format"], case["rows"], case["inner"], interleave=case["interleave"])
    count, position, history = case["count"], case["position"], case["position"] + case["count"] + 2
    table = matrices.weights(np.float32)
    ids = random.integers(0, len(table), count)
    tokens = np.full(history, 1 << 31, np.uint32)
    tokens[position : position + count] = ids
    before = random.standard_normal((history, case["inner"])).astype(np.float32)
    x = device.tensor(before)
    nn.embed_tokens(device.tensor(tokens), matrices.packed, x, state_at(position), count=count)
    after = await x.numpy()
    unchanged(after, before, slice(position, position + count))
    exact = matrices.weights(np.float64)[ids]
    error = np.abs(after[position : position + count] - exact) / np.abs(exact).max()
    return {"weights": float(error.max()) / 2**-23}


async def check_qkv(case):
    random = np.random.default_rng(case["seed"])
    device = pa.default_device()
    count, position, d = case["count"], case["position"], case["head_dim"]
    heads, kv_heads, kept, capacity = (case[name] for name in ("heads", "kv_heads", "kept", "capacity"))
    in_cache, history = capacity is not None, case["position"] + case["count"] + 1
    x, norm = make_x(random, case)
    matrices = Matrices(random, case["format"], [heads * d, kv_heads * d, kv_heads * d], case["inner"])
    table = rope_table(np.arange(history), d, 1e3).astype(np.float32)
    slots = capacity if in_cache else count
    query_before = random.standard_normal((history, heads, d)).astype(np.float32)
    caches_before = [
        np.asarray(round_to(random.standard_normal((1, kv_heads, slots, d)), kind)) for kind in case["dtypes"]
    ]
    query = device.tensor(query_before)
    caches: list[Any] = []
    for before, kind in zip(caches_before, case["dtypes"], strict=True):
        if in_cache:
            cache = device.empty(before.shape, kind, pitch=-(-d // 4) * 4)
            fill(device, cache, before)
        else:
            cache = device.tensor(before)
        caches.append(cache)
    nn.project_qkv(
        device.tensor(log_with(x, position, history)), device.tensor(norm), matrices.packed,
        device.tensor(table), query, caches[0], caches[1], state_at(position), count=count, epsilon=_EPSILON,
        head_dim=d, heads=heads, kv_heads=kv_heads, kept=kept, cache=in_cache, config=config_of(case),
    )  # fmt: skip
    after: list[Any] = [await tensor.numpy() for tensor in (query, *caches)]

    rows = np.arange(position, position + count)
    place = tokens = np.arange(count)
    if in_cache:
        ring = capacity - kept
        place = np.where(rows < kept, rows, kept + (rows - kept) % ring)
        tokens = np.flatnonzero((rows < kept) | (rows >= position + count - ring))
    unchanged(after[0], query_before, rows)
    for found, before in zip(after[1:], caches_before, strict=True):
        unchanged(np.asarray(found), before, np.s_[:, :, place[tokens]])

    def compute(x, precision):
        normed = plain.rms_norm(x, norm, _EPSILON, precision)
        y = plain.linear(normed, matrices.weights(precision), precision)
        parts = np.split(y.reshape(count, -1, d), [heads, heads + kv_heads], axis=1)
        turned = [plain.rope(part, table[rows], precision) for part in parts[:2]]
        return [turned[0], turned[1][tokens], parts[2][tokens]]

    found = [after[0][rows], *(np.asarray(a)[0][:, place[tokens]].swapaxes(0, 1) for a in after[1:])]
    ratios = compare(found, compute, x, ["float32", *case["dtypes"]])
    return dict(zip(("query", "key", "value"), ratios, strict=True))


def fill(device, cache, values):
    """Write `values` into a tensor with padded rows."""
    padded = np.zeros((*values.shape[:-1], cache.strides[2]), np.float32)
    padded[..., : values.shape[-1]] = values
    carried = encode(padded, cache.kind, "cache").reshape(-1).view(np.uint8)
    data = np.concatenate([carried, np.zeros(-carried.size % 4, np.uint8)])
    device.queue.write(cache.storage().handle, data)


async def check_add(case):
    """`add_projection`, of inputs or of a decode's splits."""
    random = np.random.default_rng(case["seed"])
    device = pa.default_device()
    count, position, heads, inner = (case[name] for name in ("count", "position", "heads", "inner"))
    matrices = Matrices(random, case["format"], case["rows"], inner)
    history = position + count + 1
    before = random.standard_normal((history, sum(case["rows"]))).astype(np.float32)
    x = device.tensor(before)
    scale = None
    if case["scaled"]:
        scale = random.uniform(-1, 2, heads).astype(np.float32)
        scale[random.integers(heads)] = 0
    inputs: Any
    if case["splits"]:
        shape = (heads, case["splits"], inner // heads)
        outs = random.standard_normal(shape).astype(np.float32)
        rows = np.stack([random.normal(0, 4, shape[:2]), random.uniform(1, 9, shape[:2])], -1)
        empty = random.random(shape[:2]) < 0.3
        empty[:, random.integers(case["splits"])] = False
        rows[empty] = (np.finfo(np.float32).min, 0)
        outs[empty] = 0
        rows = rows.astype(np.float32)
        inputs = (
            device.tensor(outs.reshape(1, heads, 1, *shape[1:])),
            device.tensor(rows.reshape(1, heads, 1, *rows.shape[1:])),
        )
    else:
        outs = random.standard_normal((count, inner)).astype(np.float32)
        given = outs.copy()
        if scale is not None:
            given.reshape(count, heads, -1)[:, scale == 0] = np.nan
        inputs = device.tensor(given)
    nn.add_projection(
        x, inputs, matrices.packed, state_at(position), count=count, heads=heads,
        head_scale=None if scale is None else device.tensor(scale), config=config_of(case),
    )  # fmt: skip
    after = await x.numpy()
    written = slice(position, position + count)
    unchanged(after, before, written)

    def compute(outs, precision):
        v = plain.combine_splits(outs, rows, precision) if case["splits"] else outs.astype(precision)
        if scale is not None:
            v = v.reshape(count, heads, -1) * scale.astype(precision)[:, None]
        y = plain.linear(v.reshape(count, inner), matrices.weights(precision), precision)
        return [before[written].astype(precision) + y]

    return {"x": compare([after[written]], compute, outs)[0]}


async def check_gated(case):
    random = np.random.default_rng(case["seed"])
    device = pa.default_device()
    count, position = case["count"], case["position"]
    x, norm = make_x(random, case)
    matrices = Matrices(random, case["format"], [case["rows"]] * 2, case["inner"], interleave=True)
    with poisoned(device):
        out = nn.gated_linear(
            device.tensor(log_with(x, position, position + count + 1)), device.tensor(norm), matrices.packed,
            state_at(position), count=count, epsilon=_EPSILON, config=config_of(case),
        )  # fmt: skip

    def compute(x, precision):
        y = plain.linear(plain.rms_norm(x, norm, _EPSILON, precision), matrices.weights(precision), precision)
        return [plain.swiglu(y[:, ::2], y[:, 1::2], precision)]

    return {"out": compare([await out.numpy()], compute, x)[0]}


async def check_logits(case):
    random = np.random.default_rng(case["seed"])
    device = pa.default_device()
    count, position, first_row = case["count"], case["position"], case["first_row"]
    x, norm = make_x(random, case)
    matrices = Matrices(random, case["format"], [case["rows"]], case["inner"])
    row = first_row + (position or 0)
    with poisoned(device):
        out = nn.logits(
            device.tensor(log_with(x, row, row + count + 1)), device.tensor(norm), matrices.packed,
            state=None if position is None else state_at(position), first_row=first_row, count=count,
            epsilon=_EPSILON, config=config_of(case),
        )  # fmt: skip

    def compute(x, precision):
        normed = plain.rms_norm(x, norm, _EPSILON, precision)
        return [plain.linear(normed, matrices.weights(precision), precision)]

    return {"out": compare([await out.numpy()], compute, x)[0]}
