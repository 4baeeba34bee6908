"""Rewards, costs and thresholds in the user's own units: the same run, other numbers."""

import re

import numpy as np
import pytest
from test_gymnasium_worlds import STEPS, Scripted, Walk, agent_for, assert_same, refused

import safedrift as sd
from builders import environment_episode
from safedrift.adapters.toy_text import from_table
from safedrift.problems.frozen_lake import dry_feet
from safedrift.reports import plots, summary_text
from safedrift.scale import Scale

SCALE = sd.Scale(
    reward=(-10, 30),
    constraints={"energy": sd.at_most(0, 40, "kWh"), "comfort": sd.at_least(-1, 1)},
    reward_unit="EUR",
)


class Plant(Walk):
    """The walk, with money, energy and comfort."""

    def step(self, action):
        seen, reward, *ends, _ = super().step(action)
        used = {0: 2.0, 1: 10.0, 2: 38.0}[self.cell]
        info = {"energy": used, "comfort": float(self.cell) - 1}
        return seen, 40 * reward - 10, *ends, info


def own_units(t):
    return {"comfort": t.info["comfort"], "energy": t.info["energy"]}


def plant(**more):
    return sd.from_gymnasium(
        Plant(), 6, own_units, {"energy": 90, "comfort": -1}, episodes=60, scale=SCALE, **more
    )


def plant_by_hand():
    def utility(t):
        return 1 - t.info["energy"] / 40, (t.info["comfort"] + 1) / 2

    return sd.from_gymnasium(
        Plant(), 6, utility, [(6 * 40 - 90) / 40, (-1 + 6) / 2], episodes=60, reward_range=(-10, 30)
    )


@pytest.fixture(scope="module")
def runs():
    return [sd.simulate(w, agent_for(w), seed=3) for w in (plant(), plant_by_hand())]


# ---------------------------------------------------------------- the same run


def test_learner_meets_the_world_that_one_would_scale_by_hand(runs):
    own, by_hand = runs
    np.testing.assert_allclose(own.truth.thresholds, by_hand.truth.thresholds)
    assert_same(own, by_hand)


def test_summary_is_in_the_units_of_the_user(runs):
    own, by_hand = (run.summary() for run in runs)
    assert own["constraints"] == ["energy", "comfort"]
    assert own["threshold_per_episode"] == pytest.approx([90, -1])
    reward, utility = runs[1].outcome.reward, runs[1].outcome.utility
    assert own["reward_per_episode"] == pytest.approx((40 * reward - 60).mean())
    energy, comfort = 240 - 40 * utility[:, 0], 2 * utility[:, 1] - 6
    assert own["utility_per_episode"] == pytest.approx([energy.mean(), comfort.mean()])
    late = [energy[-6:].mean(), comfort[-6:].mean()]
    assert own["last_tenth_utility_per_episode"] == pytest.approx(late)
    assert own["violation_per_episode"] == pytest.approx(
        [max(0, (energy - 90).mean()), max(0, (-1 - comfort).mean())]
    )
    assert by_hand["constraints"] is None
    assert own["last_tenth_trace"] == by_hand["last_tenth_trace"]


def test_page_and_sentences_name_constraints_and_units(runs, tmp_path):
    run = runs[0]
    text = summary_text.headline(run)
    assert re.search(r"earned [−\d.]+ EUR per episode", text)
    assert re.search(
        r"“energy” was \w+ in the long run: [\d.]+ kWh per episode observed, 90 all", text
    )
    assert "“comfort” was" in text
    figures = {name: (value, meaning) for name, value, meaning in summary_text.key_figures(run)}
    assert figures["“energy”"][0].endswith(" kWh")
    assert "at most 90" in figures["“energy”"][1]
    assert "at least −1" in figures["“comfort”"][1]
    drawn = {plot.title: plot.figure for plot in plots.all_plots(run)}
    energy = drawn["Observed cost and threshold, energy"]
    assert energy.layout.yaxis.title.text == "kWh"
    assert set(energy.data[1].y) == {90.0}
    assert min(energy.data[0].y) >= 12
    assert set(drawn["Observed utility and threshold, comfort"].data[1].y) == {-1.0}
    assert drawn["Observed reward"].layout.yaxis.title.text == "EUR"
    page = run.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "“energy”" in page


def test_units_survive_storage(runs, tmp_path):
    runs[0].to_parquet(tmp_path / "run.parquet")
    again = sd.Run.from_parquet(tmp_path / "run.parquet")
    assert again.scale == SCALE
    assert again.summary() == runs[0].summary()
    assert again.in_units.in_units is again.in_units


def test_exact_worlds_have_units_too():
    base = sd.problems.make("random", 30, constraints=2)
    scale = sd.Scale((0, 10), {"a": sd.at_most(0, 5), "b": sd.at_least(1, 2, "m")})
    world = sd.DriftingCMDP(
        base.scenarios, np.arange(30) // 10, thresholds=base.thresholds, scale=scale
    )
    plain = sd.DriftingCMDP(base.scenarios, np.arange(30) // 10, thresholds=base.thresholds)
    run, other = (sd.simulate(w, agent_for(w), seed=1) for w in (world, plain))
    assert_same(run, other)
    found, raw = run.summary(), other.summary()
    assert found["dynamic_regret"] == pytest.approx(10 * raw["dynamic_regret"])
    assert found["violation"] == pytest.approx([5 * raw["violation"][0], raw["violation"][1]])
    assert found["smallest_slater_gap"] == raw["smallest_slater_gap"]
    units = run.in_units
    np.testing.assert_allclose(units.truth.optimal_mu, other.truth.optimal_mu * [2, 10])
    np.testing.assert_allclose(units.trace["mu"], other.trace["mu"] * [2, 10])
    np.testing.assert_allclose(units.regret, 10 * other.regret, atol=1e-12)
    np.testing.assert_allclose(units.shortfall, other.shortfall * [5, 1], atol=1e-12)
    (title,) = (p.title for p in plots.all_plots(run) if p.title.startswith("Cost"))
    assert title == "Cost and threshold, a"
    assert "m per episode" in summary_text.headline(run) or found["violation"][1] == 0


def test_names_without_units_are_shown():
    world = sd.problems.make("ward", 40)
    run = sd.simulate(world, agent_for(world))
    assert run.summary()["constraints"] == ["free beds", "aftercare"]
    assert "“aftercare”" in summary_text.headline(run)
    assert any("free beds" in plot.title for plot in plots.all_plots(run))


# ---------------------------------------------------------------- episodes that end, tables


@pytest.mark.parametrize(("over", "expected"), [(None, 1.0), ({"energy": 30}, 0.25)])
def test_an_ended_episode_costs_nothing_unless_told(over, expected):
    scale = sd.Scale((-1, 3), {"energy": sd.at_most(0, 40)})
    world = sd.from_gymnasium(
        Scripted(STEPS, first=2), 4, lambda t: 10.0, 100, episodes=2, scale=scale, over=over
    )
    assert world.constraint_names == ("energy",)
    _, _, values = environment_episode(world, 0, lambda h, x: 0)
    assert values[0].tolist() == [0.75, 0.0, 0.25, 0.25]
    assert values[1].tolist() == [0.75, 0.75, expected, expected]


def test_info_has_costs_in_own_units():
    script = [(1, 0.0, False, False, {"cost": 25.0})] * 3
    scale = sd.Scale((0, 1), {"cost": sd.at_most(0, 100)})
    world = sd.from_gymnasium(Scripted(script), 3, threshold=200, scale=scale)
    assert world.thresholds[0] == pytest.approx(1.0)
    _, _, values = environment_episode(world, 0, lambda h, x: 0)
    assert values[1].tolist() == [0.75] * 3
    wrong = sd.Scale((0, 1), {"gain": sd.at_least(0, 100)})
    world = sd.from_gymnasium(Scripted(script), 3, threshold=200, scale=wrong)
    with refused(ValueError, "utility must be given where info has no 'utility'; got cost"):
        environment_episode(world, 0, lambda h, x: 0)


def test_table_in_own_units_is_the_table_scaled_by_hand():
    def damage(t):
        return 50 * (1 - dry_feet(t))

    scale = sd.Scale((-1, 1), {"damage": sd.at_most(0, 50, "EUR")})
    own = from_table("FrozenLake-v1", 9, damage, 20, scale=scale)
    by_hand = from_table("FrozenLake-v1", 9, dry_feet, 9 - 20 / 50, reward_range=(-1, 1))
    np.testing.assert_allclose(own.utilities[0, :, :16], by_hand.utilities[0, :, :16], atol=1e-15)
    np.testing.assert_array_equal(own.rewards, by_hand.rewards)
    np.testing.assert_allclose(own.thresholds, by_hand.thresholds)
    with refused(ValueError, "scale.reward must be around [0.0, 1.0]"):
        from_table("FrozenLake-v1", 9, damage, 20, scale=sd.Scale((0, 0.5), scale.constraints))


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ((35.0, 1.0, 0.0), "the reward of episode 7, step 0 must be in [-10, 30], its range in "
                           "scale; got 35"),
        ((0.0, 41.0, 0.0), "'energy' of episode 7, step 0 must be in [0, 40], its range in scale; "
                           "got 41"),
        ((0.0, 1.0, -2.5), "'comfort' of episode 7, step 0 must be in [-1, 1], its range in scale; "
                           "got -2.5"),
        ((np.nan, 1.0, 0.0), "the reward of episode 7, step 0 must be in [-10, 30]"),
        ((0.0, np.nan, 0.0), "'energy' of episode 7, step 0 must be in [0, 40]"),
    ],
)  # fmt: skip
def test_values_outside_their_range_are_named(step, message):
    reward, *values = step
    env = Scripted([(1, reward, False, False, {})])
    world = sd.from_gymnasium(env, 1, lambda t: values, [20, 0.5], scale=SCALE)
    with refused(ValueError, message):
        environment_episode(world, 7, lambda h, x: 0)


@pytest.mark.parametrize(
    ("signals", "error", "message"),
    [
        ([1.0], ValueError, "the constraints of episode 0, step 0 must be one number for each of "
                            "'energy', 'comfort'; got 1 numbers"),
        ({"energy": 1.0}, ValueError, "the constraints of episode 0, step 0 must be one number for "
                                      "each of 'energy', 'comfort'; got none for 'comfort'"),
        ({"energy": 1, "comfort": 0, "heat": 2}, ValueError,
         "a name in the constraints of episode 0, step 0 must be one of 'energy', 'comfort'; got "
         "'heat'"),
        ("high", TypeError, "the constraints of episode 0, step 0 must be one number for each"),
    ],
)  # fmt: skip
def test_signals_that_do_not_fit_the_scale(signals, error, message):
    env = Scripted([(1, 0.0, False, False, {})])
    world = sd.from_gymnasium(env, 1, lambda t: signals, [20, 0.5], scale=SCALE)
    with refused(error, message):
        environment_episode(world, 0, lambda h, x: 0)


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"threshold": [241, 0]}, ValueError,
         "threshold of 'energy' must be in [0, 240), the range of 6 steps; got 241.0"),
        ({"threshold": [[9, 0], [9, 7]]}, ValueError,
         "threshold of 'comfort' must be in (-6, 6], the range of 6 steps; got 7.0 at index 1"),
        ({"threshold": [9, -6]}, ValueError,
         "threshold of 'comfort' must be in (-6, 6], the range of 6 steps; got -6.0"),
        ({"threshold": 9}, ValueError,
         "threshold must be one for each of 'energy', 'comfort'; got shape (1,)"),
        ({"threshold": {"energy": 9}}, ValueError, "threshold must be one number for each of"),
        ({"reward_range": (0, 2)}, ValueError, "reward_range must be left out where scale has"),
        ({"scale": (0, 1)}, TypeError, "scale must be a Scale; got tuple"),
        ({"scale": sd.Scale((1, 2), {"a": (0, 1)})}, ValueError,
         "scale.reward must be around 0, which an ended episode earns; got (1.0, 2.0)"),
    ],
)  # fmt: skip
def test_wrong_arguments(more, error, message):
    given = {"threshold": [90, -1], "episodes": 2, "scale": SCALE} | more
    with refused(error, message):
        sd.from_gymnasium(Plant(), 6, own_units, **given)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: sd.Scale((1, 0), {"a": (0, 1)}), ValueError, "scale.reward must be two finite"),
        (lambda: sd.Scale((0, 1), {}), TypeError, "scale.constraints must be a dict"),
        (lambda: sd.Scale((0, 1), {"a": (2, 1)}), ValueError, "scale.constraints['a'] must be two"),
        (lambda: sd.Scale((0, 1), {3: (0, 1)}), TypeError, "a name in scale.constraints must be"),
        (lambda: sd.at_most(0, np.inf), ValueError, "range of a constraint must be two finite"),
        (lambda: sd.at_most(0, 1, 3), TypeError, "unit must be a str; got int"),
        (lambda: sd.DriftingCMDP(sd.problems.make("random", 2).scenarios, [0, 1], scale=SCALE),
         ValueError, "scale must be of K = 1 constraints; got 2"),
    ],
)  # fmt: skip
def test_wrong_scales(make, error, message):
    with refused(error, message):
        make()


def test_scale_is_plain_data_and_back():
    assert Scale.from_record(SCALE.record()) == SCALE
