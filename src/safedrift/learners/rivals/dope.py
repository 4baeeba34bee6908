"""DOPE: doubly optimistic and pessimistic exploration (Bura et al. 2022), with forgetting.

"DOPE: Doubly optimistic and pessimistic exploration for safe reinforcement learning" (NeurIPS 2022,
arXiv 2112.00885). A safe policy π_b and its utility are known; γ = min_k (V_g,k(π_b) - b_k) is its
slack. From counts n(h,x,a), with means P̂, r̂, ĝ and

    β_P(x,a,y) = 2 √(L P̂ (1 - P̂) / n) + 14 L / (3n),    β(x,a) = √(L' / n),    B = Σ_y β_P
    r⁺ = r̂ + (3H/γ) β + (H²/γ) B,    g⁻ = ĝ - β - H B

play the policy of the extended linear program: the best policy and model with P inside P̂ ± β_P,
for rewards r⁺, such that g⁻ meets the threshold. Where there is none, play π_b.

Changed: the paper has one constraint and no drift. Here data are forgotten (`forgetting`), each
constraint has its own g⁻, the program is solved every `replan_every` episodes or when a count has
doubled, and states that the plan does not reach have π_b. Under drift neither π_b nor the plan is
safe for certain. γ is that of the episode in which the program is solved; once thresholds have
risen above the utility of π_b (γ ≤ 0), π_b is played.

Constants: printed, L = log(2SAHM/δ) and L' = 2 log(6SAHM/δ), as in a public summary of the paper,
δ = 0.05; the multiples of β and B in r⁺ and g⁻ are recalled, not verified. At any M one can run
they mostly leave π_b. Practical: L = L' = a small number, n instead of max(n, 1) (discounted counts
may be smaller), β ≤ 1 and B ≤ 2, the largest errors there can be.

Plans come from HiGHS: the same on one machine, not promised bit for bit on all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.elementary import log
from safedrift.learners.checked import CheckedLearner, Setup, tabular_setup
from safedrift.learners.forgetting import Forgetting, named_forgetting, record
from safedrift.learners.policies import draw_action
from safedrift.learners.protocol import Problem
from safedrift.learners.rivals.window_counts import WindowCounts
from safedrift.planning.extended_program import plan_within_intervals, program_size

__all__ = ["build", "confidence", "policy_of"]

# Measured on four random worlds (S from 4 to 6, H from 4 to 6, no or slow drift, M = 3000): less
# scores better and violates more. Forgetting whole episodes is bad there, because pairs that were
# forgotten are explored again; discounted counts keep their means.
PRACTICAL_L = 1e-5
DELTA = 0.05


def build(
    world: Problem,
    *,
    safe_policy: ArrayLike | None = None,
    safe_utility: ArrayLike | None = None,
    forgetting: str = "discounted",
    window: int | None = None,
    replan_every: int | str = 25,
    constants: str = "practical",
    L: float | None = None,
    largest: int = 60_000,
    seed: int | np.random.SeedSequence = 0,
) -> CheckedLearner:
    """Return DOPE for a tabular world, with a policy that is known to be safe.

    Parameters
    ----------
    safe_policy : array (H, S, A)
    safe_utility : array (K,)
        Utilities of the safe policy, above the thresholds.
    forgetting, window
        As in `forgetting.named_forgetting`, but not "adaptive".
    replan_every
        Episodes between two plans, or "doubling": when a count has doubled since the last one.
    constants
        "practical" or "printed".
    L
        The logarithms L and L' by hand.
    largest
        Refuse worlds whose linear program has more variables than this.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("random", 30, states=2, actions=2, horizon=2, gamma=0.4)
    >>> cmdp = world.at(0)
    >>> tightened = cmdp.thresholds + 0.2
    >>> safer = sd.TabularCMDP(
    ...     cmdp.transitions, cmdp.rewards, cmdp.utilities, tightened, cmdp.initial
    ... )
    >>> known = {"safe_policy": sd.solve(safer).policy, "safe_utility": tightened}
    >>> sd.learners.make("dope", world, **known).settings()["told"]
    ['a safe policy', 'its utility']
    """
    setup = tabular_setup(world)
    _, H, S, A, K = setup.sizes
    if safe_policy is None or safe_utility is None:
        raise TypeError(
            "safe_policy and safe_utility must be given: DOPE starts from a policy (H, S, A) that "
            "is known to be safe, and from its utilities (K,); got None"
        )
    if program_size(H, S, A) > _check.integer("largest", largest):
        _check.fail(
            "world",
            f"small enough for a linear program of {largest} variables, about H*S*A*S",
            program_size(H, S, A),
        )
    policy = _check.floats("safe_policy", safe_policy, (H, S, A))
    _check.distribution("safe_policy", policy)
    utility = _check.floats("safe_utility", np.atleast_1d(np.asarray(safe_utility)), (K,))
    _check.choice("constants", constants, ("printed", "practical"))
    if isinstance(replan_every, str):
        _check.choice("replan_every", replan_every, ("doubling",))
    else:
        _check.integer("replan_every", replan_every)
    if L is not None:
        logs = (_check.positive("L", L),) * 2
    elif constants == "printed":
        M = setup.sizes.known_M("unless L is given")
        logs = (float(log(2 * S * A * H * M / DELTA)), 2 * float(log(6 * S * A * H * M / DELTA)))
    else:
        logs = (PRACTICAL_L, PRACTICAL_L)
    _check.choice("forgetting", forgetting, ("never", "periodic", "sliding", "discounted"))
    rule = named_forgetting(forgetting, window, setup.sizes.M)
    capped = constants == "practical"
    return CheckedLearner(DOPE(setup, policy, utility, rule, replan_every, logs, capped), seed)


def confidence(
    visits: FloatArray, transitions: FloatArray, L: float, L_signal: float, capped: bool
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return ends of the intervals of P (H-1, S, A, S), B (H, S, A) and β (H, S, A).

    Pairs that were never visited have the interval [0, 1]. B is zero at the last step.

    Parameters
    ----------
    visits : (H, S, A)
    transitions : (H-1, S, A, S)
    """
    n = np.where(visits > 0, visits, 1.0) if capped else np.maximum(visits, 1.0)
    seen = visits[:-1, ..., None] > 0
    counts = n[:-1, ..., None]
    p = transitions / np.where(seen, visits[:-1, ..., None], 1.0)
    beta_p = 2 * np.sqrt(L * p * (1 - np.minimum(p, 1.0)) / counts) + 14 * L / (3 * counts)
    beta_p = np.where(seen, beta_p, np.maximum(beta_p, 1.0))
    low, high = np.maximum(p - beta_p, 0.0), np.minimum(p + beta_p, 1.0)
    spread = np.zeros_like(visits)
    spread[:-1] = beta_p.sum(axis=-1)
    beta = np.sqrt(L_signal / n)
    if capped:
        beta = np.where(visits > 0, np.minimum(beta, 1.0), 1.0)
        spread = np.minimum(spread, 2.0)
    return low, high, spread, beta


def policy_of(occupancy: FloatArray, otherwise: FloatArray) -> FloatArray:
    """Return z / Σ_a z, and another policy where a state is not reached; both (H, S, A)."""
    reached = occupancy.sum(axis=-1, keepdims=True)
    return np.where(reached > 0, occupancy / np.where(reached > 0, reached, 1.0), otherwise)


class DOPE:
    """The algorithm; see the module docstring.

    Parameters
    ----------
    logs
        L and L'.
    capped
        Whether β and B have their practical caps.
    """

    name = "dope"

    def __init__(
        self,
        setup: Setup,
        safe_policy: FloatArray,
        safe_utility: FloatArray,
        forgetting: Forgetting,
        replan_every: int | str,
        logs: tuple[float, float],
        capped: bool,
    ) -> None:
        self.setup, self.safe_policy, self.safe_utility = setup, safe_policy, safe_utility
        self.forgetting, self.replan_every = forgetting, replan_every
        self.logs, self.capped = logs, capped
        _, H, S, A, K = setup.sizes
        self.counts = WindowCounts(H, S, A, K, forgetting.held)
        self.episode = 0
        self.planned = False  # whether the policy is the program's,
        self.value = 0.0  # and then its value there
        self.policy: FloatArray = np.array(safe_policy)
        self.last_visits = np.zeros((H, S, A))  # at the last plan

    def fresh(self, seed: int | np.random.SeedSequence) -> DOPE:
        """Return the same algorithm with nothing learnt yet."""
        known, S = self.setup.initial_known, self.setup.sizes.S
        start = self.setup.initial.copy() if known else np.full(S, 1 / S)
        setup = self.setup._replace(initial=start)
        known_safe = (self.safe_policy, self.safe_utility)
        return DOPE(setup, *known_safe, self.forgetting, self.replan_every, self.logs, self.capped)

    def begin(self, thresholds: FloatArray) -> FloatArray:
        """Forget, plan if it is time to, and return the policy."""
        self.counts.forget(self.forgetting.schedule(self.episode, 1))
        if self._due():
            self._plan(thresholds)
        return self.policy

    def _due(self) -> bool:
        if self.replan_every == "doubling":
            more = self.counts.visits >= 2 * np.maximum(self.last_visits, 0.5)
            return self.episode == 0 or bool(more.any())
        return self.episode % int(self.replan_every) == 0

    def _plan(self, thresholds: FloatArray) -> None:
        H = self.setup.sizes.H
        self.last_visits = self.counts.visits.copy()
        slack = float((self.safe_utility - thresholds).min())
        plan = None
        if slack > 0:
            low, high, spread, beta = confidence(
                self.counts.visits, self.counts.transitions, *self.logs, self.capped
            )
            seen = self.counts.visits > 0
            means = np.where(seen, self.counts.signals, 0.0)
            means /= np.where(seen, self.counts.visits, 1.0)
            rewards = means[0] + 3 * H / slack * beta + H * H / slack * spread
            utilities = means[1:] - beta - H * spread
            plan = plan_within_intervals(
                low, high, rewards, utilities, thresholds, self.setup.initial
            )
        self.planned = plan is not None
        if plan is None:
            self.policy, self.value = np.array(self.safe_policy), 0.0
        else:
            self.policy, self.value = policy_of(plan.occupancy, self.safe_policy), plan.value

    def act(self, h: int, s: int, u: float) -> int:
        """Return the action that u draws."""
        return draw_action(self.policy[h, s], u)

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        """Count the episode."""
        self.counts.add(states, actions, signals)
        self.episode += 1

    def trace(self) -> dict[str, Any]:
        """Return whether the policy was the program's (1) or the safe one (0), and its value there.

        The value is that of rewards with their bonus; 0 for the safe policy.
        """
        return {"planned": float(self.planned), "planned_reward": self.value}

    def settings(self) -> dict[str, Any]:
        """Return every constant; of the safe policy, a digest."""
        return {
            "told": ["a safe policy", "its utility"],
            "constants": "practical" if self.capped else "printed",
            "L": self.logs[0],
            "L_signal": self.logs[1],
            "replan_every": self.replan_every,
            "forgetting": record(self.forgetting),
            "safe_utility": self.safe_utility.tolist(),
            "safe_policy": hashlib.sha256(self.safe_policy.tobytes()).hexdigest(),
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything learnt so far."""
        own = {
            "episode": np.array(self.episode),
            "planned": np.array(self.planned),
            "value": np.array(self.value),
            "policy": self.policy.copy(),
            "last_visits": self.last_visits.copy(),
        }
        return own | self.counts.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.episode, self.planned = int(state["episode"]), bool(state["planned"])
        self.value = float(state["value"])
        self.policy, self.last_visits = np.array(state["policy"]), np.array(state["last_visits"])
        self.counts.restore(state)
