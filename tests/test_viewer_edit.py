"""What a visitor's score_mod does to the maps, and maps of gradients."""

import gc
import sys

import numpy as np
import pytest

from py_attn import reference
from py_attn.colormaps import legend, paint_signed, signed_table
from py_attn.viewer import Viewer
from py_attn.viewer.panels.accuracy import rows_of
from py_attn.viewer.sources.limit import STEP, NotFinishedError, compile_with_steps
from py_attn.viewer.sources.mods import compile_mods
from tests.viewers import call

SHAPE = {"length": 24, "heads": 4, "kv_heads": 2, "head_dim": 8}
ALIBI = """
slopes = device.tensor(2.0 ** -np.arange(1, heads + 1))

def score_mod(score, b, h, q_idx, kv_idx):
    return score - slopes[h] * pa.abs(q_idx - kv_idx)

def mask_mod(b, h, q_idx, kv_idx):
    return kv_idx <= q_idx + 3
"""


@pytest.fixture
def viewer():
    made = Viewer()
    call(made, "open_synthetic", **SHAPE, mask="alibi", window=9, softcap=4.0)
    return made


@pytest.fixture
def on_gpu(device):
    made = Viewer()
    made.use(device)
    call(made, "open_synthetic", **SHAPE, mask="padding")
    return made


def alibi(score, b, h, i, j):
    return score - 2.0 ** -(1.0 + h) * np.abs(i - j)


def exact(viewer, **more):
    layer, masking = viewer.source.layers[0], viewer.source.masking
    keywords = masking.keywords() | more
    return reference.attention_weights(layer.query, layer.key, **keywords)[0]


# score_mod and mask_mod


def test_an_edit_changes_every_map_until_it_is_taken_away(viewer):
    plain = call(viewer, "row", layer=0, head=2, query=7)["weights"]
    answer = call(viewer, "edit", text=ALIBI)
    assert (answer["error"], answer["edited"]) == (None, ["score_mod", "mask_mod"])
    wanted = exact(viewer, score_mod=alibi, mask_mod=lambda b, h, i, j: j <= i + 3)[2, 7]
    np.testing.assert_allclose(call(viewer, "row", layer=0, head=2, query=7)["weights"], wanted, atol=1e-6)
    style = {"rows": [0, 24], "columns": [0, 24], "size": [24, 24]}
    edited = call(viewer, "window", layer=0, head=2, **style)["rgba"]
    own = call(viewer, "window", layer=0, head=2, edited=False, **style)["rgba"]
    assert not np.array_equal(edited, own)
    assert call(viewer, "edit", text="")["edited"] == []
    np.testing.assert_array_equal(call(viewer, "row", layer=0, head=2, query=7)["weights"], plain)
    np.testing.assert_array_equal(call(viewer, "window", layer=0, head=2, **style)["rgba"], own)


def test_the_next_source_is_edited_too(viewer):
    call(viewer, "edit", text=ALIBI)
    answer = call(viewer, "open_synthetic", **SHAPE, seed=3)
    assert answer["edited"] == ["score_mod", "mask_mod"]
    call(
        viewer,
        "edit",
        text="table = device.tensor(np.arange(30)[: length + 6])\nassert length == 24\n" + ALIBI,
    )
    assert call(viewer, "open_synthetic", **{**SHAPE, "length": 9})["edited"] == []


def test_what_is_opened_meanwhile_is_edited_instead(viewer):
    weights = viewer.engine.weights

    async def busy(*arguments):
        viewer.engine.weights = weights
        await viewer.call("open_synthetic", {**SHAPE, "length": 9})
        return await weights(*arguments)

    viewer.engine.weights = busy
    assert call(viewer, "edit", text=ALIBI)["edited"] == ["score_mod", "mask_mod"]
    assert viewer.source.length == 9


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("def score_mod(:", "SyntaxError: invalid syntax", 1),
        ("x = 1\ny = unknown", "NameError: name 'unknown' is not defined", 2),
        (
            "def score_mod(score, b, h, q_idx, kv_idx):\n    if q_idx > kv_idx:\n        return 0\n",
            "pa.where",
            2,
        ),
        (
            "def score_mod(score, b, h, q_idx, kv_idx):\n    return math.exp(score)\n",
            "instead of the math",
            2,
        ),
        ("def score_mod(score, q_idx):\n    return score", "expected a function of", 1),
        ("def mask_mod(b, h, q_idx, kv_idx):\n    return q_idx - kv_idx", "expected a condition", 1),
        (
            "t = device.tensor(np.ones((2, 2)))\ndef mask_mod(b, h, i, j):\n    return t[i] > 0",
            "takes 2 indices",
            3,
        ),
    ],
)
@pytest.mark.parametrize("where", ["viewer", "on_gpu"])
def test_what_cannot_be_done_is_said_with_its_line(request, where, text, message, line):
    viewer = request.getfixturevalue(where)
    call(viewer, "edit", text=ALIBI)
    answer = call(viewer, "edit", text=text)
    assert message in answer["error"]["message"]
    assert answer["error"]["line"] == line
    assert answer["edited"] == ["score_mod", "mask_mod"]  # the maps stay as they were


def test_tables_end_at_their_edges_as_in_the_kernels():
    mods = compile_mods(
        "t = device.tensor([1.0, 2.0])\ndef score_mod(score, b, h, i, j):\n    return score + t[j - 1]",
        None, heads=1, length=3, tokens=[],
    )  # fmt: skip
    added = mods.plain["score_mod"](0.0, 0, 0, 0, np.arange(5))
    assert added.tolist() == [1, 1, 2, 2, 2]


def test_the_gpu_computes_the_lse_anew_for_an_edit_alone(on_gpu, bridge):
    def labels():
        return [launch.label.split("/")[0] for launch in bridge.launches]

    answer = call(on_gpu, "edit", text=ALIBI)
    assert "fn score_mod(" in answer["wgsl"]
    assert answer["wgsl"].strip() in answer["kernel"]
    call(on_gpu, "row", layer=0, head=1, query=3)
    call(on_gpu, "row", layer=0, head=1, query=4)
    assert labels() == ["attention", "attention_weights", "attention_weights"]
    call(on_gpu, "edit", text="")
    call(on_gpu, "row", layer=0, head=1, query=4)
    assert labels()[3:] == ["attention", "attention_weights"]
    call(on_gpu, "edit", text=ALIBI)
    call(on_gpu, "edit", text="")
    call(on_gpu, "row", layer=0, head=1, query=5)
    assert labels()[5:] == ["attention", "attention_weights"]


def test_errors_are_held_against_a_reference_that_knows_the_edit(viewer):
    call(viewer, "edit", text=ALIBI)
    layer, rows = viewer.source.layers[0], np.array([3, 8, 20])
    arrays = (layer.query, layer.key, layer.value)
    masking = viewer.source.masking
    wanted = reference.attention(*arrays, **masking.keywords() | masking.mods.plain)[:, :, rows]
    np.testing.assert_allclose(rows_of(arrays, masking, rows, np.float64), wanted, atol=1e-12)


@pytest.mark.parametrize("capacity", [24, 7])
def test_decoding_knows_the_edit_also_in_a_ring(viewer, capacity):
    call(viewer, "edit", text=ALIBI)
    layer, softcap = viewer.source.layers[0], viewer.source.masking.softcap
    call(viewer, "decode_open", layer=0, capacity=capacity)
    step = call(viewer, "decode_step", position=20, head=1, splits=3)
    first = 21 - min(capacity, 21)
    wanted = reference.attention_weights(
        layer.query[:, :, :21], layer.key[:, :, :21],
        softcap=softcap, causal=True, score_mod=alibi, mask_mod=lambda b, h, i, j: j >= first,
    )[0, 1, 20, first:]  # fmt: skip
    np.testing.assert_allclose(step["weights"], wanted, atol=1e-6)
    given = {"layer": 0, "position": 20, "head": 1, "capacity": capacity, "dtype": "float32"}
    cache = call(viewer, "decode_cache", **given)
    np.testing.assert_allclose(cache["weights"], wanted, atol=1e-6)
    assert max(step["error"], cache["error"]) < 1e-5


def test_a_position_that_may_see_nothing_decodes_to_nothing(viewer):
    call(viewer, "edit", text="def mask_mod(b, h, q_idx, kv_idx): return kv_idx > q_idx")
    call(viewer, "decode_open", layer=0, capacity=24)
    step = call(viewer, "decode_step", position=4, head=1)
    assert not step["weights"].any()
    assert step["lse"] == -np.inf
    assert [split["factor"] for split in step["splits"]] == [0] * 4
    assert (step["combined"], step["error"]) == (0, 0)


def test_decoding_with_an_edit_makes_no_shader_anew_at_every_step(on_gpu, bridge):
    call(on_gpu, "edit", text=ALIBI)
    call(on_gpu, "decode_open", layer=0, capacity=24)
    call(on_gpu, "decode_step", position=4, head=1)
    pipelines = len(on_gpu.device.queue.pipelines)
    call(on_gpu, "decode_step", position=5, head=1)
    call(on_gpu, "decode_step", position=6, head=1)
    assert len(on_gpu.device.queue.pipelines) == pipelines


# text that does not end

SCORE = "def score_mod(score, b, h, q_idx, kv_idx):\n"
#: The first line of each is the name of the case, the line that is to blame is marked; none where it varies.
ENDLESS = """
top level
while True:  #!
    pass
----
while
def score_mod(score, b, h, q_idx, kv_idx):
    while True: pass  #!
----
for
import itertools
def score_mod(score, b, h, q_idx, kv_idx):
    for _ in itertools.count():  #!
        pass
----
comprehension
import itertools
def score_mod(score, b, h, q_idx, kv_idx):
    return [0 for _ in itertools.count() if False]  #!
----
generator
def score_mod(score, b, h, q_idx, kv_idx):
    def numbers():
        while True:  #!
            yield 1
    return sum(numbers())
----
generator expression
import itertools
def score_mod(score, b, h, q_idx, kv_idx):
    return sum(0 for _ in itertools.repeat(1))  #!
----
nested function
def score_mod(score, b, h, q_idx, kv_idx):
    def inner():
        while True:  #!
            pass
    return inner()
----
lambda
import itertools
def score_mod(score, b, h, q_idx, kv_idx):
    return max(map(lambda n: 0, itertools.count()))  #!
----
method
class Endless:
    def __iter__(self): return self
    def __next__(self): return 0  #!
sum(Endless())
----
caught in a loop
def score_mod(score, b, h, q_idx, kv_idx):
    while True:
        try:
            while True:  #!
                score = score
        except BaseException:
            pass
----
caught as Exception
def score_mod(score, b, h, q_idx, kv_idx):
    while True:
        try:
            while True:  #!
                score = score
        except Exception:
            continue
----
caught once
def score_mod(score, b, h, q_idx, kv_idx):
    try:
        while True:  #!
            pass
    except BaseException:
        return score
----
lost in finally
def score_mod(score, b, h, q_idx, kv_idx):
    def inner():
        try:
            while True:  #!
                pass
        finally:
            return 1
    while True:
        inner()
----
recursion that catches
def twice():
    try:
        twice()
    except BaseException:
        twice()
def score_mod(score, b, h, q_idx, kv_idx):
    return twice()
----
mask_mod
def mask_mod(b, h, q_idx, kv_idx):
    while True:  #!
        pass
"""


@pytest.fixture
def no_garbage_collection():
    """Other tests' objects are not finalised where the stack is full, which would be reported as an error."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


CASES = dict(case.strip("\n").split("\n", 1) for case in ENDLESS.split("----"))


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_text_that_does_not_end_is_ended(viewer, text, no_garbage_collection):
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("#!")]
    call(viewer, "edit", text=ALIBI)
    viewer.limit_seconds = 0.01
    answer = call(viewer, "edit", text=text)
    message = answer["error"]["message"]
    assert "did not finish within 0.01 seconds" in message
    what = "mask_mod" if "mask_mod" in text else "score_mod" if "score_mod" in text else "The text"
    assert message.startswith(what)
    assert "a mask_mod is called once" in message if what == "mask_mod" else "must" in message
    assert answer["error"]["finished"] is False
    assert not lines or answer["error"]["line"] in lines
    assert answer["edited"] == ["score_mod", "mask_mod"]  # the maps stay as they were
    assert call(viewer, "edit", text=ALIBI)["error"] is None


def test_recursion_and_memory_are_said_in_plain_words(viewer):
    viewer.limit_seconds = 60  # as a machine that is busy with other things needs
    for text, message in (
        (SCORE + "    return score_mod(score, b, h, q_idx, kv_idx)", "score_mod calls itself too often"),
        (SCORE + "    for _ in range(100_000): score = score + 1\n    return score", "nested too deeply"),
        ("'a' * 10**18", "The text needs more memory than there is (MemoryError)"),
        ("np.ones(10**18)", "The text needs more memory than there is (Unable to allocate"),
    ):
        answer = call(viewer, "edit", text=text)
        assert message in answer["error"]["message"]
        assert answer["error"]["finished"]


def test_the_limit_spares_what_takes_few_steps_however_slow(viewer):
    viewer.limit_seconds = 0
    slow = "import time\ntime.sleep(0.02)\n" + ALIBI + "    \nfor _ in range(50): pass\n"
    assert call(viewer, "edit", text=slow)["error"] is None
    assert not call(viewer, "edit", text="for _ in range(100): pass")["error"]["finished"]


def test_later_calls_of_a_function_are_limited_too(viewer):
    text = "calls = []\n" + SCORE + "    calls.append(0)\n    while len(calls) > 2: pass\n    return score"
    viewer.limit_seconds = 0.01
    assert call(viewer, "edit", text=text)["error"] is None
    with pytest.raises(NotFinishedError, match=r"score_mod did not finish within 0\.01 seconds"):
        call(viewer, "row", layer=0, head=0, query=0)


def test_text_that_does_not_end_at_the_next_source_is_not_run_again(viewer):
    text = "def count():\n    while length != 24: pass\ncount()\n" + ALIBI
    assert call(viewer, "edit", text=text)["error"] is None
    viewer.limit_seconds = 0.01
    opened = call(viewer, "open_synthetic", **{**SHAPE, "length": 9})
    assert opened["edited"] == []
    assert (opened["editError"]["line"], opened["editError"]["finished"]) == (2, False)
    again = call(viewer, "open_synthetic", **{**SHAPE, "length": 9})
    assert (again["edited"], again["editError"]) == ([], None)


def test_trace_functions_go_on_as_they_were(viewer):
    seen = []

    def trace(frame, event, argument):
        if frame.f_code.co_filename == "<score_mod>":
            seen.append((event, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        viewer.limit_seconds = 0.01
        ended = call(viewer, "edit", text=SCORE + "    while True: pass")
        assert sys.gettrace() is trace
        call(viewer, "edit", text=SCORE + "    return 2 * score")
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)
    assert not ended["error"]["finished"]
    assert seen[-1] == ("return", 2)


def test_the_text_means_what_it_meant_without_steps():
    space = {STEP: lambda: None}
    text = """
def f(n):
    "A docstring."
    return [a * b for a in range(n) if a % 2 for b in range(a)]
found = f(6), (lambda x: x)(0), {k: v for k, v in zip("ab", (1, 2))}, f.__doc__
"""
    exec(compile_with_steps(text, "text"), space)
    assert space["found"] == ([0, 0, 3, 6, 0, 5, 10, 15, 20], 0, {"a": 1, "b": 2}, "A docstring.")


# gradients


def test_shares_of_a_row_sum_to_one(viewer):
    for edit in ("", ALIBI):
        call(viewer, "edit", text=edit)
        answer = call(viewer, "row", layer=0, head=1, query=20, show="gradient")
        assert answer["weights"].sum() == pytest.approx(1, abs=1e-5)
    strengths = [abs(link["weight"]) for link in answer["links"]]
    assert strengths == sorted(strengths, reverse=True)


def test_a_share_is_weight_times_gradient(viewer):
    layer, masking = viewer.source.layers[0], viewer.source.masking
    out = reference.attention(layer.query, layer.key, layer.value, **masking.keywords())[0, 3, 11]
    weights = exact(viewer)[3, 11]
    wanted = weights * (layer.value[0, 1] @ out) / (out @ out)
    found = call(viewer, "row", layer=0, head=3, query=11, show="gradient")["weights"]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_the_gpu_gets_the_output_once(on_gpu, bridge):
    for query in (2, 3):
        call(on_gpu, "row", layer=0, head=1, query=query, show="gradient")
    call(on_gpu, "overview", layer=0, size=8, show="gradient")
    labels = [launch.label for program in bridge.programs for launch in program]
    assert [label.split("/")[0] for label in labels].count("attention") == 2  # the LSE, and the output
    assert sum("gradients" in label for label in labels) == 3


def test_what_is_shown_is_named(viewer):
    for method, payload in (
        ("row", {"layer": 0, "head": 0, "query": 0}),
        ("overview", {"layer": 0}),
        ("legend", {"colormap": "magma", "scale": "log"}),
    ):
        with pytest.raises(ValueError, match="show: expected weights or gradient, got 'both'"):
            call(viewer, method, **payload, show="both")


def test_colours_with_a_sign():
    painted = paint_signed(np.array([-1.0, -0.25, 0, 0.25, 2]), "magma", "sqrt")
    np.testing.assert_array_equal(painted, signed_table("magma")[[0, 127, 255, 383, 510]])
    ticks = legend("magma", "linear", signed=True)["ticks"]
    assert [(t["value"], t["at"]) for t in ticks] == [(-1, 0), (-0.5, 0.25), (0, 0.5), (0.5, 0.75), (1, 1)]
