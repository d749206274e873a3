"""The optimiser, the training of an encoder (paper, Step 1), and a check of its features."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.errors import CollapsedFeaturesWarning, ConfigurationError, NonFiniteError
from rover.features.encoders import Encoder
from rover.features.initial import as_tensor
from rover.features.losses import (
    ActionPredictor,
    PredictorKind,
    RepresentationLoss,
    info_nce_loss,
    self_predictive_loss,
)
from rover.storage import copied_tensors, restore_tensors

Objective = Literal["info_nce", "byol", "self_predictive"]
"""The losses of a representation that have a name."""
IntArray = NDArray[np.integer[Any]]

_FINAL_LEARNING_RATE_FRACTION = 0.1
_COLLAPSED_COSINE = 0.95
_BETAS, _EPSILON = (0.9, 0.999), 1e-8


class Optimizer:
    """AdamW (Loshchilov and Hutter, 2019) over the parameters that require gradients.

    Without weight decay it is Adam (Kingma and Ba, 2015). Moments exist from the start and not
    from the first step, so that a state always has the same keys.

    Args:
        name: whose update it is, for messages.
        modules: what to train, by the name that its tensors get in a state: modules, of which
            those parameters learn that require gradients now (there may be none), or parameters.
        learning_rate: step size.
        weight_decay: of AdamW, ≥ 0.
        learning_rates: other step sizes, by the full name of a parameter that then has no decay.

    Attributes:
        n_updates: () int64, steps taken.
        learning_rate: step size of the parameters without one of their own; a schedule may set it.
        grad_norm: Euclidean norm of the gradient of the last :meth:`step`; nan before.
    """

    def __init__(
        self,
        name: str,
        modules: Mapping[str, nn.Module | nn.Parameter],
        *,
        learning_rate: float,
        weight_decay: float = 0.0,
        learning_rates: Mapping[str, float] | None = None,
    ) -> None:
        self.n_updates = torch.zeros((), dtype=torch.int64)
        self.grad_norm = math.nan
        self._name = name
        self._modules = dict(modules)
        every = {k: p for k, p in self._named_tensors().items() if isinstance(p, nn.Parameter)}
        self._parameters = {k: p for k, p in every.items() if p.requires_grad}
        self._learning = list(self._parameters.values())
        rates = learning_rates or {}
        self.learning_rate = learning_rate
        self._weight_decay = weight_decay
        self._step_count = torch.zeros(())
        self._moments = {
            k: (torch.zeros_like(p), torch.zeros_like(p)) for k, p in self._parameters.items()
        }
        # Parameters and both moments by a step size of their own, None for that of all others.
        self._groups: dict[float | None, tuple[list[Tensor], list[Tensor], list[Tensor]]] = {}
        for key, (first, second) in self._moments.items():
            group = self._groups.setdefault(rates.get(key), ([], [], []))
            for column, tensor in zip(group, (every[key], first, second), strict=True):
                column.append(tensor)

    def step(self, loss: Tensor) -> float:
        """Take one step on a scalar loss and return its value before the step.

        Raises:
            NonFiniteError: the loss or its gradient is not finite; no weight was changed.
        """
        norm = self.backward(loss)[0]
        value, self.grad_norm = loss.item(), norm.item()
        if not (math.isfinite(value) and math.isfinite(self.grad_norm)):
            raise NonFiniteError(
                f"update {int(self.n_updates) + 1} of {self._name} has loss {value} and gradient "
                f"norm {self.grad_norm}: lower its learning rate (now {self.learning_rate}), and "
                "check that the observations are finite"
            )
        self.apply()
        return value

    def backward(self, loss: Tensor, *others: Optimizer) -> Tensor:
        """Write the gradient of a scalar loss, without a step.

        For learners that check several losses before they change anything: the sum of losses that
        share no parameters takes one pass for all. A parameter that the loss does not depend on
        gets a gradient of zero.

        Args:
            loss: scalar.
            others: whose parameters the loss depends on too.

        Returns:
            Euclidean norms of the gradient (1 + others,): of this one's parameters, and theirs.
        """
        learning = [self._learning, *map(attrgetter("_learning"), others)]
        every = list(itertools.chain(*learning))
        # Into ``.grad``, which is laid out in memory as the parameter: the fused kernels assume
        # that, and the gradients that torch.autograd.grad returns need not be.
        for parameter in every:
            parameter.grad = None
        if every and loss.requires_grad:
            loss.backward(inputs=every)  # type: ignore[no-untyped-call]
        gradients: list[Tensor] = []
        for parameter in every:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        norms = iter(torch._foreach_norm(gradients) if gradients else ())
        totals: list[Tensor] = []
        for parameters in learning:
            own = list(itertools.islice(norms, len(parameters)))
            totals.append(torch.linalg.vector_norm(torch.stack(own)) if own else torch.zeros(()))
        return torch.stack(totals)

    @torch.no_grad()
    def apply(self) -> None:
        """Take one step along the gradient that :meth:`backward` wrote."""
        self.n_updates += 1
        self._step_count += 1
        # The kernel itself: torch.optim.AdamW spends five times as long around it on small layers.
        for rate, (parameters, first, second) in self._groups.items():
            torch._fused_adamw_(
                parameters,
                list(map(attrgetter("grad"), parameters)),
                first,
                second,
                [],
                [self._step_count] * len(parameters),
                lr=self.learning_rate if rate is None else rate,
                beta1=_BETAS[0],
                beta2=_BETAS[1],
                eps=_EPSILON,
                weight_decay=self._weight_decay if rate is None else 0.0,
                amsgrad=False,
                maximize=False,
            )

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, under the names of a state; not copied.

        Parameters (those that do not learn too) and buffers, moments and counts of steps.
        """
        tensors = {**self._named_tensors(), "n_updates": self.n_updates}
        for name, (first, second) in self._moments.items():
            tensors[f"optimizer.exp_avg.{name}"] = first
            tensors[f"optimizer.exp_avg_sq.{name}"] = second
            # Of this optimiser alone, where n_updates may be that of several that share a state.
            tensors[f"optimizer.step.{name}"] = self._step_count
        return tensors

    def _named_tensors(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for prefix, module in self._modules.items():
            if isinstance(module, nn.Parameter):
                tensors[prefix] = module
            else:
                for key, tensor in (*module.named_parameters(), *module.named_buffers()):
                    tensors[f"{prefix}.{key}"] = tensor
        return tensors


class RepresentationTrainer:
    """Trains an encoder and a predictor of next features with AdamW.

    The predictor may be trained with Adam instead, at a constant step size (``decay_predictor``).

    Args:
        encoder: what to train; it is trained in place.
        n_actions: number of actions.
        objective: "info_nce" (the paper's), "byol" (targets from a moving average of the
            encoder), "self_predictive" (targets from the encoder itself), or a loss of your own
            (:class:`RepresentationLoss`).
        temperature: of InfoNCE; 1 is the paper's loss.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        cosine_updates: updates over which the learning rate falls to 10%; None: it is constant.
        predictor: "linear", "two_layer" or "silu" (:class:`ActionPredictor`).
        predictor_width: width of its hidden layer.
        decay_predictor: whether weight decay and cosine decay hold for the predictor too.
        target_decay: share of the old weights that BYOL's target encoder keeps at each update.
        generator: source of the predictor's initial weights.

    Raises:
        ConfigurationError: the encoder has no weights that learn.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        n_actions: int,
        objective: Objective | RepresentationLoss = "info_nce",
        temperature: float = 0.05,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-5,
        cosine_updates: int | None = None,
        predictor: PredictorKind = "linear",
        predictor_width: int = 1024,
        decay_predictor: bool = True,
        target_decay: float = 0.99,
        generator: torch.Generator,
    ) -> None:
        if not encoder.is_trainable:
            raise ConfigurationError(
                f"a {encoder.config.kind!r} encoder has no weights to train: use it as it is, or "
                "choose an encoder with weights that require gradients ('mlp', 'conv')"
            )
        self.encoder = encoder
        self._objective = objective
        self._temperature = temperature
        self._learning_rate = learning_rate
        self._cosine_updates = cosine_updates
        self._target_decay = target_decay
        self._predictor = ActionPredictor(
            encoder.feature_dim,
            n_actions,
            kind=predictor,
            width=predictor_width,
            generator=generator,
        )
        apart = {f"predictor.{name}" for name, _ in self._predictor.named_parameters()}
        modules: dict[str, torch.nn.Module] = {"encoder": encoder, "predictor": self._predictor}
        self._target_encoder: Encoder | None = None
        if objective == "byol":
            self._target_encoder = modules["target_encoder"] = encoder.frozen()
        if isinstance(objective, torch.nn.Module):
            modules["objective"] = objective
        self._optimizer = Optimizer(
            "the encoder",
            modules,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            learning_rates={} if decay_predictor else dict.fromkeys(apart, learning_rate),
        )

    def update(
        self,
        observations: NDArray[Any] | Tensor,
        input_index: IntArray | Tensor,
        actions: IntArray | Tensor,
        next_index: IntArray | Tensor,
        counts: IntArray | NDArray[np.floating[Any]] | Tensor,
    ) -> float:
        """Take one step on a merged batch: every distinct observation is encoded once.

        Args:
            observations: (m, *shape), the distinct observations of the batch, raw.
            input_index: (n,), row of ``observations`` from which each transition starts.
            actions: (n,), in 0 … n_actions − 1.
            next_index: (n,), row of ``observations`` to which each transition leads.
            counts: (n,), positive, the equal transitions that each row stands for.

        Returns:
            The loss before the step.

        Raises:
            NonFiniteError: the loss or its gradient is not finite; no weight was changed.
        """
        states = as_tensor(observations)
        rows = {
            "input_index": torch.as_tensor(input_index),
            "actions": torch.as_tensor(actions),
            "next_index": torch.as_tensor(next_index),
            "counts": torch.as_tensor(counts).float(),
        }
        loss = self._loss(states, self.encoder(states), rows)
        if self._cosine_updates is not None:
            progress = min(1.0, int(self._optimizer.n_updates) / self._cosine_updates)
            falling = 0.5 * (1.0 + math.cos(math.pi * progress))
            final = _FINAL_LEARNING_RATE_FRACTION
            self._optimizer.learning_rate = self._learning_rate * (final + (1 - final) * falling)
        value = self._optimizer.step(loss)
        if self._target_encoder is not None:
            with torch.no_grad():
                for target, online in zip(
                    self._target_encoder.parameters(), self.encoder.parameters(), strict=True
                ):
                    target.lerp_(online, 1.0 - self._target_decay)
        return value

    def _loss(self, states: Tensor, features: Tensor, rows: dict[str, Tensor]) -> Tensor:
        """The objective on features (m, z) and the rows (n,) of a merged batch."""
        next_index, counts = rows["next_index"], rows["counts"]
        predicted = self._predictor(features, rows["input_index"], rows["actions"])  # (n, z)
        if not isinstance(self._objective, str):
            loss = self._objective(predicted, features, **rows)
            if not (isinstance(loss, Tensor) and loss.ndim == 0 and loss.requires_grad):
                raise ConfigurationError(
                    "a loss of your own must return a scalar tensor that depends on the encoder "
                    f"(see RepresentationLoss), not {loss!r}"
                )
            return loss
        if self._objective == "info_nce":
            return info_nce_loss(
                predicted, features.detach(), next_index, counts, temperature=self._temperature
            )
        if self._target_encoder is None:
            targets = features.detach().index_select(0, next_index)
            return self_predictive_loss(predicted, targets, counts)
        with torch.no_grad():
            # The reference image or vector is a fact about the data, not something learned.
            for target, online in zip(
                self._target_encoder.buffers(), self.encoder.buffers(), strict=True
            ):
                target.copy_(online)
            targets = self._target_encoder(states).index_select(0, next_index)
        return self_predictive_loss(predicted, targets, counts, normalized=True)

    def state(self) -> dict[str, Tensor]:
        """Everything that training depends on as named tensors, copied.

        The keys are the same before and after training. :meth:`load_state` in a trainer of the
        same settings continues with the same bits.
        """
        return copied_tensors(self._optimizer.tensors())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            ArtefactError: a tensor is missing, unknown, or of another shape or dtype; nothing
                has been changed then.
        """
        restore_tensors(self._optimizer.tensors(), state, owner="the trainer")


def check_collapse(features: NDArray[np.floating[Any]]) -> dict[str, float]:
    """Measure how far apart the features of distinct observations are, and warn if they are not.

    Args:
        features: (m, z), one row per distinct observation, m ≥ 2; 1,024 of them are looked at,
            evenly spaced.

    Returns:
        ``feature_cosine``, the mean cosine over pairs of different observations, and
        ``feature_rank``, exp of the entropy of the normalised singular values (the effective rank
        of Roy and Vetterli, 2007), between 1 and min(m, z).

    Raises:
        NonFiniteError: a feature is NaN or infinite.

    Warns:
        CollapsedFeaturesWarning: the mean cosine is above 0.95.
    """
    rows = np.linspace(0, len(features) - 1, min(len(features), 1024)).astype(np.int64)
    points = features[rows].astype(np.float64)  # (m, z)
    if not np.isfinite(points).all():
        row = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise NonFiniteError(
            f"the features of observation {row} are not finite: lower the learning rate, and "
            "check that the observations are finite"
        )
    m, norms = len(points), np.linalg.norm(points, axis=1, keepdims=True)
    unit = points / np.where(norms > 0.0, norms, 1.0)
    unit[norms[:, 0] == 0.0] = 1.0 / math.sqrt(points.shape[1])  # zeros are as collapsed as equals
    cosine = (float(np.square(unit.sum(axis=0)).sum()) - m) / (m * (m - 1))
    values = torch.linalg.svdvals(torch.from_numpy(points)).numpy()  # numpy's bits follow threads
    shares = values[values > 0.0] / max(float(values.sum()), np.finfo(np.float64).tiny)
    rank = float(np.exp(-(shares * np.log(shares)).sum()))
    if cosine > _COLLAPSED_COSINE:
        warnings.warn(
            f"the features of {m} distinct observations have a mean cosine of {cosine:.3f} and an "
            f"effective rank of {rank:.1f}: the representation has collapsed, or has not come "
            "apart yet, and the model will take different states for one. Try more encoder updates "
            "per step, a lower temperature, or the 'info_nce' objective",
            CollapsedFeaturesWarning,
            stacklevel=2,
        )
    return {"feature_cosine": cosine, "feature_rank": rank}
