"""What a cache does to a text, against a float32 cache that holds all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from py_attn.models.cache_options import CacheOptions
from py_attn.models.smollm2_values import Difference
from py_attn.models.written import Written


class Exact:
    """What a model says of a text over a float32 cache that holds all of it, to compare several caches with.

    Made by :meth:`py_attn.models.smollm2.SmolLM2.read_exactly`. It keeps the last layer's vectors only,
    2.3 kB a token, until :meth:`destroy`.

    Attributes
    ----------
    text : Written
    log_probabilities : array
        [n - 1] float64, of each token but the first.
    """

    def __init__(self, text: Written, log_probabilities: np.ndarray[Any, Any]) -> None:
        self.text, self.log_probabilities = text, log_probabilities

    def is_of(self, text: Written) -> bool:
        """Whether it was read of a text with these tokens and these heads switched off."""
        return self.text.tokens == text.tokens and self.text.heads_off == text.heads_off

    def destroy(self) -> None:
        """Free the vectors. A second call does nothing."""
        self.text.destroy()


async def read_exactly(text: Written, pause: Callable[[], Any]) -> Exact:
    """Process a text anew with a float32 cache, which is freed again.

    ``text`` stays as it is; ``pause`` is a coroutine function, called between passes.
    """
    length = len(text.tokens)
    exact = await _read(text, CacheOptions(context=length, history=length), pause)
    try:
        return Exact(exact, (await exact.statistics())[:, 0].astype(np.float64))
    except BaseException:
        exact.destroy()
        raise


async def compare_caches(
    text: Written, options: CacheOptions, pause: Callable[[], Any], exact: Exact
) -> Difference:
    """Process a text anew with these options, and compare what that says of it with ``exact``."""
    if options == exact.text.options:  # nothing would differ
        return await _difference(exact, exact.text)
    other = await _read(text, options, pause)
    try:
        return await _difference(exact, other)
    finally:
        other.destroy()


async def _read(text: Written, options: CacheOptions, pause: Callable[[], Any]) -> Written:
    """The same tokens processed with these options; only the last layer's vectors are kept."""
    other = Written(text.device, text.config, text.weights, options)
    try:
        other.set_heads_off(text.heads_off)
        other.start(text.tokens)
        await other.process(pause)
    except BaseException:
        other.destroy()
        raise
    other.keep_vectors()
    return other


async def _difference(exact: Exact, other: Written) -> Difference:
    given = (await other.statistics())[:, 0].astype(np.float64)
    differences = (await exact.text.differences(other)).astype(np.float64)
    return Difference(
        perplexity=float(np.exp(-given.mean())),
        reference_perplexity=float(np.exp(-exact.log_probabilities.mean())),
        same=float((differences[:, 1] == differences[:, 2]).mean()),
        divergence=differences[:, 0],
        log_probabilities=given,
    )
