"""Which tile attention takes where :meth:`Device.tune` has measured, and what it measures."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from py_attn.arguments import Problem
from py_attn.gpu.bridge import AdapterInfo
from py_attn.gpu.device import Device
from py_attn.kernels.attention.options import Inputs, pad4, prepare
from py_attn.kernels.attention.tiles import CANDIDATES, Tile, tiles_for

Choice = tuple[str, Tile | None]
Record = Callable[[Inputs, Choice], object]

_VARIANTS = ("subgroup", "tiled")
_STATIC = "static"
# Candidates come the fastest first, and each takes the time to make a pipeline.
_MOST_WAYS = 7
# A class is measured with so many queries, keys and heads at most, which is enough to fill any GPU of today.
_MOST_ROWS = 4096
_MOST_HEADS = 256
# What one run of a measurement may cost, in multiplications and additions, and in bytes.
_MOST_WORK = 1 << 35
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Class:
    """Calls that take the same choice: their sizes agree to a power of two."""

    dtypes: tuple[str, ...]
    queries: int
    keys: int
    heads: int
    group: int
    head_dim: int
    value_head_dim: int
    causal: bool

    def __str__(self) -> str:
        dims, kinds = f"{self.head_dim}/{self.value_head_dim}", "/".join(self.dtypes)
        sizes = f"{self.queries}x{self.keys}x{self.heads}/{self.group}"
        return f"attention {dims} {kinds} {sizes} {'causal' if self.causal else 'full'}"


def tuned(inputs: Inputs, static: Choice, record: Record) -> Choice:
    """The measured choice for calls like this one, else ``static``.

    ``record`` records attention of some inputs with some choice.
    """
    device = inputs.device
    if not device.autotune:
        return static
    kind, label = _labelled(inputs)
    # What is kept until it is measured must not hold on to the caller's tensors.
    name = device.tuner.pick(label, lambda: _ways(kind, device, static, record))
    if name is None or name == _STATIC:
        return static
    return _named(name, kind, device.info) or static


def _labelled(inputs: Inputs) -> tuple[_Class, str]:
    """The class of a call, and its name for the tuner."""
    sequences = inputs.packing.sequences if inputs.packing else 1
    found: tuple[_Class, str] | None = inputs.plans.get((_Class, sequences))
    if found is None:
        kind = _class_of(inputs.problem, tuple(x.tensor.dtype for x in inputs.operands()), sequences)
        found = inputs.plans[_Class, sequences] = kind, str(kind)
    return found


def _class_of(problem: Problem, dtypes: tuple[str, ...], sequences: int) -> _Class:
    m = problem.masking
    keys = -(-problem.keys // sequences)
    if m.window_left is not None and m.window_right is not None:
        keys = min(keys, max(1, m.window_left + m.window_right + 1))
    queries, heads = -(-problem.queries // sequences), problem.batch * sequences * problem.heads
    return _Class(
        dtypes,
        min(_power(queries), _MOST_ROWS),
        min(_power(keys), _MOST_ROWS),
        min(_power(heads), _MOST_HEADS),
        problem.group,
        problem.head_dim,
        problem.value_head_dim,
        m.window_right is not None,
    )


def _power(n: int) -> int:
    """The next power of two."""
    return 1 << max(0, n - 1).bit_length()


def _named(name: str, kind: _Class, info: AdapterInfo) -> Choice | None:
    """The choice of this name, None where it does not suit the class or the adapter."""
    variant, _, tile_name = name.partition(" ")
    tile = CANDIDATES.get(tile_name)
    subgroups = info.subgroup_min_size if variant == "subgroup" else 0
    if tile is None or (variant == "subgroup" and subgroups < 4):
        return None
    d4, dv4 = pad4(kind.head_dim) // 4, pad4(kind.value_head_dim) // 4
    fitting = tile in tiles_for(d4, dv4, info.limits, subgroups, info.software)
    return (variant, tile) if fitting and not tile.too_tall(kind.queries) else None


def _ways(kind: _Class, device: Device, static: Choice, record: Record) -> dict[str, Callable[[], object]]:
    """How each choice would be recorded for a plain call of this class, the static one first."""
    dims = kind.head_dim + kind.value_head_dim
    affordable = min(
        _MOST_WORK // (kind.queries * kind.keys * dims),
        _MOST_BYTES // (4 * dims * max(kind.queries, kind.keys)),
    )
    kv_heads = max(1, min(kind.heads, affordable) // kind.group)
    shapes = (
        (1, kv_heads * kind.group, kind.queries, kind.head_dim),
        (1, kv_heads, kind.keys, kind.head_dim),
        (1, kv_heads, kind.keys, kind.value_head_dim),
    )
    tensors = [device.empty(shape, dtype) for shape, dtype in zip(shapes, kind.dtypes, strict=True)]
    inputs = prepare(*tensors, causal=kind.causal)
    # Those of the static choice's own variant come before the same tiles with or without subgroups.
    variants = sorted(_VARIANTS, key=lambda variant: variant != static[0])
    names = [f"{variant} {tile_name}" for variant in variants for tile_name in CANDIDATES]
    named = ((name, _named(name, kind, device.info)) for name in names)
    others = [(name, choice) for name, choice in named if choice and choice != static]
    choices = {_STATIC: static, **dict(others[:_MOST_WAYS])}
    return {name: functools.partial(record, inputs, choice) for name, choice in choices.items()}
