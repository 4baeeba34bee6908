"""The Python and the commands of README and guides run as written."""

import ast
import codeop
import json
import re
import runpy
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import safedrift as sd
from safedrift.cli import app
from safedrift.experiments.reference_points import ORACLES
from safedrift.problems import PROBLEMS
from safedrift.watching import server
from safedrift.watching.watcher import Watcher

ROOT = Path(__file__).parents[1]


def python_of(page):
    """The Python of a page, block by block."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def outputs_of(page):
    """What a page says that its Python prints: blocks without a language, commands left out."""
    text = (ROOT / page).read_text(encoding="utf-8")
    plain = re.sub(r"```\w+\n.*?```", "", text, flags=re.DOTALL)
    blocks = re.findall(r"```\n(.*?)```", plain, re.DOTALL)
    shown = [x for x in blocks if not re.match(r"make |pip |safedrift ", x)]
    return [" ".join(part.split()) for x in shown for part in x.split("...\n") if part.strip()]


def fewer(python):
    """A short run instead of the one that a reader types: tests look at whether it runs."""
    assert re.search(r"episodes=\d{4}\b|20_000", python)
    python = re.sub(r"episodes=\d000\b|episodes=20_000", "episodes=200", python)
    python = python.replace("periodic(5000,", "periodic(500,")
    return re.sub(r"seeds=3(?=[,)])(?!.*workers=1)", "seeds=2, workers=1", python)


def run_python(page, shorten=fewer):
    """Run the Python of a page from top to bottom; return the names it leaves."""
    names = {}
    exec(shorten("\n".join(python_of(page))), names)
    return names


def refused_at_the_prompt(block):
    """The first line of a block that the plain prompt of Python refuses; None if it takes all."""
    typed = []
    for line in [*block.splitlines(), ""]:
        typed.append(line)
        try:
            statement = codeop.compile_command("\n".join(typed), symbol="single")
        except SyntaxError:
            return line
        if statement is not None:
            typed = []
    return None


TYPED = (
    "README.md",
    "docs/python.md",
    "docs/deploying.md",
    *(f"docs/tutorials/{x}.md" for x in ("paper", "process", "rivals")),
)


@pytest.mark.parametrize("page", TYPED)
def test_python_can_be_typed_at_the_prompt(page):
    """But for classes with empty lines, of which the page warns."""
    blocks = python_of(page)
    classes = [block for block in blocks if "\nclass " in block]
    others = [block for block in blocks if block not in classes]
    assert [x for x in map(refused_at_the_prompt, others) if x is not None] == []
    text = (ROOT / page).read_text(encoding="utf-8")
    assert bool(classes) == ("empty line inside a class" in text)


QUIET = {"print", "append", "end_episode", "play_one_episode"}  # calls that return nothing


def echoed_in_loops(block):
    """Calls in loops of which the prompt would show what each of them returns."""
    for loop in ast.parse(block).body:
        if isinstance(loop, ast.For | ast.While):
            for line in ast.walk(loop):
                if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call):
                    name = ast.unparse(line.value.func).rpartition(".")[2]
                    if name not in QUIET:
                        yield ast.unparse(line)


@pytest.mark.parametrize("page", TYPED)
def test_loops_do_not_fill_the_screen(page):
    assert [x for block in python_of(page) for x in echoed_in_loops(block)] == []


def test_what_would_fill_the_screen_is_seen():
    assert list(echoed_in_loops("for x in y:\n    if x:\n        f(x)\n")) == ["f(x)"]
    assert list(echoed_in_loops("def f():\n    g()\nfor x in y:\n    print(x)\n")) == []


def test_what_the_prompt_refuses_is_seen():
    assert refused_at_the_prompt("for x in y:\n    print(x)\nprint(y)\n") == "print(y)"
    assert refused_at_the_prompt("class A:\n    a = 1\n\n    b = 2\n") == "    b = 2"
    assert refused_at_the_prompt("for x in y:\n    print(x)\n\nprint(y)\n") is None


WITH_OUTPUTS = [
    "README.md",
    *(f"docs/tutorials/{name}.md" for name in ("paper", "process", "rivals")),
]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_OUTPUTS)
def test_pages_print_what_they_say(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_python(page, shorten=str)
    printed = " ".join(capsys.readouterr().out.split())
    said = outputs_of(page)
    assert said
    assert [x for x in said if x not in printed] == []


def test_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_python("README.md")
    assert {path.name for path in tmp_path.iterdir()} == {"maze.html", "maze.parquet"}


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_readme_counts_what_there_is():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"| {len(PROBLEMS)} named worlds" in text
    assert f"| {len(sd.learners.LEARNERS)} learners" in text


def figure(pattern, page):
    """What the one group of a pattern says on a page."""
    flat = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    found = re.findall(pattern, flat)
    assert len(found) == 1, (pattern, page, found)
    return found[0]


def test_figures_of_the_readme_are_those_of_the_pages_they_link_to():
    speed = figure(r"([\d.]+ to [\d.]+ µs) per episode at S = 5, A = 3, H = 5", "README.md")
    times = figure(r"(\d+ to \d+) times as fast as NumPy", "README.md")
    assert f"| 5, 3, 5 | {speed} | {times} |" in (ROOT / "docs/performance.md").read_text("utf-8")
    measured, power = figure(r"\| 5, 3, 5 \| ([\d.]+) · 10(\S+) \(", "docs/many-runs.md")
    rounded = round(float(measured))
    shown = f"10{power}" if rounded == 1 else f"{rounded} · 10{power}"
    assert figure(r"PROPD-PPO at (.*?) episodes a second on a GPU at S = 5", "README.md") == shown
    worlds = figure(r"scores in (\d+) worlds", "README.md")
    assert f"learners, {worlds} worlds, " in (ROOT / "docs/comparison.md").read_text("utf-8")
    taken = figure(r"`make demo` took (\d+) seconds", "README.md")
    assert taken == figure(r"page\]\(pages.md\): (\d+) seconds on two cores", "docs/index.md")


def test_every_row_of_what_there_is_says_where_it_is_shown():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.partition("## What there is")[2].partition("\n\n")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    assert len(rows) > 5
    assert [
        row for row in rows if not re.search(r"\]\(docs/.*\) ?(, `make bench` )?\|$", row)
    ] == []


def test_ten_minutes_of_python_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_python("docs/python.md")
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"maze.html", "maze.parquet", "comparison.html"}


@pytest.mark.slow
def test_frozen_lake_is_learnt():
    """The figures that docs/python.md and docs/gymnasium.md state."""
    names = {}
    lake = [x for x in python_of("docs/python.md") if "FrozenLake-v1" in x]
    exec("import safedrift as sd\n" + lake[0], names)
    assert round(names["run"].summary()["reward_per_episode"], 3) == 0.310
    assert round(names["run"].summary()["last_tenth_reward_per_episode"], 3) == 0.347
    assert round(300 * (30 - names["run"].summary()["last_tenth_utility_per_episode"][0])) == 33
    assert round(names["run"].summary()["violation_per_episode"][0], 2) == 0.02
    exec(python_of("docs/gymnasium.md")[0], names)
    assert [names["run"].verdict()] == outputs_of("docs/gymnasium.md")[:1]


# ---------------------------------------------------------------- tutorials

SLOW = {"process": pytest.mark.slow}  # two constraints: kernels that no other fast test compiles
TUTORIALS = sorted(path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("name", [pytest.param(x, marks=SLOW.get(x, ())) for x in TUTORIALS])
def test_tutorials_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_python(f"docs/tutorials/{name}.md", shorten=str if name == "process" else fewer)
    assert list(tmp_path.glob("*.html"))


def test_notebooks_are_those_of_the_tutorials():
    """One source: `python notebooks/write.py` writes them."""
    names = runpy.run_path(str(ROOT / "notebooks" / "write.py"))
    assert sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb")) == TUTORIALS
    for name in TUTORIALS:
        text = names["written"](ROOT / "docs" / "tutorials" / f"{name}.md")
        assert text == (ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"), name


@pytest.mark.parametrize("name", TUTORIALS)
def test_notebooks_have_the_same_python_and_links_that_lead_somewhere(name):
    cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code == [block.rstrip("\n") for block in python_of(f"docs/tutorials/{name}.md")]
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    links = [x.partition("#")[0] for x in re.findall(r"\]\(([^)\s]+)\)", text)]
    assert [x for x in links if not (ROOT / "notebooks" / x).exists()] == []


# ---------------------------------------------------------------- commands


def nobody_waits(folder, port, *, open_page, tell):
    """In place of serving the live page until Ctrl-C."""
    Watcher(folder).overview()
    tell("http://127.0.0.1/")


@pytest.mark.slow
def test_commands_of_the_page_of_the_command_line_run(tmp_path, monkeypatch):
    """All of them, one after the other, with fewer episodes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```\n(.*?)```", text, re.DOTALL)
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


def test_python_of_the_page_on_many_runs_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "many-runs.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    exec("\n".join(blocks).replace("2000", "200").replace("seeds=20", "seeds=3"), {})
    assert "alpha = 0.3: dynamic regret" in capsys.readouterr().out
    assert (tmp_path / "many.parquet").is_file()


def test_python_of_the_deploying_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    exec("\n".join(blocks), {})
    assert {path.name for path in tmp_path.iterdir()} == {"plant.npz", "policy.csv"}


@pytest.mark.slow
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
    assert len(python_of("docs/learners.md")) == 4
    run_python("docs/learners.md")


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


# ---------------------------------------------------------------- nothing is left out

RUN_BY = {  # pages with Python that no test above runs -> the test that does
    "docs/certificates.md": "tests/test_paper_map.py::test_example_of_the_guide_runs",
    "docs/your-own-learner.md": "tests/experiments/test_contract.py::guide",
}


def test_the_python_of_every_page_is_run():
    tests = Path(__file__).read_text(encoding="utf-8")
    for page in ("README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))):
        if not python_of(page):
            continue
        if page in RUN_BY:
            file, name = RUN_BY[page].split("::")
            code = (ROOT / file).read_text(encoding="utf-8")
            assert f"def {name}(" in code
        else:
            code = tests
        assert f'"{page}"' in code or f'"docs" / "{Path(page).name}"' in code, page


def commands_of(page):
    """The safedrift commands in the blocks of a page, without comments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in re.findall(r"^```(.*?)^```", text, re.DOTALL | re.MULTILINE):
        lines = [x for x in block.splitlines() if x.startswith("safedrift ")]
        yield from (shlex.split(line, comments=True)[1:] for line in lines)


def test_commands_of_all_pages_are_understood():
    """Names of commands and options, and values of the right kind; files may be missing."""
    group = typer.main.get_command(app)
    pages = [path for path in PAGES if path.startswith(("README", "SUPPORT", "docs/"))]
    found = [command for page in pages for command in commands_of(page)]
    assert len(found) > 35
    for name, *given in found:
        if "--help" not in given:
            group.commands[name].make_context(name, list(given))


# ---------------------------------------------------------------- links

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob(".github/**/*.md"))
    if "docs/generated/" not in path.as_posix()  # written by `make docs`, whose links Sphinx checks
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
