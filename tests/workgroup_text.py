"""What a rendered shader asks of a workgroup, read from its text."""

import re

_ELEMENT = re.compile(r"(?:atomic<)?(?:(vec[234])<)?[fui]32>*$")
_VARIABLE = re.compile(r"^var<workgroup> (\w+): (.+);$", re.MULTILINE)
_CONSTANT = re.compile(r"^const (\w+)(?:: \w+)? = (.+);$", re.MULTILINE)
_SIZE = re.compile(r"@workgroup_size\(([^)]+)\)")
_BYTES = {None: 4, "vec2": 8, "vec3": 16, "vec4": 16}


def _value(expression, constants):
    """A constant expression of unsigned integers."""
    words = re.sub(r"\b(\d+)u\b", r"\1", expression).replace("/", "//")
    return eval(re.sub(r"[A-Z_]+[A-Z_0-9]*", lambda m: f"({_value(constants[m[0]], constants)})", words))


def _bytes_of(kind, constants):
    if array := re.fullmatch(r"array<(.+), ([^,<>]+)>", kind):
        return _bytes_of(array[1], constants) * _value(array[2], constants)
    return _BYTES[_ELEMENT.fullmatch(kind)[1]]


def workgroup_variables(wgsl):
    """Bytes of each workgroup variable, by name."""
    constants = dict(_CONSTANT.findall(wgsl))
    return {name: _bytes_of(kind, constants) for name, kind in _VARIABLE.findall(wgsl)}


def workgroup_memory(wgsl):
    """Bytes as WebGPU counts them for maxComputeWorkgroupStorageSize: each variable in steps of 16."""
    return sum(-(-size // 16) * 16 for size in workgroup_variables(wgsl).values())


def workgroup_size(wgsl):
    """Invocations along each axis."""
    constants = dict(_CONSTANT.findall(wgsl))
    (sizes,) = _SIZE.findall(wgsl)
    return tuple(_value(size.strip(), constants) for size in sizes.split(","))
