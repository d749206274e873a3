"""Fine-tuning: learn a task by interacting, from a pretrained policy or from scratch.

The reward is seen only by interacting: nothing that pretraining stored is looked at. A transferred
policy first acts unchanged while the critics learn what it earns (the warm-up), for a number of
steps and until returns differ; then it learns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
from torch import nn

from rover.errors import ArtefactError, ConfigurationError, RoverError
from rover.finetuning.components import ComponentActor
from rover.finetuning.config import make_finetune_config
from rover.finetuning.finetuning import Finetuning
from rover.finetuning.run_folder import (
    START_FILE,
    TransferConfig,
    TransferFolder,
    carry_out,
    finish,
    read_transfer_config,
)
from rover.finetuning.starting import make_start
from rover.finetuning.tasks import Task, task_of
from rover.finetuning.watching import Callback, watched
from rover.learners import PolicyNetwork
from rover.policies.coverage import CoveragePolicy, Policy
from rover.policies.loading import load_policy
from rover.policies.network import NetworkPolicy
from rover.version import __version__


@dataclass(frozen=True)
class Finetuned:
    """What fine-tuning leaves.

    Attributes:
        actor: the module that learned, in evaluation mode: observations (n, *shape) to logits
            (n, A).
        policy: the same as a policy that can be saved; None for a module of the user's own.
        curve: one record per evaluation.
        summary: steps to the first success and to the best return, the area under the curve.
    """

    actor: nn.Module
    policy: Policy | None
    curve: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any]


def finetune(
    policy: Policy | nn.Module | None,
    env: gym.Env[Any, Any],
    *,
    total_timesteps: int = 50_000,
    algorithm: str = "ddpg",
    preset: str = "fast",
    transfer: str = "policy",
    freeze: Collection[str] | None = None,
    seed: int = 0,
    evaluation_env: gym.Env[Any, Any] | None = None,
    run_dir: str | Path | None = None,
    source: str | None = None,
    progress_bar: bool = False,
    tensorboard: bool = False,
    callback: Callback | None = None,
    **overrides: Any,
) -> Finetuned:
    """Learn the task that `env` rewards.

    Args:
        policy: from :func:`rover.load_policy` or an agent's ``policy``; or any torch module from
            observations (n, *shape) to logits (n, A); None: from scratch.
        env: the task: a Gymnasium environment with its reward.
        total_timesteps: environment steps, > 0.
        algorithm: ``"ddpg"`` or ``"sac"``.
        preset: ``"fast"``, small networks for a laptop, or ``"paper"``.
        transfer: ``"policy"``, ``"encoder"`` or ``"both"``: :func:`rover.finetuning.make_start`.
        freeze: which of ``"policy"`` and ``"encoder"`` never learn; None: what suits the policy.
        seed: everything random follows from it.
        evaluation_env: a second instance of the task, for evaluations; None: made from the spec.
        run_dir: folder for the run's files, which must not hold any; None leaves none.
        source: where the policy came from, which the run's files will say.
        progress_bar: draw a progress bar with the greedy return.
        tensorboard: write scalars to the run folder for TensorBoard.
        callback: called with each record of the curve; returning False stops the run.
        overrides: single settings of :class:`rover.finetuning.FinetuneConfig`.

    Raises:
        ConfigurationError: a policy for other observations or actions, or wrong settings.
        NonFiniteError: a reward, loss or gradient that is not finite.
        StorageError: the run folder cannot be written.
    """
    if total_timesteps < 1:
        raise ConfigurationError(f"total_timesteps must be positive, not {total_timesteps}")
    config = make_finetune_config(algorithm, preset, overrides)
    start = make_start(policy, env, transfer=transfer, freeze=freeze)
    run = Finetuning(env, start, config, seed=seed, evaluation_env=evaluation_env)
    watching = watched(
        callback,
        label="finetune",
        total=total_timesteps,
        progress_bar=progress_bar,
        tensorboard=tensorboard,
        run_dir=run_dir,
    )

    def describe() -> TransferConfig:
        task = task_of(env)
        return TransferConfig(
            version=__version__,
            kind="online",
            algorithm=algorithm,
            preset=preset,
            method="scratch" if policy is None else _details(policy).get("method"),
            source=source,
            transfer=None if policy is None else transfer,
            freeze=None if freeze is None else tuple(freeze),
            seed=seed,
            task=None if task is None else task.model_dump(mode="json"),
            amount=total_timesteps,
            settings=config.model_dump(mode="json"),
        )

    return carry_out(
        lambda note, store: run.learn(total_timesteps, callback=note, store=store),
        lambda: _result(run, policy),
        describe,
        run_dir=run_dir,
        watching=watching,
        start=policy if isinstance(policy, CoveragePolicy | NetworkPolicy) else None,
    )


def resume_finetune(
    run_dir: str | Path,
    *,
    policy: nn.Module | None = None,
    env: gym.Env[Any, Any] | None = None,
    evaluation_env: gym.Env[Any, Any] | None = None,
    progress_bar: bool = False,
    tensorboard: bool = False,
    callback: Callback | None = None,
) -> Finetuned:
    """Continue a run of :func:`finetune` that was stopped, from its last checkpoint to its end.

    It ends in the same bits as a run that was never interrupted.

    Args:
        run_dir: the folder of the run.
        policy: the module of your own that it began with; None: the policy that is stored there.
        env: the task; None: made from what is stored there.
        evaluation_env, progress_bar, tensorboard, callback: as of :func:`finetune`.

    Raises:
        ArtefactError: no such run there, or a file of it is damaged.
        ConfigurationError: the run is complete, or learned from stored transitions; its environment
            or its module cannot be made again and is not given; the environment given is another.
        ReplayMismatchError: the environment does not repeat itself.
        StorageError: the run folder cannot be written.
    """
    path, config = Path(run_dir), read_transfer_config(run_dir)
    if (path / "summary.json").exists():
        raise ConfigurationError(f"{path} is complete: there is nothing to continue")
    if config.kind != "online":
        raise ConfigurationError(
            f"{path} learned from stored transitions, of which there are no checkpoints: begin "
            "again in another folder"
        )
    task = _make_task(path, config, env)
    origin = None if config.transfer is None else _read_start(path, policy)
    start = make_start(origin, task, transfer=config.transfer or "policy", freeze=config.freeze)
    settings = make_finetune_config(config.algorithm, config.preset, config.settings)
    run = Finetuning(task, start, settings, seed=config.seed, evaluation_env=evaluation_env)
    with TransferFolder(path, config, goes_on=True) as folder:
        _restore(run, folder)
        with watched(
            callback,
            label="finetune",
            total=config.amount,
            start=run.num_timesteps,
            progress_bar=progress_bar,
            tensorboard=tensorboard,
            run_dir=path,
        ) as note:
            return finish(
                folder,
                lambda note, store: run.learn(config.amount, callback=note, store=store),
                lambda: _result(run, origin),
                note,
            )


def _make_task(
    path: Path, config: TransferConfig, env: gym.Env[Any, Any] | None
) -> gym.Env[Any, Any]:
    if env is None:
        if config.task is None:
            raise ConfigurationError(
                f"nothing makes the environment of {path} again: continue in Python with "
                "rover.finetuning.resume_finetune(run_dir, env=...)"
            )
        return Task.model_validate(config.task).make_env()
    given = task_of(env)
    if (None if given is None else given.model_dump(mode="json")) != config.task:
        raise ConfigurationError(f"the environment given is not that of {path}: {config.task}")
    return env


def _read_start(path: Path, policy: nn.Module | None) -> Policy | nn.Module:
    if policy is not None:
        return policy
    if not (path / START_FILE).exists():
        raise ConfigurationError(
            f"{path} began with a module of your own: continue in Python with "
            "rover.finetuning.resume_finetune(run_dir, policy=...)"
        )
    return load_policy(path / START_FILE)


def _restore(run: Finetuning, folder: TransferFolder) -> None:
    stored = folder.restore()
    if stored is None:
        return
    try:
        run.load_state(*stored)
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        if isinstance(error, RoverError):
            raise
        raise ArtefactError(
            f"the checkpoint in {folder.path} does not fit this run: {error}"
        ) from error


def _result(run: Finetuning, policy: Policy | nn.Module | None) -> Finetuned:
    """What was learned so far."""
    actor = run.policy_module()
    return Finetuned(actor, _package(actor, policy), tuple(run.curve.records), run.summary())


def _package(actor: nn.Module, policy: Policy | nn.Module | None) -> Policy | None:
    """The learned actor as a policy that can be saved."""
    if isinstance(actor, ComponentActor):
        return actor.package()
    if isinstance(actor, PolicyNetwork):
        return NetworkPolicy([actor], None, _details(policy))
    if isinstance(actor, CoveragePolicy):
        return actor
    return None


def _details(policy: object) -> dict[str, Any]:
    """What a policy says it was trained on; nothing for a module of the user's own."""
    return dict(getattr(policy, "details", {}))
