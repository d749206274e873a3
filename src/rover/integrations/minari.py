"""Transitions as Minari data sets, for offline learning outside this package, and back.

Observations are written in their exact dtype, images not as JPEG, one Minari episode for each of a
buffer's episodes. https://minari.farama.org
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rover.arrays import FloatArray
from rover.data import Buffer, check_same_spaces
from rover.envs import Spaces, id_and_kwargs, known_id, make_env
from rover.errors import ArtefactError, ConfigurationError, RoverError, warn
from rover.storage import read_run_config
from rover.training.run_folder import load_run_buffer


def _import_minari() -> Any:
    try:
        import minari
    except ImportError as error:
        text = f'Minari is not installed ({error}): pip install ".[minari]"'
        raise ConfigurationError(text) from error
    return minari


def export_minari(
    source: Buffer | str | Path,
    dataset_id: str,
    *,
    env: gym.Env[Any, Any] | None = None,
    **about: str | None,
) -> Any:
    """Write transitions as a Minari data set.

    Rewards are the buffer's, which :func:`rover.data.relabel` gives it for a task, and else 0. An
    unfinished last episode is truncated.

    Args:
        source: a buffer, the folder of a finished run, or its ``buffer.safetensors``.
        dataset_id: ``"name-v0"`` or ``"namespace/name-v0"``; it must not exist yet. Data sets lie
            under ``$MINARI_DATASETS_PATH``, by default ``~/.minari/datasets``.
        env: the environment, whose spaces and spec are stored; by default the run folder's.
        about: ``author``, ``author_email``, ``code_permalink``, ``description`` and
            ``algorithm_name``, as Minari has them; of a run the last two are known.

    Returns:
        The ``minari.MinariDataset``.

    Raises:
        ConfigurationError: Minari is not installed; no transitions; an environment that is missing,
            cannot be made or does not fit the transitions.
        ArtefactError: the run folder or buffer file cannot be used.
        ValueError: Minari's, of an id that is malformed or taken.
    """
    minari = _import_minari()
    buffer = source if isinstance(source, Buffer) else load_run_buffer(source)
    if not isinstance(source, Buffer) and Path(source).is_dir():
        config = read_run_config(source)
        if env is None:
            env = make_env(known_id(config.env_id, source), config.env_kwargs)
        description = (
            f"{len(buffer)} transitions of reward-free pretraining ({config.agent}, preset "
            f"{config.preset}, seed {config.seed}, rover {config.version}) on {config.env_id}"
        )
        about = {"algorithm_name": config.agent, "description": description, **about}
    if env is None:
        raise ConfigurationError("transitions alone do not name their environment: give env=...")
    check_same_spaces(buffer, env)
    if len(buffer) == 0:
        raise ConfigurationError("there is no transition to export: the buffer is empty")
    # A spec with which others can make it again names no file of this machine.
    made = id_and_kwargs(env)
    spec = None if made is None else make_env(*made).spec
    if spec is None:
        warn(
            f"the environment {env} cannot be made from an id and arguments that a file can hold: "
            "recover_environment() will not work on the data set",
            stacklevel=2,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of authors and the like that are missing
        written = minari.create_dataset_from_buffers(
            dataset_id,
            list(_episodes(buffer)),
            observation_space=Spaces.of(env).observation,
            action_space=env.action_space,
            jpeg_encoding=False,  # which would lose digits
            **about,
        )
    # Given the environment, Minari would make it once more.
    written.storage.update_metadata({"env_spec": spec.to_json()} if spec else {})
    return minari.load_dataset(dataset_id)


def _episodes(buffer: Buffer) -> Iterator[Any]:
    """Minari's episodes of a buffer."""
    from minari.data_collector import EpisodeBuffer

    table = buffer.observations.rows
    rewards = np.zeros(len(buffer)) if buffer.rewards is None else buffer.rewards
    for episode in range(buffer.n_episodes):
        rows = buffer.rows_of(episode)
        if len(rows) == 0:  # a reset without a step
            continue
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


def load_minari(dataset: Any, *, episode_length: int | None = None) -> tuple[Buffer, FloatArray]:
    """Read a Minari data set into a replay buffer, whoever made it.

    Continuous actions that are not of their space's set are the buffer's own, at most 256.

    Args:
        dataset: the id of a data set on this machine, or a ``minari.MinariDataset``, which may
            hold some of a data set's episodes.
        episode_length: steps after which an episode of the data is another one, where the limit
            was not flagged (:meth:`rover.data.Buffer.from_arrays`).

    Returns:
        The buffer of its n transitions, and their rewards (n,). An episode that ends neither by
        termination nor by truncation is taken for truncated.

    Raises:
        ConfigurationError: Minari is not installed.
        UnsupportedSpaceError: spaces that ROVER cannot handle.
        ArtefactError, ConfigurationError: no such data set, a damaged one, one without transitions,
            or one with data that its spaces do not hold.
        NonFiniteError: NaN or infinity among observations or rewards.

    Warns:
        RoverWarning: episodes look glued together.
    """
    minari = _import_minari()
    name = dataset if isinstance(dataset, str) else dataset.id
    try:
        opened = minari.load_dataset(dataset) if isinstance(dataset, str) else dataset
        return _read(opened, episode_length)
    except RoverError as error:
        raise type(error)(f"the Minari data set {name!r}: {error}") from None
    except (OSError, KeyError, TypeError, ValueError, AssertionError) as error:
        raise ArtefactError(
            f"the Minari data set {name!r} cannot be read ({type(error).__name__}: {error}); see "
            f"`minari list local`; to fetch it anew, delete it, then `minari download {name}`"
        ) from error


def _read(dataset: Any, episode_length: int | None) -> tuple[Buffer, FloatArray]:
    """The buffer of all n transitions of a ``minari.MinariDataset``, and their rewards (n,)."""
    spaces = Spaces.of(dataset)
    seen, parts = list[Any](), list[tuple[Any, ...]]()
    for episode in dataset.iterate_episodes():
        if (n := len(episode.actions)) == 0:
            continue
        flags: Any = np.array([episode.terminations, episode.truncations], np.bool_)
        flags[1, -1] |= not flags[0, -1]
        listed = spaces.listed(episode.observations)
        if len(listed) != n + 1:
            raise ArtefactError(
                f"episode {episode.id} is no sequence of transitions: it has {len(listed)} "
                f"observations and {n} actions"
            )
        # Data of others may go on behind an end, inside one episode: that is another start, which
        # is the observation of the end as well.
        goes_on = np.flatnonzero(flags.any(axis=0)[:-1]) + 1
        seen += [listed[row] for row in np.sort(np.append(np.arange(n + 1), goes_on))]
        parts.append((np.asarray(episode.actions), np.asarray(episode.rewards), *flags))
    if not parts:
        raise ArtefactError("it holds no transitions")
    actions, rewards, *flags = map(np.concatenate, zip(*parts, strict=True))
    buffer = Buffer.from_arrays(
        seen, actions, rewards, *flags, env=dataset, episode_length=episode_length
    )
    assert buffer.rewards is not None
    return buffer, buffer.rewards
