"""A study as data: what is run, and what its tables and pictures show.

A study is a TOML file. What varies are its axes, each with named options; an option says what it
changes of a run, and every block of ``[[runs]]`` is a product of options::

    title = "Settings"
    run = { env = "rover/Maze-v0", steps = 3000, seeds = [0, 1, 2] }

    [axes.problem]
    small = { title = "a small step", settings = { ridge = 1e-4 } }
    large = { settings = { ridge = 1e-2 } }

    [tables."At the end"]
    rows = ["problem"]
    figures = ["optimality_ratio", "wall_seconds"]

Without ``[[runs]]`` all options are combined. ``extends`` names another file, or several, whose
axes, runs, tables and texts it takes over: a path, or without ``.toml`` one of this package, as
``"comparison"``. ``[scales.NAME]`` says what the study changes when it is run at that scale.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rover.baselines import agent_names, preset_of
from rover.errors import ConfigurationError, choose
from rover.finetuning.config import AdaptConfig
from rover_bench.metrics import METRICS
from rover_bench.pictures import ComparisonPicture
from rover_bench.statistics import STATISTICS

SCRATCH: Final = "scratch"
"""The agent of runs that learn a task from nothing."""

# Characters of the name of a file or folder, which file systems bound at 255 bytes.
_MAX_NAME: Final = 100

CURVE: Final = ("step", "mean", "low", "high")
"""Columns of curves.csv, in the order of the fields of a mean curve."""

# Columns of the CSV files beside the axes.
_COLUMNS: Final = frozenset(
    {"env", "steps", "seed", "runs", "figure", "limit", "not_reached", *CURVE, *METRICS}
    | {f"{name}{end}" for name in STATISTICS for end in ("", "_low", "_high")}
    | {"lower_quartile", "upper_quartile"}
)


def _file_name(name: str) -> str:
    if Path(name).name != name or "\\" in name or name.startswith(".") or not name.isprintable():
        raise ValueError(
            f"{name!r} is not the name of a file: files stay in the folder of the page"
        )
    return name


def _folder(path: str) -> str:
    if path != "" and not all(_file_name(part) for part in path.split("/")):
        raise ValueError(f"{path!r} is not a folder below the folder of all runs")
    return path


def _distinct(seeds: tuple[int, ...]) -> tuple[int, ...]:
    # Two runs of one seed are the same bits, and would make every interval too narrow.
    if len(set(seeds)) < len(seeds):
        raise ValueError("a seed is there twice, and its run would count twice")
    return seeds


_Labels = tuple[str, ...]
_FileName = Annotated[str, AfterValidator(_file_name)]
_VisibleName = Annotated[str, Field(pattern=r"\S")]
_Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**63)], ...],
    Field(min_length=1),
    AfterValidator(_distinct),
]
Statistic = Literal["median", "median and range", "mean", "mean and error", "iqm", "iqm and mean"]
_Fact = Literal["env", "observation", "reward", "goal", "preset", "steps", "runs"]


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def make(cls, content: Mapping[str, Any]) -> Self:
        """The object with this content, or one line that says what is wrong with it."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()]
            raise ConfigurationError("; ".join(problems)) from None


class Learning(_Data):
    """Learning a task from what pretraining left.

    Attributes:
        goal: name of the goal; None for the environment's own reward.
        reward: of tasks with a goal.
        algorithm: the learner; "plan" for adapting, by planning on the model of pretraining.
        transfer: what an actor-critic takes over: policy, encoder, both or values.
        offline: whether it learns from the transitions of pretraining, and not by interacting.
        steps: environment steps, or updates of an offline learner.
        preset: of the learner.
        settings: those that differ from the preset, by dotted name.
    """

    goal: str | None = None
    reward: Literal["sparse", "dense"] = "sparse"
    algorithm: str = "ddpg"
    transfer: Literal["policy", "encoder", "both"] = "policy"
    offline: bool = False
    steps: int = Field(ge=1)
    preset: str = "fast"
    settings: dict[str, Any] = {}

    @property
    def kind(self) -> Literal["finetune", "adapt", "offline"]:
        """Kind of its run folder."""
        if self.offline:
            return "offline"
        return "adapt" if self.algorithm in AdaptConfig.learners else "finetune"


class Case(_Data):
    """Runs that differ in their seeds only.

    Attributes:
        labels: the option that it has of each axis.
        env: id of the environment.
        env_kwargs: its keyword arguments.
        agent: name of the agent; "scratch" for a task that is learned from nothing.
        preset: of the agent; empty for its default one.
        settings: of the agent, where they differ from the preset.
        steps: environment steps of pretraining.
        seeds: of the runs.
        learn: the task that is learned afterwards; None for none.
        folder: of its runs, below the folder of all runs; empty: named after what is run, so that
            studies share their runs.
    """

    labels: dict[str, str] = {}
    env: str
    env_kwargs: dict[str, Any] = {}
    agent: str = "rover"
    preset: str = ""
    settings: dict[str, Any] = {}
    steps: int = Field(ge=1)
    seeds: _Seeds
    learn: Learning | None = None
    folder: Annotated[str, AfterValidator(_folder)] = ""

    @property
    def name(self) -> str:
        """Name in progress lines and failures."""
        return ", ".join(self.labels.values())

    def options(self, axes: Iterable[str]) -> dict[str, str]:
        """The option that it has of each of these axes, empty where it has none."""
        return {axis: self.labels.get(axis, "") for axis in axes}

    @property
    def budget(self) -> int:
        """Steps of each run that the study is about: of the task, where one is learned."""
        return self.steps if self.learn is None else self.learn.steps

    @property
    def env_name(self) -> str:
        """The environment and its keyword arguments as the name of a folder."""
        words = [f"{key}-{value}" for key, value in sorted(self.env_kwargs.items())]
        # The namespace is part of most ids and needs no digest: `Study.cases` refuses the two ids
        # that a dash in its place would make one.
        return _name("-".join([self.env.rpartition(":")[2].replace("/", "-", 1), *words]))

    @property
    def problem(self) -> str:
        """The environment with its keyword arguments, equal for equal ones only."""
        return json.dumps([self.env, self.env_kwargs], sort_keys=True)

    @property
    def identity(self) -> str:
        """Content of its runs, whatever they are called; cases with equal ones share their runs."""
        # Names and folders are the study's own; everything else says what the runs are. The
        # default preset and its name are one: studies that name it share runs with those that not.
        what = self.model_dump(exclude={"labels", "seeds", "folder"})
        if self.agent != SCRATCH:
            what["preset"] = preset_of(self.agent, self.preset)
        return json.dumps(what, sort_keys=True)

    @property
    def place(self) -> str:
        """Folder of its runs, below the folder of all runs."""
        if self.folder:
            return self.folder
        # ENV/AGENT-PRESET-STEPS for pretraining, ENV-GOAL/LEARNER-STEPS-from-START for a task;
        # what is not the default adds a word, and settings add their digest
        place, start = self.env_name, SCRATCH
        if self.agent != SCRATCH:
            preset = preset_of(self.agent, self.preset)
            start = f"{self.agent}-{preset}-{self.steps}{_digest(self.settings)}"
        if self.learn is None:
            return f"{place}/{_name(start)}"
        task = self.learn
        goal = (task.goal or "reward") + ("" if task.reward == "sparse" else f"-{task.reward}")
        preset = "" if task.preset == "fast" else f"-{task.preset}"
        way = f"{task.algorithm}{preset}-{task.steps}{_digest(task.settings)}"
        part = "" if task.transfer == "policy" or task.offline else f"-{task.transfer}"
        way = f"offline-{way}-from-{start}" if task.offline else f"{way}-from-{start}{part}"
        return f"{_name(f'{place}-{goal}')}/{_name(way)}"

    @property
    def source(self) -> Case | None:
        """Pretraining that the task starts from; None for none."""
        if self.learn is None or self.agent == SCRATCH:
            return None
        labels = {"env": self.env_name, "agent": self.agent}
        return self.model_copy(update={"learn": None, "folder": "", "labels": labels})

    def runs(self, runs_dir: Path) -> tuple[Run, ...]:
        """Its runs, in ``runs_dir/PLACE/seed-N``, each with the pretrained run it starts from."""
        folders = {seed: runs_dir / self.place / f"seed-{seed}" for seed in self.seeds}
        source = self.source
        sources = {run.seed: run for run in source.runs(runs_dir)} if source else {}
        return tuple(Run(self, seed, folders[seed], sources.get(seed)) for seed in self.seeds)


@dataclass(frozen=True)
class Run:
    """One run of a case.

    Attributes:
        case: what is run.
        seed: its seed.
        folder: its run folder.
        source: the pretrained run that it starts from; None for none.
    """

    case: Case
    seed: int
    folder: Path
    source: Run | None = None

    @property
    def name(self) -> str:
        """Name in progress lines and failures."""
        return f"{self.case.name}, seed {self.seed}"


class _Shown(_Data):
    """A part of a page.

    Attributes:
        where: axis → options; other cases are left out.
    """

    where: dict[str, _Labels] = {}

    def selected(self, cases: Iterable[Case]) -> list[Case]:
        """The cases that are shown."""
        wanted = self.where.items()
        return [case for case in cases if all(case.labels.get(a) in o for a, o in wanted)]


class Table(_Shown):
    """A table of a study: a line per case, or per group of cases.

    Attributes:
        text: what stands between its heading and the table.
        rows: axes whose options are its lines.
        heads: headings of these columns; the names of the axes.
        facts: columns that say what is run.
        figures: columns of measured figures; a single one if `columns` are given.
        columns: axis whose options are the columns.
        statistic: what a cell says of the figures of its runs.
        share: a figure that is 0 or 1 of each run; cells count the runs in which it is 1.
        ratio: two options of `columns`; a last column divides the first one's figure by the
            second one's.
        bars: line → column → largest figure that is asked for.
        quotes: source → line → column → a figure of others, which stands below ours. Lines are
            named by their options, joined by "/".
    """

    text: str = ""
    rows: _Labels = Field(min_length=1)
    heads: _Labels = ()
    facts: tuple[_Fact, ...] = ()
    figures: _Labels = Field(min_length=1)
    columns: str = ""
    statistic: Statistic = "iqm"
    share: str = ""
    ratio: tuple[str, str] | None = None
    bars: dict[str, dict[str, float]] = {}
    quotes: dict[str, dict[str, dict[str, str]]] = {}


class Picture(_Shown):
    """A picture of a study.

    Attributes:
        kind: "tasks" for learning curves of tasks, "distance" for the steps to the first success
            over the distance of the goal, one of the pictures of
            :func:`~rover_bench.pictures.comparison_figures`, or "agents" for all of them.
        title: above it.
        window: environment steps over which crowded curves are averaged; 0 for none.
    """

    kind: Literal["tasks", "distance", "agents"] | ComparisonPicture
    title: str = ""
    window: int = Field(default=0, ge=0)


class Study(_Data):
    """Runs, tables and pictures of a study; see the text above.

    Attributes:
        name: of its page.
        title: heading of its page.
        introduction: what stands below.
        remarks: what stands below the tables.
        notes: agent → what must be said beside its figures.
        csv: beginning of the names of its CSV files.
        run: what all runs have in common, in the words of :class:`Case`.
        axes: axis → option → what it changes. ``title`` is what tables call it, and ``caption``
            what pictures do.
        runs: products of options, each from axis to options.
        tables: by heading, in their order.
        pictures: by the name of their file; agents' pictures have fixed names.
        scales: what it changes when it is run at a scale, by the scale's name.
    """

    name: Annotated[_FileName, Field(min_length=1)]
    title: str
    introduction: str = ""
    remarks: str = ""
    notes: dict[str, str] = {}
    csv: _FileName = ""
    run: dict[str, Any] = {}
    axes: dict[_VisibleName, dict[_VisibleName, dict[str, Any]]] = Field(min_length=1)
    runs: tuple[dict[str, _Labels], ...] = ()
    tables: dict[str, Table] = {}
    pictures: dict[Annotated[_FileName, Field(min_length=1)], Picture] = {}
    scales: dict[str, dict[str, Any]] = {}

    def title_of(self, axis: str, option: str, kind: Literal["title", "caption"] = "title") -> str:
        """Name of an option in tables or pictures."""
        texts = self.axes[axis][option]
        return str(texts.get(kind, texts.get("title", option)))

    def cases(self, seeds: Sequence[int] | None = None) -> tuple[Case, ...]:
        """Everything that is run.

        Args:
            seeds: of every case; none for their own.

        Raises:
            ConfigurationError: options that do not make a run, an unknown agent or preset, or
                different cases in one folder.
        """
        whole = {axis: tuple(options) for axis, options in self.axes.items()}
        cases: dict[str, Case] = {}
        for block in self.runs or (whole,):
            for choice in itertools.product(*block.values()):
                case = self._case(dict(zip(block, choice, strict=True)), seeds)
                if cases.setdefault(case.name, case) is not case:
                    raise ConfigurationError(f"{case.name} is there twice")
        _check_places(cases.values())
        return tuple(cases.values())

    def _case(self, labels: dict[str, str], seeds: Sequence[int] | None) -> Case:
        settings = dict(self.run)
        for axis, option in labels.items():
            # Options of later axes override earlier ones, in the order of the file.
            settings = merged(settings, self._option(axis, option))
        changes = {"labels": labels} | ({"seeds": tuple(seeds)} if seeds else {})
        texts = {"title", "caption"}
        try:
            case = Case.make({k: v for k, v in settings.items() if k not in texts} | changes)
            if case.agent != SCRATCH:
                preset_of(case.agent, case.preset)
            elif case.learn is None or case.learn.kind != "finetune":
                raise ConfigurationError(
                    f"the agent {SCRATCH!r} needs a task that an actor-critic learns by "
                    f"interacting; choose one of {', '.join(agent_names())}"
                )
        except ConfigurationError as error:
            raise ConfigurationError(f"{', '.join(labels.values())}: {error}") from None
        return case

    def _option(self, axis: str, option: str) -> dict[str, Any]:
        choose("axis", axis, self.axes)
        return self.axes[axis][choose(f"option of {axis}", option, self.axes[axis])]

    def check(self) -> None:
        """Check that its cases, tables and pictures fit together.

        Raises:
            ConfigurationError: they do not; one line says where.
        """
        for axis in _COLUMNS & set(self.axes):
            raise ConfigurationError(f"the axis {axis!r} is named like a column of the figures")
        cases = self.cases()
        every: list[tuple[str, Table | Picture]] = [*self.tables.items(), *self.pictures.items()]
        for name, shown in every:
            try:
                for axis, options in shown.where.items():
                    for option in options:
                        self._option(axis, option)
                if isinstance(shown, Table):
                    self._check_table(shown)
                elif shown.kind in ("tasks", "distance"):
                    if not {"task", "start", "learner"} <= set(self.axes):
                        raise ConfigurationError("needs the axes task, start and learner")
                elif (
                    shown.kind != "agents"
                    and len({case.problem for case in shown.selected(cases)}) != 1
                ):
                    raise ConfigurationError("needs a `where` that leaves one environment")
            except ConfigurationError as error:
                kind = type(shown).__name__.lower()
                raise ConfigurationError(f"the {kind} {name!r}: {error}") from None

    def _check_table(self, table: Table) -> None:
        for axis in filter(None, (*table.rows, table.columns)):
            choose("axis", axis, self.axes)
        for figure in filter(None, (*table.figures, table.share)):
            choose("figure", figure, METRICS)
        for option in table.ratio or ():
            self._option(table.columns, option)


def merged(base: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """`added` on top of `base`; tables in both are merged alike. Names may have dots in them."""
    both = {key for key in base.keys() & added.keys() if isinstance(base[key], Mapping)}
    inner = {key: merged(base[key], added[key]) for key in both if isinstance(added[key], Mapping)}
    return {**base, **added, **inner}


def _check_places(cases: Iterable[Case]) -> None:
    """Refuse different cases whose runs would be one."""
    places: dict[str, tuple[str, Case]] = {}
    for case in cases:
        for one in filter(None, (case, case.source)):
            # without regard to case, as the file systems of Windows and macOS are
            place, identity = one.place.casefold(), one.identity
            # The same content in one folder is one run, made once; other content is a slip.
            first, other = places.setdefault(place, (identity, case))
            if first != identity:
                raise ConfigurationError(
                    f"{other.name} and {case.name} are different, and both have the folder "
                    f"{one.place}: give them a `folder` each, or none"
                )


def _name(words: str) -> str:
    """Words as the name of a folder, with a digest of them where characters had to go."""
    # Without the digest "a/b" and "a b" would be one folder, and one would take the other's runs.
    name = re.sub(r"[^\w.-]+", "-", words, flags=re.ASCII).strip("-.")[:_MAX_NAME]
    return name if name and name == words else f"{name}{_digest({'': words})}".lstrip("-")


def _digest(settings: Mapping[str, Any]) -> str:
    """Eight digits that tell settings apart; nothing for none."""
    if not settings:
        return ""
    text = json.dumps(settings, sort_keys=True)
    return f"-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
