"""Which tokens together make a word, and which are special: what can be told from their texts."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Collection, Sequence

#: Tokens that tokenizers add to mark a text's beginning, end, parts and padding. [UNK] and [MASK] stand for
#: words of the text, and are none of these.
_SPECIAL = re.compile(
    r"\[(CLS|SEP|PAD|BOS|EOS)\]|<\|[^|\s]+\|>|</?(s|pad|bos|eos|cls|sep)>|<(start|end)_of_turn>", re.ASCII
)
#: What begins a word: a space in the text of a token, or the character that stands for it in the vocabularies
#: of byte-level BPE (Radford et al. 2019) and of SentencePiece (arXiv 1808.06226).
_SPACE, _BYTE_LEVEL, _SENTENCE_PIECE = " ", "\u0120", "\u2581"
#: First and last characters of scripts that put no spaces between words: Chinese and Japanese.
_UNSPACED = ((0x3040, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))


def special_positions(tokens: Sequence[str]) -> frozenset[int]:
    """The positions of tokens that look like special ones, such as ``[CLS]`` and ``<|im_start|>``."""
    return frozenset(i for i, token in enumerate(tokens) if _SPECIAL.fullmatch(token))


def word_starts(tokens: Sequence[str], special: Collection[int], *, spaced: bool = False) -> list[int]:
    """The positions at which a word begins; all positions where nothing tells which tokens belong together.

    In WordPiece (arXiv 1609.08144) a token that begins with ``##`` continues a word. In byte-level BPE and in
    SentencePiece a token that begins with a space begins a word, and goes on as long as letters and digits
    follow each other; punctuation, white space and special tokens stand alone.

    Parameters
    ----------
    tokens : sequence of str
        With their marks. A token whose text is "" is a part of a character that a later token completes.
    special : collection of int
        Positions of special tokens.
    spaced : bool
        Whether words are known to begin with a space, also if there is only one.
    """
    if any(token.startswith("##") and len(token) > 2 for token in tokens):
        return [
            i
            for i, token in enumerate(tokens)
            if i == 0 or i in special or i - 1 in special or not (token.startswith("##") and len(token) > 2)
        ]
    texts = _texts(tokens, spaced)
    return list(range(len(tokens))) if texts is None else _runs(texts, special)


def word_texts(tokens: Sequence[str], words: Sequence[range], *, spaced: bool = False) -> list[str]:
    """The words without the marks of their pieces."""
    texts = _texts(tokens, spaced) or tokens
    joined = [
        texts[word.start] + "".join(texts[i].removeprefix("##") for i in word if i > word.start)
        for word in words
    ]
    return [text.strip() or text for text in joined]


def _texts(tokens: Sequence[str], spaced: bool) -> list[str] | None:
    """The texts of the tokens, or None where no token begins with a mark for a space."""
    if any(token.startswith(_BYTE_LEVEL) for token in tokens):
        from py_attn.models.bpe import bytes_of

        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return [decoder.decode(bytes_of(token)) for token in tokens]
    if any(token.startswith(_SENTENCE_PIECE) for token in tokens):
        return [token.replace(_SENTENCE_PIECE, _SPACE) for token in tokens]
    if spaced or any(token.startswith(_SPACE) for token in tokens):
        return list(tokens)
    return None


def _runs(texts: Sequence[str], special: Collection[int]) -> list[int]:
    starts: list[int] = []
    before = ""  # the character before
    incomplete: int | None = None  # where tokens of a character begin that no token has completed yet
    for i, text in enumerate(texts):
        if i in special:
            starts += [i] if incomplete is None else [incomplete, i]
            before, incomplete = "", None
        elif text == "":
            incomplete = i if incomplete is None else incomplete
        else:
            if not (_joins(before) and _joins(text[0])):
                starts.append(i if incomplete is None else incomplete)
            before, incomplete = text[-1], None
    return starts if incomplete is None else [*starts, incomplete]


def _joins(character: str) -> bool:
    """Whether a character is part of a word: a letter, a digit, or a mark on one (as vowels in Hindi are)."""
    if not character or any(low <= ord(character) <= high for low, high in _UNSPACED):
        return False
    return character.isalnum() or unicodedata.category(character).startswith("M")
