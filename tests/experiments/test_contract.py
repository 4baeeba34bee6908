"""The contract suite: learners that keep the protocol, and broken ones, named by the rule."""

import re
from pathlib import Path

import numpy as np
import pytest

import safedrift as sd
from builders import small_world
from safedrift.experiments import ContractError
from safedrift.experiments.playing import play_chunks
from safedrift.learners import Discount, Never, SlidingWindow

GUIDE = Path(__file__).parents[2] / "docs" / "your-own-learner.md"


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """The names that the code of docs/your-own-learner.md defines, after it has run as written."""
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    folder = tmp_path_factory.mktemp("guide")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(block, names)
    return names | {"folder": folder}


def sizes_of(world):
    return sd.Sizes(world.M, world.H, world.S, world.A, world.K)


# ---------------------------------------------------------------- learners that keep it

LEARNERS = {
    "slater": lambda world: sd.PROPDPPO.for_problem(world, sd.Slater(0.3)),
    "local budgets": lambda world: sd.PROPDPPO.for_problem(world, sd.LocalBudgets(), L=20, W=25),
    "repaired": lambda world: sd.PROPDPPO.for_problem(
        world, sd.Slater(0.3), mode="repaired", budgets=sd.budgets(world), alpha=0.5, L=20, W=25
    ),
    "sliding": lambda world: sd.PROPDPPO.for_problem(
        world, sd.Slater(0.3), forgetting=SlidingWindow(15, L=30), alpha=0.5
    ),
    "discount": lambda world: sd.PROPDPPO.for_problem(
        world, sd.Slater(0.3), forgetting=Discount(0.9), alpha=0.5
    ),
    "never": lambda world: sd.PROPDPPO.for_problem(
        world, sd.Slater(0.3), forgetting=Never(), alpha=0.5
    ),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_keep_the_contract(name):
    sd.check_learner(LEARNERS[name])


@pytest.mark.parametrize("rewards", ["scenarios", "one-hot"])
def test_least_squares_keep_the_contract(rewards):
    world = small_world(M=40, K=2, drift="linear").as_linear_kernel(rewards=rewards)
    sd.check_learner(LEARNERS["slater"], world=world)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("name", LEARNERS)
def test_fast_path_and_loop_give_the_same_bits(name, noisy):
    world = small_world(M=120, S=6, A=3, H=4, K=2, drift="random_walk", seed=5)
    found = []
    for slow in (False, True):
        learner = LEARNERS[name](world).fresh(1)
        chunks = list(play_chunks(world, learner, 3, noisy, np.arange(world.M), slow=slow))
        columns = {"policies": np.concatenate([part.policies for part in chunks])}
        columns |= {"returns": np.concatenate([part.returns for part in chunks])}
        for column in chunks[0].trace:
            columns[column] = np.concatenate([part.trace[column] for part in chunks])
        found.append(columns | learner.state())
    for column, values in found[0].items():
        if column != "generator":
            trimmed = [np.asarray(values), np.asarray(found[1][column])]
            if column.startswith(("policy.", "window.", "values.")):  # room made in other portions
                size = min(array.shape[-1] for array in trimmed)
                trimmed = [array[..., :size] for array in trimmed]
            if column in ("window.edge_pair", "window.edge_before", "window.edge_next"):
                continue  # numbered by the room there is
            if column in ("window.edge_times", "window.last"):
                continue
            np.testing.assert_array_equal(*trimmed, err_msg=column)


# ---------------------------------------------------------------- a learner of a user's


def test_learner_of_the_guide_gets_regret_page_file_and_certificates(guide, tmp_path):
    run = guide["run"]
    assert {path.name for path in guide["folder"].iterdir()} == {
        "q-learning.html",
        "q-learning.parquet",
    }
    assert run.manifest.learner.settings == {"mu": 1.0, "epsilon": 0.1, "rate": 0.1}
    assert run.truth.known
    assert (run.regret > -0.6).all()
    np.testing.assert_array_equal(run.policy, guide["np"].asarray(run.learner.policy))
    page = (guide["folder"] / "q-learning.html").read_text(encoding="utf-8")
    assert "Learner: largest q" in page
    assert "Dynamic regret" in page
    back = sd.Run.from_parquet(guide["folder"] / "q-learning.parquet")
    assert back.summary() == run.summary()
    assert back.digest == run.digest
    found = run.certify()
    assert found.identities_hold
    assert {item.id for item in found} == set(sd.theory.FOR_ANY_LEARNER)
    assert {item.result for item in found} <= {"holds", "does not apply"}
    with pytest.raises(ValueError, match="learner must be given to certify a stored run"):
        back.certify()
    assert back.certify(learner=run.learner).identities_hold


def test_exact_values_are_those_of_the_policies_it_played(guide):
    world = small_world(M=30, K=1)
    learner = guide["build"](world)
    policies = []
    begin = guide["QLearning"].begin_episode

    class Recorded(guide["QLearning"]):
        def begin_episode(self, thresholds):
            policies.append(begin(self, thresholds))
            return policies[-1]

        def fresh(self, seed=0):
            return Recorded(self.sizes, self.mu, self.epsilon, self.rate, seed)

    run = sd.simulate(world, Recorded(learner.sizes), seed=1)
    for m, policy in enumerate(policies):
        value, utility = sd.evaluate(world.at(m), policy)
        assert value == pytest.approx(run.outcome.reward[m], abs=1e-12)
        assert utility == pytest.approx(run.outcome.utility[m, 0], abs=1e-12)


def test_a_learner_goes_on_after_its_run(guide):
    world = small_world(M=40)
    run = sd.simulate(world, guide["build"](world), seed=2)
    np.testing.assert_array_equal(run.policy, run.learner.policy)
    before = run.learner.q.copy()
    run.learner.begin_episode(world.thresholds[0])
    run.learner.end_episode(sd.Trajectory([0] * 3, [0] * 3, [1.0] * 3, [1.0] * 3))
    assert not np.array_equal(before, run.learner.q)


# ---------------------------------------------------------------- learners that break it


def broken(guide, name):
    """Classes that differ from the guide's learner in one method."""
    base = guide["QLearning"]

    class Broken(base):
        def fresh(self, seed=0):
            return type(self)(self.sizes, self.mu, self.epsilon, self.rate, seed)

    def uniform(self, h, state, u=None):
        u = self.rng.random() if u is None else u
        return int(u * self.sizes.A)

    def deaf(self, h, state, u=None):
        return sd.learners.draw_action(self.policy[h, state], self.rng.random())

    def improper(self, thresholds):
        policy = base.begin_episode(self, thresholds)
        return policy * 1.01

    def other_shape(self, thresholds):
        return base.begin_episode(self, thresholds)[:, :-1]

    def remembers(self, seed=0):
        copy = type(self)(self.sizes, self.mu, self.epsilon, self.rate, seed)
        copy.q = self.q
        return copy

    def forgets(self, state):
        base.restore(self, {**state, "q": np.zeros_like(self.q)})

    def shares(self, state):
        base.restore(self, state)
        self.q = state["q"]

    def loses_generator(self, state):
        self.q = np.array(state["q"])

    def pickles(self):
        return {"q": np.array([self.q, "text"], dtype=object)}

    def trusting(self, trajectory):
        for h in range(self.sizes.H):
            self.q[h] += 0.1 * np.nan_to_num(np.asarray(trajectory.rewards, float)[h])

    def counts(self):
        self.calls = getattr(self, "calls", 0) + 1
        return {"calls": type(self).shared()}

    total = [0]

    def shared():
        total[0] += 1
        return total[0]

    changes = {
        "acts uniformly": {"act": uniform},
        "ignores u": {"act": deaf},
        "policies that are no distributions": {"begin_episode": improper},
        "policies of another shape": {"begin_episode": other_shape},
        "fresh keeps what was learnt": {"fresh": remembers},
        "restore forgets": {"restore": forgets},
        "restore keeps the arrays it was given": {"restore": shares},
        "restore loses the generator": {"restore": loses_generator},
        "a state that is not arrays": {"state": pickles},
        "settings that are not plain data": {"settings": lambda self: {"rate": np.float64}},
        "trusts any input": {"end_episode": trusting},
        "a trace that depends on other learners": {"trace": counts, "shared": staticmethod(shared)},
        "no trace": {"trace": None},
    }
    for method, function in changes[name].items():
        setattr(Broken, method, function)
    return lambda world: Broken(sizes_of(world))


RULES = {
    "acts uniformly": "acting: expected actions drawn from the policy",
    "ignores u": "acting: expected the same action for the same u",
    "policies that are no distributions": "policies: expected distributions",
    "policies of another shape": "policies: expected shape",
    "fresh keeps what was learnt": "seeding: expected",
    "restore forgets": "checkpoints: expected the policies of an uninterrupted learner",
    "restore keeps the arrays it was given": "checkpoints: expected the policies",
    "restore loses the generator": "checkpoints: expected the generator's state",
    "a state that is not arrays": "checkpoints: expected numbers in state",
    "settings that are not plain data": "settings: expected plain data",
    "trusts any input": "bad input: expected ValueError or TypeError for",
    "a trace that depends on other learners": "simulation: expected the same numbers",
}


def test_the_unbroken_learner_keeps_the_contract(guide):
    sd.check_learner(guide["build"])


@pytest.mark.parametrize("name", RULES)
def test_a_broken_learner_is_told_the_rule(guide, name):
    with pytest.raises(ContractError, match=re.escape(RULES[name])):
        sd.check_learner(broken(guide, name))


def test_several_constraints_work_or_are_refused_clearly(guide):
    def one_only(world):
        if world.K > 1:
            raise ValueError("this learner takes one constraint; got K = 2")
        return guide["build"](world)

    sd.check_learner(one_only)

    def unclear(world):
        if world.K > 1:
            raise ValueError("no")
        return guide["build"](world)

    with pytest.raises(ContractError, match="constraints: expected a refusal"):
        sd.check_learner(unclear)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"trace": lambda self: {"x": np.zeros((2, 2))}}, r"trace\(\)\['x'\] must be a number"),
        ({"trace": lambda self: {"x": "text"}}, r"trace\(\)\['x'\] must be a number"),
        (
            {"trace": lambda self: {f"x{self.rng.integers(99)}": self.rng.random()}},
            r"trace\(\) must be the same names after every episode",
        ),
    ],
)
def test_simulate_names_what_is_wrong_with_a_trace(guide, change, sentence):
    world = small_world(M=20)
    learner = type("Odd", (guide["QLearning"],), change)(sizes_of(world))
    type(learner).fresh = lambda self, seed=0: type(self)(self.sizes, seed=seed)
    with pytest.raises(ValueError, match=sentence):
        sd.simulate(world, learner)


def test_simulate_names_the_method_that_is_missing():
    world = small_world(M=20)
    with pytest.raises(TypeError, match=r"learner must have name .*got object"):
        sd.simulate(world, object())
    half = type("Half", (), {"name": "half", "sizes": sizes_of(world)})()
    with pytest.raises(TypeError, match="learner must have begin_episode"):
        sd.simulate(world, half)


def test_a_run_of_a_learner_without_trace_has_a_page(guide, tmp_path):
    world = small_world(M=30, K=2)
    plain = type("Plain", (guide["QLearning"],), {"trace": lambda self: {}})
    plain.fresh = lambda self, seed=0: plain(self.sizes, seed=seed)
    run = sd.simulate(world, plain(sizes_of(world)))
    assert run.trace == {}
    assert "<h2>Multiplier" not in run.report(tmp_path / "page.html").read_text(encoding="utf-8")
    run.to_parquet(tmp_path / "run.parquet")
    assert sd.Run.from_parquet(tmp_path / "run.parquet").trace == {}
