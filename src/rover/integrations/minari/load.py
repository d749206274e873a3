"""Minari data sets as buffers."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.data import Buffer, check_spaces
from rover.errors import ArtefactError, ConfigurationError, NonFiniteError, RoverError
from rover.integrations.certificate import check_certificate
from rover.operators.support import FloatArray
from rover.version import __version__

METADATA_KEY = "rover"
METADATA_FORMAT = 1
CERTIFICATE_KEY = "rover_certificate"


def load_minari(dataset: Any) -> tuple[Buffer, FloatArray]:
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
    minari = import_minari()
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


def read_certificate(dataset: Any) -> dict[str, Any]:
    """The certificate of a data set that ``rover export`` wrote, held against its transitions.

    Args:
        dataset: the id of a data set on this machine, or a ``minari.MinariDataset``.

    Returns:
        The certificate: ``command`` makes the data again, ``share``, ``objective`` and the other
        figures are those of :func:`rover.integrations.certificate.certify`.

    Raises:
        ConfigurationError: Minari is not installed, or the environment cannot be made here.
        ArtefactError: no such data set, none that carries a certificate, or one whose
            transitions are not those that it was made of.
    """
    minari = import_minari()
    buffer, _ = load_minari(dataset)
    opened = minari.load_dataset(dataset) if isinstance(dataset, str) else dataset
    certificate = opened.storage.metadata.get(CERTIFICATE_KEY)
    if not isinstance(certificate, Mapping):
        raise ArtefactError(
            f"the Minari data set {opened.id!r} carries no certificate of rover: it was exported "
            "without a run, with a task, or by somebody else"
        )
    check_certificate(certificate, buffer)
    return dict(certificate)


def import_minari() -> ModuleType:
    """Minari with the modules that are used here, or an error that names the extra."""
    try:
        import minari
        import minari.dataset.minari_storage
        import minari.namespace
    except ImportError as error:
        raise ConfigurationError(
            f'Minari is not installed ({error}): pip install ".[minari]"'
        ) from error
    module: ModuleType = minari
    return module


def _read_episodes(dataset: Any) -> tuple[Buffer, FloatArray]:
    """The buffer of all n transitions of a ``minari.MinariDataset``, and their rewards (n,)."""
    shape, dtype, n_actions = check_spaces(dataset)
    buffer = Buffer(shape, dtype, n_actions)
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
    """Stored metadata of the buffer's end, if the data set is still the whole buffer."""
    ending = dataset.storage.metadata.get(METADATA_KEY)
    if not isinstance(ending, dict):
        return {}
    if ending["format"] > METADATA_FORMAT:
        raise ArtefactError(
            f"the Minari data set {dataset.id!r} was written by rover {ending.get('version')}; "
            f"this is rover {__version__}: upgrade rover-rl to read it"
        )
    # Of a part of the data set, or one that was added to, they say nothing.
    whole = np.array_equal(dataset.episode_indices, np.arange(ending["episodes"]))
    return ending if whole and dataset.storage.total_episodes == ending["episodes"] else {}


def _add_episode(
    buffer: Buffer,
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
    # Minari ends every episode; only our own metadata say that the last one went on.
    if not terminated[-1]:
        truncated[-1] = not unfinished
    # In order of first sight, as collecting numbers them: so a round trip keeps every bit.
    indices = [table.intern(observation) for observation in observations]
    done = True
    # Data of others may go on behind an end, inside one episode: that is another start.
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
    values = np.asarray(stored)
    if values.shape != shape:
        raise ArtefactError(
            f"{where} has observations of shape {values.shape}, but its actions and its "
            f"observation space make it {shape}"
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise NonFiniteError(f"{where} has observations with NaN or infinity: leave it out")
    # A wider dtype is taken where it changes no value.
    observations = values.astype(space.dtype)
    beyond = isinstance(space, gym.spaces.Discrete) and not (
        values.min() >= 0 and values.max() < space.n
    )
    if beyond or not np.array_equal(observations, values):
        raise ArtefactError(
            f"{where} has observations of dtype {values.dtype} that its observation space {space} "
            "does not hold"
        )
    return observations


def _checked_rewards(stored: Any, where: str) -> FloatArray:
    rewards = np.asarray(stored, np.float64)
    if not np.isfinite(rewards).all():
        raise NonFiniteError(f"{where} has rewards that are NaN or infinite: leave it out")
    return rewards
