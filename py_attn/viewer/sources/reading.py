"""How tokens are read: which make a word, which are special, and what can be done with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from py_attn.viewer.sources.source import Source
from py_attn.viewer.sources.words import special_positions, word_starts

#: Longer inputs are shown token by token: a map of words needs all weights of its tokens on the host.
MAX_READ_LENGTH = 4096

Special = Literal["show", "hide", "renormalise"]


class Reading(NamedTuple):
    """How tokens are read.

    Attributes
    ----------
    words : bool
        Whether the pieces of a word become one row and one column: attention to a word is the sum over its
        pieces, attention from it the mean over them (Clark et al., arXiv 1906.04341).
    special : str
        "show"; "hide" to leave out the rows and columns of special tokens; or "renormalise" to divide each
        row by the sum of what is left of it, too. A row of which nothing is left stays zero.
    """

    words: bool = False
    special: Special = "show"


def specials(source: Source) -> frozenset[int]:
    """The positions of special tokens, as the tokenizer says, or else by how they look."""
    return special_positions(source.tokens) if source.special is None else source.special


def words(source: Source) -> list[range]:
    """The positions of each word, in order; every other token stands alone."""
    starts = word_starts(source.tokens, specials(source), spaced=is_spaced(source))
    return [range(a, b) for a, b in zip(starts, [*starts[1:], len(source.tokens)], strict=True)]


def is_spaced(source: Source) -> bool:
    """Whether its tokens are SmolLM2's, of which those that begin a word begin with a space."""
    return source.kind == "written"


def possible(source: Source, reading: Reading | None) -> dict[str, Any]:
    """What can be read in another way, as plain data.

    Returns
    -------
    dict
        ``canMergeWords``: whether a word has several pieces; ``specialTokens``: how many there are;
        ``reading``: {"words", "special"} as it was asked for; ``readingNote``: what it does here, in words.
    """
    base, reading = source.base or source, reading or Reading()
    if base.kind == "synthetic":
        return _answer(0, 0, "Synthetic input has no words and no special tokens.", reading)
    if base.length > MAX_READ_LENGTH:
        note = f"Words and special tokens can be merged and hidden up to {MAX_READ_LENGTH:,} tokens."
        return _answer(0, 0, note, reading)
    merged = sum(len(word) > 1 for word in words(base))
    special = specials(base)
    names = list(dict.fromkeys(base.tokens[i] for i in sorted(special)))
    if len(special) == base.length:
        return _answer(0, 0, "All tokens are special, so none is hidden.", reading)
    return _answer(merged, len(special), _note(merged, names, reading), reading)


def _answer(merged: int, special: int, note: str, reading: Reading) -> dict[str, Any]:
    return {
        "canMergeWords": merged > 0,
        "specialTokens": special,
        "reading": {"words": reading.words, "special": reading.special},
        "readingNote": note if reading != Reading() else "",
    }


def _note(merged: int, names: Sequence[str], reading: Reading) -> str:
    parts = []
    if reading.words and merged:
        which = "1 word has" if merged == 1 else f"{merged:,} words have"
        parts.append(
            f"{which} several pieces: attention to a word is the sum over its pieces, from it their mean."
        )
    elif reading.words:
        parts.append("No word here has several pieces.")
    if reading.special != "show" and names:
        are = f"{_listed(names)} {'is' if len(names) == 1 else 'are'} hidden"
        if reading.special == "renormalise":
            parts.append(f"{are}; the weights of each row are renormalised to sum 1.")
        else:
            parts.append(f"{are}; rows sum to what is left of them.")
    elif reading.special != "show":
        parts.append("There are no special tokens here.")
    return " ".join(parts)


def _listed(names: Sequence[str]) -> str:
    if len(names) > 3:
        return f"{', '.join(names[:2])} and {len(names) - 2} other special tokens"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
