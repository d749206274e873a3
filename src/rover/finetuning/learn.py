"""Learn a task, online or offline, and go on with a run that was stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from rover.data import Buffer
from rover.envs import Environment, GivenEnv, RewardFunction, known_id
from rover.envs.registration import versions_of, warn_of_versions
from rover.errors import ArtefactError, ConfigurationError, whole_number
from rover.features import learning_mode
from rover.finetuning.online import Finetuning
from rover.finetuning.run import OfflineTraining, TaskResult
from rover.finetuning.tasks import Task
from rover.policies import ContextPolicy, Policy, ValuePolicy, load_policy
from rover.storage import RunConfig, fitting, is_complete, read_json, read_run_config
from rover.training.agent import Agent
from rover.training.monitor import Log
from rover.training.run import Callback
from rover.training.run_folder import START_FILE, load_run_buffer, run_env
from rover.version import __version__


def finetune(
    policy: nn.Module | Agent[Any] | Buffer | str | Path | None,
    env: GivenEnv | Task,
    *,
    total_timesteps: int = 20_000,
    algorithm: str = "ddpg",
    preset: str = "fast",
    transfer: str = "policy",
    freeze_encoder: bool | None = None,
    source: str | None = None,
    **options: Any,
) -> TaskResult:
    """Learn the task that `env` rewards.

    The best policy of all that were evaluated is returned, the earliest of several; the one that
    learning started from only if it is better than all that were learned.

    Args:
        policy: from :func:`rover.load_policy` or an agent's ``policy``; or any torch module from
            observations (n, *shape) to logits (n, A); None: from scratch. An agent, a run folder or
            a buffer: what :func:`rover.solve` plans there for the task's reward, if it was met.
        env: the task: a Gymnasium environment with its reward, by its id, by a function that makes
            it, or an instance, which is evaluated in itself.
        total_timesteps: environment steps at most, > 0; where the best possible return is known,
            learning stops after ``stop_after`` evaluations in a row with it.
        algorithm: ``"ddpg"`` or ``"sac"``.
        preset: ``"fast"``, small networks for a laptop, or ``"paper"``.
        transfer: what actor and critics begin with: ``"policy"``, ``"encoder"`` or ``"both"``.
        freeze_encoder: leave the encoder as it is; None: if it is a ROVER policy's.
        source: where the policy came from, which the run's files will say.
        options: ``seed=0``, which everything random follows from; ``run_dir``, a new folder for the
            run's files, or None; ``progress_bar``, ``log`` and ``callback`` as of
            :meth:`rover.Rover.learn`; and settings of :class:`rover.finetuning.FinetuneConfig`.

    Raises:
        ConfigurationError: a policy for other observations or actions, or wrong settings.
        NonFiniteError: a reward, loss or gradient that is not finite.
        StorageError: the run folder cannot be written.

    Warns:
        RoverWarning: no reward was seen.
    """
    environment = env.opened() if isinstance(env, Task) else Environment.of(env)
    if not isinstance(policy, nn.Module | None):
        policy = _planned(policy, environment)
    # A module of the user's own does not say which agent made it.
    agent = policy.details.get("agent") if isinstance(policy, Policy) else None
    entries = {
        "kind": "finetune",
        "algorithm": algorithm,
        "preset": preset,
        "agent": "scratch" if policy is None else agent,
        "source": source,
        "transfer": None if policy is None else transfer,
        "freeze_encoder": freeze_encoder,
        "total_timesteps": whole_number("total_timesteps", total_timesteps),
    }
    return _learn(Finetuning, policy, environment, entries, **options)


def _planned(source: Agent[Any] | Buffer | str | Path, environment: Environment) -> Policy:
    """The plan for the reward of a task on stored transitions; the policy that made them where they
    do not show the reward, or the plan cannot learn."""
    from rover.solving import solve
    from rover.solving.plans import Experience

    start = Experience.of(source).policy
    try:
        plan = solve(source, environment.env)
        if isinstance(plan, ValuePolicy):
            plan.trainable()
    except ConfigurationError:
        if start is None:
            raise
        return start
    return plan


def train_offline(
    buffer: Buffer,
    env: GivenEnv | Task,
    *,
    reward: RewardFunction | None = None,
    updates: int = 15_000,
    algorithm: str = "cql",
    preset: str = "fast",
    source: str | None = None,
    **options: Any,
) -> TaskResult:
    """Learn a task from a fixed buffer.

    The best policy of all that were evaluated is returned: greedy in the values (CQL), or the actor
    (DDPG).

    Args:
        buffer: transitions, collected without a reward; :meth:`rover.data.Buffer.merged` joins
            several runs.
        env: the task, for evaluations only.
        reward: labels the transitions; None: the reward of `env`, which must be a grid world.
        updates: gradient steps, > 0.
        algorithm: ``"cql"`` or ``"ddpg"``.
        preset, source, options: as of :func:`finetune`, with settings of
            :class:`rover.finetuning.OfflineConfig`.

    Raises:
        ConfigurationError: an empty buffer, one of other observations or actions than the task's,
            or wrong settings.
        NonFiniteError: a reward, loss or gradient that is not finite.

    Warns:
        RoverWarning: the transitions show no reward.
    """
    entries = {
        "kind": "offline",
        "algorithm": algorithm,
        "preset": preset,
        "agent": None,
        "source": source,
        "total_timesteps": whole_number("updates", updates),
    }
    return _learn(OfflineTraining, (buffer, reward), env, entries, **options)


def adapt(
    source: Agent[Any] | Buffer | str | Path,
    env: GivenEnv | Task,
    *,
    total_timesteps: int = 2_000,
    **options: Any,
) -> TaskResult:
    """Learn the task that `env` rewards with the model that pretraining left.

    Until a reward is met the agent goes to what it has not visited in the task, by the shortest
    ways that the model knows; then it plans for the rewards it has seen, on a model that takes in
    every further step. In a procedurally generated environment it follows pretraining's policy, and
    between episodes plans for the rewards it has seen. The best policy of all that were evaluated
    is returned, as of :func:`finetune`.

    Args:
        source: an agent, a run folder of `rover pretrain`, or a buffer, of any agent; or a list of
            several of one environment.
        env: the task, as of :func:`finetune`.
        total_timesteps: environment steps, > 0.
        options: as of :func:`finetune`, with settings of :class:`rover.finetuning.AdaptConfig`.

    Raises:
        ConfigurationError: transitions of other observations or actions, or wrong settings; in
            procedurally generated environments, a reward below 0.
        NonFiniteError: a reward that is not finite.

    Warns:
        RoverWarning: no reward was seen.
    """
    from rover.finetuning.adaptation import Adaptation, ContextAdaptation
    from rover.solving.plans import Experience

    experience = Experience.of(source)
    policy = experience.policy
    in_contexts = isinstance(policy, ContextPolicy)
    entries = {
        "kind": "adapt",
        "algorithm": "contexts" if in_contexts else "plan",
        "preset": "fast",
        "agent": None if policy is None else policy.details.get("agent"),
        "source": str(source) if isinstance(source, str | Path) else None,
        "total_timesteps": whole_number("total_timesteps", total_timesteps),
    }
    run_class, start = (ContextAdaptation, policy) if in_contexts else (Adaptation, experience)
    return _learn(run_class, start, env, entries, **options)


@learning_mode()
def _learn(
    run_class: Any,
    start: Any,
    env: GivenEnv | Task,
    entries: Mapping[str, Any],
    *,
    seed: int = 0,
    run_dir: str | Path | None = None,
    progress_bar: bool = False,
    log: Sequence[Log] = (),
    callback: Callback | None = None,
    **overrides: Any,
) -> TaskResult:
    """Make a run that begins with `start`, and finish it; `entries` are of its config.json."""
    environment = env.opened() if isinstance(env, Task) else Environment.of(env)
    run_config = RunConfig(
        version=__version__,
        settings=overrides,
        task=None if run_dir is None else _task_of(environment),
        seed=whole_number("seed", seed, least=0),
        versions=versions_of(environment.env),
        **entries,
    )
    run = run_class(run_config, start, environment, None if run_dir is None else Path(run_dir))
    result: TaskResult = run.learn(progress_bar=progress_bar, log=log, callback=callback)
    return result


@learning_mode()
def resume_task(
    run_dir: str | Path,
    *,
    total_timesteps: int | None = None,
    env: GivenEnv | Task | None = None,
    start: nn.Module | Buffer | None = None,
    reward: RewardFunction | None = None,
    **watched: Any,
) -> TaskResult:
    """Continue a run that was stopped, in the same bits as one that was not, or make it longer.

    Args:
        run_dir: the folder of a run of :func:`finetune`, :func:`adapt` or :func:`train_offline`.
        total_timesteps: steps, or updates, in all; None: what the run was begun with.
        env: the task; None: made from what is stored there.
        start: what the run began with, a module or transitions; None: read from its files.
        reward: the reward function of your own that an offline run was given.
        watched: ``progress_bar``, ``log`` and ``callback`` as of :func:`finetune`.

    Raises:
        ArtefactError: no such run there, or a file of it is damaged.
        ConfigurationError: the run is complete; its environment or start cannot be made again and
            is not given, or another one is.
        ReplayMismatchError: the environment does not repeat itself.
        StorageError: the run folder cannot be written.
    """
    path, run_config = Path(run_dir), read_run_config(run_dir)
    if run_config.kind == "pretrain":
        raise ArtefactError(f"{path} holds a run of `rover pretrain`, which learned no task")
    total = whole_number("total_timesteps", total_timesteps or run_config.total_timesteps)
    if is_complete(path) and total <= int(read_json(path / "summary.json")["steps"]):
        raise ConfigurationError(
            f"{path} is complete: there is nothing to continue; for more steps give total_timesteps"
        )
    if env is None:
        if run_config.task is None:
            raise _not_stored("its environment", path, "env")
        env_id = known_id(str(run_config.task.get("env_id")))
        with fitting(f"{path / 'config.json'} holds no task; restore it from a copy"):
            env = Task.model_validate({**run_config.task, "env_id": env_id})
    environment = env.opened() if isinstance(env, Task) else Environment.of(env)
    if _task_of(environment) != run_config.task:
        raise ConfigurationError(f"the environment given is not {path}'s: {run_config.task}")
    begun: Any = _stored_start(path, run_config) if start is None else start
    run_class: Any = Finetuning
    if run_config.kind == "offline":
        run_class, begun = OfflineTraining, (begun, reward)
    elif run_config.kind == "adapt":
        from rover.finetuning.adaptation import Adaptation, ContextAdaptation
        from rover.solving.plans import Experience

        run_class = ContextAdaptation
        if run_config.algorithm == "plan":
            run_class, begun = Adaptation, Experience.of(begun)
    run = run_class(run_config, begun, environment, path)
    warn_of_versions(run_config.versions, environment.env)
    run.restore()
    run.total_timesteps = max(total, run.num_timesteps)
    result: TaskResult = run.learn(**watched)
    return result


def _stored_start(path: Path, run_config: RunConfig) -> nn.Module | Buffer | str | None:
    """The start of the run in folder `path`: a policy, transitions, or the folder of these."""
    if (path / START_FILE).exists():
        return load_policy(path / START_FILE)
    if run_config.kind == "finetune":
        if run_config.transfer is None:
            return None
    elif Path(source := str(run_config.source)).exists():
        if run_config.kind == "offline" and Path(source).is_dir():
            run_env(source)  # whose rewards label the transitions
        return load_run_buffer(source) if run_config.kind == "offline" else source
    raise _not_stored("what it began with", path, "start")


def _not_stored(what: str, folder: Path, argument: str) -> ConfigurationError:
    """The error of a run that cannot be continued without an argument."""
    return ConfigurationError(
        f"nothing makes {what} again from the files of {folder}: continue in Python with "
        f"rover.resume_task(run_dir, {argument}=...)"
    )


def _task_of(environment: Environment) -> dict[str, Any] | None:
    task = Task.of(environment)
    return None if task is None else task.model_dump(mode="json")
