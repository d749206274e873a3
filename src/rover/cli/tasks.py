"""``rover finetune``, ``offline``, ``adapt`` and ``export``: tasks on what pretraining left.

Also ``resume``, which continues runs of all kinds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel

from rover.baselines import resume_agent
from rover.cli.commands import command, read_env_kwargs, read_task, read_task_of
from rover.cli.evaluating import read_policy
from rover.cli.pretraining import show_agent
from rover.cli.runs import Watching, free_folder, watched
from rover.cli.tables import figures_table, say, shell
from rover.envs import RewardFunction, known_id
from rover.errors import ConfigurationError, shorten

if TYPE_CHECKING:
    import gymnasium as gym

    from rover.finetuning import TaskResult

_RESUMED_WITH = {
    "steps": ("pretrain",),
    "data": ("adapt", "offline"),
    "reward": ("offline",),
    "target": ("pretrain",),
}
"""Kinds of runs that an argument of ``rover resume`` is for."""


class _Learning(NamedTuple):
    """Flags of every command that learns a task."""

    task: list[str]
    settings: dict[str, Any]
    seed: int = 0
    run_dir: Path | None = None
    watching: Watching = Watching()


def _presets(options: argparse.Namespace) -> dict[str, BaseModel]:
    from rover.finetuning import AdaptConfig, FinetuneConfig, OfflineConfig

    if options.command == "adapt":
        return {"fast": AdaptConfig.make("plan", "fast")}
    config = FinetuneConfig if options.command == "finetune" else OfflineConfig
    # The chosen preset first: its settings are those that --set is checked against.
    presets = dict.fromkeys([options.preset, "fast", "paper"])
    return {preset: config.make(options.algorithm, preset) for preset in presets}


@command(_presets)
def _finetune(
    start: Path,
    *,
    learning: _Learning,
    origin: Literal["pretrained", "scratch"] = "pretrained",
    transfer: Literal["policy", "encoder", "both"] = "policy",
    freeze: list[Literal["policy", "encoder", "nothing"]] | None = None,
    algorithm: Literal["ddpg", "sac"] = "ddpg",
    preset: Literal["fast", "paper"] = "fast",
    steps: int = 20_000,
    observation: str | None = None,
    env: list[str],
) -> None:
    """Learn a task from a pretrained policy, or from scratch.

    RUN is a run folder of `rover pretrain`, of any agent, or its policy.safetensors. With
    --from scratch it may also be the Gymnasium id of an environment. The reward is seen only by
    interacting: nothing that pretraining stored is looked at.

    A transferred policy acts unchanged while the critics learn what it earns (the warm-up); then it
    learns. Of an agent with skills, or of a mixture, each episode of the warm-up follows one of its
    policies, and the one with the best returns learns.

    Args:
        start (RUN|POLICY|ENV): pretrained run, its policy, or an environment's id
        origin: what learning starts from
        transfer: what is taken over: the policy, its encoder below new networks, or the policy
            and its encoder below the critics
        freeze: what never learns; may be repeated [default: the encoder of a ROVER policy, nothing
            of any other]
        algorithm: learner
        preset: 'fast', small networks for a laptop, or the paper's settings
        steps: environment steps

    Examples:
        rover finetune runs/rover-MultiRooms-v0-default-seed0 --task goal=room5
        rover finetune runs/rover-MultiRooms-v0-default-seed0 --task goal=room5 --from scratch
        rover finetune runs/rover-Maze-v0-rnd-fast-seed0 --task goal=4,4 --algorithm sac
        rover finetune runs/pixels --task goal=room2 --task reward=dense --transfer both
        rover finetune FrozenLake-v1 --env is_slippery=false --from scratch --steps 20000
    """
    is_scratch, env_id = origin == "scratch", str(start)
    # A path that exists is a run or a policy, whatever environment has that id.
    if start.exists():
        if env or observation:
            raise ConfigurationError(
                "--env and --observation are of an environment given by its id; a run has its own"
            )
        stored = read_policy(start)
        # known_id refuses "module:Name-v0": no file can have code imported.
        env_id, env_kwargs = known_id(stored.details["env_id"]), dict(stored.details["env_kwargs"])
        # From scratch a run lends its environment alone, so that both starts face one task.
        policy = None if is_scratch else stored
        stem = (start if start.is_dir() else start.resolve().parent).name
    elif is_scratch:
        policy, stem = None, env_id
        env_kwargs = read_env_kwargs(env_id, env, observation)
    else:
        raise ConfigurationError(
            f"{shorten(env_id)} does not exist; give the run folder of `rover pretrain`, or learn "
            "from scratch with --from scratch"
        )
    goal = read_task(learning.task, env_id, env_kwargs)
    kind = "scratch" if policy is None else transfer
    from rover.finetuning import finetune

    _learn(
        partial(finetune, policy, goal.make_env()),
        learning,
        (stem, goal.name, algorithm, kind),
        f"{env_id}, {goal.name}, {algorithm} from {kind}",
        total_timesteps=steps,
        algorithm=algorithm,
        preset=preset,
        transfer=transfer,
        # The word for an empty list, which a command line cannot give.
        freeze=None if freeze is None else [part for part in freeze if part != "nothing"],
        source=None if policy is None else str(start),
    )


@command(_presets)
def _offline(
    paths: tuple[Path, ...],
    *,
    learning: _Learning,
    algorithm: Literal["cql", "ddpg"] = "cql",
    preset: Literal["fast", "paper"] = "fast",
    updates: int = 15_000,
    reward: RewardFunction | None = None,
) -> None:
    """Learn a task from the data that pretraining stored.

    Not a further step is made. Here, and only here, stored transitions are labelled with the task's
    reward. What the data does not show cannot be learned, so this measures the data, where
    `rover finetune` measures the policy.

    Args:
        paths (RUN): run folder of `rover pretrain`; several of one environment are learned from
            together
        algorithm: learner
        preset: 'fast', small networks for a laptop, or the paper's settings
        updates: gradient steps

    Examples:
        rover offline runs/rover-MultiRooms-v0-default-seed0 --task goal=room5
        rover offline runs/rover-MultiRooms-v0-cic-fast-seed0 --task goal=room2 --algorithm ddpg
        rover offline runs/maze-seed0 runs/maze-seed1 --task goal=4,4
        rover offline runs/MountainCar-v0-default-seed0 --reward my_rewards:at_the_flag
    """
    from rover.finetuning import train_offline
    from rover.solving.experience import Experience
    from rover.training.run_folder import load_run_buffer

    path, *others = paths
    goal = read_task_of(path, learning.task)
    buffer = Experience.of(paths).buffer if others else load_run_buffer(path)
    name = f"{path.name}-and-{len(others)}-more" if others else path.name
    _learn(
        partial(train_offline, buffer, goal.make_env()),
        learning,
        (name, goal.name, "offline", algorithm),
        f"{goal.env_id}, {goal.name}, {algorithm} on {name}",
        unit="update",
        reward=reward,
        updates=updates,
        algorithm=algorithm,
        preset=preset,
        source=", ".join(map(str, paths)),
    )


@command(_presets)
def _adapt(
    path: Path,
    *,
    learning: _Learning,
    steps: int = 2_000,
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

    goal = read_task_of(path, learning.task)
    _learn(
        partial(adapt, path, goal.make_env()),
        learning,
        (path.name, goal.name, "adapt"),
        f"{goal.env_id}, {goal.name}, adapted from {path.name}",
        total_timesteps=steps,
    )


def _learn(
    learner: Callable[..., TaskResult],
    learning: _Learning,
    words: Sequence[str],
    title: str,
    *,
    unit: str = "step",
    **arguments: Any,
) -> None:
    """Learn a task in a run folder, by default one named after `words`, and show the result."""
    seed = learning.seed
    folder = learning.run_dir or free_folder(*words, f"seed{seed}")
    with watched(folder, learning.watching, unit=unit) as options:
        result = learner(seed=seed, run_dir=folder, **options, **arguments, **learning.settings)
    _show_result(result, folder, f"{title}, seed {seed}", unit=unit)


@command()
def _resume(
    path: Path,
    *,
    steps: int | None = None,
    data: Path | None = None,
    reward: RewardFunction | None = None,
    target: Callable[..., Any] | None = None,
    watching: Watching,
) -> None:
    """Continue a run that was stopped.

    A run of `rover pretrain`, `finetune`, `adapt` or `offline` continues from its last checkpoint
    to the number of steps it was started with. The result is the same as without an interruption.

    Args:
        path (RUN): run folder
        steps: of `rover pretrain`: steps in all; more than the run was started with extend it, and
            the result equals a run's started with N [default: what it was started with]
        data (RUN): of `rover adapt` and `rover offline`: the run whose transitions are used, if it
            was moved

    Examples:
        rover resume runs/rover-Maze-v0-default-seed0
        rover resume runs/rover-Maze-v0-default-seed0 --steps 5000
    """
    from rover.storage import is_complete, read_run_config
    from rover.training.run_folder import load_run_buffer, remove_leftovers

    run_config = read_run_config(path)
    # An argument that this kind of run would not look at is a misunderstanding.
    given = {"steps": steps, "data": data, "reward": reward, "target": target}
    for name, kinds in _RESUMED_WITH.items():
        if given[name] is not None and run_config.kind not in kinds:
            takers = " and ".join(f"`rover {kind}`" for kind in kinds)
            raise ConfigurationError(f"{path} takes no --{name}: only runs of {takers} do")
    unit = "update" if run_config.kind == "offline" else "step"
    if is_complete(path) and (steps or 0) <= run_config.total_timesteps:
        remove_leftovers(path)  # a kill may have come right after the end
        twice = shell("rover", "resume", path, "--steps", str(2 * run_config.total_timesteps))
        advice = f" To extend it: {twice}" if run_config.kind == "pretrain" else ""
        say(f"{path} is complete: {run_config.total_timesteps:,} {unit}s.{advice}")
    elif run_config.kind == "pretrain":
        objects: dict[str, Any] = {} if target is None else {"target": target}
        agent = resume_agent(path, **objects)
        # It may have gone further than is asked for now; then it only writes its end.
        agent.total_timesteps = max(steps or run_config.total_timesteps, agent.num_timesteps)
        with watched(path, watching) as options:
            agent.finish(**options)
        show_agent(agent, run_config.env_id)
    else:
        from rover.finetuning import resume_task

        buffer = None if data is None else load_run_buffer(data)
        with watched(path, watching, unit=unit) as options:
            result = resume_task(path, buffer=buffer, reward=reward, **options)
        agent_name = run_config.agent or "own policy"
        origin = run_config.source if run_config.kind == "offline" else agent_name
        title = f"{run_config.algorithm} from {origin}, seed {run_config.seed}"
        _show_result(result, path, title, unit=unit)


@command()
def _export(
    path: Path,
    dataset_id: str,
    *,
    task: list[str],
    reward: RewardFunction | None = None,
    author: str | None = None,
) -> None:
    """Write a run's transitions as a Minari data set.

    It is for offline learning in any library: observations without loss, an episode for each
    episode. Every reward is 0, unless --task or --reward labels the transitions; an episode then
    ends where the task ends.

    DATASET_ID is "name-v0" or "namespace/name-v0". Data sets lie in ~/.minari/datasets, or where
    the environment variable MINARI_DATASETS_PATH says; one that exists is never overwritten.

    needs: pip install '.[minari]'

    Args:
        path (RUN): run folder
        dataset_id (DATASET_ID): such as rover/maze-v0
        author: author of the data set

    Examples:
        rover export runs/rover-Maze-v0-default-seed0 rover/maze-v0
        rover export runs/rover-Maze-v0-default-seed0 maze-v1 --author "Ada Lovelace"
        rover export runs/rover-Maze-v0-default-seed0 rover/maze-marked-v0 --task goal=marked
    """
    from rover.integrations.minari import export_minari

    # A data set without either has rewards of 0, for offline learners that label it themselves.
    goal: gym.Env[Any, Any] | RewardFunction | None = reward
    if task and reward is not None:
        raise ConfigurationError("--task and --reward contradict each other: give one")
    if task:
        goal = read_task_of(path, task).make_env()
    dataset = export_minari(path, dataset_id, task=goal, author=author)
    steps, episodes = dataset.total_steps, dataset.total_episodes
    say(
        f"{dataset.id}: {steps:,} transitions in {episodes:,} episodes",
        f"files:     {dataset.storage.data_path}",
        f"in Python: minari.load_dataset({dataset.id!r})",
    )


def _show_result(result: TaskResult, folder: Path, title: str, *, unit: str) -> None:
    """Print the table of a run that learned a task, and where its files are."""
    late, summary = "not reached", result.summary
    unit = "updates" if unit == "update" else "environment steps"
    rows: list[tuple[str, ...]] = [
        (unit, "{steps:,}"),
        ("greedy return at the end", "{greedy_return:.1f}"),
        ("greedy return of the policy that is kept", "{policy_return:.1f}"),
        (f"{unit} after which it was kept", "{policy_step:,}"),
        ("best possible return", "{best_possible_return:.1f}"),
    ]
    if unit != "updates":  # a success is an episode's, and offline there are none
        rows.append((f"{unit} to the first success", "{steps_to_first_success:,}", late))
    of_run = " of this run" if summary["best_return_kind"] == "reached" else ""
    rows += [
        (f"{unit} to the best return{of_run}", "{steps_to_best_return:,}", late),
        (f"{unit} until it stays there", "{steps_to_stay_at_best:,}", late),
        ("mean return over the curve", "{area_under_curve:.1f}"),
        ("decisions at unseen observations", "{unseen_share:.1%}"),
        ("seconds", "{wall_seconds:.1f}"),
    ]
    say(
        figures_table(title, {"result": summary}, rows),
        f"run folder: {folder}",
        f"policy:     {folder / 'policy.safetensors'}",
        f"curve:      {shell('rover', 'plot', folder)}",
    )
