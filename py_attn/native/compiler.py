"""WGSL to pipelines, by naga, the compiler that wgpu and Firefox have in common."""

from __future__ import annotations

import re
import time
from typing import Any

import wgpu

from py_attn.gpu.bridge import ShaderMessage
from py_attn.native.errors import Errors, compiler_message
from py_attn.native.programs import Bindings, Pipeline

#: naga knows what these allow, but not yet their names. An empty line keeps the numbers of the others.
_UNKNOWN = re.compile(r"^(?:enable subgroups|requires subgroup_id);$", re.MULTILINE)


def compile_text(device: wgpu.GPUDevice, label: str, wgsl: str) -> Any:
    """The shader module of a text, or the :class:`ShaderMessage` that says why there is none."""
    try:
        return device.create_shader_module(label=label, code=_UNKNOWN.sub("", wgsl))
    except wgpu.GPUError as error:
        return compiler_message(error)


def make_pipeline(
    device: wgpu.GPUDevice, errors: Errors, bindings: Bindings, label: str, wgsl: str, access: str
) -> Pipeline:
    """Compile a text with the entry point ``main``; what is wrong with it becomes an error of ``label``."""
    begun = time.perf_counter()
    layout = bindings.layout(wgsl, access)
    module = compile_text(device, label, wgsl)
    compute = None
    if isinstance(module, ShaderMessage):
        errors.add("shader", label, module.message, module.line)
    else:
        try:
            stage: Any = {"module": module, "entry_point": "main"}
            compute = device.create_compute_pipeline(label=label, layout=layout.pipeline, compute=stage)
        except wgpu.GPUError as error:
            message = compiler_message(error)
            errors.add("shader", label, message.message, message.line)
    return Pipeline(compute, layout, label, (time.perf_counter() - begun) * 1e6)
