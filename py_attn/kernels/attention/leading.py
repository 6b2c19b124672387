"""Inputs without a batch axis, or with neither batch nor heads, as the kernels' four axes and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from py_attn.gpu.tensor import Tensor
from py_attn.kernels.checks import shape_of

#: How to see [H, S, D] (or [S, H, D]) and [S, D] as four axes, and how to undo that; by layout and axes.
_ADD: dict[tuple[object, int], Any] = {
    ("BHSD", 3): (None,),
    ("BSHD", 3): (None,),
    ("BHSD", 2): (None, None),
    ("BSHD", 2): (None, slice(None), None),
}
_TAKE: dict[tuple[object, int], Any] = {
    key: tuple(0 if each is None else each for each in index) for key, index in _ADD.items()
}


class Leading:
    """Which axes the operands of a call lack, and so its results.

    Parameters
    ----------
    layout : object
        "BHSD" or "BSHD".
    **operands
        Query, key and others; with 3 axes each they have no batch axis, with 2 no heads either. Where they
        do not agree nothing is added, and the checks that follow say what is wrong.
    """

    def __init__(self, layout: object, **operands: Any) -> None:
        self.added = False
        # Nearly all calls have tensors of four axes, which the call itself checks.
        for x in operands.values():
            if type(x) is not Tensor or len(x.shape) != 4:
                break
        else:
            return
        ranks = {len(shape_of(name, x)) for name, x in operands.items()}
        rank = ranks.pop() if len(ranks) == 1 else 4
        self._key = (layout, rank)
        self.added = self._key in _ADD

    def operand(self, x: Any) -> Any:
        """``x`` [S, D], [H, S, D] or what the layout says with the axes that it lacks; None stays None."""
        return self._index(x, _ADD[self._key]) if self.added else x

    def rows(self, x: Any) -> Any:
        """An LSE [Sq] or [Hq, Sq] with the axes that it lacks; None stays None."""
        return self._index(x, (None,) * (4 - self._key[1])) if self.added else x

    def take(self, result: Tensor) -> Tensor:
        """A result without the axes that were added."""
        return result[_TAKE[self._key]] if self.added else result

    def take_first(self, result: Tensor) -> Tensor:
        """An LSE, or another result that begins with [B, Hq], without the axes that were added."""
        return result[(0,) * (4 - self._key[1])] if self.added else result

    @staticmethod
    def _index(x: Any, index: tuple[Any, ...]) -> Any:
        return None if x is None else (x if isinstance(x, Tensor) else np.asarray(x))[index]
