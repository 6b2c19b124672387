"""How a language model writes: recorded steps, submitted ahead of reading what they chose."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn.kernels.nn.sampling import Sampling
from py_attn.models.bpe import BPE
from py_attn.models.llama_weights import Config
from py_attn.models.smollm2_base import LanguageModel
from py_attn.models.smollm2_values import Alternative, Token
from py_attn.models.written import Written

# The first submission is a single step, so that its token is seen at once; each later one has twice as many
# steps, up to what takes about this long. The browser records a submission while the GPU runs earlier ones,
# but where a step takes long, fewer are submitted ahead, so that a stream that is left ends soon.
_SUBMISSION_MS = 20.0
_MAX_STEPS = 16
_SUBMISSIONS_AHEAD = 4


class Stream:
    """The tokens that a model writes: an async iterator. The writing ends when it is closed or dropped."""

    def __init__(self, model: LanguageModel, tokens: AsyncGenerator[Token, None]) -> None:
        self._model, self._tokens = model, tokens

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Token:
        return await anext(self._tokens)

    async def aclose(self) -> None:
        """End the writing; the text stays as far as its tokens were seen."""
        await self._tokens.aclose()

    def __del__(self) -> None:
        self._model._close(self._tokens)


class Steps:
    """Writes tokens by steps, and learns how many of them make a submission of a fitting length."""

    def __init__(self, config: Config, tokenizer: BPE) -> None:
        self.config, self.tokenizer = config, tokenizer
        self._step_ms = 10.0

    async def write(
        self, text: Written, count: int, sampling: Sampling, seed: int, alternatives: bool
    ) -> AsyncGenerator[Token, None]:
        """Tokens as the GPU writes them: the next steps are submitted before earlier ones are read."""
        if not count:
            return
        program = text.program(sampling, alternatives)
        text.begin_steps(seed)
        submitted = len(text.tokens)
        last, most, ahead = submitted + count, 1, 1
        reading: list[asyncio.Future[list[npt.NDArray[Any]]]] = []
        try:
            while submitted < last or reading:
                while submitted < last and len(reading) < ahead:
                    steps = min(most, self._at_a_time(), last - submitted)
                    text.submit(program, steps)
                    # A kernel that fails to compile is found out by the first token.
                    reading.append(
                        text.written(submitted, submitted + steps, alternatives=alternatives, check=most == 1)
                    )
                    most = 2 * steps
                    await pause()  # so that the reading is asked for before the next submission
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
            await text.device.synchronize()
        finally:
            await asyncio.gather(*reading, return_exceptions=True)

    def _until_end(self, ids: list[int]) -> tuple[list[int], bool]:
        """The ids up to the first end token; what follows was not written."""
        for n, number in enumerate(ids):
            if number in self.config.end_tokens:
                return ids[: n + 1], True
        return ids, False

    def _at_a_time(self) -> int:
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


async def pause() -> None:
    """Let other work of the program have its turn."""
    await asyncio.sleep(0)
