"""What surrounds the code agrees with it: versions, dependencies, constraints, workflows."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from safedrift import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def constraints():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [re.fullmatch(r"([\w.-]+)==([\w.+!]+)", x) for x in lines if not x.startswith("#")]
    assert all(pinned), "every line must be name==version: no addresses, no paths"
    return {canonicalize_name(match[1]): Version(match[2]) for match in pinned}


def requirements():
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["dev"], *extras["data"], *extras["watch"]]
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
