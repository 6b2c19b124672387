"""A language model on the GPU, the text that it holds, and what can be asked of both without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from py_attn.arguments import check_int
from py_attn.gpu.device import Device
from py_attn.gpu.tensor import Tensor
from py_attn.models.bpe import BPE
from py_attn.models.cache_options import CacheOptions
from py_attn.models.chat import render
from py_attn.models.llama_weights import Config
from py_attn.models.smollm2_checks import NOTHING_WRITTEN, check_heads_off, check_ids
from py_attn.models.smollm2_values import Timing, Token
from py_attn.models.written import Weights, Written


class LanguageModel:
    """A model and one text; only one call that waits is at work on the text at a time.

    :class:`py_attn.models.smollm2.SmolLM2` adds those calls.
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
        self._text.set_heads_off(check_heads_off(heads, self.config))

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
                else f"layer: {NOTHING_WRITTEN}"
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

    def destroy(self) -> None:
        """Free the weights, caches and logs on the GPU; `tokens` stays. A second call does nothing."""
        self._destroyed = True
        self._text.destroy()
        for tensor in self._weights.tensors():
            tensor.destroy()

    # Inside

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
            raise ValueError(f"text: {NOTHING_WRITTEN}")

    def _check_ids(self, ids: Iterable[int]) -> list[int]:
        self._check_open()
        return check_ids(ids, self.config, self._text.options.history)

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
        if not self._busy:
            return
        try:
            self._closing.add(asyncio.get_running_loop().create_task(tokens.aclose()))
        except RuntimeError:  # no loop runs any more, so nothing waits either
            self._busy = False
