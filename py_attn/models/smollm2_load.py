"""From SmolLM2's file to a model on the GPU: its matrices stay quantised, and never lie on Python's heap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from py_attn.gpu.bridge import File
from py_attn.gpu.device import Device
from py_attn.gpu.tensor import Tensor
from py_attn.kernels import nn
from py_attn.models.bpe import BPE
from py_attn.models.cache_options import check_cache
from py_attn.models.gguf import GGUF
from py_attn.models.llama_weights import Config, read_config
from py_attn.models.smollm2 import SmolLM2
from py_attn.models.written import LayerWeights, Weights

UploadProgress = Callable[[int, int], None]


async def load(
    device: Device,
    file: File,
    progress: UploadProgress,
    *,
    cache: object,
    context: object,
    ring: object,
    sink_tokens: object,
    history: object,
) -> SmolLM2:
    """Put a model's weights on a device; where that fails or is cancelled, none of them stays there.

    Parameters
    ----------
    file : File
        A GGUF file of the Llama architecture.
    progress
        Called with the bytes uploaded so far and in all.
    cache, context, ring, sink_tokens, history
        As of :func:`py_attn.models.load`.

    Raises
    ------
    ValueError, TypeError
        For a broken file, another architecture, or an option that does not fit.
    GPUOutOfMemoryError
        When there is no room for the weights or for the cache.
    """
    gguf = GGUF(file)
    config = read_config(gguf)
    if config.head_dim % 32:
        raise ValueError(
            f"weights: a head_dim of {config.head_dim}, supported are multiples of 32, the weights of a block"
        )
    options = check_cache(cache, context, ring, sink_tokens, history, config.context_length)
    tokenizer = BPE.from_gguf(gguf)
    template = str(gguf.metadata.get("tokenizer.chat_template", ""))
    begin = min(info.start for info in gguf.tensors.values())
    blocks = await device.upload_file(file, begin, progress=progress)
    made: list[Tensor] = []
    model = None
    try:
        try:
            weights = _Packing(device, file, gguf, blocks, begin, made).weights(config)
            await device.synchronize()
        finally:
            # The cache may need the room.
            blocks.destroy()
            device.release_memory()
        model = SmolLM2(device, config, tokenizer, template, weights, options)
        await device.synchronize()
        if not device.info.software:
            await model.warm_up()
        return model
    except BaseException:
        if model:
            model.destroy()
        for tensor in made:
            tensor.destroy()
        raise


@dataclass(frozen=True)
class _Packing:
    """Makes a model's tensors from its file.

    Attributes
    ----------
    blocks : Tensor
        uint32, the file's bytes from ``begin`` on.
    made : list of Tensor
        Those made so far.
    """

    device: Device
    file: File
    gguf: GGUF
    blocks: Tensor
    begin: int
    made: list[Tensor]

    def weights(self, config: Config) -> Weights:
        """All of them."""
        embedding = self._matrix("token_embd")
        layers = []
        for number in range(config.layers):
            name = f"blk.{number}"
            layers.append(
                LayerWeights(
                    attention_norm=self._floats(f"{name}.attn_norm"),
                    qkv=self._matrix(*(f"{name}.attn_{part}" for part in "qkv")),
                    output=self._matrix(f"{name}.attn_output"),
                    mlp_norm=self._floats(f"{name}.ffn_norm"),
                    gate_up=self._matrix(f"{name}.ffn_gate", f"{name}.ffn_up", interleave=True),
                    down=self._matrix(f"{name}.ffn_down"),
                )
            )
        return Weights(embedding, tuple(layers), self._floats("output_norm"))

    def _floats(self, name: str) -> Tensor:
        info = self.gguf.tensors[f"{name}.weight"]
        values = np.frombuffer(self.file.read(info.start, info.stop), "<f4").reshape(info.shape)
        tensor = self.device.tensor(values, name=name)
        self.made.append(tensor)
        return tensor

    def _matrix(self, *names: str, interleave: bool = False) -> nn.QuantizedMatrix:
        """Quantised matrices, stacked or with their rows in turn."""
        infos = [self.gguf.tensors[f"{name}.weight"] for name in names]
        first = infos[0]
        matrix = nn.pack_quantized(
            [self.blocks[(info.start - self.begin) // 4 : (info.stop - self.begin) // 4] for info in infos],
            [info.shape[0] for info in infos],
            first.shape[1],
            "Q8_0" if first.type == "Q8_0" else "Q4_1",
            interleave=interleave,
        )
        self.made.append(matrix.data)
        return matrix
