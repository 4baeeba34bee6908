"""Many runs in one call: the runs of `simulate`, for any number of workers."""

import sys
import threading

import numpy as np
import pytest

import safedrift as sd
from safedrift.experiments import many_runs
from safedrift.learners.forgetting import SlidingWindow
from safedrift.results.many_runs import FIGURES

M = 150


@pytest.fixture(scope="module")
def world():
    options = {"states": 4, "actions": 2, "horizon": 3, "drift": "linear"}
    return sd.problems.make("random", episodes=M, seed=1, **options)


class Restless:
    """A learner of the user's own, in plain Python: prefers another action in every episode."""

    name = "restless"

    def __init__(self, sizes):
        self.sizes, self.episode = sizes, 0

    def begin_episode(self, thresholds):
        _, H, S, A, _ = self.sizes
        self.policy = np.full((H, S, A), 0.5 / A)
        self.policy[..., self.episode % A] += 0.5
        return self.policy

    def act(self, h, state, u=None):
        return int(np.searchsorted(self.policy[h, state].cumsum()[:-1], u, side="right"))

    def end_episode(self, trajectory):
        self.episode += 1

    def trace(self):
        return {}

    def settings(self):
        return {}

    def state(self):
        return {"episode": np.array([self.episode])}

    def restore(self, state):
        self.episode = int(state["episode"][0])

    def fresh(self, seed=0):
        return Restless(self.sizes)


def learners(world):
    agent = sd.PROPDPPO.for_problem
    return {
        "propd-ppo": agent(world, sd.Slater(0.2)),
        "sliding": agent(world, sd.Slater(0.2), alpha=0.3, forgetting=SlidingWindow(40)),
        "uniform": "uniform",
        "planner": "certainty-equivalence",
        "own": Restless(sd.Sizes(*(getattr(world, name) for name in "MHSAK"))),
    }


@pytest.fixture(scope="module")
def found(world):
    return sd.simulate_many(world, learners(world), [3, 1], workers=1)


def test_runs_are_those_of_simulate(world, found):
    gamma = float(sd.optima(world).gamma.min())
    for i, (label, learner) in enumerate(learners(world).items()):
        if isinstance(learner, str):
            learner = many_runs.entrants([learner])[0].build(world, gamma, False)
        for j, seed in enumerate((3, 1)):
            run = sd.simulate(world, learner, seed)
            for name in FIGURES:
                wanted = getattr(run, name)[found.episodes]
                np.testing.assert_array_equal(getattr(found, name)[i, j], wanted, label)


@pytest.mark.parametrize("options", [{"noisy": True}, {"measure_every": 7}])
def test_noise_and_measuring_are_those_of_simulate(world, options):
    learner = sd.PROPDPPO.for_problem(world, sd.Slater(0.2))
    many = sd.simulate_many(world, learner, [5], **options)
    run = sd.simulate(world, learner, 5, **options)
    at = np.searchsorted(run.episodes, many.episodes)
    np.testing.assert_array_equal(run.episodes[at], many.episodes)
    for name in FIGURES:
        np.testing.assert_array_equal(getattr(many, name)[0, 0], getattr(run, name)[at])


def test_workers_and_chunks_change_nothing(world, found, monkeypatch):
    """The learner in Python cannot be sent to a process (its module is a test) or can: same."""
    monkeypatch.setattr(many_runs, "portable", lambda job: False)
    monkeypatch.setattr("safedrift.experiments.playing._CHUNK", 17)
    again = sd.simulate_many(world, learners(world), [3, 1], workers=3)
    for name in FIGURES:
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))


@pytest.mark.slow
def test_processes_give_the_same_numbers(world, found):
    again = sd.simulate_many(world, learners(world), [3, 1], workers=2)
    for name in FIGURES:
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))


def test_truth_is_solved_once_and_can_be_given(world, found, monkeypatch):
    truth = sd.measure_truth(world)
    solved = []
    monkeypatch.setattr(many_runs, "measure_truth", lambda *a, **o: solved.append(1) or truth)
    again = sd.simulate_many(world, learners(world), [3], workers=1)
    assert len(solved) == 1
    sd.simulate_many(world, "uniform", [3], truth=truth)
    assert len(solved) == 1
    np.testing.assert_array_equal(again.violation[:, 0], found.violation[:, 0])
    with pytest.raises(ValueError, match="truth must be"):
        sd.simulate_many(world, "uniform", [3], truth=truth, measure_every=2)


def test_means_and_quantiles_are_over_seeds(found):
    values = found.dynamic_regret
    np.testing.assert_array_equal(found.mean("dynamic_regret"), (values[:, 0] + values[:, 1]) / 2)
    low, high = found.quantiles("positive_violation", [0, 1])
    np.testing.assert_array_equal(low, found.positive_violation.min(axis=1))
    np.testing.assert_array_equal(high, found.positive_violation.max(axis=1))
    with pytest.raises(ValueError, match="figure must be one of"):
        found.mean("regret")


def test_table_and_file_hold_everything(found, tmp_path):
    table = found.to_table()
    L, R, n = found.dynamic_regret.shape
    assert table.num_rows == L * R * n
    row = table.slice(2 * R * n + n + 5, 1).to_pylist()[0]
    assert (row["learner"], row["seed"], row["episode"]) == ("uniform", 1, 5)
    assert row["violation.0"] == found.violation[2, 1, 5, 0]
    again = sd.ManyRuns.from_parquet(found.to_parquet(tmp_path / "many.parquet"))
    assert again.manifest == found.manifest
    for name in ("seeds", "episodes", *FIGURES):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))


def test_another_file_is_refused(tmp_path):
    world = sd.problems.make("stationary", episodes=3)
    sd.simulate(world, sd.learners.make("uniform", world)).to_parquet(tmp_path / "run.parquet")
    with pytest.raises(ValueError, match="written by ManyRuns"):
        sd.ManyRuns.from_parquet(tmp_path / "run.parquet")


def test_it_says_what_it_is(found):
    first, *lines = str(found).splitlines()
    assert (
        first == repr(found) == "ManyRuns(random, 5 learners, 2 seeds, M=150, H=3, S=4, A=2, K=1)"
    )
    assert len(lines) == 5
    assert lines[2].startswith("  uniform: dynamic regret ")


def test_progress_ends_with_all_episodes(world):
    seen = []
    sd.simulate_many(world, "uniform", 3, progress=lambda *now: seen.append(now))
    assert seen[-1] == ("playing", 3 * M, 3 * M)


def test_an_error_in_a_thread_ends_the_call(world):
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.2))
    agent.fresh = lambda seed: (_ for _ in ()).throw(ValueError("no more"))
    with pytest.raises(ValueError, match="no more"):
        sd.simulate_many(world, agent, 4, workers=2)


def test_a_stopped_call_stops_its_threads(world, monkeypatch):
    """After Ctrl-C the runs under way end with their chunk, and the others do not begin."""
    monkeypatch.setattr("safedrift.experiments.playing._CHUNK", 10)
    played = []
    real = many_runs.running_sums
    monkeypatch.setattr(many_runs, "running_sums", lambda *a: played.append(1) or real(*a))
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.2))

    def interrupt(stage, done, total):
        if stage == "playing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sd.simulate_many(world, agent, 100, workers=2, progress=interrupt)
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join()
    assert 15 <= len(played) < 100 * 15 / 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learners": []}, "learners must be at least one"),
        ({"learners": ["uniform", "uniform"]}, "labels of learners must be different"),
        ({"learners": ["unifrom"]}, "learner must be one of"),
        ({"seeds": [1, 1]}, "seeds must be different"),
        ({"device": "tpu"}, "device must be one of 'cpu', 'gpu'"),
        ({"workers": 0}, "workers must be"),
        ({"record_log": 0}, "record_log must be"),
    ],
)
def test_bad_input_gets_a_sentence(world, change, message):
    with pytest.raises(ValueError, match=message):
        sd.simulate_many(world, **({"learners": "uniform"} | change))


def test_devices_say_what_there_is():
    cpu, gpu = sd.devices()
    assert cpu.available
    assert "core" in cpu.description
    assert gpu.kind == "gpu"
    assert gpu.description


def test_without_a_gpu_there_is_one_sentence(world, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    learner = sd.PROPDPPO.for_problem(world, sd.Slater(0.2))
    wanted = r"device must be 'cpu' on this machine; got 'gpu': CuPy is not installed \(pip"
    with pytest.raises(RuntimeError, match=wanted):
        sd.simulate_many(world, learner, 2, device="gpu")
