"""Policies and replay buffers from their files, whatever method made them."""

from __future__ import annotations

from pathlib import Path

from rover.errors import ArtefactError
from rover.policies.coverage import POLICY_KIND, CoveragePolicy, read_coverage_policy
from rover.policies.greedy import GreedyPolicy, read_greedy_policy
from rover.policies.network import NetworkPolicy, read_network_policy
from rover.storage import read_tensors


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
