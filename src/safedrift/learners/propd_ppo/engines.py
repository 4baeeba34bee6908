"""What PROPD-PPO computes with: counts (Algorithm 3) or least squares (Algorithm 2).

`TableEngine` counts visits, `LinearEngine` regresses value targets at finitely many states;
`box_engine.BoxEngine` does that at the nodes of a continuous state space. Each holds the
hyperparameters and the memory of the compiled code and has the same few methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.linear import propd_ppo as linear
from safedrift.kernels.linear.memory import (
    LinearHyperparameters,
    LinearMemory,
    make_linear_memory,
    with_linear_views,
)
from safedrift.kernels.records import Schedule
from safedrift.kernels.tabular import propd_ppo as tabular
from safedrift.kernels.tabular.memory import (
    PLAIN,
    Hyperparameters,
    Memory,
    with_room,
    with_views,
)
from safedrift.kernels.types import Features, LinearArrays, TableArrays
from safedrift.knowledge import Sizes
from safedrift.learners.forgetting import Forgetting, window_memory
from safedrift.learners.policies import TabularPolicy
from safedrift.learners.propd_ppo.components import linear_hyperparameters, table_hyperparameters
from safedrift.learners.propd_ppo.parameters import Parameters
from safedrift.learners.protocol import PolicyLike

__all__ = ["Engine", "LinearEngine", "TableEngine"]


class Engine(Protocol):
    """The compiled half of the learner: an episode at a time, or a chunk."""

    hyperparameters: Any

    @property
    def memory(self) -> Any:
        """What has been learnt: the arrays of the compiled code."""

    def reserve(self, episodes: int) -> None:
        """Make room for so many more episodes."""

    def begin(self, forget: Schedule, thresholds: FloatArray) -> PolicyLike:
        """Start the next episode, after forgetting what row 0 of `forget` says."""

    def act(self, h: int, state: Any, u: float) -> int:
        """Draw an action with the uniform u."""

    def end(
        self, thresholds: FloatArray, states: NDArray[Any], actions: Any, signals: FloatArray
    ) -> int:
        """Learn from a finished episode; returns how many estimates sit at their cap."""

    def q(self) -> FloatArray:
        """Q estimates (1+K, H, S, A)."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything learnt so far, as arrays."""

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""


class TableEngine:
    """Counts and sums of the states seen in the window (`kernels.tabular`)."""

    play = staticmethod(tabular.play)
    plays_in = TableArrays

    def __init__(
        self,
        sizes: Sizes,
        initial: FloatArray,
        parameters: Parameters,
        forgetting: Forgetting,
        windows: int,
    ) -> None:
        self.sizes = sizes
        self.hyperparameters: Hyperparameters = table_hyperparameters(
            parameters.improvement, parameters.dual, parameters.evaluation, sizes.H
        )
        check_windows(windows, LV=(self.hyperparameters.LV, (sizes.K, sizes.H)))
        for part in ("root", "tail"):
            values = getattr(self.hyperparameters, part)
            if values.shape != (sizes.H,):
                _check.fail(f"bonus.{part}", f"of shape ({sizes.H},)", values)
        C = channels(sizes.K, self.hyperparameters.dual_signal)
        self.memory: Memory = window_memory(forgetting, sizes, C, initial)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.memory = with_views(self.memory)

    def reserve(self, episodes: int) -> None:
        """Make room for so many more episodes."""
        self.memory = with_room(self.memory, episodes)

    def begin(self, forget: Schedule, thresholds: FloatArray) -> TabularPolicy:
        """Start the next episode and return its policy."""
        tabular.begin(
            forget.opens_window[0],
            forget.drops[0],
            forget.discount[0],
            forget.restarts[0],
            self.hyperparameters,
            self.memory,
        )
        return self.policy()

    def policy(self) -> TabularPolicy:
        """Return the policy of the episode, as a view."""
        table = self.memory.policy
        shape = (*table.slot_of.shape, table.pi.shape[1])
        return TabularPolicy(shape, table.slots, table.state, table.pi)

    def act(self, h: int, state: int, u: float) -> int:
        """Draw an action with the uniform u."""
        return int(tabular.draw(h, state_number(state, self.sizes.S), u, self.memory))

    def end(
        self, thresholds: FloatArray, states: NDArray[Any], actions: Any, signals: FloatArray
    ) -> int:
        """Learn from a finished episode; returns how many estimates sit at their cap."""
        hyper, memory = self.hyperparameters, self.memory
        return int(tabular.end(thresholds, states, actions, signals, hyper, memory))

    def q(self) -> FloatArray:
        """Q estimates (1+K, H, S, A)."""
        H, S, A, K = self.sizes[1:]
        full = np.empty((self.memory.values.q.shape[0], H, S, A))
        tabular.write_estimates(self.memory, full)
        return full[: 1 + K]

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything learnt so far, as arrays."""
        return flatten(self.memory)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.memory = with_views(unflatten(self.memory, state))


class LinearEngine:
    """Regressions on the features of finitely many states (`kernels.linear`)."""

    play = staticmethod(linear.play)
    plays_in = LinearArrays

    def __init__(
        self,
        sizes: Sizes,
        initial: FloatArray,
        parameters: Parameters,
        windows: int,
        features: Features,
    ) -> None:
        self.sizes, self.features = sizes, features
        self.hyperparameters = checked_hyperparameters(sizes, parameters, windows, features)
        C = channels(sizes.K, self.hyperparameters.dual_signal)
        self.memory: LinearMemory = make_linear_memory(sizes.H, sizes.K, C, features, initial)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.memory = with_linear_views(self.memory)

    def reserve(self, episodes: int) -> None:
        """Nothing to do: the memory does not grow."""

    def begin(self, forget: Schedule, thresholds: FloatArray) -> TabularPolicy:
        """Start the next episode and return its policy."""
        hyper, memory = self.hyperparameters, self.memory
        linear.begin(forget.opens_window[0], forget.restarts[0], hyper, memory)
        H, A, S = memory.policy.pi.shape
        state = np.broadcast_to(np.arange(S), (H, S))
        return TabularPolicy((H, S, A), np.full(H, S), state, memory.policy.pi)

    def act(self, h: int, state: int, u: float) -> int:
        """Draw an action with the uniform u."""
        return int(linear.draw(h, state_number(state, self.sizes.S), u, self.memory))

    def end(
        self, thresholds: FloatArray, states: NDArray[Any], actions: Any, signals: FloatArray
    ) -> int:
        """Learn from a finished episode; returns how many estimates sit at their cap."""
        hyper, memory = self.hyperparameters, self.memory
        return int(linear.end(thresholds, states, actions, signals, hyper, self.features, memory))

    def q(self) -> FloatArray:
        """Q estimates (1+K, H, S, A)."""
        return by_state(self.memory.values.q[: 1 + self.sizes.K])

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything learnt so far, as arrays."""
        return flatten(self.memory)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.memory = with_linear_views(unflatten(self.memory, state))


# ---------------------------------------------------------------- shared by the engines


def channels(K: int, dual_signal: int) -> int:
    """Number of channels: reward, K utilities, and K again where the dual signal has no bonus."""
    return 1 + 2 * K if dual_signal == PLAIN else 1 + K


def by_state(q: FloatArray) -> FloatArray:
    """Turn (..., A, S) into (..., S, A)."""
    return np.ascontiguousarray(q.swapaxes(-1, -2))


_LEFT_OUT = ("scratch", "pi_flat", "q_flat", "settings")  # computed again, or given


def flatten(record: Any, prefix: str = "") -> dict[str, NDArray[Any]]:
    """Return the arrays of nested records by dotted names, scratch space and views left out."""
    found: dict[str, NDArray[Any]] = {}
    for name, value in _parts(record):
        if isinstance(value, tuple):
            found |= flatten(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value.copy()
    return found


def unflatten(record: Any, state: Mapping[str, NDArray[Any]], prefix: str = "") -> Any:
    """Return the record with the arrays of `state`, which `flatten` made of one like it."""
    changed: dict[str, Any] = {}
    for name, value in _parts(record):
        key = prefix + name
        if isinstance(value, tuple):
            changed[name] = unflatten(value, state, f"{key}.")
        elif key not in state:
            _check.fail("state", "what state() of a learner like this returned", f"no {key!r}")
        else:
            given = np.asarray(state[key])
            if given.dtype != value.dtype or given.ndim != value.ndim:
                wanted = f"an array of {value.dtype} with {value.ndim} axes"
                _check.fail(f"state[{key!r}]", wanted, f"{given.dtype} of shape {given.shape}")
            changed[name] = np.array(given, order="C")
    return record._replace(**changed) if hasattr(record, "_fields") else tuple(changed.values())


def _parts(record: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of a record, or of a plain tuple by number, that are to be stored."""
    names = getattr(record, "_fields", map(str, range(len(record))))
    for name, value in zip(names, record, strict=True):
        if name not in _LEFT_OUT and value is not None:
            yield name, value


def check_windows(windows: int, **parts: tuple[FloatArray, tuple[int, ...]]) -> None:
    """Check arrays that have one entry per window."""
    for name, (values, shape) in parts.items():
        if values.shape != (windows, *shape):
            _check.fail(name, f"of shape {(windows, *shape)}", values.shape)


def checked_hyperparameters(
    sizes: Sizes, parameters: Parameters, windows: int, features: Features
) -> LinearHyperparameters:
    """Flatten the components for least squares and check them against sizes and features."""
    pairs = sizes.S * sizes.A
    rows = features.offsets.size - 1
    if rows not in (pairs, sizes.H * pairs):
        _check.fail("rows of features.psi", f"S*A = {pairs} or H*S*A = {sizes.H * pairs}", rows)
    steps, _, found = features.phi.shape
    if found != pairs or steps not in (1, sizes.H):
        wanted = f"of shape (1 or {sizes.H}, d2, S*A = {pairs})"
        _check.fail("features.phi", wanted, features.phi.shape)
    hyper = linear_hyperparameters(parameters.improvement, parameters.dual, parameters.evaluation)
    K, H = sizes.K, sizes.H
    check_windows(
        windows,
        LV=(hyper.LV, (K, H)),
        window_drift_P=(hyper.window_drift_P, (H,)),
        window_drift_g=(hyper.window_drift_g, (K, H)),
    )
    for name in ("beta", "beta_r"):
        if getattr(hyper, name).shape != (H,):
            _check.fail(name, f"of shape ({H},)", getattr(hyper, name).shape)
    return hyper


def state_number(state: object, S: int) -> int:
    """Check the number of a state."""
    return _check.integer("state", state, lower=0, upper=S - 1)
