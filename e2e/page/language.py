"""The language model on small random weights, against its float64 reference."""

import base64
from typing import Any

import numpy as np

import py_attn as pa
from e2e.page.bounds import over_bound
from py_attn.models import smollm2_reference as plain
from py_attn.models.files import BytesFile

# Models by name: the file, its sizes and its dequantised weights.
MODELS: dict[str, Any] = {}


def keep(name, data):
    """Take a GGUF file, in base64, for the cases that name it."""
    content = base64.b64decode(data)
    MODELS[name] = (content, *plain.read_weights(BytesFile(content)))


async def load(case):
    """The model that a case asks for."""
    names = ("cache", "context", "ring", "sink_tokens", "history")
    given = {name: case[name] for name in names if name in case}
    model = await pa.models.load("smollm2", weights=MODELS[case["model"]][0], **given)
    model.heads_off = case.get("heads_off", ())
    return model


class Given(plain.Text):
    """The reference, with the keys and values that the model's cache holds.

    So an error of the cache's rounding, which may go either way, is told from other errors.
    """

    def __init__(self, case, held, dtype):
        _, config, weights = MODELS[case["model"]]
        options = {"heads_off": case.get("heads_off", ())}
        if case.get("ring"):
            options |= {"capacity": case["context"], "kept": case.get("sink_tokens", 0)}
        super().__init__(config, weights, dtype=dtype, **options)
        self.held = held
        self.computed = []

    def _project(self, x, number, positions):
        query, key, value = super()._project(x, number, positions)
        self.computed.append((key, value))
        return (query, *(each[:, :, positions].astype(self.dtype) for each in self.held[number]))


async def held_by(model):
    """Keys and values of every layer, as they are attended with."""
    text = model._text
    layers = [text.layer_tensors(n, text.position)[1:] for n in range(model.layers)]
    return [[await each.numpy() for each in layer] for layer in layers]


async def feed(model, ids, first):
    """Process a text: ``first`` tokens as a prompt, the others one by one."""
    await model.start(ids[:first])
    for number in ids[first:]:
        await model.rewind(len(model.tokens), [number])
    await model._finish()


async def logits_match(case):
    """Logits of all places: the text as a prompt, or its last tokens step by step."""
    model = await load(case)
    ids = case["ids"]
    try:
        await feed(model, ids, case["first"])
        got = await model._text.logits(0, len(ids)).numpy()
        held = await held_by(model)
    finally:
        model.destroy()
    texts = {dtype: Given(case, held, dtype) for dtype in (np.float64, np.float32)}
    wanted, single = (
        plain.logits(text.config, text.weights, text.extend(ids).hidden, dtype)
        for dtype, text in texts.items()
    )
    ratios = {"logits": over_bound(got, wanted, np.abs(single - wanted).max())}
    cache = case.get("cache", "float32")
    if cache.startswith("turboquant"):
        return ratios
    pairs = zip(texts[np.float64].computed, texts[np.float32].computed, held, strict=True)
    for n, layer in enumerate(pairs):
        for name, a, b, stored in zip(("key", "value"), *layer, strict=True):
            ratios[f"{name} {n}"] = over_bound(stored, a, np.abs(a - b).max(), cache)
    return ratios


async def maps_match(case):
    """Attention weights of every layer, in a window of the text."""
    model = await load(case)
    ids, rows, columns = case["ids"], slice(*case["rows"]), slice(*case["columns"])
    try:
        await feed(model, ids, case["first"])
        tensors = [model.attention(n, case["heads"], rows, columns) for n in range(model.layers)]
        maps = [await each.numpy() for each in tensors]
        held = await held_by(model)
    finally:
        model.destroy()
    wanted, single = (
        Given(case, held, dtype).extend(ids, layers=True).layers for dtype in (np.float64, np.float32)
    )
    heads = slice(None) if case["heads"] is None else case["heads"]
    ratios = {}
    for n, (a, b, got) in enumerate(zip(wanted, single, maps, strict=True)):
        error = np.abs(a.weights - b.weights).max()
        ratios[f"layer {n}"] = over_bound(got, a.weights[heads][:, rows, columns], error)
    return ratios


def options_of(case):
    """A case's options as the reference takes them."""
    options = {"cache": case.get("cache", "float32"), "heads_off": case.get("heads_off", ())}
    if case.get("ring"):
        options |= {"capacity": case["context"], "kept": case.get("sink_tokens", 0)}
    return options


async def scores_match(case):
    """Log-probabilities of a text."""
    model = await load(case)
    ids = case["ids"]
    try:
        got = await model.score(ids)
    finally:
        model.destroy()
    _, config, weights = MODELS[case["model"]]
    wanted, single = (
        plain.log_probabilities(config, weights, ids, dtype=dtype, **options_of(case))
        for dtype in (np.float64, np.float32)
    )
    return {"score": over_bound(got, wanted, np.abs(single - wanted).max())}


async def greedy_matches(case):
    """A greedy continuation, as generate, as a stream and by hand."""
    _, config, weights = MODELS[case["model"]]
    ids, count = case["ids"], case["count"]
    wanted = plain.greedy(config, weights, ids, count, end_tokens=config.end_tokens, **options_of(case))
    model = await load(case)
    try:
        assert await model.generate(ids, count) == wanted
        assert model.tokens == [*ids, *wanted]
        stream = [token async for token in model.stream(ids, count)]
        assert [token.id for token in stream] == wanted
        for token in stream:
            best = token.alternatives[0]
            assert (best.id, best.log_probability) == (token.id, token.log_probability)
        await model.start(ids)
        by_hand: list[int] = []
        while len(by_hand) < len(wanted):
            by_hand += [token.id async for token in model.stream(None, 1)]
        assert by_hand == wanted
    finally:
        model.destroy()
    return {"wrong": 0.0}


async def timed_steps_change_nothing(case):
    """A greedy continuation before and after steps that were only timed."""
    model = await load(case)
    ids, count = case["ids"], case["count"]
    try:
        wanted = await model.generate(ids, count)
        await model.start(ids)
        timing = await model.time_step(case["warmup_runs"])
        assert model.tokens == ids
        after = [token.id async for token in model.stream(max_new_tokens=count)]
        try:
            await model.time_step(model.room)
        except ValueError as error:
            message = str(error)
    finally:
        model.destroy()
    assert after == wanted
    assert "warmup_runs: expected 0 to" in message
    # With a ring, launches of their own add the rows to two caches.
    assert (timing.dispatches > 5 * model.layers + 3) == case.get("ring", False)
    assert timing.dispatches >= 5 * model.layers + 3
    assert timing.wall_us > 0
    return {"steps": 0.0}
