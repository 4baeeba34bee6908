"""Follow a car as fast as the weather allows without coming too close.

Description
    A commuter follows another car in stop-and-go traffic and chooses the speed. Driving fast saves
    time, but the speed of the car ahead varies, and on a wet or icy road braking takes longer. A
    near miss ends in an emergency stop. The weather follows the seasons, with sudden storms. An
    episode is a trip.
States
    Gap to the car ahead, 0 to `gaps` - 1 lengths, and speed, 0 to `speeds` - 1 lengths per step,
    numbered gap * `speeds` + speed. Gap 0 is a near miss. A trip starts at a middle gap, at rest.
Actions
    0 brake, 1 keep the speed, 2 accelerate.
Transitions
    Braking and accelerating change the speed by 1 if the tyres grip: v' = v ± 1 with probability 1
    (dry), 0.7 (wet), 0.4 (ice) for braking and 1, 0.9, 0.8 for accelerating, else v' = v. The car
    ahead moves by u, which is its usual speed ⌊(`speeds` - 1)/2⌋ less 1, that speed, or 1 more,
    with probabilities 0.3, 0.4, 0.3. The gap becomes min(gap + u - v', `gaps` - 1); if that is 0 or
    less, it is a near miss: gap 0 and speed 0.
Reward
    Progress: speed / (`speeds` - 1).
Utility and threshold
    1 for every step that does not start at gap 0. The threshold H - `misses` allows `misses`
    expected near misses per trip.
Drift
    Transitions only: the weather goes from dry over wet to ice and back within `period` episodes,
    and `storms` times, at random, there is ice for a hundredth of all episodes. Rewards, utilities
    and threshold are fixed.
Knowledge
    A car that never starts has no near miss: `Slater(misses)` holds in every episode with equality,
    0.2 with the default options.
Budgets
    With the default options and M = 2000: B_P = 248, B_r = 0, B_g = 0, B_b = 0, gamma >= 0.2.
Source
    Invented; the paper's motivating example of driving under changing weather.
Version
    0
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

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
from safedrift.models import DriftingCMDP, Successors, TabularCMDP, drift, from_costs
from safedrift.models.outcomes import certain, outcomes

_GRIP = ((1.0, 1.0), (0.7, 0.9), (0.4, 0.8))  # to brake and to accelerate: dry, wet, ice
_LEAD = np.array([0.3, 0.4, 0.3])  # the car ahead is slower, as usual, faster


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    gaps: int = 8,
    speeds: int = 4,
    horizon: int = 10,
    misses: float = 0.2,
    period: float | None = None,
    storms: int = 3,
) -> DriftingCMDP:
    """Return the road; see the module docstring.

    Parameters
    ----------
    seed
        Seed of the times of the storms.
    gaps, speeds
        Number of distinct gaps and speeds: S = gaps * speeds.
    misses
        Allowed expected near misses per trip.
    period
        Episodes per year; a quarter of all episodes by default.
    storms
        Number of storms.
    """
    M = _check.integer("episodes", episodes)
    storms = _check.integer("storms", storms, lower=0)
    weather = _weather(M, period, storms, seed)
    return road(weather, gaps=gaps, speeds=speeds, horizon=horizon, misses=misses)


def road(
    weather: FloatArray, *, gaps: int, speeds: int, horizon: int, misses: float
) -> DriftingCMDP:
    """Return the road under a weather: weights (M, 3) of dry, wet and ice."""
    H = _check.integer("horizon", horizon)
    gaps = _check.integer("gaps", gaps, lower=3)
    speeds = _check.integer("speeds", speeds, lower=3)
    misses = _check.positive("misses", misses, upper=H, closed=False)
    gap, speed = np.divmod(np.arange(gaps * speeds), speeds)
    S = gap.size
    rewards = np.broadcast_to(speed[:, None] / (speeds - 1), (H, S, 3))
    near = np.broadcast_to((gap == 0)[:, None], (1, H, S, 3))
    utilities, threshold = from_costs(near, np.array([misses]))
    start = certain(gaps // 2 * speeds, S)
    scenarios = []
    for brake, accelerate in _GRIP:
        P = _transitions(gaps, speeds, np.array([brake, 1.0, accelerate]), H)
        scenarios.append(TabularCMDP(P, rewards, utilities, threshold, start))
    return DriftingCMDP(scenarios, weather, thresholds=np.full((len(weather), 1), threshold))


def display(world: DriftingCMDP) -> Display:
    """Return speed, gap and near misses of a trip."""
    return trip(world, build)


def trip(world: DriftingCMDP, build: Callable[..., DriftingCMDP]) -> Display:
    """Return speed, gap and near misses by weather on a road that `build` made."""
    names = ("dry", "wet", "ice")
    weights = shares(world.transition_path, len(names))
    late = world.M // 2  # late enough that a learner has seen each weather
    snapshots = [Snapshot(name, last_peak(weights[:, n], late)) for n, name in enumerate(names)]
    shape = (world.H, world.S, world.A)
    gap, speed = np.divmod(np.arange(world.S)[:, None], chosen(world, build, "speeds"))
    return Display(
        tuple(snapshots),
        (Drifting("weather", names, weights),),
        (
            Quantity("speed, lengths per step", np.broadcast_to(speed, shape)),
            Quantity("gap to the car ahead, lengths", np.broadcast_to(gap, shape)),
            Quantity(
                "near misses per step",
                np.broadcast_to((gap == 0).astype(np.float64), shape),
                limits=allowed_per_step(world, snapshots),
                wanted="allowed on average",
            ),
        ),
        step="step of the trip (from 0)",
    )


def _transitions(gaps: int, speeds: int, grip: FloatArray, H: int) -> Successors:
    """P for probabilities (3,) that braking, keeping and accelerating work."""
    gap, speed = np.divmod(np.arange(gaps * speeds)[:, None, None, None], speeds)
    change = np.array([-1, 0, 1])[:, None, None] * np.array([0, 1])[:, None]
    faster = np.clip(speed + change, 0, speeds - 1)
    lead = (speeds - 1) // 2 + np.array([-1, 0, 1])
    ahead = np.minimum(gap + lead - faster, gaps - 1)
    after = np.where(ahead <= 0, 0, ahead * speeds + faster)
    works = np.stack((1 - grip, grip), axis=-1)[:, :, None]
    return outcomes(after.reshape(-1, 3, 6), (works * _LEAD).reshape(3, 6), H)


def _weather(M: int, period: float | None, storms: int, seed: int) -> FloatArray:
    """Weights (M, 3) of dry, wet and ice."""
    weights = drift.periodic(M, len(_GRIP), period)
    storm = drift.bursts(M, 2, storms, max(1, M // 100), seed)[:, 1] > 0
    weights[storm] = 0, 0, 1
    return weights
