"""
Adapt or fine-tune
==================

A task with a sparse goal in the third room, learned by interacting. Fine-tuning starts from the
policy of pretraining; adapting also plans with its transition model.
"""

import gymnasium
import matplotlib.pyplot as plt

import rover
from rover.envs import GOALS

agent = rover.Rover("rover/MultiRooms-v0", seed=100).learn(800)
task = gymnasium.make("rover/MultiRooms-v0", goal=GOALS["rover/MultiRooms-v0"]["room3"])

# %%
learned = {
    "adapt: policy and model": rover.adapt(
        agent, task, total_timesteps=300, evaluate_every=25, seed=100
    ),
    "finetune: policy": rover.finetune(agent.policy, task, total_timesteps=4000, seed=100),
    "from scratch": rover.finetune(None, task, total_timesteps=4000, seed=100),
}

# %%
figure = plt.figure(figsize=(6.5, 3.6), layout="constrained")
axes = figure.subplots()
for name, result in learned.items():
    steps = [record["step"] for record in result.curve]
    axes.plot(steps, [record["greedy_return"] for record in result.curve], ".-", label=name)
    print(f"{name}: {result.summary['steps_to_best_return']} steps to the best return")
axes.set(xscale="log", xlabel="steps that see the reward", ylabel="return of the greedy policy")
axes.grid(alpha=0.3)
axes.legend()
plt.show()
