"""The kernels with quantised weights without a GPU: what would be dispatched, and what is refused."""

import asyncio
import dataclasses

import numpy as np
import pytest

from py_attn.gpu.device import request_device
from py_attn.kernels import nn
from py_attn.kernels.nn.quantized_linear import LinearConfig, configure
from py_attn.kernels.steps import new_state
from tests.recording_bridge import RecordingBridge
from tests.test_device import device_on

DESKTOP = {"software": False, "subgroup_size": 32, "features": ("subgroups",)}


def matrix(device, rows, inner=64, form="Q4_1"):
    words = rows * inner // 32 * {"Q4_1": 5, "Q8_0": 9}[form]
    return nn.QuantizedMatrix(device.empty((words,), "uint32"), rows, inner, form)


def blocks(device, rows, inner=64, form="Q4_1"):
    nbytes = rows * inner // 32 * {"Q4_1": 20, "Q8_0": 34}[form]
    return device.empty((-(-nbytes // 4),), "uint32")


class Layer:
    """Tensors of a small model: width 64, two query heads and a key/value head of 32, 40 tokens at most."""

    def __init__(self, device):
        self.device, self.state = device, new_state(device)
        self.x, self.norm = device.empty((40, 64)), device.empty((64,))
        self.rope, self.query = device.empty((40, 16, 2)), device.empty((40, 2, 32))
        self.key, self.value = (device.empty((1, 1, 10, 32), "float16") for _ in range(2))
        self.qkv, self.out = matrix(device, 128), matrix(device, 64)
        self.gated, self.down = matrix(device, 2 * 96), matrix(device, 64, 96)
        self.table = matrix(device, 50, form="Q8_0")
        self.partials = device.empty((1, 2, 1, 3, 32)), device.empty((1, 2, 1, 3, 2))

    def project(self, **changes):
        names = ("x", "norm", "weight", "rope", "query", "key", "value", "state")
        given = {"weight": self.qkv} | {n: getattr(self, n) for n in names if n != "weight"} | changes
        sizes = {"head_dim": 32, "heads": 2, "kv_heads": 1} | {
            name: given.pop(name) for name in list(given) if name not in names
        }
        nn.project_qkv(*(given[name] for name in names), **sizes)

    def add(self, inputs=None, weight=None, x=None, state=None, **options):
        inputs = self.device.empty((options.get("count", 1), 64)) if inputs is None else inputs
        options = {"heads": 2} | options
        nn.add_projection(
            self.x if x is None else x, inputs, weight or self.out, state or self.state, **options
        )


def launches_of(bridge, device):
    device.flush()
    return bridge.launches


@pytest.mark.parametrize(
    ("form", "interleave", "params"),
    [
        ("Q4_1", False, [(6, 0, 1), (4, 3, 1)]),
        ("Q8_0", True, [(4, 0, 2), (4, 1, 2)]),
    ],
)
def test_packing_is_a_launch_for_each_matrix(bridge, device, form, interleave, params):
    rows = [2, 2] if interleave else [3, 2]
    packed = nn.pack_quantized(
        [blocks(device, n, form=form) for n in rows], rows, 64, form, interleave=interleave
    )
    assert (packed.rows, packed.inner, packed.format) == (sum(rows), 64, form)
    assert packed.data.shape == (sum(rows) * 2 * {"Q4_1": 5, "Q8_0": 9}[form],)
    assert packed.nbytes == packed.data.nbytes
    launches = launches_of(bridge, device)
    assert [launch.label.split(" ")[0] for launch in launches] == [f"pack_quantized/{form}"] * 2
    assert [tuple(np.frombuffer(launch.params, np.uint32)[:3]) for launch in launches] == params
    packed.destroy()
    assert packed.data.destroyed


def test_five_dispatches_write_in_place(bridge, device):
    layer = Layer(device)
    before = device.memory_allocated()
    layer.project()
    layer.add(layer.partials, head_scale=device.empty((2,)))
    hidden = nn.gated_linear(layer.x, layer.norm, layer.gated, layer.state)
    layer.add(hidden, layer.down)
    assert hidden.shape == (1, 96)
    assert device.memory_allocated() - before <= hidden.nbytes + 16
    assert [launch.label.split("/")[0] for launch in launches_of(bridge, device)] == [
        "project_qkv",
        "add_projection",
        "gated_linear",
        "add_projection",
    ]


def test_logits_of_rows_and_of_the_position(bridge, device):
    layer = Layer(device)
    assert nn.logits(layer.x, layer.norm, layer.table, first_row=5, count=3).shape == (3, 50)
    assert nn.logits(layer.x, layer.norm, layer.table, state=layer.state).shape == (1, 50)
    plain, stepped = launches_of(bridge, device)
    assert len(stepped.buffers) == len(plain.buffers) + 1
    assert "state_position()" not in plain.wgsl


def test_rows_and_tokens_are_covered(bridge, device):
    layer = Layer(device)
    for count in (1, 3, 17):
        layer.add(count=count)
        nn.gated_linear(layer.x, layer.norm, layer.gated, layer.state, count=count)
    for launch, rows, count in zip(
        launches_of(bridge, device), (64, 192) * 3, (1, 1, 3, 3, 17, 17), strict=True
    ):
        config = configure(device.info, rows, 64, count)
        teams = -(-rows // config.rows_each) * -(-count // config.tokens_each)
        assert launch.workgroups == (-(-teams * config.lanes // config.workgroup), 1, 1)


def test_a_repeated_call_is_not_checked_again(device, monkeypatch):
    layer = Layer(device)
    layer.project()
    layer.add(layer.partials)
    monkeypatch.setattr("py_attn.kernels.nn.projections.plan_linear", None)
    layer.project()
    layer.add(layer.partials)
    with pytest.raises(TypeError):
        layer.project(epsilon=1e-6)


@pytest.mark.parametrize(
    ("subgroup_size", "lanes", "subgroups"), [(0, 32, False), (4, 32, False), (8, 8, True), (64, 32, True)]
)
def test_lanes_fit_into_the_smallest_subgroup(subgroup_size, lanes, subgroups):
    bridge = RecordingBridge(software=False, subgroup_size=subgroup_size)
    config = configure(bridge.info, 960, 576, 1)
    assert (config.lanes, config.subgroups) == (lanes, subgroups)
    # Every lane takes as many parts at each step.
    assert -(-72 // lanes) % config.ahead == 0


def test_a_software_adapter_exchanges_nothing(bridge):
    for count in (1, 20):
        assert configure(bridge.info, 960, 576, count).lanes == 1


def test_any_configuration_can_be_given(bridge, device):
    layer = Layer(device)
    layer.add(config=LinearConfig(16, 4, 1, 1, 2, 64, False))
    (launch,) = launches_of(bridge, device)
    assert launch.label.startswith("add_projection/Q4_1, 4, 16 lanes")
    assert "workgroupBarrier" in launch.wgsl
    assert launch.workgroups == (4, 1, 1)


def test_only_shuffles_need_subgroups():
    bridge = RecordingBridge(**DESKTOP)
    device = device_on(bridge)
    Layer(device).add()
    (launch,) = launches_of(bridge, device)
    assert launch.wgsl.startswith("enable subgroups;")
    assert launch.label.endswith("subgroup")


def view_from(device, element, *shape):
    return device.empty((element + int(np.prod(shape)),))[element:].reshape(*shape)


def destroyed(tensor):
    tensor.destroy()
    return tensor


def elsewhere():
    return asyncio.run(request_device(RecordingBridge()))


def pack(device, given, rows, inner=64, form="Q4_1", **options):
    nn.pack_quantized(given, rows, inner, form, **options)


CASES = {
    "no blocks": (lambda m, d: pack(d, [], []), "rows: expected a number for each of one or more blocks"),
    "rows": (lambda m, d: pack(d, [blocks(d, 2)], [2, 2]), "rows: expected a number for each"),
    "inner": (
        lambda m, d: pack(d, [blocks(d, 2)], [2], 48),
        r"blocks\[0\]: inner: expected a multiple of 32, the weights of a block, got 48",
    ),
    "format": (
        lambda m, d: pack(d, [blocks(d, 2)], [2], form="Q4_0"),
        r"blocks\[0\]: expected the format Q4_1 or Q8_0, got 'Q4_0'",
    ),
    "blocks": (
        lambda m, d: pack(d, [blocks(d, 2), blocks(d, 3)], [2, 2]),
        r"blocks\[1\]: expected uint32 \[20\] without gaps, the 80 bytes of its blocks, got uint32 \[30\]",
    ),
    "interleave": (
        lambda m, d: pack(d, [blocks(d, 2), blocks(d, 3)], [2, 3], interleave=True),
        r"rows: expected equal numbers of rows, which can be interleaved, got \[2, 3\]",
    ),
    "blocks elsewhere": (
        lambda m, d: pack(d, [blocks(d, 2), blocks(elsewhere(), 2)], [2, 2]),
        r"blocks\[1\]: the tensor is on another device",
    ),
    "matrix data": (
        lambda m, d: m.add(weight=dataclasses.replace(m.out, inner=96)),
        r"weight.data: expected uint32 \[960\] for Q4_1 \[64, 96\], without gaps",
    ),
    "x width": (
        lambda m, d: m.project(x=d.empty((40, 96))),
        r"x: expected shape \[40, 64\], got \[40, 96\]",
    ),
    "x begins": (
        lambda m, d: m.project(x=view_from(d, 2, 40, 64)),
        "x: expected a view from a multiple of 4 elements on, got one from element 2",
    ),
    "x dtype": (
        lambda m, d: m.project(x=d.empty((40, 64), "float16")),
        "x: expected dtype float32, got float16",
    ),
    "norm": (lambda m, d: m.project(norm=d.empty((32,))), r"norm: expected shape \[64\], got \[32\]"),
    "norm elsewhere": (
        lambda m, d: m.project(norm=elsewhere().empty((64,))),
        "norm: the tensor is on another device",
    ),
    "weight elsewhere": (
        lambda m, d: m.project(weight=matrix(elsewhere(), 128)),
        "weight.data: the tensor is on another device",
    ),
    "weight rows": (
        lambda m, d: m.project(weight=matrix(d, 96)),
        "weight: expected 128 rows for 2 query and twice 1 key/value heads of 32, got 96",
    ),
    "head_dim": (lambda m, d: m.project(head_dim=31), "head_dim: expected an even number"),
    "heads": (lambda m, d: m.project(kv_heads=3), "heads: expected a multiple of the 3 key/value heads"),
    "rope": (lambda m, d: m.project(rope=d.empty((40, 32))), r"rope: expected shape \[40, 16, 2\]"),
    "rope positions": (
        lambda m, d: m.project(rope=d.empty((39, 16, 2))),
        "rope: expected at least the 40 positions of query, got 39",
    ),
    "query": (lambda m, d: m.project(query=d.empty((40, 64))), r"query: expected shape \[40, 2, 32\]"),
    "key": (
        lambda m, d: m.project(key=d.empty((1, 2, 10, 32))),
        r"key: expected shape \[1, 1, capacity, 32\], got \[1, 2, 10, 32\]",
    ),
    "value": (
        lambda m, d: m.project(value=d.empty((1, 1, 9, 32))),
        "value: expected the key's 10 slots, got 9",
    ),
    "codes": (
        lambda m, d: m.project(key=d.empty((1, 1, 10, 32), "uint32")),
        "key: expected dtype float32, float16 or bfloat16, got uint32",
    ),
    "new rows": (
        lambda m, d: m.project(cache=False),
        "key: expected dtype float32, got float16",
    ),
    "new rows' count": (
        lambda m, d: m.project(cache=False, count=3, key=d.empty((1, 1, 2, 32))),
        r"key: expected shape \[1, 1, 3, 32\], got \[1, 1, 2, 32\]",
    ),
    "kept": (lambda m, d: m.project(kept=10), "kept: expected 0 to 9 for 10 slots, got 10"),
    "count": (lambda m, d: m.project(count=0), "count: expected at least 1, got 0"),
    "count of rows": (lambda m, d: m.project(count=41), "count: expected at most the 40 rows of x, got 41"),
    "epsilon": (lambda m, d: m.project(epsilon=-1.0), "epsilon: expected a number >= 0, got -1.0"),
    "state": (
        lambda m, d: m.project(state=d.empty((3,), "uint32")),
        r"state: expected uint32 \[4\], got uint32 \[3\]",
    ),
    "destroyed": (lambda m, d: m.project(value=destroyed(m.value)), "value: the tensor was destroyed"),
    "inputs": (
        lambda m, d: m.add(d.empty((1, 32))),
        r"inputs: expected shape \[1, 64\], got \[1, 32\]",
    ),
    "three inputs": (
        lambda m, d: m.add((m.x, m.x, m.x)),
        "inputs: expected a tensor, or the splits' outputs and rows, got 3 tensors",
    ),
    "splits of a prefill": (
        lambda m, d: m.add(m.partials, count=2),
        "count: expected 1 with inputs of splits, got 2",
    ),
    "partial_out": (
        lambda m, d: m.add((m.partials[1], m.partials[1])),
        r"inputs\[0\]: expected shape \[1, 2, 1, 3, 32\], got \[1, 2, 1, 3, 2\]",
    ),
    "partial_rows": (
        lambda m, d: m.add((m.partials[0], d.empty((1, 2, 1, 4, 2)))),
        r"inputs\[1\]: expected shape \[1, 2, 1, 3, 2\], got \[1, 2, 1, 4, 2\]",
    ),
    "head_scale": (
        lambda m, d: m.add(head_scale=d.empty((3,))),
        r"head_scale: expected shape \[2\], got \[3\]",
    ),
    "heads of inputs": (
        lambda m, d: m.add(head_scale=d.empty((4,)), heads=4),
        r"heads: expected heads of a multiple of 32 numbers \(the weights of a block\) that make up the 64",
    ),
    "gated rows": (
        lambda m, d: nn.gated_linear(m.x, m.norm, matrix(d, 3), m.state),
        "weight: expected an even number of rows, gate and up in turn, got 3",
    ),
    "first_row": (
        lambda m, d: nn.logits(m.x, m.norm, m.table, first_row=39, count=2),
        "first_row: expected 0 to 38 for 2 of 40 rows, got 39",
    ),
    "tokens": (
        lambda m, d: nn.embed_tokens(d.empty((41,), "int32"), m.table, m.x, m.state),
        r"tokens: expected uint32 \[history\], got int32 \[41\]",
    ),
}


@pytest.mark.parametrize(("call", "words"), CASES.values(), ids=CASES.keys())
def test_bad_arguments_are_named(bridge, device, call, words):
    layer = Layer(device)
    with pytest.raises((ValueError, TypeError), match=words):
        call(layer, device)
    assert launches_of(bridge, device) == []


def test_what_is_no_matrix_or_tensor(device):
    layer = Layer(device)
    for call in (
        lambda: layer.project(weight=layer.x),
        lambda: layer.add(weight=layer.x),
        lambda: nn.gated_linear(layer.x, layer.norm, layer.x, layer.state),
    ):
        with pytest.raises(TypeError, match="weight: expected a QuantizedMatrix, got Tensor"):
            call()
    for call in (
        lambda: nn.logits(layer.x, layer.norm, layer.x),
        lambda: nn.embed_tokens(layer.x, layer.x, layer.x, layer.state),
    ):
        with pytest.raises(TypeError, match="table: expected a QuantizedMatrix, got Tensor"):
            call()
    with pytest.raises(TypeError, match="x: expected a Tensor, got ndarray"):
        layer.project(x=np.zeros((40, 64), np.float32))
    with pytest.raises(TypeError, match=r"blocks\[0\]: expected a Tensor, got ndarray"):
        pack(device, [np.zeros(10, np.uint32)], [1])
