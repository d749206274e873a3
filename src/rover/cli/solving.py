"""``rover solve``: policies for rewards, planned on what pretraining stored."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np

from rover.cli.commands import command
from rover.cli.runs import free_folder
from rover.cli.tables import NOTHING, make_table, say, shell
from rover.cli.values import read_task_of
from rover.envs import RewardFunction, finite_dynamics
from rover.errors import ConfigurationError

if TYPE_CHECKING:
    from rover.policies import ValuePolicy

_MOST_ROWS = 12  # of a table of goals


@command()
def _solve(
    path: Path,
    *,
    task: list[str],
    goals: Literal["all", "named"] | None = None,
    reward: RewardFunction | None = None,
    reward_from_env: bool = False,
    discount: float = 0.99,
    temperature: float = 0.0,
    episodes: int = 20,
    seed: int = 0,
    run_dir: Path | None = None,
) -> None:
    """Plan for a reward on what pretraining stored, without a further step.

    The transitions of a run, of any agent, say where actions lead: that is all that planning needs.
    Where states repeat the plan is exact for what was seen; where they do not it is made on a net
    of the visited places. What was never tried is taken for the worst, so plans keep to the data.

    Args:
        path (RUN): run folder of `rover pretrain`
        goals: a policy for each goal: all that were ever arrived at, or those with names
        reward_from_env: the environment's own reward; so it is without --task, --goals and --reward
        discount: of a reward one step later
        temperature: 0 for the best action, more for actions by softmax(value / temperature)
        episodes: roll-outs by which a policy is measured where that cannot be done exactly
        run_dir: folder for the policy [default: a new one under runs/]

    Examples:
        rover solve runs/rover-MultiRooms-v0-default-seed0 --task goal=room5
        rover solve runs/rover-MultiRooms-v0-default-seed0 --goals all
        rover solve runs/FrozenLake-v1-default-seed0 --reward-from-env
        rover solve runs/MountainCar-v0-default-seed0 --reward my_rewards:at_the_flag
    """
    if sum([bool(task), goals is not None, reward is not None, reward_from_env]) > 1:
        raise ConfigurationError("give one of --task, --goals, --reward and --reward-from-env")
    from rover.finetuning import check_rewarded
    from rover.plots import write_pictures
    from rover.solving import solve
    from rover.solving.pictures import draw_solution

    wanted = read_task_of(path, task)
    env, began = wanted.make_env(), time.perf_counter()
    settings: dict[str, Any] = {"discount": discount, "temperature": temperature}
    if goals is not None:
        name, policy = f"{goals}-goals", solve(path, goals=goals, **settings)
    elif reward is not None:
        name, policy = getattr(reward, "__name__", "reward"), solve(path, reward, **settings)
    else:
        # Without a goal a grid world pays nothing, and any policy would be optimal.
        check_rewarded(env)
        name, policy = wanted.name, solve(path, env, **settings)
    seconds = time.perf_counter() - began
    # A plan is a policy file and its pictures; there is no run to resume, and so no run folder.
    folder = run_dir or free_folder(path.name, name, "solve")
    file = folder / "policy.safetensors"
    if file.exists():
        raise ConfigurationError(f"{folder} holds a policy already; choose another --run-dir")
    if goals is None:
        title = f"{wanted.env_id}, {name}, solved in {seconds:.2f} s without a further step"
        _say_return(policy, env, reward, title=title, episodes=episodes, seed=seed)
    else:
        say_goals(policy, env, seconds)
    # Only now: a refusal above leaves no empty folder.
    folder.mkdir(parents=True, exist_ok=True)
    policy.save(file)
    for picture in write_pictures(draw_solution(policy, env, path), folder / "pictures"):
        say(f"picture: {picture}")
    say(f"policy: {file}", f"see:    {shell('rover', 'evaluate', file)}")


def _say_return(
    policy: ValuePolicy,
    env: gym.Env[Any, Any],
    reward: RewardFunction | None,
    *,
    title: str,
    episodes: int,
    seed: int,
) -> None:
    """Print what a policy earns, exactly where the dynamics are known, else by roll-outs."""
    from rover.evaluation import greedy_episodes
    from rover.solving import reward_regret
    from rover.solving.solve import warn_of_unseen

    returns, decisions = greedy_episodes(env, policy, seed=seed, n_episodes=episodes)
    share = float(policy.is_unseen(decisions).mean())
    # It goes into the file: who is handed the policy should know how often it guesses.
    policy.details["unseen_share"] = share
    table = make_table("", ("", "return"))
    if finite_dynamics(env) is not None:
        exact = reward_regret(policy, env, reward)
        table.add_row("expected, exactly", f"{exact.returns[0]:.3f}")
        table.add_row("best possible", f"{exact.best[0]:.3f}")
    elif reward is None:
        table.add_row(f"mean of {episodes} episodes", f"{returns.mean():.1f}")
        table.add_row("least", f"{returns.min():.1f}")
        table.add_row("greatest", f"{returns.max():.1f}")
    else:
        table.add_row("known only to the function that was given", NOTHING)
    table.add_row("decisions at unseen observations", f"{share:.1%}")
    say(title, table)
    warn_of_unseen(share, policy)


def say_goals(policy: ValuePolicy, env: gym.Env[Any, Any], seconds: float) -> None:
    """Print what a policy of goals is worth, exactly where the dynamics are known."""
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
