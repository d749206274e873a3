"""ROVER on one page: a policy whose visits are spread over an unknown world, without a reward.

    python examples/rover_in_one_page.py

The agent walks through five unknown rooms, and repeats four steps:

    collect      go where the model does not know what an action does
    represent    give each new observation a row of its own
    estimate     ask where each action leads, and how sure that is
    improve      spread the visits of the policy over all rows, by mirror descent in closed form

It needs numpy and nothing else. The library does the same for images, continuous states and random
outcomes. docs/primer.md derives the formulas; tests/laws holds this page against the library.
"""

import numpy as np

DISCOUNT = 0.99  # γ
RIDGE = 1e-6  # λ: of n tries of an action, n / (n + λ) is believed
SINK_NORM = 1.0  # ε: all that is not known costs as much as a single state
HORIZON = 300  # steps of an episode

MAP = """
S.......................
##.####.####.####.####.#
....#....#....#....#....
....#....#....#....#....
....#....#....#....#....
....#....#....#....#....
"""
CELLS = [(x, y) for y, row in enumerate(MAP.split()) for x, mark in enumerate(row) if mark != "#"]
MOVES = [(0, -1), (0, 1), (-1, 0), (1, 0)]  # up, down, left, right


def move(cell, action):
    """Cell that an action leads to; a move into a wall stays. The agent does not know it."""
    there = (cell[0] + MOVES[action][0], cell[1] + MOVES[action][1])
    return there if there in CELLS else cell


class Memory:
    """Represent: a row for each observation, and counts n(x, a, y) of what led from row to row.

    The kernel is the identity: a state is like itself and like no other, so K = I.
    """

    def __init__(self):
        self.rows = {}  # observation → row
        self.counts = np.zeros((0, len(MOVES), 0))  # (S, A, S)

    def row(self, observation):
        """Row of an observation, made when it is seen for the first time."""
        if observation not in self.rows:
            self.rows[observation] = len(self.rows)
            self.counts = np.pad(self.counts, ((0, 1), (0, 0), (0, 1)))
        return self.rows[observation]


def estimate(counts):
    """Estimate: ridge regression, P(y | x, a) = n(x, a, y) / (n(x, a) + λ), of shape (S, A, S).

    The rest of each row, λ / (n + λ), is not supported by data. It goes to a sink, for good.
    """
    return counts / (counts.sum(axis=2, keepdims=True) + RIDGE)


def plan_exploration(counts):
    """Collect: values (S, A) of heading for what is novel, and the sooner the better.

    Novelty is what the model leaves to the sink, m(x, a) = λ / (n + λ). A plan collects it once:
    V(x) = max_a max( m(x, a), γ Σ_y n(x, a, y) / n(x, a) V(y) ).
    """
    tries = counts.sum(axis=2)
    frequencies = counts / np.maximum(tries, 1)[:, :, None]
    novelty = RIDGE / (tries + RIDGE)
    values, previous = novelty, np.inf
    while np.max(np.abs(values - previous)) > 1e-6:
        previous = values
        values = np.maximum(novelty, DISCOUNT * frequencies @ values.max(axis=1))
    return values


def evaluate(model, policy):
    """Objective J = ‖μ(π)‖² of the policy's discounted visits w, and its slope v along them.

    With m, the mass in the sink: J = (1−γ)² wᵀKw + ε² m², and v = (I − γ P_π)⁻¹ ∂J/∂w.
    """
    identity = np.eye(len(policy))
    resolvent = identity - DISCOUNT * np.einsum("xa,xay->xy", policy, model)
    w = np.linalg.solve(resolvent.T, identity[0])  # episodes begin in row 0
    m = 1 - (1 - DISCOUNT) * w.sum()
    objective = (1 - DISCOUNT) ** 2 * w @ w + SINK_NORM**2 * m**2
    slope = 2 * (1 - DISCOUNT) ** 2 * w - 2 * SINK_NORM**2 * (1 - DISCOUNT) * m  # ∂J/∂w
    return objective, np.linalg.solve(resolvent, slope)


def policy_of(model, dual):
    """Softmax policy (S, A) of V, one number per state: π(a | x) ∝ exp(−γ Σ_y P(y | x, a) V(y))."""
    logits = -DISCOUNT * model @ dual
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def improve(model, n_tries=150):
    """Improve: mirror descent on J; returns the policy, and J after each accepted step.

    A step adds η v to V, so that V = Σ η v is the whole policy. Where J would rise, η shrinks.
    """
    dual, step = np.zeros(len(model)), 10.0
    objective, v = evaluate(model, policy_of(model, dual))
    objectives = [objective]
    for _ in range(n_tries):
        objective, next_v = evaluate(model, policy_of(model, dual + step * v))
        if objective <= objectives[-1]:
            dual, v, step = dual + step * v, next_v, 2 * step
            objectives.append(objective)
        else:
            step /= 4
    return policy_of(model, dual), objectives


def explore(seed):
    """Walk until nothing novel is left; yields the memory after each step."""
    rng, memory = np.random.default_rng(seed), Memory()
    while True:
        cell = CELLS[0]
        state = memory.row(cell)
        plan = plan_exploration(memory.counts)
        for _ in range(HORIZON):
            if plan[state].max() < 0.01:
                return
            action = rng.choice(np.flatnonzero(plan[state] >= plan[state].max() - 1e-9))
            cell = move(cell, action)
            following = memory.row(cell)
            memory.counts[state, action, following] += 1
            if memory.counts[state, action].sum() == 1:  # the step has shown something new
                plan = plan_exploration(memory.counts)
            state = following
            yield memory


def dynamics():
    """Transition model (S, A, S) of the world itself, which serves to say how good a policy is."""
    model = np.zeros((len(CELLS), len(MOVES), len(CELLS)))
    for state, cell in enumerate(CELLS):
        for action in range(len(MOVES)):
            model[state, action, CELLS.index(move(cell, action))] = 1
    return model


def main():
    """Print how a run goes: the states seen, and how far the policy is from the best there is."""
    truth = dynamics()
    least = improve(truth, n_tries=3000)[1][-1]  # J*, by the same descent on the true model

    def ratio(memory):
        """J/J* in the world itself; where a policy has never been it acts at random."""
        probs = np.full((len(CELLS), len(MOVES)), 1 / len(MOVES))
        policy, _ = improve(estimate(memory.counts))
        probs[[CELLS.index(cell) for cell in memory.rows]] = policy
        return evaluate(truth, probs)[0] / least

    seen = []
    for memory in explore(seed=100):
        seen.append(len(memory.rows))
        if len(seen) % 100 == 0:
            print(f"{len(seen)} steps: {seen[-1]:3} states seen, J/J* = {ratio(memory):.4f}")
    n_all = 1 + seen.index(len(CELLS))
    print(f"all states seen after {n_all} steps, all actions tried after {len(seen)}")
    print(f"J/J* of the policy: {ratio(memory):.4f} (1 is perfect)")


if __name__ == "__main__":
    main()
