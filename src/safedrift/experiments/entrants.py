"""Who enters a comparison: a learner by specification.

    uniform                          a named learner (`safedrift.learners.LEARNERS`)
    propd-ppo:eta=0.1,mode=printed   with options
    my_file.py:MyLearner             a function or class of yours that takes the world
    optimum                          an oracle (`experiments.reference_points`)

In Python also a callable that takes the world, with a label: {"mine": build}.

What a learner must be told and the specification leaves open comes from the truth, and results
record it: `gamma` is the smallest Slater gap, `safe_policy`, `safe_utility` are the safest policy
of episode 0 and its utilities. A learner that plays without being told is not told. An option
`noisy` says whether signals are Bernoulli.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.experiments.playing import World
from safedrift.experiments.reference_points import ORACLES
from safedrift.experiments.simulation import check_learner_type, check_sizes
from safedrift.learners import LEARNERS, Learner, make, options
from safedrift.models import DriftingWorld
from safedrift.planning import plan

__all__ = ["Entrant", "entrants", "parse_options", "parse_value", "safest_policy", "tunable"]

Build = Callable[..., Learner]


@dataclass(frozen=True)
class Entrant:
    """A learner that can be built for any world it can play in.

    Attributes
    ----------
    label : unique in a comparison
    source : name of a learner or oracle, FILE.py:NAME, or a callable
    chosen : options that the specification gives
    tuned : options that a search found; None: not tuned
    """

    label: str
    source: str | Build
    chosen: Mapping[str, Any] = field(default_factory=dict)
    tuned: Mapping[str, Any] | None = None

    @property
    def oracle(self) -> bool:
        """Whether it is told the truth."""
        return self.source in ORACLES

    @property
    def options(self) -> dict[str, Any]:
        """Options given and found."""
        return {**self.chosen, **(self.tuned or {})}

    @property
    def identity(self) -> dict[str, Any]:
        """Plain data that tells this learner from others; of a file, its content counts."""
        content = None
        if isinstance(self.source, str) and ".py:" in self.source:
            content = hashlib.sha256(_path_of(self.source).read_bytes()).hexdigest()
        name = self.source if isinstance(self.source, str) else f"callable {self.label}"
        return {"source": name, "content": content, "options": self.options}

    def with_tuned(self, found: Mapping[str, Any]) -> Entrant:
        """Return the same learner with options that a search found."""
        return replace(self, tuned=dict(found))

    def build(self, world: DriftingWorld, gamma: float, noisy: bool) -> Learner:
        """Return the learner for a world whose smallest Slater gap is `gamma`."""
        if self.oracle:
            learner: Learner = ORACLES[str(self.source)](world)
            check_sizes(world, learner)
            return learner
        try:
            return self.build_untold(world, noisy)
        except TypeError:
            named = isinstance(self.source, str) and self.source in LEARNERS
            known = options(str(self.source)) if named else {}
            told = {key: tell(world, gamma) for key, tell in TOLD.items()
                    if key in known and key not in self.options}  # fmt: skip
            if not told:
                raise
        return self.build_untold(world, noisy, **told)

    def build_untold(self, world: World, noisy: bool, **told: Any) -> Learner:
        """Return the learner for a problem of which it knows what its options and `told` say."""
        given = {**self.options, **told}
        if isinstance(self.source, str) and self.source in LEARNERS:
            if "noisy" in options(self.source):
                given = {"noisy": noisy} | given
            learner: Learner = make(self.source, world, **given)
        else:
            made = _callable_in(self.source) if isinstance(self.source, str) else self.source
            learner = made(world, **given)
        check_learner_type(learner)
        check_sizes(world, learner)
        return learner


# ---------------------------------------------------------------- what is told


def _gap(world: DriftingWorld, gamma: float) -> float:
    if gamma <= 0:
        _check.fail("the smallest Slater gap of the world", "> 0 for this learner", f"{gamma:.4g}")
    return gamma


TOLD: dict[str, Callable[[DriftingWorld, float], Any]] = {
    "gamma": _gap,
    "safe_policy": lambda world, gamma: safest_policy(world)[0],
    "safe_utility": lambda world, gamma: safest_policy(world)[1],
}
"""Options that a comparison fills in, from a world and its smallest Slater gap."""


def safest_policy(world: DriftingWorld) -> tuple[FloatArray, FloatArray]:
    """Return the policy of episode 0 with the largest least slack, and its utilities (K,)."""
    today = world.at(0)
    out_of_reach = today.thresholds + world.H + 1.0  # the planner then looks for the least evil
    found = plan(today.transitions, today.rewards, today.utilities, out_of_reach, today.initial)
    return found.policy, found.utilities


# ---------------------------------------------------------------- specifications


def entrants(learners: Iterable[Any] | Mapping[str, Any]) -> list[Entrant]:
    """Return the learners of a comparison, checked: names exist, options exist, labels differ."""
    if isinstance(learners, str) or not isinstance(learners, Iterable):
        raise TypeError(f"learners must be a list of learners; got {learners!r}")
    pairs = learners.items() if isinstance(learners, Mapping) else ((None, x) for x in learners)
    found = [_entrant(label, source) for label, source in pairs]
    if not found:
        _check.fail("learners", "at least one", "none")
    if not isinstance(learners, Mapping):
        _check_distinct(found)
    return found


def _check_distinct(found: list[Entrant]) -> None:
    """Refuse a label, or a source with the same options, that occurs twice."""
    seen: set[str] = set()
    for entrant in found:
        chosen = sorted(entrant.chosen.items(), key=str)
        marks = {entrant.label, f"{entrant.source} {chosen}"}
        if marks & seen:
            _check.fail("learners", "different from each other", f"{entrant.label!r} twice")
        seen |= marks


def _entrant(label: str | None, source: Any) -> Entrant:
    if isinstance(source, Entrant):
        return source if label is None else replace(source, label=label)
    if callable(source):
        name = getattr(source, "__name__", type(source).__name__) if label is None else label
        return Entrant(name, source)
    if not isinstance(source, str):
        what = "a learner must be a name, FILE.py:NAME or a callable that takes the world"
        raise TypeError(f"{what}; got {source!r}")
    if ".py:" in source:
        _callable_in(source)
        return Entrant(label or _short(source), source)
    name, _, text = source.partition(":")
    _check.choice("learner", name, (*LEARNERS, *ORACLES))
    chosen = parse_options(source, text)
    known = tuple(options(name)) if name in LEARNERS else ()
    for option in chosen:
        if not known:
            _check.fail(f"{name}", "without options; it has none", repr(option))
        _check.choice(f"option of {name}", option, known)
    return Entrant(label or source, name, chosen)


def _short(source: str) -> str:
    """FILE.py:NAME without its folder."""
    path, _, name = source.rpartition(":")
    return f"{Path(path).name}:{name}"


def parse_options(source: str, text: str) -> dict[str, Any]:
    """Return the options in "name=value,name=value"; `source` is named in errors.

    Examples
    --------
    >>> from safedrift.experiments.entrants import parse_options
    >>> parse_options("", "forgetting=sliding,W=300,bonus=0.5,lagged=true")
    {'forgetting': 'sliding', 'W': 300, 'bonus': 0.5, 'lagged': True}
    """
    parsed: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        name, sign, value = item.partition("=")
        if not sign or not name or not value:
            _check.fail(f"options of {source!r}", "NAME=VALUE,NAME=VALUE", repr(item))
        if name in parsed:
            _check.fail(f"option {name} of {source!r}", "given once", "twice")
        parsed[name] = parse_value(value)
    return parsed


def parse_value(text: str) -> Any:
    """Return an integer, a number, True, False, None or the word itself."""
    words: dict[str, Any] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# ---------------------------------------------------------------- files of one's own


def _path_of(source: str) -> Path:
    return Path(source.rpartition(":")[0])


def _module_of(source: str) -> ModuleType:
    """The module in a Python file; it may import modules beside it."""
    path = _path_of(source)
    if not path.is_file():
        _check.fail("learner", "a name or FILE.py:NAME of an existing file", repr(source))
    name = f"safedrift_learner_{path.stem}_{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        _check.fail("learner", "FILE.py:NAME of a Python file", repr(source))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        with redirect_stdout(sys.stderr):  # keeps stdout for results
            spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        text = " ".join(str(error).split())
        raise ValueError(
            f"{path} must be a Python file that can be imported; got {type(error).__name__}: {text}"
        ) from error
    finally:
        sys.path.remove(folder)
    return module


def _callable_in(source: str) -> Build:
    """The function or class of FILE.py:NAME."""
    module, name = _module_of(source), source.rpartition(":")[2]
    found = getattr(module, name, None)
    if not callable(found):
        public = [
            key
            for key, value in vars(module).items()
            if callable(value) and not key.startswith("_") and not inspect.isbuiltin(value)
        ]
        _check.choice(f"a learner in {_path_of(source)}", name, public)
        _check.fail(f"{name} in {_path_of(source)}", "callable", repr(found))
    made: Build = found
    return made


def tunable(entrant: Entrant) -> dict[str, Any]:
    """Return the ranges of the options that a search may choose: `TUNABLE` beside the learner.

    An option that the specification gives is left alone.
    """
    ranges: dict[str, Any] = {}
    if isinstance(entrant.source, str) and entrant.source in LEARNERS:
        ranges = getattr(LEARNERS[entrant.source], "TUNABLE", {})
    elif isinstance(entrant.source, str) and ".py:" in entrant.source:
        ranges = getattr(_module_of(entrant.source), "TUNABLE", {})
    return {name: choice for name, choice in ranges.items() if name not in entrant.chosen}
