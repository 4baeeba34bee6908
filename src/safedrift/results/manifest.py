"""The manifest of a run: what was run, how, and from which seed. It is typed, and read here."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from safedrift import _check
from safedrift._version import __version__
from safedrift.events import Event
from safedrift.scale import Scale

__all__ = ["LearnerRecord", "Manifest", "Record", "SizesRecord", "read_manifest"]

FORMAT = 2
_GRID_ERROR = ("optimal_reward", "reward", "regret", "utility")


class Record(BaseModel):
    """Plain data: frozen, strict, and without unknown fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, ser_json_inf_nan="constants"
    )


class SizesRecord(Record):
    """Episodes, steps, states, actions, constraints.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> run = sd.simulate(world, sd.learners.make("uniform", world), seed=0)
    >>> run.manifest.sizes
    SizesRecord(M=50, H=10, S=8, A=3, K=1)
    """

    M: int = Field(ge=1)
    H: int = Field(ge=1)
    S: int = Field(ge=1)
    A: int = Field(ge=1)
    K: int = Field(ge=1)


class LearnerRecord(Record):
    """Who learnt: its name, its settings, its notes on the run, and changes that it noticed.

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> run = sd.simulate(world, sd.learners.make("uniform", world), seed=0)
    >>> run.manifest.learner.name, run.manifest.learner.settings
    ('uniform', {'told': []})
    """

    name: str
    settings: dict[str, Any] = {}
    notes: list[str] = []
    events: list[Event] = []


class Manifest(Record):
    """Everything about a run that is not an array.

    Attributes
    ----------
    version : of safedrift
    problem, options : name of the problem and how it was built; None for a world of your own
    environment, reward_range : of a Gymnasium environment, else None
    constraints : names of the K constraints, None where they have only numbers
    scale : units of rewards and constraints (`Scale.record`), None where they are in [0, 1]
    noisy : whether observed rewards and utilities were random around their means
    measure_every : exact values of every n-th episode only
    measure_log : exact values of log-spaced episodes only (`results.measured`), or None
    discretisation : what changes on a grid twice as fine, for states that fill a box

    Examples
    --------
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> run = sd.simulate(world, sd.learners.make("uniform", world), seed=0)
    >>> run.manifest.problem, run.manifest.seed, run.manifest.sizes.M
    ('stationary', 0, 50)
    """

    format: int = FORMAT
    version: str = __version__
    problem: str | None
    options: dict[str, Any] = {}
    environment: str | None = None
    reward_range: list[float] | None = None
    constraints: list[str] | None = None
    scale: dict[str, Any] | None = None
    learner: LearnerRecord
    sizes: SizesRecord
    seed: int = Field(ge=0)
    noisy: bool
    measure_every: int = Field(ge=1)
    measure_log: int | None = Field(default=None, ge=1)
    discretisation: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Manifest:
        """Refuse names, units or a grid error that readers could not use."""
        K, names = self.sizes.K, self.constraints
        if names is not None and len(names) != K:
            raise ValueError(f"constraints must be K = {K} names; got {len(names)}")
        if self.scale is not None:
            try:
                found = len(Scale.from_record(self.scale).names)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise ValueError(f"scale must be a record of units; got {error!r}") from None
            if found != K:
                raise ValueError(f"scale must have K = {K} constraints; got {found}")
        if self.discretisation is not None:
            numbers = [self.discretisation.get(name) for name in _GRID_ERROR]
            nodes = self.discretisation.get("nodes")
            episodes = self.discretisation.get("episodes")
            if (
                not all(isinstance(x, int | float) for x in numbers)
                or not (isinstance(nodes, list) and len(nodes) == 2)
                or not isinstance(episodes, list)
            ):
                raise ValueError("discretisation must be the record of a grid error")
        return self


def read_manifest(source: str, text: str | bytes) -> Manifest:
    """Return the manifest in a JSON text from `source`; one error names what is wrong."""
    try:
        found = Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        what = f"settings whose {place!r} is wrong" if place else "unreadable settings"
        reason = f"one with {what} ({first['msg']})"
        _check.fail(source, "a run written by safedrift", reason)
    if found.format != FORMAT:
        _check.fail(source, f"a run of format {FORMAT}", f"format {found.format}")
    return found
