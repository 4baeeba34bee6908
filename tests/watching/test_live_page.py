"""The live page without a browser: what is served, to whom, and what it says of each folder."""

import json
import socket

import numpy as np
import pytest
from serving import FAILING, STUDY, finished_run, run_until, served, small_chunks, sweep

import safedrift as sd
from safedrift.events import Event
from safedrift.experiments import run_folder
from safedrift.reports.summary_text import number
from safedrift.watching import folders as found_folders
from safedrift.watching import watcher as watchers
from safedrift.watching.app import make_app
from safedrift.watching.figures import plain
from safedrift.watching.folders import find_folders
from safedrift.watching.pace import Pace
from safedrift.watching.server import open_port
from safedrift.watching.watcher import Watcher

FILES = ("/", "/page.js", "/page.css", "/icon.svg", "/plotly.js")


@pytest.fixture
def page(tmp_path):
    with served(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def one_run(tmp_path_factory):
    """The page of a folder with one run, beside a file that is nobody's business."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "secret").write_text("mine")
    finished_run(folder / "runs" / "a")
    with served(folder / "runs") as found:
        found.ask("/api/folders")
        yield found


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch):
    monkeypatch.setattr(watchers, "_FRESH", -1.0)
    monkeypatch.setattr(watchers, "_READING", 60.0)


def rows_of(folder):
    return {row["name"]: row for row in Watcher(folder).overview()["folders"]}


def detail_of(folder, name):
    watcher = Watcher(folder)
    (id,) = [row["id"] for row in watcher.overview()["folders"] if row["name"] == name]
    return watcher.detail(id)[1]


# ---------------------------------------------------------------- what is served


@pytest.mark.parametrize("path", FILES)
def test_files_are_served_and_may_load_nothing_else(one_run, path):
    status, headers, body = one_run.ask(path)
    assert status == 200
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    if path != "/plotly.js":
        text = body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text
        assert "innerHTML" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_get(one_run, method):
    for path in ("/", "/api/folders", "/api/folders/0123456789abcdef"):
        assert one_run.ask(path, method)[0] == 405


@pytest.mark.parametrize(
    "path",
    ["/../secret", "/..%2fsecret", "/static/page.js", "/api/folders/..%2f..%2fsecret",
     "/api/folders/%2e%2e", "/api/folders//etc/passwd", "/api/folders/runs", "/manifest.json",
     "//etc/passwd", "/api/folders/%00", "/page.js/../../app.py"],
)  # fmt: skip
def test_no_path_leads_to_a_file(one_run, path):
    status, _, body = one_run.ask(path)
    assert status == 404
    assert b"mine" not in body
    assert b"root:" not in body


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1", 200), ("localhost:1234", 200), ("evil.example", 400), ("127.0.0.1.evil.example",
     400), ("", 400), ("localhost.evil.example:80", 400), ("0.0.0.0", 400)],
)  # fmt: skip
def test_other_names_for_this_machine_are_refused(one_run, host, status):
    for path in ("/", "/api/folders"):
        found, headers, body = one_run.ask(path, Host=host)
        assert found == status
        assert "content-security-policy" in headers
        assert status == 200 or b"folder" not in body


def test_only_this_machine_is_served():
    listening = open_port(0)
    try:
        assert listening.getsockname()[0] == "127.0.0.1"
        assert listening.family == socket.AF_INET
    finally:
        listening.close()


def test_what_has_not_changed_is_not_sent_again(tmp_path, page):
    finished_run(tmp_path / "a")
    (row,) = page.json("/api/folders")["folders"]
    path = f"/api/folders/{row['id']}"
    status, headers, _ = page.ask(path)
    again, _, body = page.ask(path, If_None_Match=headers["etag"])
    assert (status, again, body) == (200, 304, b"")
    (tmp_path / "a" / "manifest.json").write_text("{}")
    assert page.ask(path, If_None_Match=headers["etag"])[0] == 200
    assert "problem" in page.json(path)


def test_an_id_that_is_gone_is_not_found(tmp_path, page):
    finished_run(tmp_path / "a")
    (row,) = page.json("/api/folders")["folders"]
    (tmp_path / "a").rename(tmp_path / "b")
    page.ask("/api/folders")
    status, _, body = page.ask(f"/api/folders/{row['id']}")
    assert (status, json.loads(body)) == (404, {"problem": "There is no such run any more."})


def test_the_application_has_no_other_routes(tmp_path):
    paths = {route.path for route in make_app(Watcher(tmp_path)).routes}
    assert paths == {*FILES, "/api/folders", "/api/folders/{id}"}


# ---------------------------------------------------------------- which folders


def test_an_empty_folder_has_no_rows(tmp_path):
    assert Watcher(tmp_path).overview() == {
        "folder": str(tmp_path), "alone": False, "folders": [], "full": None, "there": True,
    }  # fmt: skip


def test_runs_and_sweeps_are_found_some_levels_deep(tmp_path):
    for name in ("runs/a", "runs/b", "x/y/c", "x/y/z/too-deep", ".hidden"):
        finished_run(tmp_path / name, M=10)
    sweep(tmp_path / "sweeps" / "s")
    assert set(rows_of(tmp_path)) == {"runs/a", "runs/b", "x/y/c", "sweeps/s"}
    overview = Watcher(tmp_path / "runs" / "a").overview()
    assert overview["alone"]
    assert [row["name"] for row in overview["folders"]] == ["a"]


def test_too_many_folders_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(found_folders, "MOST_FOLDERS", 2)
    monkeypatch.setattr(watchers, "MOST_FOLDERS", 2)
    for name in "abc":
        finished_run(tmp_path / name, M=5)
    overview = Watcher(tmp_path).overview()
    assert (len(overview["folders"]), overview["full"]) == (2, 2)


def test_running_ones_come_first_and_damaged_ones_last(tmp_path):
    for name in "abc":
        finished_run(tmp_path / name, M=10)
    (tmp_path / "c" / "manifest.json").write_text("{}")
    seen = []

    def look(stage, done, total, failed):
        seen.append([row["name"] for row in Watcher(tmp_path).overview()["folders"]])

    sweep(tmp_path / "s", progress=look)
    assert seen[-1][0] == "s"
    assert seen[-1][-1] == "c"


def test_figures_of_many_runs_are_read_bit_by_bit(tmp_path, monkeypatch):
    for name in "abc":
        finished_run(tmp_path / name, M=10)
    monkeypatch.setattr(watchers, "_READING", -1.0)
    watcher = Watcher(tmp_path)
    assert all(row["pending"] for row in watcher.overview()["folders"])
    monkeypatch.setattr(watchers, "_READING", 60.0)
    assert not any(row["pending"] for row in watcher.overview()["folders"])


# ---------------------------------------------------------------- runs


def test_a_finished_run_shows_its_figures(tmp_path):
    run = finished_run(tmp_path / "a", K=2, seed=3)
    summary = run.summary()
    (row,) = rows_of(tmp_path).values()
    assert (row["state"], row["done"], row["total"], row["seed"]) == ("done", 60, 60, 3)
    assert row["regret"] == number(summary["dynamic_regret_per_episode"])
    assert row["violation"] == number(summary["violation_per_episode"])
    shown = detail_of(tmp_path, "a")
    assert shown["title"] == "random: opt-cmdp"
    titles = [plot["title"] for plot in shown["plots"]]
    assert titles[:5] == ["Reward and optimum", "Utility and threshold, constraint 1",
                          "Utility and threshold, constraint 2", "Dynamic regret",
                          "Long-run violation"]  # fmt: skip
    names = [trace["name"] for trace in shown["plots"][1]["figure"]["data"]]
    assert "threshold b" in names
    caption = "".join(text for _, text in shown["plots"][3]["caption"])
    assert caption.startswith("DR(n) = Σm≤n (Vr*[m] − Vr[πm, m])")
    np.testing.assert_allclose(
        shown["plots"][3]["figure"]["data"][0]["y"], run.dynamic_regret, rtol=1e-5
    )


def test_long_lines_are_thinned_and_keep_their_extremes(tmp_path):
    run = finished_run(tmp_path / "a", M=3000)
    for plot in detail_of(tmp_path, "a")["plots"]:
        for trace in plot["figure"]["data"]:
            assert len(trace["x"]) == len(trace["y"]) <= 500
    utility = detail_of(tmp_path, "a")["plots"][1]["figure"]["data"][0]["y"]
    assert min(utility) == pytest.approx(run.outcome.utility.min(), rel=1e-5)
    assert max(utility) == pytest.approx(run.outcome.utility.max(), rel=1e-5)


def test_a_running_run_shows_the_episodes_so_far(tmp_path, monkeypatch):
    small_chunks(monkeypatch)
    seen = []

    def look():
        seen.append((rows_of(tmp_path)["a"], detail_of(tmp_path, "a")))

    run_until(tmp_path / "a", look)
    ((row, shown),) = seen
    whole = finished_run(tmp_path / "b")
    assert (row["state"], row["done"], row["total"]) == ("running", 40, 60)
    assert row["regret"] == number(float(whole.dynamic_regret[39] / 40))
    assert row["violation"] == number((whole.violation[39] / 40).tolist())
    line = shown["plots"][2]["figure"]
    np.testing.assert_allclose(line["data"][0]["y"], whole.dynamic_regret[:40], rtol=1e-5)
    assert line["layout"]["xaxis"]["range"] == [-0.5, 59.5]
    assert shown["headline"].startswith("In 40 episodes opt-cmdp gained")
    assert "M = 60" in shown["configuration"]


def test_a_run_that_failed_or_was_stopped_shows_how_far_it_came(tmp_path, monkeypatch):
    small_chunks(monkeypatch)
    run_until(tmp_path / "failed", lambda: None)
    run_until(tmp_path / "stopped", lambda: None, error=KeyboardInterrupt)
    rows = rows_of(tmp_path)
    assert rows["failed"]["state"] == "failed"
    assert rows["failed"]["error"] == "Stopped: boom"
    assert rows["stopped"]["state"] == "interrupted"
    for name in rows:
        assert rows[name]["done"] == 40
        assert detail_of(tmp_path, name)["plots"][2]["title"] == "Dynamic regret"


def test_a_run_that_goes_on_is_followed(tmp_path, monkeypatch):
    """What was written after the last checkpoint is cut off and written again."""
    small_chunks(monkeypatch)
    watcher, seen = Watcher(tmp_path), []

    def look():
        (row,) = watcher.overview()["folders"]
        seen.append((row["state"], row["done"], row["regret"]))

    run_until(tmp_path / "a", look, stop=20, checkpoint_seconds=0)
    small_chunks(monkeypatch, 7)
    run_until(tmp_path / "a", look, stop=45, resume=True, checkpoint_seconds=1000)
    look()
    small_chunks(monkeypatch, 3)
    run_until(tmp_path / "a", look, stop=30, resume=True, checkpoint_seconds=1000)
    whole = finished_run(tmp_path / "b").dynamic_regret
    counts = [done for _, done, _ in seen]
    assert counts[0] == 20
    assert [state for state, *_ in seen] == ["running", "running", "failed", "running"]
    for _, done, regret in seen:
        assert regret == number(float(whole[done - 1] / done))


def test_a_run_that_replaces_another_is_shown_beside_it(tmp_path, monkeypatch):
    small_chunks(monkeypatch)
    finished_run(tmp_path / "a")
    seen = []
    run_until(tmp_path / "a", lambda: seen.append(rows_of(tmp_path)), force=True)
    (rows,) = seen
    assert rows["a"]["state"] == "done"
    assert rows["a/replacement"]["state"] == "running"
    assert rows["a/replacement"]["done"] == 40


def test_a_run_that_has_not_begun_says_so(tmp_path):
    with run_folder.RunFolder(tmp_path / "a"):
        (row,) = rows_of(tmp_path).values()
        assert (row["state"], row["total"], row["error"]) == ("running", None, None)
        assert detail_of(tmp_path, "a")["problem"] is None


def test_changes_that_the_learner_notices_are_shown_while_it_plays(tmp_path, monkeypatch):
    small_chunks(monkeypatch)
    event = Event(7, "reward", 1, 2, 0, None, 0.5, 0.25, 1)
    monkeypatch.setattr(run_folder, "noticed_events", lambda learner, names: [event])
    seen = []

    def look():
        seen.append((rows_of(tmp_path)["a"], detail_of(tmp_path, "a")))

    run_until(tmp_path / "a", look)
    ((row, shown),) = seen
    assert row["events"] == 1
    assert shown["changes"] == [["7", "reward", "step 1, state 2, action 0", "0.500 → 0.250"]]
    for plot in shown["plots"][:4]:
        marks = plot["figure"]["data"][-1]
        assert (marks["name"], marks["x"]) == ("change noticed", [7])
        assert marks["text"] == [str(event).replace(">", "&gt;")]  # Plotly takes it as HTML


def test_a_world_without_a_model_shows_what_was_observed(tmp_path, monkeypatch):
    small_chunks(monkeypatch)
    lake = sd.from_gymnasium(
        "FrozenLake-v1", 5, lambda t: float(not t.terminated), threshold=3.0, episodes=70
    )
    seen = []

    class Look(sd.Callback):
        def on_rows(self, rows):
            seen.append(rows_of(tmp_path).get("lake"))

    agent = sd.PROPDPPO.for_problem(lake, sd.Slater(gamma=0.4))
    run = sd.simulate(lake, agent, out=tmp_path / "lake", callbacks=[Look()])
    shown = detail_of(tmp_path, "lake")
    assert shown["plots"][0]["title"] == "Observed reward"
    assert rows_of(tmp_path)["lake"]["regret"] is None
    assert seen[0]["state"] == "running"
    assert seen[0]["done"] == 32
    assert seen[0]["violation"] is not None
    assert run.truth.known is False


def test_log_spaced_records_are_shown(tmp_path):
    finished_run(tmp_path / "a", M=400, measure_log=20)
    shown = detail_of(tmp_path, "a")
    assert any("log-spaced" in note for note in shown["notes"])


# ---------------------------------------------------------------- sweeps


def test_a_sweep_shows_progress_failures_and_scores(tmp_path):
    watcher, seen = Watcher(tmp_path), []

    def look(stage, done, total, failed):
        if stage == "runs":
            (row,) = watcher.overview()["folders"]
            seen.append((row["state"], row["done"], row["failed"], row["total"]))

    sweep(tmp_path / "s", FAILING, look)
    assert [x[1] for x in seen] == [0, 1, 2, 3, 4, 5, 6]
    assert seen[-1] == ("running", 6, 3, 6)
    (row,) = watcher.overview()["folders"]
    assert (row["state"], row["title"]) == ("done", "1 world × 2 learners × 3 seeds")
    assert row["rate"] > 0
    shown = detail_of(tmp_path, "s")
    assert [line[0] for line in shown["learners"]] == ["uniform", "softmax-lsvi"]
    assert shown["learners"][0][1:2] == ["1"]
    assert shown["learners"][0][-2:] == ["3", ""]
    assert shown["learners"][1][-2:] == ["0", "3"]
    ((count, error),) = shown["errors"]
    assert count == "3"
    assert "world must be one with features" in error
    assert "".join(text for _, text in shown["definitions"][0]).startswith("(Σ [Vr* - Vr]₊")
    assert shown["figure"]["data"][0]["x"] == [1.0]


def test_scores_so_far_are_the_means_of_the_results(tmp_path):
    import pyarrow.parquet as pq

    found = sweep(tmp_path / "s", STUDY)
    table = pq.read_table(found.results).to_pylist()
    shown = {line[0]: line for line in detail_of(tmp_path, "s")["learners"]}
    for name in ("uniform", "opt-cmdp"):
        scores = [row["strict_score"] for row in table if row["entrant"] == name]
        assert shown[name][1] == number(sum(scores) / 3)
        violations = [row["violation"] for row in table if row["entrant"] == name]
        assert shown[name][3] == number(sum(violations) / 3)


def test_learners_are_compared_in_the_same_worlds(tmp_path):
    """A sweep goes world by world: whoever is behind has played other worlds than the rest."""
    study = STUDY | {"problems": ["stationary", {"name": "random", "options": {"gamma": 0.2}}]}
    seen = {}

    def look(stage, done, total, failed):
        if stage == "runs":
            seen[done] = detail_of(tmp_path, "s")

    sweep(tmp_path / "s", study, look)
    assert [(seen[n]["common_worlds"], seen[n]["worlds"]) for n in (0, 2, 4, 6, 8, 10)] == [
        (0, 2), (1, 2), (1, 2), (1, 2), (1, 2), (2, 2),
    ]  # fmt: skip
    one, both = seen[6], seen[8]  # uniform has played two runs in the second world meanwhile
    assert both["learners"][0][:4] == one["learners"][0][:4]
    assert {line[0]: line[4] for line in both["learners"]} == {"uniform": "5", "opt-cmdp": "3"}


# ---------------------------------------------------------------- parts


def test_pace_forgets_what_is_long_ago():
    pace = Pace()
    assert pace.rate is None
    for second in range(60):
        pace.see(second if second < 30 else 30 + 10 * (second - 30), at=float(second))
    assert pace.rate == pytest.approx(10)
    pace.see(0, at=61.0)
    assert pace.rate is None
    pace.see(0, at=70.0)
    assert pace.left(10) is None
    pace.see(10, at=71.0)  # from when it began to move
    assert pace.rate == pytest.approx(10)
    assert pace.left(30) == pytest.approx(2)


def test_plain_data_is_strict_json():
    found = plain({"a": np.array([1.0, np.nan, np.inf]), "b": np.int64(3), "c": ("x" * 9000, True)})
    assert found == {"a": [1.0, None, None], "b": 3, "c": ["x" * 1999 + "…", True]}


def test_ids_tell_folders_apart(tmp_path):
    for name in ("a", "b"):
        finished_run(tmp_path / name, M=5)
    ids = [found.id for found in find_folders(tmp_path)]
    assert len(set(ids)) == 2
    assert all(len(id) == 16 for id in ids)
