"""Checks of what a cache stores, and of decodes over it: see `check_cached`."""

from typing import Any

import numpy as np

import py_attn as pa
from e2e.page.bounds import bound_of, half_ulp, lse_over_bound, numpy_errors, over_bound
from e2e.page.emulated_matrices import adapter_of
from e2e.page.inputs import laid_out, normal, poisoned
from e2e.page.quantization import stored_codes
from py_attn import turboquant_reference
from py_attn.gpu.dtypes import round_to
from py_attn.kernels.decode.formats import FLOATS
from py_attn.rope import rope_table


def tables(case):
    """Cosines and sines [positions, pairs] as float32, as the kernels get them."""
    angles = rope_table(np.arange(case["positions"]), 2 * case["pairs"], 100.0).astype(np.float32)
    return [round_to(angles[..., n], case.get("table_dtype", "float32")) for n in (0, 1)]


def table_tensors(device, case):
    """The same on the device; with `turned` as views whose columns lie apart."""
    dtype = case.get("table_dtype", "float32")
    if case.get("turned"):
        return [device.tensor(table.T, dtype).transpose(1, 0) for table in tables(case)]
    return [device.tensor(table, dtype) for table in tables(case)]


def rotary_error(x, cos, sin, **keywords):
    """The exact result and the error of numpy in float32."""
    exact = pa.reference.rotary(x, cos, sin, **keywords)
    single = pa.reference.rotary(x, cos, sin, **keywords, compute_dtype=np.float32)
    return exact, float(np.abs(single - exact).max(initial=0))


async def check_rotary(case):
    """`pa.rotary` of random rows; positions as `case["at"]` says, a number or a list with its dtype."""
    device, random, dtype = pa.default_device(), np.random.default_rng(case["seed"]), case["dtype"]
    x = normal(random, case["shape"], dtype)
    at, kind = case["at"], case.get("at_dtype")
    positions = at if kind is None else device.tensor(np.array(at), kind)
    cos, sin = tables(case)
    with poisoned(device):
        out = pa.rotary(
            laid_out(device, x, dtype, case["view"]), *table_tensors(device, case),
            positions=positions, interleaved=case["interleaved"],
        )  # fmt: skip
        got = await out.numpy()
    assert out.dtype == dtype
    exact, error = rotary_error(x, cos, sin, positions=at, interleaved=case["interleaved"])
    # Numbers that do not turn stay as they are.
    still = slice(2 * case["pairs"], None)
    assert np.array_equal(got[..., still], x[..., still])
    return {"out": over_bound(got, exact, error, dtype)}


SCALES = ("k_scale", "v_scale")


def table_as(device, table, kind):
    """A block table as an array, or as a tensor of an integer dtype; "columns": whose columns lie apart."""
    if kind == "columns":
        return device.tensor(table.T, "int32").transpose(1, 0)
    return table if kind is None else device.tensor(table, kind)


def numbers_of(words, dtype, dim, scale):
    """Rows [..., words] of a cache's storage as numbers [..., dim] in float64; `scale` is that of int8."""
    if dtype in FLOATS:
        return words.astype(np.float64)
    blocks = 0 if dtype == "int8" else -(-dim // 32)
    first = -(-blocks // 2)
    integers = np.ascontiguousarray(words[..., first:]).view(np.int8).astype(np.int64)
    if dtype == "q4_0":
        integers = np.stack([integers & 15, (integers >> 4) & 15], -1).reshape(*words.shape[:-1], -1) - 8
    if dtype == "int8":
        return integers[..., :dim] * scale[..., None, None].astype(np.float64)
    d = np.ascontiguousarray(words[..., :first]).view(np.float16)[..., :blocks].astype(np.float64)
    return (integers.reshape(*d.shape, 32) * d[..., None]).reshape(*words.shape[:-1], -1)[..., :dim]


#: Dtypes of 4-bit codes, which may lie in tiles.
CODES = ("uniform4", "turboquant4")


def code_errors(found, rows, dtype):
    """How far stored rows are from those of the reference, over a few roundings of their largest number.

    Numbers that lie almost on a threshold may have the neighbouring code; such rows are left out, and few.
    """
    exact = pa.reference.cached(rows, dtype)
    error = np.abs(found - exact).max(-1)
    size = np.maximum(np.abs(rows).max(-1), 1e-30)
    differs = error > 1e-2 * size
    assert np.count_nonzero(differs) <= max(1, differs.size // 50), "other codes than the reference's"
    return float((error / size)[~differs].max(initial=0) / 1e-5)


def integer_errors(found, rows, dtype, scale):
    """How far stored integers are from those of the reference, in halves of what separates two of them.

    WGSL's division may be off by 2.5 units in the last place, so that a number that lies almost between two
    integers may become either: its error is then that of the other one, no larger than the bound. A scale may
    be rounded to the other float16 for the same reason.
    """
    rows = rows.astype(np.float32)
    exact = pa.reference.cached(rows[None], dtype, scale=scale)[0]
    if dtype == "int8":
        step = np.broadcast_to(scale[:, None, None], rows.shape).astype(np.float64)
    else:
        padded = np.pad(rows, [(0, 0), (0, 0), (0, -rows.shape[-1] % 32)])
        largest = np.abs(padded.reshape(*rows.shape[:-1], -1, 32)).max(-1).astype(np.float64)
        step = np.repeat(largest / (127 if dtype == "q8_0" else 8), 32, -1)[..., : rows.shape[-1]]
    step = np.maximum(step, 2.0**-24)
    differs = np.abs(found - exact) > 1e-3 * step
    error = (
        np.abs(found - rows)[differs].max(initial=0),
        (1.1 * np.abs(exact - rows) + 0.01 * step)[differs].max(initial=0),
    )
    assert np.count_nonzero(differs) <= max(1, differs.size // 1000), "other integers than the reference's"
    return float(error[0] / error[1]) if error[0] else 0.0


def rotated_reference(reference, query, keys, fixed):
    """Output and LSE in float32, computed in the rotated domain as the kernels do it."""
    rotate, values = turboquant_reference.rotate, fixed["values"]
    rotated = {"values": rotate(values, np.float32)}
    out, lse = reference(rotate(query, np.float32), rotate(keys, np.float32), np.float32, **rotated)
    return turboquant_reference.rotate_back(out, np.float32), lse


class CachedLoop:
    """Appends and decodes on one cache, with the numbers that it holds as they were read back.

    Parameters
    ----------
    case
        See :func:`check_cached`.
    """

    def __init__(self, case):
        self.case, self.device = case, pa.default_device()
        self.random = np.random.default_rng(case["seed"])
        self.dims = case["head_dim"], case["value_head_dim"]
        self.dtypes = case["dtypes"]
        self.held = [
            [np.zeros((case["kv_heads"], 0, dim)) for _ in range(case["batch"])] for dim in self.dims
        ]
        self.ring = {"capacity": case["capacity"], "sink_tokens": case["sink_tokens"]}
        shared = {name: case[name] for name in ("sink_tokens", "value_head_dim", *SCALES) if name in case}
        shared["dtype"] = tuple(self.dtypes)
        self.cache: pa.KVCache
        if block_size := case.get("block_size"):
            # Every element's blocks in an order of their own, with some that nobody has.
            most, batch = case["capacity"] // block_size, case["batch"]
            self.table = self.random.permutation(batch * most + 3)[: batch * most].reshape(batch, most)
            self.cache = pa.PagedKVCache(
                case["kv_heads"], batch * most + 3, self.dims[0], block_size=block_size,
                block_table=table_as(self.device, self.table, case.get("table_as")), **shared,
            )  # fmt: skip
        else:
            self.cache = pa.KVCache(
                case["batch"], case["kv_heads"], case["capacity"], self.dims[0], ragged=case["ragged"],
                **shared,
            )  # fmt: skip
        self.rotary: dict[str, Any] = {}
        self.tables: list[Any] = []
        if case.get("pairs"):
            self.tables = tables(case)
            self.rotary = {
                "rotary": table_tensors(self.device, case), "rotary_interleaved": case["interleaved"]
            }  # fmt: skip
        self.worst = {"stored": 0.0, "out": 0.0, "lse": 0.0, "partials": 0.0}

    def note(self, **ratios):
        self.worst |= {name: max(self.worst[name], ratio) for name, ratio in ratios.items()}

    def turned(self, x, first, compute_dtype=np.float64):
        """Rows [1, H, S, D] with their embeddings, the first of which stands at position `first`."""
        if not self.tables:
            return np.asarray(x, compute_dtype)
        at = np.maximum(first + np.arange(x.shape[2]), 0)[None]
        return pa.reference.rotary(
            x, *self.tables, positions=at, interleaved=self.case["interleaved"], compute_dtype=compute_dtype
        )

    async def append(self, count, lengths=None):
        case = self.case
        shape = case["batch"], case["kv_heads"], count
        new = [normal(self.random, (*shape, dim), "float32", case.get("size", 1.0)) for dim in self.dims]
        given = [laid_out(self.device, x, "float32", case["view"]) for x in new]
        self.cache.append(given[0], given[1], lengths=lengths, **self.rotary)
        for n, (held, x) in enumerate(zip(self.held, new, strict=True)):
            stored = await self.stored(n)
            for b in range(case["batch"]):
                rows = x[b, :, : count if lengths is None else lengths[b]]
                before = held[b].shape[1]
                if n == 0 and rows.shape[1]:
                    exact, single = (self.turned(rows[None], before, t)[0] for t in (np.float64, np.float32))
                else:
                    exact = single = np.asarray(rows, np.float64)
                held[b] = np.concatenate([held[b], exact], 1)
                # Those that the ring dropped at once are not stored, nor looked at by the reference.
                kept = [p for p in range(before, held[b].shape[1]) if self.is_held(p, held[b].shape[1])]
                at = [p - before for p in kept]
                found = stored[b][:, [self.slot(p) for p in kept]]
                self.compare_stored(found, exact[:, at], single[:, at], n, b)
                held[b][:, kept] = found

    def is_held(self, position, total):
        dropped = max(0, total - self.case["capacity"])
        return position < self.case["sink_tokens"] or position >= self.case["sink_tokens"] + dropped

    def slot(self, position):
        first, capacity = self.case["sink_tokens"], self.case["capacity"]
        return position if position < first else first + (position - first) % (capacity - first)

    async def stored(self, n):
        """What is stored of keys (0) or values (1), as numbers [B, H, capacity, D]."""
        words = await (self.cache.keys, self.cache.values)[n].numpy()
        if self.case.get("block_size"):
            # [B, max_blocks, Hkv, block_size, …]
            found = words[self.table].swapaxes(1, 2)
            words = found.reshape(*found.shape[:2], self.case["capacity"], found.shape[-1])
        if self.dtypes[n] in CODES:
            return turboquant_reference.dequantize(stored_codes(words, ("keys", "values")[n], self.cache))
        return numbers_of(words, self.dtypes[n], self.dims[n], self.scale(n))

    def scale(self, n):
        return np.asarray(self.case.get(SCALES[n], 1.0), np.float32)

    def compare_stored(self, found, exact, single, n, b):
        """The numbers of a float dtype are those given, rounded once; integers are those of the reference."""
        dtype = self.dtypes[n]
        if not exact.size:
            return
        if dtype in CODES:
            self.note(stored=code_errors(found, single, dtype))
            return
        if dtype not in FLOATS:
            scale = np.broadcast_to(self.scale(n), (self.case["batch"], self.case["kv_heads"]))[b]
            self.note(stored=integer_errors(found, single, dtype, scale))
            return
        error = np.abs(single - exact).max()
        rounding = half_ulp(np.maximum(np.abs(found), np.abs(exact)), dtype)
        over = (np.abs(found - exact) - rounding).max()
        bound = bound_of(exact, error) if self.tables else 0.0
        self.note(stored=max(0.0, float(over / bound)) if bound else float(over > 0))

    async def decode(self, count, **keywords):
        case = self.case
        splits = keywords.pop("splits", "auto")
        query = normal(self.random, (case["batch"], case["heads"], count, self.dims[0]), "float32")
        tensor = laid_out(self.device, query, "float32", case["view"])
        if isinstance(keywords.get("window"), list):
            keywords["window"] = tuple(keywords["window"])
        asked = {**keywords, **self.rotary, "splits": splits}
        out, lse = pa.decode_attention(tensor, self.cache, return_lse=True, **asked)
        part_out, part_lse = pa.decode_partials(tensor, self.cache, **asked)
        lengths = [x.shape[1] for x in self.held[0]]
        keys, values = (
            np.stack([np.pad(x, ((0, 0), (0, max(lengths) - x.shape[1]), (0, 0))) for x in held])
            for held in self.held
        )
        fixed = {**keywords, **self.ring, "lengths": lengths, "values": values}
        self.compare(query, keys, lengths, fixed, *[await x.numpy() for x in (out, lse, part_out, part_lse)])

    def compare(self, query, keys, lengths, fixed, out, lse, part_out, part_lse):
        def turned(x, compute):
            rows = [
                self.turned(x[b : b + 1], length - x.shape[2], compute) for b, length in enumerate(lengths)
            ]
            return np.concatenate(rows)

        def reference(query, keys, compute=np.float64, **changes):
            given = {**fixed, "return_lse": True, "compute_dtype": compute, **changes}
            return pa.reference.decode_attention(query, keys, **given)

        exact = reference(turned(query, np.float64), keys)
        out_error, lse_error = numpy_errors(reference, turned(query, np.float64), keys)
        # Turning the query is arithmetic in float32 too.
        single = reference(turned(query, np.float32), keys, np.float32)
        if not set(CODES).isdisjoint(self.dtypes):
            # So are rotations, which change nothing but the roundings.
            single = rotated_reference(reference, turned(query, np.float32), keys, fixed)
        seen = np.isfinite(exact[1])
        out_error = max(out_error, float(np.abs(single[0] - exact[0]).max(initial=0)))
        lse_error = max(lse_error, float(np.abs(single[1] - exact[1])[seen].max(initial=0)))
        assert (out[~seen] == 0).all(), "a row that sees nothing is not zero"
        split = [(part_out[:, :, :, n], part_lse[..., n]) for n in range(part_lse.shape[3])]
        self.note(
            out=over_bound(out, exact[0], out_error),
            lse=lse_over_bound(lse, exact[1], lse_error),
            partials=over_bound(pa.reference.merge(split), exact[0], out_error),
        )


async def check_cached(case):
    """Steps ["append", S, lengths or None] and ["decode", S, keywords], each compared at once.

    What an append stored is compared with the rows given, and decodes with the reference over what is stored.
    ``adapter`` and ``tiled`` change what the kernels are told of the adapter.
    """
    device = pa.default_device()
    with adapter_of(case, device), poisoned(device):
        loop = CachedLoop(case)
        for step, count, *rest in case["steps"]:
            if step == "append":
                await loop.append(count, *rest)
            else:
                await loop.decode(count, **(rest[0] if rest else {}))
        loop.cache.destroy()
    return loop.worst
