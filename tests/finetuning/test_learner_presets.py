"""What the presets of learners are, where they differ from the paper's."""

from rover.finetuning import FinetuneConfig, OfflineConfig
from rover.learners import DDPGConfig


def test_presets_of_learners_differ_from_the_papers_where_the_deviations_say_so() -> None:
    ours = FinetuneConfig.make("ddpg", "fast").learner
    paper = FinetuneConfig.make("ddpg", "paper").learner
    assert (paper.entropy_coefficient, paper.target_rate) == (0.0, 0.01)
    offline = OfflineConfig.make("ddpg", "fast").learner
    assert (offline.entropy_coefficient, offline.target_rate) == (0.3, 0.01)
    assert (ours.entropy_coefficient, ours.target_rate) == (0.3, 0.05)
    assert DDPGConfig().entropy_coefficient == 0.0
