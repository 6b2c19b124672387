"""What the products of a language model's layer expect of their tensors."""

from __future__ import annotations

from typing import Any

from py_attn.arguments import check_positive
from py_attn.gpu.device import Device
from py_attn.gpu.tensor import Tensor
from py_attn.kernels.nn.checks import check_devices, check_floats
from py_attn.kernels.nn.quantized import BLOCK


def check_heads(head_dim: int, heads: int, kv_heads: int) -> int:
    """The rows of the three projections."""
    for name, number in (("head_dim", head_dim), ("heads", heads), ("kv_heads", kv_heads)):
        check_positive(name, number)
    if head_dim % 2:
        raise ValueError(f"head_dim: expected an even number, since RoPE turns pairs, got {head_dim}")
    if heads % kv_heads:
        raise ValueError(f"heads: expected a multiple of the {kv_heads} key/value heads, got {heads}")
    return (heads + 2 * kv_heads) * head_dim


def check_rope(rope: Tensor, query: Tensor, heads: int, head_dim: int, device: Device) -> None:
    history = query.shape[0] if isinstance(query, Tensor) and query.ndim else 0
    check_floats("query", query, (history, heads, head_dim), device)
    positions = rope.shape[0] if isinstance(rope, Tensor) and rope.ndim else 0
    check_floats("rope", rope, (positions, head_dim // 2, 2), device)
    if positions < history:
        raise ValueError(f"rope: expected at least the {history} positions of query, got {positions}")


def check_slots(
    name: str,
    tensor: Any,
    heads: tuple[int, int],
    count: int,
    head_dim: int,
    device: Device,
    *,
    cache: bool,
) -> None:
    """Raise unless ``tensor`` can take keys or values: of a cache, or of the call's tokens."""
    check_devices({name: tensor}, device)
    if not tensor.kind.floating or (not cache and tensor.dtype != "float32"):
        wanted = "float32, float16 or bfloat16" if cache else "float32"
        raise ValueError(f"{name}: expected dtype {wanted}, got {tensor.dtype}")
    slots = tensor.shape[2] if tensor.ndim == 4 and cache else count
    if tensor.shape != (*heads, slots, head_dim) or not slots:
        wanted = "capacity" if cache else str(count)
        raise ValueError(
            f"{name}: expected shape [{heads[0]}, {heads[1]}, {wanted}, {head_dim}], got {list(tensor.shape)}"
        )
    if tensor.strides[3] != 1 or any(n % 2 for n in (tensor.offset, *tensor.strides[1:3])):
        raise ValueError(
            f"{name}: expected rows without gaps, each from an even element on, got strides"
            f" {list(tensor.strides)} from element {tensor.offset} on"
        )


def check_head_dim_of_inputs(inner: int, heads: int) -> int:
    """Numbers of each head; a block of weights must not belong to two heads."""
    if inner % (check_positive("heads", heads) * BLOCK):
        raise ValueError(
            f"heads: expected heads of a multiple of {BLOCK} numbers (the weights of a block) that make up"
            f" the {inner} numbers of a row, got {heads} heads"
        )
    return inner // heads


# The shader has a line for each of them.
MAX_SPLITS = 64


def check_partials(
    partial_out: Any, partial_rows: Any, count: int, heads: int, head_dim: int, device: Device
) -> int:
    """The number of splits."""
    if count != 1:
        raise ValueError(f"count: expected 1 with inputs of splits, got {count}")
    splits = partial_out.shape[3] if isinstance(partial_out, Tensor) and partial_out.ndim == 5 else 1
    if splits > MAX_SPLITS:
        raise ValueError(f"inputs: expected at most {MAX_SPLITS} splits, got {splits}")
    check_floats("inputs[0]", partial_out, (1, heads, 1, splits, head_dim), device)
    check_floats("inputs[1]", partial_rows, (1, heads, 1, splits, 2), device)
    return splits
