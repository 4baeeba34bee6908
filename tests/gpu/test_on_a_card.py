"""The same comparisons on a card: `make test-gpu`. Skipped where there is none."""

import pytest
from comparing import agents, check_same, small_world

import safedrift as sd
from safedrift.gpu.program import ALL, HOT, MOST, NOTHING, Layout

GPU = sd.devices()[1]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPU.available, reason=f"no GPU: {GPU.description}"),
]
WORLDS = {
    "small": {"drift": "linear", "K": 1, "S": 5, "A": 3, "H": 5},
    "middle": {"drift": "separate", "K": 2, "S": 20, "A": 5, "H": 10},
    "large": {"drift": "abrupt", "K": 3, "S": 70, "A": 4, "H": 6, "successors": 9},
}


@pytest.fixture(scope="module")
def card():
    from safedrift.gpu.card import Card

    return Card()


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("name", WORLDS)
def test_trajectories_and_values_of_the_cpu(card, name, noisy):
    world = small_world(**WORLDS[name], episodes=120)
    check_same(card, world, agents(world), list(range(64)), noisy=noisy)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(5, 18, ALL, 6), Layout(5, 36, MOST, 6), Layout(5, 24, HOT, 6), Layout(5, 3, ALL, 3),
        Layout(8, 16, ALL), Layout(16, 3, ALL), Layout(32, 4, ALL), Layout(64, 1, HOT),
        Layout(32, 2, NOTHING), Layout(128, 1, NOTHING),
    ],
)  # fmt: skip
def test_every_layout(card, layout):
    world = small_world(**WORLDS["small"])
    check_same(card, world, agents(world)[:5], list(range(19)), layout=layout)
