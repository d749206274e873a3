"""Arguments that several commands have: their types, help, and how their words are read."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import gymnasium as gym
from cyclopts import Parameter, Token
from cyclopts.validators import Number
from gymnasium.envs.registration import load_env_creator

from rover.cli.runs import free_folder
from rover.envs import LAYOUT_FAMILIES, import_modules, known_id
from rover.errors import ConfigurationError, choose, nearest, shorten

if TYPE_CHECKING:
    from rover.finetuning import Task

_TASK_KEYS = ("goal", "reward", "horizon")
_KINDS: dict[Any, str] = {
    bool: "true or false",
    (int, float): "a number",
    (list, tuple): "a list, as in [1, 2]",
}

# Words that stand for values of JSON; those of Python are in documentation of environments.
_WORDS = {"none": "null", "None": "null", "True": "true", "False": "false"}


def _whole(_: Any, tokens: Sequence[Token]) -> int:
    value = _read_value(tokens[0].value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {shorten(tokens[0].value)}")
    return value


def _path(_: Any, tokens: Sequence[Token]) -> Path:
    # An empty word, as of a shell variable that is not set, would be the current folder.
    if not tokens[0].value:
        raise ValueError("is empty; give the path of a file or folder")
    return Path(tokens[0].value)


def _existing(_: Any, tokens: Sequence[Token]) -> Path:
    path = _path(_, tokens)
    if not path.exists():
        raise ValueError(
            f"{shorten(str(path))} does not exist; run folders usually lie under runs/"
        )
    return path


def _function(_: Any, tokens: Sequence[Token]) -> Callable[..., Any]:
    """A function of the user's own, as MODULE:FUNCTION."""
    module, _, name = tokens[0].value.partition(":")
    if not module or not name:
        raise ValueError(
            f"must be MODULE:FUNCTION, as in my_rewards:reward, not {shorten(tokens[0].value)}"
        )
    import_modules([module])
    function = getattr(sys.modules[module], name, None)
    if not callable(function):
        raise ValueError(f"module {module} has no function {shorten(name)}")
    return function  # type: ignore[no-any-return]


def _number(least: int, most: int, **options: Any) -> Parameter:
    limits = Number(gte=least, lte=most)
    return Parameter(converter=_whole, validator=limits, metavar="N", **options)


def _pairs(name: str, text: str) -> Parameter:
    text = f"{text}; may be repeated"
    return Parameter(name=name, metavar="NAME=VALUE", show_default=False, help=text)


def _several(name: str, text: str) -> Parameter:
    return Parameter(name=name, consume_multiple=True, show_default=False, help=text)


_Words: TypeAlias = tuple[str, ...]
_LARGEST = 2**63 - 1  # of generators, files and columns of int64

Flag: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]
Count: TypeAlias = Annotated[int, _number(1, _LARGEST)]
Episodes: TypeAlias = Annotated[int, _number(1, 10**5, help="episodes of a figure that is sampled")]
Seed: TypeAlias = Annotated[
    int,
    _number(
        0, _LARGEST, help="everything random follows from it; the same seed gives the same bits"
    ),
]
Folder: TypeAlias = Annotated[Path, Parameter(converter=_path, metavar="DIR")]
Run: TypeAlias = Annotated[Path, Parameter(name="RUN", converter=_existing, required=True)]
OwnFunction: TypeAlias = Annotated[
    Callable[..., Any],
    Parameter(converter=_function, n_tokens=1, accepts_keys=False, metavar="MODULE:FUNCTION"),
]
Env: TypeAlias = Annotated[
    _Words, _pairs("--env", "keyword of the environment, as in --env rooms=7")
]
Settings: TypeAlias = Annotated[
    _Words,
    _pairs("--set", "setting, as in --set learner.batch_size=64; `rover settings` lists them"),
]
TaskWords: TypeAlias = Annotated[
    _Words,
    _pairs(
        "--task",
        "goal=NAME or goal=X,Y of a rover/... environment (`rover envs ENV` lists names), "
        "reward=sparse|dense (sparse: −1 per step and 0 at the goal), horizon=N. Without a goal "
        "the environment's own reward is learned",
    ),
]
Observation: TypeAlias = Annotated[
    Literal["state", "onehot", "pixels"],
    Parameter(help="of a rover/... environment: --env observation=... [default: state]"),
]
Formats: TypeAlias = Annotated[
    tuple[Literal["png", "svg", "pdf"], ...],
    _several("--format", "file formats of the figures, one or more [default: png]"),
]
Logs: TypeAlias = Annotated[
    tuple[Literal["tensorboard", "wandb"], ...],
    _several(
        "--log",
        "write scalars to the run folder too, for TensorBoard (pip install '.[tb]') or "
        "Weights & Biases (pip install '.[wandb]'; WANDB_MODE=offline for no account)",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Watching:
    """Flags of every command that learns."""

    log: Logs = ()
    progress: Annotated[bool, Parameter(show_default=False, help="draw a progress bar")] = True

    def arguments(self) -> dict[str, Any]:
        """Arguments of what learns."""
        return {"progress_bar": self.progress, "log": self.log}


@Parameter(name="*")
@dataclass(frozen=True)
class Making(Watching):
    """Flags of every command that makes a run."""

    settings: Settings = ()
    seed: Seed = 0
    run_dir: Annotated[
        Folder | None,
        Parameter(help="folder of the run, which must not hold one [default: a new one in runs/]"),
    ] = None

    def options(self, name: str) -> dict[str, Any]:
        """Arguments of what learns, with settings of the agent or learner `name`."""
        settings = read_settings(self.settings, name)
        return {"seed": self.seed, **self.arguments(), **settings}

    def folder(self, *parts: str) -> Path:
        """The folder of the run: the one that was given, or a new one named after `parts`."""
        return self.run_dir or free_folder(*parts, f"seed{self.seed}")


WATCHING, MAKING = Watching(), Making()


# --- NAME=VALUE ----------------------------------------------------------------------------------


def _read_value(text: str) -> Any:
    """`text` as JSON, or as the word that it is; 1e3 is a whole number."""
    try:
        value = json.loads(_WORDS.get(text, text))
    except (ValueError, RecursionError):
        return text
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value


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


def read_settings(words: Sequence[str], name: str = "") -> dict[str, Any]:
    """Settings by their dotted names, which `name`, an agent or a learner, must have."""
    pairs = _split_pairs("--set", words, "checkpoint_every=1000")
    if pairs and name:
        from rover.cli.settings import setting_rows, settings_of

        known = [row[0] for row in setting_rows(settings_of(name))]
        for setting in pairs:
            if setting not in known:
                close = nearest(setting, known)
                hint = f"did you mean {close!r}?" if close else f"`rover settings {name}` lists all"
                raise ConfigurationError(f"unknown setting {shorten(setting)}; {hint}")
    return {setting: _read_value(text) for setting, text in pairs.items()}


def read_env_kwargs(
    env_id: str, words: Sequence[str], observation: str | None = None
) -> dict[str, Any]:
    """Keywords of an environment; `observation` is another way to give observation=NAME. The module
    in an id "module:Name-v0" is imported."""
    # Only what the user typed may have a module imported, never an id from a file.
    module, colon, _ = env_id.rpartition(":")
    if colon:
        import_modules([module])
    if observation is not None:
        words = [*words, f"observation={observation}"]
    pairs = _split_pairs("--env", words, "rooms=7")
    defaults, takes_others = _env_keywords(env_id) if pairs else ({}, True)
    for name in pairs:
        if not takes_others:
            choose(f"keyword of {env_id}", name, defaults)
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
    takes_others = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    parameters |= {} if family is None else inspect.signature(family.make).parameters
    defaults = {
        name: None if one.default is one.empty else one.default
        for name, one in parameters.items()
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    return {"max_episode_steps": 0, **defaults, **spec.kwargs}, takes_others and family is None


def _env_value(name: str, text: str, default: Any) -> Any:
    """`text` as a value of the type of a keyword's default."""
    value = _read_value(text)
    if isinstance(default, str) and value is not None:
        return text
    # None has no type; true and false are no numbers.
    for kind, wanted in _KINDS.items():
        if value is not None and isinstance(default, kind):
            if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
                raise ConfigurationError(f"--env {name}={shorten(text)}: must be {wanted}")
            break
    return value


# --- tasks ---------------------------------------------------------------------------------------


def read_task_of(path: Path, words: Sequence[str]) -> Task:
    """The task that --task describes, on the environment of the pretrained run in `path`."""
    from rover.storage import read_run_config

    run_config = read_run_config(path, kind="pretrain")
    # known_id refuses "module:Name-v0": no file can have code imported.
    env_id = known_id(run_config.env_id, path, "give its task to rover.train_offline")
    return read_task(words, env_id, run_config.env_kwargs)


def read_task(words: Sequence[str], env_id: str, env_kwargs: Mapping[str, Any]) -> Task:
    """The task that --task describes, on an environment."""
    pairs: dict[str, Any] = {
        choose("key of --task", key, _TASK_KEYS): text
        for key, text in _split_pairs("--task", words, "goal=room5").items()
    }
    if "horizon" in pairs:
        pairs["horizon"] = _read_value(pairs["horizon"])
    from rover.finetuning import make_task

    return make_task(env_id, env_kwargs, **pairs)
