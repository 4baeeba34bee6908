"""One world for each erratum on which the paper's statement fails and the repaired one holds.

Every number on paper is asserted. Unless it is said otherwise the run is one of the algorithm, with
all identities holding, and only the named constants differ from a theorem's.
"""

import numpy as np
import pytest

import safedrift as sd
from builders import BUDGETS, audited, broken_identities, linear_world
from safedrift.experiments.certification import certify
from safedrift.oracles import optimal_policies
from safedrift.theory import Transcript

PRINTED_FAILS = "fails as printed, holds as repaired"


def split(found, id):
    """The two forms of a certificate whose printed form fails and whose repaired form holds."""
    assert found[id].result == PRINTED_FAILS
    assert found[id].printed.slack < -1e-6
    return found[id].printed, found[id].repaired


def one_state(r, g, b):
    """One step, one state, an arm for each entry."""
    arms = np.ones((1, 1, len(r), 1))
    return sd.TabularCMDP(arms, np.array([[r]], float), np.array([[[g]]], float), [b], [1.0])


# ---------------------------------------------------------------- E1


def test_e1_slater_lemmas_on_two_episodes():
    """b = 3/5 twice, gamma = 2/5, C = 2H/gamma = 5; a hand-made transcript of two policies.

    Episode 1 has arms (r, g) = (1, 0), (0, 1), played (0.9, 0.1): mu* = 1, violation 1/2,
    delta = 2. Episode 2 has arms (1, 1), (0, 0), the first played: mu* = 0, violation -2/5,
    delta = -2.
    """
    world = sd.DriftingCMDP(
        [one_state((1, 0), (0, 1), 0.6), one_state((1, 0), (1, 0), 0.6)], np.array([0, 1])
    )
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.4), mode="repaired", budgets=BUDGETS)
    assert agent.hyperparameters.chi == pytest.approx(5, rel=1e-15)
    played = np.array([[0.9, 0.1], [1.0, 0.0]])
    script = Transcript(
        played.reshape(2, 1, 1, 2), np.zeros((2, 2, 1, 1, 2)), np.zeros((2, 2)), np.zeros((2, 1)),
        np.zeros((2, 1), int), np.array([[0], [0]]), np.array([[[1.0], [0.0]], [[1.0], [1.0]]]),
    )  # fmt: skip
    found = audited(world, agent, script)
    # Per episode, as printed: violation <= 2 delta/C. It is 1/2 <= 4/5, then -2/5 > -4/5.
    printed, repaired = split(found, "slater-episode")
    assert printed.slack == pytest.approx(-0.4, abs=1e-9)
    assert printed.place.m == 1
    # As repaired (C - mu*) violation <= delta: 4/2 <= 2 and -5 * 2/5 <= -2.
    assert repaired.slack == pytest.approx(0, abs=1e-9)
    # Of the sums, as printed: 1/10 <= 2 * 0/5 = 0.
    printed, repaired = split(found, "slater-run")
    assert (printed.left, printed.right) == pytest.approx((0.1, 0), abs=1e-9)
    assert (repaired.left, repaired.right) == pytest.approx((0, 0), abs=1e-8)


# ---------------------------------------------------------------- E2


def test_e2_drift_of_the_comparator_costs_what_the_utilities_are_worth():
    """Two arms; the good one, in reward and utility, becomes the bad one in mid-block.

    M = L = 100, b = 0.95, gamma = 1/20, chi = 2H/gamma = 40, alpha = 1/1000. The policy reaches
    the good arm too late for the price to fall, so mu = chi in all but the first episodes.
    Left side, the regret of the mirror steps on r + mu g: about 1990. Printed right side:
    log 2/alpha + alpha sum(1 + mu^2) + H^2 L B_* = 693 + 155 + 200 = 1048.
    Repaired right side: 693 + alpha sum((1 + mu)^2)/8 + 41 * 200 = 693 + 20 + 8200 = 8914.
    """
    M, alpha = 100, 1 / 1000
    world = sd.DriftingCMDP(
        [one_state((1, 0), (1, 0), 0.95), one_state((0, 1), (0, 1), 0.95)],
        np.repeat([0, 1], M // 2),
    )
    agent = sd.PROPDPPO.for_problem(
        world, sd.Slater(0.05), mode="repaired", budgets=BUDGETS, L=M, W=M // 2, alpha=alpha,
        eta=40.0, lam=1e-3,
    )  # fmt: skip
    chunks = []
    found = certify(world, agent, witness=lambda part, *_: chunks.append(part))
    assert not broken_identities(found)
    mu = np.concatenate([part.trace["mu"][:, 0] for part in chunks])
    assert (mu[5:] >= 38).all()  # 38 once, after the window restart
    assert (mu == 40).sum() > 90
    restart = np.log(2) / alpha
    printed, repaired = split(found, "primal-blocks")
    assert printed.left == repaired.left == pytest.approx(1990, abs=5)
    assert printed.right == pytest.approx(restart + alpha * (1 + mu**2).sum() + 200)
    assert repaired.right == pytest.approx(restart + alpha * ((1 + mu) ** 2).sum() / 8 + 41 * 200)
    assert printed.right == pytest.approx(1048, abs=1)
    assert repaired.right == pytest.approx(8914, abs=1)
    # What follows from it fails too: the chain for the regret.
    assert split(found, "regret-chain")[0].slack == pytest.approx(-542, abs=5)
    assert found["primal-violation"].repaired.holds


# ---------------------------------------------------------------- E3


def test_e3_a_factor_h_is_lost_when_steps_are_summed():
    """H = 20: at the fork one arm earns 1 in all steps left, the other nothing; pi is uniform.

    A mirror step of size alpha loses alpha (1 + mu)^2 (H-h+1)^2/8 there, to first order, and all
    steps together H(H+1)(2H+1)/48 = 358.75 times alpha (1 + mu)^2. As printed it is H^2/2 = 200.
    A genuine run: alpha = 1e-6 keeps the policy nearly uniform, lam = 1e-6 and 1e-9 of the
    bonus make estimates exact once every pair was seen.
    """
    H, M, alpha = 20, 2000, 1e-6
    fork, good, bad, wander = range(4)
    P, r = np.zeros((H, 4, 2, 4)), np.zeros((H, 4, 2))
    P[:, good, :, good] = P[:, bad, :, bad] = 1
    P[:, fork, 0, good] = P[:, fork, 1, bad] = 1
    leave = 1 / np.arange(H - 1, -1, -1.0).clip(1)  # so that the fork is equally likely at any step
    P[:, wander, :, fork] = leave[:, None]
    P[:, wander, :, wander] = 1 - leave[:, None]
    r[:, good] = r[:, fork, 0] = 1
    start = np.array([1 / H, 0, 0, 1 - 1 / H])
    world = sd.DriftingCMDP([sd.TabularCMDP(P, r, r[None], [1.0], start)], np.zeros(M, int))
    agent = sd.PROPDPPO.for_problem(
        world, sd.Slater(1.0), mode="repaired", budgets=BUDGETS, L=M, W=M, alpha=alpha, eta=1e-9,
        lam=1e-6, bonus_scale=1e-9,
    )  # fmt: skip
    found = certify(world, agent)
    assert not broken_identities(found)
    printed, repaired = split(found, "primal-step")
    assert printed.slack / alpha == pytest.approx(200 - 358.75, rel=1e-5)
    assert repaired.slack / alpha == pytest.approx(0, abs=0.01)
    assert found["one-step-descent"].result == "holds"  # one step is as printed
    assert H * (H + 1) * (2 * H + 1) / 48 == 358.75
    below = [n for n in range(1, 30) if n * (n + 1) * (2 * n + 1) / 48 <= n**2 / 2]
    assert below == list(range(1, 11))  # the printed constant is right up to H = 10


# ---------------------------------------------------------------- E8


def halves(S, H, told, **overrides):
    """Half of the states is worth nothing, half everything; the first step changes between them.

    One action, first state 0, which is poor. From episode 50 on, the first step leads to the
    uniform distribution on the rich half: the l2 norm of the change is 2/sqrt(S), its l1 norm 2.
    The printed bonus is vacuous, so it is scaled to 0.01/sqrt(n + lam) with lam = 1e-6: unvisited
    pairs are at their cap and visited ones nearly exact. Before the switch nothing rich is visited.
    """
    M = 60
    rich = np.arange(S) >= S // 2
    r = np.tile(rich[:, None], (H, 1, 1)).astype(float)
    g = np.maximum(r, 1e-3)[None]  # so that the threshold is met
    scenarios = []
    for target in (~rich, rich):
        P = np.tile(np.eye(S)[:, None, :], (H, 1, 1, 1))
        P[0, 0, 0] = target / target.sum()
        scenarios.append(sd.TabularCMDP(P, r, g, [1e-3], np.eye(S)[0]))
    world = sd.DriftingCMDP(scenarios, (np.arange(M) >= 50).astype(int))
    knowledge = sd.local_budgets(world, "l2") if told == "local" else sd.Slater(1e-4)

    def agent(scale):
        return sd.PROPDPPO.for_problem(
            world, knowledge, mode="printed", budgets=BUDGETS, rho=0.4, W=M, lam=1e-6,
            bonus_scale=scale,
        )  # fmt: skip

    found = certify(world, agent(0.01 / agent(1.0).hyperparameters.root[0]))
    assert not broken_identities(found)
    return found


def test_e8_l2_norm_of_the_transitions_is_too_small():
    """S = 6, H = 8: |(P - P')V| = H - 1 = 7, but H times the l2 norm is 16/sqrt(6) = 6.53."""
    found = halves(6, 8, "slater")
    printed, repaired = split(found, "transition-bonus")
    assert printed.slack == pytest.approx(16 / np.sqrt(6) - 7, abs=0.03)
    assert printed.place == (50, 0, 0, 0)
    assert 0 <= repaired.slack < 0.01  # (H-1)/2 times the l1 norm is 7
    split(found, "prediction-error")
    split(found, "optimism")


def test_e8_lv_does_not_make_the_utilities_optimistic():
    """S = 100, H = 2: LV = H 2/sqrt(S) = 0.4, added at both steps, for an error of 1.

    At the switch, Q_g = LV + LV = 0.8 in the first state and g + P V = 1: iota_g = 0.2 > 0.
    """
    found = halves(100, 2, "local")
    printed, repaired = split(found, "optimism")
    assert printed.slack == pytest.approx(0.8 - 1, abs=0.02)
    assert printed.place == (50, 0, 0, 0)
    assert repaired.slack == pytest.approx(0, abs=1e-9)
    # iota_r = 1 against B_P H = 0.4
    printed, _ = split(found, "prediction-error")
    assert printed.slack == pytest.approx(0.4 - 1, abs=0.02)


# ---------------------------------------------------------------- E12


def test_e12_elliptical_potential_with_features_above_norm_one():
    """d = 1, H = 6, lam = 1: the first feature is V = H - 1 = 5, and 25 > 2 log 26 = 6.52."""
    H, M = 6, 20
    P = np.ones((H, 1, 1, 1))
    cmdp = sd.TabularCMDP(P, np.full((H, 1, 1), 0.5), np.full((1, H, 1, 1), 0.5), [1.0], [1.0])
    world = sd.DriftingCMDP([cmdp], np.zeros(M, int)).as_linear_kernel()
    assert world.d1 == 1
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(1.0), mode="printed", budgets=BUDGETS, W=M)
    assert agent.hyperparameters.lam == 1
    found = certify(world, agent)
    assert not broken_identities(found)
    printed, repaired = split(found, "elliptical-potential")
    assert printed.slack == pytest.approx(2 * np.log(26) - 25)
    assert printed.place[:2] == (0, 0)
    # Clipped, the tightest step is the last but one with V = 1: log 2 <= 1 <= 2 log 2.
    assert repaired.slack == pytest.approx(min(2 * np.log(2) - 1, 1 - np.log(2)))
    assert repaired.place[:2] == (0, H - 2)


# ---------------------------------------------------------------- E13


def two_halves(S, last=0.0):
    """Two halves that the next step maps to two states; the first step changes between them.

    H = 3, one action. Where `last` > 0, the kernel of the last step changes too, in the row of
    state 0, by that much in the l2 norm; nobody sees where it leads.
    """
    H, scenarios = 3, []
    for i, target in enumerate((np.arange(S) < S // 2, np.arange(S) >= S // 2)):
        P = np.zeros((H, S, 1, S))
        P[[0, 2]] = np.eye(S)[:, None]
        P[0, 0, 0] = target / target.sum()
        P[1, : S // 2, 0, 0] = P[1, S // 2 :, 0, 1] = 1
        P[2, 0, 0, :2] += i * last / np.sqrt(2) * np.array([-1, 1])
        ones = np.ones((H, S, 1))
        scenarios.append(sd.TabularCMDP(P, ones, ones[None], [1.0], np.eye(S)[0]))
    world = sd.DriftingCMDP(scenarios, np.repeat([0, 1], 5))
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(1.0), mode="repaired", budgets=BUDGETS)
    found = certify(world, agent)
    assert not broken_identities(found)
    return found


@pytest.mark.parametrize("S", [6, 16])
def test_e13_visits_change_by_more_than_the_l2_norm(S):
    """A visit probability changes by 1.

    The l2 norm of the change is 2/sqrt(S): 0.82 for S = 6, 1/2 for S = 16. The l1 norm is 2, and so
    is the change of the visit probabilities.
    """
    found = two_halves(S)
    printed, repaired = split(found, "visitation")
    assert printed.slack == pytest.approx(2 / np.sqrt(S) - 1)
    assert repaired.slack == pytest.approx(2 - 2)
    assert printed.place[:2] == (5, 2)
    assert found["comparator-drift"].result == "holds"


def test_e13_the_printed_sum_has_the_step_itself():
    """S = 6: the last kernel changes by 0.3. 0.82 + 0.3 >= 1 as printed, j <= h, but 0.82 < 1."""
    found = two_halves(6, last=0.3)["visitation"]
    assert found.result == "holds"
    assert found.printed.slack == pytest.approx(
        min(2 / np.sqrt(6) + 0.3 - 1, 2 / np.sqrt(6) - 1 / 3)
    )
    assert found.repaired.slack == pytest.approx(0)


@pytest.mark.parametrize("seed", range(3))
def test_e13_linear_form_holds_pointwise(seed):
    """max_x |change of d_h(x)| <= sum over j <= h of sqrt(d1) |change of theta_j| + that of pi*.

    It is true even of the sum over j < h, which is all that can matter.
    """
    world = linear_world("scenarios", "one-hot", M=30, H=4, S=6, drift="random_walk", seed=seed)
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.4), mode="repaired", budgets=BUDGETS)
    found = certify(world, agent)
    assert found["visitation"].result == "holds"
    assert found["visitation"].printed.share == 0
    _, policies, which = optimal_policies(world)
    slack, sharper, tight = np.inf, np.inf, 0.0
    for m in range(1, world.M):
        d, before = (occupancy(world.at(n), policies[which[n]]) for n in (m, m - 1))
        right = 0.0
        for h in range(world.H):
            left = np.abs(d[h] - before[h]).max()
            if h > 0:
                sharper, tight = min(sharper, right - left), max(tight, left)
            right += np.sqrt(world.d1) * np.linalg.norm(world.theta[m, h] - world.theta[m - 1, h])
            moved = policies[which[m], h] - policies[which[m - 1], h]
            right += np.abs(moved).sum(axis=-1).max()
            if h > 0:
                slack = min(slack, right - left)
    assert tight > 0.005  # something moves
    assert slack > sharper >= -1e-12
    assert found["visitation"].printed.slack == pytest.approx(slack, abs=1e-12)


def occupancy(cmdp, policy):
    """State occupancy (H, S)."""
    d, P = [cmdp.initial], cmdp.dense_transitions()
    for h in range(len(P) - 1):
        d.append(np.einsum("x,xa,xay->y", d[h], policy[h], P[h]))
    return np.array(d)
