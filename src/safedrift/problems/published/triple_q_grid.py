"""Walk to a goal past many obstacles, in a world that never changes (Wei et al. 2022).

Description
    The grid world of Triple-Q. A walker crosses 18 x 18 cells inside a ring of walls. The goal pays
    in every step, other cells pay more the closer they are. Two cells of five are obstacles, except
    in the first and the last row; they can be entered at a cost. Nineteen moves lead from the start
    to the goal.
States
    Cells inside the walls, row by row from the top left: S = 324.
Actions
    0 up, 1 right, 2 down, 3 left; walls keep the walker in place. Nothing else is random.
Reward
    ρ = 100 at the goal, else d_max - d with d the Euclidean distance to the goal and d_max that of
    the lower left corner, of the cell that is entered. Scaled: r = ρ/100. So a published reward
    is 100 V_r.
Utility and threshold
    1, or 0 for a step that enters an obstacle. The threshold H - `limit` allows `limit` of these
    per episode: 6 in the paper, 5 in the authors' notebook. A published cost is H - V_g. Both are
    slack: the best policy of all costs 4. The constraint binds if `limit` < 4.
Drift
    None: P, r, g and b are fixed.
Knowledge
    The walker can stay in its corner without cost: `Slater(limit)` holds with equality, 6 with the
    default options.
Budgets
    With the default options and M = 2000: B_P = 0, B_r = 0, B_g = 0, B_b = 0, gamma >= 6.
Source
    H. Wei, X. Liu and L. Ying, Triple-Q: a model-free algorithm for constrained reinforcement
    learning with sublinear regret and zero constraint violation, AISTATS 2022; obstacles as in the
    authors' notebook, from NumPy's legacy generator with seed 1234.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift.display import Board, Display, Drifting, Snapshot
from safedrift.models import DriftingCMDP, TabularCMDP, drift, from_costs
from safedrift.models.outcomes import certain
from safedrift.problems.published.grids import Grid, distances, entered, transitions
from safedrift.problems.published.scaling import COST, Published, Scale

PUBLISHED = Published(
    "Wei et al., AISTATS 2022",
    episodes=80_000,
    runs=25,
    reward=Scale(100.0, 0.0),
    constraint=COST,
)

_SIZE = 20  # with the walls
_SHARE = 0.4  # of obstacles


def build(
    episodes: int = 20_000, seed: int = 0, *, horizon: int = 25, limit: float = 6.0
) -> DriftingCMDP:
    """Return the grid; see the module docstring. Its map is one draw: `seed` is unused.

    Parameters
    ----------
    limit
        Allowed cost per episode.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    limit = _check.positive("limit", limit, upper=H, closed=False)
    grid = layout()
    S = grid.n * grid.n
    d = distances(grid)
    rho = d[S - grid.n] - d  # from the lower left corner
    rho[grid.goal] = 100.0
    obstacle = np.zeros(S)
    obstacle[grid.obstacles] = 1.0
    costs = np.broadcast_to(entered(grid, 0.0, obstacle), (1, H, S, 4))
    utilities, thresholds = from_costs(costs, np.array([limit]))
    rewards = np.broadcast_to(entered(grid, 0.0, rho / 100), (H, S, 4))
    P, start = transitions(grid, 0.0, H), certain(grid.start, S)
    cmdp = TabularCMDP(P, rewards, utilities, thresholds, start)
    return DriftingCMDP([cmdp], drift.stationary(M, 1))


def display(world: DriftingCMDP) -> Display:
    """Return a map: obstacles, goal, and where the walker spends its time."""
    grid = layout()
    board = Board(grid.n, grid.n, grid.start, (grid.goal,), grid.obstacles, "obstacle", "goal")
    fixed = Drifting("threshold b", ("b",), world.thresholds, shares=False)
    return Display((Snapshot("always", world.M - 1),), (fixed,), board=board)


def layout() -> Grid:
    """Return the map: 16 rows of 18 draws, and one more draw for the column of the goal."""
    legacy = np.random.RandomState(1234)
    n = _SIZE - 2
    map_ = np.zeros((n, n), bool)
    map_[1:-1] = legacy.random_sample((_SIZE - 4, n)) <= _SHARE
    goal = int(legacy.random_sample() * (_SIZE - 3))  # in the first row
    return Grid(n, n * n - 1, goal, np.flatnonzero(map_))
