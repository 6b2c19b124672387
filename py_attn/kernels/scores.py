"""What every kernel with scores reads (shaders/lib/score.wgsl): strides, lengths, window and scales."""

from __future__ import annotations

import math

from py_attn.arguments import Masking

LOG2_E = math.log2(math.e)
#: No sequence is longer than this, so positions and distances stay within an i32.
UNBOUNDED = 1 << 30

#: The params of lib/score.wgsl; strides are (batch, head, row, element).
SCORE_PARAMS = {
    "query_strides": "vec4<u32>",
    "key_strides": "vec4<u32>",
    "mask_strides": "vec4<u32>",
    "query_first": "u32",
    "key_first": "u32",
    "mask_first": "u32",
    "lengths_first": "u32",
    "lengths_stride": "u32",
    "batch": "u32",
    "heads": "u32",
    "group": "u32",
    "queries": "u32",
    "keys": "u32",
    "window_left": "i32",
    "window_right": "i32",
    "top_left": "u32",
    "query_scale": "f32",
    "score_scale": "f32",
    "empty_lse": "f32",
}


def masking_params(masking: Masking, *, natural: bool = False) -> dict[str, object]:
    """The params of a masking: window, alignment and the scales, in units of log2 unless ``natural``."""
    cap = masking.softcap
    unit = 1.0 if natural else LOG2_E
    return {
        "window_left": bounded(masking.window_left),
        "window_right": bounded(masking.window_right),
        "top_left": int(masking.top_left),
        "query_scale": masking.scale / cap if cap else masking.scale * unit,
        "score_scale": cap * unit,
        "empty_lse": -math.inf,
    }


def bounded(side: int | None) -> int:
    """A side of a window as kernels get it."""
    return UNBOUNDED if side is None else max(-UNBOUNDED, min(side, UNBOUNDED))
