"""The language model on small random weights, against its float64 reference."""

import asyncio
import base64
import gc
from typing import Any

import numpy as np

import py_attn as pa
from e2e.page.bounds import over_bound
from e2e.page.lack import at_rest, failing
from py_attn.gpu.device import make_default
from py_attn.models import smollm2_reference as plain
from py_attn.models.files import BytesFile

# Models by name: the file, its sizes and its dequantised weights.
MODELS: dict[str, Any] = {}
# The published model, while it is loaded.
PUBLISHED: list[Any] = []


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


async def seeds_matter(case):
    """The same seed repeats a text, another one writes another; the likeliest tokens are greedy's."""
    model = await load(case)

    async def write(**options):
        return await model.generate(case["ids"], case["count"], **options)

    try:
        # The small models' logits lie far apart, so it takes heat.
        greedy, first = await write(), await write(temperature=8.0, seed=5)
        assert await write(temperature=8.0, seed=5) == first
        assert await write(temperature=8.0, seed=6) != first != greedy
        for options in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}):
            assert await write(**({"temperature": 0.9, "seed": 3} | options)) == greedy, options
    finally:
        model.destroy()
    return {"wrong": 0.0}


async def left_early(case):
    """A text that was left, closed or taken back is gone on with as if it had been written at once."""
    ids, count = case["ids"], case["count"]
    fresh = await load(case)
    try:
        wanted = await fresh.generate(ids, count)
        assert len(wanted) == count
        model = await load(case)
        try:
            for seen in (1, count // 2, count - 1):
                async for _ in model.stream(ids, count):
                    if len(model.tokens) == len(ids) + seen:
                        break
                assert model.tokens == [*ids, *wanted[:seen]]
                assert await rest(model, count - seen) == wanted[seen:]
            stream = model.stream(ids, count)
            second = model.stream(None, 1)
            await anext(stream)
            refused = await asyncio.gather(anext(second), return_exceptions=True)
            assert isinstance(refused[0], RuntimeError), refused
            await stream.aclose()
            assert await rest(model, count - 1) == wanted[1:]
            await model.rewind(len(ids) + 2)
            assert await rest(model, count - 2) == wanted[2:]
            # Another choice in the place of a token, as a text that is given.
            other = (wanted[3] + 1) % len(model.tokenizer.tokens)
            await model.rewind(len(ids) + 3, [other])
            assert await rest(model, 5) == await fresh.generate([*ids, *wanted[:3], other], 5)
        finally:
            model.destroy()
    finally:
        fresh.destroy()
    return {"wrong": 0.0}


async def rest(model, count):
    """The next tokens of a text."""
    return [token.id async for token in model.stream(None, count)]


async def survives_its_device(case):
    """A device that is lost while a model writes leaves the text, which a new model goes on with."""
    device, ids, count = pa.default_device(), case["ids"], case["count"]
    model = await load(case)
    wanted = await model.generate(ids, count)
    model.destroy()
    try:
        lost = await pa.request_device()  # becomes the default
        model = await load(case)
        seen = []
        try:
            async for token in model.stream(ids, count):
                seen.append(token.id)
                if len(seen) == 3:
                    lost.destroy()
        except pa.DeviceLostError:
            pass
        else:
            raise AssertionError("the stream went on without its device")
        assert model.tokens == [*ids, *seen]
        assert seen == wanted[: len(seen)]
        model.destroy()
    finally:
        make_default(device)
    again = await load(case)
    try:
        await again.start(model.tokens)
        assert seen + await rest(again, count - len(seen)) == wanted
    finally:
        again.destroy()
    return {"wrong": 0.0}


async def lacks_room(case):
    """No room for a buffer while a model is loaded, writes or changes its cache: it goes on as it was."""
    device, ids, count = pa.default_device(), case["ids"], case["count"]
    empty = await at_rest(device)
    model = await load(case)
    wanted = await model.generate(ids, count)
    other = {"cache": "float16", "context": 48}

    async def reload():
        (await load(case)).destroy()

    async def write():
        assert await model.generate(ids, count) == wanted

    async def write_on():
        await model.start(ids)
        assert await rest(model, count) == wanted

    async def change():
        await model.use_cache(**other)

    try:
        for call in (reload, write, write_on, change):
            held = await at_rest(device)
            with failing(device, 0) as made:
                await call()
            if call is change:
                await model.use_cache(context=case["context"])
            for number in sorted({1, 2, len(made) // 2, len(made)}):
                await at_rest(device)
                with failing(device, number):
                    await refused(call())
                assert model.cache_options.context == case["context"]
                # The text that is there is gone on with, not only a new one.
                await model.rewind(min(len(model.tokens), len(ids) + 2))
                await rest(model, len(ids) + count - len(model.tokens))
                assert model.tokens == [*ids, *wanted], (call.__name__, number, len(made))
            assert await at_rest(device) <= held + 4096
        await model.use_cache(**other)
        assert len(await rest(model, 2)) == 2
    finally:
        model.destroy()
    assert await at_rest(device) <= empty + 4096
    return {"wrong": 0.0}


async def refused(call):
    """Await what fails for lack of room."""
    answers = await asyncio.gather(call, return_exceptions=True)
    assert isinstance(answers[0], pa.PyAttnError), answers
    assert " bytes: " in str(answers[0]), answers


async def compared_and_changed(case):
    """What `compare` says of a cache, and what `use_cache` then does."""
    ids, options = case["ids"], case["options"]
    exact, other = await load(case | {"context": len(ids)}), await load(case | options)
    try:
        whole, given = await exact.score(ids), await other.score(ids)
        logits = [await model._text.logits(0, len(ids) - 1).numpy() for model in (exact, other)]
        a, b = logits[0].astype(np.float64), logits[1].astype(np.float64)
        before = pa.default_device().memory_allocated()
        asked = {name: options[name] for name in options if name != "history"}
        difference = await exact.compare(**asked)
        kept = await exact.read_exactly()
        for wanted in (asked, {"context": len(ids)}):
            # The figures do not depend on whether the float32 text was read before or for this call.
            figures = await exact.compare(**wanted), await exact.compare(**wanted, exact=kept)
            assert all(np.array_equal(ours, theirs) for ours, theirs in zip(*figures, strict=True))
        kept.destroy()
        gc.collect()
        assert pa.default_device().memory_allocated() <= before + 4096
        assert exact.tokens == ids
        # Other numbers of tokens at a time round in another order.
        apart = np.abs(difference.log_probabilities - given).max()
        assert apart < 1e-4, apart
        pairs = ((difference.perplexity, given), (difference.reference_perplexity, whole))
        for got, log_probabilities in pairs:
            assert np.isclose(got, np.exp(-log_probabilities.mean()))
        assert difference.same == (a.argmax(1) == b.argmax(1)).mean()
        log_a, log_b = (x - x.max(1, keepdims=True) for x in (a, b))
        log_a, log_b = (x - np.log(np.exp(x).sum(1, keepdims=True)) for x in (log_a, log_b))
        divergence = (np.exp(log_a) * (log_a - log_b)).sum(1)
        assert np.allclose(difference.divergence, divergence, rtol=1e-3, atol=1e-5)
        await exact.use_cache(**options)
        assert exact.cache_options == other.cache_options
        await other.rewind(len(ids))
        assert await rest(exact, 4) == await rest(other, 4)
    finally:
        exact.destroy()
        other.destroy()
    return {"wrong": 0.0}


async def alternatives_match(case):
    """The likeliest tokens of a place, as the stream tells them and when they are asked for later."""
    model = await load(case)
    ids, count = case["ids"], case["count"]
    try:
        tokens = [token async for token in model.stream(ids, count)]
        for n, token in enumerate(tokens):
            later = await model.alternatives(len(ids) + n)
            assert [each.id for each in later] == [each.id for each in token.alternatives]
            a, b = ([each.log_probability for each in some] for some in (later, token.alternatives))
            assert np.allclose(a, b, rtol=1e-5, atol=1e-5)
        assert len(await model.alternatives(len(model.tokens))) == 10
    finally:
        model.destroy()
    return {"wrong": 0.0}


# The published model; loading takes its weights from the built site.


async def load_published(context):
    """Load it, and keep it for the functions below."""
    PUBLISHED.append(await pa.models.load("smollm2", context=context))


def drop_published():
    PUBLISHED.pop().destroy()


async def likeliest(ids):
    """Ids of the tokens that are likeliest after each token of a text but the last."""
    model = PUBLISHED[0]
    await model.start(ids)
    return (await model._text.statistics())[:, 1].astype(int).tolist()


async def write(ids, count):
    """A greedy continuation and its text, as they are streamed."""
    tokens = [token async for token in PUBLISHED[0].stream(ids, count)]
    return [token.id for token in tokens], "".join(token.text for token in tokens)


async def score(ids):
    return (await PUBLISHED[0].score(ids)).tolist()


async def all_logits(ids):
    """Logits of all places, in base64."""
    model = PUBLISHED[0]
    await model.start(ids)
    await model._finish()
    return base64.b64encode((await model._text.logits(0, len(ids)).numpy()).tobytes()).decode()


async def whole_map(ids, layer):
    """Attention weights [heads, T, T] of a text."""
    model = PUBLISHED[0]
    await model.start(ids)
    await model._finish()
    return (await model.attention(layer).numpy()).tolist()


async def bytes_left_by_a_cancelled_load():
    """Bytes that stay on the device when a load is cancelled in the middle of its upload."""
    device = pa.default_device()
    before = device.memory_allocated()

    def stop(stage, loaded, total):
        if stage == "upload" and loaded > total // 2:
            task.cancel()

    task = asyncio.ensure_future(pa.models.load("smollm2", progress=stop))
    try:
        await task
    except asyncio.CancelledError:
        gc.collect()
        return device.memory_allocated() - before
    raise AssertionError("the load was not cancelled")


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
