"""Checks of decoding and appending at the position of a state: `py_attn.kernels.decode.step`."""

from functools import partial

import numpy as np

import py_attn as pa
from e2e.page.bounds import numpy_errors, over_bound
from e2e.page.decode import decode_reference
from e2e.page.emulated_matrices import adapter_of
from e2e.page.inputs import normal, poisoned
from e2e.page.quantization import as_cached
from py_attn import turboquant_reference
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, Shader
from py_attn.kernels.decode.formats import FLOATS
from py_attn.kernels.decode.step import append_step, decode_attention_step, decode_partials_step
from py_attn.kernels.steps import new_state

_KV = ("key", "value")


class Text:
    """Keys, values and queries of all positions of a case, and caches that hold the first of them.

    Parameters
    ----------
    case
        See :func:`check_step`.
    """

    def __init__(self, case, positions):
        self.case, self.device = case, pa.default_device()
        random = np.random.default_rng(case["seed"])
        self.dims = case["head_dim"], case["value_head_dim"]
        rows = case["batch"], case["kv_heads"], positions
        self.new = [normal(random, (*rows, dim), case["source_dtype"]) for dim in self.dims]
        # As a model keeps them: a row for each position.
        shape = case["batch"], positions, case["heads"], self.dims[0]
        self.queries = normal(random, shape, case["query_dtype"]).transpose(0, 2, 1, 3)
        log = self.device.tensor(
            np.ascontiguousarray(self.queries.transpose(0, 2, 1, 3)), case["query_dtype"]
        )
        self.log = log.transpose(0, 2, 1, 3)
        self.quantized = any(dtype not in FLOATS for dtype in case["cache_dtypes"])

    def cache(self, total=0):
        """A cache to which the first ``total`` positions were appended."""
        case = self.case
        made = pa.KVCache(
            case["batch"], case["kv_heads"], case["capacity"], self.dims[0], value_head_dim=self.dims[1],
            dtype=tuple(case["cache_dtypes"]), qjl=case.get("qjl", False), sink_tokens=case["sink_tokens"],
        )  # fmt: skip
        if total:
            made.append(*self.rows(0, total))
        return made

    def rows(self, first, end):
        """Keys and values of some positions, on the device."""
        return [self.device.tensor(x[:, :, first:end], self.case["source_dtype"]) for x in self.new]

    def query(self, position):
        """The query of one position."""
        return self.queries[:, :, position : position + 1]

    async def reference(self, position):
        """(output in float64, what a result's error over its bound is) for a position's query."""
        case, query = self.case, self.query(position)
        ring = {"capacity": case["capacity"], "sink_tokens": case["sink_tokens"]}
        held = [
            await as_cached(x[:, :, : position + 1], kind, case.get("qjl", False) and name == "key")
            for name, x, kind in zip(_KV, self.new, case["cache_dtypes"], strict=True)
        ]
        if self.quantized:
            exact, single = (
                quantized_reference(query, held, ring, kind) for kind in (np.float64, np.float32)
            )
            return exact, partial(over_bound, exact=exact, numpy_error=np.abs(single - exact).max())
        keys, values = (x(np.float64) for x in held)

        def reference(q, k, precision=np.float64):
            return decode_reference(q, k, precision, values=values, **ring)

        exact = reference(query, keys)[0]
        error = numpy_errors(reference, query, keys)[0]
        return exact, partial(over_bound, exact=exact, numpy_error=error)


def quantized_reference(query, held, ring, precision):
    """In the rotated domain, as the kernels do it; a rotation of both changes nothing but the roundings."""
    rotated = [turboquant_reference.rotate(x, precision) for x in (query, *(x(precision) for x in held))]
    out = pa.reference.decode_attention(*rotated, compute_dtype=precision, **ring)
    return turboquant_reference.rotate_back(out, precision)


def state_at(device, position):
    """A state at a position."""
    return device.tensor(np.array([position, 0, 0, 0], np.uint32), name="state")


def combined(partial_out, partial_rows):
    """The output of all splits together, in float64."""
    row_max, row_sum = np.moveaxis(partial_rows.astype(np.float64), -1, 0)
    weights = row_sum * np.exp2(row_max - row_max.max(-1, keepdims=True))
    return (weights[..., None] * partial_out).sum(-2) / weights.sum(-1)[..., None]


async def check_step(case):
    """At each of ``case["positions"]`` a step's append and decode, against the ordinary ones and float64.

    ``adapter`` and ``tiled`` change what the kernels are told of the adapter, and ``new`` is the number of
    positions that the step appends; the query is that of the first of them.
    """
    device = pa.default_device()
    text = Text(case, max(case["positions"]) + case.get("new", 1))
    worst = {"out": 0.0, "ordinary": 0.0, "partials": 0.0}
    with adapter_of(case, device), poisoned(device):
        for position in case["positions"]:
            await check_append(text, position)
            for name, ratio in (await check_decode_step(text, position)).items():
                worst[name] = max(worst[name], ratio)
    return worst


async def both(name, *caches):
    """The keys or values of two caches of the same length, as far as they are filled."""
    return [await getattr(cache, name)[:, :, : cache.length].numpy() for cache in caches]


async def check_append(text, position):
    """A step's append leaves the same words as an ordinary one."""
    count = text.case.get("new", 1)
    usual, stepped = text.cache(position), text.cache(position)
    key, value = text.rows(position, position + count)
    usual.append(key, value)
    append_step(key, value, stepped, state_at(text.device, position))
    assert stepped.total == position
    stepped.set_total(position + count)
    for name in ("keys", "values"):
        ours, theirs = await both(name, stepped, usual)
        assert ours.tobytes() == theirs.tobytes(), f"other {name} at {position}"
    usual.destroy()
    stepped.destroy()


async def check_decode_step(text, position):
    """Errors over their bounds of a step's decode."""
    case, device, splits = text.case, text.device, text.case["splits"]
    cache = text.cache(position + 1)
    cache.total = 12345  # A step must not read it.
    state = state_at(device, position)
    out = decode_attention_step(text.log, cache, state, splits=splits)
    cache.set_total(position + 1)
    ordinary = pa.decode_attention(
        device.tensor(text.query(position), case["query_dtype"]), cache, splits=splits
    )
    exact, ratio = await text.reference(position)
    ratios = {
        "out": ratio(await out.numpy(), dtype=case["query_dtype"]),
        "ordinary": ratio(await ordinary.numpy(), dtype=case["query_dtype"]),
    }
    if cache.value_format is None:
        parts = decode_partials_step(text.log, cache, state, splits=splits)
        assert parts[0].shape == (*exact.shape[:3], splits, exact.shape[3])
        assert parts[1].shape == (*exact.shape[:3], splits, 2)
        ratios["partials"] = ratio(combined(*[await part.numpy() for part in parts]))
    cache.destroy()
    return ratios


# A step of a text, as a program


def step_shader(name, wgsl, bindings):
    """A shader of this file: ``bindings`` are names of f32 buffers, then "state", which it may advance."""
    declared = [
        *(Binding(each, "f32", each.startswith("to_")) for each in bindings),
        Binding("state", "u32", True),
    ]
    params = ParamsLayout(size="u32", heads="u32", history="u32")
    head = [
        f"@group(0) @binding({n}) var<storage, {'read_write' if each.writes else 'read'}> "
        f"{each.name}: array<{each.type}>;"
        for n, each in enumerate(declared)
    ]
    text = "\n".join([params.wgsl, *head, "@group(1) @binding(0) var<uniform> params: Params;", wgsl])
    return Shader(name, "test", text, {}, tuple(declared), params, ())


#: Brings the position's rows from a log [heads, history, size] to [heads, 1, size].
FETCH = """
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) thread_index: u32) {
  for (var i = thread_index; i < params.heads * params.size; i += 64u) {
    to_row[i] = log[(i / params.size * params.history + state[0]) * params.size + i % params.size];
  }
}
"""
#: Keeps a result [heads, 1, size] in a log, and advances the position.
ADVANCE = """
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) thread_index: u32) {
  let position = state[0];
  workgroupBarrier();
  for (var i = thread_index; i < params.heads * params.size; i += 64u) {
    to_log[(i / params.size * params.history + position) * params.size + i % params.size] = row[i];
  }
  if (thread_index == 0u) {
    state[0] = position + 1u;
  }
}
"""


def dispatch(shader, tensors, state, heads, history):
    """Run one of the two on all heads of one batch element."""
    device = state.device
    row = next(tensor for tensor in tensors if tensor.shape[2] == 1)
    params = shader.params.pack(size=row.shape[3], heads=heads, history=history)
    device.dispatch(shader, params, [device.bind(x, "log") for x in (*tensors, state)], (1, 1, 1))


async def check_program(case):
    """A recorded step of append, decode and advance, submitted many times at once, against ordinary calls.

    ``case["runs"]`` says how many steps each submission runs.
    """
    device = pa.default_device()
    text = Text(case, sum(case["runs"]))
    history = sum(case["runs"])
    fetch = step_shader("fetch", FETCH, ("log", "to_row"))
    advance = step_shader("advance", ADVANCE, ("row", "to_log"))
    state, cache, kv_heads = new_state(device), text.cache(), case["kv_heads"]
    logs = text.rows(0, history)
    rows = [device.empty((1, kv_heads, 1, dim)) for dim in text.dims]
    outs = device.tensor(np.zeros((1, case["heads"], history, text.dims[1]), np.float32))
    with device.record() as program:
        for log, row in zip(logs, rows, strict=True):
            dispatch(fetch, (log, row), state, kv_heads, history)
        append_step(rows[0], rows[1], cache, state)
        out = decode_attention_step(text.log, cache, state, splits=case["splits"])
        dispatch(advance, (out, outs), state, case["heads"], history)
    for times in case["runs"]:
        program.submit(times=times)
    assert (await state.numpy()).tolist() == [history, 0, 0, 0]
    results = await outs.numpy()
    cache.set_total(history)
    usual, worst = text.cache(), {"out": 0.0, "after": 0.0}
    for position in range(history):
        usual.append(*text.rows(position, position + 1))
        _, ratio = await text.reference(position)
        worst["out"] = max(worst["out"], ratio(results[:, :, position : position + 1]))
    for name in ("keys", "values"):
        ours, theirs = await both(name, cache, usual)
        assert ours.tobytes() == theirs.tobytes(), f"other {name}"
    # The cache goes on as an ordinary one.
    assert (cache.length, cache.start) == (usual.length, usual.start)
    after = pa.decode_attention(device.tensor(text.query(history - 1)), cache, splits=1)
    worst["after"] = ratio(await after.numpy())
    program.destroy()
    cache.destroy()
    usual.destroy()
    return worst
