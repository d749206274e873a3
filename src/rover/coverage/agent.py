"""Occupancy coverage by planning on a learned transition model (paper, Algorithm 1).

collect → represent → estimate → improve: the agent follows an exploration plan made from where it
stands, trains its representation, fits the transition model, and plans the policy that it hands
over from the initial states.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch

from rover.coverage.config import PRESETS, RoverConfig
from rover.coverage.contexts import ContextExplorer, changes_with_episodes, is_test_due
from rover.coverage.exploration import Explorer
from rover.coverage.plan import (
    PlanningModel,
    WarmStart,
    fit_planning_model,
    place_planning_model,
    start_distribution,
)
from rover.coverage.representation import Representation
from rover.coverage.resolve import choose_encoder, resolve, unbounded_dimensions
from rover.coverage.trainer import check_collapse
from rover.data import draw_transitions
from rover.errors import (
    ConditioningWarning,
    ConfigurationError,
    RoverWarning,
    SingularSolveError,
)
from rover.features import Encoder, custom_encoder, make_encoder
from rover.operators import (
    Interpolation,
    Kernel,
    StepRule,
    growing_steps,
    make_kernel,
    mirror_descend,
)
from rover.planning.counts import Counts
from rover.planning.evidence import Evidence
from rover.planning.model import PlaceModel
from rover.policies import ContextPolicy, CoveragePolicy
from rover.training.agent import Agent, HandedOver

_RIDGE_ATTEMPTS = 4
"""Tries of a plan, each with ten times the ridge of the one before."""

_FEW_NEW = 0.03
"""Share of new pairs up to which a policy is planned to the end."""

_LARGEST_COLUMN_SUM = 1.5
"""Mass that a pair may lead to: of MountainCar's model at most 1.1, of CartPole's up to 6."""
_ROUNDING = 1e-6

_SOFTENED = 0.5
"""Share of uniform actions that a policy is tried out with where random actions cover more."""

_KEPT = 0.5
"""Share of a warm start that is kept where outcomes vary. Each plan is then for another model, and
from a policy that is already certain mirror descent hardly moves (docs/deviations.md)."""

_DISCOUNTS = {"states": 0.99, "net": 0.98}  # of exploration plans
_PLACES_STEPS, _PLACES_SHARE = 60, 0.1
"""Mirror steps of a policy on places, and the share of all steps between two such policies, which
do not collect."""

_PLACES_TOLERANCE = 1e-3
"""Tolerance of mirror descent on places, whose model is no better than that."""

_STEP_RULES: dict[str, Callable[[float], StepRule]] = {
    "growing": growing_steps,
    # Each iteration from the first size again, as the authors' code has it.
    "backtracking": functools.partial(StepRule, max_backtracks=12, restart=True),
    "constant": StepRule,
}


class Rover(Agent[RoverConfig]):
    """Reward-free pretraining by occupancy coverage.

    Args:
        env: a Gymnasium environment, or the id of one. Actions must be Discrete; observations
            Discrete, a vector Box or a uint8 image Box. Its reward is never looked at.
        preset: ``"default"``, the best settings known; ``"paper"``, what its text says; or what the
            authors published, ``"code-2026-06"``.
        env_kwargs: keyword arguments of an environment given by its id.
        seed: everything random follows from it; one seed gives the same bits on one CPU.
        run_dir: folder for the run's files, which must not hold a run yet; None leaves no files.
        overrides: single settings, the fields of :class:`~rover.coverage.config.RoverConfig`.
            ``kernel``, ``encoder``, ``representation`` and ``cover`` may also be your own: a
            :class:`~rover.operators.Kernel`, a torch module
            (:func:`~rover.features.custom_encoder`), a
            :class:`~rover.features.RepresentationLoss`, and a function from observations
            (n, *shape) to what is to be covered of each, (n, k).

    Raises:
        ConfigurationError: unknown or contradictory settings.
        UnsupportedSpaceError: an observation or action space that cannot be handled.

    Example:
        >>> agent = Rover("rover/MultiRooms-v0", seed=1).learn(1000)
        >>> agent.policy.probs(observations)
    """

    name = "rover"
    label = "ROVER"
    colour = "#0072B2"
    config_class = RoverConfig
    presets = PRESETS

    @classmethod
    def resolve(cls, config: RoverConfig, env: gym.Env[Any, Any]) -> RoverConfig:
        """Fill in what depends on the environment."""
        return resolve(super().resolve(config, env), env.observation_space)

    def _configure(self, overrides: Mapping[str, Any]) -> RoverConfig:
        names = ("kernel", "encoder", "representation", "cover")
        self._objects = {name: overrides[name] for name in names if callable(overrides.get(name))}
        config = super()._configure({**overrides, **dict.fromkeys(self._objects, "custom")})
        for name in names:
            if getattr(config, name) == "custom" and name not in self._objects:
                raise ConfigurationError(
                    f"{name}='custom' stands for an object of your own: pass it, {name}=..."
                )
        return config

    def _build(self) -> CoveragePolicy:
        config = self.config
        action_seed, batch_seed = np.random.SeedSequence([self.seed, 0]).spawn(2)
        self._rng = np.random.default_rng(action_seed)
        self._batch_rng = np.random.default_rng(batch_seed)
        generator = torch.Generator().manual_seed(self.seed)
        space = self.env.observation_space
        own = self._objects.get("encoder")
        if own is None:
            encoder = make_encoder(
                choose_encoder(config, space), generator, gain=config.initial_gain
            )
        else:
            encoder = custom_encoder(own, space)
        if config.cover is not None and self.measures.evaluator is not None:
            warnings.warn(
                "coverage, J and J/J* are those of all states, whatever cover names",
                RoverWarning,
                stacklevel=2,
            )
        if config.contexts and self.measures.evaluator is not None:
            warnings.warn(
                "contexts=True: coverage, J and J/J* are those of the policy without its memory; "
                "with it the policy is measured by roll-outs, at the end",
                RoverWarning,
                stacklevel=2,
            )
        self._kernel = self._make_kernel()
        self._evidence = Evidence(self.buffer)
        self._representation = Representation(
            encoder,
            unbounded_dimensions(space, encoder.config),
            self._objects.get("representation"),
            self._objects.get("cover"),
            config,
            self.buffer,
            self._kernel,
            self._evidence,
            generator=generator,
            rng=self._batch_rng,
        )
        self._steps = _STEP_RULES[config.step_rule](config.step_size)
        self._places: PlaceModel | None = None
        self._explorer: Explorer | ContextExplorer | None = None
        self._has_contexts = config.contexts is True
        self._renew_exploration()
        self._warm_start: WarmStart | None = None
        self._best: tuple[float, int, CoveragePolicy] | None = None
        """The spread, the step and the policy that covers most of those of sound models."""
        is_linear = config.kernel == "linear"  # which needs no basis
        basis = None if is_linear else torch.zeros(0, encoder.feature_dim, dtype=torch.float64)
        width = encoder.feature_dim if is_linear else 0
        weights = torch.zeros(width, self.buffer.n_actions, dtype=torch.float64)
        self._uniform = CoveragePolicy(
            encoder.frozen(), self._kernel, basis, weights, epsilon=config.policy_epsilon
        )
        self._follow(self._uniform)
        return self._uniform

    def _make_kernel(self) -> Kernel:
        if "kernel" in self._objects:
            return cast(Kernel, self._objects["kernel"])
        config = self.config
        assert config.kernel is not None
        parameters = {} if config.bandwidth is None else {"bandwidth": config.bandwidth}
        return make_kernel(config.kernel, **parameters)

    # collect

    def _act(self, observation: int) -> int:
        config = self.config
        if self.num_timesteps < config.seed_steps or (
            config.exploration_epsilon > 0.0 and self._rng.random() < config.exploration_epsilon
        ):
            return int(self._rng.integers(self.buffer.n_actions))
        if self._explorer is not None:
            with self.stopwatch("collect"):
                action = self._explorer.act(observation, self._rng)
            if action is not None:
                return action
        return self._tabulated.sample(observation, self._rng)

    def _observe(self, row: int, *, done: bool) -> None:
        """Let the exploration plan know what a step revealed."""
        if self._explorer is not None:
            with self.stopwatch("collect"):
                self._explorer.observe(row, done=done)

    def _renew_exploration(self) -> None:
        """Explore on counts while states repeat, else on a law of motion."""
        config, buffer, explorer = self.config, self.buffer, self._explorer
        if self._representation.choose_features():
            self._places = None
        if config.collect != "plan":
            return
        if self._has_contexts:
            if not isinstance(explorer, ContextExplorer):
                self._explorer = ContextExplorer(buffer)
            return
        kind = config.exploration
        if kind is None:
            is_exact = config.kernel == "dirac" or self._evidence.is_exact
            kind = "states" if is_exact else "net"
        model: Counts | PlaceModel
        if kind == "net":
            model = self._place_model()
        elif explorer is not None and isinstance(explorer.model, Counts):
            model = explorer.model
        else:
            model = Counts(buffer, variance_ridge=config.variance_ridge)
        if explorer is None or explorer.model is not model:
            every = config.exploration_every if kind == "net" else math.inf
            discount = config.exploration_discount or _DISCOUNTS[kind]
            self._explorer = Explorer(model, buffer, discount=discount, every=every)
        elif kind == "states":
            explorer.forget_plan()

    def _place_model(self) -> PlaceModel:
        """The model of places, which begins anew where their features have changed."""
        if self._places is None or self._representation.learns:
            assert self.config.n_anchors is not None
            self._places = PlaceModel(
                self.buffer, self._representation.points, largest=self.config.n_anchors
            )
        return self._places

    def _update(self) -> dict[str, Any] | None:
        """Represent, estimate and improve when due; figures if the policy was planned anew."""
        config, step, representation = self.config, self.num_timesteps, self._representation
        if step < config.seed_steps:
            return None
        if is_test_due(step):
            self._recognise_contexts()
        if isinstance(self._explorer, ContextExplorer):
            return self._update_of_contexts(self._explorer)
        figures: dict[str, Any] = {}
        if step % config.encoder_every == 0:
            with self.stopwatch("represent"):
                figures |= representation.train()
        after = step - config.seed_steps - (config.first_policy or 0)
        is_first = config.first_policy is not None and after == 0
        if after < 0 or not (is_first or step % config.policy_every == 0):
            return None
        if not is_first and step % self._policy_spacing() > 0:
            self._renew_exploration()
            return None
        with self.stopwatch("represent"):
            representation.forget()
            if representation.learns and len(self.buffer.observations) > 2:
                figures |= check_collapse(representation.features().numpy())
        figures |= self._improve_with_growing_ridge()
        self._renew_exploration()
        if self._explorer is not None:
            self._explorer.forget_plan()
        return figures

    def _recognise_contexts(self) -> None:
        """Plan within episodes from now on if the data says that worlds change with them."""
        config = self.config
        is_open = config.contexts is None and config.collect == "plan" and not self._has_contexts
        # Known dynamics are those of all contexts together, which are planned on as they are.
        if not is_open or self.measures.evaluator is not None:
            return
        if changes_with_episodes(self.buffer):
            self._has_contexts, self._best = True, None
            warnings.warn(
                f"step {self.num_timesteps}: the same action in the same observation leads to "
                "another outcome in another episode, so that from now on each episode is explored "
                "on a graph of its own; contexts=True does it from the first step, contexts=False "
                "never",
                RoverWarning,
                stacklevel=2,
            )
            self._renew_exploration()

    def _update_of_contexts(self, explorer: ContextExplorer) -> dict[str, Any] | None:
        """The policy of the prices as they are now when due, and its figures."""
        self.measures.within_episodes = True
        policy = explorer.policy(has_memory=True)
        if policy is None or self.num_timesteps % self._policy_spacing() > 0:
            return None
        self._policy = policy
        return explorer.figures()

    # estimate and improve

    def _improve_with_growing_ridge(self) -> dict[str, Any]:
        """A new policy and its figures, with ever larger ridges while the model creates mass.

        Raises:
            SingularSolveError: no ridge up to a thousand times the configured one helps.
        """
        growth = 1.0
        for attempt in range(_RIDGE_ATTEMPTS):
            try:
                return self._improve(growth)
            except SingularSolveError as error:
                problem = error
            growth *= 10.0
            if attempt < _RIDGE_ATTEMPTS - 1:
                warnings.warn(
                    f"step {self.num_timesteps}: {problem}; planning again with {growth:g} x ridge "
                    "(a larger ridge from the start saves the repeated plans)",
                    ConditioningWarning,
                    stacklevel=2,
                )
        raise SingularSolveError(f"step {self.num_timesteps}: {problem}") from problem

    def _improve(self, ridge_growth: float) -> dict[str, Any]:
        """Plan from the initial states, from a warm start where nothing new was seen; figures."""
        config, warm, step_rule, dual = self.config, self._warm_start, self._steps, None
        assert config.discount is not None
        with self.stopwatch("estimate"):
            encoder, kernel = self._representation.handed_over()
            on_places = self._representation.has_places
            model = self._estimate_places(encoder) if on_places else self._estimate(ridge_growth)
        # Places are never the same twice, and a larger ridge is another model.
        is_usable = config.warm_start and ridge_growth == 1.0 and not on_places
        if is_usable and warm is not None and warm.fits(model):
            dual = warm.dual
            if model.outcome_variance > 0.0:
                dual = _KEPT * dual
            else:
                step_rule = replace(step_rule, initial=warm.step_size)
        n_steps, tolerance = config.mirror_steps, config.mirror_tolerance
        n_new = model.n_pairs - (0 if warm is None else warm.pairs)
        if on_places:
            n_steps, tolerance = _PLACES_STEPS, max(tolerance, _PLACES_TOLERANCE)
        elif n_new > _FEW_NEW * model.n_pairs and self._explorer is not None:
            # Much is still being discovered, and the next policy replaces this one.
            n_steps = min(config.discovery_steps or n_steps, n_steps)
        warmup = min(1.0, self.num_timesteps / config.sink_warmup) if config.sink_warmup else 1.0
        with self.stopwatch("improve"):
            descent = mirror_descend(
                model.operator,
                model.start,
                discount=config.discount,
                sink_norm=config.sink_norm * warmup,
                n_steps=n_steps,
                step_rule=step_rule,
                tolerance=tolerance,
                dual=dual,
            )
            # π = softmax(ρ(φ) W) extends the policy at the anchors to every feature vector.
            weights = model.coefficients(descent.dual).mul_(-config.discount)
        epsilon = config.policy_epsilon
        self._follow(CoveragePolicy(encoder, kernel, model.basis, weights, epsilon=epsilon))
        # A descent that ended in rejected steps leaves a step size too small to begin with.
        step_size = max(descent.step_size, config.step_size)
        self._warm_start = WarmStart(model.anchors, model.n_pairs, descent.dual, step_size)
        return {
            "model_objective": descent.occupancy.objective,
            "sink_mass": descent.occupancy.sink_mass,
            "column_sum_max": model.worst_column,
            "mirror_steps": len(descent.objectives) - 1,
            "anchors": len(model.anchors),
            "pairs": model.n_pairs,
            **self._evidence.figures(),
            "exact_states": model.is_exact,
        }

    def _estimate(self, ridge_growth: float) -> PlanningModel:
        """Fit the regression that a policy is planned on, with so many times the ridge."""
        config, buffer, representation = self.config, self.buffer, self._representation
        exact = representation.is_exact()
        rows = None
        if config.plan_transitions is not None or config.plan_window is not None:
            limits = config.plan_transitions, config.plan_draw
            rows = draw_transitions(buffer, *limits, self._batch_rng, window=config.plan_window)
        counts, ridge = buffer.counts(rows), config.ridge
        assert ridge is not None
        if exact:  # λ / (n + λ) of what n tries leave open
            ridge = max(ridge, config.outcome_ridge * counts.outcome_variance)
        return fit_planning_model(
            representation.features(),
            counts,
            start_distribution(buffer, unseen=config.unseen_starts),
            self._kernel,
            config,
            n_actions=buffer.n_actions,
            ridge=ridge * ridge_growth,
            exact=exact,
            gram=representation.gram,
            covered=representation.covered(),
        )

    def _estimate_places(self, encoder: Encoder) -> PlanningModel:
        """Fit rows between places, on which a policy is planned that has the units of places."""
        places = self._place_model()
        places.forget()
        places.fit()
        return place_planning_model(places, places.rows(), encoder)

    def _figures(self) -> dict[str, Any]:
        names, latest = self._evidence.figures(), self.measures.latest
        figures = {name: latest.get(name) for name in names} | {"contexts": self._has_contexts}
        return {**super()._figures(), **figures}

    def _policy_spacing(self) -> int:
        """Steps between policy updates: a multiple of `policy_every` that grows with the data."""
        every, share = self.config.policy_every, self.config.policy_share
        explorer = self._explorer
        if isinstance(explorer, Explorer) and isinstance(explorer.model, PlaceModel):
            share = max(share, _PLACES_SHARE)
        return every * max(1, math.floor(share * self.num_timesteps / every))

    # hand over, store

    def _follow(self, policy: CoveragePolicy) -> None:
        """Make a policy the latest one, which collects where no exploration plan does."""
        self._policy = policy
        # The units of places are the policy's own, so that its features are not the agent's.
        is_own = isinstance(policy.kernel, Interpolation) or len(self.buffer) == 0
        none = torch.zeros(0, policy.encoder.feature_dim, dtype=torch.float64)
        features = none if is_own else self._representation.features()
        self._tabulated = policy.tabulated(self.buffer.observations, features)

    def _note_measured(self, record: Mapping[str, Any]) -> None:
        if self._has_contexts or self._keeps_latest or _is_broken(record):
            return
        objective, spread = record.get("objective"), record.get("cells")
        if objective is not None:
            spread = -objective
        if spread is not None and (self._best is None or spread > self._best[0]):
            self._best = float(spread), int(record["step"]), cast(CoveragePolicy, self._policy)

    @property
    def _keeps_latest(self) -> bool:
        """True if the latest policy is handed over whatever it covers, as the paper's is."""
        # The exact J is that of all states, and no judge of a policy that covers something else.
        is_of_all = self.config.cover is None or self.measures.evaluator is None
        return self.preset != "default" or not is_of_all

    def _doubts(self) -> str | None:
        latest = self.measures.latest
        if not _is_broken(latest):
            return None
        return (
            f"the policy of step {self.num_timesteps} was planned on a transition model that "
            f"creates mass (a column sums to {latest['column_sum_max']:.2g}, the sink's mass is "
            f"{latest['sink_mass']:.2g}; raise ridge or n_anchors)"
        )

    def _alternatives(self, step: int) -> list[HandedOver]:
        """Earlier policies, the latest softened, and uniform actions; none in the paper's presets.

        The earlier one is the best of those measured whose model created no mass.
        """
        if self._keeps_latest:
            return []
        if isinstance(self._policy, ContextPolicy):
            markov, uniform = self._policy.with_memory(False), self._uniform
            return [HandedOver(markov, step, 0.0), HandedOver(uniform, None, 1.0)]
        policy = cast(CoveragePolicy, self._policy)
        earlier = [] if self._best is None else [HandedOver(self._best[2], self._best[1], 0.0)]
        return [
            *earlier,
            HandedOver(_softened(policy, _SOFTENED), step, _SOFTENED),
            HandedOver(_softened(policy, 1.0), None, 1.0),
        ]

    def _choose(self) -> None:
        """Hand over what covers most of an episode: with its memory, without, or at random."""
        if not isinstance(self._policy, ContextPolicy):
            super()._choose()
            return
        measures, step = self.measures, self.num_timesteps
        measures.begin_end()
        choices = self._alternatives(step)
        trials = measures.try_out_within(
            [self._policy, *(choice.policy for choice in choices)], step=step
        )
        if not trials:
            return
        best = max(range(len(trials)), key=lambda k: trials[k].spread)
        measures.accept(trials[best])
        if best > 0:
            self._handed_over = choices[best - 1]
        if best == len(choices):
            warnings.warn(
                f"the policy of step {step} covers less of an episode than uniformly random "
                f"actions do: {self._handed_over} is handed over in its place. Run more steps",
                RoverWarning,
                stacklevel=5,
            )

    def _agent_state(self) -> dict[str, Any]:
        warm, best, chosen, policy = self._warm_start, self._best, self._handed_over, self._policy
        return {
            "representation": self._representation.state(),
            "contexts": self._has_contexts,
            # Prices follow from the buffer, which they are learned from again.
            "policy": policy.content() if isinstance(policy, CoveragePolicy) else None,
            "best": None if best is None else (best[0], best[1], best[2].content()),
            "handed_over": None if chosen is None else (chosen.step, chosen.uniform_share),
            "warm_start": None if warm is None else vars(warm),
        }

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        self._representation.load_state(state["representation"])
        self._has_contexts = bool(state["contexts"])
        self._explorer = self._places = None
        self._renew_exploration()
        self._best = None
        policy = self._uniform if state["policy"] is None else self._restored(state["policy"])
        if state["best"] is not None:
            spread, step, stored = state["best"]
            self._best = float(spread), int(step), self._restored(stored)
        self._follow(policy)
        warm = state["warm_start"]
        self._warm_start = None if warm is None else WarmStart.restored(warm)
        if isinstance(self._explorer, ContextExplorer):
            self.measures.within_episodes = True
            self._policy = self._explorer.policy(has_memory=True) or policy
        self._handed_over = None
        if state["handed_over"] is not None:
            step, share = state["handed_over"]
            fitting = [
                choice
                for choice in self._alternatives(step or 0)
                if (choice.step, choice.uniform_share) == (step, share)
            ]
            self._handed_over = fitting[0]

    def _restored(self, content: Mapping[str, Any]) -> CoveragePolicy:
        """A policy of a checkpoint, which holds the same of it as its file does."""
        own_encoder = self._objects.get("encoder")
        policy = CoveragePolicy.from_content(content, encoder=own_encoder, kernel=self._kernel)
        policy.encoder.requires_grad_(False)
        policy.check_fits(self.env)
        return policy


def _is_broken(record: Mapping[str, Any]) -> bool:
    """True if the model of a metrics line creates mass: no plan on it means what it says."""
    column_sum: float = record.get("column_sum_max") or 0.0
    sink_mass: float = record.get("sink_mass") or 0.0
    return column_sum > _LARGEST_COLUMN_SUM or sink_mass > 1.0 + _ROUNDING


def _softened(policy: CoveragePolicy, share: float) -> CoveragePolicy:
    """The policy with a share of its actions drawn uniformly, in [0, 1]."""
    weights = policy.weights.detach()
    if share == 1.0:
        weights, share = torch.zeros_like(weights), 0.0
    epsilon = 1.0 - (1.0 - policy.epsilon) * (1.0 - share)
    return CoveragePolicy(policy.encoder, policy.kernel, policy.basis, weights, epsilon=epsilon)
