"""Attention you can see, run and check: WGSL kernels driven from Python.

Start with ``device = await pa.request_device()``. Then call :func:`attention` and the other functions with
tensors or numpy arrays, and read results back with ``await tensor.numpy()``.
"""

from typing import Any

from py_attn import models, onnx, reference, turboquant
from py_attn.bridges import request_device
from py_attn.errors import (
    DeviceLostError,
    GPUOutOfMemoryError,
    GPUValidationError,
    PyAttnError,
    ShaderError,
    WebGPUUnavailableError,
)
from py_attn.gpu.device import Device, default_device
from py_attn.gpu.program import Program
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.attention.backward import attention_backward
from py_attn.kernels.attention.forward import attention
from py_attn.kernels.attention.varlen import varlen_attention, varlen_attention_backward
from py_attn.kernels.attention.weights import attention_weights
from py_attn.kernels.decode.attention import decode_attention, decode_partials
from py_attn.kernels.decode.cache import KVCache
from py_attn.kernels.decode.merge import merge
from py_attn.kernels.decode.paged import PagedKVCache
from py_attn.kernels.rotary import rotary
from py_attn.mods import absolute as abs
from py_attn.mods import (
    ceil,
    clip,
    cos,
    erf,
    exp,
    exp2,
    floor,
    log,
    log2,
    maximum,
    minimum,
    sigmoid,
    sign,
    sin,
    sqrt,
    square,
    tan,
    tanh,
    where,
)
from py_attn.mods import rounded as round
from py_attn.torch import scaled_dot_product_attention

__version__ = "0.1.0"

__all__ = [
    "Device",
    "DeviceLostError",
    "GPUOutOfMemoryError",
    "GPUValidationError",
    "KVCache",
    "PagedKVCache",
    "Program",
    "PyAttnError",
    "ShaderError",
    "Tensor",
    "WebGPUUnavailableError",
    "abs",
    "attention",
    "attention_backward",
    "attention_weights",
    "ceil",
    "clip",
    "cos",
    "decode_attention",
    "decode_partials",
    "default_device",
    "erf",
    "exp",
    "exp2",
    "findings",
    "floor",
    "log",
    "log2",
    "maximum",
    "merge",
    "minimum",
    "models",
    "onnx",
    "reference",
    "request_device",
    "rotary",
    "round",
    "scaled_dot_product_attention",
    "sigmoid",
    "sign",
    "sin",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "transformers",
    "turboquant",
    "varlen_attention",
    "varlen_attention_backward",
    "where",
]


def __getattr__(name: str) -> Any:
    # Imported when it is first used: a page starts without it.
    if name in ("findings", "transformers"):
        from importlib import import_module

        return import_module(f"py_attn.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
