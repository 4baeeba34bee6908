"""A study: which learners play which worlds, with which seeds. A small YAML file says it.

    episodes: 5000
    seeds: 10                                       # 0, ..., 9; or a list
    problems:
      - maze
      - {name: random, seed: [0, 1], options: {states: [4, 8], drift: linear}}
    learners:
      - uniform
      - {name: propd-ppo, options: {eta: [0.01, 0.1]}}
      - {name: opt-cmdp, options: {bonus_scale: {low: 0.01, high: 1.0, scale: log}}}
    random: {samples: 20, seed: 0}                  # draws from each range above

A list of values is an axis: every value is combined with every value of the others (a value that
is itself a list is written as a list of lists). A range is drawn from, `samples` times. The plan is
problems x learners x seeds, in this order; it depends on the file alone.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from safedrift import _check
from safedrift.adapters.gymnasium_worlds import GymnasiumWorld
from safedrift.experiments.calibration import draw_setting
from safedrift.experiments.entrants import Entrant, entrants, parse_options, parse_value
from safedrift.models import DriftingWorld
from safedrift.problems import PROBLEMS, make
from safedrift.problems import options as options_of
from safedrift.worldfiles.loading import is_file, load
from safedrift.worldfiles.yaml_text import Entry, read

__all__ = ["Place", "Plan", "Study", "plan_of", "read_study", "study_from"]

MOST_SEEDS = 1_000_000
MOST_PLACES = 100_000  # worlds, or learners


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Range(_Part):
    """Numbers to draw from; integers if both ends are."""

    low: int | float
    high: int | float
    scale: Literal["linear", "log"] = "linear"


class ProblemEntry(_Part):
    """A world: a name or a file, its seed or several, its options or several of each."""

    name: str
    seed: int | list[int] = 0
    options: dict[str, Any] = Field(default_factory=dict)


class LearnerEntry(_Part):
    """A learner: a name or FILE.py:NAME, and its options or several of each."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class RandomSearch(_Part):
    """How often ranges are drawn from."""

    samples: int = Field(ge=1, le=MOST_PLACES)
    seed: int = Field(default=0, ge=0)


class Study(_Part):
    """What a study file says; see the module's docstring."""

    episodes: int | None = Field(default=None, ge=1, le=_check.LARGEST)
    seeds: int | list[int] = 1
    noisy: bool = False
    measure_every: int = Field(default=1, ge=1)
    measure_log: int | None = Field(default=None, ge=1)
    problems: list[ProblemEntry] = Field(min_length=1)
    learners: list[LearnerEntry] = Field(min_length=1)
    random: RandomSearch | None = None

    @field_validator("problems", "learners", mode="before")
    @classmethod
    def _names(cls, given: Any) -> Any:
        """A name stands for an entry with nothing else."""
        if not isinstance(given, list):
            return given
        return [{"name": item} if isinstance(item, str) else item for item in given]

    @model_validator(mode="after")
    def _seeds(self) -> Study:
        listed = self.seeds if isinstance(self.seeds, list) else [self.seeds]
        if not listed or min(listed) < 0 or self.seeds == 0:
            raise ValueError("seeds must be a number of seeds >= 1 or a list of seeds >= 0")
        if isinstance(self.seeds, list) and len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds must be different from each other")
        if isinstance(self.seeds, int) and self.seeds > MOST_SEEDS:
            raise ValueError(f"seeds must be at most {MOST_SEEDS:,}")
        return self

    @property
    def seed_list(self) -> Sequence[int]:
        """The seeds of the runs."""
        return self.seeds if isinstance(self.seeds, list) else range(self.seeds)


# ---------------------------------------------------------------- reading


def read_study(path: str | Path) -> Study:
    """Read a study file; one sentence names what is wrong with it."""
    file = Path(path)
    if not file.is_file():
        _check.fail("study", "an existing YAML file", path)
    return study_from(_plain(read(file)), str(path))


def study_from(plain: Any, source: str = "study") -> Study:
    """Return the study that plain data describe; `source` is named in errors."""
    try:
        return Study.model_validate(plain)
    except ValidationError as error:
        first = error.errors()[0]
    place = "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in first["loc"]).lstrip(".")
    if first["type"] == "extra_forbidden":
        known = _keys_at(first["loc"][:-1])
        _check.choice(f"a key in {source}", str(first["loc"][-1]), known)
    if first["type"] == "missing":
        _check.fail(source, f"a study with {place!r}", "one without it")
    said = first["msg"].removeprefix("Value error, ")
    where = f"{place} in {source}" if place else source
    raise ValueError(f"{where} must be right; got {_short(first['input'])} ({said})")


def _keys_at(place: tuple[int | str, ...]) -> tuple[str, ...]:
    """The known keys at a place of a study."""
    inside: dict[str, type[BaseModel]] = {
        "problems": ProblemEntry,
        "learners": LearnerEntry,
        "random": RandomSearch,
    }
    model = inside.get(str(place[0]), Study) if place else Study
    return tuple(model.model_fields)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _plain(entry: Entry) -> Any:
    """Entries of a file as plain data: numbers, true, false, none, words."""
    if isinstance(entry.value, dict):
        return {key: _plain(item) for key, item in entry.value.items()}
    if isinstance(entry.value, list):
        return [_plain(item) for item in entry.value]
    return parse_value(entry.value)


# ---------------------------------------------------------------- the plan


class Place(NamedTuple):
    """One world of a plan, as it is made."""

    label: str
    problem: str
    episodes: int | None
    seed: int
    options: dict[str, Any]

    def build(self) -> DriftingWorld:
        """Return the world."""
        if is_file(self.problem):
            world = load(self.problem, self.episodes)
            if isinstance(world, GymnasiumWorld):
                wanted = "one with a model, so that it has an optimum"
                _check.fail(f"world {self.label}", wanted, "an environment")
            _check.kind("world", world, get_args(DriftingWorld))
            return world
        episodes = 20_000 if self.episodes is None else self.episodes
        return make(self.problem, episodes, self.seed, **self.options)

    @property
    def identity(self) -> dict[str, Any]:
        """Plain data that tells this world from others; of a file, its content counts."""
        content = None
        if is_file(self.problem):
            path = Path(self.problem.partition(":")[0])
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        return {**self._asdict(), "content": content}


class Plan(NamedTuple):
    """All runs of a study; run number i is (world, learner, seed) in this order."""

    study: Study
    places: tuple[Place, ...]
    entrants: tuple[Entrant, ...]

    @property
    def seeds(self) -> Sequence[int]:
        """The seeds of every pair of world and learner."""
        return self.study.seed_list

    @property
    def runs(self) -> int:
        """How many there are."""
        return len(self.places) * len(self.entrants) * len(self.seeds)

    def run(self, i: int) -> tuple[int, int, int]:
        """Return the number of the world, the number of the learner and the seed of run i."""
        pair, seed = divmod(i, len(self.seeds))
        place, entrant = divmod(pair, len(self.entrants))
        return place, entrant, self.seeds[seed]

    def record(self) -> dict[str, Any]:
        """Return plain data that tells this plan from others; contents of files count."""
        plain = {
            "study": self.study.model_dump(),
            "worlds": [place.identity for place in self.places],
            "learners": [entrant.identity | {"label": entrant.label} for entrant in self.entrants],
        }
        return dict(json.loads(json.dumps(plain)))


def plan_of(study: Study) -> Plan:
    """Return the runs of a study; names and options are checked.

    Examples
    --------
    >>> from safedrift.experiments.studies import plan_of, study_from
    >>> study = study_from({"seeds": 3, "problems": [{"name": "maze", "options": {"size": [3, 4]}}],
    ...                     "learners": ["uniform", "opt-cmdp"]})
    >>> plan = plan_of(study)
    >>> plan.runs, [place.label for place in plan.places], plan.run(4)
    (12, ['maze:size=3', 'maze:size=4'], (0, 1, 1))
    """
    places: list[Place] = []
    for number, problem in enumerate(study.problems):
        places += _places(study, problem, number)
    field: list[Entrant] = []
    for number, learner in enumerate(study.learners):
        field += _entrants(study, learner, number)
    for what, found in (("problems", places), ("learners", field)):
        labels = [item.label for item in found]
        if len(labels) > MOST_PLACES:
            _check.fail(what, f"at most {MOST_PLACES:,} in all", f"{len(labels):,}")
        for label in {x for x in labels if labels.count(x) > 1} if len(labels) < 1000 else ():
            _check.fail(what, "different from each other", f"{label!r} twice")
    return Plan(study, tuple(places), tuple(field))


def _places(study: Study, entry: ProblemEntry, number: int) -> Iterator[Place]:
    name, given = _with_options(entry.name, is_file(entry.name))
    options = given | entry.options
    seeds = entry.seed if isinstance(entry.seed, list) else [entry.seed]
    if is_file(name):
        if options or seeds != [0]:
            _check.fail(f"options of {name}", "left out with a file of your own", options or seeds)
    else:
        _check.choice("problem", name, tuple(PROBLEMS))
        known = (*options_of(name), "seed")
        for key in options:
            _check.choice(f"option of {name}", key, known)
    for seed in seeds:
        _check.integer(f"seed of {name}", seed, lower=0)
        for chosen in _combinations(study, options, 0, number, name):
            shown = chosen if seeds == [0] else {"seed": seed, **chosen}
            yield Place(_label(name, shown), name, study.episodes, seed, chosen)


def _entrants(study: Study, entry: LearnerEntry, number: int) -> Iterator[Entrant]:
    """Each learner of an entry; names and options are checked when the specification is read."""
    name, given = _with_options(entry.name, ".py:" in entry.name)
    (plain,) = entrants([name])
    for chosen in _combinations(study, given | entry.options, 1, number, name):
        if ".py:" not in name:
            entrants([_label(name, dict.fromkeys(chosen, 0))])  # whether there are such options
        yield Entrant(_label(plain.label, chosen), plain.source, chosen)


def _with_options(name: str, file: bool) -> tuple[str, dict[str, Any]]:
    """A name and the options written behind it, as on the command line."""
    if file:
        return name, {}
    short, _, text = name.partition(":")
    return short, parse_options(name, text)


def _combinations(
    study: Study, options: Mapping[str, Any], kind: int, number: int, name: str
) -> Iterator[dict[str, Any]]:
    """All combinations of the values of options; draws from ranges, if there are any."""
    ranges, axes = {}, {}
    for key, value in options.items():
        if isinstance(value, dict):
            ranges[key] = _range(f"option {key} of {name}", value)
        else:
            axes[key] = value if isinstance(value, list) else [value]
            if not axes[key]:
                _check.fail(f"option {key} of {name}", "at least one value", "an empty list")
    drawn: list[dict[str, Any]] = [{}]
    if ranges:
        if study.random is None:
            _check.fail("the study", "one with 'random' for ranges to be drawn from", "none")
        rng = np.random.default_rng([study.random.seed, kind, number])
        drawn = [draw_setting(name, ranges, rng) for _ in range(study.random.samples)]
    for setting in drawn:
        for values in itertools.product(*axes.values()):
            yield {**dict(zip(axes, values, strict=True)), **setting}


def _range(name: str, plain: dict[str, Any]) -> tuple[Any, Any, str]:
    try:
        found = Range.model_validate(plain)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        close = difflib.get_close_matches(key, Range.model_fields, 1)
        meant = f"; did you mean {close[0]!r}?" if close and close[0] != key else ""
        wanted = "a range with low, high and scale (linear or log)"
        _check.fail(name, wanted, f"{key!r} in it ({first['msg']}{meant})")
    return found.low, found.high, found.scale


def _label(name: str, chosen: Mapping[str, Any]) -> str:
    """A name with options, as it is typed."""
    if not chosen:
        return name
    return f"{name}:" + ",".join(f"{key}={_word(value)}" for key, value in chosen.items())


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | None | list) else str(value)
