"""Parts that all networks share: input as tensors, its statistics, initial weights, optimiser."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter, mul
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.arrays import evenly_spaced
from rover.errors import ArtefactError, ConfigurationError, NonFiniteError

# A byte that large is an intensity, and not the number of a kind or a colour.
_LEAST_INTENSITY = 128

DEFAULT_GAIN = math.sqrt(2.0)
"""Gain of initial weights with which ReLU layers keep the size of their input (He et al., 2015)."""

_MAX_WEIGHTS = 2**28

# As in Kingma and Ba (2015); torch's defaults too.
_BETAS, _EPSILON = (0.9, 0.999), 1e-8

_LEAST_NORMAL = sys.float_info.min


def as_tensor(array: NDArray[Any] | Tensor) -> Tensor:
    """Return the array as a tensor, sharing memory unless the array is read-only."""
    if isinstance(array, Tensor):
        return array
    array = np.asarray(array)
    # Policies and encoders are called by users, with whatever an environment of theirs returned.
    if array.dtype.kind not in "biuf":
        raise ConfigurationError(f"observations must be numbers, not {array.dtype}: {array!r:.80}")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # which torch does not have
        array = array.astype(np.float64)
    # torch would warn of memory that must not be written to.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def cast_observations(observations: Tensor, dtype: torch.dtype) -> Tensor:
    """Observations in the dtype of their space; whole numbers that it cannot hold, such as images
    divided by 255, unchanged. Environments compute in float64, or return lists, where their space
    is float32: such digits may go."""
    if observations.dtype == dtype:
        return observations
    cast = observations.to(dtype)
    return cast if dtype.is_floating_point or bool((cast == observations).all()) else observations


def input_statistics(
    observations: NDArray[Any],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the reference and the scale to which an encoder should relate its input.

    The reference is the elementwise (lower) median, so that what is the same in most
    observations becomes exactly zero. The scale is :func:`byte_scale`'s for bytes and, for
    anything else, the range that each element covers (1 where it never changes, so one-hot input
    stays as it is). Of (m, *shape) distinct observations 512 are used, evenly spaced.
    """
    # Enough for a median, and a partition of all would take longer than a hundred updates.
    observations = observations[evenly_spaced(len(observations), 512)]
    middle = (len(observations) - 1) // 2
    center = np.partition(observations, middle, axis=0)[middle].astype(np.float32)
    if observations.dtype == np.uint8:
        return center, byte_scale(observations)
    # The range and not the deviation, which a rare but decisive element would hardly move.
    spread = np.ptp(observations, axis=0).astype(np.float32)
    return center, np.where(spread > 0, spread, np.float32(1.0)).astype(np.float32)


def byte_scale(observations: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The scale of bytes: 255 of intensities, and of codes the range that each channel covers."""
    shape = observations.shape[1:]
    if observations.max(initial=0) >= _LEAST_INTENSITY:
        return np.full(shape, 255.0, np.float32)
    # Symbolic images hold small numbers, the kind and the colour of what is in a cell, say. Divided
    # by 255 they would all but vanish beside a bias. Each element of a vector is a channel.
    channels = observations.reshape(-1, shape[-1] if len(shape) in (1, 3) else 1)
    spread = np.ptp(channels, axis=0) if len(channels) else np.zeros(1)
    return np.broadcast_to(np.maximum(spread, 1).astype(np.float32), shape).copy()


@contextmanager
def learning_mode() -> Iterator[None]:
    """Record gradients inside, whatever mode of torch the caller is in: under ``torch.no_grad``
    nothing would be trained in silence, and what ``torch.inference_mode`` builds never can be."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Use ``count`` torch threads inside: more change the bits, and slow small networks down."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def orthogonal_(weight: Tensor, *, gain: float = 1.0, generator: torch.Generator) -> Tensor:
    """Fill a matrix (fan_out, fan_in) with orthogonal weights (Saxe et al., 2014)."""
    # The QR decomposition rounds differently with the number of threads: it is computed on one.
    with torch_threads(1):
        return nn.init.orthogonal_(weight, gain=gain, generator=generator)


def layer_shapes(*sizes: int) -> list[tuple[int, int]]:
    """Inputs and outputs of each layer of a network with these widths, from input to output.
    ConfigurationError: more than 2^28 weights, 1 GiB, a mistake or a forged file."""
    shapes = list(itertools.pairwise(sizes))
    n_weights = sum(itertools.starmap(mul, shapes))
    if n_weights > _MAX_WEIGHTS:
        raise ConfigurationError(
            f"a network has {n_weights:,} weights, more than {_MAX_WEIGHTS:,}: its layers are too "
            "wide, choose smaller settings, such as hidden_sizes"
        )
    return shapes


def make_linear(
    fan_in: int,
    fan_out: int,
    *,
    bias_std: float | None,
    gain: float = DEFAULT_GAIN,
    generator: torch.Generator,
) -> nn.Linear:
    """A linear layer with orthogonal weights, and a normal bias unless `bias_std` is None."""
    layer_shapes(fan_in, fan_out)  # refuses what no memory holds, before it is made
    # Built without values, so that the global random state is neither read nor moved.
    layer = nn.Linear(
        fan_in, fan_out, bias=bias_std is not None, device="meta", dtype=torch.float32
    )
    layer = layer.to_empty(device=torch.get_default_device())
    orthogonal_(layer.weight, gain=gain, generator=generator)
    if bias_std == 0.0:  # which draws nothing from the generator
        nn.init.zeros_(layer.bias)
    elif bias_std is not None:
        nn.init.normal_(layer.bias, std=bias_std, generator=generator)
    return layer


@contextmanager
def _without_denormals() -> Iterator[None]:
    """Take numbers below 1e-38 for zero inside: the moments of a weight that has no gradient any
    more end there, and a step on such numbers takes thirty times as long as on others."""
    before = _LEAST_NORMAL * 0.5 == 0.0  # torch sets this mode, and does not tell it
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _memory(tensor: Tensor) -> Tensor:
    """A tensor's numbers in the order in which they lie in memory, as a view: the fused kernel
    first copies what is not in C order, for nothing."""
    return tensor.as_strided((tensor.numel(),), (1,))


class Optimizer:
    """AdamW (Loshchilov and Hutter, 2019) over the parameters that require gradients.

    Without weight decay it is Adam (Kingma and Ba, 2015). Moments exist from the start and not
    from the first step, so that a state always has the same keys.

    Args:
        name: whose update it is, for messages.
        modules: modules or parameters to train, by their name in a state. Parameters of a module
            that require no gradient now are left out (there may be none).
        learning_rate: step size.
        weight_decay: of AdamW, ≥ 0.
        learning_rates: other step sizes, by the full name of a parameter that then has no decay.

    Raises:
        ConfigurationError: a parameter that learns does not fill the memory between its first
            number and its last.

    Attributes:
        n_updates: () int64, steps taken.
        learning_rate: step size of the parameters without one of their own; a schedule may set it.
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
        self._name = name
        self._modules = dict(modules)
        self.learning_rate = learning_rate
        self._weight_decay = weight_decay
        # A tensor of float32, as the fused kernel wants it.
        self._step_count = torch.zeros((), dtype=torch.float32)
        self._learning: list[Tensor] = []
        self._moments: dict[str, tuple[Tensor, Tensor]] = {}
        # Parameters and both moments by step size; None: the common step size.
        self._groups: dict[float | None, tuple[list[Tensor], list[Tensor], list[Tensor]]] = {}
        for key, parameter in self._named_tensors().items():
            if not parameter.requires_grad:  # frozen, or a buffer
                continue
            order = sorted(range(parameter.ndim), key=parameter.stride, reverse=True)
            if not parameter.permute(order).is_contiguous():
                raise ConfigurationError(
                    f"parameter {key} of {name} is part of a larger tensor, or has elements that "
                    "share memory, and cannot be trained: make it of a copy, tensor.clone()"
                )
            self._learning.append(parameter)
            self._moments[key] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            group = self._groups.setdefault((learning_rates or {}).get(key), ([], [], []))
            for column, tensor in zip(group, (parameter, *self._moments[key]), strict=True):
                column.append(tensor)

    def step(self, loss: Tensor) -> float:
        """Take one step on a scalar loss and return its value before the step. NonFiniteError: the
        loss or its gradient is not finite; no weight was changed."""
        norm, value = self.backward(loss)[0].item(), loss.item()
        if not (math.isfinite(value) and math.isfinite(norm)):
            raise NonFiniteError(
                f"update {int(self.n_updates) + 1} of {self._name} has loss {value} and gradient "
                f"norm {norm}: lower its learning rate (now {self.learning_rate}), and "
                "check that the observations are finite"
            )
        self.apply()
        return value

    def backward(self, loss: Tensor, *others: Optimizer) -> Tensor:
        """Write the gradient of a scalar loss, without a step, for the parameters of this optimiser
        and of `others`; zero where the loss does not depend on them.

        For learners that check several losses before they change anything: the sum of losses that
        share no parameters takes one pass. Returns the Euclidean norms of the gradients (1 +
        others,).
        """
        groups = list(map(attrgetter("_learning"), (self, *others)))
        every = list(itertools.chain(*groups))
        norms = torch.zeros(len(groups), dtype=torch.float32, device=loss.device)
        # Into ``.grad``, which is laid out in memory as the parameter: the fused kernels assume
        # that, and the gradients that torch.autograd.grad returns need not be.
        for parameter in every:
            parameter.grad = None
        if every and loss.requires_grad:
            with _without_denormals():
                loss.backward(inputs=every)  # type: ignore[no-untyped-call]
        for parameter in every:
            if parameter.grad is None:
                # Zeros and not None: the fused kernel takes all parameters of a group at once.
                parameter.grad = torch.zeros_like(parameter)
        for number, group in enumerate(groups):
            if group:  # the kernel: nn.utils.get_total_norm spends four times as long around it
                each = torch._foreach_norm(list(map(attrgetter("grad"), group)))
                norms[number] = torch.linalg.vector_norm(torch.stack(each))
        return norms

    @torch.no_grad()
    @_without_denormals()
    def apply(self) -> None:
        """Take one step along the gradient that :meth:`backward` wrote."""
        self.n_updates += 1
        self._step_count += 1
        # The kernel itself: torch.optim.AdamW spends five times as long around it on small layers.
        for rate, (parameters, first, second) in self._groups.items():
            gradients = map(attrgetter("grad"), parameters)
            torch._fused_adamw_(
                list(map(_memory, parameters)),
                list(map(_memory, gradients)),
                list(map(_memory, first)),
                list(map(_memory, second)),
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
            # Per optimiser, since several that share a state may have one n_updates in common.
            tensors[f"optimizer.step.{name}"] = self._step_count
        return tensors

    def _named_tensors(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for prefix, module in self._modules.items():
            if isinstance(module, nn.Parameter):
                tensors[prefix] = module
                continue
            for key, tensor in (*module.named_parameters(), *module.named_buffers()):
                tensors[f"{prefix}.{key}"] = tensor
        return tensors


def copied_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that no later training changes, on the CPU."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


@torch.no_grad()
def restore_tensors(
    targets: Mapping[str, Tensor], state: Mapping[str, Tensor], *, owner: str
) -> None:
    """Copy a stored state of `owner` into `targets` in place, or change nothing."""
    shapes, stored = ({k: v.shape for k, v in one.items()} for one in (targets, state))
    if shapes != stored:
        wrong = sorted(k for k in shapes | stored if shapes.get(k) != stored.get(k))
        raise ArtefactError(
            f"the state of {owner} does not fit it ({', '.join(wrong)}): build {owner} with the "
            "settings it was saved with"
        )
    for name, tensor in targets.items():
        tensor.copy_(state[name])
