"""Commands that make runs: ``rover pretrain``, ``finetune``, ``adapt`` and ``resume``."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from rover.cli import words
from rover.cli.tables import figures_table, say
from rover.errors import ConfigurationError

if TYPE_CHECKING:
    from rover.finetuning import TaskResult
    from rover.training.agent import Agent

_DEFAULT_STEPS, _OTHER_STEPS = 3_000, 10_000  # of ROVER's best preset, and of all others
_MAKING = words.Making()

_SEEN = {
    "states": ("states seen", "{states_seen:,.0f} of {states_total:,}"),
    "observations": ("distinct observations", "{observations:,.0f}"),
    "cells": ("visited cells", "{data_cells:,.0f}"),
}


def pretrain(
    env_id: words.EnvId,
    /,
    *,
    agent: Annotated[str, Parameter(metavar="NAME")] = "rover",
    preset: str | None = None,
    steps: words.Count | None = None,
    env: words.Env = (),
    target: words.OwnFunction | None = None,
    num_envs: words.Count | None = None,
    making: words.Making = _MAKING,
) -> None:
    """Pretrain on an environment without its reward.

    The result is a policy whose episodes visit the states of the environment as
    evenly as possible. All files go to one run folder; `rover resume RUN`
    continues a stopped run, with the same result.

    ENV is any Gymnasium id with discrete or up to 32 continuous actions, and
    Discrete, vector or image observations; "module:Name-v0" imports the module
    that registers it. `rover envs` lists rover's own.

    examples:

        rover pretrain rover/MultiRooms-v0
        rover pretrain rover/MultiRooms-v0 --env rooms=7 --env observation=onehot
        rover pretrain rover/TwoRooms-v0 --env observation=pixels --preset paper
        rover pretrain rover/TwoRooms-v0 --agent rnd --set learner.batch_size=64

    Args:
        env_id: Gymnasium id, such as rover/Maze-v0
        agent: the agent that pretrains; `rover settings` lists them
        preset: ROVER: default, the best settings known, paper, the text of the paper, or
            code-2026-06, its authors' code; other agents: fast or published [default: the first]
        steps: environment steps [default: 3000 with preset default, 10000 with others]
        target: function of yours, target(observations) -> weights, that returns the wanted share
            of each observation, relative to the others [default: all alike]
        num_envs: copies of the environment that are stepped at once; in processes with --set
            env_processes=true [default: 1]
    """
    from rover.baselines import make_agent, preset_of

    preset = preset_of(agent, preset)
    name = preset if agent == "rover" else f"{agent}-{preset}"
    folder = making.folder(env_id, name, f"seed{making.seed}")
    options = dict(making.settings)
    if target is not None:
        options["target"] = target
    if num_envs is not None:
        options["num_envs"] = num_envs
    made = make_agent(
        agent, env_id, preset, env_kwargs=dict(env), seed=making.seed, run_dir=folder, **options
    )
    steps = steps or (_DEFAULT_STEPS if preset == "default" else _OTHER_STEPS)
    with _resumable(folder):
        made.learn(steps, progress_bar=making.progress, log=making.log)
    _show_agent(made, env_id)


_Origin = Literal["pretrained", "plan", "scratch"]


def finetune(
    *paths: words.Run,
    task: words.TaskPairs = (),
    origin: Annotated[_Origin, Parameter(name="--from")] = "pretrained",
    transfer: Literal["policy", "encoder", "both"] = "policy",
    offline: words.Flag = False,
    algorithm: Literal["ddpg", "sac", "cql"] | None = None,
    preset: Literal["fast", "paper"] = "fast",
    steps: words.Count | None = None,
    making: words.Making = _MAKING,
) -> None:
    """Learn a task from a pretrained policy or stored data.

    The reward is seen only by interacting. With --offline no further step is made:
    stored transitions of one run, or of several of one environment, are labelled
    with the task's reward.

    examples:

        rover finetune runs/rover-MultiRooms-v0-default-seed0 --task goal=room5
        rover finetune runs/rooms --task goal=room5 --from scratch
        rover finetune runs/pixels --task goal=room2 --task reward=dense --transfer both
        rover finetune runs/rooms --offline --task goal=room5

    Args:
        paths: run folder of `rover pretrain`, of any agent; with --offline one or more
        origin: what learning starts from; plan: what `rover solve` plans, if stored steps met the
            reward; scratch: the run lends its environment alone
        transfer: what is taken over: the policy, its encoder below new networks, or the policy
            and its encoder below the critics
        offline: learn from the stored transitions alone
        algorithm: ddpg or sac; with --offline cql or ddpg [default: the first of them]
        preset: fast, small networks for a laptop, or the paper's settings
        steps: environment steps, or updates with --offline [default: 20000, or 15000 updates]
    """
    path, *others = paths
    algorithm = algorithm or ("cql" if offline else "ddpg")
    if offline and (origin, transfer) != ("pretrained", "policy"):
        raise ConfigurationError("--offline starts from no policy: leave out --from and --transfer")
    if others and not offline:
        raise ConfigurationError("several runs are for --offline")
    options: dict[str, Any] = {"algorithm": algorithm, "preset": preset}
    options |= _options(making)
    goal, seed = words.task_of(path, task), f"seed{making.seed}"
    if offline:
        options |= {"updates": steps or 15_000, "source": ", ".join(map(str, paths))}
        folder = making.folder(path.name, goal.name, "offline", algorithm, seed)
        from rover.finetuning import train_offline
        from rover.solving.plans import Experience

        buffer = Experience.of(paths).world.buffer
        _learn(partial(train_offline, buffer, goal, **options), folder)
        return
    from rover.finetuning import finetune as learn
    from rover.policies import load_policy
    from rover.training.run_folder import POLICY_FILE, finished_file, run_env

    policy: Any = path if origin == "plan" else None
    if origin == "pretrained":
        policy = load_policy(finished_file(path, POLICY_FILE))
    if policy is not None:
        run_env(path)  # which is still the policy's
    kind = transfer if origin == "pretrained" else origin
    options |= {"total_timesteps": steps or 20_000, "transfer": transfer}
    options["source"] = None if policy is None else str(path)
    folder = making.folder(path.name, goal.name, algorithm, kind, seed)
    _learn(partial(learn, policy, goal, **options), folder)


def adapt(
    path: words.Run,
    /,
    *,
    task: words.TaskPairs = (),
    steps: words.Count = 2_000,
    making: words.Making = _MAKING,
) -> None:
    """Learn a task by interacting, with the model of a run.

    Where actions lead is known from the run's transitions. Until a reward is met
    the agent goes to what it has not visited in the task, by the shortest paths;
    then it plans for the rewards it has seen.

    examples:

        rover adapt runs/rover-MultiRooms-v0-default-seed0 --task goal=room5
        rover adapt runs/MountainCar-v0-default-seed0 --steps 1000

    Args:
        path: run folder of `rover pretrain`, of any agent
        steps: environment steps
    """
    goal = words.task_of(path, task)
    from rover.finetuning import adapt as learn

    options = {"total_timesteps": steps, **_options(making)}
    folder = making.folder(path.name, goal.name, "adapt", f"seed{making.seed}")
    _learn(partial(learn, path, goal, **options), folder)


def resume(
    path: words.Run,
    /,
    *,
    steps: words.Count | None = None,
    target: words.OwnFunction | None = None,
    log: words.Logs = (),
    progress: words.Progress = True,
) -> None:
    """Continue a run that was stopped.

    A run of `rover pretrain`, `finetune` or `adapt` continues from its last
    checkpoint to the number of steps it was started with. The result is the same
    as without an interruption.

    examples:

        rover resume runs/rover-Maze-v0-default-seed0
        rover resume runs/rover-Maze-v0-default-seed0 --steps 5000

    Args:
        path: run folder
        steps: steps, or updates, in all; more than the run was started with extend it [default:
            what it was started with]
        target: of `rover pretrain`: the function that the run was started with
    """
    from rover.storage import is_complete, read_json, read_run_config

    run_config = read_run_config(path)
    if run_config.kind != "pretrain" and target is not None:
        raise ConfigurationError(f"{path} is a run of {run_config.kind}: it takes no --target")
    watching: dict[str, Any] = {"log": log, "progress_bar": progress}
    made = read_json(path / "summary.json")["steps"] if is_complete(path) else math.inf
    if (steps or 0) <= made < math.inf:
        say(f"{path} is complete: {made:,} steps.")
    elif run_config.kind == "pretrain":
        from rover.baselines import resume_agent

        objects: dict[str, Any] = {} if target is None else {"target": target}
        agent = resume_agent(path, **objects)
        # It may have gone further than is asked for now; then it only writes its end.
        agent.total_timesteps = max(steps or run_config.total_timesteps, agent.num_timesteps)
        with _resumable(path):
            agent.finish(**watching)
        _show_agent(agent, run_config.env_id)
    else:
        from rover.finetuning import resume_task

        _learn(partial(resume_task, total_timesteps=steps, **watching), path)


def _rover(*arguments: object) -> str:
    """A command as it can be pasted into a shell, which reads blanks and brackets otherwise."""
    return shlex.join(["rover", *map(str, arguments)])


def _options(making: words.Making) -> dict[str, Any]:
    """Arguments of what learns a task."""
    watching = {"log": making.log, "progress_bar": making.progress}
    return {"seed": making.seed, **watching, **dict(making.settings)}


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Say how to go on where what learns inside a `with` block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"; continue with: {_rover('resume', folder)}") from None


def _show_agent(agent: Agent[Any], env_id: str | None) -> None:
    """Print the table of a run, and what can be done with it next."""
    assert agent.run_dir is not None
    summary = agent.summary()
    name = "" if agent.name == "rover" else f"{agent.name}, "
    title = f"{env_id}, {name}preset {agent.preset}, seed {agent.seed}"
    # Figures of random actions under the names of the run's own.
    random = {
        name.removeprefix("uniform_"): summary[name] for name in summary if "uniform_" in name
    }
    random |= {"mean_coverage": random["coverage"], "optimality_ratio": random["ratio"]}
    random |= {"steps": summary["compared_steps"], "states_total": summary["states_total"]}
    columns = {"run": summary, "random actions": random}
    say(figures_table(title, columns, _rows(agent, summary)))
    if summary["left_out"] is not None:
        say(f"left out:   {summary['left_out']}.")
    say(
        f"run folder: {agent.run_dir}",
        f"pictures:   {_rover('plot', agent.run_dir)}",
        f"details:    {_rover('evaluate', agent.run_dir)}",
    )


def _rows(agent: Agent[Any], summary: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows of the table of a run, as :func:`figures_table` takes them."""
    unit, episodes = summary["visited_unit"], agent.config.evaluation_episodes
    rows: list[tuple[str, ...]] = [("environment steps", "{steps:,}")]
    rows += [_SEEN.get(unit, _SEEN["observations"])]
    rows.append(("state-action pairs tried", "{pairs_tried:,.0f} of {pairs_known:,.0f}"))
    rows += [
        ("first arrival at a reward", "step {first_arrival:,}"),
        ("steps until every state was seen", "{steps_to_full_coverage:,}"),
        (f"steps until {episodes} episodes first covered 95%", "{steps_to_95_in_20_episodes:,}"),
        (f"policy: mean coverage of {episodes} episodes", "{mean_coverage:.1%}"),
        ("policy: probability of at least 95%", "{p_coverage_95:.1%}"),
        ("policy: J/J* (1 is best)", "{optimality_ratio:.4f}"),
        ("policy: cells of an evaluation", "{cells:,.0f} ± {cells_error:.0f}"),
        ("policy: sink mass (unknown part of the model)", "{sink_mass:.1%}"),
    ]
    if getattr(agent.config, "target", None) is not None:
        rows.append(("policy: J, its distance from the target", "{objective:.3g}"))
    return [*rows, ("seconds", "{wall_seconds:.1f}")]


def _learn(learn: Callable[..., TaskResult], folder: Path) -> None:
    """Learn a task in a run folder, and print the table of the run and where its files are."""
    from rover.storage import read_run_config

    with _resumable(folder):
        result = learn(run_dir=folder)
    config, summary, late = read_run_config(folder), result.summary, "not reached"
    title = f"{config.algorithm} from {config.agent or 'own policy'}, seed {config.seed}"
    unit = "environment steps"
    if config.kind == "offline":
        title = f"{config.algorithm} on {config.source}, seed {config.seed}"
        unit = "updates"
    rows: list[tuple[str, ...]] = [
        (unit, "{steps:,}"),
        ("greedy return at the end", "{greedy_return:.1f}"),
        ("greedy return of the policy that is kept", "{policy_return:.2f}"),
        (
            f"  95% interval by {summary['policy_episodes']} other episodes",
            "{policy_interval[0]:.2f} to {policy_interval[1]:.2f}",
        ),
        (f"{unit} after which it was kept", "{policy_step:,}"),
        ("best possible return", "{best_possible_return:.1f}"),
        (f"{unit} to the first success", "{steps_to_first_success:,}"),
        (f"{unit} to the best return", "{steps_to_best_return:,}", late),
        (f"{unit} until it stays there", "{steps_to_stay_at_best:,}", late),
        ("mean return over the curve", "{area_under_curve:.1f}"),
        ("seconds", "{wall_seconds:.1f}"),
    ]
    say(
        figures_table(title, {"result": summary}, rows),
        f"run folder: {folder}",
        f"policy:     {folder / 'policy.safetensors'}",
        f"curve:      {_rover('plot', folder)}",
    )
