"""WGSL from Jinja2 templates, with a map back from every rendered line to its template line.

In templates a line that begins with ``//#`` is a Jinja2 statement and one with ``//##`` a comment
that is not rendered, so that a template still reads as WGSL.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2

from py_attn.gpu.params import ParamsLayout

_MARK = re.compile("\x01([^\x02]*)\x02")
#: A language feature of WGSL: https://www.w3.org/TR/WGSL/#language-extensions-sec
SUBGROUP_ID = "subgroup_id"
#: Another one, with which what is uniform is judged by subgroups: without it, exchanges behind a branch that
#: whole subgroups take are an error.
SUBGROUP_UNIFORMITY = "subgroup_uniformity"
_HEADER = "header written by py_attn/gpu/shader.py"


@dataclass(frozen=True, slots=True)
class Binding:
    """One storage buffer of a shader: its WGSL name, element type, and whether the shader writes it."""

    name: str
    type: str
    writes: bool = False


@dataclass(frozen=True)
class Shader:
    """A rendered compute shader with the entry point ``main``.

    Attributes
    ----------
    name, variant : str
        Kernel family and variant, as timings and errors call it.
    wgsl : str
        The text given to WebGPU.
    constants : mapping
        What the template was rendered with.
    lines : tuple of str
        For each line of ``wgsl`` the template and line it came from.
    """

    name: str
    variant: str
    wgsl: str
    constants: Mapping[str, object] = field(compare=False)
    bindings: tuple[Binding, ...] = field(compare=False)
    params: ParamsLayout = field(compare=False)
    lines: tuple[str, ...] = field(compare=False, repr=False)

    @property
    def label(self) -> str:
        """``name/variant``."""
        return f"{self.name}/{self.variant}"

    @functools.cached_property
    def written(self) -> tuple[int, ...]:
        """The numbers of the bindings that it writes."""
        return tuple(n for n, binding in enumerate(self.bindings) if binding.writes)

    def origin(self, line: int) -> str:
        """Where line ``line`` (from 1) of the rendered text comes from."""
        return self.lines[line - 1] if 1 <= line <= len(self.lines) else f"line {line}"


def shader_folder() -> Path:
    """The folder of the templates: inside the installed wheel, or beside the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "shaders"
    return inside if inside.is_dir() else package.parent / "shaders"


def compiled_folder() -> Path:
    """Templates as Python bytecode, where somebody (scripts/pack.js, for the page) has compiled them."""
    return shader_folder() / "compiled"


class _MarkingLoader(jinja2.FileSystemLoader):
    """Adds to every template line a mark that tells where it came from."""

    def get_source(self, environment: jinja2.Environment, template: str):  # type: ignore[no-untyped-def]
        source, filename, current = super().get_source(environment, template)
        lines = [
            line if not line.strip() or line.lstrip().startswith("//#") else f"{line}\x01{template}:{n}\x02"
            for n, line in enumerate(source.splitlines(), 1)
        ]
        return "\n".join(lines) + "\n", filename, current


@functools.cache
def environment() -> jinja2.Environment:
    """The Jinja2 environment of all shaders."""
    compiled = compiled_folder()
    return jinja2.Environment(
        bytecode_cache=jinja2.FileSystemBytecodeCache(str(compiled)) if compiled.is_dir() else None,
        loader=_MarkingLoader(shader_folder()),
        undefined=jinja2.StrictUndefined,
        line_statement_prefix="//#",
        line_comment_prefix="//##",
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(
    template: str,
    name: str,
    variant: str,
    *,
    params: ParamsLayout,
    bindings: tuple[Binding, ...],
    constants: Mapping[str, object],
    enable: tuple[str, ...] = (),
    requires: tuple[str, ...] = (),
) -> Shader:
    """Render ``template`` below a header that declares extensions, constants, params and buffers.

    Integer, float and boolean constants become WGSL ``const`` declarations of their names; all
    constants are Jinja2 variables too. Group 0 holds the storage buffers in order and then the params.

    Raises
    ------
    jinja2.UndefinedError
        When the template uses a constant that was not given.
    """
    directives = [f"enable {extension};" for extension in enable] + [
        f"requires {feature};" for feature in requires
    ]
    header = _header(params, bindings, constants, directives)
    body = environment().get_template(template).render(constants)
    lines, origins = list(header), [_HEADER] * len(header)
    previous_blank = False
    waiting = 0
    for raw in body.splitlines():
        # Nearly all lines have one mark, at their end.
        text, _, mark = raw.partition("\x01")
        origin, _, rest = mark.partition("\x02")
        if rest:
            text += _MARK.sub("", rest)
        text = text.rstrip()
        if not text and previous_blank:
            continue
        previous_blank = not text
        lines.append(text)
        origins.append(origin or origins[-1])
        # A line's mark stands at its end: where a placeholder became several lines, behind the last.
        if origin and waiting:
            origins[-1 - waiting :] = [origin] * (waiting + 1)
        waiting = waiting + 1 if text and not origin else 0
    return Shader(name, variant, "\n".join(lines) + "\n", dict(constants), bindings, params, tuple(origins))


def from_text(
    wgsl: str,
    name: str,
    variant: str,
    *,
    params: ParamsLayout,
    bindings: tuple[Binding, ...],
    constants: Mapping[str, object] | None = None,
    header: bool = True,
) -> Shader:
    """A kernel of your own: WGSL with the entry point ``main``, below the header that templates get too.

    Parameters
    ----------
    wgsl : str
        Uses ``params``, the buffers and upper-case constants by their names; does not declare them.
    name, variant : str
        Its names in timings and errors.
    params : ParamsLayout
        The uniform struct, at group 0 behind the buffers.
    bindings : tuple of Binding
        The storage buffers, at group 0 in this order.
    constants : mapping, optional
        Numbers and booleans; those with upper-case names become WGSL constants.
    header : bool
        False for a text that declares all of this itself: a whole WGSL file, such as
        ``timing.shader.wgsl`` of a kernel that ran, changed. ``params`` and ``bindings`` say then what it
        declares, and ``constants`` is for showing only. The uniform struct may also be at group 1, binding 0.
    """
    declared = _header(params, bindings, constants or {}) if header else []
    body = wgsl.splitlines()
    origins = [_HEADER] * len(declared) + [f"{name}.wgsl:{n}" for n in range(1, len(body) + 1)]
    text = "\n".join(declared + body) + "\n"
    return Shader(name, variant, text, dict(constants or {}), bindings, params, tuple(origins))


def _header(
    params: ParamsLayout,
    bindings: tuple[Binding, ...],
    constants: Mapping[str, object],
    directives: Sequence[str] = (),
) -> list[str]:
    header = list(directives)
    header += [
        f"const {key}: {_wgsl_type(value)} = {_wgsl_value(value)};"
        for key, value in constants.items()
        if key.isupper() and isinstance(value, (bool, int, float))
    ]
    header += params.wgsl.splitlines()
    for index, binding in enumerate(bindings):
        access = "read_write" if binding.writes else "read"
        header.append(
            f"@group(0) @binding({index}) var<storage, {access}> {binding.name}: array<{binding.type}>;"
        )
    header.append(f"@group(0) @binding({len(bindings)}) var<uniform> params: Params;")
    return header


def _wgsl_type(value: bool | int | float) -> str:
    return "bool" if isinstance(value, bool) else "u32" if isinstance(value, int) else "f32"


def _wgsl_value(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value}u" if isinstance(value, int) else f"{value!r}f"
