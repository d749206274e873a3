"""Wrong words, and the help: answered in one line or on a page, before anything runs."""

import os
import re
from importlib.util import find_spec

import pytest
from command_line import python, shell

from rover.baselines import agent_names
from rover.cli import COMMANDS, main
from rover.coverage.config import RoverConfig

MAZE = ("pretrain", "rover/Maze-v0")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # commands and options
        (("pretrian",), 'Unknown command "pretrian". Did you mean "pretrain"?'),
        ((*MAZE, "--sedd", "3"), "Unknown option: --sedd. Did you mean --seed?"),
        ((*MAZE, "--agent", "rdn"), "unknown agent 'rdn'; did you mean 'rnd'?"),
        (("finetune", ".", "--offline", "--from", "scratch"), "leave out --from and --transfer"),
        (("finetune", ".", "."), "several runs are for --offline"),
        # numbers
        (("evaluate", ".", "--episodes", "1000000000"), "for --episodes. Must be <= 100000"),
        ((*MAZE, "--steps", "1.5"), "for --steps: must be a whole number, not '1.5'"),
        # names and values
        ((*MAZE, "--set", "ridge"), "--set 'ridge' must be NAME=VALUE"),
        ((*MAZE, "--set", "discount=2"), "setting discount=2: Input should be less than 1"),
        # environments and their keywords
        ((*MAZE, "--env", "slop=0.1"), "unknown keyword 'slop': a grid world takes "),
        (("envs", "--env", "rooms=3"), "--env needs an ENV"),
        # agents that are compared
        pytest.param(
            ("compare", "rover/Maze-v0", "--agents", "rnd:slow"),
            "unknown preset of rnd 'slow'",
            marks=pytest.mark.skipif(not find_spec("pandas"), reason="needs the extra bench"),
        ),
        # folders
        (("resume", "nowhere"), '"nowhere" does not exist'),
    ],
)
def test_wrong_words_are_one_line_with_exit_code_2(refused, words, expected):
    line = refused(*words)
    assert expected in line
    assert os.listdir() == []


@pytest.mark.slow
def test_the_program_from_a_shell():
    """An error; and a reader, such as head, that has seen enough: no traceback."""
    done = shell("pretrain", "FrozenLake-v1", "--env", "slip=x")
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


@pytest.mark.slow
def test_help_and_wrong_input_need_no_torch():
    program = f"""
import sys
from rover.cli import main
assert main(["--help"]) == main(["--version"]) == 0
slow = {{"torch", "pydantic", "scipy.sparse", "rich", "cyclopts", "rover.baselines"}}
assert not slow & {{*sys.modules}}, slow & {{*sys.modules}}
for command in {[*COMMANDS]}:
    assert main([command, '--help']) == 0
assert main([]) == 0
assert main(['pretrain', 'rover/Maze-v0', '--steps', '-1']) == 2
assert main(['pretrain', 'FrozenLake-v1', '--env', 'slip']) == 2
heavy = {{'torch', 'matplotlib', 'h5py'}} & set(sys.modules)
assert not heavy, heavy
"""
    done = python("-c", program)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_its_options_with_examples(capsys, command):
    assert main([]) == 0
    summary = COMMANDS[command][1]
    assert f"\n  {command:10} {summary}\n" in capsys.readouterr().out
    assert main([command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith(summary.strip())
    assert any(line.startswith(f" rover {command}") for line in lines)
    for line in lines:
        if match := re.match(r"│ (--\S+(?: --\S+)*(?: [A-Z]\S*)?)(.*)│", line):
            assert match[2].strip(), line  # each option has a text


def test_every_setting_is_listed_with_its_range_presets_and_description(capsys):
    assert main(["settings", "rover"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = dict(zip(lines[::2], map(str.strip, lines[1::2]), strict=True))
    assert [*shown.values()] == [field.description for field in RoverConfig.model_fields.values()]
    assert "warm_start = bool  [default: true; paper: false; code-2026-06: false]" in shown
    assert any(line.startswith("discount = float | None Gt(gt=0) Lt(lt=1)  [") for line in shown)
    for name in ("rnd", "ddpg", "offline-cql", "adapt"):
        assert main(["settings", name]) == 0
        assert "checkpoint_every = " in capsys.readouterr().out
    assert main(["settings"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == [*agent_names()]
