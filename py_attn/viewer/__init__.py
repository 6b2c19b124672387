"""What a front end asks for: maps, weights, timings, decode steps; used by the page and by notebooks."""

from py_attn.viewer import panels  # noqa: F401 (fills the table of methods)
from py_attn.viewer.viewer import Viewer

__all__ = ["Viewer"]
