"""MiniLM-L6: a sentence to its embedding, with every layer's attention by :func:`py_attn.attention`.

The published model is ``sentence-transformers/all-MiniLM-L6-v2``: 6 BERT layers of 12 heads of 32, whose
last layer is averaged over the tokens and divided by its L2 norm. Its pipeline cuts texts at 256 tokens;
here the limit is that of the weights, 512.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn import reference
from py_attn.gpu.device import Device
from py_attn.gpu.tensor import Tensor
from py_attn.kernels import nn
from py_attn.kernels.attention.forward import attention
from py_attn.kernels.attention.weights import attention_weights
from py_attn.models.minilm_reference import forward
from py_attn.models.minilm_weights import EPSILON, HEAD_DIM, Config, Weights
from py_attn.models.trace import LayerTrace, Trace
from py_attn.models.wordpiece import Encoding, WordPiece

Array = npt.NDArray[np.float32]
UploadProgress = Callable[[int, int], None]


class _Model:
    """What the model is and how it reads a text, wherever it computes.

    Attributes
    ----------
    layers, heads, head_dim, width : int
        6, 12, 32 and 384 for the published weights.
    max_tokens : int
        The longest text in tokens, including [CLS] and [SEP].
    tokenizer : WordPiece
    """

    def __init__(self, tokenizer: WordPiece, config: Config) -> None:
        self.tokenizer = tokenizer
        self._config = config
        self.layers = config.layers
        self.heads = config.heads
        self.head_dim = HEAD_DIM
        self.width = config.width
        self.max_tokens = config.positions

    def tokenize(self, text: str) -> list[int]:
        """Token ids with [CLS] at the front and [SEP] at the end; for an empty text only these two.

        A longer text than `max_tokens` is cut there, as the model would cut it
        (``model.tokenizer.encode(text, model.max_tokens).truncated`` tells).

        Raises
        ------
        TypeError
            `text` is no string.
        """
        return self.tokenizer.encode(text, self.max_tokens).ids

    def _encode(self, text: str) -> Encoding:
        encoding = self.tokenizer.encode(text, self.max_tokens)
        if len(encoding.ids) == 2:
            what = "an empty text" if not text else "only whitespace or control characters"
            raise ValueError(f"text: expected at least one word, got {what}")
        return encoding


class MiniLM(_Model):
    """The model on a GPU. Made by :func:`py_attn.models.load`; `destroy` frees its weights."""

    def __init__(
        self, tokenizer: WordPiece, config: Config, device: Device, tensors: Mapping[str, Tensor]
    ) -> None:
        super().__init__(tokenizer, config)
        self.device = device
        self._tensors = tensors

    async def encode(self, text: str, return_weights: bool = False) -> Any:
        """The embedding of a text and, with ``return_weights``, every layer's attention weights.

        Parameters
        ----------
        text
            Cut at `max_tokens` tokens (`trace` tells whether it was).
        return_weights
            Also return the weights.

        Returns
        -------
        Tensor or (Tensor, list[Tensor])
            [width], of length 1; with it [heads, T, T] for each layer.

        Raises
        ------
        ValueError
            The text is empty or only whitespace, or the model was destroyed.
        DeviceLostError
            The model's device is gone: load the model again on a new one.
        """
        trace = await self.trace(text)
        if not return_weights:
            return trace.embedding
        weights = [attention_weights(layer.query, layer.key, layer.lse) for layer in trace.layers]
        return trace.embedding, [layer.reshape(*layer.shape[1:]) for layer in weights]

    async def trace(self, text: str) -> Trace[Tensor]:
        """The embedding of a text with every layer's query, key, value, output and LSE.

        Raises the errors of `encode`. It returns before the tensors are computed; reading them waits.
        """
        encoding = self._encode(text)
        self.device.check_alive()
        layers, embedding = self._forward(encoding.ids)
        return Trace(text, encoding.tokens, encoding.ids, encoding.truncated, layers, embedding)

    def destroy(self) -> None:
        """Free the weights on the GPU; embeddings and traces stay."""
        for tensor in self._tensors.values():
            tensor.destroy()

    def _forward(self, ids: list[int]) -> tuple[list[LayerTrace[Tensor]], Tensor]:
        get = self._tensors.__getitem__

        def linear(x: Tensor, name: str, activation: nn.Activation | None = None) -> Tensor:
            return nn.linear(x, get(f"{name}.weight"), get(f"{name}.bias"), activation=activation)

        def norm(x: Tensor, name: str, residual: Tensor | None = None) -> Tensor:
            weight, bias = get(f"{name}.weight"), get(f"{name}.bias")
            return nn.layer_norm(x, weight, bias, residual=residual, epsilon=EPSILON)

        tables = (get(f"embeddings.{name}_embeddings.weight") for name in ("word", "position", "token_type"))
        x = norm(nn.embedding(ids, *tables), "embeddings.LayerNorm")
        layers = []
        for number in range(self.layers):
            name = f"encoder.layer.{number}"
            joint = linear(x, f"{name}.attention.self").reshape(1, len(ids), 3, self.heads, self.head_dim)
            query, key, value = (joint[:, :, part] for part in range(3))  # views [1, T, H, D]
            out, lse = attention(query, key, value, layout="BSHD", return_lse=True)
            query, key, value, heads_out = (t.transpose(0, 2, 1, 3) for t in (query, key, value, out))
            layers.append(LayerTrace(query, key, value, heads_out, lse))
            attended = linear(out.reshape(len(ids), self.width), f"{name}.attention.output.dense")
            x = norm(attended, f"{name}.attention.output.LayerNorm", residual=x)
            inner = linear(x, f"{name}.intermediate.dense", "gelu")
            x = norm(linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm", residual=x)
        return layers, nn.mean_pool(x)


class MiniLMReference(_Model):
    """The model in numpy's float32, for where there is no WebGPU. The same methods, with numpy arrays."""

    def __init__(self, tokenizer: WordPiece, config: Config, weights: Weights) -> None:
        super().__init__(tokenizer, config)
        self._weights = weights

    async def encode(self, text: str, return_weights: bool = False) -> Any:
        """As :meth:`MiniLM.encode`, in numpy arrays."""
        trace = await self.trace(text)
        if not return_weights:
            return trace.embedding
        return trace.embedding, [
            reference.attention_weights(layer.query, layer.key, compute_dtype=np.float32)[0]
            for layer in trace.layers
        ]

    async def trace(self, text: str) -> Trace[Array]:
        """As :meth:`MiniLM.trace`, in numpy arrays, computed when it returns."""
        encoding = self._encode(text)
        layers, embedding = forward(self._config, self._weights, encoding.ids, np.float32)
        return Trace(text, encoding.tokens, encoding.ids, encoding.truncated, layers, embedding)

    def destroy(self) -> None:
        """Free the weights."""
        self._weights = {}


async def upload(
    device: Device, tokenizer: WordPiece, config: Config, weights: Weights, progress: UploadProgress
) -> MiniLM:
    """Put the weights on a device; where that fails or is cancelled, none of them stays there.

    Parameters
    ----------
    progress
        Called with the bytes uploaded so far and in all.
    """
    total = sum(array.nbytes for array in weights.values())
    tensors: dict[str, Tensor] = {}
    loaded = 0
    try:
        for name, array in _joined(config, weights):
            tensors[name] = device.tensor(array, "float32", name=name)
            loaded += array.nbytes
            progress(loaded, total)
            await asyncio.sleep(0)  # so that the task can be cancelled here
        await device.synchronize()
    except BaseException:
        for tensor in tensors.values():
            tensor.destroy()
        raise
    return MiniLM(tokenizer, config, device, tensors)


def _joined(config: Config, weights: Weights) -> Iterator[tuple[str, Array]]:
    """The arrays to upload: query, key and value of a layer in one, and the linears' weights transposed."""
    for name, array in weights.items():
        if ".attention.self." not in name:
            yield name, np.ascontiguousarray(array.T) if name.endswith("dense.weight") else array
    for number in range(config.layers):
        name = f"encoder.layer.{number}.attention.self"
        for kind in ("weight", "bias"):
            parts = [weights[f"{name}.{part}.{kind}"] for part in ("query", "key", "value")]
            yield f"{name}.{kind}", np.concatenate([part.T for part in parts], axis=-1)
