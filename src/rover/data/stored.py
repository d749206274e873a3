"""Replay buffers from the files that runs leave."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from rover.data.buffer import ReplayBuffer
from rover.errors import ArtefactError, ConfigurationError
from rover.storage import read_arrays

BUFFER_KIND = "buffer"


def load_buffer(
    path: str | os.PathLike[str],
    *,
    observation_shape: tuple[int, ...] | None = None,
    observation_dtype: DTypeLike | None = None,
    n_actions: int | None = None,
) -> ReplayBuffer:
    """Read a replay buffer from its file, the ``buffer.h5`` of a run.

    Args:
        path: the file.
        observation_shape: shape that observations must have; None for any.
        observation_dtype: dtype that they must have; None for any.
        n_actions: number of actions that there must be; None for any.

    Raises:
        ArtefactError: missing, truncated, altered, foreign, of another kind or from a newer
            version; or without a single transition.
        ConfigurationError: observations or actions other than asked for.
        StorageError: the operating system does not let it be read.
    """
    name = Path(path)
    stored = read_arrays(name, kind=BUFFER_KIND)
    observations, count = stored.arrays.get("observations"), stored.metadata.get("n_actions")
    if observations is None or observations.ndim == 0:
        raise ArtefactError(f"{name} lacks observations; {_NOT_OURS}")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ArtefactError(
            f"{name} does not say how many actions there are (n_actions={count!r}); {_NOT_OURS}"
        )
    shape, dtype = observations.shape[1:], observations.dtype
    wanted_dtype = None if observation_dtype is None else np.dtype(observation_dtype)
    for what, wanted, found in (
        ("observations of shape", observation_shape, shape),
        ("observations of dtype", wanted_dtype, dtype),
        ("a number of actions of", n_actions, count),
    ):
        if wanted is not None and wanted != found:
            raise ConfigurationError(
                f"{name} holds {what} {found}, but {wanted} is needed: it was collected on another "
                "environment, or with another kind of observation"
            )
    buffer = ReplayBuffer(shape, dtype, count)
    try:
        buffer.load_arrays(stored.arrays)
    except ArtefactError as error:
        raise ArtefactError(f"{name}: {error}; {_NOT_OURS}") from None
    if len(buffer) == 0:
        raise ArtefactError(f"{name} holds no transitions; make a run of at least one step")
    return buffer


_NOT_OURS = "no run of rover leaves such a file: restore it from a copy"
