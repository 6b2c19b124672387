"""Random inputs of a case, on the device and as the reference takes them."""

import contextlib
from typing import Any

import numpy as np

from py_attn.gpu.dtypes import round_to


def normal(random, shape, dtype, size=1.0):
    """Normal numbers as `dtype` holds them."""
    return np.asarray(round_to(random.standard_normal(shape) * size, dtype))


def laid_out(device, values, dtype, view="plain"):
    """`values` [B, H, S, D] as a tensor whose elements lie in memory as `view` says."""
    b, h, s, d = values.shape
    if view == "plain":
        return device.tensor(values, dtype)
    if view == "swapped":
        return device.tensor(values.transpose(0, 2, 1, 3), dtype).transpose(0, 2, 1, 3)
    if view == "columns":
        return device.tensor(values.transpose(0, 1, 3, 2), dtype).transpose(0, 1, 3, 2)
    if view == "offset":
        flat = np.concatenate([np.full(1, np.nan), values.ravel()])
        return device.tensor(flat, dtype)[1:].reshape(*values.shape)
    if view == "steps":
        # Everything that is not meant to be read is NaN.
        base = np.full((b + 1, h, 2 * s + 1, d + 3), np.nan)
        base[1:, :, 1 : 2 * s : 2, 2 : 2 + d] = values
        return device.tensor(base, dtype)[1:, :, 1 : 2 * s : 2, 2 : 2 + d]
    raise ValueError(view)


def make_mask(random, spec):
    """A mask's numbers: {"dtype", "shape", "rows": what some rows are filled with or None}."""
    shape = spec["shape"]
    if spec["dtype"] == "bool":
        mask = random.random(shape) < 0.7
        hidden: Any = False
    else:
        mask = normal(random, shape, spec["dtype"], 2.0)
        mask[random.random(shape) < 0.2] = -np.inf
        lowest = {"float16": -65504.0}.get(spec["dtype"], float(np.finfo(np.float32).min))
        hidden = round_to(lowest, spec["dtype"]) if spec.get("rows") == "lowest" else -np.inf
    if spec.get("rows") and len(shape) > 1:
        mask[..., random.random(shape[-2]) < 0.4, :] = hidden
    return mask


def make_sinks(random, heads, dtype):
    """Logits of about the scores' size; one of several heads has none."""
    sinks = normal(random, (heads,), dtype, 2.0)
    if heads > 2:
        sinks[random.integers(heads)] = -np.inf
    return sinks


def mask_tensor(device, mask, spec):
    dtype = None if spec["dtype"] == "bool" else spec["dtype"]
    if spec.get("transposed") and mask.ndim > 1:
        axes = (*range(mask.ndim - 2), mask.ndim - 1, mask.ndim - 2)
        return device.tensor(mask.transpose(axes), dtype).transpose(*axes)
    return device.tensor(mask, dtype)


def masking(case):
    """The keywords that kernel and reference share."""
    names = ("causal", "window", "scale", "softcap")
    found = {name: case[name] for name in names if case.get(name) is not None}
    if isinstance(found.get("window"), list):
        found["window"] = tuple(found["window"])
    return found


class Inputs:
    """A case's arrays, on the device and as the reference takes them (always BHSD)."""

    def __init__(self, device, case):
        random = np.random.default_rng(case["seed"])
        b, s_q, s_k, d = case["batch"], case["queries"], case["keys"], case["head_dim"]
        shapes = {
            "query": (b, case["heads"], s_q, d),
            "key": (b, case["kv_heads"], s_k, d),
            "value": (b, case["kv_heads"], s_k, case["value_head_dim"]),
        }
        swap = case.get("layout", "BHSD") == "BSHD"
        self.arrays, self.tensors = [], []
        for name, shape in shapes.items():
            dtype = case["dtypes"][name]
            values = normal(random, shape, dtype, case.get("size", 1.0) if name != "value" else 1.0)
            if name == "key" and "growth" in case:
                # Keys from a certain one on are so many times as large.
                first, times = case["growth"]
                values[:, :, first:] *= times
            tensor = laid_out(device, values, dtype, case.get("views", {}).get(name, "plain"))
            self.arrays.append(values)
            self.tensors.append(tensor.transpose(0, 2, 1, 3) if swap else tensor)
        self.out_shape = (b, case["heads"], s_q, case["value_head_dim"])
        self.shared = masking(case)
        self.kernel = {"layout": "BSHD"} if swap else {}
        self.reference = {}
        if case.get("mask"):
            mask = make_mask(random, case["mask"])
            self.reference["mask"] = mask
            self.kernel["mask"] = mask_tensor(device, mask, case["mask"])
        if case.get("kv_lengths") is not None:
            lengths = case["kv_lengths"]
            self.reference["kv_lengths"] = lengths
            kind = case.get("lengths_as", "list")
            self.kernel["kv_lengths"] = lengths if kind == "list" else device.tensor(np.array(lengths, kind))
        if case.get("sinks"):
            sinks = make_sinks(random, case["heads"], case["sinks"])
            self.reference["sinks"] = sinks
            self.kernel["sinks"] = device.tensor(sinks, case["sinks"])


@contextlib.contextmanager
def poisoned(device):
    """Outputs hold NaN before they are written, so that what a kernel leaves out shows."""
    before, device.poison_outputs = device.poison_outputs, True
    try:
        yield
    finally:
        device.poison_outputs = before
