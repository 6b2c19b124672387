"""A KV cache whose entries lie in blocks of a pool, which batch elements take as they grow, and share."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from py_attn.arguments import check_positive
from py_attn.gpu.device import Device, default_device
from py_attn.gpu.kernel import Described
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.checks import check_lengths, integer_tensor
from py_attn.kernels.decode.cache import KVCache
from py_attn.kernels.decode.formats import check_scales
from py_attn.kernels.decode.pages import TABLE, check_table


class PagedKVCache(KVCache):
    """A cache in blocks: a table says in which blocks of a pool the entries of each batch element lie.

    Everything else is as of a :class:`KVCache` with ``ragged=True``, whose capacity is max_blocks ·
    ``block_size``: ``append`` writes and ``decode_attention`` reads through the table, and lengths lie on the
    GPU. Batch elements whose tables begin with the same blocks share a prefix. What is appended to a block
    that is shared, all of them see: an element that goes on behind a prefix needs a block of its own there.
    Beyond the capacity the ring goes on in the element's first block, behind the sink tokens.

    Parameters
    ----------
    kv_heads, blocks, head_dim : int
        Of the pool: key/value heads, blocks, and the head dim from 1 to 576.
    block_table : Tensor or array_like of int
        [B, max_blocks]: block j of batch element b has its positions j · block_size and on. Blocks are
        numbered from 0; -1 where there is none yet. A tensor (int32 or uint32) is used as it is, and can be
        written by others. What is appended to a block that is none of the pool's is not stored, and what
        decodes read of it is undefined, but always of the pool.
    block_size : int
        Positions of a block.
    totals : array_like of int, optional
        [B], the positions that each element has to begin with, in blocks that were filled before; 0 unless
        given.
    value_head_dim, dtype, qjl, k_scale, v_scale, sink_tokens
        As of :class:`KVCache`.

    Attributes
    ----------
    keys, values : Tensor
        The pool [blocks, Hkv, block_size, D], of uint32 words where it holds integers or codes.
    blocks, block_size : int
    block_table : Tensor
        [B, max_blocks].

    Raises
    ------
    ValueError, TypeError
        Naming the argument, what was given and what was expected.

    Notes
    -----
    PagedAttention: Kwon et al., arXiv 2309.06180.
    """

    # Blocks are smaller than tiles.
    _may_tile = False

    def __init__(
        self,
        kv_heads: int,
        blocks: int,
        head_dim: int,
        *,
        block_table: Any,
        block_size: int = 16,
        totals: Any = None,
        value_head_dim: int | None = None,
        dtype: str | tuple[str, str] = "float32",
        qjl: bool = False,
        k_scale: Any = None,
        v_scale: Any = None,
        sink_tokens: int = 0,
        device: Device | None = None,
    ) -> None:
        self.blocks = check_positive("blocks", blocks)
        self.block_size = check_positive("block_size", block_size)
        batch, most = check_table(block_table, self.blocks)
        _check_totals(totals, batch, most * self.block_size)
        self._given_scales = k_scale, v_scale
        super().__init__(
            batch,
            kv_heads,
            most * self.block_size,
            head_dim,
            value_head_dim=value_head_dim,
            dtype=dtype,
            qjl=qjl,
            k_scale=k_scale,
            v_scale=v_scale,
            sink_tokens=sink_tokens,
            ragged=True,
            device=device or default_device(),
        )
        self._take(block_table, totals)

    def _take(self, block_table: Any, totals: Any) -> None:
        """Bring the table and the lengths to the device."""
        self.block_table = integer_tensor(TABLE, block_table, self.device)
        self._owns_table = not isinstance(block_table, Tensor)
        if totals is not None:
            self.totals.write(np.asarray(totals))

    @property
    def _rows(self) -> tuple[int, int, int]:
        return self.blocks, self.kv_heads, self.block_size

    @property
    def storage_description(self) -> Described:
        """What a plan depends on beside the tensors."""
        return Described((*super().storage_description, self.blocks, self.block_size))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What calls read and write of it, by the names that their plans use."""
        return {**super().tensors, TABLE: self.block_table}

    def set_block_table(self, block_table: Any) -> None:
        """Write other blocks into the table, as where elements have grown; recorded programs see them too.

        Parameters
        ----------
        block_table : array_like of int
            [B, max_blocks], of the shape that it has.

        Raises
        ------
        ValueError, TypeError
            As of the constructor; nothing is written then.
        """
        if isinstance(block_table, Tensor):
            raise TypeError(f"{TABLE}: expected an array, got a Tensor")
        check_table(block_table, self.blocks, (self.batch, self.capacity // self.block_size))
        self.block_table.write(np.asarray(block_table))

    def with_block_table(self, block_table: Any, *, totals: Any = None) -> PagedKVCache:
        """Another batch over the same pool, as where sequences come and go.

        Parameters
        ----------
        block_table : Tensor or array_like of int
            [B, max_blocks], where B and max_blocks may differ from this cache's.
        totals : array_like of int, optional
            [B]: how many positions of these blocks are filled; 0 unless given.

        Returns
        -------
        PagedKVCache
            Its ``destroy`` leaves the pool to this one.

        Raises
        ------
        ValueError, TypeError
            As of the constructor.
        """
        self.keys.storage("cache")
        batch, most = check_table(block_table, self.blocks)
        capacity = most * self.block_size
        _check_totals(totals, batch, capacity)
        if self.sink_tokens >= capacity:
            raise ValueError(
                f"{TABLE}: expected room for more than the {self.sink_tokens} sink tokens, got {capacity}"
            )
        scales = check_scales(*self._given_scales, self.dtype, batch, self.kv_heads)
        other = copy.copy(self)
        other.batch, other.capacity, other._owns_pool = batch, capacity, False
        other.scales = None if scales is None else self.device.tensor(scales, name="scales")
        other._totals = self.device.tensor([0] * batch, "int32", name="totals")
        other._take(block_table, totals)
        return other

    _owns_pool = True

    def destroy(self) -> None:
        """Free the memory; of a cache made by :meth:`with_block_table` all but the pool."""
        others = {"cache keys", "cache values"} if not self._owns_pool else set()
        if not self._owns_table:
            others.add(TABLE)
        for name, tensor in self.tensors.items():
            if name not in others:
                tensor.destroy()

    def __repr__(self) -> str:
        return (
            f"PagedKVCache(batch={self.batch}, kv_heads={self.kv_heads}, blocks={self.blocks}, "
            f"block_size={self.block_size}, head_dim={self.head_dim}, value_head_dim={self.value_head_dim}, "
            f"dtype={self.dtype})"
        )


def _check_totals(totals: Any, batch: int, capacity: int) -> None:
    if isinstance(totals, Tensor):
        raise TypeError("totals: expected an array, got a Tensor")
    if totals is not None:
        check_lengths(totals, batch, capacity, "totals")
