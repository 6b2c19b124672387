"""The bench's rows on the language model, on a model of random weights without a GPU."""

import asyncio
import json

import pytest

from bench import language, measure
from scripts.bench import remark


def test_rows_are_picked_by_name():
    every = [row["name"] for row in language.listed("full", [])]
    assert every[0] == "model-load"
    assert all(name.startswith("model-") for name in every)
    assert [row["name"] for row in language.listed("full", ["model"])] == every
    assert [row["name"] for row in language.listed("small", ["minilm", "model-prefill"])] == ["model-prefill"]
    assert language.listed("full", ["minilm"]) == []
    with pytest.raises(ValueError, match=r"only: expected names among model, .*, got model-speed"):
        language.listed("full", ["model-speed"])


@pytest.mark.usefixtures("device")
def test_workloads_leave_the_model_s_rows_alone():
    assert measure.listed("small", ["model"]) == []
    assert [w["name"] for w in measure.listed("small", ["model", "minilm"])] == ["minilm"]


def test_goals_are_for_full_amounts_and_plain():
    rows = {row["name"]: row for row in language.listed("full", [])}
    assert rows["model-decode-f16"]["goals"] == [
        {"sign": ">=", "value": 1000, "of": ""},
        {"sign": ">=", "value": 5, "of": "wllama"},
    ]
    assert json.loads(json.dumps(list(rows.values()))) == list(rows.values())
    assert not any(row["goals"] for row in language.listed("small", []))
    assert rows["model-prefill"]["title"] == "prefill of 512 tokens"


def test_the_fixture_suffices_for_all_amounts():
    for amounts in (language.FULL, language.SMALL):
        ids = len(language.text_ids())
        assert amounts.prefill + 1 <= ids
        assert amounts.prompt + amounts.written <= ids
        assert amounts.scored <= ids
        # A step that is timed after others needs room too.
        assert amounts.context > amounts.prompt + amounts.written + language._WARM_STEPS


def test_texts_are_compared_token_by_token():
    class Model:
        async def generate(self, ids, count):
            written = next(c["written"] for c in language._fixture()["continuations"] if c["ids"] == ids)
            return [*written[:3], -1, *written[4:count]]

    def check(cache):
        return asyncio.run(language._check_text(Model(), language.SMALL, cache))

    assert check("float16") == (False, ["its first 3 of 6 checked tokens are those of transformers"])
    assert check("turboquant4")[0]


def test_the_least_of_what_is_known():
    assert language._least([3.0, None, 2.0]) == 2.0
    assert language._least([None]) is None


def test_what_is_printed_of_the_model():
    row = {"row": "model-decode", "unit": "tokens/s", "value": 1234.5, "ok": True, "notes": ["a", "b"]}
    assert remark(row) == "model-decode: 1,234 tokens/s (a; b)"
    assert remark(row | {"ok": False}) == "model-decode: 1,234 tokens/s, NOT RIGHT (a; b)"
    assert remark({"row": "model-load", "unit": "s", "failed": "no file"}) == "model-load: FAILED, no file"
    assert remark({"peer": "wllama", "values": {"model-decode-f16": 61.5}}) == "wllama: model-decode-f16 61.5"
    assert remark({"peer": "wllama", "unavailable": "no WebGPU"}) == "wllama: no WebGPU"
