"""Fixtures for the tests with torch and transformers (`npm run test:transformers`)."""

import asyncio

import numpy as np
import pytest

import py_attn as pa
from py_attn.viewer.engines.engine import Window
from py_attn.viewer.engines.gpu import GPUEngine
from py_attn.viewer.engines.host import ReferenceEngine
from py_attn.viewer.sources.captured import captured_source


@pytest.fixture(scope="session")
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session", params=["numpy", "native"])
def engine(request, runner):
    """numpy, and our kernels on this computer's adapter."""
    if request.param == "numpy":
        return ReferenceEngine()
    from py_attn.native import NativeBridge

    device = runner.run(pa.request_device(NativeBridge()))
    device.poison_outputs = True
    return GPUEngine(device)


@pytest.fixture
def maps(engine, runner):
    """A function: the maps [layers, H, S, S] of a captured stack."""

    def compute(stack, batch=0):
        source = captured_source(stack, tokens=None, title="", batch=batch)
        whole = slice(0, source.length)
        window = Window(list(range(source.heads)), whole, whole)
        found = [runner.run(engine.weights(layer, source.masking, window)) for layer in source.layers]
        for layer in source.layers:
            layer.kept.clear()
        return np.stack(found)

    return compute
