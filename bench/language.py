"""The bench's part on the language model: how fast SmolLM2 writes here, and what its caches do to a text.

The page asks for the rows one by one (``listed``, ``measure``), and ends with ``close``. The model is loaded
when a row first needs it, and stays for the others.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import numpy as np

import py_attn as pa
from py_attn.models.smollm2 import SmolLM2

#: A fixed text with its ids and independent log-probabilities, and continuations by another implementation.
FIXTURE = Path(__file__).parent.parent / "tests" / "fixtures" / "smollm2.json"
#: The continuations that are compared: their two likeliest tokens are furthest apart at every place. Of the
#: second one's first tokens that is so with llama.cpp's rounding too.
_CHECKED = (3, 1)
#: What the page shows while the text grows: the newest row of one layer in each frame, of all less often.
_FRAME_S, _OVERVIEW_S = 1 / 60, 0.25
_LAYER = 15
#: Steps right before one that is timed.
_WARM_STEPS = 64
#: Seconds of work before prompts are timed: a GPU's clock falls while pipelines compile.
_WARM_S = 0.5


@dataclass(frozen=True)
class Amounts:
    """How much is measured.

    Attributes
    ----------
    prompt, written : int
        Tokens of context where decoding begins, and tokens that are written from there.
    checked : int
        Tokens of each continuation that are compared.
    prefill : int
        Tokens that are processed together.
    repeats : int
    scored, ring : int
        Tokens of the text whose perplexity is computed, and positions of the rings.
    caches : tuple of str
        Whose perplexity is computed.
    """

    prompt: int = 128
    written: int = 384
    checked: int = 40
    prefill: int = 512
    repeats: int = 7
    scored: int = 646
    ring: int = 256
    caches: tuple[str, ...] = ("float32", "float16", "turboquant4", "turboquant3", "turboquant2")

    @property
    def context(self) -> int:
        """Positions that hold every text but the scored one, with room for steps that are only timed."""
        return max(self.prompt + self.written, self.prefill) + 2 * _WARM_STEPS


FULL = Amounts()
SMALL = Amounts(16, 12, 6, 32, 1, 64, 32, ("float32", "float16", "turboquant4"))


class Goal(NamedTuple):
    """The row's value, or how many times that of the peer ``of``, is at least or at most ``value``."""

    sign: Literal[">=", "<="]
    value: float
    of: str = ""


@dataclass(frozen=True)
class Row:
    """One row of the model's table; ``measure`` gives its result."""

    name: str
    title: str
    unit: str
    measure: Callable[[Session], Awaitable[dict[str, Any]]]
    goals: tuple[Goal, ...] = ()


class Session:
    """The model between two questions of the page."""

    def __init__(self, size: str) -> None:
        self.amounts = FULL if size == "full" else SMALL
        self.device = pa.default_device()
        self.device.autotune = False
        self.load_s = 0.0
        self._model: SmolLM2 | None = None

    async def model(self, cache: str = "float16", context: int | None = None, **ring: Any) -> SmolLM2:
        """The model with this cache and a text of one token."""
        size = context or self.amounts.context
        if self._model is None:
            begun = time.perf_counter()
            self._model = await pa.models.load("smollm2", cache=cache, context=size, **ring)
            self.load_s = time.perf_counter() - begun
        await self._model.start(text_ids()[:1])
        await self._model.use_cache(cache, size, **ring)
        return self._model

    def destroy(self) -> None:
        """Free the model."""
        if self._model is not None:
            self._model.destroy()
            self._model = None


@functools.cache
def _fixture() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FIXTURE.read_text("utf-8"))
    return found


def text_ids() -> list[int]:
    """Ids of the fixed text."""
    ids: list[int] = _fixture()["text"]["ids"]
    return ids


# Rows


async def _load(session: Session) -> dict[str, Any]:
    await session.model()
    return {
        "value": session.load_s,
        "notes": ["from the site's file, or the browser's copy of it, to the GPU"],
    }


async def _first_token(session: Session) -> dict[str, Any]:
    """The time to the first token of a prompt, at once after loading and with fresh pipelines."""
    model = await session.model()
    prompt, found = _fixture()["continuations"][_CHECKED[0]], []
    ids, ok = prompt["ids"], True
    for again in range(3 if session.amounts is FULL else 1):
        if again:
            session.device.clear_pipelines()
            model = await session.model()  # another recorded step, since the last one keeps its pipelines
        written = await model.generate(ids, 1)
        ok &= written == prompt["written"][:1]
        assert model.timing is not None
        found.append(model.timing.first_s)
    notes = [f"{len(ids)} tokens of prompt, pipelines compiled meanwhile"]
    if found[1:]:
        notes.append(f"with the browser's cache of compiled shaders {_ms(min(found[1:]))}")
    return {"value": found[0], "ok": ok, "notes": notes}


async def _decode(session: Session, cache: str) -> dict[str, Any]:
    model, amounts = await session.model(cache), session.amounts
    ok, notes = await _check_text(model, amounts, cache)
    rates, tokens = [], 0
    await model.start(text_ids()[: amounts.prompt])
    for _ in range(amounts.repeats + int(amounts.repeats > 1)):
        await model.rewind(amounts.prompt)
        await session.device.synchronize()
        rate, tokens = await _write(model, amounts.written, alternatives=False)
        rates.append(rate)
    notes.insert(0, f"{tokens} tokens from {amounts.prompt} tokens of context on")
    return {"value": median(rates[-amounts.repeats :]), "ok": ok, "notes": notes, "all": rates}


async def _check_text(model: SmolLM2, amounts: Amounts, cache: str) -> tuple[bool, list[str]]:
    """Whether greedy texts are those of another implementation; of quantised caches, how far they are."""
    same, of = 0, 0
    for number in _CHECKED[: None if amounts is FULL else 1]:
        case = _fixture()["continuations"][number]
        wanted = case["written"][: amounts.checked]
        got = await model.generate(case["ids"], len(wanted))
        pairs = zip(got, wanted, strict=False)
        same += next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(got), len(wanted)))
        of += len(wanted)
    notes = [f"its first {same} of {of} checked tokens are those of transformers"]
    return same == of if cache.startswith("float") else same > 0, notes


async def _write(model: SmolLM2, count: int, *, alternatives: bool) -> tuple[float, int]:
    """Write on; tokens a second from the call to the last of them, and how many there were."""
    begun, written = time.perf_counter(), 0
    async for _ in model.stream(max_new_tokens=count, alternatives=alternatives):
        written += 1
    return written / (time.perf_counter() - begun), written


async def _decode_with_maps(session: Session) -> dict[str, Any]:
    """As the page writes: alternatives of each token, and the newest rows of the maps read back meanwhile."""
    model, amounts = await session.model("float16"), session.amounts
    ok, _ = await _check_text(model, amounts, "float16")
    rates, looks, seconds = [], 0, 0.0
    await model.start(text_ids()[: amounts.prompt])
    for _ in range(amounts.repeats + int(amounts.repeats > 1)):
        await model.rewind(amounts.prompt)
        await session.device.synchronize()
        looker = asyncio.ensure_future(_look(model))
        begun = time.perf_counter()
        rate, _ = await _write(model, amounts.written, alternatives=True)
        seconds += time.perf_counter() - begun
        looker.cancel()
        (looked,) = await asyncio.gather(looker)
        looks += looked
        rates.append(rate)
    note = (
        f"the newest row of layer {_LAYER + 1}'s heads {looks / seconds:.0f} times a second, of all layers "
        f"every {_OVERVIEW_S:g} s, and ten alternatives of every token"
    )
    return {"value": median(rates[-amounts.repeats :]), "ok": ok, "notes": [note], "all": rates}


async def _look(model: SmolLM2) -> int:
    """Read the newest rows of maps back until cancelled; returns how often."""
    looks, overview = 0, 0.0
    try:
        while True:
            begun = time.perf_counter()
            layers: Sequence[int] = [_LAYER]
            if begun - overview >= _OVERVIEW_S:
                layers, overview = range(model.layers), begun
            rows = [model.attention(layer, rows=slice(-1, None)) for layer in layers]
            for weights in await asyncio.gather(*(row.numpy() for row in rows)):
                assert np.allclose(weights.sum(-1), 1, atol=1e-3), "weights of a row do not sum to 1"
            looks += 1
            await asyncio.sleep(max(0.0, _FRAME_S - (time.perf_counter() - begun)))
    except asyncio.CancelledError:
        return looks


async def _prefill(session: Session) -> dict[str, Any]:
    """The time to process a prompt, the first time with compiling."""
    model, amounts = await session.model("float16"), session.amounts
    ids = text_ids()[: amounts.prefill + 1]

    async def once() -> float:
        begun = time.perf_counter()
        await model.start(ids)
        await session.device.synchronize()
        return time.perf_counter() - begun

    session.device.clear_pipelines()
    first = await once()
    end = time.perf_counter() + (0 if session.device.info.software else _WARM_S)
    while time.perf_counter() < end:
        await once()
    found = [await once() for _ in range(amounts.repeats)]
    log_probs = (await model.score(ids[:64]))[:16]
    off = np.abs(log_probs - _fixture()["text"]["log_probabilities"][:16]).max()
    notes = [
        f"the first time, with compiling, {_ms(first)}",
        f"log-probabilities at most {off:.3f} from those of transformers",
    ]
    return {"value": 1e3 * median(found), "ok": bool(off < 0.05), "notes": notes, "all": found}


async def _step(session: Session) -> dict[str, Any]:
    """The GPU time of one recorded step."""
    model, amounts = await session.model("float16"), session.amounts
    context = amounts.prompt + amounts.written
    await model.start(text_ids()[:context])
    warm = 0 if session.device.info.software else _WARM_STEPS
    timings = [await model.time_step(warm) for _ in range(3 if warm else 1)]
    times = [step.gpu_us if step.gpu_us is not None else step.wall_us for step in timings]
    clock = "by timestamps" if timings[0].gpu_us is not None else "wall time, as there are no timestamps"
    notes = [f"{timings[0].dispatches} dispatches a token, {context} tokens of context, {clock}"]
    return {"value": median(times), "notes": notes, "dispatches": timings[0].dispatches}


async def _kernels(session: Session) -> dict[str, Any]:
    """Microseconds of each kernel in one step, each dispatch by itself."""
    model, amounts = await session.model("float16"), session.amounts
    await model.start(text_ids()[: amounts.prompt + amounts.written])
    found = [await model.profile() for _ in range(3 if amounts is FULL else 1)]
    best = {name: _least([each[name] for each in found]) for name in found[0]}
    rows = [[name, us] for name, us in sorted(best.items(), key=lambda item: -(item[1] or 0.0))]
    known = [us for us in best.values() if us is not None]
    return {
        "value": sum(known) if len(known) == len(best) else None,
        "notes": ["without choosing the token; each dispatch by itself, so the sum is more than a step"],
        "table": {"columns": ["kernel", "µs a token"], "rows": rows},
    }


def _least(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


async def _perplexity(session: Session) -> dict[str, Any]:
    """Perplexity of the fixed text for each cache, and for rings with and without kept first tokens."""
    amounts = session.amounts
    ids = text_ids()[: amounts.scored]
    wanted = np.array(_fixture()["text"]["log_probabilities"][: len(ids) - 1])
    cases: list[tuple[str, dict[str, Any]]] = [(cache, {"cache": cache}) for cache in amounts.caches]
    for kept in (0, 4):
        ring = {"context": amounts.ring, "ring": True, "sink_tokens": kept, "history": len(ids)}
        cases.append((f"float32, ring of {amounts.ring}, {kept} kept", {"cache": "float32", **ring}))
    rows: list[list[Any]] = []
    value, ok = None, True
    for title, options in cases:
        model = await session.model(**({"context": len(ids)} | options))
        size = model.cache_bytes
        log_probs = await model.score(ids)
        perplexity = float(np.exp(-log_probs.mean()))
        rows.append([title, size / 1e6, perplexity])
        if value is None:
            value, ok = perplexity, bool(np.abs(log_probs - wanted).max() < 0.05)
    exact = float(np.exp(-wanted.mean()))
    notes = [f"of {len(ids)} tokens with a float32 cache; by transformers {exact:.4g}"]
    table = {"columns": ["cache", "MB", "perplexity"], "rows": rows}
    return {"value": value, "ok": ok, "notes": notes, "table": table}


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f} ms"


ROWS = (
    Row("model-load", "until it is loaded", "s", _load),
    Row("model-first", "to the first token once it is loaded", "s", _first_token, (Goal("<=", 0.5),)),
    Row(
        "model-decode-f16", "decode, float16 cache", "tokens/s",
        functools.partial(_decode, cache="float16"),
        (Goal(">=", 1000), Goal(">=", 5, "wllama")),
    ),
    Row("model-decode", "decode, float32 cache", "tokens/s", functools.partial(_decode, cache="float32")),
    Row(
        "model-decode-tq4", "decode, TurboQuant 4-bit cache", "tokens/s",
        functools.partial(_decode, cache="turboquant4"),
    ),
    Row(
        "model-maps", "decode with maps looked at, float16 cache", "tokens/s",
        _decode_with_maps, (Goal(">=", 400),),
    ),
    Row("model-prefill", "prefill of {prefill} tokens", "ms", _prefill, (Goal("<=", 15),)),
    Row("model-step", "a step on the GPU", "µs", _step),
    Row("model-kernels", "the kernels of a step", "µs", _kernels),
    Row("model-perplexity", "perplexity of a fixed text", "", _perplexity),
)  # fmt: skip

_session: Session | None = None


def _asked(only: list[str]) -> list[Row]:
    """The rows that are asked for: all, or those named, where "model" names them all."""
    names = {name for name in only if name.startswith("model")}
    known = {row.name for row in ROWS} | {"model"}
    if unknown := names - known:
        raise ValueError(f"only: expected names among {', '.join(sorted(known))}, got {', '.join(unknown)}")
    return [row for row in ROWS if not only or "model" in names or row.name in names]


def listed(size: str, only: list[str]) -> list[dict[str, Any]]:
    """The rows as plain data; goals are for the full amounts."""
    amounts = FULL if size == "full" else SMALL
    return [
        {
            "name": row.name,
            "title": row.title.format(prefill=amounts.prefill),
            "unit": row.unit,
            "goals": [goal._asdict() for goal in row.goals] if size == "full" else [],
        }
        for row in _asked(only)
    ]


async def measure(name: str, size: str) -> dict[str, Any]:
    """One row's result: ``value``, ``ok``, ``notes``, and ``table`` where it has one."""
    (row,) = (row for row in ROWS if row.name == name)
    return {"ok": True, "table": None, **await row.measure(_begun(size))}


def _begun(size: str) -> Session:
    global _session
    if _session is None:
        _session = Session(size)
    return _session


async def peer_task(size: str) -> dict[str, Any]:
    """What a peer is to do: its prompts, which it takes as text, and the text that it should write."""
    session = _begun(size)
    amounts, case = session.amounts, _fixture()["continuations"][_CHECKED[1]]
    model = await session.model()

    def beginning(count: int) -> str:
        return model.detokenize(text_ids()[:count])

    return {
        "checked": {"prompt": case["prompt"], "text": case["text"], "count": amounts.checked},
        "decode": {"prompt": beginning(amounts.prompt), "count": amounts.written},
        "prefill": {"prompt": beginning(amounts.prefill), "count": 1},
        "context": amounts.context,
        "repeats": amounts.repeats,
    }


async def close() -> None:
    """Free the model."""
    global _session
    if _session is not None:
        _session.destroy()
        await _session.device.synchronize()
        _session = None
