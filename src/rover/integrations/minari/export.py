"""Buffers as Minari data sets."""

from __future__ import annotations

import copy
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from rover.data import Buffer, check_same_spaces, episode_bounds, relabel
from rover.envs import RewardFunction, known_id, make_env, portable_kwargs, reward_function
from rover.envs.registration import REGISTER_IT
from rover.errors import ConfigurationError, RoverWarning, StorageError
from rover.integrations.certificate import certify, pretraining_command
from rover.integrations.minari.load import (
    CERTIFICATE_KEY,
    METADATA_FORMAT,
    METADATA_KEY,
    import_minari,
)
from rover.operators.support import IntArray
from rover.storage import check_writable
from rover.training.run_folder import load_run_buffer, read_run_config
from rover.version import __version__

_CHUNK_BYTES = 2**20
_GZIP_LEVEL = 4


def export_minari(
    source: Buffer | str | Path,
    dataset_id: str,
    *,
    env: gym.Env[Any, Any] | None = None,
    task: gym.Env[Any, Any] | RewardFunction | None = None,
    algorithm_name: str | None = None,
    author: str | None = None,
    author_email: str | None = None,
    code_permalink: str | None = None,
    description: str | None = None,
) -> Any:
    """Write transitions as a Minari data set, all of it or nothing.

    Without a task every reward is 0, and :func:`load_minari` returns the same buffer to the bit, as
    long as its observations are numbered in the order of first sight, as those of every run are.
    With a task rewards and terminations are its labels; episodes end where it terminates, and
    transitions that it would not have made are left out.

    Args:
        source: a buffer, the folder of a finished run, or its ``buffer.safetensors``.
        dataset_id: ``"name-v0"`` or ``"namespace/name-v0"``; it must not exist yet. Data sets lie
            under ``$MINARI_DATASETS_PATH``, by default ``~/.minari/datasets``.
        env: the environment of the transitions, whose spaces and spec are stored; by default that
            of the run folder. Without either, the narrowest spaces that hold the data, no spec.
        task: a grid world with a goal, stored as the environment for evaluation, or a reward
            function as :func:`rover.data.relabel` takes it.
        algorithm_name: what made the transitions; by default the run's agent.
        author: their author.
        author_email: how to reach the author.
        code_permalink: where the code is that made them.
        description: what they are; by default what the run folder says.

    Returns:
        The data set, a ``minari.MinariDataset``.

    A run's data carry a certificate (:mod:`rover.integrations.certificate`) unless a task labels
    them, with the command that makes them again; :func:`load_minari` returns what it was made of,
    and :func:`read_certificate` holds the one against the other.

    Raises:
        ConfigurationError: Minari is not installed; an id that is malformed or taken; an
            environment that is not that of the transitions, or cannot be made; a task that does
            not fit them.
        ArtefactError: the run folder or buffer file cannot be used.
        StorageError: the disk refused. Nothing is left behind.

    Warns:
        RoverWarning: the environment cannot be described so that others can make it.
        MissingGoalWarning: no transition reaches what the task rewards.
    """
    minari = import_minari()
    _check_id(minari, dataset_id)
    buffer = source if isinstance(source, Buffer) else load_run_buffer(source)
    command = None
    if not isinstance(source, Buffer) and Path(source).is_dir():
        config = read_run_config(source)
        if env is None and config.env_id is None:
            raise ConfigurationError(
                f"the environment of {source} cannot be made from an id; {REGISTER_IT}, export it "
                "with export_minari(..., env=...)"
            )
        if env is None:
            env = make_env(known_id(str(config.env_id)), config.env_kwargs)
        command = pretraining_command(config)
        algorithm_name = algorithm_name or config.agent
        description = description or (
            f"{len(buffer)} transitions of reward-free pretraining ({config.agent}, preset "
            f"{config.preset}, seed {config.seed}, rover {config.version}) on {config.env_id}"
        )
    if env is not None:
        check_same_spaces(buffer, env)
    rewards = reward_function(task) if isinstance(task, gym.Env) else task
    if rewards is not None:
        buffer = relabel(buffer, rewards)
    bounds = episode_bounds(buffer)
    if len(bounds) == 0:
        raise ConfigurationError(
            "there is no transition to export: the buffer is empty, or the task leaves none of it"
        )
    task_spec = _portable_spec(task) if isinstance(task, gym.Env) else None
    metadata = {
        "dataset_id": dataset_id,
        "minari_version": minari.__version__,
        "algorithm_name": algorithm_name,
        "author": None if author is None else {author},
        "author_email": None if author_email is None else {author_email},
        "code_permalink": code_permalink,
        "description": description,
        "eval_env_spec": None if task_spec is None else task_spec.to_json(),
        METADATA_KEY: None if rewards is not None else _describe_ending(buffer, len(bounds)),
    }
    if command is not None and rewards is None and env is not None and env.spec is not None:
        metadata[CERTIFICATE_KEY] = {
            "env_id": config.env_id,
            "env_kwargs": config.env_kwargs,
            "command": command,
            **certify(None, buffer, env, discount=config.settings["discount"]),
        }
    stated = {name: value for name, value in metadata.items() if value is not None}
    env_spec = None if env is None else _portable_spec(env)
    _write(minari, dataset_id, env, env_spec, stated, buffer, bounds)
    return minari.load_dataset(dataset_id)


def _portable_spec(env: gym.Env[Any, Any]) -> EnvSpec | None:
    """A spec of `env` that can be stored as JSON and made again elsewhere, or None with a warning.

    A map that a grid world read from a file is put in its place.
    """
    try:
        if env.spec is None:
            raise ValueError("it was not made with gymnasium.make")
        # A copy: the user's environment keeps its own.
        spec = copy.deepcopy(env.spec)
        spec.kwargs = portable_kwargs(env)
        spec.to_json()
    except (TypeError, ValueError) as error:
        warnings.warn(
            f"the environment {env} cannot be described so that others can make it ({error}): "
            "recover_environment() will not work on the data set",
            RoverWarning,
            stacklevel=3,
        )
        return None
    return spec


def _narrowest_space(observations: NDArray[Any]) -> gym.Space[Any]:
    if observations.ndim == 1:
        return gym.spaces.Discrete(int(observations.max(initial=0)) + 1)
    shape, dtype = observations.shape[1:], observations.dtype
    if dtype.kind == "f":
        return gym.spaces.Box(-np.inf, np.inf, shape, dtype.type)
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    low, high = (0, 1) if limits is None else (limits.min, limits.max)
    return gym.spaces.Box(low, high, shape, dtype.type)


def _write(
    minari: Any,
    dataset_id: str,
    env: gym.Env[Any, Any] | None,
    env_spec: EnvSpec | None,
    metadata: Mapping[str, Any],
    buffer: Buffer,
    bounds: IntArray,
) -> None:
    """Write beside the other data sets, out of their sight, then rename: all or nothing."""
    namespace = minari.dataset.minari_dataset.parse_dataset_id(dataset_id)[0]
    if env is None:
        observation_space = _narrowest_space(buffer.observations.rows)
        action_space: gym.Space[Any] = gym.spaces.Discrete(buffer.n_actions)
    else:
        observation_space, action_space = env.observation_space, env.action_space
    try:
        root = minari.storage.get_dataset_path()
        check_writable(root)
        with tempfile.TemporaryDirectory(prefix=".rover-", dir=root) as hidden:
            folder = Path(hidden, "dataset")  # not the temporary folder, which others cannot read
            folder.mkdir()
            storage = minari.dataset.minari_storage.MinariStorage.new(
                folder / "data",
                observation_space=observation_space,
                action_space=action_space,
                env_spec=env_spec,
                data_format="hdf5",
                jpeg_encoding=False,  # which would lose digits
            )
            storage.update_metadata(metadata)
            _prepare_observations(storage, buffer, bounds)
            storage.update_episodes(_episodes(buffer, bounds))
            # Only after all data is written: an empty namespace would be left by a failure.
            if namespace not in (None, *minari.namespace.list_local_namespaces()):
                minari.namespace.create_namespace(namespace)
            os.rename(folder, root / dataset_id)
    except StorageError:
        raise
    except OSError as error:
        raise _refused(dataset_id, error) from error


def _check_id(minari: Any, dataset_id: str) -> None:
    """Refuse an id that Minari does not take, or that is taken."""
    try:
        minari.dataset.minari_dataset.parse_dataset_id(dataset_id)
    except (TypeError, ValueError):  # an id without a version is a TypeError there
        raise ConfigurationError(
            f"{dataset_id!r} is no id of a Minari data set: letters, digits, '-' and '_', and a "
            "version, as in 'maze-v0' or 'rover/maze-v0'"
        ) from None
    try:
        destination = minari.storage.get_dataset_path(dataset_id)
    except OSError as error:
        raise _refused(dataset_id, error) from error
    if destination.exists():
        raise ConfigurationError(
            f"there is a Minari data set {dataset_id!r} already, in {destination}; choose another "
            f"name or version, or delete it with `minari delete {dataset_id}`"
        )


def _refused(dataset_id: str, error: OSError) -> StorageError:
    return StorageError(
        f"the data set {dataset_id!r} could not be written ({error}); nothing was left of it: free "
        "some space, or name another folder in MINARI_DATASETS_PATH"
    )


def _describe_ending(buffer: Buffer, n_episodes: int) -> dict[str, Any]:
    """Metadata for the end of a buffer, which Minari's format has no place for."""
    starts = buffer.episode_starts
    # A buffer may end on a reset whose episode has no step yet.
    begun = len(starts) > n_episodes
    return {
        "format": METADATA_FORMAT,
        "version": __version__,
        "episodes": n_episodes,
        "unfinished": not bool(buffer.terminated[-1] or buffer.truncated[-1]),
        "next_start": buffer.observations.rows[starts[-1]].tolist() if begun else None,
    }


def _prepare_observations(storage: Any, buffer: Buffer, bounds: IntArray) -> None:
    """Make empty, compressed arrays of observations, which Minari then extends.

    Minari itself compresses nothing but JPEG images: ten thousand 84×84 images would take 200 MB,
    of which gzip leaves a few.
    """
    table = buffer.observations
    row_bytes = max(1, int(np.prod(table.shape)) * table.dtype.itemsize)
    with h5py.File(storage.data_path / "main_data.hdf5", "a", track_order=True) as file:
        for episode, (begin, end) in enumerate(bounds.tolist()):
            file.create_dataset(
                f"episode_{episode}/observations",
                shape=(0, *table.shape),
                maxshape=(None, *table.shape),
                dtype=table.dtype,
                chunks=(min(end - begin + 1, max(1, _CHUNK_BYTES // row_bytes)), *table.shape),
                compression="gzip",
                compression_opts=_GZIP_LEVEL,
                shuffle=True,
            )


def _episodes(buffer: Buffer, bounds: IntArray) -> Iterator[Any]:
    """Minari's episodes, each made when it is written."""
    from minari.data_collector import EpisodeBuffer

    table = buffer.observations.rows
    rewards = np.zeros(len(buffer)) if buffer.rewards is None else buffer.rewards
    for episode, (begin, end) in enumerate(bounds.tolist()):
        rows = slice(begin, end)
        terminated, truncated = buffer.terminated[rows].copy(), buffer.truncated[rows].copy()
        truncated[-1] |= not terminated[-1]  # whatever ended it, no further step of it is known
        yield EpisodeBuffer(
            id=episode,
            # n + 1 of them: where the episode began, and where each of its n steps led.
            observations=table[np.append(buffer.inputs[begin], buffer.successors[rows])],
            actions=buffer.actions[rows].copy(),
            rewards=rewards[rows].copy(),
            terminations=terminated,
            truncations=truncated,
            infos={},
        )
