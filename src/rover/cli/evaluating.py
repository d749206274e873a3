"""Commands that look at runs: ``rover evaluate``, ``solve`` and ``plot``."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from cyclopts import Parameter

from rover.cli import words
from rover.cli.tables import figures_table, say
from rover.errors import ConfigurationError

if TYPE_CHECKING:
    import gymnasium as gym

    from rover.envs import RewardFunction
    from rover.policies import ContextPolicy, Policy, ValuePolicy

_REPEATS = 100  # sets of episodes of an exact measurement, for its interval
_MAX_STEPS = 100_000  # after which waiting for full coverage is given up

_ROLLOUT_NOTE = (
    "The states of this environment are unknown, so neither coverage nor J* can be computed. "
    "± is the standard error of a mean over sets of episodes."
)

_ROLLOUT_ROWS: list[tuple[str, ...]] = [
    ("cells visited", "{cells:,.0f} ± {cells_error:.0f}"),
    ("steps per episode", "{episode_length[mean]:,.1f}"),
    ("  95% interval", "{episode_length[low]:,.1f}–{episode_length[high]:,.1f}"),
    ("episodes that ended by themselves", "{terminated:.1%}"),
]

_EXACT_ROWS: list[tuple[str, ...]] = [
    ("coverage", "{coverage[mean]:.1%}"),
    ("  95% interval", "{coverage[low]:.1%}–{coverage[high]:.1%}"),
    ("P(coverage ≥ 95%)", "{p_coverage_95:.1%}"),
    ("steps to full coverage", "{steps_to_full_coverage[median]:,.0f}", f"> {_MAX_STEPS:,}"),
    ("J = Σ d², exact", "{objective:.4g}"),
    ("J/J*, exact", "{optimality_ratio:.4f}"),
    ("Rényi-2 entropy, nats", "{renyi2_entropy:.3f}"),
    ("Shannon entropy, nats", "{shannon_entropy:.3f}"),
]


def evaluate(
    path: words.Run,
    /,
    *,
    episodes: words.Episodes = 20,
    seed: words.Seed = 0,
    as_json: Annotated[bool, Parameter(name="--json", negative="", show_default=False)] = False,
) -> None:
    """Measure the coverage and occupancy of a policy.

    Uniformly random actions and the optimal policy for J are measured too: where
    the dynamics are known, the share of all states that the episodes visit together
    and `J = Σ d²` of the exact discounted occupancy d; elsewhere by roll-outs. A
    policy of `rover solve` has its return: −1 per step to a goal, or its own reward.

    examples:

        rover evaluate runs/rover-Maze-v0-default-seed0
        rover evaluate runs/maze/policy.safetensors --episodes 5 --json

    Args:
        path: run folder, or policy.safetensors
        as_json: print one JSON object, and nothing else
    """
    from rover.envs import finite_dynamics, horizon_of, known_id, make_env
    from rover.policies import ValuePolicy, load_policy
    from rover.solving import OWN_REWARD
    from rover.training import run_folder

    file, longest = run_folder.finished_file(path, run_folder.POLICY_FILE), 0
    policy = load_policy(file)
    env_id = known_id(policy.details.get("env_id"), file)
    if (file.parent / run_folder.BUFFER_FILE).exists():
        env = run_folder.run_env(file.parent)
        longest = run_folder.load_run_buffer(file.parent).longest_episode
    else:
        env = make_env(env_id, policy.details["env_kwargs"])
    # The file may be older than the environment registered under its id.
    policy.check_fits(env)
    is_known = finite_dynamics(env) is not None
    horizon = horizon_of(env, longest=0 if is_known else longest)
    setup = {name: policy.details[name] for name in ("env_id", "env_kwargs", "discount")}
    setup |= {"path": str(path), "horizon": horizon, "episodes": episodes, "seed": seed}
    figures, task = _measure(env, policy, setup), None
    # Only policies of `rover solve` were planned for tasks; others are worth what they cover.
    if isinstance(policy, ValuePolicy):
        of_goals = policy.tasks != (OWN_REWARD,)
        task = _planned_figures(policy, env, of_goals=of_goals, n_episodes=episodes, seed=seed)
    if as_json:
        figures = setup | figures | ({"task": task} if task else {})
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
        return
    names = ("policy", "uniform", "optimal")
    columns = {name: figures[name] for name in names if figures.get(name)}
    title = f"{env_id}: {episodes} episodes, horizon {horizon}, discount {setup['discount']:g}"
    say(figures_table(title, columns, _EXACT_ROWS if is_known else _ROLLOUT_ROWS))
    say(f"at most {math.log(figures['n_states']):.3f} nats" if is_known else _ROLLOUT_NOTE)
    if task:
        _say_task(task)


def _measure(env: gym.Env[Any, Any], policy: Policy, setup: Mapping[str, Any]) -> dict[str, Any]:
    """Measure a policy beside uniform actions: exactly where the dynamics are known, and beside the
    optimum, else by roll-outs."""
    import numpy as np

    from rover.envs import finite_dynamics
    from rover.evaluation import FiniteEvaluator, RolloutEvaluator
    from rover.evaluation.rollouts import MEASURED_SETS

    problem, episodes, seed = finite_dynamics(env), setup["episodes"], setup["seed"]
    if problem is not None:
        discount, horizon = setup["discount"], setup["horizon"]
        one = FiniteEvaluator(problem, discount=discount, horizon=horizon, n_episodes=episodes)
        tables, rng = policy.tables(problem.observations), np.random.default_rng(seed)
        return one.compare(tables, n_repeats=_REPEATS, max_steps=_MAX_STEPS, rng=rng)
    if episodes < 2:
        raise ConfigurationError("an interval of roll-outs needs at least two: --episodes 2")
    evaluator = RolloutEvaluator(
        env,
        policy.n_actions,
        horizon=setup["horizon"],
        n_episodes=episodes,
        n_sets=MEASURED_SETS,
        rng=np.random.default_rng([seed, 0]),
    )
    # A stream of its own: every policy is measured beside the same random actions.
    measured = evaluator.measure(policy.sample_component, np.random.default_rng([seed, 1]))
    return {"policy": measured, "uniform": evaluator.uniform}


def _planned_figures(
    policy: ValuePolicy,
    env: gym.Env[Any, Any],
    function: RewardFunction | None = None,
    *,
    of_goals: bool,
    **options: Any,
) -> dict[str, Any] | None:
    """Mean return of a policy in the tasks that it was planned for: goals, a function, or the
    environment's own reward. Exactly where the dynamics are known, else by roll-outs with these
    `options`; None where `env` has no such task."""
    from rover.envs import finite_dynamics
    from rover.envs.wrappers import FunctionReward
    from rover.evaluation import greedy_episodes, mean_interval
    from rover.evaluation.regret import warn_if_worse
    from rover.solving import goal_regret, reward_regret

    regret = None
    try:
        if of_goals:
            regret = goal_regret(policy, env)
        elif finite_dynamics(env) is not None:
            regret = reward_regret(policy, env, function)
    except ConfigurationError:  # a reward that the environment has not, or goals that are no states
        return None
    n_goals = policy.n_components
    figures = {"name": policy.tasks[0] if n_goals == 1 else f"{n_goals} goals"}
    if regret is not None:
        best, mean = float(regret.best.mean()), float(regret.returns.mean())
        return figures | {"return": mean, "best": best, "solved": regret.solved}
    played = env if function is None else FunctionReward(env, function)
    # The first task stands for all of several goals; actions are drawn, as the policy acts.
    one, how = policy.single(0), {"has_memory": True, "draws": True}
    returns = greedy_episodes(played, one.sample_component, **how, **options)

    def by_chance(rng: Any) -> Callable[..., Any]:
        return lambda _: rng.random((1, policy.n_actions))

    random = greedy_episodes(played, by_chance, has_memory=True, **options)
    warn_if_worse(returns, random)
    mean, *around = mean_interval(returns).values()
    return figures | {"return": mean, "best": None, "interval": around, "episodes": len(returns)}


def _say_task(task: Mapping[str, Any]) -> None:
    """Print what :func:`_planned_figures` measured."""
    if task["best"] is None:
        low, high = task["interval"]
        how = f"95% interval {low:.2f} to {high:.2f} by {task['episodes']} episodes"
    else:
        how = f"exactly; best possible {task['best']:.2f}"
    say(f"Planned for {task['name']}: mean return {task['return']:.2f}, {how}.")
    if task["name"].endswith(" goals") and task.get("solved") is not None:
        say(f"{task['solved']} of {task['name']} at the best possible return")


def solve(
    *paths: words.Run,
    task: words.TaskPairs = (),
    goals: Literal["all", "named"] | None = None,
    goal: words.OwnFunction | None = None,
    reward: words.OwnFunction | None = None,
    episodes: words.Episodes = 20,
    seed: words.Seed = 0,
    run_dir: words.Folder | None = None,
) -> None:
    """Plan for a reward on the transitions of pretraining.

    No further step is made. Untried actions have the least value, so plans stay
    within the data. Without --task, --goals, --goal and --reward the plan is for
    the environment's own reward.

    examples:

        rover solve runs/rover-MultiRooms-v0-default-seed0 --task goal=room5
        rover solve runs/maze-seed0 runs/maze-seed1 --goals all
        rover solve runs/MountainCar-v0 --reward my_rewards:at_the_flag

    Args:
        paths: run folder of `rover pretrain`; several of one environment are planned on together
        goals: a policy for each goal: all that were ever arrived at, or those with names
        goal: function of yours, goal(observations) -> bool: arriving there is worth 1 and ends
        reward: function of yours, reward(observations, actions, next_observations) -> (rewards,
            terminated)
        run_dir: folder for the policy [default: a new one under runs/]
    """
    given = {"goals": goals, "goal": goal, "reward": reward}
    asked: dict[str, Any] = {kind: value for kind, value in given.items() if value is not None}
    if len(asked) + bool(task) > 1:
        raise ConfigurationError("give one of --task, --goals, --goal and --reward")
    from rover.envs import check_rewarded
    from rover.policies import load_policy
    from rover.training.run_folder import POLICY_FILE, finished_file

    wanted = words.task_of(paths[0], task)
    env, name = wanted.make_env(), wanted.name
    start = load_policy(finished_file(paths[0], POLICY_FILE))
    for kind, value in asked.items():
        name = f"{goals}-goals" if goals else getattr(value, "__name__", kind)
    if not asked:
        # Without a goal a grid world pays nothing, and any policy would be optimal.
        check_rewarded(env)
        asked = {"reward": env}
    policy = _plan(paths, start, **asked)
    # A plan is a policy file and its figures; there is no run to resume, and so no run folder.
    folder = words.Making(run_dir=run_dir).folder(paths[0].name, name, "solve")
    file = folder / "policy.safetensors"
    if file.exists():
        raise ConfigurationError(f"{folder} holds a policy already; choose another --run-dir")
    say(f"{wanted.env_id}, {name}")
    function = reward if goal is None else _goal_reward(goal)
    _say_plan(policy, start, env, function, of_goals=bool(goals), n_episodes=episodes, seed=seed)
    # Only now: a refusal above leaves no empty folder.
    folder.mkdir(parents=True, exist_ok=True)
    policy.save(file)
    say(f"policy: {file}", f"see:    rover evaluate {shlex.quote(str(file))}")


def _plan(paths: tuple[Path, ...], start: Policy, **asked: Any) -> ValuePolicy | ContextPolicy:
    """The policy that is planned on the transitions of these runs."""
    from rover.policies import ContextPolicy
    from rover.solving import solve as plan
    from rover.solving import solve_in_contexts

    if not isinstance(start, ContextPolicy):
        # No plan is sampled: goals are functions here.
        return cast("ValuePolicy", plan(list(paths) if len(paths) > 1 else paths[0], **asked))
    if len(paths) > 1 or "goals" in asked:
        raise ConfigurationError(
            "--goals and several runs are for plans on states, and the world of this run changes "
            "with every episode: give one, and --goal or --reward"
        )
    return solve_in_contexts(paths[0], **asked)


def _goal_reward(goal: Callable[..., Any]) -> RewardFunction:
    """The reward of a function that says which observations are goals."""

    def arrived(_: Any, actions: Any, reached: Any, /) -> tuple[Any, Any]:
        ends = goal(reached)
        return ends.astype(float), ends

    return arrived


def _say_plan(
    policy: ValuePolicy | ContextPolicy,
    start: Policy,
    env: gym.Env[Any, Any],
    function: RewardFunction | None,
    *,
    of_goals: bool,
    **options: Any,
) -> None:
    """Print the return of a policy; of contexts beside the policy that it was made of."""
    from rover.envs.wrappers import FunctionReward
    from rover.evaluation import greedy_episodes, mean_interval
    from rover.policies import ContextPolicy

    if not isinstance(policy, ContextPolicy):
        if figures := _planned_figures(policy, env, function, of_goals=of_goals, **options):
            _say_task(figures)
        return
    played = env if function is None else FunctionReward(env, function)
    planned, before = (
        mean_interval(greedy_episodes(played, one.sample_component, has_memory=True, **options))
        for one in (policy, start)
    )
    words = "{mean:.2f} (95% interval {low:.2f} to {high:.2f})"
    shown, others = words.format(**planned), words.format(**before)
    say(f"Mean return {shown} over {options['n_episodes']} new layouts; without a reward {others}.")


def plot(
    *paths: words.Run, out: words.Folder | None = None, formats: words.Formats = ("png",)
) -> None:
    """Draw figures of runs.

    Of a run of `rover pretrain`, into RUN/pictures: curves of visited states and
    coverage, visits compared with random actions, and for known states episodes,
    occupancy and actions of the policy. Of several runs on one environment, or of
    runs of `rover finetune` and `rover adapt`: learning curves, with the mean over
    seeds and its 95% interval.

    examples:

        rover plot runs/rover-Maze-v0-default-seed0
        rover plot runs/maze-*-seed? --out pictures --format pdf

    Args:
        paths: run folder; several of one kind share a figure
        out: folder of the figures [default: RUN/pictures of the only run]
    """
    from rover.plots import plot_runs

    for picture in plot_runs(paths, out=out, formats=formats):
        say(str(picture))
