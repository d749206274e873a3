"""Arguments that several commands have: their types, help, and how their words are read."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter, Token
from cyclopts.validators import Number
from cyclopts.validators import Path as PathValidator

from rover.envs import import_modules, known_id
from rover.errors import choose, shorten

if TYPE_CHECKING:
    from rover.finetuning import Task

_TASK_KEYS = ("goal", "reward", "horizon")

# Words for values of JSON; documentation of environments has Python's.
_WORDS = {"none": "null", "None": "null", "True": "true", "False": "false"}


def _read_value(text: str) -> Any:
    """`text` as JSON, or as the word that it is; 1e3 is a whole number."""
    try:
        value = json.loads(_WORDS.get(text, text))
    except (ValueError, RecursionError):
        return text
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value


def _whole(_: Any, tokens: Sequence[Token]) -> int:
    value = _read_value(tokens[0].value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {shorten(tokens[0].value)}")
    return value


def _env_id(_: Any, tokens: Sequence[Token]) -> str:
    """An id, whose module is imported if it names one: "module:Name-v0"."""
    # Only what the user typed may have a module imported, never an id from a file.
    module, colon, _ = tokens[0].value.rpartition(":")
    if colon:
        import_modules([module])
    return tokens[0].value


def _function(_: Any, tokens: Sequence[Token]) -> Callable[..., Any]:
    """A function of the user's own, as MODULE:FUNCTION."""
    module, _, name = tokens[0].value.partition(":")
    import_modules([module])
    function = getattr(sys.modules[module], name, None)
    if not callable(function):
        raise ValueError(f"module {module} has no function {shorten(name)}")
    return function  # type: ignore[no-any-return]


def _pairs(_: Any, tokens: Sequence[Token]) -> Pairs:
    """Names and values of words NAME=VALUE."""
    pairs: dict[str, Any] = {}
    for token in tokens:
        name, equals, text = token.value.partition("=")
        if not equals or not name:
            raise ValueError(f"{token.keyword} {shorten(token.value)} must be NAME=VALUE")
        pairs[name] = _read_value(text)
    return tuple(pairs.items())


def _number(least: int, most: int | None = None, **options: Any) -> Parameter:
    limits = Number(gte=least, lte=most)
    return Parameter(converter=_whole, validator=limits, metavar="N", **options)


def _named(flag: str, text: str) -> Parameter:
    return Parameter(
        name=flag,
        metavar="NAME=VALUE",
        help=f"{text}; may be repeated",
        converter=_pairs,
        n_tokens=1,
        accepts_keys=False,
        show_default=False,
    )


def _several(name: str, text: str) -> Parameter:
    return Parameter(name=name, consume_multiple=True, show_default=False, help=text)


Pairs: TypeAlias = tuple[tuple[str, Any], ...]
Flag: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]
Progress: TypeAlias = Annotated[bool, Parameter(show_default=False, help="draw a progress bar")]
Count: TypeAlias = Annotated[int, _number(1)]
Episodes: TypeAlias = Annotated[int, _number(1, 10**5, help="episodes of a figure that is sampled")]
Seed: TypeAlias = Annotated[int, _number(0, help="everything random follows from it")]
Folder: TypeAlias = Annotated[Path, Parameter(metavar="DIR")]
Run: TypeAlias = Annotated[
    Path, Parameter(name="RUN", validator=PathValidator(exists=True), required=True)
]
EnvId: TypeAlias = Annotated[str, Parameter(name="ENV", converter=_env_id)]
OwnFunction: TypeAlias = Annotated[
    Callable[..., Any],
    Parameter(converter=_function, n_tokens=1, accepts_keys=False, metavar="MODULE:FUNCTION"),
]
Env: TypeAlias = Annotated[Pairs, _named("--env", "keyword of the environment, as rooms=7")]
Settings: TypeAlias = Annotated[
    Pairs, _named("--set", "setting, as learner.batch_size=64; `rover settings` lists them")
]
TaskPairs: TypeAlias = Annotated[
    Pairs,
    _named(
        "--task",
        "goal=NAME or goal=X,Y of a rover/... environment, reward=sparse|dense (sparse: −1 per "
        "step and 0 at the goal), horizon=N. Without a goal the environment's own reward is meant",
    ),
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
class Making:
    """Flags of every command that makes a run."""

    settings: Settings = ()
    seed: Seed = 0
    run_dir: Annotated[
        Folder | None,
        Parameter(help="folder of the run, which must not hold one [default: a new one in runs/]"),
    ] = None
    log: Logs = ()
    progress: Progress = True

    def folder(self, *parts: str) -> Path:
        """The folder of the run: the one that was given, or a new one under runs/ named after
        `parts`, ids of environments or words, and numbered if that is taken."""
        if self.run_dir is not None:
            return self.run_dir
        name = "-".join(re.sub(r"[^\w.-]+", "-", part.rpartition(":")[2]) for part in parts)
        folder, number = Path("runs") / name, 2
        while folder.exists():
            folder, number = Path("runs") / f"{name}-{number}", number + 1
        return folder


def task_of(path: Path, pairs: Pairs) -> Task:
    """The task that --task describes, on the environment of the pretrained run in `path`."""
    from rover.finetuning import Task
    from rover.storage import read_run_config

    run_config = read_run_config(path, kind="pretrain")
    # known_id refuses "module:Name-v0": no file can have code imported.
    env_id = known_id(run_config.env_id, path)
    task = {choose("key of --task", key, _TASK_KEYS): value for key, value in pairs}
    if "goal" in task:
        task["goal"] = str(task["goal"])
    return Task.make(env_id, run_config.env_kwargs, **task)
