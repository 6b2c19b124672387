"""How a decode is spread over workgroups and their invocations (shaders/decode_split.wgsl)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from py_attn.gpu.bridge import AdapterInfo
from py_attn.kernels import turboquant

_WORKGROUP = 128
# Without subgroups every product goes through workgroup memory, of which there may be 16 KiB.
_SMALL_WORKGROUP = 64
_SMALL_TEAM = 8
# Registers for one invocation's part of the queries, and of the outputs; beyond this compilers spill.
_MAX_REGISTERS = 32
# Vec4s of each invocation's sums that are put together at a time, in 16 bytes of workgroup memory each.
_MERGED = 4
MAX_SPLITS = 1024
# Keys that a group of lanes takes at a time, where they are read four and eight numbers at one go; more leave
# registers for fewer workgroups at a time.
_AHEAD = 2
_AHEAD_WIDE = 4
# Lanes that share a key, at least.
_LANES = 8
# Numbers of a half type, or codes, that are read at one go.
_WIDE = 8
# Three workgroups to each of 132 cores, as many as registers allow; a software adapter has one per core.
_BUSY_WORKGROUPS = 396
_BUSY_SOFTWARE = 4


def choose_splits(keys: int, block: int, workgroups: int, software: bool) -> int:
    """How many splits keep a device busy that would otherwise run ``workgroups`` workgroups, in one go.

    As few as take no more steps than the most that fit; a step takes ``block`` keys.
    """
    busy = _BUSY_SOFTWARE if software else _BUSY_WORKGROUPS
    most = max(1, min(busy // workgroups, MAX_SPLITS))
    blocks = -(-keys // block)
    steps = -(-blocks // most)
    return -(-blocks // steps)


class Walk(NamedTuple):
    """Which keys a split takes.

    Attributes
    ----------
    split_first : int
        From the begin of one split to that of the next.
    split_span : int
        From a split's begin to behind its last key.
    split_stride : int
        From one step of a split to its next.
    """

    split_first: int
    split_span: int
    split_stride: int


def walk_of_splits(keys: int, splits: int, block: int, *, in_runs: bool) -> Walk:
    """Deal ``keys`` out to ``splits``: in blocks, one split after the other, or in runs of neighbours.

    Blocks are faster, as neighbours are read at the same time. Where they are too few there are only runs.
    """
    if in_runs or splits * block > keys:
        run = -(-keys // splits)
        return Walk(run, run, block)
    return Walk(block, keys, block * splits)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a workgroup of decode_split.wgsl is laid out; numbers of invocations are powers of two.

    Attributes
    ----------
    team : int
        Invocations that share an online softmax.
    lanes, value_lanes : int
        Those of a team that share a key, and a value.
    rows : int
        Query rows.
    ahead : int
        Keys that lanes take one after the other at a step.
    workgroup : int
    subgroups : bool
        Whether a team exchanges by shuffles.
    merged : int
        Vec4s of an invocation's sums that are put together at a time.
    """

    team: int
    lanes: int
    value_lanes: int
    rows: int
    ahead: int
    workgroup: int
    subgroups: bool
    merged: int

    @property
    def block(self) -> int:
        """Keys of a step."""
        return self.workgroup // self.lanes * self.ahead

    def constants(self) -> dict[str, object]:
        """The template's variables."""
        return {
            "TEAM": self.team,
            "LANES": self.lanes,
            "VALUE_LANES": self.value_lanes,
            "ROWS": self.rows,
            "PADDED": power_of_two(self.rows),
            "AHEAD": self.ahead,
            "WORKGROUP": self.workgroup,
            "MERGED": self.merged,
            "subgroups": self.subgroups,
        }


def power_of_two(n: int) -> int:
    """The smallest that is not less."""
    return 1 << (n - 1).bit_length()


def workgroup_shape(rows: int, dims: tuple[int, int], wide: tuple[bool, bool], info: AdapterInfo) -> Shape:
    """As many rows as fit into registers, and as few lanes to a key as that allows.

    Parameters
    ----------
    dims, wide : (int, int), (bool, bool)
        Numbers of a key and a value, and whether eight of them are read at one go.
    """
    pieces = [dim // (_WIDE if eight else 4) for dim, eight in zip(dims, wide, strict=True)]
    subgroups = info.subgroup_min_size >= 4
    team = min(info.subgroup_min_size, 32) if subgroups else _SMALL_TEAM
    fitting = max(1, min(rows, team, _MAX_REGISTERS * team // max(dims)))
    needed = max(_LANES, fitting, -(-dims[0] * fitting // _MAX_REGISTERS))
    lanes = min(team, max(power_of_two(fitting), min(power_of_two(needed), power_of_two(pieces[0]))))
    value_lanes = max(lanes, min(team, power_of_two(pieces[1])))
    if not subgroups:
        team = value_lanes = lanes
    workgroup = _WORKGROUP if subgroups else _SMALL_WORKGROUP
    ahead = _AHEAD_WIDE if all(wide) else _AHEAD
    # A software adapter compiles longer for more workgroup memory.
    merged = 1 if info.software else _MERGED
    return Shape(team, lanes, value_lanes, fitting, ahead, workgroup, subgroups, merged)


def is_wide(dtype: str, form: turboquant.Format | None, dim: int) -> bool:
    """Whether rows of ``dim`` numbers are read eight at a time; not where signs of residuals follow them."""
    return dtype != "float32" and dim % _WIDE == 0 and not (form and form.qjl)
