"""``rover certify``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rover.cli.commands import command
from rover.cli.tables import say


@command()
def _certify(
    path: Path,
    *,
    world: str | None = None,
    episodes: int = 20,
    repeats: int = 100,
    seed: int = 0,
    as_json: bool = False,
    badge: Path | None = None,
) -> None:
    """State what part of an environment a policy or its data covers, as one line, JSON or badge.

    Of a run folder both are measured: the share of the states that the data holds, J and J/J* of
    the policy, its coverage with an interval, and the share of its decisions at observations that
    the data does not hold. Where the dynamics are unknown, cells of a net are counted, of the
    policy, of random actions and of the data.

    Args:
        path (RUN|POLICY|DATA): run folder, policy.safetensors or buffer.safetensors
        world (ID): the environment, where the file does not name it
        episodes: episodes of the coverage
        repeats: sets of episodes of its interval
        seed: seed of the sampling
        as_json: print one JSON object and no line
        badge (FILE.svg): write a badge for a README too

    Examples:
        rover certify runs/rover-Maze-v0-default-seed0
        rover certify runs/rover-Maze-v0-default-seed0 --json --badge coverage.svg
        rover certify buffer.safetensors --env rover/Maze-v0
    """
    from rover.integrations import certificate as certificates
    from rover.storage import replace_file

    certificate = certificates.certify_path(
        path, world, episodes=episodes, repeats=repeats, seed=seed
    )
    if as_json:
        sys.stdout.write(json.dumps(certificate, indent=2) + "\n")
    else:
        say(certificates.one_line(certificate))
    if badge is not None:
        replace_file(badge, certificates.badge(certificate).encode())
