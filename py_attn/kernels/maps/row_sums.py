"""Sums over the keys of each row of attention weights, from which the labels of heads are computed."""

from __future__ import annotations

from py_attn.arguments import check_int
from py_attn.findings.scores import SUMS
from py_attn.findings.tokens import NEARBY, PUNCTUATION, SEPARATOR
from py_attn.gpu.kernel import Arg, Kernel, NewTensor, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.nn.checks import check_packed, check_rank

_ROW_SUMS = Kernel(
    "row_sums",
    "maps/row_sums.wgsl",
    ParamsLayout(
        rows="u32",
        rows_of_head="u32",
        keys="u32",
        row_begin="u32",
        row_step="u32",
        causal="u32",
        weights_first="u32",
        kinds_first="u32",
        identities_first="u32",
    ),
)
_WORKGROUP = 64


def row_sums(
    weights: Tensor,
    kinds: Tensor,
    identities: Tensor,
    *,
    row_begin: int = 0,
    row_step: int = 1,
    causal: bool = False,
) -> Tensor:
    """What :func:`py_attn.findings.scores.row_sums` computes, in float32.

    Parameters
    ----------
    weights : Tensor
        float32 [..., r, n]: row number m is that of the query at ``row_begin + m * row_step``.
    kinds, identities : Tensor
        uint32 [n], of each key: see :mod:`py_attn.findings.tokens`.
    causal : bool
        Whether no query sees a later key.

    Returns
    -------
    Tensor
        float32 [..., r, len(SUMS)].

    Raises
    ------
    ValueError, TypeError
        For a tensor of another shape or dtype, with gaps, destroyed, or on another device than ``weights``;
        for rows that are not among the keys' positions.
    """
    given = {"weights": weights, "kinds": kinds, "identities": identities}

    def make() -> Planned:
        check_rank("weights", weights, 2)
        rows, keys = weights.shape[-2:]
        check_packed("weights", weights, weights.shape, "float32", weights.device)
        for name in ("kinds", "identities"):
            check_packed(name, given[name], (keys,), "uint32", weights.device)
        begin, step = check_int("row_begin", row_begin), check_int("row_step", row_step)
        if begin < 0 or step < 1 or (rows and begin + (rows - 1) * step >= keys):
            raise ValueError(
                f"row_begin, row_step: expected {rows} rows inside 0 to {keys}, got them from {begin} on in "
                f"steps of {step}"
            )
        return Planned(weights.device, _plan(given, begin, step, causal=bool(causal)), given)

    return run_call("row_sums", given, (row_begin, row_step, causal), make)["out"]


def _plan(given: dict[str, Tensor], begin: int, step: int, *, causal: bool) -> Plan:
    weights = given["weights"]
    rows, keys = weights.shape[-2:]
    out = NewTensor("out", (*weights.shape[:-1], len(SUMS)))
    if not weights.size:
        return Plan((out,), ())
    only = launch(
        _ROW_SUMS,
        [
            Arg("weights", "f32"),
            Arg("kinds", "u32"),
            Arg("identities", "u32"),
            Arg("out", "f32", writes=True),
        ],
        given,
        weights.device.info.limits,
        variant="rows",
        workgroups=weights.size // keys,
        params={
            "rows": weights.size // keys,
            "rows_of_head": rows,
            "keys": keys,
            "row_begin": begin,
            "row_step": step,
            "causal": int(causal),
        },
        constants={
            "WORKGROUP": _WORKGROUP,
            "separator": SEPARATOR,
            "punctuation": PUNCTUATION,
            "nearby": NEARBY,
        },
        grid_name="weights",
    )
    return Plan((out,), (only,))
