"""``rover solve``: policies for rewards, planned on what pretraining stored."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from rover.cli import words
from rover.cli.runs import free_folder
from rover.cli.tables import make_table, say, shell
from rover.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    import gymnasium as gym

    from rover.envs import RewardFunction
    from rover.evaluation.regret import Regret
    from rover.finetuning import Task
    from rover.policies import ContextPolicy, ValuePolicy

_MOST_ROWS = 12  # of a table of goals


def solve(
    *paths: words.Run,
    task: words.TaskWords = (),
    goals: Literal["all", "named"] | None = None,
    goal: words.OwnFunction | None = None,
    reward: words.OwnFunction | None = None,
    reward_from_env: words.Flag = False,
    discount: float | None = None,
    temperature: float = 0.0,
    episodes: words.Episodes = 20,
    seed: words.Seed = 0,
    run_dir: words.Folder | None = None,
) -> None:
    """Plan for a reward on the transitions of pretraining.

    No further step is made, and runs of any agent can be used. Where states
    repeat, the plan is exact for the data; in continuous spaces it is made on
    landmarks. Untried actions have the least value, so plans stay within the
    data.

    In procedurally generated environments the reward is regressed on the
    features of the observations. The policy explores each layout with a memory
    of the episode, and goes for the reward.

    examples:

        rover solve runs/rover-MultiRooms-v0-default-seed0 --task goal=room5
        rover solve runs/rover-MultiRooms-v0-default-seed0 --goals all
        rover solve runs/maze-seed0 runs/maze-seed1 --goals all
        rover solve runs/FrozenLake-v1-default-seed0 --reward-from-env
        rover solve runs/MountainCar-v0 --reward my_rewards:at_the_flag
        rover solve runs/MultiRoom-v0 --goal my_goals:at_the_green_square

    Args:
        paths: run folder of `rover pretrain`; several of one environment are planned on together
        goals: a policy for each goal: all that were ever arrived at, or those with names
        goal: function of yours, goal(observations) -> bool, that says which observations are goals:
            arriving at one is worth 1 and ends the task
        reward: function of yours, reward(observations, actions, next_observations) -> (rewards,
            terminated)
        reward_from_env: the environment's own reward; so it is without --task, --goals and --reward
        discount: of a reward one step later [default: 0.99, or 0.9 where the world changes with
            every episode]
        temperature: 0 for the best action, more for actions by softmax(value / temperature)
        episodes: roll-outs by which a policy is measured where that cannot be done exactly
        run_dir: folder for the policy [default: a new one under runs/]
    """
    if sum([bool(task), reward_from_env, *(w is not None for w in (goals, goal, reward))]) > 1:
        raise ConfigurationError(
            "give one of --task, --goals, --goal, --reward and --reward-from-env"
        )
    from rover.plots import write_pictures
    from rover.plots.solutions import draw_solution
    from rover.policies import ValuePolicy, load_policy
    from rover.training.run_folder import POLICY_FILE, finished_file

    path, *others = paths
    wanted = words.read_task_of(path, task)
    env, began = wanted.make_env(), time.perf_counter()
    start = load_policy(finished_file(path, POLICY_FILE))
    name, asked = _asked(wanted, env, goals, goal, reward)
    if discount is not None:
        asked["discount"] = discount
    policy = _plan(paths, start, temperature=temperature, **asked)
    seconds = time.perf_counter() - began
    # A plan is a policy file and its figures; there is no run to resume, and so no run folder.
    made_of = f"{path.name}-and-{len(others)}-more" if others else path.name
    folder = run_dir or free_folder(made_of, name, "solve")
    file = folder / "policy.safetensors"
    if file.exists():
        raise ConfigurationError(f"{folder} holds a policy already; choose another --run-dir")
    if goals is None:
        say(f"{wanted.env_id}, {name}, solved in {seconds:.2f} s without a further step")
        function = reward if goal is None else _goal_reward(goal)
        _say_value(name, policy, start, env, function, episodes=episodes, seed=seed)
    else:
        assert isinstance(policy, ValuePolicy)
        _say_goals(policy, env, seconds)
    # Only now: a refusal above leaves no empty folder.
    folder.mkdir(parents=True, exist_ok=True)
    policy.save(file)
    if isinstance(policy, ValuePolicy):
        for picture in write_pictures(draw_solution(policy, env, path), folder / "pictures"):
            say(f"picture: {picture}")
    say(f"policy: {file}", f"see:    {shell('rover', 'evaluate', file)}")


def _plan(
    paths: tuple[Path, ...], start: Any, *, temperature: float, **asked: Any
) -> ValuePolicy | ContextPolicy:
    """The policy that is planned on the transitions of these runs."""
    from rover.policies import ContextPolicy, SampledPolicy
    from rover.solving import solve as plan
    from rover.solving import solve_in_contexts

    if isinstance(start, ContextPolicy):
        if len(paths) > 1 or "goals" in asked or temperature > 0.0:
            raise ConfigurationError(
                "--goals, --temperature and several runs are for plans on states, and the world of "
                "this run changes with every episode: give one, and --goal, --reward or "
                "--reward-from-env"
            )
        return solve_in_contexts(paths[0], **asked)
    source = list(paths) if len(paths) > 1 else paths[0]
    policy = plan(source, **asked, temperature=temperature)
    assert not isinstance(policy, SampledPolicy)  # goals are asked for by functions
    return policy


def _say_value(
    name: str,
    policy: ValuePolicy | ContextPolicy,
    start: Any,
    env: gym.Env[Any, Any],
    function: RewardFunction | None,
    *,
    episodes: int,
    seed: int,
) -> None:
    """Print the return of a policy, of contexts beside the policy that it was made of."""
    from rover.envs import finite_dynamics
    from rover.evaluation.returns import followed_episodes
    from rover.policies import ContextPolicy
    from rover.solving import reward_regret
    from rover.solving.returns import FunctionReward, warn_of_unseen

    played = env if function is None else FunctionReward(env, function)
    if isinstance(policy, ContextPolicy):
        earned = [
            followed_episodes(played, one.sample_component, seed=seed, n_episodes=episodes)[0]
            for one in (policy, start)
        ]
        say(
            f"Planned for {name}: mean return {earned[0].mean():.2f} over {episodes} episodes in "
            f"worlds of their own; before, without a reward, {earned[1].mean():.2f}."
        )
        return
    is_known = finite_dynamics(env) is not None
    regret = reward_regret(policy, env, function) if is_known else None
    figures = task_figures(policy, played, regret, episodes=episodes, seed=seed)
    # It goes into the file: who is handed the policy should know how often it guesses.
    policy.details["unseen_share"] = figures["unseen_share"]
    say_task(figures, episodes)
    warn_of_unseen(figures["unseen_share"], policy)


def _asked(
    wanted: Task,
    env: gym.Env[Any, Any],
    goals: str | None,
    goal: Callable[..., Any] | None,
    reward: RewardFunction | None,
) -> tuple[str, dict[str, Any]]:
    """Name of the task that is asked for, and the argument of :func:`rover.solve`."""
    from rover.finetuning import check_rewarded

    if goals is not None:
        return f"{goals}-goals", {"goals": goals}
    if goal is not None:
        return getattr(goal, "__name__", "goal"), {"goal": goal}
    if reward is not None:
        return getattr(reward, "__name__", "reward"), {"reward": reward}
    # Without a goal a grid world pays nothing, and any policy would be optimal.
    check_rewarded(env)
    return wanted.name, {"reward": env}


def _goal_reward(goal: Callable[..., Any]) -> RewardFunction:
    """The reward of a function that says which observations are goals."""

    def arrived(_: Any, actions: Any, reached: Any, /) -> tuple[Any, Any]:
        ends = goal(reached)
        return ends.astype(float), ends

    return arrived


def task_figures(
    policy: ValuePolicy,
    env: gym.Env[Any, Any],
    regret: Regret | None,
    *,
    episodes: int,
    seed: int,
) -> dict[str, Any]:
    """Mean return of a policy in its tasks, exactly where there is a regret, else by roll-outs."""
    from rover.evaluation import greedy_episodes
    from rover.solving.returns import warn_if_worse_than_random

    # Then episodes only say how often it guesses. The first task stands for all of several goals.
    n_episodes = episodes if regret is None else min(20, episodes)
    returns, decisions = greedy_episodes(env, policy.single(0), seed=seed, n_episodes=n_episodes)
    if regret is None:
        warn_if_worse_than_random(policy.single(0), env)
    several = f"{policy.n_components} goals"
    return {
        "name": policy.tasks[0] if policy.n_components == 1 else several,
        "return": float((returns if regret is None else regret.returns).mean()),
        "best": None if regret is None else float(regret.best.mean()),
        "unseen_share": float((policy.landmarks_of(decisions) < 0).mean()),
    }


def say_task(task: dict[str, Any], episodes: int) -> None:
    """Print what :func:`task_figures` measured."""
    how = f"over {episodes} episodes"
    if task["best"] is not None:
        how = f"exactly; best possible {task['best']:.2f}"
    unseen = f"{task['unseen_share']:.1%} of the decisions were made at unseen observations"
    say(f"Planned for {task['name']}: mean return {task['return']:.2f}, {how}. {unseen}.")


def _say_goals(policy: ValuePolicy, env: gym.Env[Any, Any], seconds: float) -> None:
    """Print what a policy of goals is worth, exactly where the dynamics are known."""
    import numpy as np

    from rover.solving import goal_regret

    n_tasks = policy.n_components
    each = f"{1e3 * seconds / n_tasks:.1f} ms each"
    try:
        regret = goal_regret(policy, env)
    except ConfigurationError:  # dynamics that are not known, or goals that are no states of them
        say(f"{n_tasks} goals in {seconds:.2f} s, {each}")
        return
    table = make_table("", ("goal", "return", "best possible"))
    # the goals that are farthest from solved, in the order of the policy
    order = np.argsort(regret.returns - regret.best, kind="stable")[:_MOST_ROWS]
    for k in sorted(order.tolist()):
        table.add_row(policy.tasks[k], f"{regret.returns[k]:.1f}", f"{regret.best[k]:.1f}")
    left = "" if n_tasks <= _MOST_ROWS else f" Shown: the {_MOST_ROWS} farthest from the best."
    say(
        f"{n_tasks} goals, solved without a further step",
        table,
        f"{regret.solved} of {n_tasks} goals at the best possible return; {seconds:.2f} s in all, "
        f"{each}.{left}",
    )
