"""`safedrift problems`: lists, tells, describes, draws and checks."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_commands import command
from test_files import arrays_of, written

import safedrift as sd
from builders import small_world
from safedrift.cli.problems_command import BLOCKS, sparkline
from safedrift.problems import PROBLEMS, display
from safedrift.worldfiles.loading import load

ROOT = Path(__file__).parents[2]


def test_all_problems_are_listed():
    text = command("problems").output
    for name in PROBLEMS:
        assert name in text


def test_description_options_table_and_sparklines_are_printed():
    done = command("problems", "energy", "-n", 400, "-o", "swing=0.1")
    assert done.exit_code == 0, done.output
    found = sd.describe(sd.problems.make("energy", 400, swing=0.1))
    for words in ("Description", "Utility and threshold", "swing=0.15", "M = 400", "threshold   █"):
        assert words in done.stdout
    assert f"binds in {found.binding[0]:.0%} of" in done.stdout
    assert "episodes 0 to 399" in done.stdout


def test_json_is_the_record_of_the_description():
    done = command("problems", "maze", "-n", 90, "--json")
    record = json.loads(done.stdout, parse_constant=pytest.fail)
    assert record == sd.describe(sd.problems.make("maze", 90)).record()


@pytest.mark.parametrize("learner", [[], ["--learner"]])
def test_picture_is_drawn(tmp_path, learner):
    path = tmp_path / "maze.png"
    done = command("problems", "maze", "-n", 60, "--picture", path, *learner)
    assert done.exit_code == 0, done.output
    assert str(path) in done.stdout.replace("\n", "")
    with Image.open(path) as picture:
        assert picture.size == (1200, 800)


@pytest.fixture
def world():
    return small_world(M=30, S=4, A=2, H=3, K=2, drift="linear")


def test_file_of_ones_own_is_described_and_checked(tmp_path, world):
    path = written(tmp_path, arrays_of(world))
    assert json.loads(command("problems", path, "--json").stdout)["sizes"]["M"] == 30
    done = command("problems", "check", path)
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert "Valid and feasible: all 30 distinct episodes were read again" in said
    (tmp_path / "mine.py").write_text(
        "import safedrift as sd\n"
        "def make(episodes=7):\n    return sd.problems.make('queue', episodes=episodes)\n"
    )
    done = command("problems", "check", f"{tmp_path / 'mine.py'}:make", "-n", 50)
    assert done.exit_code == 0, done.output
    assert "all 4 distinct episodes" in done.stdout  # normal, slack, normal again, rush
    assert "M = 50" in done.stdout


def test_all_distinct_episodes_are_checked_not_only_the_described_ones(tmp_path):
    world = small_world(M=450, S=3, A=2, H=3, drift="linear")
    b = np.array(world.thresholds)
    m = 3
    assert m not in sd.describe(world).episodes
    b[m] = world.H
    path = written(tmp_path, arrays_of(world) | {"thresholds": b})
    assert command("problems", path).exit_code == 0
    done = command("problems", "check", path)
    assert done.exit_code == 2
    assert f"the first at episode {m}" in " ".join(done.stderr.split())


def test_episode_that_is_no_world_is_named(tmp_path, world, monkeypatch):
    def broken(self, m):
        if m == 7:
            raise ValueError("rewards must be in [0, 1]; got 2.0 at index (0, 0, 0)")
        return at(self, m)

    at = sd.DriftingCMDP.at
    monkeypatch.setattr(sd.DriftingCMDP, "at", broken)
    done = command("problems", "check", written(tmp_path, arrays_of(world)))
    assert done.exit_code == 2
    assert "safedrift: episode 7: rewards must be in [0, 1]; got 2.0" in done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transitions": 0.0}, "each row of transitions must be a distribution"),
        ({"rewards": 1.5}, "rewards must be in [0, 1]"),
        ({"thresholds": 9.0}, "thresholds must be in (0, H]"),
        ({"weights": 0.9}, "each row of weights must be a distribution"),
        ({"thresholds": 3.0}, "every episode must be feasible"),
    ],
)
def test_faults_of_a_file_are_one_sentence_and_exit_code_2(tmp_path, world, change, message):
    arrays = arrays_of(world)
    for name, value in change.items():
        arrays[name] = np.array(arrays[name])
        arrays[name].flat[-arrays[name].shape[-1] :] = value
    done = command("problems", "check", written(tmp_path, arrays))
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mars"], "problem must be one of"),
        (["maze", "energy"], "FILE must follow 'check' only; got maze energy"),
        (["check"], "check must be followed by a file or the name of a world; got nothing"),
        (["check", "mars"], "problem must be one of"),
        (["maze", "-n", "0"], "episodes must be an integer >= 1; got 0"),
        (["maze", "-o", "colour=red"], "option of maze must be one of"),
        (["maze", "--picture", "maze.jpg"], "--picture must be a file whose name ends in .png"),
        (["maze", "--picture", "no/such/a.png"], "--picture must lie in a folder that exists"),
        (["maze", "--learner"], "--learner must come with --picture"),
        (["nothing.npz"], "an existing file"),
        (["nothing.npz", "-o", "a=1"], "--option must be left out with a file of your own"),
    ],
)
def test_wrong_arguments_get_one_sentence(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = command("problems", *arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_sparkline_goes_from_lowest_to_highest():
    assert sparkline(np.arange(8.0)) == f"{BLOCKS} 0 to 7"
    assert sparkline(np.full(3, 2.5)) == "▅▅▅ 2.5"
    assert sparkline(np.array([0, np.nan, 1.0])) == "▁ █ 0 to 1"
    assert sparkline(np.array([np.nan])) == "no number in any episode"


def test_long_line_keeps_its_times():
    values = np.zeros(1000)
    values[500:] = 1
    drawn = sparkline(values, width=10).split()[0]
    assert drawn == "▁" * 5 + "█" * 5
    values = np.zeros(15)
    values[9:] = 1
    assert sparkline(values, width=10).split()[0].index("█") == 6


def unsafe(world, m):
    """The same world, but nothing is safe in episode m."""
    thresholds = np.array(world.thresholds)
    thresholds[m] = world.H
    return arrays_of(world.with_thresholds(thresholds))


def test_nothing_is_drawn_where_no_policy_is_safe(tmp_path, world):
    path = written(tmp_path, unsafe(world, 17))
    done = command("problems", path, "--picture", tmp_path / "x.png")
    assert done.exit_code == 2
    said = "--picture must be of a world that can be safe; episode 17 cannot"
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "x.png").exists()
    assert "No policy is safe in 1 of them, the first is 17" in command("problems", path).stdout


def test_picture_and_json_want_a_name():
    for wish in (["--json"], ["--picture", "x.png"]):
        done = command("problems", *wish)
        assert done.exit_code == 2
        assert "NAME must be given with --picture and --json" in done.stderr


def test_names_of_a_yaml_file_are_in_its_picture():
    found = display(load(str(ROOT / "examples" / "machine.yaml"), 50))
    assert found.drifts[0].names == ("winter", "summer")
    assert [snapshot.name for snapshot in found.snapshots] == ["winter", "summer"]
