"""A language model and the text that it writes, in short calls between which others are answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

#: The longest text, also over a ring: the queries and keys of all of it are kept for the maps.
HISTORY = 2048
#: How long one call writes: other calls are answered between two of them, and Stop takes effect.
CALL_SECONDS = 0.08
#: Tokens of a first call, whose speed is not known yet, and of any call.
FIRST_TOKENS, MOST_TOKENS = 1, 256


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
        # What the float32 cache gives for the text, while several caches are compared with it.
        self._exact: Any = None

    def describe(self) -> dict[str, Any]:
        """What a front end needs to know of the model before there is a text."""
        model = self.model
        return {"layers": model.layers, "heads": model.heads, **self._cache()}

    def _cache(self) -> dict[str, Any]:
        options = self.model.cache_options
        return {
            "cache": options.dtype[0],
            "ring": bool(options.ring),
            "capacity": int(options.context),
            "sinkTokens": int(options.sink_tokens),
            "room": int(self.model.room),
            "bytes": int(self.model.cache_bytes),
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

    async def restore(self, ids: Sequence[int], prompt: int, scored: bool = False) -> dict[str, Any]:
        """Begin with tokens; the answer is as of :meth:`next`, with all of them.

        Parameters
        ----------
        ids : sequence of int
        prompt : int
            How many of them were given; the others were written.
        scored : bool
            Let the model tell how likely the written ones were.

        Raises
        ------
        ValueError
            For more tokens than the cache has room for, ids that are none, or a prompt that is longer.
        """
        if not 0 <= prompt <= len(ids):
            raise ValueError(f"prompt: expected 0 to {len(ids)} tokens, got {prompt}")
        async with self._changing():
            most = int(self.model.cache_options.history)
            if len(ids) > most:
                raise ValueError(
                    f"the prompt has {len(ids):,} tokens, and the cache has room for {most:,}: "
                    "shorten it, or choose a ring"
                )
            began = time.perf_counter()
            await self.model.start([int(number) for number in ids])
            self._started_seconds = time.perf_counter() - began
            self.prompt = int(prompt)
            self._first_seconds, self._finished = None, ""
            self._written, self._writing_seconds = 0, 0.0
            new = await self.model.score() if scored and max(prompt, 1) < len(ids) else ()
            self._keep(0, [float(number) for number in new[max(0, prompt - 1) :]])
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
        async with self._changing():
            before = len(self.texts)
            room = int(self.model.room)
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
        async with self._changing():
            if not 1 <= length <= len(self.texts):
                raise ValueError(f"length: expected 1 to {len(self.texts)}, got {length}")
            chosen = None
            if token is not None:
                found = {number: p for number, _, p in await self.model.alternatives(length)}
                chosen = found.get(token)
            await self.model.rewind(length, ids=() if token is None else (token,))
            self.prompt = min(self.prompt, length)
            self._finished = ""
            self._keep(length, [] if token is None else [chosen])
            return self._answer(length)

    async def alternatives(self, index: int) -> list[dict[str, Any]]:
        """The ten likeliest tokens at a position, likeliest first; empty for the first token."""
        async with self._lock:
            found = await self.model.alternatives(index) if 1 <= index < len(self.texts) else []
        return [_told(number, self.model.detokenize([number]), p) for number, _, p in found]

    async def change_cache(self, cache: str, context: int, ring: bool, sink_tokens: int) -> dict[str, Any]:
        """Keep the text in another cache; the model reads it again.

        Raises
        ------
        ValueError
            When the text is longer than a cache that is no ring; everything stays as it was.
        """
        async with self._changing():
            present = self.model.cache_options
            if (present.dtype[0], present.context, present.ring, present.sink_tokens) == (
                cache, context, ring, sink_tokens,
            ):  # fmt: skip
                return self._answer(len(self.texts))
            if not ring and len(self.texts) > context:
                raise ValueError(
                    f"the text has {len(self.texts):,} tokens, and this cache has room for {context:,}"
                )
            await self.model.use_cache(**cache_options(cache, context, ring, sink_tokens))
            self._seconds_per_token = None
            self._written, self._writing_seconds = 0, 0.0
            if self._finished == "context":
                self._finished = ""
            return self._answer(len(self.texts))

    def switch_heads(self, off: Sequence[Sequence[int]]) -> int:
        """Switch off these heads, as pairs of layer and head, and no others; how many that are."""
        self.model.heads_off = {(int(layer), int(head)) for layer, head in off}
        if not self._lock.locked():  # or else the comparison that is at work does it
            self._forget_exact()
        return len(self.model.heads_off)

    async def compare(
        self, cache: str, context: int, ring: bool, sink_tokens: int, more: bool = False
    ) -> dict[str, Any]:
        """The text scored over a cache, against a float32 cache that holds all of it.

        With ``more``, another cache is about to be compared: what the float32 cache gives is kept for it,
        until the text changes.

        Returns
        -------
        dict
            ``perplexity``; ``equal``: share of positions where the likeliest next token is the same; ``kl``:
            float32, the KL divergence in nats at each position; ``bytes`` of the cache.
        """
        async with self._lock:
            if len(self.texts) < 2:
                raise ValueError("there is no text yet to compare the caches on")
            options = {"cache": cache, "context": context, "ring": ring, "sink_tokens": sink_tokens}
            heads, compared = self.model.heads_off, False
            try:
                self._exact = self._exact or await self.model.read_exactly()
                found = await self.model.compare(**options, exact=self._exact)
                compared = True
            finally:
                if not (compared and more and self.model.heads_off == heads):
                    self._forget_exact()
        return {
            "perplexity": found.perplexity,
            "equal": found.same,
            "kl": np.ascontiguousarray(found.divergence, np.float32),
            "bytes": _cache_bytes(self.model, cache, context),
        }

    def _forget_exact(self) -> None:
        if self._exact is not None:
            self._exact.destroy()
            self._exact = None

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Keep other calls out while the text changes; a comparison that was going on is over."""
        async with self._lock:
            self._forget_exact()
            yield

    async def finish(self) -> None:
        """Let the newest token go through the model too, so that its row is in the maps."""
        async with self._lock:
            if self.texts:
                await self.model.finish()

    async def profile(self) -> dict[str, Any]:
        """GPU time of one token by kernel; see :func:`write_profile`."""
        async with self._lock:
            found = await self.model.profile()
        measured = {name: float(us) for name, us in found.items() if us is not None}
        return {"gpu": dict(sorted(measured.items(), key=lambda item: -item[1]))}

    def _keep(self, start: int, new: Sequence[float | None] = ()) -> None:
        """Take over the model's tokens from ``start`` on; ``new`` has the probabilities of the last ones."""
        ids = self.model.tokens
        del self.texts[start:]
        self.texts += token_texts(self.model, ids[start:])
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
        rate = self._written / self._writing_seconds if self._writing_seconds else None
        return {"firstToken": self._first_seconds, "rate": rate}


def _told(number: int, text: str, log_probability: float | None) -> dict[str, Any]:
    return {"id": int(number), "text": text, "logProbability": log_probability}


def _cache_bytes(model: Any, dtype: str, context: int) -> int:
    """What caches of all layers take."""
    if dtype.startswith("turboquant"):
        from py_attn.kernels.quantization.turboquant import Format  # a start does not need it

        row = 4 * Format(int(dtype[-1]), model.head_dim).words
    else:
        row = model.head_dim * (4 if dtype == "float32" else 2)
    return int(2 * model.layers * model.kv_heads * context * row)


def token_texts(model: Any, ids: Sequence[int]) -> list[str]:
    """The text of each token. A character of several tokens belongs to the last of them."""
    texts: list[str] = []
    waiting: list[int] = []
    for number in ids:
        waiting.append(int(number))
        text = model.detokenize(waiting)
        if text.endswith("\ufffd") and len(waiting) < 4:
            texts.append("")
        else:
            texts.append(text)
            waiting.clear()
    return texts


def cache_options(cache: str, context: int, ring: bool, sink_tokens: int) -> dict[str, Any]:
    options: dict[str, Any] = {"cache": cache, "context": context, "ring": ring, "sink_tokens": sink_tokens}
    return options | ({"history": max(context, HISTORY)} if ring else {})
