"""Zero-shot planning: goals and rewards solved from reward-free runs.

    python -m benchmarks.figures.zero_shot [goals agents ...] [--seeds 100 101 ...]

Writes docs/results/first_sight.csv (one line a run) and first_sight.md (its tables). Runs that the
file holds already are not repeated.
"""

from __future__ import annotations

import importlib
import time
import tomllib
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pandas as pd

import rover
from benchmarks.common import Recorded, parser
from rover.data import Buffer
from rover.envs import finite_dynamics, horizon_of, reward_function
from rover.errors import RoverWarning
from rover.evaluation import greedy_episodes
from rover.evaluation.regret import FiniteTasks, expected_returns
from rover.solving import goal_regret, reward_regret
from rover_bench.measure import describe_provenance, provenance
from rover_bench.report import NOTHING, markdown_table

_RESULTS = Path("docs/results")
_FIELDS = (
    *("study", "case", "agent", "seed", "solved", "tasks", "figure", "best", "seconds"),
    *("planned", "realised"),
)
_N_STARTS = 100
_FARTHEST = (21, 4)  # room 5 of Multi-Rooms 5


class _Case(NamedTuple):
    """An environment and the steps of reward-free pretraining on it."""

    env_id: str
    steps: int
    env_kwargs: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The case in a few words."""
        words = [self.env_id.removeprefix("rover/"), *map(str, (self.env_kwargs or {}).values())]
        return f"{' '.join(words)}, {self.steps:,} steps"


# --- what is measured of a pretrained agent -------------------------------------------------------


def _timed(call: Callable[..., Any], *given: Any, **named: Any) -> tuple[Any, float]:
    """Result of a call, and its seconds."""
    began = time.perf_counter()
    return call(*given, **named), time.perf_counter() - began


def _all_goals(agent: Any, case: _Case, seed: int) -> dict[str, Any]:
    """Number of solved goals, of all within the horizon, and the mean regret."""
    policy, seconds = _timed(rover.solve, agent, goals="all")
    problem, horizon = finite_dynamics(agent.env), horizon_of(agent.env)
    assert problem is not None
    states = np.arange(problem.dynamics.n_states)
    best = expected_returns(
        problem.dynamics, FiniteTasks.of_goals(problem.dynamics, states), horizon=horizon
    )
    regrets = goal_regret(policy, agent.env)
    reachable = best > -horizon
    within = regrets.best > -horizon
    regret = float((regrets.best - regrets.returns)[within].sum())
    # A goal that the data never saw has no plan: it counts as an episode that does not arrive.
    missing = int(reachable.sum() - within.sum())
    regret += missing * float(horizon + best[reachable].mean())
    return {
        "solved": int((regrets.returns[within] >= regrets.best[within] - 1e-9).sum()),
        "tasks": int(reachable.sum()),
        "figure": regret / int(reachable.sum()),
        "best": 0.0,
        "seconds": seconds,
    }


def _own_reward(agent: Any, case: _Case, seed: int) -> dict[str, Any]:
    """Return of the plan for the environment's reward, and its planned and realised value."""
    env = gym.make(case.env_id, **(case.env_kwargs or {}))
    policy, seconds = _timed(rover.solve, agent, env)
    discount, problem = policy.details["planning_discount"], finite_dynamics(env)
    if problem is not None:
        regret = reward_regret(policy, env)
        figure, best = float(regret.returns[0]), float(regret.best[0])
        planned = problem.dynamics.start @ policy.value(problem.observations)
        discounted = expected_returns(
            problem.dynamics,
            FiniteTasks.of_reward(problem, reward_function(env)),
            policies=policy.tables(problem.observations),
            horizon=horizon_of(env),
            discount=discount,
        )
        realised = float(discounted[0])
    else:
        recorded = Recorded(env)
        returns = greedy_episodes(recorded, policy, seed=seed, n_episodes=_N_STARTS)
        figure, best = float(returns.mean()), None
        planned = policy.value(np.stack(recorded.starts)).mean()
        sums = [np.array(one) @ discount ** np.arange(len(one)) for one in recorded.rewards]
        realised = float(np.mean(sums))
    figures = {"solved": None, "tasks": 1, "figure": figure, "best": best, "seconds": seconds}
    return figures | {"planned": float(planned), "realised": realised}


def _seen_by_interacting(agent: Any, case: _Case, seed: int) -> dict[str, Any]:
    """Steps of adapting until the best return of the farthest cell is kept."""
    task = gym.make(case.env_id, **(case.env_kwargs or {}), goal=_FARTHEST)
    budget = {"total_timesteps": 1000, "evaluate_every": 25}
    learned, seconds = _timed(rover.adapt, agent, task, seed=seed, **budget)
    kept = learned.summary["steps_to_stay_at_best"]
    return {"solved": int(kept is not None), "tasks": 1, "figure": kept, "seconds": seconds}


def _from_the_first_success(agent: Any, case: _Case, seed: int) -> dict[str, Any]:
    """Return of the plan from the data up to the first termination alone, and that step."""
    if not agent.buffer.terminated.any():
        return {"solved": 0, "tasks": 1}
    steps = int(np.argmax(agent.buffer.terminated)) + 1
    stored = agent.buffer.state()
    episodes = 1 + int((stored["terminated"] | stored["truncated"])[: steps - 1].sum())
    columns = ("inputs", "actions", "successors", "terminated", "truncated")
    early = Buffer(
        agent.buffer.observations.shape, stored["observations"].dtype, agent.buffer.n_actions
    )
    cut = {name: stored[name][:steps] for name in columns}
    # Starts of the episodes that had begun by then; the last of them may be unfinished.
    early.load_state({**stored, **cut, "starts": stored["starts"][:episodes]})
    policy, seconds = _timed(rover.solve, early, early.terminated.astype(np.float64))
    earned = float(greedy_episodes(agent.env, policy, seed=0, n_episodes=1)[0])
    return {"solved": int(earned > 0), "tasks": 1, "figure": steps, "seconds": seconds}


# --- the studies and their tables -----------------------------------------------------------------


def _median(values: pd.Series) -> str:
    # The upper of the two middle values: a figure that some run had.
    return f"{values.quantile(interpolation='higher'):.0f}"


def _range(values: pd.Series) -> str:
    return f"{_median(values)} ({values.min():.0f}–{values.max():.0f})"


def _listed(values: Iterable[float], form: str = ".3g") -> str:
    return ", ".join(format(value, form) for value in values)


def _planned(runs: pd.DataFrame) -> str:
    pairs = runs[["planned", "realised"]].dropna().itertuples(index=False)
    return ", ".join(f"{planned:.3g} ({realised:.3g})" for planned, realised in pairs) or NOTHING


_STUDIES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""Study → its heading, its agents (ROVER without any), and its cases."""

_MEASURES: Mapping[str, Callable[[Any, _Case, int], dict[str, Any]]] = {
    "goals": _all_goals,
    "agents": _all_goals,
    "rewards": _own_reward,
    "adapt": _seen_by_interacting,
    "first": _from_the_first_success,
}
"""Study → figures of a pretrained agent, a case and a seed."""

_COLUMNS: Mapping[str, Mapping[str, Callable[[pd.DataFrame], object]]] = {
    "goals": {
        "goals solved, of those within the horizon": lambda runs: ", ".join(
            sorted({f"{run.solved:.0f} of {run.tasks}" for run in runs.itertuples()})
        ),
        "seeds with all": lambda runs: (runs.solved == runs.tasks).sum(),
        "ms a goal": lambda runs: f"{(1e3 * runs.seconds / runs.tasks).median():.1f}",
        "s for all": lambda runs: f"{runs.seconds.median():.2f}",
    },
    "agents": {
        "goals solved, median": lambda runs: f"{_median(runs.solved)} of {runs.tasks.iloc[0]}",
        "mean regret, steps": lambda runs: f"{runs.figure.mean():.1f}",
    },
    "rewards": {
        "returns": lambda runs: _listed(sorted(runs.figure)),
        "best": lambda runs: _listed(runs.best.dropna()[:1]) or NOTHING,
        "planned (realised) value of the start": _planned,
    },
    "adapt": {
        "solved": lambda runs: f"{runs.figure.count()} of {len(runs)}",
        "steps, median (range)": lambda runs: _range(runs.figure),
    },
    "first": {
        "solved": lambda r: f"{r.solved.sum():.0f} of {r.figure.count()} with a success",
        "first success, median step (range)": lambda runs: _range(runs.figure),
    },
}
"""Study → heading of a column → its cell of the runs of a line."""


def _cases(study: str) -> list[_Case]:
    return [_Case(**case) for case in _STUDIES[study]["cases"]]


def _run(study: str, case: _Case, name: str, seed: int) -> dict[str, Any]:
    """Pretrain without a reward, solve, and measure."""
    warnings.simplefilter("ignore", RoverWarning)
    if case.env_id.startswith("arenas/"):
        importlib.import_module("benchmarks.worlds.arenas")
    agent = rover.make_agent(
        name, case.env_id, env_kwargs=case.env_kwargs, seed=seed, evaluation_episodes=2
    )
    agent.learn(case.steps)
    row = {"study": study, "case": case.name, "agent": name, "seed": seed}
    return row | _MEASURES[study](agent, case, seed)


def _report(path: Path) -> str:
    """Page of all tables, from the lines of first_sight.csv."""
    runs = pd.read_csv(path)
    parts = [
        "# Zero-shot planning: tables\n",
        "Made by `python -m benchmarks.figures.zero_shot`; a line for each run is in "
        "[first_sight.csv](first_sight.csv). Pretraining never sees a reward, and solving makes no "
        "further step. Lines that the file holds are not made again, so that some are of earlier "
        "commits than the one below.\n",
        *describe_provenance([provenance(jobs=1)]),
    ]
    for name, study in _STUDIES.items():
        is_shown = runs.study == name
        if name == "agents":  # ROVER, on the same case
            (compared,) = _cases(name)
            is_shown |= (runs.study == "goals") & (runs.case == compared.name)
        if not is_shown.any():
            continue
        columns, lines = _COLUMNS[name], []
        for (case, agent), group in runs[is_shown].groupby(["case", "agent"], sort=False):
            cells = [str(cell(group)) for cell in columns.values()]
            lines.append([agent if name == "agents" else case, str(len(group)), *cells])
        table = markdown_table(["", "seeds", *columns], lines)
        parts += [f"\n## {study['heading']}\n", table]
    return "\n".join([*parts, ""])


def main() -> None:
    """Run what is missing, and write the tables."""
    arguments = parser(__doc__, seeds=range(100, 107))
    arguments.add_argument("studies", nargs="*", metavar="|".join(_STUDIES))
    options = arguments.parse_args()
    path = _RESULTS / "first_sight.csv"
    rows, key = pd.DataFrame(columns=_FIELDS), list(_FIELDS[:4])
    if path.exists():
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    done = set(rows[key].itertuples(index=False, name=None))
    jobs = [
        (study, case, agent, seed)
        for study in options.studies or _STUDIES
        for agent in _STUDIES[study].get("agents", ["rover"])
        for case in _cases(study)
        for seed in options.seeds
        if (study, case.name, agent, str(seed)) not in done
    ]
    for number, job in enumerate(jobs, 1):
        row = _run(*job)
        texts = {name: str(value) for name, value in row.items() if value is not None}
        rows = pd.concat([rows, pd.DataFrame([texts])]).sort_values(key)
        rows.to_csv(path, index=False, lineterminator="\n")  # now, so that a stop loses none
        print(f"{number} of {len(jobs)}: {row}", flush=True)
    (_RESULTS / "first_sight.md").write_text(_report(path))


if __name__ == "__main__":
    main()
