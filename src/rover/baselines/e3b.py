"""Exploration by elliptical episodic bonuses (Henaff et al., 2022): what is new to the episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from torch import Tensor

from rover.baselines.bonus import BonusAgent, BonusConfig
from rover.baselines.rewards import IntrinsicReward, make_mlp
from rover.data import Batch
from rover.features import as_tensor


class _E3bConfig(BaseModel, extra="forbid", frozen=True):
    """Settings of the reward, with the published code's defaults."""

    feature_dim: int = Field(1024, ge=1, description="width of the features")
    hidden: int = Field(256, ge=1, description="hidden units of the inverse dynamics")
    ridge: float = Field(0.1, gt=0, description="λ of the ellipsoid that an episode begins with")
    learning_rate: float = Field(1e-4, gt=0, description="Adam step size")


class _E3bReward(IntrinsicReward[_E3bConfig]):
    """Reward for reaching what lies outside the ellipsoid of the episode so far.

        r_t = φ(x_{t+1})ᵀ C_t⁻¹ φ(x_{t+1}),   C_t = λ I + Σ_{s ≤ t} φ(x_s) φ(x_s)ᵀ

    over the arrivals x_s of the episode. It is computed as a step is made, with the features of
    that moment, and kept with the step. φ learns on batches to tell which action was taken, by the
    loss −log softmax(g(φ(x), φ(x')))_a.
    """

    def _build(self, generator: torch.Generator) -> None:
        width, hidden = self.config.feature_dim, self.config.hidden
        self._encoder = self._make_encoder(width, generator)
        self._head = make_mlp(2 * width, hidden, self.n_actions, generator=generator)
        self._optimizer = self._adam(self.config.learning_rate)
        self._bonuses: list[float] = []  # of all steps
        self._inverses: dict[int, Tensor] = {}  # C⁻¹ of episodes in progress

    def note(self, observation: NDArray[Any], *, done: bool, episode: int = 0) -> None:
        """Take in the leverage of what was reached, which the ellipsoid then has."""
        # With the features of this moment, as published: later ones would make another ellipsoid.
        with torch.no_grad():
            reached = as_tensor(np.asarray(observation)[None]).to(self._device)
            features = self._encoder(reached)[0].cpu()
        inverse = self._inverses.pop(episode, None)
        if inverse is None:  # of the ridge alone
            inverse = torch.eye(self.config.feature_dim, device="cpu") / self.config.ridge
        along = inverse @ features
        bonus = float(features @ along)
        # C⁻¹ of the next step, by Sherman and Morrison's formula.
        self._bonuses.append(bonus)
        if not done:
            self._inverses[episode] = inverse - torch.outer(along / (1.0 + bonus), along)

    def _learn(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """One gradient step of the features."""
        assert batch.steps is not None
        # The bonuses of the steps, as they were when these were made.
        bonuses = [self._bonuses[step] for step in batch.steps.tolist()]
        rewards = torch.tensor(bonuses, device=batch.steps.device)
        features = self._encoder(batch.observations)
        # Equal transitions are evaluated once. What no action explains, such as noise, is of no use
        # to the loss, so that φ need not show it.
        transitions, counts, _ = self._merged(batch.index, batch.actions, batch.next_index)
        index, actions, next_index = transitions
        ends = torch.cat([features[index], features[next_index]], dim=1)
        surprise = F.cross_entropy(self._head(ends), actions, reduction="none")
        loss = (counts / counts.sum() * surprise).sum()
        return rewards, {"inverse_loss": self._optimizer.descend(loss)["loss"]}

    def state(self) -> dict[str, Any]:
        """Everything that updates and steps change, copied."""
        bonuses = torch.tensor(self._bonuses, dtype=torch.float64)
        inverses = {str(episode): inverse for episode, inverse in self._inverses.items()}
        return {"networks": super().state(), "bonuses": bonuses, "inverses": inverses}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned; what follows has the same bits."""
        super().load_state(state["networks"])
        self._bonuses = state["bonuses"].tolist()
        self._inverses = {int(episode): each for episode, each in state["inverses"].items()}


class _E3b(BonusAgent):
    """Elliptical episodic bonuses with a discrete DDPG learner."""

    name = "e3b"
    label = "E3B"
    config_class = BonusConfig[_E3bConfig]
    reward_class = _E3bReward
    presets = BonusAgent.make_presets(
        published={"reward_scale": "std"},
        fast={
            # Best of a few in MiniGrid's MultiRoom-N4-S5: what is new to an episode has to be more
            # than noise among other rewards.
            "learner": {"entropy_coefficient": 0.3},
            "intrinsic": {"feature_dim": 64, "hidden": 128, "ridge": 1.0, "learning_rate": 1e-3},
        },
    )
