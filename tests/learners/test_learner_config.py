from __future__ import annotations

import pytest

from rover.errors import ConfigurationError
from rover.learners import make_ddpg_config


def test_paper_preset_has_the_papers_settings() -> None:
    config = make_ddpg_config("paper")
    assert set(config.hidden_sizes) == {1024}
    assert (config.batch_size, config.update_every) == (1024, 2)
    assert (config.actor_learning_rate, config.critic_learning_rate) == (1e-4, 1e-4)
    assert (config.target_rate, config.critic_loss) == (0.01, "mse")


def test_single_settings_override_a_preset() -> None:
    assert make_ddpg_config("paper", batch_size=7).batch_size == 7


@pytest.mark.parametrize(
    ("preset", "overrides", "message"),
    [
        ("quick", {}, "unknown preset 'quick' of the learner; choose 'fast' or 'paper'"),
        ("fast", {"target_rat": 0.1}, "did you mean 'target_rate'"),
        ("fast", {"zzz": 1}, "unknown setting 'zzz' of the learner$"),
        ("fast", {"target_rate": 0.0}, "setting target_rate=0.0 of the learner"),
        ("fast", {"hidden_sizes": ()}, "setting hidden_sizes"),
    ],
)
def test_refusals(preset: str, overrides: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_ddpg_config(preset, **overrides)
