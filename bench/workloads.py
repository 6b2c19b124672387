"""The workloads: shapes, and the goals for each on the GPU for which they were set.

Goals are compared by the page (``web/src/bench/goals.js``). ``metric`` names a figure of the workload's row,
or a ratio to the same figure of another row: ``rate``, ``time`` (GPU time), ``wall``; ``of`` is a workload,
"onnxruntime-web" or "floor" (1 empty dispatch pair plus bytes over the read ceiling).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["attention", "decode", "varlen", "backward"]


@dataclass(frozen=True)
class Goal:
    """``metric`` [divided by that of ``of``] is at least or at most ``value``."""

    metric: Literal["rate", "time", "wall"]
    sign: Literal[">=", "<="]
    value: float
    of: str = ""


@dataclass(frozen=True)
class Workload:
    """One row of the table. With ``lengths`` sequences are packed, of these lengths and those between."""

    name: str
    title: str
    kind: Kind
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    causal: bool = False
    dtype: str = "float32"
    variant: str = "auto"
    lengths: tuple[int, int] | None = None
    goals: tuple[Goal, ...] = ()

    @property
    def sequences(self) -> list[int]:
        """Lengths of packed sequences, in an order that is not sorted."""
        assert self.lengths
        low, high = self.lengths
        steps = [round(low + (high - low) * n / (self.batch - 1)) for n in range(self.batch)]
        return [steps[(n * 27) % self.batch] for n in range(self.batch)]

    @property
    def flops(self) -> float:
        """Multiply-adds of both products, counted as two, over the pairs that are not masked out."""
        per_pair = 4.0 * self.heads * self.head_dim * (2.5 if self.kind == "backward" else 1.0)
        if self.lengths:
            return per_pair * sum(n * (n + 1) / 2 if self.causal else n * n for n in self.sequences)
        pairs = self.queries * (self.queries + 1) / 2 if self.causal else self.queries * self.keys
        return per_pair * self.batch * pairs

    @property
    def cache_bytes(self) -> float:
        """Bytes of keys and values that one decode must read."""
        bits = {"float32": 32, "float16": 16}.get(self.dtype, 0) or int(self.dtype[-1])
        scales = 0 if "float" in self.dtype else 32
        return 2 * self.batch * self.kv_heads * self.keys * (self.head_dim * bits + scales) / 8

    def plain(self) -> dict[str, Any]:
        """As plain data, for the page and the peers."""
        fields = dataclasses.asdict(self)
        fields["flops"] = self.flops
        fields["bytes"] = self.cache_bytes if self.kind == "decode" else None
        fields["goals"] = [dataclasses.asdict(goal) for goal in self.goals]
        return fields


def _attention(name: str, title: str, b: int, h: int, s: int, d: int, **more: Any) -> Workload:
    return Workload(name, title, more.pop("kind", "attention"), b, h, h, s, s, d, **more)


def _decode(name: str, title: str, heads: tuple[int, int], keys: int, d: int, **more: Any) -> Workload:
    return Workload(name, title, "decode", more.pop("batch", 1), heads[0], heads[1], 1, keys, d, **more)


_ORT = "onnxruntime-web"

FULL = (
    _attention(
        "minilm",
        "MiniLM: B32 H12 S128 D32",
        32, 12, 128, 32,
        goals=(Goal("rate", ">=", 22), Goal("wall", "<=", 0.3, _ORT)),
    ),
    _attention(
        "bge",
        "BGE-base: B8 H12 S512 D64",
        8, 12, 512, 64,
        goals=(Goal("rate", ">=", 39), Goal("wall", "<=", 0.35, _ORT)),
    ),
    _attention(
        "long",
        "long: B1 H16 S4096 D128",
        1, 16, 4096, 128,
        goals=(Goal("rate", ">=", 47), Goal("wall", "<=", 0.15, _ORT)),
    ),
    _attention(
        "long-causal",
        "long, causal",
        1, 16, 4096, 128,
        causal=True,
        goals=(Goal("rate", ">=", 0.9, "long"),),
    ),
    _decode(
        "decode", "decode: 32/8 heads, D128, 32,768 keys, f32", (32, 8), 32768, 128,
        goals=(Goal("rate", ">=", 4050),),
    ),
    _decode(
        "decode-f16", "decode, float16 cache", (32, 8), 32768, 128,
        dtype="float16", goals=(Goal("rate", ">=", 3600),),
    ),
    _decode(
        "decode-tq4", "decode, TurboQuant 4-bit cache", (32, 8), 32768, 128,
        dtype="turboquant4", goals=(Goal("time", "<=", 0.3, "decode"),),
    ),
    _decode(
        "decode-u4", "decode, uniform 4-bit cache", (32, 8), 32768, 128,
        dtype="uniform4", goals=(Goal("time", "<=", 0.3, "decode"),),
    ),
    _decode(
        "decode-1k", "decode at 1,024 keys", (32, 8), 1024, 128,
        goals=(Goal("time", "<=", 1.5, "floor"),),
    ),
    _decode("decode-b8", "decode at batch 8, f32", (32, 8), 32768, 128, batch=8),
    _decode("decode-b8-f16", "decode at batch 8, float16", (32, 8), 32768, 128, batch=8, dtype="float16"),
    _decode(
        "decode-b8-tq4", "decode at batch 8, TurboQuant 4-bit", (32, 8), 32768, 128,
        batch=8, dtype="turboquant4",
        goals=(Goal("time", "<=", 0.3, "decode-b8"), Goal("time", "<=", 0.55, "decode-b8-f16")),
    ),
    _decode(
        "decode-b8-u4", "decode at batch 8, uniform 4-bit", (32, 8), 32768, 128,
        batch=8, dtype="uniform4",
        goals=(Goal("time", "<=", 0.3, "decode-b8"), Goal("time", "<=", 0.55, "decode-b8-f16")),
    ),
    # Dense rows with about the FLOPs of the varlen workload, to compare its rate with.
    _attention(
        "varlen-dense", "dense twin of varlen: B85 H12 S1024 D64 causal", 85, 12, 1024, 64, causal=True,
    ),
    Workload(
        "varlen", "varlen: 64 sequences of 16–2,048, H12 D64 causal", "varlen", 64, 12, 12, 0, 0, 64,
        causal=True, lengths=(16, 2048), goals=(Goal("rate", ">=", 0.85, "varlen-dense"),),
    ),
    _attention(
        "backward", "backward: B8 H12 S512 D64", 8, 12, 512, 64,
        kind="backward", goals=(Goal("rate", ">=", 0.75, "bge"),),
    ),
    _attention(
        "backward-long", "backward of long", 1, 16, 4096, 128,
        kind="backward", goals=(Goal("rate", ">=", 0.75, "long"),),
    ),
    _attention(
        "backward-long-causal", "backward of long, causal", 1, 16, 4096, 128,
        kind="backward", causal=True, goals=(Goal("rate", ">=", 0.75, "long-causal"),),
    ),
    Workload(
        "backward-varlen", "backward of varlen", "backward", 64, 12, 12, 0, 0, 64,
        causal=True, lengths=(16, 2048), goals=(Goal("rate", ">=", 0.75, "varlen"),),
    ),
    _attention(
        "matrix", "long, f16 subgroup matrices", 1, 16, 4096, 128,
        dtype="float16", variant="matrix", goals=(Goal("rate", ">=", 260),),
    ),
    _attention(
        "matrix-causal", "long, causal, f16 subgroup matrices", 1, 16, 4096, 128,
        causal=True, dtype="float16", variant="matrix", goals=(Goal("rate", ">=", 0.85, "matrix"),),
    ),
    _attention(
        "matrix-64", "BGE-base, f16 subgroup matrices", 8, 12, 512, 64,
        dtype="float16", variant="matrix", goals=(Goal("rate", ">=", 150),),
    ),
    _attention(
        "matrix-f32", "long, f32 by subgroup matrices", 1, 16, 4096, 128,
        variant="matrix", goals=(Goal("rate", ">=", 50),),
    ),
    _attention(
        "matrix-f32-64", "BGE-base, f32 by subgroup matrices", 8, 12, 512, 64,
        variant="matrix", goals=(Goal("rate", ">=", 42),),
    ),
    _attention(
        "matrix-f32-32", "MiniLM, f32 by subgroup matrices", 32, 12, 128, 32,
        variant="matrix", goals=(Goal("rate", ">=", 24),),
    ),
)  # fmt: skip

SMALL = (
    _attention("minilm", "MiniLM: B1 H12 S128 D32", 1, 12, 128, 32),
    _attention("bge", "BGE-base: B1 H12 S128 D64", 1, 12, 128, 64),
    _attention("long", "long: B1 H2 S256 D128", 1, 2, 256, 128),
    _attention("long-causal", "long, causal", 1, 2, 256, 128, causal=True),
    _attention("short", "a sentence: B1 H12 S20 D32", 1, 12, 20, 32),
    _decode("decode", "decode: 8/2 heads, D64, 2,048 keys, f32", (8, 2), 2048, 64),
    _decode("decode-f16", "decode, float16 cache", (8, 2), 2048, 64, dtype="float16"),
    _decode("decode-tq4", "decode, TurboQuant 4-bit cache", (8, 2), 2048, 64, dtype="turboquant4"),
    _decode("decode-u4", "decode, uniform 4-bit cache", (8, 2), 2048, 64, dtype="uniform4"),
    _decode("decode-256", "decode at 256 keys", (8, 2), 256, 64),
    _decode("decode-b4", "decode at batch 4, f32", (8, 2), 512, 64, batch=4),
    _decode(
        "decode-b4-tq4", "decode at batch 4, TurboQuant 4-bit", (8, 2), 512, 64,
        batch=4, dtype="turboquant4",
    ),
    Workload(
        "varlen", "varlen: 8 sequences of 16–128, H4 D32 causal", "varlen", 8, 4, 4, 0, 0, 32,
        causal=True, lengths=(16, 128),
    ),
    _attention("backward", "backward: B1 H4 S64 D32", 1, 4, 64, 32, kind="backward"),
    _attention("backward-causal", "backward, causal", 1, 4, 64, 32, kind="backward", causal=True),
    Workload(
        "backward-varlen", "backward of varlen", "backward", 8, 4, 4, 0, 0, 32,
        causal=True, lengths=(16, 128),
    ),
)  # fmt: skip


def workloads(size: str, only: list[str]) -> list[Workload]:
    """The workloads of a size, or those named; ``matrix`` only where it is named or the adapter has it.

    Raises
    ------
    ValueError
        For an unknown size or name.
    """
    if size not in ("small", "full"):
        raise ValueError(f"size: expected small or full, got {size!r}")
    every = FULL if size == "full" else SMALL
    unknown = set(only) - {workload.name for workload in every}
    if unknown:
        raise ValueError(
            f"only: expected names among {', '.join(w.name for w in every)}, got {', '.join(sorted(unknown))}"
        )
    return [workload for workload in every if not only or workload.name in only]
