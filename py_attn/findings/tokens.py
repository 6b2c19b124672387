"""Which keys of a text a label is about: by position, by the kind of token, and by the token itself."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Tokens that separate texts or end them, in the vocabularies of common models.
SEPARATORS = frozenset(
    {
        "[SEP]", "[EOS]", "[PAD]", "</s>", "<s>", "<sep>", "<eos>", "<pad>", "<end_of_turn>", "<|endoftext|>",
        "<|end_of_text|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|end|>", "<|eos|>",
    }
)  # fmt: skip

#: Bits of a key's kind.
SEPARATOR, PUNCTUATION = 1, 2

#: How far a nearby token may be.
NEARBY = 3

#: Labels that are shares of weight on a set of keys, in the order of the sums of a row.
KEY_SETS = ("previous", "next", "self", "same", "induction", "first", "separator", "punctuation", "nearby")


def kinds(tokens: Sequence[str]) -> npt.NDArray[np.uint32]:
    """Whether each token is a separator, or punctuation: bits, uint32 [n].

    The first token is no separator, as it has a label of its own. A token is punctuation if all its
    characters belong to a Unicode category of punctuation, whatever space or ``##`` stands before them.
    """
    found = np.zeros(len(tokens), np.uint32)
    for index, token in enumerate(tokens):
        text = _bare(token)
        if text in SEPARATORS:
            found[index] = SEPARATOR if index else 0
        elif all(unicodedata.category(character).startswith("P") for character in text):
            found[index] = PUNCTUATION if text else 0
    return found


def identities(tokens: Sequence[str]) -> npt.NDArray[np.uint32]:
    """A number for each token, uint32 [n]: the same where they are the same word.

    Spaces around a token, and whether it is written in capitals, make no other word of it.
    """
    numbers: dict[str, int] = {}
    bare = (token.strip(" \u0120\u2581").casefold() or token for token in tokens)
    return np.array([numbers.setdefault(text, len(numbers)) for text in bare], np.uint32)


def key_sets(tokens: Sequence[str], rows: Array, *, causal: bool) -> dict[str, Array]:
    """The keys that each label of :data:`KEY_SETS` is about.

    Parameters
    ----------
    tokens : sequence of str
        [n].
    rows : array
        Positions of queries, int [r].
    causal : bool
        Whether no query sees a later key; only then there are keys of induction.

    Returns
    -------
    dict
        For each label bool [r, n].
    """
    i, j = np.asarray(rows)[:, None], np.arange(len(tokens))[None, :]
    kind, identity = kinds(tokens), identities(tokens)
    before = np.concatenate([[-1], identity[:-1].astype(np.int64)])
    own = identity[rows][:, None]
    distance = np.abs(i - j)
    sets = {
        "previous": j == i - 1,
        "next": j == i + 1,
        "self": j == i,
        "same": (identity == own) & (i != j),
        "induction": (before == own) & (j < i) & causal,
        "first": (j == 0) & (i >= 0),
        "separator": ((kind & SEPARATOR) != 0)[None] & (i >= 0),
        "punctuation": ((kind & PUNCTUATION) != 0)[None] & (i >= 0),
        "nearby": (distance >= 1) & (distance <= NEARBY),
    }
    return {name: sets[name] for name in KEY_SETS}


def _bare(token: str) -> str:
    text = token.strip(" \u0120\u2581")
    return text[2:] if text.startswith("##") and len(text) > 2 else text
