"""Attention maps of any Hugging Face model, without ``output_attentions`` and without an S × S tensor.

>>> with pa.transformers.capture(model) as captured:
...     model(**inputs)
>>> AttentionView(captured, tokens=tokens)

Needs the ``transformers`` package in version 5 or later, which brings torch; see docs/transformers.md.
"""

from py_attn.transformers.capturing import Captured, capture
from py_attn.transformers.recording import Stack, StackLayer

__all__ = ["Captured", "Stack", "StackLayer", "capture"]
