"""Which GGUF files are taken for a llama model, and what is said of the others."""

import pytest

from py_attn.models.files import BytesFile
from py_attn.models.gguf import GGUF
from py_attn.models.llama_weights import Config, read_config
from tests.tiny_gguf import Tensor, tiny_gguf, tiny_model, write_gguf


def read(metadata, tensors):
    return read_config(GGUF(BytesFile(write_gguf(metadata, tensors))))


def test_tiny_model():
    config = read(*tiny_model())
    assert config == Config(
        layers=2,
        width=64,
        inner=96,
        heads=4,
        kv_heads=2,
        head_dim=16,
        vocabulary=291,
        context_length=128,
        rope_base=1e5,
        epsilon=config.epsilon,
        end_tokens=(2, 0),
    )
    assert config.epsilon == pytest.approx(1e-5)


def test_other_sizes_with_many_layers():
    config = read(*tiny_model(layers=12, heads=2, kv_heads=1, head_dim=32, inner=32, context=7))
    assert (config.layers, config.kv_heads, config.head_dim, config.context_length) == (12, 1, 32, 7)


def test_smollm2(smollm2_file):
    file = GGUF(smollm2_file)
    config = read_config(file)
    assert config == Config(
        layers=30,
        width=576,
        inner=1536,
        heads=9,
        kv_heads=3,
        head_dim=64,
        vocabulary=49152,
        context_length=8192,
        rope_base=1e5,
        epsilon=config.epsilon,
        end_tokens=(2, 0),
    )
    assert {tensor.name for tensor in config.tensors()} == set(file.tensors)
    # What the tiny file has, the published file has as well, of the same types and in the same order.
    tiny = GGUF(BytesFile(tiny_gguf(layers=30)))
    assert list(tiny.metadata) == list(file.metadata)
    for ours, theirs in zip(tiny.tensors.values(), file.tensors.values(), strict=True):
        assert (ours.name, ours.type, len(ours.shape)) == (theirs.name, theirs.type, len(theirs.shape))


def test_expected_tensors():
    config = read(*tiny_model())
    expected = list(config.tensors())
    assert (expected[0].part, expected[-1].part, len(expected)) == ("token_embd", "output_norm", 20)
    assert expected[1:10] == list(config.layer(0))
    parts = "attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_up ffn_down"
    assert " ".join(tensor.part for tensor in config.layer(1)) == parts


COUNT = "expected a positive whole number"
NUMBER = "expected a positive finite number"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("general.architecture", ("string", "mamba"), "architecture 'mamba', supported is 'llama'"),
        ("general.architecture", None, "architecture None, supported is 'llama'"),
        ("llama.block_count", None, f"llama.block_count is missing, {COUNT}"),
        ("llama.block_count", ("uint32", 0), f"llama.block_count is 0, {COUNT}"),
        ("llama.block_count", ("float32", 1.0), f"llama.block_count is 1.0, {COUNT}"),
        ("llama.block_count", ("bool", True), f"llama.block_count is True, {COUNT}"),
        ("llama.block_count", ("uint32", 2), "'blk.1.attn_norm.weight' is missing among the file's 11"),
        ("llama.block_count", ("uint64", 2**62), "'blk.1.attn_norm.weight' is missing"),
        ("llama.embedding_length", ("uint32", 128), "dimension_count is 16, supported is only head_dim, 32"),
        ("llama.embedding_length", ("uint32", 66), "4 heads in a width of 66, expected a multiple of 4"),
        ("llama.embedding_length", ("uint32", 60), "a head_dim of 15, expected an even one"),
        ("llama.embedding_length", ("uint32", 3), "4 heads in a width of 3, expected a multiple of 4"),
        ("llama.feed_forward_length", ("uint32", 64), r"'blk.0.ffn_gate.weight' is Q4_1 of shape \[96, 64\]"),
        (
            "llama.attention.head_count",
            ("uint32", 3),
            "2 key/value heads for 3 heads, expected a divisor of 3",
        ),
        ("llama.attention.head_count_kv", ("[uint32]", [2]), f"head_count_kv is array.*, {COUNT}"),
        (
            "llama.attention.head_count_kv",
            ("uint32", 4),
            r"'blk.0.attn_k.weight' is Q4_1 of shape \[32, 64\]",
        ),
        ("llama.attention.key_length", ("uint32", 15), "a head_dim of 15, expected an even one"),
        ("llama.attention.value_length", ("uint32", 8), "value_length is 8, supported is only head_dim, 16"),
        ("llama.rope.dimension_count", ("uint32", 8), "dimension_count is 8, supported is only head_dim, 16"),
        ("llama.rope.scaling.type", ("string", "yarn"), "scaling.type is 'yarn', supported is only 'none'"),
        ("llama.rope.freq_base", ("float32", float("inf")), f"freq_base is inf, {NUMBER}"),
        ("llama.rope.freq_base", ("float32", -1.0), f"freq_base is -1.0, {NUMBER}"),
        ("llama.rope.freq_base", ("string", "a"), f"freq_base is 'a', {NUMBER}"),
        ("llama.attention.layer_norm_rms_epsilon", None, f"rms_epsilon is missing, {NUMBER}"),
        (
            "llama.attention.layer_norm_rms_epsilon",
            ("float32", float("nan")),
            f"rms_epsilon is nan, {NUMBER}",
        ),
        ("llama.vocab_size", ("uint32", 290), "llama.vocab_size is 290, but the file has 291 tokens"),
        ("tokenizer.ggml.tokens", None, "llama.vocab_size is 291, but the file has 0 tokens"),
        ("tokenizer.ggml.eos_token_id", None, "eos_token_id is None, expected an id below 291"),
        ("tokenizer.ggml.eos_token_id", ("uint32", 291), "eos_token_id is 291, expected an id below 291"),
    ],
)
def test_unsupported_metadata(key, value, message):
    metadata, tensors = tiny_model(layers=1)
    metadata.pop(key, None)
    if value is not None:
        metadata[key] = value
    with pytest.raises(ValueError, match=f"^weights: .*{message}"):
        read(metadata, tensors)


def test_values_that_files_leave_out():
    metadata, tensors = tiny_model(kv_heads=4)
    for key in ("llama.attention.head_count_kv", "llama.rope.dimension_count", "llama.rope.freq_base"):
        del metadata[key]
    config = read(metadata, tensors)
    assert (config.kv_heads, config.head_dim, config.rope_base) == (4, 16, 10000.0)


def test_wrong_tensors():
    metadata, tensors = tiny_model(layers=1)
    for missing in tensors:
        with pytest.raises(ValueError, match=f"tensor '{missing.name}' is missing among the file's 10"):
            read(metadata, [tensor for tensor in tensors if tensor is not missing])
    with pytest.raises(ValueError, match=r"has a matrix 'output\.weight', supported is only"):
        read(metadata, [*tensors, Tensor("output.weight", "F32", (2,), bytes(8))])
    with pytest.raises(ValueError, match=r"has a tensor 'blk.0.attn_q.bias', which the model would not use"):
        read(metadata, [*tensors, Tensor("blk.0.attn_q.bias", "F32", (2,), bytes(8))])
    other = Tensor(tensors[0].name, "F16", (291, 64), bytes(291 * 64 * 2))
    with pytest.raises(ValueError, match=r"'token_embd.weight' is F16 of shape .*, supported is Q8_0 of"):
        read(metadata, [other, *tensors[1:]])
