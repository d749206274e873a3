"""``rover evaluate RUN|POLICY``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from rover.cli import exit_codes
from rover.cli.arguments import Commands, add_command, existing_path, whole_number
from rover.cli.tables import (
    NOTHING,
    command,
    count,
    make_console,
    make_table,
    number,
    ratio,
    share,
)
from rover.errors import ArtefactError, ConfigurationError

if TYPE_CHECKING:
    import gymnasium as gym

    from rover.envs import FiniteMDP
    from rover.evaluation import CoverageFigures, FiniteComparison, Quartiles, RolloutFigures
    from rover.policies.coverage import Policy, Probs

_DESCRIPTION = """\
Measure a policy beside uniformly random actions and beside the optimum.

Where the dynamics are known (rover's environments, FrozenLake, Taxi, CliffWalking):
  coverage               share of all states that N episodes visit together, sampled
  steps to full coverage resampling episodes until every state was seen, sampled
  J                      Σ_x d(x)² of the exact discounted occupancy d: chance that two draws meet
  J/J*                   against the least J of any policy: 1 is perfect
  entropies              of the exact occupancy, in nats; the logarithm of the number of states
                         is the most there can be

Where they are not, episodes are rolled out: their lengths, and how many observations differ.

A policy with skills, or a mixture of policies, draws one of its parts for each episode.
"""

_EXAMPLES = """\
  rover evaluate runs/rover-Maze-v0-default-seed0
  rover evaluate runs/rover-Maze-v0-default-seed0/policy.safetensors --episodes 5
  rover evaluate runs/rover-Maze-v0-default-seed0 --json | jq .policy.optimality_ratio
"""


@dataclasses.dataclass(frozen=True)
class Trained:
    """A policy with the environment it was trained on."""

    policy: Policy
    env_id: str
    env_kwargs: dict[str, Any]
    discount: float


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "evaluate",
        summary="measure a policy: coverage, exact occupancy, distance from the optimum",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("path", metavar="RUN|POLICY", help="run folder, or policy.safetensors")
    for flag, minimum, default, text in (
        ("--episodes", 1, 20, "episodes of a coverage figure; roll-outs where states are unknown"),
        ("--repeats", 2, 100, "independent repeats of each sampled figure"),
        ("--max-steps", 1, 100_000, "steps after which waiting for full coverage is given up"),
        ("--seed", 0, 0, "seed of the sampling"),
    ):
        parser.add_argument(
            flag,
            type=whole_number(minimum),
            default=default,
            metavar="N",
            help=f"{text} [default: {default}]",
        )
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, and print a table or JSON."""
    path = existing_path(options.path)
    trained = read_trained(path)
    from rover.envs import finite_dynamics, make_env
    from rover.training.measuring import horizon_of

    env = make_env(trained.env_id, trained.env_kwargs)
    problem = finite_dynamics(env)
    about: dict[str, Any] = {
        "path": str(path),
        "env_id": trained.env_id,
        "env_kwargs": trained.env_kwargs,
        "discount": trained.discount,
        "horizon": horizon_of(env),
        "episodes": options.episodes,
        "seed": options.seed,
    }
    if problem is None:
        measured = _roll_out(env, trained, about)
    else:
        about |= {"repeats": options.repeats, "max_steps": options.max_steps}
        measured = _compare(problem, trained, about)
    if options.json:
        sys.stdout.write(json.dumps(about | measured.figures, indent=2) + "\n")
        return exit_codes.DONE
    console = make_console()
    console.print(measured.table)
    console.print(measured.note)
    return exit_codes.DONE


@dataclasses.dataclass(frozen=True)
class Measured:
    """Figures for programs, and the same for people."""

    figures: dict[str, Any]
    table: Table
    note: str


def _compare(problem: FiniteMDP, trained: Trained, about: dict[str, Any]) -> Measured:
    """Measure where the dynamics are known."""
    from rover.evaluation import compare_finite
    from rover.training.measuring import MAX_EVALUATED_STATES

    comparison = compare_finite(
        problem,
        trained.policy.tables(problem.observations),
        discount=trained.discount,
        horizon=about["horizon"],
        n_episodes=about["episodes"],
        n_repeats=about["repeats"],
        max_steps=about["max_steps"],
        with_optimum=problem.dynamics.n_states <= MAX_EVALUATED_STATES,
        rng=np.random.default_rng(about["seed"]),
    )
    return Measured(
        dataclasses.asdict(comparison),
        _finite_table(comparison, about),
        _finite_note(comparison, about, MAX_EVALUATED_STATES),
    )


def _roll_out(env: gym.Env[Any, Any], trained: Trained, about: dict[str, Any]) -> Measured:
    """Measure where the states are unknown."""
    from rover.evaluation import measure_rollouts

    if about["episodes"] < 2:
        raise ConfigurationError(
            f"the states of {trained.env_id} are unknown, so episodes are rolled out, and an "
            "interval needs at least two: --episodes 2"
        )
    policies = {
        "policy": trained.policy.sample_component,
        "uniform": _uniform(trained.policy.n_actions),
    }
    rollouts = {
        name: measure_rollouts(
            env,
            sample_component,
            n_episodes=about["episodes"],
            horizon=about["horizon"],
            rng=np.random.default_rng(about["seed"]),
        )
        for name, sample_component in policies.items()
    }
    figures = {name: dataclasses.asdict(value) for name, value in rollouts.items()}
    return Measured(figures, _rollout_table(rollouts, about), _ROLLOUT_NOTE)


def read_trained(path: Path) -> Trained:
    """The policy of a run folder or policy file.

    Raises:
        ArtefactError: no run, no policy in it yet, or a damaged file.
        ConfigurationError: a policy that does not say which environment it is for.
    """
    from rover.policies.loading import load_policy
    from rover.training.run_folder import read_run_config

    file = path
    if path.is_dir():
        read_run_config(path)
        file = path / "policy.safetensors"
        if not file.exists():
            raise ArtefactError(
                f"{path} has no policy yet: the run was stopped before its end; finish it with "
                f"`{command('rover', 'resume', path)}`"
            )
    policy = load_policy(file)
    details = policy.details
    if details.get("env_id") is None or details.get("discount") is None:
        raise ConfigurationError(
            f"{file} does not say which environment it was trained on, because that cannot be made "
            "from an id; measure it in Python with rover.evaluation.compare_finite or "
            "rover.evaluation.measure_rollouts"
        )
    return Trained(policy, details["env_id"], dict(details["env_kwargs"]), details["discount"])


def _uniform(n_actions: int) -> Callable[[np.random.Generator], Probs]:
    return lambda _: lambda observations: np.full((len(observations), n_actions), 1.0 / n_actions)


def _finite_table(comparison: FiniteComparison, about: dict[str, Any]) -> Table:
    measured: list[CoverageFigures] = [comparison.policy, comparison.uniform]
    columns = ["", "policy", "uniform"]
    if comparison.optimal is not None:
        measured.append(comparison.optimal)
        columns.append("optimum")
    title = (
        f"{about['env_id']}: {comparison.n_states} states, horizon {about['horizon']}, "
        f"discount {about['discount']:g}"
    )
    table = make_table(title, columns)
    means = [m.coverage for m in measured]
    table.add_row(
        f"coverage in {about['episodes']} episodes", *(share(interval.mean) for interval in means)
    )
    table.add_row("  95% interval", *(f"{100 * i.low:.1f}–{share(i.high)}" for i in means))
    steps = [m.steps_to_full_coverage for m in measured]
    limit = about["max_steps"]
    table.add_row("steps to full coverage, median", *(_censored(q.median, limit) for q in steps))
    table.add_row("  quartiles", *(_quartiles(q, limit) for q in steps))
    table.add_row("J = Σ d², exact", *(number(m.objective) for m in measured))
    table.add_row("J/J*, exact", *(ratio(m.optimality_ratio) for m in measured))
    table.add_row("Rényi-2 entropy, nats", *(f"{m.renyi2_entropy:.3f}" for m in measured))
    table.add_row("Shannon entropy, nats", *(f"{m.shannon_entropy:.3f}" for m in measured))
    return table


def _finite_note(comparison: FiniteComparison, about: dict[str, Any], most: int) -> str:
    note = (
        f"{about['repeats']} repeats; resampling was given up after {count(about['max_steps'])} "
        f"steps. The most entropy is log {comparison.n_states} = "
        f"{np.log(comparison.n_states):.3f} nats."
    )
    if comparison.optimal is None:
        note += f" J* is not computed for more than {count(most)} states."
    return note


def _quartiles(value: Quartiles, limit: int) -> str:
    if value.lower is None:
        return NOTHING
    return f"{_censored(value.lower, limit)}–{_censored(value.upper, limit)}"


def _censored(value: float | None, limit: int) -> str:
    return f"> {count(limit)}" if value is None else count(value)


_ROLLOUT_NOTE = (
    "The states of this environment are unknown, so neither coverage nor J* can be told. Different "
    "observations count as different; in continuous spaces nearly all of them are."
)


def _rollout_table(rollouts: dict[str, RolloutFigures], about: dict[str, Any]) -> Table:
    table = make_table(
        f"{about['env_id']}: {about['episodes']} episodes, horizon {about['horizon']}",
        ("", *rollouts),
    )
    measured = list(rollouts.values())
    for name, intervals in (
        ("distinct observations per episode", [m.distinct_per_episode for m in measured]),
        ("steps per episode", [m.episode_length for m in measured]),
    ):
        table.add_row(name, *(f"{interval.mean:,.1f}" for interval in intervals))
        table.add_row("  95% interval", *(f"{i.low:,.1f}–{i.high:,.1f}" for i in intervals))
    table.add_row(
        "distinct observations in all", *(count(figures.distinct_in_all) for figures in measured)
    )
    table.add_row(
        "episodes that ended by themselves", *(share(figures.terminated) for figures in measured)
    )
    return table
