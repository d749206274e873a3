"""Plans that are sampled: the improved cross-entropy method on a dynamics model with contacts.

In ten dimensions values that are interpolated between landmarks are poor; sequences of controls
that are predicted by the model are not. Sequences are drawn with coloured noise around those that
were best (iCEM, Pinneri et al. 2020), in each decision some of the best of the last one among them,
shifted by a step, and one of no control at all. Where actions are one of a finite set each control
of a sequence is the nearest of the set; of one-hot controls that is the largest number.

Exploration towards contact samples plans, too: the novelty of a smooth dynamics model leads an arm
through the air. A sequence of actions is worth the sum of

    p(x, u) (0.3 + (1 + n(x') / 5)^−1/2),

with the chance p that anything still moves and n the number of moves that ended in the cell of
where it goes (:mod:`rover.world.gated`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from rover.arrays import FloatArray, IntArray, cell_factors
from rover.data import Buffer
from rover.data.copies import Episodic
from rover.world.gated import FEWEST_MOVES, GatedModel, GatedSums

# Elites are few: a part of the last distribution stays, as in Pinneri et al. (2020).
_MOMENTUM = 0.1


class Sampling(NamedTuple):
    """Settings of the search."""

    horizon: int = 18  # steps of a sequence
    n_sequences: int = 64  # of the first iteration
    n_iterations: int = 2  # of a decision
    n_elites: int = 8  # the best, which the next iteration is drawn around
    spread: float = 0.5  # deviation of the first iteration, in halves of the controls' range
    discount: float = 0.99  # γ of a step


class Controls(NamedTuple):
    """Controls that an environment takes, float32: choices (A, k), or all between bounds (k,)."""

    low: Tensor
    high: Tensor
    choices: Tensor
    is_continuous: bool = False

    @classmethod
    def among(cls, choices: FloatArray, *, is_continuous: bool = False) -> Self:
        """The controls between and among choices (A, k)."""
        tensor = torch.from_numpy(choices).float()
        return cls(tensor.amin(dim=0), tensor.amax(dim=0), tensor, is_continuous)

    def nearest(self, controls: Tensor) -> Tensor:
        """Number (…) of the choice that is nearest to controls (…, k)."""
        return (controls @ self.choices.T - 0.5 * (self.choices**2).sum(dim=1)).argmax(dim=-1)

    def taken(self, controls: Tensor) -> Tensor:
        """The controls (…, k) nearest to those given (…, k), between the bounds or of the set."""
        if not self.is_continuous:
            return self.choices[self.nearest(controls)]
        return torch.minimum(torch.maximum(controls, self.low), self.high)


class SampledPlan:
    """The search of one episode, which goes on from step to step; a newer model may take the place
    of its own. `reward` is a function of points (n, d) and the chances (n,) that something
    moved."""

    def __init__(
        self,
        model: GatedModel,
        reward: Callable[[Tensor, Tensor], Tensor],
        controls: Controls,
        sampling: Sampling,
        rng: np.random.Generator,
    ) -> None:
        self.model, self._reward, self._controls = model, reward, controls
        self._sampling, self._rng = sampling, rng
        shape = sampling.horizon, len(controls.low)
        self._mean, self._kept = torch.zeros(shape), torch.zeros(1, *shape)

    def act(self, observation: FloatArray) -> Tensor:
        """The control (k,) float32 to take at an observation (d,), the next of the episode."""
        sampling, controls = self._sampling, self._controls
        begin = torch.from_numpy(np.array(observation, np.float32))
        mean, elites = self._mean, self._kept
        spread = (sampling.spread * (controls.high - controls.low) / 2.0).expand_as(mean)
        for iteration in range(sampling.n_iterations):
            size = max(2 * sampling.n_elites, int(sampling.n_sequences / 1.25**iteration))
            noise = _coloured_noise((size, *self._mean.shape), self._rng)
            drawn = torch.cat([mean + spread * noise, elites, torch.zeros_like(self._kept[:1])])
            drawn = controls.taken(drawn)
            points, returns = begin.expand(len(drawn), -1), torch.zeros(len(drawn))
            for t in range(sampling.horizon):
                points, chance = self.model.step(points, drawn[:, t])
                returns += sampling.discount**t * self._reward(points, chance)
            best = returns.topk(sampling.n_elites).indices
            elites = drawn[best]
            mean = _MOMENTUM * mean + (1.0 - _MOMENTUM) * elites.mean(dim=0)
            spread = _MOMENTUM * spread + (1.0 - _MOMENTUM) * elites.std(dim=0)
        self._mean = torch.cat([mean[1:], mean[-1:]])
        kept = elites[: sampling.n_elites // 2]
        self._kept = torch.cat([kept[:, 1:], kept[:, -1:]], dim=1)
        return elites[0, 0]


def _coloured_noise(shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Noise (n, H, k) float32 of this shape, of about unit variance, whose power falls with the
    frequency f as f^−2 (Timmer & König 1995)."""
    n, horizon, k = shape
    frequencies = np.fft.rfftfreq(horizon)
    frequencies[0] = frequencies[min(1, len(frequencies) - 1)] or 1.0
    real, imaginary = rng.standard_normal((2, n, k, len(frequencies)))
    parts = real + 1j * imaginary
    noise = np.fft.irfft(parts * frequencies**-1.0, n=horizon, axis=2)
    noise = np.swapaxes(noise / np.sqrt((noise**2).mean()), 1, 2)
    return torch.from_numpy(np.ascontiguousarray(noise, np.float32))


_SAMPLING = Sampling(horizon=12, n_sequences=48, n_elites=6, spread=0.7)
_CODES = 2**16
_FIRST, _EVERY = 200, 100  # transitions of the first model, and between models


class ContactSearch(Episodic):
    """The search for contacts in an environment, a function of its buffer of observations (d,) and
    the features (c,) that are to move; None: all that rest anywhere."""

    _of_episode = ("_plan",)

    def __init__(self, buffer: Buffer, covered: IntArray | None) -> None:
        self._buffer = buffer
        self._sums = GatedSums(buffer, covered, size=600, is_sharp=False)
        self._controls = Controls.among(buffer.controls)
        self._n_fitted = 0
        self._model: GatedModel | None = None
        self.forget_episodes()

    def _begin_episode(self) -> None:
        self._plan: SampledPlan | None = None

    def act(self, observation: int, rng: np.random.Generator) -> int | None:
        """The next action at an observation of the buffer, by its index; None where what is
        covered is not known to move on contact.

        While all that is covered is still, and moved too seldom for a model, it is drawn: a plan
        for novelty of what does not move leads nowhere.
        """
        due = len(self._buffer) // _EVERY * _EVERY
        if due < _FIRST:
            return None
        if due != self._n_fitted:
            self._fit(due)
        if self._model is None:
            is_drawn = self._sums.units.at_rest
            return int(rng.integers(self._buffer.n_actions)) if is_drawn else None
        if self._plan is not None:
            self._plan.model = self._model
        else:
            sequences = np.random.default_rng([0, len(self._buffer)])
            self._plan = SampledPlan(self._model, self._value, self._controls, _SAMPLING, sequences)
        control = self._plan.act(self._buffer.observations.rows[observation])
        return int(self._controls.nearest(control))

    def _fit(self, n: int) -> None:
        sums = self._sums
        sums.extend(n)
        self._n_fitted, self._model = n, None
        if sums.n_moving < FEWEST_MOVES:
            self.forget_episodes()
            return
        self._model = sums.model()
        ends, moves = sums.moves()
        self._gated = torch.from_numpy(sums.units.gated)
        self._side = torch.from_numpy(2.0 * np.sqrt((moves**2).mean(axis=0))).float()
        self._side.clamp_(min=1e-6)
        self._cells = torch.tensor(cell_factors(ends.shape[1]))
        codes = self._codes(torch.from_numpy(ends).float())
        visits = torch.bincount(codes, minlength=_CODES).float()
        self._worth = 0.3 + (1.0 + 0.2 * visits) ** -0.5

    def _codes(self, gated: Tensor) -> Tensor:
        """Number (n,) of the cells of gated features (n, g)."""
        return (torch.floor(gated / self._side).long() @ self._cells) % _CODES

    def _value(self, points: Tensor, chance: Tensor) -> Tensor:
        return chance * self._worth[self._codes(points[:, self._gated])]
