"""The language model on tiny random weights, against its float64 reference."""

import numpy as np

import py_attn as pa
from e2e.page.bounds import over_bound
from py_attn.models import smollm2_reference as plain
from py_attn.models.files import BytesFile

# One file serves many cases.
_loaded = {}


def reference_of(data):
    """The sizes of a model and its dequantised weights."""
    if data not in _loaded:
        _loaded.clear()
        _loaded[data] = plain.read_weights(BytesFile(data))
    return _loaded[data]


def exact_logits(data, ids, dtype, **options):
    """Logits [n, vocabulary] of all places of a text."""
    config, weights = reference_of(data)
    hidden = plain.forward(config, weights, ids, dtype=dtype, **options).hidden
    return plain.logits(config, weights, hidden, dtype)


def of_reference(case):
    """The reference's options for those of the model."""
    options = {"cache": case.get("cache", "float32"), "heads_off": case.get("heads_off", ())}
    if case.get("ring"):
        options |= {"capacity": case["context"], "kept": case.get("sink_tokens", 0)}
    return options


async def loaded(case):
    """The model that a case asks for."""
    names = ("cache", "context", "ring", "sink_tokens", "history")
    given = {name: case[name] for name in names if name in case}
    model = await pa.models.load("smollm2", weights=case["data"], **given)
    model.heads_off = case.get("heads_off", ())
    return model


async def fed(model, ids, first):
    """Process a text: ``first`` tokens as a prompt, the others one by one."""
    await model.start(ids[:first])
    for number in ids[first:]:
        await model.rewind(len(model.tokens), [number])
    await model._finish()


async def logits_match(case):
    """Logits of all places: as a prompt, or with its last tokens step by step."""
    model = await loaded(case)
    try:
        ids = case["ids"]
        await fed(model, ids, case.get("first", len(ids)))
        got = await model._text.logits(0, len(ids)).numpy()
    finally:
        model.destroy()
    options = of_reference(case)
    exact = exact_logits(case["data"], ids, np.float64, **options)
    single = exact_logits(case["data"], ids, np.float32, **options)
    return {"logits": over_bound(got, exact, np.abs(single - exact).max())}
