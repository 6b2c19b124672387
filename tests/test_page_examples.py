"""The example sentences of the page: each head does what the page says of it, by the float64 reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from py_attn import reference
from py_attn.models.sample import Sample, load_sample

WEB = Path(__file__).parent.parent / "web"
EXAMPLES: list[dict[str, Any]] = json.loads((WEB / "src/first/examples.json").read_text(encoding="utf-8"))
BY_NAME = {example["name"]: example for example in EXAMPLES}

Weights = npt.NDArray[np.float64]


def opened(example: dict[str, Any]) -> tuple[Sample, Weights]:
    """The file of an example, and the weights [T, T] of its head."""
    sample = load_sample((WEB / "public" / example["file"]).read_bytes())
    layer = sample.layers[example["layer"]]
    return sample, reference.attention_weights(layer.query, layer.key)[0, example["head"]]


def mean_and_strongest(weights: Weights, cells: list[tuple[int, int]]) -> tuple[float, float]:
    """The mean weight of cells, and the share of them that have their row's largest weight."""
    largest = weights.argmax(axis=1)
    return (
        float(np.mean([weights[cell] for cell in cells])),
        float(np.mean([largest[row] == column for row, column in cells])),
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_the_chosen_cell_is_its_rows_largest_weight(example: dict[str, Any]) -> None:
    sample, weights = opened(example)
    assert sample.text == example["text"]
    assert weights[example["query"]].argmax() == example["key"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_the_head_does_what_is_said_of_it(example: dict[str, Any]) -> None:
    sample, weights = opened(example)
    count = len(sample.tokens)
    inner = range(1, count - 1)
    pieces = [i for i in inner if sample.tokens[i].startswith("##")]
    # The cells that the finding speaks of, and how many of their rows must have their largest weight there.
    cells, share = {
        "strongest": ([(example["query"], example["key"])], 1.0),
        "previous": ([(i, i - 1) for i in inner], 1.0),
        "next": ([(i, i + 1) for i in inner], 0.8),
        "pieces": ([(i, i - 1) for i in pieces], 0.9),
        "column": ([(i, example["key"]) for i in range(count)], 0.7),
    }[example["holds"]]
    mean, strongest = mean_and_strongest(weights, cells)
    assert mean >= example["weight"]
    assert strongest >= share


@pytest.mark.parametrize("name", ["it → animal", "she → sister"])
def test_the_row_of_a_pronoun_stands_out(name: str) -> None:
    example = BY_NAME[name]
    sample, weights = opened(example)
    query, key = example["query"], example["key"]
    column = weights[:, key]
    others = np.delete(column, query)
    assert column[query] > others.max() + 0.1
    assert np.median(others) < 0.05
    # At most four other rows of about twenty have their largest weight on the same noun, pronouns among them.
    same = [row for row in range(len(sample.tokens)) if row != query and weights[row].argmax() == key]
    assert len(same) <= 4
    assert any(sample.tokens[row] in ("it", "her") for row in same)


def test_the_first_example_is_the_sample() -> None:
    assert EXAMPLES[0]["file"] == "sample/minilm.npz"
    sample, _ = opened(EXAMPLES[0])
    assert [sample.tokens[EXAMPLES[0][name]] for name in ("query", "key")] == ["it", "animal"]


def test_what_else_the_findings_say() -> None:
    sample, weights = opened(BY_NAME["she → sister"])
    assert sample.tokens[10] == "her"
    assert weights[10].argmax() == 2
    sample, weights = opened(BY_NAME["same word"])
    once = [i for i, token in enumerate(sample.tokens) if sample.tokens.count(token) == 1]
    assert set(weights[once].argmax(axis=1).tolist()) == {0}
    assert [sample.tokens[i] for i in (4, 12)] == ["capital", "capital"]
    sample, weights = opened(BY_NAME["next token"])
    rest = [i for i in range(1, len(sample.tokens) - 1) if weights[i].argmax() != i + 1]
    assert set(weights[rest].argmax(axis=1).tolist()) == {0}
    sample, weights = opened(BY_NAME["full stop"])
    assert sample.tokens[19] == "."
    sample, weights = opened(BY_NAME["resting at [CLS]"])
    assert (weights[:, 0] > 0.5).all()
