"""Whether a learner did well, in one sentence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import safedrift as sd
from hand_made_runs import make_run
from safedrift.results.scores import strict_score
from safedrift.results.verdicts import safety


def short_of(late, early=0.0, n=60):
    """A shortfall (n, 1) that changes in the last tenth."""
    return np.where(np.arange(n) < n - n // 10, early, late)[:, None]


def test_verdict_of_a_safe_run():
    assert make_run(regret=0.5).verdict() == (
        "propd-ppo came most of the way to the optimum: it closed 75% of the gap between the "
        "uniform policy and the best safe policy of each episode (75% in the last tenth); it was "
        "safe in the long run and in the last tenth."
    )


@pytest.mark.parametrize(
    ("regret", "words"),
    [
        (0.0, "was nearly optimal: it closed 100% of"),
        (0.0001, "was nearly optimal: it closed 99.9% of"),
        (0.1, "came close to the optimum: it closed 95% of"),
        (1.0, "came part of the way to the optimum: it closed 50% of"),
        (1.9, "was little better than the uniform policy: it closed 5% of"),
        (3.0, "was no better than the uniform policy: it closed −50% of"),
    ],
)
def test_distances_have_words(regret, words):
    assert words in make_run(regret=regret).verdict()


@pytest.mark.parametrize(
    ("shortfall", "words"),
    [
        (short_of(0.2, 0.1), "unsafe in the long run (0.11 utility below the threshold of 1) and "
                             "in the last tenth (0.2 utility below the threshold of 1)"),
        (short_of(-0.2, 0.1), "unsafe in the long run (0.07 utility below the threshold of 1) but "
                              "safe in the last tenth"),
        (short_of(0.2, -0.1), "safe in the long run but unsafe in the last tenth (0.2 utility "
                              "below the threshold of 1)"),
    ],
)  # fmt: skip
def test_safety_has_words(shortfall, words):
    assert make_run(shortfall=shortfall).verdict().endswith(f"; it was {words}.")


def test_a_missed_constraint_is_named():
    run = make_run(K=2, shortfall=np.array([0.0, 0.25]))
    assert "“constraint 2” 0.25 utility below the threshold of 1" in run.verdict()
    named = run.manifest.model_copy(update={"constraints": ["reserve", "flood margin"]})
    assert "“flood margin” 0.25 utility" in replace(run, manifest=named).verdict()


def test_a_bad_last_tenth_is_warned_of():
    assert make_run().notes() == []
    unsafe = make_run(shortfall=short_of(0.2, -0.1))
    assert unsafe.notes()[0].startswith("Warning: the last tenth of the episodes was unsafe: 0.2 u")
    worse = make_run(regret=short_of(1.5, 0.5)[:, 0])
    (note,) = worse.notes()
    assert note.endswith("whole run: its strict score is 0.75, that of the run 0.3.")


def test_summary_and_text_carry_the_verdict():
    run = make_run(shortfall=short_of(0.2, -0.1))
    found = run.summary()
    assert found["verdict"] == run.verdict()
    assert (found["safe_in_the_long_run"], found["safe_in_the_last_tenth"]) == (True, False)
    assert str(run).splitlines()[:2] == [repr(run), run.verdict()]
    assert str(run).endswith(run.notes()[-1])


def test_strict_score_is_that_of_comparisons():
    world = sd.problems.make("stationary", episodes=50)
    learner = sd.learners.make("opt-cmdp", world)
    run = sd.simulate(world, learner, seed=0)
    (row,) = sd.compare([world], ["opt-cmdp"], seeds=[0], workers=1).rows
    assert run.summary()["strict_score"] == row.strict_score
    assert run.summary()["last_tenth_strict_score"] == row.last_tenth_score
    assert strict_score(run).uniform_loss == row.uniform_loss


def test_without_a_gap_there_is_no_score():
    run = make_run(regret=0.5)
    best = replace(run, truth=replace(run.truth, baseline_reward=run.truth.optimal_reward))
    assert best.summary()["strict_score"] is None
    assert "lost 0.5 reward per episode" in best.verdict()
    assert "where the uniform policy is optimal already" in best.verdict()


def test_without_a_model_what_is_known_is_said():
    run = make_run(regret=0.5, shortfall=0.1)
    blank = np.full(60, np.nan)
    unknown = replace(run, truth=replace(run.truth, optimal_reward=blank, baseline_reward=blank))
    assert unknown.verdict() == (
        "propd-ppo earned 1.5 reward per episode (1.5 in the last tenth); how far that is from the "
        "best safe policy is unknown, as the world has no model; as observed, it was unsafe in the "
        "long run (0.1 utility below the threshold of 1) and in the last tenth (0.1 utility below "
        "the threshold of 1)."
    )
    assert unknown.summary()["strict_score"] is None
    assert not safety(unknown).safe_lately
