"""The document names every setting, with its default."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from rover.learners import CQLConfig, DDPGConfig, SACConfig
from rover.transfer.config import FINETUNE_MODELS, OFFLINE_MODELS

DOCUMENT = Path(__file__).parents[2] / "docs" / "transfer.md"


@pytest.mark.parametrize(
    "model", [FINETUNE_MODELS["ddpg"], OFFLINE_MODELS["cql"], DDPGConfig, SACConfig, CQLConfig]
)
def test_every_setting_is_documented(model: type[BaseModel]) -> None:
    text = DOCUMENT.read_text()
    for name, field in model.model_fields.items():
        if name == "learner":
            continue
        assert f"`{name}`" in text
        if model is not OFFLINE_MODELS["cql"]:  # shares its rows with fine-tuning
            default = "none" if field.default is None else field.default
            assert f"| `{name}` | {default} |" in text
