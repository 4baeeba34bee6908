"""The comparisons of test_on_a_card.py where there is no pytest.

python tests/gpu/check_card.py
"""

import importlib.util
import sys
import time
from itertools import product
from pathlib import Path
from unittest.mock import MagicMock

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
for name in ("pytest", "hypothesis"):  # which conftest.py imports
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = MagicMock()

from comparing import LAYOUTS, WORLDS, agents, check_same, small_world  # noqa: E402

from safedrift.gpu.card import Card  # noqa: E402


def checks():
    """Names and comparisons."""
    for noisy, (name, sizes) in product((False, True), WORLDS.items()):
        world = small_world(**sizes, episodes=120)
        yield f"{name}, noisy: {noisy}", world, agents(world), {"listed": range(64), "noisy": noisy}
    world = small_world(**WORLDS["small"])
    for layout in LAYOUTS:
        yield str(layout), world, agents(world)[:5], {"listed": range(19), "layout": layout}


def main():
    card, failed = Card(), 0
    for name, world, learners, options in checks():
        start = time.perf_counter()
        try:
            check_same(card, world, learners, list(options.pop("listed")), **options)
        except AssertionError as error:
            failed += 1
            print(f"FAILED {name}\n{error}", flush=True)
        else:
            print(f"passed {name}, {time.perf_counter() - start:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
