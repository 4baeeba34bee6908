"""Run a milling cell whose true behaviour is an unknown, drifting mixture of four simulators.

Description
    A milling cell processes a queue of orders. Cutting wears the tool, and a worn tool makes scrap,
    more so when it cuts fast. There are four simulators of the cell, each fitted to one kind of
    week: steel or alloy on the machine, few or many orders coming in. A real shift is a mixture of
    them. The shares are unknown and change from shift to shift. An episode is a shift of `horizon`
    hours.
States
    0 to `orders` orders waiting and `grades` grades of wear from fresh to worn out, numbered
    waiting * `grades` + wear. A shift starts with a third of the places taken and a slightly worn
    tool.
Actions
    0 cut slowly, 1 at a normal pace, 2 fast: if an order waits, it is finished within the hour with
    probability 0.4, 0.7, 0.9. 3 change the tool, which takes the hour.
Reward
    The probability that an order is finished in this hour.
Utility and threshold
    1 minus the probability that the part on the machine becomes scrap in this hour. The threshold
    H - `scrap_limit` allows `scrap_limit` expected pieces of scrap per shift.
Drift
    Transitions only: orders come in and tools wear as in Σ_n w_n P_n, with simulators P_n and
    weights w that follow the path `drift`, by default periodically through the four and back.
    Rewards, utilities and threshold are fixed.
Knowledge
    Only changing tools makes no scrap: `Slater(scrap_limit)` holds in every episode, with
    equality. The simulators are known and the weights are not: the world is a `LinearKernelCMDP`
    with 4 unknowns for all transitions of a step, learned by least squares (Algorithm 2). With
    `as_table` the same world is a `DriftingCMDP`, for a learner that does not know the simulators
    and uses counts (Algorithm 3).
Budgets
    With the default options and M = 2000: B_P = 271.3, B_r = 0, B_g = 0, B_b = 0, gamma >= 0.5.
Source
    Invented.
Version
    0
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, kron, vstack

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.display import (
    Display,
    Drifting,
    Quantity,
    Snapshot,
    allowed_per_step,
    chosen,
    last_peak,
    shares,
)
from safedrift.models import DriftingCMDP, DriftingWorld, Successors, TabularCMDP, from_costs
from safedrift.models.outcomes import binomial
from safedrift.problems.random import DRIFTS

_ACTIONS = 4
_CHANGE = 3
_FINISH = np.array([0.4, 0.7, 0.9, 0.0])  # probability to finish an order, per action
_SCRAP = np.array([0.05, 0.25, 1.0, 0.0])  # probability of scrap with a worn out tool, per action
_WEAR = {"steel": (0.05, 0.1, 0.2), "alloy": (0.1, 0.5, 1.0)}  # mean, as a share of the largest
_COME = {"few": (0.7, 0.3, 0.0), "many": (0.1, 0.4, 0.5)}  # probability of 0, 1, 2 new orders
SIMULATORS = (("steel", "few"), ("steel", "many"), ("alloy", "many"), ("alloy", "few"))


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    orders: int = 9,
    grades: int = 6,
    horizon: int = 8,
    scrap_limit: float = 0.5,
    drift: str = "periodic",
    as_table: bool = False,
) -> DriftingWorld:
    """Return the milling cell; see the module docstring.

    Parameters
    ----------
    seed
        Of the path, where it is random: random_walk and bursts.
    orders, grades
        Places in the queue and grades of wear: S = (orders + 1) * grades.
    drift
        stationary, abrupt, linear, periodic, random_walk, bursts or alternating.
    as_table
        Return the same world as a `DriftingCMDP`.
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    orders, grades = _check.integer("orders", orders), _check.integer("grades", grades, lower=2)
    scrap_limit = _check.positive("scrap_limit", scrap_limit, upper=H, closed=False)
    _check.choice("drift", drift, tuple(DRIFTS))
    _check.kind("as_table", as_table, bool)
    rewards, scrap = _signals(orders, grades, H)
    utilities, threshold = from_costs(scrap[None], np.array([scrap_limit]))
    start = np.zeros(rewards.shape[1])
    start[-(-orders // 3) * grades + (grades - 1) // 4] = 1.0
    scenarios = []
    for material, demand in SIMULATORS:
        P = _transitions(orders, grades, material, demand, H)
        scenarios.append(TabularCMDP(P, rewards, utilities, threshold, start))
    path = DRIFTS[drift](M, len(SIMULATORS), seed)
    world = DriftingCMDP(scenarios, path, thresholds=np.full((M, 1), threshold))
    return world if as_table else world.as_linear_kernel()


def display(world: DriftingWorld) -> Display:
    """Return a shift as the planners see it: orders waiting, wear of the tool, scrap."""
    if isinstance(world, DriftingCMDP):
        weights = shares(world.transition_path, len(SIMULATORS))
    else:
        weights = world.theta[:, 0]
    names = tuple(f"{material}, {demand} orders" for material, demand in SIMULATORS)
    seen = [n for n in range(len(names)) if weights[:, n].any()]
    snapshots = [Snapshot(names[n], last_peak(weights[:, n])) for n in seen]
    grades = chosen(world, build, "grades")
    waiting, wear = np.divmod(np.arange(world.S)[:, None], grades)
    shape = (world.H, world.S, world.A)
    return Display(
        tuple(snapshots),
        (Drifting("kind of week", names, weights),),
        (
            Quantity("orders waiting", np.broadcast_to(waiting, shape)),
            Quantity(f"wear of the tool, 0 to {grades - 1}", np.broadcast_to(wear, shape)),
            Quantity(
                "scrap, pieces per hour",
                _signals(world.S // grades - 1, grades, world.H)[1],
                limits=allowed_per_step(world, snapshots),
                wanted="allowed on average",
            ),
        ),
        step="hour of the shift (from 0)",
    )


def _signals(orders: int, grades: int, H: int) -> tuple[FloatArray, FloatArray]:
    """Rewards and scrap (H, S, A)."""
    waiting, wear = np.divmod(np.arange((orders + 1) * grades), grades)
    busy = (waiting > 0)[:, None]
    scrap = (wear / (grades - 1))[:, None] * _SCRAP
    shape = (H, waiting.size, _ACTIONS)
    return np.broadcast_to(busy * _FINISH, shape), np.broadcast_to(busy * scrap, shape)


def _transitions(orders: int, grades: int, material: str, demand: str, H: int) -> Successors:
    """P of one simulator: queue and tool move independently of each other, all steps are alike."""
    S = (orders + 1) * grades
    by_action = []
    for a in range(_ACTIONS):
        queue = _queue(orders, _FINISH[a], _COME[demand])
        cut = idle = np.eye(grades)[np.zeros(grades, int)]  # a new tool
        if a != _CHANGE:
            cut, idle = _tool(grades, _WEAR[material][a]), np.eye(grades)
        by_action += [kron(csr_array(queue[:1]), idle), kron(csr_array(queue[1:]), cut)]
    pairs = np.arange(_ACTIONS * S).reshape(_ACTIONS, S).T.ravel()  # from (a, s) to (s, a)
    P = vstack(by_action).tocsr()[pairs]
    shift = np.arange(H)[:, None] * P.nnz
    offsets = np.append((shift + P.indptr[:-1]).ravel(), H * P.nnz)
    return Successors(offsets, np.tile(P.indices, H), np.tile(P.data, H))


def _queue(orders: int, finish: float, come: tuple[float, ...]) -> FloatArray:
    """Waiting now to waiting in an hour (orders + 1, orders + 1); the cell refuses what is more."""
    P = np.zeros((orders + 1, orders + 1))
    for waiting in range(orders + 1):
        for new, share in enumerate(come):
            done = finish if waiting else 0.0
            P[waiting, min(waiting + new, orders)] += (1 - done) * share
            if waiting:
                P[waiting, min(waiting - 1 + new, orders)] += done * share
    return P


def _tool(grades: int, share: float) -> FloatArray:
    """Wear before to wear after an hour of cutting (grades, grades).

    A binomial number of grades, at most a third of all and on average `share` of that.
    """
    most = -(-grades // 3)
    chance = binomial(np.arange(most + 1), most, share)
    P = np.zeros((grades, grades))
    for wear in range(grades):
        for more in range(most + 1):
            P[wear, min(wear + more, grades - 1)] += chance[more]
    return P
