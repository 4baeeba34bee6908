"""Exported policies come back with the same bits, or not at all."""

import zipfile

import numpy as np
import pytest

import safedrift as sd


def a_policy(rng, H=3, S=5, A=4):
    """Random distributions, some actions never taken."""
    weights = rng.random((H, S, A)) ** 9 * (rng.random((H, S, A)) < 0.7)
    weights[..., 0] += 1e-300
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("ending", ["npy", "npz", "csv", "CSV"])
def test_round_trip(ending, tmp_path):
    policy = a_policy(np.random.default_rng(0))
    assert (policy == 0).any()
    assert (policy > 0).all(axis=-1).any()
    file = sd.export_policy(policy, tmp_path / f"policy.{ending}")
    found = sd.load_policy(str(file))
    assert found.tobytes() == policy.tobytes()
    assert found.shape == policy.shape
    assert found.flags.writeable
    assert [path.name for path in tmp_path.iterdir()] == [f"policy.{ending}"]


def test_policies_of_a_learner_and_of_a_run(tmp_path):
    world = sd.problems.make("random", 40, states=4, actions=3, horizon=3, gamma=0.3)
    run = sd.simulate(world, sd.learners.make("certainty-equivalence", world))
    file = sd.export_policy(run.policy, tmp_path / "run.csv")
    np.testing.assert_array_equal(sd.load_policy(file), run.policy)
    policy = run.learner.begin_episode(world.thresholds[-1])
    file = sd.export_policy(policy, tmp_path / "now.npy")
    np.testing.assert_array_equal(sd.load_policy(file), np.asarray(policy))
    np.testing.assert_array_equal(np.load(file), np.asarray(policy))


def test_every_state_of_every_step_is_listed(tmp_path):
    """Also those that were never visited: there the policy is uniform."""
    learner = sd.learners.make("certainty-equivalence", sd.ProblemSpec(2, 3, 2), window=5)
    file = sd.export_policy(learner.begin_episode([1.0]), tmp_path / "policy.csv")
    comment, columns, *lines = file.read_text().splitlines()
    assert comment == "# policy: H=2 S=3 A=2; actions that are not listed have probability 0"
    assert columns == "step,state,action,probability"
    assert lines == [f"{h},{s},{a},0.5" for h in range(2) for s in range(3) for a in range(2)]


COMMENT = "# policy: H=1 S=2 A=2; \nstep,state,action,probability\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "a first line without '# policy: H=... S=... A=...;'"),
        ("step,state,action,probability\n0,0,0,1.0\n", "a first line without"),
        (COMMENT.replace("H=1", "H=0"), r"sizes \(0, 2, 2\) that \d+ bytes do not hold"),
        (COMMENT.replace("S=2", "S=99999999999"), r"sizes \(1, 99999999999, 2\) that"),
        (COMMENT.replace("state,", ""), "a second line other than step,state,action,probability"),
        (COMMENT + "0,0,0,1.0\n", r"each row of policy must be a distribution \(sum 1\); got 0.0"),
        (COMMENT + "0,0,0,1.0\n0,1,0,0.5\n", r"got 0.5 at index \(0, 1\)"),
        (COMMENT + "0,0,0,1.0\n0,1,0,nan\n", "policy must be finite; got nan"),
        (COMMENT + "0,0,0,1.0\n0,2,0,1.0\n", "'0,2,0,1.0' in line 4"),
        (COMMENT + "0,0,-1,1.0\n0,2,0,1.0\n", "'0,0,-1,1.0' in line 3"),
        (COMMENT + "0,0,0,1.0,5\n", "'0,0,0,1.0,5' in line 3"),
        (COMMENT + "0,0,0\n", "'0,0,0' in line 3"),
        (COMMENT + "0,0,0,half\n", "'0,0,0,half' in line 3"),
        (COMMENT + "0,0,0,0.5\n0,0,0,0.5\n", "step 0, state 0, action 0 a second time in line 4"),
    ],
)
def test_wrong_tables_are_refused(text, sentence, tmp_path):
    file = tmp_path / "policy.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=rf"policy\.csv must be a policy that .*{sentence}"):
        sd.load_policy(file)


def test_wrong_arrays_are_refused(tmp_path):
    file = tmp_path / "policy.npy"
    for array in (np.ones((2, 3)), np.full((1, 1, 2), 0.4), np.array([[["x"]]])):
        np.save(file, array)
        with pytest.raises(ValueError, match=r"policy\.npy must be a policy that"):
            sd.load_policy(file)
    np.save(file, np.array([[[{}]]]), allow_pickle=True)
    with pytest.raises(ValueError, match="must be an array of numbers; got object"):
        sd.load_policy(file)
    good = sd.export_policy(np.full((2, 3, 4), 0.25), file).read_bytes()
    for end in range(len(good)):
        file.write_bytes(good[:end])
        with pytest.raises(ValueError, match=r"policy\.npy must be a policy that"):
            sd.load_policy(file)
    packed = tmp_path / "policy.npz"
    np.savez_compressed(packed, policy=np.full((2, 3, 4), 0.25))
    with pytest.raises(ValueError, match="got a compressed array"):
        sd.load_policy(packed)
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("other.npy", b"")
    with pytest.raises(ValueError, match=r"policy\.npz must be a policy that"):
        sd.load_policy(packed)


def test_what_is_no_policy_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="policy must be an array of shape"):
        sd.export_policy(np.ones((2, 2)), tmp_path / "policy.csv")
    with pytest.raises(ValueError, match=r"each row of policy must be a distribution"):
        sd.export_policy(np.ones((1, 1, 2)), tmp_path / "policy.csv")
    with pytest.raises(ValueError, match=r"the ending of file must be one of \.npy, \.npz, \.csv"):
        sd.export_policy(np.ones((1, 1, 1)), tmp_path / "policy.txt")
    with pytest.raises(ValueError, match="file must be a file in an existing folder"):
        sd.export_policy(np.ones((1, 1, 1)), tmp_path / "no" / "policy.csv")
    assert not list(tmp_path.iterdir())
