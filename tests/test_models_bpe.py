"""The byte-level BPE tokenizer against the tokenizers library, and by its own rules."""

import random
import time

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from py_attn.models.bpe import BPE, Stream, split_words
from py_attn.models.files import BytesFile
from py_attn.models.gguf import GGUF
from tests.tiny_gguf import tiny_model, write_gguf

METADATA, _ = tiny_model()

TEXT = r"""
the The quick brown don't DON'T I'll we've they're 'S 's 'lL naïve straße Überraschung Ελλάδα Россия שלום
مرحبا नमस्ते ไทย 日本語 汉字 한국어 カタカナ 👍🏽 🇩🇪 © ½ ² Ⅷ ٣٤ १२ １２ ⑩ 3.14 1,000 v2 x86_64 0xFF a_b
def f(x): { } -> != ... -- '' ''s ' " http://a.b/c?d=e <|endoftext|> <|im_start|> <|im_end|> <|im_end|
<repo_name> <reponame> <empty_output> aaaaaaaaaaaaaaaaaaaaaaaa Donaudampfschifffahrtsgesellschaft
"""

WORDS = [
    *TEXT.split(),
    *(
        "zzzz" * 40,
        "日" * 50,
        "!" * 60,
        "\treturn x",
        "e\u0301",
        "n\u0303\u0327",
        "👩\u200d👩\u200d👧",
        "🏳️\u200d🌈",
    ),
    *"\ufeff\u200b\u00ad\ufffd\x00\x04\x7f\U0001d7d8\U00011de0\U00016ff4\U000e0041\U0010ffff\U00040000",
]

SPACES = [
    *("", "  ", "   ", "\n\n", "\r\n", " \n "),
    *(" " * 6 + "\n\t\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e\u2003\u2028\u2029\u202f\u205f\u3000"),
]


def any_character(source):
    while True:
        code = source.choice((source.randrange(0x80), source.randrange(0x3000), source.randrange(0x110000)))
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def random_texts(count):
    """Nasty texts, the same in each run."""
    source = random.Random(14)
    yield ""
    for _ in range(count - 1):
        parts = []
        for _ in range(source.choice((1, 2, 3, 5, 8, 20))):
            kind = source.random()
            if kind < 0.6:
                parts.append(source.choice(WORDS))
            elif kind < 0.8:
                parts.append("".join(any_character(source) for _ in range(source.randrange(1, 8))))
            else:
                parts.append("".join(source.choices("abcdeEST'0 ", k=source.randrange(1, 12))))
            parts.append(source.choice(SPACES))
        yield "".join(parts)


def pre_tokenizer():
    """What the published model's tokenizer.json has for the name "smollm" in a GGUF file."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def library(metadata):
    """The tokenizers library with a file's vocabulary and merges, as the published model sets it up."""
    tokens = metadata["tokenizer.ggml.tokens"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    kinds = metadata["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens([token for token, kind in zip(tokens, kinds, strict=True) if kind == 3])
    assert tokenizer.get_vocab_size() == len(tokens)
    return tokenizer


def tiny(**changes):
    """A tokenizer from the tiny model's file, with other values for some of its metadata."""
    changed = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return BPE.from_gguf(GGUF(BytesFile(write_gguf(METADATA | changed, []))))


@pytest.fixture(scope="module")
def smollm2(smollm2_file):
    file = GGUF(smollm2_file)
    return BPE.from_gguf(file), library(file.metadata)


TINY = tiny()


def test_equals_the_library_on_nasty_texts(smollm2):
    ours, theirs = smollm2
    texts = list(random_texts(20_000))
    assert len(set(texts)) > 19_000
    expected = [encoding.ids for encoding in theirs.encode_batch(texts)]
    for text, ids in zip(texts, expected, strict=True):
        assert ours.encode(text) == ids, ascii(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False), ascii(text)


def test_splits_words_at_every_character_as_the_library():
    # A character's class decides with which neighbours it is a word. Behind U+33500 only these are assigned.
    theirs = pre_tokenizer()
    codes = [*range(0xD800), *range(0xE000, 0x33500), *range(0xE0000, 0xE0200), *range(0x10FF00, 0x110000)]
    for first in range(0, len(codes), 500):
        text = "".join(f"a{c}a1{c}!{c}! {c}" for c in map(chr, codes[first : first + 500]))
        expected = [text[slice(*place)] for _, place in theirs.pre_tokenize_str(text)]
        assert split_words(text) == expected, hex(codes[first])


def test_decodes_any_ids_as_the_library(smollm2):
    ours, theirs = smollm2
    source = random.Random(2)
    for _ in range(2000):
        ids = [source.randrange(len(ours.tokens)) for _ in range(source.randrange(12))]
        text = theirs.decode(ids, skip_special_tokens=False)
        assert ours.decode(ids) == text
        stream = Stream(ours)
        assert "".join(map(stream.push, ids)) + stream.end() == text


def test_round_trip(smollm2):
    ours, _ = smollm2
    for text in (
        "Hello, world!",
        " 2 + 2 = 4\n",
        "naïve 日本語 👩\u200d👩\u200d👧",
        "<|im_start|>user\nhi<|im_end|>",
    ):
        assert ours.decode(ours.encode(text)) == text
    assert ours.decode(ours.encode("a\x04b")) == "ab"  # a byte without a token


@pytest.mark.parametrize("letters", ["a", "ab", "the", "日", "xyzzy"])
def test_long_words_take_no_quadratic_time(smollm2, letters):
    ours, theirs = smollm2
    word = (letters * 10_000)[:10_000]
    start = time.perf_counter()
    ids = ours.encode(word)
    assert time.perf_counter() - start < 5
    assert ids == theirs.encode(word).ids


def test_words_and_merges():
    def pieces(text):
        return [TINY.token_text(number) for number in TINY.encode(text)]

    assert pieces("hello  world") == ["hello", " ", " world"]
    assert pieces(" the  then\n") == [" the", " ", " the", "n", "\n"]
    assert pieces("and and  12") == ["a", "nd", " and", "  ", "1", "2"]
    assert pieces("") == []


def test_special_tokens():
    assert TINY.special == {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
    assert TINY.encode("<|im_start|><|im_end|>") == [1, 2]
    assert TINY.decode([1, 2]) == "<|im_start|><|im_end|>"
    assert 2 not in TINY.encode("<|im_end|")
    # Where one begins with another one, the longer one is meant.
    longer = BPE(["<a>", "<a>b", "a", "b", "<", ">"], [], [0, 1])
    assert longer.encode("<a>b<a>a") == [1, 0, 2]
    assert BPE(["日本"], [], [0]).decode([0]) == "日本"


def test_stream_gives_whole_characters():
    ids = [_byte_id(byte) for byte in "é日👍!".encode()]
    stream = Stream(TINY)
    assert [stream.push(n) for n in ids] == ["", "é", "", "", "日", "", "", "", "👍", "!"]
    assert stream.end() == ""
    assert [stream.push(n) for n in ids[:1]] == [""]
    assert stream.end() == "\ufffd"
    assert stream.push(ids[-1]) == "!"
    # A byte that cannot go on with the character before it.
    assert [stream.push(n) for n in (ids[5], ids[-1])] == ["", "\ufffd!"]


def _byte_id(byte):
    return next(n for n in range(3, 259) if TINY.token_bytes(n) == bytes([byte]))


def test_text_of_a_single_token():
    assert TINY.token_text(0) == "<|endoftext|>"
    assert TINY.token_text(TINY.encode(" the")[0]) == " the"
    assert TINY.token_text(_byte_id(0xE2)) == r"\xe2"
    assert TINY.token_text(_byte_id(0x0A)) == "\n"


@given(st.text())
def test_any_text_comes_back(text):
    ids = TINY.encode(text)
    assert TINY.decode(ids) == text
    stream = Stream(TINY)
    shown = [stream.push(n) for n in ids]
    assert "".join(shown) == text
    assert stream.end() == ""


def test_bad_arguments():
    with pytest.raises(TypeError, match="text: expected a string, got bytes"):
        TINY.encode(b"hello")
    with pytest.raises(ValueError, match=r"lone surrogate U\+DC00 at index 2"):
        TINY.encode("ab\udc00")
    with pytest.raises(TypeError, match="ids: expected integers, got str"):
        TINY.decode("ab")
    with pytest.raises(TypeError, match="ids: expected integers, got float"):
        TINY.decode([1.0])
    for number in (-1, len(TINY.tokens)):
        with pytest.raises(ValueError, match=f"ids: expected numbers from 0 to 290, got {number}"):
            TINY.decode([number])
        with pytest.raises(ValueError, match="ids: expected numbers"):
            Stream(TINY).push(number)
    assert TINY.decode(np.array([1, 2], np.uint32)) == "<|im_start|><|im_end|>"


def test_bad_vocabularies():
    with pytest.raises(ValueError, match="token 'a' occurs twice"):
        BPE(["a", "b", "a"], [])
    with pytest.raises(ValueError, match="token 1 is empty"):
        BPE(["a", ""], [])
    for tokens in (["a", "b"], ["a", "ab"], ["b", "ab"]):
        with pytest.raises(ValueError, match=r"merge 0, 'a b', needs .* lacks, expected 'a', 'b' and 'ab'"):
            BPE(tokens, ["a b"])
    for merge in ("ab", "a b c"):
        with pytest.raises(
            ValueError, match=f"merge 1 is '{merge}', expected two tokens with a space between"
        ):
            BPE(["a", "b", "ab", "c", "abc"], ["a b", merge])
    with pytest.raises(ValueError, match=r"merge 'a b' occurs twice"):
        BPE(["a", "b", "ab"], ["a b", "a b"])
    with pytest.raises(ValueError, match="needs a token that the vocabulary lacks"):
        BPE(["a", "b", "ab"], ["a "])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": ("string", "llama")}, "tokenizer.ggml.model is 'llama', expected 'gpt2'"),
        ({"pre": ("string", "llama-bpe")}, "tokenizer.ggml.pre is 'llama-bpe', expected 'smollm'"),
        ({"add_bos_token": ("bool", True)}, "add_bos_token is True, expected False"),
        ({"add_space_prefix": ("bool", True)}, "add_space_prefix is True, expected False"),
        ({"tokens": ("string", "a")}, "tokens must be an array of strings, the file has str"),
        ({"merges": ("[int32]", [1])}, "merges must be an array of strings, the file has ndarray"),
        ({"token_type": ("[int32]", [1, 1])}, "one for each of the 291 tokens"),
        ({"token_type": ("[float32]", [1.0] * 291)}, "must be an array of int32"),
        ({"token_type": ("int32", 1)}, "must be an array of int32"),
    ],
)
def test_files_with_another_tokenizer(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny(**changes)
