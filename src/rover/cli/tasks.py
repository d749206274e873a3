"""``rover finetune`` and ``adapt``: tasks on what pretraining left; and ``rover resume``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from rover.cli import words
from rover.cli.evaluating import read_policy
from rover.cli.runs import resumable
from rover.cli.tables import figures_table, say, shell
from rover.errors import ConfigurationError, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from rover.finetuning import Task, TaskResult
    from rover.policies import Policy

_RESUMED_WITH = {
    "steps": ("pretrain",),
    "data": ("adapt", "offline"),
    "reward": ("offline",),
    "target": ("pretrain",),
}
"""Kinds of runs that an argument of ``rover resume`` is for."""

_COMMANDS = {"offline": "rover finetune --offline"}
"""What makes a run of a kind, where it is not the command of that name."""


def finetune(
    *starts: Annotated[Path, Parameter(name="RUN|POLICY|ENV", required=True)],
    task: words.TaskWords = (),
    origin: Annotated[Literal["pretrained", "scratch"], Parameter(name="--from")] = "pretrained",
    transfer: Literal["policy", "encoder", "both"] = "policy",
    freeze: Annotated[
        tuple[Literal["policy", "encoder", "nothing"], ...], Parameter(show_default=False)
    ] = (),
    offline: words.Flag = False,
    reward: words.OwnFunction | None = None,
    algorithm: Literal["ddpg", "sac", "cql"] | None = None,
    preset: Literal["fast", "paper"] = "fast",
    steps: words.Count | None = None,
    observation: words.Observation | None = None,
    env: words.Env = (),
    making: words.Making = words.MAKING,
) -> None:
    """Learn a task from a pretrained policy, or from stored data.

    RUN is a run folder of `rover pretrain`, of any agent, or its
    policy.safetensors. With --from scratch it may also be the Gymnasium id of an
    environment. The reward is seen only by interacting: nothing that
    pretraining stored is looked at.

    A transferred policy acts unchanged while the critics learn what it earns
    (the warm-up); then it learns. Of an agent with skills, or of a mixture, each
    episode of the warm-up follows one of its policies, and the one with the best
    returns learns.

    With --offline not a further step is made: stored transitions, of one run or
    of several of one environment, are labelled with the task's reward. What the
    data does not show cannot be learned, so this measures the data, where
    learning without --offline measures the policy.

    examples:

        rover finetune runs/rover-MultiRooms-v0-default-seed0 --task goal=room5
        rover finetune runs/rooms --task goal=room5 --from scratch
        rover finetune runs/rooms --task goal=4,4 --algorithm sac
        rover finetune runs/pixels --task goal=room2 --task reward=dense --transfer both
        rover finetune FrozenLake-v1 --env is_slippery=false --from scratch
        rover finetune runs/rooms --offline --task goal=room5
        rover finetune runs/maze-seed0 runs/maze-seed1 --offline --task goal=4,4
        rover finetune runs/MountainCar-v0 --offline --reward my_rewards:at_the_flag

    Args:
        starts: pretrained run, its policy, or an environment's id; with --offline one run or more
        origin: what learning starts from
        transfer: what is taken over: the policy, its encoder below new networks, or the policy
            and its encoder below the critics
        freeze: what never learns; may be repeated [default: the encoder of a ROVER policy, nothing
            of any other]
        offline: learn from the stored transitions alone
        reward: with --offline, function of yours, reward(observations, actions, next_observations)
            -> (rewards, terminated), that labels the transitions where no task of rover's does
        algorithm: learner: ddpg or sac; with --offline cql or ddpg [default: the first of them]
        preset: fast, small networks for a laptop, or the paper's settings
        steps: environment steps, or updates with --offline [default: 20000, or 15000 updates]
    """
    algorithm = algorithm or ("cql" if offline else "ddpg")
    if algorithm == ("sac" if offline else "cql"):
        raise ConfigurationError("--algorithm is ddpg or sac, and with --offline cql or ddpg")
    learner = f"offline-{algorithm}" if offline else algorithm
    learning = {"algorithm": algorithm, "preset": preset, **making.options(learner)}
    if offline:
        if origin == "scratch" or transfer != "policy" or freeze or env or observation:
            raise ConfigurationError(
                "--offline learns from the transitions of runs: leave out --from, --transfer, "
                "--freeze, --env and --observation"
            )
        _learn_offline(starts, task, reward, steps or 15_000, making, learning)
        return
    if len(starts) > 1 or reward is not None:
        raise ConfigurationError("several runs, and --reward, are for --offline")
    policy, stem, goal = _start(str(starts[0]), origin, task, env, observation)
    kind = "scratch" if policy is None else transfer
    from rover.finetuning import finetune as learn

    learning |= {
        "total_timesteps": steps or 20_000,
        "transfer": transfer,
        # The word for an empty list, which a command line cannot give.
        "freeze": [part for part in freeze if part != "nothing"] if freeze else None,
        "source": None if policy is None else str(starts[0]),
    }
    _learn(
        partial(learn, policy, goal, **learning),
        making.folder(stem, goal.name, algorithm, kind),
        f"{goal.env_id}, {goal.name}, {algorithm} from {kind}, seed {making.seed}",
    )


def _start(
    start: str,
    origin: str,
    task: tuple[str, ...],
    env: tuple[str, ...],
    observation: str | None,
) -> tuple[Policy | None, str, Task]:
    """The policy that learning starts from, a name for it, and the task."""
    path, is_scratch = Path(start), origin == "scratch"
    # A path that exists is a run or a policy, whatever environment has that id.
    if path.exists():
        if env or observation:
            raise ConfigurationError(
                "--env and --observation are of an environment given by its id; a run has its own"
            )
        from rover.envs import known_id

        stored = read_policy(path)
        # known_id refuses "module:Name-v0": no file can have code imported.
        env_id, env_kwargs = known_id(stored.details["env_id"]), dict(stored.details["env_kwargs"])
        stem = (path if path.is_dir() else path.resolve().parent).name
        # From scratch a run lends its environment alone, so that both starts face one task.
        return None if is_scratch else stored, stem, words.read_task(task, env_id, env_kwargs)
    if not is_scratch:
        raise ConfigurationError(
            f"{shorten(start)} does not exist; give the run folder of `rover pretrain`, or learn "
            "from scratch with --from scratch"
        )
    return None, start, words.read_task(task, start, words.read_env_kwargs(start, env, observation))


def _learn_offline(
    runs: tuple[Path, ...],
    task: tuple[str, ...],
    reward: Any,
    updates: int,
    making: words.Making,
    learning: dict[str, Any],
) -> None:
    """Learn a task from the transitions that runs stored."""
    from rover.finetuning import train_offline
    from rover.solving.experience import Experience
    from rover.training.run_folder import load_run_buffer

    path, *others = runs
    goal = words.read_task_of(path, task)
    buffer = Experience.of(runs).buffer if others else load_run_buffer(path)
    name = f"{path.name}-and-{len(others)}-more" if others else path.name
    algorithm, source = learning["algorithm"], ", ".join(map(str, runs))
    learning |= {"reward": reward, "updates": updates, "source": source}
    _learn(
        partial(train_offline, buffer, goal, **learning),
        making.folder(name, goal.name, "offline", algorithm),
        f"{goal.env_id}, {goal.name}, {algorithm} on {name}, seed {making.seed}",
        unit="update",
    )


def adapt(
    path: words.Run,
    /,
    *,
    task: words.TaskWords = (),
    steps: words.Count = 2_000,
    making: words.Making = words.MAKING,
) -> None:
    """Learn a task by interacting, with the model of a run.

    The reward is seen only by interacting, as in `rover finetune`; where actions
    lead is known from the run's transitions. Until a reward is met the agent
    goes to what it has not visited in the task, by the shortest paths; then it
    plans for the rewards it has seen.

    examples:

        rover adapt runs/rover-MultiRooms-v0-default-seed0 --task goal=room5
        rover adapt runs/MountainCar-v0-default-seed0 --steps 1000

    Args:
        path: run folder of `rover pretrain`, of any agent
        steps: environment steps
    """
    goal = words.read_task_of(path, task)
    from rover.finetuning import adapt as learn

    _learn(
        partial(learn, path, goal, total_timesteps=steps, **making.options("adapt")),
        making.folder(path.name, goal.name, "adapt"),
        f"{goal.env_id}, {goal.name}, adapted from {path.name}, seed {making.seed}",
    )


def _learn(
    learn: Callable[..., TaskResult], folder: Path, title: str, *, unit: str = "step"
) -> None:
    """Learn a task in a run folder, and show the result."""
    with resumable(folder):
        result = learn(run_dir=folder)
    _show_result(result, folder, title, unit=unit)


def resume(
    path: words.Run,
    /,
    *,
    steps: words.Count | None = None,
    data: Annotated[words.Run | None, Parameter(name="--data", required=False)] = None,
    reward: words.OwnFunction | None = None,
    target: words.OwnFunction | None = None,
    watching: words.Watching = words.WATCHING,
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
        steps: of `rover pretrain`: steps in all; more than the run was started with extend it, and
            the result equals a run's started with N [default: what it was started with]
        data: of `rover adapt` and `rover finetune --offline`: the run whose transitions are used,
            if it was moved
        reward: of `rover finetune --offline`: the function that the run was started with
        target: of `rover pretrain`: the function that the run was started with
    """
    from rover.storage import is_complete, read_run_config
    from rover.training.run_folder import load_run_buffer

    run_config = read_run_config(path)
    # An argument that this kind of run would not look at is a misunderstanding.
    given = {"steps": steps, "data": data, "reward": reward, "target": target}
    for name, kinds in _RESUMED_WITH.items():
        if given[name] is not None and run_config.kind not in kinds:
            takers = " and ".join(f"`{_COMMANDS.get(kind, f'rover {kind}')}`" for kind in kinds)
            raise ConfigurationError(f"{path} takes no --{name}: only runs of {takers} do")
    unit = "update" if run_config.kind == "offline" else "step"
    if is_complete(path) and (steps or 0) <= run_config.total_timesteps:
        twice = shell("rover", "resume", path, "--steps", str(2 * run_config.total_timesteps))
        advice = f" To extend it: {twice}" if run_config.kind == "pretrain" else ""
        say(f"{path} is complete: {run_config.total_timesteps:,} {unit}s.{advice}")
    elif run_config.kind == "pretrain":
        from rover.baselines import resume_agent
        from rover.cli.pretraining import show_agent

        objects: dict[str, Any] = {} if target is None else {"target": target}
        agent = resume_agent(path, **objects)
        # It may have gone further than is asked for now; then it only writes its end.
        agent.total_timesteps = max(steps or run_config.total_timesteps, agent.num_timesteps)
        with resumable(path):
            agent.finish(**watching.arguments())
        show_agent(agent, run_config.env_id)
    else:
        from rover.finetuning import resume_task

        buffer = None if data is None else load_run_buffer(data)
        with resumable(path):
            result = resume_task(path, buffer=buffer, reward=reward, **watching.arguments())
        agent_name = run_config.agent or "own policy"
        origin = run_config.source if run_config.kind == "offline" else agent_name
        title = f"{run_config.algorithm} from {origin}, seed {run_config.seed}"
        _show_result(result, path, title, unit=unit)


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
