"""Figures of a policy that was planned for rewards, on a map.

Unlike the others they are computed, from a policy and an environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from matplotlib.figure import Figure

from rover.envs import finite_dynamics, horizon_of, map_arrays
from rover.evaluation import sample_trajectories
from rover.plots.maps import MapPanel, map_figure
from rover.plots.runs import GridMap
from rover.policies import ValuePolicy
from rover.solving import goal_regret, goal_states


def draw_solution(policy: ValuePolicy, env: gym.Env[Any, Any]) -> Iterator[tuple[str, Figure]]:
    """Draw the values and an episode of a policy of one task, or the regret of several goals, in an
    environment with the task's reward. Names and figures; none where states lie on no map."""
    problem = finite_dynamics(env)
    arrays = {} if problem is None else map_arrays(env, problem.observations)
    if problem is None or not arrays:
        return
    grid, dynamics, observations = GridMap(**arrays), problem.dynamics, problem.observations
    starts = np.flatnonzero(dynamics.start > 0.0)
    if policy.n_components > 1:
        result, regret = goal_regret(policy, env), np.full(dynamics.n_states, np.nan)
        # rounding puts a return above the best possible one
        regret[goal_states(policy, env)] = np.maximum(result.best - result.returns, 0.0)
        optimal = " (all optimal)" if np.nanmax(regret) < 1e-6 else ""
        title = f"regret of {policy.n_components} goals of {len(regret)}{optimal}"
        panel = MapPanel(title, values=regret, starts=starts)
        yield "regret", map_figure(grid, [panel], scale="regret")
        return
    is_bare = dynamics.terminal | policy.is_unseen(observations)
    values = np.where(is_bare, np.nan, policy.value(observations))
    probs, rng = policy.probs(observations), np.random.default_rng(0)
    path = sample_trajectories(dynamics, probs, n_episodes=1, horizon=horizon_of(env), rng=rng)
    path = path[:, path[0] >= 0]
    title = f"an episode of the policy, {path.shape[1] - 1} steps"
    plan = MapPanel("values of the states in the plan", values=values, starts=starts)
    panels = [plan, MapPanel(title, trajectories=path)]
    yield "values", map_figure(grid, panels, scale="value")
