"""SmolLM2-135M-Instruct: a language model that writes with :mod:`py_attn`'s kernels.

A Llama-like decoder (Allal et al., arXiv 2502.02737) of 30 layers with 9 query heads and 3 key/value heads of
64, whose published weights (GGUF, 4 bits each) stay quantised on the GPU. What each kernel computes is in
:mod:`py_attn.kernels.nn`; how a text lies on the GPU, in :mod:`py_attn.models.written`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from py_attn.arguments import check_int
from py_attn.errors import PyAttnError
from py_attn.gpu.device import Device
from py_attn.kernels.nn.sampling import ALTERNATIVES, Sampling, check_sampling
from py_attn.models.bpe import BPE
from py_attn.models.bpe import Stream as Decoder
from py_attn.models.cache_options import CacheOptions, check_cache
from py_attn.models.llama_weights import Config
from py_attn.models.smollm2_base import LanguageModel
from py_attn.models.smollm2_checks import NOTHING_WRITTEN, as_list, check_count, check_seed, check_stop
from py_attn.models.smollm2_compare import Exact, compare_caches, read_exactly
from py_attn.models.smollm2_steps import Steps, Stream, pause
from py_attn.models.smollm2_values import Alternative, Difference, StepTiming, Timing, Token
from py_attn.models.written import Weights, Written

_WARM_UP_LENGTHS = (5, 40)
# Of a character in UTF-8, in bytes; each may be a token.
_LONGEST_CHARACTER = 4


class SmolLM2(LanguageModel):
    """The model and one text. Made by :func:`py_attn.models.load`; :meth:`destroy` frees it.

    Attributes
    ----------
    device : Device
    config : Config
    tokenizer : BPE
    layers, heads, kv_heads, head_dim : int
        30, 9, 3 and 64 for the published weights.
    timing : Timing or None
        Of the last :meth:`stream` or :meth:`generate`; None where it wrote nothing yet.
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
        super().__init__(device, config, tokenizer, template, weights, options)
        self._steps = Steps(config, tokenizer)

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
            await self._text.process(pause)

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
        text = self._check_ids([*self._text.tokens[:kept], *as_list("ids", ids)])
        async with self._at_work():
            self._text.rewind(kept, text[kept:])
            await self._text.process(pause)

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
        sampling = check_sampling(temperature, top_k, top_p)
        count, number, ends = check_count(max_new_tokens), check_seed(seed), check_stop(stop)
        prompt = None if ids is None else self._check_ids(ids)
        if prompt is None and not self._text.tokens:
            raise ValueError(f"ids: expected a prompt, since {NOTHING_WRITTEN}")
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
        begun = time.perf_counter()
        async with self._at_work():
            text, self.timing = self._text, None
            if prompt is not None:
                text.start(prompt)
            await text.process(pause)
            prompt_length = len(text.tokens)
            new_text, first = "", 0.0
            decoder = Decoder(self.tokenizer)
            for number in text.tokens[-_LONGEST_CHARACTER:]:  # the text may end in the middle of a character
                decoder.push(number)
            try:
                async with aclosing(
                    self._steps.write(text, min(count, text.room), sampling, seed, alternatives)
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

    async def score(self, ids: Sequence[int] | None = None) -> npt.NDArray[np.float64]:
        """Log-probability of each token given those before it; it becomes the text that `attention` shows.

        Perplexity is ``exp(-mean)`` of it.

        Parameters
        ----------
        ids : sequence of int, optional
            The text so far if left out.

        Returns
        -------
        array
            [n - 1] float64, natural logarithms.

        Raises
        ------
        ValueError, TypeError, RuntimeError
            As :meth:`start`.
        """
        if ids is None:
            self._check_written()
        text = None if ids is None else self._check_ids(ids)
        async with self._at_work():
            if text is not None:
                self._text.start(text)
            await self._text.process(pause)
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
        *,
        exact: Exact | None = None,
    ) -> Difference:
        """What another cache does to the text so far, against a float32 cache that holds all of it.

        The arguments are those of :func:`py_attn.models.load`; ``context`` is the text's length unless given.
        ``exact``, from :meth:`read_exactly`, spares several comparisons from processing the text with the
        float32 cache each time.

        Raises
        ------
        ValueError, TypeError
            For options that do not fit, a text of fewer than two tokens, or an ``exact`` of another text.
        RuntimeError
            While the model is at work.
        """
        length = self._check_comparable()
        if exact is not None and not exact.is_of(self._text):
            raise ValueError(
                "exact: it was read of another text, or with other heads; call read_exactly again"
            )
        size = length if context is None else context
        checked = check_cache(cache, size, ring, sink_tokens, None, self.config.context_length)
        if not ring and checked.context < length:
            raise ValueError(f"context: expected at least the text's {length} tokens, got {context}")
        options = replace(checked, history=length)
        if checked.context >= length:  # a larger cache than the text would hold the same
            options = CacheOptions(checked.dtype, context=length, history=length)
        async with self._at_work():
            whole = exact or await read_exactly(self._text, pause)
            try:
                return await compare_caches(self._text, options, pause, whole)
            finally:
                if whole is not exact:
                    whole.destroy()

    async def read_exactly(self) -> Exact:
        """Process the text so far with a float32 cache, for several calls of :meth:`compare`.

        Raises
        ------
        ValueError
            For a text of fewer than two tokens.
        RuntimeError
            While the model is at work.
        """
        self._check_comparable()
        async with self._at_work():
            return await read_exactly(self._text, pause)

    def _check_comparable(self) -> int:
        """The text's length in tokens."""
        self._check_open()
        length = len(self._text.tokens)
        if length < 2:
            raise ValueError(f"text: expected at least two tokens to compare with, got {length}")
        return length

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
        GPUOutOfMemoryError
            When there is no room for this cache; the text is processed again with the one that it had.
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
            present = self._text.options
            try:
                await self._keep_in(options)
            except PyAttnError:
                if not self.device.lost:
                    await self._keep_in(present)
                raise

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
        self._check_written()
        if not 0 <= runs < self.room:
            raise ValueError(f"warmup_runs: expected 0 to {self.room - 1}, got {runs}")
        async with self._at_work():
            await self._text.process(pause)
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
                await text.process(pause)
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

    # Inside

    async def _keep_in(self, options: CacheOptions) -> None:
        """Process the text again, with another cache in the place of the one that it has."""
        old, tokens = self._text, self._text.tokens
        old.destroy()
        self.device.release_memory()
        self._text = new = Written(self.device, self.config, self._weights, options)
        new.set_heads_off(old.heads_off)
        if tokens:
            new.start(tokens)
            await new.process(pause)
        await self.device.synchronize()

    async def _finish(self) -> None:
        text = self._text
        await text.process(pause, len(text.tokens))
