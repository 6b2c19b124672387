"""The bench's Python half: numbers, workloads, reference rows, what is written."""

import asyncio
import dataclasses
import json
import re
import subprocess
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import py_attn as pa
from bench.clocks import Budget, gpu_time, wall_time
from bench.measure import _tune, listed
from bench.numbers import block, filled, numbers
from bench.runs import Options, Run, gradient_rows
from bench.tiles import compare_tiles
from bench.workloads import FULL, SMALL, workloads
from py_attn.gpu.device import request_device
from scripts.bench import remark
from tests.recording_bridge import MATRIX_ADAPTER, RecordingBridge
from tests.test_device import device_on

ROOT = Path(__file__).parent.parent


def test_the_numbers_are_of_variance_1():
    x = numbers(7, np.arange(200_000)).astype(np.float64)
    assert abs(x.mean()) < 0.01
    assert abs(x.var() - 1) < 0.01
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 0.01
    assert abs(np.corrcoef(x, numbers(8, np.arange(200_000)))[0, 1]) < 0.01


def test_a_block_is_a_part_of_the_array():
    shape = (2, 3, 5, 7)
    every = numbers(3, np.arange(210)).reshape(shape)
    np.testing.assert_array_equal(block(3, shape, 1, 2), every[1, 2])
    np.testing.assert_array_equal(block(3, shape, 1, 2, slice(1, 4)), every[1, 2, 1:4])
    np.testing.assert_array_equal(block(3, shape, 0, slice(None), 4, slice(2, None)), every[0, :, 4, 2:])


def test_javascript_makes_the_same_numbers():
    script = """
import { numbers, toHalf, fromHalf } from './web/src/bench/numbers.js';
const shape = [2, 3, 5, 4];
const rows = numbers(9, shape, 'BSHD', [3, 5]);
console.log(JSON.stringify([[...numbers(9, shape, 'BHSD')], [...rows], [...fromHalf(toHalf(rows))]]));
"""
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    plain, swapped, half = (np.array(part, np.float32) for part in json.loads(done.stdout))
    expected = block(9, (2, 3, 5, 4))
    np.testing.assert_array_equal(plain.reshape(2, 3, 5, 4), expected)
    np.testing.assert_array_equal(swapped.reshape(2, 2, 3, 4), expected[:, :, 3:].transpose(0, 2, 1, 3))
    np.testing.assert_array_equal(half, swapped.astype(np.float16).astype(np.float32))


def test_the_fill_is_asked_for_as_a_whole(device, bridge):
    filled(device, 5, (3, 1000))
    asyncio.run(device.synchronize())
    (launch,) = bridge.programs[-1]
    assert launch.workgroups == (12, 1, 1)


@pytest.mark.parametrize("workload", [*FULL, *SMALL], ids=lambda w: f"{w.title}")
def test_work_is_counted_over_visible_pairs(workload):
    if workload.kind == "decode":
        rows = workload.batch * workload.keys * workload.kv_heads * 2
        bits = {"float32": 32, "float16": 16}.get(workload.dtype, 4)
        assert workload.cache_bytes >= rows * workload.head_dim * bits / 8
        return
    lengths = workload.sequences if workload.lengths else [workload.queries] * workload.batch
    pairs = sum(np.tri(n).sum() if workload.causal else n * n for n in lengths)
    factor = 2.5 if workload.kind == "backward" else 1
    assert workload.flops == pytest.approx(4 * factor * workload.heads * workload.head_dim * pairs)


def test_the_dense_twin_has_the_flops_of_the_packed_batch():
    twin, packed = (next(w for w in FULL if w.name == name) for name in ("varlen-dense", "varlen"))
    assert twin.flops == pytest.approx(packed.flops, rel=0.02)
    assert (min(packed.sequences), max(packed.sequences), len(packed.sequences)) == (16, 2048, 64)


def test_goals_name_rows_that_are_there():
    names = {w.name for w in FULL} | {"", "floor", "onnxruntime-web"}
    assert all(goal.of in names for w in FULL for goal in w.goals)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"only: expected names among minilm, .*, got minlm$"):
        workloads("small", ["minlm"])
    with pytest.raises(ValueError, match="size: expected small or full, got 'huge'"):
        workloads("huge", [])


def test_matrix_is_listed_where_the_adapter_has_it(device):
    assert "matrix" not in {w["name"] for w in listed("full", [])}
    assert not {w["variant"] for w in listed("full", [])} & {"matrix"}
    assert {w["name"] for w in listed("full", ["matrix"])} == {"matrix"}
    with mock.patch.object(pa, "default_device", return_value=device_on(RecordingBridge(**MATRIX_ADAPTER))):
        assert "matrix" in {w["name"] for w in listed("full", [])}


def test_the_matrix_row_runs_on_float16_where_the_adapter_has_it():
    (workload,) = workloads("full", ["matrix"])
    bridge = RecordingBridge(**MATRIX_ADAPTER)
    device = device_on(bridge)
    run = Run(device, dataclasses.replace(workload, heads=2, kv_heads=2, queries=64, keys=64), Options())
    kept = run.call(0)
    device.flush()
    assert kept.dtype == "float16"
    launch = bridge.programs[-1][-1]
    assert launch.label.endswith("attention/matrix")
    # Rows of sixteen aligned bytes: nothing is read one number at a time.
    assert re.findall(r"var<storage, read> (\w+): array<vec4<u32>>", launch.wgsl) == ["query", "key", "value"]
    with pytest.raises(ValueError, match="variant: matrix needs shader-f16"):
        Run(device_on(RecordingBridge()), run.workload, Options()).call(0)


@pytest.mark.parametrize("name", ["minilm", "long-causal", "decode", "varlen"])
def test_reference_rows_are_those_of_the_whole_output(device, name):
    (workload,) = workloads("small", [name])
    run = Run(device, workload, Options())
    shapes = run.shapes()
    seeds = {"query": 1, "key": 2, "value": 3}
    q, k, v = (block(seeds[part], shapes[part]) for part in seeds)
    if workload.kind == "varlen":
        cu = np.cumsum([0, *workload.sequences])
        whole = pa.reference.varlen_attention(q, k, v, cu, cu, causal=True)
        expected = [whole[run.first(b) + i, h] for b, h, i in run.rows()]
    else:
        whole = pa.reference.attention(q, k, v, causal=workload.causal)
        expected = [whole[row] for row in run.rows()]
    np.testing.assert_allclose(run.exact_rows(np.float64), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_gradients_are_those_of_the_whole(causal, dtype):
    query, key, value, grad = (block(seed, (600, 8)).astype(dtype) for seed in range(4))
    rows = np.array([0, 17, 255, 256, 511, 599])
    found = gradient_rows(query, key, value, grad, rows, causal=causal)
    heads = (x[None, None] for x in (grad, query, key, value))
    whole = pa.reference.attention_backward(*heads, causal=causal, compute_dtype=np.float64)
    for gradient, expected in zip(found, whole, strict=True):
        assert gradient.dtype == dtype
        tolerance = 1e-5 if dtype == np.float32 else 1e-12
        np.testing.assert_allclose(gradient, expected[0, 0, rows], atol=tolerance)


def test_only_some_rows_of_long_gradients_are_compared(device):
    (workload,) = workloads("small", ["backward"])
    for length, most in ((512, 512), (1500, 60)):
        run = Run(device, dataclasses.replace(workload, queries=length, keys=length, head_dim=4), Options())
        check = run._check_gradients([np.zeros(run.shapes()["query"], np.float32)] * 3)
        assert len(check.got) == len(check.exact) == len(check.single) == 3
        assert most - 30 <= len(check.got[0]) <= most


@pytest.mark.parametrize("name", [w.name for w in SMALL])
def test_every_workload_records(device, bridge, name):
    (workload,) = workloads("small", [name])
    run = Run(device, workload, Options())
    sample = asyncio.run(gpu_time(device, run.call, calls=2))
    assert (sample.gpu_us, sample.timestamps) == (5.0, False)  # two calls in the 10 of the fake clock
    run.destroy()


def test_short_calls_run_several_times_over_in_a_pass(device, bridge):
    (workload,) = workloads("small", ["minilm"])
    run = Run(device, workload, Options())
    limits = Budget(pass_us=1000, lead_us=20, warm_s=0, total_s=0, passes=3)
    sample = asyncio.run(gpu_time(device, run.call, limits=limits))
    # A pass takes 10 by the fake clock, so that 100 calls would fill one: twice a program of 64 is nearest.
    assert (sample.calls, sample.gpu_us) == (128, 10 / 128)
    last, before = bridge.programs[-1], bridge.programs[-2]
    assert last == before, "the warm-up is of the same length"
    assert last[: len(last) // 2] == last[len(last) // 2 :]
    run.destroy()


def test_tiles_are_chosen_before_anything_is_timed(bridge):  # the fixture restores the default device
    device = asyncio.run(request_device(RecordingBridge(software=False, subgroup_size=32)))
    (workload,) = workloads("small", ["minilm"])
    run = Run(device, workload, Options())
    found = asyncio.run(_tune(run, {}))
    assert [set(measured) for measured in found] == [{"key", "choice", "us"}]
    assert device.autotune
    assert asyncio.run(_tune(run, {"tile": '{"rows": 2}'})) == []
    assert asyncio.run(_tune(run, {"tune": False})) == []
    assert not device.autotune


def test_wall_time_counts_each_call():
    made = []

    async def finish():
        made.append("wait")

    wall = asyncio.run(wall_time(made.append, finish, seconds=0.01, most=5))
    assert wall.calls == 5
    assert made[:4] == [0, 1, 2, "wait"]
    assert made[-6:] == [0, 1, 2, 3, 4, "wait"]


def test_what_is_printed_while_it_runs():
    assert remark({"workload": "decode", "failed": "no memory"}) == "decode: FAILED, no memory"
    assert remark({"workload": "x", "peer": "p", "wall": {"row_us": 1234.5}}) == "x: p 1,234 µs wall"
    assert "OVER THE BOUND" in remark(
        {"workload": "x", "gpu_us": 1.0, "rate": 2.0, "ran": ["a/b"], "ok": False}
    )
    assert remark({"read_gbs": 1.5, "clock_ratio": None}) == "read_gbs 1.5"


GPU = {
    "software": False,
    "subgroup_size": 16,
    "maxStorageBuffersPerShaderStage": 10,
    "maxComputeWorkgroupStorageSize": 48 << 10,
    "maxBufferSize": 1 << 31,
    "maxStorageBufferBindingSize": 1 << 31,
}


@pytest.mark.parametrize("name", ["long-causal", "varlen", "backward", "backward-long", "backward-varlen"])
def test_every_tile_of_the_table_is_compared_with_the_chosen_one(bridge, name):
    device = asyncio.run(request_device(RecordingBridge(**GPU)))
    (workload,) = workloads("full" if name in ("backward", "backward-long") else "small", [name])
    run = Run(device, workload, Options())
    with mock.patch("bench.tiles.gpu_time", new=same_time):
        found = asyncio.run(compare_tiles(run))
    sides = ("query", "key", "value") if workload.kind == "backward" else ("subgroup", "tiled")
    assert {name.split()[0] for name in found["us"]} == set(sides)
    assert len(found["us"]) > 10
    assert any("stored" in tile for tile in found["us"]) == (workload.kind == "backward")
    # What the call takes is one of the candidates, by the same name.
    assert set(found["chosen"].split("; ")) <= found["us"].keys()
    assert ("value stored" in found["chosen"]) == (name == "backward-long")
    assert (found["ratio"], found["best"]) == (1, found["chosen"])


async def same_time(device, call, *, limits=None):
    kept = call(0)
    device.flush()
    assert kept is not None
    return mock.Mock(gpu_us=5.0)


def test_rows_without_tiles_are_left_out_where_tiles_are_compared(device):
    names = {w["name"] for w in listed("full", [], True)}
    assert {"long", "varlen", "backward-long"} <= names
    assert not {name for name in names if name.startswith("decode")}
    assert [w["name"] for w in listed("full", ["decode"], True)] == ["decode"]
