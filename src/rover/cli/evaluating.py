"""``rover evaluate`` and ``rover plot``: what a run came to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from rover.cli import words
from rover.cli.tables import figures_table, say
from rover.errors import ConfigurationError

if TYPE_CHECKING:
    import gymnasium as gym

    from rover.envs import FiniteMDP
    from rover.policies import Policy

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


def evaluate(
    path: words.Run,
    /,
    *,
    episodes: words.Episodes = 20,
    repeats: Annotated[int, Parameter(validator=Number(gte=2, lte=10**4))] = 100,
    seed: words.Seed = 0,
    as_json: Annotated[bool, Parameter(name="--json", negative="", show_default=False)] = False,
    max_steps: words.Count = 100_000,
) -> None:
    """Measure the coverage and occupancy of a policy.

    Uniformly random actions and the optimal policy for J are measured too.

    Where the dynamics are known (rover's environments, FrozenLake, Taxi,
    CliffWalking):

    - coverage: share of all states that the episodes visit together
    - P(coverage ≥ 95%): share of the repeats in which they visit so many
    - steps to full coverage: resampling episodes until every state was seen
    - `J = Σ d²` of the exact discounted occupancy d: the chance that two draws
      meet
    - `J/J*`: relative to the least J of any policy; 1 is optimal
    - entropies of the exact occupancy, in nats

    For unknown dynamics, episodes are rolled out: visited cells of a net, the
    k-nearest-neighbour entropy of the visited observations, and the lengths of
    episodes.

    A policy with skills, or a mixture of policies, draws one component for each
    episode. For a policy of `rover solve` the return is measured too: −1 per
    step and 0 on arrival for goals, or the environment's own reward.

    examples:

        rover evaluate runs/rover-Maze-v0-default-seed0
        rover evaluate runs/maze/policy.safetensors --episodes 5
        rover evaluate runs/maze --json | jq .policy.optimality_ratio

    Args:
        path: run folder, or policy.safetensors
        repeats: sets of such episodes, for confidence intervals; 2 to 5 for roll-outs
        as_json: print one JSON object, and nothing else
        max_steps: steps after which waiting for full coverage is given up
    """
    from rover.envs import finite_dynamics, horizon_of, known_id, make_env
    from rover.training.run_folder import load_run_buffer

    policy = read_policy(path)
    setup = {name: policy.details[name] for name in ("env_id", "env_kwargs", "discount")}
    env = make_env(known_id(setup["env_id"]), setup["env_kwargs"])
    # The file may be older than the environment registered under its id.
    policy.check_fits(env)
    problem = finite_dynamics(env)
    buffer = load_run_buffer(path) if path.is_dir() and problem is None else None
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
        from rover.cli.solving import say_task

        say_task(task, episodes)


_Measured = tuple[dict[str, Any], str, list[tuple[str, ...]], str]
"""Figures of a policy and of what it is compared with; a table's title, rows and note."""


def _measure_exactly(problem: FiniteMDP, policy: Policy, setup: dict[str, Any]) -> _Measured:
    """Measure a policy where the dynamics are known, beside uniform actions and the optimum."""
    import numpy as np

    from rover.envs.dynamics import MAX_EVALUATED_STATES
    from rover.evaluation import compare_finite

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
    import numpy as np

    from rover.evaluation import RolloutEvaluator
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
    from rover.cli.solving import task_figures
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
    from rover.envs import known_id
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


def plot(
    *paths: words.Run,
    out: words.Folder | None = None,
    formats: words.Formats = ("png",),
    dpi: Annotated[int, Parameter(validator=Number(gte=30, lte=1200))] = 150,
    dims: tuple[int, int] | None = None,
    title: Annotated[bool, Parameter(show_default=False)] = True,
) -> None:
    """Draw figures of runs.

    For a run of `rover pretrain`, into RUN/pictures: curves of visited states
    and coverage, visits compared with random actions (on the map, in a plane of
    two numbers of the observation, sorted, or as images), and for known states
    episodes, occupancy and actions of the policy.

    For several runs of `rover pretrain` on one environment: curves of each
    agent, with the mean over seeds and its 95% interval.

    For runs of `rover finetune` or `rover adapt`: learning curves, a panel for
    each task and a curve for each start and learner, with the mean over seeds
    and its 95% interval.

    Nothing is computed again.

    examples:

        rover plot runs/rover-Maze-v0-default-seed0
        rover plot runs/robot --dims 0 2
        rover plot runs/maze-*-seed? --out pictures --format pdf --no-title
        rover plot runs/maze-marked-ddpg-*-seed? --out pictures

    Args:
        paths: run folder; several of one kind share a figure
        out: folder of the figures [default: RUN/pictures of the only run]
        dpi: dots per inch of png files
        dims: two numbers of vector observations, as in --dims 0 2, whose plane shows the visits
        title: --no-title leaves out the titles of figures, as for a paper
    """
    from rover.plots import plot_runs

    for picture in plot_runs(paths, out=out, formats=formats, dpi=dpi, dims=dims, titles=title):
        say(str(picture))
