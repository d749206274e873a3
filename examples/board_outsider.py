"""An outsider's agent on the board: Q-learning on a bonus by counts, with numpy alone.

rover board run --agent examples.board_outsider:CountingQ --scale small
"""

from collections import defaultdict

import numpy as np


class CountingQ:
    """Rewards itself with 1/√n for the n-th try, and hands over a softmax of what it values."""

    def __init__(self, env, *, seed):
        self.env, self.rng, n = env, np.random.default_rng(seed), int(env.action_space.n)
        self.q, self.tries = defaultdict(lambda: np.ones(n)), defaultdict(lambda: np.zeros(n))

    def learn(self, steps):
        observation, _ = self.env.reset(seed=int(self.rng.integers(2**31)))
        for _ in range(steps):
            key, action = self.key(observation), self.act(observation, self.rng)
            observation, _, terminated, truncated, _ = self.env.step(action)
            self.tries[key][action] += 1
            target = self.tries[key][action] ** -0.5 + 0.95 * self.q[self.key(observation)].max()
            self.q[key][action] += 0.3 * (target - self.q[key][action])
            if terminated or truncated:
                observation, _ = self.env.reset()

    def key(self, observation):
        is_float = np.asarray(observation).dtype.kind == "f"
        return np.round(observation, 1).tobytes() if is_float else np.asarray(observation).tobytes()

    def policy(self, observations):
        values = np.array([self.q[self.key(one)] for one in observations])
        odds = np.exp(5.0 * (values - values.max(axis=1, keepdims=True)))
        return odds / odds.sum(axis=1, keepdims=True)

    def act(self, observation, rng):
        return int(rng.choice(self.env.action_space.n, p=self.policy([observation])[0]))
