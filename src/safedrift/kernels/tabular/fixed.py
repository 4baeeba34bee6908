"""Episodes played with given policies, compiled: nothing is learnt while they last."""

from __future__ import annotations

from safedrift.kernels.stepping import first_state, next_state, observe
from safedrift.kernels.types import jit, jit_inline


@jit_inline
def draw_from(distribution, u):
    """Draw an action from a distribution (A,) with the uniform u."""
    A = distribution.size
    below = 0.0
    chosen = 0
    for a in range(A):
        below += distribution[a]
        chosen += u >= below
    while chosen >= A or distribution[chosen] == 0.0:  # u beyond a sum that rounded below 1
        chosen -= 1
    return chosen


@jit
def play_policies(arrays, first, policies, which, inputs, buffer, out):
    """Play B episodes from number `first` on, episode e with policies[which[e]].

    Parameters
    ----------
    arrays : TableArrays, the world
    policies : (n, H, S, A)
    which : (B,)
    inputs : ChunkInput
    buffer : EpisodeBuffer, scratch
    out : ChunkOutput, written
    """
    B, H = inputs.action_uniforms.shape
    _, _, S, A = policies.shape
    signals = buffer.signals
    C = signals.shape[0]
    written = 0
    for e in range(B):
        policy = policies[which[e]]
        if inputs.measured[e]:
            for h in range(H):
                for s in range(S):
                    for a in range(A):
                        out.policies[written, h, s, a] = policy[h, s, a]
            written += 1
        u = inputs.world_uniforms[e]
        s = first_state(arrays, u[0])
        for h in range(H):
            a = draw_from(policy[h, s], inputs.action_uniforms[e, h])
            observe(arrays, first + e, h, s, a, inputs.noisy, u, H + h * C, signals)
            for c in range(C):
                out.returns[e, c] += signals[c, h]
            if h + 1 < H:
                s = next_state(arrays, first + e, h, s, a, u[h + 1])
