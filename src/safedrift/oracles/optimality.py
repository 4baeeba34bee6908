"""Ground truth of a world: exact values, and the constrained optimum of each of its episodes.

    V_r* = max_π { V_r(π) : V_g(π) ≥ b } = min_{μ ≥ 0} max_π V_r(π) + μ·(V_g(π) - b)

Optima come from the planning room with a certificate: a feasible policy with its exact value,
multipliers whose dual value bounds every policy's value from above, and the gap between the two.
Here the episodes of a world are cut into chunks that run side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import get_args

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.kernels import exact
from safedrift.kernels.types import TableArrays
from safedrift.models import DriftingCMDP, DriftingWorld, TabularCMDP
from safedrift.oracles.chunks import Progress, in_chunks
from safedrift.planning import Plan
from safedrift.planning.constrained import plan_of
from safedrift.planning.episodes import (
    OPTIMAL,
    Answers,
    Ends,
    make_answers,
    make_ends,
    mixed_entries,
    solve_chunk,
)

__all__ = [
    "Optima",
    "Optimum",
    "evaluate",
    "evaluate_episodes",
    "optima",
    "optimal_policies",
    "safest_utilities",
    "solve",
]


Optimum = Plan
"""What `solve` returns; see `planning.Plan`."""


@dataclass(frozen=True, eq=False)
class Optima:
    """Constrained optima of n episodes of a world; fields as in `Plan`, first axis n.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> found = sd.optima(world, [0, 49])
    >>> found.value.round(3).tolist(), found.feasible.tolist()
    ([6.387, 6.387], [True, True])
    """

    episodes: IntArray
    thresholds: FloatArray
    feasible: np.ndarray
    value: FloatArray
    utilities: FloatArray
    multipliers: FloatArray
    gap: FloatArray
    gamma: FloatArray
    policy_change: FloatArray
    """(n,) Σ_h max_x ‖π*_h - previous π*_h‖₁ over states either policy reaches; 0 for the first."""


def evaluate(cmdp: TabularCMDP, policy: FloatArray) -> FloatArray:
    """Return the exact values (V_r, V_g,1, ..., V_g,K) of a policy (H, S, A).

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> P, r = np.ones((2, 1, 2, 1)), np.broadcast_to([1.0, 0.0], (2, 1, 2))
    >>> cmdp = sd.TabularCMDP(P, r, 1 - r[None], [0.5], [1.0])
    >>> uniform = np.full((2, 1, 2), 0.5)
    >>> sd.evaluate(cmdp, uniform).tolist()  # one action pays, the other is safe
    [1.0, 1.0]
    """
    _check.kind("cmdp", cmdp, TabularCMDP)
    checked = _check.floats("policy", policy, cmdp.shape[:3])
    _check.distribution("policy", checked)
    world = DriftingCMDP([cmdp], np.zeros(1, np.int64))
    return np.asarray(evaluate_episodes(world, np.zeros(1, np.int64), checked[None])[0])


def evaluate_episodes(
    world: DriftingWorld, episodes: IntArray, policies: FloatArray, *, threads: int | None = None
) -> FloatArray:
    """Return the exact values (n, 1+K) of policies (n, H, S, A), one for each listed episode.

    A single policy (1, H, S, A) is used for all of them. `threads` is by default one per core; with
    1 everything happens in the calling thread.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> from safedrift.oracles import evaluate_episodes
    >>> uniform = np.full((2, world.H, world.S, world.A), 1 / world.A)
    >>> evaluate_episodes(world, np.array([0, 1]), uniform).round(3).tolist()
    [[4.313, 8.626], [4.313, 8.626]]
    """
    episodes = _check.integers("episodes", episodes, 0, world.M - 1)
    policies = np.array(policies, dtype=np.float64, order="C", copy=None)
    shape = (world.H, world.S, world.A)
    if policies.shape not in ((episodes.size, *shape), (1, *shape)):
        _check.fail("policies", f"of shape {(episodes.size, *shape)}", policies.shape)
    if not policies.flags.writeable:
        policies = policies.copy()  # the kernels are compiled for writable arrays
    out = np.empty((episodes.size, 1 + world.K))

    def work(part: slice) -> None:
        own = policies[part] if len(policies) > 1 else policies
        arrays, place = world.tables(episodes[part])
        rewards = arrays.rewards[:, None]
        exact.evaluate_policies(arrays, rewards, place, own, out[part], scratch_for(arrays))

    whole = threads == 1 and isinstance(world, DriftingCMDP)  # whose tables are there already
    in_chunks(work, episodes.size, episodes.size if whole else world.chunk, workers=threads)
    return out


def safest_utilities(world: DriftingWorld, episodes: IntArray) -> FloatArray:
    """Return the utilities (n, K) of the policy that maximises their sum in each listed episode.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> from safedrift.oracles import safest_utilities
    >>> safest_utilities(world, np.array([0])).round(3).tolist()
    [[10.0]]
    """
    episodes = _check.integers("episodes", episodes, 0, world.M - 1)
    out = np.empty((episodes.size, world.K))

    def work(part: slice) -> None:
        arrays, place = world.tables(episodes[part])
        exact.safest_utilities(arrays, place, out[part], scratch_for(arrays))

    in_chunks(work, episodes.size, world.chunk)
    return out


def solve(cmdp: TabularCMDP) -> Optimum:
    """Return the constrained optimum of one CMDP.

    Examples
    --------
    In each of two steps, action 0 earns 1 and action 1 has utility 1; the threshold is 0.5:

    >>> import numpy as np
    >>> import safedrift as sd
    >>> P, r = np.ones((2, 1, 2, 1)), np.broadcast_to([1.0, 0.0], (2, 1, 2))
    >>> cmdp = sd.TabularCMDP(P, r, 1 - r[None], [0.5], [1.0])
    >>> best = sd.solve(cmdp)
    >>> best.status, round(float(best.value), 6), best.multipliers.round(6).tolist()
    ('optimal', 1.5, [1.0])
    >>> round(float(best.gamma), 6), bool(abs(best.gap) < 1e-9)  # Slater gap, duality gap
    (1.5, True)
    """
    _check.kind("cmdp", cmdp, TabularCMDP)
    world = DriftingCMDP([cmdp], np.zeros(1, np.int64))
    policies = np.empty((1, *cmdp.shape[:3]))
    answers, _ = _solve_episodes(world, np.zeros(1, np.int64), policies)
    return plan_of(answers, policies, 0)


def optima(
    world: DriftingWorld, episodes: IntArray | None = None, progress: Progress | None = None
) -> Optima:
    """Return the constrained optimum of each listed episode (all by default).

    Consecutive episodes with the same world are solved once. `progress` is called with numbers
    that add up to the number of listed episodes.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> P, r = np.ones((2, 1, 2, 1)), np.broadcast_to([1.0, 0.0], (2, 1, 2))
    >>> low, high = (sd.TabularCMDP(P, r, 1 - r[None], [b], [1.0]) for b in (0.5, 1.5))
    >>> world = sd.DriftingCMDP([low, high], sd.drift.linear(5, 2))
    >>> found = sd.optima(world)
    >>> found.value.round(6).tolist(), found.multipliers[:, 0].round(6).tolist()
    ([1.5, 1.25, 1.0, 0.75, 0.5], [1.0, 1.0, 1.0, 1.0, 1.0])
    >>> found.gamma.round(6).tolist()
    [1.5, 1.25, 1.0, 0.75, 0.5]
    """
    return _optima(world, episodes, progress, keep_policies=False)[0]


def optimal_policies(
    world: DriftingWorld, episodes: IntArray | None = None
) -> tuple[Optima, FloatArray, IntArray]:
    """Return the optima, optimal policies (n, H, S, A), and the index of each episode's policy.

    There is one policy for each run of consecutive listed episodes with the same world.

    Examples
    --------
    >>> import safedrift as sd
    >>> from safedrift.oracles import optimal_policies
    >>> maze = sd.problems.make("maze", episodes=8)
    >>> found, policies, index = optimal_policies(maze)
    >>> policies.shape[0], index.tolist()
    (4, [0, 0, 1, 1, 2, 2, 3, 3])
    """
    return _optima(world, episodes, None, keep_policies=True)


def _optima(
    world: DriftingWorld,
    episodes: IntArray | None,
    progress: Progress | None,
    *,
    keep_policies: bool,
) -> tuple[Optima, FloatArray, IntArray]:
    _check.kind("world", world, get_args(DriftingWorld))
    if episodes is None:
        episodes = np.arange(world.M)
    episodes = _check.integers("episodes", episodes, 0, world.M - 1)
    _, version = world.distinct
    # Keep the first of consecutive episodes with the same world.
    fresh = np.concatenate(([True], np.diff(version[episodes]) != 0))
    listed = episodes[fresh]
    run = np.cumsum(fresh) - 1
    sizes = np.bincount(run)
    policies = np.empty((listed.size if keep_policies else 0, world.H, world.S, world.A))
    found, changes = _solve_episodes(world, listed, policies, progress=progress, sizes=sizes)
    feasible = found.status == OPTIMAL
    change = np.zeros(episodes.size)
    change[np.flatnonzero(fresh)] = changes.sum(axis=1)
    answer = Optima(
        episodes=episodes,
        thresholds=world.thresholds[episodes],
        feasible=feasible[run],
        value=np.where(feasible, found.value, np.nan)[run],
        utilities=found.utilities[run],
        multipliers=found.multipliers[run],
        gap=np.where(feasible, found.gap, np.nan)[run],
        gamma=found.gamma[run],
        policy_change=change,
    )
    return answer, policies, run


def scratch_for(arrays: TableArrays) -> exact.Scratch:
    """Return working arrays for exact values in a world."""
    _, H, S, A = arrays.rewards.shape
    return exact.make_scratch(mixed_entries(arrays), H, S, A)


def _solve_episodes(
    world: DriftingWorld,
    episodes: IntArray,
    policies: FloatArray,
    *,
    progress: Progress | None = None,
    sizes: IntArray | None = None,
) -> tuple[Answers, FloatArray]:
    """Answers and policy changes of each episode; `policies` is written where it has room."""
    n = episodes.size
    answers, changes = make_answers(n, world.K), np.empty((n, world.H))
    ends: dict[int, Ends] = {}

    def work(part: slice) -> None:
        arrays, place = world.tables(episodes[part])
        ends[part.start] = end = make_ends(arrays)
        own = Answers(*(field[part] for field in answers))
        solve_chunk(arrays, place, own, changes[part], policies[part], end)
        if progress and sizes is not None:
            progress(int(sizes[part].sum()))

    in_chunks(work, n, world.chunk)
    for before, start in pairwise(sorted(ends)):
        old, new = ends[before], ends[start]
        exact.policy_change(
            new.policy[0], old.policy[1], new.reach[0], old.reach[1], changes[start]
        )
    return answers, changes
