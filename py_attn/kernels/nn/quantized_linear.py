"""How a product of a quantised matrix with tokens is planned, with what stands before and behind it.

:func:`plan_linear` is where a kernel is chosen for a product: ``shaders/nn/quantized_matmul.wgsl`` for many
tokens on a GPU, else ``shaders/nn/quantized_linear.wgsl``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from py_attn.gpu.bridge import AdapterInfo
from py_attn.gpu.kernel import Arg, Kernel, Launch, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import SUBGROUP_ID
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.nn.quantized import BLOCK, WEIGHT, QuantizedMatrix
from py_attn.kernels.nn.quantized_matmul import MatmulConfig, configure_matmul
from py_attn.kernels.operands import power_of_two
from py_attn.kernels.steps import READS_STATE

Prologue = Literal["rms_norm", "inputs", "partials"]
Epilogue = Literal["residual", "rope", "gated", "plain"]

_PARAMS = ParamsLayout(
    count="u32",
    first_row="u32",
    epsilon="f32",
    first_slot="u32",
    capacity="u32",
    kept="u32",
    key_strides="vec2<u32>",
    value_strides="vec2<u32>",
    weight_first="u32",
    state_first="u32",
    x_first="u32",
    norm_first="u32",
    inputs_first="u32",
    partial_out_first="u32",
    partial_rows_first="u32",
    head_scale_first="u32",
    rope_first="u32",
    query_first="u32",
    key_first="u32",
    value_first="u32",
)
_NO_PARAMS: dict[str, Any] = {
    "first_row": 0,
    "epsilon": 0.0,
    "first_slot": 0,
    "capacity": 0,
    "kept": 0,
    "key_strides": (0, 0),
    "value_strides": (0, 0),
}
_NAMES = ("project_qkv", "add_projection", "gated_linear", "logits")
_KERNELS = {name: Kernel(name, "nn/quantized_linear.wgsl", _PARAMS) for name in _NAMES}
_MATMULS = {name: Kernel(name, "nn/quantized_matmul.wgsl", _PARAMS) for name in _NAMES}

# The most lanes of a team, and the fewest that shuffles are worth while for.
_LANES, _FEWEST_LANES = 32, 8
# Parts of each row, times rows and tokens, for which an invocation asks before it uses the first.
_AHEAD = 12
# Bytes of workgroup memory for everything but combined partials.
_OTHER_BYTES = 8192
# So many rows keep every adapter busy with four rows for each team.
_MANY_ROWS = 8192


@dataclass(frozen=True, slots=True)
class LinearConfig:
    """What one product is compiled with; the head of ``quantized_linear.wgsl`` says what the numbers mean.

    Attributes
    ----------
    lanes : int
        Invocations that share rows of the matrix, a power of two. More than one exchange their sums.
    rows_each : int
        Rows of the matrix that they share, even.
    tokens_each : int
        Tokens that they multiply the rows with.
    words : int
        Words of a block that an invocation takes at a time: 1, or 4 for whole blocks.
    ahead : int
        Parts of a row that an invocation loads before it uses the first.
    workgroup : int
    subgroups : bool
        Whether lanes exchange by shuffles; they then are at most as many as the smallest subgroup has.
    """

    lanes: int
    rows_each: int
    tokens_each: int
    words: int
    ahead: int
    workgroup: int
    subgroups: bool

    @property
    def label(self) -> str:
        """The variant's name in timings and errors."""
        tokens = f"x{self.tokens_each}" if self.tokens_each > 1 else ""
        lanes = f"{self.lanes} lanes" if self.lanes > 1 else "1 lane"
        return f"{self.rows_each}{tokens}, {lanes}{', subgroup' if self.subgroups else ''}"

    def workgroups(self, rows: int, count: int) -> int:
        """Workgroups for a matrix of so many rows and ``count`` tokens."""
        teams = -(-rows // self.rows_each) * -(-count // self.tokens_each)
        return -(-teams * self.lanes // self.workgroup)

    def constants(self) -> dict[str, Any]:
        """The template's variables."""
        return {
            "LANES": self.lanes,
            "ROWS_EACH": self.rows_each,
            "TOKENS_EACH": self.tokens_each,
            "WORDS": self.words,
            "AHEAD": self.ahead,
            "WORKGROUP": self.workgroup,
        }


def configure(info: AdapterInfo, rows: int, inner: int, count: int) -> LinearConfig | MatmulConfig:
    """The configuration for a matrix [rows, inner] and ``count`` tokens, by static rules."""
    matmul = configure_matmul(info, rows, count)
    if matmul is not None:
        return matmul
    if info.software:
        # Such an adapter takes most of its time for loads: an invocation loads x once for many rows, and
        # codes once for many tokens. Small workgroups are spread over its cores more evenly.
        tokens_each = min(8, power_of_two(count))
        return LinearConfig(1, 16, tokens_each, 4, 1, 8, False)
    subgroups = info.subgroup_min_size >= _FEWEST_LANES
    lanes = min(_LANES, info.subgroup_min_size) if subgroups else _LANES
    rows_each = 4 if rows >= _MANY_ROWS else 2
    if count == 1:
        # Whole blocks: fewer and wider loads are worth more than busier lanes (bench/NOTES.md).
        return LinearConfig(lanes, rows_each, 1, 4, 1, 128, subgroups)
    tokens_each = 4
    steps = -(-inner * 4 // BLOCK // lanes)
    ahead = max(
        n for n in range(1, steps + 1) if n == 1 or (not steps % n and n * rows_each * tokens_each <= _AHEAD)
    )
    return LinearConfig(lanes, rows_each, tokens_each, 1, ahead, 128, subgroups)


@dataclass(frozen=True)
class Linear:
    """One product with what stands before and behind it.

    Attributes
    ----------
    name : str
        The function whose product it is.
    weight : QuantizedMatrix
    count : int
        The number of tokens.
    prologue, epilogue : str
        As at the head of ``quantized_linear.wgsl``.
    args : sequence of Arg
        The buffers besides ``weight`` and ``state``.
    has_state : bool
        Whether rows are counted from the state's position on.
    params, constants : mapping
        Those that the prologue and the epilogue need.
    """

    name: str
    weight: QuantizedMatrix
    count: int
    prologue: Prologue
    epilogue: Epilogue
    args: Sequence[Arg]
    has_state: bool = True
    params: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)


def plan_linear(
    linear: Linear,
    tensors: Mapping[str, Tensor],
    info: AdapterInfo,
    config: LinearConfig | MatmulConfig | None,
) -> Launch:
    """The launch of a product; ``config`` is chosen unless given."""
    weight = linear.weight
    config = config or configure(info, weight.rows, weight.inner, linear.count)
    is_matmul = isinstance(config, MatmulConfig)
    if is_matmul and linear.prologue == "partials":
        raise ValueError("config: expected a LinearConfig for inputs of splits, got a MatmulConfig")
    subgroups = isinstance(config, LinearConfig) and config.subgroups
    subgroup_ids = subgroups and SUBGROUP_ID in info.features
    shares = isinstance(config, LinearConfig) and config.lanes > 1
    fits = 4 * weight.inner + _OTHER_BYTES <= info.limits["maxComputeWorkgroupStorageSize"]
    args = [WEIGHT, *([READS_STATE] if linear.has_state else []), *linear.args]
    return launch(
        (_MATMULS if is_matmul else _KERNELS)[linear.name],
        args,
        tensors,
        info.limits,
        variant=f"{weight.format}, {config.label}",
        workgroups=config.workgroups(weight.rows, linear.count),
        params={**_NO_PARAMS, "count": linear.count, **linear.params},
        constants={
            **weight.constants(),
            "ROWS": weight.rows,
            "INNER": weight.inner,
            "prologue": linear.prologue,
            "epilogue": linear.epilogue,
            # Whether a workgroup combines the partials of splits once for all of its rows.
            "stages": linear.prologue == "partials" and shares and fits,
            "has_state": linear.has_state,
            "has_head_scale": any(arg.name == "head_scale" for arg in linear.args),
            **config.constants(),
            "subgroups": subgroups,
            "subgroup_ids": subgroup_ids,
            **linear.constants,
        },
        enable=("subgroups",) if subgroups else (),
        requires=(SUBGROUP_ID,) if subgroup_ids else (),
        grid_name="count",
    )
