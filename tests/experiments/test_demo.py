"""The demonstration: what its maps show, and that its command leaves a page."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from safedrift.cli import app
from safedrift.experiments.demo import LEARNERS, board_frames, telling_episodes
from safedrift.models import TabularCMDP
from safedrift.problems import make

UP, RIGHT, DOWN, LEFT = range(4)


def always(world, action):
    """The policy (H, S, A) of one action."""
    policy = np.zeros((world.H, world.S, world.A))
    policy[..., action] = 1
    return policy


def test_maps_show_visits_and_mean_steps():
    world = make("maze", 40, slip=0.2)
    episodes = np.array([0, 39])
    policies = np.stack([[always(world, UP)] * 2, [always(world, RIGHT)] * 2])
    found = board_frames(world, episodes, ("up", "right"), policies)
    assert found.visits.shape == (2, 2, 25)
    np.testing.assert_allclose(found.visits.sum(axis=-1), world.H)
    start = found.board.start  # bottom, middle
    # From the start: 0.8 as chosen, 0.05 in each direction, and a wall below.
    np.testing.assert_allclose(found.moves[0, 0, start], (0, -0.85), atol=1e-12)
    np.testing.assert_allclose(found.moves[1, 0, start], (0.8, -0.05), atol=1e-12)
    unseen = found.visits[0, 0] == 0
    assert (found.moves[0, 0, unseen] == 0).all()
    for goal, m in zip(found.board.goals, episodes.tolist(), strict=True):
        today = world.at(m)
        assert isinstance(today, TabularCMDP)
        assert today.rewards[0, goal, 0] == 1


@pytest.mark.parametrize(("M", "changes"), [(20_000, [5000, 10_000, 15_000]), (7, [1, 6]), (3, [])])
def test_frames_are_dense_where_the_target_has_just_moved(M, changes):
    found = telling_episodes(M, np.array(changes, dtype=int), 120)
    assert (np.diff(found) > 0).all()
    assert len(found) <= 120
    for begin, end in zip([0, *changes], [*changes, M], strict=True):
        own = found[(found >= begin) & (found < end)]
        assert (own[0], own[-1]) == (begin, end - 1)
        assert (np.diff(own, 2) >= -1).all()  # ever sparser, to rounding
        if len(own) > 10:  # half of them in the first twentieth
            assert np.median(own - begin) < (end - begin) / 20


def test_a_world_without_a_board_is_refused():
    world = make("stationary", 5)
    policies = np.full((1, 1, world.H, world.S, world.A), 1 / world.A)
    with pytest.raises(ValueError, match="world must have a board; got stationary"):
        board_frames(world, np.array([0]), ("uniform",), policies)


def test_the_command_looks_at_its_folder_before_it_plays(tmp_path):
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file")])
    assert done.exit_code == 2
    assert "--out must be a folder that can be made; got" in done.stderr


def test_the_command_leaves_a_page(tmp_path):
    asked = ["demo", "--out", str(tmp_path), "-n", "60", "--seeds", "1", "--workers", "1"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert done.stdout.count("of the gap between the uniform policy and the best safe policy") == 3
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'id="maps-data">(.*?)</script>', text)
    maps = json.loads(data)
    assert [learner["name"] for learner in maps["learners"]] == list(LEARNERS)
    assert (maps["episodes"][0], maps["episodes"][-1]) == (0, 59)
    best = maps["learners"][-1]
    assert best["reward"] == maps["best"]
    for learner in maps["learners"]:
        assert len(learner["visits"]) == len(learner["moves"]) == len(maps["episodes"])
        assert abs(sum(learner["visits"][0]) - 1200) <= 25  # rounded to hundredths
