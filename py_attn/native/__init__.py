"""The bridge to a graphics card without a browser, over wgpu-py: scripts, tests and servers in plain Python.

It is what :func:`py_attn.request_device` takes where Python runs neither in a browser nor beside a view that
one shows. ``pip install py-attn[native]`` installs what it needs.
"""

from py_attn.native.bridge import NativeBridge

__all__ = ["NativeBridge"]
