"""Linear-kernel CMDPs (Assumption 1): known features, unknown drifting coefficients.

    P_h^m(x'|x,a) = ⟨ψ(x,a,x'), θ_h^m⟩,  r_h^m(x,a) = ⟨φ(x,a), θ_r,h^m⟩,  g_k,h^m likewise

with features and coefficients of bounded norm (`models.features`).

States are finite, or the nodes of a quadrature rule on a box (`models.box`). The arrays describe
the world at these states; on a box, `features_at` returns the features at any state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.kernels.linear.box_maps import BoxArrays
from safedrift.kernels.sums import product
from safedrift.kernels.types import Features, LinearArrays, Successors, TableArrays, WeightPath
from safedrift.models.continuous import Box
from safedrift.models.features import (
    ROUNDING,
    SuccessorFeatures,
    as_lists,
    as_phi,
    by_pair,
    check_coefficients,
    check_integrals,
    check_phi,
)
from safedrift.models.maps import box_arrays
from safedrift.models.tabular import (
    TabularCMDP,
    checked_thresholds,
    distinct_rows,
    replace_thresholds,
)

__all__ = ["LinearKernelCMDP", "SuccessorFeatures"]

_NEGATIVE = -1e-12  # a probability below it is more than rounding
_BLOCK_BYTES = 64 * 2**20  # of temporary arrays


class LinearKernelCMDP:
    """A constrained MDP that is linear in known features and drifts in its coefficients.

    Validated when built: kernels are distributions, rewards and utilities lie in [0, 1], and
    Assumption 1 holds. On a box this is checked at the nodes and the first states.

    Parameters
    ----------
    psi : array (S, A, S, d1) or (H, S, A, S, d1), or SuccessorFeatures
        ψ(x, a, x'), the same at every step or one per step.
    phi : array (S, A, d2) or (H, S, A, d2), or "one-hot"
        φ(x, a); "one-hot" means the unit vectors of the pairs, d2 = S*A (pair s*A + a).
    theta : array (M, H, d1)
    theta_r : array (M, H, d2)
    theta_g : array (M, K, H, d2)
    thresholds : array (M, K)
        b_m in (0, H].
    initial : array (S,)
        Distribution of the first state.

    Attributes
    ----------
    features : Features
        ψ and φ in the form that the kernels use.
    box : Box or None
        The functions behind the arrays, from `models.linear_kernel_on_box`.
    bound : float
        Upper bound of ‖∫ψ(x,a,x') V(x') dx'‖ over V in [0, 1], from 1/√d1 to √d1.
    quadrature_error : float
        Largest |∫P(x'|x,a) dx' - 1|; rounding where states are finite.

    Examples
    --------
    The world drifts from one kernel (stay) to another (jump to a random state):

    >>> import numpy as np
    >>> import safedrift as sd
    >>> M, H, S, A = 3, 2, 2, 2
    >>> psi = np.empty((S, A, S, 2))
    >>> psi[..., 0] = np.eye(S)[:, None]
    >>> psi[..., 1] = 1 / S
    >>> world = sd.LinearKernelCMDP(
    ...     psi,
    ...     "one-hot",
    ...     theta=sd.drift.linear(M, 2)[:, None].repeat(H, axis=1),
    ...     theta_r=np.full((M, H, S * A), 0.5),
    ...     theta_g=np.full((M, 1, H, S * A), 1.0),
    ...     thresholds=np.full((M, 1), 1.0),
    ...     initial=[1.0, 0.0],
    ... )
    >>> world.at(1).dense_transitions()[0, 0, 0].tolist()
    [0.75, 0.25]
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
        self.theta_r = _check.floats("theta_r", theta_r, (self.M, self.H, "d2"))
        self.d2 = self.theta_r.shape[-1]
        self.theta_g = _check.floats("theta_g", theta_g, (self.M, "K", self.H, self.d2))
        self.K = self.theta_g.shape[1]
        self.thresholds = checked_thresholds(thresholds, self.M, self.K, self.H)
        self.initial = _check.floats("initial", initial, ("S",))
        _check.distribution("initial", self.initial)
        self.S = self.initial.size
        phi_array, one_hot = as_phi(phi, self.H, self.S, self.d2)
        self.A = phi_array.shape[2]
        offsets, states, values = as_lists(psi, self.H, self.S, self.A, self.d1)
        self.features = Features(
            offsets, states.astype(np.uint32), values, by_pair(phi_array), one_hot
        )
        with np.errstate(over="ignore", invalid="ignore"):  # inf and nan fail every check
            self.quadrature_error = self._check_kernel()
            check_coefficients("theta", self.theta, self.d1)
            check_coefficients("theta_r", self.theta_r, self.d2)
            check_coefficients("theta_g", self.theta_g, self.d2)
            check_phi(phi_array)
            self.bound = check_integrals(offsets, values, self.S, self.A, self._tolerance)
            self._check_signals()

    # ------------------------------------------------------------ checks

    @property
    def _tolerance(self) -> float:
        return ROUNDING if self.box is None else self.box.tolerance

    def _check_kernel(self) -> float:
        """Check that every kernel is a distribution; return the largest |∫P - 1|."""
        psi, offsets = self.features.psi, self.features.offsets
        total = np.add.reduceat(psi, offsets[:-1], axis=0)
        convex = psi.min() >= 0 and self.theta.min() >= 0
        worst = 0.0
        for h in range(self.H):
            if h and self._shared and np.array_equal(self.theta[:, h], self.theta[:, h - 1]):
                continue  # the same kernels again
            rows, entries = self._rows(h), self._entries(h)
            for episodes in self._blocks(self.theta[:, h], entries.stop - entries.start):
                theta = self.theta[episodes, h].T  # (d1, block)
                sums = product(total[rows], theta)  # (pairs, block)
                self._check_sums(sums, h, episodes)
                worst = max(worst, float(np.abs(sums - 1).max()))
                if not convex:
                    self._check_signs(product(psi[entries], theta), h, episodes)
        return worst

    def _check_sums(self, sums: FloatArray, h: int, episodes: IntArray) -> None:
        wrong = ~(np.abs(sums - 1) <= self._tolerance)
        if wrong.any():
            pair, j = np.argwhere(wrong)[0]
            hint = " (more nodes, or densities that stay inside the box)" if self.box else ""
            self._fail(
                "each kernel P(.|x,a)",
                f"of integral 1 within {self._tolerance:g}{hint}",
                f"{sums[pair, j]:.9g}",
                episodes[j],
                h,
                pair,
            )

    def _check_signs(self, p: FloatArray, h: int, episodes: IntArray) -> None:
        """Check P_h (entries of step h, block) in these episodes."""
        wrong = ~(p >= _NEGATIVE)
        if wrong.any():
            e, j = np.argwhere(wrong)[0]
            entry = self._entries(h).start + e
            row = int(np.searchsorted(self.features.offsets, entry, "right")) - 1
            self._fail(
                "each kernel P(.|x,a)",
                ">= 0",
                f"{p[e, j]:.6g} at successor {self.features.states[entry]}",
                episodes[j],
                h,
                row - self._rows(h).start,
            )

    def _check_signals(self) -> None:
        signals = [("rewards <phi, theta_r>", self.theta_r)]
        for k in range(self.K):
            signals.append((f"utilities <phi, theta_g[:, {k}]>", self.theta_g[:, k]))
        for name, theta in signals:
            for h in range(self.H):
                alike = self.features.phi.shape[0] == 1
                if h and alike and np.array_equal(theta[:, h], theta[:, h - 1]):
                    continue  # the same signals again
                for episodes in self._blocks(theta[:, h], self.S * self.A):
                    values = self._signal(theta[episodes, h], h)
                    wrong = ~((values >= -ROUNDING) & (values <= 1 + ROUNDING))
                    if wrong.any():
                        j, s, a = np.argwhere(wrong)[0]
                        got = f"{values[j, s, a]:.9g}"
                        self._fail(name, "in [0, 1]", got, episodes[j], h, s * self.A + a)

    def _blocks(self, theta: FloatArray, size: int) -> list[IntArray]:
        """Episodes of the distinct rows of θ (M, d), in blocks for `size` numbers each."""
        first, _ = distinct_rows(theta)
        block = max(1, _BLOCK_BYTES // (8 * int(size)))
        return [first[i : i + block] for i in range(0, first.size, block)]

    def _fail(self, name: str, allowed: str, got: str, m: int, h: int, pair: int) -> None:
        s, a = divmod(int(pair), self.A)
        _check.fail(name, allowed, got, f"(episode {m}, step {h}, state {s}, action {a})")

    def with_thresholds(self, thresholds: ArrayLike) -> LinearKernelCMDP:
        """Return the same world with other thresholds (M, K)."""
        return replace_thresholds(self, thresholds)

    # ------------------------------------------------------------ views

    @property
    def features_at(self) -> Callable[[FloatArray], tuple[FloatArray, FloatArray]] | None:
        """On a box: points (P, n) ↦ ψ (P, A, J, d1) times weights, φ (P, A, d2); else None."""
        return None if self.box is None else self.box.features_at

    @cached_property
    def arrays(self) -> LinearArrays:
        """The arrays that the simulation uses."""
        support = np.flatnonzero(self.initial)
        return LinearArrays(
            self.features,
            self.theta.copy(),
            self.theta_r.copy(),
            self.theta_g.copy(),
            support.astype(np.int32),
            self.initial[support],
            self.thresholds.copy(),
        )

    @cached_property
    def played_arrays(self) -> LinearArrays | BoxArrays | None:
        """What compiled learners play in; None on a box whose maps are functions of Python."""
        return self.arrays if self.box is None else box_arrays(self.box, self.arrays)

    @cached_property
    def distinct(self) -> tuple[IntArray, IntArray]:
        """First episode of each distinct world, and for each episode the number of its world."""
        parts = (self.theta, self.theta_r, self.theta_g, self.thresholds)
        numbers = [distinct_rows(part.reshape(self.M, -1))[1] for part in parts]
        return distinct_rows(np.stack(numbers, axis=1).astype(np.float64))

    @property
    def _shared(self) -> bool:
        """Whether ψ is stored for one step, because all are equal."""
        return bool(self.features.offsets.size == self.S * self.A + 1)

    def _rows(self, h: int) -> slice:
        """Rows of ψ at step h, one per pair."""
        pairs = self.S * self.A
        return slice(0, pairs) if self._shared else slice(h * pairs, (h + 1) * pairs)

    def _entries(self, h: int) -> slice:
        """Entries of ψ at step h."""
        rows, offsets = self._rows(h), self.features.offsets
        return slice(int(offsets[rows.start]), int(offsets[rows.stop]))

    @cached_property
    def _successors(self) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Offsets (H*S*A + 1,) and states of the successor lists of all steps."""
        offsets, states = self.features.offsets, self.features.states
        if not self._shared:
            return offsets, states
        starts = np.arange(self.H)[:, None] * states.size + offsets[:-1]
        return np.append(starts, self.H * states.size), np.tile(states, self.H)

    def _signal(self, theta: FloatArray, h: int) -> FloatArray:
        """⟨φ_h(x, a), θ⟩ for rows of θ (n, d2): (n, S, A)."""
        if self.features.one_hot:
            return theta.reshape(-1, self.S, self.A)
        phi = self.features.phi[h if self.features.phi.shape[0] > 1 else 0]
        return product(theta, phi).reshape(-1, self.A, self.S).transpose(0, 2, 1)

    # ------------------------------------------------------------ as tables

    @property
    def chunk(self) -> int:
        """Episodes whose tables are formed at once; fixed, so that results do not depend on it."""
        entries = self.features.states.size * (self.H if self._shared else 1)
        return int(np.clip(_BLOCK_BYTES // (8 * entries), 1, 32))

    def tables(self, episodes: IntArray) -> tuple[TableArrays, IntArray]:
        """Compute P, r and g of the listed episodes; return them and the index of each episode.

        On a box, quadrature probabilities are divided by their sum (1 up to `quadrature_error`):
        the node discretisation is a tabular world.
        """
        _, version = self.distinct
        _, first, place = np.unique(version[episodes], return_index=True, return_inverse=True)
        listed = np.asarray(episodes)[first]
        offsets, states = self._successors
        steps = offsets[:: self.S * self.A]
        p = np.empty((listed.size, states.size))
        for h in range(self.H):
            psi = self.features.psi[self._entries(h)]
            p[:, steps[h] : steps[h + 1]] = product(self.theta[listed, h], psi.T)
        np.maximum(p, 0.0, out=p)
        p /= np.repeat(np.add.reduceat(p, offsets[:-1], axis=1), np.diff(offsets), axis=1)
        rewards = self._signals(self.theta_r[listed])
        utilities = [self._signals(self.theta_g[listed, k]) for k in range(self.K)]
        support = np.flatnonzero(self.initial)
        own = WeightPath(np.arange(listed.size, dtype=np.int32)[:, None], np.ones((listed.size, 1)))
        world = TableArrays(
            offsets,
            states,
            p,
            np.empty((0, 0)),
            rewards,
            np.stack(utilities, axis=1),
            support.astype(np.int32),
            self.initial[support],
            own,
            own,
            own,
            self.thresholds[listed],
        )
        return world, place.astype(np.int64)

    def _signals(self, theta: FloatArray) -> FloatArray:
        """⟨φ_h(x, a), θ_h⟩ for θ (n, H, d2), within [0, 1]: (n, H, S, A)."""
        values = np.empty((len(theta), self.H, self.S, self.A))
        for h in range(self.H):
            values[:, h] = self._signal(theta[:, h], h)
        return np.clip(values, 0.0, 1.0)

    def at(self, m: int) -> TabularCMDP:
        """Return the world of episode m (from 0), on a box its node discretisation."""
        m = _check.integer("m", m, lower=0, upper=self.M - 1)
        world, _ = self.tables(np.array([m]))
        lists = Successors(world.offsets, world.states.astype(np.int32), world.probabilities[0])
        return TabularCMDP(
            lists, world.rewards[0], world.utilities[0], self.thresholds[m], self.initial
        )

    # ------------------------------------------------------------ how much it moves

    def change_of_kernel(self, h: int) -> Callable[[FloatArray], FloatArray]:
        """Δθ (n, d1) ↦ max over (x, a) of ‖⟨ψ_h(x,a,·), Δθ⟩‖₁ (n,)."""
        rows, entries = self._rows(h), self._entries(h)
        psi, starts = self.features.psi[entries], self.features.offsets[rows] - entries.start
        block = max(1, _BLOCK_BYTES // (8 * len(psi)))

        def size(delta: FloatArray) -> FloatArray:
            found = np.empty(len(delta))
            for first in range(0, len(delta), block):
                change = np.abs(product(delta[first : first + block], psi.T))
                sums = np.add.reduceat(change, starts, axis=1)
                found[first : first + block] = sums.max(axis=1)
            return found

        return size

    def change_of_signal(self, h: int) -> Callable[[FloatArray], FloatArray]:
        """Δθ (n, d2) ↦ max over (x, a) of |⟨φ_h(x,a), Δθ⟩| (n,)."""
        return lambda delta: np.abs(self._signal(delta, h)).max(axis=(1, 2))

    def __repr__(self) -> str:
        names = ("M", "H", "S", "A", "K", "d1", "d2")
        sizes = ", ".join(f"{n}={getattr(self, n)}" for n in names)
        return f"LinearKernelCMDP({sizes}{', on a box' if self.box else ''})"
