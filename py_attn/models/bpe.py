"""Byte-level BPE: text to the ids of SmolLM2's vocabulary and back.

Four steps, after Sennrich et al. 2016 (https://arxiv.org/abs/1508.07909) on bytes as in GPT-2 (Radford et al.
2019), in the order of the Rust ``tokenizers`` library that the model was published with:

1. Special tokens that are written out in the text are taken as such.
2. What lies between them is split into words: each number character by itself; then contractions, runs of
   letters and runs of other characters, both with one space before them; then white space.
3. Each word's bytes become tokens. Bytes for which the vocabulary has no token are dropped, as the library
   does: SmolLM2 has none for some control characters and for the first byte of some rare characters.
4. Of all pairs of neighbours, the one that stands first in the list of merges becomes one token (of equal
   pairs the leftmost), until no pair stands in that list.
"""

from __future__ import annotations

import codecs
import functools
import heapq
import operator
import re
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, cast

import numpy as np

from py_attn.models.character_classes import LETTERS, NUMBERS, WHITE_SPACE
from py_attn.models.gguf import GGUF, shorten

#: Token types of a GGUF file that are recognised in a text: control and user-defined.
_SPECIAL_TYPES = (3, 4)

#: Words that are kept with their tokens. Longer ones than this are not kept.
_CACHED_WORDS = 1 << 15
_CACHED_CHARACTERS = 64


class BPE:
    """Tokenizer of one vocabulary.

    Parameters
    ----------
    tokens : sequence of str
        The text of each id. Apart from special tokens, each character stands for a byte, as in GPT-2's
        vocabulary.
    merges : sequence of str
        Pairs of tokens with a space between them, strongest first.
    special : collection of int
        The ids of the special tokens.

    Attributes
    ----------
    tokens : list[str]
        As in the file.
    special : dict[str, int]
        The special tokens and their ids.

    Raises
    ------
    ValueError
        A token or a merge occurs twice, or a merge is not made of two tokens of the vocabulary that make a
        third one.
    """

    def __init__(self, tokens: Sequence[str], merges: Sequence[str], special: Iterable[int] = ()) -> None:
        self.tokens = list(tokens)
        ids = dict(zip(self.tokens, range(len(self.tokens)), strict=True))
        if len(ids) != len(self.tokens):
            doubled = next(token for number, token in enumerate(self.tokens) if ids[token] != number)
            raise ValueError(f"tokenizer: token {doubled!r} occurs twice, expected each token once")
        if "" in ids:
            raise ValueError(f"tokenizer: token {ids['']} is empty, expected at least one character")
        self.special = {self.tokens[number]: number for number in special}
        # Longest first, as where two special tokens begin at the same place the longer one is meant.
        longest = sorted(self.special, key=len, reverse=True)
        self._special_pattern = re.compile("|".join(map(re.escape, longest))) if longest else None
        self._byte_ids = [ids.get(character, -1) for character in _BYTE_CHARACTERS]
        self._merges = _read_merges(merges, ids)
        self._words: dict[str, list[int]] = {}

    @classmethod
    def from_gguf(cls, file: GGUF) -> BPE:
        """The tokenizer that a GGUF file describes.

        Raises
        ------
        ValueError
            The file has no vocabulary, or one of another kind than SmolLM2's.
        """
        expected = {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.add_space_prefix": False,
            "tokenizer.ggml.add_bos_token": False,
        }
        for key, value in expected.items():
            # Files may leave out what is false.
            found = file.metadata.get(key, False)
            if not isinstance(found, str | bool) or found != value:
                raise ValueError(f"tokenizer: {key} is {shorten(found)}, expected {value!r}")
        tokens = _strings(file, "tokenizer.ggml.tokens")
        merges = _strings(file, "tokenizer.ggml.merges")
        types = file.metadata.get("tokenizer.ggml.token_type")
        if not isinstance(types, np.ndarray) or types.dtype != "<i4" or len(types) != len(tokens):
            raise ValueError(
                f"tokenizer: tokenizer.ggml.token_type must be an array of int32, one for each of the"
                f" {len(tokens)} tokens"
            )
        return cls(tokens, merges, np.flatnonzero(np.isin(types, _SPECIAL_TYPES)).tolist())

    def encode(self, text: str) -> list[int]:
        """The ids of a text.

        Raises
        ------
        TypeError
            `text` is no string.
        ValueError
            `text` has half of a surrogate pair, which is no character.
        """
        if not isinstance(text, str):
            raise TypeError(f"text: expected a string, got {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"text: expected characters, got the lone surrogate U+{ord(text[error.start]):04X} at index"
                f" {error.start}"
            ) from None
        ids: list[int] = []
        start = 0
        for found in self._special_pattern.finditer(text) if self._special_pattern else ():
            self._encode_plain(text[start : found.start()], ids)
            ids.append(self.special[found[0]])
            start = found.end()
        self._encode_plain(text[start:], ids)
        return ids

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The text of some ids; bytes that are no whole characters become U+FFFD.

        Raises
        ------
        TypeError, ValueError
            An id is no integer, or outside of the vocabulary.
        """
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, id: SupportsIndex) -> bytes:
        """The bytes that a token stands for."""
        return bytes_of(self.tokens[self.check_id(id)])

    def token_text(self, id: SupportsIndex) -> str:
        r"""A single token's text for display: bytes that are no whole characters as ``\xe2``."""
        return self.token_bytes(id).decode("utf-8", "backslashreplace")

    def check_id(self, id: SupportsIndex) -> int:
        """The id as an int.

        Raises
        ------
        TypeError, ValueError
            It is no integer, or outside of the vocabulary.
        """
        try:
            number = operator.index(id)
        except TypeError:
            raise TypeError(f"ids: expected integers, got {type(id).__name__}") from None
        if not 0 <= number < len(self.tokens):
            raise ValueError(f"ids: expected numbers from 0 to {len(self.tokens) - 1}, got {number}")
        return number

    def _encode_plain(self, text: str, ids: list[int]) -> None:
        """Append the ids of a text without special tokens."""
        for word in split_words(text):
            found = self._words.get(word)
            if found is None:
                found = self._merge([n for byte in word.encode() if (n := self._byte_ids[byte]) >= 0])
                if len(word) <= _CACHED_CHARACTERS:
                    if len(self._words) == _CACHED_WORDS:
                        self._words.clear()
                    self._words[word] = found
            ids += found

    def _merge(self, ids: list[int]) -> list[int]:
        """Merge neighbours until none can be merged, in time n log n."""
        count = len(ids)
        before = list(range(-1, count - 1))
        after = list(range(1, count + 1))
        waiting: list[tuple[int, int, int]] = []  # rank, index of the left one, merged id

        def add(left: int) -> None:
            if left >= 0 and after[left] < count:
                found = self._merges.get((ids[left], ids[after[left]]))
                if found is not None:
                    heapq.heappush(waiting, (found[0], left, found[1]))

        for index in range(count - 1):
            add(index)
        while waiting:
            rank, left, merged = heapq.heappop(waiting)
            right = after[left]
            # One of the two may have been merged with its other neighbour since.
            if right == count or self._merges.get((ids[left], ids[right]), (-1,))[0] != rank:
                continue
            ids[left], ids[right] = merged, -1
            after[left] = after[right]
            if after[left] < count:
                before[after[left]] = left
            add(before[left])
            add(left)
        return [number for number in ids if number >= 0]


class Stream:
    """Turns ids into text one by one, and never gives half a character.

    A character's bytes may lie in several tokens. They are kept back until it is complete.
    """

    def __init__(self, tokenizer: BPE) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: SupportsIndex) -> str:
        """The characters that this id completes; errors as of `BPE.decode`."""
        return self._decoder.decode(self._tokenizer.token_bytes(id))

    def end(self) -> str:
        """U+FFFD where bytes are left that are no whole character. The stream can be used again."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


def _byte_characters() -> list[str]:
    """The character that stands for each byte in GPT-2's vocabulary: printable ones for themselves."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


_BYTE_CHARACTERS = _byte_characters()
_BYTES = {character: byte for byte, character in enumerate(_BYTE_CHARACTERS)}


def bytes_of(token: str) -> bytes:
    """The bytes that a token of the vocabulary stands for."""
    try:
        return bytes([_BYTES[character] for character in token])
    except KeyError:  # a special token may have any characters
        return token.encode()


@functools.cache  # as it takes some time, which importing this module should not take
def _word_pattern() -> re.Pattern[str]:
    def members(ranges: str) -> str:
        return "".join(
            "-".join(rf"\U{int(code, 16):08x}" for code in item.split("-")) for item in ranges.split()
        )

    letter, number, space = map(members, (LETTERS, NUMBERS, WHITE_SPACE))
    return re.compile(
        f"[{number}]"
        "|'(?:[stmd]|re|ve|ll)"
        f"| ?[{letter}]+"
        f"| ?[^{space}{letter}{number}]+"
        # The last white space before a word stands alone, or is the space of that word. Numbers take none.
        f"|[{space}]+(?![^{space}{number}])"
        f"|[{space}]+"
    )


def split_words(text: str) -> list[str]:
    """The words of a text without special tokens; joined, they are that text."""
    return _word_pattern().findall(text)


def _strings(file: GGUF, key: str) -> list[str]:
    value: Any = file.metadata.get(key)
    if not isinstance(value, list):
        raise ValueError(f"tokenizer: {key} must be an array of strings, the file has {type(value).__name__}")
    return value


def _read_merges(merges: Sequence[str], ids: dict[str, int]) -> dict[tuple[int, int], tuple[int, int]]:
    """Rank and merged id of each pair of ids."""
    for rank, merge in enumerate(merges):
        if merge.count(" ") != 1:
            raise ValueError(
                f"tokenizer: merge {rank} is {merge!r}, expected two tokens with a space between"
            )
    parts = " ".join(merges).split(" ") if merges else []
    left, right = parts[::2], parts[1::2]
    columns = [list(map(ids.get, part)) for part in (left, right, map(operator.add, left, right))]
    for column in columns:
        if None in column:
            rank = column.index(None)
            raise ValueError(
                f"tokenizer: merge {rank}, {merges[rank]!r}, needs a token that the vocabulary lacks,"
                f" expected {left[rank]!r}, {right[rank]!r} and {left[rank] + right[rank]!r} in it"
            )
    pairs = dict(zip(zip(columns[0], columns[1], strict=True), enumerate(columns[2]), strict=True))
    if len(pairs) != len(merges):
        ranks = {merge: rank for rank, merge in enumerate(merges)}
        doubled = next(merge for rank, merge in enumerate(merges) if ranks[merge] != rank)
        raise ValueError(f"tokenizer: merge {doubled!r} occurs twice, expected each merge once")
    return cast("dict[tuple[int, int], tuple[int, int]]", pairs)
