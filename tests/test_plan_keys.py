"""Calls with the same plan key: what was checked and planned for the first holds for the others."""

import asyncio
import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import py_attn as pa
from py_attn.gpu import device as gpu_device
from py_attn.gpu import kernel as gpu_kernel
from py_attn.gpu.kernel import plan_key
from py_attn.kernels.attention import options
from tests.recording_bridge import RecordingBridge

FLOATS = ("float32", "float16", "bfloat16")


def device_on(bridge):
    return asyncio.run(gpu_device.request_device(bridge))


@pytest.fixture
def checked(monkeypatch):
    """How often a call was checked from the beginning."""
    calls = []
    resolve = options.resolve_problem
    monkeypatch.setattr(options, "resolve_problem", lambda *a, **k: calls.append(a) or resolve(*a, **k))
    return calls


def zeros(device, *shape, dtype="float32"):
    return device.tensor(np.zeros(shape, np.float32), dtype)


def qkv(device, dtype="float32"):
    return [zeros(device, 1, 2, length, 8, dtype=dtype) for length in (5, 7, 7)]


SIDES = st.none() | st.integers(0, 3)
#: Each part of a call by itself, so that two calls may differ in one of them.
PARTS = {
    "batch": st.integers(1, 2),
    "group": st.integers(1, 2),
    "kv_heads": st.integers(1, 2),
    "queries": st.sampled_from([1, 5, 40]),
    "keys": st.sampled_from([1, 7, 40]),
    "dim": st.sampled_from([3, 8]),
    "value_dim": st.sampled_from([4, 8]),
    "dtypes": st.tuples(*[st.sampled_from(FLOATS)] * 3),
    "begins": st.tuples(*[st.integers(0, 2)] * 3),
    "steps": st.tuples(*[st.integers(1, 2)] * 3),
    "layout": st.sampled_from(["BHSD", "BSHD"]),
    "causal": st.sampled_from([False, True, "bottom-right", "top-left"]),
    "window": SIDES | st.tuples(SIDES, SIDES),
    "scale": st.none() | st.sampled_from([0.5, 1, 2.0]),
    "softcap": st.sampled_from([None, 0, 3, 20.0]),
    "return_lse": st.booleans(),
    "variant": st.sampled_from(["auto", "naive", "tiled"]),
    "mask": st.sampled_from([None, "bool", "float32"]),
    "kv_lengths": st.sampled_from([None, "int32"]),
    "sinks": st.sampled_from([None, "float32", "float16"]),
}
OPTIONS = ("layout", "causal", "window", "scale", "softcap", "return_lse", "variant")


@st.composite
def alike(draw):
    """A right call, and some that differ from it in one part each."""
    first = {name: draw(part) for name, part in PARTS.items()}
    names = draw(st.lists(st.sampled_from(list(PARTS)), max_size=4))
    return [first, *({**first, name: draw(PARTS[name])} for name in names)]


def make(device, call):
    """The tensors of a call, views of larger ones, and its keywords."""
    batch, heads, keys = call["batch"], call["group"] * call["kv_heads"], call["keys"]
    shapes = [
        (batch, heads, call["queries"], call["dim"]),
        (batch, call["kv_heads"], keys, call["dim"]),
        (batch, call["kv_heads"], keys, call["value_dim"]),
    ]
    if call["layout"] == "BSHD":
        shapes = [(b, s, h, d) for b, h, s, d in shapes]
    tensors = [
        zeros(device, b, 2 + 2 * n, m, d, dtype=dtype)[:, begin::step][:, :n]
        for (b, n, m, d), dtype, begin, step in zip(
            shapes, call["dtypes"], call["begins"], call["steps"], strict=True
        )
    ]
    wanted = {"mask": (call["queries"], keys), "kv_lengths": (batch,), "sinks": (heads,)}
    given = {name: device.tensor(np.ones(shape, call[name])) for name, shape in wanted.items() if call[name]}
    return tensors, {name: call[name] for name in OPTIONS} | given


def launched(bridge, tensors, keywords):
    """The launch of one call, its buffers by their order of appearance, and what came back."""
    before = len(bridge.launches)
    result = pa.attention(*tensors, **keywords)
    tensors[0].device.flush()
    (launch,) = bridge.launches[before:]
    order = {}
    buffers = [(order.setdefault(handle, len(order)), *rest) for handle, *rest in launch.buffers]
    results = result if isinstance(result, tuple) else (result,)
    seen = [(t.shape, t.strides, t.offset, t.dtype) for t in results]
    assert launch.buffers[-1][0] == results[-1]._storage.handle
    return launch.label, launch.wgsl, launch.params, launch.workgroups, buffers, seen


@given(alike())
def test_a_kept_plan_launches_what_a_new_one_would(several):
    bridge = RecordingBridge()
    device = device_on(bridge)
    for call in several * 2:
        fresh = RecordingBridge()
        expected = launched(fresh, *make(device_on(fresh), call))
        assert launched(bridge, *make(device, call))[1:] == expected[1:]


def test_calls_with_one_key_are_checked_once(device, checked):
    for _ in range(3):
        pa.attention(*qkv(device), causal=True, window=(3, None))
    assert len(checked) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"causal": True},
        {"causal": "top-left"},
        {"scale": 1.0},
        {"softcap": 2.0},
        {"window": 3},
        {"window": (3, None)},
        {"query_offset": 1},
    ],
    ids=str,
)
def test_another_option_is_another_key(device, bridge, checked, options):
    inputs = qkv(device)
    plain = launched(bridge, inputs, {})
    assert launched(bridge, inputs, options)[2] != plain[2]
    assert launched(bridge, inputs, {})[1:] == plain[1:]
    assert len(checked) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda d, q, k, v: (zeros(d, 1, 2, 5, 8, dtype="float16"), k, v),
        lambda d, q, k, v: (zeros(d, 1, 2, 6, 8)[:, :, 1:], k, v),
        lambda d, q, k, v: (zeros(d, 1, 5, 2, 8).transpose(0, 2, 1, 3), k, v),
        lambda d, q, k, v: (q, zeros(d, 1, 1, 7, 8), zeros(d, 1, 1, 7, 8)),
        lambda d, q, k, v: (q, k, v[..., :4]),
    ],
    ids=["dtype", "offset", "strides", "heads", "value head dim"],
)
def test_other_tensors_are_another_key(device, bridge, checked, change):
    inputs = qkv(device)
    launched(bridge, inputs, {})
    launched(bridge, change(device, *inputs), {})
    assert len(checked) == 2


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ({"causal": True}, {"causal": 1}),
        ({"causal": False}, {"causal": 0}),
        ({"window": 1}, {"window": True}),
        ({"window": (1, 1)}, {"window": (1, True)}),
        ({"window": 3}, {"window": (3,)}),
        ({"scale": 1.0}, {"scale": True}),
        ({"softcap": 1}, {"softcap": True}),
        ({"query_offset": 0}, {"query_offset": False}),
        ({"query_offset": 1}, {"query_offset": 1.0}),
    ],
    ids=str,
)
def test_what_equals_something_right_is_still_refused(device, right, wrong):
    inputs = qkv(device)
    pa.attention(*inputs, **right)
    with pytest.raises((TypeError, ValueError), match=f"{next(iter(wrong))}.*: expected"):
        pa.attention(*inputs, **wrong)


def test_arrays_and_functions_have_no_key(device, checked):
    inputs = qkv(device)
    for _ in range(2):
        pa.attention(*inputs, kv_lengths=np.array([7]))
        pa.attention(*inputs, mask_mod=lambda b, h, q, k: k <= q)
        pa.attention(*inputs, scale=np.float32(0.5))
        pa.attention(*inputs, softcap=np.float32(2))
        pa.attention(*(np.zeros(x.shape, np.float32) for x in inputs))
    assert len(checked) == 10
    assert plan_key("attention", [inputs[0], None], [object()]) is None


def test_a_destroyed_tensor_is_refused_though_there_is_a_plan(device):
    inputs = qkv(device)
    pa.attention(*inputs)
    inputs[1].destroy()
    with pytest.raises(ValueError, match="key: the tensor was destroyed"):
        pa.attention(*inputs)
    lengths = device.tensor([7], "int32")
    pa.attention(*qkv(device), kv_lengths=lengths)
    lengths.destroy()
    with pytest.raises(ValueError, match="kv_lengths: the tensor was destroyed"):
        pa.attention(*qkv(device), kv_lengths=lengths)


def test_tensors_of_two_devices_are_refused_though_there_is_a_plan(device):
    inputs = qkv(device)
    pa.attention(*inputs)
    other = qkv(device_on(RecordingBridge()))
    with pytest.raises(ValueError, match="value: the tensor is on another device"):
        pa.attention(inputs[0], inputs[1], other[2])


def test_a_lost_device_is_refused_though_there_is_a_plan(device, bridge):
    inputs = qkv(device)
    pa.attention(*inputs)
    bridge.reason = "unknown"
    with pytest.raises(pa.errors.DeviceLostError, match="lost"):
        pa.attention(*inputs)


def test_plans_hold_no_tensors(device):
    pa.attention(*qkv(device), kv_lengths=device.tensor([7], "int32"), return_lse=True)
    gc.collect()
    assert device.memory_allocated() == 0


def test_there_are_only_so_many_plans(device, monkeypatch, checked):
    monkeypatch.setattr(gpu_kernel, "_MAX_PLANS", 3)
    inputs = qkv(device)
    for window in range(5):
        pa.attention(*inputs, window=window)
    assert len(device.plans) <= 3
    pa.attention(*inputs, window=4)
    pa.attention(*inputs, window=0)
    assert len(checked) == 6


def test_recording_and_timers_use_plans_too(device, bridge):
    inputs = qkv(device)
    pa.attention(*inputs)
    with device.record() as program:
        pa.attention(*inputs)
    program.submit()
    with device.timer() as timer:
        pa.attention(*inputs)
    assert [row.kernel for row in asyncio.run(timer.results())] == ["attention"]
    assert len({(launch.wgsl, launch.params, launch.workgroups) for launch in bridge.launches}) == 1
    assert len(bridge.launches) == 3


def test_outputs_of_a_kept_plan_are_poisoned_where_asked(device):
    inputs = qkv(device)
    pa.attention(*inputs)
    device.poison_outputs = True
    assert np.isnan(asyncio.run(pa.attention(*inputs).numpy())).all()


def test_backward_and_forward_have_different_keys(device, bridge):
    inputs = qkv(device)
    out, lse = pa.attention(*inputs, return_lse=True)
    for _ in range(2):
        bridge.programs.clear()
        pa.attention_backward(out, *inputs, out, lse)
        device.flush()
        kernels = [launch.label.split("/")[0] for launch in bridge.launches]
        assert len(kernels) == 3


def test_packed_calls_of_other_sequences_are_planned_apart(device, bridge):
    inputs = [zeros(device, 12, 2, 8) for _ in range(3)]
    seen = set()
    for ends in ([0, 12], [0, 4, 8, 12], [0, 12]):
        pa.varlen_attention(*inputs, ends, ends)
        device.flush()
        seen.add((len(ends), bridge.launches[-1].params, bridge.launches[-1].workgroups))
    assert len(seen) == 2


DECODE_PARTS = {
    "kv_heads": st.integers(1, 2),
    "group": st.integers(1, 2),
    "queries": st.integers(1, 2),
    "begin": st.integers(0, 2),
    "dim": st.sampled_from([8, 24]),
    "value_dim": st.sampled_from([8, 12]),
    "query_dtype": st.sampled_from(FLOATS),
    "dtype": st.sampled_from(["float32", "float16", "turboquant4", ("turboquant3", "bfloat16")]),
    "qjl": st.booleans(),
    "capacity": st.sampled_from([8, 64]),
    "appended": st.sampled_from([5, 7, 20, 64]),
    "sink_tokens": st.sampled_from([0, 2]),
    "window": st.sampled_from([None, 0, 3]),
    "scale": st.sampled_from([None, 1, 2.0]),
    "softcap": st.sampled_from([None, 3, 20.0]),
    "splits": st.sampled_from(["auto", 1, 3]),
    "return_lse": st.booleans(),
    "sinks": st.sampled_from([None, "float32", "float16"]),
}


@st.composite
def alike_decodes(draw):
    """A right decode, and for each of its parts one that differs in this part."""
    first = {name: draw(part) for name, part in DECODE_PARTS.items()}
    return [first, *({**first, name: draw(part)} for name, part in DECODE_PARTS.items())]


def decoded(bridge, device, call):
    """The launches of one decode, their buffers by their order of appearance."""
    quantised = "turboquant" in str(call["dtype"])
    cache = pa.KVCache(
        1,
        call["kv_heads"],
        call["capacity"],
        call["dim"],
        value_head_dim=call["value_dim"],
        dtype=call["dtype"],
        qjl=call["qjl"] and quantised,
        sink_tokens=call["sink_tokens"],
        device=device,
    )
    shape = 1, call["kv_heads"], call["appended"]
    cache.append(np.zeros((*shape, call["dim"])), np.zeros((*shape, call["value_dim"])))
    heads, n, begin = call["kv_heads"] * call["group"], call["queries"], call["begin"]
    query = zeros(device, 1, heads, n + 2, call["dim"], dtype=call["query_dtype"])[:, :, begin : begin + n]
    names = "window", "scale", "softcap", "splits", "return_lse"
    keywords = {name: call[name] for name in names}
    if call["sinks"]:
        keywords["sinks"] = device.tensor(np.ones(heads), call["sinks"])
    device.flush()
    before = len(bridge.launches)
    results = pa.decode_attention(query, cache, **keywords)
    device.flush()
    order = {}
    launches = [
        (x.wgsl, x.params, x.workgroups, [(order.setdefault(h, len(order)), *r) for h, *r in x.buffers])
        for x in bridge.launches[before:]
    ]
    results = results if isinstance(results, tuple) else (results,)
    return launches, [(t.shape, t.strides, t.offset, t.dtype) for t in results]


@given(alike_decodes())
@settings(max_examples=50)
def test_a_kept_plan_of_a_decode_launches_what_a_new_one_would(several):
    bridge = RecordingBridge()
    device = device_on(bridge)
    for call in several:
        fresh = RecordingBridge()
        assert decoded(bridge, device, call) == decoded(fresh, device_on(fresh), call)


def test_a_kept_plan_of_a_decode_checks_its_tensors(device):
    query = zeros(device, 1, 2, 1, 8)
    sinks = zeros(device, 2)
    cache = pa.KVCache(1, 2, 8, 8, device=device)
    cache.append(zeros(device, 1, 2, 3, 8), zeros(device, 1, 2, 3, 8))
    for _ in range(2):
        pa.decode_attention(query, cache, sinks=sinks)
    assert len(device.plans) == 1
    with pytest.raises(TypeError, match="softcap"):
        pa.decode_attention(query, cache, softcap=True)
    sinks.destroy()
    with pytest.raises(ValueError, match="sinks: the tensor was destroyed"):
        pa.decode_attention(query, cache, sinks=sinks)
    pa.decode_attention(query, cache)
    query.destroy()
    with pytest.raises(ValueError, match="query: the tensor was destroyed"):
        pa.decode_attention(query, cache)
    cache.destroy()
    with pytest.raises(ValueError, match="cache: the tensor was destroyed"):
        pa.decode_attention(zeros(device, 1, 2, 1, 8), cache)
