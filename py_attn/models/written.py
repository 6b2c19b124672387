"""One text that a language model reads or writes: its logs and caches on the GPU, and what advances it.

Everything about token n of the text lies in row n of a log: its id, its vector (the residual stream, to which
every layer adds in place), and its query in each layer. Keys and values lie in one cache for each layer. The
position lies on the GPU too (:mod:`py_attn.kernels.steps`), so a step is recorded once and replayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from py_attn.gpu.bridge import RawTiming
from py_attn.gpu.device import Device
from py_attn.gpu.program import Program
from py_attn.gpu.tensor import Tensor
from py_attn.kernels import nn
from py_attn.kernels.attention.forward import attention
from py_attn.kernels.attention.weights import attention_weights, check_heads, check_slice
from py_attn.kernels.decode.cache import KVCache
from py_attn.kernels.decode.step import append_step, decode_attention_step, decode_partials_step
from py_attn.kernels.nn.sampling import ALTERNATIVES, Sampling
from py_attn.kernels.quantization import turboquant
from py_attn.kernels.steps import WORDS, Word, new_state
from py_attn.models.cache_options import CacheOptions, is_held
from py_attn.models.llama_weights import Config
from py_attn.rope import rope_table

FloatArray = npt.NDArray[np.float32]

# Rows of a pass over given tokens; a software adapter answers between passes.
_ROWS = 512
_ROWS_SOFTWARE = 32
# Rows of logits at a time: 12.6 MB for 49,152 tokens.
_LOGIT_ROWS = 64
# Keys of the cache for each split of a step, and the fewest and the most splits.
_KEYS_PER_SPLIT = 256
_SPLITS = (4, 16)


@dataclass(frozen=True)
class LayerWeights:
    """The weights of one layer on the GPU.

    Attributes
    ----------
    attention_norm, mlp_norm : Tensor
        [width] gains of the two RMSNorms.
    qkv : QuantizedMatrix
        Query, key and value projections, stacked.
    output : QuantizedMatrix
    gate_up : QuantizedMatrix
        Rows of the gate and of the up projection in turn.
    down : QuantizedMatrix
    """

    attention_norm: Tensor
    qkv: nn.QuantizedMatrix
    output: nn.QuantizedMatrix
    mlp_norm: Tensor
    gate_up: nn.QuantizedMatrix
    down: nn.QuantizedMatrix


@dataclass(frozen=True)
class Weights:
    """A model's weights on the GPU; ``embedding`` [vocabulary, width] also gives the logits."""

    embedding: nn.QuantizedMatrix
    layers: tuple[LayerWeights, ...]
    norm: Tensor

    def tensors(self) -> Iterable[Tensor]:
        """All tensors."""
        yield self.embedding.data
        yield self.norm
        for layer in self.layers:
            yield from (layer.attention_norm, layer.mlp_norm)
            yield from (each.data for each in (layer.qkv, layer.output, layer.gate_up, layer.down))


class Written:
    """The text so far, as the GPU holds it.

    Attributes
    ----------
    tokens : list of int
        Ids of the text. The last one may not have been processed yet: the next step does that.
    position : int
        How many tokens have been processed.
    """

    def __init__(self, device: Device, config: Config, weights: Weights, options: CacheOptions) -> None:
        self.device, self.config, self.weights, self.options = device, config, weights, options
        self.tokens: list[int] = []
        self.position = 0
        # How far submitted steps may have gone, though nobody took their tokens.
        self._reached = 0
        self.heads_off: frozenset[tuple[int, int]] = frozenset()
        self._program: tuple[Any, Program] | None = None
        self._lacks = device.lacks
        rows = options.history
        self._state = new_state(device)
        self._tokens = device.empty((rows + 1,), "uint32")
        self._log_probs = device.empty((rows + 1,))
        self._alternatives = (
            device.empty((rows + 1, ALTERNATIVES), "uint32"),
            device.empty((rows + 1, ALTERNATIVES)),
        )
        self._x = device.empty((rows, config.width))
        self._rope = device.tensor(
            rope_table(np.arange(rows), config.head_dim, config.rope_base), "float32", name="rope"
        )
        self._queries = [device.empty((rows, config.heads, config.head_dim)) for _ in weights.layers]
        self._head_scales = [device.tensor(np.ones(config.heads, np.float32)) for _ in weights.layers]
        self._caches = [
            self._new_cache(options.context, sink_tokens=options.sink_tokens) for _ in weights.layers
        ]
        # Beside a ring, which forgets: the keys of the whole text, so that every map can be looked at.
        self._whole = [self._new_cache(rows) for _ in weights.layers] if options.ring else self._caches

    def _new_cache(self, capacity: int, *, sink_tokens: int = 0) -> KVCache:
        config = self.config
        return KVCache(
            1,
            config.kv_heads,
            capacity,
            config.head_dim,
            dtype=self.options.dtype,
            sink_tokens=sink_tokens,
            device=self.device,
        )

    @property
    def cache_bytes(self) -> int:
        """Bytes of the caches of all layers."""
        return sum(cache.nbytes for cache in self._caches)

    @property
    def log_bytes(self) -> int:
        """Bytes that are kept so that the maps of the whole text can be looked at."""
        whole = sum(cache.nbytes for cache in self._whole) if self.options.ring else 0
        return whole + sum(query.nbytes for query in self._queries)

    @property
    def room(self) -> int:
        """How many tokens can still be added."""
        return self.options.history - len(self.tokens)

    def destroy(self) -> None:
        """Free the logs and caches; the weights stay."""
        self.keep_vectors()
        self._x.destroy()

    def keep_vectors(self) -> None:
        """Free all but the last layer's vectors, which `logits`, `statistics` and `differences` read."""
        self._forget_program()
        for cache in {*self._caches, *self._whole}:
            cache.destroy()
        logs = (self._state, self._tokens, self._log_probs, *self._alternatives, self._rope)
        for tensor in (*logs, *self._queries, *self._head_scales):
            tensor.destroy()

    # The text

    def start(self, ids: Sequence[int]) -> None:
        """Forget the text, and take ``ids`` as a new one, of which nothing has been processed."""
        self.tokens, self.position, self._reached = list(ids), 0, 0
        self._write_tokens(0)

    def _write_tokens(self, begin: int) -> None:
        """Bring the ids from ``begin`` on to the GPU, and the state that belongs to them."""
        if self.tokens[begin:]:
            self._tokens[begin : len(self.tokens)].write(np.array(self.tokens[begin:], np.uint32))
        self._write_state()

    def _write_state(self, seed: int = 0) -> None:
        words = np.zeros(WORDS, np.uint32)
        words[Word.POSITION] = self.position
        words[Word.GIVEN] = len(self.tokens)
        words[Word.SEED] = seed
        self._state.write(words)
        self._reached = max(self._reached, self.position)

    def rewind(self, length: int, ids: Sequence[int] = ()) -> None:
        """Keep the first ``length`` tokens, then add ``ids``; `process` does what is left to do then.

        A ring that has gone on since then has forgotten what it held, so all of the text is processed again.
        """
        forgot = self.options.ring and length < self._reached > self.options.context
        self.tokens = [*self.tokens[:length], *ids]
        self.position = 0 if forgot else min(self.position, length, len(self.tokens) - 1)
        self._reached = self.position
        self._write_tokens(min(length, self.position))

    def set_heads_off(self, heads: frozenset[tuple[int, int]]) -> None:
        """Make the output of these (layer, head) zero from the next token on."""
        for number in {layer for layer, _ in heads ^ self.heads_off}:
            values = [0.0 if (number, head) in heads else 1.0 for head in range(self.config.heads)]
            self._head_scales[number].write(np.array(values, np.float32))
        self.heads_off = heads

    # Passes through the model

    async def process(self, pause: Callable[[], Any], upto: int | None = None) -> None:
        """Process the tokens before index ``upto``: all but the last one, unless it is given.

        ``pause`` is a coroutine function, called between passes.
        """
        if self._lacks != self.device.lacks:
            # What lacked room may have left gaps in what was processed, and in the recorded step.
            self._lacks = self.device.lacks
            self._forget_program()
            self.start(self.tokens)
        end = len(self.tokens) - 1 if upto is None else upto
        limit = _ROWS_SOFTWARE if self.device.info.software else _ROWS
        while self.position < end:
            left = end - self.position
            # A ring that is full is passed token by token, each of which makes one older entry go.
            free = max(1, self.options.context - self.position)
            count = min(left, limit, free, self.options.context - self.options.sink_tokens)
            self._pass(count)
            self.position += count
            self._write_state()
            await pause()

    def _pass(self, count: int) -> None:
        """Record the layers over ``count`` rows from the position on."""
        nn.embed_tokens(self._tokens, self.weights.embedding, self._x, self._state, count=count)
        for number in range(len(self.weights.layers)):
            self._layer(number, count)

    def _layer(self, number: int, count: int) -> None:
        weights, config, x, state = self.weights.layers[number], self.config, self._x, self._state
        self._project(number, count)
        attended = self._attend_step(number) if count == 1 else self._attend_rows(number, count)
        scale = self._head_scales[number]
        nn.add_projection(
            x, attended, weights.output, state, count=count, head_scale=scale, heads=config.heads
        )
        inner = nn.gated_linear(
            x, weights.mlp_norm, weights.gate_up, state, count=count, epsilon=config.epsilon
        )
        nn.add_projection(x, inner, weights.down, state, count=count)

    def _project(self, number: int, count: int) -> None:
        """Queries into their log, keys and values into the cache."""
        weights, cache, config = self.weights.layers[number], self._caches[number], self.config
        direct = not (cache.key_format or cache.value_format or self.options.ring)
        key, value = cache.keys, cache.values
        if not direct:
            shape = (1, config.kv_heads, count, config.head_dim)
            key, value = self.device.empty(shape), self.device.empty(shape)
        nn.project_qkv(
            self._x,
            weights.attention_norm,
            weights.qkv,
            self._rope,
            self._queries[number],
            key,
            value,
            self._state,
            count=count,
            epsilon=config.epsilon,
            head_dim=config.head_dim,
            heads=config.heads,
            kv_heads=config.kv_heads,
            cache=direct,
        )
        if not direct:
            append_step(key, value, cache, self._state)
            if self.options.ring:
                append_step(key, value, self._whole[number], self._state)

    def _attend_step(self, number: int) -> Any:
        """The attention of the row at the position, over the cache."""
        cache, query = self._caches[number], self._queries[number][None].transpose(0, 2, 1, 3)
        fewest, most = _SPLITS
        splits = max(fewest, min(most, cache.capacity // _KEYS_PER_SPLIT))
        if self.device.info.software:
            splits = 1
        if cache.value_format is None:
            return decode_partials_step(query, cache, self._state, splits=splits)
        out = decode_attention_step(query, cache, self._state, splits=splits)
        return out.reshape(1, self.config.heads * self.config.head_dim)

    def _attend_rows(self, number: int, count: int) -> Tensor:
        """The attention of the rows from the position on: [count, heads · head_dim]."""
        end = self.position + count
        query = self._queries[number][self.position : end][None]
        keys, values = self._stored_keys(number, end), self._stored_values(number, end)
        out: Tensor = attention(
            query, keys.transpose(0, 2, 1, 3), values.transpose(0, 2, 1, 3), causal=True, layout="BSHD"
        )
        return out.reshape(count, self.config.heads * self.config.head_dim)

    def _stored_keys(self, number: int, end: int) -> Tensor:
        """Keys [1, kv_heads, end, head_dim] of the first tokens, as the cache rounds them."""
        cache = self._whole[number]
        return _widened(cache.keys[:, :, :end], cache.key_format)

    def _stored_values(self, number: int, end: int) -> Tensor:
        """Values, as :meth:`_stored_keys`."""
        cache = self._whole[number]
        return _widened(cache.values[:, :, :end], cache.value_format)

    # Choosing tokens

    def program(self, sampling: Sampling, alternatives: bool) -> Program:
        """The recorded step: processes the token at the position, and chooses the next one."""
        key = (sampling, alternatives)
        if self._program is None or self._program[0] != key:
            self._forget_program()
            with self.device.record() as program:
                self._pass(1)
                nn.choose_token(
                    self._logits(state=self._state),
                    self._tokens,
                    self._log_probs,
                    self._state,
                    **sampling._asdict(),
                    end_tokens=self.config.end_tokens,
                    alternatives=self._alternatives if alternatives else None,
                )
            self._program = key, program
        return self._program[1]

    def _forget_program(self) -> None:
        if self._program is not None:
            self._program[1].destroy()
            self._program = None

    def written(
        self, begin: int, end: int, *, alternatives: bool, check: bool
    ) -> asyncio.Future[list[npt.NDArray[Any]]]:
        """What recorded steps wrote about the tokens from ``begin`` to ``end``; read in the loop's next turn.

        With ``check`` it waits for steps that were submitted since too, and raises what failed.

        Their ids [n] and log-probabilities [n], and with ``alternatives`` the ids and log-probabilities of
        the likeliest tokens in their place [n, 10].
        """
        logs = [self._tokens, self._log_probs, *(self._alternatives if alternatives else ())]
        return asyncio.gather(*(log[begin:end].numpy(check=check) for log in logs))

    def accept(self, number: int) -> None:
        """Take the next token that recorded steps have chosen; all tokens before it are processed."""
        self.tokens.append(number)
        self.position = len(self.tokens) - 1
        if number in self.config.end_tokens:  # the position stays there, however many steps follow
            self._reached = len(self.tokens)

    def begin_steps(self, seed: int) -> None:
        """Prepare the state for recorded steps, the first of which processes the last token."""
        self.position = len(self.tokens) - 1
        self._write_state(seed)

    def submit(self, program: Program, steps: int) -> None:
        """Run so many steps; `written` tells what they chose."""
        program.submit(times=steps)
        self._reached += steps

    async def time_step(self, warmup_runs: int) -> tuple[int, RawTiming]:
        """The step's dispatches, and its time right after so many others; the text stays as it is."""
        program, length = self.program(Sampling(), False), len(self.tokens)
        self.begin_steps(0)
        self._reached += warmup_runs + 1
        try:
            return len(program), await program.time_after(warmup_runs)
        finally:
            self.rewind(length)

    def repeat_step(self) -> None:
        """Process the last token as a step does, without going on from it."""
        self.begin_steps(0)
        self._pass(1)
        self._logits(state=self._state)

    def logits(self, first_row: int, count: int) -> Tensor:
        """The logits that rows of the text give for the tokens behind them: [count, vocabulary]."""
        return self._logits(first_row=first_row, count=count)

    def _logits(self, **rows: Any) -> Tensor:
        """The logits of some rows; ``rows`` are the keywords of :func:`py_attn.kernels.nn.logits`."""
        weights, epsilon = self.weights, self.config.epsilon
        return nn.logits(self._x, weights.norm, weights.embedding, epsilon=epsilon, **rows)

    async def statistics(self) -> FloatArray:
        """Of each token but the first: log-probability, likeliest id and entropy [n - 1, 3], float32."""
        targets, parts = np.array(self.tokens[1:], np.uint32), []
        for begin, count in _blocks(len(targets)):
            block = self.device.tensor(targets[begin : begin + count], "uint32")
            parts.append(nn.token_statistics(self.logits(begin, count), block))
        return await _read_rows(parts)

    async def differences(self, other: Written) -> FloatArray:
        """How what this text gives for the next tokens differs from ``other``: as compare_distributions."""
        parts = [
            nn.compare_distributions(self.logits(begin, count), other.logits(begin, count))
            for begin, count in _blocks(len(self.tokens) - 1)
        ]
        return await _read_rows(parts)

    # Looking at what was written

    def layer_tensors(self, number: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value [1, H, end, D] of the first tokens in a layer, as they were attended with."""
        return self._query(number, 0, end), self._stored_keys(number, end), self._stored_values(number, end)

    def _query(self, number: int, begin: int, end: int) -> Tensor:
        """The query [1, heads, end - begin, head_dim] of some tokens."""
        query: Tensor = self._queries[number][begin:end][None].transpose(0, 2, 1, 3)
        return query

    def masking(self, first_row: int = 0) -> dict[str, Any]:
        """Keywords of :func:`py_attn.attention` that say what each row saw; query 0 is row ``first_row``."""
        keywords: dict[str, Any] = {"causal": True, "query_offset": first_row}
        if self.options.ring:
            context, kept = self.options.context, self.options.sink_tokens
            # In a tensor (b is 0), so that another row needs no other shader.
            first = self.device.tensor(np.array([first_row], np.int32))
            keywords["mask_mod"] = lambda b, h, q_idx, kv_idx: is_held(
                q_idx + first[b], kv_idx, context, kept
            )
        return keywords

    def attention(self, number: int, heads: object, rows: slice, columns: slice) -> Tensor:
        """The weights of a window of a layer's map: [heads, rows, columns]."""
        chosen = check_heads(heads, self.config.heads)
        begin, step, count = check_slice("rows", rows, self.position)
        check_slice("columns", columns, self.position)
        end = begin + max(0, count * step - step + 1)
        query, keys = self._query(number, begin, end), self._stored_keys(number, self.position)
        keywords = self.masking(begin)
        _, lse = attention(query, keys, keys, return_lse=True, **keywords)
        whole = attention_weights(
            query, keys, lse, rows=slice(None, None, step), columns=columns, heads=chosen, **keywords
        )
        return whole.reshape(*whole.shape[1:])


def _widened(part: Tensor, form: turboquant.Format | None) -> Tensor:
    """A part of a cache as numbers; of one that is not quantised, the part itself."""
    if form is None:
        return part
    wide: Tensor = turboquant.run_rotation("cache", part, form, "dequantize")
    return wide


def _blocks(rows: int) -> Iterator[tuple[int, int]]:
    """First row and count of each block of rows whose logits are computed at a time."""
    for begin in range(0, rows, _LOGIT_ROWS):
        yield begin, min(_LOGIT_ROWS, rows - begin)


async def _read_rows(blocks: Sequence[Tensor]) -> FloatArray:
    """The rows [n, 3] of all blocks; none where there are no blocks."""
    read = [await block.numpy() for block in blocks]
    return np.concatenate(read) if read else np.zeros((0, 3), np.float32)
