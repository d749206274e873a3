"""``rover pretrain`` and ``rover demo``."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from rover.baselines import agent_class, make_agent, preset_of
from rover.cli.commands import command, read_env_kwargs
from rover.cli.runs import Watching, free_folder, watched
from rover.cli.solving import say_goals
from rover.cli.tables import figures_table, say, shell
from rover.errors import ConfigurationError
from rover.evaluation.visits import N_REFERENCES
from rover.training.config import merge_settings, validate_settings

if TYPE_CHECKING:
    from rover.training.agent import Agent

_DEFAULT_STEPS = {"default": 3000}
_OTHER_STEPS = 10_000
DEMO_ENV, DEMO_OBSERVATION = "rover/MultiRooms-v0", "onehot"

_SEEN = {
    "states": ("states seen", "{states_seen:,.0f}{spread} of {states_total:,}"),
    "observations": ("distinct observations", "{observations:,.0f}{spread}"),
    "cells": ("visited cells", "{data_cells:,.0f}{spread}"),
}
_EVALUATION_EPISODES, _EVALUATED_SETS = 20, 11


def _presets(options: argparse.Namespace) -> dict[str, BaseModel]:
    agent = agent_class(options.agent)
    chosen = preset_of(options.agent, options.preset)
    return {
        name: validate_settings(agent.config_class, merge_settings(agent.presets[name], {}))
        # Without --preset all are shown side by side, to choose from.
        for name in ([chosen] if options.preset else agent.presets)
    }


@command(_presets)
def _pretrain(
    env_id: str,
    *,
    agent: str = "rover",
    preset: str | None = None,
    settings: dict[str, Any],
    steps: int | None = None,
    seed: int = 0,
    observation: str | None = None,
    env: list[str],
    target: Callable[..., Any] | None = None,
    run_dir: Path | None = None,
    watching: Watching,
) -> None:
    """Pretrain on an environment without its reward.

    The agent does not use the reward. The result is a policy whose episodes cover the states of the
    environment as evenly as possible.

    ENV is any Gymnasium id with discrete or up to 32 continuous actions, and Discrete, vector
    or image observations; "module:Name-v0" imports the module that registers it. `rover envs`
    lists rover's own.

    All files go to one run folder: settings, metrics, the policy, the replay buffer, checkpoints.
    `rover resume RUN` continues a stopped run, with the same result.

    Settings have the values of the preset unless --set changes them. The word for no value is none,
    as in --set plan_transitions=none.

    agents (--agent, or --method):
    AGENTS

    Args:
        env_id (ENV): Gymnasium id, such as rover/Maze-v0
        agent (NAME): the agent that pretrains
        preset: ROVER: 'default', the best settings known, 'paper', the text of the paper, or
            'code-2026-06', its authors' code; other agents: 'fast', for a laptop, or 'published',
            nearer to the publication [default: default or fast]
        steps: environment steps [default: 3000 with preset default, 10000 with others]
        run_dir: folder of the run, which must not hold one [default: runs/ENV-PRESET-seedN, or
            runs/ENV-AGENT-PRESET-seedN for another agent than ROVER; numbered if that exists]

    Examples:
        rover pretrain rover/MultiRooms-v0
        rover pretrain rover/MultiRooms-v0 --env rooms=7 --observation onehot --seed 3
        rover pretrain FrozenLake-v1 --env is_slippery=false --steps 2000
        rover pretrain rover/TwoRooms-v0 --observation pixels --preset paper
        rover pretrain rover/TwoRooms-v0 --agent rnd --set learner.batch_size=64
        rover pretrain MountainCar-v0 --steps 5000 --set discount=0.995 --set bandwidth=0.05
        rover pretrain rover/FourRooms-v0 --target my_targets:twice
        rover pretrain --agent rnd --help-settings
    """
    env_kwargs = read_env_kwargs(env_id, env, observation)
    preset = preset_of(agent, preset)
    # Runs of ROVER are named by their preset alone.
    kind = [preset] if agent == "rover" else [agent, preset]
    # A folder that exists is never written into: `rover resume` goes on with it.
    folder = run_dir or free_folder(env_id, *kind, f"seed{seed}")
    if target is not None:
        settings = {**settings, "target": target}
    made = make_agent(
        agent, env_id, preset, env_kwargs=env_kwargs, seed=seed, run_dir=folder, **settings
    )
    steps = steps or _DEFAULT_STEPS.get(preset, _OTHER_STEPS)
    with watched(folder, watching) as options:
        made.learn(steps, **options)
    show_agent(made, env_id)


@command()
def _demo(
    *,
    steps: int = 1500,
    seed: int = 0,
    run_dir: Path | None = None,
    watching: Watching,
) -> None:
    """Pretrain on five rooms and look at the result, in a minute.

    The environment is rover/MultiRooms-v0 (five rooms on a corridor, no reward). Prints what was
    learned, and draws it.

    Args:
        steps: environment steps
        run_dir: folder of the run [default: runs/demo, numbered if that exists]

    Examples:
        rover demo
        rover demo --seed 1
    """
    from rover.plots import plot_runs

    say(
        f"Pretraining on {DEMO_ENV} with {DEMO_OBSERVATION} observations for {steps} steps, "
        "without any reward ..."
    )
    folder = run_dir or free_folder("demo")
    env_kwargs = {"observation": DEMO_OBSERVATION}
    agent = make_agent("rover", DEMO_ENV, env_kwargs=env_kwargs, seed=seed, run_dir=folder)
    with watched(folder, watching) as options:
        agent.learn(steps, **options)
    show_agent(agent, f"{DEMO_ENV}, {DEMO_OBSERVATION} observations")
    say(
        "\nCoverage is the share of all states that 20 episodes of the learned policy visit "
        "together.\nJ/J* says how evenly it visits them: 1 is the best that any policy can do.\n"
    )
    _say_named_goals(agent)
    say("pictures:", *(f"  {picture}" for picture in plot_runs([folder])))
    say(
        "\ntry next:\n"
        f"  {shell('rover', 'solve', folder)} --goals all\n"
        f"  {shell('rover', 'finetune', folder)} --task goal=room5 --steps 20000\n"
        "  rover pretrain rover/Maze-v0\n"
        "  rover pretrain rover/MultiRooms-v0 --env rooms=7 --steps 4000\n"
        "  rover pretrain FrozenLake-v1\n"
        "  rover envs"
    )


def _say_named_goals(agent: Agent[Any]) -> None:
    """Solve the goals that have names, if the data has seen them, and print what that is worth."""
    from rover.policies import SampledPolicy
    from rover.solving import solve

    began = time.perf_counter()
    try:
        policy = solve(agent, goals="named")
    except ConfigurationError as error:  # a goal was not seen in so few steps, or there are none
        say(f"No goal is solved: {error}")
        return
    assert not isinstance(policy, SampledPolicy)  # named goals are states
    say_goals(policy, agent.env, time.perf_counter() - began)


def show_agent(agent: Agent[Any], env_id: str | None) -> None:
    """Print the table of a run, and what can be done with it next."""
    assert agent.run_dir is not None
    summary, late = agent.summary(), "not reached"
    unit, episodes = summary["visited_unit"], agent.config.evaluation_episodes
    rows: list[tuple[str, ...]] = [("environment steps", "{steps:,}")]
    rows += [_SEEN[unit]] if unit in _SEEN else [_SEEN["observations"]]
    rows.append(("state-action pairs tried", "{pairs_tried:,.0f} of {pairs_known:,.0f}"))
    if not summary["first_arrival"] is summary["uniform_first_arrival"] is None:
        rows.append(("first arrival at a reward", "step {first_arrival:,}", late))
    rows += [
        ("steps until every state was seen", "{steps_to_full_coverage:,}"),
        (f"steps until {episodes} episodes first covered 95%", "{steps_to_95_in_20_episodes:,}"),
        (f"policy: mean coverage of {episodes} episodes", "{mean_coverage:.1%}"),
        ("policy: probability of at least 95%", "{p_coverage_95:.1%}"),
        ("policy: J/J* (1 is best)", "{optimality_ratio:.4f}"),
        ("policy: cells of an evaluation", "{cells:,.0f} ± {cells_error:.0f}"),
        ("policy: k-NN entropy, nats", "{knn_entropy:.2f} ± {knn_entropy_error:.2f}"),
        ("policy: sink mass (unknown part of the model)", "{sink_mass:.1%}"),
    ]
    if getattr(agent.config, "target", None) is not None:
        rows += [
            ("policy: J, its distance from the target", "{objective:.3g}"),
            ("J*, the least of any policy", "{optimum:.3g}"),
        ]
    # Warnings stand in the table as well: lines on standard error are easily missed.
    if summary["worse_than_random"]:
        rows.append(("COVERS LESS THAN RANDOM ACTIONS", "yes"))
    if summary["uniform_share"]:
        rows.append(("share of random actions in the policy", "{uniform_share:.0%}"))
    if summary["aliased_observations"]:
        rows.append(("OBSERVATIONS LOOK ALIASED", "yes"))
    rows.append(("seconds", "{wall_seconds:.1f}"))
    rows += [(f"  {phase}", f"{{seconds[{phase}]:.1f}}") for phase in summary["seconds"]]
    name = "" if agent.name == "rover" else f"{agent.name}, "
    title = f"{env_id}, {name}preset {agent.preset}, seed {agent.seed}"
    say(
        figures_table(
            title,
            {"run": {**summary, "spread": ""}, "random actions": _random_figures(summary)},
            rows,
        )
    )
    if unit == "cells":
        say(
            f"cells:      of a net that the random actions of {N_REFERENCES} runs divide into 50; "
            "their mean (least–most)."
        )
    if (advice := _pairs_left(summary, agent.run_dir)) is not None:
        say(advice)
    if summary["left_out"] is not None:
        from rover.envs import horizon_of

        horizon = horizon_of(agent.env, longest=agent.buffer.longest_episode)
        cost = _EVALUATED_SETS * _EVALUATION_EPISODES * horizon
        say(
            f"left out:   {summary['left_out']}.",
            f"            `rover evaluate` measures it in at most {cost:,} steps.",
        )
    from rover.plots import plot_visits

    say(
        f"run folder: {agent.run_dir}",
        *(f"picture:    {path}" for path in plot_visits(agent.run_dir)),
        f"pictures:   {shell('rover', 'plot', agent.run_dir)}",
        f"details:    {shell('rover', 'evaluate', agent.run_dir)}",
    )


def _pairs_left(summary: Mapping[str, Any], run_dir: Path) -> str | None:
    """Steps that the remaining state-action pairs would take; None without any."""
    tried, known, rate = (summary[name] for name in ("pairs_tried", "pairs_known", "new_pairs"))
    if tried is None or tried == known or not rate:
        return None
    steps = summary["steps"] + math.ceil((known - tried) / rate)
    return (
        f"too short:  {known - tried:,} of {known:,} state-action pairs of the visited states were "
        f"not tried. At the latest rate, {rate:.2g} new ones a step, all of them take at least "
        f"{steps:,} steps:\n            {shell('rover', 'resume', run_dir)} --steps {steps}"
    )


def _random_figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of uniformly random actions, under the names of the run's own."""
    figures = {
        name.removeprefix("uniform_"): value
        for name, value in summary.items()
        if name.startswith("uniform_") and name != "uniform_share"
    }
    renamed = {"coverage": "mean_coverage", "ratio": "optimality_ratio"}
    figures |= {name: figures[old] for old, name in renamed.items()}
    if figures["visited_least"] is not None:
        figures["spread"] = " ({visited_least:,}–{visited_most:,})".format_map(figures)
    return {**figures, "steps": summary["compared_steps"], "states_total": summary["states_total"]}
