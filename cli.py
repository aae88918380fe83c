"""The command line: options -> configuration -> one library call -> show.

Nothing is computed here. The commands import torch and transformers when they run:
``gaam --help`` needs neither.

An option of a configuration takes its name, its default and its sentence from the
field: ``train_option("lr")``. ``read_options`` makes the configuration of what was
typed, of ``--config`` and of ``--preset``, so such a command reads no option itself.
Options that several commands share, or that are many, stand above them as types.
"""

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

import gaam_cache
from gaam_cache.common import plugins, settings, terminal
from gaam_cache.common.command_line import (
    HelpCommand,
    HelpGroup,
    from_config,
    read_options,
)
from gaam_cache.common.errors import CacheError, ConfigError, NotFoundError
from gaam_cache.common.live_table import LiveTable, is_live
from gaam_cache.common.messages import tell
from gaam_cache.common.paths import absolute_path, shown_path, suggest_folder
from gaam_cache.common.settings import data_path
from gaam_cache.common.terminal import show_progress
from gaam_cache.config import VALIDATION_NAMES, ExtractConfig, ImportConfig
from gaam_decoder.config import PlantConfig, TrainConfig

if TYPE_CHECKING:
    from gaam_cache.extraction.summary import ExtractSummary
    from gaam_cache.hub.push import Destination
    from gaam_cache.importing.states import ImportSummary
    from gaam_decoder.grids.recipe import GridStudy, Sources
    from gaam_decoder.runs.loading import Runs
    from gaam_decoder.runs.result import RunResult
    from gaam_decoder.training.status import DecoderStatus

NUMERIC_STATUS_COLUMNS = ("learning\nrate", "validation", "seconds")
STATUS_COLUMNS = ("decoder", *NUMERIC_STATUS_COLUMNS, "state")
"""Columns of the table that ``gaam train`` draws on a terminal."""
SETTINGS: dict[str, type] = {
    "extract": ExtractConfig,
    "import": ImportConfig,
    "train": TrainConfig,
    "plant": PlantConfig,
}
"""Command -> its configuration."""
# headings of the list of commands
THREE = "The three commands"
CARE = "Look after caches and runs"
UNDERSTAND = "Understand"
USE = "Use and share"

# headings of the options of a command
DATA = "Data"
ENCODER = "Encoder"
RECIPE = "Recipe"
PROTOCOL = "Protocol"
MACHINE = "Machine"
OUTPUT = "Settings and output"

app = typer.Typer(
    name="gaam",
    cls=HelpGroup,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    # Typer's other help imports a renderer of Markdown, for 0.1 s
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def extract_option(field: str, *names: str, **looks: Any) -> Any:
    """The option of a field of ``ExtractConfig``, as ``from_config`` makes it."""
    return from_config(ExtractConfig, field, *names, **looks)


def import_option(field: str, *names: str, **looks: Any) -> Any:
    """The option of a field of ``ImportConfig``, as ``from_config`` makes it."""
    return from_config(ImportConfig, field, *names, **looks)


def train_option(field: str, *names: str, **looks: Any) -> Any:
    """The option of a field of ``TrainConfig``, as ``from_config`` makes it."""
    return from_config(TrainConfig, field, *names, **looks)


def plant_option(field: str, *names: str, **looks: Any) -> Any:
    """The option of a field of ``PlantConfig``, as ``from_config`` makes it."""
    return from_config(PlantConfig, field, *names, **looks)


def _completion_of(package: str) -> Callable[[str], list[str]]:
    """Make a function with which a shell completes the names of plug-ins.

    It completes the last of several names with commas between them.
    """

    def complete(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in plugins.names(package)]

    return complete


offer_attentions = _completion_of("gaam_decoder.attention")
offer_heads = _completion_of("gaam_decoder.heads")
offer_losses = _completion_of("gaam_decoder.losses")
offer_optimizers = _completion_of("gaam_decoder.optimizers")
offer_scores = _completion_of("gaam_decoder.stats.scores")
offer_formats = _completion_of("gaam_decoder.reports.formats")
offer_engines = _completion_of("gaam_cache.workers.engines")
offer_poolings = _completion_of("gaam_cache.encoders.poolings")


def _list_names(package: str) -> str:
    """The names of plug-ins, for a sentence."""
    return ", ".join(plugins.names(package))


def _offer_studies() -> list[str]:
    """Names of the recorded studies, with which a shell completes an argument."""
    studies = data_path() / "studies"
    files = [*studies.glob("*/study.toml"), *studies.glob("*/grid.toml")]
    return sorted(file.parent.name for file in files)


def _preset_option(section: str) -> Any:
    """The option ``--preset`` of a command, which lists the presets for it."""
    names = settings.preset_names(section)
    return typer.Option(
        "--preset",
        metavar="NAME",
        help=f"Prepared settings: {', '.join(names)}.",
        autocompletion=lambda: names,
    )


# options of several commands
Strings = list[str] | None
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="File of settings: TOML with the sections extract and train, or "
        "config.toml of a run.",
        rich_help_panel=OUTPUT,
        readable=False,
    ),
]
Sets = Annotated[
    Strings,
    typer.Option(
        "--set",
        metavar="KEY=VAL",
        help="Any other setting, repeatable; 'gaam describe --settings' lists them.",
        rich_help_panel=OUTPUT,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Say what it will cost; write nothing.",
        rich_help_panel=OUTPUT,
    ),
]
# of commands that write files, and of commands that answer
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Print no progress, no summary and no next command; warnings, errors and "
        "what --json or --dry-run asks for stay.",
        rich_help_panel=OUTPUT,
    ),
]
NoProgress = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Show no progress; the result, warnings and errors stay.",
        rich_help_panel=OUTPUT,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print JSON on stdout.", rich_help_panel=OUTPUT),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        help="auto, cpu, cuda, cuda:N or mps.",
        rich_help_panel=MACHINE,
    ),
]
MovedCache = Annotated[
    Path | None,
    typer.Option(
        "--cache", metavar="FOLDER", help="The cache, if it has moved.", readable=False
    ),
]
OnlyAttn = Annotated[
    Strings,
    typer.Option(
        "--attn",
        metavar="NAME",
        help="Only these mechanisms, repeatable: gaam is every form, gaam:heads=1 "
        "that one.",
        autocompletion=offer_attentions,
    ),
]
OnlyHead = Annotated[
    Strings,
    typer.Option(
        "--head",
        metavar="NAME",
        help="Only these heads, repeatable.",
        autocompletion=offer_heads,
    ),
]
Where = Annotated[
    Strings,
    typer.Option(
        "--where",
        metavar="KEY=VAL",
        help="Only runs with layers=1-8, lr=3e-4 or cache=FOLDER; repeatable.",
    ),
]
OneRun = Annotated[Path, typer.Argument(metavar="RUN", help="A run.")]
SomeRun = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A run, or a folder of runs, of which the report recommends one.",
    ),
]
AnyPath = Annotated[
    Path, typer.Argument(metavar="PATH", help="A cache, a run, or a folder of runs.")
]


class Answer(Protocol):
    """What a library call returns: it can be printed as text and as JSON."""

    def to_dict(self) -> dict[str, object]: ...

    def in_words(self) -> str: ...


def _show(answer: Answer, as_json: bool) -> None:
    """Print the answer of a library call on stdout, in words or as JSON."""
    if as_json:
        _print_json(answer.to_dict())
    else:
        tell(answer.in_words())


def _print_json(value: object) -> None:
    tell(json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False))


def _filters(attn: Strings, head: Strings, where: Strings) -> dict[str, Any]:
    """Filters of runs, as keywords of ``gaam_decoder.report``.

    Args:
        attn: mechanisms.
        head: heads.
        where: texts such as ``lr=3e-4``.

    Raises:
        ConfigError: a text of ``where`` names no filter.
    """
    names = ("layers", "lr", "cache")
    filters = settings.parse_pairs(where or (), "--where", names)
    return {"attn": attn, "head": head, **filters}


def _print_version(is_asked: bool) -> None:
    """Print the version and end, if the option ``--version`` is there."""
    if is_asked:
        tell(f"gaam {gaam_cache.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    """Run a frozen encoder once, then train attention decoders on its layers."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command(cls=HelpCommand, rich_help_panel=THREE)
def extract(
    context: typer.Context,
    preset: Annotated[str | None, _preset_option("extract")] = None,
    encoder: str = extract_option("encoder", metavar="NAME"),
    dataset: str = extract_option("dataset", metavar="NAME"),
    out: Path = extract_option("out", "--out", "-o", metavar="FOLDER"),
    pool: list[str] = extract_option("pool", metavar="NAME", offers=offer_poolings),
    dtype: str = extract_option("dtype", metavar="TYPE"),
    limit: int | None = extract_option("limit", metavar="N"),
    subset: str | None = extract_option("subset", metavar="NAME", panel=DATA),
    text_columns: list[str] = extract_option(
        "text_columns", metavar="NAME", panel=DATA
    ),
    label_column: list[str] = extract_option(
        "label_column", metavar="NAME", panel=DATA
    ),
    task: str = extract_option("task", metavar="NAME", panel=DATA),
    file_column: str | None = extract_option("file_column", metavar="NAME", panel=DATA),
    keep_columns: list[str] = extract_option(
        "keep_columns", metavar="NAME", panel=DATA
    ),
    splits: list[str] = extract_option("splits", metavar="NAME", panel=DATA),
    test_fraction: float | None = extract_option(
        "test_fraction", metavar="0.2", panel=DATA
    ),
    test_groups: str | None = extract_option(
        "test_groups", metavar="COLUMN", panel=DATA
    ),
    prompt: str | None = extract_option("prompt", metavar="TEXT", panel=ENCODER),
    chat_template: bool = extract_option("chat_template", panel=ENCODER),
    max_length: int | None = extract_option("max_length", metavar="N", panel=ENCODER),
    layers: str | None = extract_option("layers", metavar="N-M", panel=ENCODER),
    untrained_encoder: bool = extract_option("untrained_encoder", panel=ENCODER),
    storage_dtype: str = extract_option("storage_dtype", metavar="TYPE", panel=ENCODER),
    device: str = extract_option("device", metavar="NAME", panel=MACHINE),
    engine: str = extract_option(
        "engine", metavar="NAME", panel=MACHINE, offers=offer_engines
    ),
    devices: str = extract_option("devices", metavar="N", panel=MACHINE),
    config_file: ConfigFile = None,
    sets: Sets = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run the encoder once over a data set and keep every layer's pooled states.

    Without arguments gaam encodes the bundled news sample with all-MiniLM-L6-v2 and
    writes ./cache. After an interruption the same command goes on where it stopped.
    """
    config = read_options(ExtractConfig, context)
    if dry_run:
        with show_progress("dry run", "rows", quiet=quiet) as progress:
            estimate = gaam_cache.estimate(config, progress=progress)
        _show(estimate, as_json)
        return

    with show_progress("extract", "rows", quiet=quiet) as progress:
        summary = gaam_cache.extract(config, progress=progress)
    if as_json or not quiet:
        _show(summary, as_json)
    if not (as_json or quiet or summary.missing):
        _suggest_training(summary)


def _suggest_training(
    summary: "ExtractSummary | ImportSummary",
) -> None:
    """Print the command that trains on a new cache."""
    # the comparison of the README; the mechanisms differ where there are layers to read
    mechanisms = ["none"]
    if summary.num_layers > 1:
        mechanisms = ["last-layer", "layer-mean", "none", "gaam"]
    options = " ".join(f"--attn {name}" for name in mechanisms)
    train_split = "train"
    if train_split not in summary.rows:
        # of several splits, the one that is not tested
        train_split = min(summary.rows, key=lambda split: split == "test")
        options += f" --set train-split={train_split}"
    # without a split of test rows, parts of the training rows are tested on
    if train_split == "test" or "test" not in summary.rows:
        missing = "train" if train_split == "test" else "test"
        tell(f"no split '{missing}': --folds 5 tests on parts of '{train_split}'")
        options += " --folds 5"
    else:
        from gaam_cache.store.plan import read_plan

        labelled = set(summary.rows) - set(read_plan(Path(summary.path)).unlabelled)
        for split in (labelled - {train_split}) & set(VALIDATION_NAMES):
            options += f" --set val-split={split}"
    tell(f"next: gaam train --cache {shlex.quote(shown_path(summary.path))} {options}")


@app.command(cls=HelpCommand, rich_help_panel=THREE)
def train(
    context: typer.Context,
    attn: list[str] = train_option("attn", metavar="NAME", offers=offer_attentions),
    preset: Annotated[str | None, _preset_option("train")] = None,
    cache: Path = train_option("cache", metavar="FOLDER"),
    runs: Path = train_option("runs", "--runs", "--out", "-o", metavar="FOLDER"),
    seeds: list[str] = train_option("seeds", metavar="LIST"),
    head: list[str] = train_option("head", metavar="NAME", offers=offer_heads),
    layers: list[str] = train_option("layers", metavar="LIST"),
    lr: Strings = train_option("lr", metavar="LIST"),
    tune_seeds: Strings = train_option("tune_seeds", metavar="LIST"),
    epochs: int = train_option("epochs", metavar="N", panel=RECIPE),
    batch_size: int = train_option("batch_size", metavar="N", panel=RECIPE),
    loss: str = train_option("loss", metavar="NAME", panel=RECIPE, offers=offer_losses),
    optimizer: str = train_option(
        "optimizer", metavar="NAME", panel=RECIPE, offers=offer_optimizers
    ),
    pool: list[str] = train_option("pool", metavar="NAME", panel=RECIPE),
    dtype: str = train_option("dtype", metavar="TYPE", panel=RECIPE),
    select: str = train_option("select", metavar="RULE", panel=PROTOCOL),
    folds: int | None = train_option("folds", metavar="N", panel=PROTOCOL),
    groups: str | None = train_option("groups", metavar="NAME", panel=PROTOCOL),
    train_rows: list[str] = train_option("train_rows", metavar="LIST", panel=PROTOCOL),
    final: bool = train_option("final", panel=PROTOCOL),
    probe: bool = train_option("probe", "--probe/--no-probe", panel=PROTOCOL),
    device: str = train_option("device", metavar="NAME", panel=MACHINE),
    engine: str = train_option(
        "engine", metavar="NAME", panel=MACHINE, offers=offer_engines
    ),
    devices: str = train_option("devices", metavar="N", panel=MACHINE),
    config_file: ConfigFile = None,
    sets: Sets = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train attention decoders on a cache over many seeds and keep the runs in ./runs.

    Runs that exist already are not trained again. No encoder is loaded.
    """
    import gaam_decoder

    config = read_options(TrainConfig, context)
    if dry_run:
        _show(gaam_decoder.estimate(config), as_json)
        return

    display = _TrainDisplay(config, quiet, as_json)
    showing = show_progress(
        "train",
        "seed-epochs",
        quiet=quiet,
        say=config.tuning_cost_in_words,
        table=display.table,
    )
    with showing as progress:
        results = gaam_decoder.train(
            config,
            progress=progress,
            on_run=display.show_run,
            on_status=display.show_status,
        )
    display.end(results)
    gaam_decoder.check_failures(results, config.seeds)


class _TrainDisplay:
    """What ``gaam train`` shows: on a terminal a table that changes, else lines.

    Args:
        config: of the training.
        quiet: show nothing.
        as_json: print JSON on stdout, and lines on stderr.
    """

    table: LiveTable | None = None
    """Drawn on stderr while decoders train; None where that is no terminal."""

    def __init__(self, config: TrainConfig, quiet: bool, as_json: bool) -> None:
        self._config = config
        self._quiet = quiet
        self._as_json = as_json
        self._has_trained = False
        self._shown_runs: list[Path] = []
        # the default of the class, None, stays where nobody looks at a terminal
        if not quiet and is_live(sys.stderr):
            self.table = LiveTable(STATUS_COLUMNS, numbers=NUMERIC_STATUS_COLUMNS)
        # a file or a pipe gets lines while somebody looks at the table
        is_read_elsewhere = not as_json and not is_live(sys.stdout)
        self._has_lines = not quiet and (self.table is None or is_read_elsewhere)

    def show_status(self, status: "DecoderStatus") -> None:
        """Put the status of a decoder into the table."""
        if self.table is not None:
            self.table.set_row(
                status.decoder,
                status.learning_rate,
                status.validation,
                f"{status.seconds:.1f}",
                status.state,
            )

    def show_run(self, run: "RunResult") -> None:
        """Print a line on a finished run, if it is not there to be chosen from."""
        from gaam_decoder.training.sweep import is_candidate

        self._has_trained = True
        if self._has_lines and not is_candidate(self._config, run):
            self._shown_runs.append(run.path)
            tell(run.summary(), to=sys.stderr if self._as_json else sys.stdout)

    def end(self, runs: "Runs") -> None:
        """Print the runs as JSON, or what validation chose and the next commands."""
        from gaam_decoder.training.sweep import next_commands, training_summary

        if self._as_json:
            _print_json([run.to_dict() for run in runs])
            return
        if self._quiet:
            return
        if not self._has_trained:
            tell("this command trains nothing: every seed was trained before")
        if self.table is not None and not self._has_lines:
            self.table.print()
        else:
            tell("\n".join(training_summary(self._config, runs, self._shown_runs)))
        tell("\n".join(next_commands(self._config, runs)))


# arguments and options of gaam report
RunFolders = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RUNS",
        help="Folders of runs, or single runs.",
        show_default="runs",
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="NAME",
        help="Mechanism with which the others are compared, seed by seed.",
        show_default="the mechanism 'none', if it was trained",
        autocompletion=offer_attentions,
    ),
]
Score = Annotated[
    str | None,
    typer.Option(
        "--score",
        metavar="NAME",
        help=f"Score to compare: {_list_names('gaam_decoder.stats.scores')}; or yours, "
        "FILE.py:CLASS.",
        show_default="accuracy; for numbers r2, for label sets micro-f1",
        autocompletion=offer_scores,
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(
        "--margin",
        metavar="POINTS",
        help="Largest difference that does not matter, in the unit of the score: "
        "points where it is shown in percent.",
        show_default="0.5 points; 0.005 for r2, spearman, mcc, quadratic-kappa and "
        "brier; 0.01 for log-loss, mae and ordinal-mae",
    ),
]
ClassOrder = Annotated[
    str | None,
    typer.Option(
        "--class-order",
        metavar="NAMES",
        help="All classes, the lowest first, with commas: for the scores "
        "quadratic-kappa and ordinal-mae.",
        show_default="by value, if all classes are numbers",
    ),
]
FitTemperature = Annotated[
    bool,
    typer.Option(
        "--temperature",
        help="Divide each seed's logits by the temperature that fits its validation "
        "rows; not for numbers.",
    ),
]
Pairs = Annotated[
    str | None,
    typer.Option(
        "--pairs",
        metavar="SETTING",
        help="Compare every two decoders that differ in this setting alone: attn, "
        "head, layers, pool, lr, ..., or encoder, where encoders read the same rows.",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="COLUMN",
        help="Kept column that says which rows belong together, such as a speaker; "
        "intervals and verdicts are then over groups.",
    ),
]
Across = Annotated[
    str | None,
    typer.Option(
        "--across",
        metavar="FACTORS",
        help="With runs of several data sets: dataset gives an answer for each "
        "encoder, dataset,encoder one answer over all.",
        show_default="dataset,encoder, where runs are of several data sets",
    ),
]
EveryCandidate = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Show every learning rate and weight decay, not only what validation "
        "chose.",
    ),
]
TopDecoders = Annotated[
    int | None,
    typer.Option(
        "--top",
        metavar="N",
        help="Show the best N decoders of each table, and their baselines.",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAMES",
        help="Columns of the table, in this order, with commas; --explain lists them.",
        rich_help_panel=OUTPUT,
    ),
]
Section = Annotated[
    str | None,
    typer.Option(
        "--section",
        metavar="NAME",
        help="Write this section alone, in any format: pairs, scores, calibration, "
        "curves, learned, gates, grid, importance, published, across, "
        "across-probe, across-scores, across-sets, across-learned, encoders, "
        "encoders-sets. The end "
        "of a report names those that it has.",
        rich_help_panel=OUTPUT,
    ),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="Explain how each column and verdict is made.",
        rich_help_panel=OUTPUT,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help=f"Format of the report: {_list_names('gaam_decoder.reports.formats')}.",
        show_default="by the ending of --out, else terminal",
        rich_help_panel=OUTPUT,
        autocompletion=offer_formats,
    ),
]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="Write to this file instead of stdout; its ending is the format: .csv, "
        ".html, .json, .md, .tex, .txt.",
        rich_help_panel=OUTPUT,
        readable=False,
    ),
]
Figures = Annotated[
    Path | None,
    typer.Option(
        "--figures",
        metavar="FOLDER",
        help="Write the figures too, as PDF and PNG.",
        rich_help_panel=OUTPUT,
        readable=False,
    ),
]
JsonFormat = Annotated[
    bool,
    typer.Option("--json", help="The same as --format json.", rich_help_panel=OUTPUT),
]


@app.command(cls=HelpCommand, rich_help_panel=THREE)
def report(
    context: typer.Context,
    runs: RunFolders = None,
    attn: OnlyAttn = None,
    head: OnlyHead = None,
    where: Where = None,
    baseline: Baseline = None,
    score: Score = None,
    margin: Margin = None,
    class_order: ClassOrder = None,
    temperature: FitTemperature = False,
    pairs: Pairs = None,
    groups: Groups = None,
    across: Across = None,
    every_candidate: EveryCandidate = False,
    top: TopDecoders = None,
    columns: Columns = None,
    section: Section = None,
    explain: Explain = False,
    format: Format = None,
    out: ReportFile = None,
    figures: Figures = None,
    as_json: JsonFormat = False,
) -> None:
    """Print tables of scores of runs, and differences to a baseline with intervals."""
    from gaam_cache.store.files import check_writable
    from gaam_decoder.reports import report as reports
    from gaam_decoder.reports.columns import explain_columns
    from gaam_decoder.reports.entries import DEFAULT_SCORE
    from gaam_decoder.reports.table import TableOptions

    if explain:
        tell(explain_columns())
        return

    # Refuse before the work what could not be written after it.
    if out:
        check_writable(out, option="--out", file=True)
    format = _report_format(format, out, as_json=as_json)
    # a column may have the name of the score
    part: reports.ReportPart = {"section": section, "columns": columns}
    reports.format_of(format, score or DEFAULT_SCORE, **part)
    if figures:
        check_writable(figures, option="--figures")

    # the parameters that are options of tables have the names of these options
    table_options = {
        name: context.params[name] for name in TableOptions.__annotations__
    }
    result = reports.report(
        runs or ["runs"],
        **_filters(attn, head, where),
        **table_options,
    )
    if figures:
        tell(f"{len(result.save_figures(figures))} files in {figures}", to=sys.stderr)
    if out:
        result.save(out, format, **part)
    else:
        result.show(format, **part)


def _report_format(format: str | None, out: Path | None, *, as_json: bool) -> str:
    """The format of a report: that of its option, else by the ending of the file.

    Args:
        format: the value of ``--format``.
        out: the file to write; None for the terminal.
        as_json: whether ``--json`` is given.
    """
    from gaam_decoder.reports import report as reports

    if as_json and format not in (None, "json"):
        raise ConfigError(
            "--json is --format json", expected="one format", found=format
        )
    if as_json:
        return "json"
    if format is None and out is not None:
        return reports.format_of_file(out)
    return format or "terminal"


@app.command("import", cls=HelpCommand, rich_help_panel=CARE)
def import_(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="Files of arrays: .safetensors, .npz, .npy, .h5.",
            readable=False,
        ),
    ],
    out: Path = import_option("out", "--out", "-o", metavar="FOLDER"),
    arrays: list[str] = import_option("arrays", metavar="SPLIT=NAME"),
    labels: list[str] = import_option("labels", metavar="SPLIT=NAME"),
    task: str = import_option("task", metavar="NAME"),
    storage_dtype: str | None = import_option("storage_dtype", metavar="TYPE"),
    sets: Sets = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Say which array would become what; write nothing.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Make a cache of states that were computed elsewhere.

    gaam finds arrays with usual names: train.npz with embeddings and labels;
    train/embeddings; X_train and y_train; layer_0, layer_1, ... The options --array and
    --labels name all others.
    """
    config = read_options(ImportConfig, context)
    with show_progress("import", "rows", quiet=quiet) as progress:
        summary = gaam_cache.import_states(config, preview=dry_run, progress=progress)
    if as_json or dry_run or not quiet:
        _show(summary, as_json)
    if not (as_json or quiet or dry_run):
        _suggest_training(summary)


@app.command(cls=HelpCommand, rich_help_panel=CARE)
def inspect(
    path: AnyPath = Path("cache"),
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Look again every few seconds, until all is done."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what a cache or a run is, how complete it is, and who works on it."""
    import gaam_cache.inspect
    import gaam_decoder.inspect

    folder = absolute_path(path)
    if not os.path.lexists(folder):
        hint = suggest_folder(
            folder,
            lambda beside: (
                gaam_cache.inspect.is_cache(beside)
                or gaam_decoder.inspect.has_runs(beside)
            ),
            "gaam extract",
        )
        raise NotFoundError(f"nothing at '{path}'", where=str(folder), hint=hint)
    while True:
        # a folder may become a cache while somebody watches it
        is_cache = gaam_cache.inspect.is_cache(folder)
        package: Any = gaam_cache if is_cache else gaam_decoder
        inspection = package.inspect.inspect(folder)
        if watch and sys.stdout.isatty():
            typer.echo("\x1b[H\x1b[2J", nl=False)
        _show(inspection, as_json)
        if inspection.complete or inspection.damage or not watch:
            raise typer.Exit(CacheError.exit_code if inspection.damage else 0)
        time.sleep(5)


@app.command(cls=HelpCommand, rich_help_panel=CARE)
def verify(
    path: AnyPath = Path("cache"),
    recompute: Annotated[
        int,
        typer.Option(
            "--recompute",
            metavar="N",
            min=0,
            help="Of a cache: encode N random rows again, alone, and compare.",
        ),
    ] = 0,
    device: Device = "auto",
    quiet: NoProgress = False,
    as_json: AsJson = False,
) -> None:
    """Check every byte of a cache or of runs; exit 3 if any is missing or wrong."""
    from gaam_cache.inspect import is_cache

    path = absolute_path(path)
    holds_runs = False
    if not is_cache(path):
        from gaam_decoder.inspect import has_runs  # slow: it imports torch

        holds_runs = has_runs(path)
    if holds_runs and (recompute or device != "auto"):
        raise ConfigError(
            "these options are for caches", expected="gaam verify RUNS alone"
        )
    result: Any
    with show_progress("verify", "steps", quiet=quiet) as progress:
        if holds_runs:
            from gaam_decoder.inspect import list_runs

            result = list_runs(path, whole=True, progress=progress)
        else:
            result = gaam_cache.verify(
                path, recompute_rows=recompute, device=device, progress=progress
            )
    _show(result, as_json)
    # good: nothing is missing or damaged
    raise typer.Exit(0 if result.good else CacheError.exit_code)


@app.command(cls=HelpCommand, rich_help_panel=CARE)
def runs(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER", help="Folders of runs.", show_default="runs"),
    ] = None,
    attn: OnlyAttn = None,
    head: OnlyHead = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """List runs, damaged and unfinished ones too."""
    from gaam_decoder.inspect import list_runs

    listing = list_runs(folders or [Path("runs")], **_filters(attn, head, where))
    _show(listing, as_json)
    # good: no run is damaged
    raise typer.Exit(0 if listing.good else CacheError.exit_code)


@app.command(cls=HelpCommand, rich_help_panel=UNDERSTAND)
def describe(
    attn: Annotated[
        str | None,
        typer.Option(
            "--attn",
            metavar="NAME",
            help="Mechanism to describe.",
            show_default="a list of all",
            autocompletion=offer_attentions,
        ),
    ] = None,
    layers: Annotated[
        int,
        typer.Option(
            "--layers",
            metavar="N",
            min=1,
            max=10_000,
            help="Layers of the encoder, to count parameters.",
        ),
    ] = 40,
    hidden_size: Annotated[
        int,
        typer.Option(
            "--hidden-size",
            metavar="N",
            min=1,
            max=1_000_000,
            help="Hidden size of the encoder, to count parameters.",
        ),
    ] = 5120,
    list_settings: Annotated[
        bool,
        typer.Option(
            "--settings",
            help="List all settings of extract, import, train and plant.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List mechanisms, heads, losses and settings: formulas, options, sources."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 100)
    if list_settings:
        _list_settings(width, as_json)
        return

    from gaam_decoder import catalogue

    if attn:
        mechanism = catalogue.describe_mechanism(attn, layers, hidden_size)
        if as_json:
            _print_json(mechanism)
        else:
            tell(catalogue.mechanism_in_words(mechanism))
        return

    everything = catalogue.catalogue(layers, hidden_size)
    if as_json:
        _print_json(everything)
    else:
        tell(catalogue.catalogue_in_words(everything, width=width))


def _list_settings(width: int, as_json: bool) -> None:
    """Print all settings of every command, in lines of ``width`` or as JSON."""
    if not as_json:
        tell(settings.list_in_words(SETTINGS, width))
        return
    settings_by_command = {}
    for command, config in SETTINGS.items():
        all_settings = settings.settings_of(config)
        settings_by_command[command] = [setting.to_dict() for setting in all_settings]
    _print_json(settings_by_command)


@app.command(cls=HelpCommand, rich_help_panel=UNDERSTAND)
def ablate(
    run: OneRun,
    num_layers: Annotated[
        int, typer.Option("--num-layers", metavar="N", help="Layers of each set.")
    ] = 3,
    random_sets: Annotated[
        int,
        typer.Option(
            "--random-sets", metavar="N", min=1, help="Number of random sets of layers."
        ),
    ] = 10,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", min=0, help="Seed that draws the random layers."
        ),
    ] = 0,
    cache: MovedCache = None,
    attn: Annotated[
        str | None,
        typer.Option(
            "--attn",
            metavar="NAME",
            help="Mechanism to train.",
            show_default="the run's own",
            autocompletion=offer_attentions,
        ),
    ] = None,
    device: Device = "auto",
    quiet: NoProgress = False,
    as_json: AsJson = False,
) -> None:
    """Retrain a run on its most and least important layers and on random ones.

    The importance of a layer is its mean weight over test rows, scaled to 0 to 1 and
    averaged over features; 'gaam inspect RUN' prints it. Recipe and seeds are the
    run's. The new runs lie in the folder 'ablation' beside it.
    """
    import gaam_decoder

    with show_progress("ablate", "seed-epochs", quiet=quiet) as progress:
        result = gaam_decoder.ablate(
            run,
            num_layers=num_layers,
            random_sets=random_sets,
            seed=seed,
            cache=cache,
            attn=attn,
            device=device,
            progress=progress,
        )
    _show(result, as_json)
    # fails if no seed finished on a set of layers
    result.check()


@app.command(cls=HelpCommand, rich_help_panel=UNDERSTAND)
def plant(
    context: typer.Context,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder of the cache to make.")
    ],
    gate: str = plant_option("gate", metavar="NAME"),
    strength: float = plant_option("strength", metavar="NUMBER"),
    from_cache: Path | None = plant_option("from_cache", metavar="CACHE"),
    rows: int | None = plant_option("rows", metavar="N"),
    seed: int = plant_option("seed", metavar="N"),
    sets: Sets = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Make a positive control: a cache with labels that a known gate decides.

    The labels depend on the states through the gate. The mechanism of that shape must
    win on it, and a report must say so. With the gate none, no gate may win.
    """
    import gaam_decoder

    config = read_options(PlantConfig, context)
    with show_progress("plant", "rows", quiet=quiet) as progress:
        planted = gaam_decoder.plant(config, progress=progress)
    if as_json or not quiet:
        _show(planted, as_json)


# arguments and options of gaam study
StudyName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="Folder with study.toml, or the name of one in data/studies.",
        autocompletion=_offer_studies,
    ),
]
StudiesFolder = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        metavar="FOLDER",
        help="Folder of all studies: caches, runs and results.",
        readable=False,
    ),
]
OtherDataset = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        metavar="NAME",
        help="Data set to use instead of the one that the study names.",
    ),
]
DryStudy = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Print the commands and what each would cost; run none."
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Compare the results with the recorded ones; exit 1 if they differ.",
    ),
]
Record = Annotated[
    bool, typer.Option("--record", help="Write the results beside study.toml.")
]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FOLDER",
        help="Folder of the data sets of a study that has several.",
        readable=False,
    ),
]
EncoderFolder = Annotated[
    Path | None,
    typer.Option(
        "--encoders",
        metavar="FOLDER",
        help="Folder of the encoders of a study that has several.",
        show_default="encoders of the recipe",
        readable=False,
    ),
]
MachineSets = Annotated[
    Strings,
    typer.Option(
        "--set",
        metavar="KEY=VAL",
        help="Setting of the machine: device, engine, devices, ...; repeatable.",
    ),
]


@app.command(cls=HelpCommand, rich_help_panel=UNDERSTAND)
def study(
    name: StudyName,
    out: StudiesFolder = Path("studies"),
    dataset: OtherDataset = None,
    dry_run: DryStudy = False,
    check: Check = False,
    record: Record = False,
    data: DataFolder = None,
    encoders: EncoderFolder = None,
    sets: MachineSets = None,
    quiet: NoProgress = False,
    as_json: AsJson = False,
) -> None:
    """Run a study: complete its caches and runs, then write its page.

    A study of several data sets and encoders (grid.toml) keeps a record of every pair,
    and does not run recorded pairs again. Without --data it writes its page alone.
    """
    from gaam_decoder import study as studies
    from gaam_decoder.grids.recipe import Sources, find_grid, read_grid_study

    # the recorded results are compared with the new ones, or replaced by them
    if check and record:
        raise ConfigError("--check and --record at once", expected="one of them")
    known_keys = sorted(key.replace("_", "-") for key in studies.MACHINE)
    pairs = settings.parse_pairs(sets or (), "--set", known_keys)
    machine = {key.replace("-", "_"): value for key, value in pairs.items()}
    # a study of several data sets and encoders has a folder with grid.toml
    grid_folder = find_grid(name)
    if grid_folder:
        if check or dataset:
            raise ConfigError("--check and --dataset are not for a study with a grid")
        sources = None if data is None else Sources(data, encoders, machine)
        grid_study = read_grid_study(grid_folder, out=out)
        _run_grid(grid_study, sources, dry_run, record, quiet, as_json)
        return
    if data or encoders:
        raise ConfigError("--data and --encoders are for a study with a grid")
    recipe = studies.read_study(name, out=out, dataset=dataset, machine=machine)
    if dry_run:
        _show(studies.estimate(recipe), as_json)
        return

    def show_command(command: str) -> None:
        if not quiet:
            tell(command, to=sys.stderr)

    with show_progress("study", "steps", quiet=quiet) as progress:
        outcome = studies.carry_out(
            recipe, say=show_command, check=check, record=record, progress=progress
        )
    _show(outcome, as_json)
    raise typer.Exit(outcome.exit_code)


def _run_grid(
    grid_study: "GridStudy",
    sources: "Sources | None",
    dry_run: bool,
    record: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run a study of several data sets and encoders, or say what is missing.

    Args:
        grid_study: the recipe, and the folder of its results.
        sources: folders of the data sets and encoders; None: write the page alone.
        dry_run: whether to say what is missing, and to run nothing.
        record: whether to keep records and page beside the recipe, too.
        quiet: whether neither commands nor progress are shown.
        as_json: whether the outcome is printed as JSON.
    """
    from gaam_decoder.grids.running import carry_out_grid, estimate_grid

    if dry_run:
        _show(estimate_grid(grid_study, sources), as_json)
        return

    def show_command(command: str) -> None:
        if not quiet:
            tell(command, to=sys.stderr)

    with show_progress("study", "steps", quiet=quiet) as progress:
        outcome = carry_out_grid(
            grid_study, sources, record=record, say=show_command, progress=progress
        )
    _show(outcome, as_json)


# arguments and options of gaam predict
Texts = Annotated[
    Strings,
    typer.Argument(
        metavar="TEXT",
        help="Texts, or paths of sounds or pictures; - reads lines from stdin.",
        show_default=False,
    ),
]
TableFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Table of rows: .csv, .json, .jsonl, .parquet.",
        readable=False,
    ),
]
ResultFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="File for the results of all rows: .csv, .jsonl, .parquet.",
        show_default="stdout",
        readable=False,
    ),
]
TextColumns = Annotated[
    Strings,
    typer.Option(
        "--text-column",
        metavar="NAME",
        help="Column of the text, repeatable.",
        show_default="those of the run",
    ),
]
OwnMechanism = Annotated[
    str | None,
    typer.Option(
        "--attn",
        metavar="FILE.py:CLASS",
        help="Your own mechanism, if the run was trained with it.",
    ),
]
OwnHead = Annotated[
    str | None,
    typer.Option(
        "--head",
        metavar="FILE.py:CLASS",
        help="Your own head, if the run was trained with it.",
    ),
]
MovedEncoder = Annotated[
    str | None,
    typer.Option(
        "--encoder", metavar="PATH", help="The encoder of the run, if it has moved."
    ),
]
CacheOfRows = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="FOLDER",
        help=(
            "Cache whose rows are predicted instead of texts, without an encoder. The "
            "result's column 'row' counts the rows of the split from 0; rows that "
            "'gaam extract' left out are not in it."
        ),
        readable=False,
    ),
]
SplitOfCache = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="NAME",
        help="Split of the cache, labelled or not.",
        show_default="test",
    ),
]
TopClasses = Annotated[
    int,
    typer.Option(
        "--top",
        metavar="K",
        help="Name the K likeliest classes; for classification alone.",
    ),
]
UseTemperature = Annotated[
    bool,
    typer.Option(
        "--temperature",
        help="Divide each seed's logits by the temperature that fits its validation "
        "rows.",
    ),
]
FileFormat = Annotated[
    Strings,
    typer.Option(
        "--set",
        metavar="KEY=VAL",
        help="Form of the file: encoding or delimiter.",
        show_default="as the rows of the run",
    ),
]


@app.command(cls=HelpCommand, rich_help_panel=USE)
def predict(
    run: SomeRun,
    texts: Texts = None,
    file: TableFile = None,
    out: ResultFile = None,
    text_columns: TextColumns = None,
    attn: OwnMechanism = None,
    head: OwnHead = None,
    encoder: MovedEncoder = None,
    cache: CacheOfRows = None,
    split: SplitOfCache = None,
    top: TopClasses = 1,
    temperature: UseTemperature = False,
    sets: FileFormat = None,
    device: Device = "auto",
    quiet: NoProgress = False,
    as_json: AsJson = False,
) -> None:
    """Predict classes, numbers or labels: of texts, of a file or stdin, or of a cache.

    gaam averages probabilities, or numbers, over the seeds of the run. For classes, a
    file keeps its columns and gains predicted, probability, and agreement: the share of
    seeds that say the same. It needs no labels.
    """
    file_format = settings.parse_pairs(sets or (), "--set", ("encoding", "delimiter"))
    import gaam_decoder

    config = gaam_decoder.PredictConfig(
        run=run,
        texts=tuple(texts or ()),
        file=file,
        out=out,
        text_columns=tuple(text_columns or ()),
        attn=attn,
        head=head,
        encoder=encoder,
        cache=cache,
        split=split,
        top=top,
        temperature=temperature,
        device=device,
        **file_format,
    )
    # Without a file, predictions go to stdout as a table while they are made. Those of
    # texts in the command line are few, and are shown at the end.
    prints_table = out is None and not config.has_argument_texts
    # the table and a bar of progress would be mixed on one terminal
    is_quiet = quiet or (prints_table and sys.stdout.isatty())
    # a stream that a caller put in place may have no buffer
    stdout: Any = getattr(sys.stdout, "buffer", sys.stdout)
    with show_progress("predict", "rows", quiet=is_quiet) as progress:
        predicted = gaam_decoder.predict(
            config,
            stdin=getattr(sys.stdin, "buffer", None),
            write=stdout.write,
            as_list=as_json,
            progress=progress,
        )
    if not prints_table:
        _show(predicted, as_json)


# arguments and options of gaam export
RunOrCache = Annotated[
    Path,
    typer.Argument(metavar="RUN|CACHE", help="A run, a folder of runs, or a cache."),
]
ExportFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to make.")]
OneSeed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="K",
        help="Export the decoder of this seed alone.",
        show_default="the average of all",
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace an earlier export, in the folder and in the repository.",
    ),
]
Push = Annotated[
    str | None,
    typer.Option(
        "--push",
        metavar="USER/NAME",
        help="Send the folder to the hub too, after a question.",
    ),
]
Private = Annotated[
    bool, typer.Option("--private", help="Make a new repository private.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Send the folder without a question.")]


@app.command(cls=HelpCommand, rich_help_panel=USE)
def export(
    path: RunOrCache,
    out: ExportFolder,
    seed: OneSeed = None,
    attn: OwnMechanism = None,
    head: OwnHead = None,
    cache: MovedCache = None,
    overwrite: Overwrite = False,
    push: Push = None,
    private: Private = False,
    yes: Yes = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Make a folder of a run or a cache for the hub, with a card and nothing personal.

    Nothing leaves this machine without --push, which says what would be sent where, and
    asks.
    """
    import gaam_cache.inspect

    path = absolute_path(path)
    is_cache = gaam_cache.inspect.is_cache(path)
    if is_cache:
        _refuse_options_of_runs(
            {"--seed": seed, "--attn": attn, "--head": head, "--cache": cache}
        )
    destination = _destination_of_export(
        push, is_cache=is_cache, private=private, overwrite=overwrite, yes=yes
    )
    exported: Any
    if is_cache:
        with show_progress("export", "steps", quiet=quiet) as progress:
            exported = gaam_cache.export_cache(
                path, out, overwrite=overwrite, progress=progress
            )
    else:
        import gaam_decoder

        exported = gaam_decoder.export_run(
            path,
            out,
            seed=seed,
            attn=attn,
            head=head,
            cache=cache,
            overwrite=overwrite,
        )
    if not (as_json or quiet):
        tell(exported.in_words())

    sent_to = None
    if destination is not None:
        sent_to = destination.send(absolute_path(out), yes=yes)
    if as_json:
        _print_json(exported.to_dict() | {"sent_to": sent_to})
    elif sent_to and not quiet:
        tell(f"sent to {sent_to}")


def _destination_of_export(
    push: str | None, *, is_cache: bool, private: bool, overwrite: bool, yes: bool
) -> "Destination | None":
    """Where on the hub an export goes; None without ``--push``.

    Args:
        push: the value of ``--push``.
        is_cache: whether a cache is exported, and no run.
        private: make a new repository private.
        overwrite: replace an earlier export.
        yes: send without a question.
    """
    if push is None:
        if private or yes:
            raise ConfigError(
                "--private and --yes are for --push", expected="--push USER/NAME"
            )
        return None
    from gaam_cache.hub.push import check_destination

    kind = "dataset" if is_cache else "model"
    return check_destination(
        push, kind=kind, private=private, overwrite=overwrite, yes=yes
    )


def _refuse_options_of_runs(values: Mapping[str, object]) -> None:
    """Refuse options that are for a run, where a cache is exported.

    ``values`` are the values of these options by their names; None if not given.
    """
    names_of_options = [name for name, value in values.items() if value is not None]
    if names_of_options:
        verb = "is" if len(names_of_options) == 1 else "are"
        raise ConfigError(
            f"{', '.join(names_of_options)} {verb} for a run",
            expected="a run",
            found="a cache",
        )


def main() -> None:
    """Entry point: run a command; every error becomes one message and an exit code."""
    terminal.run(app, SETTINGS)


if __name__ == "__main__":
    main()
