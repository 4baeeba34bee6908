"""Hypothesis profile, small random worlds, each kernel compiled once, an audit of every run."""

import gc
from functools import wraps

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from numba.core.caching import NullCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

import safedrift as sd
from safedrift import DriftingCMDP, Successors, TabularCMDP

# Same examples on every machine, no files left behind, and compiling is not a timeout.
settings.register_profile("safedrift", deadline=None, derandomize=True, database=None)
settings.load_profile("safedrift")


def random_transitions(rng, H, S, A, successors=None):
    """Dense (H, S, A, S), with at most `successors` states after each pair."""
    P = rng.dirichlet(np.ones(S), (H, S, A))
    if successors is not None:
        keep = rng.random((H, S, A, S)).argsort(axis=-1) < successors
        P = np.where(keep, P, 0)
        P /= P.sum(axis=-1, keepdims=True)
    return P


def random_cmdp(rng, H=3, S=4, A=3, K=1, *, b=None, successors=None, initial=None):
    """Uniform rewards and utilities; thresholds H/2 and a random start unless given."""
    return TabularCMDP(
        random_transitions(rng, H, S, A, successors),
        rng.random((H, S, A)),
        rng.random((K, H, S, A)),
        np.full(K, H / 2) if b is None else b,
        rng.dirichlet(np.ones(S)) if initial is None else initial,
    )


def random_scenarios(rng, N, H=3, S=4, A=3, K=1, **options):
    """N worlds that share a start, as a DriftingCMDP wants them, with thresholds of their own."""
    initial = options.pop("initial", rng.dirichlet(np.ones(S)))
    return [
        random_cmdp(rng, H, S, A, K, b=H * rng.uniform(0.2, 0.6, K), initial=initial, **options)
        for _ in range(N)
    ]


def dense(cmdp):
    """(P, r, g, b, initial) as plain dense arrays, for the twins in naive.py."""
    return cmdp.dense_transitions(), cmdp.rewards, cmdp.utilities, cmdp.thresholds, cmdp.initial


def as_lists(P):
    """Dense transitions as `Successors`, row by row."""
    H, S, A, _ = P.shape
    offsets, states, probabilities = [0], [], []
    for row in P.reshape(H * S * A, S):
        states += list(np.flatnonzero(row))
        probabilities += list(row[row > 0])
        offsets.append(len(states))
    return Successors(np.array(offsets), np.array(states), np.array(probabilities))


def rebuilt(cmdp, **changes):
    """The same CMDP with some fields replaced (and checked again)."""
    names = ("transitions", "rewards", "utilities", "thresholds", "initial")
    return TabularCMDP(**({name: getattr(cmdp, name) for name in names} | changes))


@st.composite
def drifting_worlds(draw, K=1):
    """Small worlds on arbitrary paths, one path for each of P, r and g; sparse or dense."""
    H, S, A, N, M = (draw(st.integers(1, top)) for top in (3, 4, 3, 4, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scenarios = random_scenarios(rng, N, H, S, A, K, successors=draw(st.integers(1, S)))
    paths = [_path(draw, rng, M, N) for _ in range(4)]
    names = ("transition_weights", "reward_weights", "utility_weights")
    own = {name: path for name, path in zip(names, paths, strict=False) if draw(st.booleans())}
    return DriftingCMDP(scenarios, paths[3], **own)


def _path(draw, rng, M, N):
    """One-hot rows, interior points of the simplex, or a mixture; some episodes repeat."""
    weights = rng.dirichlet(np.ones(N), M)
    for m in range(M):
        kind = draw(st.sampled_from(("corner", "inside", "repeat")))
        if kind == "corner":
            weights[m] = np.eye(N)[rng.integers(N)]
        elif kind == "repeat" and m > 0:
            weights[m] = weights[rng.integers(m)]
    return weights


# ---------------------------------------------------------------- each kernel is compiled once

try:
    from fcntl import LOCK_EX, flock
except ImportError:  # Windows: workers compile what they need, each on its own
    flock = None


@pytest.fixture(scope="session", autouse=True)
def kernels_compiled_once(pytestconfig, tmp_path_factory):
    """The workers of a run wait for each other's kernels, and take them from the cache."""
    if hasattr(pytestconfig, "workerinput") and flock is not None:
        folder = tmp_path_factory.getbasetemp().parent / "kernels"  # one for all workers
        folder.mkdir(exist_ok=True)
        Dispatcher.compile = one_at_a_time(Dispatcher.compile, folder)


def one_at_a_time(compile_kernel, folder):
    """`Dispatcher.compile`, but of a kernel that another process compiles and keeps, its result.

    Kernels wait for what they call, never the other way round, so nobody waits for ever.
    """

    @wraps(compile_kernel)
    def compile_or_wait(dispatcher, signature):
        if isinstance(dispatcher._cache, NullCache):
            return compile_kernel(dispatcher, signature)
        function = dispatcher.py_func
        name = f"{function.__module__}.{function.__qualname__}"
        with global_compiler_lock, open(folder / name, "w") as lock:  # threads: Numba's lock first
            flock(lock, LOCK_EX)
            return compile_kernel(dispatcher, signature)

    return compile_or_wait


# Compiling makes millions of objects, of which few are garbage: looking for it less often saves a
# tenth of the time. Tests that count objects call the collector themselves.
gc.set_threshold(100_000, 20, 50)


def pytest_collection_finish():
    """What is there now, tests and modules, stays to the end: the collector need not look at it."""
    gc.collect()
    gc.freeze()


# ---------------------------------------------------------------- every run is certified

MOST_AUDITED = 2.5e7  # M*H*S*A of a run, beyond which its audit takes too long for a test


def pytest_addoption(parser):
    parser.addoption("--audit", action="store_true", help="certify every run that a test simulates")


@pytest.fixture(autouse=True)
def certified_runs(request, monkeypatch):
    """With --audit: whatever a test simulates, the identities of the paper's proofs hold on it."""
    if not request.config.getoption("--audit"):
        return
    simulate = sd.simulate

    @wraps(simulate)
    def audited(world, learner, *arguments, **options):
        run = simulate(world, learner, *arguments, **options)
        size = run.truth.known * world.M * world.H * world.S * world.A
        certified = isinstance(world, sd.DriftingCMDP | sd.LinearKernelCMDP)
        certified &= isinstance(learner, sd.PROPDPPO) and getattr(world, "box", None) is None
        certified = certified and isinstance(learner.forgetting, sd.learners.Periodic)
        if certified and size <= MOST_AUDITED:
            found = run.certify(world)
            assert found.identities_hold, str(found)
        return run

    for module in (sd, request.module):
        if getattr(module, "simulate", None) is simulate:
            monkeypatch.setattr(module, "simulate", audited)
