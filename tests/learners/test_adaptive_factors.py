"""Common factors: what one pair shows of how others move, and where there is nothing in common."""

import numpy as np

import safedrift as sd

H, A = 6, 3


def made(S):
    spec = sd.ProblemSpec(H=H, S=S, A=A, initial=0)
    return sd.learners.make("adaptive-planner", spec, replan_every=50)


def play(learner, first, last, actions, rng, reward, after=None):
    """Let the learner see episodes with actions drawn from so many; it does not choose anything.

    reward(m, h, s, a) is what it sees, after(m, h, s, a) -> s' moves.
    """
    for m in range(first, last):
        learner.begin_episode([0.2])
        states, taken = np.zeros(H, int), rng.integers(actions, size=H)
        for h in range(H - 1):
            states[h + 1] = 0 if after is None else after(m, h, states[h], taken[h])
        rewards = [reward(m, h, s, a) for h, (s, a) in enumerate(zip(states, taken, strict=True))]
        learner.end_episode(sd.Trajectory(states, taken, rewards, np.ones((1, H))))


def model_after(learner):
    """The model of a new plan."""
    algorithm = learner.algorithm
    algorithm.memory.clock.next_plan[0] = 0
    learner.begin_episode([0.2])
    return algorithm._work.model


def test_pairs_that_are_not_visited_move_with_the_others():
    """All rewards follow two walks, each in its own way; the last action is left alone for a while.

    Without factors the model has what it saw 300 episodes ago.
    """
    rng, learner, last, later = np.random.default_rng(2), made(1), 2000, 300
    base, slope = rng.uniform(0.4, 0.6, (H, A)), rng.uniform(-0.2, 0.2, (2, H, A))
    walks = np.cos(np.cumsum(rng.normal(0, 0.1, (last + later + 1, 2)), axis=0))

    def reward(m, h, s, a):
        return base[h, a] + walks[m] @ slope[:, h, a]

    play(learner, 0, last, A, rng, reward)
    play(learner, last, last + later, A - 1, rng, reward)
    found = model_after(learner).means[0, :, 0, A - 1]
    before, truth = (
        np.array([reward(m, h, 0, A - 1) for h in range(H)]) for m in (last, last + later)
    )
    assert np.abs(found - truth).mean() < 0.2 * np.abs(before - truth).mean()


def test_rows_that_are_not_visited_move_with_the_others():
    """The same for transitions, and 0 or 1 are seen."""
    rng, learner = np.random.default_rng(1), made(2)
    slope = rng.choice([-0.4, 0.4], (H, 2, A))

    def share(m, h, s, a):
        return 0.5 + slope[h, s, a] * np.cos(2 * np.pi * m / 900)

    def after(m, h, s, a):
        return int(rng.random() < share(m, h, s, a))

    m = 6000
    play(learner, 0, m, A, rng, lambda *at: 0.5, after)
    play(learner, m, m + 450, A - 1, rng, lambda *at: 0.5, after)
    model, plan = model_after(learner), learner.algorithm.memory.plan
    N = model.means.shape[2]
    errors, stale = [], []
    for h in range(1, H - 1):
        for i, s in enumerate(plan.reach[h, : plan.count[h]]):
            row = (h * N + i) * A + A - 1
            entries = range(model.offsets[row], model.offsets[row + 1])
            p = sum(model.p[e] for e in entries if plan.reach[h + 1, model.states[e]] == 1)
            truth = share(m + 450, h, s, A - 1)
            errors.append(abs(p - truth))
            stale.append(abs(share(m, h, s, A - 1) - truth))
    assert np.mean(errors) < 0.4 * np.mean(stale)


def test_factors_are_not_trusted_where_pairs_have_nothing_in_common():
    """Each pair walks for itself."""
    rng, learner = np.random.default_rng(2), made(1)
    pays = np.full((H, A), 0.5)

    def reward(m, h, s, a):
        pays[h, a] = np.clip(pays[h, a] + rng.normal(0, 0.05), 0, 1)
        return pays[h, a]

    play(learner, 0, 600, A, rng, reward)
    assert learner.algorithm.memory.know.factors.trust[1] < 0.05


def test_factors_that_nothing_is_known_of_are_as_uncertain_as_at_first():
    """Whatever their speed, their variance does not grow for ever."""
    learner = made(1)
    play(learner, 0, 3000, A, np.random.default_rng(3), lambda *at: 0.5)
    factors = learner.algorithm.memory.know.factors
    assert (factors.variance[:, [0, 2]] <= 1 + 1e-9).all()
    assert np.isfinite(factors.trust).all()
