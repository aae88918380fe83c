"""The command line: parse -> config -> one library call -> show. Nothing is computed here.

The commands import torch and transformers when they run: ``gaam --help`` needs neither.
The field of a configuration says the type and the meaning of its option. This file does
not postpone annotations: typer would evaluate every string three times for each help.
"""

import functools
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

import gaam_cache
from gaam_cache.common import plugins, settings, terminal
from gaam_cache.common.errors import ConfigError, NotFoundError
from gaam_cache.common.messages import tell
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.common.settings import data_path
from gaam_cache.common.terminal import show_progress
from gaam_cache.config import ExtractConfig, ImportConfig
from gaam_decoder.config import PlantConfig, TrainConfig

# fmt: off
SETTINGS: dict[str, type] = {"extract": ExtractConfig, "import": ImportConfig, "train": TrainConfig, "plant": PlantConfig}
THREE, CARE, UNDERSTAND, USE = "The three commands", "Look after caches and runs", "Understand", "Use and share"
DATA, ENCODER, RECIPE, PROTOCOL, MACHINE, OUTPUT = "Data", "Encoder", "Recipe", "Protocol", "Machine", "Settings and output"
OPTION_TYPES = {"LIST": list[str], "true|false": bool, "N": int, "NUMBER": float, "PATH": Path}
WHERE = ("layers", "lr", "cache")
COLUMNS = "decoder, verdict, accuracy (or the --score), 95% CI + rows, difference, 95% CI of it, p Holm, would decide, sd, seeds, 95% CI seeds, p training, settings, validation, parameters, s/seed"
# fmt: on

app = typer.Typer(
    name="gaam",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _option(
    *names: str,
    kind: str = "",
    panel: str | None = None,
    offers: Callable[..., list[str]] | None = None,
    **typer_settings: Any,
) -> Any:
    """An option under a heading of the help; ``offers`` completes words for a shell."""
    return typer.Option(
        *names,
        metavar=kind,
        rich_help_panel=panel,
        autocompletion=offers,
        # the library refuses unreadable files, as it does all other bad files
        readable=False,
        **typer_settings,
    )


def _parameter(name: str, annotation: Any, *, required: bool = False) -> Parameter:
    """A parameter of a command that is declared outside of its function."""
    default = Parameter.empty if required else None
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _field_option(config: type, *names: str, **option_settings: Any) -> Parameter:
    """An option of a field of a configuration, which says its type and meaning."""
    key = names[0].partition("/")[0].removeprefix("--")
    setting = settings.find_setting(config, key)
    value_type: Any = OPTION_TYPES.get(setting.type, str)
    option = _option(*names, help=setting.in_words(), **option_settings)
    return _parameter(setting.name, Annotated[value_type | None, option])


def _preset_option(section: str) -> Parameter:
    names = settings.preset_names(section)
    option = _option(
        "--preset",
        kind="NAME",
        help=f"Prepared settings: {', '.join(names)}.",
        offers=lambda: names,
    )
    return _parameter("preset", Annotated[str | None, option])


def _takes_settings(
    section: str, parameters: Sequence[Parameter]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a command with the configuration that these parameters make.

    The command's first argument is the configuration. Its other arguments follow the
    parameters in the help.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            options = {
                parameter.name: values.pop(parameter.name) for parameter in parameters
            }
            command(_resolve(section, options), **values)

        # typer reads the parameters of a command from its signature
        _config, *own_parameters = signature(command).parameters.values()
        keyword_parameters = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for parameter in own_parameters
        ]
        every_parameter = Signature([*parameters, *keyword_parameters])
        run.__signature__ = every_parameter  # type: ignore[attr-defined]
        return run

    return decorate


def _resolve(section: str, options: dict[str, Any]) -> Any:
    """The configuration that the options of a command, its files and ``--set`` make."""
    sources = {
        "sets": options.pop("sets"),
        "config_file": options.pop("config", None),
        "preset": options.pop("preset", None),
    }
    return settings.resolve(SETTINGS[section], section, options, **sources)


def _plugin_names(package: str) -> Callable[[str], list[str]]:
    """Complete the names of plug-ins for a shell, also after a comma."""

    def complete(incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in plugins.names(package)]

    return complete


attentions = _plugin_names("gaam_decoder.attention")
heads = _plugin_names("gaam_decoder.heads")
losses = _plugin_names("gaam_decoder.losses")
optimizers = _plugin_names("gaam_decoder.optimizers")
engines = _plugin_names("gaam_cache.workers.engines")
poolings = _plugin_names("gaam_cache.encoders.poolings")
extract_option = partial(_field_option, ExtractConfig)
import_option = partial(_field_option, ImportConfig)
train_option = partial(_field_option, TrainConfig)
plant_option = partial(_field_option, PlantConfig)
Strings = list[str] | None
# fmt: off
CONFIG_FILE = _parameter("config", Annotated[Path | None, _option("--config", kind="FILE", help="TOML with the sections extract and train, or config.toml of a run.", panel=OUTPUT)])
SETS = _parameter("sets", Annotated[Strings, _option("--set", kind="KEY=VAL", help="Any other setting, repeatable; 'gaam describe --settings' lists them.", panel=OUTPUT)])
DryRun = Annotated[bool, _option("--dry-run", help="Say what it will cost; write nothing.", panel=OUTPUT)]
Quiet = Annotated[bool, _option("--quiet", "-q", help="No progress.", panel=OUTPUT)]
AsJson = Annotated[bool, _option("--json", help="Print JSON on stdout.", panel=OUTPUT)]
Device = Annotated[str, _option("--device", kind="NAME", help="auto, cpu, cuda, cuda:N or mps.", panel=MACHINE)]
MovedCache = Annotated[Path | None, _option("--cache", kind="FOLDER", help="The cache, if it has moved.")]
OnlyAttn = Annotated[Strings, _option("--attn", kind="NAME", help="Only these mechanisms, repeatable: gaam is every form, gaam:heads=1 that one.", offers=attentions)]
OnlyHead = Annotated[Strings, _option("--head", kind="NAME", help="Only these heads, repeatable.", offers=heads)]
Where = Annotated[Strings, _option("--where", kind="KEY=VAL", help="Only runs with layers=1-8, lr=3e-4 or cache=FOLDER; repeatable.")]
# fmt: on


def _version(show: bool) -> None:
    if show:
        tell(f"gaam {gaam_cache.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, _option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:  # fmt: skip
    """Run a frozen encoder once, then train attention decoders on its layers over many seeds."""


# fmt: off
EXTRACT_OPTIONS = [
    _preset_option("extract"),
    extract_option("--encoder", kind="NAME"),
    extract_option("--dataset", kind="NAME"),
    extract_option("--out", "-o", kind="FOLDER"),
    extract_option("--pool", kind="NAME", offers=poolings),
    extract_option("--dtype", kind="TYPE"),
    extract_option("--limit", kind="N"),
    extract_option("--subset", kind="NAME", panel=DATA),
    extract_option("--text-column", kind="NAME", panel=DATA),
    extract_option("--label-column", kind="NAME", panel=DATA),
    extract_option("--file-column", kind="NAME", panel=DATA),
    extract_option("--keep-column", kind="NAME", panel=DATA),
    extract_option("--split", kind="NAME", panel=DATA),
    extract_option("--test-fraction", kind="0.2", panel=DATA),
    extract_option("--test-groups", kind="COLUMN", panel=DATA),
    extract_option("--prompt", kind="TEXT", panel=ENCODER),
    extract_option("--chat-template", panel=ENCODER),
    extract_option("--max-length", kind="N", panel=ENCODER),
    extract_option("--layers", kind="N-M", panel=ENCODER),
    extract_option("--untrained-encoder", panel=ENCODER),
    extract_option("--storage-dtype", kind="TYPE", panel=ENCODER),
    extract_option("--device", kind="NAME", panel=MACHINE),
    extract_option("--engine", kind="NAME", panel=MACHINE, offers=engines),
    extract_option("--devices", kind="N", panel=MACHINE),
    CONFIG_FILE,
    SETS,
]
# fmt: on


@app.command(rich_help_panel=THREE)
@_takes_settings("extract", EXTRACT_OPTIONS)
def extract(
    config: ExtractConfig,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Run the encoder once over a data set and keep every layer's pooled states in ./cache.

    Without arguments: the bundled news sample through all-MiniLM-L6-v2. Run again after an
    interruption, it goes on where it stopped.
    """
    work: Any = gaam_cache.estimate if dry_run else gaam_cache.extract
    with show_progress(
        "dry run" if dry_run else "extract", "rows", quiet=quiet
    ) as progress:
        found = work(config, progress=progress)
    _show(found, as_json)
    if not (dry_run or as_json or found.missing):
        attn = (
            "laplace" if found.num_layers > 1 else "none"
        )  # a density needs layers that differ
        tell(
            f"next: gaam train --attn {attn} --cache {shlex.quote(shown_path(found.path))}"
        )


# fmt: off
TRAIN_OPTIONS = [
    train_option("--attn", kind="NAME", offers=attentions),
    _preset_option("train"),
    train_option("--cache", kind="FOLDER"),
    train_option("--runs", "--out", "-o", kind="FOLDER"),
    train_option("--seeds", kind="LIST"),
    train_option("--head", kind="NAME", offers=heads),
    train_option("--layers", kind="LIST"),
    train_option("--lr", kind="LIST"),
    train_option("--tune-seeds", kind="LIST"),
    train_option("--epochs", kind="N", panel=RECIPE),
    train_option("--batch-size", kind="N", panel=RECIPE),
    train_option("--loss", kind="NAME", panel=RECIPE, offers=losses),
    train_option("--optimizer", kind="NAME", panel=RECIPE, offers=optimizers),
    train_option("--pool", kind="NAME", panel=RECIPE),
    train_option("--dtype", kind="TYPE", panel=RECIPE),
    train_option("--select", kind="RULE", panel=PROTOCOL),
    train_option("--folds", kind="N", panel=PROTOCOL),
    train_option("--groups", kind="NAME", panel=PROTOCOL),
    train_option("--train-rows", kind="LIST", panel=PROTOCOL),
    train_option("--final", panel=PROTOCOL),
    train_option("--probe/--no-probe", panel=PROTOCOL),
    train_option("--device", kind="NAME", panel=MACHINE),
    train_option("--engine", kind="NAME", panel=MACHINE, offers=engines),
    train_option("--devices", kind="N", panel=MACHINE),
    CONFIG_FILE,
    SETS,
]
# fmt: on


@app.command(rich_help_panel=THREE)
@_takes_settings("train", TRAIN_OPTIONS)
def train(
    config: TrainConfig,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Train attention decoders on a cache over many seeds and keep the runs in ./runs.

    What is there already is not trained again. No encoder is loaded.
    """
    import gaam_decoder
    from gaam_decoder.training.sweep import is_candidate, what_came_of_it, what_next

    if dry_run:
        _show(gaam_decoder.estimate(config), as_json)
        return
    told = list[Path]()

    def say(run: Any) -> None:
        if is_candidate(config, run):
            return
        told.append(run.path)
        if not (quiet and as_json):
            tell(run.summary(), to=sys.stderr if as_json else sys.stdout)

    with show_progress(
        "train", "seed-epochs", quiet=quiet, say=config.tuning
    ) as progress:
        results = gaam_decoder.train(config, progress=progress, on_run=say)
    if as_json:
        _print_json([run.to_dict() for run in results])
    else:
        lines = what_came_of_it(config, results, told)
        tell("\n".join([*lines, *what_next(config, results)]))
    gaam_decoder.check_failures(results, config.seeds)


@app.command(rich_help_panel=THREE)
def report(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUNS]...", help="Folders of runs, or single runs (default: runs).", show_default=False)] = None,
    attn: OnlyAttn = None,
    head: OnlyHead = None,
    where: Where = None,
    baseline: Annotated[str | None, _option("--baseline", kind="NAME", help="Mechanism that the others are compared with, seed by seed (default: none, where it was trained).", offers=attentions)] = None,
    score: Annotated[str, _option("--score", kind="NAME", help="What is compared: " + ", ".join(plugins.names("gaam_decoder.stats.scores")) + ".", offers=_plugin_names("gaam_decoder.stats.scores"))] = "accuracy",
    margin: Annotated[float | None, _option("--margin", kind="POINTS", help="Largest difference that does not matter (default: 0.5 points; log-loss: 0.01 and brier: 0.005, as they are).")] = None,
    temperature: Annotated[bool, _option("--temperature", help="Fit a temperature for every seed on the rows that chose its epoch.")] = False,
    pairs: Annotated[str | None, _option("--pairs", kind="SETTING", help="Compare all decoders that differ in this alone (attn, head, layers, lr, ...), each with each.")] = None,
    groups: Annotated[str | None, _option("--groups", kind="COLUMN", help="Kept column whose rows of one value belong together, such as a speaker: intervals and verdicts are then over groups.")] = None,
    every_candidate: Annotated[bool, _option("--all", help="Show every learning rate and weight decay, not only what validation chose.")] = False,
    top: Annotated[int | None, _option("--top", kind="N", help="Show only so many decoders of each table, and their baselines.")] = None,
    columns: Annotated[str | None, _option("--columns", kind="NAMES", help=f"Columns of the table, in this order, parted by commas: {COLUMNS}.", panel=OUTPUT)] = None,
    section: Annotated[str | None, _option("--section", kind="NAME", help="Write this part alone, in any format; every report says which there are.", panel=OUTPUT)] = None,
    explain: Annotated[bool, _option("--explain", help="Print how each column and verdict is made.", panel=OUTPUT)] = False,
    format: Annotated[str | None, _option("--format", kind="NAME", help=", ".join(plugins.names("gaam_decoder.reports.formats")) + " (default: terminal).", panel=OUTPUT, offers=_plugin_names("gaam_decoder.reports.formats"))] = None,
    out: Annotated[Path | None, _option("--out", "-o", kind="FILE", help="Write to this file instead of stdout.", panel=OUTPUT)] = None,
    figures: Annotated[Path | None, _option("--figures", kind="FOLDER", help="Also write the pictures as PDF and PNG.", panel=OUTPUT)] = None,
    as_json: Annotated[bool, _option("--json", help="The same as --format json.", panel=OUTPUT)] = False,
) -> None:  # fmt: skip
    """Print accuracy tables of the runs, and differences to a baseline with their uncertainty."""
    from gaam_cache.store.files import check_writable
    from gaam_decoder.reports import report as reports

    if explain:
        tell(reports.columns.explain())
        return
    if as_json and format not in (None, "json"):
        raise ConfigError(
            "--json is --format json", expected="one format", found=format
        )
    name = format or ("json" if as_json else "terminal")
    reports.format_of(name, section, columns, score)
    if out:
        check_writable(out, option="--out", file=True)
    if figures:
        check_writable(figures, option="--figures")
    options: dict[str, Any] = {
        "baseline": baseline,
        "margin": margin,
        "score": score,
        "top": top,
    }
    options |= {
        "temperature": temperature,
        "every_candidate": every_candidate,
        "pairs": pairs,
    }
    options["groups"] = groups
    found = reports.report(runs or ["runs"], **_filters(attn, head, where), **options)
    if figures:
        tell(f"{len(found.save_figures(figures))} files in {figures}", to=sys.stderr)
    if out:
        found.save(out, name, section, columns)
    else:
        found.show(name, section, columns)


# fmt: off
IMPORT_OPTIONS = [
    _parameter("files", Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of arrays: .safetensors, .npz, .npy, .h5.", readable=False)], required=True),
    import_option("--out", "-o", kind="FOLDER"),
    import_option("--array", kind="SPLIT=NAME"),
    import_option("--labels", kind="SPLIT=NAME"),
    import_option("--storage-dtype", kind="TYPE"),
    SETS,
]
# fmt: on


@app.command("import", rich_help_panel=CARE)
@_takes_settings("import", IMPORT_OPTIONS)
def import_(
    config: ImportConfig,
    dry_run: Annotated[bool, _option("--dry-run", help="Say what would be taken as what; write nothing.", panel=OUTPUT)] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Make a cache of states that were computed elsewhere.

    What is called as usual (train.npz with embeddings and labels; train/embeddings; X_train and
    y_train; layer_0, layer_1, ...) is found by its name, all else is named by --array and --labels.
    """
    with show_progress("import", "rows", quiet=quiet) as progress:
        found = gaam_cache.import_states(config, preview=dry_run, progress=progress)
    _show(found, as_json)


@app.command(rich_help_panel=CARE)
def inspect(
    path: Annotated[Path, typer.Argument(help="A cache, a run, or a folder of runs.")] = Path("cache"),
    watch: Annotated[bool, _option("--watch", help="Look again every few seconds, until all is done.")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Say what a cache or a run is, how far it is, and who is at work on it."""
    import gaam_cache.inspect
    import gaam_decoder.inspect

    place = absolute_path(path)
    if not os.path.lexists(place):
        raise NotFoundError(f"nothing at '{path}'", where=str(place))
    while True:
        package: Any = (
            gaam_cache if gaam_cache.inspect.is_cache(place) else gaam_decoder
        )
        about = package.inspect.inspect(place)
        if watch and sys.stdout.isatty():
            typer.echo("\x1b[H\x1b[2J", nl=False)
        _show(about, as_json)
        if about.complete or about.damage or not watch:
            raise typer.Exit(3 if about.damage else 0)
        time.sleep(5)


@app.command(rich_help_panel=CARE)
def verify(
    path: Annotated[Path, typer.Argument(help="A cache, a run, or a folder of runs.")] = Path("cache"),
    recompute: Annotated[int, _option("--recompute", kind="N", min=0, help="Of a cache: encode N random rows again, alone, and compare.")] = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Check every byte of a cache or of runs; exit 3 if something is missing or wrong."""
    import gaam_cache.inspect
    import gaam_decoder.inspect

    path = absolute_path(path)
    of_runs = not gaam_cache.inspect.is_cache(path) and gaam_decoder.inspect.is_runs(
        path
    )
    if of_runs and (recompute or device != "auto"):
        raise ConfigError(
            "these options are for caches", expected="gaam verify RUNS alone"
        )
    options: dict[str, Any] = {"device": device, "recompute_rows": recompute}
    whole = partial(gaam_decoder.inspect.list_runs, whole=True)
    work: Any = whole if of_runs else gaam_cache.verify
    with show_progress("verify", "steps", quiet=quiet) as progress:
        result = work(path, progress=progress, **({} if of_runs else options))
    _show(result, as_json)
    raise typer.Exit(0 if result.good else 3)


@app.command(rich_help_panel=CARE)
def runs(
    folders: Annotated[list[Path] | None, typer.Argument(metavar="[FOLDER]...", help="Folders of runs (default: runs).", show_default=False)] = None,
    attn: OnlyAttn = None,
    head: OnlyHead = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """List runs, damaged and unfinished ones too."""
    from gaam_decoder.inspect import list_runs

    listing = list_runs(folders or [Path("runs")], **_filters(attn, head, where))
    _show(listing, as_json)
    raise typer.Exit(0 if listing.good else 3)


@app.command(rich_help_panel=UNDERSTAND)
def describe(
    attn: Annotated[str | None, _option("--attn", kind="NAME", help="One mechanism; without it, all are listed.", offers=attentions)] = None,
    layers: Annotated[int, _option("--layers", kind="N", min=1, max=10_000, help="Layers of the encoder.")] = 40,
    hidden_size: Annotated[int, _option("--hidden-size", kind="N", min=1, max=1_000_000, help="Hidden size of the encoder.")] = 5120,
    list_settings: Annotated[bool, _option("--settings", help="List all settings of extract, import, train and plant.")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Say what mechanisms, heads, losses and settings there are: formulas, options, sources."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 100)
    if list_settings:
        listed = {
            section: [setting.to_dict() for setting in settings.settings_of(config)]
            for section, config in SETTINGS.items()
        }
        _print_json(listed) if as_json else tell(
            settings.list_in_words(SETTINGS, width)
        )
        return
    from gaam_decoder import catalogue

    sizes = (layers, hidden_size)
    about = (
        catalogue.describe_mechanism(attn, *sizes)
        if attn
        else catalogue.catalogue(*sizes)
    )
    in_words: Any = partial(catalogue.catalogue_in_words, width=width)
    in_words = catalogue.mechanism_in_words if attn else in_words
    _print_json(about) if as_json else tell(in_words(about))


@app.command(rich_help_panel=UNDERSTAND)
def ablate(
    run: Annotated[Path, typer.Argument(help="A run, or a folder of runs, of which the report recommends one.")],
    num_layers: Annotated[int, _option("--num-layers", kind="N", help="Layers of each set.")] = 3,
    random_sets: Annotated[int, _option("--random-sets", kind="N", min=1, help="Sets of random layers.")] = 10,
    seed: Annotated[int, _option("--seed", kind="N", min=0, help="Decides the random layers.")] = 0,
    cache: MovedCache = None,
    attn: Annotated[str | None, _option("--attn", kind="NAME", help="What to train (default: the run's own mechanism).", offers=attentions)] = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Retrain a run on its most and least important layers and on random ones, and compare.

    Importance is the mean importance factor of the run's attention map. Recipe and seeds are the
    run's; the new runs lie in the folder 'ablation' beside it.
    """
    import gaam_decoder

    options: dict[str, Any] = {
        "num_layers": num_layers,
        "random_sets": random_sets,
        "seed": seed,
    }
    options |= {"cache": cache, "attn": attn}
    with show_progress("ablate", "seed-epochs", quiet=quiet) as progress:
        result = gaam_decoder.ablate(run, device=device, progress=progress, **options)
    _show(result, as_json)
    result.check()


# fmt: off
PLANT_OPTIONS = [
    _parameter("out", Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the cache to make.")], required=True),
    plant_option("--gate", kind="NAME"),
    plant_option("--strength", kind="NUMBER"),
    plant_option("--from", kind="CACHE"),
    plant_option("--rows", kind="N"),
    plant_option("--seed", kind="N"),
    SETS,
]
# fmt: on


@app.command(rich_help_panel=UNDERSTAND)
@_takes_settings("plant", PLANT_OPTIONS)
def plant(
    config: PlantConfig,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Make a cache whose labels depend on the states through a known gate: a positive control.

    The mechanism of that shape must win on it, and a report must say so; where the gate is none,
    no gate may.
    """
    import gaam_decoder

    with show_progress("plant", "rows", quiet=quiet) as progress:
        _show(gaam_decoder.plant(config, progress=progress), as_json)


@app.command(rich_help_panel=UNDERSTAND)
def study(
    what: Annotated[str, typer.Argument(metavar="STUDY", help="Folder with study.toml, or the name of one in data/studies.", autocompletion=lambda: sorted(file.parent.name for file in (data_path() / "studies").glob("*/study.toml")))],
    out: Annotated[Path, _option("--out", "-o", kind="FOLDER", help="Folder of all studies: caches, runs, and what comes out.")] = Path("studies"),
    dataset: Annotated[str | None, _option("--dataset", kind="NAME", help="Instead of the data set that the study names.")] = None,
    dry_run: Annotated[bool, _option("--dry-run", help="Print the commands and what each would cost; run none.")] = False,
    check: Annotated[bool, _option("--check", help="Compare what comes out with what is recorded; exit 1 if it differs.")] = False,
    record: Annotated[bool, _option("--record", help="Write what comes out beside study.toml.")] = False,
    sets: Annotated[Strings, _option("--set", kind="KEY=VAL", help="The machine: device, engine, devices, ...; repeatable.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Run what is missing of a recorded study, command by command, and write what comes out."""
    from gaam_decoder import study as studies

    if check and record:
        raise ConfigError("--check and --record at once", expected="one of them")
    known = sorted(name.replace("_", "-") for name in studies.MACHINE)
    machine = {
        k.replace("-", "_"): v
        for k, v in settings.parse_pairs(sets or (), "--set", known).items()
    }
    recipe = studies.read_study(what, out=out, dataset=dataset, machine=machine)
    if dry_run:
        _show(studies.estimate(recipe), as_json)
        return
    say = (lambda command: None) if quiet else partial(tell, to=sys.stderr)
    with show_progress("study", "steps", quiet=quiet) as progress:
        options: dict[str, Any] = {
            "check": check,
            "record": record,
            "progress": progress,
        }
        outcome = studies.carry_out(recipe, say=say, **options)
    _show(outcome, as_json)
    raise typer.Exit(outcome.exit_code)


@app.command(rich_help_panel=USE)
def predict(
    run: Annotated[Path, typer.Argument(help="A run, or a folder of runs, of which the report recommends one.")],
    texts: Annotated[Strings, typer.Argument(metavar="[TEXT]...", help="Texts, or paths of sounds or pictures; - reads stdin, one a line.", show_default=False)] = None,
    file: Annotated[Path | None, _option("--file", kind="FILE", help="Rows of a table: .csv, .json, .jsonl, .parquet.")] = None,
    out: Annotated[Path | None, _option("--out", "-o", kind="FILE", help="Results of all rows: .csv, .jsonl, .parquet (default: stdout).")] = None,
    text_columns: Annotated[Strings, _option("--text-column", kind="NAME", help="Column of the text, repeatable (default: those of the run).")] = None,
    attn: Annotated[str | None, _option("--attn", kind="FILE.py:CLASS", help="The mechanism of your own that the run was trained with.")] = None,
    encoder: Annotated[str | None, _option("--encoder", kind="PATH", help="The encoder of the run, if it has moved.")] = None,
    cache: Annotated[Path | None, _option("--cache", kind="FOLDER", help="Instead of texts: a cache whose rows are predicted, without an encoder.")] = None,
    split: Annotated[str | None, _option("--split", kind="NAME", help="Of the cache, labelled or not (default: test).")] = None,
    top: Annotated[int, _option("--top", kind="K", help="Name the K likeliest classes.")] = 1,
    temperature: Annotated[bool, _option("--temperature", help="Divide each seed's logits by the temperature that fits the rows that chose its epoch.")] = False,
    sets: Annotated[Strings, _option("--set", kind="KEY=VAL", help="How the file is written, encoding or delimiter (default: as the rows of the run).")] = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Predict classes of texts, of the rows of a file or of stdin, or of a cache, with a run.

    Probabilities are averaged over the seeds; agreement is how many of them say the same. A file
    keeps its columns and gains predicted, probability and agreement; it needs no labels.
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
        encoder=encoder,
        cache=cache,
        split=split,
        top=top,
        temperature=temperature,
        device=device,
        **file_format,
    )
    # a table on a terminal and a bar on the same one would be mixed
    quiet = quiet or (out is None and not config.of_texts and sys.stdout.isatty())
    streams: dict[str, Any] = {"stdin": getattr(sys.stdin, "buffer", None)}
    streams["write"] = getattr(sys.stdout, "buffer", sys.stdout).write
    with show_progress("predict", "rows", quiet=quiet) as progress:
        found = gaam_decoder.predict(
            config, as_list=as_json, progress=progress, **streams
        )
    if config.of_texts or out is not None:
        _show(found, as_json)


@app.command(rich_help_panel=USE)
def export(
    path: Annotated[Path, typer.Argument(metavar="RUN|CACHE", help="A run, or a cache.")],
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to make.")],
    seed: Annotated[int | None, _option("--seed", kind="K", help="The decoder of this seed alone (default: the average of all).")] = None,
    cache: MovedCache = None,
    overwrite: Annotated[bool, _option("--overwrite", help="Replace an earlier export, in the folder and in the repository.")] = False,
    push: Annotated[str | None, _option("--push", kind="USER/NAME", help="Send it to the hub too, after a question.")] = None,
    private: Annotated[bool, _option("--private", help="A new repository is private.")] = False,
    yes: Annotated[bool, _option("--yes", help="Do not ask before it is sent.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Make a folder of a run or a cache that the hub takes, with a card and nothing personal.

    Nothing leaves this machine without --push, which says what would be sent where, and asks.
    """
    import gaam_cache.inspect

    path = absolute_path(path)
    of_cache = gaam_cache.inspect.is_cache(path)
    if of_cache and (seed is not None or cache is not None):
        raise ConfigError(
            "--seed and --cache are for a run", expected="a run", found="a cache"
        )
    if push is None and (private or yes):
        raise ConfigError(
            "--private and --yes are for --push", expected="--push USER/NAME"
        )
    where = sent = None
    if push is not None:
        from gaam_cache.hub.push import check_destination

        kind = "dataset" if of_cache else "model"
        where = check_destination(
            push, kind=kind, private=private, overwrite=overwrite, yes=yes
        )
    if of_cache:
        with show_progress("export", "steps", quiet=quiet) as progress:
            made: Any = gaam_cache.export_cache(
                path, out, overwrite=overwrite, progress=progress
            )
    else:
        import gaam_decoder

        made = gaam_decoder.export_run(
            path, out, seed=seed, cache=cache, overwrite=overwrite
        )
    if not as_json:
        tell(made.in_words())
    if where is not None:
        sent = where.send(absolute_path(out), yes=yes)
    if as_json:
        _print_json(made.to_dict() | {"sent_to": sent})
    elif sent:
        tell(f"sent to {sent}")


def _filters(attn: Strings, head: Strings, where: Strings) -> dict[str, Any]:
    """Which runs are meant, as ``gaam_decoder.report`` takes it."""
    return {"attn": attn, "head": head} | settings.parse_pairs(
        where or (), "--where", WHERE
    )


def _show(found: Any, as_json: bool) -> None:
    _print_json(found.to_dict()) if as_json else tell(found.in_words())


def _print_json(value: Any) -> None:
    tell(json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False))


def main() -> None:
    """Entry point: run a command; every error becomes one message and an exit code."""
    terminal.run(app, SETTINGS)


if __name__ == "__main__":
    main()
