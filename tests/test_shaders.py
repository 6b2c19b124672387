"""Every template with every kind of option: rendered, parsed, and mapped back to its lines. No GPU.

The shaders come from the public functions on a recording bridge, as a browser would get them.
"""

import dataclasses
import itertools
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import jinja2
import pytest

import py_attn as pa
from py_attn.gpu import device as gpu_device
from py_attn.gpu import shader as shader_module
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.queue import Queue
from py_attn.gpu.shader import SUBGROUP_ID, SUBGROUP_UNIFORMITY, Binding, render, shader_folder
from py_attn.kernels.attention import tiles as _tiles
from py_attn.kernels.attention.config import Config
from py_attn.kernels.attention.weights import attention_scores
from py_attn.kernels.copy import contiguous, join
from scripts.vulkan import swiftshader_environment
from tests import shader_calls
from tests.recording_bridge import LIMITS, RecordingBridge
from tests.test_device import device_on
from tests.workgroup_text import workgroup_variables

FLOATS = ("float32", "float16", "bfloat16")
ADAPTERS = {
    "smallest": {},
    "software": {"software": True, "subgroup_size": 4},
    "desktop": {
        "software": False,
        "maxStorageBuffersPerShaderStage": 10,
        "subgroup_size": 32,
        "maxComputeWorkgroupStorageSize": 49152,
        "maxComputeInvocationsPerWorkgroup": 1024,
        "maxComputeWorkgroupSizeX": 1024,
        "maxComputeWorkgroupSizeY": 1024,
    },
    "phone": {"software": False, "subgroup_size": 8},
}
ADAPTERS["numbered"] = ADAPTERS["desktop"] | {"features": ("subgroups", SUBGROUP_ID, SUBGROUP_UNIFORMITY)}
# Without a GPU nothing compiles the text, so that the names it uses are compared with those it declares.
WORKGROUP_MEMORY = re.compile(r"var<workgroup> (\w+)")


def attention_shaders(device, variant, **options):
    """What one call of `pa.attention` dispatches."""
    shape = {"batch": 2, "heads": 4, "kv_heads": 2, "queries": 33, "keys": 70, "dim": 40, "value_dim": 40}
    shape |= options.pop("shape", {})
    kinds = options.pop("dtypes", ("float32",) * 3)
    transposed = options.pop("transposed", False)
    sizes = [
        (shape["batch"], shape["heads"], shape["queries"], shape["dim"]),
        (shape["batch"], shape["kv_heads"], shape["keys"], shape["dim"]),
        (shape["batch"], shape["kv_heads"], shape["keys"], shape["value_dim"]),
    ]
    inputs = [
        device.empty(size[::-1] if transposed else size, kind)
        for size, kind in zip(sizes, kinds, strict=True)
    ]
    if transposed:
        inputs = [tensor.transpose() for tensor in inputs]
    mask = options.pop("mask", None)
    if mask:
        options["mask"] = device.empty((shape["queries"], shape["keys"]), mask)
    if options.pop("lengths", False):
        options["kv_lengths"] = device.empty((shape["batch"],), "int32")
    pa.attention(*inputs, variant=variant, **options)


def options_of_attention():
    for kinds in itertools.product(FLOATS, repeat=3):
        yield {"dtypes": kinds}
    for mask in (None, "bool", *FLOATS):
        for softcap, lengths, return_lse in itertools.product((None, 3.0), (False, True), (False, True)):
            yield {"mask": mask, "softcap": softcap, "lengths": lengths, "return_lse": return_lse}
    for dim, value_dim in (
        (1, 1),
        (2, 3),
        (3, 200),
        (64, 64),
        (65, 4),
        (128, 128),
        (256, 256),
        (511, 512),
        (576, 512),
    ):
        for kind in FLOATS:
            yield {"shape": {"dim": dim, "value_dim": value_dim}, "dtypes": (kind,) * 3}
    for kind in FLOATS:
        yield {"transposed": True, "dtypes": (kind,) * 3}
    for queries in (1, 5, 1000):
        yield {"shape": {"queries": queries}}
    for softcap, return_lse in itertools.product((None, 3.0), (False, True)):
        yield {"shape": {"keys": 256}, "softcap": softcap, "return_lse": return_lse}


def split_attention(device):
    """Shapes whose last tiles are split along the keys where tiles are large, and joined."""
    shape = {"batch": 1, "heads": 12, "kv_heads": 12, "queries": 2000, "keys": 2000, "dim": 64}
    for kind in FLOATS:
        for return_lse in (False, True):
            sized = {"shape": {**shape, "value_dim": 63}, "dtypes": (kind,) * 3}
            attention_shaders(device, "subgroup", **sized, return_lse=return_lse)
            sinks = device.empty((12,), kind)
            attention_shaders(device, "tiled", **sized, return_lse=return_lse, sinks=sinks)


def every_tile():
    """What `choose_tile` may return on some adapter, and the same with the query kept in workgroup memory."""
    for tile in (*_tiles.CANDIDATES.values(), *_tiles.SOFTWARE):
        yield from (tile, dataclasses.replace(tile, query_resident=True))


def render_everything():
    """Shaders by a name that is unique."""
    found = {}
    add = Queue.add

    def collecting(queue, shader, *rest, **keywords):
        found.setdefault(shader.wgsl, shader)
        add(queue, shader, *rest, **keywords)

    with mock.patch.object(Queue, "add", collecting):
        for number, adapter in enumerate(ADAPTERS.values()):
            device = device_on(RecordingBridge(**adapter))
            variants = ["naive", "rows", "tiled"] + ["subgroup"] * (device.info.subgroup_min_size >= 4)
            # The first adapter gets everything, the others every fifth, so that parsing takes seconds.
            options = list(options_of_attention())[:: 5 if number else 1]
            for variant, chosen in itertools.product(variants, options):
                try:
                    attention_shaders(device, variant, **chosen)
                except ValueError as error:
                    # Wide heads need more workgroup memory than the smallest adapter has; tiles end at 512.
                    assert re.search("workgroup memory|takes head dims up to 512", str(error))  # noqa: PT017
        other_kernels(device)
        for name in ("software", "desktop", "numbered"):
            device = device_on(RecordingBridge(**ADAPTERS[name]))
            for calls in shader_calls.ALL:
                calls(device)
        split_attention(device)
        for tile in dict.fromkeys(every_tile()):
            config = Config("tiled" if tile.tx == 8 else "subgroup", tile)
            attention_shaders(device, config, mask="bool", lengths=True)
    return {f"{n} {shader.label}": shader for n, shader in enumerate(found.values())}


def other_kernels(device):
    """Decode, cache and weights with their options."""
    for key, value, query in itertools.product(FLOATS, repeat=3):
        cache = pa.KVCache(1, 2, 600, 20, value_head_dim=12, dtype=(key, value), device=device)
        cache.append(device.empty((1, 2, 500, 20), query), device.empty((1, 2, 500, 12), query))
        cache.append(
            device.empty((1, 2, 20, 3), query).transpose(0, 1, 3, 2), device.empty((1, 2, 3, 12), query)
        )
        for options in ({}, {"splits": 4}, {"splits": 1, "softcap": 3.0}, {"return_lse": True, "splits": 2}):
            pa.decode_attention(device.empty((1, 6, 1, 20), query), cache, **options)
        pa.decode_partials(device.empty((1, 6, 1, 20), query), cache, splits=3)
    for dim, value_dim in ((1, 1), (64, 64), (128, 512), (512, 512), (576, 512)):
        cache = pa.KVCache(1, 1, 8, dim, value_head_dim=value_dim, device=device)
        cache.append(device.empty((1, 1, 2, dim)), device.empty((1, 1, 2, value_dim)))
        for heads in (1, 3, 40):
            pa.decode_attention(device.empty((1, heads, 1, dim)), cache)
    for kind, mask in itertools.product(FLOATS, (None, "bool", *FLOATS)):
        query, key = device.empty((1, 4, 9, 20), kind), device.empty((1, 2, 11, 20), kind)
        options = {"mask": device.empty((9, 11), mask)} if mask else {"softcap": 2.0, "kv_lengths": [7]}
        for shown in ({}, {"size": (2, 2), "pool": "mean"}, {"colormap": "magma", "color_scale": "log"}):
            pa.attention_weights(query, key, device.empty((1, 4, 9)), **options, **shown)
        for grad, pool in itertools.product(FLOATS, ("max", "mean")):
            value, grads = device.empty((1, 2, 11, 12), kind), device.empty((1, 4, 9, 12), grad)
            with_gradient = {"value": value, "grad_out": grads, "pool": pool}
            pa.attention_weights(query, key, device.empty((1, 4, 9)), **options, **with_gradient)
        attention_scores(query, key, **options)
    for kind, target in itertools.product(FLOATS, repeat=2):
        join(device.empty((1, 2, 9, 7), kind), device.empty((1, 2, 3, 7), target))
        contiguous(device.empty((2, 9, 7), kind).transpose(), target)
    contiguous(device.empty((2, 9, 7), "bool").transpose())


@pytest.fixture(scope="module")
def shaders():
    with mock.patch.object(gpu_device, "_default", None):
        return render_everything()


@pytest.fixture(scope="module")
def parsed(shaders):
    """What a WGSL parser finds in one of every label and in every third of them; naga compiles all."""
    of_labels = {shader.label: name for name, shader in shaders.items()}.values()
    chosen = {*of_labels, *list(shaders)[::3]}
    answer = subprocess.run(
        ["node", str(Path(__file__).parent / "wgsl_check.mjs")],
        input=json.dumps({name: shaders[name].wgsl for name in sorted(chosen)}),
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )
    return json.loads(answer.stdout)


def test_there_are_enough_of_them(shaders):
    names = {shader.label.split("/")[0] for shader in shaders.values()}
    assert names == {
        "attention",
        "attention_backward",
        "attention_join",
        "attention_weights",
        "axes_gradient",
        "backward_delta",
        "add_projection",
        "cache_advance",
        "cache_append",
        "copy",
        "decode_reduce",
        "decode_split",
        "embed_tokens",
        "gated_linear",
        "logits",
        "lookup_gradient",
        "merge",
        "pack_quantized",
        "pack_words",
        "project_qkv",
        "rotary",
        "row_sums",
        "sink_gradient",
        "sum_parts",
        "turboquant_quantize",
        "turboquant_rotate",
        "varlen_tiles",
    }
    assert {s.variant for s in shaders.values() if s.name == "attention"} == {
        "naive",
        "rows",
        "tiled",
        "subgroup",
    }
    assert len(shaders) > 300


def test_all_parse(parsed):
    assert {name: answer for name, answer in parsed.items() if "error" in answer} == {}


def naga(texts):
    """The errors that naga finds in texts, by name; without an adapter the test is skipped, except in CI."""
    answer = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "naga_check.py")],
        input=json.dumps(texts),
        env=os.environ | swiftshader_environment(),
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
    )
    assert answer.returncode == 0, answer.stderr
    errors = json.loads(answer.stdout.splitlines()[-1])
    if missing := errors.get(""):
        assert not os.environ.get("CI"), missing
        pytest.skip(missing)
    return errors


def test_naga_takes_all(shaders):
    assert naga({name: shader.wgsl for name, shader in shaders.items()}) == {}


def test_naga_refuses_what_is_wrong():
    numbered = "@compute @workgroup_size({}) fn main(@builtin(subgroup_id) n: u32) {{}}"
    texts = {"fine": numbered.format("64"), "two axes": numbered.format("8, 8"), "unfinished": "fn main() {"}
    errors = naga(texts)
    assert errors.keys() == {"two axes", "unfinished"}
    assert "Workgroup size is multi dimensional" in errors["two axes"]


def test_bindings_and_entry_point(shaders, parsed):
    for name, found in parsed.items():
        shader = shaders[name]
        assert found["entries"] == ["main"]
        assert found["storage"] == [
            {
                "group": 0,
                "binding": n,
                "name": binding.name,
                "access": "read_write" if binding.writes else "read",
            }
            for n, binding in enumerate(shader.bindings)
        ], name
        # Only adapters that bind more store the gradients of scores of packed sequences.
        more = 2 if shader.variant.endswith("stored") else 0
        assert len(shader.bindings) <= LIMITS["maxStorageBuffersPerShaderStage"] + more


def test_params_lie_where_python_packs_them(shaders, parsed):
    for name, found in parsed.items():
        shader = shaders[name]
        layout = shader.params
        offsets = {field: layout.dtype.fields[field][1] for field in layout.fields}
        assert {field: offset for field, offset, _ in found["params"]} == offsets, name
        assert found["uniform"]["group"] == 0
        assert found["uniform"]["binding"] == len(shader.bindings)
        assert found["uniform"]["size"] <= layout.size < found["uniform"]["size"] + 16


def test_workgroups_are_within_the_limits(shaders):
    for name, shader in shaders.items():
        (declared,) = re.findall(r"@workgroup_size\(([^)]*)\)", shader.wgsl)
        sizes = declared.split(", ")
        assert len(sizes) == 1 or "subgroup" not in shader.wgsl, (
            f"naga takes subgroups in one dimension only: {name}"
        )
        # The defaults for all but the tiles that only a larger adapter gets.
        invocations = math.prod(int(shader.constants.get(one, one)) for one in sizes)
        assert 1 <= invocations <= LIMITS["maxComputeInvocationsPerWorkgroup"], name


def test_only_the_subgroup_variant_needs_subgroups(shaders):
    for name, shader in shaders.items():
        uses = "subgroup" in shader.wgsl.replace("subgroups_seen", "")
        assert uses == ("subgroup" in shader.variant), name
        assert shader.wgsl.startswith("enable subgroups;") == uses


def test_no_native_half_arithmetic(shaders):
    for name, shader in shaders.items():
        code = re.sub(r"//.*", "", shader.wgsl)
        assert not re.search(r"\bf16\b|\bpack2x16float\(", code), name


def test_only_params_and_buffers_come_from_outside(shaders):
    # A field of the params that no template reads, or a buffer, is one that was forgotten or that has gone.
    for name, shader in shaders.items():
        for binding in shader.bindings:
            assert shader.wgsl.count(binding.name) > 1, (name, binding.name)
        for memory in WORKGROUP_MEMORY.findall(shader.wgsl):
            assert re.search(rf"\b{memory}\b(?s:.)*?\b{memory}\b", shader.wgsl), (name, memory)


def test_workgroup_memory_is_what_the_tile_says(shaders):
    for name, shader in shaders.items():
        if shader.name != "attention" or shader.variant in ("naive", "rows"):
            continue
        constants = shader.constants
        tile = _tiles.Tile(
            constants["TX"],
            constants["TY"],
            constants["ROWS"],
            constants["BK"],
            constants["DEPTH4"],
            constants["VALUE_KEYS"],
            constants["query_resident"],
            constants["BUFFERS"],
        )
        promised = tile.workgroup_bytes(constants["D4"], constants["DV4"])
        declared = sum(workgroup_variables(shader.wgsl).values())
        assert declared <= promised <= declared + 16, name


def test_lines_lead_back_to_the_template(shaders):
    checked = 0
    templates = {}
    for shader in list(shaders.values())[::7]:
        rendered = shader.wgsl.splitlines()
        assert len(rendered) == len(shader.lines)
        for number, text in enumerate(rendered, 1):
            origin = shader.origin(number)
            if ".wgsl:" not in origin or not text.strip():
                continue
            file, line = origin.split(":")
            if file not in templates:
                templates[file] = (shader_folder() / file).read_text(encoding="utf-8").splitlines()
            source = templates[file][int(line) - 1]
            if "{{" not in source:
                assert source.strip() == text.strip(), origin
                checked += 1
            else:
                # What is around the placeholders stays.
                parts = [part.strip() for part in re.split(r"\{\{.*?\}\}", source)]
                assert all(part in text for part in parts), (origin, source, text)
    assert checked > 1000


# The renderer


def rendered(text, constants, tmp_path, monkeypatch):
    (tmp_path / "test.wgsl").write_text(text, encoding="utf-8")
    monkeypatch.setattr(shader_module, "shader_folder", lambda: tmp_path)
    shader_module.environment.cache_clear()
    try:
        return render(
            "test.wgsl",
            "test",
            "plain",
            params=ParamsLayout(count="u32"),
            bindings=(Binding("x", "f32"), Binding("out", "vec4<f32>", writes=True)),
            constants=constants,
        )
    finally:
        shader_module.environment.cache_clear()


def test_header(tmp_path, monkeypatch):
    constants = {"N": 3, "SCALE": 0.5, "FLAG": True, "kind": "a", "NAMES": ("a",)}
    shader = rendered("fn f() {}\n", constants, tmp_path, monkeypatch)
    assert shader.wgsl.splitlines() == [
        "const N: u32 = 3u;",
        "const SCALE: f32 = 0.5f;",
        "const FLAG: bool = true;",
        "struct Params {",
        "  count: u32,",
        "}",
        "@group(0) @binding(0) var<storage, read> x: array<f32>;",
        "@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;",
        "@group(0) @binding(2) var<uniform> params: Params;",
        "fn f() {}",
    ]
    assert shader.origin(10) == "test.wgsl:1"
    assert shader.origin(1).startswith("header")
    assert shader.origin(99) == "line 99"


def test_statements_and_comments(tmp_path, monkeypatch):
    text = "//## gone\n// rendered\n//# for i in range(2)\nlet a{{ i }} = {{ i }};\n//# endfor\n\n\nend\n"
    shader = rendered(text, {}, tmp_path, monkeypatch)
    found = [
        (line, origin) for line, origin in zip(shader.wgsl.splitlines(), shader.lines, strict=True) if line
    ]
    assert found[6:] == [
        ("// rendered", "test.wgsl:2"),
        ("let a0 = 0;", "test.wgsl:4"),
        ("let a1 = 1;", "test.wgsl:4"),
        ("end", "test.wgsl:8"),
    ]


def test_a_missing_constant_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(jinja2.UndefinedError, match="'missing' is undefined"):
        rendered("let a = {{ missing }};\n", {}, tmp_path, monkeypatch)


def test_shaders_are_rendered_once_for_equal_options(device):
    query = device.empty((1, 1, 4, 8))
    shaders = []
    for scale in (1.0, 2.0):
        with device.record() as program:
            pa.attention(query, query, query, scale=scale, causal=True, window=3)
        shaders.append(program.dispatches[0].shader)
    assert shaders[0] is shaders[1]
