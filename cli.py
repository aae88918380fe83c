"""The command line: parse -> config -> one library call -> show. Nothing is computed here.

Imports of torch and transformers happen inside the commands: ``gaam --help`` needs neither.
"""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

import gaam_cache
from gaam_cache import plugins
from gaam_cache.errors import ConfigError, GaamError, NotFoundError
from gaam_cache.messages.foreign_text import tell, visible_values
from gaam_cache.terminal import interruption, next_step, settings, watching
from gaam_cache.terminal.progress import Progress, show_progress, show_warnings
from gaam_cache.terminal.refusal import as_refusal
from gaam_cache.terminal.streams import careful_streams, write_stdout
from gaam_cache.terminal.usage import Command, Commands
from gaam_decoder.config import TrainConfig
from gaam_decoder.planting.plant_config import PlantConfig

if TYPE_CHECKING:
    from gaam_decoder.runs.result import RunResult

app = typer.Typer(
    name="gaam",
    cls=Commands,
    help="Run a frozen encoder once, then train attention decoders on its layers over many seeds.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

EXTRACT = settings.defaults(
    gaam_cache.ExtractConfig,
    text_columns="text",
    max_length="512, or the encoder's limit",
    encoder_seed="0",
    file_column="file, audio or image where there are no texts",
    clip_seconds="30, or less where the encoder takes less; 5 with --published-audio",
    delimiter="a comma",
    encoding="UTF-8",
    batch_tokens="2048 on a CPU, 16384 on a GPU",
    gpus_per_worker="1, or 0 on a CPU",
)
IMPORT = settings.defaults(
    gaam_cache.ImportConfig,
    axes="nld, or nd of two axes",
    storage_dtype="the type of the states, or float32",
    dataset_name="the files",
)
TRAIN = settings.defaults(
    TrainConfig,
    seeds="10",
    seed_batch="auto",
    pool="the first in the cache",
    layers="all",
    gpus_per_worker="1, or 0 on a CPU",
)
PLANT = settings.defaults(
    PlantConfig,
    from_cache="Gaussian states",
    layers="16",
    width="8",
    rows="6000, or all of the cache",
    storage_dtype="float32, or that of the cache",
)
Strings = Optional[list[str]]  # noqa: UP045 typer reads annotations at run time
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
ConfigFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--config",
        metavar="FILE.toml",
        help="TOML with the sections extract and train: before --preset and GAAM_* variables, after the command line.",
    ),
]


class _Command(Command):
    """A command that lets no variable be that nobody reads."""

    def invoke(self, ctx: Any) -> Any:
        settings.check_variables(gaam_cache.ExtractConfig, gaam_cache.ImportConfig, TrainConfig)
        return super().invoke(ctx)


def _option(*names: str, help: str, default: Any = None, metavar: str | None = None) -> Any:
    """An option whose value is None unless given; ``default`` is what the help says."""
    text = ", ".join(default) if isinstance(default, tuple) else default
    help = help if text is None else f"{help.removesuffix('.')} (default: {text})."
    # readable=False: what cannot be read is for the library to say, as all else about files
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, readable=False)


def _extract(field: str, *names: str, help: str, metavar: str | None = None) -> Any:
    return _option(*names, help=help, default=EXTRACT.get(field), metavar=metavar)


def _import(field: str, *names: str, help: str, metavar: str | None = None) -> Any:
    return _option(*names, help=help, default=IMPORT.get(field), metavar=metavar)


def _train(field: str, *names: str, help: str, metavar: str | None = None) -> Any:
    return _option(*names, help=help, default=TRAIN.get(field), metavar=metavar)


def _plant(field: str, *names: str, help: str, metavar: str | None = None) -> Any:
    return _option(*names, help=help, default=PLANT.get(field), metavar=metavar)


def _version(show: bool) -> None:
    if show:
        tell(f"gaam {gaam_cache.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run a frozen encoder once, then train attention decoders on its layers over many seeds."""


@app.command(cls=_Command)
def extract(
    preset: Annotated[str | None, _option("--preset", metavar="NAME", help=f"Settings that were prepared: {', '.join(settings.preset_names('extract'))}.")] = None,
    encoder: Annotated[str | None, _extract("encoder", "--encoder", metavar="PATH|ID", help="Folder or hub id of an encoder of texts, sounds or pictures; or tfidf, also tfidf:features=4096,ngrams=1,sublinear=true: words, fitted on the training split, as one layer; hashed=true fits nothing.")] = None,
    revision: Annotated[str | None, _extract("revision", "--revision", metavar="NAME", help="Branch, tag or commit of the encoder.")] = None,
    untrained_encoder: Annotated[bool | None, _extract("", "--untrained-encoder", help="Random weights instead of the trained ones: the control for pre-training.")] = None,
    encoder_seed: Annotated[int | None, _extract("encoder_seed", "--encoder-seed", help="Seed of the random weights.")] = None,
    dataset: Annotated[str | None, _extract("dataset", "--dataset", metavar="PATH|ID", help="File, folder with train.csv and test.csv (or .jsonl, .parquet), folder with a folder per class (train/cat/1.png), or hub id.")] = None,
    dataset_revision: Annotated[str | None, _extract("dataset_revision", "--dataset-revision", metavar="NAME", help="Branch, tag or commit of the data set.")] = None,
    text_columns: Annotated[Strings, _extract("text_columns", "--text-column", metavar="NAME", help="Column of the text; of several (repeatable) the texts are joined by a space.")] = None,
    label_column: Annotated[str | None, _extract("label_column", "--label-column", metavar="NAME", help="Column of the class.")] = None,
    file_column: Annotated[str | None, _extract("file_column", "--file-column", metavar="NAME", help="Column of sounds or pictures: paths, or what is stored there.")] = None,
    allow_outside: Annotated[bool | None, _extract("", "--allow-outside", help="Take files outside of the folder of the table that names them, also by a link.")] = None,
    keep_columns: Annotated[Strings, _extract("", "--keep-column", metavar="NAME", help="Column of strings that the cache keeps; repeatable.")] = None,
    delimiter: Annotated[str | None, _extract("delimiter", "--delimiter", metavar="CHAR|tab", help="What parts the fields of a CSV file; also semicolon, pipe, space.")] = None,
    encoding: Annotated[str | None, _extract("encoding", "--encoding", metavar="NAME", help="How characters are stored in CSV and JSON lines.")] = None,
    strip_labels: Annotated[bool | None, _extract("", "--strip-labels", help="Leave out white space around class names.")] = None,
    skip_empty: Annotated[bool | None, _extract("", "--skip-empty", help="Leave out rows of which nothing is to be encoded, and name them.")] = None,
    test_fraction: Annotated[float | None, _extract("test_fraction", "--test-fraction", metavar="0.2", help="Part of a single file, or of the only split, that becomes 'test', stratified; the rest is 'train'.")] = None,
    split_seed: Annotated[int | None, _extract("split_seed", "--split-seed", help="Which rows those are, by a rule that never changes.")] = None,
    unlabelled: Annotated[Strings, _extract("", "--unlabelled", metavar="NAME", help="Split without labels, to predict on; repeatable.")] = None,
    clip_seconds: Annotated[float | None, _extract("clip_seconds", "--clip-seconds", metavar="5", help="Longest sound, in seconds; of longer ones see --clip-mode; they are counted.")] = None,
    clip_mode: Annotated[str | None, _extract("clip_mode", "--clip-mode", metavar="cut|split", help="Of a longer sound the beginning, or a row for every piece; the column clip_of says of which file.")] = None,
    published_audio: Annotated[bool | None, _extract("", "--published-audio", help="Sounds as the published code has them: filled with zeros to 5 s, the mean over those too, no normalisation.")] = None,
    splits: Annotated[Strings, _extract("splits", "--split", metavar="NAME", help="Split to encode; repeatable.")] = None,
    out: Annotated[Path | None, _extract("out", "--out", "-o", help="Folder of the cache.")] = None,
    pool: Annotated[Strings, _extract("pool", "--pool", metavar="NAME", help=f"Of a layer's tokens to one vector: {', '.join(plugins.names('gaam_cache.encoders.poolings'))}; several from one pass, repeatable.")] = None,
    pool_over: Annotated[str | None, _extract("pool_over", "--pool-over", metavar="all|text", help="Pool all tokens, or those of the text: none of the prompt, no special ones; first and last are the first and last of them.")] = None,
    prompt: Annotated[str | None, _extract("prompt", "--prompt", metavar="'... {text} ...'", help="Text around every text; what is too long is cut off the text, never off the prompt.")] = None,
    prompt_file: Annotated[Path | None, _extract("prompt_file", "--prompt-file", help="A file that holds it (UTF-8), as it stands but for one line end at its end.")] = None,
    layer_zero: Annotated[bool | None, _extract("", "--layer-zero", help="Keep the input of the first layer too, as layer 0: all hidden_states of transformers.")] = None,
    max_length: Annotated[int | None, _extract("max_length", "--max-length", help="Tokens of the longest text.")] = None,
    dtype: Annotated[str | None, _extract("dtype", "--dtype", metavar="float32|bfloat16|float16|auto", help="Arithmetic of the encoder; auto: bfloat16 where the device has it (on a CPU about twice as fast, states off by 0.3 to 1.0% with the demo encoder), else float16 on a GPU, float32 elsewhere.")] = None,
    storage_dtype: Annotated[str | None, _extract("storage_dtype", "--storage-dtype", metavar="float16|float32|bfloat16", help="What the cache stores.")] = None,
    batch_tokens: Annotated[int | None, _extract("batch_tokens", "--batch-tokens", help="Tokens of one batch.")] = None,
    shard_rows: Annotated[int | None, _extract("shard_rows", "--shard-rows", help="Rows of one shard at most.")] = None,
    limit: Annotated[int | None, _extract("limit", "--limit", help="Only so many rows of each split, the first; of a folder of classes those of the first classes.")] = None,
    device: Annotated[str | None, _extract("device", "--device", metavar="auto|cpu|cuda|mps", help="Where the encoder runs; auto: a GPU of CUDA, else the CPU; also cuda:N; mps: float32 only, and nobody has tried it.")] = None,
    device_map: Annotated[str | None, _extract("device_map", "--device-map", metavar="auto|none", help="'auto' spreads the encoder over GPUs and the CPU (accelerate), 'none' does not, whatever a preset says, as beside --devices.")] = None,
    engine: Annotated[str | None, _extract("engine", "--engine", metavar="NAME", help=f"Who starts the workers: {', '.join(plugins.names('gaam_cache.engines'))} (ray is an extra).")] = None,
    devices: Annotated[str | None, _extract("devices", "--devices", metavar="1|N|all|0,2", help="Workers, one for each GPU or group of cores: how many, all, or which GPUs.")] = None,
    address: Annotated[str | None, _extract("address", "--address", metavar="auto|ADDRESS", help="Cluster that is there already (ray).")] = None,
    gpus_per_worker: Annotated[float | None, _extract("gpus_per_worker", "--gpus-per-worker", metavar="NUMBER", help="GPUs of one worker (ray); a part of one is allowed.")] = None,
    rank: Annotated[str | None, _extract("rank", "--rank", metavar="i/n", help="This process is worker i of n that were started by hand; SLURM and torchrun say so themselves.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it will cost in tokens, bytes and time; write nothing.")] = False,
    workers: Annotated[int | None, _option("--workers", metavar="N", help="With --dry-run: how many will share the work.", default=1)] = None,
    assume_tokens_per_second: Annotated[float | None, _option("--assume-tokens-per-second", metavar="N", help="With --dry-run: what one worker encodes (default: timed here).")] = None,
    card: Annotated[str | None, _option("--card", metavar="NAME", help="With --dry-run: GPU of every worker, which need not be here (h100, ...).")] = None,
    share: Annotated[float | None, _option("--share", metavar="0.4", help="With --dry-run: part of the card's dense peak that the encoder reaches.", default=0.4)] = None,
    config: ConfigFile = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Run the encoder once over a data set and keep every layer's pooled states in ./cache.

    Without arguments: the bundled news sample through all-MiniLM-L6-v2. Run again after an
    interruption, it goes on where it stopped.
    """
    given = _given(locals(), "preset", "config", "quiet", "as_json", "dry_run")
    names = ("workers", "assume_tokens_per_second", "card", "share")
    assumed = gaam_cache.assume({name: given.pop(name) for name in names}, dry_run=dry_run)
    resolved = settings.resolve(
        gaam_cache.ExtractConfig,
        "extract",
        given,
        config_file=config,
        preset=preset,
    )
    if dry_run:
        with show_progress("dry run", "rows", quiet=quiet) as progress:
            estimate = gaam_cache.estimate(resolved, assumed=assumed, progress=progress)
        if as_json:
            _print_json(estimate.to_dict())
        else:
            tell(estimate.in_words())
        return
    with (
        interruption.explained(lambda: _shards_kept(resolved.out)),
        show_progress("extract", "rows", quiet=quiet) as progress,
    ):
        summary = gaam_cache.extract(resolved, progress=progress)
    if as_json:
        _print_json(summary.to_dict())
    else:
        tell(summary.in_words())
        if not summary.missing:
            tell(f"next: {next_step.after_extract(summary.path)}")


@app.command("import", cls=_Command)
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of arrays: .safetensors, .npz, .npy, .h5.", readable=False)],
    out: Annotated[Path | None, _import("out", "--out", "-o", help="Folder of the cache.")] = None,
    arrays: Annotated[Strings, _import("", "--array", metavar="SPLIT=NAME", help="States of a split: one array, or one for each layer ('layer_*'); repeatable.")] = None,
    labels: Annotated[Strings, _import("", "--labels", metavar="SPLIT=NAME", help="Labels of a split: whole numbers from 0, or strings; repeatable.")] = None,
    num_tokens: Annotated[Strings, _import("", "--num-tokens", metavar="SPLIT=NAME", help="How many tokens each row was pooled from; repeatable.")] = None,
    axes: Annotated[str | None, _import("axes", "--axes", metavar="nld|lnd|nd", help="What the axes of the states are: rows n, layers l, features d.")] = None,
    keep_columns: Annotated[Strings, _import("", "--keep-column", metavar="NAME", help="Array of strings that the cache keeps; repeatable.")] = None,
    unlabelled: Annotated[Strings, _import("", "--unlabelled", metavar="SPLIT", help="Split without labels, to predict on; repeatable.")] = None,
    class_names: Annotated[Strings, _import("", "--class-name", metavar="NAME", help="Name of a class, in order; repeatable.")] = None,
    storage_dtype: Annotated[str | None, _import("storage_dtype", "--storage-dtype", metavar="float16|float32|bfloat16", help="What the cache stores.")] = None,
    encoder_name: Annotated[str | None, _import("encoder_name", "--encoder-name", metavar="NAME", help="What reports call the encoder.")] = None,
    dataset_name: Annotated[str | None, _import("dataset_name", "--dataset-name", metavar="NAME", help="What reports call the data.")] = None,
    pool: Annotated[str | None, _import("pool", "--pool", metavar="NAME", help="What reports call the way the states were pooled.")] = None,
    shard_rows: Annotated[int | None, _import("shard_rows", "--shard-rows", help="Rows of one shard at most.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be taken as what; write nothing.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Make a cache of states that were computed elsewhere.

    What is called as usual (train.npz with embeddings and labels; train/embeddings; X_train and
    y_train; layer_0, layer_1, ...) is found by its name, all else is named by --array and --labels.
    Run again after an interruption, it goes on where it stopped.
    """
    given = _given(locals(), "quiet", "as_json", "dry_run")
    resolved = settings.resolve(gaam_cache.ImportConfig, "import", given)
    if dry_run:
        preview = gaam_cache.preview_import(resolved)
        if as_json:
            _print_json(preview.to_dict())
        else:
            tell(preview.in_words())
        return
    with (
        interruption.explained(lambda: _shards_kept(resolved.out)),
        show_progress("import", "rows", quiet=quiet) as progress,
    ):
        summary = gaam_cache.import_states(resolved, progress=progress)
    if as_json:
        _print_json(summary.to_dict())
    else:
        tell(summary.in_words())
        tell(f"next: {next_step.after_extract(summary.path)}")


@app.command(cls=_Command)
def plant(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the cache to make.")],
    gate: Annotated[str | None, _plant("gate", "--gate", metavar="laplace|gaussian|student-t|two-peaks|none", help="Through which the labels depend on the states; none: through their mean over the layers.")] = None,
    strength: Annotated[float | None, _plant("strength", "--strength", help="How sure the labels are: standard deviation of the teacher's logits.")] = None,
    from_cache: Annotated[Path | None, _plant("from_cache", "--from", metavar="CACHE", help="Take the rows of all splits of this cache, split anew; their labels are drawn anew.")] = None,
    layers: Annotated[int | None, _plant("layers", "--layers", help="Layers of Gaussian states.")] = None,
    width: Annotated[int | None, _plant("width", "--width", help="Hidden size of Gaussian states.")] = None,
    classes: Annotated[int | None, _plant("classes", "--classes", help="Classes that the labels name.")] = None,
    rows: Annotated[int | None, _plant("rows", "--rows", help="Rows in all, of which a third is 'test'.")] = None,
    seed: Annotated[int | None, _plant("seed", "--seed", help="Decides states, teacher and labels.")] = None,
    storage_dtype: Annotated[str | None, _plant("storage_dtype", "--storage-dtype", metavar="float16|float32", help="What the cache stores.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Make a cache whose labels depend on the states through a known gate: a positive control.

    The mechanism of that shape must win on it, and a report must say so; where the gate is none,
    no gate may.
    """
    import gaam_decoder

    given = _given(locals(), "quiet", "as_json", "gaam_decoder")
    resolved = settings.resolve(PlantConfig, "plant", given, environ={})
    with show_progress("plant", "rows", quiet=quiet) as progress:
        planted = gaam_decoder.plant(resolved, progress=progress)
    if as_json:
        _print_json(planted.to_dict())
    else:
        tell(planted.in_words())
        tell(f"next: {next_step.after_planting(planted.path, planted.attn)}")


@app.command(cls=_Command)
def train(
    attn: Annotated[Strings, _train("attn", "--attn", metavar="NAME[:key=value,...]", help=f"Mechanism, repeatable: {', '.join(plugins.names('gaam_decoder.attention'))}; 'gaam describe' explains them.")] = None,
    preset: Annotated[str | None, _option("--preset", metavar="NAME", help=f"A recipe that was prepared: {', '.join(settings.preset_names('train'))}.")] = None,
    cache: Annotated[Path | None, _train("cache", "--cache", help="Folder of the cache.")] = None,
    runs: Annotated[Path | None, _train("runs", "--runs", "-o", help="Folder of the runs.")] = None,
    seeds: Annotated[Strings, _train("seeds", "--seeds", metavar="10|0-31|3,5,9", help="How many, a range or a list; repeatable, which makes a list.")] = None,
    tune_seeds: Annotated[Strings, _train("tune_seeds", "--tune-seeds", metavar="0-4", help="Seeds that choose between several --lr and --weight-decay by validation; --seeds then train what is chosen.")] = None,
    head: Annotated[Strings, _train("head", "--head", metavar="NAME[:key=value,...]", help=f"Classifier on top, repeatable: {', '.join(plugins.names('gaam_decoder.heads'))}; lbfgs has no seeds, chooses its penalty on the rows of --select, and is for mechanisms without parameters.")] = None,
    loss: Annotated[str | None, _train("loss", "--loss", metavar="NAME[:key=value,...]", help=f"What is minimised: {', '.join(plugins.names('gaam_decoder.losses'))}.")] = None,
    class_weights: Annotated[str | None, _train("class_weights", "--class-weights", metavar="none|balanced", help="Weights of the classes in the training loss, nowhere else; balanced: n / (k n_c) of n training rows, n_c of class c, k classes, as in scikit-learn; the sum over a batch is divided by its rows, not by their weights.")] = None,
    epochs: Annotated[int | None, _train("epochs", "--epochs", help="Passes over the training rows.")] = None,
    batch_size: Annotated[int | None, _train("batch_size", "--batch-size", help="Rows of one step.")] = None,
    lr: Annotated[Strings, _train("lr", "--lr", metavar="3e-4|1e-4,3e-4", help="Learning rate of AdamW, or several; repeatable.")] = None,
    weight_decay: Annotated[Strings, _train("weight_decay", "--weight-decay", metavar="0.01|0,0.01,0.1", help="Weight decay of AdamW, or several; repeatable.")] = None,
    schedule: Annotated[str | None, _train("schedule", "--schedule", metavar="constant|plateau", help="Course of the learning rate: constant, or (as published) a tenth after 10 epochs without a better accuracy on the rows that choose.")] = None,
    clip_grad_norm: Annotated[float | None, _train("clip_grad_norm", "--clip-grad-norm", help="Largest gradient norm (default: no clipping).")] = None,
    loss_scale: Annotated[str | None, _train("loss_scale", "--loss-scale", metavar="auto|none|dynamic", help="Multiply the loss so that small gradients last; dynamic: by 65,536 at first, halved by a step whose gradients overflow, which is skipped, as torch's GradScaler, but for every seed by itself; auto: with --dtype float16.")] = None,
    clip_order: Annotated[str | None, _train("clip_order", "--clip-order", metavar="unscale-first|clip-first", help="Which gradient is clipped: its own, or that of the scaled loss (as published: of a limit of 1000 that leaves 0.015, met at every step).")] = None,
    shuffle: Annotated[str | None, _train("shuffle", "--shuffle", metavar="full|window:ROWS", help="Order of the training rows: of all, or in blocks of so many, which reads a cache that is larger than memory once an epoch.")] = None,
    select: Annotated[str | None, _train("select", "--select", metavar="val|last|test", help="Epoch that is kept: best on a part of train, last, or best on test (as published; optimistic, which reports say).")] = None,
    ties: Annotated[str | None, _train("ties", "--ties", metavar="loss|first", help="Of equally good epochs: that of the lowest loss, or the first (as published).")] = None,
    val_fraction: Annotated[float | None, _train("val_fraction", "--val-fraction", help="Share of every class of train that chooses.")] = None,
    split_seed: Annotated[int | None, _train("split_seed", "--split-seed", help="Decides which rows choose, and which are drawn.")] = None,
    train_rows: Annotated[Strings, _train("train_rows", "--train-rows", metavar="100,1k,all", help="Learn from so many rows of train, those that choose among them; several for a curve, repeatable.")] = None,
    shots: Annotated[Strings, _train("shots", "--shots", metavar="5,10,50,all", help="The same by rows of every class.")] = None,
    pool: Annotated[Strings, _train("pool", "--pool", metavar="mean|mean,last", help="Pooling to read; of several each is trained; repeatable.")] = None,
    layers: Annotated[Strings, _train("layers", "--layers", metavar="19,20,21|1-8,12|all", help="Encoder layers to learn from, numbered from 1 (0: of --layer-zero); repeatable, each set is trained.")] = None,
    train_split: Annotated[str | None, _train("train_split", "--train-split", metavar="NAME", help="Split to learn from.")] = None,
    test_split: Annotated[str | None, _train("test_split", "--test-split", metavar="NAME|none", help="Split to report on; none: learn from all of train and report nothing.")] = None,
    final: Annotated[bool | None, _train("", "--final", help="Also train a final model on all of train, after what is evaluated.")] = None,
    allow_train_as_test: Annotated[bool | None, _train("", "--allow-train-as-test", help="Report on rows that were learned from; every report marks it.")] = None,
    shuffle_labels: Annotated[bool | None, _train("", "--shuffle-labels", help="A sanity check: learn from, and choose by, labels in an order of each seed's own. On the true ones it must end at chance; reports say whether it does, and compare it with nothing.")] = None,
    device: Annotated[str | None, _train("device", "--device", metavar="auto|cpu|cuda|mps", help="Where to train; auto: a GPU of CUDA, else the CPU; also cuda:N; mps: float32 only, not compiled, and nobody has tried it.")] = None,
    folds: Annotated[int | None, _train("folds", "--folds", help="Cross-validation over so many parts of train.")] = None,
    fold: Annotated[int | None, _train("fold", "--fold", help="Only this fold, from 1.")] = None,
    repeats: Annotated[int | None, _train("repeats", "--repeats", help="Cross-validations, each with folds of its own.")] = None,
    groups: Annotated[str | None, _train("groups", "--groups", metavar="COLUMN|FILE", help="A kept column, or a file with a name per row of train, one a line; neither folds nor the rows that choose part a name.")] = None,
    dtype: Annotated[str | None, _train("dtype", "--dtype", metavar="float32|bfloat16|float16|auto", help="Arithmetic of matrix products, all else is float32; auto: bfloat16 where the device has it.")] = None,
    eval_dtype: Annotated[str | None, _train("eval_dtype", "--eval-dtype", metavar="same|float32", help="The same in evaluation, or float32 (as published: autocast in training only).")] = None,
    seed_batch: Annotated[str | None, _train("seed_batch", "--seed-batch", metavar="auto|N", help="Seeds trained together at most; auto: by memory and caches.")] = None,
    memory_share: Annotated[float | None, _train("memory_share", "--memory-share", metavar="0..1", help="Of the free memory, also the GPU's, for rows; what does not fit stays on disk, which changes no number.")] = None,
    compile: Annotated[str | None, _train("compile", "--compile", metavar="auto|on|off", help="Whether torch.compile is used; auto: where there is a compiler, and enough work for it.")] = None,
    track: Annotated[str | None, _train("track", "--track", metavar="|".join(["none", *plugins.names("gaam_decoder.runs.trackers")]), help="Where else curves go, to a folder of that name in --runs; needs the extra of that name; then TRACKIO_DIR=runs/trackio trackio show, or tensorboard --logdir runs/tensorboard.")] = None,
    probe: Annotated[bool | None, typer.Option("--probe/--no-probe", help="Add the linear probe none + lbfgs to the sweep, where it takes less than about a minute (default: --probe).", show_default=False)] = None,
    skip_impossible: Annotated[bool | None, _train("", "--skip-impossible", help="Leave out what of a sweep cannot be built.")] = None,
    engine: Annotated[str | None, _train("engine", "--engine", metavar="NAME", help=f"Who starts the workers: {', '.join(plugins.names('gaam_cache.engines'))} (ray is an extra).")] = None,
    devices: Annotated[str | None, _train("devices", "--devices", metavar="1|N|all|0,2", help="Workers, one for each GPU or group of cores: how many, all, or which GPUs.")] = None,
    address: Annotated[str | None, _train("address", "--address", metavar="auto|ADDRESS", help="Cluster that is there already (ray).")] = None,
    gpus_per_worker: Annotated[float | None, _train("gpus_per_worker", "--gpus-per-worker", metavar="NUMBER", help="GPUs of one worker (ray); a part of one is allowed.")] = None,
    rank: Annotated[str | None, _train("rank", "--rank", metavar="i/n", help="This process is worker i of n that were started by hand; SLURM and torchrun say so themselves.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what there is to train and how long it may take; train nothing.")] = False,
    config: ConfigFile = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Train attention decoders on a cache over many seeds and keep the runs in ./runs.

    What is there already is not trained again. No encoder is loaded.
    """
    given = _given(locals(), "preset", "config", "quiet", "as_json", "dry_run")
    import gaam_decoder
    from gaam_decoder.training.advice import advice

    resolved = settings.resolve(
        TrainConfig,
        "train",
        given,
        config_file=config,
        preset=preset,
    )
    if dry_run:
        estimate = gaam_decoder.estimate(resolved)
        if as_json:
            _print_json(estimate.to_dict())
        else:
            tell(estimate.in_words())
        return
    with (
        show_progress("train", "seed-epochs", quiet=quiet) as progress,
        interruption.explained(lambda: _seeds_kept(progress)),
    ):
        # a finished run is said once: above the bar where there is one, else on stdout
        above = as_json or (not quiet and sys.stdout.isatty() and sys.stderr.isatty())
        said = []

        def say(run: RunResult) -> None:
            said.append(run.path)
            (progress.line if above else tell)(run.summary())

        others: list[str] = []
        results = gaam_decoder.train(
            resolved, progress=progress, on_run=say, on_others=others.append
        )
    if as_json:
        _print_json([run.to_dict() for run in results])
    else:
        for run in results:
            if run.path not in said:
                tell(run.summary())
        for line in advice(results):
            tell(line)
        for text in others:
            tell(f"others are still at work on {text}; the last to finish has all runs")
        if not others:
            tell(f"next: {next_step.after_training(resolved.runs)}")
    gaam_decoder.check_failures(results, resolved.seeds)


@app.command(cls=_Command)
def ablate(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    num_layers: Annotated[int, typer.Option("--num-layers", help="Layers of each group.")] = 3,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides the random layers.")] = 0,
    cache: Annotated[Path | None, _option("--cache", help="Folder of the cache, if it has moved.")] = None,
    attn: Annotated[str | None, _option("--attn", metavar="NAME[:key=value,...]", help="What to train; default: the run's own mechanism.")] = None,
    device: Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda|mps", help="Where to train.")] = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Retrain a run on its most and least important layers and on random ones, and compare.

    Importance is the mean importance factor of the run's attention map. Recipe and seeds are the
    run's, groups are compared seed by seed; the new runs lie beside it, and what is there already
    is not trained again.
    """
    import gaam_decoder

    options: dict[str, Any] = {"num_layers": num_layers, "seed": seed, "cache": cache, "attn": attn}
    with (
        show_progress("ablate", "seed-epochs", quiet=quiet) as progress,
        interruption.explained(lambda: _seeds_kept(progress)),
    ):
        result = gaam_decoder.ablate(run, device=device, progress=progress, **options)
    if as_json:
        _print_json(result.to_dict())
    else:
        tell(result.in_words())
        tell(f"next: {next_step.after_training(run.absolute().parent)}")
    result.check()


@app.command(cls=_Command)
def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    texts: Annotated[Strings, typer.Argument(metavar="[TEXT]...", help="Texts, or paths of sounds or pictures; - reads stdin, to its end before any is predicted.", show_default=False)] = None,
    file: Annotated[Path | None, _option("--file", help="Rows of a table: .csv, .jsonl, .parquet.")] = None,
    out: Annotated[Path | None, _option("--out", "-o", metavar="FILE", help="Results of all rows: .csv, .jsonl, .parquet; what was interrupted goes on (default: stdout).")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace --out if it is there.")] = False,
    format: Annotated[str | None, _option("--format", metavar="text|csv|jsonl", help="Of stdin; text: one a line.", default="text")] = None,
    cache: Annotated[Path | None, _option("--cache", help="Instead of texts: a cache whose rows are predicted, without an encoder. With them: that of the run, if a run of an earlier version has lost it.")] = None,
    split: Annotated[str | None, _option("--split", metavar="NAME", help="Of the cache, labelled or not.", default="test")] = None,
    seed: Annotated[int | None, _option("--seed", help="Use one seed (default: the average of all).")] = None,
    top: Annotated[int, typer.Option("--top", metavar="K", help="Name the K likeliest classes.")] = 1,
    temperature: Annotated[bool, typer.Option("--temperature", help="Divide each seed's logits by the temperature that fits the rows that chose its epoch best.")] = False,
    text_columns: Annotated[Strings, _option("--text-column", metavar="NAME", help="Column of the text; of several (repeatable) the texts are joined by a space (default: those of the run).")] = None,
    file_column: Annotated[str | None, _option("--file-column", metavar="NAME", help="Column of the paths of sounds or pictures.")] = None,
    allow_outside: Annotated[bool, typer.Option("--allow-outside", help="Take files outside of the folder of the table that names them.")] = False,
    delimiter: Annotated[str | None, _option("--delimiter", metavar="CHAR|tab", help="What parts the fields of a CSV file; also semicolon, pipe, space.")] = None,
    encoding: Annotated[str | None, _option("--encoding", metavar="NAME", help="Of the characters in CSV, JSON lines and lines.")] = None,
    skip_empty: Annotated[bool, typer.Option("--skip-empty", help="Let rows be of which nothing is to be encoded: their results are empty.")] = False,
    prefix: Annotated[str, typer.Option("--prefix", metavar="NAME_", help="Begin the names of added columns so.", show_default=False)] = "",
    encoder: Annotated[str | None, _option("--encoder", metavar="PATH|ID", help="Where the run's encoder is, if it has moved.")] = None,
    device: Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda|mps", help="Where to compute.")] = "auto",
    batch_tokens: Annotated[int | None, _option("--batch-tokens", help="Tokens of one batch of the encoder.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Predict classes of texts, of the rows of a file or of stdin, or of a cache, with a run.

    Probabilities are averaged over the seeds, with --temperature each seed's own are scaled before
    that; agreement is how many of them say the same. A file keeps its columns, every value as it
    stands there, and gains predicted, probability and agreement; it needs no labels. What the
    format of --out cannot hold exactly is refused. All is read once before any is predicted: a row
    that cannot be used is named. A blank line is a row of a table of one column alone.
    """
    given = _given(locals(), "quiet", "as_json")
    import gaam_decoder

    given = {name: value for name, value in given.items() if value is not None}
    for name in ("texts", "text_columns"):
        given[name] = tuple(given.get(name, ()))
    config = gaam_decoder.PredictConfig(**given)
    # a table on a terminal and a bar on the same one would be mixed
    quiet = quiet or (out is None and not config.of_texts and sys.stdout.isatty())
    with (
        interruption.explained(lambda: _rows_kept(out)),
        show_progress("predict", "rows", quiet=quiet) as progress,
    ):
        found = gaam_decoder.predict(
            config,
            stdin=getattr(sys.stdin, "buffer", None),  # it may be closed
            write=write_stdout,
            as_list=as_json,
            progress=progress,
        )
    if config.of_texts or out is not None:
        _print_json(found.to_dict()) if as_json else tell(found.in_words())


_Attn = Annotated[Strings, _option("--attn", metavar="NAME[:key=value]", help="Only these mechanisms: a name is every form of it; repeatable.")]  # fmt: skip
_Head = Annotated[Strings, _option("--head", metavar="NAME[:key=value]", help="Only these heads; repeatable.")]  # fmt: skip
_Layers = Annotated[Strings, _option("--layers", metavar="19-21|all", help="Only runs on these sets of layers; repeatable.")]  # fmt: skip
_Rates = Annotated[Strings, _option("--lr", metavar="1e-4,3e-4", help="Only runs with these learning rates; repeatable.")]  # fmt: skip
_Cache = Annotated[Optional[str], _option("--cache", metavar="DIR|FINGERPRINT", help="Only runs on this cache.")]  # noqa: UP045  # fmt: skip
_Since = Annotated[Optional[str], _option("--since", metavar="DATE|3d|12h", help="Only runs of then or later (UTC).")]  # noqa: UP045  # fmt: skip


@app.command(cls=_Command)
def report(
    runs: Annotated[Optional[list[Path]], typer.Argument(metavar="RUNS...", help="Folders of runs, or single runs (default: runs).", show_default=False)] = None,  # noqa: UP045
    attn: _Attn = None,
    head: _Head = None,
    layers: _Layers = None,
    lr: _Rates = None,
    cache: _Cache = None,
    since: _Since = None,
    format: Annotated[str | None, _option("--format", metavar="NAME", help=", ".join(plugins.names("gaam_decoder.reports.formats")) + "; html: one page with pictures, without scripts and requests, latex: booktabs.", default="terminal")] = None,
    baseline: Annotated[str | None, _option("--baseline", metavar="NAME[:key=value,...]", help="Mechanism that the others are compared with, seed by seed (default: none, where it was trained).")] = None,
    score: Annotated[str | None, _option("--score", metavar="NAME", help=", ".join(plugins.names("gaam_decoder.stats.scores")) + ": what is compared; of ece nothing is claimed.", default="accuracy")] = None,
    temperature: Annotated[bool, typer.Option("--temperature", help="Fit a temperature for every seed on the rows that chose its epoch, for log loss, Brier score and ECE.")] = False,
    margin: Annotated[float | None, _option("--margin", metavar="POINTS", help="Largest difference that does not matter, in points of the score (default: 0.5; log-loss: 0.01 and brier: 0.005, as they are).")] = None,
    all_candidates: Annotated[bool, typer.Option("--all", help="Show every learning rate and weight decay, not only what validation chose.")] = False,
    sort: Annotated[str | None, _option("--sort", metavar="NAME", help="Order of the rows: score, accuracy, difference, name, parameters, seconds (default: name).")] = None,
    top: Annotated[int | None, _option("--top", metavar="N", help="Show only so many rows of each table, and their baselines; nothing is computed anew.")] = None,
    pairs: Annotated[str | None, _option("--pairs", metavar="attn|head|layers|lr|...", help="Compare all rows that differ in this setting alone, or in several (select,ties), each with each (default: attn).")] = None,
    tune_seeds: Annotated[str | None, _option("--tune-seeds", metavar="0-4", help="Seeds that choose between them (default: those that were trained to, else all).")] = None,
    figures: Annotated[Path | None, _option("--figures", metavar="DIR", help="Also write the pictures as PDF and PNG.")] = None,
    out: Annotated[Path | None, _option("--out", "-o", help="Write to this file instead of stdout.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:  # fmt: skip
    """Print accuracy tables of the runs, and differences to a baseline with their uncertainty."""
    import gaam_decoder
    from gaam_decoder.reports.report import check_outputs, report_format

    name = format or ("json" if as_json else "terminal")
    if as_json and name != "json":
        raise ConfigError("--json is --format json", expected="one format", found=name)
    report_format(name)  # a slip of the finger is said before runs are read
    check_outputs(out=out, figures=figures)
    found = gaam_decoder.report(
        runs or ["runs"],
        attn=attn,
        head=head,
        layers=layers,
        lr=lr,
        cache=cache,
        since=since,
        baseline=baseline,
        margin=margin,
        score="accuracy" if score is None else score,
        temperature=temperature,
        every_candidate=all_candidates,
        tune_seeds=tune_seeds,
        sort=sort,
        top=top,
        pairs=pairs,
    )
    if figures:
        saved = found.save_figures(figures)
        tell(f"{len(saved)} pictures in {figures}", to=sys.stderr)
    if out is not None:
        found.save(out, name)
    else:
        found.show(name)
    for line in found.beside(name):
        tell(f"note: {line}", to=sys.stderr)


@app.command(cls=_Command)
def study(
    what: Annotated[str, typer.Argument(metavar="STUDY", help="Folder with study.toml, or the name of one in data/studies.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of all studies: caches, runs, and what comes out.")] = Path("studies"),
    dataset: Annotated[str | None, _option("--dataset", metavar="PATH|ID", help="Instead of the data set that the study names.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands and what each would cost; run none.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare what comes out with what is recorded; exit 1 if it differs by more than the study allows.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Write what comes out beside study.toml.")] = False,
    device: Annotated[str | None, _option("--device", metavar="auto|cpu|cuda|mps", help="Where to compute (default: auto).")] = None,
    engine: Annotated[str | None, _option("--engine", metavar="NAME", help="Who starts the workers: local, ray (an extra; default: local).")] = None,
    devices: Annotated[str | None, _option("--devices", metavar="1|N|all|0,2", help="Workers (default: 1).")] = None,
    address: Annotated[str | None, _option("--address", metavar="auto|ADDRESS", help="Cluster that is there already (ray).")] = None,
    gpus_per_worker: Annotated[float | None, _option("--gpus-per-worker", help="GPUs of one worker (ray).")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Run what is missing of a recorded study, command by command, and write what comes out."""
    from gaam_decoder import studying

    if check and record:
        raise ConfigError("--check and --record at once", expected="one of them")
    recipe = studying.read_study(what)
    place = studying.Place(
        out=out, dataset=dataset, device=device, engine=engine, devices=devices, address=address,
        gpus_per_worker=gpus_per_worker,
    )  # fmt: skip
    if dry_run:
        costs = list(studying.estimate(recipe, place))
        if as_json:
            _print_json(studying.costs_values(costs))
        else:
            tell(studying.costs_in_words(costs))
        return
    with interruption.explained(lambda: studying.KEPT):
        outcome = studying.carry_out(
            recipe,
            place,
            check=check,
            record=record,
            quiet=quiet,
            say=lambda line: tell(line, to=sys.stderr),
        )
    if as_json:
        _print_json(outcome.to_dict())
    else:
        tell(outcome.in_words())
    raise typer.Exit(outcome.exit_code)


@app.command("runs", cls=_Command)
def runs_(
    folders: Annotated[Optional[list[Path]], typer.Argument(metavar="FOLDER...", help="Folders of runs (default: runs).", show_default=False)] = None,  # noqa: UP045
    attn: _Attn = None,
    head: _Head = None,
    layers: _Layers = None,
    lr: _Rates = None,
    cache: _Cache = None,
    since: _Since = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """List runs, damaged and unfinished ones too."""
    from gaam_decoder.runs.listing import list_runs

    listing = list_runs(
        folders or [Path("runs")],
        attn=attn, head=head, layers=layers, lr=lr, cache=cache, since=since,
    )  # fmt: skip
    if as_json:
        _print_json(listing.to_dict())
    else:
        tell(listing.in_words())
    raise typer.Exit(3 if listing.damage else 0)


@app.command(cls=_Command)
def export(
    path: Annotated[Path, typer.Argument(metavar="RUN|CACHE", help="A run, or a cache.")],
    out: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make.")],
    seed: Annotated[int | None, _option("--seed", metavar="K", help="The decoder of this seed alone (default: the average of all that finished).")] = None,
    average: Annotated[bool, typer.Option("--average", help="The average of all seeds that finished, as without it.")] = False,
    cache: Annotated[Path | None, _option("--cache", help="Folder of its cache, if it has moved.")] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy its shards instead of linking to them.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export, in DIR and in the repository.")] = False,
    push: Annotated[str | None, _option("--push", metavar="USER/NAME", help="Send it to the hub too, after a question.")] = None,
    private: Annotated[bool, typer.Option("--private", help="A new repository is private.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it is sent.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Make a folder of a run or a cache that the hub takes, with a card and nothing personal.

    Nothing leaves this machine without --push, which says what would be sent where, and asks.
    """
    import gaam_cache.inspect
    from gaam_cache.exporting import command

    of_cache = gaam_cache.inspect.is_cache(path)
    command.check_options(path, out, of_cache=of_cache, seed=seed, average=average, cache=cache, copy=copy, push=push, private=private, yes=yes)  # fmt: skip
    where = command.destination(push, of_cache=of_cache, private=private, overwrite=overwrite, yes=yes)  # fmt: skip
    with show_progress("export", "steps", quiet=quiet) as progress:
        made: Any
        if of_cache:
            made = gaam_cache.export_cache(path, out, copy=copy, overwrite=overwrite, progress=progress)  # fmt: skip
        else:
            import gaam_decoder

            made = gaam_decoder.export_run(path, out, seed=seed, cache=cache, overwrite=overwrite)
    if not as_json:
        tell(made.in_words())
    sent = command.send(where, out, yes=yes) if where else None
    if as_json:
        _print_json(made.to_dict() | {"sent_to": sent})
    elif sent:
        tell(f"sent to {sent}")


@app.command(cls=_Command)
def inspect(
    path: Annotated[Path, typer.Argument(help="A cache, a run, or a folder of runs.")],
    as_json: AsJson = False,
) -> None:
    """Say what a cache or a run is."""
    import gaam_cache.inspect
    import gaam_decoder.inspect

    if not path.exists():
        raise NotFoundError(f"nothing at '{path}'", where=str(path.absolute()))
    package = gaam_cache if gaam_cache.inspect.is_cache(path) else gaam_decoder
    about = package.inspect.describe(path)
    if as_json:
        _print_json(about)
    else:
        tell(package.inspect.in_words(visible_values(about)))
    raise typer.Exit(3 if about.get("damage") else 0)


@app.command(cls=_Command)
def status(
    path: Annotated[Path, typer.Argument(help="A cache, or a folder of runs.")] = Path("cache"),
    watch: Annotated[bool, typer.Option("--watch", help="Look again every few seconds, until all is done.")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Say how far a cache or the trainings in a folder are, and who is at work.

    It only looks: others may be writing meanwhile.
    """
    import gaam_cache.inspect
    import gaam_cache.status
    import gaam_decoder.status

    package: Any = gaam_cache if gaam_cache.inspect.is_cache(path) else gaam_decoder
    while True:
        found = package.status.status(path)
        if as_json:
            _print_json(found.to_dict())
        else:
            tell(found.in_words())
        if not watch or found.complete:
            return
        watching.pause()


@app.command(cls=_Command)
def describe(
    attn: Annotated[str | None, typer.Option("--attn", metavar="NAME[:key=value,...]", help="One mechanism; without it, all are listed.")] = None,
    layers: Annotated[int, typer.Option("--layers", min=1, max=10_000, help="Layers of the encoder.")] = 40,
    hidden_size: Annotated[int, typer.Option("--hidden-size", min=1, max=1_000_000, help="Hidden size of the encoder.")] = 5120,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Say what mechanisms, heads and losses there are: formulas, options, sizes, sources."""
    from gaam_decoder import catalogue

    width = min(shutil.get_terminal_size((100, 24)).columns, 100)
    about = (
        catalogue.describe_mechanism(attn, layers, hidden_size)
        if attn
        else catalogue.catalogue(layers, hidden_size)
    )
    if as_json:
        _print_json(about)
    elif attn:
        tell(catalogue.mechanism_in_words(about, width))
    else:
        tell(catalogue.catalogue_in_words(about, width))


@app.command(cls=_Command)
def verify(
    path: Annotated[Path, typer.Argument(help="A cache, a run, or a folder of runs.")] = Path("cache"),
    quick: Annotated[bool, typer.Option("--quick", help="Look at receipts and sizes only: is every shard of a cache there?")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Remove temporary files and shards without receipt: those older than an hour, or all if nothing is missing.")] = False,
    recompute: Annotated[int, typer.Option("--recompute", metavar="N", min=0, help="Encode N random rows again, alone, or plant them again, and compare.")] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides which rows.")] = 0,
    device: Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda|mps", help="Where they are encoded.")] = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Check every byte of a cache or of runs; exit 3 if something is missing or wrong.

    --quick, --prune, --recompute, --seed and --device are for caches.
    """
    import gaam_cache.inspect
    import gaam_decoder.runs.verify

    options: dict[str, Any] = {"quick": quick, "prune_leftovers": prune}
    options |= {"recompute_rows": recompute}
    if recompute:
        from gaam_decoder.planting.again import drawn_again

        options["drawn"] = drawn_again
    options |= {"seed": seed, "device": device}
    if seed and not recompute:
        raise ConfigError("--seed says which rows --recompute takes", expected="--recompute N")
    of_runs = not gaam_cache.inspect.is_cache(path) and gaam_decoder.runs.verify.is_runs(path)
    if of_runs and (quick or prune or recompute or device != "auto"):
        raise ConfigError(
            "--quick, --prune, --recompute and --device are for caches",
            expected="gaam verify RUNS alone",
            where=str(path.absolute()),
        )
    with show_progress("verify", "steps", quiet=quiet) as progress:
        result = (
            gaam_decoder.runs.verify.verify(path, progress=progress)
            if of_runs
            else gaam_cache.verify(path, progress=progress, **options)
        )
    if as_json:
        _print_json(result.to_dict())
    else:
        tell(result.in_words())
    raise typer.Exit(0 if result.good else 3)


def _given(values: dict[str, Any], *without: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in without}


def _shards_kept(out: Path) -> str:
    from gaam_cache.engines.sharing.undone import kept_in_words  # NumPy: not for --help

    return kept_in_words(out)


def _rows_kept(out: Path | None) -> str:
    from gaam_decoder.use.files.partial import kept_in_words  # NumPy: not for --help

    return kept_in_words(out)


def _seeds_kept(progress: Progress) -> str:
    """What an interrupted training leaves, for people."""
    return (
        f"{progress.done:,} of {progress.total:,} seed-epochs are done: finished seeds are kept, "
        "those at work go on from their last checkpoint: run the same again"
    )


def _print_json(value: Any) -> None:
    tell(json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False))


def main(*, says_interrupted: bool = True) -> None:
    """Entry point: run a command; every error becomes one message and an exit code.

    A SIGINT, SIGTERM or SIGHUP lets the command finish what it is writing; a second one ends it.
    A traceback means a bug: whatever the machine refuses, wherever, is one message too.
    """
    interruption.unwind_on_signals(says=says_interrupted)
    try:
        with careful_streams() as stdout:
            code = _run()
            if code == 0 and (refused := stdout.error()):
                code = _say_error(refused)
        sys.exit(code)
    finally:
        interruption.end_on_signals()


def _run() -> int:
    try:
        with warnings.catch_warnings():
            show_warnings()
            app()
    except (SystemExit, KeyboardInterrupt) as stop:
        code = stop.code if isinstance(stop, SystemExit) else interruption.EXIT_CODE
        if code == interruption.EXIT_CODE:
            interruption.say(stop)
        return int(code or 0)
    except Exception as error:
        # of what ran out first: a file that could not be opened for that is not a damaged file
        said = as_refusal(error) or error
        if not isinstance(said, GaamError):
            raise
        return _say_error(said)
    return 0


def _say_error(error: GaamError) -> int:
    tell(f"error: {error}", to=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    main()
