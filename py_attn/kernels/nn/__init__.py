"""What models need beside attention, in float32: layers of a BERT encoder, and of a language model.

Shaders: ``shaders/nn/``. Each has a form that needs no subgroups and at most 16 KiB of workgroup memory, so
they run on every WebGPU adapter. Inputs are packed (row-major, without gaps) tensors of one device.
"""

from py_attn.kernels.nn.distributions import compare_distributions, token_statistics
from py_attn.kernels.nn.embedding import embedding
from py_attn.kernels.nn.layer_norm import layer_norm
from py_attn.kernels.nn.linear import Activation, linear
from py_attn.kernels.nn.mean_pool import mean_pool
from py_attn.kernels.nn.projections import add_projection, gated_linear, logits, project_qkv
from py_attn.kernels.nn.quantized import QuantizedMatrix, embed_tokens, pack_quantized
from py_attn.kernels.nn.sampling import choose_token

__all__ = [
    "Activation",
    "QuantizedMatrix",
    "add_projection",
    "choose_token",
    "compare_distributions",
    "embed_tokens",
    "embedding",
    "gated_linear",
    "layer_norm",
    "linear",
    "logits",
    "mean_pool",
    "pack_quantized",
    "project_qkv",
    "token_statistics",
]
