"""A study: recorded commands, their results, and a check that results repeat.

The file ``study.toml`` has these tables::

    title, question, text   of the page
    [caches.NAME]           options of ``extract``; with ``command`` those of ``plant``,
                            where ``from`` names another cache
    [[train]], [[report]]   options of these commands
    [check]                 tolerances, in hundredths
"""

import dataclasses
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gaam_cache.common import plugins, settings
from gaam_cache.common.errors import CacheError, ConfigError, GaamError, NotFoundError
from gaam_cache.common.markdown import escape_markdown
from gaam_cache.common.messages import duration
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.common.settings import data_path
from gaam_cache.common.terminal import ReportProgress
from gaam_cache.config import ExtractConfig
from gaam_cache.extraction.estimate import estimate as estimate_extraction
from gaam_cache.extraction.extract import extract
from gaam_cache.store.files import write_file
from gaam_decoder.analysis.planting import plant
from gaam_decoder.config import PlantConfig, TrainConfig
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.columns import choose_columns, entries_sheet
from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.reports.drawing import overview_pictures, svg_files
from gaam_decoder.reports.formats.csv import flat
from gaam_decoder.reports.formats.markdown import pipe
from gaam_decoder.reports.rendering import render
from gaam_decoder.reports.report import report
from gaam_decoder.reports.table import Table, TableOptions
from gaam_decoder.runs.frame import score_column
from gaam_decoder.runs.loading import Runs, load_runs
from gaam_decoder.runs.result import RunResult
from gaam_decoder.training.estimate import estimate as estimate_training
from gaam_decoder.training.sweep import check_failures, train

if TYPE_CHECKING:
    import pandas

FILE = "study.toml"
ROWS = "rows.csv"
SEEDS = "seeds.csv"
PAGE = "README.md"
PAGE_COLUMNS = "decoder, score, sd, difference, 95% CI of it, verdict"
NAME = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*", re.ASCII)


class StudyCommand(NamedTuple):
    """A command that a recipe may have: the class of its settings, and its function."""

    config_class: Any
    run: Callable[..., Any]


COMMANDS = {
    "extract": StudyCommand(ExtractConfig, extract),
    "plant": StudyCommand(PlantConfig, plant),
    "train": StudyCommand(TrainConfig, train),
}
RECIPE_KEYS = {"title", "question", "text", "caches", "train", "report", "check"}
MACHINE = {
    "device",
    "engine",
    "devices",
    "address",
    "gpus_per_worker",
    "device_map",
    "track",
    "tokens_per_second",
    "memory_share",
}
"""Settings of the machine, which change no number: ``gaam study --set`` has them."""
NOT_IN_RECIPE = {"out", "runs", "rank", "since", "top", *MACHINE}
"""Settings that no recipe has: of the study, of the machine, or leaving out rows."""
REPORT_SETTINGS = {
    *TableOptions.__annotations__,
    "attn",
    "head",
    "layers",
    "lr",
    "cache",
    "name",
    "title",
    "all",
} - NOT_IN_RECIPE
"""Settings of a report in a recipe."""
TOLERANCES = {"accuracy": 0.3, "difference": 0.3}
"""Hundredths by which a mean accuracy (R2, micro-F1) or a difference may vary between
machines."""
SETTINGS = ("select", "pool", "layers", "train_rows", "shots", "epochs", "dtype")
KEY_COLUMNS = ["report", "cache", "tested_on", "attention", "head", *SETTINGS]
"""Columns that identify a row; tuned settings do not. Rows that agree in them, such as
those of two losses, are paired in the order of their labels."""
TUNED_IN_LABEL = r"\b(lr|weight_decay)=[^,]*"
"""What a label says of settings that another machine may tune otherwise."""
EQUAL_COLUMNS = ("baseline", "seeds", "failed", "parameters")
"""Columns that must be equal."""
TOLERANCE_BY_COLUMN = {
    "accuracy": "accuracy",
    "sd": "accuracy",
    "low": "accuracy",
    "high": "accuracy",
    "macro_f1": "accuracy",
    "score": "accuracy",
    "score_sd": "accuracy",
    "score_low": "accuracy",
    "score_high": "accuracy",
    "difference": "difference",
}
"""Columns that may differ a little, with the tolerance of each.

Intervals of differences are not among them: their width depends on p values near 0.05.
"""
ROW_COLUMNS = {
    "dataset": "dataset",
    "encoder": "encoder",
    "attention": "attention",
    "head": "head",
    **{name: f"recipe_{name}" for name in (*SETTINGS, "lr")},
    "accuracy": "accuracy_mean",
    "sd": "accuracy_std",
    "macro_f1": "macro_f1_mean",
    "seeds": "seeds",
    "failed": "failed",
    "undertrained": "undertrained",
    "low": "accuracy_ci95_seeds_and_rows_low",
    "high": "accuracy_ci95_seeds_and_rows_high",
    "parameters": "parameters_total",
    "baseline": "baseline",
    "difference": "difference",
    "p_holm": "p_holm",
    "verdict": "verdict",
    "difference_low": "ci95_corrected_low",
    "difference_high": "ci95_corrected_high",
}
"""Columns of ``rows.csv``, and their names in ``gaam report --format csv``.

Before them, ``rows.csv`` has the report, the cache, the split and the label.
"""
SCORE_COLUMNS = {
    "score": "score_mean",
    "score_sd": "score_std",
    "score_low": "score_ci95_seeds_and_rows_low",
    "score_high": "score_ci95_seeds_and_rows_high",
}
"""Further columns of ``rows.csv`` for decoders of numbers and label sets, which have no
accuracy: R2 or micro-F1."""
SEED_COLUMNS = [
    "fingerprint",
    "attention",
    "head",
    "select",
    "pool",
    "layers",
    "lr",
    "train_rows",
    "shots",
    "fold",
    "seed",
    "failed",
    "epoch",
    "accuracy",
    "macro_f1",
]
"""Columns of ``seeds.csv``; behind them R2 or micro-F1 of numbers or label sets."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command."""

    command: str
    options: Mapping[str, object]
    """All options, with folders and settings of the machine."""
    config: Any
    """The configuration that the command makes of them."""

    def words(self) -> str:
        """The command line for a shell."""
        options = dict(self.options)
        words = ["gaam", self.command]
        if self.command == "plant":
            # its folder is an argument, not an option
            words.append(str(options.pop("out")))

        # a recipe names an option by its field, or as TOML files spell the field
        field_by_name: dict[str, dataclasses.Field[Any]] = {}
        config_class = COMMANDS[self.command].config_class
        for config_field in dataclasses.fields(config_class):
            key = settings.key_of(config_field).replace("-", "_")
            field_by_name[config_field.name] = config_field
            field_by_name[key] = config_field
        for name, value in options.items():
            words += settings.command_words(field_by_name[name], value)
        return shlex.join(words)


@dataclass(frozen=True, slots=True)
class Study:
    """A checked recipe, and the folder of its results."""

    folder: Path
    recipe: Mapping[str, Any]
    """The content of ``study.toml``."""
    steps: tuple[Step, ...]
    out: Path
    """The folder of all studies."""


def read_study(
    study: str | Path,
    *,
    out: Path = Path("studies"),
    dataset: str | None = None,
    machine: Mapping[str, object] | None = None,
) -> Study:
    """Read a study and check its settings, so that few errors appear after hours.

    Args:
        study: the folder of the study, or the name of one in ``data/studies``.
        out: the folder of all studies' results.
        dataset: replaces the data set of every extraction.
        machine: settings of ``MACHINE``.
    """
    folder = _find_folder(study)
    overrides = dict(machine or {})
    if dataset:
        overrides["dataset"] = dataset
    try:
        recipe = tomllib.loads((folder / FILE).read_text("utf-8"))
        plugins.check_names("setting", recipe, RECIPE_KEYS)
        plugins.check_names("tolerance", recipe.get("check", {}), TOLERANCES)
        steps = tuple(_read_steps(recipe, out, out / folder.name / "runs", overrides))
        _check_reports(recipe.get("report", ()))
        has_training = any(step.command == "train" for step in steps)
        if not has_training or not recipe.get("title"):
            raise ConfigError("a study has a title, a cache and a training")
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConfigError(
            f"{FILE} is no recipe of a study",
            found=str(error),
            where=str(folder / FILE),
        ) from error
    return Study(folder, recipe, steps, absolute_path(out))


def _check_reports(report_tables: Iterable[Mapping[str, Any]]) -> None:
    """Check the names of the reports of a recipe, and those of their settings."""
    names: set[str] = set()
    for report_table in report_tables:
        name = report_table["name"]
        _check_file_name(name)
        plugins.check_names("setting", _with_underscores(report_table), REPORT_SETTINGS)
        if name in names:
            raise ConfigError(f"two reports have the name '{name}'")
        names.add(name)


def _find_folder(study: str | Path) -> Path:
    """The folder of a study that is given by its folder or its name."""
    folder = Path(study).resolve()
    if (folder / FILE).is_file():
        return folder
    bundled = {
        path.parent.name: path.parent
        for path in (data_path() / "studies").glob(f"*/{FILE}")
    }
    if str(study) not in bundled:
        raise plugins.unknown(
            "study", str(study), sorted(bundled), where=f"no {FILE} in {folder}"
        )
    return bundled[str(study)]


def _read_steps(
    recipe: Mapping[str, Any], out: Path, runs: Path, overrides: Mapping[str, object]
) -> Iterator[Step]:
    """The commands of a recipe: first the caches, then the trainings.

    Args:
        recipe: the content of ``study.toml``.
        out: the folder of all studies.
        runs: the folder of this study's runs.
        overrides: settings that replace those of every command that has them.
    """
    caches = recipe.get("caches", {})
    commands = [
        (table.get("command", "extract"), name, table) for name, table in caches.items()
    ]
    commands += [("train", "train", table) for table in recipe.get("train", ())]
    for command, name, table in commands:
        _check_file_name(name)
        options = _with_underscores(table)
        options.pop("command", None)
        plugins.check_names("command", [command], COMMANDS)
        folders = _take_folders(command, name, options, caches, out)

        forbidden = sorted((NOT_IN_RECIPE | {"cache"}) & set(options))
        if forbidden:
            raise ConfigError(
                f"not a setting of a study: {', '.join(forbidden)}",
                hint="gaam study --set has the settings of the machine",
            )

        if command == "train":
            folders["runs"] = runs
        config_class = COMMANDS[command].config_class
        for key, value in overrides.items():
            if key in config_class.__dataclass_fields__:
                options[key] = value
        options |= folders
        config = settings.resolve(config_class, command, dict(options))
        yield Step(command, options, config)


def _take_folders(
    command: str,
    name: str,
    options: dict[str, Any],
    caches: Mapping[str, object],
    out: Path,
) -> dict[str, Path]:
    """Remove the names of caches from the options, and return their folders.

    Args:
        command: extract, plant or train.
        name: of the cache that extract or plant makes.
        options: of the command; ``cache`` and ``from`` name other caches.
        caches: the tables of all caches of the recipe, by name.
        out: the folder of all studies.

    Returns:
        The folder of each cache, by the field of the command's configuration.
    """
    cache_names: dict[str, Any] = {}
    if command == "train":
        cache_names["cache"] = options.pop("cache", None)
    if "from" in options:
        cache_names["from_cache"] = options.pop("from")
    plugins.check_names("cache", cache_names.values(), caches)
    if command != "train":
        cache_names["out"] = name
    return {key: out / "caches" / cache_name for key, cache_name in cache_names.items()}


def _check_file_name(name: str) -> None:
    """Refuse the name of a cache or report that is unfit for a file."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"bad name '{name}'", expected="small letters, digits, - and ."
        )


def _with_underscores(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a recipe by the names of arguments, such as ``batch_size``."""
    return {key.replace("-", "_"): value for key, value in options.items()}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a study, as JSON values and for people."""

    values: dict[str, Any]
    lines: list[str]
    exit_code: int = 0
    """1 where a check found differences."""

    def to_dict(self) -> dict[str, Any]:
        return self.values

    def in_words(self) -> str:
        return "\n".join(self.lines)


def estimate(study: Study) -> Outcome:
    """List the commands, with rough durations where they are known; write nothing."""
    commands: list[dict[str, str]] = []
    lines: list[str] = []
    for step in study.steps:
        text = estimate_step(step)
        commands.append({"command": step.words(), "estimate": text})
        lines += [step.words(), f"  # {text}"]
    return Outcome({"commands": commands}, lines)


def estimate_step(step: Step) -> str:
    """Say how long a command takes, as far as that is known."""
    estimators: dict[str, Any] = {
        "extract": estimate_extraction,
        "train": estimate_training,
    }
    if step.command not in estimators:
        return "not estimated"
    try:
        seconds = estimators[step.command](step.config).seconds
        return f"about {duration(max(1, seconds))}"
    except GaamError as error:
        return f"no estimate: {error.message}"


def carry_out(
    study: Study,
    *,
    check: bool = False,
    record: bool = False,
    say: Callable[[str], None] = lambda text: None,
    progress: ReportProgress | None = None,
) -> Outcome:
    """Run the missing commands of a study, and write its reports.

    Args:
        study: a recipe that ``read_study`` checked.
        check: compare the results with the recorded ones.
        record: record the results beside the recipe.
        say: called with every command line.
        progress: called with the progress of every command.

    Raises:
        NotFoundError: ``check``, and nothing is recorded.
    """
    if check and not (study.folder / ROWS).is_file():
        raise NotFoundError(
            f"nothing is recorded in '{study.folder}'",
            expected=ROWS,
            hint="gaam study FOLDER --record makes it",
        )
    trained = _run_steps(study, say, progress)

    # the folder may have runs of an earlier recipe: only those of this one count
    results_folder = study.out / study.folder.name
    runs = load_runs(results_folder / "runs")
    names_of_trained = {run.path.name for run in trained}
    # in place, so that it stays a ``Runs``
    runs[:] = [run for run in runs if run.path.name in names_of_trained]

    values, files = _make_reports(study, runs)
    folders = [results_folder]
    if record:
        folders.append(study.folder)
    for folder in folders:
        for name, content in files.items():
            write_file(folder / name, content)

    lines = [
        *values["answers"],
        f"{len(files)} files are in {shown_path(results_folder)}",
    ]
    outcome = Outcome({"folder": str(results_folder), **values}, lines)
    if check:
        return _with_check(outcome, study, results_folder)
    return outcome


def _with_check(outcome: Outcome, study: Study, results_folder: Path) -> Outcome:
    """Add the differences from the recorded rows to the result of a study."""
    differences, num_rows = _compare_with_record(study, results_folder)
    lines = [
        *outcome.lines,
        *(f"differs: {line}" for line in differences),
        f"of {num_rows} rows {len(differences)} values differ",
    ]
    values = outcome.values | {"differences": differences}
    return Outcome(values, lines, exit_code=1 if differences else 0)


def _run_steps(
    study: Study,
    say: Callable[[str], None],
    progress: ReportProgress | None,
) -> list[RunResult]:
    """Run all commands, and return the trained runs.

    A command makes what is missing, so a second study of the same folder is quick.
    """
    trained: list[RunResult] = []
    for step in study.steps:
        say(step.words())
        result = COMMANDS[step.command].run(step.config, progress=progress)
        if step.command == "train":
            check_failures(result, step.config.seeds)
            trained += result
    return trained


def _compare_with_record(study: Study, results_folder: Path) -> tuple[list[str], int]:
    """The differences from the recorded rows, and the number of rows."""
    import pandas

    dtypes = dict.fromkeys([*KEY_COLUMNS, *EQUAL_COLUMNS], str)
    recorded = pandas.read_csv(study.folder / ROWS, dtype=dtypes)
    current = pandas.read_csv(results_folder / ROWS, dtype=dtypes)
    tolerances = TOLERANCES | study.recipe.get("check", {})
    return compare(recorded, current, tolerances), len(current)


@dataclass(slots=True)
class _Reports:
    """Collects the results of a study from its reports, table by table."""

    study: Study
    tables: list[Table] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    rows: list[dict[str, object]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    page_values: dict[int, dict[str, object]] = field(default_factory=dict)
    """Values for the template of the page, by the id of a table."""

    def add_report(self, runs: Runs, report_table: Mapping[str, Any]) -> None:
        """Make one report of the recipe, which has a table for every cache."""
        options = _with_underscores(report_table)
        # the command line calls it --all, too
        options["every_candidate"] = options.pop("all", False)
        report_name = options.pop("name")
        report_title = options.pop("title", report_name)
        if "cache" in options:
            options["cache"] = self.study.out / "caches" / options["cache"]

        tables = report(runs, **options).tables
        # of several tables, each is for another cache, which its title names
        for number, table in enumerate(tables, start=1):
            name = report_name
            title = report_title
            if len(tables) > 1:
                name = f"{report_name}-{number}"
                title = f"{report_title}, {table.cache.encoder}"
                if table.cache_difference:
                    title += f", {table.cache_difference}"
            self.tables.append(table)
            self.answers.append(f"{title}: {conclusion(table, advice=False)}")
            self._add_picture(table, name)
            self._add_page_values(table, name, title, with_pairs="pairs" in options)
            self._add_rows(table, report_name)

    def _add_picture(self, table: Table, name: str) -> None:
        """Add the files of one picture of a table."""
        # The last picture shows the differences; without any, the accuracies.
        pictures = list(overview_pictures(table))
        if pictures:
            self.files |= svg_files(name, pictures[-1])

    def _add_page_values(
        self, table: Table, name: str, title: str, *, with_pairs: bool
    ) -> None:
        """Add the values that the template of the page has for a table.

        Args:
            table: a table of a report.
            name: of its picture, without the suffix.
            title: its heading.
            with_pairs: whether the report compares all pairs of decoders.
        """
        # sections whose first sentence the page shows
        section_names = ["importance"]
        if with_pairs:
            section_names.append("pairs")
        self.page_values[id(table)] = {
            "heading": title,
            "picture": name,
            "sheet": entries_sheet(
                table, choose_columns(PAGE_COLUMNS, table.score_name)
            ),
            "section_names": tuple(section_names),
        }

    def _add_rows(self, table: Table, report_name: str) -> None:
        """Add a row of ``rows.csv`` for every entry (decoder) of a table."""
        values_of_entries = table.to_dict()["entries"]
        for entry, entry_values in zip(
            table.shown_entries, values_of_entries, strict=True
        ):
            values = flat(entry_values) | table.cache.to_dict()
            # flat() gives the number of seeds: these are listed, failed ones counted
            values["seeds"] = spell_numbers(entry_values["seeds"])
            values["failed"] = values["failed_seeds"]
            row: dict[str, object] = {
                "report": report_name,
                "cache": table.cache.fingerprint[:12],
                "tested_on": table.tested_on,
                "label": entry.label,
            }
            columns = ROW_COLUMNS
            if not table.task.has_classes:
                columns = ROW_COLUMNS | SCORE_COLUMNS
            for column, report_column in columns.items():
                row[column] = values.get(report_column)
            self.rows.append(row)

    def page(self) -> bytes:
        """The page of the study, as Markdown."""
        # a recipe need not have a question or a text
        values = {"question": "", "text": ""} | dict(self.study.recipe)
        values["answers"] = self.answers
        values["name"] = self.study.folder.name
        page = render(
            "study.md",
            self.tables,
            harmless=escape_markdown,
            more=lambda table: self.page_values[id(table)],
            words=values,
            # the filter of the template that writes a sheet as a Markdown table
            pipe=pipe,
        )
        # tags of the template leave empty lines
        return re.sub(r"\n{3,}", "\n\n", page).encode()


def _make_reports(study: Study, runs: Runs) -> tuple[dict[str, Any], dict[str, bytes]]:
    """All reports as JSON values, and the files of the results by name."""
    import pandas

    reports = _Reports(study)
    for report_table in study.recipe.get("report", ()):
        reports.add_report(runs, report_table)

    frame = runs.to_frame()
    # names of the scores in the frame, of numbers and label sets
    score_columns = {
        score_column(run.task_definition.default_score)
        for run in runs
        if not run.task_definition.has_classes
    }
    seed_columns = [*SEED_COLUMNS, *sorted(score_columns)]
    seeds = frame.loc[~frame["tuning_seed"], seed_columns]
    seeds["fingerprint"] = seeds["fingerprint"].str[:12]

    # Six digits are exact for the accuracies of up to 100,000 rows.
    files = reports.files
    for name, table in ((ROWS, pandas.DataFrame(reports.rows)), (SEEDS, seeds)):
        files[name] = table.to_csv(index=False, float_format="%.6g").encode()
    files[PAGE] = reports.page()
    return {"answers": reports.answers, "rows": reports.rows}, files


def compare(
    before: "pandas.DataFrame",
    after: "pandas.DataFrame",
    tolerances: Mapping[str, float],
) -> list[str]:
    """Compare rows with recorded ones; each difference is one line.

    Settings, seeds and counts must be equal. Accuracies and differences may differ by
    the tolerances. Verdicts are not compared: a p value near 0.05 falls on either side.

    Args:
        before: the recorded rows.
        after: the rows of today.
        tolerances: in hundredths, by the names of ``TOLERANCES``.

    Raises:
        CacheError: the rows are of other caches.
    """
    _check_caches(set(before["cache"]), set(after["cache"]))
    # some columns are those of some tasks; older records lack them
    columns = list(dict.fromkeys([*before, *after]))
    merged = _numbered(before.reindex(columns=columns)).merge(
        _numbered(after.reindex(columns=columns)),
        how="outer",
        on=[*KEY_COLUMNS, "number"],
        indicator=True,
        suffixes=("", "_now"),
    )
    # the label tells rows with the same key apart
    merged["label"] = merged["label"].fillna(merged["label_now"])
    titles = merged[["report", "cache", "tested_on", "label", *SETTINGS]].apply(
        lambda row: " ".join(str(value) for value in row.dropna()), axis=1
    )
    # a row with these settings may be recorded, be there today, or both
    is_recorded_alone = merged["_merge"] == "left_only"
    is_new = merged["_merge"] == "right_only"
    is_pair = merged["_merge"] == "both"
    differences = [f"{title}: is not there" for title in titles[is_recorded_alone]]
    differences += [f"{title}: is not recorded" for title in titles[is_new]]
    compared = [*EQUAL_COLUMNS, *TOLERANCE_BY_COLUMN]
    for column in [name for name in compared if name in before]:
        recorded = merged[column]
        current = merged[f"{column}_now"]
        tolerance = tolerances.get(TOLERANCE_BY_COLUMN.get(column, ""))
        agrees = _agree(recorded, current, tolerance)
        differences += [
            f"{titles[index]}: {column} {current[index]}, recorded: {recorded[index]}"
            for index in merged.index[is_pair & ~agrees]
        ]
    return differences


def _numbered(rows: "pandas.DataFrame") -> "pandas.DataFrame":
    """The rows with a column ``number``, which tells those of the same key apart.

    The number counts them in the order of their labels, first without, then with the
    settings that are tuned: it does not depend on the scores.
    """
    untuned_label = rows["label"].str.replace(TUNED_IN_LABEL, "", regex=True)
    ordered = rows.assign(untuned_label=untuned_label).sort_values(
        ["untuned_label", "label"], kind="stable"
    )
    number = ordered.groupby(KEY_COLUMNS, dropna=False).cumcount()
    return rows.assign(number=number)


def _check_caches(recorded: set[str], current: set[str]) -> None:
    """Refuse rows of other states than the recorded ones."""
    if recorded != current:
        raise CacheError(
            "the states of the study are not the recorded ones",
            expected=f"caches {', '.join(sorted(recorded))}",
            found=", ".join(sorted(current)),
        )


def _agree(
    recorded: "pandas.Series[Any]",
    current: "pandas.Series[Any]",
    tolerance: float | None,
) -> "pandas.Series[bool]":
    """Which values are equal, both missing, or within a tolerance.

    Args:
        recorded: a column of the recorded rows.
        current: the same column of today's rows.
        tolerance: in hundredths; None: values must be equal.
    """
    agrees = (recorded == current) | (recorded.isna() & current.isna())
    if tolerance is not None:
        # 1e-9 allows for the rounding of decimal numbers
        agrees |= (recorded - current).abs() <= tolerance / 100 + 1e-9
    return agrees
