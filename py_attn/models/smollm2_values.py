"""What a language model answers: tokens and their alternatives, timings, comparisons."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


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
        Seconds from the moment when the first token was asked for until it was read back. They have the
        prompt's processing in them, and waiting for the end of a stream that was left early.
    tokens : int
        How many were written.
    others_s : float
        Seconds from there until the last token was read back.
    """

    first_s: float
    tokens: int
    others_s: float

    @property
    def tokens_per_second(self) -> float | None:
        """Steps a second after the first token, which takes the prompt too; None where there was only one."""
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
