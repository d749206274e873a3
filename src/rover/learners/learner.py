"""Twin critics and the targets that follow them: what every learner has."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.data import Batch
from rover.errors import ConfigurationError, NonFiniteError, SlowPathWarning
from rover.features import Encoder, EncoderConfig, Optimizer, make_encoder
from rover.learners.config import CQLConfig, DDPGConfig, SACConfig
from rover.learners.networks import EvaluatedRows, TwinCritics
from rover.storage import copied_tensors, restore_tensors

ConfigT = TypeVar("ConfigT", bound=DDPGConfig | SACConfig | CQLConfig)


class CriticLearner(Generic[ConfigT]):
    """Twin critics on one encoder, and target critics θ' ← θ' + τ (θ − θ').

    For images, and for an encoder that does not learn, the target critics read the critics'
    features; for anything else they have an encoder of their own.

    Every distinct observation of a batch is encoded once, and the heads are evaluated once per
    distinct observation where that is the less work; the result is that of the batch written out.
    An encoder with nothing to learn is evaluated once for each of ``batch.rows``; without rows it
    is evaluated anew in every update, one observation after the other, which gives the same bits
    and takes many times as long.

    Args:
        encoder: what new encoders are
            (:func:`rover.features.encoder_config`, ``architecture="learner"``).
        n_actions: A.
        config: settings.
        skill_dim: width of the skill that conditions the networks; 0: none.
        critic_encoder: an encoder for the critics to stand on instead of a new one, in the place
            of the first hidden layer. It is copied; if none of its parameters require gradients it
            stays as it is, and else it learns with the critics.
        generator: source of the initial weights.

    Attributes:
        critics: the critics that learn.
        target_critics: the critics that follow.

    Raises:
        ConfigurationError: `encoder` has no weights to learn.
    """

    name: ClassVar[str]
    """What messages call the learner."""

    def __init__(
        self,
        encoder: EncoderConfig,
        *,
        n_actions: int,
        config: ConfigT,
        skill_dim: int = 0,
        critic_encoder: Encoder | None = None,
        generator: torch.Generator,
    ) -> None:
        if encoder.kind not in ("mlp", "conv"):
            raise ConfigurationError(
                f"a learner needs an 'mlp' or 'conv' encoder, not {encoder.kind!r}: use "
                "encoder_config(..., architecture='learner')"
            )
        self.config = config
        self.n_actions = n_actions
        self.skill_dim = skill_dim
        is_new = critic_encoder is None
        own = copy.deepcopy(critic_encoder)
        if own is None:
            own = make_encoder(encoder, generator)
        learns = any(map(attrgetter("requires_grad"), own.parameters()))
        own = own.float() if learns else own.eval()
        share_encoder, learning_rate = (
            (None, config.learning_rate)
            if isinstance(config, CQLConfig)
            else (config.share_encoder, config.critic_learning_rate)
        )
        self.shares_encoder = own.config.kind == "conv" if share_encoder is None else share_encoder
        self.critics = TwinCritics(
            own,
            n_actions=n_actions,
            hidden_sizes=config.hidden_sizes[1:],
            skill_dim=skill_dim,
            generator=generator,
        )
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self._targets_own_encoder = learns and not self.shares_encoder
        follower: nn.Module = self.target_critics
        followed: nn.Module = self.critics
        if not self._targets_own_encoder:
            self.target_critics.encoder = own
            follower, followed = self.target_critics.heads, self.critics.heads
        self._following: tuple[list[Tensor], list[Tensor]] = (
            list(follower.parameters()),
            list(followed.parameters()),
        )
        self._cache = None if learns else RowCache(lambda x: own(x).float())
        self._caches = [] if self._cache is None else [self._cache]
        # Encoders that were not given, each once.
        self._new_encoders = [own] if is_new else []
        if is_new and self._targets_own_encoder:
            self._new_encoders.append(self.target_critics.encoder)
        self._critic_optimizer = Optimizer(
            f"{self.name}'s critics", {"critics": self.critics}, learning_rate=learning_rate
        )

    def set_centering(
        self, center: NDArray[np.floating[Any]], scale: NDArray[np.floating[Any]] | float = 1.0
    ) -> None:
        """Relate the input of every new network to the data: :meth:`Encoder.set_centering`.

        What was given keeps its own.
        """
        for encoder in self._new_encoders:
            encoder.set_centering(center, scale)

    def state(self) -> dict[str, Tensor]:
        """Everything that training depends on as named tensors, copied.

        The keys are the same before and after training. :meth:`load_state` in a learner of the
        same settings and given networks continues with the same bits.
        """
        return copied_tensors(self._tensors())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            ArtefactError: a tensor is missing, unknown, or of another shape or dtype; nothing
                has been changed then.
        """
        restore_tensors(self._tensors(), state, owner="the learner")
        for cache in self._caches:
            cache.clear()

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, under the names of a checkpoint; not copied."""
        named = (*self.target_critics.named_parameters(), *self.target_critics.named_buffers())
        followers = [(name, tensor) for name, tensor in named if not name.startswith("encoder.")]
        own = named if self._targets_own_encoder else followers
        return self._critic_optimizer.tensors() | {f"target_critics.{k}": v for k, v in own}

    def _evaluate(
        self, batch: Batch, returns: Tensor, discounts: Tensor
    ) -> tuple[EvaluatedRows, Tensor, Tensor, Tensor]:
        """Where the heads are evaluated, features (m, f), Q (2, r, A), and of actions taken (2, n).

        Raises:
            ConfigurationError: the batch is empty, or its lengths do not fit.
        """
        shapes = [batch.index.shape, batch.actions.shape, batch.next_index.shape]
        shapes += [returns.shape, discounts.shape]
        if len(batch) == 0 or set(shapes) != {(len(batch),)}:
            raise ConfigurationError(
                "an update needs at least one transition, and index, actions, next_index, returns "
                f"and discounts of the same length, got shapes {[*map(tuple, shapes)]}"
            )
        rows = EvaluatedRows.of(batch)
        if self._cache is None:
            features = self.critics.encoder(batch.observations)
        else:
            features = self._cache(batch.observations, batch.rows)
        q = self.critics.heads(features, rows.at, batch.skills)
        taken = q.flatten(1).index_select(1, rows.row * self.n_actions + batch.actions)
        return rows, features, q, taken

    @torch.no_grad()
    def _next_target_q(self, batch: Batch, rows: EvaluatedRows, features: Tensor) -> Tensor:
        """Target critics (2, n, A) where transitions lead; `features` are the critics' own."""
        if self._targets_own_encoder:
            features = self.target_critics.encoder(batch.observations)
        next_q: Tensor = self.target_critics.heads(features, rows.at_next, batch.skills)
        return next_q.index_select(1, rows.next_row)

    @torch.no_grad()
    def _step(self, figures: Mapping[str, Tensor], returns: Tensor) -> dict[str, float]:
        """One step of the critics, and of the targets after it; returns the figures as numbers.

        Raises:
            NonFiniteError: one of the figures is not finite; no weight was changed.
        """
        values = torch.stack(tuple(figures.values())).tolist()
        metrics = dict(zip(figures, values, strict=True))
        if all(map(math.isfinite, values)):
            self._critic_optimizer.apply()
            torch._foreach_lerp_(*self._following, self.config.target_rate)
            return metrics
        bad = int((~torch.isfinite(returns)).sum())
        reason = (
            f"{bad} of {len(returns)} returns are not finite: look at the rewards"
            if bad
            else "lower the learning rates or the scale of the rewards, and check that the "
            "observations are finite"
        )
        listed = ", ".join(f"{name} {value}" for name, value in metrics.items())
        update = int(self._critic_optimizer.n_updates) + 1
        raise NonFiniteError(f"update {update} of {self.name} has {listed}; {reason}")


class RowCache:
    """Cache of the outputs of a frozen network, by row of the buffer's table of observations.

    The last digits of a product of matrices depend on how many rows it has, so an output that was
    computed in one batch is not what another batch would have given, and a run that is resumed with
    an empty cache would go another way. Here every observation is evaluated by itself, cached or
    not. All batches must come from one buffer.

    Args:
        function: observations (n, *shape) → (n, q), row by row and without anything to learn.
        max_bytes: memory that may be taken; rows beyond it are evaluated anew each time.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], *, max_bytes: int = 2**30) -> None:
        self._function = function
        self._max_bytes = max_bytes
        self._has_warned = False
        self.clear()

    def clear(self) -> None:
        """Forget everything: the function has changed."""
        self._known = torch.zeros(0, dtype=torch.bool)  # by row, as the next
        self._outputs: Tensor | None = None

    @torch.no_grad()
    def __call__(self, observations: Tensor, rows: Tensor | None) -> Tensor:
        """The function (m, q) of `observations` (m, *shape), which are `rows` (m,) of a table.

        Without rows nothing is cached, and the result is the same to the bit.

        Warns:
            SlowPathWarning: the memory is full.
        """
        known = torch.zeros(len(observations), dtype=torch.bool)
        if rows is not None:
            beyond = int(rows.max()) + 1 - len(self._known)
            if beyond > 0:
                self._known = F.pad(self._known, (0, beyond))
            known = self._known[rows]
            if self._outputs is not None and bool(known.all()):
                return self._outputs[rows]
        unknown = observations[~known]
        # Copies, so that every observation is aligned in memory as any other.
        each = map(torch.clone, torch.tensor_split(unknown, len(unknown)))
        fresh = torch.cat(tuple(map(self._function, each)))
        if rows is None:
            return fresh
        self._store(rows[~known], fresh)
        result = fresh.new_empty((len(rows), *fresh.shape[1:]))
        result[~known] = fresh
        if self._outputs is not None:
            result[known] = self._outputs[rows[known]]
        return result

    def _store(self, rows: Tensor, outputs: Tensor) -> None:
        """Keep what memory there is for."""
        limit = self._max_bytes // max(1, outputs[0].numel() * outputs.element_size())
        fits = rows < limit
        if not (bool(fits.all()) or self._has_warned):
            self._has_warned = True
            warnings.warn(
                f"features of {limit} observations fill the {self._max_bytes} bytes set aside for "
                "them: those of further ones are computed anew in every update. Narrower features, "
                "or a policy that stands on fewer states, take less",
                SlowPathWarning,
                stacklevel=3,
            )
        size = 0 if self._outputs is None else len(self._outputs)
        if size < min(limit, len(self._known)):
            grown = outputs.new_empty((min(limit, 2 * len(self._known)), *outputs.shape[1:]))
            if self._outputs is not None:
                grown[:size] = self._outputs
            self._outputs = grown
        if self._outputs is not None:
            self._outputs[rows[fits]] = outputs[fits]
            self._known[rows[fits]] = True
