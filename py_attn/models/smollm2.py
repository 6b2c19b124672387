"""SmolLM2-135M-Instruct: a language model that writes with :mod:`py_attn`'s kernels.

A Llama-like decoder (Allal et al., arXiv 2502.02737) of 30 layers with 9 query heads and 3 key/value heads of
64, whose published weights (GGUF, 4 bits each) stay quantised on the GPU. What each kernel computes is in
:mod:`py_attn.kernels.nn`; how a text lies on the GPU, in :mod:`py_attn.models.written`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from py_attn.arguments import check_int, check_real
from py_attn.gpu.device import Device
from py_attn.gpu.tensor import Tensor
from py_attn.models.bpe import BPE
from py_attn.models.bpe import Stream as Decoder
from py_attn.models.chat import render
from py_attn.models.llama_weights import Config
from py_attn.models.written import ALTERNATIVES, CacheOptions, Sampling, Weights, Written, check_cache

_WARM_UP_LENGTHS = (5, 40)
# The first submission is a single step, so that its token is seen at once; each later one has twice as many
# steps, up to what takes about this long. The browser records a submission while the GPU runs earlier ones,
# but where a step takes long, fewer are submitted ahead, so that a stream that is left ends soon.
_SUBMISSION_MS = 20.0
_MAX_STEPS = 16
_SUBMISSIONS_AHEAD = 4
# Of a character in UTF-8, in bytes; each may be a token.
_LONGEST_CHARACTER = 4
_NOTHING_WRITTEN = "nothing was written yet; call start, generate or score first"


class Alternative(NamedTuple):
    """A token that could stand at some place of the text."""

    id: int
    text: str
    log_probability: float


class Token(NamedTuple):
    """A token that was written.

    Attributes
    ----------
    id : int
    text : str
        What it adds to the text. Where a character takes several tokens, it comes with the last of them.
    log_probability : float
        Natural logarithm of the probability that the model gives it, at temperature 1.
    alternatives : list of Alternative
        The ten likeliest tokens in its place, likeliest first; empty where they were not asked for.
    """

    id: int
    text: str
    log_probability: float
    alternatives: list[Alternative]


class Timing(NamedTuple):
    """How fast the last tokens were written, in wall time.

    Attributes
    ----------
    first_s : float
        Seconds from the call to the first token, with the prompt's processing.
    tokens : int
        How many were written.
    others_s : float
        Seconds from the first token to the last.
    """

    first_s: float
    tokens: int
    others_s: float

    @property
    def tokens_per_second(self) -> float | None:
        """Without the first token; None where there was only one."""
        return (self.tokens - 1) / self.others_s if self.tokens > 1 and self.others_s else None


class StepTiming(NamedTuple):
    """How long one step takes.

    Attributes
    ----------
    dispatches : int
        Kernels that a step runs.
    gpu_us : float or None
        Microseconds on the GPU from the first one's beginning to the last one's end; None where the adapter
        has no timestamps.
    wall_us : float
        Microseconds from the submission until JavaScript saw it done.
    """

    dispatches: int
    gpu_us: float | None
    wall_us: float


class Difference(NamedTuple):
    """How a cache changes what the model says of a text, against a float32 cache that holds all of it.

    Attributes
    ----------
    perplexity, reference_perplexity : float
        With this cache, and with the float32 cache.
    same : float
        Share of the places where the likeliest next token is the same.
    divergence : array
        [n - 1] Kullback-Leibler divergence, in nats, of what this cache gives for each next token from what
        the float32 cache gives.
    log_probabilities : array
        [n - 1] of each token but the first, with this cache.
    """

    perplexity: float
    reference_perplexity: float
    same: float
    divergence: npt.NDArray[np.float64]
    log_probabilities: npt.NDArray[np.float64]


class SmolLM2:
    """The model and one text. Made by :func:`py_attn.models.load`; :meth:`destroy` frees it.

    Attributes
    ----------
    device : Device
    config : Config
    tokenizer : BPE
    layers, heads, kv_heads, head_dim : int
        30, 9, 3 and 64 for the published weights.
    timing : Timing or None
        Of the last :meth:`stream` or :meth:`generate`.
    """

    def __init__(
        self,
        device: Device,
        config: Config,
        tokenizer: BPE,
        template: str,
        weights: Weights,
        options: CacheOptions,
    ) -> None:
        self.device, self.config, self.tokenizer = device, config, tokenizer
        self.layers, self.heads = config.layers, config.heads
        self.kv_heads, self.head_dim = config.kv_heads, config.head_dim
        self._template, self._weights = template, weights
        self._text = Written(device, config, weights, options)
        self.timing: Timing | None = None
        self._busy = False
        self._destroyed = False
        # What ends the writing of streams that were dropped.
        self._closing: set[asyncio.Task[None]] = set()
        self._step_ms = 10.0

    # Text and tokens

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a text; special tokens such as ``<|im_start|>`` are recognised in it.

        Raises
        ------
        TypeError, ValueError
            When it is no string, or has lone surrogates.
        """
        return self.tokenizer.encode(text)

    def detokenize(self, ids: Iterable[int]) -> str:
        """The text of token ids.

        Raises
        ------
        ValueError
            For an id outside the vocabulary.
        """
        return self.tokenizer.decode(ids)

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of the vocabulary's special tokens, such as ``<|im_start|>``."""
        return frozenset(self.tokenizer.special.values())

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The prompt for the assistant's next answer, by the chat template of the model's file.

        Parameters
        ----------
        messages : sequence of dict
            Each with "role" ("system", "user" or "assistant") and "content".

        Raises
        ------
        ValueError, TypeError
            For messages that are not of this form, or a model whose file has no template.
        """
        if not self._template:
            raise ValueError("chat: the model's file has no chat template")
        return render(self._template, messages)

    # What was written

    @property
    def tokens(self) -> list[int]:
        """Ids of the text so far, the prompt's first."""
        return list(self._text.tokens)

    @property
    def text(self) -> str:
        """The text so far."""
        return self.detokenize(self._text.tokens)

    @property
    def room(self) -> int:
        """How many tokens can still be added to the text."""
        return self._text.room

    @property
    def cache_options(self) -> CacheOptions:
        """How keys and values are kept."""
        return self._text.options

    @property
    def cache_bytes(self) -> int:
        """Bytes of the key/value caches of all layers."""
        return self._text.cache_bytes

    @property
    def heads_off(self) -> set[tuple[int, int]]:
        """The (layer, head) pairs whose output is zero, from the next processed token on."""
        return set(self._text.heads_off)

    @heads_off.setter
    def heads_off(self, heads: Iterable[tuple[int, int]]) -> None:
        self._check_open()
        try:
            pairs = [(layer, head) for layer, head in heads]
        except (TypeError, ValueError):
            raise TypeError(f"heads_off: expected pairs of a layer and a head, got {heads!r}") from None
        checked = frozenset((check_int("heads_off", a), check_int("heads_off", b)) for a, b in pairs)
        for layer, head in checked:
            if not (0 <= layer < self.layers and 0 <= head < self.heads):
                raise ValueError(
                    f"heads_off: expected layers from 0 to {self.layers - 1} and heads from 0 to "
                    f"{self.heads - 1}, got {(layer, head)}"
                )
        self._text.set_heads_off(checked)

    # Reading and writing

    async def start(self, ids: Sequence[int]) -> None:
        """Take a prompt as the new text, and process it up to its last token, which the first step takes.

        Parameters
        ----------
        ids : sequence of int
            At least one.

        Raises
        ------
        ValueError, TypeError
            For no ids, ids outside the vocabulary, or more than the context holds.
        RuntimeError
            While the model is at work.
        """
        prompt = self._check_ids(ids)
        async with self._at_work():
            self._text.start(prompt)
            await self._text.process(_pause)

    async def rewind(self, length: int, ids: Sequence[int] = ()) -> None:
        """Keep the first ``length`` tokens, add ``ids``, and be ready to go on from there.

        Where a ring has forgotten positions that it held at that point, the text is processed again.

        Raises
        ------
        ValueError, TypeError
            When no token would be left, or more than the context holds, or for ids outside the vocabulary;
            the text stays as it was then.
        RuntimeError
            While the model is at work.
        """
        self._check_open()
        kept = check_int("length", length)
        if not 0 <= kept <= len(self._text.tokens):
            raise ValueError(f"length: expected 0 to {len(self._text.tokens)}, got {kept}")
        text = self._check_ids([*self._text.tokens[:kept], *_as_list("ids", ids)])
        async with self._at_work():
            self._text.rewind(kept, text[kept:])
            await self._text.process(_pause)

    async def generate(
        self,
        ids: Sequence[int],
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop: str | Sequence[str] = (),
    ) -> list[int]:
        """Continue a prompt.

        Parameters
        ----------
        ids : sequence of int
            The prompt.
        max_new_tokens : int
            At most so many tokens; fewer at an end token, which is among the result, or where the context is
            full.
        temperature : float
            0 takes the likeliest token each time; larger numbers make the choice more even.
        top_k : int, optional
            Choose among the so many likeliest tokens only.
        top_p : float, optional
            Choose among the likeliest tokens that together have at least this probability (nucleus sampling,
            arXiv 1904.09751).
        seed : int
            The same seed repeats a text.
        stop : str or sequence of str
            The text ends where one of these has appeared.

        Returns
        -------
        list of int
            The new ids.

        Raises
        ------
        ValueError, TypeError
            Naming the argument, what was given and what was expected.
        RuntimeError
            While the model is at work.
        """
        options = (temperature, top_k, top_p, seed, stop)
        stream = self.stream(ids, max_new_tokens, *options, alternatives=False)
        return [token.id async for token in stream]

    def stream(
        self,
        ids: Sequence[int] | None = None,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        *,
        alternatives: bool = True,
    ) -> Stream:
        """Continue a prompt, or the text so far where ``ids`` is None, token by token.

        The arguments are those of :meth:`generate`; they are checked at once. A loop that is left early
        leaves the text as far as its tokens were seen.

        Returns
        -------
        Stream
            An async iterator of :class:`Token`.
        """
        self._check_open()
        sampling = _check_sampling(temperature, top_k, top_p)
        count = check_int("max_new_tokens", max_new_tokens)
        if count < 0:
            raise ValueError(f"max_new_tokens: expected a number >= 0, got {count}")
        number = check_int("seed", seed)
        if not 0 <= number < 2**32:
            raise ValueError(f"seed: expected a number from 0 to {2**32 - 1}, got {number}")
        ends = _check_stop(stop)
        prompt = None if ids is None else self._check_ids(ids)
        if prompt is None and not self._text.tokens:
            raise ValueError(f"ids: expected a prompt, since {_NOTHING_WRITTEN}")
        return Stream(self, self._stream(prompt, count, sampling, number, ends, alternatives))

    async def _stream(
        self,
        prompt: list[int] | None,
        count: int,
        sampling: Sampling,
        seed: int,
        ends: tuple[str, ...],
        alternatives: bool,
    ) -> AsyncGenerator[Token, None]:
        async with self._at_work():
            text, begun = self._text, time.perf_counter()
            if prompt is not None:
                text.start(prompt)
            await text.process(_pause)
            prompt_length = len(text.tokens)
            new_text, first = "", 0.0
            decoder = Decoder(self.tokenizer)
            for number in text.tokens[-_LONGEST_CHARACTER:]:  # the text may end in the middle of a character
                decoder.push(number)
            try:
                async with aclosing(
                    self._steps(min(count, text.room), sampling, seed, alternatives)
                ) as written:
                    async for token in written:
                        now = time.perf_counter()
                        first = first or now
                        text.accept(token.id)
                        self.timing = Timing(first - begun, len(text.tokens) - prompt_length, now - first)
                        shown = token._replace(text=decoder.push(token.id))
                        new_text += shown.text
                        yield shown
                        self._check_open()
                        if any(end in new_text for end in ends):
                            break
            finally:
                if not (self.device.lost or self._destroyed):
                    text.rewind(len(text.tokens))

    async def _steps(
        self, count: int, sampling: Sampling, seed: int, alternatives: bool
    ) -> AsyncGenerator[Token, None]:
        """Tokens as the GPU writes them: the next steps are submitted before earlier ones are read."""
        if not count:
            return
        text = self._text
        program = text.program(sampling, alternatives)
        text.begin_steps(seed)
        submitted = len(text.tokens)
        last, most, ahead = submitted + count, 1, 1
        reading: list[asyncio.Future[list[npt.NDArray[Any]]]] = []
        try:
            while submitted < last or reading:
                while submitted < last and len(reading) < ahead:
                    steps = min(most, self._steps_at_a_time(), last - submitted)
                    text.submit(program, steps)
                    # A kernel that fails to compile is found out by the first token.
                    reading.append(
                        text.written(submitted, submitted + steps, alternatives=alternatives, check=most == 1)
                    )
                    most = 2 * steps
                    await _pause()  # so that the reading is asked for before the next submission
                    submitted += steps
                begun = time.perf_counter()
                found, log_probs, *others = await reading.pop(0)
                ids, ended = self._until_end(found.tolist())
                self._note_speed(len(ids), begun)
                ahead = 2 if self._step_ms > _SUBMISSION_MS else _SUBMISSIONS_AHEAD
                for n, number in enumerate(ids):
                    likeliest = self._alternatives(*(each[n] for each in others)) if others else []
                    yield Token(number, "", float(log_probs[n]), likeliest)
                if ended:
                    break
            await self.device.synchronize()
        finally:
            await asyncio.gather(*reading, return_exceptions=True)

    def _until_end(self, ids: list[int]) -> tuple[list[int], bool]:
        """The ids up to the first end token; what follows was not written."""
        for n, number in enumerate(ids):
            if number in self.config.end_tokens:
                return ids[: n + 1], True
        return ids, False

    def _steps_at_a_time(self) -> int:
        return max(1, min(_MAX_STEPS, int(_SUBMISSION_MS / self._step_ms)))

    def _note_speed(self, steps: int, begun: float) -> None:
        """Learn how long a step takes, so that a submission is neither too short nor too long."""
        if steps:
            taken = 1000 * (time.perf_counter() - begun) / steps
            self._step_ms = max(0.1, 0.5 * self._step_ms + 0.5 * taken)

    def _alternatives(
        self, ids: npt.NDArray[np.uint32], log_probs: npt.NDArray[np.float32]
    ) -> list[Alternative]:
        pairs = zip(ids.tolist(), log_probs.tolist(), strict=True)
        return [
            Alternative(number, self.tokenizer.token_text(number), value)
            for number, value in pairs
            if number < self.config.vocabulary
        ]

    async def score(self, ids: Sequence[int]) -> npt.NDArray[np.float64]:
        """Log-probability of each token given those before it; it becomes the text that `attention` shows.

        Perplexity is ``exp(-mean)`` of it.

        Parameters
        ----------
        ids : sequence of int

        Returns
        -------
        array
            [n - 1] float64, natural logarithms.

        Raises
        ------
        ValueError, TypeError, RuntimeError
            As :meth:`start`.
        """
        text = self._check_ids(ids)
        async with self._at_work():
            self._text.start(text)
            await self._text.process(_pause)
            return (await self._text.statistics())[:, 0].astype(np.float64)

    async def alternatives(self, index: int) -> list[Alternative]:
        """The ten likeliest tokens in the place of token ``index`` of the text, likeliest first.

        Raises
        ------
        ValueError
            For an index below 1 or past the next token's, or before anything was processed.
        RuntimeError
            While the model is at work.
        """
        self._check_written()
        place = check_int("index", index)
        if not 1 <= place <= len(self._text.tokens):
            raise ValueError(f"index: expected 1 to {len(self._text.tokens)}, got {place}")
        async with self._at_work():
            await self._finish()
            logits = (await self._text.logits(place - 1, 1).numpy())[0].astype(np.float64)
        likeliest = np.argsort(-logits, kind="stable")[:ALTERNATIVES]
        log_sum = logits.max() + np.log(np.exp(logits - logits.max()).sum())
        return [
            Alternative(int(n), self.tokenizer.token_text(int(n)), float(logits[n] - log_sum))
            for n in likeliest
        ]

    # Looking at it

    def attention(
        self,
        layer: int,
        heads: int | list[int] | None = None,
        rows: slice = slice(None),
        columns: slice = slice(None),
    ) -> Tensor:
        """Attention weights of the tokens that were processed: all of the text, or all but its last token.

        They are recomputed from the kept queries and keys, so they cost memory only for the window.

        Parameters
        ----------
        layer : int
        heads : int or list of int, optional
            All heads unless given.
        rows, columns : slice
            Tokens that attend, and tokens that are attended to.

        Returns
        -------
        Tensor
            [heads, rows, columns] float32.

        Raises
        ------
        ValueError, TypeError
            For a layer or head that does not exist, a slice with a step below 1, or before anything was
            processed.
        """
        number = self._check_layer(layer)
        if not self._text.position:
            raise ValueError(
                "layer: nothing was processed yet, since a prompt's last token waits for the next step"
                if self._text.tokens
                else f"layer: {_NOTHING_WRITTEN}"
            )
        return self._text.attention(number, heads, rows, columns)

    def layer_tensors(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value of a layer for the tokens that were processed.

        Returns
        -------
        query, key, value : Tensor
            [1, heads, T, head_dim] and twice [1, kv_heads, T, head_dim], as they were attended with. Views of
            what the text lies in, or, from a quantised cache, copies.

        Raises
        ------
        ValueError, TypeError
            For a layer that does not exist.
        """
        return self._text.layer_tensors(self._check_layer(layer), self._text.position)

    async def finish(self) -> None:
        """Process the last token too, without going on from it: steps will process it again.

        Raises
        ------
        RuntimeError
            While the model is at work.
        """
        async with self._at_work():
            await self._finish()

    async def compare(
        self,
        cache: str = "float32",
        context: int | None = None,
        ring: bool = False,
        sink_tokens: int = 0,
    ) -> Difference:
        """What another cache does to the text so far, against a float32 cache that holds all of it.

        The arguments are those of :func:`py_attn.models.load`; ``context`` is the text's length unless given.

        Raises
        ------
        ValueError, TypeError
            For options that do not fit, or a text of fewer than two tokens.
        RuntimeError
            While the model is at work.
        """
        self._check_open()
        tokens = self.tokens
        if len(tokens) < 2:
            raise ValueError(f"text: expected at least two tokens to compare with, got {len(tokens)}")
        length = len(tokens)
        size = length if context is None else context
        checked = check_cache(cache, size, ring, sink_tokens, None, self.config.context_length)
        if not ring and checked.context < length:
            raise ValueError(f"context: expected at least the text's {length} tokens, got {context}")
        options = replace(checked, history=length)
        if checked.context >= length:  # a larger cache than the text would hold the same
            options = CacheOptions(checked.dtype, context=length, history=length)
        async with self._at_work():
            whole = CacheOptions(context=length, history=length)
            exact = Written(self.device, self.config, self._weights, whole)
            other = Written(self.device, self.config, self._weights, options)
            try:
                for each in (exact, other):
                    each.set_heads_off(self._text.heads_off)
                    each.start(tokens)
                    await each.process(_pause)
                reference, given = await exact.statistics(), await other.statistics()
                differences = (await exact.differences(other)).astype(np.float64)
            finally:
                exact.destroy()
                other.destroy()
        log_probs = given[:, 0].astype(np.float64)
        return Difference(
            perplexity=float(np.exp(-log_probs.mean())),
            reference_perplexity=float(np.exp(-reference[:, 0].astype(np.float64).mean())),
            same=float((differences[:, 1] == differences[:, 2]).mean()),
            divergence=differences[:, 0],
            log_probabilities=log_probs,
        )

    async def use_cache(
        self,
        cache: str = "float32",
        context: int = 2048,
        ring: bool = False,
        sink_tokens: int = 0,
        history: int | None = None,
    ) -> None:
        """Go on with another cache: the text is processed again with it.

        The arguments are those of :func:`py_attn.models.load`.

        Raises
        ------
        ValueError, TypeError
            For options that do not fit, or a text that is longer than they allow; nothing changes then.
        RuntimeError
            While the model is at work.
        """
        self._check_open()
        options = check_cache(cache, context, ring, sink_tokens, history, self.config.context_length)
        if len(self._text.tokens) > options.history:
            raise ValueError(
                f"context: the text has {len(self._text.tokens)} tokens, more than the {options.history} "
                "that this cache would hold"
            )
        async with self._at_work():
            old, tokens = self._text, self._text.tokens
            new = Written(self.device, self.config, self._weights, options)
            new.set_heads_off(old.heads_off)
            self._text = new
            old.destroy()
            if tokens:
                new.start(tokens)
                await new.process(_pause)

    async def time_step(self, warmup_runs: int = 0) -> StepTiming:
        """How long the step that writes the next token takes; the text stays as it is.

        Parameters
        ----------
        warmup_runs : int
            Steps right before it, which bring the GPU's clock up; each takes the room of a token.

        Raises
        ------
        ValueError, TypeError
            When there is no text yet, or no room for so many steps.
        RuntimeError
            While the model is at work.
        """
        runs = check_int("warmup_runs", warmup_runs)
        if not self._text.tokens:
            raise ValueError("nothing was processed yet: call start, generate or score first")
        if not 0 <= runs < self.room:
            raise ValueError(f"warmup_runs: expected 0 to {self.room - 1}, got {runs}")
        async with self._at_work():
            await self._text.process(_pause)
            dispatches, timing = await self._text.time_step(runs)
        return StepTiming(dispatches, timing.gpu_us, timing.wall_us)

    async def warm_up(self) -> None:
        """Compile the kernels of reading and writing, so that the first text need not wait for them.

        Loading does it where the adapter is no software. It takes the place of the text, so it is for a model
        that has none.

        Raises
        ------
        RuntimeError
            While the model is at work, or when something was written already.
        """
        if self._text.tokens:
            raise RuntimeError("model: it has a text already, which warming up would replace")
        async with self._at_work():
            text = self._text
            # Few tokens and many are multiplied by different kernels.
            for length in _WARM_UP_LENGTHS:
                text.start([0] * min(length, text.room))
                await text.process(_pause)
            for alternatives in (False, True):
                text.begin_steps(0)
                text.submit(text.program(Sampling(), alternatives), 1)
            await self.device.synchronize()
            text.start([])

    async def profile(self) -> dict[str, float | None]:
        """Microseconds on the GPU of each kernel in one step, by the kernels' names.

        Each dispatch is submitted by itself, so their sum is more than a step takes. None where the adapter
        has no timestamps.

        Raises
        ------
        ValueError
            When nothing was written yet.
        RuntimeError
            While the model is at work.
        """
        self._check_written()
        async with self._at_work():
            await self._finish()
            with self.device.timer() as timer:
                self._text.repeat_step()
            sums: dict[str, float | None] = {}
            for each in await timer.results():
                earlier = sums.get(each.kernel, 0.0)
                sums[each.kernel] = None if each.gpu_us is None or earlier is None else earlier + each.gpu_us
        return sums

    def destroy(self) -> None:
        """Free the weights, caches and logs on the GPU; `tokens` stays. A second call does nothing."""
        self._destroyed = True
        self._text.destroy()
        for tensor in self._weights.tensors():
            tensor.destroy()

    # Inside

    async def _finish(self) -> None:
        text = self._text
        await text.process(_pause, len(text.tokens))

    def _check_open(self) -> None:
        if self._destroyed:
            raise ValueError("model: it was destroyed; load it again")

    def _check_layer(self, layer: object) -> int:
        self._check_open()
        number = check_int("layer", layer)
        if not 0 <= number < self.layers:
            raise ValueError(f"layer: expected 0 to {self.layers - 1}, got {number}")
        return number

    def _check_written(self) -> None:
        self._check_open()
        if not self._text.tokens:
            raise ValueError(f"text: {_NOTHING_WRITTEN}")

    def _check_ids(self, ids: Sequence[int]) -> list[int]:
        self._check_open()
        checked = [check_int("ids", number) for number in _as_list("ids", ids)]
        if not checked:
            raise ValueError("ids: expected at least one token, got none")
        wrong = next((n for n in checked if not 0 <= n < self.config.vocabulary), None)
        if wrong is not None:
            raise ValueError(f"ids: expected ids from 0 to {self.config.vocabulary - 1}, got {wrong}")
        longest = self._text.options.history
        if len(checked) > longest:
            raise ValueError(
                f"ids: expected at most {longest} tokens, which is what the context holds, got {len(checked)}"
            )
        return checked

    @asynccontextmanager
    async def _at_work(self) -> AsyncIterator[None]:
        """Keep other calls out while one that waits is at work on the text."""
        if closing := [task for task in self._closing if not task.done()]:
            await asyncio.wait(closing)
        self._closing.clear()
        self._check_open()
        self.device.check_alive()
        if self._busy:
            raise RuntimeError("model: it is at work; stop that first, or wait until it is done")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _close(self, tokens: AsyncGenerator[Token, None]) -> None:
        """End the writing of a stream that nobody reads any more."""
        try:
            self._closing.add(asyncio.get_running_loop().create_task(tokens.aclose()))
        except RuntimeError:  # no loop runs any more, so nothing waits either
            self._busy = False


class Stream:
    """The tokens that a model writes: an async iterator. The writing ends when it is closed or dropped."""

    def __init__(self, model: SmolLM2, tokens: AsyncGenerator[Token, None]) -> None:
        self._model, self._tokens = model, tokens

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Token:
        return await anext(self._tokens)

    async def aclose(self) -> None:
        """End the writing; the text stays as far as its tokens were seen."""
        await self._tokens.aclose()

    def __del__(self) -> None:
        if self._model._busy:
            self._model._close(self._tokens)


async def _pause() -> None:
    """Let other work of the program have its turn."""
    await asyncio.sleep(0)


def _as_list(name: str, ids: Iterable[int]) -> list[int]:
    try:
        return list(ids)
    except TypeError:
        raise TypeError(f"{name}: expected a sequence of token ids, got {ids!r}") from None


def _check_sampling(temperature: object, top_k: object, top_p: object) -> Sampling:
    heat = check_real("temperature", temperature)
    if heat < 0:
        raise ValueError(f"temperature: expected a number >= 0, got {temperature}")
    k = None if top_k is None else check_int("top_k", top_k)
    if k is not None and k < 1:
        raise ValueError(f"top_k: expected a number >= 1 or None, got {k}")
    p = None if top_p is None else check_real("top_p", top_p)
    if p is not None and not 0 < p <= 1:
        raise ValueError(f"top_p: expected a number above 0 and up to 1, or None, got {top_p}")
    return Sampling(heat, k, p)


def _check_stop(stop: object) -> tuple[str, ...]:
    ends = (stop,) if isinstance(stop, str) else stop
    if not isinstance(ends, Sequence) or not all(isinstance(end, str) for end in ends):
        raise TypeError(f"stop: expected a text or a list of texts, got {stop!r}")
    if "" in ends:
        raise ValueError(f"stop: expected texts that are not empty, got {stop!r}")
    return tuple(ends)
