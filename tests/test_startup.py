"""What is loaded, and what is not, before anything is asked for. No clock is looked at."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import safedrift as sd
from safedrift import _late

HEAVY = {
    "numba", "llvmlite", "scipy", "plotly", "matplotlib", "PIL", "pyarrow", "pydantic", "yaml",
    "safedrift.kernels", "safedrift.models", "safedrift.learners", "safedrift.experiments",
}  # fmt: skip
LISTING = "import sys; print(*sys.modules, file=sys.stderr)"


def loaded_by(code):
    """Modules that a new process has loaded at the end."""
    command = [sys.executable, "-c", f"{code}\n{LISTING}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


HELP = """
from safedrift.cli import app
try:
    app(["--help"], prog_name="safedrift")
except SystemExit:
    pass
"""


@pytest.mark.parametrize("code", ["import safedrift", HELP], ids=["import", "help"])
def test_nothing_heavy_is_loaded(code):
    assert not loaded_by(code) & HEAVY


def test_rich_is_loaded_by_the_command_only():
    assert "rich" not in loaded_by("import safedrift")


def test_a_simulation_loads_neither_statistics_nor_pictures_nor_files():
    code = """
import safedrift as sd
from safedrift import _late
world = sd.problems.make("random", episodes=2)
sd.simulate, sd.compare, sd.learners.make("uniform", world)
"""
    heavy = {"scipy.stats", "scipy.optimize", "plotly", "matplotlib", "PIL", "rich"}
    assert not loaded_by(code) & heavy


def test_named_worlds_are_registered_by_the_import_whichever_comes_first():
    for first, second in (("gymnasium", "safedrift"), ("safedrift", "gymnasium")):
        code = f'import {first}, {second}\ngymnasium.spec("safedrift/maze-v0")'
        assert "safedrift" in loaded_by(code)


def test_every_public_name_is_there_and_listed():
    for name in sd.__all__:
        assert getattr(sd, name) is not None
    assert set(sd.__all__) <= set(dir(sd))
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = sd.simulat
    with pytest.raises(ImportError):
        from safedrift import simulat  # noqa: F401


def test_type_checkers_see_the_names_where_they_are():
    tree = ast.parse(Path(sd.__file__).read_text(encoding="utf-8"))
    (typing_only,) = (node for node in tree.body if ast.unparse(node).startswith("if TYPE_CHECK"))
    shown = {
        (alias.name, node.module.removeprefix("safedrift.").removeprefix("safedrift"))
        for node in typing_only.body
        for alias in node.names
    }
    rooms = {(name, "") for name in sd.__all__ if name in sd._ROOMS}
    assert shown == set(sd._PLACE.items()) | rooms
    assert {name for name, _ in shown} | {"__version__", "problems"} == set(sd.__all__)


def test_methods_of_other_rooms_are_provided():
    for name, place in _late._PROVIDERS.items():
        module, _, function = place.partition(":")
        assert callable(getattr(import_module(module), function)), name
    code = "from safedrift.results import Run\ntry: Run.report(0, 'x')\nexcept AttributeError: pass"
    assert "safedrift.reports.page" in loaded_by(code)
