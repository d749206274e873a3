"""``rover solve`` and ``rover adapt``: tasks planned for on what pretraining stored."""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
from pydantic import BaseModel

from rover.cli.commands import command
from rover.cli.pretraining import free_folder, say_goals
from rover.cli.tables import NOTHING, make_table, say, shell
from rover.cli.tasks import watch_and_show
from rover.cli.values import read_task, run_env
from rover.envs import RewardFunction, finite_dynamics
from rover.errors import ConfigurationError
from rover.training.monitor import Log

if TYPE_CHECKING:
    from rover.policies import ValuePolicy


def _presets(_: argparse.Namespace) -> dict[str, BaseModel]:
    from rover.finetuning import AdaptConfig

    return {"fast": AdaptConfig.make("plan", "fast")}


@command(_presets)
def _adapt(
    path: Path,
    *,
    task: list[str],
    settings: dict[str, Any],
    steps: int = 2_000,
    seed: int = 0,
    run_dir: Path | None = None,
    log: tuple[Log, ...] = (),
    no_progress: bool = False,
) -> None:
    """Learn a task by interacting, with the model that pretraining left.

    The reward is seen only by interacting, as in `rover finetune`; where actions lead is known from
    the run's transitions. Until a reward is met the agent goes to what it has not visited in the
    task, by the shortest ways; then it plans for the rewards it has seen.

    Args:
        path (RUN): run folder of `rover pretrain`, of any agent
        steps: environment steps

    Examples:
        rover adapt runs/rover-MultiRooms-v0-default-seed0 --task goal=room5
        rover adapt runs/MountainCar-v0-default-seed0 --steps 1000
    """
    from rover.finetuning import adapt
    from rover.training.run_folder import read_run_config

    env_id, env_kwargs = run_env(read_run_config(path, kind="pretrain"), path)
    goal = read_task(task, env_id, env_kwargs)
    folder = run_dir or free_folder(path.name, goal.name, "adapt", f"seed{seed}")
    learn = partial(
        adapt,
        path,
        goal.make_env(),
        total_timesteps=steps,
        seed=seed,
        run_dir=folder,
        **settings,
    )
    title = f"{env_id}, {goal.name}, adapted from {path.name}, seed {seed}"
    watch_and_show(learn, folder, title, log=log, no_progress=no_progress)


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
        seed: of the roll-outs
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
    from rover.training.run_folder import read_run_config

    env_id, env_kwargs = run_env(read_run_config(path, kind="pretrain"), path)
    wanted = read_task(task, env_id, env_kwargs)
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
    folder = run_dir or free_folder(path.name, name, "solve")
    file = folder / "policy.safetensors"
    if file.exists():
        raise ConfigurationError(f"{folder} holds a policy already; choose another --run-dir")
    if goals is None:
        title = f"{env_id}, {name}, solved in {seconds:.2f} s without a further step"
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
