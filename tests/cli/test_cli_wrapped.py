"""Environments in rover's wrappers, through every command."""

from __future__ import annotations

from rover.cli import main


def test_the_enumeration_of_an_environment_is_shown(capsys):
    words = ["envs", "FrozenLake-v1", "--env", "is_slippery=false", "--enumerate"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "16 states with known dynamics" in said
    assert "5 of them end an episode, the farthest takes 6 steps; J* " in said
    assert main([*words, "--limit", "10"]) == 2
    assert "more than 10 states" in capsys.readouterr().err
    assert main(["envs", "--enumerate"]) == 2
    assert "--enumerate need an ENV" in capsys.readouterr().err
