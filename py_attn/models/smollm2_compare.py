"""What a cache does to a text, against a float32 cache that holds all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from py_attn.models.cache_options import CacheOptions
from py_attn.models.smollm2_values import Difference
from py_attn.models.written import Written


async def compare_caches(text: Written, options: CacheOptions, pause: Callable[[], Any]) -> Difference:
    """Process a text twice, with a float32 cache and with these options, and compare what both say of it.

    ``text`` stays as it is; ``pause`` is a coroutine function, called between passes.
    """
    length = len(text.tokens)
    whole = CacheOptions(context=length, history=length)
    exact = Written(text.device, text.config, text.weights, whole)
    other = Written(text.device, text.config, text.weights, options)
    try:
        for each in (exact, other):
            each.set_heads_off(text.heads_off)
            each.start(text.tokens)
            await each.process(pause)
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
