"""Export a finished run as a folder for the hub, with a card for its visitors.

The folder names no path of this machine.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.markdown import (
    MOST_CLASSES,
    NOUNS,
    escape_markdown,
    items,
    pipe_table,
)
from gaam_cache.common.messages import brief, size_in_words, visible
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.hub.card import Card
from gaam_cache.store.files import digest_of, replace_folder, sealed_text, write_file
from gaam_cache.store.plan import Plan
from gaam_cache.store.records import DatasetRecord, EncoderRecord
from gaam_decoder import stats
from gaam_decoder.catalogue import describe_mechanism
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.columns import entries_sheet
from gaam_decoder.reports.notes import CONTROLS, NO_CONTROL, notes
from gaam_decoder.reports.table import build_tables
from gaam_decoder.runs.loading import find_runs
from gaam_decoder.runs.result import RunResult
from gaam_decoder.stats.scores.base import percent
from gaam_decoder.tasks import CLASSIFICATION, task_of
from gaam_decoder.use.load import (
    CARD_FILE,
    CONFIG_FILE,
    FORMAT,
    MODEL_FILE,
    OWN_FILES,
    cross_validations_in_words,
    open_decoder,
    read_export,
)
from gaam_decoder.use.predictor import DecoderConfig, Predictions, Predictor
from gaam_decoder.use.results import LabelSetPredictions

FIELDS_TO_FILL_IN = {
    "license": "of this decoder, such as apache-2.0",
    "language": "of the rows that it learned from, such as en",
}
"""Fields of the card that people fill in."""


class _RowWords(NamedTuple):
    """How a card names rows of one kind."""

    hub_task: str  # what stands before '-classification' in the hub's name of the task
    example: str  # a row


ROW_WORDS = {
    "text": _RowWords("text", "a text"),
    "audio": _RowWords("audio", "a.wav"),
    "vision": _RowWords("image", "a.png"),
}
"""By kind of the rows."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
USE = """\
```python
import gaam_decoder  # hf download USER/NAME --local-dir DIR
model = gaam_decoder.load("DIR")  # encoder="FOLDER OR ID" where the encoder is \
a local one
model.{}
```"""


@dataclass(frozen=True, slots=True)
class DecoderExport:
    """A finished export of a run."""

    path: str
    key: str
    seeds: tuple[int, ...]
    files: int
    bytes: int

    to_dict = asdict

    def in_words(self) -> str:
        """One line for people."""
        return visible(
            f"exported to '{shown_path(self.path)}', {_seeds_in_words(self.seeds)}: "
            f"{self.files} files, {size_in_words(self.bytes)}; "
            f"licences in {CARD_FILE} are for you to fill in"
        )


def _seeds_in_words(seeds: Sequence[int]) -> str:
    """The seeds of an exported decoder, for people."""
    if len(seeds) == 1:
        return f"of seed {seeds[0]}"
    return f"the average of {len(seeds)} seeds"


def export_run(
    path: str | Path,
    out: str | Path,
    *,
    seed: int | None = None,
    attn: str | type | None = None,
    head: str | type | None = None,
    cache: str | Path | None = None,
    overwrite: bool = False,
) -> DecoderExport:
    """Make a folder of a run that holds no path and no name of this machine.

    >>> export = gaam_decoder.export_run(runs[0].path, "news-decoder")

    Args:
        path: folder of the run.
        out: a folder that is not there yet, or is empty.
        seed: export the decoder of this seed; default: average all finished seeds.
        attn: your own mechanism of the run, as ``load`` takes it.
        head: your own head of the run, as ``load`` takes it.
        cache: folder of the run's cache; default: the folder that the run recorded.
        overwrite: replace an earlier export.

    Raises:
        NotFoundError: no finished run there.
        ConfigError: a seed, mechanism or head that cannot be exported, or another
            folder at ``out``.
        CacheError: the run is damaged.
    """
    folder = absolute_path(path)
    out = absolute_path(out)
    run, config, weights = open_decoder(folder, seed, cache, attn, head)
    if run is None:
        raise ConfigError(
            "it was exported already", expected="a run", where=str(folder)
        )

    # refuse weights and mechanisms that no predictor could use
    Predictor(config, weights, device="cpu")
    sizes = write_export(
        out, config, weights, card(run, config), source=folder, overwrite=overwrite
    )
    return DecoderExport(str(out), run.key, config.seeds, len(sizes), sum(sizes))


def write_export(
    out: str | Path,
    config: DecoderConfig,
    weights: Mapping[str, Tensor],
    card_text: str,
    *,
    source: Path | None = None,
    overwrite: bool = False,
) -> list[int]:
    """Write the three files of an exported decoder.

    Args:
        out: a folder that is not there yet, or is empty.
        config: of the decoder.
        weights: by name, of all seeds.
        card_text: the card, in Markdown.
        source: folder of the run, which must not contain ``out``; None if there is
            none.
        overwrite: replace an earlier export.

    Returns:
        The size of every file, in bytes.
    """
    out = absolute_path(out)
    with replace_folder(source, out, _is_export, overwrite=overwrite) as new_folder:
        tensors = {name: tensor.cpu().contiguous() for name, tensor in weights.items()}
        content = save(tensors, {"format": "pt"})
        settings = {
            **FORMAT,
            **config.to_dict(),
            "sha256_of_weights": digest_of(content),
        }
        write_file(new_folder / MODEL_FILE, content)
        # sealed: with a digest of the text, by which a change of the file is found
        write_file(new_folder / CONFIG_FILE, sealed_text(settings).encode())
        write_file(new_folder / CARD_FILE, card_text.encode())
        return [file.stat().st_size for file in new_folder.iterdir()]


def _is_export(folder: Path) -> bool:
    """Whether a folder holds an earlier export and nothing else."""
    names = {file.name for file in folder.iterdir()}
    return names == set(OWN_FILES) and bool(read_export(folder))


def card(run: RunResult, config: DecoderConfig) -> str:
    """The card of a decoder, in Markdown."""
    plan = config.plan.portable()
    rows = NOUNS.get(plan.kind, "rows")
    task = task_of(plan.task)
    mechanism = escape_markdown(config.attention)
    dataset = escape_markdown(brief(plan.dataset_label))
    described = Card(
        kind="model",
        metadata=_metadata(config),
        entries_to_fill_in=FIELDS_TO_FILL_IN,
        title=f"{mechanism} on {dataset}",
        summary=(
            f"{task.verb} {rows} by the states of {_layers_in_words(run)} of a frozen\n"
            "encoder; made with gaam."
        ),
        facts=_settings_in_words(run, config, plan),
        classes_title=f"{len(plan.target_names):,} {task.outputs_in_words}:",
        classes=items(_classes_in_words(plan)),
        evaluation=_evaluation(run, config),
        usage=USE.format(_usage(plan)),
        limits=_limits_in_words(run, plan),
        subjects_to_license=("the data", "the encoder", "this decoder"),
    )
    return described.to_markdown()


def _metadata(config: DecoderConfig) -> dict[str, object]:
    """The fields at the head of the card, which the hub reads."""
    mechanism_name = config.attention.partition(":")[0]
    # the hub has no task for numbers, and none of its own for label sets
    pipeline_tag = ""
    row_words = ROW_WORDS.get(config.plan.kind)
    if row_words is not None and task_of(config.plan.task).has_classes:
        pipeline_tag = f"{row_words.hub_task}-classification"
    dataset = _hub_id(config.plan.dataset)
    return {
        "library_name": "gaam",
        "tags": sorted({"gaam", "attention-decoder", mechanism_name}),
        "pipeline_tag": pipeline_tag,
        "base_model": _hub_id(config.plan.encoder),
        "datasets": [dataset] if dataset else [],
    }


def _usage(plan: Plan) -> str:
    """Python code that predicts with the decoder, for the card."""
    if plan.imported:
        return (
            "predict_states(states)  "
            "# (rows, layers, hidden size), as the cache has them"
        )
    row_words = ROW_WORDS.get(plan.kind)
    example = "a row" if row_words is None else row_words.example
    return f'predict(["{example}"])'


def _classes_in_words(plan: Plan) -> list[str]:
    """Names of the classes, the first of many."""
    classes = [brief(name) for name in plan.target_names[:MOST_CLASSES]]
    num_hidden = len(plan.target_names) - MOST_CLASSES
    if num_hidden > 0:
        classes.append(f"and {num_hidden:,} more, in {CONFIG_FILE}")
    return classes


def _settings_in_words(run: RunResult, config: DecoderConfig, plan: Plan) -> list[str]:
    """Data set, encoder, mechanism, recipe and versions of a decoder, an entry each."""
    mechanism = describe_mechanism(
        config.attention, len(config.layers), plan.hidden_size
    )
    formula = f"{mechanism['summary']} {mechanism['formula'] or ''}".replace("``", "")
    settings = dict(run.settings)
    if run.recipe.val_split is not None:
        # no row is held out
        settings.pop("val_fraction", None)
    recipe = ", ".join(
        f"{name}={value}"
        for name, value in settings.items()
        if value not in (None, False)
    )
    torch_version = brief(str(run.environment.get("torch")))
    return [
        f"data set: {brief(plan.dataset_label)}",
        f"encoder: {brief(plan.encoder_label)}, {_encoder_source(plan)}",
        f"mechanism: {config.attention}: {formula}",
        f"head: {config.head}",
        f"layers: {spell_numbers(_layers_read(run))}, pooled by {run.recipe.pool}, "
        f"of {plan.hidden_size:,} features",
        f"{run.parameters['total']:,} parameters, "
        f"{run.parameters['attention']:,} in the mechanism",
        _training_in_words(run, config),
        f"recipe: {brief(recipe, 1000)}",
        f"made with gaam {config.gaam}, torch {torch_version}: "
        f"cache {plan.fingerprint[:8]}, run {config.key[:8]}",
    ]


def _layers_read(run: RunResult) -> tuple[int, ...]:
    """The layers whose states a decoder reads."""
    if run.attention == "last-layer":
        return run.layer_numbers[-1:]
    return run.layer_numbers


def _layers_in_words(run: RunResult) -> str:
    """The layers whose states a decoder reads, for the first sentence of its card."""
    layers = _layers_read(run)
    noun = "layer" if len(layers) == 1 else "layers"
    return f"{noun} {spell_numbers(layers)}"


def _training_in_words(run: RunResult, config: DecoderConfig) -> str:
    """The seeds of a decoder, or the value that was chosen for a head without seeds."""
    if run.fit is not None:
        return f"fitted in one step, without seeds: {run.fit.in_words()}"
    return f"seeds: {spell_numbers(config.seeds)}, {_seeds_in_words(config.seeds)}"


def _encoder_source(plan: Plan) -> str:
    """How the encoder of a cache is identified."""
    if plan.imported:
        return "run by somebody else; states were imported"
    revision = plan.encoder.revision
    if revision:
        return f"revision {revision}"
    return "known by the SHA-256 of its files"


def _limits_in_words(run: RunResult, plan: Plan) -> list[str]:
    """The limits of a decoder, as lines of its card."""
    train = run.recipe.train_split
    rows = _num_learned_rows(run)
    validation = ""
    if run.recipe.holds_out_rows:
        validation = ", validation rows included"
    elif run.recipe.val_split is not None:
        validation = f"; split '{brief(run.recipe.val_split)}' validates"
    limits = [
        f"learned from split '{brief(train)}', {rows:,} rows{validation}",
        task_of(plan.task).caveat,
    ]
    if plan.kind == "text":
        limits.append(f"texts are cut at {plan.identity['max_length']:,} tokens")
    return limits


def _num_learned_rows(run: RunResult) -> int:
    """The number of training rows of a run, validation rows included."""
    if run.drawn:
        return run.drawn.total
    num_rows = run.cache.rows[run.recipe.train_split]
    # only a fold has test rows among those of the training split
    if run.test_rows is not None:
        num_rows -= len(run.test_rows)
    return num_rows


def _hub_id(source: EncoderRecord | DatasetRecord) -> str:
    """The id of an encoder or data set that came from the hub, else nothing."""
    is_from_hub = source.path is None and source.revision is not None
    if not is_from_hub or not HUB_ID.fullmatch(source.name):
        return ""
    return source.name


def _averaged_score(run: RunResult, logits_SNC: NDArray[np.float32]) -> str:
    """The test score of the predictions averaged over some seeds, in words.

    Args:
        run: with the true labels of the test rows.
        logits_SNC: logits of these seeds for the test rows.
    """
    task = run.task_definition
    if task.has_classes:
        predictions = Predictions.from_logits(logits_SNC, run.cache.class_names)
        predicted_N = CLASSIFICATION.predictions(predictions.probabilities_NC)
        return f"an accuracy of {percent(stats.accuracy(predicted_N, run.labels))}%"
    if task.has_probabilities:
        sets = LabelSetPredictions.from_outputs(logits_SNC, run.cache.names)
        # the score takes logits, where above 0 is a predicted label
        outputs = sets.probabilities_NC - 0.5
    else:
        outputs = logits_SNC.astype(np.float64).mean(0)
    return f"{task.with_title(float(task.selection_score(outputs, run.labels)))}"


def _evaluation(run: RunResult, config: DecoderConfig) -> list[str]:
    """The evaluation of a run for its card, as lines of Markdown.

    It has the table of a report, its notes, and the score of the exported decoder: that
    of one seed, or of the averaged outputs of several.
    """
    exported = _seeds_in_words(config.seeds)
    if not run.evaluated:
        remark = f"not evaluated: no rows were kept for it; exported: {exported}"
        return items([*cross_validations_in_words(run), remark])
    [table] = build_tables([run], every_candidate=True)
    seed_indices = [run.seeds.index(seed) for seed in config.seeds]
    score = _averaged_score(run, run.logits[seed_indices])
    remarks = [f"as it is exported, {exported}, it has {score}"]
    if run.fit is not None:
        remarks = [f"as it is exported, it has {score}"]
    if run.shuffled:
        remarks.append("LABELS WERE SHUFFLED: what it predicts means nothing")
    fold = run.recipe.fold
    if fold:
        remarks.append(
            f"learned without fold {fold}, tested on it; other folds are not here"
        )
    if run.tuning_seeds:
        seeds = spell_numbers(run.tuning_seeds)
        remarks.append(
            f"rate and weight decay were chosen on validation rows, by seeds {seeds}"
        )
    remarks += notes(table)
    if NO_CONTROL in remarks and _has_control_beside(run):
        remarks = [remark for remark in remarks if remark != NO_CONTROL]
    shown = entries_sheet(table)
    table_lines = pipe_table(shown.header, shown.lines, shown.text_headers)
    return [*table_lines, "", *items(remarks)]


def _has_control_beside(run: RunResult) -> bool:
    """Whether a control was trained on the same states, in the same folder of runs."""
    return any(
        other.attention in CONTROLS and other.states == run.states and other.fit is None
        for other in find_runs([run.path.parent]).sound
    )
