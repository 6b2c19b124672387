"""Writes GGUF files: any that a test describes, and tiny random models like SmolLM2's.

``tiny_gguf()`` returns the bytes of a valid file whose metadata keys, tensor names, tensor types and order of
tensors are those of SmolLM2-135M-Instruct.Q4_1.gguf, only with smaller numbers and random weights::

    data = tiny_gguf()                          # 2 layers, width 64, 4 query and 2 key/value heads of 16
    data = tiny_gguf(layers=3, seed=7)          # see the parameters below
    path.write_bytes(data)

A file with a fault is a changed copy of the parts, put together by ``write_gguf``::

    metadata, tensors = tiny_model()
    metadata["general.architecture"] = ("string", "mamba")
    data = write_gguf(metadata, [tensor for tensor in tensors if tensor.name != "output_norm.weight"])

Its tokenizer has the three special tokens <|endoftext|> (0), <|im_start|> (1) and <|im_end|> (2, which ends
a text), a token for each of the 256 bytes (3 to 258, in the order of ``byte_characters()``), and one for each
of MERGES. The module needs only numpy, so that it also works where the package ``gguf`` is not installed.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

#: Number and struct format of each type of metadata value. "[type]" is an array of a type.
VALUE_TYPES = {
    "uint8": (0, "<B"),
    "int8": (1, "<b"),
    "uint16": (2, "<H"),
    "int16": (3, "<h"),
    "uint32": (4, "<I"),
    "int32": (5, "<i"),
    "float32": (6, "<f"),
    "bool": (7, "<B"),
    "string": (8, ""),
    "uint64": (10, "<Q"),
    "int64": (11, "<q"),
    "float64": (12, "<d"),
}
ARRAY = 9

#: Numbers of the tensor types that can be written.
TENSOR_TYPES = {"F32": 0, "F16": 1, "Q4_1": 3, "Q8_0": 8}

#: The tiny tokenizer's merges, strongest first. Each makes a token.
MERGES = (
    *("Ġ t", "Ġ a", "i n", "h e", "Ġ Ġ", "r e", "o n", "e r", "Ġt he", "a t", "Ġ s", "e n", "n d", "l l"),
    *("Ġa nd", "in g", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "ð Ł", "â Ģ", "u s"),
    *("us er", "s s", "a ss", "i st", "s t", "a n"),
)  # fmt: skip

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

#: SmolLM2's own.
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>"
    "\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

#: A metadata value: its type and the value.
Value = tuple[str, Any]


@dataclass(frozen=True)
class Tensor:
    """A tensor to write: `shape` with rows first, and its bytes as the file has them."""

    name: str
    type: str
    shape: tuple[int, ...]
    data: bytes


def tiny_gguf(**parameters: Any) -> bytes:
    """The bytes of a tiny model's file; parameters as for `tiny_model`."""
    return write_gguf(*tiny_model(**parameters))


def tiny_model(
    *,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    inner: int = 96,
    context: int = 128,
    rope_base: float = 1e5,
    epsilon: float = 1e-5,
    seed: int = 0,
) -> tuple[dict[str, Value], list[Tensor]]:
    """Metadata and tensors of a tiny random model. `inner` and heads x head_dim must be multiples of 32."""
    width = heads * head_dim
    tokens = [*SPECIAL_TOKENS, *byte_characters(), *dict.fromkeys(m.replace(" ", "") for m in MERGES)]
    types = [3] * len(SPECIAL_TOKENS) + [1] * (len(tokens) - len(SPECIAL_TOKENS))
    metadata: dict[str, Value] = {
        "general.architecture": ("string", "llama"),
        "general.type": ("string", "model"),
        "general.name": ("string", "Tiny"),
        "general.organization": ("string", "py-attn"),
        "general.finetune": ("string", "random"),
        "general.basename": ("string", "tiny"),
        "general.size_label": ("string", "100K"),
        "general.license": ("string", "mit"),
        "general.languages": ("[string]", ["en"]),
        "llama.block_count": ("uint32", layers),
        "llama.context_length": ("uint32", context),
        "llama.embedding_length": ("uint32", width),
        "llama.feed_forward_length": ("uint32", inner),
        "llama.attention.head_count": ("uint32", heads),
        "llama.attention.head_count_kv": ("uint32", kv_heads),
        "llama.rope.freq_base": ("float32", rope_base),
        "llama.attention.layer_norm_rms_epsilon": ("float32", epsilon),
        "general.file_type": ("uint32", 3),
        "llama.vocab_size": ("uint32", len(tokens)),
        "llama.rope.dimension_count": ("uint32", head_dim),
        "tokenizer.ggml.add_space_prefix": ("bool", False),
        "tokenizer.ggml.add_bos_token": ("bool", False),
        "tokenizer.ggml.model": ("string", "gpt2"),
        "tokenizer.ggml.pre": ("string", "smollm"),
        "tokenizer.ggml.tokens": ("[string]", tokens),
        "tokenizer.ggml.token_type": ("[int32]", types),
        "tokenizer.ggml.merges": ("[string]", list(MERGES)),
        "tokenizer.ggml.bos_token_id": ("uint32", 1),
        "tokenizer.ggml.eos_token_id": ("uint32", 2),
        "tokenizer.ggml.unknown_token_id": ("uint32", 0),
        "tokenizer.ggml.padding_token_id": ("uint32", 2),
        "tokenizer.chat_template": ("string", CHAT_TEMPLATE),
        "general.quantization_version": ("uint32", 2),
    }
    random = np.random.default_rng(seed)

    def matrix(name: str, rows: int, columns: int) -> Tensor:
        values = random.standard_normal((rows, columns), np.float32) / np.float32(columns**0.5)
        return Tensor(name, "Q4_1", (rows, columns), quantize_q4_1(values))

    def norm(name: str) -> Tensor:
        values = (1 + random.standard_normal(width) / 4).astype("<f4")
        return Tensor(name, "F32", (width,), values.tobytes())

    table = random.standard_normal((len(tokens), width), np.float32)
    tensors = [Tensor("token_embd.weight", "Q8_0", table.shape, quantize_q8_0(table))]
    for layer in sorted(range(layers), key=str):  # as in the real file: 0, 1, 10, 11, …, 2, …
        block = f"blk.{layer}"
        tensors += [
            norm(f"{block}.attn_norm.weight"),
            matrix(f"{block}.ffn_down.weight", width, inner),
            matrix(f"{block}.ffn_gate.weight", inner, width),
            matrix(f"{block}.ffn_up.weight", inner, width),
            norm(f"{block}.ffn_norm.weight"),
            matrix(f"{block}.attn_k.weight", kv_heads * head_dim, width),
            matrix(f"{block}.attn_output.weight", width, width),
            matrix(f"{block}.attn_q.weight", width, width),
            matrix(f"{block}.attn_v.weight", kv_heads * head_dim, width),
        ]
    return metadata, [*tensors, norm("output_norm.weight")]


def write_gguf(metadata: dict[str, Value], tensors: Sequence[Tensor], *, alignment: int = 32) -> bytes:
    """The bytes of a GGUF v3 file. An `alignment` other than 32 needs its key in the metadata as well."""
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    header += b"".join(pack_string(key) + pack_value(*value) for key, value in metadata.items())
    body = bytearray()
    for tensor in tensors:
        header += pack_string(tensor.name) + struct.pack("<I", len(tensor.shape))
        header += b"".join(struct.pack("<Q", size) for size in reversed(tensor.shape))
        header += struct.pack("<IQ", TENSOR_TYPES[tensor.type], len(body))
        body += tensor.data + bytes(-len(tensor.data) % alignment)
    return header + bytes(-len(header) % alignment) + bytes(body)


def pack_value(kind: str, value: Any) -> bytes:
    if not kind.startswith("["):
        return struct.pack("<I", VALUE_TYPES[kind][0]) + _pack_item(kind, value)
    kind = kind[1:-1]
    start = struct.pack("<IIQ", ARRAY, VALUE_TYPES[kind][0], len(value))
    return start + b"".join(_pack_item(kind, item) for item in value)


def _pack_item(kind: str, value: Any) -> bytes:
    return pack_string(value) if kind == "string" else struct.pack(VALUE_TYPES[kind][1], value)


def pack_string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def byte_characters() -> list[str]:
    """The character by which GPT-2's vocabularies write each byte, printable bytes first as they do."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(byte) for byte in printable] + [chr(256 + n) for n in range(256 - len(printable))]


def quantize_q4_1(values: npt.NDArray[np.float32]) -> bytes:
    """Blocks of 32 numbers: the step and the minimum as float16, then 4 bits a number."""
    blocks = values.reshape(-1, 32)
    low = blocks.min(1)
    step = (blocks.max(1) - low) / np.float32(15)
    inverse = np.divide(1, step, out=np.zeros_like(step), where=step != 0)
    codes = ((blocks - low[:, None]) * inverse[:, None] + np.float32(0.5)).clip(0, 15).astype(np.uint8)
    packed = codes[:, :16] | codes[:, 16:] << 4  # byte j holds the numbers j and j + 16
    scales = np.stack([step, low], 1).astype("<f2").view(np.uint8)
    return np.concatenate([scales, packed], 1).tobytes()


def quantize_q8_0(values: npt.NDArray[np.float32]) -> bytes:
    """Blocks of 32 numbers: the step as float16, then an int8 a number."""
    blocks = values.reshape(-1, 32)
    step = np.abs(blocks).max(1) / np.float32(127)
    inverse = np.divide(1, step, out=np.zeros_like(step), where=step != 0)
    codes = np.rint(blocks * inverse[:, None]).astype(np.int8)
    scales = step[:, None].astype("<f2").view(np.uint8)
    return np.concatenate([scales, codes.view(np.uint8)], 1).tobytes()
