"""Transitions as Minari data sets, for offline learning outside this package, and back.

A replay buffer is written without loss: observations in their exact dtype, images not as JPEG, one
Minari episode for each of its episodes. What Minari has no word for, that the last episode was
unfinished or that another one had just begun, lies in the data set's metadata, so that a buffer
comes back as it was, to the bit. https://minari.farama.org
"""

from __future__ import annotations

import copy
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rover.arrays import FloatArray, farthest_points
from rover.data import Buffer, check_same_spaces, relabel
from rover.envs import RewardFunction, Spaces, known_id, make_env, reward_function
from rover.envs.registration import portable_kwargs
from rover.errors import (
    ArtefactError,
    ConfigurationError,
    NonFiniteError,
    RoverError,
    RoverWarning,
    StorageError,
    UnsupportedSpaceError,
    abridge,
)
from rover.storage import check_writable, read_run_config
from rover.training.run_folder import load_run_buffer
from rover.version import __version__

__all__ = ["export_minari", "load_minari"]

_METADATA_KEY, _METADATA_FORMAT = "rover", 1
_CHUNK_BYTES = 2**20
_GZIP_LEVEL = 4
_MOST_ACTIONS = 256  # of a data set with continuous actions, as many as exploring takes at most


def _import_minari() -> Any:
    """Minari with the modules that are used here, or an error that names the extra."""
    try:
        import minari
        import minari.dataset.minari_storage
        import minari.namespace
    except ImportError as error:
        text = f'Minari is not installed ({error}): pip install ".[minari]"'
        raise ConfigurationError(text) from error
    return minari


# --- writing -------------------------------------------------------------------------------------


def export_minari(
    source: Buffer | str | Path,
    dataset_id: str,
    *,
    env: gym.Env[Any, Any] | None = None,
    task: gym.Env[Any, Any] | RewardFunction | None = None,
    **about: str | None,
) -> Any:
    """Write transitions as a Minari data set, all of it or nothing.

    Without a task every reward is 0, and :func:`load_minari` returns the same buffer to the bit, as
    long as its observations are numbered in order of appearance, as in every run.
    With a task rewards and terminations are its labels; episodes end where it terminates, and
    transitions that it would not have made are left out.

    Args:
        source: a buffer, the folder of a finished run, or its ``buffer.safetensors``.
        dataset_id: ``"name-v0"`` or ``"namespace/name-v0"``; it must not exist yet. Data sets lie
            under ``$MINARI_DATASETS_PATH``, by default ``~/.minari/datasets``.
        env: the environment of the transitions, whose spaces and spec are stored; by default
            the run folder's.
        task: a grid world with a goal, stored as the environment for evaluation, or a reward
            function as :func:`rover.data.relabel` takes it.
        about: ``author``, ``author_email``, ``code_permalink``, ``description`` and
            ``algorithm_name``, as Minari has them; of a run the last two are known.

    Returns:
        The data set, a ``minari.MinariDataset``.

    Raises:
        ConfigurationError: Minari is not installed; an id that is malformed or taken; an
            environment that is missing, differs from the transitions', or cannot be made; a task
            that does not fit them.
        ArtefactError: the run folder or buffer file cannot be used.
        StorageError: the disk refused. Nothing is left behind.

    Warns:
        RoverWarning: the environment cannot be described so that others can make it.
        RoverWarning: no transition reaches what the task rewards.
    """
    minari = _import_minari()
    # Before the transitions are read, which may take a while.
    _check_id(minari, dataset_id)
    buffer = source if isinstance(source, Buffer) else load_run_buffer(source)
    if not isinstance(source, Buffer) and Path(source).is_dir():
        config = read_run_config(source)
        if env is None:
            in_python = "export it with export_minari(..., env=...)"
            env = make_env(known_id(config.env_id, source, in_python), config.env_kwargs)
        description = (
            f"{len(buffer)} transitions of reward-free pretraining ({config.agent}, preset "
            f"{config.preset}, seed {config.seed}, rover {config.version}) on {config.env_id}"
        )
        about = {"algorithm_name": config.agent, "description": description, **about}
    if env is None:
        raise ConfigurationError(
            "transitions alone do not name their environment: give env=..., or the folder of "
            "their run"
        )
    check_same_spaces(buffer, env)
    rewards = reward_function(task) if isinstance(task, gym.Env) else task
    if rewards is not None:
        # Episodes are cut where the task ends, so this comes before they are counted.
        buffer = relabel(buffer, rewards)
    buffer.check_episodes()
    if buffer.n_episodes == 0:
        raise ConfigurationError(
            "there is no transition to export: the buffer is empty, or the task leaves none of it"
        )
    task_spec = _portable_spec(task) if isinstance(task, gym.Env) else None
    metadata = {
        # Minari has sets of authors, and one text of everything else.
        **{k: {v} if v and k.startswith("author") else v for k, v in about.items()},
        "dataset_id": dataset_id,
        "minari_version": minari.__version__,
        "eval_env_spec": None if task_spec is None else task_spec.to_json(),
        _METADATA_KEY: None if rewards is not None else _describe_ending(buffer),
    }
    # Minari takes no None: what is not known is left out.
    stated = {name: value for name, value in metadata.items() if value is not None}
    _write(minari, dataset_id, env, _portable_spec(env), stated, buffer)
    return minari.load_dataset(dataset_id)


def _portable_spec(env: gym.Env[Any, Any]) -> EnvSpec | None:
    """A spec of `env` with which others can make it again, as JSON; or None with a warning."""
    try:
        if env.spec is None:
            raise ValueError("it was not made with gymnasium.make")
        # A copy: the user's environment keeps its own. A map that a grid world read from a file
        # is put in the place of that file's name.
        spec = copy.deepcopy(env.spec)
        spec.kwargs = portable_kwargs(env)
        made_by: Any = spec.entry_point
        # JSON holds the name of a class, as long as others can import it by that.
        if (
            callable(made_by)
            and "<" not in made_by.__qualname__
            and made_by.__module__ != "__main__"
        ):
            spec.entry_point = f"{made_by.__module__}:{made_by.__qualname__}"
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


def _write(
    minari: Any,
    dataset_id: str,
    env: gym.Env[Any, Any],
    env_spec: EnvSpec | None,
    metadata: Mapping[str, Any],
    buffer: Buffer,
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
                folder / "data",
                observation_space=Spaces.of(env).observation,
                action_space=env.action_space,
                env_spec=env_spec,
                data_format="hdf5",
                jpeg_encoding=False,  # which would lose digits
            )
            storage.update_metadata(metadata)
            _prepare_observations(storage, buffer)
            storage.update_episodes(_episodes(buffer))
            # Only after all data is written: an empty namespace would be left by a failure.
            if namespace not in (None, *minari.namespace.list_local_namespaces()):
                minari.namespace.create_namespace(namespace)
            # One step, within one file system: readers find the whole data set or none.
            os.rename(folder, root / dataset_id)
    except OSError as error:
        raise _refused(dataset_id, error) from error


def _check_id(minari: Any, dataset_id: str) -> None:
    """Refuse an id that Minari does not take, or that is taken."""
    try:
        minari.dataset.minari_dataset.parse_dataset_id(dataset_id)
        destination = minari.storage.get_dataset_path(dataset_id)
    except (TypeError, ValueError):  # an id without a version is a TypeError there
        raise ConfigurationError(
            f"{dataset_id!r} is no id of a Minari data set: letters, digits, '-' and '_', and a "
            "version, as in 'maze-v0' or 'rover/maze-v0'"
        ) from None
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


def _describe_ending(buffer: Buffer) -> dict[str, Any]:
    """Metadata for the end of a buffer, which Minari's format has no place for."""
    starts = buffer.episode_starts
    # A buffer may end on a reset whose episode has no step yet.
    begun = len(starts) > buffer.n_episodes
    return {
        "format": _METADATA_FORMAT,
        "version": __version__,
        "episodes": buffer.n_episodes,
        "unfinished": not bool(buffer.is_end[-1]),
        "next_start": buffer.observations.rows[starts[-1]].tolist() if begun else None,
    }


def _prepare_observations(storage: Any, buffer: Buffer) -> None:
    """Make empty, compressed arrays of observations, which Minari then extends."""
    import h5py  # with the extra alone

    # Minari itself compresses nothing but JPEG images: gzip shrinks ten thousand 84×84 images from
    # 200 MB to a few.
    table = buffer.observations
    # Chunks of a megabyte, so that an image does not become a chunk of its own.
    row_bytes = max(1, int(np.prod(table.shape)) * table.dtype.itemsize)
    with h5py.File(storage.data_path / "main_data.hdf5", "a", track_order=True) as file:
        for episode, n_steps in enumerate(np.bincount(buffer.episodes).tolist()):
            file.create_dataset(
                f"episode_{episode}/observations",
                shape=(0, *table.shape),
                maxshape=(None, *table.shape),
                dtype=table.dtype,
                chunks=(min(n_steps + 1, max(1, _CHUNK_BYTES // row_bytes)), *table.shape),
                compression="gzip",
                compression_opts=_GZIP_LEVEL,
                shuffle=True,
            )


def _episodes(buffer: Buffer) -> Iterator[Any]:
    """Minari's episodes, each made when it is written."""
    from minari.data_collector import EpisodeBuffer

    table = buffer.observations.rows
    rewards = np.zeros(len(buffer)) if buffer.rewards is None else buffer.rewards
    for episode in range(buffer.n_episodes):
        rows = buffer.rows_of(episode)
        terminated, truncated = buffer.terminated[rows].copy(), buffer.truncated[rows].copy()
        truncated[-1] |= not terminated[-1]  # whatever ended it, no further step of it is known
        yield EpisodeBuffer(
            id=episode,
            # n + 1 of them: where the episode began, and where each of its n steps led.
            observations=table[np.append(buffer.inputs[rows[0]], buffer.successors[rows])],
            actions=np.array(buffer.taken(buffer.actions[rows])),
            rewards=rewards[rows].copy(),
            terminations=terminated,
            truncations=truncated,
            infos={},
        )


# --- reading -------------------------------------------------------------------------------------


def load_minari(dataset: Any) -> tuple[Buffer, FloatArray]:
    """Read a Minari data set into a replay buffer, whoever made it.

    Observations and actions are stored as an environment's (:class:`rover.envs.Spaces`).
    Continuous actions that are not of their space's set are the buffer's own: up to 256 different
    ones as they are, more of them rounded to 256, with a warning that says by how much.

    Args:
        dataset: the id of a data set on this machine, or a ``minari.MinariDataset``, which may
            hold some of a data set's episodes.

    Returns:
        The buffer of its n transitions, and their rewards (n,). An episode that ends neither by
        termination nor by truncation is taken for truncated.

    Raises:
        ConfigurationError: Minari is not installed.
        UnsupportedSpaceError: continuous actions that are not of the set that stands for their
            Box (:func:`rover.envs.action_set`), or spaces that make no vector and no numbers.
        ArtefactError: no such data set, a damaged one, one without transitions, or one with data
            that its spaces do not hold.
        NonFiniteError: NaN or infinity among observations or rewards.
    """
    minari = _import_minari()
    name = dataset if isinstance(dataset, str) else dataset.id
    try:
        opened = minari.load_dataset(dataset) if isinstance(dataset, str) else dataset
        return _read_episodes(opened)
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


def _read_episodes(dataset: Any) -> tuple[Buffer, FloatArray]:
    """The buffer of all n transitions of a ``minari.MinariDataset``, and their rewards (n,)."""
    spaces_read = SimpleNamespace(
        observation_space=dataset.observation_space, action_space=dataset.action_space
    )
    try:
        own = Spaces.of(spaces_read)
    except UnsupportedSpaceError as error:
        raise UnsupportedSpaceError(  # without the line, since there is nothing to wrap
            f"the Minari data set {dataset.id!r}: {str(error).partition(': ')[0]}"
        ) from None
    own = _with_own_actions(own, dataset)
    buffer = Buffer.of(own)
    rewards = list[FloatArray]()
    ending = _stored_ending(dataset)
    last = len(dataset.episode_indices) - 1
    for place, episode in enumerate(dataset.iterate_episodes()):
        where = f"episode {episode.id} of the Minari data set {dataset.id!r}"
        chosen = _numbered(np.asarray(episode.actions), own.actions, where)
        is_stored = own.observation is own.observed
        seen = episode.observations
        stored = np.asarray(seen) if is_stored else own.rows(seen)
        observations = _checked(episode, stored, chosen, own.observation, own.n_actions, where)
        rewards.append(np.asarray(episode.rewards, np.float64))
        if len(chosen) == 0:
            continue
        terminated, truncated = (
            np.array(ends, np.bool_) for ends in (episode.terminations, episode.truncations)
        )
        # Minari ends every episode; only our own metadata say that the last one went on.
        if not terminated[-1]:
            truncated[-1] = not (place == last and ending.get("unfinished"))
        # In order of first sight, as collecting numbers them: so a round trip keeps every bit.
        indices = [buffer.observations.intern(observation) for observation in observations]
        done = True
        # Data of others may go on behind an end, inside one episode: that is another start.
        for step, action in enumerate(chosen.tolist()):
            if done:
                buffer.add_start(indices[step])
            ends = bool(terminated[step]), bool(truncated[step])
            buffer.add(indices[step], action, indices[step + 1], *ends)
            done = any(ends)
    if len(buffer) == 0:
        raise ArtefactError(f"the Minari data set {dataset.id!r} holds no transitions")
    if ending.get("next_start") is not None:
        start = np.array(ending["next_start"], own.dtype).reshape(own.shape)
        buffer.add_start(buffer.observations.intern(start))
    return buffer, np.concatenate(rewards)


def _stored_ending(dataset: Any) -> dict[str, Any]:
    """Stored metadata of the buffer's end, if the data set is still the whole buffer."""
    ending = dataset.storage.metadata.get(_METADATA_KEY)
    if not isinstance(ending, dict):
        return {}
    if ending["format"] > _METADATA_FORMAT:
        raise ArtefactError(
            f"the Minari data set {dataset.id!r} was written by rover {ending.get('version')}; "
            f"this is rover {__version__}: upgrade rover-rl to read it"
        )
    # They do not hold for a part of the data set, or after additions.
    whole = np.array_equal(dataset.episode_indices, np.arange(ending["episodes"]))
    return ending if whole and dataset.storage.total_episodes == ending["episodes"] else {}


def _with_own_actions(own: Spaces, dataset: Any) -> Spaces:
    """The spaces with the actions of a data set, where it has others than a Box's set: up to 256
    different ones; of more, 256 that are farthest from each other, with a RoverWarning by how much
    those nearest to them are rounded."""
    if own.actions is None or own.actions.dtype.kind != "f":
        return own
    parts = [
        np.asarray(episode.actions, own.actions.dtype) for episode in dataset.iterate_episodes()
    ]
    taken = np.concatenate([np.empty((0, *own.actions.shape[1:]), own.actions.dtype), *parts])
    own_set = {one.tobytes() for one in own.actions}
    if all(one.tobytes() in own_set for one in taken):
        return own
    distinct = np.unique(taken.reshape(len(taken), -1), axis=0)
    if len(distinct) > _MOST_ACTIONS:
        chosen = distinct[farthest_points(distinct, _MOST_ACTIONS)]
        flat = taken.reshape(len(taken), -1)
        error = (
            np.square(KDTree(chosen).query(flat)[0]).sum() / np.square(flat - flat.mean(0)).sum()
        )
        warnings.warn(
            f"the {len(distinct):,} different actions of the data are rounded to {len(chosen)}, "
            f"which leaves out {error:.1%} of their variance: plans on them are as exact as that",
            RoverWarning,
            stacklevel=4,
        )
        distinct = chosen
    actions = distinct.reshape(-1, *own.actions.shape[1:])
    return replace(own, actions=actions, n_actions=len(actions))


def _numbered(actions: NDArray[Any], action_set: NDArray[Any] | None, where: str) -> NDArray[Any]:
    """Actions (n, ...) by their numbers, which Discrete ones are already."""
    if action_set is None:
        return actions
    if action_set.dtype.kind == "f":
        flat = action_set.reshape(len(action_set), -1)
        return np.asarray(KDTree(flat).query(actions.reshape(len(actions), -1))[1], np.int64)
    number = {one.tobytes(): k for k, one in enumerate(action_set)}
    taken = [number.get(one.tobytes()) for one in actions.astype(action_set.dtype)]
    if None in taken:
        raise ArtefactError(f"{where} has actions that its space does not have")
    return np.array(taken, np.int64)


def _checked(
    episode: Any,
    stored: NDArray[Any],
    actions: NDArray[Any],
    space: gym.Space[Any],
    n_actions: int,
    where: str,
) -> NDArray[Any]:
    """Observations of an episode that is a sequence of transitions, in the dtype of `space`."""
    columns = {name: getattr(episode, name) for name in ("rewards", "terminations", "truncations")}
    n, shape = len(actions), space.shape or ()
    counts = ", ".join(f"{len(column)} {name}" for name, column in columns.items())
    is_whole = actions.dtype.kind in "iu" and actions.ndim == 1
    # A wider dtype, in which many programs store, is taken if no value changes by it.
    observations = stored.astype(space.dtype)
    is_held = np.array_equal(observations, stored, equal_nan=stored.dtype.kind == "f")
    if isinstance(space, gym.spaces.Discrete):
        is_held = is_held and stored.min() >= 0 and stored.max() < space.n
    problem = None
    if stored.shape != (n + 1, *shape) or any(len(column) != n for column in columns.values()):
        problem = f"{n} actions, {counts} and observations of shape {stored.shape}"
    elif not is_whole or (actions < 0).any() or (actions >= n_actions).any():
        problem = f"actions that are not all whole numbers in 0..{n_actions - 1}"
    elif not is_held:
        problem = f"observations of dtype {stored.dtype} that its {abridge(space)} does not hold"
    if problem is not None:
        raise ArtefactError(f"{where} is no sequence of transitions: it has {problem}")
    for name, column in {"observations": stored, "rewards": columns["rewards"]}.items():
        if not np.isfinite(np.asarray(column, np.float64)).all():
            raise NonFiniteError(f"{where} has {name} that are NaN or infinite: leave it out")
    return observations
