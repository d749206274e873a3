"""What the pages of the transfer experiments say besides their tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
_ENTROPY_LEGEND: Final = (
    f"{SCRATCH_ENTROPY}: from scratch with an entropy bonus in the actor's objective (coefficient "
    f"{ENTROPY_COEFFICIENT}), the better of the settings that were tried from scratch. The paper's "
    "DDPG has none, and neither has any other line."
)
_PARTS_LEGEND: Final = (
    "rover takes over the policy, rover-encoder only the encoder below it, for a new actor and the "
    "critics, and rover-both the policy, and its encoder for the critics."
)
_VARIANT_LEGENDS: Final[Mapping[str, str]] = {
    "offline": "ddpg-entropy has an entropy bonus in the actor's objective (coefficient "
    f"{ENTROPY_COEFFICIENT}), for all data alike; ddpg, like the paper's, has none.",
    "tuned": "Every line has the settings that were found to learn fastest from ROVER's policy and "
    f"from scratch: an entropy bonus in the actor's objective (coefficient {ENTROPY_COEFFICIENT}), "
    f"target critics that follow at a rate of {TARGET_RATE} instead of 0.01, and a warm-up of "
    f"{WARMUP_STEPS} steps instead of 2,000.",
    "pixels": _PARTS_LEGEND,
    "parts": _PARTS_LEGEND,
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


def legend_of(study: str, methods: Collection[str]) -> str:
    """What a reader needs to know of the lines of a study's tables; empty if nothing."""
    if study in _VARIANT_LEGENDS:
        return _VARIANT_LEGENDS[study]
    return _ENTROPY_LEGEND if SCRATCH_ENTROPY in methods else ""
