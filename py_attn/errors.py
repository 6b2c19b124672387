"""Exceptions raised by py_attn beyond ``ValueError`` and ``TypeError`` for bad arguments."""

from __future__ import annotations


class PyAttnError(RuntimeError):
    """Base of the errors that come from the GPU side."""


class WebGPUUnavailableError(PyAttnError):
    """There is no WebGPU here, or it gave no adapter; the message says why and what to try."""


class DeviceLostError(PyAttnError):
    """The device is gone; request a new one and upload the data again."""


class ShaderError(PyAttnError):
    """A shader did not compile; the message names the shader and the line of its template."""


class GPUValidationError(PyAttnError):
    """WebGPU refused a command; the message names the command and repeats WebGPU's reason."""


class GPUOutOfMemoryError(PyAttnError, MemoryError):
    """A buffer could not be had; the message gives the bytes asked for."""
