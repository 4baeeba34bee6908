"""What a learner with counts remembers: arrays whose size follows the data in the window.

Slots. Each step h keeps its states in numbered slots: the first `active[h]` slots hold the states
visited in the current window, the next ones, up to `slots[h]`, states that still carry a
non-uniform policy from before. `slot_of[h, s]` says where a state is; it is valid only if that slot
answers with the same state, so emptying a table is setting its length to zero. Active slots never
move, hence transitions may point at them.

Channels. Values are estimated for reward (channel 0), for K utilities (1..K) and, where the dual
signal has no bonus, for K utilities again without it (K+1..2K; unvisited pairs at their cap).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.lanes import LANES
from safedrift.kernels.tabular.filter_memory import Filters, with_filter_room
from safedrift.kernels.tabular.homogeneity_memory import HomogeneityTest, with_test_room
from safedrift.kernels.types import FloatArray, IndexArray

COUNT_BONUS, BERNSTEIN_BONUS = 0, 1
OPTIMISTIC, PLAIN, OBSERVED = 0, 1, 2
DUAL_SIGNALS = {"optimistic": OPTIMISTIC, "plain": PLAIN, "observed": OBSERVED}


class Hyperparameters(NamedTuple):
    """What the compiled parts need to know; see `learners.propd_ppo.components`."""

    alpha: float  # policy improvement: step size
    eta: float  # dual: step size
    xi: float  # dual: regularisation
    chi: float  # dual: upper bound of the multipliers
    lagged: bool  # dual: pair V_g^{m-1} with b_{m-1} instead of b_m
    dual_signal: int  # dual: OPTIMISTIC, PLAIN or OBSERVED
    lam: float  # evaluation: ridge parameter λ
    bonus: int  # evaluation: COUNT_BONUS or BERNSTEIN_BONUS
    root: FloatArray  # (H,) count bonus root/sqrt(n + shift) + tail/(n + λ)
    shift: float
    tail: FloatArray  # (H,)
    c: float  # Bernstein bonus c sqrt(Var/n) + c² (H-h)/n + λ/(n + λ)
    LV: FloatArray  # (windows, K, H) local variation term of each window


class Clock(NamedTuple):
    """Where the learner is; each an array (1,), so that compiled code can advance it."""

    episode: NDArray[np.int64]  # episodes finished
    window: NDArray[np.int64]  # windows opened, minus one
    window_age: NDArray[np.int64]  # episodes absorbed since the window was opened
    policy_age: NDArray[np.int64]  # episodes finished since the policy was restarted


class PolicyTable(NamedTuple):
    """Slots of states, and the policy of those that have one; others are uniform."""

    slot_of: IndexArray  # (H, S)
    state: IndexArray  # (H, cap)
    slots: NDArray[np.int64]  # (H,)
    logit: FloatArray  # (H, A, cap)
    logit_low: FloatArray  # (H, A, cap) what rounding dropped from logit
    pi: FloatArray  # (H, A, cap)
    pi_flat: FloatArray  # (H, A*cap) a view of pi


class Window(NamedTuple):
    """The data: counts, sums and observed transitions (E of them per step at most)."""

    active: NDArray[np.int64]  # (H,)
    visits: FloatArray  # (H, A, cap) n(x, a)
    signal_sums: FloatArray  # (1+K, H, A, cap) sums of observed rewards and utilities
    weight: FloatArray  # (H, A, cap) 1/(n + λ)
    count_bonus: FloatArray  # (H, A, cap) the part of the bonus that depends on n alone
    last: IndexArray  # (H, A, cap) latest transition out of the pair, -1 if none
    edges: NDArray[np.int64]  # (H,) transitions stored; each is
    edge_pair: NDArray[np.uint32]  # (H, E) from pair a*cap + i of step h
    edge_next: NDArray[np.uint32]  # (H, E) to slot of step h+1
    edge_times: FloatArray  # (H, E) n(x, a, x')
    edge_before: IndexArray  # (H, E) the transition out of the same pair stored before it


class Episodes(NamedTuple):
    """The episodes of a sliding window, the oldest in row `next - held` of the ring; or none."""

    states: NDArray[np.int64]  # (W, H)
    actions: NDArray[np.int64]  # (W, H)
    signals: FloatArray  # (W, 1+K, H)
    held: NDArray[np.int64]  # (1,) episodes in the ring
    next: NDArray[np.int64]  # (1,) row that the next episode is written to


class Values(NamedTuple):
    """Estimates of the last evaluation, C channels."""

    q: FloatArray  # (C, H, A, cap)
    v: FloatArray  # (C, H, cap)
    v_unseen: FloatArray  # (C, H) value of a state not visited in the window
    v_start: FloatArray  # (C,) value at the initial distribution
    initial: FloatArray  # (S,)
    q_flat: FloatArray  # (C, H, A*cap) a view of q


class Dual(NamedTuple):
    """Multipliers and what their next step needs."""

    mu: FloatArray  # (K,)
    signal: FloatArray  # (K,) V_g of the last episode as the dual step sees it
    last_thresholds: FloatArray  # (K,)


class Scratch(NamedTuple):
    """Working arrays, one per use so that the compiler can tell them apart."""

    top: FloatArray  # (cap,)
    step: FloatArray  # (cap,)
    mantissa: FloatArray  # (A*cap,)
    scale: FloatArray  # (A*cap,)
    scale_bits: NDArray[np.int64]  # (A*cap,) the bytes of `scale` as integers
    mean: FloatArray  # (A, cap)
    square: FloatArray  # (A, cap)
    mean_flat: FloatArray  # (A*cap,) a view of mean
    square_flat: FloatArray  # (A*cap,) a view of square
    sums: FloatArray  # (2*A*cap,) numerators of two channels, alternating
    ahead: FloatArray  # (2*cap,) V of two channels at the next step, alternating


class Memory(NamedTuple):
    """The complete state of a learner: `cap` slots per step, slots along the last axis."""

    clock: Clock
    policy: PolicyTable
    window: Window
    episodes: Episodes
    values: Values
    dual: Dual
    filters: Filters | None  # where they decide what the window holds (`adaptive_window`)
    test: HomogeneityTest | None  # where it decides since when data count (`homogeneity`)
    scratch: Scratch


def make_clock() -> Clock:
    """Return the clock before the first episode."""
    return Clock(*(np.full(1, start, np.int64) for start in (0, -1, 0, 0)))


def make_dual(K: int) -> Dual:
    """Return zero multipliers (Alg. 1, line 1)."""
    return Dual(np.zeros(K), np.zeros(K), np.zeros(K))


def make_memory(
    H: int,
    S: int,
    A: int,
    K: int,
    C: int,
    initial: FloatArray,
    held: int = 0,
    filters: Filters | None = None,
    test: HomogeneityTest | None = None,
) -> Memory:
    """Return a learner's memory before the first episode, without room for slots yet.

    Alg. 1, line 1: zero Q and V_g, uniform policies (no slots), zero multipliers.

    Parameters
    ----------
    held
        Episodes that a sliding window keeps; 0 for windows that forget in another way.
    filters
        Of an adaptive window; None for windows that forget in another way.
    test
        Of a window with a homogeneity test; None for others.
    """
    index = np.int32
    pairs, edges = (H, A, 0), (H, 0)
    memory = Memory(
        clock=make_clock(),
        policy=PolicyTable(
            slot_of=np.zeros((H, S), index),
            state=np.zeros((H, 0), index),
            slots=np.zeros(H, np.int64),
            logit=np.zeros(pairs),
            logit_low=np.zeros(pairs),
            pi=np.zeros(pairs),
            pi_flat=np.zeros((H, 0)),
        ),
        window=Window(
            active=np.zeros(H, np.int64),
            visits=np.zeros(pairs),
            signal_sums=np.zeros((1 + K, *pairs)),
            weight=np.zeros(pairs),
            count_bonus=np.zeros(pairs),
            last=np.zeros(pairs, index),
            edges=np.zeros(H, np.int64),
            edge_pair=np.zeros(edges, np.uint32),
            edge_next=np.zeros(edges, np.uint32),
            edge_times=np.zeros(edges),
            edge_before=np.zeros(edges, index),
        ),
        episodes=Episodes(
            states=np.zeros((held, H), np.int64),
            actions=np.zeros((held, H), np.int64),
            signals=np.zeros((held, 1 + K, H)),
            held=np.zeros(1, np.int64),
            next=np.zeros(1, np.int64),
        ),
        values=Values(
            q=np.zeros((C, *pairs)),
            v=np.zeros((C, H, 0)),
            v_unseen=np.zeros((C, H)),
            v_start=np.zeros(C),
            initial=np.array(initial, dtype=np.float64),
            q_flat=np.zeros((C, H, 0)),
        ),
        dual=make_dual(K),
        filters=filters,
        test=test,
        scratch=_make_scratch(A, 0),
    )
    return memory


def _make_scratch(A: int, cap: int) -> Scratch:
    mean, square, scale = np.zeros((A, cap)), np.zeros((A, cap)), np.zeros(A * cap)
    return Scratch(
        top=np.zeros(cap),
        step=np.zeros(cap),
        mantissa=np.zeros(A * cap),
        scale=scale,
        scale_bits=scale.view(np.int64),
        mean=mean,
        square=square,
        mean_flat=mean.ravel(),
        square_flat=square.ravel(),
        sums=np.zeros(2 * A * cap),
        ahead=np.zeros(2 * cap),
    )


_POLICY_SLOTS = ("state", "logit", "logit_low", "pi")
_WINDOW_SLOTS = ("visits", "signal_sums", "weight", "count_bonus", "last")
_VALUE_SLOTS = ("q", "v")
_EDGES = ("edge_pair", "edge_next", "edge_times", "edge_before")


def with_room(memory: Memory, episodes: int) -> Memory:
    """Return the same memory with room for so many more episodes.

    An episode adds at most one slot and one transition to a step; a step has at most S slots.
    """
    policy, window, values = memory.policy, memory.window, memory.values
    S = policy.slot_of.shape[1]
    have = policy.state.shape[1], window.edge_times.shape[1]
    slots = min(S, int(policy.slots.max()) + episodes)
    edges = int(window.edges.max()) + episodes
    if slots > have[0]:
        size = whole_groups(min(S, max(slots, 2 * have[0])))
        action, slot = np.divmod(window.edge_pair, max(have[0], 1))
        window = window._replace(edge_pair=(action * size + slot).astype(np.uint32))
        memory = with_views(
            memory._replace(
                policy=_longer(policy, _POLICY_SLOTS, size),
                window=_longer(window, _WINDOW_SLOTS, size),
                values=_longer(values, _VALUE_SLOTS, size),
            )
        )
    if edges > have[1]:
        size = max(edges, 2 * have[1])
        memory = memory._replace(window=_longer(memory.window, _EDGES, size))
    if memory.filters is not None:
        visits = episodes * memory.policy.slots.size
        memory = memory._replace(filters=with_filter_room(memory.filters, visits))
    if memory.test is not None:
        room = memory.policy.state.shape[1], memory.window.edge_times.shape[1]
        memory = memory._replace(test=with_test_room(memory.test, *room))
    return memory


def whole_groups(slots: int) -> int:
    """Room for so many slots: whole groups of lanes, which the kernels work on at once."""
    return -(-slots // LANES) * LANES


def with_views(memory: Memory) -> Memory:
    """Return the memory with the arrays that are views of others, and new scratch space.

    To be called whenever arrays have been replaced or copied: the kernels rely on shared bytes.
    """
    policy, values = memory.policy, memory.values
    H, A, cap = policy.pi.shape
    return memory._replace(
        policy=policy._replace(pi_flat=policy.pi.reshape(H, A * cap)),
        values=values._replace(q_flat=values.q.reshape(*values.q.shape[:2], A * cap)),
        scratch=_make_scratch(A, cap),
    )


def _longer(record, names, size):
    """Return a record whose named arrays have `size` entries along the last axis."""
    changed = {}
    for name in names:
        array = getattr(record, name)
        changed[name] = np.zeros((*array.shape[:-1], size), array.dtype)
        changed[name][..., : array.shape[-1]] = array
    return record._replace(**changed)
