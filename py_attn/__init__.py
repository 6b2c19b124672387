"""Attention you can see, run and check: WGSL kernels driven from Python.

Start with ``device = await pa.request_device()``. Then call :func:`attention` and the other functions with
tensors or numpy arrays, and read results back with ``await tensor.numpy()``.
"""

from typing import TYPE_CHECKING, Any

# `__getattr__` imports each of these when it is first used, since a page's first map needs few of them.
# tests/test_imports.py compares `_NAMES` with these imports.
if TYPE_CHECKING:
    from py_attn import findings, models, onnx, reference, transformers, turboquant
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

#: The names that each module defines.
_NAMES = {
    "bridges": ("request_device",),
    "errors": (
        "DeviceLostError",
        "GPUOutOfMemoryError",
        "GPUValidationError",
        "PyAttnError",
        "ShaderError",
        "WebGPUUnavailableError",
    ),
    "gpu.device": ("Device", "default_device"),
    "gpu.program": ("Program",),
    "gpu.tensor": ("Tensor",),
    "kernels.attention.backward": ("attention_backward",),
    "kernels.attention.forward": ("attention",),
    "kernels.attention.varlen": ("varlen_attention", "varlen_attention_backward"),
    "kernels.attention.weights": ("attention_weights",),
    "kernels.decode.attention": ("decode_attention", "decode_partials"),
    "kernels.decode.cache": ("KVCache",),
    "kernels.decode.merge": ("merge",),
    "kernels.decode.paged": ("PagedKVCache",),
    "kernels.rotary": ("rotary",),
    "mods": (
        "abs",
        "ceil",
        "clip",
        "cos",
        "erf",
        "exp",
        "exp2",
        "floor",
        "log",
        "log2",
        "maximum",
        "minimum",
        "round",
        "sigmoid",
        "sign",
        "sin",
        "sqrt",
        "square",
        "tan",
        "tanh",
        "where",
    ),
    "torch": ("scaled_dot_product_attention",),
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
#: Names that Python itself gives to something else.
_RENAMED = {"abs": "absolute", "round": "rounded"}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        if name in _MODULES:
            value = getattr(import_module(_MODULES[name]), _RENAMED.get(name, name))
        else:
            value = import_module(f"{__name__}.{name}")
        return globals().setdefault(name, value)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
