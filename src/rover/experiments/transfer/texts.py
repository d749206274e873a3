"""What the pages of the transfer experiments say besides their tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rover.experiments.transfer.rows import (
    ENTROPY_COEFFICIENT,
    SCRATCH_ENTROPY,
    TARGET_RATE,
    WARMUP_STEPS,
)

PAGES: Final[Mapping[str, tuple[str, str]]] = {
    "online": (
        "Learning tasks by interacting, from a pretrained policy",
        "The paper: a policy pretrained by ROVER is the best start, in the steps that it takes and "
        "in what is earned in the end.",
    ),
    "tuned": (
        "Learning tasks by interacting, with the fastest settings",
        "The paper has no such study: its learner has no entropy bonus and a slow target network.",
    ),
    "distance": (
        "How much the distance of the goal matters",
        "The paper: from scratch, learning degrades as the goal moves away; from ROVER's policy it "
        "hardly depends on where the goal is.",
    ),
    "dense": (
        "Learning from a dense reward",
        "The paper: from one-hot observations, where the reward itself shows the way, starting "
        "from ROVER's policy has no significant advantage.",
    ),
    "pixels": (
        "Learning tasks from images",
        "The paper: a pretrained policy with its encoder speeds up both DDPG and SAC.",
    ),
    "tuned-pixels": (
        "Learning tasks from images, with the fastest settings",
        "The paper: a pretrained policy with its encoder speeds up both DDPG and SAC.",
    ),
    "parts": (
        "What helps from images: the policy or its encoder",
        "The paper: where the reward is dense, the encoder is what helps; to separate it from the "
        "policy is left to future work.",
    ),
    "offline": (
        "Learning tasks from the data of pretraining",
        "The paper: with CQL, no data is better than ROVER's for any task, and it alone solves the "
        "farthest goal; with offline DDPG, CIC's is better for the two farthest goals.",
    ),
}
"""Title of each study's page, and what the paper says of it."""

ONLINE_LEGEND: Final = (
    "The policy is evaluated greedily, every few hundred steps; only steps of training count. "
    "Interquartile means have their 95% bootstrap interval over seeds in brackets. A run in which "
    "an event did not come counts with the budget, so that the figure is a lower bound and has a "
    "> before it."
)
_PUBLISHED: Final = (
    "ddpg and sac are learners as the paper has them: targets follow at a rate of 0.01, the "
    "warm-up takes 2,000 steps, and DDPG has no entropy bonus."
)
_ENTROPY_LEGEND: Final = (
    f"{SCRATCH_ENTROPY}: from scratch with an entropy bonus in the actor's objective (coefficient "
    f"{ENTROPY_COEFFICIENT}), the better of the settings that were tried from scratch."
)
_TUNED_LEGEND: Final = (
    "Lines with -tuned have the defaults of `rover finetune`, the settings that were found to "
    f"learn fastest: targets that follow at a rate of {TARGET_RATE}, a warm-up of {WARMUP_STEPS} "
    "steps, and, with DDPG, an entropy bonus in the actor's objective (coefficient "
    f"{ENTROPY_COEFFICIENT})."
)
_PARTS_LEGEND: Final = (
    "rover takes over the policy, rover-encoder only the encoder below it, for a new actor and the "
    "critics, and rover-both the policy, and its encoder for the critics."
)
_LEGENDS: Final[Mapping[str, tuple[str, ...]]] = {
    "online": (_PUBLISHED, _ENTROPY_LEGEND),
    "tuned": (_TUNED_LEGEND,),
    "distance": (_PUBLISHED, _ENTROPY_LEGEND),
    "dense": (_PUBLISHED, _ENTROPY_LEGEND, _TUNED_LEGEND),
    "pixels": (_PUBLISHED, _PARTS_LEGEND),
    "tuned-pixels": (_TUNED_LEGEND,),
    "parts": (_TUNED_LEGEND, _PARTS_LEGEND),
    "offline": (
        "DDPG has an entropy bonus in the actor's objective (coefficient "
        f"{ENTROPY_COEFFICIENT}), for all data alike; the paper's has none.",
    ),
}
RETURN_LEGEND: Final = (
    "Mean ± standard error over seeds, without ± where all are equal; in brackets, how many runs "
    "end at the best possible return."
)
PAPER_SPREAD: Final = (
    "The paper calls its ± a standard error, but its figures are sample standard deviations: "
    "−143.4±146.5, of offline learning, is four runs at −26 and three at −300, whose standard "
    "deviation is 146.5 and whose standard error is 55.4. Ours are standard errors."
)

EVENT_LEGENDS: Final[Mapping[str, str]] = {
    "steps_to_first_success": "Steps until an episode of training first ends at the goal: "
    "interquartile mean.",
    "steps_to_best_return": "Steps until the greedy policy first earns the best possible return: "
    "interquartile mean.",
}


def legend_of(study: str) -> str:
    """What a reader needs to know of the lines of a study's tables."""
    return " ".join(_LEGENDS[study])
