"""Statistics of the distributions that rows of logits stand for, in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from py_attn.arguments import check_positive
from py_attn.gpu.binding import most_invocations
from py_attn.gpu.bridge import AdapterInfo
from py_attn.gpu.kernel import Arg, Kernel, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.nn.checks import check_packed, check_rank

# Ids are given as float32 too, which holds integers exactly up to here.
_MAX_VOCABULARY = 1 << 24
_TOKEN_STATISTICS = Kernel(
    "token_statistics",
    "nn/token_statistics.wgsl",
    ParamsLayout(rows="u32", vocabulary="u32", logits_first="u32", targets_first="u32"),
)
_COMPARE_DISTRIBUTIONS = Kernel(
    "compare_distributions",
    "nn/compare_distributions.wgsl",
    ParamsLayout(rows="u32", vocabulary="u32", logits_a_first="u32", logits_b_first="u32"),
)


def token_statistics(logits: Tensor, targets: Tensor, *, invocations: int | None = None) -> Tensor:
    """How likely each target is, and how sure each distribution is.

    Where the largest logit of a row is NaN or infinite, or all are minus infinity, there are no
    probabilities, and the numbers that come from them are NaN.

    Parameters
    ----------
    logits : Tensor
        [n, vocabulary].
    targets : Tensor
        uint32 [n]: a token id for each row.
    invocations : int, optional
        How many a workgroup has, a power of two; by default as many as suit the adapter.

    Returns
    -------
    Tensor
        [n, 3]: the target's log-probability (NaN for an id outside the vocabulary), the id of the likeliest
        token (the smallest of several; the first NaN if there is one), and the entropy in nats.

    Raises
    ------
    ValueError, TypeError
        For a tensor of another shape or dtype, with gaps, destroyed, or on another device than `logits`.
    """

    def make() -> Planned:
        check_rank("logits", logits, 2)
        rows = logits.shape[0]
        check_packed("logits", logits, (rows, check_vocabulary("logits", logits)), "float32", logits.device)
        check_packed("targets", targets, (rows,), "uint32", logits.device)
        given = {"logits": logits, "targets": targets}
        plan = _plan(_TOKEN_STATISTICS, ("logits",), [Arg("targets", "u32")], given, invocations)
        return Planned(logits.device, plan, given)

    given = {"logits": logits, "targets": targets}
    return run_call("token_statistics", given, (invocations,), make)["out"]


def compare_distributions(logits_a: Tensor, logits_b: Tensor, *, invocations: int | None = None) -> Tensor:
    """How far each distribution of b is from that of a.

    Parameters
    ----------
    logits_a, logits_b : Tensor
        [n, vocabulary].
    invocations : int, optional
        How many a workgroup has, a power of two; by default as many as suit the adapter.

    Returns
    -------
    Tensor
        [n, 3]: the Kullback-Leibler divergence KL(a‖b) in nats, and the ids of a's and of b's likeliest
        token, as :func:`token_statistics` gives them. The divergence is never negative, infinite where a
        token is possible in a but has the logit minus infinity in b, and NaN where a or b has no
        probabilities.

    Raises
    ------
    ValueError, TypeError
        For a tensor of another shape or dtype, with gaps, destroyed, or on another device than `logits_a`.
    """

    def make() -> Planned:
        check_rank("logits_a", logits_a, 2)
        shape = logits_a.shape[0], check_vocabulary("logits_a", logits_a)
        for name, tensor in given.items():
            check_packed(name, tensor, shape, "float32", logits_a.device)
        plan = _plan(_COMPARE_DISTRIBUTIONS, tuple(given), [], given, invocations)
        return Planned(logits_a.device, plan, given)

    given = {"logits_a": logits_a, "logits_b": logits_b}
    return run_call("compare_distributions", given, (invocations,), make)["out"]


def _plan(
    kernel: Kernel, names: tuple[str, ...], more: list[Arg], given: dict[str, Tensor], invocations: int | None
) -> Plan:
    """A workgroup for each row of the logits of these names."""
    logits = tuple(given[name] for name in names)
    rows, vocabulary = logits[0].shape
    out = NewTensor("out", (rows, 3))
    if not rows:
        return Plan((out,), ())
    info = logits[0].device.info
    constants = row_constants(logits, info, invocations)
    only = launch(
        kernel,
        [*(Arg(name, logits_type(constants)) for name in names), *more, Arg("out", "f32", writes=True)],
        given,
        info.limits,
        variant="packed" if constants["PACKED"] else "unaligned",
        workgroups=rows,
        params={"rows": rows, "vocabulary": vocabulary},
        constants=constants,
        grid_name=names[0],
    )
    return Plan((out,), (only,))


def check_vocabulary(name: str, logits: Tensor) -> int:
    """The length of the rows of ``logits``."""
    vocabulary = logits.shape[-1]
    if not 1 <= vocabulary <= _MAX_VOCABULARY:
        raise ValueError(f"{name}: expected from 1 to {_MAX_VOCABULARY:,} tokens, got {vocabulary:,}")
    return vocabulary


def row_constants(rows: Sequence[Tensor], info: AdapterInfo, invocations: int | None) -> dict[str, Any]:
    """What templates that include lib/vocabulary.wgsl and lib/workgroup.wgsl are rendered with.

    Parameters
    ----------
    rows : sequence of Tensor
        The logits.
    info : AdapterInfo
    invocations : int, optional
        How many a workgroup has.
    """
    most = most_invocations(info.limits)
    if invocations is None:
        # On a CPU every invocation that waits at a barrier costs time.
        workgroup = 64 if info.software else min(1024, 1 << (most.bit_length() - 1))
    else:
        workgroup = check_positive("invocations", invocations)
        if workgroup > most or workgroup & (workgroup - 1):
            raise ValueError(f"invocations: expected a power of two of at most {most}, got {workgroup}")
    packed = not any(n % 4 for logits in rows for n in (logits.shape[-1], logits.offset))
    return {
        "WORKGROUP": workgroup,
        "PARTS": 1 << (workgroup.bit_length() - 1) // 2,
        "PACKED": packed,
    }


def logits_type(constants: dict[str, Any]) -> str:
    """The element type of the logits' bindings."""
    return "vec4<f32>" if constants["PACKED"] else "f32"
