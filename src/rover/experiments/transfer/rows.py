"""What the transfer experiments run, goals × methods × learners, and the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from rover.baselines.methods import METHOD_ENTRIES
from rover.errors import ConfigurationError
from rover.experiments.comparison.rows import ComparedMethod, slug_of

Study = Literal[
    "online", "tuned", "distance", "dense", "pixels", "tuned-pixels", "parts", "offline"
]
SCRATCH: Final = "scratch"
SCRATCH_ENTROPY: Final = "scratch-entropy"
"""From scratch with an entropy bonus in the actor's objective: the better of the settings that were
tried from scratch, where plain DDPG settles on one action before it has seen the goal."""
TUNED: Final = "tuned"
"""A learner with the settings that were found to learn fastest, the defaults of rover.finetune."""
ENTROPY_COEFFICIENT: Final = 0.3
TARGET_RATE: Final = 0.05
WARMUP_STEPS: Final = 500

Overrides = tuple[tuple[str, Any], ...]


def _published(*, entropy: float | None = 0.0) -> Overrides:
    """The paper's kind of learner, with a warm-up that is long enough for its slow targets."""
    rates: Overrides = (("learner.target_rate", 0.01), ("warmup_steps", 2000))
    return rates if entropy is None else (("learner.entropy_coefficient", entropy), *rates)


def _tuned_settings(algorithm: str) -> Overrides:
    rates: Overrides = (("learner.target_rate", TARGET_RATE), ("warmup_steps", WARMUP_STEPS))
    if algorithm == "sac":
        return rates
    return (("learner.entropy_coefficient", ENTROPY_COEFFICIENT), *rates)


TWO_ROOMS: Final = "rover/TwoRooms-v0"
MULTI_ROOMS: Final = "rover/MultiRooms-v0"

PRETRAINING_STEPS: Final = 10_000
"""Reward-free steps of every method, those of the comparison of methods."""

ONLINE_STEPS: Final = 20_000
UPDATES: Final = 15_000


@dataclass(frozen=True)
class TransferRow:
    """One line of a transfer table: one method on one task with one learner.

    Attributes:
        study: the table it belongs to.
        env_id: id of the environment.
        goal: name of the goal.
        method: what pretrained; ``"scratch"``, or ``"scratch-entropy"``.
        algorithm: the learner.
        seeds: seeds of the runs; each starts from the pretrained run of the same seed.
        amount: environment steps, or updates offline.
        observation: what the agent sees.
        reward: ``"sparse"`` or ``"dense"``.
        transfer: what is taken over.
        pretraining_steps: reward-free steps of the run that it starts from.
        variant: what tells the learner from others with the same algorithm.
        overrides: settings that differ from the preset ``fast``.
    """

    study: Study
    env_id: str
    goal: str
    method: str
    algorithm: str
    seeds: tuple[int, ...]
    amount: int
    observation: str = "onehot"
    reward: Literal["sparse", "dense"] = "sparse"
    transfer: str = "policy"
    pretraining_steps: int = PRETRAINING_STEPS
    variant: str = ""
    overrides: Overrides = ()

    @property
    def learner(self) -> str:
        """The algorithm and its variant, as tables and folders name them."""
        return f"{self.algorithm}-{self.variant}" if self.variant else self.algorithm

    @property
    def column(self) -> str:
        """The task in short: TR1, MR5."""
        letters = "".join(c for c in self.env_id.rpartition("/")[2] if c.isupper())
        return f"{letters}{self.goal.removeprefix('room')}"

    @property
    def task_name(self) -> str:
        """The task as part of a folder's name."""
        environment = slug_of(self.env_id, {"observation": self.observation})
        return f"{environment}-{self.goal}{'' if self.reward == 'sparse' else '-' + self.reward}"

    @property
    def is_from_scratch(self) -> bool:
        """Whether nothing is taken over."""
        return self.method in (SCRATCH, SCRATCH_ENTROPY)

    @property
    def start(self) -> str:
        """The method, and what is taken over where that is not the policy alone."""
        return self.method if self.transfer == "policy" else f"{self.method}-{self.transfer}"

    @property
    def name(self) -> str:
        """Name of the line and of the folder of its runs."""
        kind = "offline" if self.study == "offline" else "online"
        return f"{kind}/{self.task_name}/{self.learner}-{self.start}"

    @property
    def pretraining(self) -> ComparedMethod | None:
        """The pretraining that it starts from; None from scratch."""
        if self.is_from_scratch:
            return None
        preset = METHOD_ENTRIES[self.method].default_preset
        return ComparedMethod(
            self.env_id,
            {"observation": self.observation},
            self.method,
            preset,
            self.pretraining_steps,
            self.seeds,
        )


_FIVE = tuple(range(5))
_SEVEN = tuple(range(7))
_GOALS: Final = (
    (TWO_ROOMS, "room1"),
    (TWO_ROOMS, "room2"),
    (MULTI_ROOMS, "room2"),
    (MULTI_ROOMS, "room4"),
    (MULTI_ROOMS, "room5"),
)
ONLINE_METHODS: Final = (SCRATCH, SCRATCH_ENTROPY, "rover", "rnd", "smm", "apt", "cic")
OFFLINE_METHODS: Final = ("random", "apt", "smm", "cic", "rnd", "rover")


def _overrides(method: str) -> Overrides:
    return _published(entropy=ENTROPY_COEFFICIENT if method == SCRATCH_ENTROPY else 0.0)


def _online() -> tuple[TransferRow, ...]:
    return tuple(
        TransferRow(
            "online",
            env_id,
            goal,
            method,
            "ddpg",
            _FIVE,
            ONLINE_STEPS,
            overrides=_overrides(method),
        )
        for env_id, goal in _GOALS
        for method in ONLINE_METHODS
    )


def _tuned() -> tuple[TransferRow, ...]:
    """The settings that were found to learn fastest, for every start alike."""
    compared = [(task, method) for task in _GOALS for method in (SCRATCH, "rover")]
    compared += [(task, method) for task in _GOALS[-2:] for method in ("rnd", "smm", "apt", "cic")]
    return tuple(
        TransferRow(
            "tuned",
            env_id,
            goal,
            method,
            "ddpg",
            _FIVE,
            ONLINE_STEPS,
            variant=TUNED,
            overrides=_tuned_settings("ddpg"),
        )
        for (env_id, goal), method in compared
    )


def _distance() -> tuple[TransferRow, ...]:
    return tuple(
        TransferRow(
            "distance",
            MULTI_ROOMS,
            goal,
            method,
            "ddpg",
            _FIVE,
            ONLINE_STEPS,
            overrides=_overrides(method),
        )
        for goal in ("room1", "room4", "room5")
        for method in (SCRATCH, SCRATCH_ENTROPY, "rover")
    )


def _dense() -> tuple[TransferRow, ...]:
    lines = [(method, "") for method in (SCRATCH, SCRATCH_ENTROPY, "rover")]
    lines += [(method, TUNED) for method in (SCRATCH, "rover")]
    return tuple(
        TransferRow(
            "dense",
            MULTI_ROOMS,
            "room4",
            method,
            "ddpg",
            _FIVE,
            ONLINE_STEPS,
            reward="dense",
            variant=variant,
            overrides=_tuned_settings("ddpg") if variant else _overrides(method),
        )
        for method, variant in lines
    )


_PIXEL_SEEDS: Final = (0, 1, 2)
_PIXEL_PRETRAINING_STEPS: Final = 3_000
_TUNED_PIXEL_STEPS: Final = 10_000
_PIXEL_GOALS: Final = ((MULTI_ROOMS, "room5"), (TWO_ROOMS, "room2"), (TWO_ROOMS, "room1"))
_PARTS_TASKS: Final[tuple[tuple[str, Literal["sparse", "dense"]], ...]] = (
    ("room5", "sparse"),
    ("room4", "dense"),
)


def _pixels() -> tuple[TransferRow, ...]:
    return tuple(
        TransferRow(
            "pixels",
            env_id,
            goal,
            method,
            algorithm,
            _PIXEL_SEEDS,
            ONLINE_STEPS,
            observation="pixels",
            transfer="policy" if method == SCRATCH else "both",
            pretraining_steps=_PIXEL_PRETRAINING_STEPS,
            overrides=_published(entropy=None if algorithm == "sac" else 0.0),
        )
        for env_id, goal in reversed(_PIXEL_GOALS)
        for algorithm in ("ddpg", "sac")
        for method in (SCRATCH, "rover")
    )


def _tuned_pixels() -> tuple[TransferRow, ...]:
    return tuple(
        TransferRow(
            "tuned-pixels",
            env_id,
            goal,
            method,
            algorithm,
            _PIXEL_SEEDS,
            _TUNED_PIXEL_STEPS,
            observation="pixels",
            pretraining_steps=_PIXEL_PRETRAINING_STEPS,
            variant=TUNED,
            overrides=_tuned_settings(algorithm),
        )
        for env_id, goal in _PIXEL_GOALS
        for algorithm in ("ddpg", "sac")
        for method in (SCRATCH, "rover")
    )


def _parts() -> tuple[TransferRow, ...]:
    """The policy and its encoder, each alone and together."""
    starts = ((SCRATCH, "policy"), ("rover", "encoder"), ("rover", "policy"), ("rover", "both"))
    return tuple(
        TransferRow(
            "parts",
            MULTI_ROOMS,
            goal,
            method,
            "ddpg",
            _PIXEL_SEEDS,
            _TUNED_PIXEL_STEPS,
            observation="pixels",
            reward=reward,
            transfer=transfer,
            pretraining_steps=_PIXEL_PRETRAINING_STEPS,
            variant=TUNED,
            overrides=_tuned_settings("ddpg"),
        )
        for goal, reward in _PARTS_TASKS
        for method, transfer in starts
    )


def _offline() -> tuple[TransferRow, ...]:
    entropy: Overrides = (("learner.entropy_coefficient", ENTROPY_COEFFICIENT),)
    return tuple(
        TransferRow(
            "offline",
            env_id,
            goal,
            method,
            algorithm,
            _SEVEN,
            UPDATES,
            overrides=entropy if algorithm == "ddpg" else (),
        )
        for algorithm in ("cql", "ddpg")
        for method in OFFLINE_METHODS
        for env_id, goal in _GOALS
    )


STUDIES: Final[Mapping[str, tuple[TransferRow, ...]]] = {
    "online": _online(),
    "tuned": _tuned(),
    "distance": _distance(),
    "dense": _dense(),
    "pixels": _pixels(),
    "tuned-pixels": _tuned_pixels(),
    "parts": _parts(),
    "offline": _offline(),
}
"""The rows of every table."""

PAPER_OFFLINE: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("cql", "random"): ("−11.0±0.0", "−35.0±37.3", "−300", "−300", "−300"),
    ("cql", "apt"): ("−11.0", "−80.0", "−11.0", "−300", "−300"),
    ("cql", "smm"): ("−11.0", "−80.0", "−300", "−300", "−300"),
    ("cql", "cic"): ("−11.0", "−17.0", "−11.0", "−21.0", "−300"),
    ("cql", "rnd"): ("−11.0", "−80.0", "−11.0", "−300", "−300"),
    ("cql", "rover"): ("−11.0", "−17.0", "−11.0", "−21.0", "−26.0"),
    ("ddpg", "random"): ("−11.0", "−32.0±62.4", "−218.2±140.0", "−300", "−300"),
    ("ddpg", "apt"): ("−11.0", "−80.0", "−135.1±154.5", "−300", "−300"),
    ("ddpg", "smm"): ("−11.0", "−80.0", "−300", "−300", "−300"),
    ("ddpg", "cic"): ("−11.0", "−71.2±23.8", "−91.6±141.0", "−100.7±136.1", "−143.4±146.5"),
    ("ddpg", "rnd"): ("−11.0", "−80.0", "−217.4±141.3", "−300", "−300"),
    ("ddpg", "rover"): ("−11.0", "−17.0", "−54.4±105.9", "−140.6±149.1", "−221.7±133.7"),
}
"""The paper's table of offline learning (7 seeds, mean ± standard error), by (learner, data)."""

PAPER_ONLINE_SCRATCH: Final = ("−11.0", "−17.0±30.1", "−11.0", "−160.5±152.8", "−221.3±133.7")
"""The paper's reference of DDPG that interacts for 50,000 steps, in the same columns."""

COLUMNS: Final = ("TR1", "TR2", "MR2", "MR4", "MR5")


def select_rows(studies: tuple[str, ...]) -> tuple[TransferRow, ...]:
    """The rows of some studies.

    Raises:
        ConfigurationError: an unknown study.
    """
    for name in studies:
        if name not in STUDIES:
            raise ConfigurationError(f"unknown study {name!r}; choose among {', '.join(STUDIES)}")
    return tuple(row for name in studies for row in STUDIES[name])
