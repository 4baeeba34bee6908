"""Who imports whom: rooms in one direction, no cycles, no module hidden by a function."""

import ast
import importlib
import pkgutil
from functools import cache
from pathlib import Path

import pytest

import safedrift
from safedrift.problems import PROBLEMS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "safedrift"

# Rooms from the bottom to the top; each may import from itself and from the rooms below it ...
ORDER = (
    "_version", "_late", "_check", "_files", "knowledge", "scale", "events", "results", "kernels",
    "planning", "learners", "gpu", "models", "oracles", "theory", "adapters", "display", "problems",
    "worldfiles", "experiments", "reports", "watching", "cli",
)  # fmt: skip
# ... except for these, which they reach neither directly nor through others.
NEVER = {
    "learners": {"results"},
    "gpu": {"planning", "results"},
    "models": {"learners", "gpu", "planning", "results"},
    "adapters": {"learners", "planning", "oracles", "theory", "results"},
    "problems": {"learners", "theory"},
    "worldfiles": {"learners", "planning", "oracles", "theory", "results"},
    "reports": {
        "kernels",
        "planning",
        "learners",
        "gpu",
        "models",
        "oracles",
        "experiments",
        "problems",
    },
}
# The top of the package puts the rooms together: whoever imports a name from it imports them all.
TOP = "safedrift"


def module_name(file):
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module):
    return module.split(".")[1] if "." in module else TOP


@cache
def modules():
    return {module_name(file): file for file in sorted(SOURCE.rglob("*.py"))}


def imports_in(tree, package):
    """Modules of safedrift that a tree imports; inside functions and for types only, too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == TOP}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            if base.split(".")[0] != TOP:
                continue
            inside = [f"{base}.{alias.name}" for alias in node.names]
            found |= {name if name in modules() else base for name in inside}
    return found


@cache
def graph():
    """module -> modules it imports; the top of the package and __main__ are left out."""
    found = {}
    for name, file in modules().items():
        if name in (TOP, f"{TOP}.__main__"):
            continue
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        found[name] = imports_in(ast.parse(file.read_text(encoding="utf-8")), package)
    found["safedrift.problems"] |= {module.__name__ for module in PROBLEMS.values()}  # by name
    return found


def reached_from(module):
    """Everything that a module imports, directly or through others."""
    seen, ahead = set(), [module]
    while ahead:
        for name in graph().get(ahead.pop(), ()):
            if name not in seen:
                seen.add(name)
                ahead.append(name)
    return seen


def test_every_module_is_in_a_room():
    assert {room_of(name) for name in graph()} == set(ORDER)


@pytest.mark.parametrize("room", [room for room in ORDER if room != "cli"])
def test_rooms_import_downwards(room):
    below = set(ORDER[: ORDER.index(room) + 1])
    for module, imported in graph().items():
        if room_of(module) == room:
            wrong = {name for name in imported if room_of(name) not in below}
            assert not wrong, module


@pytest.mark.parametrize("room", NEVER)
def test_rooms_never_reach(room):
    for module in graph():
        if room_of(module) == room:
            wrong = {name for name in reached_from(module) if room_of(name) in NEVER[room]}
            assert not wrong, module


def test_there_is_no_cycle():
    for module in graph():
        assert module not in reached_from(module), module


def test_no_module_is_hidden_by_a_function_of_its_name():
    for found in pkgutil.walk_packages(safedrift.__path__, "safedrift."):
        if found.name.endswith("__main__"):
            continue
        package, _, name = found.name.rpartition(".")
        module = importlib.import_module(found.name)
        assert getattr(importlib.import_module(package), name) is module, found.name


def test_the_way_of_an_episode_in_the_guide_names_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walk = text.partition("## The way of an episode")[2].partition("\n## ")[0]
    files = [line.split("`")[1] for line in walk.splitlines() if line[:1].isdigit()]
    assert 8 <= len(files) <= 14
    for file in files:
        assert (ROOT / file).is_file(), file


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import safedrift.models.drift", {"safedrift.models.drift"}),
        ("import safedrift as sd", {"safedrift"}),
        ("from safedrift import solve", {"safedrift"}),
        ("from safedrift import _check, models", {"safedrift._check", "safedrift.models"}),
        ("from safedrift.oracles.optimality import Optima", {"safedrift.oracles.optimality"}),
        ("from ..oracles import solve", {"safedrift.oracles"}),
        ("from . import forgetting", {"safedrift.learners.forgetting"}),
        ("if TYPE_CHECKING:\n    from safedrift.models import DriftingCMDP", {"safedrift.models"}),
        ("def f():\n    import safedrift.reports", {"safedrift.reports"}),
        ("import numpy, safedriftier", set()),
    ],
)
def test_imports_are_found_wherever_they_are(text, found):
    assert imports_in(ast.parse(text), "safedrift.learners") == found
