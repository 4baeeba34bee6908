"""What a learner remembers: arrays whose size follows the data in the window.

Slots. Each step h keeps its states in numbered slots: the first `active[h]` slots hold the states
visited in the current W-block, the next ones, up to `slots[h]`, states that still carry a
non-uniform policy from earlier in the L-block. `slot_of[h, s]` says where a state is; it is
believed only if that slot answers with the same state, so emptying a table is setting its length
to zero. Active slots never move, hence transitions may point at them.

Channels. Values are estimated for reward (channel 0), for K utilities (1..K) and, where the dual
is fed without bonus, for K utilities again without it (K+1..2K; unvisited pairs at their cap).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.types import FloatArray, IndexArray

COUNT_BONUS, BERNSTEIN_BONUS = 0, 1
OPTIMISTIC, PLAIN, OBSERVED = 0, 1, 2
FEEDS = {"optimistic": OPTIMISTIC, "plain": PLAIN, "observed": OBSERVED}  # the dual is fed with


class Settings(NamedTuple):
    """What the compiled parts need to know; see `learners.propd_ppo.components` for the meaning."""

    alpha: float  # policy improvement: step size
    L: int  # policy improvement: restart period
    eta: float  # dual: step size
    xi: float  # dual: regularisation
    chi: float  # dual: upper bound of the multipliers
    lagged: bool  # dual: pair V_g^{m-1} with b_{m-1} instead of b_m
    feed: int  # dual: OPTIMISTIC, PLAIN or OBSERVED
    W: int  # evaluation: restart period
    lam: float  # evaluation: ridge parameter λ
    bonus: int  # evaluation: COUNT_BONUS or BERNSTEIN_BONUS
    root: FloatArray  # (H,) count bonus root/sqrt(n + shift) + tail/(n + λ)
    shift: float
    tail: FloatArray  # (H,)
    c: float  # Bernstein bonus c sqrt(Var/n) + c² (H-h)/n + λ/(n + λ)
    LV: FloatArray  # (blocks, K, H) local variation term of each W-block


class Memory(NamedTuple):
    """The complete state of a learner: `cap` slots and `E` transitions per step, C channels.

    Slots are the last axis, so that a loop over states runs along memory.
    """

    episode: NDArray[np.int64]  # (1,) episodes done
    slot_of: IndexArray  # (H, S)
    state: IndexArray  # (H, cap)
    slots: NDArray[np.int64]  # (H,)
    active: NDArray[np.int64]  # (H,)
    logit: FloatArray  # (H, A, cap)
    logit_low: FloatArray  # (H, A, cap) what rounding dropped from logit
    pi: FloatArray  # (H, A, cap)
    visits: FloatArray  # (H, A, cap) n(x, a)
    gain: FloatArray  # (1+K, H, A, cap) sums of observed rewards and utilities
    weight: FloatArray  # (H, A, cap) 1/(n + λ)
    extra: FloatArray  # (H, A, cap) the part of the bonus that depends on n alone
    last: IndexArray  # (H, A, cap) latest transition out of the pair, -1 if none
    q: FloatArray  # (C, H, A, cap)
    v: FloatArray  # (C, H, cap)
    edges: NDArray[np.int64]  # (H,) transitions stored; each is
    edge_pair: NDArray[np.uint32]  # (H, E) from pair a*cap + i of step h
    edge_next: NDArray[np.uint32]  # (H, E) to slot of step h+1
    edge_times: FloatArray  # (H, E) n(x, a, x')
    edge_before: IndexArray  # (H, E) the transition out of the same pair stored before it
    v_unseen: FloatArray  # (C, H) value of a state not visited in the window
    v_start: FloatArray  # (C,) value at the initial distribution
    mu: FloatArray  # (K,)
    fed: FloatArray  # (K,) V_g of the last episode as the dual is told
    last_thresholds: FloatArray  # (K,)
    initial: FloatArray  # (S,)
    q_flat: FloatArray  # (C, H, A*cap) q again, pairs numbered a*cap + i
    pi_flat: FloatArray  # (H, A*cap) pi again
    # Scratch, one array per use so that the compiler can tell them apart.
    top: FloatArray  # (cap,)
    step: FloatArray  # (cap,)
    mantissa: FloatArray  # (A*cap,)
    scale: FloatArray  # (A*cap,)
    scale_bits: NDArray[np.int64]  # (A*cap,) the bytes of `scale` as integers
    mean: FloatArray  # (A, cap)
    square: FloatArray  # (A, cap)
    mean_flat: FloatArray  # (A*cap,) mean again
    square_flat: FloatArray  # (A*cap,) square again


def make_memory(H: int, S: int, A: int, K: int, C: int, initial: FloatArray) -> Memory:
    """Return a learner's memory before the first episode, without room for slots yet.

    Alg. 1, line 1: zero Q and V_g, uniform policies (no slots), zero multipliers.
    """
    index = np.int32
    return Memory(
        episode=np.zeros(1, np.int64),
        slot_of=np.zeros((H, S), index),
        state=np.zeros((H, 0), index),
        slots=np.zeros(H, np.int64),
        active=np.zeros(H, np.int64),
        logit=np.zeros((H, A, 0)),
        logit_low=np.zeros((H, A, 0)),
        pi=np.zeros((H, A, 0)),
        visits=np.zeros((H, A, 0)),
        gain=np.zeros((1 + K, H, A, 0)),
        weight=np.zeros((H, A, 0)),
        extra=np.zeros((H, A, 0)),
        last=np.zeros((H, A, 0), index),
        q=np.zeros((C, H, A, 0)),
        v=np.zeros((C, H, 0)),
        edges=np.zeros(H, np.int64),
        edge_pair=np.zeros((H, 0), np.uint32),
        edge_next=np.zeros((H, 0), np.uint32),
        edge_times=np.zeros((H, 0)),
        edge_before=np.zeros((H, 0), index),
        v_unseen=np.zeros((C, H)),
        v_start=np.zeros(C),
        mu=np.zeros(K),
        fed=np.zeros(K),
        last_thresholds=np.zeros(K),
        initial=np.array(initial, dtype=np.float64),
        q_flat=np.zeros((C, H, 0)),
        pi_flat=np.zeros((H, 0)),
        top=np.zeros(0),
        step=np.zeros(0),
        mantissa=np.zeros(0),
        scale=np.zeros(0),
        scale_bits=np.zeros(0, np.int64),
        mean=np.zeros((A, 0)),
        square=np.zeros((A, 0)),
        mean_flat=np.zeros(0),
        square_flat=np.zeros(0),
    )


_PER_SLOT = (
    "state", "logit", "logit_low", "pi", "visits", "gain", "weight", "extra", "last", "q", "v",
    "top", "step", "mean", "square",
)  # fmt: skip
_PER_EDGE = ("edge_pair", "edge_next", "edge_times", "edge_before")


def with_room(memory: Memory, episodes: int) -> Memory:
    """Return the same memory with room for so many more episodes.

    An episode adds at most one slot and one transition to a step; a step has at most S slots.
    """
    S = memory.slot_of.shape[1]
    have = memory.state.shape[1], memory.edge_times.shape[1]
    slots = min(S, int(memory.slots.max()) + episodes)
    edges = int(memory.edges.max()) + episodes
    if slots > have[0]:
        size = min(S, max(slots, 2 * have[0]))
        action, slot = np.divmod(memory.edge_pair, max(have[0], 1))
        memory = memory._replace(
            edge_pair=(action * size + slot).astype(np.uint32),
            **{name: _longer(getattr(memory, name), size) for name in _PER_SLOT},
        )
        memory = with_views(memory)
    if edges > have[1]:
        size = max(edges, 2 * have[1])
        memory = memory._replace(
            **{name: _longer(getattr(memory, name), size) for name in _PER_EDGE}
        )
    return memory


def with_views(memory: Memory) -> Memory:
    """Return the memory with the arrays that are others seen differently, and their scratch.

    To be called whenever arrays have been replaced or copied: the kernels rely on shared bytes.
    """
    scale = np.zeros(memory.mean.size)
    return memory._replace(
        q_flat=memory.q.reshape(*memory.q.shape[:2], memory.q[0, 0].size),
        pi_flat=memory.pi.reshape(memory.pi.shape[0], memory.pi[0].size),
        mantissa=np.zeros(memory.mean.size),
        scale=scale,
        scale_bits=scale.view(np.int64),
        mean_flat=memory.mean.ravel(),
        square_flat=memory.square.ravel(),
    )


def _longer(array: NDArray, size: int) -> NDArray:  # type: ignore[type-arg]
    longer = np.zeros((*array.shape[:-1], size), array.dtype)
    longer[..., : array.shape[-1]] = array
    return longer
