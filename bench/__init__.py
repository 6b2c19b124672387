"""The bench's Python half: it runs in the bench page's Pyodide; see web/src/bench/."""
