"""Checks of `nn.choose_token`, `nn.token_statistics` and `nn.compare_distributions` against numpy."""

import functools

import numpy as np

import py_attn as pa
from e2e.page.bounds import bound_of
from e2e.page.inputs import poisoned
from py_attn import sampling_reference as plain
from py_attn.kernels import nn

LENGTH = 12
_TRIES = 4
UNTOUCHED = 77


def make_logits(random, kind, shape):
    """Rows of logits of a kind: "hidden" has some -inf, "NaN", "infinite" and "nothing" no probabilities."""
    x = random.standard_normal(shape).astype(np.float32)
    vocabulary = shape[-1]
    if kind == "normal":
        x *= 3
    elif kind == "peaked":
        x[..., random.integers(vocabulary)] += 30
    elif kind == "flat":
        x[:] = x[..., :1]
    elif kind == "ties":
        x = np.round(x)
    elif kind == "hidden":
        x = np.where(random.random(shape) < 0.7, np.float32(-np.inf), x)
        x[..., random.integers(vocabulary)] = 0.25
    elif kind == "wide":
        x *= np.float32(3e37)
    elif kind == "zeros":
        x = np.where(x > 0, np.float32(0.0), np.float32(-0.0))
    elif kind == "NaN":
        x[..., random.integers(vocabulary)] = np.nan
        x[..., random.integers(vocabulary)] = -np.float32(np.nan)
    elif kind == "infinite":
        x[..., random.integers(vocabulary)] = np.inf
        x[..., random.integers(vocabulary)] = np.inf
    elif kind == "nothing":
        x[:] = -np.inf
    else:
        raise ValueError(kind)
    return x


def as_row(device, values, first):
    """The row as a view that begins at element `first` of its buffer."""
    before = np.full(first, np.nan, np.float32)
    return device.tensor(np.concatenate([before, values]))[first:]


def log_prob_error(got, exact, logits):
    """The largest error of log-probabilities over the bound; infinities and NaN must be where they belong."""
    with np.errstate(over="ignore"):
        single = plain.log_softmax(logits, np.float32)
    exact_all = plain.log_softmax(logits)
    got, exact = np.atleast_1d(np.asarray(got, np.float64)), np.atleast_1d(exact)
    assert np.array_equal(np.isnan(got), np.isnan(exact)), (got, exact)
    assert np.array_equal(np.isinf(got), np.isinf(exact)), (got, exact)
    seen, all_seen = np.isfinite(exact), np.isfinite(exact_all) & np.isfinite(single)
    if not seen.any():
        return 0.0
    numpy_error = np.abs(single[all_seen] - exact_all[all_seen]).max(initial=0)
    return ratio(got[seen], exact[seen], bound_of(exact_all[all_seen], numpy_error))


def ratio(got, exact, bound):
    """The largest error over the bound, which is 0 where only 0 is right."""
    error = np.abs(got - exact).max()
    return float(error / bound) if bound else float(error > 0)


def assert_chosen(logits, token, options, seed, position):
    """The token is the reference's, unless float32 cannot tell scores or sums of probabilities apart."""
    expected = plain.choose_token(logits, **options, seed=seed, position=position)
    if token == expected:
        return
    assert options["temperature"], f"chose {token}, not {expected}"
    share = options["top_p"]
    for factor in (1, 1 - 1e-5, 1 + 1e-5) if share else (1,):
        near = {**options, "top_p": share and min(1.0, share * factor)}
        scores = plain.scores(logits, **near, seed=seed, position=position)
        if scores[token] >= scores.max() - 1e-5 * (1 + abs(scores.max()) + abs(scores[token])):
            return
    raise AssertionError(f"chose {token}, not {expected}, of scores {scores[token]} and {scores[expected]}")


async def check_choice(case):
    """Steps of choose_token on random logits.

    A case has "seed", "vocabulary", "kind", "first", "temperature", "top_k", "top_p", "given", "position",
    "advance", "finished", "end" (whether the first choice is an end token), "alternatives", "invocations".
    """
    device, random = pa.default_device(), np.random.default_rng(case["seed"])
    vocabulary, seed = case["vocabulary"], case["seed"] * 2654435761 % (1 << 32)
    logits = make_logits(random, case["kind"], (vocabulary,))
    options = {name: case[name] for name in ("temperature", "top_k", "top_p")}
    position = case["position"] + case["advance"]
    given_ids = random.integers(vocabulary, size=LENGTH)
    chooses = position >= case["given"]
    first_choice = plain.choose_token(logits, **options, seed=seed, position=position)
    with poisoned(device):
        state = device.tensor([case["position"], case["given"], int(case["finished"]), seed], "uint32")
        tokens = device.tensor(given_ids, "uint32")
        log_probs = device.tensor(np.full(LENGTH, UNTOUCHED, np.float32))
        pair = (
            device.tensor(np.full((LENGTH, 10), UNTOUCHED), "uint32"),
            device.tensor(np.full((LENGTH, 10), UNTOUCHED, np.float32)),
        )
        nn.choose_token(
            as_row(device, logits, case["first"]), tokens, log_probs, state,
            **options, advance=case["advance"], end_tokens=(first_choice,) if case["end"] else (),
            alternatives=pair if case["alternatives"] else None, invocations=case["invocations"],
        )  # fmt: skip
        new_state, ids, values, *more = [await tensor.numpy() for tensor in (state, tokens, log_probs, *pair)]
    everywhere = np.arange(LENGTH)
    if case["finished"] or position >= LENGTH:
        touched = everywhere < 0
        assert new_state.tolist() == [case["position"], case["given"], int(case["finished"]), seed]
    else:
        touched = everywhere == position
        is_end = chooses and case["end"] and ids[position] == first_choice
        assert new_state.tolist() == [position, case["given"], int(is_end), seed], new_state
    assert np.array_equal(ids[~touched], given_ids[~touched])
    assert (values[~touched] == UNTOUCHED).all()
    noted = touched if case["alternatives"] else everywhere < 0
    for found in more:
        assert (found[~noted] == UNTOUCHED).all()
    ratios = {"log_probs": 0.0, "alternatives": 0.0}
    if not touched.any():
        return ratios
    token = int(ids[position])
    if chooses:
        assert_chosen(logits, token, options, seed, position)
    else:
        assert token == given_ids[position]
    ratios["log_probs"] = log_prob_error(values[position], plain.log_softmax(logits)[token], logits)
    if case["alternatives"]:
        expected_ids, expected = plain.alternatives(logits)
        assert np.array_equal(more[0][position], expected_ids), (more[0][position], expected_ids)
        ratios["alternatives"] = log_prob_error(more[1][position], expected, logits)
    return ratios


async def check_statistics(case):
    """Both statistics of random rows.

    A case has "seed", "rows", "vocabulary", "kinds" of a and b, "nearness" (how far b is from a, or None),
    "first", "invocations".
    """
    device, random = pa.default_device(), np.random.default_rng(case["seed"])
    shape = case["rows"], case["vocabulary"]
    a, b = (make_logits(random, kind, shape) for kind in case["kinds"])
    if case["nearness"] is not None:
        b = a + np.float32(case["nearness"]) * random.standard_normal(shape).astype(np.float32)
    targets = random.integers(shape[1] + 1, size=shape[0])
    with poisoned(device):
        tensors = [as_row(device, x.ravel(), case["first"]).reshape(*shape) for x in (a, b)]
        options = {"invocations": case["invocations"]}
        statistics = await nn.token_statistics(
            tensors[0], device.tensor(targets, "uint32"), **options
        ).numpy()
        distances = await nn.compare_distributions(*tensors, **options).numpy()
    ratios = {}
    with np.errstate(all="ignore"):
        exact = plain.token_statistics(a, targets)
        errors = float32_errors(lambda larger, kind: plain.token_statistics(larger(a), targets, kind))
        assert np.array_equal(statistics[:, 1], exact[:, 1])
        for name, column in (("log_prob", 0), ("entropy", 2)):
            ratios[name] = column_error(statistics[:, column], exact[:, column], errors[column])
        exact = plain.compare_distributions(a, b, np.float64)
        errors = float32_errors(lambda larger, kind: plain.compare_distributions(larger(a), larger(b), kind))
    assert np.array_equal(distances[:, 1:], exact[:, 1:])
    assert not (distances[:, 0] < 0).any()
    ratios["divergence"] = column_error(distances[:, 0], exact[:, 0], errors[0])
    return ratios


def float32_errors(compute):
    """numpy's largest error in float32 of each column of `compute(larger, dtype)`.

    That of few rows may be anything, so it is the largest of several tries, in which `larger` makes the
    logits a little larger and everything rounds anew.
    """
    worst = 0.0
    for n in range(_TRIES):
        larger = functools.partial(np.multiply, np.float32(1 + n / 64))
        exact, single = (compute(larger, kind) for kind in (np.float64, np.float32))
        both = np.isfinite(exact) & np.isfinite(single)
        worst = np.maximum(
            worst, np.abs(single - exact, where=both, out=np.zeros(exact.shape)).max(0, initial=0)
        )
    return worst


def column_error(got, exact, numpy_error):
    got = got.astype(np.float64)
    assert np.array_equal(np.isnan(got), np.isnan(exact)), (got, exact)
    assert np.array_equal(np.isinf(got), np.isinf(exact)), (got, exact)
    seen = np.isfinite(exact)
    if not seen.any():
        return 0.0
    return ratio(got[seen], exact[seen], bound_of(exact[seen], numpy_error))


async def frequencies(logits, draws, options):
    """How often each id is chosen from the same logits at `draws` positions, as one recorded loop."""
    device, seed = pa.default_device(), 2026
    row = device.tensor(np.array(logits, np.float32))
    state = device.tensor([0, 0, 0, seed], "uint32")
    tokens, log_probs = device.tensor([0] * (draws + 1), "uint32"), device.empty((draws + 1,))
    with device.record() as program:
        nn.choose_token(row, tokens, log_probs, state, **options)
    for _ in range(draws):
        program.submit()
    chosen = (await tokens.numpy())[1:]
    program.destroy()
    expected = [
        plain.choose_token(np.array(logits, np.float32), **options, seed=seed, position=p + 1)
        for p in range(draws)
    ]
    return [
        np.bincount(chosen, minlength=len(logits)).tolist(),
        int((chosen != np.array(expected)).sum()),
        (await state.numpy()).tolist(),
    ]
