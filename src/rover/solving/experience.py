"""The transitions that pretraining left, and the model of them that rewards are solved on."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rover.arrays import BoolArray
from rover.coverage.images import ImageFeatures
from rover.data import Buffer, check_same_spaces
from rover.envs import Environment, GivenEnv, Spaces, make_env
from rover.envs.registration import id_and_kwargs, known_id
from rover.errors import ConfigurationError, RoverWarning
from rover.features import Encoder
from rover.features.slow import LAG
from rover.policies import CoveragePolicy, Policy, load_policy
from rover.storage import read_run_config
from rover.training.agent import Agent
from rover.training.run_folder import POLICY_FILE, finished_file, load_run_buffer
from rover.world.model_selection import lasts_a_lag, repeats
from rover.world.net import FIRST_UNITS, units_due
from rover.world.points import Points, net_points, state_points
from rover.world.rows import Rows
from rover.world.world import World

_One = Agent[Any] | Buffer | str | Path

Source = _One | Sequence[_One]
"""An agent, its run folder, or its buffer; or several of one environment."""


class Experience(NamedTuple):
    """The transitions that are planned on, and where they come from.

    Attributes:
        world: of the transitions.
        policy: pretraining's final policy, or None.
        env: the environment, for goals by name or cell, or None.
        seed: of the run, or None.
    """

    world: World
    policy: Policy | None = None
    env: gym.Env[Any, Any] | None = None
    seed: int | None = None

    @property
    def buffer(self) -> Buffer:
        """The transitions."""
        return self.world.buffer

    @staticmethod
    def of(source: Source, given: GivenEnv | None = None) -> Experience:
        """Read the transitions of an agent, a run folder or a buffer.

        Args:
            source: one of them; or several, whose transitions are taken together. Policy,
                environment and seed are then the first one's.
            given: the environment; None: the source's own.

        Raises:
            ArtefactError: no finished run of pretraining there.
            ConfigurationError: something else, no transitions, or from another environment.
        """
        env = None if given is None else Environment.of(given).env
        if isinstance(source, list | tuple):
            several = [Experience.of(one, env) for one in source]
            made = [one.env and id_and_kwargs(one.env) for one in several]
            known = [recipe for recipe in made if recipe is not None]
            if other := [recipe for recipe in known if recipe != known[0]]:
                raise ConfigurationError(
                    f"the sources are of different environments, {known[0]} and {other[0]}: give "
                    "runs of one environment"
                )
            buffer = Buffer.merged([one.buffer for one in several])
            return several[0]._replace(world=World(buffer))
        if isinstance(source, Buffer):
            experience = Experience(World(source), env=env)
        elif isinstance(source, Agent):
            experience = Experience(source.world, source.policy, env or source.env, source.seed)
        elif isinstance(source, str | Path):
            about = read_run_config(source, kind="pretrain")
            policy = load_policy(finished_file(source, POLICY_FILE))
            buffer = load_run_buffer(source)
            if env is None and about.env_id is not None:
                env = make_env(known_id(about.env_id), about.env_kwargs)
                check_same_spaces(buffer, env)
            experience = Experience(World(buffer), policy, env, about.seed)
        else:
            raise ConfigurationError(
                f"a {type(source).__name__} holds no transitions to plan on: give an agent, a run "
                "folder of `rover pretrain`, a buffer, or a list of these (a policy alone does not "
                "show where actions lead)"
            )
        if len(experience.buffer) == 0:
            raise ConfigurationError("there is no transition to plan on: the buffer is empty")
        if env is not None:
            check_same_spaces(experience.buffer, env)
        return experience

    def policy_details(self, names: Sequence[str], discount: float) -> dict[str, Any]:
        """Details of a solved policy: the pretraining's, the tasks and the discount."""
        details = {} if self.policy is None else self.policy.details
        own = self.buffer.action_details
        if self.env is not None:
            own = own | Spaces.of(self.env).details
        return details | own | {"tasks": list(names), "planning_discount": discount}

    def rows(self, ridge: float, ends: BoolArray | None = None) -> Rows:
        """Rows of :meth:`points`, as of :meth:`~rover.world.points.Points.rows_of`; those without
        `ends` of their own are made once for all plans."""
        points = self.points()
        if ends is not None and points.exact and (ends != self.buffer.terminated).any():
            return points.rows_of(ridge, ends)
        return self.world.part((Rows, ridge), lambda: points.rows_of(ridge))

    def points(self) -> Points:
        """Points for the states themselves where they repeat, else for a net, made once.

        Warns:
            RoverWarning: images that seldom repeat, too few to say what they are compared by: each
                is then a state of its own.

        Raises:
            ConfigurationError: as of :func:`~rover.world.points.net_points`.
        """
        return self.world.part(Points, self._points)

    def _points(self) -> Points:
        is_image = len(self.buffer.observations.shape) > 1
        if repeats(self.buffer) if is_image else self.world.repeats:
            return state_points(self.buffer)
        encoder = self._encoder() if is_image else None
        if encoder is not None or not is_image:
            return net_points(self.world, encoder)
        warnings.warn(
            "images seldom repeat in this data, which is too little to say how alike they are, so "
            f"that each is planned on for itself alone: collect at least {FIRST_UNITS} transitions "
            f"in episodes of at least {LAG} steps",
            RoverWarning,
            stacklevel=2,
        )
        return state_points(self.buffer)

    def _encoder(self) -> Encoder | None:
        """Representation of observations that are no vectors: the one that pretraining learned,
        else slow features of the pictures; None: there is neither."""
        buffer, shape = self.buffer, self.buffer.observations.shape
        encoder = self.policy.encoder if isinstance(self.policy, CoveragePolicy) else None
        if len(shape) != 3 or buffer.observations.dtype != np.uint8:
            return encoder
        # Other encoders return raw pixels, tens of thousands of numbers each.
        if encoder is not None and encoder.config.kind not in ("identity", "scale", "hashed"):
            return encoder
        if len(buffer) < FIRST_UNITS or not lasts_a_lag(buffer):
            return None
        return ImageFeatures(buffer, units_due(len(buffer))).encoder.frozen()
