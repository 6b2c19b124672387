"""From SmolLM2's file to a model on the GPU: its matrices stay quantised, and never lie on Python's heap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from py_attn.gpu.device import Device
from py_attn.gpu.tensor import Tensor
from py_attn.kernels import nn
from py_attn.models.bpe import BPE
from py_attn.models.files import File
from py_attn.models.gguf import GGUF, TensorInfo
from py_attn.models.llama_weights import Config, read_config
from py_attn.models.smollm2 import SmolLM2
from py_attn.models.written import LayerWeights, Weights, check_cache

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
    """
    gguf = GGUF(file)
    config = read_config(gguf)
    options = check_cache(cache, context, ring, sink_tokens, history, config.context_length)
    tokenizer = BPE.from_gguf(gguf)
    template = str(gguf.metadata.get("tokenizer.chat_template", ""))
    uploading = _Uploading(device, file, gguf, progress)
    try:
        weights = await _weights(uploading, config)
        await device.synchronize()
        return SmolLM2(device, config, tokenizer, template, weights, options)
    except BaseException:
        for tensor in uploading.made:
            tensor.destroy()
        raise


class _Uploading:
    """The tensors that were made so far.

    Attributes
    ----------
    made : list of Tensor
    """

    def __init__(self, device: Device, file: File, gguf: GGUF, progress: UploadProgress) -> None:
        self.made: list[Tensor] = []
        self._device, self._file, self._gguf, self._progress = device, file, gguf, progress
        self._total = sum(info.stop - info.start for info in gguf.tensors.values())
        self._loaded = 0

    async def _loaded_one(self, info: TensorInfo) -> None:
        self._loaded += info.stop - info.start
        self._progress(self._loaded, self._total)
        await asyncio.sleep(0)  # so that the task can be cancelled here

    async def floats(self, name: str) -> Tensor:
        """A float32 tensor."""
        info = self._gguf.tensors[name]
        values = np.frombuffer(self._file.read(info.start, info.stop), "<f4").reshape(info.shape)
        tensor = self._device.tensor(values, name=name)
        self.made.append(tensor)
        await self._loaded_one(info)
        return tensor

    async def matrix(self, *names: str, interleave: bool = False) -> nn.QuantizedMatrix:
        """Quantised matrices, stacked or with their rows in turn."""
        infos = [self._gguf.tensors[name] for name in names]
        blocks: list[Tensor] = []
        try:
            for info in infos:
                blocks.append(await self._device.upload_file(self._file, info.start, info.stop))
                await self._loaded_one(info)
            matrix = nn.pack_quantized(
                blocks,
                [info.shape[0] for info in infos],
                infos[0].shape[1],
                "Q8_0" if infos[0].type == "Q8_0" else "Q4_1",
                interleave=interleave,
            )
        finally:
            for each in blocks:
                each.destroy()
        self.made.append(matrix.data)
        return matrix


async def _weights(upload: _Uploading, config: Config) -> Weights:
    embedding = await upload.matrix("token_embd.weight")
    layers = []
    for number in range(config.layers):
        name = f"blk.{number}"
        layers.append(
            LayerWeights(
                attention_norm=await upload.floats(f"{name}.attn_norm.weight"),
                qkv=await upload.matrix(*(f"{name}.attn_{part}.weight" for part in "qkv")),
                output=await upload.matrix(f"{name}.attn_output.weight"),
                mlp_norm=await upload.floats(f"{name}.ffn_norm.weight"),
                gate_up=await upload.matrix(
                    f"{name}.ffn_gate.weight", f"{name}.ffn_up.weight", interleave=True
                ),
                down=await upload.matrix(f"{name}.ffn_down.weight"),
            )
        )
    return Weights(embedding, tuple(layers), await upload.floats("output_norm.weight"))
