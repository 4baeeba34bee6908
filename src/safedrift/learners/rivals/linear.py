"""Least-squares value iteration with a multiplier: what its two forms of forgetting share.

The model is the paper's linear kernel, P(x'|x,a) = ⟨ψ(x,a,x'), θ⟩ and r = ⟨φ(x,a), θ_r⟩. The
algorithms of this family were written for *linear MDPs*, P(x'|x,a) = ⟨φ(x,a), ν(x')⟩, and regress
r + V(x') on φ(x,a). That is not consistent here: the conditional mean of the target,

    E[r + V(x') | x, a] = ⟨φ(x,a), θ_r⟩ + ⟨φ^V(x,a), θ⟩,   φ^V(x,a) = ∫ψ(x,a,x') V(x') dx',

is in general no linear function of φ, so its regression has an error that no amount of data
removes. Regressed instead are V(x') on φ^V(x,a) (value-target regression, as in UCRL-VTR: Jia et
al. 2020, Ayoub et al. 2020, and in Algorithm 2 of PROPD-PPO) and r on φ(x,a), each with a bonus.

A linear MDP's coefficients θ_r + ∫ν V depend on V, hence its algorithms compute all targets anew
whenever V has changed. Here the coefficients θ do not depend on V: the pair (φ^V, V(x')) of an
episode with its own V stays a valid observation of θ and is kept as it is.

Constants
---------
printed
    α = M log A / (2 (1 + χ + H)), η = χ / (H √M), β = d H √(log(4 M H d log A / p)) for both
    bonuses, λ = 1, d = max(d1, d2), p = 0.05, and a window of √(d M / (B H)) episodes, where B is
    the variation budget (1 if it is not told). Recalled from the papers, not verified. The bonus is
    vacuous at any M one can run.
practical
    Measured; see `PRACTICAL`. The bonus is c (H-h) and c times a norm.

Multipliers stay below χ = 2H/γ with the Slater gap γ; where that is not told, γ = H/10 is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.elementary import log
from safedrift.kernels.linear import least_squares_values as kernel
from safedrift.kernels.linear.least_squares_values import ValueHyperparameters, make_squared_sums
from safedrift.kernels.linear.memory import make_linear_memory, with_linear_views
from safedrift.kernels.linear.propd_ppo import draw
from safedrift.kernels.records import ChunkInput, ChunkOutput, make_episode_buffer, make_trace
from safedrift.kernels.types import Features, LinearArrays
from safedrift.knowledge import Sizes
from safedrift.learners.checked import Setup, tabular_setup
from safedrift.learners.forgetting import Forgetting
from safedrift.learners.propd_ppo.engines import by_state, flatten, unflatten
from safedrift.learners.protocol import Problem

__all__ = ["PRACTICAL", "Constants", "LeastSquaresValues", "choose_constants", "linear_setup"]

# Measured, not derived, on six random blends of three or four scenarios (S from 8 to 30, H from 5
# to 8, abrupt, linear, periodic and bursty drift and a random walk, M = 4000, with and without
# noise, the Slater gap known). Windows are in units of M^(2/3). The bonus matters most: with
# restarts, alpha = 30, eta = 0.5, the mean strict score was 0.64, 0.40, 0.12 and 0.23 for c = 0.5,
# 0.15, 0.015 and 0.
PRACTICAL = {"alpha": 30.0, "eta": 0.1, "lam": 0.01, "c": 0.02, "window": 0.5, "discounted": 0.2}
# A window holds at least so many episodes for each of the d unknowns; half as many if discounted.
ROWS_PER_UNKNOWN = 10
CONFIDENCE = 0.05  # p of the printed bonus


class Constants(NamedTuple):
    """Constants of the family, and what had to be known to choose them."""

    alpha: float
    eta: float
    chi: float
    lam: float
    beta: FloatArray  # (H,)
    beta_r: FloatArray  # (H,)
    window: int
    told: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """Return the constants as plain data."""
        arrays = {"beta": self.beta.tolist(), "beta_r": self.beta_r.tolist()}
        return self._asdict() | arrays | {"told": list(self.told)}


def linear_setup(world: Problem) -> tuple[Setup, Features]:
    """Return what these algorithms are told of a world; refuse one without features."""
    setup = tabular_setup(world)
    features = getattr(world, "features", None)
    if not isinstance(features, Features):
        _check.fail(
            "world",
            "one with features (a LinearKernelCMDP; as_linear_kernel() makes one of a table)",
            f"a {type(world).__name__} without",
        )
    return setup, features


def choose_constants(
    sizes: Sizes,
    features: Features,
    *,
    constants: str,
    gamma: float | None,
    budget: float | None,
    window: int | None,
    alpha: float | None,
    eta: float | None,
    lam: float | None,
    bonus_scale: float,
    discounted: bool,
) -> Constants:
    """Return the printed or the practical constants, with those given by hand in their place.

    `discounted` says that `window` is the effective one of a discount.
    """
    _check.choice("constants", constants, ("printed", "practical"))
    M, H = sizes.M, sizes.H
    told = ["features"]
    if gamma is not None:
        _check.positive("gamma", gamma, upper=H)
        told.append("Slater gap")
    if budget is not None:
        _check.positive("budget", budget)
        told.append("variation budget")
    chi = 2 * H / (H / 10 if gamma is None else gamma)
    if bonus_scale < 0 or not math.isfinite(_check.real("bonus_scale", bonus_scale)):
        _check.fail("bonus_scale", "finite and >= 0", bonus_scale)
    d1 = features.psi.shape[1]
    d = max(d1, features.phi.shape[2] if features.one_hot else features.phi.shape[1])
    if constants == "printed":
        found = _printed(sizes, d, chi, 1.0 if budget is None else budget)
    else:
        found = _practical(sizes, d, chi, discounted, window)
    chosen = {"alpha": alpha, "eta": eta, "lam": lam}
    given: dict[str, Any] = {
        name: _check.positive(name, x) for name, x in chosen.items() if x is not None
    }
    if window is not None:
        W = _check.integer("window", window)
        given["window"] = W if M is None else min(W, M)
    beta, beta_r = bonus_scale * found.beta, bonus_scale * found.beta_r
    return found._replace(beta=beta, beta_r=beta_r, told=tuple(told), **given)


def _printed(sizes: Sizes, d: int, chi: float, budget: float) -> Constants:
    _, H, _, A, _ = sizes
    M = sizes.known_M("unless constants is 'practical'")
    ways = float(log(max(A, 2)))
    beta = d * H * math.sqrt(float(log(4 * M * H * d * ways / CONFIDENCE)))
    period = math.ceil(math.sqrt(d * M / (budget * H)))
    both = np.full(H, beta)
    return Constants(
        alpha=M * ways / (2 * (1 + chi + H)),
        eta=chi / (H * math.sqrt(M)),
        chi=chi,
        lam=1.0,
        beta=both,
        beta_r=both.copy(),
        window=min(period, M),
        told=(),
    )


def _practical(sizes: Sizes, d: int, chi: float, discounted: bool, window: int | None) -> Constants:
    H = sizes.H
    # A window that is given takes the place of the one computed here.
    M = sizes.known_M("unless window is given") if window is None else 1
    share = PRACTICAL["discounted" if discounted else "window"]
    rows = ROWS_PER_UNKNOWN * d // (2 if discounted else 1)
    period = max(round(share * M ** (2 / 3)), rows, 1)
    return Constants(
        alpha=PRACTICAL["alpha"],
        eta=PRACTICAL["eta"],
        chi=chi,
        lam=PRACTICAL["lam"],
        beta=PRACTICAL["c"] * np.arange(H - 1, -1, -1.0),
        beta_r=np.full(H, PRACTICAL["c"]),
        window=min(period, M),
        told=(),
    )


class LeastSquaresValues:
    """An algorithm: softmax over least-squares values, projected dual steps.

    Parameters
    ----------
    forgetting
        Says before which episodes all data and before which the multipliers are discarded.
    discount
        Of all data, after every episode; 1 for none.
    record
        What `settings` returns.
    """

    plays_in = LinearArrays

    def __init__(
        self,
        setup: Setup,
        features: Features,
        name: str,
        constants: Constants,
        forgetting: Forgetting,
        discount: float,
        record: dict[str, Any],
    ) -> None:
        self.setup, self.features, self.name = setup, features, name
        self.constants, self.forgetting, self.discount = constants, forgetting, discount
        self.record = record
        self.hyperparameters = ValueHyperparameters(
            alpha=float(constants.alpha),
            eta=float(constants.eta),
            chi=float(constants.chi),
            lam=float(constants.lam),
            discount=float(discount),
            beta=constants.beta,
            beta_r=constants.beta_r,
        )
        _, H, _, _, K = setup.sizes
        self.memory = make_linear_memory(H, K, 1 + K, features, setup.initial)
        self.squares = make_squared_sums(self.memory)
        self._at_cap = 0.0

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.memory = with_linear_views(self.memory)

    @property
    def episode(self) -> int:
        """Episodes finished so far."""
        return int(self.memory.clock.episode[0])

    def fresh(self, seed: int | np.random.SeedSequence) -> LeastSquaresValues:
        """Return the same algorithm with nothing learnt yet."""
        known, S = self.setup.initial_known, self.setup.sizes.S
        start = self.setup.initial.copy() if known else np.full(S, 1 / S)
        return LeastSquaresValues(
            self.setup._replace(initial=start),
            self.features,
            self.name,
            self.constants,
            self.forgetting,
            self.discount,
            self.record,
        )

    def begin(self, thresholds: FloatArray) -> FloatArray:
        """Return the softmax policy of the current estimates."""
        self.memory.values.initial[:] = self.setup.initial
        forget = self.forgetting.schedule(self.episode, 1)
        kernel.begin_episode(
            forget.opens_window[0],
            forget.restarts[0],
            self.hyperparameters,
            self.features,
            self.memory,
            self.squares,
        )
        return by_state(self.memory.policy.pi)

    def act(self, h: int, s: int, u: float) -> int:
        """Return the action that u draws."""
        return int(draw(h, s, u, self.memory))

    def end(self, thresholds: FloatArray, states: Any, actions: Any, signals: FloatArray) -> None:
        """Dual step; the episode enters the regressions."""
        _, H, _, _, K = self.setup.sizes
        at_cap = kernel.end_episode(
            thresholds.copy(),
            states,
            actions,
            signals,
            self.hyperparameters,
            self.features,
            self.memory,
            self.squares,
        )
        self._at_cap = at_cap / (H * (1 + K))

    def play(self, arrays: Any, inputs: ChunkInput, out: ChunkOutput) -> dict[str, NDArray[Any]]:
        """Play B episodes."""
        _, H, _, _, K = self.setup.sizes
        B = len(inputs.action_uniforms)
        trace = make_trace(B, K, 1 + K)
        kernel.play(
            arrays,
            self.hyperparameters,
            self.memory,
            self.squares,
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
            "estimated_utility": trace.v_start[:, 1:],
            "at_cap": trace.at_cap,
        }

    def trace(self) -> dict[str, Any]:
        """Return multipliers after the dual step, estimates, and their share at the cap."""
        values = self.memory.values.v_start
        return {
            "mu": self.memory.dual.mu.copy(),
            "estimated_reward": float(values[0]),
            "estimated_utility": values[1:].copy(),
            "at_cap": self._at_cap,
        }

    def settings(self) -> dict[str, Any]:
        """Return every constant, where it came from, and what had to be known."""
        return dict(self.record)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything learnt so far."""
        return flatten(self.memory) | flatten(self.squares, "squares.")

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.memory = with_linear_views(unflatten(self.memory, state))
        self.squares = unflatten(self.squares, state, "squares.")
