"""Transitions as successor lists: only what can happen is stored."""

from __future__ import annotations

import numpy as np

from safedrift.kernels.types import FloatArray, Successors


def successor_lists(transitions: FloatArray) -> Successors:
    """Turn dense transitions (H, S, A, S) into successor lists without the zeros."""
    S = transitions.shape[-1]
    rows = np.ascontiguousarray(transitions).reshape(-1, S)
    row, state = np.nonzero(rows)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=rows.shape[0]))))
    lists = Successors(offsets.astype(np.int64), state.astype(np.int32), rows[row, state])
    for array in lists:
        array.setflags(write=False)
    return lists
