"""What a llama model's GGUF file holds, checked before anything is computed with it.

Supported is what SmolLM2's published file has: RMSNorm, rotary positions without scaling, grouped queries,
SwiGLU, no biases, one matrix for both embedding and output, norms in F32, the embedding in Q8_0 and all other
matrices in Q4_1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py_attn.models.gguf import GGUF, shorten

#: Besides the file's own end token, this one ends a text as well.
END_OF_TEXT = "<|endoftext|>"


@dataclass(frozen=True)
class Expected:
    """A tensor that the model needs.

    Attributes
    ----------
    name : str
        In the file: "token_embd.weight", "blk.0.attn_q.weight", …
    part : str
        Its role: "token_embd", "output_norm" or, in a layer, "attn_norm", "attn_q", "attn_k", "attn_v",
        "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down".
    shape : tuple[int, ...]
        Rows first; a matrix has a row for each of its outputs.
    type : {"F32", "Q4_1", "Q8_0"}
    """

    name: str
    part: str
    shape: tuple[int, ...]
    type: str


@dataclass(frozen=True)
class Config:
    """Sizes and constants of a model.

    Attributes
    ----------
    layers, width, inner : int
        `inner` is the length of the vectors within the feed-forward part.
    heads, kv_heads, head_dim : int
        Query heads, key/value heads, and the length of their vectors.
    vocabulary : int
        Tokens.
    context_length : int
        Positions that the model was trained on.
    rope_base : float
        Pair i of a head turns by position · rope_base ** (-2i / head_dim).
    epsilon : float
        Of RMSNorm.
    end_tokens : tuple[int, ...]
        Ids after which a text is over; the file's own end token first.
    """

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context_length: int
    rope_base: float
    epsilon: float
    end_tokens: tuple[int, ...]

    def layer(self, number: int) -> Iterator[Expected]:
        """The tensors of a layer, in the order in which they are computed with."""
        rows, kv_rows = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "attn_norm": (self.width,),
            "attn_q": (rows, self.width),
            "attn_k": (kv_rows, self.width),
            "attn_v": (kv_rows, self.width),
            "attn_output": (self.width, rows),
            "ffn_norm": (self.width,),
            "ffn_gate": (self.inner, self.width),
            "ffn_up": (self.inner, self.width),
            "ffn_down": (self.width, self.inner),
        }
        for part, shape in shapes.items():
            kind = "F32" if len(shape) == 1 else "Q4_1"
            yield Expected(f"blk.{number}.{part}.weight", part, shape, kind)

    def tensors(self) -> Iterator[Expected]:
        """All tensors: the embedding, those of each layer, the last norm."""
        yield Expected("token_embd.weight", "token_embd", (self.vocabulary, self.width), "Q8_0")
        for number in range(self.layers):
            yield from self.layer(number)
        yield Expected("output_norm.weight", "output_norm", (self.width,), "F32")


def read_config(file: GGUF) -> Config:
    """The configuration of the model in a file, which is found to have the tensors for it.

    Raises
    ------
    ValueError
        The model is of another architecture, has a part that is not supported, or lacks a tensor; the message
        says what the file has and what is supported.
    """
    architecture = file.metadata.get("general.architecture")
    # An array, which a file may have instead, is not compared.
    if not isinstance(architecture, str) or architecture != "llama":
        raise ValueError(
            f"weights: the file has the architecture {shorten(architecture)}, supported is 'llama'"
        )
    config = _config(file)
    _check_tensors(file, config)
    return config


def _config(file: GGUF) -> Config:
    width, heads = _count(file, "embedding_length"), _count(file, "attention.head_count")
    kv_heads = _count(file, "attention.head_count_kv", heads)
    if heads % kv_heads:
        raise ValueError(
            f"weights: {kv_heads} key/value heads for {heads} heads, expected a divisor of {heads}"
        )
    if width % heads and "llama.attention.key_length" not in file.metadata:
        raise ValueError(f"weights: {heads} heads in a width of {width}, expected a multiple of {heads}")
    head_dim = _count(file, "attention.key_length", width // heads)
    if head_dim % 2:
        raise ValueError(f"weights: a head_dim of {head_dim}, expected an even one, as positions turn pairs")
    for key in ("attention.value_length", "rope.dimension_count"):
        if (found := _count(file, key, head_dim)) != head_dim:
            raise ValueError(f"weights: llama.{key} is {found}, supported is only head_dim, {head_dim}")
    scaling = file.metadata.get("llama.rope.scaling.type", "none")
    if not isinstance(scaling, str) or scaling != "none":
        raise ValueError(f"weights: llama.rope.scaling.type is {shorten(scaling)}, supported is only 'none'")
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    vocabulary = len(tokens) if isinstance(tokens, list) else 0
    if (found := _count(file, "vocab_size", vocabulary)) != vocabulary:
        raise ValueError(f"weights: llama.vocab_size is {found}, but the file has {vocabulary} tokens")
    return Config(
        layers=_count(file, "block_count"),
        width=width,
        inner=_count(file, "feed_forward_length"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
        context_length=_count(file, "context_length"),
        rope_base=_positive(file, "rope.freq_base", 10000.0),
        epsilon=_positive(file, "attention.layer_norm_rms_epsilon"),
        end_tokens=_end_tokens(file, vocabulary),
    )


def _end_tokens(file: GGUF, vocabulary: int) -> tuple[int, ...]:
    key = "tokenizer.ggml.eos_token_id"
    end = file.metadata.get(key)
    if type(end) is not int or not 0 <= end < vocabulary:
        raise ValueError(f"weights: {key} is {shorten(end)}, expected an id below {vocabulary}")
    tokens = file.metadata["tokenizer.ggml.tokens"]
    others = [tokens.index(END_OF_TEXT)] if END_OF_TEXT in tokens else []
    return tuple(dict.fromkeys([end, *others]))


def _check_tensors(file: GGUF, config: Config) -> None:
    known = set()
    for expected in config.tensors():
        found = file.tensors.get(expected.name)
        if found is None:
            raise ValueError(
                f"weights: tensor {expected.name!r} is missing among the file's {len(file.tensors)}, expected"
                f" those of {config.layers} layers"
            )
        if (found.type, found.shape) != (expected.type, expected.shape):
            raise ValueError(
                f"weights: tensor {expected.name!r} is {found.type} of shape {list(found.shape)}, supported"
                f" is {expected.type} of shape {list(expected.shape)}"
            )
        known.add(expected.name)
    others = [name for name in file.tensors if name not in known]
    if "output.weight" in others:
        raise ValueError(
            "weights: the file has a matrix 'output.weight', supported is only 'token_embd.weight' as output"
        )
    if others:
        raise ValueError(f"weights: the file has a tensor {others[0]!r}, which the model would not use")


_REQUIRED: Any = object()


def _count(file: GGUF, key: str, default: Any = _REQUIRED) -> int:
    """A positive whole number of the metadata."""
    value = file.metadata.get(f"llama.{key}", default)
    # bool is an int to isinstance.
    if type(value) is not int or value < 1:
        what = "missing" if value is _REQUIRED else shorten(value)
        raise ValueError(f"weights: llama.{key} is {what}, expected a positive whole number")
    return value


def _positive(file: GGUF, key: str, default: Any = _REQUIRED) -> float:
    value = file.metadata.get(f"llama.{key}", default)
    if type(value) is not float or not 0 < value < math.inf:
        what = "missing" if value is _REQUIRED else shorten(value)
        raise ValueError(f"weights: llama.{key} is {what}, expected a positive finite number")
    return value
