"""Plans where outcomes are drawn: ROVER beside counting and fitted Q iteration, on the same steps.

    python -m benchmarks.figures.chance --only clinic machines --steps 1000 4000 --seeds 100 101
    python -m benchmarks.figures.chance --page docs/results/chance.csv

The expected return of 100 steps of each plan, exactly, by the problem's probabilities, and the
share of the way from uniformly random actions to the best, by backward induction. Plans see the
steps of a run of ROVER, in episodes of 100 steps, and those of random actions. `counting`
is value iteration on relative frequencies, in which an action that was never tried is worth the
least; `fitted_q` is fitted Q iteration with extra trees (Ernst, Geurts and Wehenkel 2005). Of
problems of up to 500 states and without ends J/J* is given, too, exactly: of the run's policy and
of the best one by relative frequencies. `--page` prints the table of a file and draws its picture.

Two problems need `pip install gym-classics2 pymdptoolbox`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
from scipy.sparse import csr_array, diags_array
from sklearn.ensemble import ExtraTreesRegressor

import rover
from benchmarks.common import Recorded, begin, parser, report
from benchmarks.worlds.chance import PROBLEMS, Act, Floats, Ints
from rover.data import Buffer
from rover.envs import FiniteDynamics
from rover.evaluation import optimal_occupancy
from rover.evaluation.finite import FiniteEvaluator
from rover.plots import MeanCurve, TaskPanel, make_task_figure, write_pictures
from rover_bench.report import markdown_table

EPISODE, DISCOUNT, MOST_COVERED = 100, 0.99, 500
_TITLE = "Share of the way from random actions to the best, means of the seeds"


def counted(buffer: Buffer) -> tuple[Ints, Ints, csr_array]:
    """Pairs (n,) of transitions, tries (N·A,), and relative frequencies (N·A, N) of going on."""
    size = len(buffer.observations)
    pairs = buffer.inputs * buffer.n_actions + buffer.actions
    tries = np.bincount(pairs, minlength=size * buffer.n_actions)
    index = pairs, buffer.successors
    moves = csr_array((1.0 - buffer.terminated, index), (len(tries), size))
    return pairs, tries, diags_array(1.0 / np.maximum(tries, 1)) @ moves


def by_rover(buffer: Buffer, rewards: Floats) -> Act:
    """The policy of `rover.solve`."""
    policy = rover.solve(buffer, rewards, discount=DISCOUNT)
    return lambda seen: policy.tables(seen)[0]


def by_counting(buffer: Buffer, rewards: Floats) -> Act:
    """Value iteration on relative frequencies; actions are drawn where nothing is known."""
    pairs, tries, moves = counted(buffer)
    earned = np.bincount(pairs, rewards, minlength=len(tries)) / np.maximum(tries, 1)
    earned[tries == 0] = min(float(rewards.min()), 0.0) / (1.0 - DISCOUNT)
    values = np.zeros(len(buffer.observations))
    for _ in range(2000):
        q = (earned + DISCOUNT * (moves @ values)).reshape(len(values), -1)
        values = q.max(axis=1)
    best = q >= q.max(axis=1, keepdims=True) - 1e-9
    return known(buffer, best / best.sum(axis=1, keepdims=True))


def known(buffer: Buffer, probs: Floats) -> Act:
    """The policy of probabilities (N, A) of the observations of a buffer; elsewhere all alike."""
    names = [row.tobytes() for row in buffer.observations.rows]
    rows = dict(zip(names, probs, strict=True))
    other = np.full(buffer.n_actions, 1.0 / buffer.n_actions)
    return lambda seen: np.array([rows.get(row.tobytes(), other) for row in seen])


def by_fitted_q(buffer: Buffer, rewards: Floats, sweeps: int = 60) -> Act:
    """Fitted Q iteration."""
    table = buffer.observations.rows.reshape(len(buffer.observations), -1)
    each, n_actions = np.arange(buffer.n_actions), buffer.n_actions

    def asked(rows: Any) -> Any:
        return np.column_stack([np.tile(rows, (n_actions, 1)), each.repeat(len(rows))])

    inputs = np.column_stack([table[buffer.inputs], buffer.actions])
    after, target = asked(table[buffer.successors]), rewards
    for _ in range(sweeps):
        model = ExtraTreesRegressor(40, min_samples_leaf=5, random_state=0).fit(inputs, target)
        best = model.predict(after).reshape(n_actions, -1).max(axis=0)
        target = rewards + DISCOUNT * best * ~buffer.terminated

    def act(seen: Any) -> Floats:
        values = model.predict(asked(seen.reshape(len(seen), -1))).reshape(n_actions, -1)
        return np.eye(n_actions)[values.argmax(axis=0)]

    return act


METHODS = {"rover": by_rover, "counting": by_counting, "fitted_q": by_fitted_q}


def counted_cover(buffer: Buffer) -> Act:
    """The policy of the least J by relative frequencies; what was never tried stays."""
    moves = counted(buffer)[2]
    size, n_actions = len(buffer.observations), buffer.n_actions
    left = np.maximum(1.0 - moves.sum(axis=1), 0.0)  # but for rounding
    stays = csr_array((left, (np.arange(len(left)), np.arange(len(left)) // n_actions)))
    chains = tuple(csr_array((moves + stays)[a::n_actions]) for a in range(n_actions))
    states, shares = buffer.starts()
    start = np.bincount(states, shares, minlength=size)
    dynamics = FiniteDynamics(chains, start, np.zeros(size, np.bool_))
    return known(buffer, optimal_occupancy(dynamics, discount=DISCOUNT).policy_probs)


COVERS = {
    "rover": lambda agent: lambda seen: agent.policy.tables(seen)[0],
    "counting": lambda agent: counted_cover(agent.buffer),
}


def rows_of(name: str, asked: Any) -> Iterator[dict[str, Any]]:
    """A row for each seed, data, number of steps and method on one problem."""
    problem = PROBLEMS[name]()
    uniform = np.full_like(problem.rewards, 1.0 / problem.action_space.n)
    best, random = problem.best(EPISODE), problem.expected(uniform, EPISODE)
    print(f"{name}: {len(uniform):,} states, best {best:.5g}, random actions {random:.5g}")
    is_covered = problem.env is None and len(uniform) <= MOST_COVERED
    judge = FiniteEvaluator(problem.exact, discount=DISCOUNT, horizon=EPISODE, n_episodes=1)
    for seed, data in itertools.product(asked.seeds, asked.data):
        env, made = Recorded(problem.env or problem), 0
        limited = gym.wrappers.TimeLimit(env, EPISODE)
        agent = rover.make_agent(data, limited, seed=seed, measure_share=0.0)
        for steps in sorted(asked.steps):
            began = time.process_time()
            agent.learn(steps - made)
            ms, made = 1e3 * (time.process_time() - began) / (steps - made), steps
            rewards = np.concatenate(env.rewards)
            for method in asked.methods:
                if data == "random" and method == "rover":
                    continue  # peers alone
                began = time.process_time()
                probs = problem.acted(METHODS[method](agent.buffer, rewards))
                seconds = time.process_time() - began
                earned, ratio = problem.expected(probs, EPISODE), np.nan
                if data == "rover" and method in COVERS and is_covered:
                    covers = problem.acted(COVERS[method](agent))
                    ratio = judge.exact_figures(covers)["optimality_ratio"]
                yield {
                    "problem": name,
                    "data": data,
                    "steps": steps,
                    "seed": seed,
                    "method": method,
                    "return": round(earned, 2),
                    "share": round((earned - random) / (best - random), 3),
                    "J/J*": round(ratio, 3),
                    "seconds": round(seconds, 2),
                    "ms a step": round(ms, 2),
                }


def show(path: Path) -> None:
    """Print the table of runs, and draw their shares beside the file."""
    runs, panels, lines = pd.read_csv(path), [], []
    every = sorted(set(runs["steps"]))
    methods = runs["method"].replace("fitted_q", "fitted Q iteration")
    runs["of"] = methods + np.where(runs["data"] == "rover", "", ", random steps")
    for name, mine in runs.groupby("problem", sort=False):
        curves = {}
        for of, each in mine.groupby("of", sort=False):
            series = each.pivot(index="seed", columns="steps", values="share")
            steps = series.columns.to_numpy(np.float64)
            mean = MeanCurve.of_runs([(steps, row) for row in series.to_numpy()])
            curves[str(of), ""] = mean
            numbers, seconds = each.groupby("steps"), f"{each['seconds'].iloc[-1]:.1f}"
            shares = zip(mean.mean, mean.low, mean.high, strict=True)
            shown = (f"{a:.2f} ({b:.2f} to {c:.2f})" for a, b, c in shares)
            found = dict(zip(steps.tolist(), shown, strict=True))
            cells = [found.get(n, "–") for n in every]
            returns = (f"{x:,.4g}" for x in numbers["return"].mean())
            ratios = (f"{x:.2f}" for x in numbers["J/J*"].mean().dropna())
            words = [", ".join(returns), *cells, ", ".join(ratios), seconds]
            lines.append([str(name), str(of), str(len(series)), *words])
        panels.append(TaskPanel(str(name), 1.0, curves))
    after = (f"share after {n:,}" for n in every)
    heads = ["problem", "method", "seeds", "returns", *after, "J/J\\*", "s"]
    print(markdown_table(heads, lines, left=2))
    picture = make_task_figure(panels, title=_TITLE, y="share")
    write_pictures([("chance", picture)], path.parent, dpi=80)


def main() -> None:
    """Print a row for each problem, seed, data, number of steps and method."""
    lists = {"methods": METHODS, "data": ["rover", "random"], "seeds": range(100, 110)}
    arguments = parser(__doc__, only=PROBLEMS, steps=[300, 1000, 4000], **lists)
    arguments.add_argument("--page", type=Path, help="file that is shown in place of runs")
    asked = arguments.parse_args()
    if asked.page:
        show(asked.page)
        return
    begin()
    report(itertools.chain(*(rows_of(name, asked) for name in asked.only)), asked.csv)


if __name__ == "__main__":
    main()
