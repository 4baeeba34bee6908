"""Simulation and its results: what is measured, what is reproducible, what is refused."""

import numpy as np
import pytest

import naive
import safedrift as sd
from builders import own_loop, rewrite_run, small_world
from safedrift.experiments import playing
from safedrift.kernels import stepping


def agent_for(world, **overrides):
    return sd.PROPDPPO.for_problem(world, sd.Slater(0.3), **{"alpha": 0.5, "eta": 0.2, **overrides})


def test_regret_and_violation_are_what_they_are_defined_to_be():
    world = small_world(M=60, S=4, A=3, H=3, K=2, drift="linear", seed=1)
    agent = agent_for(world, L=20, W=30)
    run = sd.simulate(world, agent, seed=3)
    regret, shortfall = [], []
    for m, (policy, *_) in enumerate(own_loop(world, agent, 3)):
        cmdp = world.at(m)
        P, pi = cmdp.dense_transitions(), np.asarray(policy)
        value = naive.policy_value(P, cmdp.rewards, cmdp.initial, pi)
        utility = [naive.policy_value(P, g, cmdp.initial, pi) for g in cmdp.utilities]
        best = -naive.occupancy_lp(
            P, cmdp.rewards, cmdp.utilities, cmdp.thresholds, cmdp.initial
        ).fun
        regret.append(best - value)
        shortfall.append(cmdp.thresholds - utility)
    np.testing.assert_allclose(run.regret, regret, atol=1e-8)
    np.testing.assert_allclose(run.shortfall, shortfall, atol=1e-9)
    np.testing.assert_allclose(run.dynamic_regret[-1], np.sum(regret), atol=1e-6)
    expected = np.maximum(np.sum(shortfall, axis=0), 0)
    np.testing.assert_allclose(run.violation[-1], expected, atol=1e-7)
    np.testing.assert_allclose(run.positive_regret[-1], np.maximum(regret, 0).sum(), atol=1e-6)
    np.testing.assert_allclose(
        run.positive_violation[-1], np.maximum(shortfall, 0).sum(axis=0), atol=1e-7
    )


def assert_same(one, other):
    assert one.columns().keys() == other.columns().keys()
    for name, value in one.columns().items():
        np.testing.assert_array_equal(value, other.columns()[name], err_msg=name)


def test_same_seed_same_bits_and_another_seed_another_run():
    world = small_world(M=100, drift="random_walk")
    agent = agent_for(world)
    assert_same(sd.simulate(world, agent, 5, noisy=True), sd.simulate(world, agent, 5, noisy=True))
    one, other = sd.simulate(world, agent, 5), sd.simulate(world, agent, 6)
    assert not np.array_equal(one.outcome.observed, other.outcome.observed)


@pytest.mark.parametrize(("chunk", "memory"), [(1, 2**20), (7, 2**20), (64, 4000), (1000, 1)])
def test_results_do_not_depend_on_chunks(monkeypatch, chunk, memory):
    world = small_world(M=90, S=5, K=2, drift="periodic")
    agent = agent_for(world, L=25, W=40)
    whole = sd.simulate(world, agent, 2)
    monkeypatch.setattr(playing, "_CHUNK", chunk)
    monkeypatch.setattr(playing, "_POLICY_BYTES", memory)
    assert_same(whole, sd.simulate(world, agent, 2))


def test_measuring_every_nth_episode_changes_what_is_measured_and_nothing_else():
    world = small_world(M=100, drift="linear")
    agent = agent_for(world)
    full, part = sd.simulate(world, agent, 4), sd.simulate(world, agent, 4, measure_every=7)
    at = np.arange(0, 100, 7)
    assert part.episodes.tolist() == at.tolist()
    whole = full.columns()
    for name, values in part.columns().items():
        if not name.startswith("drift_"):
            np.testing.assert_allclose(values, whole[name][at], atol=1e-12, err_msg=name)
    drift = full.truth.drift_P[: at[-1] + 1]
    np.testing.assert_allclose(part.truth.drift_P.sum(), drift.sum())
    weights = np.append(np.full(at.size - 1, 7), 100 - at[-1])
    np.testing.assert_allclose(part.dynamic_regret[-1], full.regret[at] @ weights)
    summary = part.summary()
    assert summary["dynamic_regret_per_episode"] == pytest.approx(full.regret[at] @ weights / 100)
    assert any("estimates" in note for note in part.notes())


def test_observed_returns_average_to_the_exact_values():
    world = small_world(M=4000, S=3, A=2, H=3, drift="stationary")
    agent = agent_for(world, alpha=0.0)  # uniform throughout
    for noisy in (False, True):
        run = sd.simulate(world, agent, 1, noisy=noisy, measure_every=4000)
        rec = sd.simulate(world, agent, 1, noisy=noisy).outcome.observed
        error = rec.std(axis=0) / np.sqrt(len(rec))
        exact = np.concatenate((run.outcome.reward[:1], run.outcome.utility[0]))
        assert (np.abs(rec.mean(axis=0) - exact) < 4 * error).all()
        assert (error > 0).all()


def test_progress_counts_every_episode():
    world = small_world(M=50, drift="abrupt")
    calls = []
    sd.simulate(world, agent_for(world), progress=lambda *call: calls.append(call))
    assert [c for c in calls if c[0] == "optimum"][-1] == ("optimum", 50, 50)
    assert calls[-1] == ("learning", 50, 50)


def test_parquet_round_trip(tmp_path):
    world = small_world(M=40, K=2)
    run = sd.simulate(world, agent_for(world))
    run.to_parquet(tmp_path / "run.parquet")
    back = sd.Run.from_parquet(tmp_path / "run.parquet")
    assert_same(run, back)
    assert back.manifest == run.manifest
    assert back.summary() == run.summary()
    assert [p.name for p in tmp_path.iterdir()] == ["run.parquet"]


def test_a_strange_parquet_file_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"written by Run\.to_parquet"):
        sd.Run.from_parquet(tmp_path / "x.parquet")


def test_infeasible_episodes_are_named():
    world = small_world(M=30, H=3)
    thresholds = world.thresholds.copy()
    thresholds[17:19] = 3.0
    broken = world.with_thresholds(thresholds)
    with pytest.raises(
        ValueError, match=r"2 infeasible of 30.*first at episode 17.*threshold \[3.0\]"
    ):
        sd.simulate(broken, agent_for(broken))


def test_a_gamma_that_does_not_hold_is_told():
    world = small_world(M=30)  # its Slater gap is 0.01
    run = sd.simulate(world, agent_for(world))
    assert any("Assumption 3 does not hold" in note for note in run.notes())


def test_sizes_must_agree():
    world, other = small_world(M=30), small_world(M=31)
    with pytest.raises(ValueError, match="the learner's M must be the world's, 30; got 31"):
        sd.simulate(world, agent_for(other))


@pytest.mark.parametrize("bad", [0, 31, -1])
def test_measure_every_is_checked(bad):
    world = small_world(M=30)
    with pytest.raises(ValueError, match="measure_every must be an integer in"):
        sd.simulate(world, agent_for(world), measure_every=bad)


def test_restarts_are_recorded():
    world = small_world(M=50)
    run = sd.simulate(world, agent_for(world, L=10, W=15))
    assert np.flatnonzero(run.trace["policy_restart"]).tolist() == [0, 10, 20, 30, 40]
    assert np.flatnonzero(run.trace["window_restart"]).tolist() == [0, 15, 30, 45]


def test_large_sparse_world_needs_no_square_array():
    """20,000 states with three successors each: S*S numbers would be 3 GB."""
    S, A, H = 20_000, 2, 3
    rng = np.random.default_rng(0)
    rows = H * S * A
    lists = sd.Successors(
        np.arange(rows + 1) * 3,
        (np.repeat(rng.integers(0, 50, rows), 3) + np.tile([0, 1, 2], rows)) % 50,
        np.tile([0.5, 0.3, 0.2], rows),
    )
    cmdp = sd.TabularCMDP(
        lists,
        rng.random((H, S, A)),
        rng.random((1, H, S, A)),
        [0.2],
        (np.arange(S) == 0).astype(float),
    )
    world = sd.DriftingCMDP([cmdp], np.zeros(300, np.int64))
    agent = agent_for(world)
    run = sd.simulate(world, agent, measure_every=100)
    assert np.isfinite(run.regret).all()
    assert (run.regret > -0.5).all()


@pytest.mark.parametrize("weights", [[0.5, 0.3, 0.2], [0.0, 0.6, 0.4], [0.7, 0.3, 0.0], [0, 1, 0]])
def test_successors_of_a_mixture_are_drawn_with_its_probabilities(weights):
    """Uniforms on a fine grid turn probabilities into counts, without any noise."""
    base = small_world(M=2, S=5, A=2, H=3, seed=8)
    world = sd.DriftingCMDP(base.scenarios, [weights, weights])
    P = world.at(1).dense_transitions()
    n = 4000
    grid = (np.arange(n) + 0.5) / n
    for h, s, a in ((0, 0, 0), (1, 3, 1)):
        draws = [stepping.next_state.py_func(world.arrays, 1, h, s, a, u) for u in grid]
        counts = np.bincount(draws, minlength=5) / n
        np.testing.assert_allclose(counts, P[h, s, a], atol=20 / n)
        for u in (0.0, np.nextafter(1.0, 0.0)):
            assert P[h, s, a, stepping.next_state.py_func(world.arrays, 1, h, s, a, u)] > 0


def test_observed_returns_follow_the_exact_values_while_the_world_drifts():
    world = small_world(M=6000, S=4, A=2, H=4, drift="linear", seed=3)
    run = sd.simulate(world, agent_for(world, alpha=0.0), 2)
    for part in (slice(0, 2000), slice(2000, 4000), slice(4000, 6000)):
        error = run.outcome.observed[part].std(axis=0) / np.sqrt(2000)
        exact = [run.outcome.reward[part].mean(), run.outcome.utility[part].mean()]
        assert (np.abs(run.outcome.observed[part].mean(axis=0) - exact) < 4 * error).all()


def test_optima_of_another_world_are_refused():
    world, other = small_world(M=30), small_world(M=30, seed=1)
    with pytest.raises(ValueError, match="truth must be that of this world"):
        sd.simulate(world, agent_for(world), truth=sd.measure_truth(other))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda t: t.drop_columns(["gamma"]), "without numbers for gamma"),
        (lambda t: t.slice(0, 0), "without episodes"),
        (lambda t: t.replace_schema_metadata({"safedrift": "{"}), "unreadable settings"),
        (lambda t: t.replace_schema_metadata({"safedrift": "[]"}), "unreadable settings"),
        (
            lambda t: t.replace_schema_metadata({"safedrift": '{"format": 1}'}),
            "settings whose 'problem' is wrong",
        ),
    ],
)
def test_damaged_runs_are_refused(tmp_path, damage, sentence):
    world = small_world(M=20)
    path = tmp_path / "run.parquet"
    sd.simulate(world, agent_for(world)).to_parquet(path)
    rewrite_run(path, damage)
    with pytest.raises(ValueError, match=sentence):
        sd.Run.from_parquet(path)


def test_noise_the_learner_was_not_told_of_is_noted():
    world = small_world(M=20)
    assert any("noisy=True" in n for n in sd.simulate(world, agent_for(world), noisy=True).notes())
    told = agent_for(world, noisy=True)
    assert not any("noisy=True" in n for n in sd.simulate(world, told, noisy=True).notes())
