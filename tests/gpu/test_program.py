"""The program for a card, compiled for the host: the numbers of the CPU engine.

These tests need no card. Without a C++ compiler on the PATH they are skipped.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import many_lanes
import numpy as np
import pytest
from comparing import agents, check_same, small_world
from host import COMPILER, Host

import safedrift as sd
from safedrift.experiments import gpu_rows, gpu_runs
from safedrift.experiments.entrants import entrants
from safedrift.experiments.workers import Arena, Task, rows_of
from safedrift.gpu.program import (
    ALL,
    HOT,
    MOST,
    NOTHING,
    Layout,
    Shape,
    definitions,
    jump_words,
    layout_for,
    source,
    task_fields,
)
from safedrift.gpu.runs import generator_words
from safedrift.results.many_runs import FIGURES
from safedrift.results.scores import FIGURES as SCORES

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no g++ on the PATH")
ONE_LANE = Layout(1, 1, NOTHING)
ONE_OF_A_TEAM = Layout(1, 1, NOTHING, 3)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    return Host(tmp_path_factory.mktemp("programs"))


@needs_compiler
@pytest.mark.parametrize("layout", [ONE_LANE, ONE_OF_A_TEAM])
def test_every_kind_of_learner(host, layout):
    world = small_world("separate")
    check_same(host, world, agents(world), [4, 0], layout=layout)


@needs_compiler
@pytest.mark.parametrize("layout", [ONE_LANE, ONE_OF_A_TEAM])
def test_constraints_and_drifts(host, layout):
    world = small_world("linear", 2, successors=2)
    learners = agents(world)
    check_same(host, world, [learners[i] for i in (0, 3, 8)], [7], layout=layout)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("drift", ["none", "abrupt", "mixed", "separate"])
@pytest.mark.parametrize(
    ("K", "options", "layout"),
    [
        (1, {"A": 1}, ONE_LANE),
        (1, {"H": 1}, ONE_LANE),
        (3, {"S": 12, "A": 2}, ONE_LANE),
        (2, {"S": 30, "successors": 11}, ONE_LANE),
        (1, {"A": 1, "S": 2}, ONE_OF_A_TEAM),
        (1, {"H": 1, "S": 5}, ONE_OF_A_TEAM),
        (3, {"S": 8, "A": 2}, ONE_OF_A_TEAM),
        (2, {"S": 7, "successors": 3}, ONE_OF_A_TEAM),
    ],
)
def test_all_drifts(host, drift, K, options, layout):
    world = small_world(drift, K, **options)
    for noisy in (False, True):
        check_same(host, world, agents(world), [7, 8], noisy=noisy, layout=layout)


@needs_compiler
def test_counts_of_long_windows(host, monkeypatch):
    """Counts of 32 bits, where windows may hold more than 65,535 episodes."""
    monkeypatch.setattr(Shape, "count_bytes", 4)
    world = small_world("mixed", S=5)
    for layout, slot_bytes in ((ONE_LANE, 4), (ONE_LANE, 8), (ONE_OF_A_TEAM, 8)):
        monkeypatch.setattr(Shape, "slot_bytes", slot_bytes)
        check_same(host, world, agents(world)[3:5], [1], layout=layout)


@needs_compiler
@pytest.mark.parametrize("hot", [1, 2])
def test_more_successors_than_are_in_the_hot_part(host, monkeypatch, hot):
    monkeypatch.setattr("safedrift.gpu.program.HOT_SLOTS", hot)
    world = small_world("linear", S=6, A=2)
    check_same(host, world, [agents(world)[i] for i in (0, 6, 9)], [3], layout=ONE_LANE)


@needs_compiler
def test_numbers_of_pairs_of_two_bytes(host, monkeypatch):
    monkeypatch.setattr(Shape, "pair_bytes", 2)
    world = small_world("abrupt", K=2)
    check_same(host, world, agents(world)[1:2], [3], layout=ONE_LANE)


@needs_compiler
@pytest.mark.parametrize("layout", [ONE_LANE, ONE_OF_A_TEAM])
def test_noise(host, layout):
    world = small_world("mixed", H=4)
    check_same(host, world, agents(world)[3:4], [1, 2], noisy=True, layout=layout)


@needs_compiler
def test_simulate_many_gives_the_sums_of_the_cpu(host, monkeypatch):
    """In batches of a few runs and chunks of a few episodes, every third episode measured."""
    monkeypatch.setattr(gpu_runs, "Card", lambda: Host(host.folder, room=60_000))
    monkeypatch.setattr("safedrift.gpu.runs.MOST_EPISODES", 7)
    monkeypatch.setattr("safedrift.gpu.runs.layout_for", lambda shape, shared: ONE_LANE)
    world = small_world("abrupt")
    learners = dict(zip("abc", agents(world)[3:6], strict=True))
    seen = []
    options = {"measure_every": 3, "record_log": 4}
    one = sd.simulate_many(world, learners, 5, **options)
    other = sd.simulate_many(
        world, learners, 5, device="gpu", progress=lambda *now: seen.append(now), **options
    )
    assert other.manifest.device == "gpu: the host"
    assert seen[-1] == ("playing", 15 * world.M, 15 * world.M)
    np.testing.assert_array_equal(one.episodes, other.episodes)
    for name in FIGURES:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=0, atol=1e-10)


@needs_compiler
@pytest.mark.parametrize(("every", "points"), [(1, 30), (7, 0)])
def test_rows_of_a_comparison_are_those_of_the_cpu(host, monkeypatch, every, points):
    """60 episodes, of which every 7th leaves a shorter end; learners of both kinds."""
    monkeypatch.setattr(gpu_rows, "Card", lambda: host)
    monkeypatch.setattr("safedrift.gpu.runs.layout_for", lambda shape, shared: ONE_LANE)
    world = small_world("linear", K=2)
    truth = sd.measure_truth(world, np.arange(0, world.M, every))
    field = entrants(["propd-ppo:gamma=0.3,window=13,alpha=0.8", "propd-ppo:gamma=0.2", "uniform"])
    tasks = [
        Task(f"{entrant.label} {seed}", "here", entrant, seed, True, every, points)
        for entrant in field
        for seed in (3, 8)
    ]
    arenas = {"here": Arena(world, truth)}
    wanted = {row.key: row for row in rows_of(tasks, arenas, 1)}
    found = {row.key: row for row in gpu_rows.rows_with_gpu(tasks, arenas, 1)}
    assert set(found) == set(wanted)
    for key, row in wanted.items():
        assert row.done
        for name in (*SCORES, "uniform_loss"):
            np.testing.assert_allclose(getattr(found[key], name), getattr(row, name), atol=1e-9)
        assert found[key].settings == row.settings
        assert found[key].curve_episodes == row.curve_episodes
        for name, values in (row.curves or {}).items():
            np.testing.assert_allclose(found[key].curves[name], values, rtol=1e-5)


def test_a_comparison_says_that_there_is_no_gpu():
    if sd.devices()[1].available:
        pytest.skip("there is one")
    with pytest.raises(RuntimeError, match="device must be 'cpu' on this machine; got 'gpu': "):
        sd.compare(["stationary"], ["propd-ppo:gamma=0.3"], 1, episodes=20, device="gpu")


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda world: sd.learners.make("uniform", world), "PROPD-PPO with counts"),
        (lambda world: sd.PROPDPPO.for_problem(world, None), "PROPD-PPO with counts"),
        (
            lambda world: sd.PROPDPPO.for_problem(
                world, sd.Slater(0.3), forgetting=sd.learners.forgetting.SlidingWindow(5)
            ),
            "with periodic forgetting, or none",
        ),
    ],
)
def test_learners_that_cannot_be_played_are_named(build, reason):
    world = small_world()
    with pytest.raises(ValueError, match=f"learners must be {reason}.* on a GPU; got "):
        sd.simulate_many(world, build(world), 1, device="gpu")


# ---------------------------------------------------------------- the program itself


@needs_compiler
@pytest.mark.parametrize(
    "layout",
    [
        ONE_LANE,
        pytest.param(Layout(1, 1, NOTHING, 4), marks=pytest.mark.slow),
        pytest.param(Layout(1, 1, HOT, 3), marks=pytest.mark.slow),
        Layout(1, 1, MOST, 3),
    ],
)
def test_python_knows_the_size_of_a_state(host, layout):
    for shape in (
        Shape(3, 4, 3, 1, 3, 2, 2, 2, False, True, False, True, 400),
        Shape(3, 7, 3, 2, 3, 2, 2, 2, True, True, False, False, 400),
        Shape(4, 5, 2, 3, 4, 1, 2, 1, True, False, True, False, 10**6),
        Shape(1, 8, 2, 1, 3, 1, 1, 1, False, False, False, True, 10**6),
    ):
        program = host.compile(source(layout.team > 0), definitions(shape, layout))
        assert (program.hot_bytes(), program.state_bytes()) == layout.state_bytes(shape)
        assert program.world_size(ctypes.c_int64(77)) == layout.world_doubles(shape, 77)


def test_fields_of_the_task_are_read_from_the_source():
    fields = task_fields()
    assert fields[:4] == ("offsets", "states", "probabilities", "cumulative")
    assert fields[-1] == "log_v"
    assert len(set(fields)) == len(fields) == 47


def test_a_jump_is_as_many_draws():
    stream = np.random.SeedSequence(3)
    low, high, inc_low, inc_high = generator_words(stream)
    power_low, power_high, total_low, total_high = jump_words(11)
    state, inc = low | high << 64, inc_low | inc_high << 64
    power, total = power_low | power_high << 64, total_low | total_high << 64
    advanced = np.random.PCG64(stream).advance(11).state["state"]["state"]
    assert (state * power + inc * total) % 2**128 == advanced


def test_larger_worlds_need_other_layouts():
    kind = {
        "J_P": 1, "J_R": 1, "J_G": 1, "noisy": False, "bernstein": False, "lv": False,
        "dense": True, "longest": 400,
    }  # fmt: skip
    for H, S, A, wanted in (
        (5, 4, 2, Layout(4, 32, MOST, 8)),
        (3, 7, 8, Layout(7, 16, MOST, 4)),
        (5, 7, 9, Layout(32, 4, ALL)),
        (60, 8, 8, Layout(64, 1, HOT)),
        (5, 10, 4, Layout(32, 4, ALL)),
        (10, 20, 5, Layout(64, 1, HOT)),
        (10, 70, 4, Layout(96, 1, HOT)),
        (10, 100, 5, Layout(96, 1, NOTHING)),
    ):
        shape = Shape(H, S, A, 1, 2, **kind)
        found = layout_for(shape)
        assert found == wanted
        assert found.shared_bytes(shape) <= 227 * 1024


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("team", "warp"), [(0, 32), (0, 1), (3, 32)])
def test_lanes_race_with_nobody_and_change_nothing(tmp_path, team, warp):
    """Three lanes in threads under the thread sanitizer, whose exit code tells of a race.

    With warps of one lane, two more threads stand beside them, as two warps do on a card.
    """
    found = subprocess.run(
        [COMPILER, "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True
    )
    sanitizer, fixed = found.stdout.strip(), shutil.which("setarch")
    if not Path(sanitizer).is_file() or fixed is None:
        pytest.skip("the compiler has no thread sanitizer")
    script, result = Path(many_lanes.__file__), tmp_path / "lanes.npz"
    numbers = ["3", str(team), str(warp)]  # lanes, runs of a team, lanes of a warp
    command = [fixed, "-R", sys.executable, str(script), str(tmp_path), *numbers, str(result)]
    paths = os.pathsep.join(path for path in sys.path if path)
    own = {"LD_PRELOAD": sanitizer, "TSAN_OPTIONS": "exitcode=66", "PYTHONPATH": paths}
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | own, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    alone = many_lanes.play(tmp_path, 1, team)
    with np.load(result) as seen:
        assert set(seen) == set(alone)
        for name, values in alone.items():
            np.testing.assert_array_equal(seen[name], values)
