"""A zero-memory buffer, with and without the sink (paper, Section "Sink-State Augmentation").

Each round collects a batch of whole episodes with the current policy, fits the transition operator
on that batch *alone*, and plans the next policy from the start. Whatever the batch does not hold is
unsupported, though earlier rounds may have known it well.

With the sink, unsupported mass costs ε² m² (Theorem "sink-state objective decomposition"). Without
it the operator maps an unsupported pair to the zero vector, (K + λI)⁻¹ k(x, a) = 0: mass that goes
there leaves the occupancy μ and with it the objective, J = ‖μ‖². That is the augmented objective at
ε = 0, since the sink enters nowhere else: the rows that the augmentation adds to Φ̃ carry a factor
ε, and the sink's own weight couples to no other. So "without the sink" is ``sink_norm=0`` here.
Then leaving the data is free, and the best plan runs out of the last batch as fast as it can. What
it runs to is what the batch before it knew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.coverage.estimation import DenseEstimate
from rover.coverage.plan import Plan, improve
from rover.envs import GridWorld
from rover.errors import ConfigurationError
from rover.features import RepresentationTrainer, make_encoder, paper_encoder_spec
from rover.operators import (
    Linear,
    TransitionCounts,
    constant_steps,
    exact_support,
    fit_transition_model,
    merge_transitions,
)
from rover.training.pretraining import torch_threads

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

GRID_WORLD = "rover.envs.gridworld:GridWorld"

FeatureMap = Callable[[TransitionCounts], Tensor]
"""From a round's batch to the features (S, z) of all states."""


@dataclass(frozen=True)
class DiagnosticSettings:
    """One diagnostic; the defaults are the paper's settings where it gives them.

    Attributes:
        env_id: a grid world of one start state, without slip.
        env_kwargs: its keyword arguments.
        n_rounds: rounds R; the first is collected by the uniform policy.
        n_episodes: episodes of a round's batch; 27 of Multi-Rooms are 8,100 transitions, the
            larger batch of the paper's sensitivity analysis (8,096).
        discount: γ.
        ridge: λ.
        step_size: η, constant.
        mirror_steps: mirror-descent steps of a plan, the best of which is kept.
        exploration_epsilon: share of uniform actions while collecting.
        features: "exact" for one-hot features, with which the linear kernel tells exact states
            apart; "learned" for the paper's encoder, trained further on each batch.
        encoder_updates: updates of a learned encoder per round.
    """

    env_id: str = "rover/MultiRooms-v0"
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    n_rounds: int = 10
    n_episodes: int = 27
    discount: float = 0.99
    ridge: float = 1e-3
    step_size: float = 10.0
    mirror_steps: int = 250
    exploration_epsilon: float = 0.15
    features: Literal["exact", "learned"] = "exact"
    encoder_updates: int = 100

    def __post_init__(self) -> None:
        for name in ("n_rounds", "n_episodes", "mirror_steps", "encoder_updates"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0.0 <= self.exploration_epsilon <= 1.0:
            raise ConfigurationError(
                f"exploration_epsilon must be in [0, 1], not {self.exploration_epsilon}"
            )


@dataclass(frozen=True, eq=False)
class Rounds:
    """What one diagnostic saw.

    Attributes:
        visits: (R, S) how often each state was visited in each round, episode starts included.
        sink_mass: (R,) share of its discounted occupancy that the plan made after each round sends
            to where that round's batch says nothing.
    """

    visits: IntArray
    sink_mass: FloatArray

    @property
    def states_seen(self) -> IntArray:
        """(R,) distinct states of each round."""
        seen: IntArray = np.count_nonzero(self.visits, axis=1)
        return seen

    @property
    def retained(self) -> FloatArray:
        """(R − 1,) share of the states of one round that the next round visits again."""
        seen = self.visits > 0
        again: FloatArray = (seen[1:] & seen[:-1]).sum(axis=1) / seen[:-1].sum(axis=1)
        return again

    @property
    def kept(self) -> FloatArray:
        """(R,) share of all states seen so far that the round itself visits."""
        ever = np.logical_or.accumulate(self.visits > 0, axis=0)
        shares: FloatArray = self.states_seen / ever.sum(axis=1)
        return shares


def run_rounds(settings: DiagnosticSettings, *, sink_norm: float, seed: int) -> Rounds:
    """Run the diagnostic once.

    Args:
        settings: of the diagnostic.
        sink_norm: ε; 0 is "without the sink".
        seed: of the actions, and of a learned encoder. Rounds of equal seeds begin with the same
            batch, whatever ε.

    Raises:
        ConfigurationError: not a grid world, or one whose steps or start are random.
    """
    world = make_world(settings)
    dynamics = world.dynamics()
    successor, start = dynamics.successor(), int(dynamics.start.argmax())
    rng = np.random.default_rng(seed)
    feature_map = _make_feature_map(settings, world, seed)
    policy_probs = np.full((dynamics.n_states, dynamics.n_actions), 1.0 / dynamics.n_actions)
    visits = np.zeros((settings.n_rounds, dynamics.n_states), np.int64)
    sink_mass = np.zeros(settings.n_rounds)
    with torch_threads(1):
        for current in range(settings.n_rounds):
            batch = sample_batch(
                successor,
                _explore(policy_probs, settings.exploration_epsilon),
                start,
                n_episodes=settings.n_episodes,
                horizon=world.horizon,
                rng=rng,
            )
            visits[current] = np.bincount(batch[2], minlength=dynamics.n_states)
            visits[current, start] += settings.n_episodes
            counts = merge_transitions(*batch)
            features = feature_map(counts)
            plan = plan_on_batch(
                counts,
                features,
                start,
                settings,
                n_actions=dynamics.n_actions,
                sink_norm=sink_norm,
            )
            policy_probs = plan.policy.probs(features).numpy()
            sink_mass[current] = plan.descent.occupancy.sink_mass
    return Rounds(visits, sink_mass)


def sample_batch(
    successor: IntArray,
    policy_probs: FloatArray,
    start: int,
    *,
    n_episodes: int,
    horizon: int,
    rng: np.random.Generator,
) -> tuple[IntArray, IntArray, IntArray]:
    """Whole episodes under deterministic dynamics, side by side.

    Args:
        successor: (S, A) the next state of each pair.
        policy_probs: (S, A), rows sum to 1.
        start: the state in which every episode begins.
        n_episodes: E.
        horizon: H, steps of each episode.
        rng: source of randomness.

    Returns:
        States, actions and next states of the transitions, (E H,) each.
    """
    thresholds = np.cumsum(policy_probs, axis=1)[:, :-1]  # (S, A − 1)
    states = np.full((horizon + 1, n_episodes), start, np.int64)
    actions = np.zeros((horizon, n_episodes), np.int64)
    for step in range(horizon):
        drawn = rng.random(n_episodes)
        actions[step] = (drawn[:, None] >= thresholds[states[step]]).sum(axis=1)
        states[step + 1] = successor[states[step], actions[step]]
    return states[:-1].ravel(), actions.ravel(), states[1:].ravel()


def plan_on_batch(
    counts: TransitionCounts,
    features: Tensor,
    start: int,
    settings: DiagnosticSettings,
    *,
    n_actions: int,
    sink_norm: float,
) -> Plan:
    """Fit the operator on one batch alone and plan from the start.

    Args:
        counts: the batch.
        features: (S, z) of all states.
        start: the initial state.
        settings: of the diagnostic.
        n_actions: A.
        sink_norm: ε.
    """
    support = exact_support(counts, np.array([start]), np.ones(1))
    model = fit_transition_model(
        features, support, Linear(), n_actions=n_actions, ridge=settings.ridge
    )
    return improve(
        DenseEstimate(model),
        Linear(),
        support.start,
        discount=settings.discount,
        sink_norm=sink_norm,
        n_steps=settings.mirror_steps,
        step_rule=constant_steps(settings.step_size),
        tolerance=0.0,
    )


def _explore(policy_probs: FloatArray, epsilon: float) -> FloatArray:
    mixed: FloatArray = (1.0 - epsilon) * policy_probs + epsilon / policy_probs.shape[1]
    return mixed


def make_world(settings: DiagnosticSettings) -> GridWorld:
    """The grid world of `settings`.

    Raises:
        ConfigurationError: it is not one, has several starts, or has a goal.
    """
    spec = gym.spec(settings.env_id)
    if spec.entry_point != GRID_WORLD:
        raise ConfigurationError(
            f"the sink diagnostic needs a grid world such as rover/MultiRooms-v0, not "
            f"{settings.env_id}"
        )
    world = gym.make(spec, **{"observation": "onehot", **settings.env_kwargs}).unwrapped
    assert isinstance(world, GridWorld)
    dynamics = world.dynamics()
    if np.count_nonzero(dynamics.start) != 1 or dynamics.terminal.any():
        raise ConfigurationError(
            "the sink diagnostic needs one start state and no goal; leave `start` and `goal` out"
        )
    return world


def _make_feature_map(settings: DiagnosticSettings, world: GridWorld, seed: int) -> FeatureMap:
    observations = world.observations()
    if settings.features == "exact":
        one_hot = torch.eye(len(observations), dtype=torch.float64)
        return lambda counts: one_hot
    generator = torch.Generator().manual_seed(seed)
    encoder = make_encoder(
        paper_encoder_spec(observations.shape[1:], observation_dtype="float32"), generator
    )
    trainer = RepresentationTrainer(
        encoder, n_actions=world.dynamics().n_actions, temperature=1.0, generator=generator
    )

    def train(counts: TransitionCounts) -> Tensor:
        for _ in range(settings.encoder_updates):
            trainer.update(
                observations,
                counts.inputs,
                counts.actions,
                counts.successors,
                counts.counts,
            )
        return torch.from_numpy(encoder.features(observations)).double()

    return train
