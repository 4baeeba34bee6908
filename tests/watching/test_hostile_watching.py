"""Folders that somebody else has made: the page shows sentences, nothing outside, never HTML."""

import hashlib
import json
import os
import pickle
import shutil

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import finished_run, run_until, small_chunks, sweep

from builders import forge_folder, rewrite_run, sign
from safedrift._files import write_whole
from safedrift.experiments.journals import Journal
from safedrift.results.storage import write_sealed
from safedrift.watching import folders as found_folders
from safedrift.watching import runs as watched_runs
from safedrift.watching import watcher as watchers
from safedrift.watching.watcher import Watcher

HTML = "<img src=x onerror=alert(1)>"
LINK = '<a href="https://evil.example">click</a>'


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch):
    monkeypatch.setattr(watchers, "_FRESH", -1.0)
    monkeypatch.setattr(watchers, "_READING", 60.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished run, one that was stopped, and a sweep."""
    folder = tmp_path_factory.mktemp("made")
    finished_run(folder / "done", K=2)
    with pytest.MonkeyPatch.context() as monkeypatch:
        small_chunks(monkeypatch)
        run_until(folder / "stopped", lambda: None, error=KeyboardInterrupt)
    sweep(folder / "sweep")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "dir")


def look_at(folder):
    """Every row and every detail by name, through JSON as the page gets them."""
    watcher = Watcher(folder)
    rows = {row["name"]: row for row in watcher.overview()["folders"]}
    details = {name: watcher.detail(row["id"])[1] for name, row in rows.items()}
    json.dumps((rows, details), allow_nan=False)
    return rows, details


def test_what_is_not_hostile_is_shown(folder):
    rows, details = look_at(folder)
    assert {name: row["state"] for name, row in rows.items()} == {
        "done": "done", "stopped": "interrupted", "sweep": "done",
    }  # fmt: skip
    assert not any(x.get("problem") for x in details.values())
    assert details["stopped"]["plots"]


# ---------------------------------------------------------------- links and paths


def test_links_to_folders_are_not_followed(folder, tmp_path):
    outside = finished_run(tmp_path / "outside" / "secret", M=10)
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "again").symlink_to(tmp_path / "outside" / "secret")
    (folder / "round").symlink_to(folder)
    (folder / "done" / "replacement").symlink_to(tmp_path / "outside" / "secret")
    rows, _ = look_at(folder)
    assert set(rows) == {"done", "stopped", "sweep"}
    assert outside.manifest.sizes.M == 10


@pytest.mark.parametrize(
    ("name", "file", "sentence"),
    [
        ("done", "records.parquet", "must be a plain file; got a link"),
        ("stopped", "records.journal", "got a link"),
        ("stopped", "truth.npz", "must be a plain file; got a link"),
        ("sweep", "rows.jsonl", "must be a file; got a link"),
        ("done", "manifest.json", None),
        ("sweep", "study.json", None),
    ],
)
def test_links_to_files_are_not_followed(folder, tmp_path, name, file, sentence):
    shutil.move(folder / name / file, tmp_path / "outside")
    (folder / name / file).symlink_to(tmp_path / "outside")
    rows, details = look_at(folder / name)
    if sentence is None:
        assert name not in rows
    else:
        assert sentence in rows[name]["error"]
        assert sentence in (details[name].get("problem") or "")
        assert not details[name].get("plots")


@pytest.mark.parametrize(
    ("name", "file"),
    [("done", "manifest.json"), ("done", "records.parquet"), ("stopped", "records.journal"),
     ("stopped", "truth.npz"), ("stopped", "lock"), ("sweep", "rows.jsonl"),
     ("sweep", "study.json"), ("sweep", "lock")],
)  # fmt: skip
def test_a_pipe_or_a_folder_in_place_of_a_file_does_not_hang(folder, name, file):
    path = folder / name / file
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    look_at(folder / name)
    path.unlink()
    path.mkdir()
    look_at(folder / name)


def test_a_link_that_replaces_a_file_after_it_was_found(folder, tmp_path):
    watcher = Watcher(folder)
    ids = {row["name"]: row["id"] for row in watcher.overview()["folders"]}
    finished_run(tmp_path / "secret", M=10)
    shutil.rmtree(folder / "done")
    (folder / "done").symlink_to(tmp_path / "secret")
    watcher.overview()
    assert watcher.detail(ids["done"]) is None


# ---------------------------------------------------------------- names


def test_names_are_escaped_where_plotly_reads_html(folder):
    def change(manifest):
        manifest.update(problem=HTML, constraints=[LINK, HTML])
        manifest["learner"].update(name=LINK, notes=[HTML])

    def changed(table):
        plain = json.loads(table.schema.metadata[b"safedrift"])
        change(plain)
        table = table.append_column(f"trace.{HTML}", pa.array(np.zeros(60)))
        table = table.append_column(f"trace.{LINK}", pa.array(np.zeros(60, bool)))
        return table.replace_schema_metadata({"safedrift": json.dumps(plain)})

    rewrite_run(folder / "done" / "records.parquet", changed)
    forge_folder(folder / "done", lambda manifest: change(manifest["run"]))
    _, details = look_at(folder / "done")
    shown = details["done"]
    assert shown["title"] == f"{HTML}: {LINK}"  # the page sets it as text
    figures = json.dumps([plot["figure"] for plot in shown["plots"]], ensure_ascii=False)
    assert "<img" not in figures
    assert "<a" not in figures
    assert "&lt;a href=" in figures
    assert "&lt;img src=x" in figures


def test_names_of_learners_in_a_sweep_are_escaped(folder):
    path = folder / "sweep" / "study.json"
    record = json.loads(path.read_text()[:-65])
    for item in record["learners"]:
        item["label"] = LINK
    text = json.dumps(record)
    path.write_text(f"{text}{hashlib.sha256(text.encode()).hexdigest()}\n")
    rows = [{"run": 0, "learner": LINK, "status": "done", "strict_score": 0.5},
            {"run": 1, "learner": LINK, "status": "failed", "error": HTML}]  # fmt: skip
    write_rows(folder / "sweep", rows)
    _, details = look_at(folder / "sweep")
    shown = details["sweep"]
    assert shown["learners"][0][0] == LINK
    assert shown["errors"] == [["1", HTML]]
    assert "<a" not in json.dumps(shown["figure"])


def test_folders_may_have_any_name(folder):
    for name in (HTML.replace("/", ""), "a b'\"&;", "\x1b[2J", "ünï", os.fsdecode(b"\xff\xfe")):
        shutil.copytree(folder / "done", folder / name)
    rows, details = look_at(folder)
    assert len(rows) == 8
    assert HTML in rows
    assert all(details[name].get("plots") for name in rows if name != "sweep")


# ---------------------------------------------------------------- contents


def write_rows(folder, rows):
    lines = []
    for row in rows:
        text = row if isinstance(row, bytes) else json.dumps(row).encode()
        lines.append(hashlib.sha256(text).hexdigest()[:16].encode() + b" " + text + b"\n")
    (folder / "rows.jsonl").write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    "row",
    [b"[" * 100_000, b'{"run": 1e999}', b'{"run": "x"}', b"[]", b"7", b"{}", b'{"run": -1}',
     b'{"run": 5, "learner": {}, "status": []}', b'{"run": 99999999999999999999}',
     b'{"run": 1, "learner": "uniform", "status": 3}', b"\xff\xfe", b'{"run": null}',
     b'{"run": 1, "learner": "opt-cmdp", "status": "done"}'],
    ids=lambda row: repr(row[:30]),
)  # fmt: skip
def test_rows_that_are_none_of_the_study_are_passed_over(folder, row):
    write_rows(folder / "sweep", [row])
    rows, details = look_at(folder / "sweep")
    assert rows["sweep"]["done"] == 0
    assert rows["sweep"]["state"] == "interrupted"
    assert details["sweep"]["damaged"] == 1


@pytest.mark.parametrize(
    "score", [float("nan"), 1e308, "1", True, None, [1], 10**400], ids=lambda x: str(x)[:9]
)
def test_scores_that_are_no_numbers_do_not_count(folder, score):
    row = {"run": 0, "learner": "uniform", "status": "done", "strict_score": score}
    write_rows(folder / "sweep", [row])
    rows, details = look_at(folder / "sweep")
    assert rows["sweep"]["done"] == 1
    assert details["sweep"]["learners"][0][1] == ""


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[" * 100_000, b'{"study": {}}', b'{"study": 1, "worlds": 2}', b"\xff"]
)
def test_a_forged_study_is_a_sentence(folder, text):
    digest = hashlib.sha256(text).hexdigest().encode()
    (folder / "sweep" / "study.json").write_bytes(text + digest + b"\n")
    rows, details = look_at(folder / "sweep")
    assert rows["sweep"]["state"] == "damaged"
    assert "study.json" in rows["sweep"]["error"]
    assert details["sweep"]["problem"] == rows["sweep"]["error"]


def test_a_line_without_an_end_is_not_read_for_ever(folder, monkeypatch):
    monkeypatch.setattr("safedrift.experiments.sweep_reader._STEP", 1000)
    (folder / "sweep" / "rows.jsonl").write_bytes(b"x" * 5000)
    rows, _ = look_at(folder / "sweep")
    assert "got a line that is too long" in rows["sweep"]["error"]


def test_a_pickle_in_place_of_arrays_is_a_sentence(folder, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/was-here",)

    for file in ("truth.npz", "records.journal"):
        (folder / "stopped" / file).write_bytes(pickle.dumps(Evil()))
        rows, details = look_at(folder)
        assert file in rows["stopped"]["error"] or file in details["stopped"]["problem"]
    data = pickle.dumps(Evil())
    (folder / "done" / "records.parquet").write_bytes(data)
    forge_folder(folder / "done", lambda manifest: None)
    assert "records.parquet must be a run" in look_at(folder)[1]["done"]["problem"]
    assert not (tmp_path / "was-here").exists()


def test_a_small_file_with_very_many_numbers_is_not_read(folder):
    column = pa.chunked_array([pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(2**24, np.int8)), pa.array([0.0]))] * 4).cast(pa.float64())  # fmt: skip
    path = folder / "done" / "records.parquet"
    write_whole(path, lambda file: write_sealed(file, pa.table({"reward": column})))
    assert path.stat().st_size < 2**20
    forge_folder(folder / "done", lambda manifest: None)
    rows, _ = look_at(folder / "done")
    assert "must be at most 33,554,432 numbers to be watched" in rows["done"]["error"]


def test_records_of_text_are_not_read(folder):
    path = folder / "done" / "records.parquet"
    table = pa.table({"reward": pa.array(["x"])})
    write_whole(path, lambda file: write_sealed(file, table))
    forge_folder(folder / "done", lambda manifest: None)
    assert "got one with other than numbers" in look_at(folder / "done")[0]["done"]["error"]


@pytest.mark.parametrize(("name", "file"), [("done", "records.parquet"), ("stopped", "truth.npz"),
                                            ("stopped", "records.journal")])  # fmt: skip
def test_a_file_that_is_too_long_is_a_sentence(folder, monkeypatch, name, file):
    monkeypatch.setattr(watched_runs, "MOST_BYTES", (folder / name / file).stat().st_size - 1)
    rows, _ = look_at(folder / name)
    assert "MiB to be watched" in rows[name]["error"]


HUGE = [10**18, 10**18]


@pytest.mark.parametrize(
    "header",
    [
        [["reward", "<f8", HUGE]],
        [["reward", "<f8", [0, 10**30]]],
        [["reward", "<f8", [-1]]],
        [["reward", "O", [1]]],
        [["reward", "<f8", ["x"]]],
        [["reward"]],
        {},
        7,
        [["reward", "<U999999999", [1]]],
    ],
    ids=str,
)
def test_shapes_that_a_journal_does_not_hold(folder, header):
    text = json.dumps(header).encode()
    block = len(text).to_bytes(8, "little") + text + b"\0" * 64
    path = folder / "stopped" / "records.journal"
    path.write_bytes(block + hashlib.sha256(block).digest())
    _, details = look_at(folder / "stopped")
    assert not details["stopped"].get("plots")


@pytest.mark.parametrize(
    "rows",
    [
        {"reward": np.zeros(3)},
        {"reward": np.zeros(3), "utility": np.zeros((3, 7)), "observed": np.zeros((3, 2))},
        {"reward": np.zeros(300), "utility": np.zeros((300, 1)), "observed": np.zeros((300, 2))},
        {"reward": np.zeros(0), "utility": np.zeros((0, 1)), "observed": np.zeros((0, 2))},
        {"reward": np.zeros(()), "utility": np.zeros((3, 1)), "observed": np.zeros((3, 2))},
        {"reward": np.full(3, np.nan), "utility": np.full((3, 1), np.inf),
         "observed": np.zeros((3, 2))},
        {"reward": np.zeros(3), "utility": np.zeros((3, 1)), "observed": np.zeros((3, 2)),
         "trace.x": np.zeros((3, 5000))},
        {"reward": np.zeros(3), "utility": np.zeros((3, 1)), "observed": np.zeros((3, 2)),
         "trace.mu": np.zeros((3, 2, 2))},
    ],
    ids=lambda rows: str({name: x.shape for name, x in rows.items()})[:60],
)  # fmt: skip
def test_rows_that_are_none_of_the_run(folder, rows):
    path = folder / "stopped" / "records.journal"
    path.unlink()
    Journal(path).add(rows)
    look_at(folder / "stopped")


@pytest.mark.parametrize("cut", [1, 40, 200, 1000])
def test_a_block_that_is_being_written_is_waited_for(folder, cut):
    path = folder / "stopped" / "records.journal"
    os.truncate(path, path.stat().st_size - cut)
    rows, details = look_at(folder / "stopped")
    assert rows["stopped"]["done"] < 40
    assert details["stopped"]["plots"]
    assert not details["stopped"].get("problem")


def test_a_damaged_block_is_told(folder):
    path = folder / "stopped" / "records.journal"
    data = bytearray(path.read_bytes())
    data[8 + int.from_bytes(data[:8], "little")] ^= 1  # the first number after the header
    path.write_bytes(data)
    assert "one that is damaged" in look_at(folder / "stopped")[1]["stopped"]["problem"]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), name=st.sampled_from(["done", "stopped"]))
def test_any_manifest_with_a_right_checksum_gives_a_page(folder, data, name):
    """Any value at any place of the settings, in the records too."""
    path = folder / name / "manifest.json"
    kept = path.read_bytes(), (folder / "done" / "records.parquet").read_bytes()
    plain = json.loads(kept[0])

    def edit(place):
        while isinstance(place, dict) and place:
            key = data.draw(st.sampled_from(sorted(place)))
            if not isinstance(place[key], dict) or not place[key] or data.draw(st.booleans()):
                place[key] = data.draw(values)
                return
            place = place[key]

    edit(plain if data.draw(st.booleans()) else plain["run"])
    try:
        if name == "done":
            text = json.dumps(plain["run"])
            new = {"safedrift": text}
            rewrite_run(
                folder / "done" / "records.parquet",
                lambda table: table.replace_schema_metadata(new),
            )
        sign(folder / name, plain)
        if name == "done" and isinstance(plain.get("files"), dict):
            try:
                forge_folder(folder / name, lambda manifest: None)
            except (AttributeError, TypeError):  # files that are none
                sign(folder / name, plain)
        look_at(folder / name)
    finally:
        path.write_bytes(kept[0])
        (folder / "done" / "records.parquet").write_bytes(kept[1])


def test_very_many_folders_are_not_all_visited(tmp_path, monkeypatch):
    monkeypatch.setattr(found_folders, "_MOST_VISITED", 50)
    for i in range(100):
        (tmp_path / f"d{i:03d}").mkdir()
    finished_run(tmp_path / "z", M=5)
    assert look_at(tmp_path)[0] == {}


def test_watching_changes_nothing(folder):
    def everything():
        return {path: (path.read_bytes(), path.stat().st_mtime_ns)
                for path in sorted(folder.rglob("*")) if path.is_file()}  # fmt: skip

    with (folder / "sweep" / "rows.jsonl").open("ab") as file:
        file.write(b"half a line")
    before = everything()
    look_at(folder)
    assert everything() == before
