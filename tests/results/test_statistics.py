"""Statistics of scores: known answers by plain computation, and the promised error rates."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from safedrift.results.statistics import (
    holm,
    improvement,
    interquartile_mean,
    iqm_tests,
    mean_interval,
    paired_t_test,
    performance_profile,
    pooled_iqm,
    probability_of_improvement,
    stratified_interval,
)


def rng_of(seed):
    return np.random.default_rng(seed)


# ---------------------------------------------------------------- known answers


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 20, 33])
def test_interquartile_mean_by_hand(n):
    scores = rng_of(n).normal(size=n)
    kept = sorted(scores)[n // 4 : n - n // 4]
    assert interquartile_mean(scores) == pytest.approx(sum(kept) / len(kept), abs=1e-14)
    assert interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25), abs=1e-14)


def test_interquartile_mean_ignores_a_failed_world_and_works_along_any_axis():
    scores = rng_of(0).random((3, 8, 2))
    one = [[interquartile_mean(scores[i, :, j]) for j in range(2)] for i in range(3)]
    np.testing.assert_array_equal(interquartile_mean(scores, axis=1), one)
    assert interquartile_mean(np.array([0, 1, 1, 1e9])) == 1


def test_pooled_means_are_over_worlds_and_seeds():
    scores = rng_of(1).random((5, 3, 4))
    for row, found in zip(scores, pooled_iqm(scores), strict=True):
        kept = sorted(row.ravel())[3:9]
        assert found == pytest.approx(sum(kept) / 6, abs=1e-14)


def test_improvement_by_counting():
    x, y = rng_of(2).integers(0, 5, (2, 3, 6)).astype(float)
    worlds = []
    for a, b in zip(x, y, strict=True):
        pairs = [(p < q) + 0.5 * (p == q) for p, q in itertools.product(a, b)]
        worlds.append(sum(pairs) / len(pairs))
    assert improvement(x, y) == pytest.approx(sum(worlds) / 3, abs=1e-14)
    assert improvement(x, y) + improvement(y, x) == pytest.approx(1)
    assert probability_of_improvement(x, x).value == 0.5


def test_profiles_by_counting():
    scores = rng_of(3).random((4, 5))
    levels = np.array([0.0, 0.3, scores[1, 2], 1.0])
    share, low, high = performance_profile(scores, levels)
    wanted = [sum(s <= t for s in scores.ravel()) / 20 for t in levels]
    np.testing.assert_allclose(share, wanted, atol=1e-14)
    assert (low <= share).all()
    assert (share <= high).all()
    assert low[1] < share[1] < high[1]
    assert (share[0], share[-1]) == (0, 1)


def test_iqm_test_by_a_plain_loop():
    scores = rng_of(4).gamma(3, size=(2, 3, 6)) * np.array([1.0, 2.0, 5.0])[:, None]
    x, y = scores

    def middle(rows):
        pooled = sorted(value for row in rows for value in row)
        return sum(pooled[4:14]) / 10

    rng, drawn = rng_of(0), []
    for _ in range(1999):
        at = rng.integers(6, size=(3, 6))
        one = [[x[w][i] for i in at[w]] for w in range(3)]
        two = [[y[w][i] for i in at[w]] for w in range(3)]
        drawn.append(middle(one) - middle(two))
    mean = sum(drawn) / 1999
    error = math.sqrt(sum((d - mean) ** 2 for d in drawn) / 1999 * 6 / 5)
    v = [np.var(x[w] - y[w], ddof=1) for w in range(3)]
    degrees = 5 * sum(v) ** 2 / sum(a * a for a in v)
    wanted = 2 * stats.t.sf(abs(middle(x) - middle(y)) / error, degrees)
    found = iqm_tests([x, y])
    assert found[0, 1] == pytest.approx(wanted, rel=1e-9)
    assert found[1, 0] == found[0, 1]
    assert np.isnan(found[0, 0])


def test_iqm_test_without_spread():
    x = rng_of(5).random((2, 5))
    assert iqm_tests([x, x])[0, 1] == 1
    assert iqm_tests([x, x + 0.01])[0, 1] == 0  # the same luck, always worse
    assert np.isnan(iqm_tests([x[:, :1], x[:, :1] + 1])).all()


def test_paired_t_by_scipy_and_without_spread():
    x, y = rng_of(6).normal(size=(2, 9))
    assert paired_t_test(x, y) == pytest.approx(stats.ttest_rel(x, y).pvalue, rel=1e-10)
    assert paired_t_test(x, x) == 1
    assert paired_t_test(np.ones(4), np.full(4, 2.0)) == 0
    assert np.isnan(paired_t_test(x[:1], y[:1]))


def test_holm_by_its_definition():
    p = rng_of(7).random(6) ** 3
    order = sorted(range(6), key=lambda i: p[i])
    wanted, so_far = [0.0] * 6, 0.0
    for step, i in enumerate(order):
        so_far = max(so_far, min(1.0, (6 - step) * p[i]))
        wanted[i] = so_far
    assert holm(p) == pytest.approx(wanted, abs=1e-15)
    with_gap = holm([0.01, float("nan"), 0.02])
    assert with_gap[0] == 0.02
    assert with_gap[2] == 0.02
    assert math.isnan(with_gap[1])
    assert holm([]) == []


# ---------------------------------------------------------------- intervals


def test_intervals_are_those_of_scipy_and_repeat():
    scores = rng_of(8).gamma(2, size=15)
    found = mean_interval(scores)
    twin = stats.bootstrap((scores,), np.mean, random_state=rng_of(0)).confidence_interval
    assert found[1:3] == pytest.approx(tuple(twin))
    assert found == mean_interval(scores)
    assert found.low < found.value < found.high


@pytest.mark.parametrize(
    ("scores", "ends", "note"),
    [
        ([], "nan", "no runs"),
        ([0.3], "nan", "one seed: no interval"),
        ([0.3, 0.3, 0.3], "same", "the same in every seed"),
    ],
)
def test_degenerate_intervals_say_so(scores, ends, note):
    found = mean_interval(np.array(scores))
    assert found.note == note
    if ends == "nan":
        assert math.isnan(found.low)
        assert math.isnan(found.high)
    else:
        assert (found.low, found.high) == pytest.approx((0.3, 0.3))


def test_stratified_intervals_do_not_mix_worlds():
    """Worlds of very different difficulty add nothing to the width."""
    noise = 0.01 * rng_of(9).normal(size=(4, 20))
    apart = noise + np.arange(4.0)[:, None]

    def mean(scores):
        return scores.mean(axis=(-1, -2))

    near, far = (stratified_interval(mean, (s,)) for s in (noise, apart))
    assert far.high - far.low == pytest.approx(near.high - near.low, rel=1e-6)
    assert far.high - far.low == pytest.approx(2 * 1.96 * 0.01 / math.sqrt(80), rel=0.3)
    assert stratified_interval(mean, (noise[:, :1],)).note == "one seed: no interval"
    assert stratified_interval(mean, (0 * noise + 1.0,)).note == "the same in every seed"


def test_pairs_are_resampled_together():
    """Two learners that share their luck differ by a constant: no uncertainty is left."""
    luck = rng_of(10).normal(size=(3, 10))

    def difference(x, y):
        return (x - y).mean(axis=(-1, -2))

    found = stratified_interval(difference, (luck, luck + 0.05))
    assert (found.low, found.high) == pytest.approx((-0.05, -0.05))


@pytest.mark.slow
def test_coverage_of_the_mean():
    rng = rng_of(11)
    inside = 0
    for _ in range(400):
        found = mean_interval(rng.normal(size=20), resamples=999)
        inside += found.low <= 0 <= found.high
    assert 0.88 <= inside / 400 <= 0.98


# ---------------------------------------------------------------- error rates


def synthetic(rng, worlds=3, seeds=20, difference=0.0):
    """Scores of two learners that share most of their luck, one worse by a share `difference`."""
    level = rng.uniform(0.2, 0.8, (worlds, 1))
    luck = 1 + 0.1 * rng.normal(size=(worlds, seeds))
    own = 1 + 0.05 * rng.normal(size=(2, worlds, seeds))
    x, y = level * luck * own
    return x, (1 + difference) * y


def first_world_t_test(pair):
    return paired_t_test(pair[0][0], pair[1][0])


def iqm_test(pair):
    return iqm_tests(pair, resamples=199)[0, 1]


def test_planted_difference_of_five_percent_is_found():
    rng = rng_of(12)
    found = [iqm_test(synthetic(rng, difference=0.05)) for _ in range(50)]
    assert np.mean(np.array(found) < 0.05) > 0.9


@pytest.mark.parametrize("worlds", [1, 4])
@pytest.mark.parametrize("seeds", [5, 20])
@pytest.mark.parametrize("test", [iqm_test, first_world_t_test])
def test_false_positives_are_as_rare_as_promised(test, worlds, seeds):
    rng = rng_of(13)
    found = [test(synthetic(rng, worlds, seeds)) for _ in range(400)]
    rate = np.mean(np.array(found) < 0.05)
    assert rate < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    assert rate > 0.005
