"""The run around the algorithm: what it is built of, which policy it returns, what it stores."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.contexts.explorer import ContextExplorer
from rover.coverage.config import RoverConfig, _is_physical, resolve
from rover.coverage.cover import Cover, _target_weights
from rover.coverage.explore import Explorer, LandmarkExplorer, _StateExplorer
from rover.coverage.improve import Improvement, WarmStart
from rover.coverage.represent import Learned, Representation, Scaled, Slow
from rover.data.histories import LARGEST_LIST, changes_with_episodes
from rover.envs import FiniteMDP, Spaces, finite_dynamics
from rover.errors import ConfigurationError, warn
from rover.features import (
    Encoder,
    Observations,
    custom_encoder,
    encoder_config,
    make_encoder,
    state_encoder,
)
from rover.operators import Objective, make_kernel
from rover.policies import (
    ContextPolicy,
    CoveragePolicy,
    Policy,
    PosePolicy,
    StatePolicy,
    TabulatedPolicy,
)
from rover.poses.explorer import PoseExplorer
from rover.training.agent import Agent
from rover.training.measures import FinalPolicy
from rover.world.sampled import ContactSearch
from rover.world.world import World


def _is_due(config: RoverConfig, step: int, share: float) -> bool:
    """True if a policy is due after a step: a function of the step alone, so that a resumed run
    has the same policies; `share` of all steps is between two, where that is more than every.
    """
    every, begin = config.policy_every, config.seed_steps + (config.first_policy or 0)
    spacing = every * max(1, math.floor(share * step / every))
    # The spacing stays the same for every / share steps, which begin with an update. Once it is
    # more than these, updates are as many of them apart as the largest power of two says.
    stretch = every * round(1.0 / share) if share > 0.0 else spacing
    if spacing > stretch:
        spacing = stretch * 2 ** math.floor(math.log2(spacing / stretch))
    is_first = config.first_policy is not None and step == begin
    return is_first or (step >= begin and step % spacing == 0)


class CoverageRun(Agent[RoverConfig]):
    """An agent whose policies are plans on a model.

    A subclass is the algorithm. Presets of the paper return the latest policy. Otherwise the better
    of the last plan and the best one that was measured is returned, where the last plan covers less
    than random actions.
    """

    @classmethod
    def resolve(cls, config: RoverConfig, env: gym.Env[Any, Any]) -> RoverConfig:
        """Fill in what depends on the environment."""
        space = Spaces.of(env).observation
        size = math.prod(space.shape or ())
        if config.contexts and size > LARGEST_LIST:
            raise ConfigurationError(
                f"contexts=True needs observations of at most {LARGEST_LIST:,} numbers, not "
                f"{size:,}: make them smaller, such as by the cells of a view in place of its image"
            )
        return resolve(super().resolve(config, env), space)

    def _configure(self, overrides: Mapping[str, Any]) -> RoverConfig:
        names = ("kernel", "encoder", "representation", "cover", "target")
        settings, preset = dict(overrides), self.presets[self.preset]
        if isinstance(settings.get("target"), np.ndarray):
            settings["target"] = tuple(settings["target"].tolist())
        # The user's own objects, in whose place settings have "custom".
        self._objects = {name: settings[name] for name in names if callable(settings.get(name))}
        settings |= dict.fromkeys(self._objects, "custom")
        for name in names:
            if settings.get(name, preset.get(name)) == "custom" and name not in self._objects:
                raise ConfigurationError(
                    f"{name}='custom' stands for an object of your own: pass it, {name}=..."
                    + " or --target MODULE:FUNCTION" * (name == "target")
                )
        config = super()._configure(settings)
        self._target = _target_function(config, self.env, self._objects.get("target"))
        return config

    def _build(self) -> Policy:
        config, space = self.config, self.spaces.observation
        streams = np.random.SeedSequence([self.seed, 0]).spawn(2)
        self._rng, self._batch_rng = map(np.random.default_rng, streams)
        generator = torch.Generator().manual_seed(self.seed)
        self._explores = config.collect == "plan"  # else data comes from the policy
        self.world.chosen = "contexts" if config.contexts and self._explores else config.kind
        self._cover = Cover(self.buffer, self._objects.get("cover", config.cover), self._target)
        # None: observations are states.
        self._representation = seen = self._make_representation(generator)
        # Images and long vectors are states as long as they repeat.
        self._suits_data = seen is None and not isinstance(space, gym.spaces.Discrete)
        self._explorer: Explorer | None = None
        self._poses = self._pose_explorer()
        self._suit()
        self._warm_start: WarmStart | None = None
        self._planned_at = 0
        self._plan_figures: Mapping[str, Any] | None = None
        encoder = None if seen is None else seen.policy_encoder()
        width = 0 if encoder is None else encoder.feature_dim
        none = torch.zeros(width, self.buffer.n_actions, dtype=torch.float64)
        self._form = Observations.from_space(space)
        self._uniform = self._policy = self._package(encoder, None, none)
        # The latest policy, which collects where no exploration plan does.
        self._tabulated = TabulatedPolicy(
            self.buffer.observations, lambda rows, _: self._policy.component_logits(rows, 0)
        )
        return self._uniform

    def _make_representation(self, generator: torch.Generator) -> Representation | None:
        """The representation that a run begins with. ConfigurationError: an encoder that does not
        fit the observations."""
        config, space, objects = self.config, self.spaces.observation, self._objects
        parts = self.world, self._cover
        if config.kernel is None:
            return Scaled(*parts, space) if _is_physical(space) else None
        parameters = {} if config.bandwidth is None else {"bandwidth": config.bandwidth}
        kernel = objects.get("kernel") or make_kernel(config.kernel, **parameters)
        if config.representation == "identity":
            if isinstance(space, gym.spaces.Discrete):
                return Representation(*parts, state_encoder(space), kernel)
            return Scaled(*parts, space, kernel)
        if config.encoder == "custom":
            encoder = custom_encoder(objects["encoder"], space)
        else:
            network = encoder_config(
                space,
                architecture=config.encoder,
                feature_dim=config.feature_dim,
                hidden_sizes=config.hidden_sizes,
                normalization=config.normalization,
            )
            gain = 1.0 if config.encoder == "paper" else math.sqrt(2.0)
            encoder = make_encoder(network, generator, gain=gain)
        loss, rng = objects.get("representation"), self._batch_rng
        return Learned(*parts, encoder, kernel, loss, config, generator=generator, rng=rng)

    def _package(
        self,
        encoder: Encoder | None,
        basis: Tensor | None,
        weights: Tensor,
        states: World | None = None,
    ) -> Policy:
        """The policy of weights on features of an encoder, or of states (None), or of poses."""
        seen, epsilon = self._representation, self.config.policy_epsilon
        if states is not None:
            assert self._poses is not None
            of_poses = states.buffer.observations
            form = Observations(of_poses.shape, "int64")
            inner = StatePolicy(form, of_poses.names, weights, epsilon=epsilon)
            poses, shape = self._poses, self.buffer.observations.shape
            assert poses.tracker is not None
            return PosePolicy(inner, poses.tracker, shape)
        if encoder is None or seen is None:
            names = self.buffer.observations.names
            return StatePolicy(self._form, names, weights, epsilon=epsilon)
        return CoveragePolicy(encoder, seen.kernel, basis, weights, epsilon=epsilon)

    def _objective(self, problem: FiniteMDP) -> Objective:
        config, target, states = self.config, self._target, problem.observations
        if config.cover or config.contexts:
            whose = "states alike, whatever cover and target say"
            if config.contexts:
                whose = "contexts, of the policy without its memory: with it, roll-outs measure it"
            warn(f"coverage, J and J/J* are of all {whose}", stacklevel=3)
        if target is None or config.cover is not None:
            return Objective()
        weights = _target_weights(target(states.copy()), len(states))
        if not weights.any():
            raise ConfigurationError("target is 0 at every state of the environment")
        return Objective(np.asarray(weights / weights.sum()))

    @abstractmethod
    def _improve(self) -> tuple[Policy, Improvement]:
        """A policy of all transitions."""

    def _suit(self) -> None:
        """Choose the representation and the explorer for the kind of world that the data shows;
        the latest explorer goes on if it still fits."""
        world, space, buffer, config = self.world, self.spaces.observation, self.buffer, self.config
        if self._suits_data and world.kind != "landmarks":
            self._representation = None
        elif self._suits_data and self._representation is None:
            wanted = Slow if len(space.shape or ()) > 1 else Scaled
            self._representation = wanted(world, self._cover, space)
        if not self._explores or world.kind == "poses":
            return
        latest, seen = self._explorer, self._representation
        if world.kind == "contexts":
            if not isinstance(latest, ContextExplorer):
                self._explorer = ContextExplorer(buffer)
        elif world.kind == "states":
            if isinstance(latest, _StateExplorer):
                latest.forget_plan()
            else:
                self._explorer = _StateExplorer(world.counts, buffer)
        else:
            assert seen is not None
            sums, search, contacts = seen.sums, config.search, None
            if isinstance(latest, LandmarkExplorer) and latest.sums is sums:
                return
            if search is None and isinstance(seen, Slow):
                search = False  # which finds nothing sooner in images, at twice the time
            # Contacts are of still features of vectors, by default all.
            is_plain = not seen.learns and buffer.observations.rows.ndim == 2
            if is_plain and config.cover != "custom":
                covered = None if config.cover is None else np.array(config.cover)
                contacts = ContactSearch(buffer, covered)
            most = min(config.n_landmarks, seen.most_explored)
            self._explorer = LandmarkExplorer(world, sums, most, search=search, contacts=contacts)

    def _switch(self, kind: Literal["contexts", "poses"] | None, why: str) -> None:
        """Take the world for one of another kind from now on, and say why."""
        self.world.chosen, self._best = kind, None
        warn(f"step {self.num_timesteps}: {why}", stacklevel=3)
        self._suit()

    def _plan_and_follow(self) -> dict[str, Any]:
        """Plan a policy and make it the latest one; figures of it."""
        self._policy, plan = self._improve()
        self._tabulated.forget()
        self._warm_start, self._planned_at = plan.warm_start, self.num_timesteps
        self._plan_figures = plan.figures
        return plan.figures

    def _renew_policy(self) -> None:
        """Plan a policy to follow, unless it is as new as the last update or knows all pairs."""
        warm, world, latest = self._warm_start, self.world, self.measures.latest.get("step", 0)
        if world.chosen == "contexts" or self._planned_at >= latest:
            return
        is_certain = world.kind == "states" and not world.counts.varied
        if warm is None or not is_certain or warm.pairs != sum(world.counts.first_tries):
            self._plan_and_follow()

    # contexts

    def _recognises_contexts(self) -> bool:
        """True if the data says that worlds change with episodes: each is explored by itself."""
        is_open = self.config.contexts is None and self.world.chosen != "poses"
        if not (is_open and self._explores and changes_with_episodes(self.buffer)):
            return False
        self._switch(
            "contexts",
            "the same action in the same observation leads to another outcome in another episode, "
            "so that from now on each episode is explored on a graph of its own; contexts=True "
            "does it from the first step, contexts=False never",
        )
        return True

    def _update_in_contexts(self) -> Mapping[str, Any] | None:
        """The policy of the exploration values as they are now when due, and its figures."""
        self.measures.within_episodes = True
        if not _is_due(self.config, self.num_timesteps, self.config.policy_share):
            return None
        explorer = cast(ContextExplorer, self._explorer)
        policy = ContextPolicy.of(explorer, self.buffer.observations.shape)
        if policy is None or explorer.model is None:
            return None
        self._policy = policy
        return {"contexts": True, "relevant_numbers": explorer.model.codes.relevant.tolist()}

    # hidden positions

    def _pose_explorer(self) -> PoseExplorer | None:
        """An explorer that infers positions from all views so far; None where settings say what
        plans are made on, of several copies, or where observations are no views."""
        config = self.config
        given = config.kind, config.contexts, config.kernel, config.cover, config.target
        is_open = given == (None,) * len(given) and self.measures.evaluator is None
        if not (is_open and self._explores):
            return None
        poses = PoseExplorer.of(self.buffer, self.spaces.observed)
        if poses is not None and config.num_envs > 1:
            warn("positions that views may hide are inferred with num_envs=1 alone", stacklevel=3)
            return None
        if poses is not None and poses.tracker is not None:
            self.world.chosen = "poses"
        return poses

    def _infer_poses(self, poses: PoseExplorer) -> None:
        """Take in a transition; say so where poses are inferred from now on, or no longer."""
        poses.observe()
        tracker = poses.tracker
        if (tracker is None) == (self.world.chosen != "poses"):
            return
        self.measures.within_episodes = False
        what = "views contradict the map that they drew, so that positions are inferred no longer"
        if tracker is not None:
            what = f"{tracker.laws.words}; positions are inferred from now on"
        self._switch(None if tracker is None else "poses", what)

    # return

    def _note_measured(self, record: Mapping[str, Any]) -> None:
        # The paper returns its latest policy. The exact J is of all states, and visited cells are
        # of an even coverage: no judges of a policy that covers something else.
        config, is_exact = self.config, self.measures.evaluator is not None
        is_judged = config.cover is None if is_exact else config.target is None
        is_judged = is_judged and self.world.chosen != "contexts"
        if self.preset != "default" or not is_judged:
            return
        spread = -record["objective"] if "objective" in record else record.get("cells")
        if spread is not None and (self._best is None or spread > self._best[0]):
            self._best = spread, FinalPolicy(self._policy, int(record["step"]))

    def _last_plan(self) -> FinalPolicy | None:
        """The policy of all transitions at a run's end; None: it is the latest, or none was due.

        A run that is made longer goes on as if it had not been planned.
        """
        step, line = self.num_timesteps, self.measures.latest.get("step")
        explores = self._explores and self.world.chosen != "contexts"
        if line is None or not explores or self._planned_at == step:
            return None
        drawn = self._batch_rng.bit_generator.state
        policy, plan = self._improve()
        self._batch_rng.bit_generator.state = drawn
        self._plan_figures = plan.figures
        return FinalPolicy(policy, step)

    def _figures(self) -> dict[str, Any]:
        figures = {"exact_states": self.measures.latest.get("exact_states")}
        figures["contexts"] = self.world.chosen == "contexts"
        if self._plan_figures is not None:
            figures["sink_mass"] = self._plan_figures["sink_mass"]
        return {**super()._figures(), **figures}

    # store

    def _agent_state(self) -> dict[str, Any]:
        warm, best, chosen, policy = self._warm_start, self._best, self._final, self._policy
        seen = self._representation

        def stored(final: FinalPolicy) -> tuple[int, Mapping[str, Any]]:
            return final.step, final.policy.content()

        return {
            "representation": {} if seen is None else seen.state(),
            "contexts": self.world.chosen == "contexts",
            # Exploration values follow from the buffer, which they are learned from again.
            "policy": None if isinstance(policy, ContextPolicy) else policy.content(),
            "best": None if best is None else (best[0], *stored(best[1])),
            "final": None if chosen is None else stored(chosen),
            "warm_start": None if warm is None else vars(warm),
            "planned_at": self._planned_at,
        }

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        def stored(step: int, content: Mapping[str, Any]) -> FinalPolicy:
            return FinalPolicy(self._read(content), int(step))

        if state["contexts"]:
            self.world.chosen = "contexts"
        self._explorer = None  # which knows nothing of the buffer that was read
        self._poses = self._pose_explorer()
        self._suit()
        if self._representation is not None:
            self._representation.load_state(state["representation"])
        warm, best, final = state["warm_start"], state["best"], state["final"]
        self._warm_start = None if warm is None else WarmStart(**warm)
        self._best = None if best is None else (float(best[0]), stored(*best[1:]))
        self._final = None if final is None else stored(*final)
        self._planned_at, self._plan_figures = int(state["planned_at"]), None
        self._policy = self._uniform if state["policy"] is None else self._read(state["policy"])
        self._tabulated.forget()
        if self.world.chosen == "contexts":
            self.measures.within_episodes = True
            explorer = cast(ContextExplorer, self._explorer)
            shape = self.buffer.observations.shape
            self._policy = ContextPolicy.of(explorer, shape) or self._policy

    def _read(self, content: Mapping[str, Any]) -> Policy:
        """A policy of a checkpoint, which holds the same of it as its file does."""
        own = {name: self._objects.get(name) for name in ("encoder", "kernel")}
        kind: type[Policy] = CoveragePolicy if "encoder" in content else StatePolicy
        kind = PosePolicy if "map" in content else kind
        policy = kind.from_content(content, **own)
        for encoder in policy.children():
            encoder.requires_grad_(False)
        policy.check_fits(self.env)
        return policy


def _target_function(
    config: RoverConfig, env: gym.Env[Any, Any], own: Callable[[NDArray[Any]], Any] | None
) -> Callable[[NDArray[Any]], Any] | None:
    """The weights of observations in the target distribution, as a function of them.
    ConfigurationError: the number of weights is not the number of states."""
    target, space = config.target, Spaces.of(env).observation
    if target is None or target == "custom":
        return own
    weights, problem = np.append(target, 0.0), finite_dynamics(env)
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
