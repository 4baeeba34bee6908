"""The same comparisons on a card: `make test-gpu`. Skipped where there is none."""

import pytest
from comparing import LAYOUTS, WORLDS, agents, check_same, small_world

import safedrift as sd

GPU = sd.devices()[1]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPU.available, reason=f"no GPU: {GPU.description}"),
]


@pytest.fixture(scope="module")
def card():
    from safedrift.gpu.card import Card

    return Card()


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("name", WORLDS)
def test_trajectories_and_values_of_the_cpu(card, name, noisy):
    world = small_world(**WORLDS[name], episodes=120)
    check_same(card, world, agents(world), list(range(64)), noisy=noisy)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(card, layout):
    world = small_world(**WORLDS["small"])
    check_same(card, world, agents(world)[:5], list(range(19)), layout=layout)
