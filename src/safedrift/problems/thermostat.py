"""Heat a room with little energy and keep it comfortable while the seasons pass.

Story
    A thermostat decides every two hours how much to heat. Energy costs money, a cold or stuffy room
    is no place to live. The weather outside is cold, cool or mild from one decision to the next;
    how often it is which changes with the seasons. An episode is a day.
States
    The temperature of the room, from 12 °C (x = 0) to 24 °C (x = 1), a continuous number. A day
    starts at 18 °C.
Actions
    0 off, 1 half, 2 full power.
Reward
    The share of the power that is saved: 1, 1/2, 0.
Utility and threshold
    Comfort: exp(-(T - 20 °C)²/(2 (2 °C)²)), 1 at 20 °C and 0.6 at 18 °C and 22 °C. The threshold
    asks for `comfort` on average over the day: b = `comfort` * H.
Drift
    Transitions only: the next temperature has density Σ_i θ_i p_i with p_i for cold, cool and mild
    weather, and θ swings from cold over cool to mild and back once in `period` episodes. Rewards,
    utilities and threshold stay.
Knowledge
    `Slater(1)`.
Source
    Made up: a room as one heat store that loses 12% of the difference to outside in two hours.
Version
    0
"""

from __future__ import annotations

import numpy as np

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.models import LinearKernelCMDP, drift, linear_kernel_on_box
from safedrift.models.box import BaseDensity, mixture, truncated_normal

_COLDEST, _RANGE = 12.0, 12.0  # °C at x = 0, and from x = 0 to x = 1
_POWER = (0.0, 0.5, 1.0)  # per action
_OUTSIDE = (-4.0, 4.0, 12.0)  # °C in cold, cool and mild weather
_LOSS = 0.12  # share of the difference to outside that is lost in a step
_HEAT = 6.0  # °C that full power adds in a step
_SPREAD = 0.8  # °C, of what nobody foresees
_BEST, _WIDTH = 20.0, 2.0  # °C of the most comfortable room, and how picky people are
_START = 18.0  # °C


def thermostat(
    episodes: int = 3_000,
    seed: int = 0,
    *,
    horizon: int = 8,
    comfort: float = 0.7,
    period: float | None = None,
    nodes: int = 32,
    rule: str = "gauss-legendre",
) -> LinearKernelCMDP:
    M, H = _check.integer("episodes", episodes), _check.integer("horizon", horizon)
    comfort = _check.positive("comfort", comfort, upper=1, closed=False)
    weights = drift.periodic(M, len(_OUTSIDE), period)
    psi, sample = mixture([_weather(outside) for outside in _OUTSIDE])
    ones = np.ones((M, H, 1))
    saved, cosy = (np.sqrt(2) * ones * unit for unit in np.eye(2))
    return linear_kernel_on_box(
        0.0, 1.0, len(_POWER), psi, _features,
        np.repeat(weights[:, None], H, axis=1), saved, cosy[:, None],
        np.full((M, 1), comfort * H), (_START - _COLDEST) / _RANGE,
        sample=sample, rule=rule, nodes=nodes,
    )  # fmt: skip


def _weather(outside: float) -> BaseDensity:
    def mean(x: FloatArray, a: int) -> FloatArray:
        T = _COLDEST + _RANGE * x
        return (T + _LOSS * (outside - T) + _HEAT * _POWER[a] - _COLDEST) / _RANGE
    return truncated_normal(mean, _SPREAD / _RANGE, 0.0, 1.0)


def _features(x: FloatArray, a: int) -> FloatArray:
    """φ(x (p, 1), a) = (share of the power saved, comfort)/√2 (p, 2)."""
    T = _COLDEST + _RANGE * x[:, 0]
    comfort = np.exp(-0.5 * ((T - _BEST) / _WIDTH) ** 2)
    return np.stack((np.full(len(T), 1 - _POWER[a]), comfort), axis=1) / np.sqrt(2)
