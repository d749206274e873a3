"""Replay buffers as the episodes of a Minari data set, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import h5py
import numpy as np
from numpy.typing import NDArray

from rover.data import LabelledTransitions, ReplayBuffer, check_spaces
from rover.errors import ArtefactError, NonFiniteError
from rover.operators.support import FloatArray, IntArray
from rover.version import __version__

METADATA_KEY = "rover"
METADATA_FORMAT = 1
_CHUNK_BYTES = 2**20
_GZIP_LEVEL = 4


def describe_ending(buffer: ReplayBuffer, n_episodes: int) -> dict[str, Any]:
    """What Minari cannot say of the end of a buffer, as metadata."""
    starts = buffer.episode_starts
    begun = len(starts) > n_episodes
    return {
        "format": METADATA_FORMAT,
        "version": __version__,
        "episodes": n_episodes,
        "unfinished": not bool(buffer.terminated[-1] or buffer.truncated[-1]),
        "next_start": buffer.observations.rows[starts[-1]].tolist() if begun else None,
    }


def prepare_observations(storage: Any, buffer: ReplayBuffer, bounds: IntArray) -> None:
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


def minari_episodes(
    buffer: ReplayBuffer, labels: LabelledTransitions | None, bounds: IntArray
) -> Iterator[Any]:
    """Minari's episodes, each made when it is written."""
    from minari.data_collector import EpisodeBuffer

    table = buffer.observations.rows
    terminates = buffer.terminated if labels is None else labels.terminated
    for episode, (begin, end) in enumerate(bounds.tolist()):
        rows = slice(begin, end)
        terminated, truncated = terminates[rows].copy(), buffer.truncated[rows].copy()
        if not terminated[-1]:  # whatever else ended it, no further step of it is known
            truncated[-1] = True
        elif labels is not None:  # the limit of the recorded episode is not the task's
            truncated[-1] = False
        yield EpisodeBuffer(
            id=episode,
            observations=table[np.append(buffer.inputs[begin], buffer.successors[rows])],
            actions=buffer.actions[rows].copy(),
            rewards=np.zeros(end - begin) if labels is None else labels.rewards[rows].copy(),
            terminations=terminated,
            truncations=truncated,
            infos={},
        )


def read_episodes(dataset: Any) -> tuple[ReplayBuffer, FloatArray]:
    """The buffer of all n transitions of a ``minari.MinariDataset``, and their rewards (n,).

    Raises:
        UnsupportedSpaceError: spaces that no agent here can work with.
        ArtefactError: no transitions, or data that its spaces do not hold.
        NonFiniteError: NaN or infinity among observations or rewards.
    """
    shape, dtype, n_actions = check_spaces(dataset)
    buffer = ReplayBuffer(shape, dtype, n_actions)
    rewards: list[FloatArray] = []
    ending = _stored_ending(dataset)
    count = len(dataset.episode_indices)
    for place, episode in enumerate(dataset.iterate_episodes(), start=1):
        where = f"episode {episode.id} of the Minari data set {dataset.id!r}"
        rewards.append(_checked_rewards(episode.rewards, where))
        unfinished = place == count and ending.get("unfinished", False)
        _add_episode(buffer, dataset.observation_space, episode, where, unfinished=unfinished)
    if len(buffer) == 0:
        raise ArtefactError(f"the Minari data set {dataset.id!r} holds no transitions")
    if ending.get("next_start") is not None:
        start = np.array(ending["next_start"], dtype).reshape(shape)
        buffer.add_start(buffer.observations.intern(start))
    return buffer, np.concatenate(rewards)


def _stored_ending(dataset: Any) -> dict[str, Any]:
    """What was stored of the buffer's end, if the data set is still the whole buffer."""
    ending = dataset.storage.metadata.get(METADATA_KEY)
    if not isinstance(ending, dict):
        return {}
    if ending["format"] > METADATA_FORMAT:
        raise ArtefactError(
            f"the Minari data set {dataset.id!r} was written by rover {ending.get('version')}; "
            f"this is rover {__version__}: upgrade rover-rl to read it"
        )
    whole = np.array_equal(dataset.episode_indices, np.arange(ending["episodes"]))
    return ending if whole and dataset.storage.total_episodes == ending["episodes"] else {}


def _add_episode(
    buffer: ReplayBuffer,
    space: gym.Space[Any],
    episode: Any,
    where: str,
    *,
    unfinished: bool,
) -> None:
    actions = np.asarray(episode.actions)
    n, table = len(actions), buffer.observations
    if n == 0:
        return
    observations = _checked_observations(episode.observations, (n + 1, *table.shape), space, where)
    whole = actions.dtype.kind in "iu" and actions.ndim == 1
    if not whole or actions.min() < 0 or actions.max() >= buffer.n_actions:
        raise ArtefactError(
            f"{where} has actions that are not all whole numbers in 0..{buffer.n_actions - 1}"
        )
    terminated, truncated = (
        np.array(ends, np.bool_) for ends in (episode.terminations, episode.truncations)
    )
    if {len(terminated), len(truncated), len(episode.rewards)} != {n}:
        raise ArtefactError(
            f"{where} has {n} actions, {len(episode.rewards)} rewards, {len(terminated)} "
            f"terminations and {len(truncated)} truncations; there must be as many of each"
        )
    if not terminated[-1]:
        truncated[-1] = not unfinished
    indices = [table.intern(observation) for observation in observations]
    done = True
    for step, action in enumerate(actions.tolist()):
        if done:
            buffer.add_start(indices[step])
        ends = bool(terminated[step]), bool(truncated[step])
        buffer.add(indices[step], action, indices[step + 1], *ends)
        done = any(ends)


def _checked_observations(
    stored: Any, shape: tuple[int, ...], space: gym.Space[Any], where: str
) -> NDArray[Any]:
    """Observations of one episode in the dtype of their space, if no value changes by it."""
    found = np.asarray(stored)
    if found.shape != shape:
        raise ArtefactError(
            f"{where} has observations of shape {found.shape}, but its actions and its "
            f"observation space make it {shape}"
        )
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise NonFiniteError(f"{where} has observations with NaN or infinity: leave it out")
    observations = found.astype(space.dtype)
    beyond = isinstance(space, gym.spaces.Discrete) and not (
        found.min() >= 0 and found.max() < space.n
    )
    if beyond or not np.array_equal(observations, found):
        raise ArtefactError(
            f"{where} has observations of dtype {found.dtype} that its observation space {space} "
            "does not hold"
        )
    return observations


def _checked_rewards(stored: Any, where: str) -> FloatArray:
    rewards = np.asarray(stored, np.float64)
    if not np.isfinite(rewards).all():
        raise NonFiniteError(f"{where} has rewards that are NaN or infinite: leave it out")
    return rewards
