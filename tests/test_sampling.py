"""Choosing tokens and comparing distributions: the reference, what is dispatched, and what is refused."""

import asyncio
import math

import numpy as np
import pytest

from py_attn import sampling_reference as plain
from py_attn.gpu.device import request_device
from py_attn.kernels import nn
from py_attn.kernels.steps import new_state
from tests.recording_bridge import RecordingBridge

DESKTOP = {
    "software": False,
    "maxComputeInvocationsPerWorkgroup": 1024,
    "maxComputeWorkgroupSizeX": 1024,
    "maxComputeWorkgroupStorageSize": 49152,
}


def zeros(device, *shape, dtype="float32"):
    return device.empty(shape, dtype)


def choose(device, vocabulary=40, length=9, with_alternatives=False, **options):
    """A right call but for the options, which may also be tensors by name."""
    tensors = {
        "logits_row": zeros(device, vocabulary),
        "tokens": zeros(device, length, dtype="uint32"),
        "log_probs": zeros(device, length),
        "state": new_state(device),
    }
    if with_alternatives:
        pair = zeros(device, length, 10, dtype="uint32"), zeros(device, length, 10)
        options.setdefault("alternatives", pair)
    nn.choose_token(**{**tensors, **options})


def last_launch(bridge, device):
    device.flush()
    return bridge.programs[-1][-1]


# The reference


def test_random_bits_are_pcg3d():
    # By the published recurrence in Python's integers.
    def pcg3d(x, y, z):
        mask = 0xFFFFFFFF
        x, y, z = ((v * 1664525 + 1013904223) & mask for v in (x, y, z))
        x = (x + y * z) & mask
        y = (y + z * x) & mask
        z = (z + x * y) & mask
        x, y, z = (v ^ v >> 16 for v in (x, y, z))
        return (x + y * z) & mask

    for seed, position, id_ in ((0, 0, 0), (1, 2, 3), (0xFFFFFFFF, 7, 49151), (123456789, 511, 40000)):
        assert plain.random_bits(seed, position, id_) == pcg3d(seed, position, id_)


def test_noise_is_gumbel():
    noise = np.concatenate([plain.gumbel_noise(3, position, np.arange(1000)) for position in range(200)])
    # Mean and variance of the standard Gumbel distribution, within five standard errors.
    assert abs(noise.mean() - 0.5772156649) < 5 * math.sqrt(math.pi**2 / 6 / noise.size)
    assert abs(noise.var() - math.pi**2 / 6) < 0.05
    shares, _ = np.histogram(np.exp(-np.exp(-noise)), 64, (0, 1))
    expected = noise.size / 64
    assert ((shares - expected) ** 2 / expected).sum() < 120


def test_noise_of_neighbours_is_independent():
    for axis in ("seed", "position", "id"):
        a, b = (
            plain.gumbel_noise(
                5 + n * (axis == "seed"), 7 + n * (axis == "position"), np.arange(50_000) + n * (axis == "id")
            )
            for n in (0, 1)
        )
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(a.size)


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"top_k": 1}, [0]),
        ({"top_k": 2}, [0, 1, 2]),
        ({"top_k": 3}, [0, 1, 2]),
        ({"top_k": 9}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.4}, [0]),
        ({"top_p": 0.41}, [0, 1, 2]),
        ({"top_p": 0.85}, [0, 1, 2, 3]),
        ({"top_k": 3, "top_p": 0.45}, [0]),
        ({"top_p": 1.0}, [0, 1, 2, 3, 4]),
    ],
)
def test_what_stays(keywords, expected):
    with np.errstate(divide="ignore"):
        logits = np.log([0.4001, 0.2, 0.2, 0.15, 0.05, 0.0])
    assert np.flatnonzero(plain.staying(logits, 1.0, **keywords)).tolist() == expected


def test_temperature_comes_before_top_p():
    logits = np.log([0.5, 0.3, 0.2])
    assert plain.staying(logits, 1.0, top_p=0.5).sum() == 1
    assert plain.staying(logits, 10.0, top_p=0.5).sum() == 2


@pytest.mark.parametrize(
    ("logits", "greedy"),
    [
        ([1, 3, 3, 2], 1),
        ([-np.inf, -np.inf, -5], 2),
        ([-np.inf, -np.inf], 0),
        ([0, np.nan, np.inf, np.nan], 1),
        ([0, np.inf, np.inf], 1),
    ],
)
def test_special_logits(logits, greedy):
    logits = np.array(logits)
    assert plain.choose_token(logits) == greedy
    if not plain.has_probabilities(logits):
        assert plain.choose_token(logits, 1.0, seed=4) == greedy
        assert np.isnan(plain.log_softmax(logits)).all()


def test_alternatives_come_in_order():
    ids, values = plain.alternatives(np.array([0.0, 2.0, 1.0, 2.0]))
    assert ids.tolist() == [1, 3, 2, 0] + [0xFFFFFFFF] * 6
    assert np.exp(values).sum() == pytest.approx(1)
    assert plain.alternatives(np.array([0.0, np.nan, 9.0]))[0][:3].tolist() == [1, 2, 0]


def test_statistics_of_known_distributions():
    with np.errstate(divide="ignore"):
        a, b = np.log([[0.5, 0.25, 0.25, 0.0]]), np.log([[0.25, 0.5, 0.25, 0.0]])
    (row,) = plain.token_statistics(a, np.array([1]))
    assert row == pytest.approx([math.log(0.25), 0, 1.5 * math.log(2)])
    assert np.isnan(plain.token_statistics(a, np.array([4]))[0, 0])
    assert plain.compare_distributions(a, b)[0] == pytest.approx([0.25 * math.log(2), 0, 1])
    assert plain.compare_distributions(np.zeros((1, 4)), a)[0, 0] == np.inf
    assert plain.compare_distributions(a, a)[0, 0] == 0


# What is dispatched


@pytest.mark.parametrize("with_alternatives", [False, True])
@pytest.mark.parametrize(
    ("options", "variant"),
    [
        ({}, "likeliest"),
        ({"top_k": 3, "top_p": 0.5}, "likeliest"),
        ({"temperature": 0.7}, "sampled"),
        ({"temperature": 1, "top_k": 3, "top_p": 1}, "sampled"),
    ],
)
def test_a_choice_is_one_dispatch(bridge, device, options, variant, with_alternatives):
    choose(device, **options, with_alternatives=with_alternatives, end_tokens=(1, 2))
    launch = last_launch(bridge, device)
    assert launch.label == f"choose_token/{variant}"
    assert launch.workgroups == (1, 1, 1)
    assert len(launch.buffers) == (6 if with_alternatives else 4)
    # Only what is asked for is compiled.
    assert ("hash_of" in launch.wgsl) == (variant == "sampled")
    assert ("params.top_k" in launch.wgsl) == (variant == "sampled" and "top_k" in options)
    assert "params.top_p" not in launch.wgsl
    assert ("best_after" in launch.wgsl) == with_alternatives


def test_options_that_change_nothing_are_not_compiled(bridge, device):
    choose(device, temperature=1.0, top_k=40, top_p=1.0)
    wgsl = last_launch(bridge, device).wgsl
    assert "params.top_k" not in wgsl
    assert "params.top_p" not in wgsl
    choose(device, temperature=1.0, top_k=39, top_p=0.999)
    wgsl = last_launch(bridge, device).wgsl
    assert "params.top_k" in wgsl
    assert "params.top_p" in wgsl


@pytest.mark.parametrize(("adapter", "invocations"), [({}, 64), ({"software": False}, 256), (DESKTOP, 1024)])
def test_workgroups_fit_the_adapter(adapter, invocations):
    bridge = RecordingBridge(**adapter)
    device = asyncio.run(request_device(bridge))
    choose(device, temperature=1.0, top_p=0.5, with_alternatives=True)
    launch = last_launch(bridge, device)
    assert f"const WORKGROUP: u32 = {invocations}u;" in launch.wgsl
    assert "//#" not in launch.wgsl
    assert "{{" not in launch.wgsl


@pytest.mark.parametrize(("vocabulary", "first", "packed"), [(40, 0, True), (41, 0, False), (40, 3, False)])
def test_rows_that_do_not_divide_by_4_are_read_one_by_one(bridge, device, vocabulary, first, packed):
    choose(device, vocabulary, logits_row=zeros(device, first + vocabulary)[first:])
    assert ("logits: array<vec4<f32>>" in last_launch(bridge, device).wgsl) == packed


def test_a_row_of_several(bridge, device):
    rows = zeros(device, 3, 40)
    choose(device, logits_row=rows[2])
    choose(device, logits_row=rows[2:])
    device.flush()
    assert len({launch.params for launch in bridge.launches}) == 1


def test_statistics_take_a_workgroup_for_each_row(bridge, device):
    rows = zeros(device, 7, 40)
    assert nn.token_statistics(rows, zeros(device, 7, dtype="uint32")).shape == (7, 3)
    assert last_launch(bridge, device).workgroups == (7, 1, 1)
    assert nn.compare_distributions(rows[2:6], rows[:4]).shape == (4, 3)
    assert last_launch(bridge, device).workgroups == (4, 1, 1)


def test_no_rows_dispatch_nothing(bridge, device):
    none = zeros(device, 0, 40)
    assert nn.token_statistics(none, zeros(device, 0, dtype="uint32")).shape == (0, 3)
    assert nn.compare_distributions(none, none).shape == (0, 3)
    device.flush()
    assert bridge.programs == []


# What is refused


def destroyed(tensor):
    tensor.destroy()
    return tensor


CHOICES = {
    "negative temperature": ({"temperature": -0.1}, "temperature: expected a number >= 0, got -0.1"),
    "infinite temperature": ({"temperature": math.inf}, "temperature: expected a finite number"),
    "NaN temperature": ({"temperature": math.nan}, "temperature: expected a finite number"),
    "top_k 0": ({"top_k": 0}, "top_k: expected a number >= 1 or None, got 0"),
    "top_p 0": ({"top_p": 0.0}, "top_p: expected a number above 0 and up to 1, or None, got 0"),
    "top_p over 1": ({"top_p": 1.5}, "top_p: expected a number above 0 and up to 1, or None, got 1.5"),
    "advance 0": ({"advance": 0}, "advance: expected at least 1, got 0"),
    "end token outside": ({"end_tokens": [3, 40]}, "end_tokens: expected ids from 0 to 39, got 40"),
    "many end tokens": ({"end_tokens": range(9)}, "end_tokens: expected at most 8, got 9"),
    "invocations": ({"invocations": 48}, "invocations: expected a power of two of at most 256, got 48"),
    "no power of two": ({"invocations": 512}, "invocations: expected a power of two of at most 256, got 512"),
    "rows": (lambda d: {"logits_row": zeros(d, 2, 40)}, r"logits_row: expected one row, got shape \[2, 40\]"),
    "no logits": (
        lambda d: {"logits_row": zeros(d, 0)},
        "logits_row: expected from 1 to 16,777,216 tokens, got 0",
    ),
    "half logits": (
        lambda d: {"logits_row": zeros(d, 40, dtype="float16")},
        "logits_row: expected dtype float32, got float16",
    ),
    "token dtype": (
        lambda d: {"tokens": zeros(d, 9, dtype="int32")},
        "tokens: expected dtype uint32, got int32",
    ),
    "length": (lambda d: {"log_probs": zeros(d, 8)}, r"log_probs: expected shape \[9\], got \[8\]"),
    "state": (lambda d: {"state": zeros(d, 4)}, r"state: expected uint32 \[4\], got float32 \[4\]"),
    "steps": (lambda d: {"log_probs": zeros(d, 18)[::2]}, "log_probs: expected packed rows, got a view"),
    "alternatives": (
        lambda d: {"alternatives": (zeros(d, 9, 9, dtype="uint32"), zeros(d, 9, 10))},
        r"alternative_ids: expected shape \[9, 10\], got \[9, 9\]",
    ),
    "destroyed": (
        lambda d: {"tokens": destroyed(zeros(d, 9, dtype="uint32"))},
        "tokens: the tensor was destroyed",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("options", "words"), CHOICES.values(), ids=CHOICES.keys())
def test_wrong_choices_are_named(bridge, device, options, words):
    options = options(device) if callable(options) else options
    with pytest.raises(ValueError, match=words):
        choose(device, **options)
    device.flush()
    assert bridge.programs == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": "hot"}, "temperature: expected a number, got 'hot'"),
        ({"top_k": 1.5}, "top_k: expected an integer, got 1.5"),
        ({"top_p": True}, "top_p: expected a number, got True"),
        ({"end_tokens": [0.5]}, "end_tokens: expected an integer, got 0.5"),
        ({"end_tokens": 3}, "end_tokens: expected a sequence of ids, got 3"),
        ({"alternatives": 3}, "alternatives: expected a pair of tensors, got 3"),
        ({"tokens": [0] * 9}, "tokens: expected a Tensor, got list"),
        ({"state": None}, "state: expected a Tensor, got NoneType"),
        ({"alternatives": (None, None)}, "alternative_ids: expected a Tensor, got NoneType"),
    ],
)
def test_wrong_types_are_named(bridge, device, options, words):
    with pytest.raises(TypeError, match=words):
        choose(device, **options)
    device.flush()
    assert bridge.programs == []


def test_wrong_statistics_are_named(bridge, device):
    rows = zeros(device, 3, 40)
    with pytest.raises(ValueError, match=r"targets: expected shape \[3\], got \[2\]"):
        nn.token_statistics(rows, zeros(device, 2, dtype="uint32"))
    with pytest.raises(ValueError, match="targets: expected dtype uint32, got int32"):
        nn.token_statistics(rows, zeros(device, 3, dtype="int32"))
    with pytest.raises(ValueError, match="logits: expected at least 2 dimensions"):
        nn.token_statistics(rows[0], zeros(device, 3, dtype="uint32"))
    with pytest.raises(ValueError, match=r"logits_b: expected shape \[3, 40\], got \[2, 40\]"):
        nn.compare_distributions(rows, rows[:2])
    with pytest.raises(TypeError, match="logits_a: expected a Tensor, got NoneType"):
        nn.compare_distributions(None, rows)
    device.flush()
    assert bridge.programs == []
