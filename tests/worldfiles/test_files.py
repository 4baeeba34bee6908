"""A world of one's own from a file: it works, and each broken variant is named."""

import re
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import safedrift as sd
from builders import dense_weights, small_world
from safedrift.cli import app
from safedrift.worldfiles.loading import ARRAYS, is_file, load

M, N, H, S, A, K = 30, 3, 3, 4, 2, 2


def arrays_of(world):
    weights = dense_weights(world.transition_path, len(world.scenarios))
    stack = {
        "transitions": [c.dense_transitions() for c in world.scenarios],
        "rewards": [c.rewards for c in world.scenarios],
        "utilities": [c.utilities for c in world.scenarios],
    }
    return {name: np.stack(values) for name, values in stack.items()} | {
        "initial": world.initial, "weights": weights, "thresholds": world.thresholds,
    }  # fmt: skip


@pytest.fixture
def arrays():
    return arrays_of(small_world(M=M, S=S, A=A, H=H, K=K, drift="linear"))


def written(folder, arrays, name="my_world.npz"):
    np.savez(folder / name, **arrays)
    return str(folder / name)


def command(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_the_world_in_a_file_is_the_world_that_was_written(tmp_path, arrays):
    world = load(written(tmp_path, arrays))
    assert world.name == "my_world.npz"
    assert (world.M, world.H, world.S, world.A, world.K) == (M, H, S, A, K)
    assert set(arrays) == set(ARRAYS)
    for name, values in arrays_of(world).items():
        np.testing.assert_allclose(values, arrays[name], atol=1e-15)


def test_weights_may_be_scenario_numbers(tmp_path, arrays):
    numbers = np.arange(M) // 10
    world = load(written(tmp_path, arrays | {"weights": numbers}))
    np.testing.assert_array_equal(world.transition_path.scenario[:, 0], numbers)


def test_names_and_files_are_told_apart():
    assert is_file("my_world.npz")
    assert is_file("folder/my_world.py:make")
    assert not is_file("maze")


def test_both_kinds_run_from_the_command_line(tmp_path, arrays):
    done = command("run", written(tmp_path, arrays), "--out", tmp_path / "a")
    assert done.exit_code == 0, done.output
    assert "my_world.npz" in done.output
    (tmp_path / "mine.py").write_text(
        "import safedrift as sd\n"
        "def make(episodes=7):\n"
        "    return sd.problems.make('random', episodes=episodes, states=3)\n"
        "def fixed():\n"
        "    return make()\n"
    )
    done = command("run", f"{tmp_path / 'mine.py'}:make", "-n", 20, "--out", tmp_path / "b")
    assert done.exit_code == 0, done.output
    assert sd.Run.from_parquet(tmp_path / "b" / "records.parquet").manifest.sizes.M == 20
    done = command("run", f"{tmp_path / 'mine.py'}:make", "--out", tmp_path / "c")
    assert done.exit_code == 0, done.output
    assert sd.Run.from_parquet(tmp_path / "c" / "records.parquet").manifest.sizes.M == 7
    assert load(f"{tmp_path / 'mine.py'}:fixed").M == 7
    run = sd.Run.from_parquet(tmp_path / "a" / "records.parquet")
    assert run.certify(load(str(tmp_path / "my_world.npz"))).identities_hold


def replaced(name, value, at=...):
    def change(arrays):
        values = np.array(arrays[name])
        values[at] = value
        return arrays | {name: values}

    return change


def reshaped(name, function):
    return lambda arrays: arrays | {name: function(arrays[name])}


def without(name):
    return lambda arrays: {key: value for key, value in arrays.items() if key != name}


BROKEN = {
    "no transitions": (without("transitions"), "without transitions"),
    "no thresholds": (without("thresholds"), "without thresholds"),
    "unknown array": (lambda a: a | {"reward": a["rewards"]}, "with unknown reward"),
    "transitions of one scenario": (
        reshaped("transitions", lambda x: x[0]), "transitions in .* must be an array of 5 axes",
    ),
    "rewards without scenarios": (
        reshaped("rewards", lambda x: x[0]), "rewards in .* must be an array of 4 axes",
    ),
    "utilities without constraints": (
        reshaped("utilities", lambda x: x[:, 0]), "utilities in .* must be an array of 5 axes",
    ),
    "one threshold": (
        reshaped("thresholds", lambda x: x[:, 0]), "thresholds in .* must be an array of 2 axes",
    ),
    "fewer rewards": (reshaped("rewards", lambda x: x[:2]), "rewards in .* must be of length 3"),
    "fewer utilities": (reshaped("utilities", lambda x: x[:2]), "utilities in .* of length 3"),
    "fewer thresholds": (reshaped("thresholds", lambda x: x[:9]), "thresholds in .* of length 30"),
    "a row that does not sum to 1": (
        replaced("transitions", 0.0, (1, 0, 2, 1)), "scenario 1 of .*: each row of transitions",
    ),
    "a negative probability": (
        replaced("transitions", -0.1, (2, 0, 2, 1, 0)), "scenario 2 of .*: transitions must",
    ),
    "nan in the transitions": (
        replaced("transitions", np.nan, (0, 0, 0, 0, 0)), "scenario 0 of .*: transitions must",
    ),
    "a reward above 1": (
        replaced("rewards", 1.5, (1, 0, 0, 0)), "scenario 1 of .*: rewards must be in",
    ),
    "a negative utility": (
        replaced("utilities", -0.5, (0, 1, 0, 0, 0)), "scenario 0 of .*: utilities must be in",
    ),
    "too many states in the rewards": (
        reshaped("rewards", lambda x: np.concatenate([x, x], axis=2)),
        "scenario 0 of .*: utilities must",
    ),
    "another start": (replaced("initial", 0.7), "initial must"),
    "a start of another size": (reshaped("initial", lambda x: x[:-1]), "initial must"),
    "weights that do not sum to 1": (replaced("weights", 0.9), "weights must"),
    "weights of other scenarios": (reshaped("weights", lambda x: x[:, :2]), "weights must"),
    "a scenario that is not there": (lambda a: a | {"weights": np.full(M, 3)}, "weights must"),
    "a threshold above H": (replaced("thresholds", H + 1.0, (4, 1)), "thresholds must"),
    "a threshold that cannot be reached": (
        replaced("thresholds", float(H), (7, 0)), "every episode must be feasible",
    ),
    "words": (lambda a: a | {"rewards": np.full(a["rewards"].shape, "high")}, "array of numbers"),
    "dates": (lambda a: a | {"rewards": a["rewards"].astype("datetime64[s]")}, "array of numbers"),
    "no episodes": (lambda a: a | {"weights": a["weights"][:0]}, r"weights in .* shape \(0, 3\)"),
    "weights beside": (lambda a: a | {"weights": 0.5 * a["weights"]}, r"my_world.npz: each row of"),
    "objects": (lambda a: a | {"rewards": a["rewards"].astype(object)}, "plain arrays"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_told_by_name(tmp_path, arrays, name):
    change, message = BROKEN[name]
    done = command("run", written(tmp_path, change(arrays)), "--out", tmp_path / "out")
    assert done.exit_code == 2, done.output
    said = " ".join(done.stderr.split())
    assert re.search(message, said), said
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "source", "message"),
    [
        ("", "nothing.npz", "an existing file"),
        ("", "nothing.py:make", "an existing file"),
        ("x = 1", "mine.py:make", "FILE.py:FUNCTION"),
        ("def make(:", "mine.py:make", "failed: SyntaxError"),
        ("def make():\n    return 1 / 0", "mine.py:make", "failed: ZeroDivisionError"),
        ("def make():\n    return 3", "mine.py:make", "returns must be a DriftingCMDP"),
        ("def make(size):\n    return size", "mine.py:make", "failed: TypeError"),
        ("def make():\n    raise KeyError('a\\nb')", "mine.py:make", "failed: KeyError: 'a\\nb'"),
        ("def make():\n    pass", "mine.py", "FILE.py:FUNCTION, with the function that returns"),
    ],
)
def test_broken_functions_are_told(tmp_path, text, source, message):
    (tmp_path / "mine.py").write_text(text)
    done = command("run", tmp_path / source, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_arrays_say_themselves_how_many_episodes_there_are(tmp_path, arrays):
    path = written(tmp_path, arrays)
    assert load(path, M).M == M
    done = command("run", path, "-n", M + 1, "--out", tmp_path / "out")
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    assert f"episodes must be left out, or the {M} of the weights in {path}; got {M + 1}" in said


def test_named_worlds_have_20000_episodes_unless_told(tmp_path):
    for told, M in (((), 20_000), (("-n", 300), 300)):
        done = command(
            "run", "stationary", *told, "--measure-every", 10**9, "--out", tmp_path / "o"
        )
        assert done.exit_code == 2
        assert f"measure_every must be an integer in [1, {M}]" in done.stderr


def test_files_take_no_options_and_rubbish_is_no_file(tmp_path, arrays):
    done = command("run", written(tmp_path, arrays), "-o", "states=3", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "--option must be left out with a file of your own" in " ".join(done.stderr.split())
    (tmp_path / "rubbish.npz").write_bytes(b"no zip")
    done = command("run", tmp_path / "rubbish.npz", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "must be an .npz file, as numpy.savez writes it" in " ".join(done.stderr.split())


def test_damaged_and_renamed_files_are_told(tmp_path, arrays):
    whole = (tmp_path / "whole.npz", tmp_path / "array.npz", tmp_path / "empty.npz")
    np.savez_compressed(whole[0], **arrays)
    raw = bytearray(whole[0].read_bytes())
    head = raw.index(b"rewards.npy") - 30  # local header: 30 bytes, name, extra field, data
    data = head + 30 + sum(int.from_bytes(raw[head + i : head + i + 2], "little") for i in (26, 28))
    raw[data : data + 50] = b"\xff" * 50  # no block of a deflated stream begins so
    whole[0].write_bytes(raw)
    with whole[1].open("wb") as stream:
        np.save(stream, arrays["rewards"])
    whole[2].touch()
    for path in whole:
        done = command("problems", "check", path)
        assert done.exit_code == 2, done.output
        assert done.stderr.startswith(f"safedrift: {path} must be an .npz file")


def test_capital_endings_are_files_too(tmp_path, arrays):
    path = tmp_path / "MINE.NPZ"
    with path.open("wb") as stream:
        np.savez(stream, **arrays)
    assert load(str(path)).M == M


def test_a_file_may_have_dataclasses_and_neighbours(tmp_path):
    (tmp_path / "neighbour.py").write_text("M = 30\n")
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from neighbour import M\n"
        "import safedrift as sd\n"
        "@dataclass\nclass Size:\n    M: int\n"
        "def make():\n    import neighbour\n"
        "    return sd.problems.make('stationary', Size(neighbour.M).M)\n"
    )
    before = list(sys.path)
    assert load(str(tmp_path / "mine.py:make")).M == 30
    assert sys.path == before


def test_what_a_file_prints_is_not_the_result(tmp_path):
    text = "import safedrift as sd\n\ndef make():\n    print('hello')\n"
    (tmp_path / "mine.py").write_text(text + "    return sd.problems.make('stationary', 30)\n")
    done = command("run", tmp_path / "mine.py:make", "--json", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("{")
    assert "hello" in done.stderr
