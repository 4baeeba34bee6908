"""The rules of the learner protocol, checked on a learner: `check_learner(build)`.

sizes, settings     agree with the problem; settings are plain data
policies            begin_episode returns distributions (H, S, A)
acting              act(h, state, u) is a function of u and draws from the returned policy
seeding             fresh(seed) starts from nothing; same seed, same actions
simulation          an episode-by-episode loop and `simulate` give the same numbers
checkpoints         state and restore continue as if never interrupted
constraints         several constraints work, or are refused by a clear error
bad input           raises ValueError or TypeError
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift._check import FloatArray
from safedrift.experiments.playing import play_episode
from safedrift.experiments.simulation import check_learner_type, simulate
from safedrift.experiments.streams import seeds
from safedrift.learners import Learner, Trajectory
from safedrift.models import DriftingWorld
from safedrift.models.stepping import stepper_for, uniforms_per_episode
from safedrift.problems import make

__all__ = ["ContractError", "check_learner"]

_GRID = 1000  # uniforms at which acting is compared with the policy, in every fifth episode
_COARSE = 100  # in the others
_SEED = 7


class ContractError(Exception):
    """A learner breaks a rule of the protocol; the message names the rule.

    Examples
    --------
    >>> import safedrift as sd
    >>> from safedrift.experiments import ContractError
    >>> class Restless(sd.learners.CheckedLearner):
    ...     def act(self, h, state, u=None):
    ...         return 0  # whatever u is, and whatever policy it returned
    ...     def fresh(self, seed=0):
    ...         return Restless(self.algorithm.fresh(seed), seed)
    >>> def build(world):
    ...     return Restless(sd.learners.make("uniform", world).algorithm)
    >>> try:
    ...     sd.check_learner(build)
    ... except ContractError as error:
    ...     print(error)
    acting: expected actions drawn from the policy [0.3333, 0.3333, 0.3333]; got [1.0, 0.0, 0.0]
    """


def check_learner(
    build: Callable[[Any], Learner], *, world: DriftingWorld | None = None, episodes: int = 60
) -> None:
    """Check that a learner keeps the rules of `safedrift.Learner`.

    Parameters
    ----------
    build
        Makes a learner for a problem: build(world) -> learner. The problem has M, H, S, A, K and
        `initial`.
    world
        Where to check it; by default two small random worlds, with one and with two constraints.
    episodes
        Of the default worlds.

    Raises
    ------
    ContractError
        With the rule that is broken, what was expected and what was found.

    Examples
    --------
    >>> import safedrift as sd
    >>> sd.check_learner(lambda world: sd.PROPDPPO.for_problem(world, sd.Slater(gamma=0.3)))
    """
    if world is not None:
        _check_in(world, build(world))
        return
    options: dict[str, Any] = {"states": 4, "actions": 3, "horizon": 3, "gamma": 0.3}
    one = make("random", episodes, 1, **options)
    _check_in(one, build(one))
    two = make("random", episodes, 2, **options, constraints=2)
    try:
        learner = build(two)
    except (ValueError, TypeError) as error:
        text = str(error).lower()
        _require(
            "constraint" in text or "K" in str(error),
            "constraints",
            "a refusal of K = 2 that mentions constraints or K",
            str(error),
        )
    else:
        _check_in(two, learner)


def _check_in(world: DriftingWorld, learner: Learner) -> None:
    """Check every rule in one world."""
    _check_sizes(world, learner)
    _check_policies_and_acting(world, learner.fresh(_SEED))
    _check_seeding(world, learner)
    _check_simulation(world, learner)
    _check_checkpoints(world, learner)
    _check_bad_input(world, learner)


def _require(holds: bool, rule: str, expected: str, found: object) -> None:
    if not holds:
        raise ContractError(f"{rule}: expected {expected}; got {found}")


# ---------------------------------------------------------------- one rule each


def _check_sizes(world: DriftingWorld, learner: Learner) -> None:
    check_learner_type(learner)
    _require(isinstance(learner.name, str), "name", "a string", repr(learner.name))
    for name in ("H", "S", "A", "K"):
        wanted, got = getattr(world, name), getattr(learner.sizes, name)
        _require(wanted == got, f"sizes.{name}", str(wanted), got)
    try:
        again = json.loads(json.dumps(learner.settings()))
    except (TypeError, ValueError) as error:
        raise ContractError(f"settings: expected plain data (JSON); got {error}") from None
    _require(isinstance(again, dict), "settings", "a dict", type(again).__name__)


def _check_policies_and_acting(world: DriftingWorld, learner: Learner) -> None:
    rng = np.random.default_rng(0)
    for m in range(min(world.M, 20)):
        n = _GRID if m % 5 == 4 else _COARSE
        grid = (np.arange(n) + 0.5) / n
        policy = np.asarray(learner.begin_episode(world.thresholds[m]), float)
        shape = (world.H, world.S, world.A)
        _require(policy.shape == shape, "policies", f"shape {shape}", policy.shape)
        off = float(np.abs(policy.sum(axis=-1) - 1).max())
        _require(
            bool((policy >= 0).all()) and off < 1e-9,
            "policies",
            "distributions over actions",
            f"sums that miss 1 by {off:.3g}",
        )
        for h in range(world.H):
            s = int(rng.integers(world.S))
            drawn = [learner.act(h, s, float(u)) for u in grid]
            whole = all(isinstance(a, int | np.integer) and 0 <= a < world.A for a in drawn)
            _require(whole, "acting", f"integers from 0 to {world.A - 1}", drawn[:3])
            again = [learner.act(h, s, float(u)) for u in grid[:: n // 20]]
            _require(
                again == drawn[:: n // 20],
                "acting",
                "the same action for the same u",
                "another one",
            )
            share = np.bincount(drawn, minlength=world.A) / n
            _require(
                bool((np.abs(share - policy[h, s]) <= 1.5 / n).all()),
                "acting",
                f"actions drawn from the policy {policy[h, s].round(4).tolist()}",
                share.tolist(),
            )
        learner.end_episode(_random_episode(world, rng))


def _random_episode(world: DriftingWorld, rng: np.random.Generator) -> Trajectory:
    H, K = world.H, world.K
    return Trajectory(
        rng.integers(0, world.S, H), rng.integers(0, world.A, H), rng.random(H), rng.random((K, H))
    )


def _check_seeding(world: DriftingWorld, learner: Learner) -> None:
    before = _state(learner)
    one, two = (_own_actions(world, learner.fresh(_SEED)) for _ in range(2))
    _require(one == two, "seeding", "the same actions from the same seed", "others")
    trained = learner.fresh(_SEED)
    first = np.asarray(trained.begin_episode(world.thresholds[0]), float).copy()
    trained.end_episode(_random_episode(world, np.random.default_rng(1)))
    for m in range(1, 8):
        trained.begin_episode(world.thresholds[m])
        trained.end_episode(_random_episode(world, np.random.default_rng(m)))
    fresh = np.asarray(trained.fresh(_SEED).begin_episode(world.thresholds[0]), float)
    _require(
        np.array_equal(first, fresh), "seeding", "fresh to have nothing learnt", "another policy"
    )
    _require(_equal(before, _state(learner)), "seeding", "fresh to copy", "a changed original")


def _own_actions(world: DriftingWorld, learner: Learner) -> list[int]:
    """Actions that the learner draws with its own generator."""
    rng, actions = np.random.default_rng(2), []
    for m in range(5):
        learner.begin_episode(world.thresholds[m])
        actions += [int(learner.act(h, int(rng.integers(world.S)))) for h in range(world.H)]
        learner.end_episode(_random_episode(world, rng))
    return actions


def _check_simulation(world: DriftingWorld, learner: Learner) -> None:
    before = _state(learner)
    run, again = (simulate(world, learner, _SEED) for _ in range(2))
    _require(
        _equal(run.columns(), again.columns()),
        "simulation",
        "the same numbers from the same seed",
        "others",
    )
    _require(
        _equal(before, _state(learner)), "simulation", "the learner unchanged", "a changed one"
    )
    policies, trace = _play(world, learner.fresh(seeds(_SEED)["learner"]))
    _require(
        run.policy is not None and np.array_equal(policies[-1], run.policy),
        "simulation",
        "the same policies as episode by episode",
        "others",
    )
    _require(
        _equal(trace, run.trace), "simulation", "the same trace as episode by episode", "another"
    )


def _play(
    world: DriftingWorld, learner: Learner, first: int = 0, last: int | None = None
) -> tuple[FloatArray, dict[str, NDArray[Any]]]:
    """Play episodes first .. last - 1 one by one, as `simulate` would; policies and trace."""
    stepper = stepper_for(world)
    streams = {name: np.random.default_rng(seed) for name, seed in seeds(_SEED).items()}
    draws = uniforms_per_episode(world.H, world.K, stepper.next_draws)
    actions_u = streams["learner"].random((world.M, world.H))
    world_u = streams["world"].random((world.M, draws))
    policies, rows = [], []
    for m in range(first, world.M if last is None else last):
        policies.append(np.array(learner.begin_episode(world.thresholds[m]), float))
        learner.end_episode(play_episode(learner, stepper, m, actions_u[m], world_u[m]))
        rows.append({name: np.array(value) for name, value in learner.trace().items()})
    trace = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return np.stack(policies), trace


def _check_checkpoints(world: DriftingWorld, learner: Learner) -> None:
    middle = world.M // 2
    whole = learner.fresh(_SEED)
    _play(world, whole, 0, middle)
    saved = _stored(whole.state())
    continued = learner.fresh(_SEED + 1)
    continued.restore(saved)
    for values in saved.values():  # what was handed over is copied, not kept
        if values.flags.writeable:
            values[...] = 0
    one, other = (_play(world, x, middle) for x in (whole, continued))
    _require(
        np.array_equal(one[0], other[0]),
        "checkpoints",
        "the policies of an uninterrupted learner after restore",
        "others",
    )
    _require(
        _equal(one[1], other[1]),
        "checkpoints",
        "the trace of an uninterrupted learner after restore",
        "another",
    )
    one_more, other_more = learner.fresh(_SEED), learner.fresh(_SEED + 1)
    other_more.restore(_stored(one_more.state()))
    drawn = []
    for x in (one_more, other_more):
        x.begin_episode(world.thresholds[0])
        drawn.append([int(x.act(h, s)) for _ in range(20) for h, s in np.ndindex(world.H, world.S)])
    _require(
        drawn[0] == drawn[1], "checkpoints", "the generator's state to be kept", "other actions"
    )


def _stored(state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """A state through a file of arrays and back, without pickle."""
    file = io.BytesIO()
    try:
        np.savez(file, **dict(state))  # type: ignore[arg-type]
        file.seek(0)
        with np.load(file, allow_pickle=False) as read:
            return {name: read[name] for name in read.files}
    except (TypeError, ValueError) as error:
        raise ContractError(f"checkpoints: expected state() to be arrays; got {error}") from None


def _check_bad_input(world: DriftingWorld, learner: Learner) -> None:
    H, K = world.H, world.K
    good = _random_episode(world, np.random.default_rng(3))
    states, actions = np.asarray(good.states), np.asarray(good.actions)
    bad: dict[str, Callable[[Learner], object]] = {
        f"thresholds of shape ({K + 1},)": lambda x: x.begin_episode(np.ones(K + 1)),
    }
    for what, change in {
        "an episode of H - 1 steps": {"states": states[:-1]},
        "a state that does not exist": {"states": np.full(H, world.S)},
        "an action that does not exist": {"actions": np.full(H, world.A)},
        "a negative action": {"actions": np.full(H, -1)},
        "a reward that is NaN": {"rewards": np.full(H, np.nan)},
        "utilities of another shape": {"utilities": np.ones((K + 1, H))},
        "actions that are no integers": {"actions": actions + 0.5},
    }.items():
        bad[what] = _ending(world.thresholds[0], good._replace(**change))
    for what, call in bad.items():
        try:
            call(learner.fresh(_SEED))
        except (ValueError, TypeError):
            continue
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            raise ContractError(
                f"bad input: expected ValueError or TypeError for {what}; got {found}"
            ) from error
        raise ContractError(f"bad input: expected ValueError or TypeError for {what}; got none")


def _ending(thresholds: FloatArray, episode: Trajectory) -> Callable[[Learner], object]:
    def call(learner: Learner) -> None:
        learner.begin_episode(thresholds)
        learner.end_episode(episode)

    return call


# ---------------------------------------------------------------- comparing


def _state(learner: Learner) -> dict[str, NDArray[Any]]:
    found = {name: np.array(values) for name, values in learner.state().items()}
    for name, values in found.items():
        _require(values.dtype != object, "checkpoints", f"numbers in state()[{name!r}]", "objects")
    return found


def _equal(one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f")
        for name in one
    )
