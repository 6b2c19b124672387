"""Hypothesis's examples are the same on every machine; see `conftest.py` in the root of the checkout."""

import importlib.util
import sys

from hypothesis import given, seed, settings
from hypothesis import strategies as st


def test_constants_of_local_modules_are_not_drawn(tmp_path, monkeypatch):
    constants = range(1_234_567_890_000, 1_234_567_891_000)
    file = tmp_path / "local_constants.py"
    file.write_text(f"CONSTANTS = {list(constants)}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    spec.loader.exec_module(module)
    drawn = []

    @seed(1)
    @settings(max_examples=1000)
    @given(st.integers(0, 1 << 60))
    def draw(number):
        drawn.append(number)

    draw()
    assert len(drawn) > 900
    assert not set(drawn) & set(constants)
