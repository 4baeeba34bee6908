"""Collect, chunk by chunk, what the certificates of a run are made of.

An `Audit` takes transcripts of consecutive episodes. It solves each episode's CMDP for the optimal
policy, hands both to the compiled checks (`kernels.audit.lemmas`) and keeps sums over the run, the
smallest slack of every check with its place, and the distribution of the slacks. Its size does not
grow with H, S and A times M: per check at most `BUCKETS` numbers are kept, each the smallest slack
of consecutive episodes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.audit import lemmas as loops
from safedrift.kernels.audit import memory as kernels
from safedrift.kernels.audit.draws import make_bets
from safedrift.knowledge import Budgets, Dimensions, Slater, block_sums
from safedrift.learners import PROPDPPO, Periodic
from safedrift.models import DriftingWorld, LinearKernelCMDP
from safedrift.oracles import optimal_policies, variation
from safedrift.theory.certificates import Place
from safedrift.theory.draw_statistics import THRESHOLD, Returns

__all__ = ["Audit", "Slacks"]

BUCKETS = 4096


# How many of (h, x, a) the place of a check has; all by default.
_DEPTH = dict.fromkeys((kernels.ELLIPTICAL, kernels.ELLIPTICAL + 1, kernels.PROJECTION), 1)
_DEPTH |= {kernels.NORMALISED: 1}
_DEPTH |= dict.fromkeys((kernels.DESCENT, kernels.DESCENT + 1), 2)
_DEPTH |= dict.fromkeys((kernels.VISITATION, kernels.VISITATION + 1), 2)


class Slacks:
    """Smallest slack per bucket of episodes, the smallest of all, and its place."""

    def __init__(self, M: int) -> None:
        self.width = -(-M // BUCKETS)
        self.buckets = np.full(-(-M // self.width), np.inf)
        self.smallest = np.inf
        self.place = Place(None)
        self.broken = 0  # places where the statement fails

    def add(self, first: int, slack: FloatArray, where: Any = None, broken: int = 0) -> None:
        """Add the slacks (n,) of episodes from `first` on; where(i) is the place of the i-th."""
        if not slack.size:
            return
        slack = np.where(np.isnan(slack), -np.inf, slack)
        np.minimum.at(self.buckets, (first + np.arange(slack.size)) // self.width, slack)
        i = int(slack.argmin())
        if slack[i] < self.smallest:
            self.smallest = float(slack[i])
            self.place = Place(first + i) if where is None else where(i)
        self.broken += broken

    def quantiles(self) -> tuple[float, ...] | None:
        """Smallest, quartiles and largest over the buckets with something to check."""
        seen = self.buckets[self.buckets < np.inf]
        return tuple(np.quantile(seen, (0, 0.25, 0.5, 0.75, 1)).tolist()) if seen.size else None


class Audit:
    """What is known about a run after the episodes added so far.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> learner = sd.PROPDPPO.for_problem(world, sd.Slater(gamma=0.2))
    >>> audit = sd.theory.Audit(world, learner)  # then audit.add_episodes(transcript)
    """

    def __init__(
        self, world: DriftingWorld, agent: PROPDPPO, *, p: float = 0.05, noisy: bool = False
    ) -> None:
        box = getattr(world, "box", None)
        if box is not None:
            _check.fail("world", "one with finitely many states to be certified", "one on a box")
        if agent.knowledge is None:
            allowed = "Slater(...) or LocalBudgets(...) for certificates: no lemma covers None"
            _check.fail("the learner's knowledge", allowed, None)
        if not isinstance(agent.forgetting, Periodic):
            allowed = "Periodic for certificates: the paper's lemmas are about periodic restarts"
            _check.fail("the learner's forgetting", allowed, agent.forgetting)
        self.world, self.agent, self.periods = world, agent, agent.forgetting
        self.knowledge = agent.knowledge
        self.p = _check.positive("p", p, upper=1.0, closed=False)
        self.noisy = _check.kind("noisy", noisy, bool)
        self.done = 0
        self.changes = 0  # episodes whose world differs from that of the episode before
        self.checks = [Slacks(world.M) for _ in range(kernels.COLUMNS)]
        self.others: dict[str, Slacks] = defaultdict(lambda: Slacks(world.M))  # from optima, draws
        self.sums: dict[str, Any] = defaultdict(float)
        self.price = 1.0  # largest 1 + Σ_k μ_k
        self.largest_mu = 0.0  # largest Σ_k μ*_k
        self.first_mu = np.zeros(world.K)
        self.dimensions = None
        if isinstance(world, LinearKernelCMDP):
            self.dimensions = Dimensions(world.d1, world.d2, world.bound)
        self.drift, self.drift_l1 = variation(world, "l2"), variation(world, "l1")
        self._blocks = self._drift_of_blocks()
        self._start()

    @property
    def linear(self) -> bool:
        """Whether the learner uses Algorithm 2."""
        return self.dimensions is not None

    @property
    def terms(self) -> FloatArray:
        """Sums over the run of the terms of `kernels.audit.memory` (TERMS, 1+K)."""
        return np.asarray(self.sums["terms"])

    @property
    def regret(self) -> float:
        """DR of the episodes seen, against the oracle's optima."""
        return float(self.sums["best"] - self.terms[kernels.VALUE, 0])

    def total(self, name: str) -> FloatArray:
        """A sum over the run with one entry per constraint (K,)."""
        return np.asarray(self.sums[name])

    @property
    def budgets(self) -> Budgets:
        """Budgets in the paper's norms; B_* over all states, of the optimal policies compared."""
        P, r, g, b = (float(part.sum()) for part in self.drift)
        return Budgets(P, r, g, float(self.sums["star"]), b)

    # ------------------------------------------------------------ episodes

    def add_episodes(self, script: kernels.Transcript) -> FloatArray:
        """Check the next B episodes; returns the exact values (B, 1+K) of their policies."""
        script = self._checked(script)
        B = script.mu.shape[0]
        episodes = np.arange(self.done, self.done + B)
        if self.done + B > self.world.M:
            _check.fail("episodes", f"at most M = {self.world.M}", self.done + B)
        truth, optima = self._truth(episodes)
        out = kernels.make_findings(B, self.world.H, self.world.K)
        arrays, place = self.world.tables(episodes)
        place = np.asarray(place, np.int64)
        rewards = arrays.rewards[:, None]
        kind: Any = kernels.AuditedLinear if self.linear else kernels.AuditedTables
        settings = kind(**self._constants(), L=self.periods.L, W=self.periods.W)
        if self.linear:
            loops.audit_linear(
                arrays,
                rewards,
                self.agent.features,
                place,
                self.done,
                settings,
                script,
                truth,
                self._ledger,
                self._work,
                self.bets,
                out,
            )
        else:
            loops.audit_tables(
                arrays,
                rewards,
                place,
                self.done,
                settings,
                script,
                truth,
                self._ledger,
                self._work,
                self.bets,
                out,
            )
        self._keep(out)
        self._add(script.mu, optima, out)
        self._add_evidence(script, out)
        self.changes += int(truth.fresh[1:].sum() + (truth.fresh[0] and self.done > 0))
        self.done += B
        return np.asarray(out.terms[:, kernels.VALUE])

    def _constants(self) -> dict[str, Any]:
        """The learner's hyperparameters; those of windows once for each of them."""
        found: dict[str, Any] = self.agent.hyperparameters._asdict()
        windows = -(-self.world.M // self.periods.W)
        for name in ("LV", "window_drift_P", "window_drift_g"):
            if name in found and len(found[name]) == 1:  # the same, zero, in every window
                found[name] = np.repeat(found[name], windows, axis=0)
        return found

    def _checked(self, script: kernels.Transcript) -> kernels.Transcript:
        """Refuse arrays that do not fit: compiled code would read past their ends."""
        _check.kind("script", script, kernels.Transcript)
        _, H, S, A, K = self.agent.sizes
        C = self.agent.memory.values.v_start.size
        B = len(script.mu)
        shapes = {
            "policies": (B, H, S, A),
            "q": (B, C, H, S, A),
            "v_start": (B, C),
            "mu": (B, K),
            "values": (B, 1 + K, H),
        }
        arrays: dict[str, Any] = {}
        for name, shape in shapes.items():
            values = np.array(getattr(script, name), dtype=np.float64, order="C", copy=None)
            if values.shape != shape:
                _check.fail(f"script.{name}", f"of shape {shape}", values.shape)
            if not np.isfinite(values.sum()):  # a nan or infinity anywhere, and one pass
                _check.everywhere(f"script.{name}", values, np.isfinite(values), "finite")
            arrays[name] = values if values.flags.writeable else values.copy()
        for name, upper in (("states", S), ("actions", A)):
            values = np.asarray(getattr(script, name))
            if values.shape != (B, H) or values.dtype.kind not in "iu":
                what = f"{values.dtype} of shape {values.shape}"
                _check.fail(f"script.{name}", f"integers of shape {(B, H)}", what)
            _check.everywhere(
                f"script.{name}", values, (values >= 0) & (values < upper), f"in [0, {upper})"
            )
            arrays[name] = np.array(values, dtype=np.int64, order="C")
        return kernels.Transcript(**arrays)

    def _start(self) -> None:
        world, agent = self.world, self.agent
        H, S, A, K = world.H, world.S, world.A, world.K
        C = agent.memory.values.v_start.size
        arrays, _ = world.tables(np.zeros(1, np.int64))
        entries, d1, d2 = arrays.states.size, 0, 0
        if self.dimensions is not None and agent.features is not None:
            d1, d2 = self.dimensions.d1, agent.features.phi.shape[1]
        mixed = arrays.transition_path.scenario.shape[1] > 1
        self._ledger = kernels.make_ledger(H, S, A, K, C, 0 if self.linear else entries, d1, d2)
        self._work = kernels.make_work(H, S, A, K, C, entries if mixed else 0, max(d1, d2))
        self.bets = make_bets(H, S, A, K, entries, self.noisy)
        self.returns = Returns(H, K)
        self._last: tuple[int, FloatArray] | None = None  # version and optimal policy

    def _drift_of_blocks(self) -> tuple[FloatArray, ...]:
        """What the lemmas add for drift inside each W-block, printed and repaired."""
        world, W = self.world, self.periods.W
        H = world.H
        l2, l1 = (
            (block_sums(v.P, W), block_sums(np.concatenate([v.r[:, None], v.g], axis=1), W))
            for v in (self.drift, self.drift_l1)
        )
        factor_P, factor = float(H), 1.0
        if self.dimensions is not None:
            d1, d2 = self.dimensions[:2]
            factor_P, factor = H**2 * d1 * np.sqrt(d1 * W), np.sqrt(d2 * W)
        ones = np.ones(H)
        printed_P = factor_P * l2[0].sum(axis=-1)[:, None] * ones
        printed = factor * l2[1].sum(axis=-1)[:, :, None] * ones
        left = np.arange(H - 1, -1, -1.0)
        return printed_P, printed, l1[0] * left / 2, np.ascontiguousarray(l1[1])

    def _truth(self, episodes: np.ndarray) -> tuple[kernels.Truth, Any]:
        """Optimal policies and drift of the episodes."""
        world = self.world
        _, version = world.distinct
        optima, policies, place = optimal_policies(world, episodes)
        if not optima.feasible.all():
            m = int(episodes[np.flatnonzero(~optima.feasible)[0]])
            _check.fail("world", "feasible in every episode", f"no safe policy in episode {m}")
        fresh = np.concatenate(([True], np.diff(version[episodes]) != 0))
        if self._last is not None and self._last[0] == version[episodes[0]]:
            policies[0] = self._last[1]  # one selection for one world
            fresh[0] = False
        self._last = (int(version[episodes[-1]]), policies[-1].copy())
        scale = 1.0 if self.dimensions is None else np.sqrt(self.dimensions.d1)
        change = np.stack([scale * self.drift.P[episodes], self.drift_l1.P[episodes]], axis=1)
        place = np.asarray(place, np.int64)
        local = not isinstance(self.knowledge, Slater)
        return kernels.Truth(place, fresh, policies, change, local, *self._blocks), optima

    def _keep(self, out: kernels.Findings) -> None:
        S, A = self.world.S, self.world.A
        for column, kept in enumerate(self.checks):
            sign = -1.0 if column < kernels.RESIDUALS else 1.0
            where, depth = out.where[:, column], _DEPTH.get(column, 3)

            def at(i: int, where: np.ndarray = where, depth: int = depth) -> Place:
                if where[i] < 0:
                    return Place(self.done + i)
                h, pair = divmod(int(where[i]), S * A)
                return Place(self.done + i, *(h, *divmod(pair, A))[:depth])

            kept.add(self.done, sign * out.worst[:, column], at, int(out.broken[:, column].sum()))

    def _add(self, mu: FloatArray, optima: Any, out: kernels.Findings) -> None:
        """Add what the lemmas on whole runs are made of."""
        first, sums = self.done, self.sums
        b = self.world.thresholds[first : first + len(mu)]
        sums["terms"] = sums["terms"] + out.terms.sum(axis=0)  # (TERMS, 1+K)
        sums["star"] += float(out.star_change.sum())
        total = mu.sum(axis=1)
        self.price = max(self.price, 1 + float(total.max()))
        self.largest_mu = max(self.largest_mu, float(optima.multipliers.sum(axis=1).max()))
        if first == 0:
            self.first_mu = mu[0].copy()
        sums["price2"] += float(((1 + total) ** 2).sum())
        sums["mu2"] = sums["mu2"] + (mu**2).sum(axis=0)
        gap = b - out.dual_signal  # b_m - V_g^m as the dual step takes it
        sums["gap"] = sums["gap"] + gap.sum(axis=0)
        sums["mu_gap"] = sums["mu_gap"] + (mu * gap).sum(axis=0)
        best = out.terms[:, kernels.OPTIMAL, 1:]
        sums["mu_best"] = sums["mu_best"] + (mu * (best - out.dual_signal)).sum(axis=0)
        estimate = out.terms[:, kernels.ESTIMATE, 1:]
        sums["mu_missed"] = sums["mu_missed"] + (mu * (best - estimate)).sum(axis=0)
        sums["mu_short"] = sums["mu_short"] + (mu * (b - estimate)).sum(axis=0)
        for name, term in (("iota", kernels.IOTA_OPTIMAL), ("block", kernels.BLOCK_STEP)):
            weighted = (mu * out.terms[:, term, 1:]).sum(axis=0)
            sums[f"mu_{name}"] = sums[f"mu_{name}"] + weighted
        # The printed dual step of episode m+1 pairs b_{m+1} with V_g^m (E5).
        after = np.minimum(np.arange(first, first + len(mu)) + 1, self.world.M - 1)
        moved = np.zeros_like(b)
        if not self.agent.hyperparameters.lagged:
            moved = np.abs(self.world.thresholds[after] - b)
        sums["moved"] = sums["moved"] + moved.sum(axis=0)
        sums["mu_moved"] = sums["mu_moved"] + (mu * moved).sum(axis=0)
        sums["best"] += float(optima.value.sum())
        sums["b"] = sums["b"] + b.sum(axis=0)
        self._add_slater(optima, b, out)

    def _add_evidence(self, script: kernels.Transcript, out: kernels.Findings) -> None:
        """What the draws say against the run (`theory.draw_statistics`)."""
        found = self.returns.add(script.values.sum(axis=2), out.terms[:, kernels.VALUE])
        for name, logs in zip(
            ("actions", "successors", "signals", "returns"), (*out.evidence.T, found), strict=True
        ):
            slack = THRESHOLD - logs
            self.others[name].add(self.done, slack, None, int((slack < 0).sum()))

    def _add_slater(self, optima: Any, b: FloatArray, out: kernels.Findings) -> None:
        """Lemma 1, and the lemmas on violation under the Slater condition."""
        first, H = self.done, self.world.H
        total = optima.multipliers.sum(axis=1)
        with np.errstate(divide="ignore"):
            bound = np.where(optima.gamma > 0, H / np.maximum(optima.gamma, 0.0), np.inf)
        known = np.isfinite(bound)
        slack = np.where(known, bound - total, np.inf)
        self.others["multiplier"].add(first, slack, None, int((slack < kernels.TOLERANCE).sum()))
        C = self.weight
        if not np.isfinite(C):
            return
        short = b - out.terms[:, kernels.VALUE, 1:]
        delta = optima.value - out.terms[:, kernels.VALUE, 0] + C * short.sum(axis=1)
        left = ((C - optima.multipliers) * short).sum(axis=1)
        for name, slack in (
            ("slater-printed", 2 * delta / C - short.sum(axis=1)),
            ("slater-repaired", delta - left),
        ):
            # The optimum itself is known to 1e-9 only.
            broken = int((slack < kernels.TOLERANCE * (1 + C)).sum())
            self.others[name].add(first, slack, None, broken)
        self.sums["delta"] += float(delta.sum())
        self.sums["weighted"] += float(left.sum())

    @property
    def weight(self) -> float:
        """C of the violation lemmas: χ, at least twice every optimal multiplier (Lemma 1)."""
        return float(self.agent.hyperparameters.chi)
