"""Compiles WGSL texts with naga, which is Firefox's compiler, by way of wgpu.

In: JSON {name: text} on stdin. Out: JSON {name: error} of texts with errors; {"": reason} without an adapter.
"""

import json
import re
import sys

import wgpu

FEATURE = "subgroup"
#: naga knows what these allow, but not yet their names.
UNKNOWN = re.compile(r"^(enable subgroups|requires subgroup_id);$", re.MULTILINE)


def find_device():
    adapters = [a for a in wgpu.gpu.enumerate_adapters_sync() if FEATURE in a.features]
    return adapters[0].request_device_sync(required_features=[FEATURE]) if adapters else None


def error_in(device, text):
    """What naga says against a text, or ''."""
    try:
        device.create_shader_module(code=UNKNOWN.sub("", text))
    except wgpu.GPUValidationError as error:
        return str(error)
    return ""


def main():
    texts, device = json.load(sys.stdin), find_device()
    if device is None:
        answers = {"": "naga needs an adapter with subgroups: a Vulkan driver, or Chromium's SwiftShader"}
    else:
        answers = {name: error for name, text in texts.items() if (error := error_in(device, text))}
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
