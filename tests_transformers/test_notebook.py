"""The gallery's notebook with a model of transformers, cell by cell in plain Python."""

import ast
import inspect
import json
from pathlib import Path

NOTEBOOK = Path(__file__).parent.parent / "docs" / "gallery" / "hugging_face.ipynb"


def test_the_notebook_runs_from_top_to_bottom(runner, capsys):
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names = {"__name__": "__notebook__"}

    async def run():
        for cell in cells:
            if cell["cell_type"] == "code":
                code = compile("".join(cell["source"]), cell["id"], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                value = eval(code, names)
                if inspect.iscoroutine(value):
                    await value

    runner.run(run())
    printed = capsys.readouterr().out
    assert "causal=True, window=(15, None)" in printed
    assert "largest difference: " in printed
    assert len(names["tokens"]) == len(names["TEXT"]) + 23
