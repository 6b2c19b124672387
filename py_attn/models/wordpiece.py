"""BERT's uncased tokenizer: text to WordPiece ids, as the published MiniLM was trained on.

Two steps, after Devlin et al. 2018 (https://arxiv.org/abs/1810.04805, ``tokenization.py`` of its release)
in the order of operations of the Rust ``tokenizers`` that today's models are published with:

1. Clean (drop control characters, any whitespace becomes a space), put spaces around CJK ideographs,
   decompose (NFD) and drop accents, lower-case, then split at whitespace and around each punctuation mark.
2. Split each word greedily into the longest pieces of the vocabulary, later ones written ``##piece``. A word
   that has no such split, or more than 100 characters, becomes ``[UNK]``.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

#: Longer words are not split but become [UNK]: the search takes time quadratic in the length.
MAX_WORD_CHARACTERS = 100

#: Written out in a text these are taken for the token itself, as the published tokenizer does.
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_SPECIAL = re.compile("(" + "|".join(re.escape(token) for token in SPECIAL_TOKENS) + ")")

#: What lies between the whitespace that surely separates; other whitespace is up to `_clean`.
_RUN = re.compile("[^ \\t\\n\\r]+")

#: Blocks of CJK ideographs. Hangul, Hiragana and Katakana are not among them: they are written in words.
_CJK_RANGES = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


@dataclass(frozen=True)
class Encoding:
    """A tokenised text.

    Attributes
    ----------
    ids : list[int]
        With [CLS] at the front and [SEP] at the end.
    tokens : list[str]
        The vocabulary's token for each id; one that continues a word begins with ``##``.
    truncated : bool
        Whether the end of the text was cut off to keep to the longest allowed length.
    """

    ids: list[int]
    tokens: list[str]
    truncated: bool


class WordPiece:
    """Tokenizer of one vocabulary.

    Parameters
    ----------
    vocabulary
        The text of ``vocab.txt``: one token a line, whose number (from 0) is its id.

    Raises
    ------
    ValueError
        A special token is missing, or a token occurs twice.
    """

    def __init__(self, vocabulary: str) -> None:
        # Not splitlines(): some vocabularies have U+2028 and the like as tokens.
        self.tokens = vocabulary.replace("\r\n", "\n").removesuffix("\n").split("\n")
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        if len(self.ids) != len(self.tokens):
            doubled = next(t for i, t in enumerate(self.tokens) if self.ids[t] != i)
            raise ValueError(f"vocabulary: token {doubled!r} is on two lines, expected each token once")
        missing = [token for token in SPECIAL_TOKENS if token not in self.ids]
        if missing:
            raise ValueError(
                f"vocabulary: expected {', '.join(missing)} among its {len(self.tokens)} lines"
                " (truncated or no BERT vocabulary?)"
            )

    def encode(self, text: str, max_length: int | None = None) -> Encoding:
        """Tokens and ids of a text, with [CLS] and [SEP] around them.

        Parameters
        ----------
        text
            Any string; an empty one gives just [CLS] [SEP].
        max_length
            Longest result, [CLS] and [SEP] counted in: pieces past it are cut off at the end of the text
            and ``truncated`` says so. None cuts nothing.

        Raises
        ------
        TypeError
            `text` is no string.
        ValueError
            `max_length` leaves no room for [CLS] and [SEP].
        """
        if not isinstance(text, str):
            raise TypeError(f"text: expected a string, got {type(text).__name__}")
        if max_length is not None and max_length < 2:
            raise ValueError(f"max_length: expected at least 2 for [CLS] and [SEP], got {max_length}")
        pieces: list[str] = []
        truncated = False
        for word in split_words(text):
            pieces += self._pieces(word)
            if max_length is not None and len(pieces) > max_length - 2:
                del pieces[max_length - 2 :]
                truncated = True
                break
        tokens = ["[CLS]", *pieces, "[SEP]"]
        return Encoding([self.ids[token] for token in tokens], tokens, truncated)

    def _pieces(self, word: str) -> list[str]:
        if word in self.ids:  # most words, and the special tokens
            return [word]
        if len(word) > MAX_WORD_CHARACTERS:
            return ["[UNK]"]
        pieces = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for stop in range(len(word), start, -1):
                piece = prefix + word[start:stop]
                if piece in self.ids:
                    break
            else:
                return ["[UNK]"]
            pieces.append(piece)
            start = stop
        return pieces


def split_words(text: str) -> Iterator[str]:
    """Normalised words and punctuation marks of a text, in order; special tokens stay as they are."""
    # As the pattern has one group, re.split returns the special tokens at odd indices.
    for number, part in enumerate(_SPECIAL.split(text)):
        if number % 2:
            yield part
        else:
            # A generator, so that a text that is truncated is not processed to its end.
            for run in _RUN.findall(part):
                yield from _split_plain(run)


def _split_plain(text: str) -> list[str]:
    spaced = "".join(map(_clean, text))
    bare = "".join(c for c in unicodedata.normalize("NFD", spaced) if unicodedata.category(c) != "Mn")
    # One character at a time: str.lower() on a whole word writes a last sigma differently.
    lowered = "".join(c.lower() for c in bare)
    return "".join(f" {c} " if _is_punctuation(c) else c for c in lowered).split()


def _clean(character: str) -> str:
    """What a character of the raw text becomes: itself, a space, nothing, or itself between spaces."""
    if character in "\t\n\r":
        return " "
    # Not Cn: whether a code point is assigned yet depends on the Unicode version of the reader.
    if character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs"):
        return ""
    if character.isspace():
        return " "
    if _is_cjk(ord(character)):
        return f" {character} "
    return character


def _is_cjk(code: int) -> bool:
    return any(first <= code <= last for first, last in _CJK_RANGES)


def _is_punctuation(character: str) -> bool:
    # ASCII symbols such as $ and ^ count too, though Unicode does not class them as punctuation.
    return character in string.punctuation or unicodedata.category(character).startswith("P")
