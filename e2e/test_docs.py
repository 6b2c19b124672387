"""Every Python example in docs/, run in the page. ``x  # → y`` is checked too: the repr of x is y.

Cells for notebooks are fenced as ``py``; test_jupyter.py runs their like.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Pages whose examples load the language model, or encode with several numbers of bits.
SLOW = ("language-model", "turboquant")
PAGES = [
    pytest.param(page, id=page.stem, marks=[pytest.mark.thorough] if page.stem in SLOW else [])
    for page in sorted(DOCS.glob("*.md"))
    if BLOCK.search(page.read_text("utf-8"))
]
SHOWN = re.compile(r"^(\S.*?)  # → (.+)$", re.MULTILINE)
# The page's device is shared with the other tests and stays theirs.
PREPARE = """
import py_attn as pa

async def _same_device():
    return pa.default_device()

_request_device, pa.request_device = pa.request_device, _same_device
_names = set(globals())
"""
CLEAN_UP = """
pa.request_device = _request_device
for _name in set(globals()) - _names - {"_names"}:
    del globals()[_name]
"""


def test_there_are_examples():
    assert len(PAGES) >= 7


@pytest.mark.parametrize("page", PAGES)
def test_examples(lab, page):
    text = page.read_text("utf-8")
    lab.run(PREPARE)
    try:
        for block in BLOCK.finditer(text):
            line = text[: block.start()].count("\n") + 2
            source = SHOWN.sub(checked, block[1])
            # As many lines in front as there are, so that a traceback tells the line of the page.
            lab.run("\n" * (line - 1) + source + "\nNone\n")
    finally:
        lab.run(CLEAN_UP)


def checked(shown: re.Match[str]) -> str:
    expression, expected = shown.groups()
    return f"_shown = repr(({expression})); assert _shown == {expected!r}, _shown"
