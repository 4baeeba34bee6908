"""Play a learner in a world, a chunk of episodes at a time.

`play_episodes` defines what a simulation means: a loop over a `Learner` and a `Stepper`. A learner
with a fast path plays the whole chunk in one compiled call instead and gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray, IntArray
from safedrift.adapters.gymnasium_worlds import EnvironmentStepper, GymnasiumWorld
from safedrift.experiments.streams import seeds
from safedrift.kernels.linear.box_maps import BoxArrays
from safedrift.kernels.records import ChunkInput, ChunkOutput, Log, make_chunk_output
from safedrift.learners import PROPDPPO, FastPath, Learner, Trajectory
from safedrift.models import DriftingWorld, LinearKernelCMDP
from safedrift.models.stepping import Stepper, split_uniforms, stepper_for, uniforms_per_episode

__all__ = ["Chunk", "World", "play_chunks", "play_episode", "play_episodes", "played_arrays"]

World = DriftingWorld | GymnasiumWorld

Watch = Callable[[int, Any], None]
"""Called with (episode, policy) at the start of every measured episode."""

_POLICY_BYTES = 32 * 2**20  # of policies kept between learning and measuring
_CHUNK = 1024  # episodes between two reports of progress;
_CHUNK_IN_PYTHON = 32  # fewer where an episode takes milliseconds


class Chunk(NamedTuple):
    """Consecutive episodes just played."""

    first: int
    size: int
    measured: IntArray  # numbers of the episodes whose policies are kept
    policies: FloatArray  # (n, H, S, A)
    returns: FloatArray  # (size, 1+K) observed sums
    trace: Mapping[str, NDArray[Any]]  # first axis size
    log: Log | None  # what an audit needs, where it was asked for


# ---------------------------------------------------------------- the loop


def play_episode(
    learner: Learner, stepper: Stepper, m: int, actions_u: FloatArray, world_u: FloatArray
) -> Trajectory:
    """Play the episode that the learner has begun, with uniforms for its actions (H,)."""
    _, H, _, _, K = learner.sizes
    u = split_uniforms(world_u, H, K, stepper.next_draws)
    states, actions, signals = [], np.empty(H, np.int64), np.empty((1 + K, H))
    x = stepper.first(m, u.first)
    for h in range(H):
        states.append(x)
        a = actions[h] = learner.act(h, x, float(actions_u[h]))
        signals[:, h] = stepper.signals(m, h, x, int(a), u.signals[h])
        if h + 1 < H:
            x = stepper.next(m, h, x, int(a), u.next[h])
    return Trajectory(np.array(states), actions, signals[0], signals[1:])


def play_episodes(
    learner: Learner,
    stepper: Stepper,
    first: int,
    thresholds: FloatArray,
    inputs: ChunkInput,
    out: ChunkOutput,
    watch: Watch | None = None,
    log: Log | None = None,
) -> dict[str, NDArray[Any]]:
    """Play episodes first, first + 1, ... one after the other; returns their trace."""
    _, H, S, A, _ = learner.sizes
    rows: list[Mapping[str, Any]] = []
    written = 0
    for e in range(len(inputs.action_uniforms)):
        m = first + e
        policy = learner.begin_episode(thresholds[m])
        if inputs.measured[e]:
            out.policies[written] = _checked_policy(policy, (H, S, A), m)
            written += 1
            if watch is not None:
                watch(m, policy)
        episode = play_episode(
            learner, stepper, m, inputs.action_uniforms[e], inputs.world_uniforms[e]
        )
        learner.end_episode(episode)
        if log is not None:
            log.states[e], log.actions[e] = episode.states, episode.actions
            log.signals[e] = np.vstack((episode.rewards, episode.utilities))
        rewards, utilities = np.asarray(episode.rewards), np.asarray(episode.utilities)
        for h in range(H):  # in this order, as compiled learners do
            out.returns[e, 0] += rewards[h]
            out.returns[e, 1:] += utilities[:, h]
        rows.append(learner.trace())
    return _columns(rows, first)


def _checked_policy(policy: Any, shape: tuple[int, int, int], m: int) -> FloatArray:
    """The policy that begin_episode returned as an array (H, S, A) of distributions."""
    name = f"the policy of episode {m}"
    array = _check.floats(name, np.asarray(policy), shape)
    _check.distribution(name, array, 1e-9)
    return array


def _columns(rows: list[Mapping[str, Any]], first: int) -> dict[str, NDArray[Any]]:
    """Traces of consecutive episodes as columns."""
    for e, row in enumerate(rows):
        if list(row) != list(rows[0]):
            wanted = f"the same names after every episode, {list(rows[0])}"
            _check.fail("trace()", wanted, list(row), f"episode {first + e}")
    found = {}
    for name in rows[0]:
        values = [np.asarray(row[name]) for row in rows]
        shape = values[0].shape
        bad = [v for v in values if v.shape != shape or v.dtype.kind not in "bif"]
        if len(shape) > 1 or bad:
            wanted = "a number, or a one-dimensional array of the same length after every episode"
            got = bad[0] if bad else f"shape {shape}"
            _check.fail(f"trace()[{name!r}]", wanted, got)
        found[name] = np.stack(values)
    return found


# ---------------------------------------------------------------- chunks


def play_chunks(
    world: World,
    learner: Learner,
    seed: int,
    noisy: bool,
    episodes: IntArray,
    *,
    watch: Watch | None = None,
    watched: IntArray | None = None,
    make_log: Callable[[int], Log] | None = None,
    slow: bool = False,
    first: int = 0,
) -> Iterator[Chunk]:
    """Play the episodes of a world from `first` on, keeping the policies of the listed ones.

    Parameters
    ----------
    first
        Episodes that the learner has finished already, in the same world with the same seed. The
        random numbers continue where they would be: an episode draws a fixed number of them.
    watch
        Called with every watched episode and its policy; the learner's fast path is not used there.
    watched
        Episodes to be watched, ascending, some of the listed ones; by default all of those.
    make_log
        Room for what an audit needs of so many episodes; estimates come from a fast path only.
    slow
        Do not use the learner's fast path, even if it has one.
    """
    M = world.M
    _, H, S, A, K = learner.sizes
    children = seeds(seed)
    world_stream = np.random.default_rng(children["world"])
    action_stream = np.random.default_rng(children["learner"])
    measured = np.zeros(M, bool)
    measured[episodes] = True
    stepper, arrays = _entrance(world, noisy, children["world"])
    fast = not slow and isinstance(learner, FastPath) and learner.plays(arrays)
    on_box = isinstance(arrays, BoxArrays)
    if make_log is not None and (on_box or not isinstance(learner, PROPDPPO)):
        fast = False  # a log has no room for points of a box, and other fast paths keep none
    alone = episodes if watched is None else watched  # episodes whose policies Python looks at
    draws = uniforms_per_episode(H, K, stepper.next_draws)
    action_stream.bit_generator.advance(first * H)  # type: ignore[attr-defined]
    world_stream.bit_generator.advance(first * draws)  # type: ignore[attr-defined]
    chunk = _CHUNK if fast and not on_box else _CHUNK_IN_PYTHON
    kept = max(1, _POLICY_BYTES // (8 * H * S * A * (1 if make_log is None else 2 + K)))
    done = first
    while done < M:
        # A chunk ends after `chunk` episodes or when its policies fill their share of memory.
        ahead = np.flatnonzero(measured[done : done + chunk])
        B = min(chunk, M - done) if ahead.size <= kept else int(ahead[kept])
        in_python = not fast
        if fast and watch is not None:
            next_alone = int(np.append(alone, M)[np.searchsorted(alone, done)])
            in_python = next_alone == done
            B = 1 if in_python else min(B, next_alone - done)
        ahead = ahead[ahead < B]
        inputs = ChunkInput(
            noisy,
            action_stream.random((B, H)),
            world_stream.random((B, draws)),
            measured[done : done + B],
        )
        out = make_chunk_output(ahead.size, B, H, S, A, K)
        log = None if make_log is None else make_log(B)
        if not in_python:
            options = {} if log is None else {"log": log}
            trace = learner.play_chunk(arrays, inputs, out, **options)  # type: ignore[attr-defined]
        else:
            trace = play_episodes(learner, stepper, done, world.thresholds, inputs, out, watch, log)
        yield Chunk(done, B, done + ahead, out.policies, out.returns, trace, log)
        done += B


def _entrance(world: World, noisy: bool, seed: np.random.SeedSequence) -> tuple[Stepper, Any]:
    """The stepper of a world, and its arrays for a fast path (None for an environment)."""
    if isinstance(world, GymnasiumWorld):
        return EnvironmentStepper(world, int(seed.generate_state(1)[0])), None
    return stepper_for(world, noisy=noisy), played_arrays(world)


def played_arrays(world: DriftingWorld) -> Any:
    """What compiled learners play in; None in a box whose feature maps are functions of Python."""
    return world.played_arrays if isinstance(world, LinearKernelCMDP) else world.arrays
