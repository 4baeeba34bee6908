"""What surrounds the code agrees with it: versions, dependencies, constraints, workflows."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from safedrift import __version__

ROOT = Path(__file__).parents[1]
WHOLE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, BUILD = WHOLE["project"], WHOLE["build-system"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def constraints():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [re.fullmatch(r"([\w.-]+)==([\w.+!]+)", x) for x in lines if not x.startswith("#")]
    assert all(pinned), "every line must be name==version: no addresses, no paths"
    return {canonicalize_name(match[1]): Version(match[2]) for match in pinned}


def requirements():
    extras = PROJECT["optional-dependencies"]
    named = ("dev", "docs", "data", "watch")
    wanted = [*PROJECT["dependencies"], *(x for name in named for x in extras[name])]
    return [r for r in map(Requirement, wanted) if r.name != "safedrift"]


@pytest.mark.parametrize("requirement", requirements(), ids=lambda r: r.name)
def test_every_dependency_is_pinned_to_a_version_that_is_allowed(requirement):
    pinned = constraints()[canonicalize_name(requirement.name)]
    assert pinned in requirement.specifier


def test_safedrift_itself_is_not_pinned():
    assert "safedrift" not in constraints()


def test_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased, (version, date), *_ = re.findall(r"^## \[(.*?)\](?: - (\S+))?$", changelog, re.M)
    assert unreleased == ("Unreleased", "")
    assert version == citation["version"] == __version__
    assert date == str(citation["date-released"])


def steps_of(workflow):
    found = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    return [(job, step) for job in found["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_that_exist(workflow):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    steps = steps_of(workflow)
    assert any("run" in step for _, step in steps)
    for _, step in steps:
        for target in re.findall(r"^make (\S+)", step.get("run", ""), re.M):
            assert re.search(rf"^{target}:", makefile, re.M), target


def test_tested_pythons_are_those_that_are_promised():
    (tests,) = (path for path in WORKFLOWS if path.stem == "tests")
    job, _ = steps_of(tests)[0]
    start = "Programming Language :: Python :: "
    promised = [x.removeprefix(start) for x in PROJECT["classifiers"] if x.startswith(start)]
    assert job["strategy"]["matrix"]["python"] == promised == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={promised[0]}"


def test_pages_of_a_release_are_there():
    for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY", "SUPPORT"):
        assert (ROOT / f"{name}.md").read_text(encoding="utf-8").startswith("# "), name


# ---------------------------------------------------------------- the release itself


def call(*command, cwd):
    """Run a command without what belongs to this environment; return what it prints."""
    clean = {key: x for key, x in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """(sdist, wheel made of the sdist): what would be uploaded. Needs a package index."""
    folder = tmp_path_factory.mktemp("release")
    call(sys.executable, "-m", "venv", folder / "builder", cwd=folder)
    python = folder / "builder" / "bin" / "python"
    (wanted,) = BUILD["requires"]
    call(python, "-m", "pip", "install", "--quiet", wanted, cwd=folder)
    call(python, "-m", "hatchling", "build", "-t", "sdist", "-d", folder / "dist", cwd=ROOT)
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    call(python, "-m", "pip", "wheel", "--no-deps", "-w", folder / "dist", sdist, cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    return sdist, wheel


@pytest.mark.slow
def test_sdist_and_wheel_hold_the_package_and_nothing_large(release):
    sdist, wheel = release
    assert sdist.name == f"safedrift-{__version__}.tar.gz"
    assert wheel.name == f"safedrift-{__version__}-py3-none-any.whl"
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "tests/naive.py", "docs/conf.py"} <= inside
    assert not [x for x in inside if x.startswith((".venv", "docs/_build", "docs/generated"))]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    modules = {x.relative_to(ROOT / "src").as_posix() for x in (ROOT / "src").rglob("*.py")}
    assert modules <= set(names)
    assert "safedrift/py.typed" in names
    assert wheel.stat().st_size < 5e6
    assert sdist.stat().st_size < 2e7


@pytest.mark.slow
def test_wheel_works_in_a_clean_environment_away_from_the_sources(release, tmp_path):
    _, wheel = release
    call(sys.executable, "-m", "venv", tmp_path / "clean", cwd=tmp_path)
    bin = tmp_path / "clean" / "bin"
    constraints = ROOT / "constraints.txt"
    call(bin / "pip", "install", "--quiet", "--constraint", constraints, wheel, cwd=tmp_path)
    assert __version__ in call(bin / "safedrift", "--version", cwd=tmp_path)
    where = "import safedrift; print(safedrift.__file__)"
    assert str(tmp_path / "clean") in call(bin / "python", "-c", where, cwd=tmp_path)
    call(bin / "safedrift", "run", "stationary", "-n", "50", "--out", "run", cwd=tmp_path)
    assert (tmp_path / "run" / "report.html").is_file()
    shown = call(bin / "safedrift", "run", "stationary", "-n", "50", "--json", cwd=tmp_path)
    assert json.loads(shown)["sizes"]["M"] == 50
