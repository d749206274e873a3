"""Ten updates of every intrinsic reward, held against stored numbers, to prove a move of code.

Step sizes are 0.003, so that ten updates change the rewards. Numbers have four digits and a
tolerance of 1e-3, five times what the kernels of ATen, MKL and oneDNN for SSE4.2, AVX2 and AVX-512
differ by. To store others, after a meant change:

    ROVER_RENEW=1 pytest tests/baselines/test_golden_rewards.py
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ring_batches import SPECS, make_reward, observations, ring_batch
from small_agents import SMALL_REWARDS

from rover.baselines import agent_class

STORED = Path(__file__).with_name("golden_rewards.json")


def ten_updates(name: str, preset: str, kind: str) -> list[float]:
    """Mean, deviation and a weighted sum of all rewards of ten updates; figures of the tenth."""
    cls: Any = agent_class(name)
    config = cls.config_class.model_fields["intrinsic"].annotation
    rates = {field: 3e-3 for field in config.model_fields if field.endswith("_rate")}
    settings = {**cls.presets[preset]["intrinsic"], **SMALL_REWARDS[name], **rates}
    reward = make_reward(name, kind, **settings)
    rng, ring = np.random.default_rng(5), observations(kind).numpy()
    rewards, figures = [], {}
    for update in range(10):
        drawn = np.stack([reward.sample_skill(rng) for _ in range(40)])
        batch = ring_batch(rng, kind=kind, skills=drawn if drawn.size else None)
        if update % 2:  # the reward is asked for where transitions begin
            batch = replace(batch, valued=batch.index)
        for reached in batch.next_index.tolist() if update == 0 else ():
            reward.note(ring[reached], done=reached == 4)
        if name == "maxent" and update % 4 == 0:
            visited, counts = np.unique(batch.next_index.numpy(), return_counts=True)
            reward.refit(observations(kind)[visited], counts)
        given, figures = reward.update(batch)
        assert (given.shape, given.dtype) == ((40,), torch.float32)
        rewards.append(given.double().numpy())
    every = np.concatenate(rewards)
    weights = 1.0 + np.cos(np.arange(len(every)))  # positive, so that nothing cancels
    numbers = [every.mean(), every.std(), weights @ every, *figures.values()]
    assert np.isfinite(numbers).all()
    return [float(f"{number:.4g}") for number in numbers]


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("name", SMALL_REWARDS)
def test_ten_updates_give_the_stored_numbers(name, kind):
    stored = json.loads(STORED.read_text())
    for preset in agent_class(name).presets:
        found, key = ten_updates(name, preset, kind), f"{name} {preset} {kind}"
        if "ROVER_RENEW" in os.environ:
            stored[key] = found
            lines = ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in stored.items())
            STORED.write_text(f"{{\n{lines}\n}}\n")
        assert found == pytest.approx(stored[key], rel=1e-3)
