"""The README's Python runs as written."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    maze, *others = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(maze.replace("20_000", "200"), {})
    assert {path.name for path in tmp_path.iterdir()} == {"maze.html", "maze.parquet"}
    exec("\n".join(others), {})


def test_files_of_the_readme_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert len(links) > 5
    for link in links:
        assert (ROOT / link).exists(), link
