"""What the card of an exported decoder says of how good it is."""

from __future__ import annotations

from collections.abc import Iterator

from gaam_cache.messages import brief, items, pipes
from gaam_decoder import stats
from gaam_decoder.reports.notes.notes import SELECT_NOTES
from gaam_decoder.reports.notes.shuffled import shuffled
from gaam_decoder.reports.notes.weaknesses import (
    counted,
    few_rows,
    fitted_states,
    shared_texts,
    weighted,
)
from gaam_decoder.reports.table.base import ON_TRAINING_ROWS, Table
from gaam_decoder.reports.table.build import build_tables
from gaam_decoder.reports.writing.numbers import percent, span
from gaam_decoder.runs.result import RunResult
from gaam_decoder.use.decoder_config import DecoderConfig
from gaam_decoder.use.predictions import Predictions

NOT_EVALUATED = "not evaluated: no rows were kept to test it on"


def evaluation(run: RunResult, config: DecoderConfig) -> list[str]:
    """A table and what is to be read with it, in Markdown; with the figures of a report."""
    if not run.evaluated:
        return items([f"this decoder is {NOT_EVALUATED}", *_training(run)])
    [table] = build_tables([run], every_candidate=True)
    [row] = table.rows
    f1 = row.scores.macro_f1
    lines = [
        ["accuracy %", percent(row.mean), span(row.interval), span(row.two_level)],
        [
            "macro-F1 %",
            percent(float(f1.mean()) if len(f1) else None),
            span(stats.within(stats.t_interval(f1), 0, 1)),
            "-",
        ],
    ]
    header = ("of one decoder", "mean over seeds", "95% over seeds", "95% over seeds and rows")
    return [*pipes(header, lines, header[:1]), "", *items(_marks(run, config, table))]


def _training(run: RunResult) -> Iterator[str]:
    """How the decoders came to be, tested or not."""
    if run.shuffled:
        yield "LABELS WERE SHUFFLED: what it predicts means nothing"
    yield f"select {brief(run.select, 40)}: {SELECT_NOTES.get(run.select, 'not known here')}"
    failed = f", {len(run.failed)} failed: {counted(sorted(run.failed))}" if run.failed else ""
    yield f"{len(run.seeds)} seeds{failed}; failed seeds count in no mean, and are not exported"
    if run.tuning_seeds:
        seeds = counted(run.tuning_seeds)
        yield f"rate and weight decay were chosen on validation rows, by seeds {seeds}"


def _marks(run: RunResult, config: DecoderConfig, table: Table) -> Iterator[str]:
    """What has to stand below the numbers for them to be read rightly."""
    [row] = table.rows
    if row.on_training_rows:
        yield f"NO TEST ACCURACY: {ON_TRAINING_ROWS}; what was learned by heart counts as right"
    yield f"tested on {brief(table.where)}: {table.num_test_rows:,} rows"
    yield from _training(run)
    yield f"majority class alone: {percent(table.majority_accuracy)}%"
    places = [run.finished.index(seed) for seed in config.seeds]
    own = Predictions.of(run.finished_logits()[places], config.class_names)
    right = percent(stats.accuracy(own.predicted_N, run.labels))
    if len(config.seeds) > 1:
        yield f"averaged, as they are exported, the {len(places)} decoders reach {right}%"
    else:
        yield f"the exported decoder is that of seed {config.seeds[0]} alone: {right}%"
    if row.folds > 1 or run.recipe.get("fold"):
        yield (
            f"learned without fold {run.recipe['fold']} and tested on it; decoders of other folds "
            "are not here"
        )
    for notes in (few_rows, shared_texts, weighted, fitted_states, shuffled):
        yield from notes(table)
