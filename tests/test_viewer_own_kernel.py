"""A visitor's own kernel: its plan, NaN before it writes, cancelling, and the cell that does the same."""

import ast
import asyncio
import dataclasses

import numpy as np
import pytest

import py_attn as pa
from py_attn.gpu.device import make_default
from py_attn.gpu.kernel import Launch
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, from_text
from py_attn.viewer import Viewer
from py_attn.viewer.panels.own_kernel import constants_in, regrid
from tests.recording_bridge import MATRIX_ADAPTER, RecordingBridge
from tests.viewers import call

SHAPE = {"length": 100, "heads": 4, "kv_heads": 2, "head_dim": 16}


@pytest.fixture
def viewer(device):
    made = Viewer()
    made.use(device)
    make_default(device)
    call(made, "open_synthetic", **SHAPE, mask="causal")
    return made


def fork(viewer, of="naive"):
    return call(viewer, "measure", layer=0, variant=of, repeats=1)["wgsl"]


def own(viewer, wgsl, of="naive", **more):
    return call(
        viewer, "run_wgsl", **({"layer": 0, "of": of, "wgsl": wgsl, "name": "mine", "repeats": 1} | more)
    )


def test_a_text_runs_in_the_place_of_the_kernel_with_the_same_plan(viewer, bridge):
    text = fork(viewer)
    planned = bridge.launches[-1]
    answer = own(viewer, text + "// mine\n", repeats=2)
    launch = bridge.launches[-1]
    assert (launch.label, launch.wgsl) == ("attention/mine", text + "// mine\n")
    assert (launch.params, launch.workgroups) == (planned.params, planned.workgroups)
    assert (answer["variant"], answer["repeats"], answer["fixed"]) == ("mine", 2, "")
    assert answer["wgsl"] == text + "// mine\n"
    fork(viewer)
    assert bridge.launches[-1].label == "attention/naive"  # as before


@pytest.mark.parametrize("of", ["naive", "tiled", "backward", "decode", "varlen"])
def test_every_row_can_be_forked(viewer, bridge, of):
    text = fork(viewer, of)
    name = next(x.label for x in reversed(bridge.launches) if x.wgsl == text).split("/")[0]
    assert own(viewer, text + "// mine\n", of)["rows"] > 0
    assert [x.label for x in bridge.launches if x.wgsl.endswith("// mine\n")] == [f"{name}/mine"]


def test_the_last_run_s_outputs_are_nan_until_they_are_written(viewer, bridge, device):
    for answer in (call(viewer, "measure", layer=0, variant="naive", repeats=2), own(viewer, fork(viewer))):
        # The recording bridge computes nothing.
        assert np.isnan(answer["error"])
        assert not answer["ok"]
    assert not device.poison_outputs


@pytest.mark.parametrize(("workgroup", "count"), [(64, 7), (128, 4), (32, 13)])
def test_the_grid_follows_the_workgroup_size_of_the_naive_kernel(viewer, bridge, workgroup, count):
    text = fork(viewer).replace("const WORKGROUP: u32 = 64u;", f"const WORKGROUP: u32 = {workgroup}u;")
    answer = own(viewer, text)
    assert answer["workgroups"] == [count, 1, 1]  # of 400 rows
    assert answer["constants"]["WORKGROUP"] == str(workgroup)
    assert answer["fixed"] == ""


def test_the_grid_and_the_params_follow_the_rows_of_a_tile(viewer, bridge):
    text = fork(viewer, "rows")
    before = bridge.launches[-1]
    assert before.workgroups == (2 * 4, 1, 1)  # tiles of 64 rows
    own(viewer, text.replace("const BQ: u32 = 64u;", "const BQ: u32 = 32u;"), "rows")
    after = bridge.launches[-1]
    assert after.workgroups == (4 * 4, 1, 1)
    assert after.params != before.params


def test_where_z_counts_the_tiles_it_follows_the_rows_of_a_tile():
    device = asyncio.run(pa.request_device(RecordingBridge(**MATRIX_ADAPTER)))
    inputs = [device.empty((3, 4, 100, 64), "float16") for _ in range(3)]
    planned: list[Launch] = []

    def keep(plan):
        planned.extend(plan.launches)
        return plan

    with device.rewriting(keep):
        pa.attention(*inputs, variant="matrix")
    (launch,) = planned
    assert launch.workgroups == (4, 3, 2)
    text = launch.shader.wgsl.replace("const BQ: u32 = 64u;", "const BQ: u32 = 32u;")
    changed, fixed = regrid(launch, text, splits=False)
    assert (changed.workgroups, fixed) == ((4, 3, 4), "")
    assert changed.params is not None
    assert launch.shader.params.unpack(changed.params)["tiles"] == 4


def test_what_stays_fixed_is_said(viewer, bridge):
    text = fork(viewer, "backward")
    answer = own(viewer, text.replace("const BQ: u32 = ", "const BQ: u32 = 1"), "backward")
    assert "BQ was changed in the text; the number of workgroups stays" in answer["fixed"]


def test_constants_of_a_text():
    text = "const A: u32 = 3u;\n  const B2 : u32= 4u ;\nconst C: f32 = 1.0f;\nconst D: u32 = 5;"
    assert constants_in(text) == {"A": 3, "B2": 4, "D": 5}


def test_without_a_gpu_and_for_a_huge_text_the_reason_is_said(viewer):
    with pytest.raises(ValueError, match=r"300,000 characters; 200,000 are the most"):
        call(viewer, "check_wgsl", wgsl="x" * 300_000)
    viewer.use(None)
    with pytest.raises(ValueError, match="WebGPU only"):
        call(viewer, "check_wgsl", wgsl="")


def test_all_messages_of_the_compiler_are_given(viewer):
    assert call(viewer, "check_wgsl", wgsl="fn main() {}") == {"messages": []}
    (message,) = call(viewer, "check_wgsl", wgsl="nothing")["messages"]
    assert message == {"kind": "error", "message": "no entry point", "line": 1, "column": 1}


@pytest.mark.parametrize("gpu", [True, False])
def test_a_measurement_ends_after_the_run_in_which_it_is_cancelled(viewer, gpu):
    if not gpu:
        viewer.use(None)
    news = []

    async def both():
        def progress(*told):
            news.append(told)
            if len(news) == 2:
                tasks.append(asyncio.ensure_future(viewer.call("cancel_measure", {})))

        tasks = []
        return await viewer.call("measure", {"layer": 0, "variant": "naive", "repeats": 900}, progress)

    assert asyncio.run(both()) is None
    assert 2 <= len(news) <= 4
    assert call(viewer, "measure", layer=0, variant="naive", repeats=1)["repeats"] == 1


# Shaders in the place of others, as a public call


def replaced(shader):
    return dataclasses.replace(shader, variant="mine", wgsl=shader.wgsl + "// mine\n", lines=())


def test_replacing_runs_a_shader_for_those_of_a_label(device, bridge):
    x = np.zeros((1, 2, 8, 16), np.float32)
    with device.timer() as timer:
        pa.attention(*map(device.tensor, (x, x, x)), variant="naive")
    (timing,) = asyncio.run(timer.results())
    mine = replaced(timing.shader)
    with device.replacing("attention/naive", mine, workgroups=3):
        pa.attention(*map(device.tensor, (x, x, x)), variant="naive")
    pa.attention(*map(device.tensor, (x, x, x)), variant="naive")
    asyncio.run(device.synchronize())
    assert [(one.label, one.workgroups[0]) for one in bridge.launches] == [
        ("attention/naive", 1), ("attention/mine", 3), ("attention/naive", 1),
    ]  # fmt: skip
    with (
        pytest.raises(ValueError, match="nothing ran attention/tiled, but attention/naive"),
        device.replacing("attention/tiled", mine),
    ):
        pa.attention(*map(device.tensor, (x, x, x)), variant="naive")
    same = device.rewriting(lambda plan: plan)
    with same, pytest.raises(RuntimeError, match="already"), device.rewriting(lambda plan: plan):
        pass


def test_replacing_refuses_other_params_and_buffers(device):
    x = np.zeros((1, 2, 8, 16), np.float32)
    with device.timer() as timer:
        pa.attention(*map(device.tensor, (x, x, x)), variant="naive")
    (timing,) = asyncio.run(timer.results())
    shader = timing.shader
    params = ParamsLayout(rows="u32")
    for wrong, told in (
        (from_text("", "k", "v", params=params, bindings=shader.bindings), "its params differ"),
        (
            from_text("", "k", "v", params=shader.params, bindings=(Binding("x", "f32"),)),
            "expected the buffers",
        ),
    ):
        with pytest.raises(ValueError, match=told), device.replacing("attention/naive", wrong):
            pa.attention(*map(device.tensor, (x, x, x)), variant="naive")


def test_a_text_with_declarations_gets_no_header():
    shader = from_text(
        "a\nb", "own", "v", params=ParamsLayout(n="u32"), bindings=(), constants={"N": 3}, header=False
    )
    assert shader.wgsl == "a\nb\n"
    assert shader.origin(2) == "own.wgsl:2"
    assert shader.constants == {"N": 3}


# The cell


def run_cell(viewer, source):
    return asyncio.run(viewer.run_cell(source))


@pytest.mark.parametrize("mask", ["causal", "padding", "documents", "alibi", "none"])
def test_the_cell_runs_by_itself(viewer, bridge, mask):
    call(viewer, "open_synthetic", **SHAPE, mask=mask, window=9, softcap=4.0)
    text = fork(viewer) + "// mine \\ \n"
    source = call(viewer, "wgsl_cell", layer=0, of="naive", wgsl=text, name="my own")["source"]
    ast.parse(source)
    assert "py_attn.viewer" not in source  # public names only
    answer = run_cell(viewer, source)
    assert list(answer["value"]) == ["largest error against float64"]
    assert bridge.launches[-1].label == "attention/my own"
    assert bridge.launches[-1].wgsl == text


def test_the_cell_keeps_a_changed_grid(viewer, bridge):
    text = fork(viewer).replace("const WORKGROUP: u32 = 64u;", "const WORKGROUP: u32 = 32u;")
    source = call(viewer, "wgsl_cell", layer=0, of="naive", wgsl=text, name="mine")["source"]
    assert "value" in run_cell(viewer, source)
    assert bridge.launches[-1].workgroups == (13, 1, 1)


@pytest.mark.parametrize("of", ["backward", "turboquant", "score_mod"])
def test_the_cell_of_an_operation(viewer, bridge, of):
    source = call(viewer, "wgsl_cell", layer=0, of=of, wgsl=fork(viewer, of), name='a "name"')["source"]
    assert "value" in run_cell(viewer, source)


def test_no_text_breaks_the_cell(viewer, bridge):
    text = fork(viewer) + '// """ \\'
    source = call(viewer, "wgsl_cell", layer=0, of="naive", wgsl=text, name="x'\"")["source"]
    assert "value" in run_cell(viewer, source)


def test_a_score_mod_is_said_to_be_in_the_way(viewer):
    call(viewer, "edit", layer=0, text="def score_mod(score, b, h, i, j): return 2 * score")
    with pytest.raises(ValueError, match="contains your score_mod"):
        call(viewer, "wgsl_cell", layer=0, of="naive", wgsl="", name="mine")
