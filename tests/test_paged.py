"""Caches in blocks of a pool: plans, tables, and what is refused. No GPU."""

import numpy as np
import pytest

import py_attn as pa
from tests.test_arguments import refused
from tests.test_plans import plan

TABLE = [[1, 2, -1], [0, 5, 6]]


def ones(*shape):
    return np.ones(shape)


def paged(**options):
    return pa.PagedKVCache(3, 7, 8, **{"block_table": TABLE, "block_size": 4} | options)


def test_sizes(device):
    cache = paged(dtype=("float16", "q8_0"), value_head_dim=6)
    assert (cache.batch, cache.capacity, cache.ragged) == (2, 12, True)
    assert cache.keys.shape == (7, 3, 4, 8)
    assert cache.values.shape == (7, 3, 4, 9)
    assert (cache.block_table.shape, cache.block_table.dtype) == ((2, 3), "int32")
    assert cache.nbytes == 7 * 3 * 4 * (8 * 2 + 9 * 4)
    assert repr(cache) == (
        "PagedKVCache(batch=2, kv_heads=3, blocks=7, block_size=4, head_dim=8, value_head_dim=6, "
        "dtype=('float16', 'q8_0'))"
    )


@pytest.mark.parametrize("dtype", ["float32", "turboquant4", "q4_0"])
def test_appends_and_decodes_read_the_table(device, dtype):
    cache, rows = paged(dtype=dtype), device.empty((2, 3, 5, 8))
    found = plan(device, cache.append, rows, rows, lengths=[5, 1])
    for _, params, _, buffers in found[:2]:
        assert "block_table" in buffers
        assert (params["blocks"], params["block_table_strides"], params["capacity"]) == (7, [3, 1], 12)
    assert "block_table" not in found[2][3]
    query = device.empty((2, 6, 1, 8))
    found = plan(device, pa.decode_attention, query, cache, splits=1)
    (split,) = [each for each in found if each[0].name == "decode_split"]
    assert list(split[3]) == ["query", "totals", "block_table", "key", "value", "out"]
    assert split[0].constants["BLOCK_SIZE"] == 4
    # Neither the rotation of a query nor that of an output knows of blocks.
    for shader, _, _, buffers in found:
        assert ("block_table" in buffers) == (shader.name == "decode_split")


def test_a_buffer_too_few_for_several_splits(device, bridge):
    assert bridge.info.limits["maxStorageBuffersPerShaderStage"] == 8
    scales = {"k_scale": 0.1, "v_scale": 0.1}
    cache = pa.PagedKVCache(1, 7, 8, block_table=[[1, 2]], block_size=512, dtype="int8", **scales)
    query, documents = device.empty((1, 2, 1, 8)), device.empty((1, 1024), "int32")
    found = plan(device, pa.decode_attention, query, cache)
    assert [shader.name for shader, *_ in found] == ["decode_split", "decode_reduce"]
    assert len(found[0][3]) == 8
    masked = {"mask_mod": lambda b, h, q, k: documents[b, q] == documents[b, k]}
    (split,) = plan(device, pa.decode_attention, query, cache, **masked)
    assert len(split[3]) == 8
    before = len(bridge.log)
    for options in ({"splits": 3}, {"return_lse": True}, {"left_padding": device.empty((1,), "int32")}):
        with pytest.raises(ValueError, match=r"decode_split.*: 9 buffers needed, this device binds 8"):
            pa.decode_attention(query, cache, **masked, **options)
    device.flush()
    assert not [entry for entry in bridge.log[before:] if entry[0] == "create_pipeline"]


def test_one_plan_serves_every_table(device):
    cache, rows, query = paged(), device.empty((2, 3, 1, 8)), device.empty((2, 6, 1, 8))
    for table in (TABLE, [[1, 2, 3], [0, 5, 6]]):
        cache.set_block_table(table)
        cache.append(rows, rows)
        pa.decode_attention(query, cache)
    assert len(device.plans) == 2


def test_a_cache_without_pages_knows_nothing_of_them(device):
    cache, rows = pa.KVCache(2, 3, 12, 8, ragged=True), device.empty((2, 3, 5, 8))
    found = plan(device, cache.append, rows, rows)
    found += plan(device, pa.decode_attention, device.empty((2, 6, 1, 8)), cache)
    for shader, *_ in found:
        for word in ("block_table", "page_row", "BLOCK_SIZE"):
            assert word not in shader.wgsl


def test_another_batch_over_the_same_pool(device):
    cache = paged(dtype="int8", k_scale=[1, 2, 3], v_scale=1)
    other = cache.with_block_table([[1, 2], [1, 3], [1, 4]], totals=[8, 7, 4])
    assert (other.batch, other.capacity, other.scales.shape) == (3, 8, (3, 3, 2))
    assert other.keys is cache.keys
    assert other.totals is not cache.totals
    other.destroy()
    assert not cache.keys.destroyed
    assert not cache.totals.destroyed
    assert other.totals.destroyed
    cache.destroy()
    assert cache.keys.destroyed


def test_a_table_that_was_given_as_a_tensor_stays(device):
    table = device.tensor(np.arange(6).reshape(2, 3), "uint32")
    cache = paged(block_table=table)
    assert cache.block_table is table
    cache.destroy()
    assert not table.destroyed


# Errors

WRONG = [
    ({"block_table": [[0, 7]]}, ValueError, r"^block_table: expected blocks from 0 to 6, or -1 .*7 at \[0"),
    ({"block_table": [[0], [-2]]}, ValueError, r"^block_table: expected blocks .* got -2 at \[1, 0\]"),
    ({"block_table": [0, 1]}, ValueError, r"^block_table: expected \[B, max_blocks\], got \[2\]"),
    ({"block_table": np.zeros((2, 0), int)}, ValueError, r"^block_table: expected .* got \[2, 0\]"),
    ({"block_table": [[0.0, 1.0]]}, TypeError, "^block_table: expected integers, got float64"),
    ({"block_size": 0}, ValueError, "^block_size: expected"),
    ({"block_size": 1.5}, TypeError, "^block_size: expected an integer"),
    ({"totals": [1, 13]}, ValueError, "^totals: expected values from 0 to the 12"),
    ({"totals": [1]}, ValueError, r"^totals: expected shape \[2\]"),
    ({"sink_tokens": 12}, ValueError, "^sink_tokens: expected 0 to 11"),
    ({"dtype": "int8"}, ValueError, "^k_scale: expected"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "error", "message"), WRONG)
def test_wrong_arguments(device, bridge, options, error, message):
    refused(bridge, error, message, paged, **options)


def test_wrong_tensors(device):
    with pytest.raises(TypeError, match=r"^block_table: expected integers, got float32"):
        paged(block_table=device.empty((2, 3)))
    with pytest.raises(TypeError, match=r"^totals: expected an array, got a Tensor"):
        paged(totals=device.empty((2,), "int32"))


def test_wrong_tables_later(device, bridge):
    cache = paged(sink_tokens=5)
    for table, error, message in (
        ([[0, 1, 7], [0, 0, 0]], ValueError, "^block_table: expected blocks from 0 to 6"),
        ([[0, 1], [0, 0]], ValueError, r"^block_table: expected \[2, 3\], got \[2, 2\]"),
        (device.empty((2, 3), "int32"), TypeError, "^block_table: expected an array, got a Tensor"),
    ):
        refused(bridge, error, message, cache.set_block_table, table)
    refused(
        bridge, ValueError, "^block_table: expected room for more than the 5", cache.with_block_table, [[1]]
    )
    refused(bridge, ValueError, "^totals: expected values", cache.with_block_table, [[1, 2]], totals=[9])
    cache.destroy()
    refused(bridge, ValueError, "^cache: the tensor was destroyed", cache.with_block_table, [[1, 2]])
