"""Heat a room with little energy, keep it comfortable, and follow the seasons.

Description
    From six in the morning to ten in the evening a thermostat decides every two hours how much to
    heat. Energy costs money, and the room should be neither too cold nor too hot. The air outside
    is cold, cool or mild, in shares that change with the seasons and are unknown to the thermostat.
    An episode is a day.
States
    The temperature of the room, a continuous number: x = 0 is 10 °C, x = 1 is 26 °C. A frost guard
    and open windows keep it between the two. A day starts at 18 °C.
Actions
    0 off, 1 half power, 2 full power.
Reward
    The share of the power that is saved: 1, 1/2, 0.
Utility and threshold
    Comfort of the room at temperature T: exp(-(T - 20 °C)²/(2 (2 °C)²)), which is 1 at 20 °C and
    0.61 at 18 °C and 22 °C. The threshold requires `comfort` on average over the day,
    b = `comfort` * H.
Drift
    Transitions only: the temperature two hours later has density Σ_i θ_i p_i, with p_i known for
    cold, cool and mild air. The shares θ go from cold over cool to mild and back within `period`
    episodes. Rewards, utilities and threshold are fixed.
Knowledge
    The Slater gap lies between 0.85 and 1.05 with the default options: `Slater(0.8)` holds in every
    episode. With other options, see `sd.optima(world).gamma`.
Budgets
    With the default options and M = 2000: B_P = 181, B_r = 0, B_g = 0, B_b = 0, gamma >=
    0.8673.
Source
    Invented. The room is one heat store: in two hours it loses 12% of its difference to the air
    outside, which has -4 °C, 4 °C or 12 °C, and full power adds 5 °C. Frost guard and windows bend
    the sum T into 18 °C + 8 °C tanh((T - 18 °C)/8 °C). Noise is normal with spread 1 °C.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.display import Display, Drifting, Quantity, Snapshot, last_peak
from safedrift.kernels.elementary import exp
from safedrift.models import LinearKernelCMDP, drift, linear_kernel_on_box
from safedrift.models.box import BaseDensity, Bumps, MeanReverting, mixture, truncated_normal

_LOWEST, _RANGE = 10.0, 16.0  # °C at x = 0, and from there to x = 1
_START = 18.0  # °C
_POWER = np.array([0.0, 0.5, 1.0])  # per action
_OUTSIDE = (-4.0, 4.0, 12.0)  # °C of cold, cool and mild air
_LOSS = 0.12  # of the difference to outside, per step
_HEAT = 5.0  # °C per step at full power
_SPREAD = 1.0  # °C
_BEST, _WIDTH = 20.0, 2.0  # °C: most comfortable temperature, width of the comfort curve


def build(
    episodes: int = 20_000,
    seed: int = 0,
    *,
    horizon: int = 8,
    comfort: float = 0.7,
    period: float | None = None,
    nodes: int = 32,
    rule: str = "gauss-legendre",
) -> LinearKernelCMDP:
    """Return the room; see the module docstring. Nothing is random: `seed` is unused.

    Parameters
    ----------
    comfort
        Required on average over the day, in (0, 1).
    period
        Episodes per year; a quarter of all episodes by default.
    nodes, rule
        Of the quadrature, "gauss-legendre" or "uniform" (which needs 64 nodes).
    """
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    comfort = _check.positive("comfort", comfort, upper=1, closed=False)
    shares = drift.periodic(M, len(_OUTSIDE), period)
    psi, sample = mixture([_air(outside) for outside in _OUTSIDE])
    theta_r, theta_g = np.sqrt(2) * np.eye(2)  # see _features
    return linear_kernel_on_box(
        0.0,
        1.0,
        len(_POWER),
        psi,
        _features(),
        np.repeat(shares[:, None], H, axis=1),
        np.broadcast_to(theta_r, (M, H, 2)),
        np.broadcast_to(theta_g, (M, 1, H, 2)),
        np.full((M, 1), comfort * H),
        start=(_START - _LOWEST) / _RANGE,
        sample=sample,
        rule=rule,
        nodes=nodes,
    )


def display(world: LinearKernelCMDP) -> Display:
    """Return temperature, heating and comfort over the day."""
    names = ("cold", "cool", "mild")
    air = world.theta[:, 0]
    snapshots = [Snapshot(f"{name} air", last_peak(air[:, n])) for n, name in enumerate(names)]
    shape = (world.H, world.S, world.A)
    x = np.zeros((world.S, 1)) if world.box is None else world.box.points
    T = _LOWEST + _RANGE * x
    return Display(
        tuple(snapshots),
        (Drifting("air outside", names, air),),
        (
            Quantity(
                "room, °C",
                np.broadcast_to(T, shape),
                band=(_BEST - _WIDTH, _BEST + _WIDTH),
                wanted=f"comfortable, {_BEST - _WIDTH:g} to {_BEST + _WIDTH:g} °C",
            ),
            Quantity("heating, % of full power", np.broadcast_to(100 * _POWER, shape)),
            Quantity(
                "comfort, 0 to 1",
                np.broadcast_to(_comfort(T), shape),
                limits=world.thresholds[:1, 0] / world.H,
                wanted="asked for on average",
            ),
        ),
        step="hour of the day",
        times=6 + 2 * np.arange(world.H, dtype=np.float64),
    )


def _comfort(T: FloatArray) -> FloatArray:
    return exp(-0.5 * ((T - _BEST) / _WIDTH) ** 2)


def _air(outside: float) -> BaseDensity:
    """Density of the next state while the air outside has a given temperature."""
    mean = MeanReverting(
        outside, _LOSS, _HEAT * _POWER, origin=_LOWEST, unit=_RANGE, bend=(0.0, 1.0)
    )
    return truncated_normal(mean, _SPREAD / _RANGE, 0.0, 1.0)


def _features() -> Bumps:
    """φ(x, a) = (share of the power saved, comfort)/√2."""
    return Bumps(
        np.stack((1 - _POWER, np.ones(len(_POWER))), axis=1),
        centre=[0.0, _BEST],
        width=[np.inf, _WIDTH],
        norm=np.sqrt(2),
        origin=_LOWEST,
        unit=_RANGE,
    )
