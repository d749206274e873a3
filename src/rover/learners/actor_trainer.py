"""What a learner needs of a softmax actor: a network of ours, or any torch module."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rover.errors import ConfigurationError
from rover.learners.adam import FlatAdam, ParameterAdam
from rover.learners.encoding import BatchEncoder, Encoded
from rover.learners.layout import BatchLayout
from rover.learners.networks import Activations, PolicyNetwork
from rover.learners.row_cache import RowCache
from rover.types import Batch


@runtime_checkable
class RegressorActor(Protocol):
    """A policy whose logits are a function of regressors of the observation.

    Where nothing below the regressors requires gradients, a learner computes them once per
    observation of the buffer's table. :class:`rover.policies.coverage.CoveragePolicy` is one.
    """

    def regressors(self, observations: Tensor) -> Tensor:
        """(n, q), row by row, of raw observations (n, *shape)."""
        ...

    def logits_from_regressors(self, regressors: Tensor) -> Tensor:
        """Logits (n, A) of regressors (n, q); a call of the policy is the two in turn."""
        ...


@dataclass(frozen=True)
class ActorValues:
    """The policy on a batch, in the rows of its layout, without a graph.

    Attributes:
        log_probs: (r, A) float32, log π where the transitions begin.
        next_logits: (r, A) logits where they lead; None: `log_probs` has these rows too.
        backward: overwrites the gradients of the actor's parameters, given that of the logits
            (r, A) where the transitions begin.
    """

    log_probs: Tensor
    next_logits: Tensor | None
    backward: Callable[[Tensor], None]

    def next_log_probs(self) -> Tensor:
        """(r, A) float32, log π where the transitions lead."""
        if self.next_logits is None:
            return self.log_probs
        return F.log_softmax(self.next_logits, dim=1)

    def next_probs(self) -> Tensor:
        """(r, A) float32, π where the transitions lead."""
        if self.next_logits is None:
            return self.log_probs.exp()
        return self.next_logits.softmax(dim=1)


class ActorTrainer(Protocol):
    """Evaluates and differentiates an actor, and moves it."""

    @property
    def module(self) -> nn.Module:
        """The actor itself."""
        ...

    def logits(self, observations: Tensor, skills: Tensor | None, rows: Tensor | None) -> Tensor:
        """Logits (m, A) of observations (m, *shape), rows (m,) of a table, and skills (m, k)."""
        ...

    def evaluate(self, batch: Batch, layout: BatchLayout, critic_features: Tensor) -> ActorValues:
        """Evaluate on a batch, of whose table (m, f) `critic_features` are the critics'."""
        ...

    def grad_norm(self) -> Tensor:
        """Euclidean norm of the gradient."""
        ...

    def step(self) -> None:
        """One step along the gradient."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Actor and optimizer under the names of a checkpoint, not copied."""
        ...

    def forget_features(self) -> None:
        """Evaluate what does not learn anew: its weights were replaced."""
        ...


class NetworkActor:
    """A network whose derivative is written down.

    Args:
        network: on an encoder of its own, or on that of the critics.
        reads_critics: whether it stands on the critics' features, without gradient.
        learning_rate: Adam step size.
    """

    def __init__(
        self, network: PolicyNetwork, *, reads_critics: bool, learning_rate: float
    ) -> None:
        self.network = network
        self._encoder = None if reads_critics else BatchEncoder(network.encoder)
        learning = network.head if reads_critics else network
        self._adam = FlatAdam(
            "actor",
            {f"actor.{name}": p for name, p in learning.named_parameters()},
            learning_rate=learning_rate,
        )

    @property
    def module(self) -> PolicyNetwork:
        """The network itself."""
        return self.network

    def logits(self, observations: Tensor, skills: Tensor | None, rows: Tensor | None) -> Tensor:
        """Logits (m, A) of observations (m, *shape), rows (m,) of a table, and skills (m, k)."""
        result: Tensor = self.network(observations, skills)
        return result

    def evaluate(self, batch: Batch, layout: BatchLayout, critic_features: Tensor) -> ActorValues:
        """Evaluate on a batch, of whose table (m, f) `critic_features` are the critics'."""
        encoded = None
        if self._encoder is not None:
            encoded = self._encoder.encode(batch.observations, batch.rows)
        features = critic_features if encoded is None else encoded.features
        head = self.network.head
        with torch.no_grad():
            activations = head.activations(features, layout.at, batch.skills)
            next_logits = None
            if layout.at_next is not None:
                next_logits = head(features, layout.at_next, batch.skills)[0]
            return ActorValues(
                F.log_softmax(activations.output[0], dim=1),
                next_logits,
                partial(self._backward, activations, encoded),
            )

    def _backward(
        self, activations: Activations, encoded: Encoded | None, logits_grad: Tensor
    ) -> None:
        features_grad = self.network.head.backward(activations, logits_grad[None])
        if encoded is not None:
            encoded.backward(features_grad)

    def grad_norm(self) -> Tensor:
        """Euclidean norm of the gradient."""
        return self._adam.grad_norm()

    def step(self) -> None:
        """One step along the gradient."""
        self._adam.step()

    def tensors(self) -> dict[str, Tensor]:
        """Actor and optimizer under the names of a checkpoint, not copied."""
        tensors = self._adam.tensors()
        if self._encoder is not None:
            buffers = self.network.encoder.named_buffers()
            tensors.update((f"actor.encoder.{name}", buffer) for name, buffer in buffers)
        return tensors

    def forget_features(self) -> None:
        """Nothing is remembered: all that it owns learns."""


class ModuleActor:
    """A copy of any module from observations (n, *shape) to logits (n, A), by autograd.

    It is put in evaluation mode, so that drop-out draws nothing and batch statistics stay. Only
    parameters that require gradients learn; there may be none.

    Args:
        module: of any floating dtype.
        n_actions: A.
        learning_rate: Adam step size.
        learning_rates: other step sizes, by the name of the module's parameter.

    Raises:
        ConfigurationError: a step size for a parameter that the module does not have.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        n_actions: int,
        learning_rate: float,
        learning_rates: Mapping[str, float],
    ) -> None:
        self.module = copy.deepcopy(module).eval()
        self._n_actions = n_actions
        named = dict(self.module.named_parameters())
        unknown = [name for name in learning_rates if name not in named]
        if unknown:
            raise ConfigurationError(
                f"a learning rate was given for {unknown[0]!r}, but the actor's parameters are "
                f"{', '.join(named) or 'none'}"
            )
        self._adam = ParameterAdam(
            {f"actor.{k}": p for k, p in named.items() if p.requires_grad},
            learning_rate=learning_rate,
            learning_rates={f"actor.{k}": rate for k, rate in learning_rates.items()},
        )
        self._cache: RowCache | None = None
        self._is_cacheable: bool | None = None  # unknown before an observation was seen

    def logits(self, observations: Tensor, skills: Tensor | None, rows: Tensor | None) -> Tensor:
        """Logits (m, A) of raw observations (m, *shape), rows (m,) of a table.

        Raises:
            ConfigurationError: skills were given, or the module returns no logits (m, A).
        """
        if skills is not None:
            raise ConfigurationError(
                f"skills of shape {tuple(skills.shape)} were given to an actor that is a module of "
                "observations alone: leave them out"
            )
        if rows is None:
            return self._checked(self.module(observations), observations)
        return self._logits_of_table(observations, rows)

    def _checked(self, logits: object, observations: Tensor) -> Tensor:
        expected = (len(observations), self._n_actions)
        if (
            isinstance(logits, Tensor)
            and tuple(logits.shape) == expected
            and logits.is_floating_point()
        ):
            return logits
        found = (
            f"{logits.dtype} of shape {tuple(logits.shape)}"
            if isinstance(logits, Tensor)
            else type(logits).__name__
        )
        raise ConfigurationError(
            f"the actor returned {found} for observations of shape {tuple(observations.shape)}, "
            f"but must return floating-point logits of shape {expected}: one row per observation, "
            "one column per action"
        )

    def _logits_of_table(self, observations: Tensor, rows: Tensor | None) -> Tensor:
        """Logits (m, A) with a graph to what learns."""
        if self._is_cacheable is None:
            self._is_cacheable = self._has_fixed_regressors(observations[:1])
        if self._is_cacheable:
            assert isinstance(self.module, RegressorActor)
            if self._cache is None:
                self._cache = RowCache(self.module.regressors)
            regressors = self._cache(observations, rows)
            return self._checked(self.module.logits_from_regressors(regressors), observations)
        return self._checked(self.module(observations), observations)

    def _has_fixed_regressors(self, observations: Tensor) -> bool:
        if not isinstance(self.module, RegressorActor):
            return False
        with torch.enable_grad():
            return not self.module.regressors(observations).requires_grad

    def evaluate(self, batch: Batch, layout: BatchLayout, critic_features: Tensor) -> ActorValues:
        """Evaluate on a batch; the critics' features are not looked at.

        Raises:
            ConfigurationError: the module returns no logits (m, A).
        """
        with torch.enable_grad():
            logits = self._logits_of_table(batch.observations, batch.rows)
            evaluated = logits if layout.at is None else logits[layout.at]
        # Logits of any size and dtype: their differences are taken before digits are dropped.
        precise = torch.promote_types(logits.dtype, torch.float32)
        table = F.log_softmax(logits.detach().to(precise), dim=1).float()  # (m, A)
        return ActorValues(
            table if layout.at is None else table[layout.at],
            None if layout.at_next is None else table[layout.at_next],
            partial(self._backward, evaluated),
        )

    def _backward(self, logits: Tensor, logits_grad: Tensor) -> None:
        self._adam.zero_grad()
        if logits.requires_grad:
            logits.backward(logits_grad.to(logits.dtype))  # type: ignore[no-untyped-call]

    def grad_norm(self) -> Tensor:
        """Euclidean norm of the gradient."""
        return self._adam.grad_norm()

    def step(self) -> None:
        """One step along the gradient."""
        self._adam.step()

    def tensors(self) -> dict[str, Tensor]:
        """Actor, learning or not, and optimizer under the names of a checkpoint, not copied."""
        tensors = self._adam.tensors()
        for name, tensor in (*self.module.named_parameters(), *self.module.named_buffers()):
            tensors.setdefault(f"actor.{name}", tensor.detach())
        return tensors

    def forget_features(self) -> None:
        """Evaluate what does not learn anew: its weights were replaced."""
        if self._cache is not None:
            self._cache.clear()
