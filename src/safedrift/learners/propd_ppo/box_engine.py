"""PROPD-PPO where states fill a box: estimates at nodes, a policy anywhere.

Estimates live at the nodes of a quadrature rule. The policy at a state that is not a node is
recomputed from the estimates of all episodes since the last policy restart (`kernels.linear.box`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.linear import box as off_nodes
from safedrift.kernels.linear import box_play as compiled
from safedrift.kernels.linear import propd_ppo as linear
from safedrift.kernels.linear.box_maps import BoxArrays
from safedrift.kernels.linear.box_play import make_box_buffer
from safedrift.kernels.linear.memory import (
    History,
    LinearHyperparameters,
    LinearMemory,
    make_history,
    make_linear_memory,
    with_history_room,
    with_linear_views,
)
from safedrift.kernels.records import (
    ChunkInput,
    ChunkOutput,
    EpisodeBuffer,
    Log,
    Schedule,
    Trace,
)
from safedrift.kernels.sums import product
from safedrift.kernels.types import Features
from safedrift.knowledge import Sizes
from safedrift.learners.policies import draw_action
from safedrift.learners.propd_ppo.engines import (
    by_state,
    channels,
    checked_hyperparameters,
    flatten,
    unflatten,
)
from safedrift.learners.propd_ppo.parameters import Parameters

__all__ = ["BoxEngine", "BoxMaps", "BoxPolicy"]

_CHUNK_NUMBERS = 2**22  # of ∫ψV^τ held at once while a policy is computed at many points


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


class BoxPolicy:
    """π_m on a box: `policy[h, x]` at any state x, while the episode lasts.

    np.asarray(policy) is a snapshot (H, S, A) at the nodes, the first states last.
    """

    def __init__(self, engine: BoxEngine) -> None:
        self._engine = engine
        self._episode = int(engine.memory.clock.episode[0])
        self._pi = np.ascontiguousarray(engine.memory.policy.pi.transpose(0, 2, 1))

    def __getitem__(self, key: tuple[int, ArrayLike]) -> FloatArray:
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(f"policy[h, x] needs a step and a state; got {key!r}")
        h = _check.integer("h", key[0], lower=0, upper=self._pi.shape[0] - 1)
        x = self._engine.points("x", key[1], (self._engine.box.low.size,))
        at_x: FloatArray = self.at(h, x[None])[0]
        return at_x

    def at(self, h: int, points: FloatArray) -> FloatArray:
        """Return the action probabilities (P, A) of step h at points (P, n)."""
        if int(self._engine.memory.clock.episode[0]) != self._episode:
            raise RuntimeError("this policy belongs to an episode that is over")
        return self._engine.policy_at(h, points)

    def __repr__(self) -> str:
        H, S, A = self._pi.shape
        return f"BoxPolicy(episode={self._episode}, H={H}, nodes={S}, A={A})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self._pi.copy() if dtype is None else self._pi.astype(dtype)


class _Visited(NamedTuple):
    """A state visited in this episode: its bytes, ψ (A, J, d1), φ (A, d2) and the policy (A,)."""

    state: bytes
    psi: FloatArray
    phi: FloatArray
    pi: FloatArray


class BoxEngine:
    """Regressions at the nodes of a box, and a history from which any state's policy follows."""

    plays_in = BoxArrays

    def __init__(
        self,
        sizes: Sizes,
        initial: FloatArray,
        parameters: Parameters,
        windows: int,
        features: Features,
        box: BoxMaps,
    ) -> None:
        self.sizes, self.features, self.box = sizes, features, box
        self.hyperparameters = checked_hyperparameters(sizes, parameters, windows, features)
        C = channels(sizes.K, self.hyperparameters.dual_signal)
        self.memory: LinearMemory = make_linear_memory(sizes.H, sizes.K, C, features, initial)
        nodes = int(features.offsets[1])  # every pair has all nodes as successors
        self.history: History = make_history(self.memory, nodes)
        self._visited: dict[int, _Visited] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.memory = with_linear_views(self.memory)

    @property
    def _past(self) -> int:
        """Episodes finished since the last policy restart."""
        return int(self.memory.clock.policy_age[0])

    def reserve(self, episodes: int) -> None:
        """Make room for so many more episodes."""
        self.history = with_history_room(self.history, self._past, self._past + episodes)

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

    def play(
        self,
        arrays: BoxArrays,
        hyper: LinearHyperparameters,
        memory: LinearMemory,
        schedule: Schedule,
        inputs: ChunkInput,
        buffer: EpisodeBuffer,
        out: ChunkOutput,
        trace: Trace,
        log: Log,
    ) -> None:
        """Play a chunk in compiled code, where the feature maps are arrays. Nothing is logged."""
        H, K, A = self.sizes.H, self.sizes.K, self.sizes.A
        C, (J, n) = memory.values.q.shape[0], arrays.nodes.shape
        shape = (H, J, memory.values.w.shape[2], memory.values.u.shape[2])
        room = make_box_buffer(C, K, A, n, shape, self.history.window.size)
        ended = compiled.play(
            arrays, hyper, memory, self.history, schedule, inputs, room, out, trace
        )
        if ended != compiled.PLAYED:
            h = int(room.at[1])
            x, a = room.states[h], int(room.actions[h])
            where = f"(step {h}, state {x}, action {a})"
            if ended == compiled.NO_MASS:
                _check.fail("mean(x, a)", "within 36 standard deviations of the box", "more", where)
            _check.fail(
                "rewards, utilities and the norm of phi",
                "in [0, 1] everywhere, not at the nodes only",
                f"{room.signals[:, h]} and {np.linalg.norm(room.phi[h, a]):.6g}",
                where,
            )

    def begin(self, forget: Schedule, thresholds: FloatArray) -> BoxPolicy:
        """Start the next episode and return its policy."""
        hyper, memory = self.hyperparameters, self.memory
        linear.begin(forget.opens_window[0], forget.restarts[0], hyper, memory)
        self._visited = {}
        return BoxPolicy(self)

    def act(self, h: int, state: ArrayLike, u: float) -> int:
        """Draw an action with the uniform u."""
        x = self.points("state", state, (self.box.low.size,))
        psi, phi = self.box.features_at(x[None])
        pi = self._policy(h, psi, phi)[0]
        self._visited[h] = _Visited(x.tobytes(), psi[0], phi[0], pi)
        return draw_action(pi, u)

    def policy_at(self, h: int, points: FloatArray) -> FloatArray:
        """π_m of step h at points (P, n): (P, A)."""
        return self._policy(h, *self.box.features_at(points))

    def _policy(self, h: int, psi: FloatArray, phi: FloatArray) -> FloatArray:
        """π_m of step h from features ψ (P, A, J, d1) and φ (P, A, d2): (P, A)."""
        P, A, J, d1 = psi.shape
        n, K = self._past, self.sizes.K
        pi, logits = np.empty((P, A)), np.empty((2, A))
        size = max(1, _CHUNK_NUMBERS // max(1, n * (1 + K) * A * d1))
        for first in range(0, P, size):
            part = slice(first, first + size)
            count = len(phi[part])
            wide = psi[part].transpose(2, 0, 1, 3).reshape(J, -1)
            ahead = product(self.history.v[h, :n], wide).reshape(n, 1 + K, count, A * d1)
            off_nodes.replay(
                h,
                n,
                np.ascontiguousarray(ahead.transpose(2, 1, 0, 3)),
                np.ascontiguousarray(phi[part]),
                self.hyperparameters,
                self.history,
                self.memory,
                logits,
                pi[part],
            )
        return pi

    def end(
        self, thresholds: FloatArray, states: FloatArray, actions: Any, signals: FloatArray
    ) -> int:
        """Learn from a finished episode; returns how many estimates sit at their cap."""
        H = self.sizes.H
        visited = [self._visit(h, states[h]) for h in range(H)]
        psi, phi, pi = (
            np.stack([getattr(at, name) for at in visited]) for name in ("psi", "phi", "pi")
        )
        point_v = np.empty((self.memory.values.q.shape[0], H + 1))
        return int(
            off_nodes.end_on_box(
                thresholds,
                psi,
                phi,
                pi,
                actions,
                signals,
                self.hyperparameters,
                self.features,
                self.memory,
                self.history,
                point_v,
            )
        )

    def checked_states(self, states: ArrayLike) -> FloatArray:
        """Check the states of an episode (H, n)."""
        return self.points("states", states, (self.sizes.H, self.box.low.size))

    def _visit(self, h: int, x: FloatArray) -> _Visited:
        """Features and policy of a visited state, from `act` if it was asked there."""
        known = self._visited.get(h)
        if known is not None and known.state == x.tobytes():
            return known
        psi, phi = self.box.features_at(x[None])
        return _Visited(x.tobytes(), psi[0], phi[0], self._policy(h, psi, phi)[0])

    def q(self) -> FloatArray:
        """Q estimates (1+K, H, S, A)."""
        return by_state(self.memory.values.q[: 1 + self.sizes.K])

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything learnt so far, as arrays."""
        return flatten(self.memory) | flatten(self.history, "history.")

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self.memory = with_linear_views(unflatten(self.memory, state))
        self.history = unflatten(self.history, state, "history.")
