"""Linear-kernel CMDPs (Assumption 1): known features, unknown drifting coefficients.

    P_h^m(x'|x,a) = ⟨ψ(x,a,x'), θ_h^m⟩,  r_h^m(x,a) = ⟨φ(x,a), θ_r,h^m⟩,  g_k,h^m likewise

with ‖θ‖ ≤ √d1, ‖θ_r‖, ‖θ_g‖ ≤ √d2, ‖∫ψ(x,a,x')V(x')dx'‖ ≤ √d1 H for every V in [0, H], and
‖φ(x,a)‖ ≤ 1, which the paper's proofs use and Assumption 1 forgets (docs/errata.md, E12).

States are finite, or the nodes of a quadrature rule on a box (`models.box`). Either way the arrays
here say all there is to know at these states; on a box, `features_at` gives the features anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.kernels.types import Features, LinearWorld, Path, Successors, World
from safedrift.models.tabular import TabularCMDP, distinct_rows

if TYPE_CHECKING:
    from safedrift.models.box import Box

__all__ = ["LinearKernelCMDP", "SuccessorFeatures"]

TOLERANCE = 1e-9  # of kernels that sum over finite states
_ROUNDING = 1e-9  # of norms and ranges
_BLOCK_BYTES = 64 * 2**20  # of temporary arrays


class SuccessorFeatures(NamedTuple):
    """ψ as successor lists: row i = (h*S + s)*A + a, or s*A + a where all steps are alike.

    Row i holds entries offsets[i] .. offsets[i+1]; ψ is zero at all other x'.
    """

    offsets: NDArray[np.int64]  # (rows + 1,)
    states: NDArray[np.int32]  # (entries,)
    psi: FloatArray  # (entries, d1)


class LinearKernelCMDP:
    """A constrained MDP that is linear in known features and drifts in its coefficients.

    Parameters
    ----------
    psi : array (S, A, S, d1) or (H, S, A, S, d1), or SuccessorFeatures
        ψ(x, a, x'), the same at every step or one per step.
    phi : array (S, A, d2) or (H, S, A, d2), or "one-hot"
        φ(x, a); "one-hot" stands for the unit vectors of the pairs, d2 = S*A (pair s*A + a).
    theta : array (M, H, d1)
    theta_r : array (M, H, d2)
    theta_g : array (M, K, H, d2)
    thresholds : array (M, K)
        b_m in (0, H].
    initial : array (S,)
        Distribution of the first state.
    """

    def __init__(
        self,
        psi: ArrayLike | SuccessorFeatures,
        phi: ArrayLike | str,
        theta: ArrayLike,
        theta_r: ArrayLike,
        theta_g: ArrayLike,
        thresholds: ArrayLike,
        initial: ArrayLike,
        *,
        box: Box | None = None,
    ) -> None:
        self.name: str | None = None  # of a named problem, and how it was made;
        self.recipe: dict[str, object] = {}  # both are kept in results
        self.box = box
        self.theta = _check.floats("theta", theta, ("M", "H", "d1"))
        self.M, self.H, self.d1 = self.theta.shape
        self.initial = _check.floats("initial", initial, ("S",))
        _check.distribution("initial", self.initial)
        self.S = self.initial.size
        phi_array, self.A, one_hot = _as_phi(phi, self.H, self.S, theta_r)
        self.d2 = self.S * self.A if one_hot else phi_array.shape[-1]
        lists = _as_lists(psi, self.H, self.S, self.A, self.d1)
        self.theta_r = _check.floats("theta_r", theta_r, (self.M, self.H, self.d2))
        self.theta_g = _check.floats("theta_g", theta_g, (self.M, "K", self.H, self.d2))
        self.K = self.theta_g.shape[1]
        self._set_thresholds(thresholds)
        self.features = Features(
            lists.offsets,
            lists.states.astype(np.uint32),
            lists.psi,
            _by_pair(phi_array),
            one_hot,
        )
        self.quadrature_error = self._check_kernel(TOLERANCE if box is None else box.tolerance)
        self.bound = self._check_norms(phi_array)
        self._check_signals()

    # ------------------------------------------------------------ checks

    def _check_norms(self, phi: FloatArray) -> float:
        """Check Assumption 1's norms; return a bound of ‖∫ψV‖ over V in [0, 1], at most √d1."""
        for name, value, d in (
            ("theta", self.theta, self.d1),
            ("theta_r", self.theta_r, self.d2),
            ("theta_g", self.theta_g, self.d2),
        ):
            norm = np.linalg.norm(value, axis=-1)
            limit = np.sqrt(d)
            _check.everywhere(
                f"the norm of {name}", norm, norm <= limit * (1 + _ROUNDING),
                f"at most sqrt({d}) = {limit:.6g} (Assumption 1)",
            )  # fmt: skip
        if not self.features.one_hot:
            norm = np.linalg.norm(phi, axis=-1)
            _check.everywhere(
                "the norm of phi", norm, norm <= 1 + _ROUNDING,
                "at most 1 (the proofs need it; divide phi by its largest norm and multiply "
                "theta_r and theta_g by it)",
            )  # fmt: skip
        starts = self.features.offsets[:-1]
        up = np.add.reduceat(np.maximum(self.features.psi, 0), starts, axis=0)
        down = np.add.reduceat(np.maximum(-self.features.psi, 0), starts, axis=0)
        # V = 1 is a witness; where a component changes sign, the larger part bounds it from above.
        witness = np.linalg.norm(up - down, axis=1)
        limit = np.sqrt(self.d1)
        _check.everywhere(
            "the norm of the integral of psi over x'",
            witness.reshape(-1, self.S, self.A),
            witness.reshape(-1, self.S, self.A) <= limit * (1 + self._slack),
            f"at most sqrt({self.d1}) = {limit:.6g} (Assumption 1 with V = 1)",
        )
        return float(min(np.linalg.norm(np.maximum(up, down), axis=1).max(), limit))

    @property
    def _slack(self) -> float:
        return _ROUNDING if self.box is None else self.box.tolerance

    def _check_kernel(self, tolerance: float) -> float:
        """Check that every kernel is a distribution; return the largest |∫P - 1|."""
        features, pairs = self.features, self.S * self.A
        total = np.add.reduceat(features.psi, features.offsets[:-1], axis=0)
        convex = (features.psi >= 0).all() and (self.theta >= 0).all()
        worst = 0.0
        what = "each kernel P(.|x,a)"
        for h, rows, thetas, episodes in self._steps():
            entries = slice(features.offsets[rows.start], features.offsets[rows.stop])
            size = max(1, _BLOCK_BYTES // (8 * (entries.stop - entries.start)))
            for first in range(0, len(thetas), size):
                block = thetas[first : first + size]
                sums = total[rows] @ block.T  # (pairs, block)
                off = np.abs(sums - 1)
                worst = max(worst, float(off.max()))
                if worst > tolerance:
                    i, j = np.unravel_index(off.argmax(), off.shape)
                    hint = "; more nodes, or densities that stay inside the box" if self.box else ""
                    _check.fail(
                        what,
                        f"of integral 1 within {tolerance:g}{hint}",
                        f"{sums[i, j]:.9g}",
                        self._place(episodes[first + j], h, int(i)),
                    )
                if not convex:
                    values = features.psi[entries] @ block.T
                    low = values.min()
                    if low < -1e-12:
                        e, j = np.unravel_index(values.argmin(), values.shape)
                        row = np.searchsorted(features.offsets, entries.start + e, "right") - 1
                        _check.fail(
                            what,
                            ">= 0",
                            f"{low:.6g} at successor {features.states[entries.start + e]}",
                            self._place(episodes[first + j], h, int(row) % pairs),
                        )
        return worst

    def _place(self, m: int, h: int, pair: int) -> str:
        return f"(episode {m}, step {h}, state {pair // self.A}, action {pair % self.A})"

    def _steps(self) -> list[tuple[int, slice, FloatArray, IntArray]]:
        """For each distinct step of the features: h, rows of ψ, distinct θ and their episodes."""
        pairs = self.S * self.A
        found = []
        shared = self.features.offsets.size == pairs + 1
        for h in range(self.H):
            first, _ = distinct_rows(self.theta[:, h])
            rows = slice(0, pairs) if shared else slice(h * pairs, (h + 1) * pairs)
            found.append((h, rows, self.theta[first, h], first))
        return found

    def _check_signals(self) -> None:
        signals = [("rewards <phi, theta_r>", self.theta_r)]
        signals += [(f"utilities <phi, theta_g[:, {k}]>", self.theta_g[:, k]) for k in range(self.K)]
        for name, theta in signals:
            for h in range(self.H):
                first, _ = distinct_rows(theta[:, h])
                size = max(1, _BLOCK_BYTES // (8 * self.S * self.A))
                for start in range(0, first.size, size):
                    block = first[start : start + size]
                    values = self._signal(theta[block, h], h)
                    wrong = (values < -_ROUNDING) | (values > 1 + _ROUNDING)
                    if wrong.any():
                        j, s, a = np.argwhere(wrong)[0]
                        place = self._place(block[j], h, int(s) * self.A + int(a))
                        _check.fail(name, "in [0, 1]", f"{values[j, s, a]:.9g}", place)

    def _signal(self, theta: FloatArray, h: int) -> FloatArray:
        """⟨φ_h(x, a), θ⟩ for rows of θ (n, d2): (n, S, A)."""
        if self.features.one_hot:
            return theta.reshape(-1, self.S, self.A)
        phi = self.features.phi[h if self.features.phi.shape[0] > 1 else 0]
        return (theta @ phi).reshape(-1, self.A, self.S).transpose(0, 2, 1)

    def _set_thresholds(self, thresholds: ArrayLike) -> None:
        self.thresholds = _check.floats("thresholds", thresholds, (self.M, self.K))
        ok = (self.thresholds > 0) & (self.thresholds <= self.H)
        _check.everywhere("thresholds", self.thresholds, ok, f"in (0, H] = (0, {self.H}]")

    def with_thresholds(self, thresholds: ArrayLike) -> LinearKernelCMDP:
        """Return the same world with other thresholds (M, K)."""
        other = copy(self)
        for name in ("distinct", "arrays"):
            other.__dict__.pop(name, None)
        other._set_thresholds(thresholds)
        return other

    # ------------------------------------------------------------ views

    @property
    def features_at(self) -> Callable[[FloatArray], tuple[FloatArray, FloatArray]] | None:
        """On a box: points (P, n) ↦ ψ (P, A, J, d1) times weights, φ (P, A, d2); else None."""
        return None if self.box is None else self.box.features_at

    @cached_property
    def arrays(self) -> LinearWorld:
        """The world as the simulation sees it."""
        support = np.flatnonzero(self.initial)
        return LinearWorld(
            self.features,
            self.theta.copy(),
            self.theta_r.copy(),
            self.theta_g.copy(),
            support.astype(np.int32),
            self.initial[support],
            self.thresholds.copy(),
        )

    @cached_property
    def distinct(self) -> tuple[IntArray, IntArray]:
        """First episode of each distinct world, and for each episode the number of its world."""
        parts = (self.theta, self.theta_r, self.theta_g, self.thresholds)
        return distinct_rows(np.hstack([part.reshape(self.M, -1) for part in parts]))

    @property
    def chunk(self) -> int:
        """Episodes whose tables are formed at once; fixed, so that results do not depend on it."""
        entries = self.features.states.size * (self.H if self._shared else 1)
        return int(np.clip(_BLOCK_BYTES // (8 * entries), 1, 32))

    @property
    def _shared(self) -> bool:
        return self.features.offsets.size == self.S * self.A + 1

    def tables(self, episodes: IntArray) -> tuple[World, IntArray]:
        """Form P, r and g of the listed episodes; returns them and where each episode is in them.

        On a box, quadrature probabilities are divided by their sum (`quadrature_error` says how far
        that is from 1): the node discretisation is a tabular world.
        """
        _, version = self.distinct
        _, first, place = np.unique(version[episodes], return_index=True, return_inverse=True)
        listed = np.asarray(episodes)[first]
        n, (offsets, states, psi) = listed.size, self.features[:3]
        if self._shared:
            steps = [slice(0, states.size)] * self.H
            shift = np.arange(self.H)[:, None] * states.size
            offsets = np.append((offsets[:-1] + shift).ravel(), self.H * states.size)
            states = np.tile(states, self.H)
        else:
            ends = offsets[:: self.S * self.A]
            steps = [slice(ends[h], ends[h + 1]) for h in range(self.H)]
        p = np.concatenate([psi[step] @ self.theta[listed, h].T for h, step in enumerate(steps)])
        p = np.maximum(p.T, 0.0)
        p /= np.repeat(np.add.reduceat(p, offsets[:-1], axis=1), np.diff(offsets), axis=1)
        rewards = np.stack([self._signal(self.theta_r[listed, h], h) for h in range(self.H)], 1)
        utilities = np.stack(
            [
                np.stack([self._signal(self.theta_g[listed, k, h], h) for h in range(self.H)], 1)
                for k in range(self.K)
            ],
            axis=1,
        )
        support = np.flatnonzero(self.initial)
        one = Path(np.arange(n, dtype=np.int32)[:, None], np.ones((n, 1)))
        world = World(
            offsets.astype(np.int64), states, np.ascontiguousarray(p), np.empty((0, 0)),
            np.ascontiguousarray(rewards.clip(0, 1)), np.ascontiguousarray(utilities.clip(0, 1)),
            support.astype(np.int32), self.initial[support], one, one, one,
            self.thresholds[listed],
        )  # fmt: skip
        return world, place.astype(np.int64)

    def change_of_kernel(self, h: int) -> Callable[[FloatArray], FloatArray]:
        """Δθ (n, d1) ↦ max over (x, a) of ‖⟨ψ_h(x,a,·), Δθ⟩‖₁ (n,)."""
        pairs = self.S * self.A
        rows = slice(0, pairs) if self._shared else slice(h * pairs, (h + 1) * pairs)
        offsets, _, psi = self.features[:3]
        entries = slice(offsets[rows.start], offsets[rows.stop])
        starts = offsets[rows] - offsets[rows.start]

        def size(delta: FloatArray) -> FloatArray:
            found = np.empty(len(delta))
            step = max(1, _BLOCK_BYTES // (8 * (entries.stop - entries.start)))
            for first in range(0, len(delta), step):
                change = np.abs(psi[entries] @ delta[first : first + step].T)
                found[first : first + step] = np.add.reduceat(change, starts, axis=0).max(axis=0)
            return found

        return size

    def change_of_signal(self, h: int) -> Callable[[FloatArray], FloatArray]:
        """Δθ (n, d2) ↦ max over (x, a) of |⟨φ_h(x,a), Δθ⟩| (n,)."""
        return lambda delta: np.abs(self._signal(delta, h)).max(axis=(1, 2))

    def at(self, m: int) -> TabularCMDP:
        """Return the world of episode m (from 0), on a box its node discretisation."""
        m = _check.integer("m", m, lower=0, upper=self.M - 1)
        world, _ = self.tables(np.array([m]))
        lists = Successors(world.offsets, world.states.astype(np.int32), world.probabilities[0])
        return TabularCMDP(
            lists, world.rewards[0], world.utilities[0], self.thresholds[m], self.initial
        )

    def __repr__(self) -> str:
        names = ("M", "H", "S", "A", "K", "d1", "d2")
        sizes = ", ".join(f"{n}={getattr(self, n)}" for n in names)
        return f"LinearKernelCMDP({sizes}{', on a box' if self.box else ''})"


def _as_phi(
    phi: ArrayLike | str, H: int, S: int, theta_r: ArrayLike
) -> tuple[FloatArray, int, bool]:
    """Return φ as (1 or H, S, A, d2), A, and whether it stands for unit vectors."""
    if isinstance(phi, str):
        _check.choice("phi", phi, ("one-hot",))
        d2 = np.shape(theta_r)[-1] if np.ndim(theta_r) else 0
        if d2 % S or d2 == 0:
            _check.fail("theta_r", f"of S*A entries with phi = 'one-hot', S = {S}", d2)
        return np.empty((1, S, d2 // S, 0)), d2 // S, True
    if np.ndim(phi) == 4:
        array = _check.floats("phi", phi, (H, S, "A", "d2"))
    else:
        array = _check.floats("phi", phi, (S, "A", "d2"))[None]
    return array, array.shape[2], False


def _by_pair(phi: FloatArray) -> FloatArray:
    """Turn φ (h, S, A, d2) into (h, d2, A*S)."""
    steps, S, A, d2 = phi.shape
    return np.ascontiguousarray(phi.transpose(0, 3, 2, 1)).reshape(steps, d2, A * S)


def _as_lists(
    psi: ArrayLike | SuccessorFeatures, H: int, S: int, A: int, d1: int
) -> SuccessorFeatures:
    """Check ψ and return it as successor lists in arrays of their own."""
    if isinstance(psi, SuccessorFeatures):
        return _checked_lists(psi, H, S, A, d1)
    if np.ndim(psi) == 5:
        dense = _check.floats("psi", psi, (H, S, A, S, d1))
    else:
        dense = _check.floats("psi", psi, (S, A, S, d1))
    rows = dense.reshape(-1, S, d1)
    row, state = np.nonzero((rows != 0).any(axis=-1))
    counts = np.bincount(row, minlength=rows.shape[0])
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    lists = SuccessorFeatures(offsets, state.astype(np.int32), rows[row, state])
    return _checked_lists(lists, H, S, A, d1)


def _checked_lists(given: SuccessorFeatures, H: int, S: int, A: int, d1: int) -> SuccessorFeatures:
    offsets = _check.integers("psi.offsets", given.offsets, 0, np.iinfo(np.int64).max)
    states = _check.integers("psi.states", given.states, 0, S - 1)
    values = _check.floats("psi", given.psi, ("entries", d1)).copy()
    if offsets.size - 1 not in (S * A, H * S * A):
        _check.fail(
            "psi.offsets",
            f"of length S*A + 1 = {S * A + 1} or H*S*A + 1 = {H * S * A + 1}",
            offsets.size,
        )
    if states.size != len(values):
        _check.fail("psi.states", f"of length {len(values)}", states.size)
    if offsets[0] != 0 or offsets[-1] != states.size:
        _check.fail("psi.offsets", f"from 0 to {states.size}", (offsets[0], offsets[-1]))
    _check.everywhere("row lengths of psi", np.diff(offsets), np.diff(offsets) >= 1, ">= 1")
    return SuccessorFeatures(offsets, states.astype(np.int32), values)
