"""``rover solve``: a policy for any reward, from what pretraining stored."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import gymnasium as gym
import numpy as np

from rover.cli.commands import Existing, Natural, OwnFunction, Pairs, Place, command
from rover.cli.pretraining import free_folder
from rover.cli.tables import NOTHING, make_table, say, shell
from rover.cli.tasks import read_task, run_env
from rover.cli.values import whole_number
from rover.envs import GridWorld, RewardFunction, finite_dynamics
from rover.errors import ConfigurationError

if TYPE_CHECKING:
    from rover.policies import ValuePolicy

_MOST_ROWS = 12
EPISODES = 20


@command()
def _solve(
    path: Existing,
    *,
    task: Pairs,
    goals: Literal["all", "named"] | None = None,
    reward: OwnFunction | None = None,
    discount: float = 0.99,
    temperature: float = 0.0,
    episodes: Annotated[int, whole_number(1, 10**4)] = EPISODES,
    seed: Natural = 0,
    run_dir: Place | None = None,
) -> None:
    """Plan for a reward on what pretraining stored, without a further step.

    The transitions of a run, of any agent, say where actions lead: that is all that planning needs.
    Where states repeat the plan is exact for what was seen; where they do not it is made on a net
    of the visited places. What was never tried is taken for the worst, so plans keep to the data.

    Without --task, --goals and --reward it is the environment's own reward that is solved.

    Args:
        path (RUN): run folder of `rover pretrain`
        goals: a policy for each goal: all that were ever arrived at, or those with names
        discount: of a reward one step later
        temperature: 0 for the best action, more for actions by softmax(value / temperature)
        episodes: roll-outs by which a policy is measured where that cannot be done exactly
        seed: of the roll-outs
        run_dir: folder for the policy [default: a new one under runs/]

    Examples:
        rover solve runs/rover-MultiRooms-v0-default-seed0 --task goal=room5
        rover solve runs/rover-MultiRooms-v0-default-seed0 --goals all
        rover solve runs/FrozenLake-v1-default-seed0
        rover solve runs/MountainCar-v0-default-seed0 --reward my_rewards:at_the_flag
    """
    if sum([bool(task), goals is not None, reward is not None]) > 1:
        raise ConfigurationError("give one of --task, --goals and --reward")
    from rover.finetuning import check_rewarded
    from rover.solving import solve
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
    folder.mkdir(parents=True, exist_ok=True)
    policy.save(file)
    say(f"policy: {file}", f"see:    {shell('rover', 'evaluate', file)}")


def say_goals(policy: ValuePolicy, env: gym.Env[Any, Any], seconds: float) -> None:
    """Print what a policy of goals is worth, exactly where the dynamics are known."""
    from rover.solving import goal_regret

    n_tasks = policy.n_components
    each = f"{1e3 * seconds / n_tasks:.1f} ms each"
    if not isinstance(env.unwrapped, GridWorld):
        say(f"{n_tasks} goals in {seconds:.2f} s, {each}")
        return
    found = goal_regret(policy, env)
    table = make_table("", ("goal", "return", "best possible"))
    order = np.argsort(found.returns - found.best, kind="stable")[:_MOST_ROWS]
    for k in sorted(order.tolist()):
        table.add_row(policy.tasks[k], f"{found.returns[k]:.1f}", f"{found.best[k]:.1f}")
    left = "" if n_tasks <= _MOST_ROWS else f" Shown: the {_MOST_ROWS} farthest from the best."
    say(
        f"{n_tasks} goals, solved without a further step",
        table,
        f"{found.solved} of {n_tasks} goals at the best possible return; {seconds:.2f} s in all, "
        f"{each}.{left}",
    )


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
    from rover.finetuning.run import greedy_returns
    from rover.solving import reward_regret

    table = make_table("", ("", "return"))
    if finite_dynamics(env) is not None:
        found = reward_regret(policy, env, reward)
        table.add_row("expected, exactly", f"{found.returns[0]:.3f}")
        table.add_row("best possible", f"{found.best[0]:.3f}")
    elif reward is None:
        returns = greedy_returns(env, policy, seed=seed, n_episodes=episodes)
        table.add_row(f"mean of {episodes} episodes", f"{returns.mean():.1f}")
        table.add_row("least", f"{returns.min():.1f}")
        table.add_row("greatest", f"{returns.max():.1f}")
    else:
        table.add_row("known only to the function that was given", NOTHING)
    say(title, table)
