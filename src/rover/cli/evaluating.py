"""``rover evaluate`` and ``rover plot``: what a run came to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np

from rover.cli.commands import command
from rover.cli.solving import say_task, task_figures
from rover.cli.tables import figures_table, say
from rover.envs import finite_dynamics, known_id, make_env
from rover.envs.dynamics import MAX_EVALUATED_STATES
from rover.errors import ConfigurationError
from rover.evaluation import RolloutEvaluator, compare_finite

if TYPE_CHECKING:
    from rover.envs import FiniteMDP
    from rover.policies import Policy


class _Sampling(NamedTuple):
    """Flags of every command that samples figures."""

    episodes: int = 20
    repeats: int = 100
    seed: int = 0
    as_json: bool = False


_ROLLOUT_NOTE = (
    "The states of this environment are unknown, so neither coverage nor J* can be computed. Cells "
    "come from one net, built from other episodes of uniform actions; compare entropies only here. "
    "± is the standard error of a mean over sets of episodes."
)

_ROLLOUT_ROWS: list[tuple[str, ...]] = [
    ("cells visited", "{cells:,.0f} ± {cells_error:.0f}"),
    ("k-NN entropy, nats", "{knn_entropy:.2f} ± {knn_entropy_error:.2f}"),
    ("steps per episode", "{episode_length[mean]:,.1f}"),
    ("  95% interval", "{episode_length[low]:,.1f}–{episode_length[high]:,.1f}"),
    ("episodes that ended by themselves", "{terminated:.1%}"),
]


@command()
def _evaluate(
    path: Path,
    *,
    sampling: _Sampling,
    max_steps: int = 100_000,
) -> None:
    """Measure a policy: coverage, exact occupancy, distance from the optimum.

    Uniformly random actions and the optimal policy for J are measured too.

    Where the dynamics are known (rover's environments, FrozenLake, Taxi, CliffWalking):
      coverage               share of all states that N episodes visit together, sampled
      P(coverage ≥ 95%)      share of the repeats in which they visit so many
      steps to full coverage resampling episodes until every state was seen, sampled
      J                      Σ_x d(x)² of the exact discounted occupancy d: chance that two draws
                             meet
      J/J*                   relative to the least J of any policy: 1 is optimal
      entropies              of the exact occupancy, in nats; at most the logarithm of the number of
                             states

    For unknown dynamics, episodes are rolled out: visited cells of a net, the k-nearest-neighbour
    entropy of the visited observations, and the lengths of episodes.

    A policy with skills, or a mixture of policies, draws one component for each episode. For a
    policy of `rover solve` the return is measured too: −1 per step and 0 on arrival for goals, or
    the environment's own reward.

    Args:
        path (RUN|POLICY): run folder, or policy.safetensors
        max_steps: steps after which waiting for full coverage is given up

    Examples:
        rover evaluate runs/rover-Maze-v0-default-seed0
        rover evaluate runs/rover-Maze-v0-default-seed0/policy.safetensors --episodes 5
        rover evaluate runs/rover-Maze-v0-default-seed0 --json | jq .policy.optimality_ratio
    """
    policy = read_policy(path)
    from rover.envs import horizon_of
    from rover.training.environments import warn_of_another_world
    from rover.training.run_folder import load_run_buffer

    setup = {name: policy.details[name] for name in ("env_id", "env_kwargs", "discount")}
    env = make_env(known_id(setup["env_id"]), setup["env_kwargs"])
    # The file may be older than the environment registered under its id.
    policy.check_fits(env)
    episodes, repeats, seed, as_json = sampling
    problem = finite_dynamics(env)
    buffer = load_run_buffer(path) if path.is_dir() and problem is None else None
    if buffer is not None:
        warn_of_another_world(env, buffer, seed=policy.details["seed"])
    horizon = horizon_of(env, longest=0 if buffer is None else buffer.longest_episode)
    setup |= {"path": str(path), "horizon": horizon, "episodes": episodes, "seed": seed}
    setup |= {"repeats": repeats, "max_steps": max_steps}
    if problem is None:
        figures, title, rows, note = _roll_out(env, policy, setup)
    else:
        figures, title, rows, note = _measure_exactly(problem, policy, setup)
    # Only policies of `rover solve` were planned for tasks; others are worth what they cover.
    task = _task_figures(policy, env, problem, episodes=episodes, seed=seed)
    if as_json:
        figures = setup | figures | ({} if task is None else {"task": task})
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
        return
    headings = {"policy": "policy", "uniform": "uniform", "optimal": "optimal for J"}
    columns = {shown: figures[key] for key, shown in headings.items() if figures.get(key)}
    say(figures_table(title, columns, rows), note)
    if task is not None:
        say_task(task, episodes)


_Measured = tuple[dict[str, Any], str, list[tuple[str, ...]], str]
"""Figures of a policy and of what it is compared with; a table's title, rows and note."""


def _measure_exactly(problem: FiniteMDP, policy: Policy, setup: dict[str, Any]) -> _Measured:
    """Measure a policy where the dynamics are known, beside uniform actions and the optimum."""
    n_states, max_steps = problem.dynamics.n_states, setup["max_steps"]
    figures = compare_finite(
        problem,
        policy.tables(problem.observations),
        discount=setup["discount"],
        horizon=setup["horizon"],
        n_episodes=setup["episodes"],
        n_repeats=setup["repeats"],
        max_steps=max_steps,
        rng=np.random.default_rng(setup["seed"]),
    )
    late = f"> {max_steps:,}"
    rows: list[tuple[str, ...]] = [
        (f"coverage in {setup['episodes']} episodes", "{coverage[mean]:.1%}"),
        ("  95% interval", "{coverage[low]:.1%}–{coverage[high]:.1%}"),
        ("P(coverage ≥ 95%)", "{p_coverage_95:.1%}"),
        ("steps to full coverage, median", "{steps_to_full_coverage[median]:,.0f}", late),
        ("  first quartile", "{steps_to_full_coverage[lower]:,.0f}", late),
        ("  third quartile", "{steps_to_full_coverage[upper]:,.0f}", late),
        ("J = Σ d², exact", "{objective:.4g}"),
        ("J/J*, exact", "{optimality_ratio:.4f}"),
        ("Rényi-2 entropy, nats", "{renyi2_entropy:.3f}"),
        ("Shannon entropy, nats", "{shannon_entropy:.3f}"),
    ]
    title = f"{setup['env_id']}: {n_states} states, horizon {setup['horizon']}, "
    title += f"discount {setup['discount']:g}"
    note = f"{setup['repeats']} repeats; resampling was given up after {max_steps:,} steps. "
    note += f"The most entropy is log {n_states} = {np.log(n_states):.3f} nats."
    if n_states > MAX_EVALUATED_STATES:
        note += f" J* is not computed for more than {MAX_EVALUATED_STATES:,} states."
    return figures, title, rows, note


def _roll_out(env: gym.Env[Any, Any], policy: Policy, setup: dict[str, Any]) -> _Measured:
    """Measure a policy by roll-outs beside uniform actions, where the states are unknown."""
    from rover.evaluation.rollouts import MEASURED_SETS

    del setup["max_steps"]  # nothing is waited for
    setup["repeats"] = max(2, min(setup["repeats"], MEASURED_SETS))  # an error needs two
    if setup["episodes"] < 2:
        raise ConfigurationError(
            f"the states of {setup['env_id']} are unknown, so episodes are rolled out, and an "
            "interval needs at least two: --episodes 2"
        )
    evaluator = RolloutEvaluator(
        env,
        policy.n_actions,
        horizon=setup["horizon"],
        n_episodes=setup["episodes"],
        n_sets=setup["repeats"],
        rng=np.random.default_rng([setup["seed"], 0]),
    )
    setup["cell_radius"] = evaluator.net.radius
    # A stream of its own: every policy is measured beside the same random actions.
    rng = np.random.default_rng([setup["seed"], 1])
    measured = evaluator.measure(policy.sample_component, rng)
    title = f"{setup['env_id']}: {setup['repeats']} sets of {setup['episodes']} episodes, "
    title += f"horizon {setup['horizon']}"
    figures = {"policy": measured, "uniform": evaluator.uniform}
    return figures, title, _ROLLOUT_ROWS, _ROLLOUT_NOTE


def _task_figures(
    policy: Policy,
    env: gym.Env[Any, Any],
    problem: FiniteMDP | None,
    *,
    episodes: int,
    seed: int,
) -> dict[str, Any] | None:
    """Returns of a policy in the tasks that it was planned for; None if `env` has no such task."""
    from rover.policies import ValuePolicy
    from rover.solving import OWN_REWARD, goal_regret, reward_regret

    if not isinstance(policy, ValuePolicy):
        return None
    is_own, regret = policy.tasks == (OWN_REWARD,), None
    try:
        if problem is not None or not is_own:  # else roll-outs alone say what it earns
            regret = reward_regret(policy, env) if is_own else goal_regret(policy, env)
    except ConfigurationError:  # a reward that the environment has not
        return None
    return task_figures(policy, env, regret, episodes=episodes, seed=seed)


def read_policy(path: Path) -> Policy:
    """The policy of a run folder or policy file; its details say what it was trained on."""
    from rover.policies import load_policy
    from rover.training.run_folder import POLICY_FILE, finished_file

    file = finished_file(path, POLICY_FILE)
    policy = load_policy(file)
    in_python = (
        "measure it with rover.evaluation.compare_finite or rover.evaluation.RolloutEvaluator, and "
        "learn a task with rover.finetune"
    )
    known_id(policy.details.get("env_id"), file, in_python)
    return policy


@command()
def _plot(
    paths: tuple[Path, ...],
    *,
    out: Path | None = None,
    formats: tuple[str, ...] = ("png",),
    dpi: int = 150,
    dims: str | None = None,
    no_title: bool = False,
) -> None:
    """Draw figures of runs.

    For a run of `rover pretrain`, into RUN/pictures: curves of visited states and coverage, visits
    compared with random actions (on the map, in a plane of two numbers of the observation, sorted,
    or as images), and for known states episodes, occupancy and actions of the policy.

    For several runs of `rover pretrain` on one environment: curves of each agent, with the mean
    over seeds and its 95% interval.

    For runs of `rover finetune` or `rover offline`: learning curves, a panel for each task and a
    curve for each start and learner, with the mean over seeds and its 95% interval.

    Nothing is computed again.

    Args:
        paths (RUN): run folder; several of one kind share a figure
        out: folder of the pictures [default: RUN/pictures of the only run]
        dpi: dots per inch of png files, 30 to 1200
        dims (I,J): two numbers of vector observations, whose plane shows the visits
        no_title: leave out the titles of figures, as for a paper

    Examples:
        rover plot runs/rover-Maze-v0-default-seed0
        rover plot runs/robot --dims 0,2
        rover plot runs/rover-Maze-v0-*-seed? --out pictures --format pdf --no-title
        rover plot runs/maze-marked-ddpg-*-seed? --out pictures
    """
    from rover.plots import plot_runs

    chosen = None
    if dims is not None:
        try:
            chosen = [int(one) for one in dims.split(",")]
        except ValueError:
            raise ConfigurationError(
                f"--dims takes two numbers of the observation, as in --dims 0,1, not {dims!r}"
            ) from None
    options: dict[str, Any] = {"formats": tuple(formats), "dpi": dpi, "titles": not no_title}
    for picture in plot_runs(paths, out=out, dims=chosen, **options):
        say(str(picture))
