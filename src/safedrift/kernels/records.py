"""What goes into and comes out of a chunk of B episodes played by compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.types import FloatArray


class ChunkInput(NamedTuple):
    """What a chunk is played with; all randomness comes in as uniforms."""

    noisy: bool  # Bernoulli rewards and utilities instead of their means
    action_uniforms: FloatArray  # (B, H)
    world_uniforms: FloatArray  # (B, uniforms per episode)
    measured: NDArray[np.bool_]  # (B,) whose policies are written out


class ChunkOutput(NamedTuple):
    """What any learner leaves behind."""

    policies: FloatArray  # (number measured, H, S, A)
    returns: FloatArray  # (B, 1+K) observed sums of reward and utilities


class Schedule(NamedTuple):
    """What to forget before each of B episodes, in this order."""

    opens_window: NDArray[np.bool_]  # (B,) discard all data
    drops: NDArray[np.bool_]  # (B,) discard the oldest episode of a sliding window
    discount: FloatArray  # (B,) multiply all counts and sums by this
    restarts: NDArray[np.bool_]  # (B,) back to the uniform policy


class EpisodeBuffer(NamedTuple):
    """The episode being played."""

    states: NDArray[np.int64]  # (H,)
    actions: NDArray[np.int64]  # (H,)
    signals: FloatArray  # (1+K, H) observed reward and utilities


class Trace(NamedTuple):
    """What PROPD-PPO shows of B episodes."""

    mu: FloatArray  # (B, K) after the dual step
    v_start: FloatArray  # (B, C) estimates at the initial distribution
    at_cap: FloatArray  # (B,) share of estimates at their cap
    alarm: NDArray[np.bool_]  # (B, 2+K) raised on transitions, reward, utilities


class Log(NamedTuple):
    """Everything an audit of B episodes needs beyond policies and `Trace`; or B = 0."""

    q: FloatArray  # (B, C, H, S, A) estimates of the episode
    states: NDArray[np.int64]  # (B, H)
    actions: NDArray[np.int64]  # (B, H)
    signals: FloatArray  # (B, 1+K, H)
    v_start: FloatArray  # (B, C) estimates at the initial distribution, every channel


def make_chunk_output(measured: int, B: int, H: int, S: int, A: int, K: int) -> ChunkOutput:
    """Return room for what a chunk leaves behind."""
    return ChunkOutput(np.empty((measured, H, S, A)), np.zeros((B, 1 + K)))


def make_episode_buffer(H: int, K: int) -> EpisodeBuffer:
    """Return room for one episode."""
    return EpisodeBuffer(np.zeros(H, np.int64), np.zeros(H, np.int64), np.zeros((1 + K, H)))


def make_trace(B: int, K: int, C: int) -> Trace:
    """Return room for the trace of B episodes."""
    return Trace(
        mu=np.zeros((B, K)),
        v_start=np.zeros((B, C)),
        at_cap=np.zeros(B),
        alarm=np.zeros((B, 2 + K), bool),
    )


def make_log(B: int, C: int, H: int, S: int, A: int, K: int) -> Log:
    """Return room for the log of B episodes; none with B = 0."""
    paths = (np.zeros((B, H), np.int64), np.zeros((B, H), np.int64))
    return Log(np.zeros((B, C, H, S, A)), *paths, np.zeros((B, 1 + K, H)), np.zeros((B, C)))
