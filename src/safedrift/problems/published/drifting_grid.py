"""Walk to a goal past obstacles while moves become less certain (Wei et al. 2023).

Description
    The grid world of NS-Triple-Q, the only published drifting tabular CMDP that we know of. A
    walker crosses 13 x 13 cells inside a ring of walls. The goal pays 1 in every step, other cells
    pay a little more the closer they are. Obstacles can be entered at a cost. Eighteen moves lead
    from the start to the goal.
States
    Cells inside the walls, row by row from the top left: S = 169.
Actions
    0 up, 1 right, 2 down, 3 left; walls keep the walker in place.
Transitions
    With probability p the move is random, each direction equally likely. p starts at 0.05.
Reward
    ρ = 1 at the goal, else 0.1 (1 - d/d_max) with d the Euclidean distance to the goal, of the cell
    that is entered. Scaled: r = (ρ + 0.1)/1.2, on average over the cell entered. So a published
    reward is 1.2 V_r - 0.1 H.
Utility and threshold
    c = 1 for entering an obstacle, with a limit of `limit` per episode. Scaled: g = 1 - c/1.1 and
    b = H - `limit`/1.1. So a published cost is 1.1 (H - V_g). The constraint hardly binds: it costs
    1 % of what the best policy earns more than the uniform one.
Drift
    Transitions, rewards and utilities; the threshold is fixed. With t = m/M the paper changes p,
    rewards and costs by 0.1/M per episode, in words that allow several readings.
    `moves` = "rises": p = 0.05 + 0.1 t; "falls": p = 0.05 - 0.1 t until it is 0; "fixed".
    `rewards` = "walk": all ρ move together by 0.1/M up or down, a new sign in every episode;
    "cells": each cell keeps a sign of its own and ρ moves by ±0.1 t; "common": all cells share one
    sign; "fixed".
    `costs` = "obstacles": c = 1 + 0.1 t on obstacles; "cells": all cells cost 0.1 t more; "fixed".
Knowledge
    The walker can stay in its corner without cost: `Slater(4.5)`. With other options, see
    `sd.optima(world).gamma`.
Budgets
    With the default options and M = 2000: B_P = 49.41, B_r = 47.73, B_g = 21.53, B_b = 0, gamma >=
    4.506.
Source
    H. Wei, A. Ghosh, N. Shroff, L. Ying and X. Zhou, Provably efficient model-free algorithms for
    non-stationary CMDPs, AISTATS 2023 (arXiv 2303.05733), appendix J. H is not stated there; see
    `docs/published.md` for the values of H that are possible.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.display import Board, Display, Drifting, Snapshot, shares
from safedrift.models import DriftingCMDP, TabularCMDP
from safedrift.models.outcomes import certain
from safedrift.problems.published.draws import generator
from safedrift.problems.published.grids import Grid, distances, entered, transitions
from safedrift.problems.published.scaling import Published, Scale

PUBLISHED = Published(
    "Wei et al., AISTATS 2023",
    episodes=1_750_000,
    runs=10,
    reward=Scale(1.2, -0.1),
    constraint=Scale(-1.1, 1.1),
)

_MAP = """
......G......
o....oo...o..
.o..o..o.oo.o
o.o....o..o..
.ooo...o.o.o.
.o......o..oo
o..oo...oo...
oo.....oo...o
.......o.oo..
.oo.o.oo...oo
o......ooo.oo
o..ooo.oo.o..
............S
"""
_RANDOM, _CHANGE = 0.05, 0.1  # p in the first episode, and by how much all drifts
_LARGEST = 1.1  # reward or cost
_LAST = {"rises": _RANDOM + _CHANGE, "falls": 0.0, "fixed": _RANDOM}  # p at the end
_REWARDS = ("walk", "cells", "common", "fixed")
_COSTS = ("obstacles", "cells", "fixed")


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    horizon: int = 22,
    limit: float = 5.0,
    moves: str = "rises",
    rewards: str = "walk",
    costs: str = "obstacles",
) -> DriftingCMDP:
    """Return the grid; see the module docstring. `seed` draws the signs of the rewards' drift.

    Parameters
    ----------
    limit
        Allowed cost per episode.
    moves, rewards, costs
        What drifts, and how: see Drift.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    limit = _check.positive("limit", limit, upper=1.1 * H, closed=False)
    last = _LAST[_check.choice("moves", moves, tuple(_LAST))]
    _check.choice("rewards", rewards, _REWARDS)
    _check.choice("costs", costs, _COSTS)
    grid, t = layout(), np.arange(M) / M
    S, start = grid.n * grid.n, certain(grid.start, grid.n * grid.n)
    first_pay, last_pay, paid = _rewards(grid, rewards, generator(seed), t)
    first_cost, last_cost = _costs(grid, costs)
    threshold = H - limit / _LARGEST
    # A mean over the cell entered is linear in p and linear in the value of the cell. So the four
    # combinations of first and last p with first and last values make up all episodes.
    scenarios = []
    for p in (_RANDOM, last):
        P = transitions(grid, p, H)
        for pay, cost in ((first_pay, first_cost), (last_pay, last_cost)):
            r = (entered(grid, p, pay) + _CHANGE) / (_LARGEST + _CHANGE)
            g = 1 - entered(grid, p, cost) / _LARGEST
            r, g = (np.broadcast_to(x.clip(0, 1), (H, S, 4)) for x in (r, g))
            scenarios.append(TabularCMDP(P, r, g[None], np.array([threshold]), start))
    random = np.minimum(2 * t, 1) if moves == "falls" else t
    return DriftingCMDP(
        scenarios,
        transition_weights=_combined(random, np.zeros(M)),
        reward_weights=_combined(random, paid),
        utility_weights=_combined(random, t),
        thresholds=np.full((M, 1), threshold),
    )


def display(world: DriftingCMDP) -> Display:
    """Return a map: obstacles, goal, and where the walker spends its time."""
    grid, names = layout(), ("as in the first episode", "as after the last")
    weights = shares(world.transition_path, 4)
    weights = np.stack((weights[:, 0] + weights[:, 1], weights[:, 2] + weights[:, 3]), axis=1)
    episodes = {"first": 0, "middle": world.M // 2, "last": world.M - 1}
    snapshots = tuple(Snapshot(name, m) for name, m in episodes.items())
    board = Board(grid.n, grid.n, grid.start, (grid.goal,) * 3, grid.obstacles, "obstacle", "goal")
    return Display(snapshots, (Drifting("random moves", names, weights),), board=board)


def layout() -> Grid:
    """Return the map of the paper."""
    cells = "".join(_MAP.split())
    obstacles = np.array([s for s, what in enumerate(cells) if what == "o"])
    return Grid(13, cells.index("S"), cells.index("G"), obstacles)


def _rewards(
    grid: Grid, reading: str, rng: np.random.Generator, t: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """ρ (S,) at the two ends of its drift, and the place (M,) of each episode between them."""
    d = distances(grid)
    rho = 0.1 * (d.max() - d) / d.max()
    rho[grid.goal] = 1.0
    if reading == "walk":
        steps = np.concatenate(([0.0], _signs(rng, t.size - 1)))
        return rho - _CHANGE, rho + _CHANGE, (1 + np.cumsum(steps) / t.size) / 2
    signs = {
        "cells": lambda: _signs(rng, rho.size),
        "common": lambda: _signs(rng, 1),
        "fixed": lambda: np.zeros(1),
    }
    return rho, rho + _CHANGE * signs[reading](), t


def _costs(grid: Grid, reading: str) -> tuple[FloatArray, FloatArray]:
    """c (S,) in the first episode and after the last."""
    obstacle = np.zeros(grid.n * grid.n)
    obstacle[grid.obstacles] = 1.0
    more = {"obstacles": obstacle, "cells": np.ones(obstacle.size), "fixed": np.zeros(1)}
    return obstacle, obstacle + _CHANGE * more[reading]


def _signs(rng: np.random.Generator, size: int) -> FloatArray:
    return np.asarray(1.0 - 2.0 * rng.integers(0, 2, size))


def _combined(random: FloatArray, value: FloatArray) -> FloatArray:
    """Weights (M, 4) of (first p, first value), (first, last), (last, first), (last, last)."""
    return np.stack(
        (
            (1 - random) * (1 - value),
            (1 - random) * value,
            random * (1 - value),
            random * value,
        ),
        axis=1,
    )
