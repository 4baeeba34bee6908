"""Runs on disk from the command line: ls, show, verify, --resume, and what is refused."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import safedrift as sd
from builders import forge_folder, rewrite_run
from safedrift.cli import app

SMALL = ["run", "random", "-n", "60", "-o", "states=3", "-o", "horizon=3", "-o", "gamma=0.2"]
HTML = "<script>alert(1)</script>"


def command(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def run(tmp_path):
    out = tmp_path / "runs" / "a"
    done = command(*SMALL, "--out", out)
    assert done.exit_code == 0, done.output
    return out


def one_sentence(done, code=2):
    assert done.exit_code == code, done.output
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("safedrift: ")
    assert "Traceback" not in done.output
    assert "internal error" not in done.output
    return done.stderr


def test_runs_are_listed(run):
    assert command(*SMALL, "--out", run.with_name("b"), "--seed", 4).exit_code == 0
    (run.with_name("c")).mkdir()
    shown = command("ls", run.parent).stdout
    assert shown.count("done") == 2
    one, other = json.loads(command("ls", run.parent, "--json").stdout)
    assert (one["problem"], one["learner"], one["episodes"]) == ("random", "propd-ppo", "60")
    assert one["id"] != other["id"]
    assert other["seed"] == 4
    assert command("ls", run.parent / "c").stdout.startswith("no runs in")


def test_a_damaged_run_is_listed_as_such(run):
    (run / "manifest.json").write_text("{}")
    (row,) = json.loads(command("ls", run.parent, "--json").stdout)
    assert row["state"] == "damaged"
    assert "manifest.json must be the manifest of a run" in row["error"]
    assert "damaged" in command("ls", run.parent).stdout


def test_a_run_is_shown(run):
    shown = command("show", run).stdout
    for words in (
        "state",
        "run.learner.settings.knowledge.gamma",
        "versions.numba",
        "files.records",
    ):
        assert words in shown
    plain = json.loads(command("show", run, "--json").stdout)
    assert plain["request"]["options"] == {"states": 3, "horizon": 3, "gamma": 0.2}
    assert plain["state"] == "done"


def test_a_run_is_verified(run):
    done = command("verify", run)
    assert done.exit_code == 0
    assert "60 episodes from the start, played again: the same bits" in done.stdout
    page = run / "report.html"
    page.write_bytes(page.read_bytes()[:-1])
    done = command("verify", run)
    assert done.exit_code == 1
    assert "report.html must have" in done.stdout


@pytest.mark.parametrize("learner", ["opt-cmdp:window=20", "uniform", "dope", "propd-ppo:eta=0.1"])
def test_runs_of_other_learners_are_verified_too(tmp_path, learner):
    done = command(*SMALL, "--learner", learner, "--out", tmp_path / "a")
    assert done.exit_code == 0, done.output
    done = command("verify", tmp_path / "a", "--episodes", 30)
    assert "30 episodes from the start, played again: the same bits" in done.stdout


def test_what_report_and_certify_add_is_in_the_manifest(run):
    assert command("certify", run).exit_code == 0
    assert command("verify", run).exit_code == 0
    assert "certificates.json" in json.loads(command("show", run, "--json").stdout)["files"]
    (run / "report.html").unlink()
    assert command("report", run).exit_code == 0
    assert command("verify", run).exit_code == 0


def test_a_finished_run_is_not_played_again(run):
    before = (run / "manifest.json").read_bytes()
    done = command(*SMALL, "--out", run, "--resume")
    assert done.exit_code == 0
    assert "is finished; nothing was played" in done.stderr
    assert (run / "manifest.json").read_bytes() == before
    sentence = one_sentence(command(*SMALL, "--out", run, "--resume", "--seed", 1))
    assert "seed must be 0, as in" in sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--resume"], "--out must be given with --resume"),
        (["--resume", "--force", "--out", "a"], "--resume and --force must not be given together"),
        (["--learner", "opt-cmpd"], "(did you mean 'opt-cmdp'?)"),
        (["--learner", "uniform", "--set", "eta=1"], "--set must be left out with --learner"),
        (["--learner", "uniform", "--gamma", "1"], "--gamma must be left out with --learner"),
        (["--measure-log", "0"], "measure_log must be an integer in [1, 1000000]; got 0"),
        (["--measure-log", "9", "--measure-every", "2"], "measure_every must be 1 where"),
        (["--checkpoint-every", "-1"], "checkpoint_seconds must be a finite number >= 0"),
    ],
)
def test_wrong_options_get_a_sentence(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    assert sentence in one_sentence(command(*SMALL, *arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_run_that_is_asked_to_stop_says_how_to_go_on(tmp_path, number):
    out = tmp_path / "a"
    arguments = ["run", "random", "-n", "3000000", "-o", "states=8", "-o", "horizon=9"]
    arguments += ["--measure-log", "50", "--out", str(out), "--checkpoint-every", "0"]
    # Where these tests run in the background, Ctrl-C is ignored, and children inherit that.
    listens = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    script = f"import runpy, signal; {listens}; runpy.run_module('safedrift', run_name='__main__')"
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stderr=subprocess.PIPE, text=True
    )
    try:
        while process.poll() is None and not list(out.glob("checkpoint-*")):
            time.sleep(0.05)
        listed = json.loads(command("ls", tmp_path, "--json").stdout)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert listed[0]["state"] == "running"
    assert process.returncode == 2
    assert f"stopped; the same command with --out {out} --resume goes on" in errors
    (row,) = json.loads(command("ls", tmp_path, "--json").stdout)
    assert row["state"] == "interrupted"
    assert " of 3,000,000" in row["episodes"]
    for name in ("report", "certify", "verify"):
        assert "one that is interrupted" in one_sentence(command(name, out))


# ---------------------------------------------------------------- hostile folders


def test_html_in_names_is_never_shown_as_html(run):
    def rename(table):
        manifest = json.loads(table.schema.metadata[b"safedrift"])
        manifest["problem"] = manifest["learner"]["name"] = HTML
        return table.replace_schema_metadata({"safedrift": json.dumps(manifest)})

    rewrite_run(run / "records.parquet", rename)
    forge_folder(
        run, lambda m: m["run"].update(problem=HTML, learner={**m["run"]["learner"], "name": HTML})
    )
    assert command("report", run).exit_code == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert HTML not in page
    assert "&lt;script&gt;alert(1)" in page
    assert command("ls", run).exit_code == 0


def test_a_folder_cannot_make_verify_run_the_code_of_a_file(run, tmp_path):
    mark = tmp_path / "was-here"
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w')\ndef make(world): return None\n")
    for source in (f"{tmp_path}/evil.py:make", "uniform:x.py:make"):
        forge_folder(run, lambda m, source=source: m["request"].update(learner=source))
        command("verify", run)
    forge_folder(run, lambda m: m["run"].update(problem=f"{tmp_path}/evil.py:make"))
    for name in ("verify", "certify", "report", "show"):
        command(name, run)
    assert not mark.exists()


def test_control_characters_do_not_reach_the_terminal(run):
    forge_folder(run, lambda m: m["request"].update(problem="\x1b[2Jboo"))
    for name in ("show", "ls"):
        assert "\x1b[2J" not in command(name, run).stdout


@pytest.mark.parametrize(
    "change",
    [
        {"options": {"episodes": 60, "states": 10**9}},
        {"options": {"nonsense": 1}},
        {"options": []},
        {"sizes": {"M": 10**12, "H": 3, "S": 3, "A": 3, "K": 1}},
        {"sizes": {"M": 60, "H": 3, "S": 3, "A": 3, "K": 7}},
        {"constraints": ["a", "b", "c"]},
        {"constraints": []},
        {"scale": {"x": 1}},
        {"scale": {}},
        {"measure_every": 7},
        {"measure_log": 3},
        {"discretisation": {"nodes": 3}},
        {"discretisation": {"nodes": [1, 2], "episodes": []}},
        {"learner": {"name": "propd-ppo", "settings": {"parameters": 3}}},
        {"learner": {"name": "propd-ppo", "settings": {"parameters": {}, "knowledge": 1}}},
        {"learner": {"name": "x", "settings": {"forgetting": [1]}}},
        {"environment": 3},
    ],
    ids=lambda change: json.dumps(change)[:60],
)
def test_edited_settings_give_sentences(run, change):
    """A forger who gets all checksums right still meets sentences, not tracebacks."""

    def edit(manifest):
        manifest.update(change)
        return manifest

    def changed(table):
        text = json.dumps(edit(json.loads(table.schema.metadata[b"safedrift"])))
        return table.replace_schema_metadata({"safedrift": text})

    rewrite_run(run / "records.parquet", changed)
    forge_folder(run, lambda manifest: edit(manifest["run"]))
    for name in ("show", "report", "certify", "verify", "ls"):
        done = command(name, run)
        assert "Traceback" not in done.output
        assert "internal error" not in done.output, (name, done.output)
        assert done.exit_code in (0, 1, 2)


words = st.sampled_from(
    ["ls", "show", "verify", "report", "--json", "--episodes", "-1", "0", "3", "--world", "x.yaml",
     "--out", "{run}", "{run}/records.parquet", "nowhere", "", "\x00", "../..", "--resume", "-n"]
)  # fmt: skip


@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(verb=st.sampled_from(["ls", "show", "verify"]), rest=st.lists(words, max_size=4))
def test_any_flags_end_in_an_answer_or_a_sentence(run, verb, rest):
    done = command(verb, *(word.replace("{run}", str(run)) for word in rest))
    assert done.exit_code in (0, 1, 2)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "internal error" not in done.output


def test_the_python_call_reads_what_the_command_wrote(run):
    assert sd.Run.from_folder(run).manifest.problem == "random"
    assert os.listdir(run.parent) == ["a"]
