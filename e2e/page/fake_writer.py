"""A stand-in for the language model, with its interface: fast, without a download, and the same everywhere.

What it writes depends on the last token, the seed and the heads that are switched off; its queries, keys and
values are noise with a strong weight on the first token and on the newest ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

_WORDS = (
    "the a of to and in sea ship light house door stone river word time day night old small green "
    "was is had saw went came said knew kept found over under with from into before after then when it"
)
WORDS = _WORDS.split()
END = 0
CHARACTER = "🙂"
LAYERS, HEADS, KV_HEADS, DIM = 30, 9, 3, 64
HISTORY = 4096
BYTES_PER_NUMBER = {"float32": 4, "float16": 2, "bfloat16": 2, "turboquant4": 0.56, "turboquant3": 0.44}


@cache
def _noise(seed: int, heads: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((97, heads, DIM), np.float32)


class Token(NamedTuple):
    """A token that was written."""

    id: int
    text: str
    log_probability: float
    alternatives: list[tuple[int, str, float]]


class CacheOptions(NamedTuple):
    """How the text is kept."""

    dtype: tuple[str, str]
    context: int
    ring: bool
    sink_tokens: int
    history: int


class Difference(NamedTuple):
    """What a cache does to a text."""

    perplexity: float
    same: float
    divergence: np.ndarray[Any, Any]


class Exact:
    """What the float32 cache gives for a text."""

    def __init__(self, tokens: list[int], heads_off: set[tuple[int, int]]) -> None:
        self.tokens, self.heads_off, self.destroyed = tokens, heads_off, False

    def destroy(self) -> None:
        self.destroyed = True


class FakeWriter:
    """The interface of ``pa.models.load("smollm2")``.

    Parameters
    ----------
    device : Device, optional
        Where queries, keys and values lie; numpy arrays without one.
    seconds : float
        That a token takes.
    end_at : int, optional
        The token at this index ends the text.
    layers : int
        Their number.
    """

    heads, kv_heads, head_dim = HEADS, KV_HEADS, DIM

    def __init__(
        self,
        device: Any = None,
        *,
        cache: str = "float32",
        context: int = 2048,
        ring: bool = False,
        sink_tokens: int = 0,
        history: int | None = None,
        seconds: float = 0.0,
        end_at: int | None = None,
        layers: int = LAYERS,
    ) -> None:
        self.device, self.layers = device, layers
        self._set_cache(cache, context, ring, sink_tokens, history)
        self.seconds = seconds
        self.end_at = end_at
        self.tokens: list[int] = []
        self.heads_off: set[tuple[int, int]] = set()
        self.read: list[Exact] = []

    def _set_cache(self, cache: str, context: int, ring: bool, sink_tokens: int, history: int | None) -> None:
        self.cache_options = CacheOptions(
            (cache, cache), context, ring, sink_tokens, history or (HISTORY if ring else context)
        )

    @property
    def room(self) -> int:
        return self.cache_options.history - len(self.tokens)

    @property
    def cache_bytes(self) -> int:
        per_number = BYTES_PER_NUMBER.get(self.cache_options.dtype[0], 0.31)
        return int(2 * self.layers * KV_HEADS * DIM * self.cache_options.context * per_number)

    def tokenize(self, text: str) -> list[int]:
        """A word or a space with a word a token; the last four numbers are the bytes of a character."""
        ids: list[int] = []
        for word in text.replace(CHARACTER, f" {CHARACTER} ").split():
            if word == CHARACTER:
                ids += range(1 + len(WORDS), 5 + len(WORDS))
            else:
                ids.append(1 + (WORDS.index(word) if word in WORDS else len(word) % len(WORDS)))
        return ids

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text; bytes of a character that is not complete become U+FFFD."""
        data = b"".join(self._bytes(id) for id in ids)
        return data.decode("utf-8", "replace")

    def _bytes(self, id: int) -> bytes:
        if id == END:
            return b"<|im_end|>"
        if id > len(WORDS):
            return CHARACTER.encode()[id - len(WORDS) - 1 : id - len(WORDS)]
        return f" {WORDS[id - 1]}".encode()

    def _text(self, id: int) -> str:
        return self.detokenize([id])

    def chat(self, messages: Sequence[dict[str, str]]) -> str:
        return " ".join(f"user {message['content']} assistant" for message in messages)

    async def start(self, ids: Sequence[int]) -> None:
        await asyncio.sleep(self.seconds)
        self.tokens = list(ids)

    def _likeliest(self, index: int, seed: int = 0) -> list[tuple[int, str, float]]:
        rng = np.random.default_rng([self.tokens[index - 1], index, seed, len(self.heads_off)])
        ids = 1 + rng.permutation(len(WORDS))[:10]
        share = rng.dirichlet(np.full(10, 0.5))
        order = np.argsort(-share)
        found = zip(ids[order], np.maximum(share[order], 1e-4), strict=True)
        return [(int(id), self._text(int(id)), float(np.log(p))) for id, p in found]

    async def stream(
        self,
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        alternatives: bool = True,
    ) -> AsyncIterator[Token]:
        if temperature < 0:
            raise ValueError(f"temperature: expected 0 or more, got {temperature}")
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(f"top_p: expected more than 0 and at most 1, got {top_p}")
        for _ in range(max_new_tokens):
            await asyncio.sleep(self.seconds)
            found = self._likeliest(len(self.tokens), seed if temperature else 0)
            if len(self.tokens) == self.end_at:
                found = [(END, self._text(END), -0.1), *found[:9]]
            self.tokens.append(found[0][0])
            yield Token(*found[0], found)
            if found[0][0] == END:
                return

    async def score(self) -> np.ndarray[Any, Any]:
        """Log-probability of each token but the first, as :meth:`stream` gave it at temperature 0."""
        text, found = self.tokens, []
        for index in range(1, len(text)):
            self.tokens = text[:index]
            likeliest = {id: p for id, _, p in self._likeliest(index)}
            found.append(likeliest.get(text[index], -9.0))
        self.tokens = text
        return np.array(found)

    async def rewind(self, length: int, ids: Sequence[int] = ()) -> None:
        self.tokens = [*self.tokens[:length], *ids]

    async def alternatives(self, index: int) -> list[tuple[int, str, float]]:
        return self._likeliest(index)

    special_ids = frozenset({END})

    def layer_tensors(self, layer: int) -> tuple[Any, Any, Any]:
        """Query, key and value [1, H, T, D] of all tokens."""
        length = len(self.tokens)
        row = np.arange(length)
        # Noise that repeats, as much of it would take longer than all the rest.
        query, key, value = (
            _noise(index, heads)[(row + layer) % 97].transpose(1, 0, 2)[None].copy()
            for index, heads in enumerate((HEADS, KV_HEADS, KV_HEADS))
        )
        # Keys that resemble those before them, and a first key that all queries look for.
        angle = np.arange(length, dtype=np.float32)[:, None] / (4 + 3 * np.arange(8, dtype=np.float32))
        turn = np.concatenate([np.cos(angle), np.sin(angle)], axis=-1)
        query[0, :, :, :16], key[0, :, :, :16] = 3 * turn, 3 * turn
        query[0, :, :, 16], key[0, :, 1:, 16], key[0, :, :1, 16] = 4, 0, 4 + layer % 5
        if self.device is None:
            return query, key, value
        return tuple(self.device.tensor(part) for part in (query, key, value))

    async def use_cache(
        self,
        cache: str,
        context: int,
        ring: bool = False,
        sink_tokens: int = 0,
        history: int | None = None,
    ) -> None:
        self._set_cache(cache, context, ring, sink_tokens, history)

    async def finish(self) -> None:
        """All tokens are processed at once."""

    async def profile(self) -> dict[str, float | None]:
        return {"logits": 61.0, "project_qkv": 210.0, "decode_split": 88.0, "choose_token": None}

    async def read_exactly(self) -> Exact:
        await asyncio.sleep(10 * self.seconds)
        exact = Exact(list(self.tokens), set(self.heads_off))
        self.read.append(exact)
        return exact

    async def compare(
        self, *, cache: str, context: int, ring: bool, sink_tokens: int, exact: Exact
    ) -> Difference:
        """A ring without kept tokens collapses once it is full; fewer bits lose a little everywhere."""
        if exact.destroyed or (exact.tokens, exact.heads_off) != (self.tokens, self.heads_off):
            raise ValueError("exact: it was read of another text")
        await asyncio.sleep(10 * self.seconds)
        count = len(self.tokens) - 1
        rng = np.random.default_rng(len(cache))
        loss = {"float32": 0.0, "float16": 1e-6, "turboquant4": 0.01, "turboquant3": 0.04}.get(cache, 0.2)
        kl = loss * rng.gamma(1.0, 1.0, count)
        if ring:
            kl[context:] += (0.05 if sink_tokens else 3.0) * rng.gamma(2.0, 0.5, max(0, count - context))
        perplexity = 11.4 * float(np.exp(kl.mean()))
        return Difference(perplexity, float(np.exp(-2 * kl.mean())), kl)

    def destroy(self) -> None:
        self.tokens = []


def install(seconds: float = 0.004, end_at: int | None = None, layers: int = 12) -> None:
    """Let ``pa.models.load("smollm2")`` make this model.

    The maps follow a text that grows, a few times a second, and drawing them takes longer than all else.
    So a text is written quickly unless a test has to act meanwhile, and by fewer layers than SmolLM2 has.
    """
    from py_attn import models

    load = models.load

    async def fake(name: str, *, progress: Any = None, device: Any = None, **given: Any) -> Any:
        if name != "smollm2":
            return await load(name, device=device, progress=progress, **given)
        for megabytes in range(0, 99, 7):
            await asyncio.sleep(0.02)
            if progress:
                progress("weights", megabytes * 1_000_000, 98_000_000)
        return FakeWriter(device, seconds=seconds, end_at=end_at, layers=layers, **given)

    models.load = fake
