from __future__ import annotations

import pytest

from rover.errors import ConfigurationError
from rover.learners import make_cql_config, make_ddpg_config, make_sac_config


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


def test_paper_presets_of_sac_and_cql() -> None:
    sac, cql = make_sac_config("paper"), make_cql_config("paper")
    for config in (sac, cql):
        assert set(config.hidden_sizes) == {1024}
        assert config.batch_size == 1024
    rates = {sac.actor_learning_rate, sac.critic_learning_rate, sac.temperature_learning_rate}
    assert rates == {1e-5}
    assert (sac.initial_temperature, sac.target_entropy_ratio) == (0.1, 0.2)
    assert (cql.learning_rate, cql.conservative_weight) == (1e-4, 0.01)


def test_settings_of_one_learner_are_refused_by_another() -> None:
    with pytest.raises(ConfigurationError, match="unknown setting 'entropy_coefficient'"):
        make_sac_config("fast", entropy_coefficient=0.1)
    with pytest.raises(ConfigurationError, match="unknown setting 'actor_learning_rate'"):
        make_cql_config("fast", actor_learning_rate=0.1)
    with pytest.raises(ConfigurationError, match="setting initial_temperature=0"):
        make_sac_config("fast", initial_temperature=0.0)
