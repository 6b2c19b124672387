"""The reader of GGUF headers on well-formed, broken and hostile files."""

import struct
import time

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_attn.models.files import BytesFile
from py_attn.models.gguf import GGUF, TENSOR_TYPES
from tests.tiny_gguf import (
    Tensor,
    pack_string,
    pack_value,
    tiny_gguf,
    tiny_model,
    write_gguf,
)


def read(data):
    return GGUF(BytesFile(data))


def header(tensors=(), values=(), version=3, magic=b"GGUF", counts=None, data=b""):
    """A file of packed parts, which need not fit together."""
    counts = counts or (len(tensors), len(values))
    front = magic + struct.pack("<IQQ", version, *counts) + b"".join(values) + b"".join(tensors)
    return front + bytes(-len(front) % 32) + data


def value(key, *kind_and_value):
    return pack_string(key) + pack_value(*kind_and_value)


def packed(form, *numbers):
    """The key "k" and, in place of a value, some numbers."""
    return pack_string("k") + struct.pack(form, *numbers)


def tensor(name="a", shape=(2,), kind=0, offset=0, axes=None):
    front = pack_string(name) + struct.pack("<I", len(shape) if axes is None else axes)
    return front + struct.pack(f"<{len(shape)}QIQ", *reversed(shape), kind, offset)


def plain(item):
    return item.tolist() if isinstance(item, np.ndarray) else item


@pytest.mark.parametrize("alignment", [8, 32, 64])
def test_gives_back_what_was_written(alignment):
    metadata, tensors = tiny_model()
    metadata["general.alignment"] = ("uint32", alignment)
    data = write_gguf(metadata, tensors, alignment=alignment)
    file = read(data)
    assert list(file.metadata) == list(metadata)
    for key, (kind, written) in metadata.items():
        expected = np.float32(written).item() if kind == "float32" else written
        assert plain(file.metadata[key]) == expected
        assert type(plain(file.metadata[key])) is type(expected)
    assert list(file.tensors) == [tensor.name for tensor in tensors]
    for written in tensors:
        info = file.tensors[written.name]
        assert (info.name, info.type, info.shape) == (written.name, written.type, written.shape)
        assert data[info.start : info.stop] == written.data
        assert info.start % alignment == 0


def test_agrees_with_the_gguf_package(tmp_path, smollm2_file):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_gguf())
    cases = {path: read(path.read_bytes()), smollm2_file.path: GGUF(smollm2_file)}
    for place, file in cases.items():
        theirs = gguf.GGUFReader(place)
        fields = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
        assert {key: plain(item) for key, item in file.metadata.items()} == fields
        assert list(file.metadata) == list(fields)
        assert list(file.tensors) == [tensor.name for tensor in theirs.tensors]
        for info, expected in zip(file.tensors.values(), theirs.tensors, strict=True):
            assert info.shape == tuple(map(int, reversed(expected.shape)))
            assert info.type == expected.tensor_type.name
            assert (info.start, info.stop - info.start) == (expected.data_offset, expected.n_bytes)


def test_agrees_with_the_gguf_package_on_tensor_types():
    theirs = {t.value: (t.name, *sizes) for t, sizes in gguf.GGML_QUANT_SIZES.items()}
    # Q8_1 and Q8_K are made while a model runs, and are in no file.
    assert {number: sizes for number, sizes in theirs.items() if number not in (9, 15)} == TENSOR_TYPES


def test_reads_the_header_only_and_fast(smollm2_file):
    reads = []

    class Counted:
        size = smollm2_file.size

        def read(self, begin, end):
            reads.append((begin, end))
            return smollm2_file.read(begin, end)

    start = time.perf_counter()
    file = GGUF(Counted())
    assert time.perf_counter() - start < 0.5
    assert len(file.metadata["tokenizer.ggml.tokens"]) == 49152
    assert len(reads) <= 5
    assert reads[-1][1] <= 2 * min(info.start for info in file.tensors.values())
    assert [begin for begin, _ in reads[1:]] == [end for _, end in reads[:-1]]


def test_every_truncation_is_found():
    data = tiny_gguf(layers=1)
    last = max(info.stop for info in read(data).tensors.values())
    for size in [*range(500), *range(500, last, 37), last - 1]:
        with pytest.raises(ValueError, match=r"^gguf: .*(truncated file\?|can follow)"):
            read(data[:size])
    read(data[:last])


@given(st.data())
def test_random_damage_gives_a_value_error_or_nothing(data):
    damaged = bytearray(tiny_gguf(layers=1)[:9000])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, 8999))] = data.draw(st.integers(0, 255))
    file = BytesFile(bytes(damaged))
    with pytest.raises(ValueError, match=r"^gguf: "):  # the tensors' bytes are missing at least
        GGUF(file)


def test_arrays_and_scalars_of_every_type():
    integers = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    scalars = [(kind, int(edge)) for kind in integers for edge in (np.iinfo(kind).min, np.iinfo(kind).max)]
    scalars += [("float32", 1.5), ("float64", 0.1), ("bool", True), ("bool", False), ("string", "日\0")]
    metadata = {f"k{n}": scalar for n, scalar in enumerate(scalars)}
    metadata |= {f"a{n}": (f"[{kind}]", [item] * n) for n, (kind, item) in enumerate(scalars)}
    file = read(write_gguf(metadata, []))
    assert [plain(item) for item in file.metadata.values()] == [item for _, item in metadata.values()]
    assert file.tensors == {}


def test_a_tensor_without_axes_is_one_number():
    info = read(write_gguf({}, [Tensor("a", "F32", (), bytes(4))])).tensors["a"]
    assert (info.shape, info.stop - info.start) == ((), 4)


HUGE = 2**64 - 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "magic number ends at byte 4, but the file has only 0 bytes"),
        (header(magic=b"PK\3\4"), r"begins with b'PK\\x03\\x04', expected b'GGUF'"),
        (header(version=2), "has version 2, expected 3$"),
        (header(version=0x03000000), "has version 50331648, expected 3 .*big-endian"),
        (header(counts=(HUGE, 0)), f"claims {HUGE} tensors, .* but only 8 can follow"),
        (header(counts=(0, HUGE)), f"claims {HUGE} metadata values"),
        (header(values=[struct.pack("<Q", HUGE)], counts=(0, 1), data=bytes(64)), "key 0 .* at most 65535"),
        (header(values=[value("k", "string", "v")] * 2), "has the key 'k' twice"),
        (header(values=[pack_string(b"\xff") + pack_value("bool", 1)]), "key 0 of the metadata is not UTF-8"),
        (header(values=[value("k", "string", b"\xff")]), "metadata 'k' is not UTF-8"),
        (header(values=[packed("<IQ", 8, HUGE)]), "metadata 'k' ends at byte"),
        (header(values=[packed("<II", 13, 0)]), "'k' has a value of type 13, expected"),
        (header(values=[packed("<IIQ", 9, 13, 1)]), "'k' has a value of type 13"),
        (header(values=[packed("<IIQ", 9, 9, 1)]), "'k' is an array of arrays"),
        (header(values=[packed("<IIQ", 9, 8, HUGE)]), "strings in metadata 'k', at least"),
        (header(values=[packed("<IIQ", 9, 5, 2**62)]), "numbers in metadata 'k', at least"),
        (header(values=[value("k", "bool", 2)]), "'k' has the boolean 2, expected 0 or 1"),
        (header(values=[value("k", "[bool]", [0, 255])]), "'k' has the boolean 255"),
        (header(values=[value("general.alignment", "uint32", 0)]), "alignment is 0, expected a power of two"),
        (header(values=[value("general.alignment", "uint32", 48)]), "alignment is 48, expected"),
        (header(values=[value("general.alignment", "bool", 1)]), "alignment is True, expected"),
        (header(values=[value("general.alignment", "string", "8")]), "alignment is '8', expected"),
        (header(tensors=[tensor(name="n" * 65)]), "the name of tensor 0 takes 65 bytes, expected at most 64"),
        (header(tensors=[tensor(), tensor(offset=32)], data=bytes(64)), "two tensors have the name 'a'"),
        (header(tensors=[tensor(axes=5)]), "'a' has 5 axes, expected at most 4"),
        (header(tensors=[tensor(kind=9)]), r"'a' has type 9, expected one of 0 \(F32\), 1 \(F16\)"),
        (header(tensors=[tensor(shape=(2, 0))]), r"'a' has shape \[2, 0\], expected 1 to"),
        (header(tensors=[tensor(shape=(2**32, 2**32))]), r"'a' has shape \[4294967296, 4294967296\]"),
        (header(tensors=[tensor(shape=(32, 40), kind=3)]), "'a' has rows of 40 elements, .* of Q4_1's 32"),
        (header(tensors=[tensor(shape=(), kind=8)]), "'a' has rows of 1 elements, .* of Q8_0's 32"),
        (header(tensors=[tensor(offset=8)], data=bytes(16)), "data offset 8, expected a multiple of 32"),
        (header(tensors=[tensor()], data=bytes(7)), "'a' ends at byte 72, but the file has only 71 bytes"),
        (header(tensors=[tensor(offset=HUGE - 31)]), "'a' ends at byte"),
        (
            header(tensors=[tensor(shape=(9,)), tensor("b", offset=32)], data=bytes(64)),
            "tensor 'b' begins at byte 128, within tensor 'a', which ends at byte 132",
        ),
    ],
)  # fmt: skip
def test_faults_are_named(data, message):
    with pytest.raises(ValueError, match=message) as caught:
        read(data)
    assert str(caught.value).startswith("gguf: ")
    assert len(str(caught.value)) < 700


def test_a_hostile_header_costs_no_memory():
    class Endless:
        size = 2**50

        def read(self, begin, end):
            assert end <= 64_000_000
            data = header(values=[packed("<IIQ", 9, 8, 2**40)])
            return (data + bytes(end))[begin:end]

    with pytest.raises(ValueError, match="64000000 that a header may take"):
        GGUF(Endless())


def test_a_file_that_gives_too_few_bytes():
    class Short(BytesFile):
        def read(self, begin, end):
            return super().read(begin, end)[:-1]

    with pytest.raises(ValueError, match=r"gguf: expected \d+ bytes from byte 0 on, got \d+"):
        GGUF(Short(tiny_gguf()))
