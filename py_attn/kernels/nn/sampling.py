"""Choosing the next token on the GPU: the likeliest, or a random one by temperature, top-k and top-p."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from py_attn.arguments import check_int, check_positive, check_real
from py_attn.gpu.kernel import Arg, Kernel, Plan, launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.calls import Planned, run_call
from py_attn.kernels.nn.checks import check_packed, check_rank
from py_attn.kernels.nn.distributions import check_vocabulary, logits_type, row_constants
from py_attn.kernels.steps import STATE_PARAMS, WORDS, WRITES_STATE, check_state

#: How many of the likeliest tokens are noted, likeliest first.
ALTERNATIVES = 10
MAX_END_TOKENS = 8
_ALTERNATIVES = ("alternative_ids", "alternative_log_probs")
_NO_TOKEN = 0xFFFFFFFF
# What float32 holds. At temperatures below its inverse only the likeliest token has a chance.
_LARGEST_INVERSE = 2e38
_CHOOSE_TOKEN = Kernel(
    "choose_token",
    "nn/choose_token.wgsl",
    ParamsLayout(
        vocabulary="u32",
        length="u32",
        advance="u32",
        top_k="f32",
        top_p="f32",
        inverse_temperature="f32",
        logits_first="u32",
        tokens_first="u32",
        log_probs_first="u32",
        alternative_ids_first="u32",
        alternative_log_probs_first="u32",
        **STATE_PARAMS,
        end_tokens_low="vec4<u32>",
        end_tokens_high="vec4<u32>",
    ),
)


class Sampling(NamedTuple):
    """How the next token is chosen; see :func:`choose_token`."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None


def check_sampling(temperature: object, top_k: object, top_p: object) -> Sampling:
    """The options as they were given, checked.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.
    """
    heat = check_real("temperature", temperature)
    if heat < 0:
        raise ValueError(f"temperature: expected a number >= 0, got {heat:g}")
    kept = None if top_k is None else check_int("top_k", top_k)
    if kept is not None and kept < 1:
        raise ValueError(f"top_k: expected a number >= 1 or None, got {kept}")
    share = None if top_p is None else check_real("top_p", top_p)
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"top_p: expected a number above 0 and up to 1, or None, got {share:g}")
    return Sampling(heat, kept, share)


def choose_token(
    logits_row: Tensor,
    tokens: Tensor,
    log_probs: Tensor,
    state: Tensor,
    *,
    advance: int = 1,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    end_tokens: Sequence[int] = (),
    alternatives: tuple[Tensor, Tensor] | None = None,
    invocations: int | None = None,
) -> None:
    """Choose the token at position p = POSITION + `advance`, unless it was given, and advance the state.

    Where p >= GIVEN, ``tokens[p]`` is chosen; else it stays what it is. ``log_probs[p]`` becomes its
    log-probability, chosen or given, at temperature 1 among all tokens. Then POSITION becomes p, and FINISHED
    1 where a chosen token is one of `end_tokens`. Where FINISHED was set before, or p is behind the end of
    `tokens`, nothing is written.

    At temperature 0 the likeliest token is chosen, of several the one with the smallest id. Else the choice
    is random, with probabilities softmax(logits / temperature) among those that `top_k`, then `top_p` leave:
    it is the argmax of logit / temperature + G, where G = -log(-log(u)) and u = ((h >> 8) + 0.5) / 2^24, and
    h is the first word of PCG3D(SEED, p, id) (Jarzynski & Olano 2020,
    https://jcgt.org/published/0009/03/02/). So the same seed repeats the same text.
    :mod:`py_attn.sampling_reference` computes the same in numpy.

    A logit of minus infinity is never chosen unless all are. NaN counts as larger than infinity, as for
    numpy's argmax. Where the largest logit is NaN or infinite, or all are minus infinity, there are no
    probabilities: the first of the largest logits is chosen, and log-probabilities are NaN.

    Parameters
    ----------
    logits_row : Tensor
        [vocabulary] or [1, vocabulary].
    tokens : Tensor
        uint32 [length]: the ids of the text.
    log_probs : Tensor
        float32 [length].
    state : Tensor
        See :mod:`py_attn.kernels.steps`.
    advance : int
        How many tokens the step processed.
    temperature : float
    top_k : int, optional
        Only the `top_k` largest logits and those that equal the least of them can be chosen.
    top_p : float, optional
        Only the likeliest tokens can be chosen, as few as have this probability together, and those that are
        as likely as the least of them. None and 1 leave all.
    end_tokens : sequence of int
        Up to 8 ids.
    alternatives : pair of Tensor, optional
        uint32 and float32 [length, 10]: row p becomes the ids of the ten likeliest tokens, likeliest first,
        the smaller id first where two are equally likely, and their log-probabilities. Where the vocabulary
        has fewer than ten, the rest are 0xffffffff and minus infinity.
    invocations : int, optional
        How many the workgroup has, a power of two; by default as many as suit the adapter.

    Raises
    ------
    ValueError, TypeError
        For a tensor of another shape or dtype, with gaps, destroyed, or on another device than `logits_row`;
        for a number outside its range.
    """
    if not isinstance(end_tokens, Sequence):
        raise TypeError(f"end_tokens: expected a sequence of ids, got {end_tokens!r}")
    tensors = {"logits": logits_row, "tokens": tokens, "log_probs": log_probs, "state": state}
    if alternatives is not None:
        if not isinstance(alternatives, (tuple, list)) or len(alternatives) != 2:
            raise TypeError(f"alternatives: expected a pair of tensors, got {alternatives!r}")
        tensors |= zip(_ALTERNATIVES, alternatives, strict=True)
    options = (advance, temperature, top_k, top_p, tuple(end_tokens), invocations, tuple(tensors))

    def make() -> Planned:
        vocabulary = _check_tensors(tensors)
        params, constants = _sampled(check_sampling(temperature, top_k, top_p), vocabulary)
        params |= {"advance": check_positive("advance", advance), **_end_tokens(end_tokens, vocabulary)}
        return Planned(logits_row.device, _plan(tensors, params, constants, invocations), tensors)

    run_call("choose_token", tensors, options, make)


def _check_tensors(given: dict[str, Tensor]) -> int:
    """The length of the vocabulary."""
    logits, tokens = given["logits"], given["tokens"]
    check_rank("logits_row", logits, 1)
    check_rank("tokens", tokens, 1)
    device, vocabulary = logits.device, check_vocabulary("logits_row", logits)
    length = tokens.shape[0]
    if logits.size != vocabulary:
        raise ValueError(f"logits_row: expected one row, got shape {list(logits.shape)}")
    check_packed("logits_row", logits, logits.shape, "float32", device)
    check_packed("tokens", tokens, (length,), "uint32", device)
    check_packed("log_probs", given["log_probs"], (length,), "float32", device)
    check_packed("state", check_state(given["state"]), (WORDS,), "uint32", device)
    for name, dtype in zip(_ALTERNATIVES, ("uint32", "float32"), strict=True):
        if name in given:
            check_packed(name, given[name], (length, ALTERNATIVES), dtype, device)
    return vocabulary


def _sampled(sampling: Sampling, vocabulary: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Params and constants of what is asked for; what would change nothing is left out."""
    heat = sampling.temperature
    kept = vocabulary if sampling.top_k is None else min(sampling.top_k, vocabulary)
    share = 1.0 if sampling.top_p is None else sampling.top_p
    params = {
        "top_k": kept,
        "top_p": share,
        "inverse_temperature": min(1 / heat, _LARGEST_INVERSE) if heat else 0.0,
    }
    constants = {
        "SAMPLED": heat > 0,
        "HAS_TOP_K": kept < vocabulary,
        "HAS_TOP_P": share < 1,
    }
    return params, constants


def _end_tokens(end_tokens: Sequence[object], vocabulary: int) -> dict[str, list[int]]:
    ids = [check_int("end_tokens", token) for token in end_tokens]
    wrong = next((token for token in ids if not 0 <= token < vocabulary), None)
    if wrong is not None:
        raise ValueError(f"end_tokens: expected ids from 0 to {vocabulary - 1}, got {wrong}")
    if len(ids) > MAX_END_TOKENS:
        raise ValueError(f"end_tokens: expected at most {MAX_END_TOKENS}, got {len(ids)}")
    ids += [_NO_TOKEN] * (MAX_END_TOKENS - len(ids))
    return {"end_tokens_low": ids[:4], "end_tokens_high": ids[4:]}


def _plan(
    given: dict[str, Tensor], params: dict[str, Any], constants: dict[str, Any], invocations: int | None
) -> Plan:
    logits, info = given["logits"], given["logits"].device.info
    types = {"logits": "f32", "tokens": "u32", "log_probs": "f32"}
    types |= {name: kind for name, kind in zip(_ALTERNATIVES, ("u32", "f32"), strict=True) if name in given}
    shared = row_constants((logits,), info, invocations)
    types["logits"] = logits_type(shared)
    only = launch(
        _CHOOSE_TOKEN,
        [*(Arg(name, kind, writes=name != "logits") for name, kind in types.items()), WRITES_STATE],
        given,
        info.limits,
        variant="sampled" if constants["SAMPLED"] else "likeliest",
        workgroups=1,
        params={"vocabulary": logits.shape[-1], "length": given["tokens"].shape[0], **params},
        constants={**shared, **constants, "HAS_ALTERNATIVES": _ALTERNATIVES[0] in given},
        grid_name="logits_row",
    )
    return Plan((), (only,))
