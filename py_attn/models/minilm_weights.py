"""MiniLM's weights as its safetensors file names them, checked before anything is computed with them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from py_attn.models.safetensors import BytesLike, SafeTensors
from py_attn.models.wordpiece import WordPiece

Weights = Mapping[str, npt.NDArray[np.float32]]

#: Head dim of the MiniLM family (12 heads of 32 in 384 columns); the file does not tell it.
HEAD_DIM = 32

#: Layer norm's epsilon in the published configuration.
EPSILON = 1e-12


@dataclass(frozen=True)
class Config:
    """Sizes of a model, derived from the shapes of its weights."""

    layers: int
    width: int
    inner: int
    positions: int
    vocabulary: int

    @property
    def heads(self) -> int:
        """Attention heads of each layer."""
        return self.width // HEAD_DIM

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor that the forward pass reads."""
        width, inner = self.width, self.inner
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings.word_embeddings.weight": (self.vocabulary, width),
            "embeddings.position_embeddings.weight": (self.positions, width),
            "embeddings.token_type_embeddings.weight": (2, width),
            "embeddings.LayerNorm.weight": (width,),
            "embeddings.LayerNorm.bias": (width,),
        }
        for layer in range(self.layers):
            linears = {
                "attention.self.query": (width, width),
                "attention.self.key": (width, width),
                "attention.self.value": (width, width),
                "attention.output.dense": (width, width),
                "intermediate.dense": (inner, width),
                "output.dense": (width, inner),
            }
            for name, shape in linears.items():
                shapes[f"encoder.layer.{layer}.{name}.weight"] = shape
                shapes[f"encoder.layer.{layer}.{name}.bias"] = shape[:1]
            for name in ("attention.output.LayerNorm", "output.LayerNorm"):
                shapes[f"encoder.layer.{layer}.{name}.weight"] = (width,)
                shapes[f"encoder.layer.{layer}.{name}.bias"] = (width,)
        return shapes


def read(data: BytesLike, tokenizer: WordPiece) -> tuple[Config, Weights]:
    """The weights in a file's bytes: views where it holds float32, and only the tensors that are used.

    Raises
    ------
    ValueError
        The file is broken, lacks a tensor, has one of another shape, or another vocabulary than `tokenizer`.
    """
    file = SafeTensors(data)
    config = _config(file)
    if config.vocabulary != len(tokenizer.tokens):
        raise ValueError(
            f"weights: word embeddings of {config.vocabulary} tokens, but the vocabulary has"
            f" {len(tokenizer.tokens)}"
        )
    weights = {}
    for name, expected in config.shapes().items():
        shape = _shape(file, name)
        if shape != expected:
            raise ValueError(f"weights: tensor {name!r} has shape {list(shape)}, expected {list(expected)}")
        weights[name] = file.float32(name)
    return config, weights


def _config(file: SafeTensors) -> Config:
    word = _matrix(file, "embeddings.word_embeddings.weight")
    position = _matrix(file, "embeddings.position_embeddings.weight")
    intermediate = _matrix(file, "encoder.layer.0.intermediate.dense.weight")
    numbers = [re.match(r"encoder\.layer\.(\d{1,3})\.", name) for name in file]
    layers = 1 + max(int(match[1]) for match in numbers if match)
    if word[1] % HEAD_DIM or word[1] == 0:
        raise ValueError(f"weights: expected a width that is a multiple of {HEAD_DIM}, got {word[1]}")
    return Config(
        layers=layers, width=word[1], inner=intermediate[0], positions=position[0], vocabulary=word[0]
    )


def _matrix(file: SafeTensors, name: str) -> tuple[int, int]:
    shape = _shape(file, name)
    if len(shape) != 2:
        raise ValueError(f"weights: tensor {name!r} has shape {list(shape)}, expected a matrix")
    return shape[0], shape[1]


def _shape(file: SafeTensors, name: str) -> tuple[int, ...]:
    if name not in file:
        raise ValueError(
            f"weights: tensor {name!r} is missing among the file's {len(file)} (not a MiniLM file?)"
        )
    return file.entries[name].shape
