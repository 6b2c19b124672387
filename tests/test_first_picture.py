"""The maps that the page shows before Python is there are those that the viewer computes."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from py_attn import reference
from py_attn.colormaps import table
from py_attn.models.sample import load_sample
from scripts.make_first_picture import SAMPLE, TARGET, make


def array(text: str, dtype: str) -> npt.NDArray[Any]:
    return np.frombuffer(base64.b64decode(text), dtype)


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TARGET.read_text(encoding="utf-8"))
    return found


def test_the_file_is_what_the_script_makes_now(kept: dict[str, Any]) -> None:
    made = asyncio.run(make())
    arrays = ("levels", "weights")
    for name in made.keys() - arrays:
        assert kept[name] == made[name], name
    assert made.keys() == kept.keys()
    # Another processor may round the last bit of a weight differently.
    levels = [array(one["levels"], "u1").astype(int) for one in (kept, made)]
    assert np.abs(levels[0] - levels[1]).max() <= 1
    np.testing.assert_allclose(array(kept["weights"], "<f4"), array(made["weights"], "<f4"), rtol=1e-5)


def test_the_pictures_are_those_of_the_float64_reference(kept: dict[str, Any]) -> None:
    sample = load_sample(SAMPLE.read_bytes())
    source = kept["source"]
    assert (source["title"], source["tokens"]) == (sample.text, sample.tokens)
    shape = (source["layers"], source["heads"], source["length"], source["length"])
    levels = array(kept["levels"], "u1").reshape(shape)
    exact = np.stack([reference.attention_weights(layer.query, layer.key)[0] for layer in sample.layers])
    assert np.abs(levels - 255 * np.sqrt(exact)).max() <= 0.5001
    weights = array(kept["weights"], "<f4").reshape(shape[2:])
    np.testing.assert_allclose(weights, exact[kept["layer"], kept["head"]], rtol=0, atol=1e-6)
    assert weights[kept["query"]].argmax() == kept["key"]
    np.testing.assert_array_equal(array(kept["colors"], "u1"), table("rocket").reshape(-1))


def test_the_file_is_small(kept: dict[str, Any]) -> None:
    assert TARGET.stat().st_size < 50_000
