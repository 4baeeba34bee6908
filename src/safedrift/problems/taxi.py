"""Gymnasium's Taxi with rain and changing fares: deliver passengers on little fuel.

Description
    The town of Gymnasium's Taxi-v4. A passenger waits at one of four ranks and wants to go to
    another. The taxi starts there, or with `start=anywhere` on any square. In rain one move in five
    slips to either side, unless a wall is in the way. Fares depend on the destination, and the
    expensive quarter of the town changes during the day. Fuel is limited: not every ride is worth
    it.
States
    500: position of the taxi (5 x 5), where the passenger is (red, green, yellow, blue rank, or on
    board), where the passenger wants to go; and one more, "over", where an ended episode stays.
Actions
    0 south, 1 north, 2 east, 3 west, 4 pick up, 5 drop off.
Reward
    The fare for the drop-off at the destination, which ends the episode: 1 in the expensive
    quarter, `fare` in the others, less a share `haste` of it for every step before. Gymnasium's
    penalties for time and for illegal pick-ups are left out: time is limited by H, and a useless
    pick-up means waiting.
Utility and threshold
    1 for every step that burns no fuel; a move (0 to 3) burns one unit, even against a
    wall. The threshold H - `fuel` allows `fuel` moves per episode on average.
Drift
    Transitions: rain comes and goes in `cycles` waves, rain first. Rewards: the expensive quarter
    is red, green, yellow and blue in turn, once per wave. Both change only at `levels` moments of
    a wave, so that a long run has few different worlds. Utilities and threshold are fixed.
Knowledge
    Waiting burns nothing: `Slater(gamma)` with gamma up to `fuel` holds. A fare takes half a dozen
    correct actions in a row, and there are 500 states, so this world is hard. PROPD-PPO with its
    default constants finds almost no fare within 100,000 episodes.
Budgets
    With the default options and M = 2000: B_P = 420.8, B_r = 52.86, B_g = 0, B_b = 0, gamma >= 5.
Source
    The transition tables of Gymnasium's Taxi-v4, after T. G. Dietterich, "Hierarchical
    Reinforcement Learning with the MAXQ Value Function Decomposition", JAIR 13 (2000), which also
    has a variant with fuel.
Version
    0
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.adapters.toy_text import from_table
from safedrift.adapters.transitions import Transition
from safedrift.display import (
    Display,
    Drifting,
    Quantity,
    Snapshot,
    allowed_per_step,
    last_peak,
    shares,
)
from safedrift.kernels.elementary import cos_turns
from safedrift.models import DriftingCMDP

RANKS = (0, 4, 20, 23)  # squares, row by row: red, green, yellow, blue
QUARTERS = len(RANKS)
MOVES = 4  # actions that burn fuel
DELIVERED = 20  # Gymnasium's reward for the right drop-off


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    horizon: int = 12,
    fuel: float = 5.0,
    fare: float = 0.5,
    haste: float = 0.02,
    cycles: float = 2.0,
    levels: int = 8,
    start: str = "rank",
) -> DriftingCMDP:
    """Return the town; see the module docstring. Nothing is random: `seed` is unused."""
    M = _check.integer("episodes", episodes)
    H = _check.integer("horizon", horizon, lower=2)
    fuel = _check.positive("fuel", fuel, upper=H, closed=False)
    fare = _check.positive("fare", fare, upper=1.0)
    in_time = 1 - _check.real("haste", haste) * np.arange(H)
    if not (haste >= 0 and in_time[-1] >= 0):
        _check.fail("haste", f"in [0, 1/{H - 1}], so that late fares are none at worst", haste)
    _check.positive("cycles", cycles)
    levels = _check.integer("levels", levels)
    _check.choice("start", start, ("rank", "anywhere"))
    scenarios = [
        from_table(
            "Taxi-v4",
            H,
            no_fuel,
            H - fuel,
            reward=partial(fare_of, expensive=quarter, fare=fare),
            reward_range=(0.0, 1.0),
            is_rainy=quarter == 0,
        )
        for quarter in range(QUARTERS)
    ]
    initial = scenarios[0].initial if start == "anywhere" else _at_the_rank(scenarios[0].initial)
    scenarios = [
        replace(cmdp, rewards=cmdp.rewards * in_time[:, None, None], initial=initial)
        for cmdp in scenarios
    ]
    phase = np.floor(levels * (cycles * np.arange(M) / M % 1)) / levels  # of the wave, in [0, 1)
    rain = 0.5 + 0.5 * cos_turns(phase)
    weather = np.zeros((M, QUARTERS))  # only scenario 0 has rain
    weather[:, 0], weather[:, 1] = rain, 1 - rain
    return DriftingCMDP(
        scenarios,
        transition_weights=weather,
        reward_weights=(QUARTERS * phase).astype(np.int64),
        utility_weights=np.zeros(M, np.int64),
        thresholds=np.full((M, 1), H - fuel),
    )


def display(world: DriftingCMDP) -> Display:
    """Return the share of passengers on board and delivered, and the fuel burnt."""
    weather = shares(world.transition_path, QUARTERS)[:, :2]
    snapshots = (
        Snapshot("rain", last_peak(weather[:, 0])),
        Snapshot("showers", last_peak(-np.abs(weather[:, 0] - 0.5))),
        Snapshot("dry", last_peak(weather[:, 1])),
    )
    shape = (world.H, world.S, world.A)
    state = np.arange(world.S)[:, None]
    over = state == world.S - 1
    aboard = (state // QUARTERS % (1 + QUARTERS) == QUARTERS) & ~over
    moves = (np.arange(world.A) < MOVES) & ~over
    expensive = shares(world.reward_path, QUARTERS)
    return Display(
        snapshots,
        (
            Drifting("weather", ("rain", "dry"), weather),
            Drifting("expensive quarter", ("red", "green", "yellow", "blue"), expensive),
        ),
        (
            Quantity("passenger on board, share", np.broadcast_to(aboard.astype(float), shape)),
            Quantity("delivered before, share", np.broadcast_to(over.astype(float), shape)),
            Quantity(
                "fuel burnt, units per step",
                np.broadcast_to(moves.astype(float), shape),
                limits=allowed_per_step(world, snapshots),
                wanted="allowed on average",
            ),
        ),
    )


def no_fuel(step: Transition) -> float:
    """0 for a move."""
    return 0.0 if step.action < MOVES else 1.0


def fare_of(step: Transition, *, expensive: int, fare: float) -> float:
    """Fare for the right drop-off: 1 in the expensive quarter, else `fare`."""
    if step.reward != DELIVERED:
        return 0.0
    return 1.0 if step.state % QUARTERS == expensive else fare


def _at_the_rank(initial: FloatArray) -> FloatArray:
    """The first states (S,) among Gymnasium's in which the taxi is where the passenger is."""
    square, passenger = np.divmod(np.arange(initial.size - 1) // QUARTERS, 1 + QUARTERS)
    there = np.append(square == np.append(RANKS, -1)[passenger], False)
    chosen = np.where(there, initial, 0.0)
    return np.asarray(chosen / chosen.sum())
