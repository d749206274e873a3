"""The document names every setting, with its default."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from rover.finetuning import FinetuneConfig, OfflineConfig
from rover.learners import DDPGConfig

DOCUMENT = Path(__file__).parents[2] / "docs" / "transfer.md"
DDPG, SAC = FinetuneConfig.make("ddpg", "fast"), FinetuneConfig.make("sac", "fast")
CQL = OfflineConfig.make("cql", "fast")


def rows(config: BaseModel) -> dict[str, object]:
    """The settings of the document's table, and their defaults as it writes them."""
    values = {name: getattr(config, name) for name in type(config).model_fields}
    return {k: "none" if v is None else v for k, v in values.items() if k != "learner"}


@pytest.mark.parametrize("config", [DDPG, DDPG.learner, SAC.learner, CQL.learner])
def test_every_setting_is_documented_with_its_default(config: BaseModel) -> None:
    text = DOCUMENT.read_text()
    for name, default in rows(config).items():
        assert f"| `{name}` | {default} |" in text


def test_presets_of_learners_differ_from_the_papers_where_the_document_says_so() -> None:
    paper = FinetuneConfig.make("ddpg", "paper").learner
    assert (paper.entropy_coefficient, paper.target_rate) == (0.0, 0.01)
    offline = OfflineConfig.make("ddpg", "fast").learner
    assert (offline.entropy_coefficient, offline.target_rate) == (0.3, 0.01)
    assert (DDPG.learner.entropy_coefficient, DDPG.learner.target_rate) == (0.3, 0.05)
    assert DDPGConfig().entropy_coefficient == 0.0
