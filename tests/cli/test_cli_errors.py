from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import child_environment

from rover.cli import main
from rover.errors import ConfigurationError

MAZE = ("pretrain", "rover/Maze-v0")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("pretrian",), "invalid choice: 'pretrian' (choose from "),
        (("pretrain",), "the following arguments are required: ENV (see `rover pretrain --help`)"),
        (("pretrain", "rover/MultiRoom-v0"), "did you mean 'rover/MultiRooms-v0'?"),
        (
            ("pretrain", "CartPol-v1"),
            "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'",
        ),
        (("pretrain", "qqq"), "rover's own are listed by `rover envs`"),
        (("pretrain", "no_such_module:X-v0"), "No module named 'no_such_module'"),
        ((*MAZE, "--discout", "0.9"), "unknown argument '--discout'; did you mean --discount?"),
        ((*MAZE, "--sink_norm=1"), "unknown argument '--sink_norm'; did you mean --sink-norm?"),
        ((*MAZE, "--disc", "0.9"), "unknown argument '--disc'"),
        ((*MAZE, "again"), "unknown argument 'again' (see"),
        ((*MAZE, "--discount", "2"), "setting discount='2': Input should be less than 1"),
        ((*MAZE, "--discount", "much"), "setting discount='much': Input should be a valid number"),
        ((*MAZE, "--ridge", "-1"), "setting ridge='-1': Input should be greater than 0"),
        ((*MAZE, "--kernel", "dirak"), "setting kernel='dirak': Input should be 'linear', "),
        ((*MAZE, "--hidden-sizes", "8,x"), "setting hidden_sizes.1='x'"),
        (
            (*MAZE, "--kernel", "dirac", "--bandwidth", "3"),
            "bandwidth has no meaning for the dirac",
        ),
        ((*MAZE, "--preset", "best"), "argument --preset: invalid choice: 'best'"),
        ((*MAZE, "--steps", "-5"), "--steps: must be a whole number of at least 1, not '-5'"),
        ((*MAZE, "--steps", "1e3"), "--steps: must be a whole number of at least 1, not '1e3'"),
        ((*MAZE, "--seed", "-1"), "--seed: must be a whole number of at least 0, not '-1'"),
        ((*MAZE, "--env-kwargs", "{rooms: 7}"), "--env-kwargs '{rooms: 7}' is not JSON"),
        ((*MAZE, "--env-kwargs", "[7]"), "--env-kwargs must be a JSON object"),
        ((*MAZE, "--env", "slip"), "--env 'slip' must be KEY=VALUE"),
        ((*MAZE, "--env", "slip=0", "--env", "slip=1"), "keyword 'slip' is given twice"),
        ((*MAZE, "--env", "slip=2"), "slip is 2, but must be a probability"),
        (("pretrain", "rover/MultiRooms-v0", "--env", "room=3"), "unknown keyword 'room'"),
        (("pretrain", "CartPole-v1", "--env", "foo=3"), "unexpected keyword argument 'foo'"),
        (("pretrain", "FrozenLake-v1", "--env", "map_name=9x9"), "KeyError: '9x9'"),
        (("pretrain", "CartPole-v1", "--observation", "onehot"), "is for rover's own environments"),
        ((*MAZE, "--observation", "sound"), "argument --observation: invalid choice: 'sound'"),
        (("pretrain", "Pendulum-v1"), "ROVER needs a finite set of actions"),
        (("resume", "nowhere"), "'nowhere' does not exist; run folders usually lie under runs/"),
        (("resume", "."), ". holds no run: it has no config.json"),
        (("evaluate", "nowhere"), "'nowhere' does not exist"),
        (("evaluate", "."), ". holds no run: it has no config.json"),
        (("evaluate", ".", "--repeats", "1"), "--repeats: must be a whole number of at least 2"),
        (("plot", "nowhere"), "'nowhere' does not exist"),
        (("plot", "."), "config.json"),
        (("plot", ".", "--format", "gif"), "invalid choice: 'gif'"),
        (("envs", "rover/Maize-v0"), "did you mean 'rover/Maze-v0'?"),
        (("envs", "--env", "rooms=3"), "--env, --env-kwargs and --observation need an ENV"),
        (("envs", "rover/Grid-v0"), "layout is None; give a map as text"),
    ],
)
def test_wrong_input_is_one_line_with_exit_code_2(refused, words, expected):
    assert expected in refused(*words)
    assert os.listdir() == []


def test_one_line_and_no_traceback_from_the_shell(rover_process):
    done = rover_process("pretrain", "rover/Maze-v0", "--discount", "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "rover: error: setting discount='2': Input should be less than 1\n"


def test_the_traceback_on_request(monkeypatch):
    with pytest.raises(ConfigurationError, match="less than 1"):
        main([*MAZE, "--discount", "2", "--traceback"])
    monkeypatch.setenv("ROVER_TRACEBACK", "1")
    with pytest.raises(ConfigurationError, match="less than 1"):
        main([*MAZE, "--discount", "2"])
    monkeypatch.setenv("ROVER_TRACEBACK", "0")
    assert main([*MAZE, "--discount", "2"]) == 2


def test_a_run_folder_that_cannot_be_written(refused):
    Path("file").write_text("")
    line = refused(*MAZE, "--steps", "1", "--run-dir", "file/run")
    assert "file" in line


def test_a_reader_that_has_seen_enough_sees_no_message():
    # A pipe that nobody reads any more before the first line is written: no race with the reader.
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rover", "envs"],
            env=child_environment(),
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
