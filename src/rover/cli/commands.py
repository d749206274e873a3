"""Commands from functions: a signature gives the arguments, a docstring what the help says.

Parameters before ``*`` are words, those behind it flags; tables at the end say how words of their
types and names are read, in the terms of ``argparse.ArgumentParser.add_argument``. A NamedTuple
groups flags that several commands have: each of its fields is a flag. In the docstring, "Args"
explains them, as ``name: text`` or ``name (METAVAR): text``, and "Examples" shows command lines.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
import types
import typing
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, cast

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rover.baselines import agent_summaries
from rover.envs import LAYOUT_FAMILIES, OBSERVATIONS, RewardFunction, import_modules, known_id
from rover.errors import ConfigurationError, choose, nearest, shorten

if TYPE_CHECKING:
    from rover.finetuning import Task

_TASK_KEYS = ("goal", "reward", "horizon")
"""Names that --task takes."""

_LARGEST = 2**63
"""Greater numbers overflow in numpy and torch, far from the word that gave them."""

# Documentation of environments is in Python, and so is what is copied from it.
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}

_Configs: TypeAlias = Callable[[argparse.Namespace], Mapping[str, BaseModel]]
"""From parsed options to the configuration of each preset that they allow."""


_COMMANDS: dict[str, tuple[Callable[..., int | None], _Configs | None]] = {}
"""By name a function, and the settings that its --set sets, if it has any."""

_FunctionT = typing.TypeVar("_FunctionT", bound=Callable[..., int | None])


def command(configs: _Configs | None = None) -> Callable[[_FunctionT], _FunctionT]:
    """Decorator: make the function `_name` the command `name`."""

    def register(function: _FunctionT) -> _FunctionT:
        _COMMANDS[function.__name__.removeprefix("_")] = function, configs
        return function

    return register


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises its errors, where argparse prints a usage and exits."""

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(f"{message} (see `{self.prog} --help`)")


def run_command(name: str, words: Sequence[str]) -> int | None:
    """Run the command `name` with the words behind it; the exit code, None for 0."""
    function, configs = _COMMANDS[name]
    parser, flags = _make_parser(name, words)
    # argparse would only name unknown words; below they get a suggestion
    options, unknown = parser.parse_known_args(words)
    # Modules register the agents and environments that the other words name, so they come first.
    import_modules(options.modules)
    # Settings are read only where they are asked for: their modules import torch.
    if unknown:
        word = next((word for word in unknown if word.startswith("-")), unknown[0])
        following = [*words, ""][words.index(word) + 1]
        presets = configs(options) if configs is not None and word.startswith("-") else {}
        hint = _suggest(word, following, flags, options, presets)
        parser.error(f"unknown argument {shorten(word.partition('=')[0])}{hint}")
    if configs is not None:
        if options.help_settings:
            sys.stdout.write(_describe_settings(configs(options)) + "\n")
            return None
        given = options.settings
        options.settings = _read_settings(given, configs(options), flags) if given else {}
    hints = typing.get_type_hints(function)
    return function(**{key: _value(key, hints[key], options) for key in hints if key != "return"})


def _value(name: str, hint: Any, options: argparse.Namespace) -> Any:
    """Value of a parameter of this type; a group takes the values of its fields."""
    if not hasattr(hint, "_fields"):
        return getattr(options, name)
    hints = typing.get_type_hints(hint)
    return hint(*(_value(field, hints[field], options) for field in hint._fields))


def _parameters(function: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, Any]]:
    """Parameters of a command with their types, and the fields of groups in the place of these."""
    hints = typing.get_type_hints(function)
    for name, parameter in inspect.signature(function).parameters.items():
        if hasattr(hints[name], "_fields"):
            for field, hint in _parameters(hints[name]):
                yield field.replace(kind=parameter.KEYWORD_ONLY), hint
        else:
            yield parameter, hints[name]


def _make_parser(name: str, words: Sequence[str]) -> tuple[_Parser, list[str]]:
    """The parser of a command, and all of its flags."""
    function, configs = _COMMANDS[name]
    text, explained, examples = _read_docstring(function)
    parser = _Parser(
        prog=f"rover {name}",
        description=text,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # their meaning would change with every flag that is added
        allow_abbrev=False,
    )
    flags = ["--import", "--traceback"]
    for parameter, hint in _parameters(function):
        key = parameter.name
        options = _options_of(hint) | _BY_NAME.get(key, {})
        own_flags = options.pop("flags", ("--" + key.replace("_", "-"),))
        # What the docstring says of this command wins over what is said of all of them.
        metavar, help_text = explained.get(key, ("", options.get("help", "")))
        options |= {"metavar": metavar} if metavar else {}
        default = parameter.default
        # a default that shows nothing is explained in the text, if at all
        is_shown = default is not parameter.empty and str(default) not in ("None", "False", "()")
        if is_shown and "[default" not in help_text:
            help_text += f" [default: {default}]"
        options["help"] = help_text.replace("%", "%%")  # argparse formats help with %
        if parameter.kind is parameter.KEYWORD_ONLY:
            default = [] if default is parameter.empty else default
            parser.add_argument(*own_flags, dest=key, default=default, **options)
            flags += own_flags
        else:
            # Settings are listed without the words that a run needs.
            if default is not parameter.empty or "--help-settings" in words:
                options["nargs"] = "*" if "nargs" in options else "?"
            parser.add_argument(key, **options)
    if configs is not None:
        help_text = "list all settings with their values in each preset, and leave"
        parser.add_argument("--help-settings", action="store_true", help=help_text)
        flags.append("--help-settings")
    parser.add_argument(
        "--import",
        action="append",
        dest="modules",
        metavar="MODULE",
        default=[],
        help="import a module of yours that registers environments or agents, from the current "
        "folder or installed; may be repeated",
    )
    help_text = "show where an error comes from, for bug reports (also: ROVER_TRACEBACK=1)"
    parser.add_argument("--traceback", action="store_true", help=help_text)
    parser.set_defaults(command=name)
    return parser, flags


def _options_of(annotation: Any) -> dict[str, Any]:
    """Keyword arguments of ``add_argument`` for a parameter of this type."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    # From the outside in: a type that is known as a whole, then what it is made of.
    if annotation in _BY_TYPE:
        return dict(_BY_TYPE[annotation])
    if origin in (types.UnionType, typing.Union):
        return _options_of(next(kind for kind in inside if kind is not types.NoneType))
    if origin is typing.Literal:
        return {"choices": inside}
    if origin in (tuple, list):
        several = {"nargs": "+"} if origin is tuple else {"action": "append"}
        return _options_of(inside[0]) | several
    return {}  # the name of the parameter says all


def _read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, tuple[str, str]], str]:
    """The description, metavar and text of each argument, and the examples."""
    text, _, rest = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    if "\nAGENTS\n" in text:  # stands for a line on each agent
        lines = [f"  {name:8} {line}" for name, line in agent_summaries().items()]
        text = text.replace("\nAGENTS\n", "\n{}\n".format("\n".join(lines)))
    arguments, _, examples = rest.partition("\nExamples:\n")
    # NAME (METAVAR): text, and its further lines, which are indented by eight
    entries = re.findall(r"^    (\w+)(?: \((.+?)\))?: (.*(?:\n {8}.*)*)", arguments, re.M)
    explained = {name: (metavar, " ".join(lines.split())) for name, metavar, lines in entries}
    return text, explained, re.sub("^  ", "", examples, flags=re.M)


def _suggest(
    word: str,
    following: str,
    flags: Sequence[str],
    options: argparse.Namespace,
    presets: Mapping[str, BaseModel],
) -> str:
    """Suggestion for an unknown flag, before the word `following` it; empty if there is none."""
    flag, equals, value = word.partition("=")
    if not equals:
        value = "VALUE" if following.startswith("--") or not following else following
    # As settings and keywords are written: --batch_size and --batch-size are one wish.
    name = flag.lstrip("-").replace("-", "_")
    # Where such a name would be right. Later ones win: a setting over a keyword of the environment,
    # and that over a key of the task.
    uses: dict[str, str] = {}
    if "--task" in flags:
        uses |= {key: f"--task {key}" for key in _TASK_KEYS}
    if getattr(options, "env_id", None) is not None:
        uses |= {key: f"--env {key}" for key in _env_keywords(options.env_id)[0]}
    uses |= {key: f"--set {full_name}" for key, full_name in _setting_names(presets).items()}
    if name in uses:
        return f"; use {uses[name]}={shorten(value)[1:-1]}"
    if name.removeprefix("no_") in uses:
        return f"; use {uses[name.removeprefix('no_')]}=false"
    close = nearest(name.replace("_", "-"), [one[2:] for one in flags])
    return f"; did you mean --{close}?" if word.startswith("-") and close else ""


# --- settings -----------------------------------------------------------------------------------


def _read_settings(
    words: Sequence[str], presets: Mapping[str, BaseModel], flags: Collection[str]
) -> dict[str, Any]:
    """Settings by their dotted names; configurations check the values. `flags` belong to the
    command; no setting replaces them."""
    pairs = _split_pairs("--set", words, "checkpoint_every=1000")
    fields = {name: field for name, field, _ in _flatten(next(iter(presets.values())))}
    for name in pairs:
        if name not in fields:
            close = _setting_names(presets).get(name) or nearest(name, fields)
            hint = f"did you mean {close!r}?" if close else "--help-settings lists them"
            flag = "--" + name.replace("_", "-")
            hint = f"use {flag}" if flag in flags else hint
            raise ConfigurationError(f"unknown setting {shorten(name)}; {hint}")
    return {name: _plain(text, fields[name]) for name, text in pairs.items()}


def _setting_names(presets: Mapping[str, BaseModel]) -> dict[str, str]:
    """Full name of each setting, by itself, and by its last part where no other ends alike."""
    full = {name for config in presets.values() for name, _, _ in _flatten(config)}
    ends = Counter(name.rpartition(".")[2] for name in full)
    short = {name.rpartition(".")[2]: name for name in full}
    return {end: name for end, name in short.items() if ends[end] == 1} | {n: n for n in full}


def _describe_settings(presets: Mapping[str, BaseModel]) -> str:
    """All settings: name, type and range, values in the presets, meaning."""
    lines = []
    # One value where the presets agree: most settings differ in none of them.
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


def _members(field: FieldInfo) -> tuple[Any, ...]:
    """The types that a field allows."""
    is_union = typing.get_origin(field.annotation) in (typing.Union, types.UnionType)
    return typing.get_args(field.annotation) if is_union else (field.annotation,)


def _plain(text: str, field: FieldInfo) -> Any:
    """`text` as what a field of this type is validated from."""
    members = _members(field)
    if text in ("none", "null") and types.NoneType in members:
        return None
    if any(typing.get_origin(member) is tuple for member in members):
        return tuple(_parse_number(item.strip()) for item in text.strip("[]()").split(","))
    # a word that is no number, such as true, is left to the configuration
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


# --- words NAME=VALUE ----------------------------------------------------------------------------


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
    if not abs(value) < _LARGEST:  # nor is it nan
        return text
    return int(value) if value == int(value) else value


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


def read_env_kwargs(env_id: str, words: Sequence[str], observation: str | None) -> dict[str, Any]:
    """Keywords of an environment, of the types that it expects; `observation` is another way to say
    observation=NAME. The module in an id "module:Name-v0" is imported."""
    # Only what the user typed may have a module imported, never an id from a file.
    module, colon, _ = env_id.rpartition(":")
    if colon:
        import_modules([module])
    if observation is not None:
        words = [*words, f"observation={observation}"]
    pairs = _split_pairs("--env", words, "rooms=7")
    defaults, is_open = _env_keywords(env_id) if pairs else ({}, True)
    for name in pairs:
        if name not in defaults and not is_open:
            close = nearest(name, defaults)
            hint = f"did you mean {close!r}?" if close else f"it has {', '.join(defaults)}"
            raise ConfigurationError(f"{env_id} has no keyword {shorten(name)}; {hint}")
    return {name: _env_value(name, text, defaults.get(name)) for name, text in pairs.items()}


def _env_keywords(env_id: str) -> tuple[dict[str, Any], bool]:
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
    value: Any = _parse_number(text)
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
        choose("key of --task", key, _TASK_KEYS): text
        for key, text in _split_pairs("--task", words, "goal=room5").items()
    }
    if "horizon" in pairs:
        pairs["horizon"] = _parse_number(pairs["horizon"])
    from rover.finetuning import make_task

    return make_task(env_id, env_kwargs, **pairs)


# --- words of arguments --------------------------------------------------------------------------


def _whole_number(minimum: int, maximum: int = 2**63) -> Callable[[str], int]:
    """Whole numbers from `minimum` to `maximum`; 1e3 is one."""

    def convert(text: str) -> int:
        value = _parse_number(text)
        if not isinstance(value, int) or value < minimum:
            raise ArgumentTypeError(
                f"must be a whole number of at least {minimum}, not {shorten(text)}"
            )
        if value > maximum:
            raise ArgumentTypeError(f"must be at most {maximum:,}, not {shorten(text)}")
        return value

    return convert


def _number(text: str) -> float:
    value = _parse_number(text)
    if isinstance(value, str):
        raise ArgumentTypeError(f"must be a number, not {shorten(text)}")
    return float(value)


def _path(text: str) -> Path:
    # An empty word, as of a shell variable that is not set, would be the current folder.
    if not text:
        raise ArgumentTypeError("is empty; give the path of a file or folder")
    return Path(text)


def _existing_path(text: str) -> Path:
    path = _path(text)
    if not path.exists():
        raise ArgumentTypeError(
            f"{shorten(text)} does not exist; run folders usually lie under runs/"
        )
    return path


def _own_function(text: str) -> RewardFunction:
    """A function of the user's own, as MODULE:FUNCTION."""
    module, _, name = text.partition(":")
    if not module or not name:
        raise ArgumentTypeError(
            f"must be MODULE:FUNCTION, as in my_rewards:reward, not {shorten(text)}"
        )
    try:
        import_modules([module])
    except ConfigurationError as error:  # argparse would not show its text
        raise ArgumentTypeError(str(error)) from None
    function = getattr(sys.modules[module], name, None)
    if not callable(function):
        raise ArgumentTypeError(f"module {module} has no function {shorten(name)}")
    return cast(RewardFunction, function)


_BY_TYPE: dict[Any, dict[str, Any]] = {
    bool: {"action": "store_true"},
    int: {"type": _whole_number(1), "metavar": "N"},
    float: {"type": _number, "metavar": "X"},
    Path: {"type": _path, "metavar": "DIR"},
    str: {"metavar": "NAME"},
    list[str]: {"action": "append", "metavar": "NAME=VALUE"},
    dict[str, Any]: {"action": "append", "metavar": "NAME=VALUE"},
}
"""Keyword arguments of ``add_argument`` for parameters of a type."""

# Names in capitals in the docstring of a command stand in the place of this metavar.
_RUN = {"type": _existing_path, "metavar": "PATH"}

_BY_NAME: dict[str, dict[str, Any]] = {
    "path": _RUN,
    "paths": _RUN,
    "data": _RUN,
    "study": _RUN,
    "agent": {"flags": ("--agent", "--method")},
    "agents": {"flags": ("--agents", "--methods")},
    "as_json": {"flags": ("--json",), "help": "print one JSON object, and nothing else"},
    "dpi": {"type": _whole_number(30, 1200)},
    "env": {"help": "keyword of the environment, as in --env rooms=7; may be repeated"},
    "episodes": {"type": _whole_number(1, 10**5), "help": "episodes of a figure that is sampled"},
    "executor": {
        "help": "where runs are made: here, on a Ray cluster or by Slurm. Its settings are given "
        "with --set, and --help-settings lists them"
    },
    "formats": {
        "flags": ("--format",),
        # argparse's own list of the choices, in the place of NAME
        "choices": ("png", "svg", "pdf"),
        "metavar": None,
        "help": "file formats of the pictures, one or more [default: png]",
    },
    "goal": {
        "type": _own_function,
        "metavar": "MODULE:FUNCTION",
        "help": "function of yours, goal(observations) -> bool, that says which observations are "
        "goals: arriving at one is worth 1 and ends the task",
    },
    "jobs": {
        "type": _whole_number(1, 1024),
        "help": "runs side by side, each in a process and thread of its own [default: 2; Slurm: "
        "1000]",
    },
    "learner": {"flags": ("--agent",)},
    "log": {
        "help": "write scalars to the run folder too, for TensorBoard (pip install '.[tb]') or "
        "Weights & Biases (pip install '.[wandb]'; WANDB_MODE=offline for no account)"
    },
    "max_steps": {"type": _whole_number(1, 10**9)},
    "n_seeds": {"type": _whole_number(1, 10_000), "flags": ("--seeds",)},
    "no_progress": {"help": "draw no progress bar"},
    "observation": {
        "choices": OBSERVATIONS,
        "metavar": None,
        "help": "what the agent sees of a rover/... environment: its state's number, a one-hot "
        "vector or 84×84 pixels [default: state]",
    },
    "origin": {"flags": ("--from",)},
    "repeats": {
        "type": _whole_number(2, 10**4),
        "help": "sets of such episodes, for confidence intervals; 2 to 5 for roll-outs",
    },
    "reward": {
        "type": _own_function,
        "metavar": "MODULE:FUNCTION",
        "help": "function of yours, reward(observations, actions, next_observations) -> (rewards, "
        "terminated), that labels the transitions where no task of rover's does",
    },
    "run_dir": {"help": "folder of the run, which must not hold one [default: a new one in runs/]"},
    "seed": {
        "type": _whole_number(0),
        "help": "everything random follows from it; the same seed gives the same bits",
    },
    "seeds": {"type": _whole_number(0)},
    "settings": {
        "flags": ("--set",),
        "help": "single setting, as in --set learner.batch_size=64; may be repeated; "
        "--help-settings lists them",
    },
    "target": {
        "type": _own_function,
        "metavar": "MODULE:FUNCTION",
        "help": "function of yours, target(observations) -> weights, that returns the wanted share "
        "of each observation, relative to the others [default: all alike]",
    },
    "task": {
        "help": "goal=NAME or goal=X,Y of a rover/... environment, reward=sparse|dense (sparse: −1 "
        "per step and 0 at the goal), horizon=N; may be repeated. Without a goal the environment's "
        "own reward is learned. `rover envs ENV` lists the names of goals"
    },
    "world": {"flags": ("--env",)},
}
"""Further ones, and flags that are not --NAME, for parameters of a name."""
