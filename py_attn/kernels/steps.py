"""The state of a text that is being written: a few words on the GPU that recorded steps read and advance.

A language model's step is recorded once and replayed for each token. What changes from token to token lies in
one uint32 tensor, so that many steps can be submitted without Python between them. The kernels of a step read
it through ``shaders/lib/state.wgsl``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from py_attn.gpu.device import Device
from py_attn.gpu.kernel import Arg
from py_attn.gpu.tensor import Tensor


class Word(IntEnum):
    """What the words of a state mean.

    Attributes
    ----------
    POSITION
        Tokens that have been processed, and so the index of the token that the next step processes.
    GIVEN
        Tokens before this index were given, as a prompt's are; a step chooses none in their place.
    FINISHED
        1 once an end token was chosen; from then on steps advance no further.
    SEED
        Of the random numbers.
    """

    POSITION = 0
    GIVEN = 1
    FINISHED = 2
    SEED = 3


WORDS = len(Word)
STATE_PARAMS = {"state_first": "u32"}
READS_STATE = Arg("state", "u32")
WRITES_STATE = Arg("state", "u32", writes=True)


def new_state(device: Device) -> Tensor:
    """A state at position 0 with nothing given: [4] uint32."""
    return device.tensor([0] * WORDS, "uint32", name="state")


def check_state(state: Any) -> Tensor:
    """Return ``state``.

    Raises
    ------
    TypeError, ValueError
        When it is no tensor as :func:`new_state` makes it, or was destroyed.
    """
    if not isinstance(state, Tensor):
        raise TypeError(f"state: expected a Tensor, got {type(state).__name__}")
    state.storage("state")
    if state.shape != (WORDS,) or state.dtype != "uint32" or state.strides != (1,):
        raise ValueError(f"state: expected uint32 [{WORDS}], got {state.dtype} {list(state.shape)}")
    return state
