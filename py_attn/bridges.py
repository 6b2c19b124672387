"""Which bridge reaches a GPU from this Python."""

from __future__ import annotations

from py_attn.gpu import device as gpu_device
from py_attn.gpu.bridge import Bridge
from py_attn.gpu.device import Device


async def request_device(bridge: Bridge | None = None) -> Device:
    """Request a GPU device; it also becomes :func:`py_attn.default_device`.

    Parameters
    ----------
    bridge : Bridge, optional
        Where to request it. By default that is the browser itself when Python runs in Pyodide. In a notebook
        it is the browser page that shows a view (:class:`py_attn.widget.AttentionView`), and everybody who
        asks gets the same device of that page.

    Raises
    ------
    WebGPUUnavailableError
        Saying why there is no WebGPU and what to do.
    """
    if bridge is not None:
        return await gpu_device.request_device(bridge)
    try:
        from py_attn.gpu.bridge_pyodide import PyodideBridge
    except ImportError:
        from py_attn.remote import session

        return gpu_device.make_default(await session.current.shared_device())
    return await gpu_device.request_device(PyodideBridge())
