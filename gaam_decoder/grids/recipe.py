"""The recipe of a study of many data sets and encoders: ``grid.toml``.

It has these tables::

    title, question, text   of the page
    [[grids]]               name, title, baselines, margin
    [grids.datasets]        folder in --data -> where to get it
    [grids.encoders]        folder in --encoders, or any name -> where to get it
    [grids.extract]         options of ``extract``; of numbers and label sets, task too
    [[grids.train]]         options of ``train``

A cell is one data set through one encoder. All cells of a grid have one task, and the
default score of this task.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

from gaam_cache.common import plugins, settings
from gaam_cache.common.errors import ConfigError, NotFoundError
from gaam_cache.common.paths import absolute_path
from gaam_cache.common.settings import data_path
from gaam_cache.config import AUTO
from gaam_decoder.reports.scoring import score_of
from gaam_decoder.specs import parse_attention
from gaam_decoder.stats.scores.base import Score
from gaam_decoder.study import COMMANDS, MACHINE, NAME, NOT_IN_RECIPE, Step
from gaam_decoder.tasks import CLASSIFICATION, Task, task_of

GRID_FILE = "grid.toml"
STUDY_KEYS = {"title", "question", "text", "weaknesses", "grids"}
GRID_KEYS = {
    *("name", "title", "baselines", "margin"),
    *("datasets", "encoders", "extract", "train"),
}
NOT_IN_GRID = (NOT_IN_RECIPE | {"cache", "encoder", "dataset"}) - MACHINE
"""Settings that no grid has: its cells have them."""
NO_CHANGE_OF_NUMBERS = {*MACHINE}
OF_ONE_DECODER = {
    *("attn", "head", "layers", "train_rows", "pool"),
    *("lr", "weight_decay", "seeds", "tune_seeds", "probe"),
}
"""Settings whose values make no other decoder, or which a decoder's variant names."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Data sets and encoders that are crossed, with the settings of all cells."""

    name: str
    title: str
    baselines: tuple[str, ...]
    """Mechanisms that the others are compared with; the first answers the question."""
    margin: float
    """Largest difference that does not matter, a fraction or in the score's unit."""
    datasets: Mapping[str, str]
    """Name of a data set -> where to get it."""
    encoders: Mapping[str, str]
    """Name of an encoder -> where to get it."""
    extract: Mapping[str, object]
    train: tuple[Mapping[str, object], ...]

    @property
    def settings_digest(self) -> str:
        """A digest of everything that decides the numbers of a cell but its data."""
        content = [self.extract, *self.train, {"baselines": list(self.baselines)}]
        # standard errors and verdicts depend on the margin, too
        if self.margin != self.score.margin:
            content.append({"margin": self.margin})
        text = json.dumps([_sorted(options) for options in content], default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def task(self) -> Task:
        """The task of all cells."""
        return _task_of_options(self.extract)

    @property
    def score(self) -> Score:
        """The score that all cells compare: the default score of their task."""
        return score_of(self.task.default_score)

    def cells(self) -> Iterator["Cell"]:
        """All data sets through the first encoder, then through the next."""
        for encoder in self.encoders:
            for dataset in self.datasets:
                yield Cell(self, dataset, encoder)


def _sorted(options: Mapping[str, object]) -> dict[str, object]:
    """Options sorted by name, without settings of the machine that change no number."""
    names = sorted(set(options) - NO_CHANGE_OF_NUMBERS)
    return {name: options[name] for name in names}


@dataclass(frozen=True, slots=True)
class Cell:
    """One data set through one encoder."""

    grid: Grid
    dataset: str
    encoder: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the cell in records."""
        return self.grid.name, self.dataset, self.encoder

    @property
    def title(self) -> str:
        return f"{self.dataset} through {self.encoder}"


@dataclass(frozen=True, slots=True)
class Sources:
    """Where this machine has the data sets and encoders, and the settings of it."""

    data: Path
    encoders: Path | None = None
    machine: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class GridStudy:
    """A checked recipe, and the folder of its results."""

    folder: Path
    title: str
    question: str
    text: str
    weaknesses: tuple[str, ...]
    """What weakens the answer, beside what the records show."""
    grids: tuple[Grid, ...]
    out: Path
    """The folder of all studies."""

    @property
    def results(self) -> Path:
        """The folder of the results of this study."""
        return self.out / self.folder.name

    def cells(self) -> Iterator[Cell]:
        """All cells, in the order in which they are run.

        The first encoder of every grid comes first, with all its data sets; then the
        second of every grid, and so on. So every data set has a cell early.
        """
        encoders_by_grid = [list(grid.encoders) for grid in self.grids]
        # grids with fewer encoders are done earlier
        for encoders in zip_longest(*encoders_by_grid):
            for grid, encoder in zip(self.grids, encoders, strict=True):
                yield from (cell for cell in grid.cells() if cell.encoder == encoder)

    def steps(self, cell: Cell, sources: Sources) -> list[Step]:
        """The commands of a cell: the extraction, then the trainings.

        Raises:
            NotFoundError: the machine lacks the data set.
            ConfigError: an option that no such command has.
        """
        cache = self.out / "caches" / f"{cell.dataset}-{cell.encoder}"
        runs = self.results / "runs" / "-".join(cell.key)
        extract = {
            **cell.grid.extract,
            "dataset": str(_dataset_path(cell, sources.data)),
            "encoder": _encoder_source(cell, sources.encoders),
            "out": cache,
        }
        steps = [_step("extract", extract, sources)]
        for options in cell.grid.train:
            train = {**options, "cache": cache, "runs": runs}
            steps.append(_step("train", train, sources))
        return steps


def _step(command: str, options: Mapping[str, object], sources: Sources) -> Step:
    """A command with its options.

    Settings of this machine are added where the command has such a setting.
    """
    config_class = COMMANDS[command].config_class
    known_settings = config_class.__dataclass_fields__
    machine_settings = {
        name: value
        for name, value in (sources.machine or {}).items()
        if name in known_settings
    }
    all_options = {**options, **machine_settings}
    config = settings.resolve(config_class, command, dict(all_options))
    return Step(command, all_options, config)


def _dataset_path(cell: Cell, data: Path) -> Path:
    """The data set in ``--data``: a folder, or the table in it of the same name."""
    folder = absolute_path(data) / cell.dataset
    if not folder.exists():
        # some data sets lie beside the folder of the others
        folder = absolute_path(data).parent / cell.dataset
    if not folder.exists():
        raise NotFoundError(
            f"no data set '{cell.dataset}'",
            expected=f"a folder of that name in --data {data}, or beside it",
            hint=f"get it from {cell.grid.datasets[cell.dataset]}",
        )
    table = folder / f"{cell.dataset}.csv"
    return table if table.is_file() else folder


def _encoder_source(cell: Cell, encoders: Path | None) -> str:
    """The folder of the encoder in ``--encoders``, or where the recipe gets it."""
    if encoders and (encoders / cell.encoder).is_dir():
        return str(absolute_path(encoders) / cell.encoder)
    return cell.grid.encoders[cell.encoder]


def find_grid(study: str | Path) -> Path | None:
    """The folder of a study with a grid, given by folder or name; None for others."""
    bundled = data_path() / "studies" / str(study)
    for folder in (Path(study).resolve(), bundled):
        if (folder / GRID_FILE).is_file():
            return folder
    return None


def read_grid_study(folder: Path, *, out: Path = Path("studies")) -> GridStudy:
    """Read the recipe of a study, and check its settings before anything is run.

    Raises:
        ConfigError: the recipe has an unknown or a bad setting.
    """
    file = folder / GRID_FILE
    try:
        recipe = tomllib.loads(file.read_text("utf-8"))
        plugins.check_names("setting", recipe, STUDY_KEYS)
        study = GridStudy(
            folder=folder,
            title=str(recipe["title"]),
            question=str(recipe["question"]),
            text=str(recipe.get("text", "")),
            weaknesses=tuple(recipe.get("weaknesses", ())),
            grids=tuple(_read_grid(table) for table in recipe["grids"]),
            out=absolute_path(out),
        )
        _check_study(study)
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConfigError(
            f"{GRID_FILE} is no recipe of a study", found=str(error), where=str(file)
        ) from error
    return study


def _read_grid(table: Mapping[str, Any]) -> Grid:
    """A grid of the recipe; its margin there is in points, or in the score's unit."""
    plugins.check_names("setting", table, GRID_KEYS)
    baselines = tuple(str(parse_attention(text)) for text in table["baselines"])
    extract = _read_options(table.get("extract", {}))
    score = score_of(_task_of_options(extract).default_score)
    usual_margin = score.factor * score.margin
    return Grid(
        name=table["name"],
        title=table["title"],
        baselines=baselines,
        margin=float(table.get("margin", usual_margin)) / score.factor,
        datasets=dict(table["datasets"]),
        encoders=dict(table["encoders"]),
        extract=extract,
        train=tuple(_read_options(options) for options in table["train"]),
    )


def _task_of_options(extract: Mapping[str, object]) -> Task:
    """The task that the options of an extraction name; classes where they name none."""
    name = str(extract.get("task", AUTO))
    return CLASSIFICATION if name == AUTO else task_of(name)


def _read_options(options: Mapping[str, Any]) -> dict[str, object]:
    """The options of a command, by names of arguments.

    Raises:
        ConfigError: an option that the cell decides, or the machine that runs it.
    """
    named = {key.replace("-", "_"): value for key, value in options.items()}
    forbidden = sorted((NOT_IN_GRID | MACHINE) & set(named))
    if forbidden:
        raise ConfigError(f"not a setting of a grid: {', '.join(forbidden)}")
    return named


def _check_study(study: GridStudy) -> None:
    """Check the names of grids, data sets and encoders, and every option."""
    names = [grid.name for grid in study.grids]
    if len(set(names)) < len(names):
        raise ConfigError("two grids have one name")
    for grid in study.grids:
        if not (grid.baselines and grid.datasets and grid.encoders and grid.train):
            raise ConfigError(
                f"grid '{grid.name}' lacks something",
                expected="baselines, data sets, encoders and a training",
            )
        if not 0 < grid.margin < grid.score.largest_difference:
            raise ConfigError(
                f"the margin of grid '{grid.name}' is out of range",
                expected=f"{grid.score.difference_unit}, above 0",
            )
        for name in (grid.name, *grid.datasets, *grid.encoders):
            # data sets may have names with _, as ag_news has
            if not NAME.fullmatch(name.replace("_", "-")):
                raise ConfigError(f"bad name '{name}'")
        _step("extract", grid.extract, Sources(Path()))
        steps = [_step("train", options, Sources(Path())) for options in grid.train]
        _check_decoders(grid, [step.config for step in steps])


def rates_by_decoder(grid: Grid) -> dict[str, tuple[float, ...]]:
    """Decoder, as the recipe spells it -> the learning rates to choose from."""
    rates: dict[str, tuple[float, ...]] = {}
    for options in grid.train:
        config = _step("train", options, Sources(Path())).config
        for attention, head in product(config.attn, config.head):
            rates[decoder_name(str(attention), str(head))] = config.rates
    return rates


def decoder_name(attention: str, head: str) -> str:
    """The mechanism; with the head where it is not the usual one."""
    if head == "linear":
        return attention
    return f"{attention} + {head.partition(':')[0]}"


def _check_decoders(grid: Grid, configs: Sequence[Any]) -> None:
    """Refuse a grid with several decoders of one name.

    Args:
        grid: the grid.
        configs: its trainings, each a ``TrainConfig``.
    """
    variants_by_name: dict[str, set[object]] = {}
    for options, config in zip(grid.train, configs, strict=True):
        shared = {
            name: value for name, value in options.items() if name not in OF_ONE_DECODER
        }
        for attention, head, *values in product(
            config.attn,
            config.head,
            config.layers,
            config.train_rows,
            config.pool or (None,),
        ):
            name = decoder_name(str(attention), str(head))
            variant = (str(attention), str(head), *values, repr(sorted(shared.items())))
            variants_by_name.setdefault(name, set()).add(variant)
    counts = {name: len(variants) for name, variants in variants_by_name.items()}
    refuse_one_name_for_several(f"grid '{grid.name}'", counts)


def refuse_one_name_for_several(subject: str, counts: Mapping[str, int]) -> None:
    """Refuse several decoders of one name: the page would show one for the other.

    Args:
        subject: the grid or cell, for the message.
        counts: name -> number of its decoders.
    """
    for name, count in counts.items():
        if count > 1:
            raise ConfigError(
                f"{subject} has several decoders of one name",
                expected="decoders that differ in mechanism or kind of head",
                found=f"{count} of {name}",
                hint="a grid for each set of layers, rows or options",
            )
