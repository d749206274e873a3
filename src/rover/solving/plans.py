"""Plans by value iteration on the transitions that pretraining left: many tasks at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

from rover.arrays import BoolArray, FloatArray, blocks
from rover.data import Buffer, check_same_spaces
from rover.data.images import ImageFeatures
from rover.envs import Environment, GivenEnv, Spaces, id_and_kwargs
from rover.errors import ConfigurationError, warn
from rover.features import Encoder
from rover.features.slow import LAG
from rover.operators.values import RowTasks
from rover.policies import (
    ContextPolicy,
    CoveragePolicy,
    Policy,
    PosePolicy,
    ValuePolicy,
    load_policy,
)
from rover.poses.explorer import PoseExplorer
from rover.solving.tasks import Tasks
from rover.storage import read_run_config
from rover.training.agent import Agent
from rover.training.run_folder import POLICY_FILE, finished_file, load_run_buffer, run_env
from rover.world.counts import Rows
from rover.world.model import Sums
from rover.world.neighbours import NEIGHBOURS, Neighbours
from rover.world.net import FIRST_UNITS, units_due
from rover.world.regression import SEARCHED_FIT
from rover.world.world import Points, World, lasts_a_lag, repeats

_AT_ONCE = 64  # tasks that are solved together

_One = Agent[Any] | Buffer | str | Path

Source = _One | Sequence[_One]
"""An agent, its run folder, or its buffer; or several of one environment."""


class Experience(NamedTuple):
    """The world of the transitions that are planned on, and where they come from, if known: the
    final policy, the environment and the seed of pretraining."""

    world: World
    policy: Policy | None = None
    env: gym.Env[Any, Any] | None = None
    seed: int | None = None

    @staticmethod
    def of(source: Source, given: GivenEnv | None = None) -> Experience:
        """Read the transitions of a source, or of several together with the policy, environment and
        seed of the first; `given` is the environment in place of the source's own."""
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
            buffer = Buffer.merged([one.world.buffer for one in several])
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
                env = run_env(source)
            experience = Experience(World(buffer), policy, env, about.seed)
        else:
            raise ConfigurationError(
                f"a {type(source).__name__} holds no transitions to plan on: give an agent, a run "
                "folder of `rover pretrain`, a buffer, or a list of these (a policy alone does not "
                "show where actions lead)"
            )
        if len(experience.world.buffer) == 0:
            raise ConfigurationError("there is no transition to plan on: the buffer is empty")
        if env is not None:
            check_same_spaces(experience.world.buffer, env)
        return experience

    def policy_details(self, names: Sequence[str], discount: float) -> dict[str, Any]:
        """Details of a solved policy: the pretraining's, the tasks and the discount."""
        details = {} if self.policy is None else self.policy.details
        own = self.world.buffer.action_details
        if self.env is not None:
            own = own | Spaces.of(self.env).details
        return details | own | {"tasks": list(names), "planning_discount": discount}

    def poses(self) -> PoseExplorer | None:
        """An explorer that infers the positions that observations hide; None: they hide none."""
        policy, buffer = self.policy, self.world.buffer
        if not isinstance(policy, PosePolicy):
            return None
        return self.world.part(PoseExplorer, lambda: PoseExplorer(buffer, policy.window))

    def rows(self, ridge: float | None, ends: BoolArray | None = None) -> Rows:
        """Rows of :meth:`points`; those without `ends` of their own are made once for all plans."""
        points = self.points()
        if ends is not None and points.exact and (ends != self.world.buffer.terminated).any():
            return points.rows_of(ridge, ends)
        return self.world.part((Rows, ridge), lambda: points.rows_of(ridge))

    def points(self) -> Points:
        """Points for the states themselves where they repeat, else for a net, made once."""
        return self.world.part(Points, self._points)

    def _points(self) -> Points:
        buffer = self.world.buffer
        if isinstance(self.policy, ContextPolicy):
            warn(
                "the layout changes with every episode, and a plan on observations confuses "
                "layouts: plan within each episode with rover.solving.solve_in_contexts",
                stacklevel=2,
            )
            return Points.of_states(buffer)
        if (outcomes := self.world.outcomes) is not None:
            return Points.of_outcomes(outcomes)
        is_image = len(buffer.observations.shape) > 1
        if repeats(buffer) if is_image else self.world.repeats:
            return Points.of_states(buffer)
        encoder = self._encoder() if is_image else None
        if encoder is not None or not is_image:
            return _net_points(self.world, encoder)
        warn(
            "images seldom repeat in this data, which is too little to say how alike they are, so "
            f"that each is planned on for itself alone: collect at least {FIRST_UNITS} transitions "
            f"in episodes of at least {LAG} steps",
            stacklevel=2,
        )
        return Points.of_states(buffer)

    def _encoder(self) -> Encoder | None:
        """Representation of observations that are no vectors: the one that pretraining learned,
        else slow features of the pictures; None: there is neither."""
        buffer, shape = self.world.buffer, self.world.buffer.observations.shape
        encoder = self.policy.encoder if isinstance(self.policy, CoveragePolicy) else None
        if len(shape) != 3 or buffer.observations.dtype != np.uint8:
            return encoder
        # Other encoders return raw pixels, tens of thousands of numbers each.
        if encoder is not None and encoder.config.kind not in ("identity", "scale"):
            return encoder
        if len(buffer) < FIRST_UNITS or not lasts_a_lag(buffer):
            return None
        return ImageFeatures(buffer, units_due(len(buffer))).encoder.frozen()


class PlanSettings(NamedTuple):
    """Settings of a plan, as of :func:`rover.solve`."""

    discount: float = 0.99
    ridge: float | None = None
    sink_value: float | None = None
    temperature: float = 0.0

    def check(self) -> None:
        """Refuse what is out of range with a ConfigurationError."""
        if not 0.0 < self.discount < 1.0:
            raise ConfigurationError(f"discount must be in (0, 1), not {self.discount!r}")
        if self.ridge is not None and not (math.isfinite(self.ridge) and self.ridge >= 0.0):
            raise ConfigurationError(f"ridge must be at least 0, not {self.ridge!r}")
        if self.sink_value is not None and not math.isfinite(self.sink_value):
            raise ConfigurationError(f"sink_value must be finite, not {self.sink_value!r}")

    def sink_values(self, rewards: FloatArray, ends: BoolArray) -> FloatArray:
        """The value of the sink (K,) under rewards and ends (n, K): by default the least they can
        add up to.

        A plan must not prefer what was never tried to what was seen to be poor. What ends an
        episode is paid once: for ever, a crash that is known would be better than all doubt.
        """
        if self.sink_value is not None:
            return np.full(rewards.shape[1], self.sink_value)
        least = np.minimum(rewards, 0.0) / np.where(ends, 1.0, 1.0 - self.discount)
        return np.asarray(least.min(axis=0))


def planned_policy(
    experience: Experience,
    tasks: Tasks,
    settings: PlanSettings,
    tables: dict[str, FloatArray] | None = None,
) -> ValuePolicy:
    """The best policies of K tasks on the transitions of an experience, one for each; or policies
    of the `tables` of another plan."""
    points = experience.points()
    if tables is None:
        # Goals are what rows lead to; other tasks end with transitions.
        ends = tasks.ends[:, 0] if tasks.goals is None else None
        if ends is not None and points.neighbours is not None and points.neighbours.are_drawn:
            rows, earned = points.neighbours.drawn_rows(tasks.rewards, ends)
            tasks = replace(tasks, earned=earned)
        else:
            rows = experience.rows(settings.ridge, ends)
        if points.outcomes is not None and tasks.goals is None:
            tasks = replace(tasks, earned=points.outcomes.rewards(tasks.rewards, rows))
        # Rewards, and ends, are read where steps end, or else where they begin and by the action.
        by_arrival = np.ones((2, len(tasks.names)), np.bool_)
        if points.neighbours is not None and tasks.goals is None:
            columns = np.concatenate([tasks.rewards, tasks.ends], axis=1)
            by_arrival = points.neighbours.follow_arrivals(columns).reshape(2, -1)
        tables = _optimal_tables(rows, tasks, settings, by_arrival)
    goals = np.full(len(tasks.names), -1)
    if points.exact and tasks.goals is not None:
        goals = np.where(tasks.goals.sum(axis=0) == 1, tasks.goals.argmax(axis=0), goals)
    sink_values = settings.sink_values(tasks.rewards, tasks.ends)
    own = {"projection": points.projection, "sink_values": sink_values, "goals": goals}
    return ValuePolicy(
        {name: torch.from_numpy(table) for name, table in (tables | own).items()},
        observation_shape=experience.world.buffer.observations.shape,
        neighbours=1 if points.exact else NEIGHBOURS,
        reach=points.reach,
        has_metric=points.has_metric,
        temperature=settings.temperature,
        encoder=points.encoder,
        details=experience.policy_details(tasks.names, settings.discount),
    ).requires_grad_(False)


def warn_of_unexplained(missed: float) -> None:
    """Warn of a plan on a dynamics model that leaves this share of the motion unexplained."""
    warn(
        f"the dynamics model leaves {missed:.0%} of the motion unexplained, so that the plan is "
        "not refined by simulation and its values may be optimistic, such as of a way through a "
        "thin wall: evaluate it before use, and collect more steps if it fails",
        stacklevel=4,
    )


def _optimal_tables(
    rows: Rows, tasks: Tasks, settings: PlanSettings, by_arrival: BoolArray
) -> dict[str, FloatArray]:
    """Tables of a :class:`~rover.policies.ValuePolicy` by value iteration, by name.

        Q(x, a) = (1 − m(x, a)) E[r + γ max_a' Q(x', a')] + m(x, a) v_sink

    with m the probability of the sink. A task that terminates on arrival is worth nothing after.
    On landmarks Q is without the value of where an action leads, which the policy looks up where it
    stands.
    """
    assert rows.landmarks is not None
    size = len(rows.landmarks), len(rows.sink) // len(rows.landmarks)
    parts = [
        _solve(rows, tasks, settings, by_arrival, part)
        for part in blocks(len(tasks.names), _AT_ONCE)
    ]
    tables = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if rows.uniform is not None:
        tables["displacements"] = rows.ahead.reshape(*size, -1) - rows.landmarks[:, None]
        tables["contact_probability"] = rows.uniform.reshape(size)
    return tables | {"landmarks": rows.landmarks}


def _solve(
    rows: Rows, tasks: Tasks, settings: PlanSettings, by_arrival: BoolArray, part: slice
) -> dict[str, FloatArray]:
    """Tables of tasks that are solved together."""
    rewards, ends = tasks.rewards[:, part], tasks.ends[:, part].astype(np.float64)
    discount, inside = settings.discount, (1.0 - rows.sink)[:, None]
    # The sink is worth its value at once, whatever the discount: nothing follows it.
    lost = rows.sink[:, None] * settings.sink_values(rewards, tasks.ends[:, part])
    alive, remaining = np.ones((1, 1)), np.full((1, 1), discount)

    def by_task(table: FloatArray) -> FloatArray:
        return np.moveaxis(table.reshape(len(rows.start), -1, rewards.shape[1]), 2, 0)

    if rows.passed is None:
        if tasks.goals is not None:
            goals = tasks.goals[:, part].astype(np.float64)
            earned, alive = (rows.onward + rows.ended) @ goals, 1.0 - (not tasks.stays) * goals
        elif tasks.earned is not None:
            earned = inside * tasks.earned[:, part]
        else:
            assert rows.shares is not None
            earned = inside * (rows.shares @ rewards)
        on_rows = RowTasks(rows.onward, earned + lost, remaining, alive)
        return {"action_values": by_task(on_rows.optimal(rows.start).actions)}
    earned, remaining = rows.priced(rewards, ends, discount, by_arrival=by_arrival[:, part])
    if tasks.passing is not None:
        # Whatever the transitions earned: rows that pass the goal are worth that, and end.
        step = tasks.passing[:, part]
        earned = np.maximum(earned, np.where(step > 0, discount ** (step - 1.0), 0.0))
        remaining = np.where(step > 0, tasks.stays * remaining, remaining)
    earned = inside * earned + lost
    # Between landmarks rows lead to several by their distance, and no path is probable.
    solved = RowTasks(rows.onward, earned, remaining, alive).optimal()
    # The policy looks up the value of where a move ends.
    return {
        "action_values": by_task(earned),
        "remaining": by_task(inside * remaining),
        "values": solved.states.T,
    }


def _net_points(world: World, encoder: Encoder | None = None) -> Points:
    """Observations that do not repeat, in units of time, with the landmark model of their numbers,
    or of the features of an encoder. ConfigurationError: too few transitions."""
    buffer = world.buffer
    if len(buffer) < FIRST_UNITS:
        raise ConfigurationError(
            f"{len(buffer)} transitions are too few for a model of states that do not repeat: "
            f"collect at least {FIRST_UNITS}, and a thousand to expect anything"
        )
    sums, everything = None, np.arange(len(buffer.observations.rows))
    if encoder is not None:
        features = encoder.features(buffer.observations.rows).astype(np.float64)
        sums = Sums(buffer, lambda _: lambda rows: (features[rows], None), SEARCHED_FIT)
    model = world.landmarks(sums)
    units, (seen, _) = model.units, model.units.features(everything)
    projection = np.zeros((seen.shape[1], len(units.kept)))
    projection[units.kept, np.arange(len(units.kept))] = 1.0 / units.scale
    return Points(buffer, seen @ projection, projection, encoder, neighbours=Neighbours(model))
