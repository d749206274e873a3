"""Occupancy coverage by planning on a learned transition model (paper, Algorithm 1).

collect → represent → estimate → improve: the agent follows an exploration plan made from where it
stands, trains its representation, fits the transition model, and plans the policy that it hands
over from the initial states.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from rover.contexts.explorer import ContextExplorer, changes_with_episodes
from rover.coverage.config import PRESETS, RoverConfig
from rover.coverage.cover import Cover, target_weights
from rover.coverage.exploration import LandmarkExplorer, StateExplorer
from rover.coverage.improvement import Improvement, WarmStart, improve
from rover.coverage.plan import (
    PlanningModel,
    estimated_starts,
    fit_planning_model,
    landmark_planning_model,
    state_planning_model,
)
from rover.coverage.representation import Representation
from rover.coverage.resolve import choose_encoder, resolve, unbounded_dimensions
from rover.data import draw_transitions
from rover.envs import FiniteMDP, Spaces, finite_dynamics
from rover.errors import ConfigurationError, RoverWarning, SingularSolveError
from rover.features import Encoder, custom_encoder, make_encoder
from rover.operators import (
    Interpolation,
    Kernel,
    Objective,
    make_kernel,
)
from rover.policies import ContextPolicy, CoveragePolicy
from rover.policies.policy import Policy
from rover.training.agent import Agent, FinalPolicy
from rover.world.contact import ContactSearch
from rover.world.dynamics import MOST_UNEXPLAINED
from rover.world.model import LANDMARKS, LandmarkModel
from rover.world.regression import SEARCHED_FIT, USUAL_FIT

_RIDGE_GROWTHS = 1.0, 10.0, 100.0, 1000.0
"""Times the ridge of the tries of a plan."""

_LARGEST_COLUMN_SUM = 1.5
"""Mass that a pair may lead to: of MountainCar's model at most 1.1, of CartPole's up to 6."""
_ROUNDING = 1e-6

_LANDMARKS_SHARE = 0.2
"""Share of all steps between two policies on landmarks, which do not collect."""

_FINER = 2.5
"""Most landmarks of a fine net, as a multiple of `n_landmarks`."""

_EXPLORED_IN_IMAGES = 200
"""Most landmarks of exploration plans in features of images: 600 explore PointMaze Medium no sooner
(895 decisions for 869, seeds 1 to 16), at 1.3 times the time."""


class Rover(Agent[RoverConfig]):
    """Reward-free pretraining by occupancy coverage.

    Args:
        env: a Gymnasium environment: its id, a function that makes it, or an instance. An instance
            is evaluated in itself, after the run; the others make a second one. Actions must be
            Discrete, or a bounded Box of up to 32 numbers; observations Discrete, a vector Box or
            a uint8 image Box. Its reward is never looked at.
        preset: ``"default"``, the best settings known; ``"paper"``, what its text says; or what the
            authors published, ``"code-2026-06"``.
        env_kwargs: keyword arguments of an environment given by its id.
        seed: everything random follows from it; one seed gives the same bits on one CPU.
        run_dir: folder for the run's files, which must not hold a run yet; None leaves no files.
        overrides: single settings, the fields of :class:`~rover.coverage.config.RoverConfig`.
            ``kernel``, ``encoder``, ``representation``, ``cover`` and ``target`` may also be your
            own: a :class:`~rover.operators.Kernel`, a torch module
            (:func:`~rover.features.custom_encoder`), a
            :class:`~rover.features.RepresentationLoss`, a function from observations
            (n, *shape) to what is to be covered of each, (n, k), and one to their weights (n,) ≥ 0
            in the distribution that is to be covered, or an array of one weight a state (S,).

    Raises:
        ConfigurationError: unknown or contradictory settings.
        UnsupportedSpaceError: an observation or action space that cannot be handled.

    Example:
        >>> agent = Rover("rover/MultiRooms-v0", seed=1).learn(1000)
        >>> agent.policy.probs(observations)
    """

    name = "rover"
    label = "ROVER"
    config_class = RoverConfig
    presets = PRESETS

    @classmethod
    def resolve(cls, config: RoverConfig, env: gym.Env[Any, Any]) -> RoverConfig:
        """Fill in what depends on the environment."""
        return resolve(super().resolve(config, env), Spaces.of(env).observation)

    def _configure(self, overrides: Mapping[str, Any]) -> RoverConfig:
        names = ("kernel", "encoder", "representation", "cover", "target")
        if isinstance(overrides.get("target"), np.ndarray):
            overrides = {**overrides, "target": tuple(overrides["target"].tolist())}
        self._objects = {name: overrides[name] for name in names if callable(overrides.get(name))}
        config = super()._configure({**overrides, **dict.fromkeys(self._objects, "custom")})
        for name in names:
            if getattr(config, name) == "custom" and name not in self._objects:
                raise ConfigurationError(
                    f"{name}='custom' stands for an object of your own: pass it, {name}=..."
                    + " or --target MODULE:FUNCTION" * (name == "target")
                )
        return config

    def _build(self) -> CoveragePolicy:
        config = self.config
        action_seed, batch_seed = np.random.SeedSequence([self.seed, 0]).spawn(2)
        self._rng = np.random.default_rng(action_seed)
        self._batch_rng = np.random.default_rng(batch_seed)
        generator = torch.Generator().manual_seed(self.seed)
        space = self.spaces.observation
        own = self._objects.get("encoder")
        if own is None:
            encoder = make_encoder(
                choose_encoder(config, space), generator, gain=config.initial_gain
            )
        else:
            encoder = custom_encoder(own, space)
        if config.cover is not None and self.measures.evaluator is not None:
            warnings.warn(
                "coverage, J and J/J* are of all states alike, whatever cover and target say",
                RoverWarning,
                stacklevel=2,
            )
        if config.contexts and self.measures.evaluator is not None:
            warnings.warn(
                "contexts=True: coverage, J and J/J* are of the policy without its memory; "
                "with it the policy is measured by roll-outs, at the end",
                RoverWarning,
                stacklevel=2,
            )
        assert config.kernel is not None
        parameters = {} if config.bandwidth is None else {"bandwidth": config.bandwidth}
        own = self._objects.get("kernel")
        self._kernel: Kernel = make_kernel(config.kernel, **parameters) if own is None else own
        part = config.cover if config.cover != "custom" else self._objects["cover"]
        self._cover = Cover(self.world, part, config.bandwidth, self._target_function())
        self._representation = Representation(
            encoder,
            unbounded_dimensions(space, encoder.config),
            self._objects.get("representation"),
            self._cover,
            config,
            self.world,
            self._kernel,
            generator=generator,
            rng=self._batch_rng,
        )
        self._landmarks: LandmarkModel | None = None
        self._explorer: StateExplorer | LandmarkExplorer | ContextExplorer | None = None
        self._has_contexts = config.contexts is True
        self._renew_exploration()
        self._warm_start: WarmStart | None = None
        self._planned_at = 0
        self._plan_figures: Mapping[str, Any] | None = None
        self._best: tuple[float, int, CoveragePolicy] | None = None
        """The spread, the step and the policy with the best coverage among sound models."""
        is_linear = config.kernel == "linear"  # which needs no basis
        basis = None if is_linear else torch.zeros(0, encoder.feature_dim, dtype=torch.float64)
        width = encoder.feature_dim if is_linear else 0
        weights = torch.zeros(width, self.buffer.n_actions, dtype=torch.float64)
        self._uniform = CoveragePolicy(
            encoder.frozen(), self._kernel, basis, weights, epsilon=config.policy_epsilon
        )
        self._follow(self._uniform)
        return self._uniform

    def _target_function(self) -> Callable[[NDArray[Any]], Any] | None:
        """The weights of observations in the target distribution, as a function of them.

        Raises:
            ConfigurationError: one weight a state was given, and the environment has no states of
                this number.
        """
        target, space = self.config.target, self.spaces.observation
        if target is None or target == "custom":
            return self._objects.get("target")
        weights, problem = np.append(target, 0.0), finite_dynamics(self.env)
        state_of: Callable[[NDArray[Any]], Any]
        if problem is not None:
            n_states, state_of = problem.dynamics.n_states, problem.states_of
        elif isinstance(space, gym.spaces.Discrete):
            n_states, state_of = int(space.n), lambda rows: rows - int(space.start)
        else:
            raise ConfigurationError(
                "target as an array needs an environment with states of known number: give a "
                "function from observations (n, *shape) to weights (n,)"
            )
        if len(target) != n_states or not any(target):
            raise ConfigurationError(
                f"target must be {n_states} weights, one a state and at least one above 0, not "
                f"{len(target)} of sum {sum(target):g}"
            )
        return lambda rows: weights[state_of(rows)]

    def _objective(self, problem: FiniteMDP) -> Objective:
        wanted = self._target_function()
        if wanted is None or self.config.cover is not None:
            return Objective()
        weights = target_weights(wanted, problem.observations)
        if not weights.any():
            raise ConfigurationError("target is 0 at every state of the environment")
        return Objective(np.asarray(weights / weights.sum()))

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
            self._follow_latest_plan()
        return self._tabulated.sample(observation, self._rng)

    def _observe(self, row: int, *, done: bool) -> None:
        """Let the exploration plan know what a step revealed."""
        if self._explorer is not None:
            with self.stopwatch("collect"):
                self._explorer.observe(row, done=done)

    def _renew_exploration(self) -> None:
        """Explore on counts while states repeat, else on a dynamics model."""
        config, buffer, explorer = self.config, self.buffer, self._explorer
        if self._representation.choose_features():
            self._landmarks = None
        if config.collect != "plan":
            return
        if self._has_contexts:
            if not isinstance(explorer, ContextExplorer):
                self._explorer = ContextExplorer(buffer)
        elif self._explores_states():
            if isinstance(explorer, StateExplorer):
                explorer.forget_plan()
            else:
                self._explorer = StateExplorer(self.world.counts, buffer)
        else:
            model = self._landmark_model()
            if isinstance(explorer, LandmarkExplorer) and explorer.model is model:
                return
            search = config.search
            if search is None and self._representation.sees_slowly:
                search = False  # which finds nothing sooner in pictures, at twice the time
            contacts = self._contact_search()
            self._explorer = LandmarkExplorer(model, buffer, search=search, contacts=contacts)

    def _explores_states(self) -> bool:
        """True if exploration plans are made on exact states, by the settings or the data."""
        kind = self.config.exploration
        if kind is not None:
            return kind == "states"
        return self.config.kernel == "dirac" or self.world.is_exact

    def _contact_search(self) -> ContactSearch | None:
        """The search for contacts of still features of vectors, by default all; None of others."""
        cover = self.config.cover
        is_plain = not self._representation.learns and self.buffer.observations.rows.ndim == 2
        if not is_plain or cover == "custom":
            return None
        return ContactSearch(self.buffer, None if cover is None else np.array(cover))

    def _landmark_model(self) -> LandmarkModel:
        """The model of landmarks, which begins anew where their features have changed."""
        if self._landmarks is None or self._representation.learns:
            most, fit = LANDMARKS.most, USUAL_FIT
            if self._representation.sees_slowly:
                most, fit = _EXPLORED_IN_IMAGES, SEARCHED_FIT
            self._landmarks = LandmarkModel(
                self.buffer,
                self._representation.points,
                largest=min(self.config.n_landmarks, most),
                fit=fit,
            )
        return self._landmarks

    def _update(self) -> dict[str, Any] | None:
        """Represent, estimate and improve, each when it is due; figures of a new policy."""
        config, step, representation = self.config, self.num_timesteps, self._representation
        if step < config.seed_steps:
            return None
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
            figures |= representation.renew()
        # Only a policy that is followed or measured is worth planning.
        if self._explorer is None or self.measures.is_due(step):
            figures |= self._plan_and_follow()
        elif self._landmarks is not None:
            self._landmarks.forget()
        self._renew_exploration()
        if self._explorer is not None:
            self._explorer.forget_plan()
        return figures | self.world.figures()

    def _plan_and_follow(self) -> dict[str, Any]:
        """Plan a policy and make it the latest one; figures of it."""
        policy, plan = self._plan()
        self._warm_start, self._planned_at = plan.warm_start, self.num_timesteps
        self._plan_figures = plan.figures
        self._follow(policy)
        return plan.figures

    def _follow_latest_plan(self) -> None:
        """Plan a policy to follow, unless it is as new as the last update or knows all pairs."""
        if self._planned_at >= self.measures.latest.get("step", 0) or self._has_contexts:
            return
        explorer, warm, known = self._explorer, self._warm_start, None
        if isinstance(explorer, StateExplorer) and explorer.model.is_certain:
            known = explorer.model.n_pairs
        if warm is not None and warm.pairs == known:
            return
        self._plan_and_follow()
        self._sign_policy()

    def _policy_spacing(self) -> int:
        """Steps between policy updates: a multiple of `policy_every` that grows with the data.

        It is a function of the steps alone, so that a resumed run has it.
        """
        every, share = self.config.policy_every, self.config.policy_share
        if isinstance(self._explorer, LandmarkExplorer):
            share = max(share, _LANDMARKS_SHARE)
        due = every * max(1, math.floor(share * self.num_timesteps / every))
        # `due` stays the same for every / share steps, which begin with an update. Once it is more
        # than these, updates are as many of them apart as the largest power of two says.
        stretch = every * round(1.0 / share) if share > 0.0 else due
        return due if due <= stretch else stretch * 2 ** math.floor(math.log2(due / stretch))

    def _recognise_contexts(self) -> None:
        """Plan within episodes from now on if the data says that worlds change with them."""
        config = self.config
        is_open = config.contexts is None and config.collect == "plan" and not self._has_contexts
        # Known dynamics contain all contexts, so they are planned on directly.
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
        """The policy of the exploration values as they are now when due, and its figures."""
        self.measures.within_episodes = True
        if self.num_timesteps % self._policy_spacing() > 0:
            return None
        policy = ContextPolicy.of(explorer, self.buffer.observations.shape)
        if policy is None:
            return None
        self._policy = policy
        return explorer.figures()

    # estimate and improve

    def _plan(self) -> tuple[CoveragePolicy, Improvement]:
        """Plan from the initial states, with ever larger ridges while the model creates mass.

        Raises:
            SingularSolveError: no ridge up to a thousand times the configured one helps.
        """
        encoder, kernel = self._representation.policy_parts()
        if self._representation.has_landmarks:
            return self._plan_on_landmarks(encoder)
        problem: SingularSolveError | None = None
        for growth in _RIDGE_GROWTHS:
            if problem is not None:
                warnings.warn(
                    f"step {self.num_timesteps}: {problem}; planning again with {growth:g} x ridge "
                    "(a larger ridge from the start saves the repeated plans)",
                    RoverWarning,
                    stacklevel=2,
                )
            try:
                with self.stopwatch("estimate"):
                    model = self._estimate(encoder, growth)
                return self._improve(model, encoder, kernel, is_comparable=growth == 1.0)
            except SingularSolveError as error:
                problem = error
        raise SingularSolveError(f"step {self.num_timesteps}: {problem}") from problem

    def _plan_on_landmarks(self, encoder: Encoder) -> tuple[CoveragePolicy, Improvement]:
        """Plan on a net, a finer one where the dynamics model explains almost all motion."""
        most = self.config.n_landmarks
        with self.stopwatch("estimate"):
            landmarks = self._landmark_model()
            landmarks.forget()
            landmarks.fit()
            landmarks.dynamics.forget_noise()  # until explorations fit it anew
            if landmarks.dynamics.unexplained <= MOST_UNEXPLAINED:
                most = round(_FINER * most)
            model = landmark_planning_model(landmarks.finer(most), encoder, self._cover)
        return self._improve(model, encoder, Interpolation(), is_comparable=True)

    def _improve(
        self, model: PlanningModel, encoder: Encoder, kernel: Kernel, *, is_comparable: bool
    ) -> tuple[CoveragePolicy, Improvement]:
        """Descend J on a model, from where the last descent ended if it still can."""
        with self.stopwatch("improve"):
            plan = improve(
                model,
                self._warm_start,
                self.config,
                step=self.num_timesteps,
                is_exploring=self._explorer is not None,
                is_comparable=is_comparable,
            )
        epsilon = self.config.policy_epsilon
        return CoveragePolicy(encoder, kernel, model.basis, plan.weights, epsilon=epsilon), plan

    def _estimate(self, encoder: Encoder, ridge_growth: float) -> PlanningModel:
        """Fit the model that a policy is planned on, with so many times the ridge."""
        config, buffer, representation = self.config, self.buffer, self._representation
        features = representation.features()
        if representation.is_exact():
            return state_planning_model(
                self.world.counts, features, self._kernel, config, self._cover, buffer
            )
        rows = None
        if config.plan_transitions is not None or config.plan_window is not None:
            limits = config.plan_transitions, config.plan_draw
            rows = draw_transitions(buffer, *limits, self._batch_rng, window=config.plan_window)
        assert config.ridge is not None
        return fit_planning_model(
            features,
            buffer.counts(rows),
            estimated_starts(buffer, unseen=config.unseen_starts),
            self._kernel,
            config,
            self._cover,
            n_actions=buffer.n_actions,
            ridge=config.ridge * ridge_growth,
            gram=representation.gram,
        )

    def _figures(self) -> dict[str, Any]:
        names, latest = self.world.figures(), self.measures.latest
        figures = {name: latest.get(name) for name in names} | {"contexts": self._has_contexts}
        if self._plan_figures is not None:
            figures["sink_mass"] = self._plan_figures["sink_mass"]
        return {**super()._figures(), **figures}

    # return, store

    def _follow(self, policy: CoveragePolicy) -> None:
        """Make a policy the latest one, which collects where no exploration plan does."""
        self._policy = policy
        # The units of landmarks are the policy's own, so that its features are not the agent's.
        is_own = isinstance(policy.kernel, Interpolation) or len(self.buffer) == 0
        none = torch.zeros(0, policy.encoder.feature_dim, dtype=torch.float64)
        features = none if is_own else self._representation.features()
        self._tabulated = policy.tabulated(self.buffer.observations, features)

    def _steps_of_policy(self) -> int:
        return self._planned_at if self._final is None else self.num_timesteps

    def _note_measured(self, record: Mapping[str, Any]) -> None:
        if self._has_contexts or self._keeps_latest or _is_broken(record):
            return
        spread = self.measures.spread_of(record)
        if spread is None:
            return
        if self._best is None or spread > self._best[0]:
            self._best = spread, int(record["step"]), cast(CoveragePolicy, self._policy)

    @property
    def _keeps_latest(self) -> bool:
        """True if the latest policy is always the final one, as in the paper."""
        # The exact J is of all states, and visited cells are of an even coverage: no judges of a
        # policy that covers something else.
        is_exact = self.measures.evaluator is not None
        is_judged = self.config.cover is None if is_exact else self.config.target is None
        return self.preset != "default" or not is_judged

    def _doubts(self) -> str | None:
        latest = self._plan_figures or self.measures.latest
        if not _is_broken(latest):
            return None
        return (
            f"the policy of step {self.num_timesteps} was planned on a transition model that "
            f"creates mass (a column sums to {latest['column_sum_max']:.2g}, the sink's mass is "
            f"{latest['sink_mass']:.2g}; raise ridge or n_anchors)"
        )

    def _best_measured(self) -> FinalPolicy | None:
        """The best of the policies that were measured and whose model created no mass."""
        return None if self._best is None else FinalPolicy(self._best[2], self._best[1])

    def _last_plan(self) -> FinalPolicy | None:
        """The policy of all transitions at a run's end; None: it is the latest, or none was due.

        A run that is made longer goes on as if it had not been planned.
        """
        step, line = self.num_timesteps, self.measures.latest.get("step")
        if isinstance(self._policy, ContextPolicy) or line is None:
            return None
        if self._explorer is None or self._planned_at == step:
            return None
        landmarks, drawn = self._landmarks, self._batch_rng.bit_generator.state
        if line < step:  # the landmarks of the exploration plan are not fitted anew
            self._landmarks = None
        policy, plan = self._plan()
        self._landmarks, self._batch_rng.bit_generator.state = landmarks, drawn
        self._plan_figures = plan.figures
        return FinalPolicy(policy, step)

    def _agent_state(self) -> dict[str, Any]:
        warm, best, chosen, policy = self._warm_start, self._best, self._final, self._policy
        return {
            "representation": self._representation.state(),
            "contexts": self._has_contexts,
            # Exploration values follow from the buffer, which they are learned from again.
            "policy": _content(policy),
            "best": None if best is None else (best[0], best[1], best[2].content()),
            "final": None if chosen is None else (chosen.step, _content(chosen.policy)),
            "warm_start": None if warm is None else vars(warm),
            "planned_at": self._planned_at,
        }

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        self._representation.load_state(state["representation"])
        self._has_contexts = bool(state["contexts"])
        self._explorer = self._landmarks = None
        self._renew_exploration()
        self._best = None
        policy = self._uniform if state["policy"] is None else self._restored(state["policy"])
        if state["best"] is not None:
            spread, step, stored = state["best"]
            self._best = float(spread), int(step), self._restored(stored)
        self._follow(policy)
        warm = state["warm_start"]
        self._warm_start = None if warm is None else WarmStart(**warm)
        self._planned_at, self._plan_figures = int(state["planned_at"]), None
        if isinstance(self._explorer, ContextExplorer):
            self.measures.within_episodes = True
            shape = self.buffer.observations.shape
            self._policy = ContextPolicy.of(self._explorer, shape) or policy
        self._final = None
        if state["final"] is not None:
            step, content = state["final"]
            self._final = FinalPolicy(self._restored(content), int(step))

    def _restored(self, content: Mapping[str, Any]) -> CoveragePolicy:
        """A policy of a checkpoint, which holds the same of it as its file does."""
        own_encoder = self._objects.get("encoder")
        policy = CoveragePolicy.from_content(content, encoder=own_encoder, kernel=self._kernel)
        policy.encoder.requires_grad_(False)
        policy.check_fits(self.env)
        return policy


def _content(policy: Policy) -> dict[str, Any] | None:
    """Content of a policy in a checkpoint; None of one of contexts, which is learned again."""
    return policy.content() if isinstance(policy, CoveragePolicy) else None


def _is_broken(record: Mapping[str, Any]) -> bool:
    """True if the model of a metrics line creates mass: no plan on it means what it says."""
    column_sum: float = record.get("column_sum_max") or 0.0
    sink_mass: float = record.get("sink_mass") or 0.0
    return column_sum > _LARGEST_COLUMN_SUM or sink_mass > 1.0 + _ROUNDING
