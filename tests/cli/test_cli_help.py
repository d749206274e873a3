from __future__ import annotations

import subprocess
import sys

import pytest
from command_line import child_environment

import rover
from rover.cli import main
from rover.coverage.config import PAPER, PHASES, RoverConfig

COMMANDS = (
    "pretrain",
    "resume",
    "evaluate",
    "plot",
    "finetune",
    "offline",
    "compare",
    "export",
    "envs",
    "demo",
)


def help_of(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as left:
        main([*words, "--help"])
    assert left.value.code == 0
    return capsys.readouterr().out


def test_help_and_wrong_input_need_no_torch():
    program = (
        "import sys\n"
        "from rover.cli import main\n"
        f"for command in {COMMANDS}:\n"
        "    try:\n"
        "        main([command, '--help'])\n"
        "    except SystemExit as left:\n"
        "        assert left.code == 0\n"
        "assert main([]) == 0\n"
        "assert main(['envs']) == 0\n"
        "assert main(['envs', 'rover/Maze-v0']) == 0\n"
        "assert main(['pretrain', 'rover/Maze-v0', '--steps', '-1']) == 2\n"
        "heavy = {'torch', 'matplotlib', 'h5py'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_help_names_every_command_and_so_does_the_empty_command_line(capsys):
    text = help_of(capsys)
    assert all(command in text for command in COMMANDS)
    assert main([]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(capsys, command):
    text = help_of(capsys, command)
    assert f"\nexamples:\n  rover {command}" in text
    assert "--traceback" in text


def test_every_setting_is_in_the_help_with_its_description_and_both_presets(capsys):
    text = " ".join(help_of(capsys, "pretrain").split())
    for name, field in RoverConfig.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert field.description in text
    assert "[default: 150; paper: 250]" in text
    assert "[default: 512; paper: 1024]" in text
    assert set(PAPER) <= set(RoverConfig.model_fields)


def test_the_phases_begin_with_fields_in_their_order():
    fields = list(RoverConfig.model_fields)
    assert [name for name in fields if name in PHASES] == list(PHASES)
    assert fields[0] in PHASES


def test_version_by_the_module(rover_process):
    done = rover_process("--version")
    assert (done.returncode, done.stdout) == (0, f"rover {rover.__version__}\n")
