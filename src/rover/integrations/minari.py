"""Transitions as Minari data sets, for offline learning outside this package, and back.

A replay buffer is written without loss: observations in their exact dtype, images not as JPEG, one
Minari episode for each of its episodes. What Minari has no word for, that the last episode was
unfinished or that another one had just begun, lies in the data set's metadata, so that a buffer
comes back as it was, to the bit. https://minari.farama.org
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.data import LabelledTransitions, ReplayBuffer, check_spaces, episode_bounds, label
from rover.envs import make_env, reward_function
from rover.errors import (
    ArtefactError,
    ConfigurationError,
    RoverError,
    StorageError,
)
from rover.integrations.env_specs import portable_spec
from rover.integrations.minari_episodes import (
    METADATA_KEY,
    describe_ending,
    minari_episodes,
    prepare_observations,
    read_episodes,
)
from rover.operators.support import FloatArray, IntArray
from rover.storage import check_writable
from rover.training.run_folder import RunConfig, load_run_buffer, read_run_config
from rover.types import RewardFunction


def export_minari(
    source: ReplayBuffer | str | Path,
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
        source: a buffer, the folder of a finished run, or its ``buffer.h5``.
        dataset_id: ``"name-v0"`` or ``"namespace/name-v0"``; it must not exist yet. Data sets lie
            under ``$MINARI_DATASETS_PATH``, by default ``~/.minari/datasets``.
        env: the environment of the transitions, whose spaces and spec are stored; by default that
            of the run folder. Without either, the narrowest spaces that hold the data, no spec.
        task: a grid world with a goal, stored as the environment for evaluation, or a reward
            function as :func:`rover.data.label` takes it.
        algorithm_name: what made the transitions; by default the run's method.
        author: their author.
        author_email: how to reach the author.
        code_permalink: where the code is that made them.
        description: what they are; by default what the run folder says.

    Returns:
        The data set, a ``minari.MinariDataset``.

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
    minari = _import_minari()
    _check_id(minari, dataset_id)
    buffer, config = _read_source(source)
    if env is None and config is not None:
        env = _remake(config, source)
    observation_space, action_space = _spaces(buffer, env)
    labels = None if task is None else label(buffer, _reward_of(task))
    bounds = episode_bounds(buffer, labels)
    if len(bounds) == 0:
        raise ConfigurationError(
            "there is no transition to export: the buffer is empty, or the task leaves none of it"
        )
    metadata = _origin(config, len(buffer)) | {
        key: value
        for key, value in (
            ("algorithm_name", algorithm_name),
            ("author", None if author is None else {author}),
            ("author_email", None if author_email is None else {author_email}),
            ("code_permalink", code_permalink),
            ("description", description),
        )
        if value is not None
    }
    if isinstance(task, gym.Env):
        spec = portable_spec(task)
        metadata |= {} if spec is None else {"eval_env_spec": spec.to_json()}
    if labels is None:
        metadata[METADATA_KEY] = describe_ending(buffer, len(bounds))
    storage_options = {
        "observation_space": observation_space,
        "action_space": action_space,
        "env_spec": None if env is None else portable_spec(env),
    }
    _write(minari, dataset_id, storage_options, metadata, buffer, labels, bounds)
    return minari.load_dataset(dataset_id)


def load_minari(dataset: Any) -> tuple[ReplayBuffer, FloatArray]:
    """Read a Minari data set into a replay buffer, whoever made it.

    Args:
        dataset: the id of a data set on this machine, or a ``minari.MinariDataset``, which may
            hold some of a data set's episodes.

    Returns:
        The buffer of its n transitions, and their rewards (n,). An episode that ends neither by
        termination nor by truncation is taken for truncated.

    Raises:
        ConfigurationError: Minari is not installed.
        UnsupportedSpaceError: actions that are not Discrete, or observations that are neither
            Discrete nor a vector or image Box.
        ArtefactError: no such data set, a damaged one, one without transitions, or one with data
            that its spaces do not hold.
        NonFiniteError: NaN or infinity among observations or rewards.
    """
    minari = _import_minari()
    name = dataset if isinstance(dataset, str) else dataset.id
    try:
        opened = minari.load_dataset(dataset) if isinstance(dataset, str) else dataset
        return read_episodes(opened)
    except RoverError:
        raise
    except FileNotFoundError as error:
        raise ArtefactError(
            f"there is no Minari data set {name!r} on this machine ({error.args[0]}); those there "
            f"are: `minari list local`; to fetch it: `minari download {name}`"
        ) from None
    except (OSError, KeyError, TypeError, ValueError, AssertionError) as error:
        raise ArtefactError(
            f"the Minari data set {name!r} cannot be read ({type(error).__name__}: {error}); "
            "delete it, then fetch or export it again"
        ) from error


def _import_minari() -> ModuleType:
    try:
        import minari
        import minari.dataset.minari_storage
        import minari.namespace
    except ImportError as error:
        raise ConfigurationError(
            f'Minari is not installed ({error}): pip install "rover-rl[minari]"'
        ) from error
    module: ModuleType = minari
    return module


def _read_source(source: ReplayBuffer | str | Path) -> tuple[ReplayBuffer, RunConfig | None]:
    if isinstance(source, ReplayBuffer):
        return source, None
    buffer = load_run_buffer(source)
    return buffer, read_run_config(source) if Path(source).is_dir() else None


def _remake(config: RunConfig, source: object) -> gym.Env[Any, Any]:
    if config.env_id is None:
        raise ConfigurationError(
            f"the environment of {source} cannot be made from an id; export it in Python with "
            "export_minari(..., env=...)"
        )
    return make_env(config.env_id, config.env_kwargs)


def _reward_of(task: gym.Env[Any, Any] | RewardFunction) -> RewardFunction:
    return reward_function(task) if isinstance(task, gym.Env) else task


def _spaces(
    buffer: ReplayBuffer, env: gym.Env[Any, Any] | None
) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Observation and action space of a buffer, checked against those of its environment."""
    table = buffer.observations
    if env is None:
        return _narrowest_space(table.rows), gym.spaces.Discrete(buffer.n_actions)
    found, wanted = (table.shape, table.dtype, buffer.n_actions), check_spaces(env)
    space = env.observation_space
    beyond = isinstance(space, gym.spaces.Discrete) and bool((table.rows >= space.n).any())
    if found != wanted or beyond:
        raise ConfigurationError(
            f"the transitions have observations of shape {found[0]} and dtype {found[1]} and "
            f"{found[2]} actions; they are not those of the environment, with {space} and "
            f"{env.action_space}"
        )
    return space, env.action_space


def _narrowest_space(observations: NDArray[Any]) -> gym.Space[Any]:
    if observations.ndim == 1:
        return gym.spaces.Discrete(int(observations.max(initial=0)) + 1)
    shape, dtype = observations.shape[1:], observations.dtype
    if dtype.kind == "f":
        return gym.spaces.Box(-np.inf, np.inf, shape, dtype.type)
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    low, high = (0, 1) if limits is None else (limits.min, limits.max)
    return gym.spaces.Box(low, high, shape, dtype.type)


def _origin(config: RunConfig | None, n_transitions: int) -> dict[str, Any]:
    """What a run folder says of where its transitions are from."""
    if config is None:
        return {}
    return {
        "algorithm_name": config.method,
        "description": f"{n_transitions} transitions of reward-free pretraining "
        f"({config.method}, preset {config.preset}, seed {config.seed}, rover {config.version}) "
        f"on {config.env_id}",
    }


def _write(
    minari: ModuleType,
    dataset_id: str,
    storage_options: Mapping[str, Any],
    metadata: Mapping[str, Any],
    buffer: ReplayBuffer,
    labels: LabelledTransitions | None,
    bounds: IntArray,
) -> None:
    """Write beside the other data sets, out of their sight, then rename: all or nothing."""
    namespace = minari.dataset.minari_dataset.parse_dataset_id(dataset_id)[0]
    try:
        root = minari.storage.get_dataset_path()
        check_writable(root)
        with tempfile.TemporaryDirectory(prefix=".rover-", dir=root) as hidden:
            folder = Path(hidden, "dataset")  # not the temporary folder, which others cannot read
            folder.mkdir()
            storage = minari.dataset.minari_storage.MinariStorage.new(
                folder / "data", data_format="hdf5", jpeg_encoding=False, **storage_options
            )
            about = {"dataset_id": dataset_id, "minari_version": minari.__version__}
            storage.update_metadata(about | dict(metadata))
            prepare_observations(storage, buffer, bounds)
            storage.update_episodes(minari_episodes(buffer, labels, bounds))
            if namespace is not None:
                _make_namespace(minari, namespace)
            os.rename(folder, root / dataset_id)
    except StorageError:
        raise
    except OSError as error:
        raise _refused(dataset_id, error) from error


def _check_id(minari: ModuleType, dataset_id: str) -> None:
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


def _make_namespace(minari: ModuleType, namespace: str) -> None:
    if namespace not in minari.namespace.list_local_namespaces():
        minari.namespace.create_namespace(namespace)
