"""Figures of a policy that was planned for rewards: on a map, or in a phase plane.

Unlike the others they are computed, from a policy and an environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from matplotlib.figure import Figure

from rover.arrays import evenly_spaced
from rover.envs import FiniteMDP, finite_dynamics, horizon_of, map_arrays
from rover.evaluation import record_rollouts, sample_trajectories
from rover.plots.maps import MapPanel, map_figure
from rover.plots.runs import GridMap
from rover.plots.visits import PHASE_PLANES, make_planes, planes_of
from rover.policies import ValuePolicy
from rover.solving import goal_regret, goal_states
from rover.training.rollout_measures import MAX_RECORDED_OBSERVATIONS
from rover.training.run_folder import load_run_buffer

_DRAWN_EPISODES = 5


def draw_solution(
    policy: ValuePolicy, env: gym.Env[Any, Any], run: Path
) -> Iterator[tuple[str, Figure]]:
    """Draw the values and an episode of a policy of one task, or the regret of several goals, in an
    environment with the task's reward.

    Names and figures; none where states lie neither on a map nor in a phase plane.
    """
    problem, env_id = finite_dynamics(env), "" if env.spec is None else env.spec.id
    if problem is not None:
        arrays = map_arrays(env, problem.observations)
        if arrays:
            yield from _draw_maps(policy, env, problem, GridMap(**arrays))
    elif env_id in PHASE_PLANES and policy.n_components == 1:
        drawn = load_run_buffer(run).observations.rows
        drawn = drawn[evenly_spaced(len(drawn), MAX_RECORDED_OBSERVATIONS)]
        horizon, follow = horizon_of(env), policy.sample_component
        rollouts = record_rollouts(env, follow, horizon=horizon, n_episodes=_DRAWN_EPISODES, seed=0)
        title = f"{env_id}, solved without a further step"
        planes, values = planes_of(env_id), ("value", policy.value(drawn))
        yield "values", make_planes(planes, drawn, title, values=values, rollouts=rollouts)


def _draw_maps(
    policy: ValuePolicy, env: gym.Env[Any, Any], problem: FiniteMDP, grid: GridMap
) -> Iterator[tuple[str, Figure]]:
    """The regret of many goals; of one task the values and an episode."""
    dynamics, observations = problem.dynamics, problem.observations
    horizon, starts = horizon_of(env), np.flatnonzero(dynamics.start > 0.0)
    if policy.n_components > 1:
        result, regret = goal_regret(policy, env), np.full(dynamics.n_states, np.nan)
        # rounding puts a return above the best possible one
        regret[goal_states(policy, env)] = np.maximum(result.best - result.returns, 0.0)
        optimal = " (all optimal)" if np.nanmax(regret) < 1e-6 else ""
        title = f"regret of {policy.n_components} goals of {len(regret)}{optimal}"
        panel = MapPanel(title, values=regret, starts=starts)
        yield "regret", map_figure(grid, [panel], scale="regret")
        return
    is_bare = dynamics.terminal | (policy.landmarks_of(observations) < 0)
    values = np.where(is_bare, np.nan, policy.value(observations))
    probs, rng = policy.probs(observations), np.random.default_rng(0)
    path = sample_trajectories(dynamics, probs, n_episodes=1, horizon=horizon, rng=rng)
    path = path[:, path[0] >= 0]
    title = f"an episode of the policy, {path.shape[1] - 1} steps"
    plan = MapPanel("values of the states in the plan", values=values, starts=starts)
    panels = [plan, MapPanel(title, trajectories=path)]
    yield "values", map_figure(grid, panels, scale="value")
