"""Wrong words, and the help: answered in one line or on a page, before anything runs."""

import itertools
import os
import re

import pytest
from command_line import python, shell

from rover.baselines import agent_class, agent_names, agent_summaries, preset_of
from rover.cli import main
from rover.cli.program import command_modules
from rover.coverage.config import RoverConfig
from rover.errors import ConfigurationError

COMMANDS = (*command_modules(),)
MAZE = ("pretrain", "rover/Maze-v0")
COMPARE = ("compare", "rover/Maze-v0")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # commands and flags
        (("pretrian",), "unknown command 'pretrian'; did you mean 'pretrain'?"),
        (("pretrain",), "the following arguments are required: ENV (see `rover pretrain --help`)"),
        ((*MAZE, "--sedd", "3"), "unknown argument '--sedd'; did you mean --seed?"),
        ((*MAZE, "--method", "rdn"), "unknown agent 'rdn'; did you mean 'rnd'?"),
        # flags that are settings
        ((*MAZE, "--mirror-steps", "5"), "'--mirror-steps'; use --set mirror_steps=5"),
        ((*MAZE, "--slip=0.1"), "unknown argument '--slip'; use --env slip=0.1"),
        (("plot", ".", "--format", "gif"), "--format: invalid choice: 'gif' (choose from "),
        # numbers
        (("evaluate", ".", "--episodes", "1000000000"), "--episodes: must be at most 100,000"),
        ((*MAZE, "--steps", "1.5"), "--steps: must be a whole number of at least 1, not '1.5'"),
        # settings
        ((*MAZE, "--set", "ridge=1", "--set", "ridge=2"), "--set ridge is given twice"),
        ((*MAZE, "--set", "seed=3"), "unknown setting 'seed'; use --seed"),
        # environments and their keywords
        ((*MAZE, "--env", "slip=icy"), "--env slip='icy': must be a number"),
        (("pretrain", "CartPole-v1", "--observation", "onehot"), "has no keyword 'observation'"),
        ((*MAZE, "--observation", "state", "--env", "observation=state"), "is given twice"),
        (("envs", "--env", "rooms=3"), "--env, --observation and --enumerate need an ENV"),
        (("pretrain", "maze"), "unknown environment 'maze'; did you mean 'rover/Maze-v0'?"),
        # agents that are compared
        ((*COMPARE, "--agents", "rnd:slow"), "unknown preset of rnd 'slow'"),
        # folders
        ((*MAZE, "--run-dir", ""), "argument --run-dir: is empty; give the path of a file or fold"),
        (("resume", "nowhere"), "'nowhere' does not exist; run folders usually lie under runs/"),
        (("sweep", ".", "--redraw", "--report-only"), "contradict each other"),
    ],
)
def test_wrong_words_are_one_line_with_exit_code_2(refused, words, expected):
    line = refused(*words)
    assert expected in line
    assert len(line) < 400
    assert os.listdir() == []


def test_the_traceback_on_request(monkeypatch):
    words = [*MAZE, "--set", "discount=2"]
    with pytest.raises(ConfigurationError, match="less than 1"):
        main([*words, "--traceback"])
    monkeypatch.setenv("ROVER_TRACEBACK", "1")
    with pytest.raises(ConfigurationError, match="less than 1"):
        main(words)
    monkeypatch.setenv("ROVER_TRACEBACK", "0")
    assert main(words) == 2


@pytest.mark.slow
def test_the_program_from_a_shell():
    """An error; and a reader, such as head, that has seen enough: no traceback."""
    done = shell("pretrain", "FrozenLake-v1", "--env", "is_slippery=x")  # needs no torch
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rover: error: ")
    assert done.stderr.count("\n") == 1
    # A pipe that nobody reads any more before the first line is written: no race with the reader.
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = shell("envs", stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def help_of(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as left:
        main([*words, "--help"])
    assert left.value.code == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_help_and_wrong_input_need_no_torch():
    program = f"""
import sys
from rover.cli import main
assert main(["--help"]) == 0
slow = {{"torch", "pydantic", "scipy.sparse", "rover.baselines", "rover.cli.commands"}}
assert not slow & {{*sys.modules}}, slow & {{*sys.modules}}
import gymnasium
env = gymnasium.make('rover.envs:rover/TwoRooms-v0')
assert env.unwrapped.layout.n_states == 99
from rover.baselines import agent_names, agent_summaries
assert {{*agent_names()}} == {{*agent_summaries()}}
assert not {{'pygame', 'cv2', 'rover.training.agent'}} & {{*sys.modules}}
for command in {COMMANDS}:
    try:
        main([command, '--help'])
    except SystemExit as left:
        assert left.code == 0
assert main([]) == 0
assert main(['envs']) == 0
assert main(['envs', 'rover/Maze-v0']) == 0
assert main(['pretrain', 'rover/Maze-v0', '--steps', '-1']) == 2
assert main(['pretrain', 'FrozenLake-v1', '--env', 'is_slippery=x']) == 2
heavy = {{'torch', 'matplotlib', 'h5py'}} & set(sys.modules)
assert not heavy, heavy
"""
    done = python("-c", program)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_its_flags_with_examples(capsys, command):
    assert main([]) == 0
    assert f"\n    {command} " in capsys.readouterr().out
    text = help_of(capsys, command)
    assert f"\nexamples:\n  rover {command}" in text
    assert "--traceback" in text
    _, _, arguments = text.partition("positional arguments:" if command != "demo" else "options:")
    lines = arguments.partition("examples:")[0].splitlines()
    for line, following in itertools.pairwise(lines):
        if line.startswith("  -"):
            assert "  " in line.strip() or following.startswith(" " * 20), line
    if command in ("pretrain", "compare"):
        words = " ".join(text.split())
        assert all(f"{name} {line}" in words for name, line in agent_summaries().items())


@pytest.mark.parametrize("command", COMMANDS)
def test_presets_in_the_help_exist(capsys, command):
    text = help_of(capsys, command)
    for name, preset in re.findall(r"\b(\w+):([\w-]+)", text.partition("\nexamples:")[2]):
        assert name not in agent_names() or preset_of(name, preset) == preset
    described = " ".join(re.findall(r"\n  --presets? [A-Z,.]+ .*?(?=\n  -)", text, re.S))
    known = {preset for name in agent_names() for preset in agent_class(name).presets}
    assert {*re.findall(r"'([\w-]+)'", described)} <= known


def test_every_setting_is_listed_with_its_range_presets_and_description(capsys):
    assert main(["pretrain", "--help-settings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = dict(zip(lines[::2], map(str.strip, lines[1::2]), strict=True))
    assert [*shown.values()] == [field.description for field in RoverConfig.model_fields.values()]
    assert "warm_start = true|false  [default: true; paper: false; code-2026-06: false]" in shown
    assert any(line.startswith("discount = number > 0, < 1|none  [") for line in shown)
