"""What each panel of the page asks for: a module for a panel. Importing them fills the table of methods."""

from py_attn.viewer.panels import caches, compare, decode, edit, input, kernel, maps, status, write  # noqa: F401
