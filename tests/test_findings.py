"""The definitions of what heads do, on maps of which the answer is known; and the kernel's plan."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import py_attn as pa
from py_attn import findings
from py_attn.findings.scores import SUMS, row_sums
from py_attn.findings.tokens import KEY_SETS, PUNCTUATION, SEPARATOR, identities, key_sets, kinds
from py_attn.kernels.maps.row_sums import row_sums as row_sums_on_gpu
from tests.recording_bridge import RecordingBridge
from tests.test_device import device_on

TEXT = "[CLS] the cat saw a dog , and the dog saw the cat . so it ran far away [SEP]"
TOKENS = TEXT.split()
N = len(TOKENS)
#: With two repeated stretches, for induction.
REPEATED = list("abcdefabcdefabcd")


def one_hot(n, key_of, otherwise=0):
    """A map whose query i looks at key_of(i), or at ``otherwise`` where that is no key."""
    keys = [key_of(i) for i in range(n)]
    return np.eye(n)[[key if key is not None and 0 <= key < n else otherwise for key in keys]]


def uniform(n, causal=False):
    weights = np.tril(np.ones((n, n))) if causal else np.ones((n, n))
    return weights / weights.sum(-1, keepdims=True)


def spread_over(allowed):
    """Weights spread evenly over the allowed keys of each query, and over all where there are none."""
    allowed = np.where(allowed.any(-1, keepdims=True), allowed, True).astype(float)
    return allowed / allowed.sum(-1, keepdims=True)


def names(weights, tokens=TOKENS, **more):
    return [name for name, _ in findings.head_labels(weights, tokens, **more)[0]]


MAPS = {
    "previous": one_hot(N, lambda i: i - 1),
    "next": one_hot(N, lambda i: i + 1 if i + 1 < N else None),
    "self": one_hot(N, lambda i: i),
    "first": one_hot(N, lambda i: 0),
    "separator": one_hot(N, lambda i: N - 1),
    "punctuation": spread_over(key_sets(TOKENS, np.arange(N), causal=False)["punctuation"]),
    "same": spread_over(key_sets(TOKENS, np.arange(N), causal=False)["same"]),
    "broad": uniform(N),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_map_that_does_just_one_thing_has_its_label_and_no_other(name):
    assert names(MAPS[name]) == [name]
    if name != "broad":
        assert findings.head_scores(MAPS[name], TOKENS).labels[name] == pytest.approx(1)


def test_a_map_of_nearby_tokens():
    distance = np.abs(np.subtract.outer(np.arange(N), np.arange(N)))
    assert names(spread_over((distance > 0) & (distance <= 3))) == ["nearby"]


def test_induction_is_known_in_causal_maps_only():
    last = {}
    target = []
    for i, token in enumerate(REPEATED):
        target.append(last.get(token, -1) + 1)
        last[token] = i
    weights = one_hot(len(REPEATED), lambda i: target[i])
    found = findings.head_scores(weights, REPEATED)
    assert found.labels["induction"] == pytest.approx(1)
    assert found.rows["induction"] == 10
    assert names(weights, REPEATED)[0] == "induction"
    assert np.isnan(findings.head_scores(weights, REPEATED, causal=False).labels["induction"])


@pytest.mark.parametrize("causal", [False, True])
def test_a_uniform_head_is_broad_and_scores_nothing_else(causal):
    found = findings.head_scores(uniform(N, causal), TOKENS)
    others = [score for name, score in found.labels.items() if name != "broad"]
    np.testing.assert_allclose(np.nan_to_num(others), 0, atol=1e-12)
    assert found.labels["broad"] == pytest.approx(1)
    assert found.sparsity == pytest.approx(0, abs=1e-7)
    assert names(uniform(N, causal)) == ["broad"]


def test_a_narrow_head_without_another_label():
    found = np.random.default_rng(0).permutation(N)
    weights = one_hot(N, lambda i: int(found[i]))
    assert names(weights) == ["narrow"]
    scores = findings.head_scores(weights, TOKENS)
    assert (scores.entropy, scores.sparsity) == (0, pytest.approx(1))


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_of_a_kind_has_a_higher_score(a, b):
    low, high = sorted((a, b))
    scores = [
        findings.head_scores(share * MAPS["previous"] + (1 - share) * uniform(N), TOKENS).labels["previous"]
        for share in (low, high)
    ]
    assert scores[0] <= scores[1] + 1e-12
    # Against chance a mixture's score is its share, as what is spread evenly counts for nothing.
    assert scores[1] == pytest.approx(high * (1 - 1e-12), abs=0.06)


def test_a_mixture_has_both_labels_in_their_order():
    weights = 0.6 * MAPS["first"] + 0.4 * MAPS["self"]
    assert names(weights) == ["first", "self"]


def test_previous_implies_nearby_and_is_told_alone():
    weights = 0.7 * MAPS["previous"] + 0.3 * one_hot(N, lambda i: i - 2)
    scores = findings.head_scores(weights, TOKENS).labels
    assert scores["nearby"] > scores["previous"] > findings.LABELS[0].minimum
    assert names(weights) == ["previous"]


@settings(max_examples=50)
@given(
    arrays(np.float64, (4, 7, 7), elements=st.floats(0, 1)),
    st.lists(st.sampled_from(["a", "b", "A", ".", "[SEP]", "##s", ""]), min_size=7, max_size=7),
    st.permutations(range(4)),
    st.booleans(),
)
def test_scores_are_bounded_and_each_head_s_own(weights, tokens, order, causal):
    found = findings.head_scores(weights, tokens, causal=causal)
    for scores in (*found.labels.values(), found.sparsity):
        assert scores.shape == (4,)
        assert np.all(np.isnan(scores) | ((scores >= 0) & (scores <= 1)))
    assert np.all(np.isnan(found.entropy) | ((found.entropy >= 0) & (found.entropy <= np.log2(7) + 1e-9)))
    again = findings.head_scores(weights[list(order)], tokens, causal=causal)
    for name, scores in again.labels.items():
        np.testing.assert_allclose(scores, found.labels[name][list(order)], atol=1e-12)
    np.testing.assert_allclose(again.entropy, found.entropy[list(order)], atol=1e-12)


def test_rows_need_not_sum_to_one_and_rows_of_zeros_are_left_out():
    weights = np.random.default_rng(1).random((N, N))
    scaled = weights * np.arange(1, N + 1)[:, None]
    plain, other = (findings.head_scores(each, TOKENS) for each in (weights, scaled))
    assert other.entropy == pytest.approx(plain.entropy)
    assert other.labels["first"] == pytest.approx(plain.labels["first"])
    with_hole = MAPS["previous"].copy()
    with_hole[5] = 0
    found = findings.head_scores(with_hole, TOKENS)
    assert found.labels["previous"] == pytest.approx(1)
    assert found.rows["previous"] == N - 2
    nothing = findings.head_scores(np.zeros((N, N)), TOKENS)
    assert np.isnan(nothing.entropy)
    assert all(np.isnan(score) for score in nothing.labels.values())
    assert nothing.shown() == []


def test_a_label_needs_more_than_two_rows():
    # Only the last two queries of a causal map see the full stop, and both attend to it.
    tokens = list("abcdefgh.i")
    weights = one_hot(10, lambda i: 8 if i >= 8 else i)
    found = findings.head_scores(weights, tokens)
    assert (found.labels["punctuation"], found.rows["punctuation"]) == (1, 2)
    assert names(weights, tokens) == ["self"]


def test_keys_that_are_hidden_do_not_count_as_a_choice():
    # Of the two keys that a query sees, the weight is spread evenly: that is chance.
    visible = np.abs(np.subtract.outer(np.arange(N), np.arange(N)) - 0.5) < 1
    weights = spread_over(visible)
    assert findings.head_scores(weights, TOKENS).labels["previous"] > 0.4
    assert findings.head_scores(weights, TOKENS, visible=visible).labels["previous"] == pytest.approx(0)
    assert names(weights, visible=visible) == ["broad"]


def test_leading_axes_are_kept():
    weights = np.stack([MAPS["previous"], MAPS["first"]]).reshape(2, 1, N, N)
    assert findings.head_scores(weights, TOKENS).labels["first"].shape == (2, 1)
    assert [head[0][0] for head in findings.head_labels(weights, TOKENS)] == ["previous", "first"]


def test_arguments_that_do_not_fit():
    with pytest.raises(ValueError, match="weights: expected a square last pair"):
        findings.head_scores(np.ones((3, 4)), ["a"] * 4)
    with pytest.raises(ValueError, match="tokens: expected a list of 3 strings"):
        findings.head_scores(np.ones((3, 3)), ["a"] * 4)
    with pytest.raises(ValueError, match="maps: expected"):
        findings.head_distances(np.ones((3, 3)))
    with pytest.raises(ValueError, match="distances: expected"):
        findings.head_groups(np.ones((3, 2)))


def test_kinds_of_tokens():
    tokens = ["[CLS]", ",", "##.", " …", "Ġ?", "a.", "##s", "[SEP]", "<|im_end|>", "\n", ""]
    assert kinds(tokens).tolist() == [0, *[PUNCTUATION] * 4, 0, 0, SEPARATOR, SEPARATOR, 0, 0]
    assert kinds(["</s>", "</s>"]).tolist() == [0, SEPARATOR]


def test_the_same_word_in_capitals_or_after_a_space_is_the_same():
    assert identities(["The", " the", "Ġthe", "them", "▁THE", "\n", " "]).tolist() == [0, 0, 0, 1, 0, 2, 3]


# Likeness of heads


def test_distances_are_a_metric_from_0_to_1():
    random = np.random.default_rng(0)
    maps = random.random((6, 5, 8)) ** 3
    maps[5] = maps[4]
    distances = findings.head_distances(maps)
    np.testing.assert_array_equal(distances, distances.T)
    assert distances[4, 5] == 0
    assert np.all(np.diag(distances) == 0)
    assert np.all((distances >= 0) & (distances <= 1))
    for a in range(6):
        assert np.all(distances <= distances[:, [a]] + distances[[a]] + 1e-9)
    apart = np.zeros((2, 1, 2))
    apart[0, 0, 0] = apart[1, 0, 1] = 1
    assert findings.head_distances(apart)[0, 1] == pytest.approx(1)
    assert findings.head_distances(apart * [[[1]], [[0]]])[0, 1] == 1


def test_like_heads_are_in_a_group_and_side_by_side():
    random = np.random.default_rng(0)
    kind = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
    maps = np.stack([MAPS[("previous", "first", "broad")[k]] for k in kind])
    maps = maps + 0.02 * random.random(maps.shape)
    groups, order = findings.head_groups(findings.head_distances(maps))
    assert sorted(order.tolist()) == list(range(10))
    assert len(set(groups.tolist())) == 3
    for number in range(3):
        members = np.flatnonzero(groups == number)
        assert len(set(kind[members])) == 1
        places = np.sort([order.tolist().index(head) for head in members])
        assert np.all(np.diff(places) == 1)
    assert groups[order].tolist() == sorted(groups.tolist())


def test_average_linkage_by_hand():
    # 0 and 1 join at 0.1; 2 is at a mean of 0.4 from them, and 3 at a mean of 0.8 from all.
    distances = np.array([[0, 0.1, 0.3, 0.9], [0.1, 0, 0.5, 0.8], [0.3, 0.5, 0, 0.7], [0.9, 0.8, 0.7, 0]])
    for largest, wanted in ((0.05, [0, 1, 2, 3]), (0.2, 2), (0.41, 3), (0.79, 3), (0.81, 4)):
        groups, order = findings.head_groups(distances, largest=largest)
        sizes = np.bincount(groups)
        assert sizes.max() == (1 if isinstance(wanted, list) else wanted)
    assert order.tolist() in ([1, 0, 2, 3], [3, 2, 0, 1])


@pytest.mark.parametrize("heads", [0, 1])
def test_too_few_heads_to_compare(heads):
    groups, order = findings.head_groups(findings.head_distances(np.ones((heads, 2, 2))))
    assert groups.tolist() == order.tolist() == list(range(heads))


# Sums of rows


def test_sums_of_rows_by_hand():
    weights = np.array([[[0.5, 0.5, 0.0], [0.25, 0.25, 0.5], [1.0, -1.0, 0.0]]])
    sums = row_sums(weights, key_sets(["x", ".", "x"], np.arange(3), causal=False))
    assert sums.shape == (1, 3, len(SUMS))
    found = dict(zip(SUMS, sums[0].T.tolist(), strict=True))
    assert found["total"] == [1, 1, 1]
    assert found["logs"] == [-1, -1.5, 0]
    assert found["squares"] == [0.5, 0.375, 1]
    assert found["previous"] == [0, 0.25, 0]
    assert found["same"] == [0, 0, 1]
    assert found["punctuation"] == [0.5, 0.25, 0]
    assert found["nearby"] == [0.5, 0.75, 1]
    assert set(KEY_SETS) < set(found)


def test_the_kernel_has_a_workgroup_for_each_row():
    bridge = RecordingBridge()
    device = device_on(bridge)
    weights = device.empty((2, 3, 40, 50))
    words = device.empty((50,), "uint32")
    out = row_sums_on_gpu(weights, words, words, row_begin=5, causal=True)
    device.flush()
    (launch,) = bridge.launches
    assert out.shape == (2, 3, 40, len(SUMS))
    assert launch.workgroups == (240, 1, 1)
    assert len(launch.buffers) == 4
    for begin, step in ((11, 1), (0, 2), (-1, 1), (0, 0)):
        with pytest.raises(ValueError, match="row_begin, row_step: expected 40 rows inside 0 to 50"):
            row_sums_on_gpu(weights, words, words, row_begin=begin, row_step=step)
    with pytest.raises(ValueError, match="kinds: expected dtype uint32"):
        row_sums_on_gpu(weights, device.empty((50,)), words)


def test_the_package_s_module_is_there_without_an_import():
    assert pa.findings is findings
    with pytest.raises(AttributeError, match="no attribute 'finding'"):
        _ = pa.finding
