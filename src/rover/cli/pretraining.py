"""``rover pretrain`` and ``rover demo``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from rover.cli import words
from rover.cli.runs import free_folder, resumable
from rover.cli.tables import figures_table, say, shell
from rover.errors import ConfigurationError

if TYPE_CHECKING:
    from rover.training.agent import Agent

_DEFAULT_STEPS, _OTHER_STEPS = 3_000, 10_000  # of ROVER's best preset, and of all others
_DEMO_ENV = "rover/MultiRooms-v0"

_SEEN = {
    "states": ("states seen", "{states_seen:,.0f}{spread} of {states_total:,}"),
    "observations": ("distinct observations", "{observations:,.0f}{spread}"),
    "cells": ("visited cells", "{data_cells:,.0f}{spread}"),
}


def pretrain(
    env_id: Annotated[str, Parameter(name="ENV")],
    /,
    *,
    agent: Annotated[str, Parameter(alias="--method", metavar="NAME")] = "rover",
    preset: str | None = None,
    steps: words.Count | None = None,
    observation: words.Observation | None = None,
    env: words.Env = (),
    target: words.OwnFunction | None = None,
    making: words.Making = words.MAKING,
) -> None:
    """Pretrain on an environment without its reward.

    The agent does not use the reward. The result is a policy whose episodes
    visit the states of the environment as evenly as possible.

    ENV is any Gymnasium id with discrete or up to 32 continuous actions, and
    Discrete, vector or image observations; "module:Name-v0" imports the module
    that registers it. `rover envs` lists rover's own.

    All files go to one run folder: settings, metrics, the policy, the replay
    buffer, checkpoints. `rover resume RUN` continues a stopped run, with the
    same result.

    Settings have the values of the preset unless --set changes them. The word
    for no value is none, as in --set plan_transitions=none. `rover settings
    NAME` lists the settings of an agent, and `rover settings` the agents.

    examples:

        rover pretrain rover/MultiRooms-v0
        rover pretrain rover/MultiRooms-v0 --env rooms=7 --observation onehot
        rover pretrain FrozenLake-v1 --env is_slippery=false --steps 2000
        rover pretrain rover/TwoRooms-v0 --observation pixels --preset paper
        rover pretrain rover/TwoRooms-v0 --agent rnd --set learner.batch_size=64
        rover pretrain MountainCar-v0 --steps 5000 --set discount=0.995
        rover pretrain rover/FourRooms-v0 --target my_targets:twice

    Args:
        env_id: Gymnasium id, such as rover/Maze-v0
        agent: the agent that pretrains
        preset: ROVER: default, the best settings known, paper, the text of the paper, or
            code-2026-06, its authors' code; other agents: fast, for a laptop, or published, nearer
            to the publication [default: default or fast]
        steps: environment steps [default: 3000 with preset default, 10000 with others]
        target: function of yours, target(observations) -> weights, that returns the wanted share
            of each observation, relative to the others [default: all alike]
    """
    from rover.baselines import make_agent, preset_of

    env_kwargs = words.read_env_kwargs(env_id, env, observation)
    preset = preset_of(agent, preset)
    # Runs of ROVER are named by their preset alone. A folder that exists is never written into.
    folder = making.folder(env_id, *([] if agent == "rover" else [agent]), preset)
    options = words.read_settings(making.settings, agent)
    if target is not None:
        options["target"] = target
    made = make_agent(
        agent, env_id, preset, env_kwargs=env_kwargs, seed=making.seed, run_dir=folder, **options
    )
    steps = steps or (_DEFAULT_STEPS if preset == "default" else _OTHER_STEPS)
    with resumable(folder):
        made.learn(steps, **making.arguments())
    show_agent(made, env_id)


def demo(
    *,
    steps: words.Count = 1500,
    seed: words.Seed = 0,
    run_dir: words.Folder | None = None,
    watching: words.Watching = words.WATCHING,
) -> None:
    """Pretrain on five rooms and look at the result.

    The environment is rover/MultiRooms-v0, five rooms on a corridor without a
    reward. Prints what was learned, plans for the rooms, and draws it, in a
    minute.

    examples:

        rover demo
        rover demo --seed 1

    Args:
        steps: environment steps
        run_dir: folder of the run [default: runs/demo, numbered if that exists]
    """
    from rover.cli.evaluating import plot
    from rover.cli.solving import solve

    folder = run_dir or free_folder("demo")
    say(f"Pretraining on {_DEMO_ENV} for {steps} steps, without any reward ...")
    making = words.Making(watching.log, watching.progress, seed=seed, run_dir=folder)
    pretrain(_DEMO_ENV, steps=steps, observation="onehot", making=making)
    say(
        "\nCoverage is the share of all states that 20 episodes of the learned policy visit "
        "together.\nJ/J* says how evenly it visits them: 1 is the best that any policy can do.\n"
    )
    try:
        solve(folder, goals="named")
    except ConfigurationError as error:  # a goal was not seen in so few steps, or there are none
        say(f"No goal is solved: {error}")
    plot(folder)
    say(
        "\ntry next:\n"
        f"  {shell('rover', 'solve', folder)} --goals all\n"
        f"  {shell('rover', 'finetune', folder)} --task goal=room5 --steps 20000\n"
        "  rover pretrain rover/Maze-v0\n"
        "  rover envs"
    )


def show_agent(agent: Agent[Any], env_id: str | None) -> None:
    """Print the table of a run, and what can be done with it next."""
    from rover.plots import plot_visits

    assert agent.run_dir is not None
    summary = agent.summary()
    name = "" if agent.name == "rover" else f"{agent.name}, "
    title = f"{env_id}, {name}preset {agent.preset}, seed {agent.seed}"
    columns = {"run": {**summary, "spread": ""}, "random actions": _random_figures(summary)}
    say(figures_table(title, columns, _rows(agent, summary)))
    if summary["visited_unit"] == "cells":
        say("cells:      of a net that random actions divide into 50; their mean (least–most).")
    if (advice := _pairs_left(summary, agent.run_dir)) is not None:
        say(advice)
    if summary["left_out"] is not None:
        say(f"left out:   {summary['left_out']}.")
    say(
        f"run folder: {agent.run_dir}",
        *(f"picture:    {path}" for path in plot_visits(agent.run_dir)),
        f"pictures:   {shell('rover', 'plot', agent.run_dir)}",
        f"details:    {shell('rover', 'evaluate', agent.run_dir)}",
    )


def _rows(agent: Agent[Any], summary: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows of the table of a run, as :func:`figures_table` takes them."""
    unit, episodes = summary["visited_unit"], agent.config.evaluation_episodes
    rows: list[tuple[str, ...]] = [("environment steps", "{steps:,}")]
    rows += [_SEEN.get(unit, _SEEN["observations"])]
    rows.append(("state-action pairs tried", "{pairs_tried:,.0f} of {pairs_known:,.0f}"))
    if not summary["first_arrival"] is summary["uniform_first_arrival"] is None:
        rows.append(("first arrival at a reward", "step {first_arrival:,}", "not reached"))
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
    if summary["aliased_observations"]:
        rows.append(("OBSERVATIONS LOOK ALIASED", "yes"))
    rows.append(("seconds", "{wall_seconds:.1f}"))
    return [*rows, *((f"  {phase}", f"{{seconds[{phase}]:.1f}}") for phase in summary["seconds"])]


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
        if name.startswith("uniform_")
    }
    renamed = {"coverage": "mean_coverage", "ratio": "optimality_ratio"}
    figures |= {name: figures[old] for old, name in renamed.items()}
    if figures["visited_least"] is not None:
        figures["spread"] = " ({visited_least:,}–{visited_most:,})".format_map(figures)
    return {**figures, "steps": summary["compared_steps"], "states_total": summary["states_total"]}
