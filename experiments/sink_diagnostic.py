"""A zero-memory buffer, with and without the sink (paper, Section "Sink-State Augmentation").

    python experiments/sink_diagnostic.py --jobs 2

writes docs/results/sink_diagnostic.md and .csv, and docs/pictures/sink_diagnostic.png.

Each round collects a batch of whole episodes with the current policy, fits the transition operator
on that batch *alone*, and plans the next policy from the start. Whatever the batch does not hold is
unsupported, though earlier rounds may have known it well.

With the sink, unsupported mass costs ε² m² (Theorem "sink-state objective decomposition"). Without
it the operator maps an unsupported pair to the zero vector, (K + λI)⁻¹ k(x, a) = 0: mass that goes
there leaves the occupancy μ and with it the objective, J = ‖μ‖². That is the augmented objective at
ε = 0, since the sink enters nowhere else: the rows that the augmentation adds to Φ̃ carry a factor
ε, and the sink's own weight couples to no other. So "without the sink" is ``sink_norm=0`` here.
Then leaving the data is free, and the best plan runs out of the last batch as fast as it can. What
it runs to is what the batch before it knew.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import multiprocessing
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from rover.envs import GridWorld
from rover.errors import ConfigurationError, RoverError
from rover.features import (
    Observations,
    RepresentationTrainer,
    encoder_config,
    make_encoder,
    torch_threads,
)
from rover.operators import (
    DenseOperator,
    Linear,
    MirrorDescentResult,
    TransitionCounts,
    constant_steps,
    exact_support,
    fit_transition_model,
    merge_transitions,
    mirror_descend,
)
from rover.plots import GridMap, MapPanel, draw_panels, make_figure, panel_size, write_pictures
from rover.storage import check_writable
from rover.storage.files import replace_file
from rover.sweeps import describe_provenance, markdown_table, provenance

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

GRID_WORLD = "rover.envs.gridworld:GridWorld"
SWEEP_NORMS = (0.0, 0.01, 0.05, 0.1, 0.2, 1.0, 10.0)
VISIBLE = 0.05
"""Difference in the share of states seen again below which the report says that there is none."""

SHOWN_ROUNDS = 6

FeatureMap = Callable[[TransitionCounts], Tensor]
"""From a round's batch to the features (S, z) of all states."""


@dataclass(frozen=True)
class DiagnosticSettings:
    """One diagnostic; the defaults are the paper's settings where it gives them.

    Attributes:
        env_id: a grid world of one start state, without slip.
        env_kwargs: its keyword arguments.
        n_rounds: rounds R; the first is collected by the uniform policy.
        n_episodes: episodes of a round's batch; 27 of Multi-Rooms are 8,100 transitions, the
            larger batch of the paper's sensitivity analysis (8,096).
        discount: γ.
        ridge: λ.
        step_size: η, constant.
        mirror_steps: mirror-descent steps of a plan, the best of which is kept.
        exploration_epsilon: share of uniform actions while collecting.
        features: "exact" for one-hot features, with which the linear kernel tells exact states
            apart; "learned" for the paper's encoder, trained further on each batch.
        encoder_updates: updates of a learned encoder per round.
    """

    env_id: str = "rover/MultiRooms-v0"
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    n_rounds: int = 10
    n_episodes: int = 27
    discount: float = 0.99
    ridge: float = 1e-3
    step_size: float = 10.0
    mirror_steps: int = 250
    exploration_epsilon: float = 0.15
    features: Literal["exact", "learned"] = "exact"
    encoder_updates: int = 100

    def __post_init__(self) -> None:
        for name in ("n_rounds", "n_episodes", "mirror_steps", "encoder_updates"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0.0 <= self.exploration_epsilon <= 1.0:
            raise ConfigurationError(
                f"exploration_epsilon must be in [0, 1], not {self.exploration_epsilon}"
            )


@dataclass(frozen=True, eq=False)
class Rounds:
    """What one diagnostic saw.

    Attributes:
        visits: (R, S) how often each state was visited in each round, episode starts included.
        sink_mass: (R,) share of its discounted occupancy that the plan made after each round sends
            to where that round's batch says nothing.
    """

    visits: IntArray
    sink_mass: FloatArray

    @property
    def states_seen(self) -> IntArray:
        """(R,) distinct states of each round."""
        seen: IntArray = np.count_nonzero(self.visits, axis=1)
        return seen

    @property
    def retained(self) -> FloatArray:
        """(R − 1,) share of the states of one round that the next round visits again."""
        seen = self.visits > 0
        again: FloatArray = (seen[1:] & seen[:-1]).sum(axis=1) / seen[:-1].sum(axis=1)
        return again

    @property
    def kept(self) -> FloatArray:
        """(R,) share of all states seen so far that the round itself visits."""
        ever = np.logical_or.accumulate(self.visits > 0, axis=0)
        shares: FloatArray = self.states_seen / ever.sum(axis=1)
        return shares


def run_rounds(settings: DiagnosticSettings, *, sink_norm: float, seed: int) -> Rounds:
    """Run the diagnostic once.

    Args:
        settings: of the diagnostic.
        sink_norm: ε; 0 is "without the sink".
        seed: of the actions, and of a learned encoder. Rounds of equal seeds begin with the same
            batch, whatever ε.

    Raises:
        ConfigurationError: not a grid world, or one whose steps or start are random.
    """
    world = make_world(settings)
    dynamics = world.dynamics()
    successor, start = dynamics.successor(), int(dynamics.start.argmax())
    rng = np.random.default_rng(seed)
    feature_map = _make_feature_map(settings, world, seed)
    policy_probs = np.full((dynamics.n_states, dynamics.n_actions), 1.0 / dynamics.n_actions)
    visits = np.zeros((settings.n_rounds, dynamics.n_states), np.int64)
    sink_mass = np.zeros(settings.n_rounds)
    with torch_threads(1):
        for current in range(settings.n_rounds):
            batch = sample_batch(
                successor,
                _explore(policy_probs, settings.exploration_epsilon),
                start,
                n_episodes=settings.n_episodes,
                horizon=world.horizon,
                rng=rng,
            )
            visits[current] = np.bincount(batch[2], minlength=dynamics.n_states)
            visits[current, start] += settings.n_episodes
            counts = merge_transitions(*batch)
            features = feature_map(counts)
            descent, probs = plan_on_batch(
                counts,
                features,
                start,
                settings,
                n_actions=dynamics.n_actions,
                sink_norm=sink_norm,
            )
            policy_probs = probs.numpy()
            sink_mass[current] = descent.occupancy.sink_mass
    return Rounds(visits, sink_mass)


def sample_batch(
    successor: IntArray,
    policy_probs: FloatArray,
    start: int,
    *,
    n_episodes: int,
    horizon: int,
    rng: np.random.Generator,
) -> tuple[IntArray, IntArray, IntArray]:
    """Whole episodes under deterministic dynamics, side by side.

    Args:
        successor: (S, A) the next state of each pair.
        policy_probs: (S, A), rows sum to 1.
        start: the state in which every episode begins.
        n_episodes: E.
        horizon: H, steps of each episode.
        rng: source of randomness.

    Returns:
        States, actions and next states of the transitions, (E H,) each.
    """
    thresholds = np.cumsum(policy_probs, axis=1)[:, :-1]  # (S, A − 1)
    states = np.full((horizon + 1, n_episodes), start, np.int64)
    actions = np.zeros((horizon, n_episodes), np.int64)
    for step in range(horizon):
        drawn = rng.random(n_episodes)
        actions[step] = (drawn[:, None] >= thresholds[states[step]]).sum(axis=1)
        states[step + 1] = successor[states[step], actions[step]]
    return states[:-1].ravel(), actions.ravel(), states[1:].ravel()


def plan_on_batch(
    counts: TransitionCounts,
    features: Tensor,
    start: int,
    settings: DiagnosticSettings,
    *,
    n_actions: int,
    sink_norm: float,
) -> tuple[MirrorDescentResult, Tensor]:
    """Fit the operator on one batch alone and plan from the start.

    Args:
        counts: the batch.
        features: (S, z) of all states.
        start: the initial state.
        settings: of the diagnostic.
        n_actions: A.
        sink_norm: ε.

    Returns:
        How mirror descent ended, and the policy π = softmax(−γ ρ(φ) Σ_i V_i B_a[i]) of all states,
        (S, A).
    """
    support = exact_support(counts, np.array([start]), np.ones(1))
    model = fit_transition_model(
        features, support, Linear(), n_actions=n_actions, ridge=settings.ridge
    )
    descent = mirror_descend(
        DenseOperator(model.transition, model.gram),
        support.start,
        discount=settings.discount,
        sink_norm=sink_norm,
        n_steps=settings.mirror_steps,
        step_rule=constant_steps(settings.step_size),
    )
    regressors = features if model.basis is None else Linear()(features, model.basis)
    logits = regressors @ model.coefficients(descent.dual) * -settings.discount
    return descent, torch.softmax(logits, dim=1)


def _explore(policy_probs: FloatArray, epsilon: float) -> FloatArray:
    mixed: FloatArray = (1.0 - epsilon) * policy_probs + epsilon / policy_probs.shape[1]
    return mixed


def make_world(settings: DiagnosticSettings) -> GridWorld:
    """The grid world of `settings`.

    Raises:
        ConfigurationError: it is not one, has several starts, or has a goal.
    """
    spec = gym.spec(settings.env_id)
    if spec.entry_point != GRID_WORLD:
        raise ConfigurationError(
            f"the sink diagnostic needs a grid world such as rover/MultiRooms-v0, not "
            f"{settings.env_id}"
        )
    world = gym.make(spec, **{"observation": "onehot", **settings.env_kwargs}).unwrapped
    assert isinstance(world, GridWorld)
    dynamics = world.dynamics()
    if np.count_nonzero(dynamics.start) != 1 or dynamics.terminal.any():
        raise ConfigurationError(
            "the sink diagnostic needs one start state and no goal; leave `start` and `goal` out"
        )
    return world


def _make_feature_map(settings: DiagnosticSettings, world: GridWorld, seed: int) -> FeatureMap:
    observations = world.observations()
    if settings.features == "exact":
        one_hot = torch.eye(len(observations), dtype=torch.float64)
        return lambda counts: one_hot
    generator = torch.Generator().manual_seed(seed)
    encoder = make_encoder(
        encoder_config(Observations(observations.shape[1:], "float32"), architecture="paper"),
        generator,
    )
    trainer = RepresentationTrainer(
        encoder, n_actions=world.dynamics().n_actions, temperature=1.0, generator=generator
    )

    def train(counts: TransitionCounts) -> Tensor:
        for _ in range(settings.encoder_updates):
            trainer.update(
                observations,
                counts.inputs,
                counts.actions,
                counts.successors,
                counts.counts,
            )
        return torch.from_numpy(encoder.features(observations)).double()

    return train


@dataclass(frozen=True, eq=False)
class Comparison:
    """Diagnostics of equal settings, at one sink norm, for several seeds.

    Attributes:
        label: what distinguishes the settings, in words.
        settings: the settings.
        sink_norm: ε; 0 is "without the sink".
        seeds: the seeds.
        rounds: the diagnostic of each seed.
    """

    label: str
    settings: DiagnosticSettings
    sink_norm: float
    seeds: tuple[int, ...]
    rounds: tuple[Rounds, ...]

    @property
    def visits(self) -> IntArray:
        """(seeds, R, S) visits."""
        return np.stack([run.visits for run in self.rounds])

    @property
    def mean_states_seen(self) -> float:
        """States seen per round, mean over seeds and the rounds after the uniform first."""
        return float(np.mean([run.states_seen[1:] for run in self.rounds]))

    @property
    def fewest_states_seen(self) -> float:
        """States seen in the worst round after the first, mean over seeds."""
        return float(np.mean([run.states_seen[1:].min() for run in self.rounds]))

    @property
    def mean_retained(self) -> float:
        """Share of a round's states that the next visits again, mean over seeds and rounds."""
        return float(np.mean([run.retained for run in self.rounds]))

    @property
    def mean_kept(self) -> float:
        """Share of all states ever seen that the last round visits, mean over seeds."""
        return float(np.mean([run.kept[-1] for run in self.rounds]))


Setting = tuple[str, DiagnosticSettings, float]
"""A label, settings and a sink norm."""


def settings_to_compare(
    settings: DiagnosticSettings, sink_norm: float, *, sweep: bool
) -> list[Setting]:
    """Without and with the sink; with `sweep` also other norms, and the same at other settings."""
    if not sweep:
        return [("as above", settings, 0.0), ("as above", settings, sink_norm)]
    learned = replace(settings, features="learned")
    half = max(1, settings.n_episodes // 2)
    others = [
        (f"{half} episodes per round", replace(settings, n_episodes=half)),
        ("no uniform actions", replace(settings, exploration_epsilon=0.0)),
        ("50 mirror-descent steps", replace(settings, mirror_steps=50)),
    ]
    return [
        *(("as above", settings, norm) for norm in sorted({*SWEEP_NORMS, sink_norm})),
        *((label, other, norm) for label, other in others for norm in (0.0, sink_norm, 1.0)),
        *(("learned features, linear kernel", learned, norm) for norm in (0.0, sink_norm)),
    ]


def compare(
    wanted: Sequence[Setting],
    *,
    seeds: Sequence[int],
    jobs: int,
    say: Callable[[str], None],
) -> list[Comparison]:
    """Run every setting for every seed.

    Args:
        wanted: the settings.
        seeds: of each.
        jobs: processes side by side, ≥ 1.
        say: receives one line when all seeds of a setting are done.
    """
    every = list(itertools.product(wanted, seeds))
    context = multiprocessing.get_context("spawn")
    comparisons: list[Comparison] = []
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        done = pool.map(_rounds_of, every)  # in the order of `every`
        for label, settings, norm in wanted:
            rounds = tuple(itertools.islice(done, len(seeds)))
            comparison = Comparison(label, settings, norm, tuple(seeds), rounds)
            comparisons.append(comparison)
            say(
                f"[{len(comparisons)}/{len(wanted)}] {label}, ε = {norm:g}: "
                f"{comparison.mean_states_seen:.1f} states seen per round, "
                f"{comparison.mean_retained:.0%} again"
            )
    return comparisons


def _rounds_of(task: tuple[Setting, int]) -> Rounds:
    (_, settings, norm), seed = task
    return run_rounds(settings, sink_norm=norm, seed=seed)


def csv_text(comparisons: Sequence[Comparison]) -> str:
    """One line per setting, norm, seed and round."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["settings", "sink_norm", "seed", "round", "states_seen", "retained", "kept", "sink_mass"]
    )
    for comparison in comparisons:
        for seed, run in zip(comparison.seeds, comparison.rounds, strict=True):
            retained = ["", *(f"{share:.6f}" for share in run.retained)]
            for index, seen in enumerate(run.states_seen):
                where = [comparison.label, f"{comparison.sink_norm:g}", seed, index + 1]
                shares = [f"{run.kept[index]:.6f}", f"{run.sink_mass[index]:.6f}"]
                writer.writerow([*where, seen, retained[index], *shares])
    return text.getvalue()


def markdown(
    comparisons: Sequence[Comparison], sink_norm: float, *, facts: Sequence[str], command: str
) -> str:
    """The two rows of the picture in numbers, the sweep, and how both were made."""
    shown, bare = _first(comparisons, sink_norm), _first(comparisons, 0.0)
    settings, n_states = shown.settings, shown.visits.shape[2]
    parts = [
        "# The sink, and what happens without it",
        "A zero-memory buffer: each round collects a batch with the current policy, fits the "
        "transition operator on that batch alone, and plans the next policy from the start. "
        "Without the sink, mass that the batch does not support vanishes at no cost "
        "(J = ‖μ‖², which is ε = 0), so a plan leaves the batch as fast as it can, for places "
        "that an earlier batch knew. With the sink that mass costs ε² m².",
        f"{settings.env_id}, {n_states} states; {_features(settings)}; {settings.n_episodes} "
        f"episodes per round; γ = {settings.discount:g}, λ = {settings.ridge:g}; "
        f"{settings.mirror_steps} mirror-descent steps of η = {settings.step_size:g}, best kept; "
        f"{settings.exploration_epsilon:.0%} uniform actions while collecting; seeds "
        f"{', '.join(map(str, shown.seeds))}. The first round is the uniform policy's in both.",
        "## Round by round",
        "Mean over seeds. *Again*: share of the states of the round before "
        "that were visited again. *Kept*: share of all states seen so far that the round visited. "
        "*Sink*: discounted occupancy that the plan made after the round sends out of the data.",
        _round_table(bare, shown),
        "## Which norm, and which settings",
        "Means over the same seeds and all rounds after the first. *Worst*: states seen in the "
        "worst round of a seed. ε = 0 is without the sink.",
        _sweep_table(comparisons),
        _where_it_does_not_show(comparisons, sink_norm),
        "## How it was made",
        f"    {command}",
        "\n".join(f"- {fact}" for fact in facts),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _features(settings: DiagnosticSettings) -> str:
    if settings.features == "exact":
        return "exact states"
    return (
        "linear kernel on L1-normalised learned features, "
        f"{settings.encoder_updates} encoder updates per round"
    )


def _round_table(bare: Comparison, shown: Comparison) -> str:
    names = ("without", f"ε = {shown.sink_norm:g}")
    heads = [f"{what}, {name}" for what in ("seen", "again", "kept", "sink") for name in names]
    means = [
        [
            np.mean([run.states_seen for run in comparison.rounds], axis=0),
            np.mean([[np.nan, *run.retained] for run in comparison.rounds], axis=0),
            np.mean([run.kept for run in comparison.rounds], axis=0),
            np.mean([run.sink_mass for run in comparison.rounds], axis=0),
        ]
        for comparison in (bare, shown)
    ]
    lines = []
    for index in range(shown.settings.n_rounds):
        cells = [f"{means[side][0][index]:.1f}" for side in (0, 1)]
        for measure in (1, 2):
            cells += [_share(means[side][measure][index]) for side in (0, 1)]
        cells += [f"{means[side][3][index]:.2f}" for side in (0, 1)]
        lines.append([str(index + 1), *cells])
    return markdown_table(["round", *heads], lines, left=0)


def _sweep_table(comparisons: Sequence[Comparison]) -> str:
    heads = ["settings", "ε", "states seen", "worst", "again", "kept in the last round"]
    lines = [
        [
            comparison.label,
            f"{comparison.sink_norm:g}",
            f"{comparison.mean_states_seen:.1f}",
            f"{comparison.fewest_states_seen:.1f}",
            _share(comparison.mean_retained),
            _share(comparison.mean_kept),
        ]
        for comparison in comparisons
    ]
    return markdown_table(heads, lines)


def _where_it_does_not_show(comparisons: Sequence[Comparison], norm: float) -> str:
    """The settings at which the sink retains hardly more than nothing does; empty for none."""
    by_norm = {
        wanted: {c.label: c.mean_retained for c in comparisons if c.sink_norm == wanted}
        for wanted in (0.0, norm)
    }
    alike = [
        f"{label} ({_share(without)} without, {_share(by_norm[norm][label])} with)"
        for label, without in by_norm[0.0].items()
        if by_norm[norm][label] - without < VISIBLE
    ]
    if not alike:
        return ""
    return (
        f"Where the effect does not show, or hardly (less than {VISIBLE:.0%} more seen again at "
        f"ε = {norm:g} than without the sink): {'; '.join(alike)}."
    )


def _share(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.0%}"


def _first(comparisons: Sequence[Comparison], sink_norm: float) -> Comparison:
    return next(c for c in comparisons if c.sink_norm == sink_norm)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Repeat the paper's sink diagnostic.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--sink-norm", type=float, default=0.2, help="ε of the diagnostic with the sink")
    add("--rounds", type=int, default=10, help="rounds of each diagnostic")
    add("--episodes", type=int, default=27, help="episodes of a round's batch")
    add("--features", choices=("exact", "learned"), default="exact", help="of the states")
    add("--seeds", type=int, default=5, help="seeds, from 0")
    add("--sweep", action=argparse.BooleanOptionalAction, default=True, help="other settings too")
    add("--jobs", type=int, default=2, help="processes side by side")
    add("--out", type=Path, default=Path("docs/results"), help="folder of the report")
    add("--pictures", type=Path, default=Path("docs/pictures"), help="folder of the picture")
    words = sys.argv[1:] if argv is None else argv
    options = parser.parse_args(words)
    try:
        paths = write_diagnostic(
            options, command=" ".join(["python experiments/sink_diagnostic.py", *words])
        )
    except RoverError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    print(f"written: {', '.join(map(str, paths))}")
    return 0


def write_diagnostic(options: argparse.Namespace, *, command: str) -> tuple[Path, ...]:
    """Run every diagnostic, and write the report and the picture; their paths.

    Raises:
        ConfigurationError: a setting out of range.
        StorageError: the files cannot be written.
    """
    if options.sink_norm <= 0.0:
        raise ConfigurationError(
            f"sink_norm must be positive, not {options.sink_norm:g}: 0 is the diagnostic without "
            "the sink, which is made in any case"
        )
    for name in ("seeds", "jobs"):
        if getattr(options, name) < 1:
            raise ConfigurationError(f"{name} must be at least 1, not {getattr(options, name)}")
    settings = DiagnosticSettings(
        n_rounds=options.rounds, n_episodes=options.episodes, features=options.features
    )
    facts = describe_provenance([provenance(jobs=options.jobs)])
    wanted = settings_to_compare(settings, options.sink_norm, sweep=options.sweep)
    comparisons = compare(wanted, seeds=range(options.seeds), jobs=options.jobs, say=print)
    text = markdown(comparisons, options.sink_norm, facts=facts, command=command)
    files = {
        options.out / "sink_diagnostic.md": text.encode(),
        options.out / "sink_diagnostic.csv": csv_text(comparisons).encode(),
    }
    for path, content in files.items():
        check_writable(path.parent)
        replace_file(path, [content])
    figures = [("sink_diagnostic", draw(comparisons, options.sink_norm))]
    return (*files, *write_pictures(figures, options.pictures, dpi=130))


def draw(comparisons: Sequence[Comparison], sink_norm: float) -> Figure:
    """Visits of the first rounds of the first seed, without and with the sink."""
    shown, bare = _first(comparisons, sink_norm), _first(comparisons, 0.0)
    layout = make_world(shown.settings).layout
    grid = GridMap(layout.cells, layout.free)
    columns = min(SHOWN_ROUNDS, shown.settings.n_rounds)
    figure = make_figure(*panel_size(grid, rows=2, columns=columns))
    panels = [
        MapPanel(
            title=(f"round {number}\n" if comparison is bare else "")
            + f"{np.count_nonzero(visits)} of {len(visits)} states",
            values=visits,
            y="" if number > 1 else "without sink" if comparison is bare else "with sink",
        )
        for comparison in (bare, shown)
        for number, visits in enumerate(comparison.visits[0][:columns], start=1)
    ]
    for axes in draw_panels(figure, panels, grid, columns=columns):
        axes.yaxis.label.set(rotation=0, ha="right", va="center")
    return figure


if __name__ == "__main__":
    sys.exit(main())
