"""The notebook widget without a notebook: a fake front end, and a fake page behind it."""

import asyncio
import json
import struct
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
import traitlets

import py_attn as pa
from e2e.page.fake_writer import FakeWriter
from py_attn.remote import session
from py_attn.remote.host import Host
from py_attn.remote.session import Session
from py_attn.widget import AttentionView
from tests.fake_page import FakePage
from tests.front_end import FrontEnd

#: Bytes that a device keeps as long as it lives: a colour table and a list of heads.
COLOR_TABLE = 1040

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def own_session(monkeypatch):
    """Without the views and pages of other tests."""
    monkeypatch.setattr(session, "current", Session())
    return session.current


def arrays(*shape, count=3):
    return [RNG.standard_normal(shape).astype(np.float32) for _ in range(count)]


async def test_a_view_computes_on_the_page_that_shows_it():
    shown = AttentionView(*arrays(2, 1, 4, 24, 16), causal=True, tokens=[f"t{i}" for i in range(24)])
    front = FrontEnd(shown)
    await front.hello()
    assert front.kinds == ["welcome"]
    info = await front.call("connect")
    assert (info["webgpu"], info["adapter"]) == (True, "fake")
    assert shown.source["engine"] == "webgpu"
    window = await front.call("window", layer=1, head=3, rows=[0, 24], columns=[0, 24], size=[24, 24])
    assert window["rgba"].shape == (24 * 24 * 4,)
    labels = {launch.label for program in front.gpu.gpu.programs for launch in program}
    assert any(label.startswith("attention_weights") for label in labels)
    # the cell's device is the view's
    device = await pa.request_device()
    assert device is pa.default_device()
    assert device.memory_allocated() > 0
    # and what the view holds goes when nobody looks
    front.to_kernel({"kind": "views", "count": 0})
    await asyncio.sleep(0.01)
    assert device.memory_allocated() <= COLOR_TABLE
    shown.close()
    assert front.kinds[-1] == "closed"
    assert device.lost


async def test_views_share_a_device():
    first, second = AttentionView(*arrays(8, 4)), AttentionView(*arrays(8, 4))
    gpu = FakePage()
    fronts = FrontEnd(first, gpu), FrontEnd(second, gpu)
    for front in fronts:
        gpu.answer = front.to_kernel
        await front.hello()
        await front.call("connect")
    assert first._viewer.device is second._viewer.device
    second.close()
    assert not first._viewer.device.lost


async def test_a_page_that_leaves_is_replaced_by_the_next():
    shown = AttentionView(*arrays(8, 4))
    front = FrontEnd(shown)
    await front.hello()
    await front.call("connect")
    device = shown._viewer.device
    front.to_kernel({"kind": "closed"})
    await asyncio.sleep(0.01)
    assert device.lost
    again = FrontEnd(shown, name="another")
    await again.hello()
    await again.call("row", layer=0, head=0, query=3)
    assert shown._viewer.device is not device


async def test_two_pages_on_one_kernel():
    shown = AttentionView(*arrays(8, 4))
    first = FrontEnd(shown)
    await first.hello()
    await first.call("connect")
    second = FrontEnd(shown, name="second")
    take = shown.send
    shown.send = lambda *message: (first.take(*message), take(*message))
    await second.hello()
    await second.call("row", layer=0, head=0, query=3)
    assert shown._viewer.device is (await pa.request_device())
    first.to_kernel({"kind": "closed"})
    await asyncio.sleep(0.01)
    await second.call("row", layer=0, head=0, query=3)
    assert not (await pa.request_device()).lost


async def test_without_webgpu_numpy_computes_and_says_so():
    shown = AttentionView(*arrays(8, 4))
    front = FrontEnd(shown)
    await front.hello(webgpu=False, reason="This browser offers no WebGPU here.")
    await front.call("connect")
    assert "offers no WebGPU" in shown.message
    assert shown.state == "live"
    row = await front.call("row", layer=0, head=0, query=3)
    assert row["weights"].sum() == pytest.approx(1)


async def test_what_a_call_raises_is_told_and_the_next_one_works():
    shown = AttentionView(weights=np.full((2, 1, 3, 5, 5), 0.2))
    front = FrontEnd(shown)
    await front.hello()
    with pytest.raises(RuntimeError, match="layer: expected 0 to 1, got 9"):
        await front.call("row", layer=9, head=0, query=0)
    with pytest.raises(
        RuntimeError, match="layer: only weights were given, without the query, key and value"
    ):
        await front.call("measure", layer=0, variant="auto", repeats=1)
    with pytest.raises(RuntimeError, match="method"):
        await front.call("open_sample", data=[])
    with pytest.raises(RuntimeError, match="method"):
        await front.call("edit", text="import os")
    row = await front.call("row", layer=1, head=2, query=4)
    np.testing.assert_allclose(row["weights"], 0.2)
    # the very same message again, as some hosts deliver it
    front.to_kernel({"kind": "call", "id": 1, "method": "row", "payload": {}})
    await asyncio.sleep(0.01)
    assert not front.answers


async def test_a_kernel_without_a_view_says_what_to_do():
    with pytest.raises(pa.WebGPUUnavailableError, match=r"navigator.gpu.*AttentionView"):
        await pa.request_device()


async def test_a_device_is_waited_for_until_the_view_is_there(own_session):
    own_session.shown_seconds = 0.02
    shown = AttentionView(*arrays(8, 4))
    with pytest.raises(pa.WebGPUUnavailableError, match="no view is shown"):
        await pa.request_device()
    own_session.shown_seconds = 5
    asking = asyncio.create_task(pa.request_device())
    await asyncio.sleep(0.01)
    await FrontEnd(shown).hello()
    assert not (await asking).lost


class Cell(Host):
    """One cell that runs again and again."""

    runs = 0

    def running_cell(self):
        self.runs += 1
        return "cell", str(self.runs)


async def test_a_cell_that_runs_again_closes_what_it_had_shown(monkeypatch):
    own_session = Session(Cell())
    monkeypatch.setattr(session, "current", own_session)
    gpu, made = FakePage(), []
    for _ in range(50):
        shown = AttentionView(*arrays(2, 16, 8), causal=True)
        front = FrontEnd(shown, gpu)
        await front.hello()
        await front.call("connect")
        await front.call("window", layer=0, head=0, rows=[0, 16], columns=[0, 16], size=[16, 16])
        made.append(shown)
        if len(made) > 1:
            # the notebook takes the old output away
            made[-2]._on_message(None, {"kind": "views", "page": "page", "count": 0}, [])
        await asyncio.sleep(0.01)
    assert [shown._link.closed for shown in made] == [True] * 49 + [False]
    device = await pa.request_device()
    assert not device.lost
    made[-1]._viewer.release()
    assert device.memory_allocated() <= COLOR_TABLE
    assert own_session.links == [made[-1]._link]


async def test_a_view_whose_connection_the_host_closed_goes_with_the_next(own_session):
    gpu = FakePage()
    first = AttentionView(*arrays(8, 4))
    front = FrontEnd(first, gpu)
    await front.hello()
    await front.call("connect")
    first.comm._closed = True  # as marimo's say it
    second = AttentionView(*arrays(8, 4))
    await FrontEnd(second, gpu).hello()
    assert first._link.closed
    assert first.comm is None
    assert not (await pa.request_device()).lost
    assert own_session.links == [second._link]


def test_traits_are_checked_and_observable():
    shown = AttentionView(*arrays(3, 1, 2, 6, 4))
    other = AttentionView(weights=np.full((3, 1, 2, 6, 6), 1 / 6))
    traitlets.link((shown, "layer"), (other, "layer"))
    shown.layer = 2
    assert other.layer == 2
    shown.selection = (3, 1)
    assert shown.selection == (3, 1)
    for name, bad, words in (
        ("layer", 3, "layer: expected 0 to 2, got 3"),
        ("head", -1, "head: expected 0 to 1"),
        ("selection", (0, 6), "from 0 to 5"),
        ("coloring", {"colormap": "jet"}, "colormap: expected"),
        ("parts", ["focus", "colours"], "parts: expected some of overview, focus, links, compare, kernel"),
        ("parts", [], "parts: expected some of"),
        ("coloring", {"scale": "cube"}, "scale: expected"),
    ):
        with pytest.raises(traitlets.TraitError, match=words):
            setattr(shown, name, bad)
    shown.coloring = {"colormap": "magma"}
    assert shown.coloring == {"colormap": "magma", "scale": "sqrt", "pool": "max"}


def test_parts_are_named_in_a_list_or_a_string():
    everything = ["overview", "focus", "links", "compare", "kernel"]
    assert AttentionView(*arrays(8, 4)).parts == everything
    for given in ("links focus", "links, focus", ["links", "focus"], ("focus", "links", "focus")):
        assert AttentionView(*arrays(8, 4), parts=given).parts == ["focus", "links"]
    for given in ("", [], "maps"):
        with pytest.raises(traitlets.TraitError, match="parts: expected some of overview"):
            AttentionView(*arrays(8, 4), parts=given)


async def test_a_front_end_sets_traits():
    shown = AttentionView(*arrays(3, 1, 2, 6, 4))
    seen = []
    shown.observe(lambda change: seen.append(change["new"]), "layer")
    front = FrontEnd(shown)
    await front.hello()
    front.to_kernel({"kind": "set", "traits": {"layer": 2, "selection": [1, 2], "still": "no"}})
    front.to_kernel({"kind": "set", "traits": {"layer": 7}})
    await asyncio.sleep(0.01)
    assert (shown.layer, shown.selection, seen) == (2, (1, 2), [2])


async def test_every_front_end_reads_tokens_in_the_same_way():
    shown = AttentionView(*arrays(3, 1, 2, 4, 4), tokens=["[CLS]", "un", "##do", "[SEP]"])
    assert (shown.source["canMergeWords"], shown.source["specialTokens"]) == (True, 2)
    front = FrontEnd(shown)
    await front.hello()
    await front.call("connect")
    answer = await front.call("read_as", words=True, special="hide")
    assert answer["tokens"] == shown.tokens == ["undo"]
    assert shown.source["reading"] == {"words": True, "special": "hide"}
    assert shown.source["length"] == 1
    await front.call("read_as")
    assert shown.tokens == ["[CLS]", "un", "##do", "[SEP]"]


def test_attentions_of_a_transformers_model():
    layers = tuple(np.full((2, 3, 4, 4), 0.25, np.float32) for _ in range(5))
    shown = AttentionView.from_attentions(SimpleNamespace(attentions=layers), tokens=list("abcd"), batch=1)
    assert (shown.source["layers"], shown.source["heads"], shown.tokens) == (5, 3, list("abcd"))
    with pytest.raises(ValueError, match="output_attentions=True"):
        AttentionView.from_attentions(SimpleNamespace(attentions=None))
    with pytest.raises(ValueError, match="eager"):
        AttentionView.from_attentions((None, None))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "query: expected an array"),
        ({"query": np.zeros((4, 2))}, "key: expected an array"),
        ({"query": np.zeros(4), "key": np.zeros(4)}, "2 to 5 dimensions"),
        ({"query": np.zeros((4, 2)), "key": np.zeros((5, 2))}, "key: expected"),
        ({"query": np.zeros((4, 2)), "key": np.zeros((4, 2)), "tokens": ["a"]}, "tokens: expected 4"),
        ({"query": np.zeros((4, 2)), "key": np.zeros((4, 2)), "tokens": "abcd"}, "text.split"),
        (
            {"query": np.full((4, 2), np.nan), "key": np.zeros((4, 2))},
            "query: expected finite numbers, got NaN",
        ),
        ({"query": np.zeros((0, 2)), "key": np.zeros((0, 2))}, "expected 1 to 32,768 tokens, got 0"),
        ({"query": np.zeros((100_000, 1)), "key": np.zeros((100_000, 1))}, "32,768 tokens, got 100,000"),
        ({"weights": np.zeros((4, 5))}, "square"),
        ({"weights": np.full((4, 4), np.nan)}, "weights: expected finite"),
        ({"weights": np.eye(4), "query": np.eye(4)}, "query: expected no other inputs together with weights"),
        ({"query": ["a"], "key": ["b"]}, "query: expected real numbers"),
    ],
)
def test_bad_input_says_what_was_expected(given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        AttentionView(**given)


def test_weights_that_are_no_probabilities_are_shown_with_a_note():
    shown = AttentionView(weights=np.eye(4) * 3)
    assert "do not sum to 1" in shown.message
    assert not AttentionView(weights=np.eye(4)).message


def pixels(data):
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    body = zlib.decompress(data[data.index(b"IDAT") + 4 : data.rindex(b"IEND") - 8])
    rows = np.frombuffer(body, np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


async def test_export_writes_what_is_shown(tmp_path):
    weights = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    shown = AttentionView(weights=weights, tokens=["<s>", "a", "b", "c", "d", "&"], colormap="magma")
    image = pixels(await shown.export("png", size=12))
    assert image.shape == (12, 12, 3)
    from py_attn.colormaps import paint

    np.testing.assert_array_equal(image[::2, ::2], paint(weights, "magma", "sqrt")[..., :3])
    data = json.loads(await shown.export("json"))
    np.testing.assert_allclose(data["weights"], weights, rtol=1e-5)
    path = await shown.save(tmp_path / "map.svg")
    text = path.read_text()
    assert "&lt;s&gt;" in text
    assert "&amp;" in text
    for bad in ({"format": "gif"}, {"layer": 3}, {"size": 0}):
        with pytest.raises(ValueError, match="expected"):
            await shown.export(**bad)


async def test_live_maps_are_exported_without_a_browser_too():
    query, key, value = arrays(2, 12, 8)
    shown = AttentionView(query, key, value, causal=True, scale=0.3)
    data = json.loads(await shown.export("json", head=1))
    expected = pa.reference.attention_weights(query[None], key[None], causal=True, scale=0.3)[0, 1]
    np.testing.assert_allclose(data["weights"], expected, atol=1e-5)


def test_a_snapshot_is_there_from_the_start():
    shown = AttentionView(*arrays(2, 12, 8), title="a <b>")
    assert pixels(shown.still).shape == (12, 12, 3)
    bundle = shown._snapshots.bundle()
    assert f'id="{shown.still_id}"' in bundle["text/html"]
    assert (
        "a &lt;b&gt;: Layer 0, head 0 (of 1 layer with 2 heads); 12 tokens. A snapshot" in bundle["text/html"]
    )


class OnlyDLPack:
    """What JAX and PyTorch share with others."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnlyArray:
    """Wraps an array, as many libraries do."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class LikeTorch(OnlyArray):
    """A parameter on a GPU, which refuses to become an array as it is."""

    dtype = "torch.bfloat16"

    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert a tensor that requires grad")

    def detach(self):
        return self

    def cpu(self):
        return self

    def float(self):
        return self.array


@pytest.mark.parametrize("wrap", [OnlyDLPack, OnlyArray, LikeTorch])
async def test_arrays_of_others_are_taken(wrap):
    query, key, value = arrays(2, 6, 4)
    ours = AttentionView(query, key, value, causal=True)
    theirs = AttentionView(wrap(query), wrap(key), wrap(value), causal=True)
    assert await ours.export("json", head=1) == await theirs.export("json", head=1)


async def test_what_a_language_model_has_written_is_looked_at():
    model = FakeWriter()
    with pytest.raises(ValueError, match="model: expected a text to look at"):
        await AttentionView.from_written(model)
    await model.start(model.tokenize("the old light house"))
    shown = await AttentionView.from_written(model, layer=29, head=8)
    assert (shown.source["kind"], shown.source["layers"], shown.source["heads"]) == ("written", 30, 9)
    assert shown.tokens == [" the", " old", " light", " house"]
    front = FrontEnd(shown)
    await front.hello()
    row = await front.call("overview_row", query=3)
    assert row["rgba"].shape == (30 * 9 * 4 * 4,)
