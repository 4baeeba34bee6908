"""How many nodes: regret and violation in the thermostat as the grid is refined.

    python studies/nodes.py [--out docs]

Left: learners on grids of 16 to 128 nodes are shown the very same episodes (those of a learner with
256 nodes), and DR(M)/M and the mean of b - V_g, which CV sums, are measured on each learner's own
grid: what differs from the finest grid is discretisation alone. Right: each learner plays its own
episodes, with the same seeds: the differences are then those of learning too.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from rich.progress import track

import safedrift as sd
from safedrift.models.stepping import split_uniforms, stepper_for, uniforms_per_episode

M, FINEST, SEEDS = 400, 256, range(5)
NODES = {"gauss-legendre": (16, 24, 32, 48, 64, 96, 128), "uniform": (64, 96, 128)}
COLOURS = {"gauss-legendre": "#0072B2", "uniform": "#D55E00"}


def world_of(nodes, rule="gauss-legendre"):
    return sd.problems.make("thermostat", episodes=M, nodes=nodes, rule=rule)


def learner(world):
    return sd.PROPDPPO.for_problem(world, sd.Slater(0.8))


def episodes_of(world, seed):
    """Episodes of a learner on its own: what a user's loop would show it."""
    agent, rng, stepper = learner(world), np.random.default_rng(seed), stepper_for(world)
    sizes = world.H, world.K, stepper.next_draws
    for m in range(M):
        agent.begin_episode(world.thresholds[m])
        u = split_uniforms(rng.random(uniforms_per_episode(*sizes)), *sizes)
        x = stepper.first(m, u.first)
        states, actions, values = [], [], []
        for h in range(world.H):
            states.append(x)
            actions.append(agent.act(h, x))
            values.append(stepper.signals(m, h, x, actions[h], u.signals[h]))
            if h + 1 < world.H:
                x = stepper.next(m, h, x, actions[h], u.next[h])
        values = np.array(values).T
        episode = sd.Trajectory(np.array(states), np.array(actions), values[0], values[1:])
        agent.end_episode(episode)
        yield episode


def shown(world, episodes):
    """DR(M)/M and the mean of b - V_g of a learner that is shown the episodes."""
    agent, policies = learner(world), []
    for m, episode in enumerate(episodes):
        policies.append(np.asarray(agent.begin_episode(world.thresholds[m])))
        agent.end_episode(episode)
    values = sd.oracles.evaluate_episodes(world, np.arange(M), np.stack(policies))
    regret = sd.optima(world).value - values[:, 0]
    return [float(regret.mean()), float((world.thresholds - values[:, 1:]).mean())]


def played(world, seed):
    run = sd.simulate(world, learner(world), seed)
    return [float(run.regret.mean()), float(run.shortfall.mean())]


def study():
    episodes = list(episodes_of(world_of(FINEST), 0))
    finest = shown(world_of(FINEST), episodes)
    found = {"finest": {"nodes": FINEST, "regret": finest[0], "shortfall": finest[1]}}
    jobs = [(rule, nodes) for rule in NODES for nodes in NODES[rule]]
    for rule, nodes in track(jobs, "same episodes"):
        world = world_of(nodes, rule)
        values = shown(world, episodes)
        row = {"nodes": nodes, "regret": values[0], "shortfall": values[1],
               "regret_error": abs(values[0] - finest[0]),
               "shortfall_error": abs(values[1] - finest[1]),
               "quadrature_error": world.quadrature_error}  # fmt: skip
        found.setdefault(rule, []).append(row)
    found["own"] = []
    for nodes in track((16, 32, 64, 128), "own episodes"):
        runs = np.array([played(world_of(nodes), seed) for seed in SEEDS])
        found["own"].append(
            {"nodes": nodes, "regret": runs[:, 0].tolist(), "shortfall": runs[:, 1].tolist()}
        )
    return found


def draw(found, path):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2))
    for rule, colour in COLOURS.items():
        rows = found[rule]
        lines = (("DR/M", "regret_error", "o-"), ("b - V_g", "shortfall_error", "s--"))
        for name, key, marker in lines:
            left.plot([row["nodes"] for row in rows], [row[key] for row in rows], marker,
                      color=colour, ms=5, label=f"{name}, {rule}")  # fmt: skip
    left.set(xscale="log", yscale="log", xlabel="nodes", ylabel="per episode",
             title=f"same episodes: |value - value at {FINEST} nodes|")  # fmt: skip
    ticks = [16, 32, 64, 128]
    for key, colour, name in (("regret", "#0072B2", "DR(M)/M"),
                              ("shortfall", "#009E73", "mean of b - V_g")):  # fmt: skip
        means = [np.mean(row[key]) for row in found["own"]]
        spread = [np.std(row[key], ddof=1) / np.sqrt(len(row[key])) for row in found["own"]]
        right.errorbar([row["nodes"] for row in found["own"]], means, spread, fmt="o-",
                       color=colour, capsize=3, label=name)  # fmt: skip
    right.set(xscale="log", xlabel="nodes", ylabel="per episode",
              title=f"own episodes: mean and standard error, {len(SEEDS)} seeds")  # fmt: skip
    for axes in (left, right):
        axes.set_xticks(ticks, ticks)
        axes.minorticks_off()
        axes.legend(frameon=False, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=140)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    out = parser.parse_args().out
    found = study()
    print(json.dumps(found, indent=1))
    draw(found, out / "nodes.png")


if __name__ == "__main__":
    main()
