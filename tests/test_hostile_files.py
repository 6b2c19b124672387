"""Every reader of files on damaged and hostile ones: an error that says what is wrong, or a result, soon."""

import io
import json
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from py_attn import traced as traced_values
from py_attn.models.bpe import BPE
from py_attn.models.files import BytesFile
from py_attn.models.gguf import GGUF
from py_attn.models.llama_weights import read_config
from py_attn.models.safetensors import SafeTensors
from py_attn.onnx_graph import OPERATORS, graph_function
from py_attn.traced import Traced
from py_attn.viewer.sources.files import read_file
from tests.hostile import HUGE, damaged, refuses_or_reads
from tests.tiny_gguf import pack_string, tiny_model, write_gguf

SHAPE = (1, 2, 4, 5)
RNG = np.random.default_rng(0)


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npy_header(shape, dtype="<f4", version=1):
    """An .npy file without its numbers."""
    file = io.BytesIO()
    write = np.lib.format.write_array_header_1_0 if version == 1 else np.lib.format.write_array_header_2_0
    write(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def zipped(*members):
    """An archive of (name, bytes); a name may stand in it twice."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("warnings.warn", lambda *_, **__: None)
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


MAPS = np.full((2, 3, 4, 4), 0.25, np.float32)
VECTORS = RNG.standard_normal((3, 4, 8), np.float32)
NPZ = zipped(("attentions.npy", npy(MAPS)), ("tokens.npy", npy(np.array(list("abcd")))))
SAFETENSORS = safetensors(
    {
        "__metadata__": {"tokens": '["a", "b", "c", "d"]', "causal": "true"},
        "query": {"dtype": "F32", "shape": [3, 4, 8], "data_offsets": [0, 384]},
        "key": {"dtype": "F32", "shape": [3, 4, 8], "data_offsets": [384, 768]},
    },
    VECTORS.tobytes() * 2,
)
JSON = json.dumps(
    {"query": VECTORS.tolist(), "key": VECTORS.tolist(), "tokens": list("abcd"), "window": [2, None]}
).encode()
MODEL = tiny_model()
TINY = write_gguf(*MODEL)
COUNTS = struct.Struct("<4sIQQ")


def read_model(data):
    """What is read of a language model's file before anything is uploaded."""
    file = GGUF(BytesFile(data))
    read_config(file)
    BPE.from_gguf(file)


# protobuf: https://protobuf.dev/programming-guides/encoding/


def varint(number):
    number %= 1 << 64
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def part(number, content):
    """A field of a message: a whole number, a text, or bytes."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def constant(name, dims, kind, raw=b"", **fields):
    more = b"".join(part(int(number[1:]), value) for number, value in fields.items())
    message = b"".join(part(1, n) for n in dims) + part(2, kind) + part(8, name) + part(9, raw) + more
    return part(5, message)


def node(op, inputs, outputs, *attributes):
    names = b"".join(part(1, name) for name in inputs) + b"".join(part(2, name) for name in outputs)
    return part(1, names + part(4, op) + b"".join(part(5, each) for each in attributes))


def onnx_graph(*parts):
    """A graph x -> y."""
    return b"".join(parts) + part(11, part(1, "x")) + part(12, part(1, "y"))


ADD = onnx_graph(
    constant("c", [1, 5], 1, np.arange(5, dtype="<f4").tobytes()),
    constant("axes", [1], 7, b"", f7=3),
    node("Cast", ["x"], ["f"], part(1, "to") + part(3, 1)),
    node("Add", ["f", "c"], ["s"]),
    node("Tanh", ["s"], ["y"]),
)


def trace(data):
    """A graph read, computed in numpy, and traced as for a kernel."""
    function = graph_function("score_mod", data, SHAPE, lambda array: array)
    function(np.ones(SHAPE, np.float32), *np.ogrid[tuple(slice(n) for n in SHAPE)])
    traced = graph_function("score_mod", data, SHAPE, lambda array: Traced("table", "f32"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traced_values, "gather", lambda tensor, index: Traced("gather", "f32", *index))
        traced(Traced("score", "f32"), *(Traced(name, "i32") for name in "bhqk"))


# any damage


@given(damaged(st.sampled_from([SAFETENSORS, safetensors({}), safetensors({"__metadata__": {"a": "b"}})])))
def test_damaged_safetensors(data):
    refuses_or_reads(SafeTensors, data, ValueError)


@given(damaged(st.sampled_from([NPZ, npy(MAPS), SAFETENSORS, JSON])))
def test_damaged_attention(data):
    refuses_or_reads(read_file, data)


@given(damaged(st.just(TINY[:8000]) | st.just(TINY)))
def test_damaged_gguf(data):
    refuses_or_reads(read_model, data, ValueError)


@given(damaged(st.just(ADD)))
def test_damaged_onnx_graphs(data):
    with np.errstate(all="ignore"):
        refuses_or_reads(trace, data)


# wrong meanings in files that are whole

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 6)
    | st.sampled_from([*HUGE, -1, 10**400, "F32", "I8", "", "\ud800"])
    | st.floats()
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
sizes = st.lists(st.integers(-2, 5) | st.sampled_from(HUGE), max_size=6)
KNOWN = (
    *(
        "query",
        "key",
        "value",
        "attentions",
        "qkv",
        "tokens",
        "title",
        "causal",
        "window",
        "softcap",
        "scale",
    ),
    *("mask", "attention_mask", "layout", "attn.0", "attn.1", "q.0.k.1", "__metadata__", "a.b"),
)


@given(
    st.dictionaries(
        st.sampled_from(KNOWN),
        anything
        | st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["F32", "I8", "BF16", "BOOL", "F99"]),
                "shape": sizes,
                "data_offsets": st.lists(st.integers(0, 64) | st.sampled_from(HUGE), min_size=2, max_size=2),
            }
        ),
        max_size=4,
    ),
    st.binary(max_size=64),
)
def test_any_safetensors_header(header, data):
    refuses_or_reads(read_file, safetensors(header, data))


@given(st.dictionaries(st.sampled_from(KNOWN), anything | st.just(MAPS[0].tolist()), max_size=5) | anything)
@example({"query": VECTORS.tolist(), "key": VECTORS.tolist(), "scale": 10**400})
@example({"query": VECTORS.tolist(), "key": VECTORS.tolist(), "attention_mask": 1})
@example({"query": VECTORS.tolist(), "key": VECTORS.tolist(), "mask": [[1], [1, 2]]})
@example({"query": VECTORS.tolist(), "key": VECTORS.tolist(), "window": [[1] * 5000]})
def test_any_json(found):
    refuses_or_reads(read_file, json.dumps(found).encode())


dtypes = st.sampled_from(
    ["<f4", ">f8", "<f2", "|b1", "<U3", "<U500000000", "|S2000000000", "|V7", "<c8", "<M8[s]", "|O", "<i8"]
)


@given(
    st.dictionaries(
        st.sampled_from(KNOWN),
        st.builds(npy_header, sizes.map(tuple), dtypes, st.integers(1, 2))
        | st.just(npy(MAPS))
        | st.just(npy(np.float64("nan"))),
        max_size=4,
    ),
    st.integers(0, 200),
)
def test_any_npz(members, zeros):
    refuses_or_reads(
        read_file, zipped(*((f"{name}.npy", data + bytes(zeros)) for name, data in members.items()))
    )


@given(sizes.map(tuple), dtypes, st.binary(max_size=200))
def test_any_npy(shape, dtype, data):
    refuses_or_reads(read_file, npy_header(shape, dtype) + data)


metadata = st.tuples(
    st.sampled_from(
        ["general.architecture", "general.alignment", "llama.block_count", "llama.attention.head_count",
         "llama.embedding_length", "llama.rope.scaling.type", "tokenizer.ggml.model", "tokenizer.ggml.tokens",
         "tokenizer.ggml.token_type", "tokenizer.ggml.merges", "tokenizer.ggml.eos_token_id", "x"]
    ),
    st.one_of(
        st.tuples(st.just("uint32"), st.integers(0, 9) | st.just(2**32 - 1)),
        st.tuples(st.just("float64"), st.floats()),
        st.tuples(st.just("bool"), st.integers(0, 2)),
        st.tuples(st.just("string"), st.sampled_from(["llama", "gpt2", "", "x" * 5000])),
        st.tuples(st.just("[int32]"), st.lists(st.integers(-1, 5), max_size=4)),
        st.tuples(st.just("[string]"), st.lists(st.sampled_from(["a", "a b", "", "b"]), max_size=4)),
    ),
)  # fmt: skip


@given(st.lists(metadata, max_size=3))
@example([("general.architecture", ("[int32]", [1, 2]))])
@example([("llama.rope.scaling.type", ("[int32]", [1, 2]))])
@example([("tokenizer.ggml.model", ("[int32]", [1, 2]))])
@example([("tokenizer.ggml.model", ("string", "x" * 5000))])
def test_any_gguf_metadata(added):
    values, tensors = MODEL
    refuses_or_reads(read_model, write_gguf(values | dict(added), tensors), ValueError)


names = st.sampled_from(["x", "y", "c", "d", "n", "shape", "", "nobody"])
attributes = st.sampled_from(
    [
        part(1, "axis") + part(3, -1),
        part(1, "axis") + part(3, 2**62),
        part(1, "axis") + part(4, "one"),
        part(1, "to") + part(3, 9),
        part(1, "to") + part(3, 7),
        part(1, "axes") + part(8, 0) + part(8, 2**40),
        part(1, "start") + part(3, -9),
        part(1, "end") + part(4, ""),
        part(1, "fmod") + part(3, 1),
        part(1, "value") + part(5, part(2, 1) + part(9, bytes(4))),
        part(1, "value_float") + varint(2 << 3 | 5) + struct.pack("<f", float("nan")),
        part(1, "value_ints") + part(8, 2**63 - 1),
        part(2, b""),
        b"",
    ]
)
numbers = st.sampled_from(
    [
        (1, np.float32([0, -1, np.nan, np.inf, 3e38]).tobytes()),
        (1, np.float32(2).tobytes()),
        (7, np.int64([0, 2, -1, 2**62, -(2**63)]).tobytes()),
        (7, np.int64(3).tobytes()),
        (7, np.int64(0).tobytes()),
        (6, np.int32([1, 1]).tobytes()),
        (9, b"\1\0\2"),
        (11, np.float64(-0.5).tobytes()),
        (10, b"\0"),
        (99, b"1234"),
    ]
)
constants = st.builds(
    lambda name, dims, number, more: constant(name, dims, *number, **more),
    names,
    st.lists(st.integers(-2, 6) | st.sampled_from(HUGE), max_size=3),
    numbers,
    st.sampled_from([{}, {}, {}, {"f7": 2**64 - 1}, {"f5": b"\xff" * 30}, {"f4": b"123"}, {"f10": 3}]),
)
nodes = st.builds(
    lambda op, ins, outs, given: node(op, ins, outs, *given),
    st.sampled_from([*sorted(OPERATORS), "Sin", ""]),
    st.lists(names, max_size=4),
    st.lists(names, max_size=2),
    st.lists(attributes, max_size=2),
)


@given(st.lists(constants, max_size=4), st.lists(nodes, max_size=4))
def test_any_onnx_graph(held, steps):
    with np.errstate(all="ignore"):
        refuses_or_reads(trace, onnx_graph(*held, *steps))


# what once took minutes or gigabytes, or was refused without a word


def doubled(count):
    """A graph of count additions of a value to itself."""
    steps = [node("Add", [f"v{i}"] * 2, [f"v{i + 1}"]) for i in range(count)]
    return onnx_graph(node("Identity", ["x"], ["v0"]), *steps, node("Identity", [f"v{count}"], ["y"]))


def scalar(name, value, kind=1):
    return constant(name, [], kind, np.dtype({1: "<f4", 7: "<i8"}[kind]).type(value).tobytes())


def ranged(start, limit, step, kind=1):
    named = zip(("a", "b", "d"), (start, limit, step), strict=True)
    return onnx_graph(
        *(scalar(name, value, kind) for name, value in named), node("Range", ["a", "b", "d"], ["y"])
    )


def long_header(length):
    """An .npy file whose header claims this length."""
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", length)


GRAPHS = {
    "a value used twice, sixty times over": (doubled(60), None),
    "a chain of operators": (
        onnx_graph(*(node("Neg", ["x"] if i == 0 else [f"v{i}"], [f"v{i + 1}"]) for i in range(30_000))),
        "at most",
    ),
    "a number without end": (b"\x80" * 3_000_000, "not the bytes of a GraphProto"),
    "a number that overflows": (onnx_graph(constant("c", [1], 6, f5=2**62)), "GraphProto (tensor 'c'"),
    "dims that do not fit": (
        onnx_graph(constant("c", [2**62, 2**62], 1, bytes(4))),
        "GraphProto (tensor 'c'",
    ),
    "negative dims": (onnx_graph(constant("c", [-1], 1, bytes(8))), "GraphProto (tensor 'c'"),
    "half a number": (onnx_graph(constant("c", [1], 1, bytes(3))), "GraphProto (tensor 'c'"),
    "a constant twice": (onnx_graph(scalar("c", 1), scalar("c", 2)), "two constants"),
    "a range without step": (ranged(0, 5, 0), "score_mod: Range"),
    "a range to infinity": (ranged(0, np.inf, 1), "score_mod: Range"),
    "a range of what is no number": (ranged(np.nan, 1, 1), "score_mod: Range"),
    "too few inputs": (onnx_graph(node("Where", ["x"], ["y"])), "score_mod: Where"),
    "no outputs": (onnx_graph(node("Neg", ["x"], [])), "score_mod: Neg"),
    "a Gather from one number": (
        onnx_graph(scalar("c", 1), node("Gather", ["c", "x"], ["y"])),
        "score_mod: Gather",
    ),
}


@pytest.mark.parametrize(("data", "message"), GRAPHS.values(), ids=GRAPHS)
def test_onnx_graphs_that_are_traps(data, message):
    with np.errstate(all="ignore"):
        error = refuses_or_reads(trace, data)
    assert (error is None) == (message is None), error
    assert message is None or message in str(error), error


#: Functions that make a file, as some take seconds and gigabytes; and what its error begins with.
TRAPS = {
    "quotes that never close": (lambda: b'["' + b'\\"' * 2_000_000, "file: "),
    "a backslash at the end": (lambda: b'["' * 1_000_000 + b"\\", "file: "),
    "an npy header of 4 GB in a small archive": (
        lambda: zipped(("attentions.npy", long_header(2**32 - 1) + bytes(300_000_000))),
        "file: ",
    ),
    "a safetensors header of brackets": (lambda: safetensors(b'{"a":' + b"[" * 9_000_000), "safetensors: "),
    "a safetensors header of empty lists": (
        lambda: safetensors(b'{"a":[' + b"[]," * 9_000_000 + b"0]}"),
        "safetensors: ",
    ),
    "a title of gigabytes": (
        lambda: zipped(
            ("attentions.npy", npy(MAPS)), ("title.npy", npy_header((), "<U100000000") + bytes(400_000_000))
        ),
        "title: ",
    ),
    "tokens of gigabytes": (
        lambda: zipped(
            ("attentions.npy", npy(MAPS)), ("tokens.npy", npy_header((4,), "<U50000000") + bytes(10**9))
        ),
        "tokens: ",
    ),
    "a name of many words": (lambda: json.dumps({".".join("q" * 300_000): [[1.0]]}).encode(), "file: "),
    "names of a megabyte": (
        lambda: json.dumps({f"{'x' * 10**6}.query.{i}": [[1.0]] for i in "01"} | {"query": [[1.0]]}).encode(),
        "file: ",
    ),
    "an array twice in an archive": (
        lambda: zipped(("attentions.npy", npy(MAPS)), ("attentions.npy", npy(MAPS / 2))),
        "file: it has 'attentions.npy' twice",
    ),
    "a name twice in JSON": (
        lambda: b'{"attentions": [[1]], "attentions": [[0]]}',
        "file: it has 'attentions' twice",
    ),
}


def many_members(count):
    """An archive whose list of members is long, and which has none of them."""
    entry = b"PK\1\2" + bytes(42)
    size = len(entry) * count
    return b"PK" + entry * count + b"PK\5\6" + struct.pack("<4H2IH", 0, 0, 0, 0, size, 2, 0)


TRAPS["a million members"] = (lambda: many_members(1_000_000), "file: ")


@pytest.mark.parametrize(("make", "message"), TRAPS.values(), ids=TRAPS)
def test_files_that_are_traps(make, message):
    error = refuses_or_reads(read_file, make())
    assert error is not None
    assert str(error).startswith(message), error


class Sparse:
    """A GGUF file of many bytes that are the same few over and over, of which none is kept."""

    def __init__(self, front, again, size):
        self.front, self.again, self.size = front, again, size

    def read(self, begin, end):
        skipped = max(0, begin - len(self.front)) % len(self.again)
        body = self.again * ((end - begin) // len(self.again) + 2)
        if begin >= len(self.front):
            return body[skipped : skipped + end - begin]
        return (self.front[begin:] + body)[: end - begin]


def claimed(tensors, values, again, front=b""):
    return Sparse(COUNTS.pack(b"GGUF", 3, tensors, values) + front, again, 60_000_000)


GGUF_TRAPS = {
    "millions of values": claimed(0, 3_000_000, pack_string("k") + struct.pack("<IB", 7, 1)),
    "millions of tensors": claimed(2_000_000, 0, pack_string("t") + struct.pack("<IIQ", 0, 0, 0)),
    "millions of texts": claimed(
        0, 1, pack_string("ab"), pack_string("k") + struct.pack("<IIQ", 9, 8, 5_900_000)
    ),
    "one text of wide characters": claimed(
        0, 1, b"a", pack_string("k") + struct.pack("<IQ", 8, 59_000_000) + "\U0001f408".encode()
    ),
    "an array of many numbers": claimed(
        0, 1, b"\1", pack_string("k") + struct.pack("<IIQ", 9, 7, 59_900_000)
    ),
}


@pytest.mark.parametrize("file", GGUF_TRAPS.values(), ids=GGUF_TRAPS)
def test_gguf_files_that_are_traps(file):
    refuses_or_reads(GGUF, file, ValueError)
