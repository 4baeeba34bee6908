"""Pictures of worlds show the right arrays."""

import re

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import safedrift as sd
from builders import small_world
from safedrift.display import Display
from safedrift.experiments.snapshots import (
    expected_quantity,
    learned_policies,
    representative_episodes,
    representative_snapshots,
)
from safedrift.problems import PROBLEMS, display, make
from safedrift.reports import world_pictures
from safedrift.reports.world_pictures import draw_world

M = 40
NAMED = [name for name in PROBLEMS if name not in ("random", "adversary", "stationary")]


@pytest.fixture
def figures(monkeypatch):
    """Figures as they are when they are saved."""
    kept = []
    monkeypatch.setattr(world_pictures, "_save", lambda figure, path: kept.append(figure))
    return kept


def panels(figure, text):
    return [ax for ax in figure.axes if text in (ax.get_title(loc="left"), ax.get_ylabel())]


# ---------------------------------------------------------------- displays


@pytest.mark.parametrize("name", PROBLEMS)
def test_display_fits_its_world(name):
    world = make(name, episodes=M)
    seen = display(world)
    assert isinstance(seen, Display)
    assert 1 <= len(seen.snapshots) <= 4
    assert len({snapshot.name for snapshot in seen.snapshots}) == len(seen.snapshots)
    for snapshot in seen.snapshots:
        assert 0 <= snapshot.episode < M
    assert seen.drifts
    for drift in seen.drifts:
        assert drift.values.shape == (M, len(drift.names))
        if drift.shares:
            np.testing.assert_allclose(drift.values.sum(axis=1), 1, atol=1e-9)
    shape = (len(seen.snapshots), world.H, world.S, world.A)
    for quantity in seen.quantities:
        assert quantity.values.shape in (shape, shape[1:])
        assert np.isfinite(quantity.values).all()
        assert bool(quantity.wanted) == (quantity.band is not None or quantity.limits is not None)
    assert seen.quantities or seen.board
    assert seen.times is None or seen.times.shape == (world.H,)


@pytest.mark.parametrize("name", NAMED)
def test_representative_episodes_are_different_worlds(name):
    world = make(name, episodes=M)
    _, version = world.distinct
    assert len(set(version[representative_episodes(world)])) == len(display(world).snapshots)


@pytest.mark.parametrize("name", ["maze", "frozen_lake", "cliff_walking"])
def test_maps_show_start_goal_and_hazards_where_the_world_has_them(name):
    world = make(name, episodes=M)
    board, snapshots = display(world).board, display(world).snapshots
    assert world.initial[board.start] == 1
    cells = board.rows * board.columns
    assert cells in (world.S, world.S - 1)
    for snapshot, goal in zip(snapshots, board.goals, strict=True):
        today = world.at(snapshot.episode)
        if name == "maze":
            assert today.rewards[0, goal].min() == 1
            assert set(np.flatnonzero(today.utilities[0, 0, :, 0] == 0)) == set(board.hazards)
        else:  # hazards and the goal end the episode or lead back to the start
            into = today.dense_transitions()[:, :, :, [goal, *board.hazards]].copy()
            into[:, [goal, *board.hazards]] = 0
            assert into.max() == 0
    assert goal not in board.hazards


def test_quantities_of_the_named_worlds_by_hand():
    shelf = display(make("inventory", episodes=M))
    stock, delivered, lost = (quantity.values for quantity in shelf.quantities)
    assert stock[0, 4, 2] == 10  # 4 and two packs of 3
    assert stock[0, 8, 3] == 10  # no more than fits
    assert delivered[0, 8, 3] == 2
    campaign = [snapshot.name for snapshot in shelf.snapshots].index("campaign")
    assert lost[campaign, 0, 0, 0] == pytest.approx(6)  # all of 10 customers at 0.6
    assert lost[campaign, 0, 10, 0] == 0
    house = display(make("energy", episodes=M))
    charge, grid, sun = (quantity.values for quantity in house.quantities)
    assert charge[0, 3 * 5 + 1, 0] == 5
    noon = int(np.abs(house.times - 12).argmin())
    s = 1.4 * np.sin(np.pi * (house.times[noon] - 6) / 12)  # under a clear sky
    assert sun[noon, 3 * 5 + 2, 0] == pytest.approx(s)
    np.testing.assert_allclose(grid[noon, 3 * 5 + 2], [-s, 1 - s, 2 - s])
    room = display(make("thermostat", episodes=M)).quantities
    assert room[0].values.min() >= 10
    assert room[0].values.max() <= 26
    np.testing.assert_allclose(room[1].values[0, 0], [0, 50, 100])
    road = display(make("driving", episodes=M)).quantities
    assert (road[0].values[0, 4 * 5 + 3, 0], road[1].values[0, 4 * 5 + 3, 0]) == (3, 5)
    np.testing.assert_array_equal(road[2].values[0, :, 0], np.arange(32) < 4)
    counter = display(make("queue", episodes=M)).quantities
    np.testing.assert_array_equal(counter[1].values[0, 0], [1, 1, 0, 0])  # open, open, closed, ...
    np.testing.assert_array_equal(counter[2].values[0, 0], [0, 1, 0, 1])  # slow, fast, slow, fast
    clinic = display(make("dosing", episodes=M)).quantities
    assert [q.values[0, 4, 3] for q in clinic] == [7, 4, 3]  # peak, trough, dose
    assert clinic[0].values[0, 11, 3] == 12  # the end of the scale
    assert clinic[0].band == (0.6 * 8, 8)


def test_comfort_waiting_and_scrap_are_the_utilities_of_the_world():
    room, counter = make("thermostat", episodes=M), make("queue", episodes=M)
    comfort = display(room).quantities[2].values
    np.testing.assert_allclose(room.at(0).utilities[0], comfort, atol=1e-12)
    waiting = display(counter).quantities[0]
    np.testing.assert_allclose(counter.at(0).utilities[0], 1 - waiting.values / 8)
    cell = make("blend", episodes=M)
    orders, wear, scrap = display(cell).quantities
    np.testing.assert_allclose(1 - cell.at(0).utilities[0], scrap.values, atol=1e-12)
    assert scrap.limits[0] == pytest.approx((cell.H - cell.thresholds[0, 0]) / cell.H)
    assert (orders.values[0, 4 * 6 + 5, 0], wear.values[0, 4 * 6 + 5, 0]) == (4, 5)
    allowed = (counter.H - counter.thresholds[0, 0]) / counter.H * 8
    assert waiting.limits[0] == pytest.approx(allowed)


@pytest.mark.parametrize(
    ("name", "quantity", "scale"),
    [("taxi", 2, 1), ("driving", 2, 1), ("commute", 2, 1), ("departures", 1, 5 * 6)],
)
def test_limited_quantity_is_what_the_utility_misses(name, quantity, scale):
    """Also where somebody else sets the thresholds."""
    world = make(name, episodes=M)
    for b in (world.thresholds, 0.9 * world.thresholds):
        shown = display(world.with_thresholds(b)).quantities[quantity]
        missed = scale * (1 - world.at(0).utilities[0])
        np.testing.assert_allclose(shown.values, missed, atol=1e-12)
        np.testing.assert_allclose(shown.limits, scale * (1 - b[0, 0] / world.H))


def test_a_day_at_the_airport_begins_at_its_first_hour():
    assert display(make("departures", M, first=7, horizon=3)).times.tolist() == [7, 8, 9]


def test_a_goal_that_moves_is_shown_where_it_is():
    seen = display(make("frozen_lake", episodes=400, goal="moving", moves=1, cycles=0.5))
    assert [drift.label for drift in seen.drifts] == ["ice", "goal"]
    places = {
        snapshot.name: goal for snapshot, goal in zip(seen.snapshots, seen.board.goals, strict=True)
    }
    assert places == {"winter": 15, "summer": 3, "in between": 3}


def test_display_follows_the_options_of_the_world():
    counter = display(make("queue", episodes=M, capacity=20, waiting=0.3))
    assert counter.quantities[0].limits[0] == pytest.approx(6)
    shelf = display(make("inventory", episodes=M, pack=5, capacity=20))
    assert shelf.quantities[0].values[0, 4, 2] == 14
    lake = display(make("frozen_lake", episodes=M, map_name="8x8"))
    assert (lake.board.rows, lake.board.columns) == (8, 8)
    cell = display(make("blend", episodes=M, as_table=True, grades=4))
    assert cell.quantities[1].values.max() == 3


def test_other_worlds_get_the_generic_display():
    world = small_world(M=M, K=2, drift="linear")
    world.name = "mine.npz"
    seen = display(world)
    assert [snapshot.name for snapshot in seen.snapshots] == [
        "scenario 1",
        "scenario 2",
        "scenario 3",
    ]
    for i, snapshot in enumerate(seen.snapshots):
        today = world.at(snapshot.episode)
        np.testing.assert_array_equal(seen.quantities[0].values[i], today.rewards)
        for k in range(2):
            np.testing.assert_array_equal(seen.quantities[1 + k].values[i], today.utilities[k])
            assert seen.quantities[1 + k].limits[i] == today.thresholds[k] / world.H


# ---------------------------------------------------------------- snapshots


def test_best_policies_of_the_snapshots_reach_value_and_threshold():
    world = make("energy", episodes=M)
    snapshots = representative_snapshots(world)
    for snapshot, d in zip(snapshots.display.snapshots, snapshots.best, strict=True):
        today = world.at(snapshot.episode)
        best = sd.solve(today)
        assert (d * today.rewards).sum() == pytest.approx(best.value)
        assert (d * today.utilities[0]).sum() >= today.thresholds[0] - 1e-9
    assert snapshots.learned is None


def test_expected_quantity_is_the_mean_of_simulated_days():
    world = make("queue", episodes=M)
    snapshots = representative_snapshots(world)
    waiting = expected_quantity(snapshots.display.quantities[0], snapshots.best)
    rng = np.random.default_rng(2)
    i, N = 2, 4_000
    today = world.at(snapshots.display.snapshots[i].episode)
    policy, P = sd.solve(today).policy, today.dense_transitions()
    x = np.full(N, 2)
    for h in range(world.H):
        error = max(x.std() / np.sqrt(N), 1e-12)
        assert abs(x.mean() - waiting[i, h]) <= 4 * error, h
        a = (policy[h, x].cumsum(axis=1) < rng.random((N, 1))).sum(axis=1)
        x = (P[h, x, a].cumsum(axis=1) < rng.random((N, 1))).sum(axis=1).clip(max=8)


@pytest.mark.parametrize("name", ["maze", "thermostat"])
def test_learned_policies_are_those_of_the_run(name):
    world = make(name, episodes=60)
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.4))
    run = sd.simulate(world, agent, seed=3)
    episodes = np.array([59, 20, 41])
    found = learned_policies(world, agent, episodes, seed=3)
    for m, policy in zip(episodes, found, strict=True):
        value, utility = sd.evaluate(world.at(int(m)), policy)
        assert value == pytest.approx(run.outcome.reward[m], abs=1e-10)
        assert utility == pytest.approx(run.outcome.utility[m, 0], abs=1e-10)


def test_averaged_policy_visits_as_often_as_its_episodes_on_average():
    world = make("maze", episodes=30, moves=0)
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.4))
    run = sd.simulate(world, agent, seed=1)
    (policy,) = learned_policies(world, agent, np.array([29]), seed=1, window=10)
    value, utility = sd.evaluate(world.at(29), policy)
    assert value == pytest.approx(run.outcome.reward[20:].mean(), abs=1e-10)
    assert utility == pytest.approx(run.outcome.utility[20:, 0].mean(), abs=1e-10)
    early = learned_policies(world, agent, np.array([2]), seed=1, window=10)[0]
    assert sd.evaluate(world.at(2), early)[0] == pytest.approx(
        run.outcome.reward[:3].mean(), abs=1e-10
    )


def test_policies_of_another_shape_are_refused():
    world = make("maze", episodes=M)
    with pytest.raises(ValueError, match=re.escape("learned must be an array of shape (3, 12, 25")):
        representative_snapshots(world, np.ones((2, 12, 25, 4)) / 4)


# ---------------------------------------------------------------- pictures


@pytest.mark.parametrize("name", ["maze", "energy", "random"])
def test_picture_is_written_small_and_not_blank(name, tmp_path):
    world = make(name, episodes=M)
    shape = (len(display(world).snapshots), world.H, world.S, world.A)
    snapshots = representative_snapshots(world, np.full(shape, 1 / world.A))
    path = draw_world(sd.describe(world), snapshots, tmp_path / "a.png")
    assert path == tmp_path / "a.png"
    assert path.stat().st_size < 150_000
    with Image.open(path) as picture:
        assert picture.size == (1200, 800)
        pixels = np.asarray(picture.convert("RGB"))
    assert (pixels != 255).any(axis=2).mean() > 0.02
    for half in (pixels[:400], pixels[400:]):
        assert len(np.unique(half.reshape(-1, 3), axis=0)) > 20


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_has_a_picture_with_names_and_units(name, figures):
    world = make(name, episodes=M)
    seen = display(world)
    shape = (len(seen.snapshots), world.H, world.S, world.A)
    snapshots = representative_snapshots(world, np.full(shape, 1 / world.A))
    draw_world(sd.describe(world), snapshots, "unused.png")
    (figure,) = figures
    for ax in figure.axes:
        assert ax.has_data() or ax.images
    for drift in seen.drifts:
        assert len(panels(figure, drift.label)) == 1
    maps = [ax for ax in figure.axes if ax.images]
    assert len(maps) == (2 * len(seen.snapshots) if seen.board else 0)
    for quantity in () if seen.board else seen.quantities:
        (ax,) = panels(figure, quantity.label)
        assert ax.get_xlabel() == seen.step


def test_lines_drawn_are_the_expected_quantities_of_both_policies(figures):
    world = make("queue", episodes=M)
    shape = (3, world.H, world.S, world.A)
    learned = np.random.default_rng(0).dirichlet(np.ones(world.A), shape[:3])
    snapshots = representative_snapshots(world, learned)
    draw_world(sd.describe(world), snapshots, "unused.png")
    for quantity in snapshots.display.quantities:
        (ax,) = panels(figures[0], quantity.label)
        for style, measures in (("-", snapshots.best), ("--", snapshots.learned)):
            lines = [line for line in ax.lines if line.get_linestyle() == style]
            drawn = np.array([line.get_ydata() for line in lines if line.get_xdata().size > 2])
            np.testing.assert_allclose(drawn, expected_quantity(quantity, measures))
            for line in lines:
                if line.get_xdata().size > 2:
                    np.testing.assert_array_equal(line.get_xdata(), np.arange(world.H))


def test_panels_of_drift_multiplier_and_gap_show_their_arrays(figures):
    world = make("energy", episodes=M)
    found = sd.describe(world)
    draw_world(found, representative_snapshots(world), "unused.png")
    (mu,), (gap,) = (
        panels(figures[0], label) for label in ("μ*, reward\nper utility", "Slater gap γ,\nutility")
    )
    np.testing.assert_array_equal(mu.lines[0].get_ydata(), found.multipliers[:, 0])
    np.testing.assert_array_equal(mu.lines[0].get_xdata(), found.episodes)
    np.testing.assert_array_equal(gap.lines[0].get_ydata(), found.gamma)
    (reserve,) = panels(figures[0], "reserve, b/H")
    np.testing.assert_allclose(reserve.lines[0].get_ydata(), world.thresholds[:, 0] / world.H)
    texts = [text.get_text() for part in figures[0].findobj(Figure) for text in part.texts]
    texts += [part.get_suptitle() for part in figures[0].findobj(lambda x: hasattr(x, "subfigs"))]
    assert any(f"binds in {found.binding[0]:.0%}" in text for text in texts)


def test_map_shows_the_visits_of_the_best_policy(figures):
    world = make("maze", episodes=M)
    snapshots = representative_snapshots(world)
    draw_world(sd.describe(world), snapshots, "unused.png")
    images = [ax.images[0].get_array() for ax in figures[0].axes if ax.images]
    assert len(images) == len(snapshots.display.snapshots)
    for image, d in zip(images, snapshots.best, strict=True):
        visits = d.sum(axis=(0, 2)).reshape(5, 5)
        np.testing.assert_allclose(image, visits.clip(world_pictures.RARE))


def test_worlds_of_several_constraints_or_without_safe_policies_are_drawn(figures):
    several = small_world(M=M, K=3, drift="linear")
    draw_world(sd.describe(several), representative_snapshots(several), "unused.png")
    (mu,) = panels(figures[0], "μ*, reward\nper utility")
    assert len(mu.lines) == 3
    b = several.thresholds.copy()
    b[5:9] = several.H
    broken = several.with_thresholds(b)
    draw_world(sd.describe(broken), representative_snapshots(broken), "unused.png")
    (gap,) = panels(figures[1], "Slater gap γ,\nutility")
    assert gap.get_ylim()[0] <= sd.describe(broken).gamma.min() < 0
