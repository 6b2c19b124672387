"""Status: the device on which Python computes, and the versions."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

import py_attn as pa
from py_attn.kernels.attention.config import device_variants
from py_attn.viewer.methods import method
from py_attn.viewer.panels.operations import OPERATIONS
from py_attn.viewer.viewer import Viewer


@method(early=True, notebook=True)
async def connect(viewer: Viewer) -> dict[str, Any]:
    """Request a GPU, and use numpy if there is none; returns :func:`describe`'s answer."""
    try:
        await viewer.use_gpu()
    except pa.WebGPUUnavailableError as error:
        return describe(None, str(error))
    return describe(viewer.device)


def describe(device: pa.Device | None, reason: str = "") -> dict[str, Any]:
    """Description of a device, or of the reason why there is none.

    Returns
    -------
    dict
        ``webgpu``; ``adapter`` in its own words, or "none: …"; ``reason`` why there is none;
        ``features``, ``software``, ``variants`` of the attention kernel, ``operations`` that can be timed
        beside it and ``versions``.
    """
    versions = {"py_attn": pa.__version__, "python": platform.python_version(), "numpy": np.__version__}
    if device is None:
        return {
            "webgpu": False,
            "adapter": f"none: {reason}",
            "reason": reason,
            "features": [],
            "software": False,
            "variants": ["numpy"],
            "operations": {},
            "versions": versions,
        }
    return {
        "webgpu": True,
        "adapter": str(device.info),
        "reason": "",
        "features": sorted(device.info.features),
        "software": device.info.software,
        "variants": device_variants(device),
        "operations": {name: operation.describe() for name, operation in OPERATIONS.items()},
        "versions": versions,
    }
