"""The Python and the commands of README and guides run as written."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import safedrift as sd
from safedrift.cli import app
from safedrift.experiments.reference_points import ORACLES
from safedrift.problems import PROBLEMS
from safedrift.watching import server
from safedrift.watching.watcher import Watcher

ROOT = Path(__file__).parents[1]


def test_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    maze, *others = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(maze.replace("20_000", "200"), {})
    assert {path.name for path in tmp_path.iterdir()} == {"maze.html", "maze.parquet"}
    exec("\n".join(others), {})


def nobody_waits(folder, port, *, open_page, tell):
    """In place of serving the live page until Ctrl-C."""
    Watcher(folder).overview()
    tell("http://127.0.0.1/")


def test_commands_of_the_readme_run(tmp_path, monkeypatch):
    """All of them, one after the other, with fewer episodes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"## On the command line\n\n```\n(.*?)```", text, re.DOTALL)
    lines = [shlex.split(line) for line in block.splitlines()]
    assert len(lines) > 8
    monkeypatch.setattr(server, "serve", nobody_waits)
    for program, command, *rest in lines:
        assert program == "safedrift"
        fewer = command in ("run", "problems", "compare") and "--help" not in rest
        done = CliRunner().invoke(app, [command, *rest, *(("-n", "60") if fewer else ())])
        assert done.exit_code == 0, (command, rest, done.output)
    assert (tmp_path / "runs" / "first" / "certificates.json").is_file()
    assert (tmp_path / "maze.png").is_file()


def test_python_of_the_linear_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "linear.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 4
    exec("\n".join(blocks), {})


def test_python_of_the_deploying_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    exec("\n".join(blocks), {})
    assert {path.name for path in tmp_path.iterdir()} == {"plant.npz", "policy.csv"}


def test_python_and_commands_of_the_page_on_experiments_run(tmp_path, monkeypatch):
    """The recipes for results of sweeps are run by tests/experiments/test_sweeps.py."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    (study,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "study.yaml").write_text(study.replace("2000", "20").replace("10  ", "2  "))
    blocks = re.findall(r"```\n(safedrift .*?)```", text, re.DOTALL)
    monkeypatch.setattr(server, "serve", nobody_waits)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(lines) >= 7
    for program, command, *rest in lines:
        assert program == "safedrift"
        fewer = [word.replace("50000", "300") for word in rest]
        done = CliRunner().invoke(app, [command, *fewer])
        assert done.exit_code == 0, (command, rest, done.output)
    first, callback, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    python = first.replace("runs/maze", "runs/python").replace("2000", "200") + callback
    exec(python, {})
    assert (tmp_path / "sweeps" / "study" / "results.parquet").is_file()


def test_python_of_the_guide_to_ones_own_world_runs():
    text = (ROOT / "docs" / "your-own-world.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(block, {})


def test_page_of_the_learners_names_all_of_them_and_its_python_runs():
    text = (ROOT / "docs" / "learners.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([a-z-]+)`", text, re.MULTILINE)
    assert sorted(named) == sorted([*sd.learners.LEARNERS, *ORACLES])
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    exec("\n".join(blocks), {})


def test_python_of_the_page_of_the_adaptive_planner_runs(capsys):
    text = (ROOT / "docs" / "adaptive.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(block, {})
    assert "reward at step" in capsys.readouterr().out


def test_python_of_the_gymnasium_guide_runs():
    text = (ROOT / "docs" / "gymnasium.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 6
    exec("\n".join(blocks).replace("episodes=2000", "episodes=200"), {})


def test_python_of_the_page_of_problems_runs():
    text = (ROOT / "docs" / "problems.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(block, {})


def test_every_problem_has_its_picture_on_the_page():
    text = (ROOT / "docs" / "problems.md").read_text(encoding="utf-8")
    for name in PROBLEMS:
        assert f"\n## {name}\n\n![{name}](problems/{name}.png)\n" in text


# ---------------------------------------------------------------- links

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob(".github/**/*.md"))
)


def anchors_of(text):
    """What the headings of a page are called in a link, as GitHub does it."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.M)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings]


def broken_links(page):
    """Links of a page to files or headings that do not exist; other hosts are not asked."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
        name, _, anchor = target.partition("#")
        if re.match(r"https?://", name):
            continue
        file = (ROOT / page).parent / name if name else ROOT / page
        if not file.exists() or (anchor and anchor not in anchors_of(file.read_text("utf-8"))):
            yield target


def test_pages_are_found():
    assert {"README.md", "CHANGELOG.md", "docs/errata.md", "docs/problems.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_links_of_the_pages_lead_somewhere(page):
    assert list(broken_links(page)) == []


def test_broken_links_are_seen(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "a.md").write_text(
        "# One, two\n[a](b.md) [b](#one-two) [c](#three) [d](a.md#one-two) [e](a.md#x)\n"
    )
    assert list(broken_links("a.md")) == ["b.md", "#three", "a.md#x"]
