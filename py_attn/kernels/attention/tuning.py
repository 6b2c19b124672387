"""Which tile attention takes where :meth:`Device.tune` has measured, and what it measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from py_attn.gpu.bridge import AdapterInfo
from py_attn.gpu.device import Device
from py_attn.gpu.kernel import Plan
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.config import Config, config_for_tile, configure
from py_attn.kernels.attention.options import Call, Options, resolve
from py_attn.kernels.attention.packing import usual_length
from py_attn.kernels.attention.tiles import CANDIDATES, Tile, tiles_for
from py_attn.kernels.operands import in_vec4s

PlanWith = Callable[[Call, Config], Plan]

_VARIANTS = ("subgroup", "tiled")
_STATIC = "static"
# Each takes the time to make a pipeline.
_MAX_CANDIDATES = 7
# A bucket is measured with so many queries, keys and heads at most, which fill any GPU of today many times.
_MAX_ROWS = 4096
_MAX_HEADS = 4096
# How many bits of the number of heads count: whether the last workgroups fill a GPU depends on it.
_HEAD_BITS = 4
# What one run of a measurement may cost, in multiplications and additions, and in bytes.
_MAX_WORK = 1 << 35
_MAX_BYTES = 64 << 20
# Inputs repeat so many random numbers, which take no time to make.
_NUMBERS = 1 << 16


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Calls that take the same choice: their lengths agree to a power of two, their heads to an eighth."""

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


def tuned(call: Call, static: Config, plan_with: PlanWith) -> Config:
    """The measured configuration for calls like this one, else ``static``.

    Masks, mods and windows have no bucket: what they cost depends on their code or their width.
    """
    options, device = call.options, call.device
    windowed = options.problem.masking.window_left is not None
    if not device.autotune or options.runs_code_per_score or windowed:
        return static
    bucket = _bucket_of(options)
    # What is kept until it is measured must not hold on to the caller's tensors.
    name = device.tuner.pick(str(bucket), lambda: _candidates(bucket, device, plan_with))
    found = _choice(name, bucket, device.info) if name and name != _STATIC else None
    return config_for_tile(options, device.info, *found) if found else static


def _bucket_of(options: Options) -> _Bucket:
    p, sequences = options.problem, options.sequences
    queries, keys = usual_length(p.queries, sequences), usual_length(p.keys, sequences)
    heads = p.batch * (sequences or 1) * p.heads
    return _Bucket(
        tuple(x.dtype for x in options.operands()),
        min(_round_up(queries), _MAX_ROWS),
        min(_round_up(keys), _MAX_ROWS),
        min(_round_up(heads, _HEAD_BITS), _MAX_HEADS),
        p.group,
        p.head_dim,
        p.value_head_dim,
        p.masking.window_right is not None,
    )


def _round_up(n: int, bits: int = 1) -> int:
    """The next number of which only the first ``bits`` binary digits are not 0; a power of two for one."""
    step = 1 << max(0, (n - 1).bit_length() - bits)
    return max(1, -(-n // step) * step)


def _choice(name: str, bucket: _Bucket, info: AdapterInfo) -> tuple[str, Tile] | None:
    """Variant and tile of this name, None where they do not suit the bucket or the adapter."""
    variant, _, tile_name = name.partition(" ")
    tile = CANDIDATES.get(tile_name)
    subgroups = info.subgroup_min_size if variant == "subgroup" else 0
    if tile is None or (variant == "subgroup" and subgroups < 4):
        return None
    d4, dv4 = in_vec4s(bucket.head_dim), in_vec4s(bucket.value_head_dim)
    float32 = all(dtype == "float32" for dtype in bucket.dtypes)
    fitting = tile in tiles_for(d4, dv4, info.limits, subgroups, info.software, float32=float32)
    return (variant, tile) if fitting and not tile.too_tall(bucket.queries) else None


def _candidates(bucket: _Bucket, device: Device, plan_with: PlanWith) -> dict[str, Callable[[], object]]:
    """How each candidate is recorded for a plain call of this bucket, the static one first."""
    call = _plain_call(bucket, device)
    # Of this call: that of the one which asked depends on its own lengths.
    static = configure(call.options, device.info, "auto")
    static_choice = (static.variant, static.tile)
    # Those of the static choice's own variant come before the same tiles with or without subgroups.
    variants = sorted(_VARIANTS, key=lambda variant: variant != static.variant)
    names = [f"{variant} {tile_name}" for variant in variants for tile_name in CANDIDATES]
    named = ((name, _choice(name, bucket, device.info)) for name in names)
    others = [(name, choice) for name, choice in named if choice and choice != static_choice]
    choices = {_STATIC: static_choice, **dict(others[:_MAX_CANDIDATES])}

    def recorded(variant: str, tile: object) -> Callable[[], object]:
        config = static
        if isinstance(tile, Tile):
            config = config_for_tile(call.options, device.info, variant, tile)
        plan = plan_with(call, config)
        return lambda: device.run(plan, call.tensors)

    return {name: recorded(*choice) for name, choice in choices.items()}


def _plain_call(bucket: _Bucket, device: Device) -> Call:
    """A call of the bucket's sizes without mask, with fewer heads where it would take too long."""
    dims = bucket.head_dim + bucket.value_head_dim
    affordable = min(
        _MAX_WORK // (bucket.queries * bucket.keys * dims),
        _MAX_BYTES // (4 * dims * max(bucket.queries, bucket.keys)),
    )
    kv_heads = max(1, min(bucket.heads, affordable) // bucket.group)
    shapes = (
        (1, kv_heads * bucket.group, bucket.queries, bucket.head_dim),
        (1, kv_heads, bucket.keys, bucket.head_dim),
        (1, kv_heads, bucket.keys, bucket.value_head_dim),
    )
    tensors = [
        _random(device, shape, dtype, seed)
        for seed, (shape, dtype) in enumerate(zip(shapes, bucket.dtypes, strict=True))
    ]
    return resolve(*tensors, causal=bucket.causal)


def _random(device: Device, shape: tuple[int, ...], dtype: str, seed: int) -> Tensor:
    """Numbers of mean 0 and variance 1: with zeros a GPU needs less power, and its clock is higher."""
    numbers = np.random.default_rng(seed).standard_normal(_NUMBERS, np.float32)
    return device.tensor(np.resize(numbers, shape), dtype)
