"""PROPD-PPO on a box, compiled: episodes in a world whose feature maps are arrays.

The numbers are those of the loop in `experiments.playing` over `learners.propd_ppo.box_engine`,
which plays with feature maps of any kind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.linear.box import end_episode, policy_from
from safedrift.kernels.linear.box_maps import write_features, write_next, write_signals
from safedrift.kernels.linear.integrals import integrate_row
from safedrift.kernels.linear.propd_ppo import begin_episode, write_policy
from safedrift.kernels.stepping import first_state
from safedrift.kernels.tabular import propd_ppo as tabular
from safedrift.kernels.types import FloatArray, jit, jit_part

PLAYED, OUTSIDE, NO_MASS = 0, 1, 2  # what became of a chunk
ROUNDING = 1e-9  # by which rewards, utilities and norms may leave their range


class BoxBuffer(NamedTuple):
    """The episode being played, and room to compute in."""

    states: FloatArray  # (H, n)
    actions: NDArray[np.int64]  # (H,)
    signals: FloatArray  # (1+K, H)
    psi: FloatArray  # (H, A, J, d1) at the visited states, times the weights of the nodes
    phi: FloatArray  # (H, A, d2)
    pi: FloatArray  # (H, A)
    point_v: FloatArray  # (C, H+1)
    wide: FloatArray  # (J, A*d1)
    numbers: NDArray[np.uint32]  # (J,) 0, 1, ...
    ahead: FloatArray  # (1+K, episodes, A*d1) ∫ψV^τ of past episodes at a visited state
    logits: FloatArray  # (2, A)
    centre: FloatArray  # (A, n)
    mass: FloatArray  # (A, n)
    density: FloatArray  # (A, J)
    at: NDArray[np.int64]  # (2,) episode of the chunk and step that were reached


def make_box_buffer(C: int, K: int, A: int, n: int, shape: tuple[int, ...], past: int) -> BoxBuffer:
    """Return room for episodes with (H, J, d1, d2) = shape and so many past ones."""
    H, J, d1, d2 = shape
    new = np.zeros
    return BoxBuffer(
        states=new((H, n)),
        actions=new(H, np.int64),
        signals=new((1 + K, H)),
        psi=new((H, A, J, d1)),
        phi=new((H, A, d2)),
        pi=new((H, A)),
        point_v=new((C, H + 1)),
        wide=new((J, A * d1)),
        numbers=np.arange(J, dtype=np.uint32),
        ahead=new((1 + K, past, A * d1)),
        logits=new((2, A)),
        centre=new((A, n)),
        mass=new((A, n)),
        density=new((A, J)),
        at=new(2, np.int64),
    )


@jit
def play(arrays, hyper, memory, history, schedule, inputs, buffer, out, trace):
    """`kernels.tabular.propd_ppo.play` on a box.

    Parameters
    ----------
    arrays : BoxArrays
    history : History, with room for the chunk
    buffer : BoxBuffer, scratch

    Returns
    -------
    PLAYED, or what ended the chunk at episode and step `buffer.at`: OUTSIDE, signals or features
    too large there, or NO_MASS, a mean too far from the box.
    """
    B, H = inputs.action_uniforms.shape
    C = buffer.signals.shape[0]
    n, linear = buffer.states.shape[1], arrays.linear
    written = 0
    for e in range(B):
        m = memory.clock.episode[0]
        begin_episode(schedule.opens_window[e], schedule.restarts[e], hyper, memory)
        if inputs.measured[e]:
            write_policy(memory, out.policies[written])
            written += 1
        u = inputs.world_uniforms[e]
        s = first_state(linear, u[0])
        for k in range(n):
            buffer.states[0, k] = arrays.points[s, k]
        for h in range(H):
            buffer.at[0], buffer.at[1] = e, h
            if not choose(h, inputs.action_uniforms[e, h], arrays, hyper, memory, history, buffer):
                return NO_MASS
            a = buffer.actions[h]
            first = 1 + (H - 1) * (1 + n) + h * C
            if not write_signals(
                m, h, buffer.phi[h, a], inputs.noisy, u, first, linear, ROUNDING, buffer.signals
            ):
                return OUTSIDE
            if h + 1 < H and not write_next(
                m, h, buffer.states[h], a, u, 1 + h * (1 + n), arrays, buffer.centre, buffer.mass,
                buffer.states[h + 1],
            ):  # fmt: skip
                return NO_MASS
        at_cap = end_episode(
            linear.thresholds[m], buffer.psi, buffer.phi, buffer.pi, buffer.actions,
            buffer.signals, hyper, linear.features, memory, history, buffer.point_v,
        )  # fmt: skip
        tabular.keep(e, at_cap, buffer.signals, memory, out, trace)
    return PLAYED


@jit_part
def choose(h, u, arrays, hyper, memory, history, buffer):
    """Features and policy at the state of step h, and an action drawn with the uniform u.

    Returns whether the box holds something of each component of ψ there.
    """
    inside = write_features(
        buffer.states[h], arrays, buffer.centre, buffer.mass, buffer.density, buffer.psi[h],
        buffer.wide, buffer.phi[h],
    )  # fmt: skip
    n = memory.clock.policy_age[0]
    for c in range(buffer.ahead.shape[0]):
        integrate_row(
            np.int64(0), np.int64(buffer.wide.shape[0]), buffer.wide, buffer.numbers,
            history.v[h, :n], np.int64(c), buffer.ahead[c, :n],
        )  # fmt: skip
    policy_from(
        h, n, buffer.ahead, buffer.phi[h], hyper, history, memory, buffer.logits, buffer.pi[h]
    )
    A = buffer.pi.shape[1]
    below, chosen = 0.0, 0
    for a in range(A):
        below += buffer.pi[h, a]
        chosen += u >= below
    while chosen >= A or buffer.pi[h, chosen] == 0.0:  # u beyond a sum that rounded below 1
        chosen -= 1
    buffer.actions[h] = chosen
    return inside
