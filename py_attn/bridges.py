"""Which bridge reaches a GPU from this Python."""

from __future__ import annotations

from py_attn.errors import WebGPUUnavailableError
from py_attn.gpu import device as gpu_device
from py_attn.gpu.bridge import Bridge
from py_attn.gpu.device import Device


async def request_device(bridge: Bridge | None = None) -> Device:
    """Request a GPU device; it also becomes :func:`py_attn.default_device`.

    Parameters
    ----------
    bridge : Bridge, optional
        Where to request it. By default that is the browser itself when Python runs in Pyodide. In a
        notebook with a view (:class:`py_attn.widget.AttentionView`) it is the browser page that shows it, and
        everybody who asks gets the same device of that page. Elsewhere it is this computer's own graphics
        card, by means of wgpu (``pip install py-attn[native]``); every call then makes a device of its own.

    Raises
    ------
    WebGPUUnavailableError
        Saying why there is no WebGPU and what to do.
    """
    return await (gpu_device.request_device(bridge) if bridge is not None else _request_device())


async def _request_device() -> Device:
    try:
        from py_attn.gpu.bridge_pyodide import PyodideBridge
    except ImportError:
        pass
    else:
        return await gpu_device.request_device(PyodideBridge())

    from py_attn.remote import session

    if not session.current.had_views:
        try:
            from py_attn.native import NativeBridge
        except ModuleNotFoundError:
            pass  # the session says what can be installed
        except (ImportError, OSError, RuntimeError) as error:
            raise WebGPUUnavailableError(f"wgpu is installed, but cannot be loaded: {error}") from None
        else:
            return await gpu_device.request_device(NativeBridge())
    return gpu_device.make_default(await session.current.shared_device())
