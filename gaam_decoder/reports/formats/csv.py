"""One line per mechanism, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TextIO

from gaam_cache.messages import visible
from gaam_decoder.reports.columns import COLUMNS, cells_of
from gaam_decoder.reports.table import Format, Table
from gaam_decoder.reports.unit import all_scores

OF_JSON = """
fingerprint=cache encoder=cache dataset=cache attention head select
seeds=counts failed_seeds=counts
accuracy_mean=accuracy.mean accuracy_std=accuracy.std
accuracy_ci95_low=accuracy.ci95.0 accuracy_ci95_high=accuracy.ci95.1
macro_f1_mean=macro_f1.mean macro_f1_std=macro_f1.std
parameters_attention=parameters.attention parameters_total=parameters.total
seconds_per_seed majority_accuracy settings optimistic tested_on_training_rows tested_on test_rows
accuracy_ci95_seeds_and_rows_low=accuracy_ci95_seeds_and_rows.0
accuracy_ci95_seeds_and_rows_high=accuracy_ci95_seeds_and_rows.1
baseline=comparison paired_seeds=counts difference=comparison verdict=comparison
significant=comparison within_margin=comparison margin=comparison
ci95_seeds_and_rows_low=comparison.ci95_seeds_and_rows.0
ci95_seeds_and_rows_high=comparison.ci95_seeds_and_rows.1
ci95_corrected_low=comparison.ci95_corrected.0 ci95_corrected_high=comparison.ci95_corrected.1
p=comparison p_holm=comparison p_equivalent=comparison p_equivalent_holm=comparison
seeds_to_decide=comparison rows_to_decide=comparison
these_rows_verdict=here.verdict these_rows_std=here.std
these_rows_ci95_low=here.ci95.0 these_rows_ci95_high=here.ci95.1
these_rows_p_sign_flip=here.p_sign_flip these_rows_p_equivalent=here.p_equivalent
minimum_detectable_difference=here p_other_training_sets=comparison.other_training_sets.p
undertrained
published_mean=published.mean published_std=published.std published_encoder=published.encoder
recipe_epochs=recipe.epochs recipe_batch_size=recipe.batch_size recipe_lr=recipe.lr
recipe_weight_decay=recipe.weight_decay recipe_loss=recipe.loss
recipe_train_rows=recipe.train_rows recipe_shots=recipe.shots
evaluated left_out compared_by
"""
"""Columns and where they stand in the JSON of a row."""


def paths(pairs: str) -> Iterator[tuple[str, list[str]]]:
    """Columns and the keys that lead to each; ``in`` is ``in.column``."""
    for pair in pairs.split():
        name, _, path = pair.partition("=")
        found = path.split(".") if path else [name]
        yield name, [*found, name] if path in ("cache", "counts", "comparison", "here") else found


def _columns() -> dict[str, list[str]]:
    """All of them; the scores beside the first two stand last."""
    scores = [name for name in all_scores() if name not in ("accuracy", "macro-f1")]
    return dict(paths(OF_JSON)) | {
        f"{score.replace('-', '_')}_{of}": ["scores", score, of]
        for score in scores
        for of in ("mean", "std")
    }


class Csv(Format):
    """Accuracies are fractions; a value that does not exist is empty.

    Every line says how many runs were left out of the report, and by what.
    """

    says_selection: ClassVar[bool] = False

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write a header and one line per row of every table.

        Behind the fixed columns come those of every parameter that any mechanism learns. What
        single seeds did is in ``load_runs(...).to_frame()``. A final model is a line without
        accuracies.
        """
        lines = [line for table in tables for line in _lines(table)]
        fields = dict.fromkeys([*_columns(), *(name for line in lines for name in line)])
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(map(_cell, fields))
        writer.writerows([_cell(line.get(name)) for name in fields] for line in lines)


def _lines(table: Table) -> Iterator[dict[str, Any]]:
    about, places = table.to_dict(), _columns()
    of_table = {"cache": about["cache"]}
    of_table["left_out"] = (table.selection and table.selection.left_out_in_words()) or None
    shared = {name: about[name] for name in ("majority_accuracy", "tested_on", "test_rows")}
    shared |= of_table | {"compared_by": table.score, "evaluated": True}
    own = [column.field for column in COLUMNS if column.field]
    for cell, row in zip(cells_of(table), about["rows"], strict=True):
        compared = row["comparison"] or {}
        more = {"here": compared.get("on_these_test_rows"), "settings": cell.settings}
        line = _line(row | shared | more, places, paired_seeds=compared.get("paired_seeds"))
        line |= _learned(row)
        line |= {"temperature": (row["temperature"] or {}).get("mean")} if table.temperature else {}
        yield line | {name: value(cell) for name, value in own}
    for final in about["final_models"]:
        yield _line(final | of_table, places)


def _line(values: dict[str, Any], places: dict[str, Any], **more: Any) -> dict[str, Any]:
    listed = {name: values[name] for name in ("seeds", "failed_seeds")} | more
    counts = {name: None if of is None else len(of) for name, of in listed.items()}
    return {name: value_at(values | {"counts": counts}, path) for name, path in places.items()}


def _learned(row: dict[str, Any]) -> dict[str, Any]:
    """The learned parameters of a row's JSON as columns, such as ``learned_xi_median``."""
    columns: dict[str, Any] = {}
    for name, found in row["learned"].items():
        values = {key: found[key] for key in ("min", "median", "max", "seed_medians_sd")}
        if about := found.get("distribution"):
            values |= {f"q{percent}": value for percent, value in about["quantiles"].items()}
            shares = ("nearer_to_laplace", "below_laplace", "above_gaussian")
            values |= {key: about[key] for key in shares}
        columns |= {f"learned_{name}_{key}": value for key, value in values.items()}
    return columns


def value_at(values: Any, path: Sequence[str]) -> Any:
    """What keys lead to in JSON values; None where one is not there."""
    for key in path:
        if values is None:
            return None
        values = values.get(key) if isinstance(values, dict) else values[int(key)]
    return values


# at the beginning of a cell, also where a spreadsheet takes semicolons for the separator, and in
# the full-width forms that some take as well
_FORMULA = re.compile("(^|;)(?=\\s*[=+\\-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}"
                      "\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}])")  # fmt: skip


def _cell(value: Any) -> Any:
    """Numbers stay numbers, and text that begins like a formula is text."""
    if not isinstance(value, str):
        return value
    return _FORMULA.sub(r"\1'", visible(re.sub(r"^(?=[\t\r])", "'", value)))
