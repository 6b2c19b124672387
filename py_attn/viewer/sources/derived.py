"""A source read in another way: word pieces merged into words, and special tokens hidden."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from py_attn.viewer.sources.reading import MAX_READ_LENGTH, Reading, is_spaced, specials, words
from py_attn.viewer.sources.source import Array, Layer, Source
from py_attn.viewer.sources.words import word_texts


@dataclass(frozen=True)
class Groups:
    """Which positions of a source each row and column stands for.

    Attributes
    ----------
    starts, stops : array of int
        [groups]: from the first position to the one behind the last; ascending, and none overlaps another.
    renormalise : bool
        Whether each row is divided by its sum.
    """

    starts: npt.NDArray[np.intp]
    stops: npt.NDArray[np.intp]
    renormalise: bool

    def __len__(self) -> int:
        return len(self.starts)


class DerivedLayer(Layer):
    """A layer whose positions are grouped; its queries, keys and values are those of ``base``."""

    def __init__(self, base: Layer, groups: Groups) -> None:
        super().__init__(None, None, None)
        self.base = base
        self.groups = groups
        self.kept = base.kept

    async def host(self) -> tuple[Array, Array, Array]:
        """Raises ValueError: a word has no query, key and value of its own."""
        raise ValueError(
            "layer: words and texts without special tokens have no queries, keys and values of their own"
        )


class _DerivedLayers(Sequence[Layer]):
    """The layers, each made when it is looked at, as those of the base source may be."""

    def __init__(self, base: Sequence[Layer], groups: Groups) -> None:
        self._base = base
        self._groups = groups

    def __len__(self) -> int:
        return len(self._base)

    @overload
    def __getitem__(self, index: int) -> Layer: ...
    @overload
    def __getitem__(self, index: slice) -> list[Layer]: ...
    def __getitem__(self, index: int | slice) -> Layer | list[Layer]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return DerivedLayer(self._base[index], self._groups)

    def __iter__(self) -> Iterator[Layer]:
        return (self[i] for i in range(len(self)))


@dataclass(kw_only=True)
class DerivedSource(Source):
    """A source whose rows and columns stand for groups of positions of another one.

    Attributes
    ----------
    base : Source
    groups : Groups
    reading : Reading
    """

    base: Source
    groups: Groups
    reading: Reading

    @property
    def heads(self) -> int:
        return self.base.heads

    @property
    def kv_heads(self) -> int:
        return self.base.kv_heads

    @property
    def length(self) -> int:
        return len(self.groups)

    @property
    def head_dim(self) -> int:
        return self.base.head_dim

    def describe(self) -> dict[str, Any]:
        """As of any source, with the tokens of the base and the groups that they form."""
        return {
            **super().describe(),
            "base": {
                "tokens": list(self.base.tokens),
                "starts": self.groups.starts.tolist(),
                "stops": self.groups.stops.tolist(),
            },
        }


def read(base: Source, reading: Reading) -> Source:
    """The source as it is read; ``base`` itself where that makes no difference to it, or cannot be done."""
    if reading == Reading() or base.length > MAX_READ_LENGTH:
        return base
    special = specials(base)
    hidden = special if reading.special != "show" else frozenset()
    units = words(base) if reading.words else [range(i, i + 1) for i in range(base.length)]
    shown = [unit for unit in units if unit.start not in hidden]
    # Special tokens stand alone; of a text of nothing else they are shown.
    if not shown or len(shown) == base.length:
        return base
    groups = Groups(
        np.array([unit.start for unit in shown], np.intp),
        np.array([unit.stop for unit in shown], np.intp),
        bool(hidden) and reading.special == "renormalise",
    )
    tokens = (
        word_texts(base.tokens, shown, spaced=is_spaced(base))
        if reading.words
        else [base.tokens[unit.start] for unit in shown]
    )
    return DerivedSource(
        base.kind,
        base.title,
        tokens,
        _DerivedLayers(base.layers, groups),
        base.masking,
        base.note,
        base=base,
        groups=groups,
        reading=reading,
    )
