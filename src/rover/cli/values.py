"""Words NAME=VALUE: keywords of environments, and tasks."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from rover.envs import LAYOUT_FAMILIES, import_modules, known_id
from rover.errors import ConfigurationError, choose, nearest, shorten

if TYPE_CHECKING:
    from rover.finetuning import Task

TASK_KEYS = ("goal", "reward", "horizon")
"""Names that --task takes."""

_LARGEST = 2**63
"""Greater numbers overflow in numpy and torch, far from the word that gave them."""

# Documentation of environments is in Python, and so is what is copied from it.
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


def parse_number(text: str) -> int | float | str:
    """`text` as a number, whole where it is; what is no number of a usual size stays text."""
    value: int | float
    try:
        value = int(text)
    except ValueError:
        try:
            value = float(text)  # also 1e3, which int() does not read
        except ValueError:
            return text
    if not abs(value) < _LARGEST:  # nor is it nan
        return text
    return int(value) if value == int(value) else value


def split_pairs(flag: str, words: Sequence[str], example: str) -> dict[str, str]:
    """Values by name of words NAME=VALUE."""
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise ConfigurationError(
                f"{flag} {shorten(word)} must be NAME=VALUE, as in {flag} {example}"
            )
        if name in pairs:
            raise ConfigurationError(f"{flag} {name} is given twice")
        pairs[name] = text
    return pairs


# --- keywords of environments -------------------------------------------------------------------


def read_env_kwargs(env_id: str, words: Sequence[str], observation: str | None) -> dict[str, Any]:
    """Keywords of an environment, of the types that it expects; `observation` is another way to say
    observation=NAME. The module in an id "module:Name-v0" is imported."""
    # Only what the user typed may have a module imported, never an id from a file.
    module, colon, _ = env_id.rpartition(":")
    if colon:
        import_modules([module])
    if observation is not None:
        words = [*words, f"observation={observation}"]
    pairs = split_pairs("--env", words, "rooms=7")
    defaults, is_open = env_keywords(env_id) if pairs else ({}, True)
    for name in pairs:
        if name not in defaults and not is_open:
            close = nearest(name, defaults)
            hint = f"did you mean {close!r}?" if close else f"it has {', '.join(defaults)}"
            raise ConfigurationError(f"{env_id} has no keyword {shorten(name)}; {hint}")
    return {name: _env_value(name, text, defaults.get(name)) for name, text in pairs.items()}


def env_keywords(env_id: str) -> tuple[dict[str, Any], bool]:
    """Default values of an environment's keywords, and whether it may take more than these."""
    try:
        spec = gym.spec(env_id)
        entry: Any = spec.entry_point
        # The constructor is read and not called: making an environment may open windows or files.
        entry = load_env_creator(entry) if isinstance(entry, str) else entry
        parameters = dict(inspect.signature(entry).parameters)
    except Exception:  # whatever importing it raises, making it will raise too, and be explained
        return {}, True
    family = LAYOUT_FAMILIES.get(str(spec.kwargs.get("layout")))
    # A grid world hands the keywords of its map to the function that makes it, and takes no others.
    is_open = family is None and any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    parameters |= {} if family is None else inspect.signature(family.make).parameters
    defaults = {
        name: None if one.default is one.empty else one.default
        for name, one in parameters.items()
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    return {"max_episode_steps": 0, **defaults, **spec.kwargs}, is_open


def _env_value(name: str, text: str, default: Any) -> Any:
    """`text` as a value of the type of a keyword's default."""
    value: Any = parse_number(text)
    # The default says what a keyword takes; one without a default takes whatever the text may be.
    if isinstance(value, str):  # true, null, a list, or a word
        try:
            value = json.loads(_PYTHON_WORDS.get(text, text))
        except (ValueError, RecursionError):
            value = text
    if value is None:
        return None
    if isinstance(default, str):
        return value if isinstance(value, str) else text
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_right, wanted = not is_number or abs(value) < _LARGEST, "a number of usual size"
    if isinstance(default, bool):
        is_right, wanted = isinstance(value, bool), "true or false"
    elif isinstance(default, int | float) and not is_number:
        is_right, wanted = False, "a number"
    elif isinstance(default, list | tuple):
        is_right, wanted = isinstance(value, list), "a list, as in [1, 2]"
    if not is_right:
        raise ConfigurationError(f"--env {name}={shorten(text)}: must be {wanted}")
    return value


# --- tasks ---------------------------------------------------------------------------------------


def read_task_of(path: Path, words: Sequence[str]) -> Task:
    """The task that --task describes, on the environment of the pretrained run in `path`."""
    from rover.storage import read_run_config

    run_config = read_run_config(path, kind="pretrain")
    in_python = "give its task to rover.train_offline or rover.integrations.minari.export_minari"
    # known_id refuses "module:Name-v0": no file can have code imported.
    env_id = known_id(run_config.env_id, path, in_python)
    return read_task(words, env_id, run_config.env_kwargs)


def read_task(words: Sequence[str], env_id: str, env_kwargs: Mapping[str, Any]) -> Task:
    """The task that --task describes, on an environment."""
    pairs: dict[str, Any] = {
        choose("key of --task", key, TASK_KEYS): text
        for key, text in split_pairs("--task", words, "goal=room5").items()
    }
    if "horizon" in pairs:
        pairs["horizon"] = parse_number(pairs["horizon"])
    from rover.finetuning import make_task

    return make_task(env_id, env_kwargs, **pairs)
