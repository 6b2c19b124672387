"""What decoding and appending at the position of a state dispatch: `py_attn.kernels.decode.step`."""

import pytest

import py_attn as pa
from py_attn.kernels.decode.step import append_step, decode_attention_step, decode_partials_step
from py_attn.kernels.steps import new_state
from tests.test_plans import plan

FLOATS = ("float32", "float16", "bfloat16")


@pytest.fixture
def state(device):
    return new_state(device)


@pytest.fixture
def query(device):
    """The log of 50 positions' queries of 6 heads, stored [50, 6, 16]."""
    return device.empty((1, 50, 6, 16)).transpose(0, 2, 1, 3)


def cache_of(dtype="float32", capacity=32, **options):
    return pa.KVCache(1, 3, capacity, 16, dtype=dtype, **options)


@pytest.mark.parametrize("splits", [1, 2, 16])
@pytest.mark.parametrize("capacity", [4, 32, 2048])
def test_splits_take_blocks_in_turn_of_whatever_there_is(device, query, state, splits, capacity):
    cache = cache_of(capacity=capacity)
    found = plan(device, decode_attention_step, query, cache, state, splits=splits)
    shader, params, workgroups, buffers = found[0]
    assert [each[0].name for each in found] == ["decode_split", *["decode_reduce"] * (splits > 1)]
    assert workgroups == (splits, 3, 1)
    assert "state" in buffers
    block = params["split_first"]
    wanted = {"splits": splits, "split_span": capacity, "split_stride": splits * block, "first_key": 0,
              "queries": 1, "capacity": capacity, "query_strides": [0, 16, 96, 1],
              "state_first": 0}  # fmt: skip
    assert {name: params[name] for name in wanted} == wanted
    assert "state[params.state_first]" in shader.wgsl


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("splits", [1, 16])
def test_partials_have_as_many_splits_as_asked_for(device, query, state, dtype, splits):
    cache = cache_of(dtype, capacity=4)
    out, rows = decode_partials_step(query, cache, state, splits=splits)
    assert (out.shape, out.dtype) == ((1, 6, 1, splits, 16), "float32")
    assert (rows.shape, rows.dtype) == ((1, 6, 1, splits, 2), "float32")
    (found,) = plan(device, decode_partials_step, query, cache, state, splits=splits)
    assert list(found[3]) == ["query", "state", "key", "value", "out", "partial_rows"]


def test_quantised_keys_rotate_the_row_of_the_position(device, query, state):
    cache = pa.KVCache(1, 3, 32, 16, dtype=("turboquant3", "float16"), qjl=True)
    rotation, split = plan(device, decode_partials_step, query, cache, state, splits=2)
    assert list(rotation[3]) == ["source", "state", "out"]
    assert rotation[1]["count"] == 1
    assert "state_position() + n" in rotation[0].wgsl
    # The rotated query is a single row.
    assert "let query_row = 0u;" in split[0].wgsl


def test_quantised_values_have_no_partials(query, state):
    with pytest.raises(ValueError, match=r"^cache: expected no TurboQuant values, got turboquant4"):
        decode_partials_step(query, cache_of("turboquant4"), state, splits=2)
    assert decode_attention_step(query, cache_of("turboquant4"), state, splits=2).shape == (1, 6, 1, 16)


@pytest.mark.parametrize("dtype", [*FLOATS, "turboquant4"])
def test_one_plan_serves_all_steps_and_layers(device, query, state, dtype):
    rows = device.empty((1, 3, 1, 16))
    for total in (0, 7, 1000):
        cache = cache_of(dtype, sink_tokens=2)
        cache.set_total(total)
        append_step(rows, rows, cache, state)
        decode_attention_step(query, cache, state, splits=4)
        assert cache.total == total
    assert len(device.plans) == 2


def test_appends_go_to_the_slots_of_positions(device, state):
    cache = pa.KVCache(1, 3, 32, 16, dtype=("float16", "turboquant4"), sink_tokens=2)
    rows = device.empty((1, 3, 30, 16))
    written = plan(device, append_step, rows, rows, cache, state)
    assert [shader.name for shader, *_ in written] == ["cache_append", "turboquant_quantize"]
    for (shader, params, _, buffers), storage in zip(written, (cache.keys, cache.values), strict=True):
        assert (params["count"], params["capacity"], params["kept"]) == (30, 32, 2)
        assert buffers["cache"][0] == storage._storage.handle
        assert "let slot = state_position() + n;" in shader.wgsl


def test_a_state_may_be_a_part_of_a_tensor(device, query):
    state = device.tensor([0] * 12, "uint32")[8:]
    (found,) = plan(device, decode_partials_step, query, cache_of(), state, splits=1)
    assert found[1]["state_first"] == 8


def test_without_a_state_nothing_reads_one(device, query):
    cache = cache_of()
    rows = device.empty((1, 3, 5, 16))
    found = plan(device, cache.append, rows, rows)
    found += plan(device, pa.decode_attention, query, cache)
    for shader, _, _, buffers in found:
        assert "state" not in buffers
        assert "state" not in shader.wgsl.replace("state_first", "")


# Errors


WRONG = [
    ({"query": (6, 4, 16)}, ValueError, r"^query: expected \[B, Hq, history >= 1, D\], got \[6, 4, 16\]"),
    ({"query": (1, 6, 0, 16)}, ValueError, r"^query: expected \[B, Hq, history >= 1, D\]"),
    ({"query": (1, 5, 4, 16)}, ValueError, "^query: expected heads to be a multiple of the 3"),
    ({"query": (1, 6, 4, 8)}, ValueError, "^key: expected the query's head dim 8, got 16"),
    ({"splits": 0}, ValueError, '^splits: expected "auto" or a number from 1 to 1024, got 0'),
    ({"splits": 1.5}, TypeError, "^splits: expected an integer"),
    ({"state": None}, TypeError, "^state: expected a Tensor, got NoneType"),
    ({"state": (3,)}, ValueError, r"^state: expected uint32 \[4\], got uint32 \[3\]"),
]


@pytest.mark.parametrize("call", [decode_attention_step, decode_partials_step])
@pytest.mark.parametrize(("changes", "error", "message"), WRONG)
def test_wrong_arguments_of_a_decode(device, bridge, state, call, changes, error, message):
    query = device.empty(changes.get("query", (1, 6, 4, 16)))
    given = changes.get("state", ())
    wrong = device.empty(given, "uint32") if given else None if given is None else state
    with pytest.raises(error, match=message):
        call(query, cache_of(), wrong, splits=changes.get("splits", 2))
    device.flush()
    assert bridge.programs == []


def test_what_is_destroyed_is_named(device, query, state):
    cache = cache_of()
    for _ in range(2):
        decode_attention_step(query, cache, state, splits=2)
    with pytest.raises(TypeError, match=r"^cache: expected a KVCache, got NoneType"):
        decode_attention_step(query, None, state, splits=2)
    state.destroy()
    with pytest.raises(ValueError, match=r"^state: the tensor was destroyed"):
        decode_attention_step(query, cache, state, splits=2)
    cache.destroy()
    with pytest.raises(ValueError, match=r"^cache: the tensor was destroyed"):
        append_step(query, query, cache, state)


def test_a_ragged_cache_has_its_own_lengths(device, query, state):
    cache = cache_of(ragged=True)
    rows = device.empty((1, 3, 1, 16))
    for call, arguments in (
        (append_step, (rows, rows, cache, state)),
        (decode_attention_step, (query, cache, state)),
        (decode_partials_step, (query, cache, state)),
    ):
        with pytest.raises(ValueError, match=r"^cache: expected one that is not ragged"):
            call(*arguments)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            ((1, 3, 31, 16), (1, 3, 31, 16)),
            "^key: expected at most the 30 positions that the ring holds, got 31",
        ),
        (((1, 2, 1, 16), (1, 2, 1, 16)), r"^key: expected \[1, 3, S >= 1, 16\]"),
        (((1, 3, 0, 16), (1, 3, 0, 16)), r"^key: expected \[1, 3, S >= 1, 16\]"),
        (((1, 3, 2, 16), (1, 3, 1, 16)), "^value: expected the key's 2 positions"),
    ],
)
def test_wrong_rows_to_append(device, bridge, state, shapes, message):
    cache = cache_of(sink_tokens=2)
    rows = [device.empty(shape) for shape in shapes]
    with pytest.raises(ValueError, match=message):
        append_step(*rows, cache, state)
    device.flush()
    assert bridge.programs == []


def test_a_cache_is_told_how_many_were_appended(device):
    cache = cache_of(sink_tokens=2)
    cache.set_total(45)
    assert (cache.total, cache.length, cache.start) == (45, 32, 13)
    rows = device.empty((1, 3, 1, 16))
    first, _ = plan(device, cache.append, rows, rows)
    assert first[1]["first_slot"] == 2 + 43 % 30
    for total, error in ((-1, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match=r"^total: expected"):
            cache.set_total(total)
    assert cache.total == 46
