"""Theorems 1 and 2: printed formulas by hand, explicit bonuses, drift, and vacuous constants."""

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import safedrift as sd
from safedrift.learners.propd_ppo import Dimensions, theorem1, theorem2, theorem4, tune
from safedrift.learners.propd_ppo.components import LeastSquaresEvaluation, plain
from safedrift.learners.propd_ppo.linear_remarks import remarks

# Chosen so that every root is a short number: √M = 64, √d = 4, √d B_Δ + B_* = 4·4 + 11 = 27.
SIZES = sd.Sizes(M=4096, H=2, S=5, A=3, K=1)
DIMENSIONS = Dimensions(d1=16, d2=9)
BUDGETS = sd.Budgets(P=2.0, r=1.0, g=1.0, star=11.0)
STILL = sd.Budgets(0, 0, 0, 0)


def both(sizes, dimensions, budgets, mode, **more):
    """Theorem 1 and Theorem 2 for the same problem."""
    return (
        theorem1(sizes, dimensions, sd.LocalBudgets(), budgets, mode=mode, **more),
        theorem2(sizes, dimensions, sd.Slater(0.5), budgets, mode=mode, **more),
    )


# ---------------------------------------------------------------- printed


def test_theorem1_as_printed():
    changes = np.full((4096, 2), 1e-3), np.full((4096, 1, 2), 2e-3)
    found = theorem1(SIZES, DIMENSIONS, sd.LocalBudgets(*changes), BUDGETS, mode="printed")
    assert found.source == "Theorem 1"
    assert found.improvement.alpha == pytest.approx(3 / (2 * 64))
    assert found.improvement.L == 57  # 512 / 9 = 56.9
    assert found.dual.eta == pytest.approx(1 / 64)
    assert found.dual.xi == pytest.approx(2 * 2 * 3 / 64)
    assert (found.dual.chi, found.dual.lagged, found.dual.dual_signal) == (
        np.inf,
        False,
        "optimistic",
    )
    part = found.evaluation
    assert (part.W, part.lam) == (8, 1.0)  # 1/2 · 1/2 · 64 · 1/2
    # 7 changes inside a block of 8, 2 steps: B_P,E = 0.014, B_g,E = 0.028;
    # 0.014 · 4 · 16 · √128 + 0.028 · √72 = 10.137083 + 0.237588
    np.testing.assert_allclose(part.LV, 10.374671, rtol=1e-6)
    assert part.LV.shape == (512, 1, 2)
    assert not part.window_drift_P.any()
    assert not part.window_drift_g.any()


def test_theorem2_as_printed():
    found = theorem2(SIZES, DIMENSIONS, sd.Slater(0.5), BUDGETS, mode="printed")
    assert found.source == "Theorem 2"
    assert found.improvement.alpha == pytest.approx(0.5 * 3 / (2**1.5 * 16))
    assert found.improvement.L == 28  # 256 / 9 = 28.4
    assert found.dual.eta == pytest.approx(1 / 64)
    assert (found.dual.xi, found.dual.chi, found.dual.lagged) == (0.0, 8.0, False)
    assert (found.evaluation.W, found.evaluation.lam) == (8, 1.0)
    assert not found.evaluation.LV.any()


def test_printed_beta_is_the_same_for_both_bonuses_at_every_step():
    for found in both(SIZES, DIMENSIONS, BUDGETS, "printed"):
        # √(16 · 4 · log(16 · 8 / 0.05)) = 8 √7.847763
        np.testing.assert_allclose(found.evaluation.beta, [22.41110] * 2, rtol=1e-6)
        np.testing.assert_allclose(found.evaluation.beta_r, [22.41110] * 2, rtol=1e-6)


def test_printed_d_is_the_larger_dimension():
    turned = Dimensions(d1=9, d2=16)
    for found in both(SIZES, turned, BUDGETS, "printed"):
        np.testing.assert_allclose(found.evaluation.beta, [22.41110] * 2, rtol=1e-6)
        assert found.evaluation.W == 8


def test_printed_window_of_the_notes_holds_no_data():
    """W = 0.96 at d = 75, M = 2000, B_Δ = 10 needs H = 5; it is clipped to 1, and said."""
    sizes = sd.Sizes(2000, 5, 5, 3, 1)
    for found in both(sizes, Dimensions(75, 15), sd.Budgets(4, 3, 3, 0), "printed"):
        assert found.evaluation.W == 1
        assert any(
            text == "W = 0.961 (unrounded): a window of one episode holds no past episode, "
            "no estimate ever uses data"
            for text in found.remarks
        )  # fmt: skip


def test_zero_budgets_freeze_the_printed_learner_and_not_the_repaired_one():
    for found in both(SIZES, DIMENSIONS, STILL, "printed"):
        assert (found.improvement.alpha, found.improvement.L, found.evaluation.W) == (0, 4096, 4096)
        assert any(text.startswith("alpha = 0: the policy never") for text in found.remarks)
    for found in both(SIZES, DIMENSIONS, STILL, "repaired"):
        assert (found.improvement.L, found.evaluation.W) == (4096, 4096)
        assert found.improvement.alpha > 0
        assert not any(text.startswith("alpha") for text in found.remarks)
    # the floor M^(-1/2) = 1/64 has cube root 1/4
    first, _ = both(SIZES, DIMENSIONS, STILL, "repaired")
    assert first.improvement.alpha == pytest.approx(0.25 / (2 * 64))


# ---------------------------------------------------------------- repaired


def test_repaired_theorem1_steps():
    sizes = SIZES._replace(H=3, K=2)
    found = theorem1(sizes, DIMENSIONS, sd.LocalBudgets(), BUDGETS, mode="repaired")
    alpha = 3 / (3 * 64)
    assert found.improvement.alpha == pytest.approx(alpha)
    c = (9 + 4 + 1) / 8
    assert found.dual.xi == pytest.approx(8 * 2 * c * alpha)  # E3 with two multipliers
    assert found.dual.lagged


def test_repaired_theorem2_steps_are_those_of_theorem4_with_the_other_total():
    found = theorem2(SIZES, DIMENSIONS, sd.Slater(0.5), BUDGETS, mode="repaired")
    same = theorem4(SIZES, sd.Slater(0.5), sd.Budgets(27, 0, 0, 0), mode="repaired")
    assert found.improvement == same.improvement
    assert found.dual == same.dual
    assert found.dual.lagged
    assert found.improvement.L == 28


def test_repaired_multipliers_by_hand():
    sizes = sd.Sizes(M=250, H=3, S=5, A=3, K=1)
    dimensions = Dimensions(4, 9, bound=1.0)
    for noisy, beta_r in ((False, 1.5), (True, 1.5 + 3.395606)):
        for found in both(
            sizes, dimensions, BUDGETS, "repaired", p=0.1, noisy=noisy, W=100, lam=0.25
        ):
            # union of 3 steps, 2 channels and 3 blocks: 2 log(18 / 0.05) = 11.77221
            # 1   √(4 log(1 + 100·4/(0.25·4)) + 11.77221) + √(0.25·4) = √(23.97585 + 11.77221) + 1
            # 1/2 √(4 log(1 + 100·1/(0.25·4)) + 11.77221) + 1 = √(18.46048 + 11.77221)/2 + 1
            np.testing.assert_allclose(
                found.evaluation.beta, [6.978968, 3.749213, 1.0], rtol=1e-6
            )  # fmt: skip
            # 1/2 √(9 log(1 + 100/(0.25·9)) + 11.77221) + √(0.25·9) = √46.12058/2 + 1.5
            np.testing.assert_allclose(found.evaluation.beta_r, [beta_r] * 3, rtol=1e-6)


def mixture(rng, d, S, pairs, concentration=0.3):
    """Base kernels (d, pairs, S): every θ on the simplex is a linear-kernel world."""
    return rng.dirichlet(np.full(S, concentration), (d, pairs))


def explored(rng, bases, thetas, candidates, lam):
    """One history of a regression: features (n, d), targets (n,), as an optimist gathers them.

    In each episode the pair and the V with the largest ‖φ‖_{Λ⁻¹} among random ones are taken, so
    that both depend on the past as in Algorithm 2; θ may move.
    """
    d, pairs, S = bases.shape
    inverse = np.eye(d) / lam
    features, targets = [], []
    for theta in thetas:
        V = candidates[rng.integers(len(candidates), size=4)]
        phi = np.einsum("dps,vs->pvd", bases, V).reshape(-1, d)
        best = int(np.einsum("id,de,ie->i", phi, inverse, phi).argmax())
        pair, v = divmod(best, len(V))
        after = rng.choice(S, p=theta @ bases[:, pair])
        features.append(phi[best])
        targets.append(V[v, after])
        u = inverse @ phi[best]
        inverse -= np.outer(u, u) / (1 + phi[best] @ u)
    return np.array(features), np.array(targets)


def largest_error(features, targets, theta, lam):
    """max over n and φ of |φᵀ(w - θ)| / ‖φ‖_{Λ⁻¹}, which is the norm of w - θ in Λ."""
    d = features.shape[1]
    gram, moment = lam * np.eye(d), np.zeros(d)
    worst = float(lam * theta @ theta) ** 0.5  # n = 0
    for phi, target in zip(features, targets, strict=True):
        gram += np.outer(phi, phi)
        moment += phi * target
        miss = np.linalg.solve(gram, moment) - theta
        worst = max(worst, float(miss @ gram @ miss) ** 0.5)
    return worst


@pytest.mark.parametrize("d", [1, 3])
def test_repaired_beta_covers_the_error_of_value_targets(d):
    """P(some n has error > β_h) ≤ p / (2 · union); half of β would not do (E9)."""
    rng = np.random.default_rng(d)
    H, W, lam, S, p = 4, 60, 0.05, 3, 0.8
    sizes = sd.Sizes(M=W, H=H, S=S, A=2, K=1)
    bases = mixture(rng, d, S, pairs=2, concentration=5.0)
    corners = np.array(np.meshgrid(*[[0, 1]] * S)).reshape(S, -1).T
    values = 3.0 * corners[1:-1]  # V in [0, H-h]^S with the largest variance, none constant
    b = max(np.linalg.norm(np.einsum("dps,s->pd", bases, V / 3), axis=1).max() for V in values)
    _, found = both(
        sizes, Dimensions(d, 2, max(b, d**-0.5)), BUDGETS, "repaired", p=p, W=W, lam=lam
    )
    theta = rng.dirichlet(np.ones(d))
    worst = np.array([
        largest_error(*explored(rng, bases, [theta] * W, values, lam), theta, lam)
        for _ in range(300)
    ])  # fmt: skip
    allowed = p / 2 / (4 * 2)  # of one step, one channel, one block
    assert (worst > found.evaluation.beta[0]).mean() <= allowed + 3 * np.sqrt(allowed / 300)
    assert (worst > found.evaluation.beta[0] / 2).mean() > allowed


def test_repaired_beta_r_covers_noisy_rewards_and_is_reached_by_exact_ones():
    rng = np.random.default_rng(5)
    d, W, lam, p = 2, 60, 0.05, 0.8
    sizes = sd.Sizes(M=W, H=4, S=3, A=2, K=1)
    exact, noisy = (
        both(sizes, Dimensions(2, d), BUDGETS, "repaired", p=p, W=W, lam=lam, noisy=noisy)[1]
        for noisy in (False, True)
    )
    misses = {1.0: [], 0.5: []}  # reward 1 for sure, and fair coins
    for _ in range(300):
        features = np.eye(d)[rng.integers(d, size=W)]
        for mean, found in misses.items():
            found.append(largest_error(features, rng.random(W) < mean, np.full(d, mean), lam))
    # ‖θ‖ = √d2: before the first episode the ridge term is all there is to the error
    assert max(misses[1.0]) == pytest.approx(exact.evaluation.beta_r[0])
    allowed = p / 2 / (4 * 2)
    coins = np.array(misses[0.5])
    assert (coins > noisy.evaluation.beta_r[0]).mean() <= allowed + 3 * np.sqrt(allowed / 300)
    assert (coins > noisy.evaluation.beta_r[0] / 2).mean() > allowed
    assert (coins > exact.evaluation.beta_r[0]).mean() > 0.9  # noise needs its own term


@st.composite
def drifting(draw):
    return (
        draw(st.integers(1, 5)),
        draw(st.integers(2, 5)),
        draw(st.integers(2, 25)),
        draw(st.sampled_from([1e-6, 0.01, 1.0])),
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
    )


@settings(max_examples=80, deadline=None)
@given(drifting())
def test_window_drift_covers_the_drift_of_transitions_exactly(case):
    """|φᵀΛ⁻¹ Σ φ_τ φ_τᵀ(θ^m - θ^τ)| ≤ window_drift_P √n ‖φ‖_{Λ⁻¹} for every φ, data and V (E8)."""
    d, S, W, lam, rng = case
    H = 4
    bases = mixture(rng, d, S, pairs=2)
    thetas = rng.dirichlet(np.full(d, 0.2), (W, H))
    P = np.einsum("mhd,dps->mhps", thetas, bases)
    changes = np.zeros((W, H))
    changes[1:] = np.abs(np.diff(P, axis=0)).sum(axis=-1).max(axis=-1)
    sizes = sd.Sizes(W, H, S, 1, 1)
    part = theorem1(
        sizes, Dimensions(d, 1), sd.LocalBudgets(changes), BUDGETS, mode="repaired", W=W, lam=lam
    ).evaluation
    assert part.window_drift_P.shape == (1, H)
    for h in range(H - 1):
        values = (H - h - 1) * rng.integers(0, 2, (5, S)).astype(float)
        features, _ = explored(rng, bases, thetas[:-1, h], values, lam)
        moved = (features * (thetas[-1, h] - thetas[:-1, h])).sum(axis=1)
        gram = lam * np.eye(d) + features.T @ features
        pull = features.T @ moved
        error = np.sqrt(pull @ np.linalg.solve(gram, pull))  # worst over φ of ‖φ‖_{Λ⁻¹} = 1
        assert error <= part.window_drift_P[0, h] * np.sqrt(W - 1) * (1 + 1e-6) + 1e-9
    assert part.window_drift_P[0, -1] == 0


@settings(max_examples=80, deadline=None)
@given(drifting())
def test_window_drift_covers_the_drift_of_utilities_exactly(case):
    d, pairs, W, lam, rng = case
    phi = rng.normal(size=(pairs, d))
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    thetas = rng.normal(size=(W, d))
    g = thetas @ phi.T
    changes = np.zeros((W, 2, 1))
    changes[1:, 1, 0] = np.abs(np.diff(g, axis=0)).max(axis=-1)
    sizes = sd.Sizes(W, 1, pairs, 1, 2)
    part = theorem1(
        sizes, Dimensions(1, d), sd.LocalBudgets(0, changes), BUDGETS,
        mode="repaired", W=W, lam=lam,
    ).evaluation  # fmt: skip
    features = phi[rng.integers(pairs, size=W - 1)]
    moved = (features * (thetas[-1] - thetas[:-1])).sum(axis=1)
    gram = lam * np.eye(d) + features.T @ features
    pull = features.T @ moved
    error = np.sqrt(pull @ np.linalg.solve(gram, pull))
    assert error <= part.window_drift_g[0, 1, 0] * np.sqrt(W - 1) * (1 + 1e-6) + 1e-9
    assert part.window_drift_g[0, 0, 0] == 0


def test_window_drift_is_reached():
    """Transitions that turn over once: the bound with √n is an equality as λ → 0, √(d n) is not."""
    n, H, lam = 9, 3, 1e-9
    before, now = np.array([1.0, 0.0]), np.array([0.0, 1.0])  # S = d1 = 2: ψ(x') = e_x', P = θ
    changes, moved_g = np.zeros((n + 1, H)), np.zeros((n + 1, 1, H))
    changes[-1] = np.abs(now - before).sum()
    moved_g[-1] = 0.3
    sizes = sd.Sizes(n + 1, H, 2, 1, 1)
    part = theorem1(
        sizes, Dimensions(2, 1), sd.LocalBudgets(changes, moved_g), BUDGETS,
        mode="repaired", W=n + 1, lam=lam,
    ).evaluation  # fmt: skip
    for h in range(H):
        V = np.array([H - h - 1.0, 0.0])  # φ = V in every episode
        gram = lam * np.eye(2) + n * np.outer(V, V)
        weights = np.linalg.solve(gram, V)
        error = abs(weights @ V * n * (V @ (now - before)))
        bound = part.window_drift_P[0, h] * np.sqrt(n) * np.sqrt(V @ weights)
        assert error == pytest.approx(bound, abs=1e-9)
        # one reward feature of norm 1 in every episode
        grown = part.window_drift_g[0, 0, h] * (n / (lam + n)) ** 0.5
        assert n * 0.3 / (lam + n) == pytest.approx(grown)
    np.testing.assert_allclose(part.window_drift_P[0], [2.0, 1.0, 0.0])
    assert not part.LV.any()


def test_window_drifts_count_changes_inside_blocks_only_and_belong_to_local_budgets():
    told = sd.LocalBudgets(np.arange(20.0).reshape(10, 2), 0.5)
    sizes = sd.Sizes(10, 2, 3, 2, 1)
    part = theorem1(sizes, DIMENSIONS, told, BUDGETS, mode="repaired", W=4).evaluation
    # first step: 2+4+6, 10+12+14, 18, times (H-h)/2 = 1/2; nothing at the last step
    np.testing.assert_allclose(part.window_drift_P, [[6, 0], [18, 0], [9, 0]])
    np.testing.assert_allclose(part.window_drift_g[:, 0, 0], [1.5, 1.5, 0.5])
    other = theorem2(sizes, DIMENSIONS, sd.Slater(0.5), BUDGETS, mode="repaired", W=4).evaluation
    assert not other.window_drift_P.any()
    assert not other.window_drift_g.any()


# ---------------------------------------------------------------- practical


def test_practical_needs_no_budgets_and_feeds_the_dual_like_the_tabular_preset():
    sizes = sd.Sizes(2000, 5, 5, 3, 1)
    for told in (sd.Slater(0.5), sd.LocalBudgets(0.1, 0.1)):
        found = tune(sizes, told, dimensions=Dimensions(4, 2))
        assert found.dual == tune(sizes, told).dual
        assert (found.improvement.alpha, found.improvement.L) == (0.5, 143)  # 0.9 M^(2/3)
        part = found.evaluation
        assert (part.W, part.lam) == (56, 0.01)  # 0.35 M^(2/3)
        assert tune(sizes, told, dimensions=Dimensions(8, 4)).evaluation.W == 80  # 10 d
        assert tune(sizes, told, dimensions=Dimensions(500, 4)).evaluation.W == sizes.M
        np.testing.assert_allclose(part.beta, part.beta_r[0] * np.array([4, 3, 2, 1, 0]))
        assert part.beta_r[0] > 0
        assert np.ptp(part.beta_r) == 0
        for drift in (part.LV, part.window_drift_P, part.window_drift_g):
            assert not drift.any()
        assert found.remarks == ()


# ---------------------------------------------------------------- vacuous constants

FIVE = sd.Sizes(M=2000, H=5, S=5, A=3, K=1)
EIGHT = Dimensions(8, 8)


def about(found, start):
    return [text for text in found.remarks if text.startswith(start)]


def one_change(size):
    changes = np.zeros((2000, 5))
    changes[1200, 3] = size
    return sd.LocalBudgets(changes)


def test_printed_lv_is_vacuous_from_a_local_budget_of_4e_4():
    """25 · 8 · √4000 · 4e-4 = 5.06 ≥ H; at 3.9e-4 it is 4.93 (E8)."""
    found = theorem1(FIVE, EIGHT, one_change(4e-4), BUDGETS, mode="printed", W=500)
    (text,) = about(found, "LV")
    assert text.startswith("LV = 5.06 in block 3 of Theorem 1 is at least H = 5 (it is in 1 of 4 b")
    below = theorem1(FIVE, EIGHT, one_change(3.9e-4), BUDGETS, mode="printed", W=500)
    assert below.evaluation.LV.max() == pytest.approx(4.93, abs=5e-3)
    assert about(below, "LV") == []
    repaired = theorem1(FIVE, EIGHT, one_change(4e-4), BUDGETS, mode="repaired", W=500)
    assert about(repaired, "LV") == about(repaired, "bonus for drift") == []


def test_every_vacuous_block_is_counted_and_the_largest_named():
    told = sd.LocalBudgets(np.linspace(0, 1e-6, 2000)[:, None].repeat(5, axis=1))
    found = theorem1(FIVE, EIGHT, told, BUDGETS, mode="printed", W=500)
    blocks = found.evaluation.LV.max(axis=(1, 2)) >= 5
    (text,) = about(found, "LV")
    assert 1 < blocks.sum() < 4
    assert f"in block 4 of Theorem 1 is at least H = 5 (it is in {blocks.sum()} of 4" in text


def test_a_drift_beyond_every_value_is_said_of_the_window_drift_too():
    """ΔP of l1 norm 2 and Δg of 1.1 cost (H-1) + 1.1 > H where every past episode is from before.

    The last block has 500 - 1 past episodes when it ends.
    """
    changes, moved_g = np.zeros((2000, 5)), np.zeros((2000, 1, 5))
    changes[1999], moved_g[1999] = 2.0, 1.1
    told = sd.LocalBudgets(changes, moved_g)
    found = theorem1(FIVE, EIGHT, told, BUDGETS, mode="repaired", W=500)
    (text,) = about(found, "bonus for drift")
    f = 8**0.5 * 4
    least = 499**0.5 * (4 * f / (1 + 499 * f**2) ** 0.5 + 1.1 / 500**0.5)
    assert text.startswith(f"bonus for drift = {least:.3g} in block 4 of Theorem 1 is at least H")
    moved_g[1999] = 0.9
    below = theorem1(
        FIVE, EIGHT, sd.LocalBudgets(changes, moved_g), BUDGETS, mode="repaired", W=500
    )
    assert about(below, "bonus for drift") == []
    # A block of 2 past episodes that is cut short by the end of the run counts what it has.
    short = theorem1(
        FIVE._replace(M=1002), EIGHT, sd.LocalBudgets(np.zeros((1002, 5)), 6.0), BUDGETS,
        mode="repaired", W=500,
    )  # fmt: skip
    (text,) = about(short, "bonus for drift")
    assert "(it is in 2 of 3 blocks)" in text  # the third: 1 past episode, 6 / √2 = 4.2 < 5


@pytest.mark.parametrize(
    ("W", "number"),
    [
        (2, "1.36"),  # √log(2/0.05) / √2
        (4, "1.05"),  # √log(4/0.05) / √4
        (5, None),  # √log(5/0.05) / √5 = 0.96
    ],
)
def test_a_beta_that_data_cannot_overcome_is_said(W, number):
    """One step, one unknown: the bonus of a pair visited in all W - 1 past episodes is β/√W."""
    sizes = sd.Sizes(100, 1, 1, 2, 1)
    for found in both(sizes, Dimensions(1, 1), BUDGETS, "printed", W=W):
        said = about(found, "beta = ")
        assert len(said) == (number is not None)
        if number:
            assert f"has bonuses of at least {number} in sum, not less than H = 1" in said[0]


def test_the_least_explored_direction_is_looked_at_where_one_pair_could_be_learnt():
    """β = √(200 log(8·500/0.05)) = 47.52; 47.52/√(1/128 + 499/8) = 6.02, but 4.25 for one pair."""
    for found in both(FIVE, EIGHT, BUDGETS, "printed", W=500):
        (text,) = about(found, "beta = 47.5, beta_r = 47.5")
        assert "least explored direction has a bonus of at least 6.02, not less than H = 5" in text
    for found in both(FIVE, EIGHT, BUDGETS, "printed", W=2000):
        assert about(found, "beta") == []


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 30), st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1]))
def test_remarks_on_beta_hold_for_all_data(d, n, seed, lam):
    """The numbers of the remark are lower bounds of the real bonuses for any features seen."""
    rng = np.random.default_rng(seed)
    sizes = sd.Sizes(n + 1, 3, 4, 2, 1)
    dimensions = Dimensions(d, d)
    found = tune(
        sizes, sd.Slater(1.0), BUDGETS, mode="printed", dimensions=dimensions,
        overrides={"W": n + 1, "lam": lam, "bonus_scale": 5.0},
    )  # fmt: skip
    (text,) = about(found, "beta")
    number = float(re.search(r"at least ([\d.e+]+)", text)[1]) * (1 - 0.006)  # three digits
    bonus = []
    for top, beta in (
        (dimensions.largest * 2, found.evaluation.beta),
        (1.0, found.evaluation.beta_r),
    ):
        seen = rng.normal(size=(n, d))
        seen *= top * rng.random((n, 1)) ** 0.2 / np.linalg.norm(seen, axis=1, keepdims=True)
        inverse = np.linalg.inv(lam * np.eye(d) + seen.T @ seen)
        direction, *_ = np.linalg.svd(inverse)
        largest = beta[0] * top * np.sqrt(direction[:, 0] @ inverse @ direction[:, 0])
        least = beta[0] * top * np.sqrt(direction[:, -1] @ inverse @ direction[:, -1])
        bonus.append((least, largest))
    if "in sum" in text:
        assert sum(least for least, _ in bonus) >= number
    else:
        assert max(largest for _, largest in bonus) >= number


def test_remark_on_one_pair_is_what_its_bonuses_are():
    """If one pair with the largest features is visited all the time the lower bound is exact."""
    n, lam, d = 30, 1.0, 8
    found = theorem2(FIVE, EIGHT, sd.Slater(0.5), BUDGETS, mode="printed", W=n + 1)
    bonus = 0.0
    for top, beta in ((4 * 8**0.5, found.evaluation.beta[0]), (1.0, found.evaluation.beta_r[0])):
        phi = np.full(d, top / d**0.5)
        gram = lam * np.eye(d) + n * np.outer(phi, phi)
        bonus += beta * np.sqrt(phi @ np.linalg.solve(gram, phi))
    (text,) = about(found, "beta")
    assert f"has bonuses of at least {bonus:.3g} in sum" in text


@pytest.mark.parametrize(
    ("W", "sentence"),
    [
        (1, "W = 1: a window of one episode holds no past episode, no estimate ever uses data"),
        (2, "W = 2: a full window holds 1 past episode, fewer than the d = 8 unknowns of a regr"),
        (8, "W = 8: a full window holds 7 past episodes, fewer than the d = 8 unknowns of a regr"),
        (9, None),
    ],
)
def test_windows_without_enough_data_are_said(W, sentence):
    for told in (sd.Slater(0.5), sd.LocalBudgets()):
        found = tune(FIVE, told, dimensions=Dimensions(4, 8), overrides={"W": W})
        assert [text[: len(sentence or "")] for text in about(found, "W")] == [sentence][: W < 9]


def test_a_window_chosen_by_hand_is_not_blamed_on_the_formula():
    """The formula gives 0.961 here too, but it was not asked."""
    found = tune(
        FIVE, sd.Slater(0.5), sd.Budgets(10, 0, 0, 0), mode="printed",
        dimensions=Dimensions(75, 15), overrides={"W": 1},
    )  # fmt: skip
    assert about(found, "W = 1: a window of one episode")


def test_a_formula_that_rounds_to_two_holds_data():
    """W = 1.51 is not a window of one episode: it becomes 2."""
    budget = (2000 / 1.51**2) / (8**0.5 * 25)
    _, found = both(FIVE, EIGHT, sd.Budgets(budget, 0, 0, 0), "printed")
    assert found.evaluation.W == 2
    assert about(found, "W = 2: a full window holds 1 past episode,")
    _, found = both(FIVE, EIGHT, sd.Budgets(budget * 1.1, 0, 0, 0), "printed")
    assert about(found, "W = 1.44 (unrounded)")


# ---------------------------------------------------------------- overrides and records


def test_overrides_are_applied_recorded_and_the_remarks_follow():
    chosen = {
        "alpha": 0.3,
        "W": 500,
        "lam": 0.5,
        "bonus_scale": 0.1,
        "L": 40,
        "dual_signal": "plain",
    }
    plain = tune(FIVE, sd.LocalBudgets(1e-6), STILL, mode="printed", dimensions=EIGHT)
    found = tune(
        FIVE, sd.LocalBudgets(1e-6), STILL, mode="printed", dimensions=EIGHT, overrides=chosen
    )
    assert (found.improvement.alpha, found.improvement.L, found.dual.dual_signal) == (
        0.3,
        40,
        "plain",
    )
    assert (found.evaluation.W, found.evaluation.lam) == (500, 0.5)
    beta = 0.1 * np.sqrt(200 * np.log(8 * 500 / 0.05))
    np.testing.assert_allclose(found.evaluation.beta, beta)
    np.testing.assert_allclose(found.evaluation.beta_r, beta)
    # 499 changes of 1e-6 at 5 steps: LV is not scaled, and its blocks are the new ones
    np.testing.assert_allclose(found.evaluation.LV, 499 * 5e-6 * 200 * np.sqrt(4000))
    assert found.record()["overrides"] == chosen
    assert about(plain, "alpha")
    assert not about(found, "alpha")
    assert "of 1 blocks" in about(plain, "LV")[0]
    assert "of 4 blocks" in about(found, "LV")[0]
    unscaled = tune(
        FIVE, sd.LocalBudgets(1e-6), STILL, mode="printed", dimensions=EIGHT, overrides={"W": 500}
    )
    assert about(unscaled, "beta")
    assert not about(found, "beta")


def test_bonus_scale_leaves_the_drift_alone():
    told = sd.LocalBudgets(1e-4, 1e-3)
    one, half = (
        tune(FIVE, told, BUDGETS, mode="repaired", dimensions=EIGHT, overrides=chosen).evaluation
        for chosen in ({"W": 50}, {"W": 50, "bonus_scale": 0.5})
    )
    for name in ("beta", "beta_r"):
        np.testing.assert_allclose(getattr(half, name), getattr(one, name) / 2)
    for name in ("LV", "window_drift_P", "window_drift_g"):
        np.testing.assert_array_equal(getattr(half, name), getattr(one, name))
    assert one.window_drift_P.any()


def test_records_are_plain_data():
    found = tune(FIVE, sd.LocalBudgets(1e-3), BUDGETS, mode="printed", dimensions=EIGHT, noisy=True)
    record = json.loads(json.dumps(found.record()))
    assert record["remarks"] == list(found.remarks)
    assert len(record["remarks"]) == 3
    assert (record["source"], record["noisy"], record["budgets"]["star"]) == ("Theorem 1", True, 11)
    assert record["evaluation"].keys() == {
        "W", "lam", "beta", "beta_r", "LV", "window_drift_P", "window_drift_g",
    }  # fmt: skip
    assert tune(FIVE, sd.Slater(0.5)).record()["remarks"] == []


def evaluation(**changed):
    arrays = {
        "beta": np.ones(2), "beta_r": np.ones(2), "LV": np.zeros((3, 1, 2)),
        "window_drift_P": np.zeros((3, 2)), "window_drift_g": np.zeros((3, 1, 2)),
    }  # fmt: skip
    return LeastSquaresEvaluation(**{"W": 5, "lam": 1.0, **arrays, **changed})


def test_evaluation_keeps_its_own_arrays():
    mine = np.ones(2)
    part = evaluation(beta=mine)
    mine[0] = 7.0
    assert part.beta.tolist() == [1.0, 1.0]
    assert not part.beta.flags.writeable
    assert plain(part)["window_drift_g"] == 0.0


def tuned(**more):
    return lambda: tune(FIVE, more.pop("told", sd.Slater(0.5)), **{"dimensions": EIGHT, **more})


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (tuned(dimensions=(8, 8)), TypeError, "dimensions must be a Dimensions; got tuple"),
        (tuned(dimensions=Dimensions(0, 8)), ValueError, "d1 must be an integer >= 1; got 0"),
        (tuned(dimensions=Dimensions(8, 2.5)), TypeError, "d2 must be an integer; got 2.5"),
        (tuned(dimensions=Dimensions(4, 4, 2.1)), ValueError, r"bound must be in \[0.5, 2\], from"),
        (tuned(dimensions=Dimensions(4, 4, 0.4)), ValueError, r"bound must be in \[0.5, 2\], from"),
        (tuned(dimensions=Dimensions(4, 4, np.nan)), ValueError, "bound must be a number; got nan"),
        (tuned(dimensions=Dimensions(4, 4, "a")), TypeError, "bound must be a number; got 'a'"),
        (tuned(mode="printed"), TypeError, "budgets must be given in mode 'printed'"),
        (tuned(mode="fast"), ValueError, "mode must be one of"),
        (tuned(p=1.0), ValueError, r"p must be in \(0, 1\); got 1.0"),
        (tuned(told=sd.LocalBudgets(np.zeros((3, 5)))), ValueError,
         r"LocalBudgets.transitions must be a number or of shape \(2000, 5\)"),
        (tuned(overrides={"W": 0}), ValueError, "W must be an integer"),
        (tuned(overrides={"lam": 0}), ValueError, "lam must be > 0"),
        (tuned(overrides={"lam": 0.0}), ValueError, "lam must be > 0"),
        (tuned(overrides={"beta": 1.0}), ValueError, "override must be one of"),
        (tuned(overrides={"bonus_scale": -1}), ValueError, r"bonus_scale must be in \[0,"),
        (tuned(overrides={"bonus_scale": np.inf}, mode="printed", budgets=BUDGETS), ValueError,
         r"bonus_scale must be in \[0, 1e\+06\]; got inf"),
        (tuned(rho=9), ValueError, r"rho must be in \[1/3, 1/2\]; got 9"),
        (lambda: theorem1(FIVE, EIGHT, sd.Slater(1), BUDGETS, mode="printed"), TypeError,
         "knowledge must be a LocalBudgets; got Slater"),
        (lambda: theorem2(FIVE, EIGHT, sd.LocalBudgets(), BUDGETS, mode="printed"), TypeError,
         "knowledge must be a Slater; got LocalBudgets"),
        (lambda: theorem2(FIVE, EIGHT, sd.Slater(1), BUDGETS, mode="Printed"), ValueError,
         "mode must be one of 'printed'"),
        (lambda: theorem1(FIVE, EIGHT, sd.LocalBudgets(), None, mode="repaired"), TypeError,
         "budgets must be given"),
        (lambda: remarks(tune(FIVE, sd.Slater(1)), FIVE, EIGHT), TypeError,
         "evaluation must be a LeastSquaresEvaluation; got CountEvaluation"),
        (lambda: evaluation(W=0), ValueError, "W must be an integer >= 1; got 0"),
        (lambda: evaluation(lam=0.0), ValueError, "lam must be > 0"),
        (lambda: evaluation(beta=np.ones(3)), ValueError, r"beta must be an array of shape \(2,\)"),
        (lambda: evaluation(beta=-np.ones(2)), ValueError, "beta must be >= 0; got -1.0 at"),
        (lambda: evaluation(beta_r=[1, np.inf]), ValueError, "beta_r must be finite"),
        (lambda: evaluation(LV=np.zeros((3, 2))), ValueError, "LV must be an array of shape"),
        (lambda: evaluation(LV=np.full((3, 1, 2), -1.0)), ValueError, "LV must be >= 0"),
        (lambda: evaluation(window_drift_P=np.zeros((2, 2))), ValueError, "window_drift_P must be"),
        (lambda: evaluation(window_drift_g=np.zeros((3, 2, 2))), ValueError, "window_drift_g must"),
    ],
)  # fmt: skip
def test_refused(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()
