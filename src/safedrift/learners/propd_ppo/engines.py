"""Three ways to hold what a learner knows, behind the same few methods.

`TableEngine` counts visits (Algorithm 3), `LinearEngine` regresses value targets at finitely many
states (Algorithm 2), `BoxEngine` does that at the nodes of a continuous state space and rebuilds
its policy wherever it is asked for it. Each holds the settings and the memory of the compiled
parts and translates between them and the user's states.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.elementary import exp
from safedrift.kernels.linear import propd_ppo as linear
from safedrift.kernels.linear.memory import (
    LinearMemory,
    LinearSettings,
    make_history,
    make_linear_memory,
    with_history_room,
    with_linear_views,
)
from safedrift.kernels.sums import product
from safedrift.kernels.tabular import propd_ppo as learner
from safedrift.kernels.tabular.memory import PLAIN, Memory, make_memory, with_room, with_views
from safedrift.kernels.types import Features
from safedrift.knowledge import Sizes
from safedrift.learners.propd_ppo.components import (
    LeastSquaresEvaluation,
    kernel_settings,
    step_settings,
)
from safedrift.learners.propd_ppo.parameters import Parameters

__all__ = ["BoxEngine", "BoxMaps", "BoxPolicy", "Engine", "LinearEngine", "Policy", "TableEngine"]

_CHUNK_NUMBERS = 2**22  # of ∫ψV^τ held at once while a policy is rebuilt at many points


class BoxMaps(Protocol):
    """The feature maps on a box: what the learner may ask at a state that is not a node."""

    @property
    def low(self) -> FloatArray:
        """Lower corner (n,)."""

    @property
    def high(self) -> FloatArray:
        """Upper corner (n,)."""

    def features_at(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """ψ (P, A, J, d1) times the weights of the nodes, and φ (P, A, d2), at points (P, n)."""


class Policy:
    """A snapshot of π_m: `policy[h, s]` is a distribution, np.asarray(policy) is (H, S, A)."""

    def __init__(self, shape: tuple[int, int, int], slots: Any, state: Any, pi: FloatArray) -> None:
        self.shape = shape
        self._slots, self._state, self._pi = slots, state, pi

    def __getitem__(self, key: tuple[int, int]) -> FloatArray:
        H, S, A = self.shape
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(f"policy[h, s] needs a step and a state; got {key!r}")
        h = _check.integer("h", key[0], lower=0, upper=H - 1)
        s = _check.integer("s", key[1], lower=0, upper=S - 1)
        found = np.flatnonzero(self._state[h, : self._slots[h]] == s)
        if found.size:
            return np.asarray(self._pi[h, :, found[0]])
        return np.full(A, 1 / A)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        H, _, A = self.shape
        dense = np.full(self.shape, 1 / A)
        for h in range(H):
            n = self._slots[h]
            dense[h, self._state[h, :n]] = self._pi[h, :, :n].T
        return dense if dtype is None else dense.astype(dtype)


class BoxPolicy:
    """π_m on a box: `policy[h, x]` at any state x, while the episode lasts.

    np.asarray(policy) is a snapshot (H, S, A) at the nodes, the first states last.
    """

    def __init__(self, engine: BoxEngine) -> None:
        self._engine = engine
        self._episode = int(engine.memory.episode[0])
        self._pi = np.ascontiguousarray(engine.memory.pi.transpose(0, 2, 1))

    def __getitem__(self, key: tuple[int, ArrayLike]) -> FloatArray:
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(f"policy[h, x] needs a step and a state; got {key!r}")
        if int(self._engine.memory.episode[0]) != self._episode:
            raise RuntimeError("this policy belongs to an episode that is over")
        h = _check.integer("h", key[0], lower=0, upper=self._pi.shape[0] - 1)
        x = self._engine.points("x", key[1], (self._engine.box.low.size,))
        at_x: FloatArray = self._engine.policy_at(h, x[None])[0]
        return at_x

    def __repr__(self) -> str:
        H, S, A = self._pi.shape
        return f"BoxPolicy(episode={self._episode}, H={H}, nodes={S}, A={A})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self._pi.copy() if dtype is None else self._pi.astype(dtype)


class TableEngine:
    """Counts and sums of the states seen in the window (`kernels.tabular.propd_ppo`)."""

    def __init__(self, sizes: Sizes, initial: FloatArray, parameters: Parameters) -> None:
        self.sizes = sizes
        self.settings = kernel_settings(
            parameters.improvement, parameters.dual, parameters.evaluation, sizes.H
        )
        _check_blocks(sizes, self.settings.W, LV=(self.settings.LV, (sizes.K, sizes.H)))
        for part in ("root", "tail"):
            if getattr(self.settings, part).shape != (sizes.H,):
                _check.fail(f"bonus.{part}", f"of shape ({sizes.H},)", getattr(self.settings, part))
        channels = _channels(sizes.K, self.settings.feed)
        self.memory: Memory = make_memory(*sizes[1:], channels, initial)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.memory = with_views(self.memory)

    def reserve(self, episodes: int) -> None:
        """Make room for so many more episodes."""
        self.memory = with_room(self.memory, episodes)

    def begin(self, m: int) -> Policy:
        """Start episode m and return its policy."""
        learner.begin(m, self.settings, self.memory)
        memory, used = self.memory, int(self.memory.slots.max())
        shape = (*memory.slot_of.shape, memory.pi.shape[1])
        state, pi = memory.state[:, :used].copy(), memory.pi[:, :, :used].copy()
        return Policy(shape, memory.slots.copy(), state, pi)

    def act(self, h: int, state: int, u: float) -> int:
        """Draw an action with the uniform u."""
        return int(learner.draw(h, state_number(state, self.sizes.S), u, self.memory))

    def end(
        self, m: int, thresholds: FloatArray, states: ArrayLike, actions: Any, values: FloatArray
    ) -> int:
        """Learn from a finished episode; returns how many estimates sit at their cap."""
        path = indices("states", states, self.sizes.H, self.sizes.S)
        return int(learner.end(m, thresholds, path, actions, values, self.settings, self.memory))

    def q(self) -> FloatArray:
        """Q estimates (1+K, H, S, A)."""
        H, S, A, K = self.sizes[1:]
        full = np.empty((self.memory.q.shape[0], H, S, A))
        learner.write_estimates(self.memory, full)
        return full[: 1 + K]


class LinearEngine:
    """Regressions on the features of finitely many states (`kernels.linear.propd_ppo`)."""

    def __init__(
        self, sizes: Sizes, initial: FloatArray, parameters: Parameters, features: Features
    ) -> None:
        _check_features(sizes, features)
        self.sizes, self.features = sizes, features
        self.settings = _least_squares_settings(parameters, sizes)
        channels = _channels(sizes.K, self.settings.feed)
        self.memory: LinearMemory = make_linear_memory(
            sizes.H, sizes.K, channels, features, initial
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.memory = with_linear_views(self.memory)

    def reserve(self, episodes: int) -> None:
        """Nothing to do: the memory does not grow."""

    def begin(self, m: int) -> Policy:
        """Start episode m and return its policy."""
        linear.begin(m, self.settings, self.memory)
        H, A, S = self.memory.pi.shape
        state = np.broadcast_to(np.arange(S), (H, S))
        return Policy((H, S, A), np.full(H, S), state, self.memory.pi.copy())

    def act(self, h: int, state: int, u: float) -> int:
        """Draw an action with the uniform u."""
        return int(linear.draw(h, state_number(state, self.sizes.S), u, self.memory))

    def end(
        self, m: int, thresholds: FloatArray, states: ArrayLike, actions: Any, values: FloatArray
    ) -> int:
        """Learn from a finished episode; returns how many estimates sit at their cap."""
        path = indices("states", states, self.sizes.H, self.sizes.S)
        return int(
            linear.end(
                m, thresholds, path, actions, values, self.settings, self.features, self.memory
            )
        )

    def q(self) -> FloatArray:
        """Q estimates (1+K, H, S, A)."""
        return _by_state(self.memory.q[: 1 + self.sizes.K])


class _Seen(NamedTuple):
    """A state visited in this episode: its bytes, ψ (A, J, d1), φ (A, d2) and the policy (A,)."""

    state: bytes
    psi: FloatArray
    phi: FloatArray
    pi: FloatArray


class BoxEngine:
    """Regressions at the nodes of a box, and a history from which any state's policy is rebuilt."""

    def __init__(
        self,
        sizes: Sizes,
        initial: FloatArray,
        parameters: Parameters,
        features: Features,
        box: BoxMaps,
    ) -> None:
        _check_features(sizes, features)
        self.sizes, self.features, self.box = sizes, features, box
        self.settings = _least_squares_settings(parameters, sizes)
        channels = _channels(sizes.K, self.settings.feed)
        self.memory: LinearMemory = make_linear_memory(
            sizes.H, sizes.K, channels, features, initial
        )
        nodes = int(features.offsets[1])  # every pair has all nodes as successors
        self.history = make_history(self.memory, nodes)
        self._seen: dict[int, _Seen] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.memory = with_linear_views(self.memory)

    @property
    def _past(self) -> int:
        """Episodes of the L-block that are over."""
        return int(self.memory.episode[0]) % self.settings.L

    def reserve(self, episodes: int) -> None:
        """Make room for so many more episodes."""
        wanted = min(self._past + episodes, self.settings.L)
        self.history = with_history_room(self.history, self._past, wanted)

    def points(self, name: str, given: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
        """Check one state of the box (n,), or one per step (H, n)."""
        try:
            bare = shape[-1] == 1 and np.ndim(given) == len(shape) - 1
        except ValueError:  # lists of different lengths, which `floats` refuses
            bare = False
        array = _check.floats(name, np.asarray(given)[..., None] if bare else given, shape)
        low, high = self.box.low, self.box.high
        inside = (array >= low) & (array <= high)
        if not inside.all():
            _check.everywhere(name, array, inside, f"in {low} to {high}")
        return array

    def begin(self, m: int) -> BoxPolicy:
        """Start episode m and return its policy."""
        linear.begin(m, self.settings, self.memory)
        self._seen = {}
        return BoxPolicy(self)

    def act(self, h: int, state: ArrayLike, u: float) -> int:
        """Draw an action with the uniform u."""
        x = self.points("state", state, (self.box.low.size,))
        psi, phi = self.box.features_at(x[None])
        pi = self._policy(h, psi, phi)[0]
        self._seen[h] = _Seen(x.tobytes(), psi[0], phi[0], pi)
        chosen = int((u >= np.cumsum(pi)).sum())
        while chosen >= pi.size or pi[chosen] == 0.0:
            chosen -= 1
        return chosen

    def policy_at(self, h: int, points: FloatArray) -> FloatArray:
        """π_m of step h at points (P, n): (P, A)."""
        return self._policy(h, *self.box.features_at(points))

    def _policy(self, h: int, psi: FloatArray, phi: FloatArray) -> FloatArray:
        """π_m of step h from features ψ (P, A, J, d1) and φ (P, A, d2): (P, A)."""
        P, A, J, d1 = psi.shape
        n, K = self._past, self.sizes.K
        raw = np.empty((P, A))
        size = max(1, _CHUNK_NUMBERS // max(1, n * (1 + K) * A * d1))
        for first in range(0, P, size):
            part = slice(first, first + size)
            count = len(phi[part])
            wide = psi[part].transpose(2, 0, 1, 3).reshape(J, -1)
            ahead = product(self.history.v[h, :n], wide).reshape(n, 1 + K, count, A, d1)
            logits = np.empty((2, count, A))
            linear.replay(
                h, n, ahead, np.ascontiguousarray(phi[part]), self.settings, self.history,
                self.memory, logits,
            )  # fmt: skip
            raw[part] = (logits[0] - logits[0].max(axis=1, keepdims=True)) + logits[1]
        weight = exp(raw - raw.max(axis=1, keepdims=True))
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))

    def end(
        self, m: int, thresholds: FloatArray, states: ArrayLike, actions: Any, values: FloatArray
    ) -> int:
        """Learn from a finished episode; returns how many estimates sit at their cap."""
        H, n = self.sizes.H, self.box.low.size
        path = self.points("states", states, (H, n))
        seen = [self._look(h, path[h]) for h in range(H)]
        psi, phi, pi = (
            np.stack([getattr(at, name) for at in seen]) for name in ("psi", "phi", "pi")
        )
        return int(
            linear.end_on_box(
                m,
                thresholds,
                psi,
                phi,
                pi,
                actions,
                values,
                self.settings,
                self.features,
                self.memory,
                self.history,
                self._past,
                np.empty((self.memory.q.shape[0], H + 1)),
            )
        )

    def _look(self, h: int, x: FloatArray) -> _Seen:
        """Features and policy of a visited state, from `act` if it was asked there."""
        known = self._seen.get(h)
        if known is not None and known.state == x.tobytes():
            return known
        psi, phi = self.box.features_at(x[None])
        return _Seen(x.tobytes(), psi[0], phi[0], self._policy(h, psi, phi)[0])

    def q(self) -> FloatArray:
        """Q estimates (1+K, H, S, A)."""
        return _by_state(self.memory.q[: 1 + self.sizes.K])


Engine = TableEngine | LinearEngine | BoxEngine


def _by_state(q: FloatArray) -> FloatArray:
    """Turn (..., A, S) into (..., S, A)."""
    return np.ascontiguousarray(q.swapaxes(-1, -2))


def _channels(K: int, feed: int) -> int:
    return 1 + K * (2 if feed == PLAIN else 1)


def _check_blocks(sizes: Sizes, W: int, **parts: tuple[FloatArray, tuple[int, ...]]) -> None:
    """Check arrays that have one entry per W-block."""
    blocks = -(-sizes.M // W)
    for name, (values, shape) in parts.items():
        if values.shape != (blocks, *shape):
            _check.fail(name, f"of shape {(blocks, *shape)}", values.shape)


def _check_features(sizes: Sizes, features: Features) -> None:
    """Check that features are those of S states, A actions and H steps."""
    pairs = sizes.S * sizes.A
    rows = features.offsets.size - 1
    if rows not in (pairs, sizes.H * pairs):
        _check.fail("rows of features.psi", f"S*A = {pairs} or H*S*A = {sizes.H * pairs}", rows)
    steps, _, found = features.phi.shape
    if found != pairs or steps not in (1, sizes.H):
        wanted = f"of shape (1 or {sizes.H}, d2, S*A = {pairs})"
        _check.fail("features.phi", wanted, features.phi.shape)


def _least_squares_settings(parameters: Parameters, sizes: Sizes) -> LinearSettings:
    """Flatten the parts into what the compiled code takes."""
    part = parameters.evaluation
    if not isinstance(part, LeastSquaresEvaluation):
        raise TypeError(f"evaluation must be LeastSquaresEvaluation; got {type(part).__name__}")
    settings = LinearSettings(
        **step_settings(parameters.improvement, parameters.dual),
        W=int(part.W),
        lam=float(part.lam),
        beta=np.array(part.beta, dtype=np.float64),
        beta_r=np.array(part.beta_r, dtype=np.float64),
        LV=np.array(part.LV, dtype=np.float64),
        spread_P=np.array(part.spread_P, dtype=np.float64),
        spread_g=np.array(part.spread_g, dtype=np.float64),
    )
    K, H = sizes.K, sizes.H
    _check_blocks(
        sizes, settings.W, LV=(settings.LV, (K, H)), spread_P=(settings.spread_P, (H,)),
        spread_g=(settings.spread_g, (K, H)),
    )  # fmt: skip
    for name in ("beta", "beta_r"):
        if getattr(settings, name).shape != (H,):
            _check.fail(name, f"of shape ({H},)", getattr(settings, name).shape)
    return settings


def state_number(state: object, S: int) -> int:
    """Check the number of a state."""
    return _check.integer("state", state, lower=0, upper=S - 1)


def indices(name: str, given: ArrayLike, H: int, upper: int) -> NDArray[np.int64]:
    """Check the states or actions of an episode."""
    array = np.asarray(given)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers; got {array.dtype}")
    if array.shape != (H,):
        _check.fail(
            name,
            f"of shape (H,) = ({H},): an episode lasts H steps, one that ends early stays in an "
            "absorbing state",
            f"shape {array.shape}",
        )
    _check.everywhere(name, array, (array >= 0) & (array < upper), f"in [0, {upper})")
    return np.ascontiguousarray(array, dtype=np.int64)
