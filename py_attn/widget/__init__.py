"""The notebook widget (needs the extra: ``pip install py-attn[widget]``)."""

try:
    from py_attn.widget.view import AttentionView
except ModuleNotFoundError as error:
    if error.name not in ("anywidget", "traitlets", "ipywidgets"):
        raise
    raise ModuleNotFoundError(
        f"py_attn.widget needs {error.name}: pip install 'py-attn[widget]'", name=error.name
    ) from None

__all__ = ["AttentionView"]
