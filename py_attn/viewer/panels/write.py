"""Write: a language model writes a text token by token, and what it has written is the source."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from py_attn import models
from py_attn.viewer.methods import method

if TYPE_CHECKING:
    from py_attn.viewer.viewer import Progress, Viewer

#: The model by its name for :func:`py_attn.models.load`, and the number of its weights.
MODEL = "smollm2"
WEIGHTS = 134_515_008
#: How long one call writes: other calls are answered between two of them, and Stop takes effect.
CALL_SECONDS = 0.08
#: Tokens of a first call, whose speed is not known yet, and of any call.
FIRST_TOKENS, MOST_TOKENS = 1, 256


@method()
async def write_load(
    viewer: Viewer,
    cache: str = "float32",
    context: int = 2048,
    ring: bool = False,
    sink_tokens: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Load the language model, calling ``progress(stage, loaded, total)``.

    ``loaded`` is False if it was cancelled. The other arguments are those of :func:`write_cache`.
    """
    if viewer.device is None:
        raise ValueError("the language model needs WebGPU, which is not available here")
    given: dict[str, Any] = {"cache": cache, "context": context, "ring": ring, "sink_tokens": sink_tokens}
    try:
        model = await models.load(MODEL, device=viewer.device, progress=progress, **given)
    except asyncio.CancelledError:
        return {"loaded": False}
    viewer.writer = Writer(model)
    return {"loaded": True, **viewer.writer.describe()}


@method()
async def write_start(viewer: Viewer, prompt: str, chat: bool = False) -> dict[str, Any]:
    """Forget the text and begin with this prompt; see :meth:`Writer.start`."""
    return await _writer(viewer).start(prompt, chat)


@method()
async def write_restore(viewer: Viewer, ids: list[int], prompt: int) -> dict[str, Any]:
    """Begin with the tokens of an earlier text, of which the first ``prompt`` were its prompt."""
    return await _writer(viewer).restore(ids, prompt)


@method()
async def write_next(
    viewer: Viewer, count: int, seconds: float = CALL_SECONDS, **sampling: Any
) -> dict[str, Any]:
    """Write at most ``count`` tokens, for about that long; see :meth:`Writer.next`."""
    return await _writer(viewer).next(count, seconds, sampling)


@method()
async def write_back(viewer: Viewer, length: int, token: int | None = None) -> dict[str, Any]:
    """Keep the first ``length`` tokens, and put ``token`` after them if one is given."""
    return await _writer(viewer).back(length, token)


@method()
async def write_alternatives(viewer: Viewer, index: int) -> list[dict[str, Any]]:
    """The ten likeliest tokens at a position, likeliest first; empty where the model did not choose."""
    return await _writer(viewer).alternatives(index)


@method()
async def write_cache(
    viewer: Viewer, cache: str, context: int = 2048, ring: bool = False, sink_tokens: int = 0
) -> dict[str, Any]:
    """Keep the text in another cache; the model reads it again."""
    return await _writer(viewer).change_cache(cache, context, ring, sink_tokens)


@method()
async def write_heads_off(viewer: Viewer, heads: list[list[int]]) -> dict[str, Any]:
    """Switch off these heads, as pairs of layer and head, and no others: their output is zero from now on."""
    writer = _writer(viewer)
    writer.model.heads_off = {(int(layer), int(head)) for layer, head in heads}
    return {"off": len(writer.model.heads_off)}


@method()
async def write_compare(
    viewer: Viewer, cache: str, context: int = 2048, ring: bool = False, sink_tokens: int = 0
) -> dict[str, Any]:
    """What a cache does to this very text; see :meth:`Writer.compare`."""
    return await _writer(viewer).compare(cache, context, ring, sink_tokens)


@method()
async def write_view(viewer: Viewer, growing: bool = False) -> dict[str, Any]:
    """Show the text as the source. While it is ``growing`` the decode panel stays with what it has."""
    from py_attn.viewer.sources.written import written_source

    writer = _writer(viewer)
    decode = viewer.decode
    answer = viewer.open(written_source(writer.model, writer.texts))
    if growing:
        viewer.decode = decode
    return {**answer, "growing": growing}


@method()
async def write_estimate(viewer: Viewer) -> dict[str, Any]:
    """How long numpy would take here: ``seconds`` a token, and the ``bytes`` of the weights in float32.

    The time is measured on a matrix of the model's size, and multiplied by the number of weights.
    """
    matrix, vector = np.ones((1536, 576), np.float32), np.ones(576, np.float32)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        matrix @ vector
        times.append(time.perf_counter() - began)
    return {"seconds": float(np.median(times)) * WEIGHTS / matrix.size, "bytes": 4 * WEIGHTS}


def _writer(viewer: Viewer) -> Writer:
    if viewer.writer is None:
        raise ValueError("the language model is not loaded yet")
    return viewer.writer


class Writer:
    """A language model and the text that it writes, as the page shows it.

    Parameters
    ----------
    model : SmolLM2

    Attributes
    ----------
    texts : list of str
        The text of each token; "" where a character is not complete until a later token.
    log_probabilities : list of float or None
        Of each token given those before it; None where the model did not choose it.
    prompt : int
        How many tokens the prompt has.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.texts: list[str] = []
        self.log_probabilities: list[float | None] = []
        self.prompt = 0
        self._finished = ""
        self._seconds_per_token: float | None = None
        self._first_seconds: float | None = None
        self._started_seconds = 0.0
        self._written, self._writing_seconds = 0, 0.0
        # Calls overlap, but only one at a time may change the text.
        self._lock = asyncio.Lock()

    def describe(self) -> dict[str, Any]:
        """What a front end needs to know of the model before there is a text."""
        model = self.model
        return {"layers": model.layers, "heads": model.heads, "context": model.context, **self._cache()}

    def _cache(self) -> dict[str, Any]:
        model = self.model
        return {
            "cache": model.cache,
            "ring": bool(model.ring),
            "capacity": int(model.context),
            "sinkTokens": int(model.sink_tokens),
            "bytes": int(model.cache_bytes),
        }

    async def start(self, prompt: str, chat: bool) -> dict[str, Any]:
        """Begin anew with a prompt; with ``chat`` in the model's template, as the user's message.

        Raises
        ------
        ValueError
            When the prompt is empty, or longer than the context.
        """
        if not prompt.strip():
            raise ValueError("the prompt is empty: type a few words that the text begins with")
        text = self.model.chat([{"role": "user", "content": prompt}]) if chat else prompt
        ids = self.model.tokenize(text)
        return await self.restore(ids, len(ids))

    async def restore(self, ids: Sequence[int], prompt: int) -> dict[str, Any]:
        """Begin with tokens; the answer is as of :meth:`next`, with all of them."""
        async with self._lock:
            most = self._most_tokens()
            if len(ids) > most:
                raise ValueError(
                    f"the prompt has {len(ids):,} tokens, and the cache has room for {most:,}: "
                    "shorten it, or choose a ring"
                )
            began = time.perf_counter()
            await self.model.start([int(id) for id in ids])
            self._started_seconds = time.perf_counter() - began
            self.prompt = int(prompt)
            self._first_seconds, self._finished = None, ""
            self._written, self._writing_seconds = 0, 0.0
            self._keep(0)
            return self._answer(0)

    async def next(self, count: int, seconds: float, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """Write on, at most ``count`` tokens, as many as fit in that time by the speed so far.

        Returns
        -------
        dict
            ``from``: index of the first token that is told; ``tokens``: {"id", "text",
            "logProbability"} each; ``length`` and ``prompt`` in tokens; ``finished``: "", "end" where the
            model has ended its text, or "context" where the cache is full; ``bytes`` of the cache and
            ``timing``.
        """
        async with self._lock:
            before = len(self.texts)
            room = self._most_tokens() - before
            if room <= 0:
                self._finished = "context"
                return self._answer(before)
            count = min(count, room, self._fitting(seconds))
            began = time.perf_counter()
            first = None
            new = []
            async for token in self.model.stream(max_new_tokens=count, **sampling):
                first = first or time.perf_counter()
                new.append(float(token.log_probability))
            elapsed = time.perf_counter() - began
            if self._first_seconds is None and first is not None:
                self._first_seconds = self._started_seconds + first - began
            self._count(len(new), elapsed)
            # A character may become complete only now: its first tokens are told again.
            while before > self.prompt and self.texts[before - 1] == "":
                before -= 1
            self._keep(before, new)
            self._finished = "end" if len(new) < count else "context" if len(new) == room else ""
            return self._answer(before)

    def _fitting(self, seconds: float) -> int:
        if self._seconds_per_token is None:
            return FIRST_TOKENS
        return max(1, min(MOST_TOKENS, int(seconds / self._seconds_per_token)))

    def _count(self, tokens: int, seconds: float) -> None:
        if not tokens:
            return
        self._written += tokens
        self._writing_seconds += seconds
        # A call with few tokens is mostly overhead, so the next one is at most four times as long.
        self._seconds_per_token = max(seconds / tokens, CALL_SECONDS / (4 * tokens))

    async def back(self, length: int, token: int | None = None) -> dict[str, Any]:
        """Keep the first ``length`` tokens, and put ``token`` after them; answers as :meth:`next`."""
        async with self._lock:
            if not 1 <= length <= len(self.texts):
                raise ValueError(f"length: expected 1 to {len(self.texts)}, got {length}")
            chosen = None
            if token is not None:
                found = {id: p for id, _, p in await self.model.alternatives(length)}
                chosen = float(found[token]) if token in found else None
            await self.model.rewind(length, ids=() if token is None else (token,))
            self.prompt = min(self.prompt, length)
            self._finished = ""
            self._keep(length, [] if token is None else [chosen])
            return self._answer(length)

    async def alternatives(self, index: int) -> list[dict[str, Any]]:
        """The ten likeliest tokens at a position, likeliest first; empty for a token of the prompt."""
        if not self.prompt <= index < len(self.texts):
            return []
        found = await self.model.alternatives(index)
        return [_told(id, text, probability) for id, text, probability in found]

    async def change_cache(self, cache: str, context: int, ring: bool, sink_tokens: int) -> dict[str, Any]:
        """Keep the text in another cache; the model reads it again.

        Raises
        ------
        ValueError
            When the text is longer than a cache that is no ring; everything stays as it was.
        """
        async with self._lock:
            if not ring and len(self.texts) > context:
                raise ValueError(f"the text has {len(self.texts):,} tokens, and this cache {context:,}")
            self.model = await self.model.with_cache(cache, context, ring, sink_tokens)
            self._seconds_per_token = None
            self._written, self._writing_seconds = 0, 0.0
            if self._finished == "context":
                self._finished = ""
            return self._answer(len(self.texts))

    async def compare(self, cache: str, context: int, ring: bool, sink_tokens: int) -> dict[str, Any]:
        """The text scored over a cache, against a float32 cache that holds all of it.

        Returns
        -------
        dict
            ``perplexity``; ``equal``: share of positions where the likeliest next token is the same; ``kl``:
            float32, the KL divergence in nats at each position; ``bytes`` of the cache.
        """
        async with self._lock:
            if len(self.texts) < 2:
                raise ValueError("there is no text yet to compare the caches on")
            found = await self.model.compare(cache=cache, context=context, ring=ring, sink_tokens=sink_tokens)
        return {
            "perplexity": float(found["perplexity"]),
            "equal": float(found["equal"]),
            "kl": np.ascontiguousarray(found["kl"], np.float32),
            "bytes": int(found["bytes"]),
        }

    def _most_tokens(self) -> int:
        return int(self.model.history if self.model.ring else self.model.context)

    def _keep(self, start: int, new: Sequence[float | None] = ()) -> None:
        """Take over the model's tokens from ``start`` on; ``new`` has the probabilities of the last ones."""
        ids = self.model.tokens
        del self.texts[start:]
        self.texts += _texts(self.model, ids[start:])
        kept = self.log_probabilities[: len(ids) - len(new)]
        self.log_probabilities = [*kept, *[None] * (len(ids) - len(new) - len(kept)), *new]
        del self.log_probabilities[len(ids) :]

    def _answer(self, start: int) -> dict[str, Any]:
        ids = self.model.tokens
        return {
            "from": start,
            "tokens": [
                _told(ids[i], self.texts[i], self.log_probabilities[i]) for i in range(start, len(ids))
            ],
            "length": len(ids),
            "prompt": self.prompt,
            "finished": self._finished,
            "timing": self._timing(),
            **self._cache(),
        }

    def _timing(self) -> dict[str, Any]:
        measured: Mapping[str, Any] = self.model.timing or {}
        rate = self._written / self._writing_seconds if self._writing_seconds else None
        return {
            "firstToken": self._first_seconds,
            "rate": rate,
            "gpu": {name: float(us) for name, us in (measured.get("gpu_us") or {}).items()},
            "clock": measured.get("clock", "none"),
        }


def _told(id: int, text: str, log_probability: float | None) -> dict[str, Any]:
    return {"id": int(id), "text": text, "logProbability": log_probability}


def _texts(model: Any, ids: Sequence[int]) -> list[str]:
    """The text of each token. A character of several tokens belongs to the last of them."""
    texts: list[str] = []
    waiting: list[int] = []
    for id in ids:
        waiting.append(int(id))
        text = model.token_text(waiting[0]) if len(waiting) == 1 else model.detokenize(waiting)
        if text.endswith("\ufffd") and len(waiting) < 4:
            texts.append("")
        else:
            texts.append(text)
            waiting.clear()
    return texts
