"""The tokenizer against what the published one gives, and by its own rules."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_attn.models.wordpiece import SPECIAL_TOKENS, WordPiece, split_words

FIXTURE = Path(__file__).parent / "fixtures" / "wordpiece.json"

SMALL = WordPiece("\n".join([*SPECIAL_TOKENS, "un", "##aff", "##able", "##a", "hello", ",", "!", ""]))


def test_words():
    assert SMALL.encode("Hello, unaffable!").tokens == [
        *("[CLS]", "hello", ",", "un", "##aff", "##able", "!", "[SEP]")
    ]  # fmt: skip


def test_greedy_search_gives_up_on_the_whole_word():
    # "un" fits, the rest does not: the word is unknown, not its end.
    assert SMALL.encode("unknown").tokens == ["[CLS]", "[UNK]", "[SEP]"]


@pytest.mark.parametrize("text", ["", " ", "\n\t\u3000", "\x00\u200b\ufeff"])
def test_nothing_to_say(text):
    assert SMALL.encode(text).tokens == ["[CLS]", "[SEP]"]


def test_splitting():
    assert list(split_words("Ça, d'accord?")) == ["ca", ",", "d", "'", "accord", "?"]
    assert list(split_words("a\tb\u2003c")) == ["a", "b", "c"]
    assert list(split_words("日本go")) == ["日", "本", "go"]
    assert list(split_words("カタカナ")) == ["カタカナ"]
    assert list(split_words("5$+3^2")) == ["5", "$", "+", "3", "^", "2"]
    assert list(split_words("ÀÉÎõü ΟΔΟΣ")) == ["aeiou", "οδοσ"]
    assert list(split_words("<script>")) == ["<", "script", ">"]
    assert list(split_words("a[MASK]b [mask]")) == ["a", "[MASK]", "b", "[", "mask", "]"]


def test_long_word_is_unknown():
    assert SMALL.encode("un" + "a" * 98).tokens == ["[CLS]", "un", *["##a"] * 98, "[SEP]"]
    assert SMALL.encode("un" + "a" * 99).tokens == ["[CLS]", "[UNK]", "[SEP]"]


def test_truncation_keeps_both_ends():
    whole = SMALL.encode("hello " * 10)
    assert (len(whole.ids), whole.truncated) == (12, False)
    exact = SMALL.encode("hello " * 10, 12)
    assert (exact.ids, exact.truncated) == (whole.ids, False)
    cut = SMALL.encode("hello " * 11, 12)
    assert (cut.ids, cut.truncated) == (whole.ids, True)
    assert SMALL.encode("unaffable", 3).tokens == ["[CLS]", "un", "[SEP]"]
    assert SMALL.encode("hello", 2).tokens == ["[CLS]", "[SEP]"]


def test_bad_arguments():
    with pytest.raises(TypeError, match="text: expected a string, got bytes"):
        SMALL.encode(b"hello")
    with pytest.raises(ValueError, match="max_length: expected at least 2"):
        SMALL.encode("hello", 1)


def test_bad_vocabularies():
    with pytest.raises(ValueError, match=r"expected \[CLS\], \[SEP\], \[MASK\] among its 3 lines"):
        WordPiece("[PAD]\n[UNK]\nhello\n")
    with pytest.raises(ValueError, match="token 'hello' is on two lines"):
        WordPiece("hello\nhello\n")


def test_windows_line_ends():
    assert WordPiece("\r\n".join([*SPECIAL_TOKENS, "hello", ""])).encode("hello").ids == [2, 5, 3]


@given(st.text(), st.integers(2, 8))
def test_any_text_gives_known_tokens(text, limit):
    encoding = SMALL.encode(text, limit)
    assert encoding.tokens == [SMALL.tokens[i] for i in encoding.ids]
    assert (encoding.tokens[0], encoding.tokens[-1]) == ("[CLS]", "[SEP]")
    assert len(encoding.ids) <= limit
    assert encoding.truncated == (len(SMALL.encode(text).ids) > limit)


def test_as_the_published_tokenizer(minilm_files):
    tokenizer = WordPiece(minilm_files.vocabulary.read_text(encoding="utf-8"))
    for text, ids in json.loads(FIXTURE.read_text(encoding="utf-8")):
        assert tokenizer.encode(text).ids == ids, text
