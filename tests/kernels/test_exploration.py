"""What is left for exploration: answers known on paper."""

import numba
import numpy as np
import pytest

from safedrift.kernels.tabular.exploration import Exploration, make_exploration, spend


@numba.njit(error_model="numpy")
def spent(exploration, rate, episodes, rounds):
    spend(exploration, rate, episodes, rounds)


@pytest.mark.parametrize(
    ("before", "share"),
    [(0.0, 1.0), (97.5, 1.0), (113.75, 0.5), (123.5, 0.2), (130.0, 0.2), (500.0, 0.2)],
)
def test_bonuses_shrink_with_the_last_quarter_down_to_a_fifth(before, share):
    """100 episodes, 2 rounds of 10, and 0.01 of 1,000: 130 in all."""
    exploration = Exploration(np.ones(1), np.zeros(1), np.full(1, before))
    spent(exploration, 0.01, 1000.0, 10.0)
    assert exploration.share[0] == pytest.approx(share)
    assert exploration.spent[0] == before


def test_every_episode_costs_what_the_plan_costs():
    exploration = make_exploration()
    exploration.cost[0] = 0.5
    for m in range(300):
        spent(exploration, 0.0, m + 1.0, 0.0)
        wanted = min(max((100 - 0.5 * (m + 1)) / 25, 0.2), 1.0)
        assert exploration.share[0] == pytest.approx(wanted)
    assert exploration.spent[0] == 150.0
