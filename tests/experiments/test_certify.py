"""Certifying a run: from memory, from its file, from the command line."""

import json
import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

import safedrift as sd
from builders import (
    BUDGETS,
    build_linear,
    dense_weights,
    forge_folder,
    linear_world,
    rewrite_run,
    small_world,
)
from conftest import rebuilt
from safedrift.cli import app
from safedrift.experiments.certification import transcript
from safedrift.experiments.entrants import entrants
from safedrift.experiments.playing import play_chunks
from safedrift.kernels.records import make_log
from safedrift.theory import Audit, Certificates, Constants, bounds, evaluate_certificates


def refused(message):
    return pytest.raises(ValueError, match="^" + re.escape(message))


def learner(world, knowledge, mode, **overrides):
    told = sd.Slater(0.01)
    if knowledge == "local":
        told = sd.local_budgets(world, "l2" if mode == "printed" else "l1")
    budgets = sd.Budgets(2.0, 1.0, 1.0, 3.0)
    return sd.PROPDPPO.for_problem(world, told, mode=mode, budgets=budgets, **overrides)


def assert_same_parameters(one, other):
    assert one.record() == other.record()
    for part in ("improvement", "dual", "evaluation"):
        assert type(getattr(one, part)) is type(getattr(other, part))
    for name, value in vars(one.evaluation).items():
        found = getattr(other.evaluation, name)
        if name == "bonus":
            assert type(value) is type(found)
        else:
            np.testing.assert_array_equal(found, value, err_msg=name)
            assert np.shape(found) == np.shape(value)


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize("mode", ["printed", "repaired", "practical"])
@pytest.mark.parametrize("knowledge", ["slater", "local"])
@pytest.mark.parametrize("kind", ["tabular", "linear"])
def test_parameters_come_back_from_their_record(kind, knowledge, mode):
    if kind == "tabular":
        world = small_world(M=30, K=2, drift="random_walk")
        agent = learner(world, knowledge, mode, W=7, eta=0.3, dual_signal="plain")
    else:
        world = linear_world(M=30, K=2, drift="random_walk")
        agent = build_linear(world, knowledge, mode, W=7)
    written = json.loads(json.dumps(agent.parameters.record()))
    assert_same_parameters(agent.parameters, sd.Parameters.from_record(written, agent.sizes))


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize("kind", ["tabular", "linear"])
@pytest.mark.parametrize("knowledge", ["slater", "local"])
def test_a_run_is_certified_from_memory_and_from_its_file(tmp_path, kind, knowledge):
    options = {"episodes": 60, "states": 4, "actions": 3, "horizon": 3, "drift": "linear"}
    if kind == "linear":
        world = sd.problems.make("blend", episodes=60, orders=4)
    else:
        world = sd.problems.make("random", **options)
    run = sd.simulate(world, learner(world, knowledge, "practical"), seed=3, noisy=True)
    found = run.certify()
    assert found.identities_hold
    directly = sd.certify(world, learner(world, knowledge, "practical"), seed=3, noisy=True)
    assert found.items == directly.items
    assert found.info == directly.info | {"run": run.digest}
    run.to_parquet(tmp_path / "run.parquet")
    again = sd.Run.from_parquet(tmp_path / "run.parquet")
    assert again.learner is None
    assert again.certify().record() == found.record()
    assert again.certify(p=0.3).info["p"] == 0.3


def test_a_stored_run_in_a_world_of_ones_own_needs_the_world(tmp_path):
    world = small_world(M=20)
    own = sd.DriftingCMDP(world.scenarios, world.transition_path.scenario[:, 0])
    own = own.with_thresholds(world.thresholds)
    run = sd.simulate(own, learner(own, "slater", "repaired"))
    run.to_parquet(tmp_path / "run.parquet")
    again = sd.Run.from_parquet(tmp_path / "run.parquet")
    with refused("world must be given to certify a stored run in a world of your own"):
        again.certify()
    assert again.certify(own).record() == run.certify(own).record()


def test_another_world_or_seed_is_noticed():
    world = small_world(M=40, drift="random_walk")
    run = sd.simulate(world, learner(world, "slater", "practical"), seed=1)
    other = small_world(M=40, drift="random_walk", seed=5)
    with refused("world must be the one of this run; got other thresholds"):
        run.certify(other)
    scenarios = [rebuilt(c, rewards=c.rewards / 2) for c in world.scenarios]
    weights = dense_weights(world.transition_path, len(scenarios))
    poorer = sd.DriftingCMDP(scenarios, weights, thresholds=world.thresholds)
    with refused("world must be the one of this run, which can then be played again; got "):
        run.certify(poorer)
    with refused("world must be the one of this run"):
        replace(run, manifest=run.manifest.model_copy(update={"seed": 2})).certify()
    with refused("world must be of the run's sizes"):
        run.certify(small_world(M=41))


COLUMNS = (
    "reward", "optimal_reward", "utility", "trace.mu", "optimal_mu", "gamma",
    "trace.estimated_reward", "trace.estimated_utility", "trace.policy_restart",
    "trace.window_restart", "trace.at_cap", "observed", "drift_P", "drift_r", "drift_g", "drift_b",
    "drift_star", "baseline_reward", "baseline_utility",
)  # fmt: skip


def test_every_column_of_a_run_is_compared(stored_run):
    assert set(stored_run.run.columns()) == {*COLUMNS, "episodes", "thresholds"}


def tampered(run, name, change):
    """The same run with change(column) in the place of a column."""
    values = change(np.array(run.columns()[name]))
    if name.startswith("trace."):
        return replace(run, trace=run.trace | {name.removeprefix("trace."): values})
    part = "outcome" if hasattr(run.outcome, name) else "truth"
    return replace(run, **{part: replace(getattr(run, part), **{name: values})})


class Stored(NamedTuple):
    run: sd.Run
    world: object  # None where it can be made again from what the run has stored


@pytest.fixture(scope="module", params=["tabular", "linear"])
def stored_run(request):
    """A run in mode repaired, where the multiplier may be 0 throughout, measured now and then."""
    world = small_world(M=21, K=2, drift="random_walk")
    world = world.as_linear_kernel() if request.param == "linear" else world
    run = sd.simulate(world, learner(world, "slater", "repaired"), measure_every=2)
    return Stored(run, world) if request.param == "linear" else Stored(run, None)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_number_that_was_changed_is_noticed(stored_run, name):
    def change(values):
        values[7] = ~values[7] if values.dtype == bool else values[7] + 0.01
        return values

    with refused(f"world must be the one of this run, which can then be played again; got {name}"):
        tampered(stored_run.run, name, change).certify(stored_run.world)


@pytest.mark.parametrize("name", ["episodes", "thresholds"])
def test_episodes_and_thresholds_that_were_changed_are_noticed(stored_run, name):
    def change(values):
        values[7] += 1 if name == "episodes" else 0.01
        return values

    with pytest.raises(ValueError, match=name):
        tampered(stored_run.run, name, change).certify(stored_run.world)


def test_any_optimal_multiplier_may_be_stored():
    """Utility 1/2 whatever is done, b = 1/2: every mu >= 0 is optimal, a negative one is not."""
    cmdp = sd.TabularCMDP(np.ones((1, 1, 2, 1)), np.array([[[1.0, 0.0]]]),
                          np.full((1, 1, 1, 2), 0.5), [0.5], [1.0])  # fmt: skip
    world = sd.DriftingCMDP([cmdp], np.zeros(6, dtype=int))
    run = sd.simulate(world, learner(world, "slater", "repaired"))
    more = tampered(run, "optimal_mu", lambda mu: mu + 3)
    assert more.certify(world).identities_hold
    with refused("world must be the one of this run, which can then be played again; got optimal_"):
        tampered(run, "optimal_mu", lambda mu: mu - 3).certify(world)


def test_a_run_measured_now_and_then_is_certified_whole():
    world = small_world(M=40, drift="random_walk")
    agent = learner(world, "slater", "practical")
    one, other = sd.simulate(world, agent), sd.simulate(world, agent, measure_every=7)
    assert one.certify().items == other.certify().items
    assert one.digest != other.digest


@pytest.mark.parametrize("kind", ["tabular", "linear"])
def test_restarts_at_other_periods_than_the_parameters_are_certified(kind):
    world = small_world(M=50)
    world = world.as_linear_kernel() if kind == "linear" else world
    told = sd.Slater(0.01)
    agent = sd.PROPDPPO.for_problem(world, told, forgetting=sd.learners.Periodic(W=9, L=7))
    assert sd.certify(world, agent).identities_hold


def test_progress_is_told():
    world = small_world(M=30)
    run = sd.simulate(world, learner(world, "slater", "practical"))
    told = []
    run.certify(progress=lambda *what: told.append(what))
    assert told[-1] == ("certifying", 30, 30)


def test_an_infeasible_episode_is_named():
    world = small_world(M=10)
    thresholds = np.array(world.thresholds)
    thresholds[4] = world.H
    with refused("world must be feasible in every episode; got no safe policy in episode 4"):
        sd.certify(world.with_thresholds(thresholds), learner(world, "slater", "practical"))


def test_optimism_is_asked_of_a_learner_with_local_budgets_even_where_lv_is_zero():
    """ι_g ≤ 0 as printed, at every step: no weaker than with the drift that it knows."""
    for kind in ("tabular", "linear"):
        world = small_world(M=60, drift="random_walk")
        world = world.as_linear_kernel() if kind == "linear" else world
        told = sd.local_budgets(world, "l1")
        found = sd.certify(world, sd.PROPDPPO.for_problem(world, told, W=20))
        assert found["optimism"].maths == "ι_g ≤ 0"
        assert found["optimism"].printed.slack <= found["optimism"].repaired.slack
        assert found["optimism"].printed.slack < 0


@pytest.mark.parametrize("form", ["printed", "repaired"])
def test_certificates_of_the_theorems_are_the_terms_of_the_bounds(form):
    world = small_world(M=60, K=2, drift="random_walk")
    told = sd.local_budgets(world, "l1")
    agent = sd.PROPDPPO.for_problem(world, told, mode="repaired", budgets=BUDGETS, rho=0.4, W=15)
    audit = Audit(world, agent)
    _, H, S, A, K = agent.sizes

    def room(B):
        return make_log(B, 1 + K, H, S, A, K)

    for part in play_chunks(world, agent.fresh(1), 1, False, np.arange(60), make_log=room):
        audit.add_episodes(transcript(part))
    found = evaluate_certificates(audit)
    least = bounds(agent.sizes, told, audit.budgets, agent.parameters)[0].numbers["C4"]
    regret, violation = bounds(
        agent.sizes, told, audit.budgets, agent.parameters, form=form,
        constants=Constants.followed(least, least),
    )  # fmt: skip
    terms = {term.name: term.value for term in regret.terms}
    errors = terms["estimation"] + terms["drift of transitions in windows"]
    errors += terms["drift of rewards and utilities in windows"]
    played = sum(term.value for term in violation.terms if term.name.endswith("utilities")
                 and not term.name.startswith("chance") and "rewards" not in term.name)  # fmt: skip
    played += sum(t.value for t in violation.terms
                  if t.name == "drift of rewards and utilities in windows, utilities")  # fmt: skip
    short = audit.total("b") - audit.terms[0, 1:]
    path = -audit.terms[3, 1:]
    for id, left, right in (
        ("prediction-sum-r", None, errors), ("prediction-sum-g", path.max(), played),
        ("regret-bound", audit.regret, regret.total),
        ("violation-bound", max(short.max(), 0), violation.total),
    ):  # fmt: skip
        got = getattr(found[id], form)
        assert got.right == pytest.approx(right, rel=1e-12), id
        if left is not None:
            assert got.left == pytest.approx(left, rel=1e-12), id
    assert path.max() != pytest.approx(path.min())


# ---------------------------------------------------------------- the command


def command(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def folder(tmp_path):
    out = tmp_path / "run"
    assert command("run", "random", "-n", 50, "-o", "states=4", "--out", out).exit_code == 0
    return out


def test_certify_leaves_a_table_a_file_and_a_section(folder):
    before = (folder / "report.html").read_text(encoding="utf-8")
    assert 'id="lemmas"' not in before
    done = command("certify", folder)
    assert done.exit_code == 0, done.output
    for word in ("policy-step", "slater-run", "holds", "statements."):
        assert word in done.output
    found = Certificates.from_record(json.loads((folder / "certificates.json").read_text()))
    assert found.record() == sd.Run.from_parquet(folder / "records.parquet").certify().record()
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert 'id="lemmas"' in page
    assert page.count("<code>") == len(found)
    assert command("report", folder, "--out", folder / "again.html").exit_code == 0
    assert (folder / "again.html").read_text(encoding="utf-8") == page


@pytest.mark.parametrize("name", ["uniform", "opt-cmdp:window=20"])
def test_runs_of_other_learners_are_certified_too(tmp_path, name):
    """In Python and from the folder; their fast paths keep no log of episodes."""
    out = tmp_path / "run"
    asked = ("run", "random", "-n", 50, "-o", "states=4", "--learner", name, "--out", out)
    assert command(*asked).exit_code == 0
    done = command("certify", out)
    assert done.exit_code == 0, done.output
    stored = Certificates.from_record(json.loads((out / "certificates.json").read_text()))
    assert {x.id for x in stored} == set(sd.theory.FOR_ANY_LEARNER)
    assert stored.statistics_hold
    told = command("certify", out / "records.parquet")
    assert told.exit_code == 2
    assert "learner must be given to certify a stored run of" in told.stderr
    world = sd.problems.make("random", 50, 0, states=4)
    (entrant,) = entrants([name])
    run = sd.simulate(world, entrant.build(world, 0.1, False), seed=0)
    assert run.certify().record()["certificates"] == stored.record()["certificates"]


def test_certify_explains_and_speaks_json(folder):
    told = command("certify", folder, "--explain")
    assert "Elliptical potential lemma" in " ".join(told.output.split())
    plain = command("certify", folder / "records.parquet", "--json", "--p", 0.2)
    assert json.loads(plain.stdout)["info"]["p"] == 0.2


def test_bad_input_is_told_in_a_sentence_and_nothing_is_lost(folder):
    kept = (folder / "report.html").read_bytes()
    for arguments, message in (
        ((folder / "nothing",), "source must be a run's folder or a file of Run.to_parquet"),
        ((folder, "--p", 1.5), "p must be"),
        ((folder, "--p", 0), "p must be"),
    ):
        done = command("certify", *arguments)
        assert done.exit_code == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    assert (folder / "report.html").read_bytes() == kept
    for text in ('{"certificates": 3}', "[]", "no json"):
        (folder / "certificates.json").write_text(text)
        assert command("report", folder).exit_code == 2
    (folder / "certificates.json").write_text('{"certificates": 3}')
    done = command("report", folder)
    assert done.exit_code == 2
    assert "must be what 'safedrift certify' wrote" in done.stderr
    assert (folder / "report.html").read_bytes() == kept


def test_certificates_of_another_run_stay_out_of_the_page(folder):
    assert command("certify", folder).exit_code == 0
    kept = (folder / "certificates.json").read_bytes()
    again = ("run", "random", "-n", 50, "-o", "states=4", "--seed", 9, "--out", folder, "--force")
    assert command(*again).exit_code == 0
    assert not (folder / "certificates.json").exists()
    (folder / "certificates.json").write_bytes(kept)
    done = command("report", folder)
    assert done.exit_code == 0
    assert "certificates.json is of another run" in done.stderr
    assert 'id="lemmas"' not in (folder / "report.html").read_text(encoding="utf-8")


def damage(folder, change):
    """Change what a stored run says of itself, and all checksums with it."""

    def changed(table):
        manifest = json.loads(table.schema.metadata[b"safedrift"])
        change(manifest)
        return table.replace_schema_metadata({"safedrift": json.dumps(manifest)})

    rewrite_run(folder / "records.parquet", changed)
    forge_folder(folder, lambda manifest: change(manifest["run"]))


@pytest.mark.parametrize("change", [{"sizes": [1]}, {"seed": "a"}, {"noisy": None}], ids=str)
def test_a_run_with_a_damaged_manifest_is_refused(folder, change):
    damage(folder, lambda manifest: manifest.update(change))
    for name in ("certify", "report"):
        done = command(name, folder)
        assert done.exit_code == 2
        (key,) = change
        sentence = f"must be the manifest of a run, as safedrift wrote it; got one whose 'run.{key}"
        assert sentence in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    "change",
    [{"parameters": {}}, {"knowledge": {}}, {"knowledge": "x"}, {"forgetting": {"kind": "x"}}],
    ids=str,
)
def test_a_run_with_damaged_settings_of_its_learner_is_not_certified(folder, change):
    damage(folder, lambda manifest: manifest["learner"]["settings"].update(change))
    done = command("certify", folder)
    assert done.exit_code == 2
    assert "Traceback" not in done.stderr
    assert re.search("settings|forgetting", done.stderr)
    assert command("report", folder).exit_code == 0


def test_a_world_on_a_box_is_refused(tmp_path):
    out = tmp_path / "box"
    assert command("run", "thermostat", "-n", 5, "--out", out, "-o", "nodes=32").exit_code == 0
    done = command("certify", out)
    assert done.exit_code == 2
    assert "world must be one with finitely many states" in done.stderr


def test_a_broken_identity_has_an_exit_code(folder, monkeypatch):
    broken = property(lambda self: False)
    monkeypatch.setattr(Certificates, "identities_hold", broken)
    done = command("certify", folder)
    assert done.exit_code == 1
    assert "An identity fails" in done.output
