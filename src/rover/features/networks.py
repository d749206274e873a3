"""Parts that all networks share: input as tensors, its statistics, initial weights, optimiser."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

_LEAST_NORMAL = sys.float_info.min


def as_tensor(array: NDArray[Any] | Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return the array as a tensor, sharing memory where that is possible.

    With a dtype, the space's: digits beyond a float32 may go, but whole numbers that it cannot
    hold, such as images divided by 255, stay as they are.
    """
    if isinstance(array, Tensor):
        if dtype is None or dtype == array.dtype:
            return array
        cast = array.to(dtype)
        return cast if dtype.is_floating_point or bool((cast == array).all()) else array
    array = np.asarray(array)
    # Policies and encoders are called by users, with whatever an environment of theirs returned.
    if array.dtype.kind not in "biuf":
        raise ConfigurationError(f"observations must be numbers, not {array.dtype}: {array!r:.80}")
    # torch would warn of memory that must not be written to.
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return as_tensor(tensor, dtype)


def as_stored(
    observations: NDArray[Any] | Tensor, shape: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    """Observations (n, *shape) as a tensor of the dtype that they are stored in, or a
    ConfigurationError."""
    batch = as_tensor(observations, dtype)
    # Images that somebody has divided by 255 would be divided once more, in silence.
    if tuple(batch.shape[1:]) != shape or batch.dtype != dtype:
        expected, given = (str(one).removeprefix("torch.") for one in (dtype, batch.dtype))
        raise ConfigurationError(
            f"the encoder expects {expected} observations of shape (n, "
            f"{', '.join(map(str, shape))}), not scaled, and was given {given} of shape "
            f"{tuple(batch.shape)}: check the environment's observation option"
        )
    return batch


def input_statistics(observations: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the reference and the scale to which an encoder should relate its input.

    The reference is the elementwise (lower) median, so that most observations become exactly zero
    where they agree. The scale of bytes is 255, or the range of each channel where they are codes;
    of anything else the range that each element covers (1 where it never changes). Of (m, *shape)
    distinct observations 512 are used, evenly spaced.
    """
    # Enough for a median, and a partition of all would take longer than a hundred updates.
    observations = observations[evenly_spaced(len(observations), 512)]
    middle = (len(observations) - 1) // 2
    center = np.partition(observations, middle, axis=0)[middle].astype(np.float32)
    if observations.dtype == np.uint8:
        shape = observations.shape[1:]
        if observations.max(initial=0) >= _LEAST_INTENSITY:
            return center, np.full(shape, 255.0, np.float32)
        # Symbolic images hold small numbers, the kind and the colour of what is in a cell, say.
        # Divided by 255 they would all but vanish beside a bias. Each element of a vector is a
        # channel.
        channels = observations.reshape(-1, shape[-1] if len(shape) in (1, 3) else 1)
        reach = np.ptp(channels, axis=0) if len(channels) else np.zeros(1)
        return center, np.broadcast_to(np.maximum(reach, 1).astype(np.float32), shape).copy()
    # The range and not the deviation, which a rare but decisive element would hardly move.
    spread = np.ptp(observations, axis=0).astype(np.float32)
    return center, np.where(spread > 0, spread, np.float32(1.0)).astype(np.float32)


@contextmanager
def learning_mode(threads: int | None = None) -> Iterator[None]:
    """Record gradients inside, whatever mode of torch the caller is in: under ``torch.no_grad``
    nothing would be trained in silence, and what ``torch.inference_mode`` builds never can be.

    On `threads` of torch's, if given: more change the bits, and slow small networks down.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(before)


def orthogonal_(weight: Tensor, *, gain: float = 1.0, generator: torch.Generator) -> Tensor:
    """Fill a matrix (fan_out, fan_in) with orthogonal weights (Saxe et al., 2014)."""
    # The QR decomposition rounds differently with the number of threads: it is computed on one.
    with learning_mode(1):
        return nn.init.orthogonal_(weight, gain=gain, generator=generator)


def make_linear(
    fan_in: int,
    fan_out: int,
    *,
    bias_std: float | None,
    gain: float = DEFAULT_GAIN,
    generator: torch.Generator,
) -> nn.Linear:
    """A linear layer with orthogonal weights, and a normal bias unless `bias_std` is None."""
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


class AdamW(torch.optim.AdamW):
    """torch's AdamW (Loshchilov and Hutter, 2019) over a module's parameters that require
    gradients; a state by names, and no step where a loss or gradient is not finite.

    Without weight decay it is Adam (Kingma and Ba, 2015). Moments exist from the start, so that a
    state has the same names before the first step and after it.

    Args:
        owner: whose update it is, for messages.
        module: what to train; parameters that require no gradient now never learn.
        learning_rate: step size.
        weight_decay: ≥ 0.
        learning_rates: other step sizes, by the name of a parameter, which then has no decay.
    """

    def __init__(
        self,
        owner: str,
        module: nn.Module,
        learning_rate: float,
        *,
        weight_decay: float = 0.0,
        learning_rates: Mapping[str, float] | None = None,
    ) -> None:
        self._owner, self._module, rates = owner, module, learning_rates or {}
        self._learning = {n: p for n, p in module.named_parameters() if p.requires_grad}
        groups: list[dict[str, Any]] = [
            {"params": [p for name, p in self._learning.items() if name not in rates]}
        ]
        for rate in dict.fromkeys(rates.values()):
            members = [p for name, p in self._learning.items() if rates.get(name) == rate]
            groups.append({"params": members, "lr": rate, "weight_decay": 0.0})
        # The fused kernel takes a third of the time, and would train what lies between the
        # elements of a parameter that is a part of a larger tensor.
        fused = all(p.nbytes == p.untyped_storage().nbytes() for p in self._learning.values())
        super().__init__(groups, lr=learning_rate, weight_decay=weight_decay, fused=fused)
        for parameter in self._learning.values():
            moments = torch.zeros_like(parameter), torch.zeros_like(parameter)
            step = torch.zeros((), dtype=torch.float32, device=parameter.device if fused else "cpu")
            self.state[parameter] = dict(
                zip(("step", "exp_avg", "exp_avg_sq"), (step, *moments), strict=True)
            )

    @property
    def n_updates(self) -> int:
        """Steps taken: of a parameter that has missed some, fewer count for its moments."""
        return max((int(moments["step"]) for moments in self.state.values()), default=0)

    def descend(self, loss: Tensor, **figures: Tensor) -> dict[str, float]:
        """Take one step on a scalar loss. Parameters that it does not depend on stay, with their
        moments.

        Returns:
            The loss before the step, the figures, and the Euclidean norm of the gradient.

        Raises:
            NonFiniteError: one of these is not finite; no weight was changed.
        """
        parameters = list(self._learning.values())
        before = _LEAST_NORMAL * 0.5 == 0.0  # torch sets this mode and has no way to read it
        # Numbers below 1e-38 are zero: the moments of weights without gradients end there, and a
        # step on such numbers takes thirty times as long as on others.
        torch.set_flush_denormal(True)
        try:
            self.zero_grad()
            if loss.requires_grad:
                loss.backward(inputs=parameters)  # type: ignore[no-untyped-call]
            gradients = [p.grad.flatten() for p in parameters if p.grad is not None]
            norm = torch.cat(gradients).norm() if gradients else torch.zeros(())
            # One transfer for all of them: reading a tensor's number waits for its computation.
            every = {"loss": loss.detach(), **figures, "gradient_norm": norm}
            metrics = dict(zip(every, torch.stack(tuple(every.values())).tolist(), strict=True))
            if not all(map(math.isfinite, metrics.values())):
                raise NonFiniteError(
                    f"update {self.n_updates + 1} of {self._owner} has {metrics}: check that "
                    "rewards and observations are finite, or lower the learning rates (now "
                    f"{', '.join(str(group['lr']) for group in self.param_groups)})"
                )
            self.step()
        finally:
            torch.set_flush_denormal(before)
        return metrics

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, under the names of a state; not copied: parameters
        and buffers of the module, moments and counts of steps."""
        tensors = dict(self._module.named_parameters()) | dict(self._module.named_buffers())
        for name, parameter in self._learning.items():
            for moment, tensor in self.state[parameter].items():
                tensors[f"optimizer.{moment}.{name}"] = tensor
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
