"""Published worlds, built a second time from their specifications: plain loops, published units.

Each function returns a `World` with the numbers as printed: rewards as the authors have them, and
costs or utilities. Nothing is shared with the package.
"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np


@dataclass
class World:
    P: dict  # (s, a) -> {s': probability}, equal for all steps
    reward: dict  # (s, a) or (h, s, a) -> number
    constraint: dict  # (s, a) -> cost or utility
    limit: float
    start: int


DRIFTING = (
    "###############",
    "#......G......#",
    "#o....oo...o..#",
    "#.o..o..o.oo.o#",
    "#o.o....o..o..#",
    "#.ooo...o.o.o.#",
    "#.o......o..oo#",
    "#o..oo...oo...#",
    "#oo.....oo...o#",
    "#.......o.oo..#",
    "#.oo.o.oo...oo#",
    "#o......ooo.oo#",
    "#o..ooo.oo.o..#",
    "#............S#",
    "###############",
)


def grid(rows, p, reward_of, cost_of, limit):
    """A grid with walls '#'; reward and cost of the cell entered; a random move with p."""
    cells = [(i, j) for i, row in enumerate(rows) for j, what in enumerate(row) if what != "#"]
    number = {cell: s for s, cell in enumerate(cells)}
    P, reward, cost = {}, {}, {}
    for (i, j), a in product(cells, range(4)):
        ends = []
        for di, dj in ((-1, 0), (0, 1), (1, 0), (0, -1)):
            ends.append((i + di, j + dj) if rows[i + di][j + dj] != "#" else (i, j))
        row = {}
        for b in range(4):
            share = p / 4 + (1 - p if a == b else 0)
            row[number[ends[b]]] = row.get(number[ends[b]], 0) + share
        s = number[i, j]
        P[s, a] = {to: share for to, share in row.items() if share > 0}
        reward[s, a] = sum(share * reward_of(cells[to]) for to, share in row.items())
        cost[s, a] = sum(share * cost_of(cells[to]) for to, share in row.items())
    (start,) = (number[i, j] for i, j in cells if rows[i][j] == "S")
    return World(P, reward, cost, limit, start)


def drifting_grid(p, pay_more=lambda s: 0.0, obstacle_more=0.0, cell_more=0.0, limit=5.0):
    """NS-Triple-Q's grid with a random move of probability p and rewards and costs shifted."""
    goal = (1, 7)
    free = [(i, j) for i in range(1, 14) for j in range(1, 14)]
    farthest = max(math.dist(cell, goal) for cell in free)

    def reward_of(cell):
        near = 1.0 if cell == goal else 0.1 * (farthest - math.dist(cell, goal)) / farthest
        return near + pay_more(free.index(cell))

    def cost_of(cell):
        return (1.0 + obstacle_more) * (DRIFTING[cell[0]][cell[1]] == "o") + cell_more

    return grid(DRIFTING, p, reward_of, cost_of, limit)


def triple_q_grid(limit):
    """20 x 20 with walls; obstacles by NumPy's legacy generator."""
    n = 20
    rows = [
        ["#" if i in (0, n - 1) or j in (0, n - 1) else "." for j in range(n)] for i in range(n)
    ]
    np.random.seed(1234)  # noqa: NPY002
    for i in range(2, n - 2):
        for j in range(1, n - 1):
            if np.random.rand() <= 0.4:  # noqa: NPY002
                rows[i][j] = "o"
    goal = (1, int(np.random.rand() * (n - 3)) + 1)  # noqa: NPY002
    rows[18][18] = "S"
    farthest = math.dist((18, 1), goal)

    def reward_of(cell):
        return 100.0 if cell == goal else farthest - math.dist(cell, goal)

    return grid(rows, 0.0, reward_of, lambda cell: 1.0 * (rows[cell[0]][cell[1]] == "o"), limit)


def buffer(S, links, playout, limit, pays, cost):
    """A buffer: packets arrive by the chosen link and are played out."""
    P, reward, constraint = {}, {}, {}
    for x, a in product(range(S), range(2)):
        row = {}
        for arrives, leaves in product((0, 1), (0, 1)):
            chance = links[a] if arrives else 1 - links[a]
            chance *= playout if leaves else 1 - playout
            to = min(max(x + arrives - leaves, 0), S - 1)
            row[to] = row.get(to, 0) + chance
        P[x, a], reward[x, a], constraint[x, a] = row, pays(x), cost(a)
    return World(P, reward, constraint, limit, 0)


def dope_inventory(by_next_stock):
    """Orders that do not fit are cut; revenue by demand, or by the chance of the next stock."""
    demand = [0.3, 0.2, 0.2, 0.2, 0.05, 0.05]
    P, reward, cost = {}, {}, {}
    for s, a in product(range(6), range(6)):
        order = min(a, 5 - s)
        row = {}
        for d in range(6):
            to = max(s + order - d, 0)
            row[to] = row.get(to, 0) + demand[d]
        revenue = 0.0
        for d in range(6):
            if s + order >= d:
                weight = row[s + order - d] if by_next_stock else demand[d]
                revenue += weight * 8 * d / 100
        P[s, a], reward[s, a] = row, revenue / 0.132
        cost[s, a] = ((4 + 2 * order if order else 0) + s + order) / 19
    return World(P, reward, cost, 3.5, 0)


def factored(pays_always):
    P, reward, cost = {}, {}, {}
    for s in range(3):
        P[s, 0], P[s, 1] = {s: 1.0}, {(s + 1) % 3: 1.0}
        reward[s, 0], reward[s, 1] = (s + 1) / 3 if pays_always else 0.0, (s + 1) / 3
        cost[s, 0], cost[s, 1] = 0.0, 1.0
    return World(P, reward, cost, 3.0, 0)


def job_scheduler():
    P, reward, utility = {}, {}, {}
    for x in range(10):
        P[x, 0], utility[x, 0] = {x: 1.0}, 0.0
        row = {}
        for done, chance in ((2, 0.8), (1, 0.1), (0, 0.1)):
            row[max(x - done, 0)] = row.get(max(x - done, 0), 0) + chance
        P[x, 1], utility[x, 1] = row, sum(chance * (x - to) / 2 for to, chance in row.items())
        for h, a in product(range(10), range(2)):
            reward[h, x, a] = 1 - (0.9 if 3 <= h <= 6 else 0.2) * a
    return World(P, reward, utility, 3.5, 9)


def combination_lock(right, prizes, H=5, success=0.98, limit=2.0):
    """Start, two chains of H - 1 states, and a state for who fell off."""
    n, off = H - 1, 2 * H - 1
    P, reward, cost = {}, {}, {}
    for s, a in product(range(off + 1), range(2)):
        chain, place = divmod(s - 1, n)
        if s == 0:
            P[s, a] = {1 + a * n: success, off: 1 - success}
        elif s != off and right[s - 1] == a and place < n - 1:
            P[s, a] = {s + 1: success, off: 1 - success}
        else:
            P[s, a] = {off: 1.0}
        cost[s, a] = float(0 < s < off and chain == 1)
        for h in range(H):
            ends = 0 < s < off and place == n - 1 and right[s - 1] == a and h == H - 1
            reward[h, s, a] = prizes[chain] if ends else (0.125 / H if s == off else 0.0)
    return World(P, reward, cost, limit, 0)


def largest(P, values, H, start):
    """max_π of the sum of `values` over H steps; P and values by (h, s, a)."""
    S = 1 + max(s for _, s, _ in P)
    A = 1 + max(a for _, _, a in P)
    V = [0.0] * S
    for h in reversed(range(H)):
        V = [
            max(
                values[h, s, a] + sum(p * V[to] for to, p in enumerate(P[h, s, a]))
                for a in range(A)
            )
            for s in range(S)
        ]
    return V[start]
