"""Exceptions raised by py_attn beyond ``ValueError`` and ``TypeError`` for bad arguments."""

from __future__ import annotations


class PyAttnError(RuntimeError):
    """Base class of errors that have to do with the GPU."""


class WebGPUUnavailableError(PyAttnError):
    """WebGPU is not available, or found no adapter; the message says why and what to try."""


class DeviceLostError(PyAttnError):
    """The device is gone; request a new one and upload the data again."""


class ShaderError(PyAttnError):
    """A shader did not compile; the message names the shader and the line of its template."""


class GPUValidationError(PyAttnError):
    """WebGPU refused a command; the message names the command and repeats WebGPU's reason."""


class GPUOutOfMemoryError(PyAttnError, MemoryError):
    """A buffer could not be allocated; the message gives its size in bytes."""
