"""
The operators alone
===================

Transitions in; occupancy, :math:`J`, policy and :math:`J^*` out. No agent, exploration or
representation is involved: here the data are uniformly random actions on Four Rooms.
"""

import matplotlib.pyplot as plt
import torch

import rover
from rover.envs import finite_dynamics
from rover.evaluation import optimal_occupancy
from rover.operators import Objective, mirror_descend, solve_occupancy
from rover.world.counts import Counts

data = rover.make_agent("random", "rover/FourRooms-v0", seed=100).learn(20_000).buffer

# %%
# The transition operator by ridge regression with a Dirac kernel, and the uniform policy on it.
operator = Counts(data).rows(ridge=1e-3).operator()
uniform = torch.full((operator.n_states, 4), 0.25, dtype=torch.float64)
settings = {"discount": 0.99, "objective": Objective(sink_norm=1.0)}
before = solve_occupancy(operator, uniform, operator.start, **settings)
print(f"J = {before.objective:.5f}, {before.sink_mass:.1%} of the mass is not supported")

# %%
# Policy mirror descent in closed form, and the minimum of J over all policies under the true
# dynamics.
result = mirror_descend(operator, operator.start, n_steps=100, step_size=10.0, **settings)
problem = finite_dynamics(rover.make_agent("random", "rover/FourRooms-v0").env)
least = optimal_occupancy(problem.dynamics, discount=0.99).objective

# %%
figure = plt.figure(figsize=(5.5, 3.4), layout="constrained")
axes = figure.subplots()
axes.semilogy([j / least for j in result.objectives])
axes.set(xlabel="step of mirror descent", ylabel="J / J* (1 is best, log scale)")
axes.set_yticks([1, 1.5, 2, 2.5], ["1", "1.5", "2", "2.5"], minor=False)
axes.set_yticks([], minor=True)
axes.grid(alpha=0.3)
plt.show()
