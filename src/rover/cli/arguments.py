"""Arguments that the commands share, and how wrong ones are reported."""

from __future__ import annotations

import argparse
import difflib
import json
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from pydantic.fields import FieldInfo

from rover.baselines.methods import METHOD_ENTRIES
from rover.coverage.config import PAPER, PHASES, RoverConfig
from rover.envs import ENVIRONMENTS, OBSERVATIONS
from rover.errors import ConfigurationError

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
"""What a command's parser is added to."""

_NO_SETTINGS = {"env": "ENV", "preset": "--preset", "seed": "--seed", "run_dir": "--run-dir"}
_NO_SETTINGS |= {"method": "--method", "env_kwargs": "--env-kwargs", "self": "no flag"}
"""What an agent is made with that is no setting of its method, and the flag for it."""

_SETTING = "setting."
"""Prefix under which the settings of RoverConfig lie among the parsed options."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are ConfigurationErrors, and that takes no abbreviations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **options,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing a usage and leaving the process."""
        raise ConfigurationError(f"{message} (see `{self.prog} --help`)")

    @property
    def flags(self) -> list[str]:
        """Every flag of this parser."""
        return list(self._option_string_actions)


def add_command(
    commands: Commands, name: str, *, summary: str, description: str, examples: str
) -> Parser:
    """A subparser with the options that every command has."""
    parser: Parser = commands.add_parser(
        name, help=summary, description=description, epilog=f"examples:\n{examples}"
    )
    parser.add_argument(
        "--traceback",
        action="store_true",
        help="show where an error comes from, for bug reports (also: ROVER_TRACEBACK=1)",
    )
    parser.set_defaults(parser=parser)
    return parser


def parse(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line.

    Raises:
        ConfigurationError: wrong or unknown arguments; the message names the nearest known flag.
    """
    options, unknown = parser.parse_known_args(words)
    command = getattr(options, "parser", parser)
    if unknown:
        word = next((w for w in unknown if w.startswith("-")), unknown[0])
        flag = word.partition("=")[0]
        close = difflib.get_close_matches(flag.replace("_", "-"), command.flags, n=1)
        hint = f"; did you mean {close[0]}?" if close and word.startswith("-") else ""
        command.error(f"unknown argument {flag!r}{hint}")
    if options.command is None:
        parser.error("no command given")
    return options


def whole_number(minimum: int) -> typing.Callable[[str], int]:
    """A type of arguments: whole numbers from `minimum`."""

    def convert(text: str) -> int:
        try:
            value = int(text.replace("_", ""))
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise argparse.ArgumentTypeError(
                f"must be a whole number of at least {minimum}, not {text!r}"
            )
        return value

    return convert


def add_progress_options(parser: Parser) -> None:
    """Options of the commands that take long."""
    parser.add_argument("--no-progress", action="store_true", help="draw no progress bar")


def add_tensorboard_option(parser: Parser) -> None:
    """The option that writes scalars for TensorBoard."""
    parser.add_argument(
        "--tensorboard",
        action="store_true",
        help="write scalars to RUN/tensorboard too (needs: pip install 'rover-rl[tb]')",
    )


def add_env_options(parser: Parser) -> None:
    """Options that say how an environment is made."""
    parser.add_argument(
        "--observation",
        choices=list(OBSERVATIONS),
        help="what the agent sees of a rover/... environment: its state's number, a one-hot vector "
        "or 84×84 pixels [default: state]",
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="keyword of the environment, as in --env rooms=7; may be repeated",
    )
    parser.add_argument(
        "--env-kwargs",
        metavar="JSON",
        help="""keywords of the environment as JSON, as in '{"rooms": 7, "slip": 0.1}'""",
    )


def read_env_kwargs(options: argparse.Namespace, env_id: str) -> dict[str, Any]:
    """Keywords of the environment from --env-kwargs, --env and --observation.

    Raises:
        ConfigurationError: not JSON, not KEY=VALUE, or a keyword given twice.
    """
    kwargs: dict[str, Any] = {}
    if options.env_kwargs is not None:
        try:
            parsed = json.loads(options.env_kwargs)
        except ValueError as error:
            raise ConfigurationError(
                f"--env-kwargs {options.env_kwargs!r} is not JSON: {error}; write it as in "
                """'{"rooms": 7}', or use --env rooms=7"""
            ) from error
        if not isinstance(parsed, dict):
            raise ConfigurationError(
                f"--env-kwargs must be a JSON object as in '{{\"rooms\": 7}}', not "
                f"{options.env_kwargs!r}"
            )
        kwargs.update(parsed)
    named = [key_and_value("--env", word, "rooms=7") for word in options.env]
    if options.observation is not None:
        if env_id.rpartition(":")[2] not in ENVIRONMENTS:
            raise ConfigurationError(
                f"--observation is for rover's own environments, and {env_id!r} is not one of "
                "them; give its own keywords with --env KEY=VALUE"
            )
        named.append(("observation", options.observation))
    for key, value in named:
        if key in kwargs:
            raise ConfigurationError(f"the environment's keyword {key!r} is given twice")
        kwargs[key] = value
    return kwargs


def key_and_value(flag: str, word: str, example: str) -> tuple[str, Any]:
    """KEY and VALUE of a word KEY=VALUE; the value is read as JSON where it is JSON.

    Raises:
        ConfigurationError: it is not of that form.
    """
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise ConfigurationError(f"{flag} {word!r} must be KEY=VALUE, as in {flag} {example}")
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text  # a word that is not JSON stands for itself


def add_method_options(parser: Parser) -> None:
    """Options that choose a method, and settings of every method but ROVER."""
    group = parser.add_argument_group(
        "method", "\n".join(f"{name:8} {entry.summary}" for name, entry in METHOD_ENTRIES.items())
    )
    group.add_argument(
        "--method",
        choices=list(METHOD_ENTRIES),
        default="rover",
        help="what pretrains [default: rover]",
    )
    group.add_argument(
        "--set",
        dest="peer_settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of a method other than ROVER, as in --set policy_every=1000; learners with "
        "an intrinsic reward have two groups: --set learner.batch_size=64 --set intrinsic.k=5; "
        "may be repeated",
    )


def add_settings(parser: Parser) -> None:
    """One flag per field of RoverConfig, by phase, with the field's own description."""
    group = None
    for name, field in RoverConfig.model_fields.items():
        if name in PHASES or group is None:
            group = parser.add_argument_group(f"settings: {PHASES[name]}")
        flag = "--" + name.replace("_", "-")
        text = f"{field.description} {_defaults_of(name, field)}".replace("%", "%%").strip()
        if field.annotation is bool:
            group.add_argument(
                flag,
                dest=_SETTING + name,
                action=argparse.BooleanOptionalAction,
                default=argparse.SUPPRESS,
                help=text,
            )
        else:
            group.add_argument(
                flag,
                dest=_SETTING + name,
                default=argparse.SUPPRESS,
                metavar=_metavar(field.annotation),
                help=text,
            )


def read_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given; the configuration of the method converts and checks them.

    Raises:
        ConfigurationError: settings of ROVER for another method, or the other way round.
    """
    given = {
        key.removeprefix(_SETTING): value
        for key, value in vars(options).items()
        if key.startswith(_SETTING)
    }
    if options.method != "rover":
        if given:
            raise ConfigurationError(
                f"--{next(iter(given)).replace('_', '-')} is a setting of ROVER; those of method "
                f"{options.method!r} are given with --set, as in --set policy_every=1000"
            )
        return _read_peer_settings(options.peer_settings)
    if options.peer_settings:
        raise ConfigurationError(
            f"--set {options.peer_settings[0]} is for the methods other than ROVER; its settings "
            "have flags of their own, as in --discount 0.95"
        )
    return {name: _plain(value, RoverConfig.model_fields[name]) for name, value in given.items()}


def _read_peer_settings(words: Sequence[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for word in words:
        key, value = key_and_value("--set", word, "learner.batch_size=64")
        if key in settings:
            raise ConfigurationError(f"the setting {key!r} is given twice")
        if key in _NO_SETTINGS:
            raise ConfigurationError(f"{key!r} is no setting of a method: use {_NO_SETTINGS[key]}")
        settings[key] = value
    return settings


def _plain(value: Any, field: FieldInfo) -> Any:
    choices = typing.get_args(field.annotation)
    if value == "none" and types.NoneType in choices:
        return None
    if typing.get_origin(field.annotation) is tuple:
        return tuple(value.split(","))
    return value


def _metavar(annotation: Any) -> str:
    """What stands for the value in the help text."""
    if typing.get_origin(annotation) is tuple:
        return "N,N,..."
    if typing.get_origin(annotation) is typing.Literal:
        return "{" + ",".join(map(str, typing.get_args(annotation))) + "}"
    kinds = [kind for kind in typing.get_args(annotation) if kind is not types.NoneType]
    if kinds:
        return _metavar(kinds[0])
    return {int: "N", float: "X"}.get(annotation, "VALUE")


def _defaults_of(name: str, field: FieldInfo) -> str:
    parts = [] if field.default is None else [f"default: {_shown(field.default)}"]
    parts += [f"paper: {_shown(PAPER[name])}"] if name in PAPER else []
    return f"[{'; '.join(parts)}]" if parts else ""


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def existing_path(text: str) -> Path:
    """A file or folder that is there.

    Raises:
        ConfigurationError: it is not.
    """
    path = Path(text)
    if not path.exists():
        raise ConfigurationError(f"{text!r} does not exist; run folders usually lie under runs/")
    return path
