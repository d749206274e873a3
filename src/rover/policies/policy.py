"""Policies, which need no model and no agent; plans, policies of exact states, and their tables.

A policy is a torch module from raw observations to logits. It may be a set of stationary policies,
one drawn for each episode: a mixture, or one policy for each skill.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.data import ObservationTable
from rover.envs import Spaces
from rover.envs.actions import element
from rover.envs.registration import warn_of_versions
from rover.envs.spaces import StoredForm, described_space
from rover.errors import ArtefactError, ConfigurationError, require_finite, warn
from rover.features import Observations, as_tensor
from rover.features.networks import as_stored
from rover.storage import write_tensors

POLICY_KIND = "policy"

# Up to so many known observations the policy is tabulated on all of them at once.
_TABLE_ROWS = 256


Probs = Callable[[NDArray[Any]], NDArray[np.float64]]
"""Action probabilities (n, A) of raw observations (n, *shape)."""

State = tuple[Probs | None, ...]
"""Policy of each environment's episode; None before its first observation."""


class Policy(nn.Module, ABC):
    """π(a|x): a differentiable torch module that samples, evaluates and saves itself.

    Args:
        n_actions: number of actions A.
        observation_shape: shape of one observation.
        n_components: number K of stationary policies that episodes draw from.
        details: anything JSON-able that should travel with the policy (environment, seed, …);
            ``action_set`` (A, *action shape) and ``observation_space`` say what actions and
            observations are, where they are stored as something else
            (:class:`rover.envs.Spaces`).
    """

    file_type: ClassVar[str]
    """Name of the class in a policy's file."""

    covers_by_draws: ClassVar[bool] = False
    """True if its most probable actions see but a part of what its draws cover."""

    distribution: ClassVar[Callable[..., Tensor]] = staticmethod(torch.softmax)
    """Action probabilities of logits (n, A), over ``dim``."""

    def __init__(
        self,
        n_actions: int,
        observation_shape: tuple[int, ...],
        *,
        n_components: int = 1,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.n_actions = n_actions
        self.observation_shape = tuple(observation_shape)
        self.n_components = n_components
        self.details: dict[str, Any] = dict(details or {})
        self._rng = np.random.default_rng(0)  # of `predict` without one
        self._described: tuple[Any, StoredForm | None] = (None, None)
        self._is_warned = False

    @property
    def action_set(self) -> NDArray[Any] | None:
        """Actions by their numbers, (A, *action shape); None where the environment takes those."""
        stored = self.details.get("action_set")
        if stored is None:
            return None
        actions = np.array(stored)
        if actions.dtype.kind != "f":
            return actions
        single = actions.astype(np.float32)  # the dtype of most spaces, if it holds them
        return single if np.array_equal(single, actions) else actions

    @abstractmethod
    def component_logits(self, observations: Tensor, component: int) -> Tensor:
        """Logits (n, A) of one component for raw observations (n, *shape)."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Content of the policy's file, beside its details."""

    @classmethod
    @abstractmethod
    def from_content(cls, content: Mapping[str, Any], **own_parts: Any) -> Self:
        """Read what :meth:`content` returned, and check that it fits together.

        Args:
            content: as it was stored; whatever is wrong with it is an error of :func:`fitting`.
            own_parts: the ``encoder`` and ``kernel`` of the user's own, or None for each.
        """

    def forward(self, observations: Tensor) -> Tensor:
        """Logits (n, A) of raw observations (n, *shape); of several components their mean's."""
        if self.n_components == 1:
            return self.component_logits(observations, 0)
        logits = [self.component_logits(observations, k) for k in range(self.n_components)]
        log_probs = torch.stack(logits).log_softmax(dim=2)
        # The logarithm of the mean of probabilities, without leaving logarithms: log Σ_k p_k / K.
        return log_probs.logsumexp(dim=0) - math.log(self.n_components)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of a plan by name, one for each component; of others they are empty."""
        named = self.details.get("tasks") or ()
        return tuple(named) if len(named) == self.n_components else ("",) * self.n_components

    def component_probs(
        self, observations: NDArray[Any] | Tensor, component: int
    ) -> NDArray[np.float64]:
        """Action probabilities (n, A) of one component."""
        batch = self._checked(observations)
        # In double precision, so that probabilities sum to 1 as closely as draws need it.
        with torch.no_grad():
            logits = self.component_logits(batch, component).double()
        require_finite(logits, "the policy's logits", "look at the observations")
        return self.distribution(logits, dim=1).cpu().numpy()

    def _checked(self, observations: NDArray[Any] | Tensor) -> Tensor:
        """A batch of observations (n, *shape), if it is one."""
        batch, shape = as_tensor(observations), self.observation_shape
        if batch.ndim == 0 or tuple(batch.shape[1:]) != shape:
            cure = "make the environment as it was pretrained on, with no VecTransposeImage"
            if tuple(batch.shape) == shape:
                cure = "give one as observation[None]"
            raise ConfigurationError(
                f"observations of shape {tuple(batch.shape)} do not fit a policy for batches of "
                f"(n, {', '.join(map(str, shape))}): {cure}"
            )
        return batch

    @property
    def _observed(self) -> StoredForm | None:
        """The stored form of the environment's observations; None where it is their own.

        They are made once for a description, since an action is asked for at every step.
        """
        description = self.details.get("observation_space")
        if description is not self._described[0]:
            made = None if description is None else StoredForm.of(described_space(description))
            self._described = description, made
        return self._described[1]

    def _stored(self, observations: Any) -> Any:
        """A batch of observations of the environment, (n, *shape) as they are stored."""
        observed = self._observed
        return observations if observed is None else observed.rows(observations)

    def probs(self, observations: Any) -> NDArray[np.float64]:
        """Action probabilities (n, A) of a batch of observations.

        For several components their mean; to follow one for an episode, see :meth:`act`.

        Args:
            observations: n of them as the environment returns them: an array (n, *shape), or of
                Dict and Tuple one for each part.

        Raises:
            ConfigurationError: observations of another shape than the policy was trained on.
            NonFiniteError: the logits are not finite.
        """
        probabilities: NDArray[np.float64] = self.tables(self._stored(observations)).mean(axis=0)
        return probabilities

    def tables(self, observations: NDArray[Any] | Tensor) -> NDArray[np.float64]:
        """Action probabilities (K, n, A) of every component, of observations as they are stored."""
        return np.stack([self.component_probs(observations, k) for k in range(self.n_components)])

    def single(self, component: int) -> Policy:
        """The policy of one component alone, on the same networks."""
        self._check_component(component)
        return self

    def _check_component(self, component: int) -> None:
        if not 0 <= component < self.n_components:
            raise ConfigurationError(
                f"component {component} was asked for, of a policy with {self.n_components}"
            )

    def draw_component(self, rng: np.random.Generator) -> int:
        """The number of the component that an episode follows from its first step to its last."""
        return int(rng.integers(self.n_components))

    def sample_component(self, rng: np.random.Generator) -> Probs:
        """The stationary policy that one episode follows, drawn uniformly."""
        component = self.draw_component(rng)
        return lambda observations: self.component_probs(observations, component)

    def reset(self) -> None:
        """Begin an episode: forget what a policy with a memory remembers of the last one."""

    def act(
        self, observation: Any, rng: np.random.Generator, component: int | None = None
    ) -> int | NDArray[Any]:
        """One action sampled for one observation, as the environment takes it.

        Args:
            observation: as the environment returns it.
            rng: source of randomness.
            component: what :meth:`draw_component` drew at the episode's start; None draws one
                for this step alone, which is :meth:`probs`.
        """
        observed = self._observed
        one = np.asarray(observation)[None] if observed is None else observed.batch(observation)[0]
        return self._as_taken(self.choose(one[0], rng, component))

    def choose(
        self, observation: NDArray[Any], rng: np.random.Generator, component: int | None = None
    ) -> int:
        """The number of an action sampled for one observation (*shape) as it is stored."""
        if component is None:
            # Nothing is drawn of a single component, so that its actions do not depend on this
            # choice.
            component = self.draw_component(rng) if self.n_components > 1 else 0
        probabilities = self.component_probs(np.asarray(observation)[None], component)[0]
        return int(rng.choice(self.n_actions, p=probabilities))

    def predict(
        self,
        observation: Any,
        state: State | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
        *,
        rng: np.random.Generator | None = None,
    ) -> tuple[NDArray[Any], State]:
        """Actions for one or several environments, as ``predict`` of Stable-Baselines3 has them.

            action, state = policy.predict(observation)
            mean, spread = evaluate_policy(policy, env, deterministic=False)

        The state is the policy of each environment's episode: of a policy with a memory, what the
        episode has shown; of several components, the one that was drawn at its start. A state may
        be used once, since a memory takes in every observation.

        Args:
            observation: of n environments, (n, *shape) or of Dict and Tuple an array for each
                part; or of a single one.
            state: returned by the previous call; None where all episodes begin.
            episode_start: (n,) True where an episode begins; None: nowhere but where `state` is.
            deterministic: take the most probable action instead of drawing one. A policy that
                covers does so by its draws: it then sees a part of what it covers, which is warned
                of once.
            rng: source of randomness; None: the policy's own, which begins with seed 0.

        Returns:
            Actions (n, *action shape) as the environments take them, without the first axis for a
            single one; and the next state.
        """
        if deterministic and self.covers_by_draws and not self._is_warned:
            self._is_warned = True
            warn(
                "a coverage policy covers by its draws, and its most probable actions see a part "
                "of that: evaluate it with deterministic=False",
                stacklevel=2,
            )
        rng, (batch, is_one) = rng or self._rng, self._batch(observation)
        begins = np.zeros(len(batch), np.bool_) if episode_start is None else episode_start
        followed = tuple(
            self._begin_episode(rng, deterministic) if one is None or is_new else one
            for one, is_new in zip(state or (None,) * len(batch), begins, strict=True)
        )
        pairs = zip(followed, batch, strict=True)
        actions = np.stack([self._next_action(*pair, rng, deterministic) for pair in pairs])
        return (actions[0] if is_one else actions), followed

    def _begin_episode(self, rng: np.random.Generator, deterministic: bool) -> Any:
        return self.sample_component(rng)

    def _next_action(
        self,
        followed: Any,
        observation: NDArray[Any],
        rng: np.random.Generator,
        deterministic: bool,
    ) -> int | NDArray[Any]:
        (probs,) = followed(observation[None])
        number = probs.argmax() if deterministic else rng.choice(len(probs), p=probs)
        return self._as_taken(int(number))

    def _batch(self, observation: Any) -> tuple[NDArray[Any], bool]:
        """Observations of one or several environments as they are stored, (n, *shape), and whether
        they are of a single one."""
        observed = self._observed
        if observed is not None:
            return observed.batch(observation)
        batch = np.asarray(observation)
        is_one = batch.shape == self.observation_shape
        return (batch[None] if is_one else batch), is_one

    def __repr__(self) -> str:
        """Kind, sizes and origin of the policy."""
        known = {key: self.details.get(key) for key in ("agent", "env_id", "seed")}
        parts = [f"{key}={value!r}" for key, value in known.items() if value is not None]
        sizes = f"{self.n_actions} actions, observations {self.observation_shape}"
        return f"{type(self).__name__}({', '.join([sizes, *parts])})"

    def _as_taken(self, action: int) -> int | NDArray[Any]:
        """The action with a number, as the environment takes it."""
        actions = self.action_set
        return action if actions is None else element(actions, action)

    def check_fits(self, env: gym.Env[Any, Any]) -> None:
        """Check that the policy is one for the observations and actions of an environment.

        Raises:
            ConfigurationError: it is for other shapes, or another number of actions.

        Warns:
            RoverWarning: it was trained with other versions of libraries.
        """
        spaces, own = Spaces.of(env), self.details.get("action_set")
        shape, n_actions, of_env = spaces.shape, spaces.n_actions, spaces.actions
        # A policy of few torques fits an environment that was given the same few as its actions.
        same = of_env is None or own is None or np.array_equal(of_env, own)
        if (self.observation_shape, self.n_actions) != (shape, n_actions) or not same:
            raise ConfigurationError(
                f"the policy was pretrained on observations of shape {self.observation_shape} with "
                f"{self.n_actions} actions, and this environment has observations of shape {shape} "
                f"and {n_actions} actions: make it with the observations of pretraining"
            )
        warn_of_versions(self.details.get("versions", {}), env)

    def save(self, path: str | Path) -> None:
        """Write the policy to one safetensors file, atomically."""
        content = {"type": self.file_type, "details": self.details, **self.content()}
        write_tensors(Path(path), content, kind=POLICY_KIND)


class PlannedPolicy(Policy):
    """π(a|x) = softmax_a(ρ(x) W), with regressors ρ(x) of an observation.

    Args:
        weights: W, (q, A) float64.
        observation_shape: shape of one observation.
        epsilon: share of uniform actions in it, in [0, 1): (1 − ε) π(a|x) + ε / A.
    """

    covers_by_draws = True

    def __init__(self, weights: Tensor, observation_shape: tuple[int, ...], epsilon: float) -> None:
        super().__init__(weights.shape[1], observation_shape)
        self.epsilon = epsilon
        # In one order of memory, so that a policy read from its file gives the same bits.
        self.weights = nn.Parameter(weights.contiguous())

    @abstractmethod
    def regressors(self, observations: Tensor) -> Tensor:
        """ρ(x), (n, q), of raw observations (n, *shape)."""

    def logits_from_regressors(self, regressors: Tensor) -> Tensor:
        """Logits (n, A) of float64 `regressors` (n, q)."""
        return regressors @ self.weights

    def component_logits(self, observations: Tensor, component: int = 0) -> Tensor:
        """Logits (n, A), float64, of raw observations (n, *shape)."""
        logits = self.logits_from_regressors(self.regressors(observations))
        if self.epsilon == 0.0:
            return logits
        # Uniform actions are mixed into probabilities; no shift of logits does the same at every
        # state.
        probs = torch.softmax(logits, dim=1)
        # Logits are free up to a constant: the logarithms of the mixed probabilities are some.
        return torch.log((1.0 - self.epsilon) * probs + self.epsilon / self.n_actions)


class StatePolicy(PlannedPolicy):
    """π(a|x) = softmax_a(W_x) of exact states: a row of logits for each, all alike elsewhere.

    Args:
        form: of the observations.
        names: (N, 16) uint8 that identify states, as of :attr:`ObservationTable.names`.
        weights: (N, A) float64 logits.
        epsilon: as of :class:`PlannedPolicy`.
    """

    file_type = "states"

    def __init__(
        self, form: Observations, names: NDArray[np.uint8], weights: Tensor, *, epsilon: float = 0.0
    ) -> None:
        super().__init__(weights, form.shape, epsilon)
        self.form, self.names = form, names
        self._dtype = getattr(torch, form.dtype)
        self._rows = {name.tobytes(): row for row, name in enumerate(names)}

    def regressors(self, observations: Tensor) -> Tensor:
        """The row of W (n, 1) of each observation (n, *shape), N of an unknown one."""
        batch = as_stored(observations, self.observation_shape, self._dtype)
        rows = batch.detach().cpu().numpy() + 0  # zeros of either sign are the same
        names = map(ObservationTable.name_of, rows)
        index = [self._rows.get(name, len(self._rows)) for name in names]
        return torch.tensor(index, dtype=torch.int64, device=self.weights.device)[:, None]

    def logits_from_regressors(self, regressors: Tensor) -> Tensor:
        """Logits (n, A) of rows of W (n, 1)."""
        rows, logits = regressors[:, 0], self.weights.new_zeros(len(regressors), self.n_actions)
        is_known = rows < len(self.weights)  # and not the whole table for each action
        logits[is_known] = self.weights[rows[is_known]]
        return logits

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **own_parts: Any) -> Self:
        """Read what :meth:`content` returned."""
        names, weights, form = content["names"], content["weights"], dict(content["form"])
        if names.shape != (len(weights), 16) or names.dtype != np.uint8:
            raise ArtefactError(f"{names.shape} of {names.dtype} are no names of {len(weights)}")
        form["shape"] = tuple(form["shape"])
        return cls(Observations(**form), names, weights, epsilon=float(content["epsilon"]))

    def content(self) -> dict[str, Any]:
        """Content of the policy's file, beside its details."""
        form = asdict(self.form) | {"shape": list(self.form.shape)}
        weights = self.weights.detach()
        return {"form": form, "names": self.names, "weights": weights, "epsilon": self.epsilon}


class TabulatedPolicy:
    """π(·|x) on the rows of a table, kept until :meth:`forget`.

    One evaluation on all that is known costs little more than one on a single observation, as long
    as there are few and they are no images.

    Args:
        table: the observations.
        logits: (n, A) of observations (n, *shape) of the table and their rows (n,), ascending.
    """

    def __init__(self, table: ObservationTable, logits: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._table = table
        self._logits = logits
        # Cumulative probabilities by observation: a draw is one bisection.
        self._entries: dict[int, list[float]] = {}

    def forget(self) -> None:
        """The policy has changed."""
        self._entries = {}

    def sample(self, observation: int, rng: np.random.Generator) -> int:
        """An action drawn from π(·|x), x in row `observation` of the table."""
        if observation not in self._entries:
            rows = self._table.rows
            is_image = len(self._table.shape) == 3
            # Just after the policy has changed, a small table is evaluated whole.
            at_once = not self._entries and len(rows) <= _TABLE_ROWS and not is_image
            wanted = np.arange(len(rows)) if at_once else np.array([observation])
            with torch.no_grad():
                logits = self._logits(torch.from_numpy(rows[wanted]), torch.from_numpy(wanted))
            require_finite(logits, "the policy's logits", "look at the observations")
            sums = torch.softmax(logits.double(), dim=1).cumsum(dim=1)
            self._entries.update(zip(wanted.tolist(), sums.tolist(), strict=True))
        cumulative = self._entries[observation]
        # The last sum may miss 1 by a rounding error.
        return bisect_right(cumulative, rng.random() * cumulative[-1])
