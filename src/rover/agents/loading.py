"""Policies and replay buffers from their files, whatever method made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rover.agents.greedy_policy import GreedyPolicy, read_greedy_policy
from rover.agents.network_policy import NetworkPolicy, read_network_policy
from rover.agents.policy import POLICY_KIND, CoveragePolicy, read_coverage_policy
from rover.agents.run_folder import read_run_config
from rover.artefacts import read_tensors
from rover.collection import ReplayBuffer, load_buffer
from rover.errors import ArtefactError


def load_policy(path: str | Path) -> CoveragePolicy | NetworkPolicy | GreedyPolicy:
    """Read a policy from its file; nothing is unpickled.

    ROVER's is a :class:`CoveragePolicy`; that of a method with a learner a :class:`NetworkPolicy`;
    that of a value-based learner a :class:`GreedyPolicy`.

    Raises:
        ArtefactError: missing, truncated, altered, foreign or from a newer version.
    """
    stored = read_tensors(Path(path), kind=POLICY_KIND)
    try:
        if "network" in stored.metadata:
            return read_network_policy(stored)
        if "critics" in stored.metadata:
            return read_greedy_policy(stored)
        return read_coverage_policy(stored)
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise ArtefactError(
            f"{path} holds a policy that this version of rover cannot build: {error}"
        ) from error


def load_run_buffer(path: str | Path, **expected: Any) -> ReplayBuffer:
    """All transitions of a finished run.

    Args:
        path: the run folder, or its ``buffer.h5``.
        expected: ``observation_shape``, ``observation_dtype`` and ``n_actions`` that the buffer
            must have, as in :func:`rover.collection.load_buffer`.

    Raises:
        ArtefactError: no run there, one that was stopped before its end, or a damaged or empty
            file.
        ConfigurationError: observations or actions other than expected.
    """
    file = Path(path)
    if file.is_dir():
        read_run_config(file)
        file = file / "buffer.h5"
        if not file.exists():
            raise ArtefactError(
                f"{path} has no {file.name} yet: the run was stopped before its end; finish it "
                f"with `rover resume {path}`"
            )
    return load_buffer(file, **expected)
