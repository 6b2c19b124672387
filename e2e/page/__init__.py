"""Modules that run in the page's Python: what the kernels' end-to-end tests ask of it, see `Lab.call`.

The tests import them too, to name what they call; nothing here may need more than numpy and py_attn.
"""
