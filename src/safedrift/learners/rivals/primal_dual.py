"""The primal-dual family as learners: a `Design` says how policy and multipliers are updated.

    policy        mirror, mixed, regularised, greedy, softmax
    multiplier    ascent, pid, bisection
    estimates     bonus on the reward; bonus, none or its negative on the utilities

`kernels.tabular.primal_dual` has the formulas and plays them. One module per published algorithm
fills in a `Design`; the forgetting is a choice of its own, so each of them also exists with a
window, a discount or restarts. As in PROPD-PPO, multipliers outlive a restart of the policy.

Practical constants. Those of the papers are worst-case: at 20,000 episodes their bonuses sit at
the cap or their steps are too short to move. The practical ones were chosen on worlds
`problems.make("random", 20_000, seed)` of the default sizes (S = 5, A = 3, H = 5, abrupt drift,
gamma 0.25 to 1) and of S = 8, A = 4, H = 6, seeds 100 to 105, and on no other world, to make the
strict score small with a sliding window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.elementary import log
from safedrift.kernels.records import ChunkInput, ChunkOutput, make_episode_buffer, make_trace
from safedrift.kernels.tabular import primal_dual as kernel
from safedrift.kernels.tabular.memory import PLAIN, make_memory, with_room, with_views
from safedrift.kernels.tabular.primal_dual import Carried, Rules
from safedrift.kernels.tabular.propd_ppo import draw
from safedrift.kernels.types import TableArrays
from safedrift.knowledge import Sizes, Slater
from safedrift.learners.checked import CheckedLearner, Setup, tabular_setup
from safedrift.learners.forgetting import Forgetting, named_forgetting, record
from safedrift.learners.policies import TabularPolicy
from safedrift.learners.propd_ppo.components import (
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
    "CONSTANTS",
    "Design",
    "PrimalDual",
    "build_with",
    "confidence_bonus",
    "largest_multiplier",
    "slater_gap",
]

CONSTANTS = ("practical", "printed")
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
        One of `POLICIES`; `alpha`, `theta`, `tau`, `kappa` and `every` are its constants.
    multiplier
        One of `MULTIPLIERS`; `eta`, `xi`, `chi`, `gains`, `smoothing` and `steps` are its constants.
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
    every: int = 1
    gains: tuple[float, float, float] = (0.0, 0.0, 0.0)
    smoothing: float = 0.0
    steps: int = 0
    margin: FloatArray = field(default_factory=_ZERO.copy)
    scale: FloatArray = field(default_factory=_ONE.copy)

    def __post_init__(self) -> None:
        _check.choice("policy", self.policy, tuple(POLICIES))
        _check.choice("multiplier", self.multiplier, tuple(MULTIPLIERS))
        _check.choice("utility", self.utility, tuple(SIGNS))
        signals = ("policy", "plain", "pessimistic", "observed")
        _check.choice("dual_signal", self.dual_signal, signals)
        _check.integer("every", self.every)
        _check.integer("steps", self.steps, lower=0, upper=200)
        _check.positive("kappa", self.kappa)
        if self.policy == "mixed":
            _check.positive("theta", self.theta, upper=1.0)
        if self.multiplier == "bisection":
            _check.positive("chi", self.chi)
            if self.policy not in ("greedy", "softmax"):
                _check.fail("policy", "'greedy' or 'softmax' with bisection", repr(self.policy))
        if not 0 <= _check.real("smoothing", self.smoothing) < 1:
            _check.fail("smoothing", "in [0, 1)", self.smoothing)
        for name in ("tau", *(["alpha * tau"] if self.policy == "regularised" else [])):
            value = self.tau if name == "tau" else self.alpha * self.tau
            if not 0 <= _check.real(name, value) <= (np.inf if name == "tau" else 1):
                _check.fail(name, ">= 0" if name == "tau" else "in [0, 1]", value)
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
            every=int(self.every),
            signs=np.array(signs),
            gains=np.array(self.gains, float),
            smoothing=float(self.smoothing),
            steps=int(self.steps),
            margin=np.array(self.margin, float),
            scale=np.array(self.scale, float),
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
        M, H, S, A, K = setup.sizes
        if design.multiplier == "bisection" and K > 1:
            _check.fail("K", "1: bisection searches one multiplier", K)
        self.name, self.setup, self.design, self.forgetting = name, setup, design, forgetting
        self.told, self.constants = told, constants
        self.hyperparameters = design.hyperparameters(H, K)
        self.rules = design.rules(K)
        held = min(forgetting.held, M)
        self.memory = make_memory(H, S, A, K, self.rules.signs.size, setup.initial, held)
        self.carried = Carried(*np.zeros((3, K)), np.zeros(1, bool))
        self._at_cap = 0.0

    def fresh(self, seed: int | np.random.SeedSequence) -> PrimalDual:
        """Return the same algorithm with nothing learnt yet."""
        setup = self.setup
        if not setup.initial_known:
            setup = setup._replace(initial=np.full(setup.sizes.S, 1 / setup.sizes.S))
        return PrimalDual(
            self.name,
            setup,
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
        kernel.begin(
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
        used = int(table.slots.max())
        shape = (*table.slot_of.shape, table.pi.shape[1])
        state, pi = table.state[:, :used].copy(), table.pi[:, :, :used].copy()
        return TabularPolicy(shape, table.slots.copy(), state, pi)

    def act(self, h: int, s: int, u: float) -> int:
        """Return the action that u draws."""
        return int(draw(h, s, u, self.memory))

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        """Learn from a finished episode."""
        _, H, _, _, K = self.setup.sizes
        if not self.setup.initial_known:
            self.memory.values.initial[:] = self.setup.initial
        at_cap = kernel.end(
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
        }

    def trace(self) -> dict[str, Any]:
        """Return multipliers, estimates and the share of estimates at their cap."""
        v_start, K = self.memory.values.v_start, self.setup.sizes.K
        return {
            "mu": self.memory.dual.mu.copy(),
            "estimated_reward": v_start[0],
            "estimated_utility": v_start[1 : 1 + K].copy(),
            "at_cap": self._at_cap,
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
    forgetting: str | Forgetting,
    window: int | None,
    told: tuple[str, ...] = (),
    seed: int | np.random.SeedSequence,
) -> CheckedLearner:
    """Return the learner of a design; `forgetting` is a name or a `Forgetting`."""
    setup = tabular_setup(world)
    if isinstance(forgetting, str):
        forgetting = named_forgetting(forgetting, window, setup.sizes.M)
    algorithm = PrimalDual(name, setup, design, forgetting, told=told, constants=constants)
    return CheckedLearner(algorithm, seed)


def slater_gap(gamma: float | None, H: int, constants: str) -> float | None:
    """Return a Slater gap in (0, H], or None if it is neither given nor needed."""
    if gamma is None:
        if constants == "printed":
            raise TypeError(
                "gamma must be given with constants='printed' (the paper assumes a known Slater "
                "gap); got None"
            )
        return None
    gamma = Slater(gamma).gamma
    if gamma > H:
        _check.fail("gamma", f"at most H = {H}, the largest utility there is", gamma)
    return gamma


def largest_multiplier(H: int, gamma: float | None, default: float) -> tuple[float, tuple[str]]:
    """Return the cap χ of the multipliers and what had to be told: 2H/γ, or else a default."""
    raise NotImplementedError


def confidence_bonus(sizes: Sizes, p: float = 0.05) -> CountBonus:
    """Return the Hoeffding bonus of Efroni et al. (2020): b_r + b_P over max(n, 1).

    b_r = sqrt(2 ln(6 S A H (1+K) M / p)) / sqrt(n),  b_P = H sqrt(2 S ln(6 S A H M / p)) / sqrt(n)
    """
    M, H, S, A, K = sizes
    b_r = np.sqrt(2 * log(6 * S * A * H * (1 + K) * M / p))
    b_P = H * np.sqrt(2 * S * log(6 * S * A * H * M / p))
    return CountBonus(np.full(H, b_r + b_P), np.zeros(H))
