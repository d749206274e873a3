"""Words as values: types of arguments, keywords of environments, tasks, and settings."""

from __future__ import annotations

import inspect
import json
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rover.baselines import agent_names
from rover.envs import (
    ENVIRONMENTS,
    LAYOUT_FAMILIES,
    OBSERVATIONS,
    RewardFunction,
    import_modules,
    known_id,
)
from rover.envs.registration import REGISTER_IT
from rover.errors import ConfigurationError, nearest, shorten
from rover.training.config import choose

if TYPE_CHECKING:
    from rover.finetuning import Task
    from rover.training.run_folder import RunConfig

_LARGEST = 2**63  # of numbers that numpy and torch hold
# Documentation of environments is in Python, and so is what is copied from it.
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


def _parse_number(text: str) -> int | float | str:
    """`text` as a number, whole where it is; what is no number of a usual size stays text."""
    value: int | float
    try:
        value = int(text)
    except ValueError:
        try:
            value = float(text)  # also 1e3, which int() does not read
        except ValueError:
            return text
    # Such numbers overflow in numpy and torch, far from the word that gave them.
    if not abs(value) < _LARGEST:  # nor is it nan
        return text
    return int(value) if value == int(value) else value


def _whole_number(minimum: int, maximum: int = _LARGEST) -> Callable[[str], int]:
    """Whole numbers from `minimum` to `maximum`; 1e3 is one."""

    def convert(text: str) -> int:
        value = _parse_number(text)
        if not isinstance(value, int) or value < minimum:
            raise ConfigurationError(
                f"must be a whole number of at least {minimum}, not {shorten(text)}"
            )
        if value > maximum:
            raise ConfigurationError(f"must be at most {maximum:,}, not {shorten(text)}")
        return value

    return convert


def _number(text: str) -> float:
    """A finite number."""
    value = _parse_number(text)
    if isinstance(value, str):
        raise ConfigurationError(f"must be a number, not {shorten(text)}")
    return float(value)


def _place(text: str) -> Path:
    """A file or folder, there or not."""
    if not text:  # it would be the current folder
        raise ConfigurationError("is empty; give the path of a file or folder")
    return Path(text)


def _existing(text: str) -> Path:
    """A file or folder that is there."""
    path = _place(text)
    if not path.exists():
        raise ConfigurationError(
            f"{shorten(text)} does not exist; run folders usually lie under runs/"
        )
    return path


def _own_function(text: str) -> RewardFunction:
    """A function of the user's own, as MODULE:FUNCTION."""
    module, _, name = text.partition(":")
    if not module or not name:
        raise ConfigurationError(
            f"must be MODULE:FUNCTION, as in my_rewards:reward, not {shorten(text)}"
        )
    import_modules([module])
    function = getattr(sys.modules[module], name, None)
    if not callable(function):
        raise ConfigurationError(f"module {module} has no function {shorten(name)}")
    return cast(RewardFunction, function)


def _one_of(names: Callable[[], Iterable[str]]) -> Callable[[str], str]:
    return lambda text: choose("name", text, tuple(names()))


class Argument(NamedTuple):
    """Reading and help of the arguments of a name, which mean the same in every command.

    Attributes:
        read: value of a word.
        metavar: the word in the help; empty: word and value are those of the argument's type.
        flags: its flags, if not --NAME.
        help: its text, unless the docstring of the command has another.
    """

    read: Callable[[str], Any] = str
    metavar: str = ""
    flags: tuple[str, ...] = ()
    help: str = ""


_OF_TYPES: dict[Any, Argument] = {
    int: Argument(_whole_number(1), "N"),
    float: Argument(_number, "X"),
    Path: Argument(_place, "DIR"),
    str: Argument(str, "NAME"),
}

ARGUMENTS: dict[str, Argument] = {
    **dict.fromkeys(("path", "paths", "data", "study"), Argument(_existing, "PATH")),
    # Names are looked up when they are read: the modules of --import may have added some.
    "agent": Argument(_one_of(agent_names), "NAME", ("--agent", "--method")),
    "agents": Argument(flags=("--agents", "--methods")),
    "as_json": Argument(flags=("--json",)),
    "dpi": Argument(_whole_number(30, 1200), "N"),
    "env": Argument(help="keyword of the environment, as in --env rooms=7; may be repeated"),
    "episodes": Argument(_whole_number(1, 10**6), "N"),
    "executor": Argument(
        help="where runs are made: here, on a Ray cluster or by Slurm. Its settings are given "
        "with --set, and --help-settings lists them"
    ),
    "formats": Argument(
        _one_of(lambda: ("png", "svg", "pdf")),
        "{png,svg,pdf}",
        ("--format",),
        help="file formats of the pictures, one or more [default: png]",
    ),
    "jobs": Argument(
        _whole_number(1, 1024),
        "N",
        help="runs side by side, each in a process and thread of its own [default: 2; Slurm: 1000]",
    ),
    "learner": Argument(flags=("--agent",)),
    "log": Argument(
        help="write scalars to the run folder too, for TensorBoard (pip install '.[tb]') or "
        "Weights & Biases (pip install '.[wandb]'; WANDB_MODE=offline for no account)"
    ),
    "max_steps": Argument(_whole_number(1, 10**9), "N"),
    "n_seeds": Argument(_whole_number(1, 10_000), "N", ("--seeds",)),
    "no_progress": Argument(help="draw no progress bar"),
    "observation": Argument(
        _one_of(lambda: OBSERVATIONS),
        "{" + ",".join(OBSERVATIONS) + "}",
        help="what the agent sees of a rover/... environment: its state's number, a one-hot "
        "vector or 84×84 pixels [default: state]",
    ),
    "origin": Argument(flags=("--from",)),
    "repeats": Argument(_whole_number(2, 10**6), "N"),
    "reward": Argument(
        _own_function,
        "MODULE:FUNCTION",
        help="function of yours, reward(observations, actions, next_observations) -> (rewards, "
        "terminated), that labels the transitions where no task of rover's does",
    ),
    "run_dir": Argument(
        help="folder of the run, which must not hold one [default: a new one under runs/]"
    ),
    "seed": Argument(
        _whole_number(0),
        "N",
        help="everything random follows from it; the same seed gives the same bits",
    ),
    "seeds": Argument(_whole_number(0), "N"),
    "settings": Argument(
        flags=("--set",),
        help="single setting, as in --set learner.batch_size=64; may be repeated; "
        "--help-settings lists them",
    ),
    "task": Argument(
        help="goal=NAME or goal=X,Y of a rover/... environment, reward=sparse|dense (sparse: −1 "
        "per step and 0 at the goal), horizon=N; may be repeated. Without a goal the environment's "
        "own reward is learned. `rover envs ENV` lists the names of goals"
    ),
    "world": Argument(flags=("--env",)),
}


def reader(argument: Argument, annotation: Any) -> tuple[Callable[[str], Any], str]:
    """Function that reads a word of an argument of this type, and the word in the help."""
    if typing.get_origin(annotation) is Literal:
        names = typing.get_args(annotation)
        return _one_of(lambda: names), "{" + ",".join(names) + "}"
    known = argument if argument.metavar else _OF_TYPES[annotation]
    return known.read, known.metavar


def _split_pairs(flag: str, words: Sequence[str], example: str) -> dict[str, str]:
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


def read_env_kwargs(
    env_id: str, words: Sequence[str], observation: str | None = None
) -> dict[str, Any]:
    """Keywords of an environment, of the types that it expects.

    Args:
        env_id: id of the environment as the user gave it; the module in "module:Name-v0" is
            imported.
        words: NAME=VALUE.
        observation: of one of rover's environments, in the place of observation=NAME.

    Raises:
        ConfigurationError: not NAME=VALUE, a keyword given twice, one that the environment does
            not have, or a value of the wrong type.
    """
    module, colon, _ = env_id.rpartition(":")
    if colon:
        import_modules([module])
    if observation is not None:
        if env_id.rpartition(":")[2] not in ENVIRONMENTS:
            raise ConfigurationError(
                f"--observation is for rover's own environments, and {shorten(env_id)} is not one "
                "of them; give its own keywords with --env NAME=VALUE"
            )
        words = [*words, f"observation={observation}"]
    pairs = _split_pairs("--env", words, "rooms=7")
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
    except Exception:  # whatever importing it raises, making it will raise too, and be explained
        return {}, True
    defaults: dict[str, Any] = {"max_episode_steps": 0, **spec.kwargs}
    family = LAYOUT_FAMILIES.get(str(spec.kwargs.get("layout")))
    keywords = {} if family is None else inspect.signature(family.make).parameters
    # Keywords of the map pass through **keywords of GridWorld, which names none of them.
    defaults |= {name: one.default for name, one in keywords.items()}
    # **keywords of a constructor are for that of its base class
    classes = inspect.getmro(entry)[:-1] if inspect.isclass(entry) else ()
    for maker in [vars(cls)["__init__"] for cls in classes if "__init__" in vars(cls)] or [entry]:
        parameters = inspect.signature(maker).parameters.values()
        for one in parameters:
            if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) and one.name != "self":
                defaults.setdefault(one.name, None if one.default is one.empty else one.default)
        if not any(one.kind is one.VAR_KEYWORD for one in parameters):
            return defaults, False
    return defaults, True


def _env_value(name: str, text: str, default: Any) -> Any:
    """`text` as a value of the type of a keyword's default."""
    value: Any = _parse_number(text)
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


def run_env(run_config: RunConfig, path: Path) -> tuple[str, dict[str, Any]]:
    """Id and keywords of the environment of the run in `path`; nothing is imported for it."""
    if run_config.env_id is None:
        raise ConfigurationError(
            f"the environment of {path} cannot be made from an id; {REGISTER_IT}, it takes a task "
            "with rover.train_offline or rover.integrations.minari.export_minari"
        )
    return known_id(run_config.env_id), run_config.env_kwargs


def read_task(words: Sequence[str], env_id: str, env_kwargs: Mapping[str, Any]) -> Task:
    """The task that --task describes, on an environment."""
    pairs: dict[str, Any] = {
        choose("key of --task", key, ("goal", "reward", "horizon")): text
        for key, text in _split_pairs("--task", words, "goal=room5").items()
    }
    if "horizon" in pairs:
        pairs["horizon"] = _parse_number(pairs["horizon"])
    from rover.finetuning import make_task

    return make_task(env_id, env_kwargs, **pairs)


# --- settings -----------------------------------------------------------------------------------


def read_settings(
    words: Sequence[str], presets: Mapping[str, BaseModel], flags: Collection[str]
) -> dict[str, Any]:
    """Settings by their dotted names; configurations check the values.

    Args:
        words: NAME=VALUE.
        presets: configurations that have the settings.
        flags: of the command, which no setting replaces.

    Raises:
        ConfigurationError: not NAME=VALUE, a name given twice, or one that no setting has.
    """
    pairs = _split_pairs("--set", words, "checkpoint_every=1000")
    fields = {name: field for name, field, _ in _flatten(next(iter(presets.values())))}
    for name in pairs:
        if name not in fields:
            flag, setting = "--" + name.replace("_", "-"), find_setting(name, presets)
            inside = [field for field in fields if field.startswith(f"{name}.")]
            close = setting[0] if setting else nearest(name, fields)
            hint = f"did you mean {close!r}?" if close else "--help-settings lists them"
            # The later hints are the surer ones.
            hint = f"use {flag}" if flag in flags else hint
            hint = f"give one of its group, as in --set {inside[0]}=..." if inside else hint
            raise ConfigurationError(f"unknown setting {shorten(name)}; {hint}")
    return {name: _plain(text, fields[name]) for name, text in pairs.items()}


def find_setting(name: str, presets: Mapping[str, BaseModel]) -> tuple[str, bool] | None:
    """The setting of this name, or the only one whose last part it is; and whether it is a bool."""
    fields = {full_name: f for p in presets.values() for full_name, f, _ in _flatten(p)}
    matches = [full_name for full_name in fields if full_name.rpartition(".")[2] == name]
    full = name if name in fields else matches[0] if len(matches) == 1 else None
    return None if full is None else (full, fields[full].annotation is bool)


def describe_settings(presets: Mapping[str, BaseModel]) -> str:
    """All settings: name, type and range, values in the presets, meaning."""
    lines = []
    for name, kind, shown, meaning in setting_rows(presets):
        values = "; ".join(f"{preset}: {value}" for preset, value in shown.items())
        values = values if len(set(shown.values())) > 1 else next(iter(shown.values()))
        lines += [f"{name} = {kind}  [{values}]", f"    {meaning}"]
    return "\n".join(lines)


def setting_rows(
    presets: Mapping[str, BaseModel],
) -> Iterator[tuple[str, str, dict[str, str], str]]:
    """Dotted name, type and range, value in each preset, and meaning of each setting."""
    for rows in zip(*(_flatten(config) for config in presets.values()), strict=True):
        name, field, _ = rows[0]
        shown = {preset: _show(row[2]) for preset, row in zip(presets, rows, strict=True)}
        yield name, _show_kind(field), shown, field.description or ""


def _flatten(config: BaseModel, prefix: str = "") -> Iterator[tuple[str, FieldInfo, Any]]:
    """Dotted name, field and value of every setting."""
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, field, value


def _members(field: FieldInfo) -> list[Any]:
    """The types that a field allows, ``tuple`` and ``Literal`` by their origin."""
    unions, members = (typing.Union, types.UnionType), [field.annotation]
    if typing.get_origin(field.annotation) in unions:
        members = list(typing.get_args(field.annotation))
    return members


def _plain(text: str, field: FieldInfo) -> Any:
    """`text` as what a field of this type is validated from."""
    members = _members(field)
    if text in ("none", "null") and types.NoneType in members:
        return None
    if any(typing.get_origin(member) is tuple for member in members):
        return tuple(_parse_number(item.strip()) for item in text.strip("[]()").split(","))
    return _parse_number(text) if {int, float} & set(members) else text


def _show_kind(field: FieldInfo) -> str:
    """The type and range of a field."""
    words = {bool: "true|false", int: "whole number", float: "number", types.NoneType: "none"}
    kinds = [
        "|".join(map(str, typing.get_args(member)))
        if typing.get_origin(member) is Literal
        else words.get(member, "N,N,..." if typing.get_origin(member) is tuple else "word")
        for member in _members(field)
    ]
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    bounds = (
        f" {sign} {getattr(limit, name):g}"
        for limit in field.metadata
        for name, sign in signs.items()
        if hasattr(limit, name)
    )
    return "|".join([kinds[0] + ",".join(bounds), *kinds[1:]])


def _show(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
