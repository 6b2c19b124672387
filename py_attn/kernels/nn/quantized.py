"""Matrices that stay quantised on the GPU, in ggml's block formats, and the embedding of tokens from one.

ggml (https://github.com/ggml-org/ggml, ``ggml-common.h``) keeps 32 neighbouring weights of a row in a block:
codes q, and one or two float16 numbers d and m. Q4_1: weight = q · d + m with q from 0 to 15; Q8_0: weight =
q · d with q from -128 to 127. ``shaders/lib/quantized.wgsl`` says how the blocks lie in GPU memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from py_attn.arguments import check_positive
from py_attn.gpu.device import Device
from py_attn.gpu.kernel import Arg, Kernel, Launch, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.nn.checks import check_devices, check_log, check_rank
from py_attn.kernels.steps import READS_STATE, STATE_PARAMS, check_state

BLOCK = 32
Format = Literal["Q4_1", "Q8_0"]
_WORKGROUP = 64


class _Layout(NamedTuple):
    """Bytes of a block in a file, and words of its codes on the GPU."""

    file_bytes: int
    code_words: int


_LAYOUTS: dict[str, _Layout] = {"Q4_1": _Layout(20, 4), "Q8_0": _Layout(34, 8)}
_PACK = Kernel(
    "pack_quantized",
    "nn/pack_quantized.wgsl",
    ParamsLayout(blocks="u32", row_first="u32", row_step="u32", blocks_first="u32"),
)
_EMBED = Kernel(
    "embed_tokens",
    "nn/embed_tokens.wgsl",
    ParamsLayout(
        **STATE_PARAMS,
        count="u32",
        tokens_first="u32",
        x_first="u32",
        weight_first="u32",
    ),
)


@dataclass(frozen=True)
class QuantizedMatrix:
    """A matrix [rows, inner] of quantised weights on the GPU, as :func:`pack_quantized` makes it.

    Attributes
    ----------
    data : Tensor
        uint32: the codes of all blocks, row by row (Q4_1: four words each, Q8_0: eight), then a word for each
        block with the float16 numbers d (low half) and m (high half, 0 for Q8_0).
    rows, inner : int
        ``inner`` is a multiple of 32.
    format : "Q4_1" or "Q8_0"
    """

    data: Tensor
    rows: int
    inner: int
    format: Format

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return self.rows * self.inner // BLOCK

    @property
    def nbytes(self) -> int:
        """Bytes of GPU memory."""
        return self.data.nbytes

    def destroy(self) -> None:
        """Free the memory."""
        self.data.destroy()

    def options(self) -> tuple[Any, ...]:
        """What a plan depends on, besides the tensor."""
        return self.rows, self.inner, self.format

    def constants(self) -> dict[str, Any]:
        """The template variables of ``lib/quantized.wgsl``."""
        return {"format": self.format, "BLOCKS": self.blocks}


WEIGHT = Arg("weight", "vec4<u32>")


def check_matrix(name: str, matrix: object, device: Device) -> QuantizedMatrix:
    """Return ``matrix``.

    Raises
    ------
    TypeError, ValueError
        When it is no QuantizedMatrix, its data do not fit its sizes or format, were destroyed, or are on
        another device.
    """
    if not isinstance(matrix, QuantizedMatrix):
        raise TypeError(f"{name}: expected a QuantizedMatrix, got {type(matrix).__name__}")
    check_sizes(name, matrix.rows, matrix.inner, matrix.format)
    data = matrix.data
    check_devices({f"{name}.data": data}, device)
    words = matrix.blocks * (_LAYOUTS[matrix.format].code_words + 1)
    if data.dtype != "uint32" or data.shape != (words,) or data.strides != (1,) or data.offset % 4:
        raise ValueError(
            f"{name}.data: expected uint32 [{words}] for {matrix.format} [{matrix.rows}, {matrix.inner}],"
            f" without gaps and from a multiple of 4 elements on, got {data.dtype} {list(data.shape)} with"
            f" strides {list(data.strides)} from element {data.offset} on"
        )
    return matrix


def check_sizes(name: str, rows: object, inner: object, form: object) -> None:
    """Raise unless a matrix of this format can have these sizes."""
    if form not in get_args(Format):
        raise ValueError(f"{name}: expected the format {' or '.join(get_args(Format))}, got {form!r}")
    check_positive(f"{name}: rows", rows)
    if check_positive(f"{name}: inner", inner) % BLOCK:
        raise ValueError(
            f"{name}: inner: expected a multiple of {BLOCK}, the weights of a block, got {inner}"
        )


def pack_quantized(
    blocks: Sequence[Tensor], rows: Sequence[int], inner: int, format: Format, *, interleave: bool = False
) -> QuantizedMatrix:
    """One matrix of the rows of several, whose blocks are as in a GGUF file; rearranged on the GPU.

    Parameters
    ----------
    blocks : sequence of Tensor
        A uint32 tensor for each matrix: the bytes of its blocks (20 a block for Q4_1, 34 for Q8_0), row by
        row, in little-endian words. Where the bytes end within a word, the rest of it is passed over.
    rows : sequence of int
        The number of rows of each matrix.
    inner : int
        The length of a row, a multiple of 32.
    format : "Q4_1" or "Q8_0"
    interleave : bool
        Row 0 of all matrices first, then row 1 of all, …; else the matrices stand one below the other.

    Returns
    -------
    QuantizedMatrix
        [sum of rows, inner].

    Raises
    ------
    ValueError, TypeError
        For an unknown format, sizes that do not fit the tensors, tensors of another dtype or with gaps, of
        several devices, or destroyed ones; for matrices of different numbers of rows with ``interleave``.
    """
    names = [f"blocks[{n}]" for n in range(len(blocks))]

    def make() -> Planned:
        if not blocks or len(rows) != len(blocks):
            raise ValueError(
                f"rows: expected a number for each of one or more blocks, got {len(rows)} for {len(blocks)}"
            )
        check_rank(names[0], blocks[0], 1)
        device: Device = blocks[0].device
        for name, tensor, count in zip(names, blocks, rows, strict=True):
            check_sizes(name, count, inner, format)
            _check_blocks(name, tensor, count * inner // BLOCK * _LAYOUTS[format].file_bytes, device)
        if interleave and len(set(rows)) > 1:
            raise ValueError(
                f"rows: expected equal numbers of rows, which can be interleaved, got {list(rows)}"
            )
        given = dict(zip(names, blocks, strict=True))
        return Planned(device, _plan_packing(given, rows, inner, format, interleave), given)

    tensors = dict(zip(names, blocks, strict=True))
    result = run_call("pack_quantized", tensors, (tuple(rows), inner, format, interleave), make)
    return QuantizedMatrix(result["weight"], sum(rows), inner, format)


def _check_blocks(name: str, tensor: Any, nbytes: int, device: Device) -> None:
    check_devices({name: tensor}, device)
    words = -(-nbytes // 4)
    if tensor.dtype != "uint32" or tensor.shape != (words,) or tensor.strides != (1,):
        raise ValueError(
            f"{name}: expected uint32 [{words}] without gaps, the {nbytes:,} bytes of its blocks, got"
            f" {tensor.dtype} {list(tensor.shape)} with strides {list(tensor.strides)}"
        )


def _plan_packing(
    given: dict[str, Tensor], rows: Sequence[int], inner: int, form: Format, interleave: bool
) -> Plan:
    limits = next(iter(given.values())).device.info.limits
    blocks_of_row = inner // BLOCK
    blocks = sum(rows) * blocks_of_row
    launches: list[Launch] = []
    for n, name in enumerate(given):
        launches.append(
            launch(
                _PACK,
                [Arg("blocks", "u32", tensor=name), Arg("weight", "u32", writes=True)],
                given,
                limits,
                variant=form,
                workgroups=-(-rows[n] * blocks_of_row // _WORKGROUP),
                params={
                    "blocks": rows[n] * blocks_of_row,
                    "row_first": n if interleave else sum(rows[:n]),
                    "row_step": len(rows) if interleave else 1,
                },
                constants={
                    "format": form,
                    "BLOCKS": blocks,
                    "BLOCKS_OF_ROW": blocks_of_row,
                    "WORKGROUP": _WORKGROUP,
                },
                grid_name=name,
            )
        )
    weight = NewTensor("weight", (blocks * (_LAYOUTS[form].code_words + 1),), "uint32")
    return Plan((weight,), tuple(launches))


def embed_tokens(tokens: Tensor, table: QuantizedMatrix, x: Tensor, state: Tensor, *, count: int = 1) -> None:
    """Write the embeddings of ``count`` tokens: ``x[n] = table[tokens[n]]`` for n from the position on.

    Parameters
    ----------
    tokens : Tensor
        uint32 ids, one for each token of the text, fewer than ``table.rows``; they are not checked.
    table : QuantizedMatrix
        [vocabulary, width].
    x : Tensor
        float32 [history, width], of which the rows from the position on are written.
    state : Tensor
        As :func:`py_attn.kernels.steps.new_state` makes it; its position plus ``count`` must not exceed the
        history, which is not checked.
    count : int

    Raises
    ------
    ValueError, TypeError
        For a tensor of another shape or dtype, with gaps, destroyed, or on another device than ``x``.
    """
    if not isinstance(table, QuantizedMatrix):
        raise TypeError(f"table: expected a QuantizedMatrix, got {type(table).__name__}")

    def make() -> Planned:
        check_positive("count", count)
        check_state(state)
        check_log("x", x, table.inner)
        check_matrix("table", table, x.device)
        check_devices({"tokens": tokens, "state": state}, x.device)
        if tokens.dtype != "uint32" or tokens.ndim != 1 or tokens.strides != (1,):
            raise ValueError(f"tokens: expected uint32 [history], got {tokens.dtype} {list(tokens.shape)}")
        only = launch(
            _EMBED,
            [Arg("tokens", "u32"), WEIGHT, READS_STATE, Arg("x", "vec4<f32>", writes=True)],
            tensors,
            x.device.info.limits,
            variant=table.format,
            workgroups=-(-count * table.inner // 8 // _WORKGROUP),
            params={"count": count},
            constants={**table.constants(), "INNER": table.inner, "WORKGROUP": _WORKGROUP},
            grid_name="count",
        )
        return Planned(x.device, Plan((), (only,)), tensors)

    tensors = {"tokens": tokens, "weight": table.data, "x": x, "state": state}
    run_call("embed_tokens", tensors, (count, *table.options()), make)


__all__ = ["BLOCK", "Format", "QuantizedMatrix", "embed_tokens", "pack_quantized"]
