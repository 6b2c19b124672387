"""Own data: every kind of file, every name and order of axes, what is wrong with a file, and saving."""

import asyncio
import contextlib
import io
import json
import pickle
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from py_attn.viewer import Viewer
from py_attn.viewer.sources import arrays as arrays_module
from py_attn.viewer.sources import files, formats, named, saving
from py_attn.viewer.sources.arrays import query_source
from py_attn.viewer.sources.example import TOKENS, example_file
from py_attn.viewer.sources.files import read_file, read_source
from py_attn.viewer.sources.layouts import arranged, layouts_of
from tests.viewers import SAMPLE, call

ROOT = Path(__file__).parents[1]
RNG = np.random.default_rng(1)
STORED = {
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "int32": "I32",
    "int64": "I64",
    "bool": "BOOL",
}


def npz(*unnamed, **arrays):
    file = io.BytesIO()
    np.savez(file, *unnamed, **arrays)
    return file.getvalue()


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def safetensors(arrays, metadata=None):
    """A file of numpy arrays; uint16 ones stand for bfloat16."""
    header, data = {"__metadata__": metadata or {}}, b""
    for name, array in arrays.items():
        dtype = "BF16" if array.dtype == np.uint16 else STORED[array.dtype.name]
        header[name] = {
            "dtype": dtype,
            "shape": array.shape,
            "data_offsets": [len(data), len(data) + array.nbytes],
        }
        data += array.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def as_json(found):
    return json.dumps(found, default=lambda array: array.tolist()).encode()


def maps(*shape):
    """Causal probabilities [..., S, S]."""
    weights = np.tril(RNG.random(shape)) + 1e-3 * np.eye(shape[-1])
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def vectors(*shape):
    return RNG.standard_normal(shape, np.float32)


def shown(source):
    """Weights [layers, H, S, S] of a source that was given weights."""
    return np.stack([np.asarray(layer.weights, np.float32) for layer in source.layers])


WEIGHTS = maps(2, 1, 3, 5, 5)
WORDS = list("abcde")


# the ways in which people save attentions


@pytest.mark.parametrize(
    "data",
    [
        npz(attentions=WEIGHTS, tokens=WORDS),
        npz(attention_weights=WEIGHTS, tokens=np.array(WORDS, "S1")),
        npz(*WEIGHTS, tokens=WORDS),
        npz(**{f"attentions.{i}": WEIGHTS[i] for i in (1, 0)}, tokens=WORDS),
        npz(**{f"attentions_{i}": WEIGHTS[i] for i in (0, 1)}, tokens=WORDS),
        npz(**{f"attn[{i}]": WEIGHTS[i, 0] for i in (0, 1)}, tokens=WORDS),
        npz(**{f"blocks.{i}.attn.hook_pattern": WEIGHTS[i] for i in (0, 1)}, tokens=WORDS),
        npz(weights=WEIGHTS[:, 0], layout="LHSS", tokens=WORDS),
        npz(whatever=WEIGHTS, tokens=WORDS),
        safetensors(
            {f"attentions.{i}": WEIGHTS[i] for i in (0, 1)}, {"tokens": json.dumps(WORDS), "format": "pt"}
        ),
        safetensors({"attentions": WEIGHTS}, {"tokens": json.dumps(WORDS)}),
        as_json({"attentions": WEIGHTS, "tokens": WORDS}),
        as_json({"attentions": list(WEIGHTS[:, 0]), "layout": "LHSS", "tokens": WORDS}),
        as_json({f"attentions_{i}": WEIGHTS[i] for i in (0, 1)} | {"tokens": WORDS}),
        b"\xef\xbb\xbf" + as_json({"attentions": WEIGHTS, "tokens": WORDS}),
    ],
)
def test_attentions_in_every_form(data):
    for given_bytes in (data, memoryview(data), bytearray(data)):
        source = read_source(given_bytes)
        np.testing.assert_allclose(shown(source), WEIGHTS[:, 0], rtol=1e-6)
        assert source.tokens == WORDS
        assert (source.kind, source.note) == ("weights", "")


@pytest.mark.parametrize("data", [npy(WEIGHTS), as_json(WEIGHTS), as_json(list(WEIGHTS))])
def test_an_array_alone_is_attention_weights(data):
    file = read_file(data, "maps.npy")
    np.testing.assert_allclose(shown(file.source), WEIGHTS[:, 0], rtol=1e-6)
    assert (file.source.title, file.has_tokens) == ("maps.npy", False)
    assert file.source.tokens == list("01234")


@pytest.mark.parametrize("shape", [(5, 5), (3, 5, 5), (1, 3, 5, 5)])
def test_attentions_of_one_layer(shape):
    weights = maps(*shape)
    np.testing.assert_array_equal(shown(read_source(npy(weights))), weights.reshape(1, -1, 5, 5))


def bfloat16(array):
    """The upper halves of float32 numbers."""
    return (array.view(np.uint32) >> 16).astype(np.uint16)


def test_dtypes():
    weights = np.eye(4, dtype=np.float32)
    stored = {**{name: weights.astype(name) for name in STORED}, "bfloat16": bfloat16(weights)}
    for name, array in stored.items():
        np.testing.assert_array_equal(shown(read_source(safetensors({"attentions": array})))[0, 0], weights)
        assert read_file(safetensors({"attentions": array})).found == [f"attentions: {name} [4, 4]"]
    for name in (*STORED, "int8", "uint8"):
        np.testing.assert_array_equal(shown(read_source(npy(weights.astype(name))))[0, 0], weights)
        np.testing.assert_array_equal(
            shown(read_source(npy(np.asfortranarray(weights.astype(np.dtype(name).newbyteorder(">"))))))[
                0, 0
            ],
            weights,
        )


# queries and keys

QUERY, KEY = vectors(2, 1, 4, 5, 8), vectors(2, 1, 2, 5, 8)


@pytest.mark.parametrize(
    "data",
    [
        npz(query=QUERY, key=KEY),
        npz(q=QUERY, k=KEY),
        npz(queries=QUERY, keys=KEY),
        npz(Query_States=QUERY, key_states=KEY),
        npz(q=QUERY.swapaxes(2, 3), k=KEY.swapaxes(2, 3)),  # only the heads' axis may differ
        npz(q=QUERY.swapaxes(2, 3), k=KEY.swapaxes(2, 3), layout="lbshd"),
        npz(**{f"layers.{i}.{name}": x[i] for i in (0, 1) for name, x in (("q", QUERY), ("k", KEY))}),
        npz(**{f"{name}_{i}": x[i, 0] for i in (0, 1) for name, x in (("q", QUERY), ("k", KEY))}),
        npz(
            **{
                f"blocks.{i}.attn.hook_{n}": x[i].swapaxes(1, 2)
                for i in (0, 1)
                for n, x in (("q", QUERY), ("k", KEY))
            }
        ),
        npz(query=QUERY[:, 0], key=KEY[:, 0], layout="LHSD"),
        safetensors({"q": QUERY, "k": KEY}),
        as_json({"query": QUERY, "key": KEY}),
    ],
)
def test_queries_and_keys_in_every_form(data):
    source = read_source(data)
    assert (len(source.layers), source.heads, source.kv_heads, source.length, source.head_dim) == (
        2,
        4,
        2,
        5,
        8,
    )
    np.testing.assert_allclose(np.stack([layer.query for layer in source.layers]), QUERY, rtol=1e-6)
    np.testing.assert_allclose(np.stack([layer.key for layer in source.layers]), KEY, rtol=1e-6)


def test_positions_are_the_axis_with_as_many_as_tokens():
    query, key = vectors(1, 5, 4, 8), vectors(1, 5, 4, 8)
    file = read_file(npz(query=query, key=key, tokens=WORDS))
    assert (file.layout, file.source.heads, file.source.length) == ("BSHD", 4, 5)
    assert file.layouts == ["BHSD", "BSHD", "LHSD", "LSHD"]
    file = read_file(npz(query=query, key=key))
    assert (file.layout, file.source.heads, file.source.length) == ("BHSD", 5, 4)
    file = read_file(npz(query=query, key=key), layout="BSHD")
    assert (file.layout, file.source.heads, file.source.length) == ("BSHD", 4, 5)


@pytest.mark.parametrize("axes", [2, 3, 4, 5])
@pytest.mark.parametrize("role", ["query", "weights"])
def test_every_order_of_axes_is_brought_into_one(axes, role):
    sizes = {"L": 2, "B": 3, "H": 4, "S": 5, "D": 5}
    for layout in layouts_of(axes, role, False):
        letters = layout[:-1] + "D"
        # Every element says where it lies, as a number with one digit for each axis.
        array = np.zeros([sizes[letter] for letter in letters])
        for axis, letter in enumerate(letters):
            digit = 10 ** "DSHBL".index(letter)
            array += (np.arange(sizes[letter]) * digit).reshape([-1 if i == axis else 1 for i in range(axes)])
        lying = arranged(array, layout)
        assert lying.ndim == 5
        for place in np.ndindex(lying.shape):
            assert lying[place] == sum(
                i * 10**power for i, power in zip(place, range(4, -1, -1), strict=True)
            )


def test_options_in_every_format():
    query, key = vectors(2, 5, 4), vectors(2, 5, 4)
    mask = np.tri(5, dtype=bool)
    texts = {
        "causal": "true",
        "scale": "0.5",
        "softcap": "3",
        "window": "[2, null]",
        "title": "Five",
        "tokens": "x",
    }
    listed = {"query": query, "key": key, "causal": True, "scale": 0.5, "softcap": 3, "window": [2, None]}
    for data in (
        npz(
            query=query, key=key, causal=True, scale=0.5, softcap=3.0, window=[2, 5], title="Five", mask=mask
        ),
        safetensors({"query": query, "key": key, "mask": mask}, {**texts, "tokens": json.dumps(WORDS)}),
        as_json({**listed, "title": "Five", "mask": mask}),
    ):
        source = read_source(data)
        assert (source.masking.causal, source.masking.softcap, source.title) == (True, 3, "Five")
        assert source.masking.window in ((2, 5), (2, None))
        np.testing.assert_allclose(source.layers[0].query[0], query * 0.5 * 2, rtol=1e-6)
        np.testing.assert_array_equal(source.masking.bias[0, 0], mask)


def test_an_attention_mask_says_which_keys_there_are():
    query, key = vectors(2, 3, 5, 4), vectors(2, 3, 5, 4)
    data = npz(query=query, key=key, attention_mask=np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]))
    masking = read_source(data).masking
    assert masking.bias.dtype == np.bool_
    np.testing.assert_array_equal(masking.bias, np.array([1, 1, 1, 0, 0], bool).reshape(1, 1, 1, 5))
    with pytest.raises(ValueError, match=r"attention_mask: expected zeros and ones"):
        read_source(npz(query=query, key=key, attention_mask=np.full((2, 5), -1e9)))


def test_notes_say_what_a_visitor_would_not_expect():
    assert "batch of 3. The first axis (3) was read as a batch." in read_source(npy(maps(3, 2, 5, 5))).note
    assert "layers 4 to 9" in read_source(npz(**{f"attn_{i}": maps(2, 5, 5) for i in (4, 9)})).note
    both = npz(query=QUERY, key=KEY, weights=WEIGHTS)
    assert "query and key are not used, as it has attention weights" in read_source(both).note
    assert "2 of 5 rows do not sum to 1" in read_source(npy(np.diag([1, 1, 0.5, 2, 1]))).note
    assert read_source(npy(np.zeros((5, 5)))).note == ""  # such rows attend to nothing


def test_tokens_can_be_given_beside_the_file():
    data = npy(maps(5, 5))
    file = read_file(data, tokens=WORDS)
    assert (file.source.tokens, file.has_tokens) == (WORDS, True)
    with pytest.raises(ValueError, match=r"tokens: expected 5, one per position, got 2"):
        read_file(data, tokens=["a", "b"])


# what is wrong

PARAMETERS = {f"h.{i}.attn.query.weight": np.ones((4, 4)) for i in range(3)}
DEEP = b"[" * 100_000 + b"]" * 100_000


def torch_file():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps([1]))
    return file.getvalue()


def other_zip():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("word/document.xml", "<w/>")
    return file.getvalue()


def claims(shape, dtype="<f4"):
    """An .npy file whose header promises more than there is."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def zipped(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return file.getvalue()


WRONG = [
    (b"", "file: it is empty"),
    (b"a", "file: expected .npz, .npy, .safetensors or .json"),
    (b"\x89PNG\r\n\x1a\n" + bytes(40), r"got 48 bytes that begin with b'\x89PNG"),
    (b"GGUF" + bytes(60), "that begin with b'GGUF"),
    (torch_file(), "written by torch.save and holds pickled Python objects, which are never read"),
    (pickle.dumps([np.ones(3)]), "holds pickled Python objects"),
    (other_zip(), "a ZIP archive without arrays"),
    (npz(), "array 'query' is missing"),
    (
        npz(attentions=maps(5, 5), tokens=np.array(["a", None], object)),
        "tokens: holds pickled Python objects",
    ),
    (
        npz(attentions=np.array([np.ones((2, 2)), np.ones((3, 3))], object)),
        "attentions: holds pickled Python",
    ),
    (npy(np.array(["a", None], object)), "array 'query' is missing"),
    (npz(a=np.ones((3, 4)), b=np.ones(2)), "and the file has a float64 [3, 4], b float64 [2]"),
    (npz(q=QUERY, query=QUERY, k=KEY), "both 'q' and 'query' can be the query"),
    (npz(**{"attn": maps(5, 5), "attn.1": maps(5, 5)}), "weights is not there for each of the layers"),
    (npz(q_0=QUERY, q_1=QUERY, k_0=KEY), "key is not there for each of the layers"),
    (npz(attn_0=maps(5, 5), attn_1=maps(4, 4)), "layers of one shape, got attn_0 float32 [5, 5] and attn_1"),
    (npz(**PARAMETERS), "these look like a model's parameters"),
    (
        npz(attentions=maps(5, 5)[:3]),
        "got attentions: float32 [3, 5]; maps are square here, as queries and keys are",
    ),
    (npz(query=vectors(3, 4), key=vectors(5, 4)), "[1, 1, 1, 5, 4]; maps are square here"),
    (
        npz(query=vectors(2, 5, 4), key=vectors(5, 4)),
        "key: expected arrays with the same number of axes, got que",
    ),
    (npz(query=vectors(1, 3, 5, 4), key=vectors(1, 2, 5, 4)), "heads that divides the query's 3, got 2"),
    (npz(query=vectors(5), key=vectors(5)), "query: expected 2 to 5 dimensions ([S, D] up to"),
    (npz(attentions=np.ones((1,) * 6)), "weights: expected 2 to 5 dimensions ([S, S] up to"),
    (
        npz(attentions=WEIGHTS, layout="SHBL"),
        "layout: expected one of LBHSS for attentions: float32 [2, 1, 3, 5, 5]",
    ),
    (npz(attentions=WEIGHTS[:0]), "expected at least one layer"),
    (npz(attentions=np.ones((0, 0))), "1 to 32,768 tokens, got 0"),
    (npz(attentions=np.full((2, 2), np.nan)), "expected finite numbers, got NaN"),
    (npz(attentions=np.ones((2, 2), complex)), "weights: expected real numbers, got complex128"),
    (npz(attentions=np.ones((2, 2), "V2")), "holds raw bytes (void16 [2, 2]), as numpy writes bfloat16"),
    (npz(q=QUERY, k=KEY, window=3.5), "window: expected None, a number of keys or (left, right), got 3.5"),
    (npz(q=QUERY, k=KEY, causal=np.eye(5)), "causal: expected one value, got float64 [5, 5]"),
    (npz(q=QUERY, k=KEY, causal=3), "causal: expected True or False, got 3"),
    (npz(q=QUERY, k=KEY, scale="a"), "scale: expected a number, got 'a'"),
    (npz(q=QUERY, k=KEY, mask=np.ones((2, 2))), "mask: expected a shape that broadcasts to"),
    (npz(attentions=np.ones((600, 2, 2))), "weights: expected at most 512 heads, got 600"),
    (npz(query=np.ones((600, 2, 2)), key=np.ones((600, 2, 2))), "query: expected at most 512 heads, got 600"),
    (npz(attentions=np.ones((300, 1, 1, 2, 2))), "1 to 256 layers"),
    (npz(attentions=maps(5, 5), tokens=np.arange(5)), "tokens: expected texts [S], got int64 [5]"),
    (as_json({"attentions": maps(5, 5), "tokens": [1, 2]}), "tokens: expected a list of texts, got [1, 2]"),
    (as_json({"attentions": [[1, 2], [3]]}), "its lists differ in length"),
    (as_json({"attentions": [[None, 1], [1, 0]]}), "expected numbers only"),
    (as_json({"attentions": [[1, "a"], [1, 0]]}), "expected numbers only"),
    (as_json({"a": 1, "b": "text", "c": {}}), "the file has a (number), b (text), c (an object)"),
    (b"[]", "array 'query' is missing"),
    (b'{"attentions": [[1', "file: not readable as JSON"),
    (b'{"attentions": \xff\xfe}', "file: not readable as JSON"),
    (b'{"attentions": [[' + b"9" * 10_000 + b"]]}", "file: not readable as JSON"),
    (DEEP, "nested at most 32 levels deep, got 100,000"),
    (b"[" * 100_000, "nested at most 32 levels deep"),
    (b'{"a": "' + b"[" * 100 + b'", "b": 1}', "array 'query' is missing"),  # brackets in a text are no levels
    (npy(maps(5, 5))[:-1], "cannot be read"),
    (npy(maps(5, 5))[:20], "not a readable .npy array"),
    (npz(attentions=maps(5, 5))[:-30], "not a readable .npz file"),
    (safetensors({"attentions": maps(5, 5)})[:-1], "truncated file?"),
    (safetensors({"attentions": maps(5, 5)})[:30], "truncated file?"),
    (claims((5, 5)), "cannot be read"),
    (claims((1 << 20, 1 << 20)), "expected at most 1,024 MiB as float32, got 4,194,304 MiB"),
    (claims((-5, 5)), "weights"),
    (zipped(attentions=b"no array"), "not a readable .npy array"),
]


@pytest.mark.parametrize(("data", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_wrong_files_are_refused_in_words(data, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)) as caught:
        read_file(data, "a.npz")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1500


def test_a_zip_bomb_is_not_unpacked():
    """A member that unpacks to far more than its array is read as far as the array goes."""
    padded = npy(maps(5, 5)) + bytes(200_000_000)
    bombs = [
        (zipped(attentions=padded), None),
        (zipped(attentions=claims((40_000, 40_000)) + bytes(10**6)), "MiB"),
    ]
    for data, message in bombs:
        tracemalloc.start()
        try:
            if message is None:
                assert read_source(data).length == 5
            else:
                with pytest.raises(ValueError, match=message):
                    read_source(data)
            assert tracemalloc.get_traced_memory()[1] < 20e6
        finally:
            tracemalloc.stop()


def test_the_arrays_of_a_safetensors_file_are_not_copied():
    data = safetensors({"attentions": maps(4, 8, 128, 128)})
    tracemalloc.start()
    try:
        read_source(data)
        assert tracemalloc.get_traced_memory()[1] < len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("module", "name", "limit", "data", "message"),
    [
        (formats, "MAX_FILE_BYTES", 100, npy(np.eye(9)), "file: expected at most 0 MiB"),
        (formats, "MAX_JSON_BYTES", 10, as_json([[1.0, 0.0], [0.0, 1.0]]), "MiB of JSON"),
        (formats, "MAX_ARRAYS", 2, npz(a=1, b=2, c=3), "at most 2 arrays, got 3"),
        (named, "MAX_ARRAY_BYTES", 3 * 5 * 8 * 4, npz(q=QUERY, k=KEY), "query: expected at most"),
        (arrays_module, "MAX_LENGTH", 4, npy(np.eye(5)), "expected 1 to 4 tokens, got 5"),
    ],
)
def test_limits(monkeypatch, module, name, limit, data, message):
    read_contents_works = name in ("MAX_ARRAYS",) or read_source(data)
    assert read_contents_works
    monkeypatch.setattr(module, name, limit)
    with pytest.raises(ValueError, match=message):
        read_source(data)


@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"[", b"{", b"\x80\x04"]),
)
def test_any_bytes_are_refused_in_words(data, begin):
    with pytest.raises(ValueError, match=":"):
        read_source(begin + data)


def read_or_refuse(data):
    with contextlib.suppress(TypeError, ValueError):
        read_source(data)


@settings(deadline=None)
@given(st.data())
def test_a_broken_file_is_read_or_refused(data):
    whole = data.draw(
        st.sampled_from([npz(attentions=WEIGHTS, tokens=WORDS), npy(WEIGHTS), as_json(WEIGHTS)])
    )
    broken = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    read_or_refuse(broken[: data.draw(st.integers(1, len(broken)))])


nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=20,
)
names = st.sampled_from(
    ["query", "key", "value", "attentions", "tokens", "causal", "mask", "layout", "title", "scale"]
)


@given(st.dictionaries(names, nested, max_size=5) | nested)
def test_any_json_is_read_or_refused(found):
    read_or_refuse(json.dumps(found).encode())


# round trips


@settings(deadline=None, max_examples=40)
@given(
    layers=st.integers(1, 3),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    length=st.integers(1, 7),
    dim=st.integers(1, 5),
    causal=st.booleans(),
    window=st.none() | st.tuples(st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)),
    softcap=st.none() | st.floats(0.5, 50),
    masked=st.booleans(),
    tokens=st.data(),
)
def test_what_is_saved_is_read_again(
    layers, kv_heads, group, length, dim, causal, window, softcap, masked, tokens
):
    texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
    words = tokens.draw(st.lists(texts, min_size=length, max_size=length))
    source = query_source(
        vectors(layers, 1, kv_heads * group, length, dim),
        vectors(layers, 1, kv_heads, length, dim),
        vectors(layers, 1, kv_heads, length, dim),
        tokens=words,
        title="Saved",
        batch=0,
        causal=causal,
        window=window,
        softcap=softcap,
        scale=0.3,
        mask=np.tri(length, dtype=bool) if masked else None,
    )
    viewer = Viewer()
    viewer.open(source)
    again = read_source(call(viewer, "save_source")["data"].tobytes())
    for before, after in zip(source.layers, again.layers, strict=True):
        for name in ("query", "key", "value"):
            np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
    assert (list(again.tokens), again.title) == (words, "Saved")
    assert_same_maps(viewer, source, again)


def all_maps(viewer, source):
    viewer.open(source)
    data = asyncio.run(saving.save(source, viewer.engine, "attentions"))
    return shown(read_source(data))


def assert_same_maps(viewer, source, again):
    np.testing.assert_array_equal(all_maps(viewer, source), all_maps(viewer, again))


@pytest.mark.parametrize("mask", ["none", "causal", "padding", "documents", "alibi"])
@pytest.mark.parametrize("window", [None, 3])
def test_synthetic_input_is_saved_with_its_mask(mask, window):
    viewer = Viewer()
    call(
        viewer,
        "open_synthetic",
        length=16,
        heads=4,
        kv_heads=2,
        head_dim=8,
        mask=mask,
        window=window,
        softcap=5.0,
    )
    source = viewer.source
    saved = call(viewer, "save_source")
    assert saved["name"] == "queries.npz"
    assert_same_maps(viewer, source, read_source(saved["data"].tobytes()))


def test_attentions_are_saved_as_they_are_shown():
    viewer = Viewer()
    call(viewer, "open_sample", data=SAMPLE.read_bytes())
    saved = call(viewer, "save_source", holds="attentions")
    opened = call(viewer, "open_file", data=saved["data"].tobytes(), name="attentions.npz")
    assert (opened["layers"], opened["heads"], opened["length"], opened["engine"]) == (6, 12, 20, "given")
    assert opened["file"]["layout"] == "LHSS"
    assert opened["title"].startswith("The animal did not")
    assert call(viewer, "row", layer=5, head=11, query=9)["weights"][2] == pytest.approx(0.6419, abs=1e-4)
    again = call(viewer, "save_source", holds="attentions")
    assert again["data"].tobytes() == saved["data"].tobytes()


def test_what_is_read_by_words_is_saved(monkeypatch):
    monkeypatch.setattr(saving, "_AT_ONCE", 5 * 200)
    viewer = Viewer()
    call(viewer, "open_sample", data=SAMPLE.read_bytes())
    call(viewer, "read_as", special="hide")
    length = viewer.source.length
    assert length < 20
    attentions = read_source(call(viewer, "save_source", holds="attentions")["data"].tobytes())
    assert (attentions.length, attentions.heads) == (length, 12)
    row = call(viewer, "row", layer=3, head=7, query=4)["weights"]
    np.testing.assert_allclose(attentions.layers[3].weights[7, 4], row, atol=1e-6)
    queries = read_source(call(viewer, "save_source")["data"].tobytes())
    assert queries.length == 20


def test_what_cannot_be_saved(monkeypatch):
    viewer = Viewer()
    with pytest.raises(ValueError, match="nothing is open yet"):
        call(viewer, "save_source")
    call(viewer, "open_file", data=npy(maps(5, 5)))
    with pytest.raises(ValueError, match="only weights were given"):
        call(viewer, "save_source")
    with pytest.raises(ValueError, match="holds: expected one of queries, attentions"):
        call(viewer, "save_source", holds="all")
    monkeypatch.setattr(saving, "MAX_SAVED_BYTES", 99)
    with pytest.raises(ValueError, match="the file would have"):
        call(viewer, "save_source", holds="attentions")


def test_the_example_shows_the_same_maps_in_both_forms():
    viewer = Viewer()
    found = {}
    for holds in ("queries", "attentions"):
        made = call(viewer, "make_example", holds=holds)
        opened = call(viewer, "open_file", data=made["data"].tobytes(), name=made["name"])
        assert (opened["layers"], opened["heads"], opened["tokens"]) == (2, 4, TOKENS)
        found[holds] = all_maps(viewer, viewer.source)
    np.testing.assert_allclose(found["queries"], found["attentions"], atol=1e-6)
    previous, first = found["queries"][0, 0], found["queries"][0, 1]
    assert all(previous[i].argmax() == i - 1 for i in range(1, len(TOKENS)))
    assert all(row.argmax() == 0 for row in first)
    with pytest.raises(ValueError, match="holds: expected"):
        example_file("all")


def test_a_file_is_described():
    opened = call(Viewer(), "open_file", data=npz(q=QUERY, k=KEY), name="mine.npz")
    assert opened["title"] == "mine.npz"
    assert opened["file"] == {
        "kind": "npz",
        "found": ["q: float32 [2, 1, 4, 5, 8]", "k: float32 [2, 1, 2, 5, 8]"],
        "layout": "LBHSD",
        "layouts": ["LBHSD", "LBSHD"],
        "hasTokens": False,
    }


def test_a_score_mod_does_not_apply_to_given_weights():
    viewer = Viewer()
    call(viewer, "open_file", data=npz(q=QUERY, k=KEY))
    call(viewer, "edit", text="def score_mod(score, b, h, q, k):\n    return score * 2", layer=0)
    assert viewer.source.edited == ["score_mod"]
    assert call(viewer, "open_file", data=npy(maps(5, 5)))["edited"] == []
    assert call(viewer, "open_file", data=npz(q=QUERY, k=KEY))["edited"] == ["score_mod"]


def test_too_little_memory_is_said(monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(files, "read_file", fail)
    with pytest.raises(ValueError, match=r"file: the browser's Python has too little memory for its 5 bytes"):
        call(Viewer(), "open_file", data=b"12345")


def test_the_page_knows_the_largest_file():
    text = (ROOT / "web" / "src" / "panels" / "own-data.js").read_text("utf-8")
    (exponent,) = re.findall(r"MAX_FILE_BYTES = 2 \*\* (\d+);", text)
    assert 2 ** int(exponent) == formats.MAX_FILE_BYTES


def test_a_wrong_file_leaves_what_is_shown():
    viewer = Viewer()
    call(viewer, "open_file", data=npy(maps(5, 5)))
    before = viewer.source
    with pytest.raises(ValueError, match="empty"):
        call(viewer, "open_file", data=b"")
    assert viewer.source is before
