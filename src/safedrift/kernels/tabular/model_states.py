"""Which states a model has at each step, and which successors its pairs: those that were seen.

The arrays are those of `filtered_model`: Knowledge, Plan and Model.
"""

from __future__ import annotations

import numpy as np

from safedrift.kernels.types import jit_inline, jit_part


@jit_part
def find_states(know, plan, support, pools):
    """Write which states can be reached at each step, if that may have changed."""
    known, own, pooled = plan.known, know.own, know.pooled
    if (
        known[0] == own.used[0]
        and known[1] == own.used[1]
        and known[2] == pooled.used[1]
        and known[3] == pools
    ):
        return
    known[0], known[1], known[2], known[3] = own.used[0], own.used[1], pooled.used[1], pools
    H, S = plan.local.shape
    A = plan.policy.shape[2]
    for h in range(H):
        for i in range(plan.count[h]):
            plan.local[h, plan.reach[h, i]] = -1
        plan.count[h] = 0
    for i in range(support.size):
        add_state(plan, 0, support[i])
    entries = 0
    for h in range(H - 1):
        for i in range(plan.count[h]):
            s = plan.reach[h, i]
            for a in range(A):
                before = entries
                c = own.index[(h * S + s) * A + a]
                entries += add_successors(plan, own, c, h + 1)
                if pools:
                    entries += add_successors(plan, pooled, pooled.index[s * A + a], h + 1)
                if entries == before:
                    add_state(plan, h + 1, s)
                    entries += 1
    most = 0
    for h in range(H):
        most = max(most, plan.count[h])
    known[4], known[5] = entries + 1, most


@jit_inline
def add_successors(plan, cells, c, h):
    """Give all successors of cell c (-1: none) a number at step h; returns how many there are."""
    count = 0
    e = cells.head[c] if c >= 0 else np.int32(-1)
    while e >= 0:
        add_state(plan, h, cells.edge_state[e])
        count += 1
        e = cells.edge_next[e]
    return count


@jit_inline
def add_state(plan, h, s):
    """Give state s a number at step h."""
    if plan.local[h, s] < 0:
        plan.local[h, s] = plan.count[h]
        plan.reach[h, plan.count[h]] = s
        plan.count[h] += 1


@jit_part
def write_successors(know, plan, pools, model):
    """Write which successors each pair of the model has, if that may have changed."""
    written = True
    for i in range(4):
        written &= model.written_for[i] == plan.known[i]
        model.written_for[i] = plan.known[i]
    if written:
        return
    own, pooled = know.own, know.pooled
    _, H, N, A = model.signals.shape
    S = plan.local.shape[1]
    place = 0
    model.offsets[0] = 0
    for h in range(H):
        for i in range(N):
            s = np.int64(plan.reach[h, i]) if i < plan.count[h] else np.int64(-1)
            for a in range(A):
                if s >= 0 and h + 1 < H:
                    c = own.index[(h * S + s) * A + a]
                    q = pooled.index[s * A + a] if pools else np.int32(-1)
                    place = list_successors(own, pooled, c, q, plan.local[h + 1], s, place, model)
                model.offsets[(h * N + i) * A + a + 1] = place


@jit_inline
def list_successors(own, pooled, c, q, local, s, first, model):
    """List successors of cells c and q (-1: none) from entry `first` on; returns the next entry.

    A pair of which nothing is known stays in its state s.
    """
    place = first
    e = own.head[c] if c >= 0 else np.int32(-1)
    while e >= 0:
        if q >= 0:
            model.place[own.edge_state[e]] = place
        model.states[place] = local[own.edge_state[e]]
        model.edge[place], model.pooled_edge[place] = e, -1
        place += 1
        e = own.edge_next[e]
    e = pooled.head[q] if q >= 0 else np.int32(-1)
    while e >= 0:
        at = model.place[pooled.edge_state[e]]
        if at >= 0:
            model.pooled_edge[at] = e
        else:
            model.states[place] = local[pooled.edge_state[e]]
            model.edge[place], model.pooled_edge[place] = -1, e
            place += 1
        e = pooled.edge_next[e]
    e = own.head[c] if c >= 0 and q >= 0 else np.int32(-1)
    while e >= 0:
        model.place[own.edge_state[e]] = -1
        e = own.edge_next[e]
    if place == first:
        model.states[place] = local[s]
        model.edge[place], model.pooled_edge[place] = -1, -1
        place += 1
    return place
