"""The program for a card, compiled for the host: the numbers of the CPU engine."""

import numpy as np
import pytest

from comparing import agents, check_same, small_world
from host import COMPILER, Host

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no g++ on the PATH")


@pytest.fixture(scope="session")
def host(tmp_path_factory):
    return Host(tmp_path_factory.mktemp("programs"))


def test_every_kind_of_learner(host):
    world = small_world("separate", K=1)
    check_same(host, world, agents(world), [4, 0])


@pytest.mark.parametrize(
    ("drift", "K", "options"),
    [("linear", 2, {"successors": 2}), ("abrupt", 3, {"S": 12, "A": 2}), ("none", 1, {"A": 1})],
)
def test_constraints_and_drifts(host, drift, K, options):
    world = small_world(drift, K, **options)
    learners = agents(world)
    check_same(host, world, [learners[i] for i in (0, 3, 8)], [7])


def test_noise_and_a_horizon_of_one(host):
    world = small_world("mixed", H=1)
    check_same(host, world, agents(world)[:2], [1, 2], noisy=True)
    world = small_world("mixed", H=4)
    check_same(host, world, agents(world)[3:5], [1, 2], noisy=True)
