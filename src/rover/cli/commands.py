"""Commands from functions: a signature gives the arguments, a docstring what the help says.

Parameters before ``*`` are words, those behind it flags; their types, and for arguments that have
the same meaning in every command their names, say how a word is read. In the docstring, "Args"
explains them, as ``name: text`` or ``name (METAVAR): text``, and "Examples" shows command lines.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

from pydantic import BaseModel

from rover.baselines import agent_summaries
from rover.cli.values import (
    ARGUMENTS,
    Argument,
    describe_settings,
    env_keywords,
    find_setting,
    read_settings,
    reader,
)
from rover.envs import import_modules
from rover.errors import ConfigurationError, nearest, shorten

Configs: TypeAlias = Callable[[argparse.Namespace], Mapping[str, BaseModel]]
"""From parsed options to the configuration of each preset that they allow."""

_IMPORT: dict[str, Any] = {
    "action": "append",
    "dest": "modules",
    "metavar": "MODULE",
    "default": [],
    "help": "import a module of yours that registers environments or agents, from the current "
    "folder or installed; may be repeated",
}


class _Command(NamedTuple):
    """A function, and the settings that its --set sets, if it has any."""

    function: Callable[..., int | None]
    configs: Configs | None


COMMANDS: dict[str, _Command] = {}

_FunctionT = typing.TypeVar("_FunctionT", bound=Callable[..., int | None])


def command(configs: Configs | None = None) -> Callable[[_FunctionT], _FunctionT]:
    """Decorator: make the function `_name` the command `name`."""

    def register(function: _FunctionT) -> _FunctionT:
        COMMANDS[function.__name__.removeprefix("_")] = _Command(function, configs)
        return function

    return register


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are ConfigurationErrors, and that takes no abbreviations."""

    def __init__(self, **options: Any) -> None:
        style = argparse.RawDescriptionHelpFormatter
        self.actions: list[argparse.Action] = []
        # No abbreviations: their meaning would change with every flag that is added.
        super().__init__(**options, formatter_class=style, allow_abbrev=False)

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument, and remember it."""
        self.actions.append(super().add_argument(*names, **options))
        return self.actions[-1]

    @property
    def flags(self) -> list[str]:
        """All flags of the command."""
        return [flag for action in self.actions for flag in action.option_strings]

    def format_help(self) -> str:
        """The help, with a line on each agent where the description asks for it."""
        text = super().format_help()
        if "\nAGENTS\n" in text:
            lines = (f"  {name:8} {line}" for name, line in agent_summaries().items())
            text = text.replace("\nAGENTS\n", "\n{}\n".format("\n".join(lines)))
        return text

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing a usage and leaving the process."""
        raise ConfigurationError(f"{message} (see `{self.prog} --help`)")


def run_command(name: str, words: Sequence[str]) -> int | None:
    """Run the command `name` with the words behind it; the exit code, None for 0.

    Raises:
        ConfigurationError: wrong, missing or unknown words.
    """
    function, configs = COMMANDS[name]
    imports = _Parser(prog=f"rover {name}", add_help=False)
    imports.add_argument("--import", **_IMPORT)
    # first, because agents and environments that they register are looked up by the other words
    import_modules(imports.parse_known_args(words)[0].modules)
    parser = _command_parser(name, function, configs)
    options = _parse(parser, configs, words)
    if configs is not None and options.help_settings:
        sys.stdout.write(describe_settings(configs(options)) + "\n")
        return None
    arguments = {name: getattr(options, name) for name in inspect.signature(function).parameters}
    if configs is not None:
        chosen = arguments["settings"]
        arguments["settings"] = (
            read_settings(chosen, configs(options), parser.flags) if chosen else {}
        )
    return function(**arguments)


def _command_parser(name: str, function: Callable[..., Any], configs: Configs | None) -> _Parser:
    text, arguments, examples = _read_docstring(function)
    parser = _Parser(prog=f"rover {name}", description=text, epilog=f"examples:\n{examples}")
    _add_arguments(parser, function, arguments)
    if configs is not None:
        text = "list all settings with their values in each preset, and leave"
        parser.add_argument("--help-settings", action="store_true", help=text)
    parser.add_argument("--import", **_IMPORT)
    text = "show where an error comes from, for bug reports (also: ROVER_TRACEBACK=1)"
    parser.add_argument("--traceback", action="store_true", help=text)
    parser.set_defaults(command=name)
    return parser


def _parse(parser: _Parser, configs: Configs | None, words: Sequence[str]) -> argparse.Namespace:
    """Parse the words of a command; what is unknown among them is explained."""
    if "--help-settings" in words:  # then no word needs to be given
        for action in parser.actions:
            action.required = False
    # argparse would only name unknown words; below they get a suggestion
    options, unknown = parser.parse_known_args(words)
    if unknown:
        word = next((word for word in unknown if word.startswith("-")), unknown[0])
        flag, _, hint = shorten(word.partition("=")[0]), "", ""
        if word.startswith("-"):
            presets = {} if configs is None else configs(options)
            following = [*words, ""][words.index(word) + 1]
            hint = _explain(word, following, parser, options, presets)
        parser.error(f"unknown argument {flag}{hint and '; '}{hint}")
    return options


def _explain(
    word: str,
    following: str,
    parser: _Parser,
    options: argparse.Namespace,
    presets: Mapping[str, BaseModel],
) -> str:
    """Suggestion for an unknown flag, before the word `following` it."""
    flag, equals, value = word.partition("=")
    if not equals:
        value = "VALUE" if following.startswith("--") or not following else following
    # As settings and keywords are written: --batch_size and --batch-size are one wish.
    name = flag.lstrip("-").replace("-", "_")
    # settings come first: a flag of that name is what people try
    match = find_setting(name, presets) or find_setting(name.removeprefix("no_"), presets)
    if match is not None:
        setting, is_flag = match
        value = str(not name.startswith("no_")).lower() if is_flag and not equals else value
        return f"use --set {setting}={shorten(value)[1:-1]}"
    if "--task" in parser.flags and name in ("goal", "reward", "horizon"):
        return f"use --task {name}={shorten(value)[1:-1]}"
    env_id = getattr(options, "env_id", None)
    if env_id is not None and name in env_keywords(env_id)[0]:
        return f"use --env {name}={shorten(value)[1:-1]}"
    if name == "steps" and "--updates" in parser.flags:
        return "use --updates N"
    if name in ("method", "agent") and "--algorithm" in parser.flags:
        return f"use --algorithm {shorten(value)[1:-1]}"
    close = nearest(
        name.replace("_", "-"), [one[2:] for one in parser.flags if one.startswith("--")]
    )
    return f"did you mean --{close}?" if close else ""


def _read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, tuple[str, str]], str]:
    """The description, metavar and text of each argument, and the examples."""
    text, _, rest = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    arguments, _, examples = rest.partition("\nExamples:\n")
    # NAME (METAVAR): text, and its further lines, which are indented by eight
    entries = re.findall(r"^    (\w+)(?: \((.+?)\))?: (.*(?:\n {8}.*)*)", arguments, re.M)
    explained = {name: (metavar, " ".join(lines.split())) for name, metavar, lines in entries}
    return text, explained, re.sub("^  ", "", examples, flags=re.M)


def _add_arguments(
    parser: _Parser, function: Callable[..., Any], explained: Mapping[str, tuple[str, str]]
) -> None:
    """One argument per parameter of the function."""
    hints = typing.get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        argument = ARGUMENTS.get(name, Argument())
        metavar, text = explained.get(name, ("", argument.help))
        options, default = _argparse_options(argument, hints[name]), parameter.default
        options |= {"metavar": metavar} if metavar else {}
        # a default that shows nothing is explained in the text, if at all
        is_shown = default is not parameter.empty and str(default) not in ("None", "False", "()")
        if is_shown and "[default" not in text:
            text += f" [default: {default}]"
        if parameter.kind is parameter.KEYWORD_ONLY:
            flags = argument.flags or ("--" + name.replace("_", "-"),)
            default = [] if default is parameter.empty else default
            options |= {"dest": name, "default": default}
        else:
            flags = (name,)
            several = "*" if options.get("nargs") == "+" else "?"
            options |= {} if default is parameter.empty else {"nargs": several}
        # argparse formats help with %
        parser.add_argument(*flags, help=text.replace("%", "%%"), **options)


def _argparse_options(argument: Argument, annotation: Any) -> dict[str, Any]:
    """Options of argparse for an argument of this type."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        inner = next(kind for kind in inside if kind is not types.NoneType)
        return _argparse_options(argument, inner)
    if annotation is bool:
        return {"action": "store_true"}
    if annotation in (list[str], dict[str, Any]):
        return {"action": "append", "metavar": "NAME=VALUE"}
    if origin in (tuple, list):
        several = {"nargs": "+"} if origin is tuple else {"action": "append"}
        return _argparse_options(argument, inside[0]) | several
    read, metavar = reader(argument, annotation)

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ConfigurationError as error:  # argparse says of which argument
            raise argparse.ArgumentTypeError(str(error)) from None

    return {"type": convert, "metavar": metavar}
