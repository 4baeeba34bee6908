"""Events: a ring of the last ones, alarms in a row are one, and words for them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import safedrift as sd
from safedrift.kernels.tabular import events as kernel
from safedrift.learners.events import Event, events_of

# Parts of an entry point, as Python runs them.
open_event, keep_larger = kernel.open_event.py_func, kernel.keep_larger.py_func


@given(st.integers(1, 5), st.lists(st.integers(0, 60), max_size=12), st.integers(2, 4))
def test_the_last_events_are_kept(n, waits, quantities):
    """Against a plain list: alarms within 50 episodes are one event, if it is still there."""
    events = kernel.make_events(n, quantities)
    expected, last, m = [], {}, 0
    for i, wait in enumerate(waits):
        m += wait
        quantity = (i * i) % quantities
        event = last.get(quantity)
        again = event is not None and m - event["at"] <= 50
        if not (again and any(event is one for one in expected[-n:])):
            event = {"episode": m, "quantity": quantity, "alarms": 0}
            expected.append(event)
            last[quantity] = event
        event["at"] = m
        event["alarms"] += 1
        row = open_event(events, quantity, m)
        keep_larger(events.table[row], 7, 2, 3, -1, 0.25, 0.25 + 0.01 * i)
    found = events_of(events.table, int(events.count[0]))
    names = ["transition", "reward", "utility 0", "utility 1"]
    assert [(e.episode, e.quantity, e.alarms) for e in found] == [
        (e["episode"], names[e["quantity"]], e["alarms"]) for e in expected[-n:]
    ]
    for event in found:  # pair 7 of (H, 2, 3)
        assert (event.step, event.state, event.action) == (1, 0, 1)
        assert (event.successor is None) == (event.quantity != "transition")


def test_events_in_words():
    row = [1234, 0, 2, 3, 1, 4, 0.125, 0.75, 6]
    (event,) = events_of(np.array([row, [0] * 9], float), 1)
    assert event == Event(1234, "transition", 2, 3, 1, 4, 0.125, 0.75, 6)
    assert str(event) == (
        "episode 1,234: transition at step 2, state 3, action 1, to state 4: 0.12 -> 0.75"
    )
    assert event.successor == 4
    assert sd.learners.make("uniform", sd.ProblemSpec(H=2, S=2, A=2)).events() == []


def test_an_event_names_a_pair_even_where_all_estimates_agree():
    """Filters that pool may disagree where estimates of single pairs agree."""
    events = kernel.make_events(2, 2)
    row = open_event(events, 1, 30)
    for pair in (7, 8):
        keep_larger(events.table[row], pair, 2, 3, -1, 0.5, 0.5)
    assert events_of(events.table, 1) == [Event(30, "reward", 1, 0, 1, None, 0.5, 0.5, 1)]
    keep_larger(events.table[row], 9, 2, 3, -1, 0.5, 0.25)
    assert events_of(events.table, 1) == [Event(30, "reward", 1, 1, 0, None, 0.5, 0.25, 1)]
