"""What is asked of a language model, checked before anything is submitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from py_attn.arguments import check_int
from py_attn.models.llama_weights import Config

NOTHING_WRITTEN = "nothing was written yet; call start, generate or score first"


def check_ids(ids: Iterable[int], config: Config, longest: int) -> list[int]:
    """Token ids of a text of at most ``longest`` tokens; at least one."""
    checked = [check_int("ids", number) for number in as_list("ids", ids)]
    if not checked:
        raise ValueError("ids: expected at least one token, got none")
    wrong = next((n for n in checked if not 0 <= n < config.vocabulary), None)
    if wrong is not None:
        raise ValueError(f"ids: expected ids from 0 to {config.vocabulary - 1}, got {wrong}")
    if len(checked) > longest:
        raise ValueError(
            f"ids: expected at most {longest} tokens, which is what the context holds, got {len(checked)}"
        )
    return checked


def as_list(name: str, ids: Iterable[int]) -> list[int]:
    """The ids as a list, whose items are not checked yet."""
    try:
        return list(ids)
    except TypeError:
        raise TypeError(f"{name}: expected a sequence of token ids, got {ids!r}") from None


def check_heads_off(heads: Iterable[tuple[int, int]], config: Config) -> frozenset[tuple[int, int]]:
    """Pairs of a layer and a head that the model has."""
    try:
        pairs = [(layer, head) for layer, head in heads]
    except (TypeError, ValueError):
        raise TypeError(f"heads_off: expected pairs of a layer and a head, got {heads!r}") from None
    checked = frozenset((check_int("heads_off", a), check_int("heads_off", b)) for a, b in pairs)
    for layer, head in checked:
        if not (0 <= layer < config.layers and 0 <= head < config.heads):
            raise ValueError(
                f"heads_off: expected layers from 0 to {config.layers - 1} and heads from 0 to "
                f"{config.heads - 1}, got {(layer, head)}"
            )
    return checked


def check_count(max_new_tokens: object) -> int:
    """How many tokens are to be written at most."""
    count = check_int("max_new_tokens", max_new_tokens)
    if count < 0:
        raise ValueError(f"max_new_tokens: expected a number >= 0, got {count}")
    return count


def check_seed(seed: object) -> int:
    """A seed, which the GPU holds in 32 bits."""
    number = check_int("seed", seed)
    if not 0 <= number < 2**32:
        raise ValueError(f"seed: expected a number from 0 to {2**32 - 1}, got {number}")
    return number


def check_stop(stop: object) -> tuple[str, ...]:
    """The texts that end a text."""
    ends = (stop,) if isinstance(stop, str) else stop
    if not isinstance(ends, Sequence) or not all(isinstance(end, str) for end in ends):
        raise TypeError(f"stop: expected a text or a list of texts, got {stop!r}")
    if "" in ends:
        raise ValueError(f"stop: expected texts that are not empty, got {stop!r}")
    return tuple(ends)
