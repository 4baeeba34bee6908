"""The primal-dual family as learners: a `Design` says how policy and multipliers are updated.

    policy        mirror, mixed, regularised, greedy, softmax
    multiplier    ascent, pid, bisection
    estimates     bonus on the reward; bonus, none or its negative on the utilities

`kernels.tabular.primal_dual` has the formulas and plays them. One module per published algorithm
fills in a `Design`; the forgetting is a choice of its own, so each of them also exists with a
window, a discount or restarts. As in PROPD-PPO, multipliers outlive a restart of the policy.

Practical constants. Those of the papers are worst-case: at 20,000 episodes their bonuses sit at
the cap, or their steps are too short to move. The practical ones were chosen by the strict score
with a sliding window of M^(2/3) episodes on six worlds `problems.make("random", 20_000, seed, ...)`
with abrupt drift, with and without noise, and on no other world: seeds 100 to 102 with S = 5,
A = 3, H = 5 and seeds 103 to 105 with S = 8, A = 4, H = 6, gamma being 0.25, 0.5 and 1. Most matter
little: bonuses c from 0.02 to 0.2, α from 0.05 to 0.5, η from 0.003 to 0.1 and caps from 3 on are
within a few hundredths of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.elementary import log
from safedrift.kernels.records import ChunkInput, ChunkOutput, make_episode_buffer, make_trace
from safedrift.kernels.tabular import primal_dual as kernel
from safedrift.kernels.tabular.memory import PLAIN, with_room, with_views
from safedrift.kernels.tabular.primal_dual import Carried, Rules
from safedrift.kernels.tabular.propd_ppo import draw
from safedrift.kernels.types import TableArrays
from safedrift.knowledge import Sizes, Slater
from safedrift.learners.checked import CheckedLearner, Setup, tabular_setup
from safedrift.learners.forgetting import Forgetting, record, shown_alarms, window_memory
from safedrift.learners.policies import TabularPolicy
from safedrift.learners.propd_ppo.components import (
    MOST_ROUNDS,
    BernsteinBonus,
    CountBonus,
    CountEvaluation,
    DualStep,
    MirrorStep,
    plain,
    table_hyperparameters,
)
from safedrift.learners.propd_ppo.engines import flatten, unflatten
from safedrift.learners.protocol import Problem

__all__ = [
    "CAP",
    "CONSTANTS",
    "FAILURE",
    "NO_RIDGE",
    "PRINTED",
    "Design",
    "PrimalDual",
    "build_with",
    "checked_gap",
    "confidence_bonus",
    "practical",
    "ridge_bonus",
    "span",
    "told_gap",
]

CONSTANTS = ("printed", "practical")
PRINTED = "unless constants is 'practical'"  # where the printed ones need M
BONUS, RIDGE = 0.05, 0.004  # practical: Bernstein bonus and λ, as PROPD-PPO has them
CAP = 20.0  # practical: χ where no Slater gap is given; 3 to infinity did equally well
NO_RIDGE = 1e-9  # printed, where the paper divides by max(n, 1)
FAILURE = 0.05  # p
POLICIES = {
    "mirror": kernel.MIRROR,
    "mixed": kernel.MIXED,
    "regularised": kernel.REGULARISED,
    "greedy": kernel.GREEDY,
    "softmax": kernel.SOFTMAX,
}
MULTIPLIERS = {"ascent": kernel.ASCENT, "pid": kernel.PID, "bisection": kernel.BISECTION}
SIGNS = {"optimistic": 1.0, "plain": 0.0, "pessimistic": -1.0}
_ONE = np.ones(1)
_ZERO = np.zeros(1)


@dataclass(frozen=True, eq=False)
class Design:
    """How a member of the family updates its policy and its multipliers.

    Parameters
    ----------
    policy
        One of `POLICIES`; `alpha`, `theta`, `tau`, `kappa` and `replan_every` belong to it.
    multiplier
        One of `MULTIPLIERS`; `eta`, `xi`, `chi`, `gains`, `smoothing` and `steps` belong to it.
    utility
        Estimates of Q_g that the policy sees: "optimistic", "plain" or "pessimistic".
    dual_signal
        V_g that the multiplier sees: "policy" (as above), "plain", "pessimistic" or "observed".
    prompt
        Whether the multiplier sees V_g of the episode just finished; by default of the one before,
        together with that one's thresholds: policy and multiplier then move at the same time.
    lagged
        False pairs the V_g of the episode before with this episode's thresholds, as PROPD-PPO
        prints it.
    margin, scale : array (ages,)
        Added to the thresholds, and unit of the multipliers, by episodes since the last restart.
    rounds
        Further estimates and steps on the same data before each episode; only with policies that
        are improved step by step and multipliers that see an estimate.
    """

    policy: str
    multiplier: str
    bonus: CountBonus | BernsteinBonus
    lam: float
    utility: str = "optimistic"
    dual_signal: str = "policy"
    prompt: bool = False
    lagged: bool = True
    alpha: float = 0.0
    eta: float = 0.0
    xi: float = 0.0
    chi: float = np.inf
    theta: float = 0.0
    tau: float = 0.0
    kappa: float = 1.0
    replan_every: int = 1
    gains: tuple[float, float, float] = (0.0, 0.0, 0.0)
    smoothing: float = 0.0
    steps: int = 0
    margin: FloatArray = field(default_factory=_ZERO.copy)
    scale: FloatArray = field(default_factory=_ONE.copy)
    rounds: int = 0

    def __post_init__(self) -> None:
        _check.choice("policy", self.policy, tuple(POLICIES))
        _check.choice("multiplier", self.multiplier, tuple(MULTIPLIERS))
        _check.choice("utility", self.utility, tuple(SIGNS))
        signals = ("policy", "plain", "pessimistic", "observed")
        _check.choice("dual_signal", self.dual_signal, signals)
        _check.integer("replan_every", self.replan_every)
        _check.integer("steps", self.steps, lower=0, upper=200)
        _check.positive("kappa", self.kappa)
        if _check.integer("rounds", self.rounds, lower=0, upper=MOST_ROUNDS) > 0:
            if self.policy in ("greedy", "softmax"):
                _check.fail("rounds", f"0 with policy {self.policy!r}, which plans", self.rounds)
            if self.dual_signal == "observed":
                _check.fail(
                    "rounds", "0 with dual_signal 'observed': it is no estimate", self.rounds
                )
        if self.policy == "mixed":
            _check.positive("theta", self.theta, upper=1.0)
        if self.multiplier == "bisection":
            _check.positive("chi", self.chi)
            if self.policy not in ("greedy", "softmax"):
                _check.fail("policy", "'greedy' or 'softmax' with bisection", repr(self.policy))
        if not 0 <= _check.real("smoothing", self.smoothing) < 1:
            _check.fail("smoothing", "in [0, 1)", self.smoothing)
        if not 0 <= self.alpha * _check.real("tau", self.tau) <= 1:
            _check.fail("tau", "in [0, 1/alpha]", self.tau)
        for gain in _check.floats("gains", self.gains, (3,)):
            if gain < 0:
                _check.fail("gains", ">= 0", self.gains)
        _check.floats("margin", self.margin, ("ages",))
        scale = _check.floats("scale", self.scale, ("ages",))
        _check.everywhere("scale", scale, scale > 0, "> 0")

    def rules(self, K: int) -> Rules:
        """Return what the compiled code takes, for K constraints."""
        signs = [1.0, *[SIGNS[self.utility]] * K]
        if self.dual_signal in ("plain", "pessimistic"):
            signs += [SIGNS[self.dual_signal]] * K
        return Rules(
            primal=POLICIES[self.policy],
            dual=MULTIPLIERS[self.multiplier],
            prompt=bool(self.prompt),
            theta=float(self.theta),
            tau=float(self.tau) if self.policy == "regularised" else 0.0,
            kappa=float(self.kappa),
            every=int(self.replan_every),
            signs=np.array(signs),
            gains=np.array(self.gains, float),
            smoothing=float(self.smoothing),
            steps=int(self.steps),
            margin=np.array(self.margin, float),
            scale=np.array(self.scale, float),
            rounds=int(self.rounds),
        )

    def hyperparameters(self, H: int, K: int) -> Any:
        """Return steps, ridge and bonus as the compiled code takes them."""
        seen = "observed" if self.dual_signal == "observed" else "optimistic"
        step = DualStep(self.eta, self.xi, self.chi, lagged=self.lagged, dual_signal=seen)
        evaluation = CountEvaluation(1, self.lam, self.bonus, np.zeros((1, K, H)))
        found = table_hyperparameters(MirrorStep(self.alpha, 1), step, evaluation, H)
        codes = {"plain": PLAIN, "pessimistic": kernel.PESSIMISTIC}
        return found._replace(dual_signal=codes.get(self.dual_signal, found.dual_signal))

    def record(self) -> dict[str, Any]:
        """Return all constants as plain data; margin and scale by their first and last."""
        found = plain(self)
        for name in ("margin", "scale"):
            table = getattr(self, name)
            found[name] = [float(table[0]), float(table[-1])]
        found["gains"] = list(self.gains)
        return found


class PrimalDual:
    """The algorithm of a `Design`.

    Parameters
    ----------
    told
        What it is told beyond sizes, initial distribution and trajectories.
    constants
        "printed" or "practical"; `settings()` repeats it.
    """

    plays_in = TableArrays

    def __init__(
        self,
        name: str,
        setup: Setup,
        design: Design,
        forgetting: Forgetting,
        *,
        told: tuple[str, ...] = (),
        constants: str = "practical",
    ) -> None:
        _, H, _, _, K = setup.sizes
        if design.multiplier == "bisection" and K > 1:
            _check.fail("K", "1 (bisection searches the multiplier of one constraint)", K)
        self.name, self.setup, self.design, self.forgetting = name, setup, design, forgetting
        self.told, self.constants = told, constants
        self.hyperparameters = design.hyperparameters(H, K)
        self.rules = design.rules(K)
        C = self.rules.signs.size
        self.memory = window_memory(forgetting, setup.sizes, C, setup.initial)
        none = np.zeros(K)
        self.carried = Carried(none.copy(), none.copy(), none.copy(), np.zeros(1, bool))
        self._at_cap = 0.0

    def fresh(self, seed: int | np.random.SeedSequence) -> PrimalDual:
        """Return the same algorithm with nothing learnt yet."""
        return PrimalDual(
            self.name,
            self.setup.renewed(),
            self.design,
            self.forgetting,
            told=self.told,
            constants=self.constants,
        )

    @property
    def episode(self) -> int:
        """Episodes finished so far."""
        return int(self.memory.clock.episode[0])

    def begin(self, thresholds: FloatArray) -> TabularPolicy:
        """Start the next episode and return its policy."""
        self.memory = with_room(self.memory, 1)
        if not self.setup.initial_known:
            self.memory.values.initial[:] = self.setup.initial
        forget = self.forgetting.schedule(self.episode, 1)
        kernel.begin_episode(
            thresholds,
            forget.opens_window[0],
            forget.drops[0],
            forget.discount[0],
            forget.restarts[0],
            self.hyperparameters,
            self.rules,
            self.memory,
            self.carried,
        )
        table = self.memory.policy
        shape = (*table.slot_of.shape, table.pi.shape[1])
        return TabularPolicy(shape, table.slots, table.state, table.pi)

    def act(self, h: int, s: int, u: float) -> int:
        """Return the action that u draws."""
        return int(draw(h, s, u, self.memory))

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        """Learn from a finished episode."""
        _, H, _, _, K = self.setup.sizes
        if not self.setup.initial_known:
            self.memory.values.initial[:] = self.setup.initial
        at_cap = kernel.end_episode(
            thresholds,
            states,
            actions,
            signals,
            self.hyperparameters,
            self.rules,
            self.memory,
            self.carried,
        )
        self._at_cap = at_cap / (H * (1 + K))

    def play(self, arrays: Any, inputs: ChunkInput, out: ChunkOutput) -> dict[str, NDArray[Any]]:
        """Play B episodes in one compiled call."""
        _, H, _, _, K = self.setup.sizes
        B = len(inputs.action_uniforms)
        self.memory = with_room(self.memory, B)
        trace = make_trace(B, K, self.rules.signs.size)
        kernel.play(
            arrays,
            self.hyperparameters,
            self.rules,
            self.memory,
            self.carried,
            self.forgetting.schedule(self.episode, B),
            inputs,
            make_episode_buffer(H, K),
            out,
            trace,
        )
        self._at_cap = float(trace.at_cap[-1])
        return {
            "mu": trace.mu,
            "estimated_reward": trace.v_start[:, 0],
            "estimated_utility": trace.v_start[:, 1 : 1 + K],
            "at_cap": trace.at_cap,
            **shown_alarms(self.memory, trace.alarm),
        }

    def trace(self) -> dict[str, Any]:
        """Return multipliers, estimates and the share of estimates at their cap."""
        v_start, K = self.memory.values.v_start, self.setup.sizes.K
        return {
            "mu": self.memory.dual.mu.copy(),
            "estimated_reward": v_start[0],
            "estimated_utility": v_start[1 : 1 + K].copy(),
            "at_cap": self._at_cap,
            **shown_alarms(self.memory),
        }

    def settings(self) -> dict[str, Any]:
        """Return the design, the forgetting and what the learner is told, as plain data."""
        return {
            "told": list(self.told),
            "constants": self.constants,
            "forgetting": record(self.forgetting),
            **self.design.record(),
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything learnt so far, as arrays."""
        own = {"at_cap": np.array(self._at_cap)}
        return flatten(self.memory) | flatten(self.carried, "carried.") | own

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.memory = with_views(unflatten(self.memory, state))
        self.carried = unflatten(self.carried, state, "carried.")
        if "at_cap" not in state:
            _check.fail("state", "what state() of a learner like this returned", "no 'at_cap'")
        self._at_cap = float(state["at_cap"])


# ---------------------------------------------------------------- shared by the modules


def build_with(
    name: str,
    world: Problem,
    design: Design,
    *,
    constants: str,
    forgetting: Forgetting,
    told: tuple[str, ...] = (),
    seed: int | np.random.SeedSequence,
    **changes: Any,
) -> CheckedLearner:
    """Return the learner of a design, with the constants in `changes` that are not None."""
    chosen = {key: value for key, value in changes.items() if value is not None}
    algorithm = PrimalDual(
        name,
        tabular_setup(world),
        replace(design, **chosen),
        forgetting,
        told=told,
        constants=constants,
    )
    return CheckedLearner(algorithm, seed)


def practical(policy: str, multiplier: str, **constants: Any) -> Design:
    """Return a design with the bonus and the ridge that all practical ones share."""
    return Design(policy, multiplier, BernsteinBonus(BONUS), RIDGE, **constants)


def checked_gap(gamma: float | None, H: int, constants: str) -> float | None:
    """Return a Slater gap in (0, H], or None where it is neither given nor needed."""
    _check.choice("constants", constants, CONSTANTS)
    if gamma is None:
        if constants == "printed":
            raise TypeError(
                "gamma must be given with constants='printed': the paper knows the Slater gap; "
                "got None"
            )
        return None
    if Slater(gamma).gamma > H:
        _check.fail("gamma", f"at most H = {H}, the largest utility there is", gamma)
    return float(gamma)


def told_gap(gamma: float | None) -> tuple[str, ...]:
    """Return what `settings()["told"]` says of a gap."""
    return () if gamma is None else ("Slater gap",)


def span(forgetting: Forgetting, sizes: Sizes) -> int:
    """Return how many episodes count: the window's length, or M where nothing is forgotten."""
    factor = getattr(forgetting, "factor", None)
    window = getattr(forgetting, "W", None) if factor is None else round(1 / (1 - factor))
    if window is None:
        return sizes.known_M("unless forgetting has a window")
    return int(window if sizes.M is None else min(window, sizes.M))


def confidence_bonus(sizes: Sizes) -> CountBonus:
    """Return (b_r + b_P)/√max(n, 1), which bounds |r̂ - r| + |(P̂ - P)V| with probability 1 - p.

    b_r = √(2 ln(6 S A H (1+K) M/p)) and b_P = H √(2 S ln(6 S A H M/p)), p = 0.05. The form is that
    of Efroni et al. (2020); the constants are recalled, not verified.
    """
    _, H, S, A, K = sizes
    M = sizes.known_M(PRINTED)
    b_r = np.sqrt(2 * log(6 * S * A * H * (1 + K) * M / FAILURE))
    b_P = H * np.sqrt(2 * S * log(6 * S * A * H * M / FAILURE))
    return CountBonus(np.full(H, b_r + b_P), np.zeros(H))


def ridge_bonus(sizes: Sizes, episodes: int) -> CountBonus:
    """Return 2β (n + 1)^(-1/2), β = H √(S ln(S A H episodes/p)), p = 0.05, for a ridge of 1.

    The form is that of Ding et al. (2021), whose absolute constant is not given and here 1.
    """
    _, H, S, A, _ = sizes
    beta = H * np.sqrt(S * log(S * A * H * episodes / FAILURE))
    return CountBonus(np.full(H, 2 * beta), np.zeros(H), shift=1.0)
