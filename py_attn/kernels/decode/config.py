"""How a decode is spread over workgroups and their invocations.

The head of ``shaders/decode/split.wgsl`` draws which lane of a team holds which keys and rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from py_attn.gpu.binding import most_invocations
from py_attn.gpu.bridge import AdapterInfo
from py_attn.kernels.decode.formats import Integers
from py_attn.kernels.decode.options import MAX_SPLITS, Call
from py_attn.kernels.decode.tiled_codes import ROWS, TileRuns, choose_runs
from py_attn.kernels.operands import pad4, power_of_two
from py_attn.kernels.quantization import turboquant

_WORKGROUP = 128
# In a large workgroup more invocations share the work of its beginning and end. Two of them should fit on a
# core, which has 65,536 registers on most GPUs: 128 an invocation, of which arrays may take about so many.
_LARGE_WORKGROUP = 256
_LARGE_REGISTERS = 116
# Steps go in pairs where arrays take at most so many registers. Where the number of steps is odd, one more is
# taken, which sees no key; that is worth it from so many steps on (bench/NOTES.md).
_PAIRED_REGISTERS = 80
_ODD_STEPS = 5
# The most query rows of a workgroup with subgroups, where segments have four and eight numbers. More rows
# would share what is read of the cache, but leave registers for fewer keys on their way (bench/NOTES.md).
# Workgroups then share the rows evenly; with wide segments five rows are better left together.
_FAST_ROWS = 8
_FAST_ROWS_WIDE = 4
_UNDIVIDED_ROWS_WIDE = 5
# Registers that looking up the numbers of codes takes besides.
_CODE_REGISTERS = 24
# A software adapter has no latency to hide with several keys at a step, but compiles longer for their text.
_SOFTWARE_WORKGROUP = 16
_SOFTWARE_KEYS_PER_GROUP = 1
# The most numbers of keys, or of values, times rows that an invocation works on at a step in loops that are
# written out on a software adapter.
_MAX_SOFTWARE_NUMBERS = 64
# Without subgroups every product goes through workgroup memory, of which there may be 16 KiB. On a GPU that
# also takes the place of subgroups of 4: registers of so few lanes hold one row only.
_SMALL_WORKGROUP = 64
_SMALL_TEAM = 8
# The most numbers of the outputs that an invocation sums up, and of the queries that it multiplies with.
_MAX_REGISTERS = 32
# The most vec4s of each invocation's sums that are merged at a time, in 16 bytes of workgroup memory each.
_MERGED = 4
# Keys that a group of lanes takes at a step, where segments have four and eight numbers. With more keys
# fewer workgroups would have registers at a time.
_KEYS_PER_GROUP = 2
_KEYS_PER_GROUP_WIDE = 4
# The fewest lanes that share a key.
_LANES = 8
# Numbers of a wide segment, of a half type or of codes.
_WIDE = 8
# Two workgroups to each of 132 cores, which registers allow in any case; a software adapter has one per core.
_BUSY_WORKGROUPS = 264
_BUSY_SOFTWARE = 4


def choose_splits(keys: int, block: int, workgroups: int, software: bool) -> int:
    """How many splits keep a device busy that would run ``workgroups`` workgroups without splitting.

    All of them should run at the same time. Of the numbers of splits that take the fewest steps the smallest
    is chosen; a split takes ``block`` keys at a step.
    """
    busy = _BUSY_SOFTWARE if software else _BUSY_WORKGROUPS
    most = max(1, min(busy // workgroups, MAX_SPLITS))
    blocks = -(-keys // block)
    steps = -(-blocks // most)
    return -(-blocks // steps)


class SplitRange(NamedTuple):
    """Which keys a split takes.

    Attributes
    ----------
    split_first : int
        Distance from the first key of one split to that of the next.
    split_span : int
        Distance from a split's first key to the end of the keys that it may take.
    split_stride : int
        Distance from one step of a split to the next.
    """

    split_first: int
    split_span: int
    split_stride: int


def split_range(keys: int, splits: int, block: int, *, in_runs: bool) -> SplitRange:
    """Give each of ``splits`` its keys: blocks in turn, or (``in_runs``) a run of neighbouring keys.

    Blocks are faster, since all splits then read neighbouring keys at the same time. With less than a block
    for each split, they get runs.
    """
    if in_runs or splits * block > keys:
        run = -(-keys // splits)
        return SplitRange(run, run, block)
    return blocks_in_turn(keys, splits, block)


def blocks_in_turn(keys: int, splits: int, block: int) -> SplitRange:
    """Give each split every ``splits``-th block.

    That is right for fewer keys too: some splits are then empty.
    """
    return SplitRange(block, keys, block * splits)


# The numbers of a code's levels in workgroup memory, of which there are up to 16.
_TABLE_BYTES = 64


def _in_16(size: int) -> int:
    """Bytes as WebGPU counts a variable in workgroup memory."""
    return -(-size // 16) * 16


@dataclass(frozen=True, slots=True)
class WorkgroupShape:
    """The invocations of a workgroup of decode/split.wgsl; their numbers are powers of two.

    Attributes
    ----------
    team : int
        Invocations that share an online softmax.
    lanes, value_lanes : int
        Invocations of a team that share a key, and those that share a value.
    rows : int
        Query rows of the workgroup.
    keys_per_group : int
        Keys that the lanes which share a key take at a step, one after the other.
    workgroup : int
    subgroups : bool
        Whether a team exchanges by shuffles.
    merged : int
        Vec4s of an invocation's sums that are merged at a time.
    """

    team: int
    lanes: int
    value_lanes: int
    rows: int
    keys_per_group: int
    workgroup: int
    subgroups: bool
    merged: int

    @property
    def block(self) -> int:
        """Keys that the workgroup takes at a step."""
        return self.workgroup // self.lanes * self.keys_per_group

    def workgroup_bytes(self, keys: RowLoads, values: RowLoads) -> int:
        """Workgroup memory that the shader declares, in bytes."""
        sums = self.rows * -(-values.segments // self.value_lanes) * values.segment_numbers // 4
        found = 4 * self.rows * -(-keys.segments // self.lanes) * keys.segment_numbers * self.lanes
        found += 2 * _in_16(4 * self.rows * self.workgroup // self.team)
        found += 16 * min(self.merged, sums) * self.workgroup
        found += sum(_in_16(_TABLE_BYTES) for loads in (keys, values) if loads.codes)
        if self.subgroups:
            return found + 16
        scores = power_of_two(self.rows) * self.keys_per_group
        return found + 4 * self.workgroup * (scores + max(1, scores // self.lanes) + 2)

    def constants(self) -> dict[str, object]:
        """The template's variables."""
        return {
            "TEAM": self.team,
            "LANES": self.lanes,
            "VALUE_LANES": self.value_lanes,
            "ROWS": self.rows,
            "PADDED": power_of_two(self.rows),
            "KEYS_PER_GROUP": self.keys_per_group,
            "WORKGROUP": self.workgroup,
            "MERGED": self.merged,
            "subgroups": self.subgroups,
        }


@dataclass(frozen=True, slots=True)
class RowLoads:
    """How the rows of a cache's keys or values are read (shaders/lib/segments.wgsl).

    Attributes
    ----------
    numbers : int
        Numbers of a row, with the padding.
    wide : bool
        Whether a segment has eight numbers, else four.
    words : int
        32-bit words that are read for a segment.
    codes : bool
        Whether the numbers are looked up by codes.
    """

    numbers: int
    wide: bool
    words: int
    codes: bool

    @property
    def segment_numbers(self) -> int:
        """Numbers of a segment."""
        return _WIDE if self.wide else 4

    @property
    def segments(self) -> int:
        """Segments of a row."""
        return self.numbers // self.segment_numbers


def row_loads(
    dtype: str, form: turboquant.Format | None, numbers: int, integers: Integers | None = None
) -> RowLoads:
    """Read eight numbers at a time, but four of float32 and where signs of residuals follow the codes."""
    wide = dtype != "float32" and numbers % _WIDE == 0 and not (form and form.qjl)
    if integers:
        # The integers' words, and one with their scale.
        words = 2 if wide and integers.bits == 8 else 1
        return RowLoads(numbers, wide, words + (integers.blocks > 0), codes=False)
    # A code of three bits may begin in one word and end in the next.
    words = 4 if not (wide and form) else 2 if form.code_bits == 3 else 1
    return RowLoads(numbers, wide, words, form is not None)


def choose_workgroup_shape(rows: int, keys: RowLoads, values: RowLoads, info: AdapterInfo) -> WorkgroupShape:
    """Take as many of ``rows`` query rows as fit into registers, and as few lanes to a key as that allows.

    On a GPU no more rows than are fast (``_fast_rows``).

    Where that is too much for the adapter's workgroups, fewer sums are merged at a time, then there are fewer
    invocations, then fewer rows.
    """
    while True:
        shape = _shape_for_registers(rows, keys, values, info)
        for workgroup in _halves(shape.workgroup, shape.team):
            for merged in _halves(shape.merged, 1):
                smaller = replace(shape, workgroup=workgroup, merged=merged)
                if _fits(smaller, keys, values, info):
                    return smaller
        if shape.rows == 1:
            return shape
        rows = shape.rows // 2


def _halves(first: int, last: int) -> Iterator[int]:
    """``first``, its half, and so on, none below ``last``."""
    while first >= last:
        yield first
        first //= 2


def _fits(shape: WorkgroupShape, keys: RowLoads, values: RowLoads, info: AdapterInfo) -> bool:
    """Whether workgroup memory and invocations are within the adapter's limits."""
    limits = info.limits
    fits = shape.workgroup_bytes(keys, values) <= limits["maxComputeWorkgroupStorageSize"]
    return fits and shape.workgroup <= most_invocations(limits)


def _shape_for_registers(rows: int, keys: RowLoads, values: RowLoads, info: AdapterInfo) -> WorkgroupShape:
    subgroups = info.subgroup_min_size >= (4 if info.software else _SMALL_TEAM)
    team = min(info.subgroup_min_size, 32) if subgroups else _SMALL_TEAM
    fitting = max(1, min(rows, team, _MAX_REGISTERS * team // max(keys.numbers, values.numbers)))
    if subgroups and not info.software:
        fitting = min(fitting, _fast_rows(rows, keys))
    needed = -(-keys.numbers * fitting // _MAX_REGISTERS)
    if subgroups and not info.software and keys.codes and keys.words == 1:
        # A key's codes take few registers, and half the lanes exchange half as many sums.
        needed = min(needed, keys.segments // 2)
    needed = max(_LANES, fitting, needed)
    lanes = min(team, max(power_of_two(fitting), min(power_of_two(needed), power_of_two(keys.segments))))
    value_lanes = max(lanes, min(team, power_of_two(values.segments)))
    if not subgroups:
        team = value_lanes = lanes
    workgroup = _WORKGROUP if subgroups else _SMALL_WORKGROUP
    keys_per_group = _KEYS_PER_GROUP_WIDE if keys.wide and values.wide else _KEYS_PER_GROUP
    if info.software:
        # A software adapter compiles longer for more workgroup memory, and each barrier costs it a switch of
        # every invocation of the workgroup.
        if subgroups:
            workgroup = max(_SOFTWARE_WORKGROUP, team)
        return WorkgroupShape(
            team, lanes, value_lanes, fitting, _SOFTWARE_KEYS_PER_GROUP, workgroup, subgroups, merged=1
        )
    shape = WorkgroupShape(team, lanes, value_lanes, fitting, keys_per_group, workgroup, subgroups, _MERGED)
    if subgroups and _registers(shape, keys, values) <= _LARGE_REGISTERS:
        return replace(shape, workgroup=_LARGE_WORKGROUP)
    return shape


def _fast_rows(rows: int, keys: RowLoads) -> int:
    """How many of ``rows`` query rows a workgroup takes, if registers allow it."""
    if keys.words < 4 or keys.codes:
        # Codes and integers: registers decide.
        return rows
    most, undivided = (_FAST_ROWS_WIDE, _UNDIVIDED_ROWS_WIDE) if keys.wide else (_FAST_ROWS, _FAST_ROWS)
    return rows if rows <= undivided else -(-rows // -(-rows // most))


def _segments_each(shape: WorkgroupShape, keys: RowLoads, values: RowLoads) -> tuple[int, int]:
    """Segments of keys and of values that an invocation holds at a step."""
    values_per_group = shape.keys_per_group * shape.value_lanes // shape.lanes
    return (
        shape.keys_per_group * -(-keys.segments // shape.lanes),
        values_per_group * -(-values.segments // shape.value_lanes),
    )


def _is_written_out(shape: WorkgroupShape, keys: RowLoads, values: RowLoads, info: AdapterInfo) -> bool:
    """Whether inner loops are written out, which spares a software adapter its costly computed indices.

    Its compiler takes more than twice as long for twice the text, so many products stay a loop there.
    """
    if not info.software:
        return True
    keys_each, values_each = _segments_each(shape, keys, values)
    numbers = shape.rows * max(keys_each * keys.segment_numbers, values_each * values.segment_numbers)
    return numbers <= _MAX_SOFTWARE_NUMBERS


def _registers(shape: WorkgroupShape, keys: RowLoads, values: RowLoads) -> int:
    """The 32-bit registers of an invocation's arrays in decode/split.wgsl."""
    keys_each, values_each = _segments_each(shape, keys, values)
    sums = shape.rows * -(-values.segments // shape.value_lanes) * values.segment_numbers
    scores = power_of_two(shape.rows) * shape.keys_per_group
    # The next step's keys arrive while those of this one are multiplied, a vec4 at a time.
    read = 2 * keys_each * keys.words + values_each * values.words + 4 * shape.keys_per_group
    return sums + scores + read + (_CODE_REGISTERS if keys.codes or values.codes else 0)


def _choose_steps(
    call: Call, shape: WorkgroupShape, keys: RowLoads, values: RowLoads, workgroups: int
) -> tuple[int, bool]:
    """How many splits there are, and whether their steps go in pairs (``Config.in_pairs``)."""
    software, visible = call.device.info.software, max(1, call.visible_keys)
    splits = choose_splits(visible, shape.block, workgroups, software)
    steps = -(-visible // (shape.block * splits))
    # Numbers that are widened or looked up take more registers than their arrays. Where only the GPU knows
    # how many keys there are, steps may be few.
    may_pair = call.cache.dtype == ("float32", "float32") and not software and not call.on_gpu
    if not may_pair or _registers(shape, keys, values) > _PAIRED_REGISTERS:
        return splits, False
    if steps % 2 == 1 and steps < _ODD_STEPS:
        return splits, False
    return choose_splits(visible, 2 * shape.block, workgroups, software), True


@dataclass(frozen=True, slots=True)
class Config:
    """What one decode is compiled with, and how its keys are split.

    Attributes
    ----------
    shape : WorkgroupShape
    keys, values : RowLoads
    splits : int
        How many splits there are.
    split_range : SplitRange
    row_tiles : int
        Workgroups that share the query rows of a key/value head.
    rotates, rotates_back : bool
        Whether the launch over the splits rotates the query itself, and the reduction the output.
    unrolled : bool
        Whether inner loops are written out.
    prefetches : bool
        Whether memory is asked for the next step's keys and values while this one's are worked on. A software
        adapter waits for each load in any case, and compiles the loads twice.
    in_pairs : bool
        Whether two steps are written out, whose keys have registers of their own. Else compilers let the next
        step's keys have those of this one's, and ask memory for them only when these are multiplied.
    """

    shape: WorkgroupShape
    keys: RowLoads
    values: RowLoads
    splits: int
    split_range: SplitRange
    row_tiles: int
    rotates: bool
    rotates_back: bool
    unrolled: bool
    prefetches: bool
    in_pairs: bool

    @property
    def combines(self) -> bool:
        """Whether another launch combines the splits."""
        return self.splits > 1


def configure(call: Call, *, in_runs: bool = False) -> Config | TileRuns:
    """The configuration by the static rules; ``in_runs`` gives each split neighbouring keys.

    Where only the GPU knows the cache's length it serves every length: there are as many splits as were asked
    for, however few keys there are, and they take blocks in turn.
    """
    cache, p, info = call.cache, call.problem, call.device.info
    if cache.tiled:
        return _configure_tiles(call, in_runs=in_runs)
    width = cache.key_format.width if cache.key_format else cache.head_dim
    keys = row_loads(cache.dtype[0], cache.key_format, pad4(width), cache.key_integers)
    values = row_loads(cache.dtype[1], cache.value_format, pad4(cache.value_head_dim), cache.value_integers)
    shape = choose_workgroup_shape(call.rows, keys, values, info)
    row_tiles = -(-call.rows // shape.rows)
    workgroups = max(1, p.batch * p.kv_heads * row_tiles)
    count, in_pairs = call.splits, False
    if count is None and call.buffers_of_splits > info.limits["maxStorageBuffersPerShaderStage"]:
        # A single split writes no row sums, which takes one buffer less.
        count = 1
    elif count is None:
        count, in_pairs = _choose_steps(call, shape, keys, values, workgroups)
    if not call.on_gpu:
        count = max(1, min(count, call.visible_keys))
    return Config(
        shape=shape,
        keys=keys,
        values=values,
        splits=count,
        split_range=(
            blocks_in_turn(call.visible_keys, count, shape.block)
            if call.on_gpu
            else split_range(call.visible_keys, count, shape.block, in_runs=in_runs)
        ),
        row_tiles=row_tiles,
        rotates=shape.subgroups and turboquant.rotates_in_subgroup(cache.key_format, info),
        rotates_back=count > 1 and turboquant.rotates_in_subgroup(cache.value_format, info),
        unrolled=_is_written_out(shape, keys, values, info),
        prefetches=not info.software,
        in_pairs=in_pairs,
    )


def _configure_tiles(call: Call, *, in_runs: bool) -> TileRuns:
    p, row_tiles = call.problem, -(-call.rows // ROWS)
    # Slots are in the order of entries only where no ring is turned and no entry is kept.
    first = 0 if call.is_turned or call.cache.sink_tokens else call.first_key
    workgroups = max(1, p.batch * p.kv_heads * row_tiles)
    return choose_runs(p.keys, first, workgroups, row_tiles, call.splits, MAX_SPLITS, in_runs=in_runs)
