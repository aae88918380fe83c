"""One line per mechanism, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TextIO

from gaam_cache.messages import visible
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.reports.finals import FinalModel
from gaam_decoder.reports.table import Format, Table
from gaam_decoder.reports.writing import learned_table
from gaam_decoder.reports.writing.unit import all_scores

RECIPE = ("epochs", "batch_size", "lr", "weight_decay", "loss", *DRAWN_BY)
"""Settings that have a column."""
OTHERS = [name for name in all_scores() if name not in ("accuracy", "macro-f1")]
"""Scores that stand at the end."""
FIELDS = [
    "fingerprint",
    "encoder",
    "dataset",
    "attention",
    "head",
    "select",
    "seeds",
    "failed_seeds",
    "accuracy_mean",
    "accuracy_std",
    "accuracy_ci95_low",
    "accuracy_ci95_high",
    "macro_f1_mean",
    "macro_f1_std",
    "parameters_attention",
    "parameters_total",
    "seconds_per_seed",
    "majority_accuracy",
    "settings",
    "optimistic",
    "tested_on_training_rows",
    "tested_on",
    "test_rows",
    "accuracy_ci95_seeds_and_rows_low",
    "accuracy_ci95_seeds_and_rows_high",
    "baseline",
    "paired_seeds",
    "difference",
    "verdict",
    "significant",
    "within_margin",
    "margin",
    "ci95_seeds_and_rows_low",
    "ci95_seeds_and_rows_high",
    "p",
    "p_holm",
    "p_equivalent",
    "p_equivalent_holm",
    "seeds_to_decide",
    "rows_to_decide",
    "these_rows_verdict",
    "these_rows_std",
    "these_rows_ci95_low",
    "these_rows_ci95_high",
    "these_rows_p_sign_flip",
    "these_rows_p_equivalent",
    "minimum_detectable_difference",
    "p_other_training_sets",
    "undertrained",
    "mcnemar_p",
    "mcnemar_p_holm",
    "published_mean",
    "published_std",
    "published_encoder",
    *(f"recipe_{name}" for name in RECIPE),
    "evaluated",
    "left_out",
    "compared_by",
    *(f"{name.replace('-', '_')}_{of}" for name in OTHERS for of in ("mean", "std")),
]

FROM_COMPARISON = (
    "baseline",
    "difference",
    "verdict",
    "significant",
    "within_margin",
    "margin",
    "p",
    "p_holm",
    "p_equivalent",
    "p_equivalent_holm",
    "seeds_to_decide",
    "rows_to_decide",
)
"""Columns that are called as in JSON."""


class Csv(Format):
    """Accuracies are fractions; a value that does not exist is empty.

    Every line says how many runs were left out of the report, and by what.
    """

    says_selection: ClassVar[bool] = False

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write a header and one line per row of every table.

        Behind the fixed columns come four for every parameter that any mechanism learns. What
        single seeds did is in ``load_runs(...).to_frame()``. A final model is a line without
        accuracies.
        """
        lines = [
            line | {"left_out": left_out(table)} for table in tables for line in self._lines(table)
        ]
        learned = dict.fromkeys(name for line in lines for name in line if name not in FIELDS)
        write_lines(stream, [*FIELDS, *learned], lines)

    def _lines(self, table: Table) -> list[dict[str, Any]]:
        lines = []
        spelt = table.settings()
        settings_of = [spelt[place] for place in table.places]
        for row, settings in zip(table.to_dict()["rows"], settings_of, strict=True):
            low, high = row["accuracy"]["ci95"] or (None, None)
            lines.append(
                {
                    **{key: table.cache[key] for key in ("fingerprint", "encoder", "dataset")},
                    **{key: row[key] for key in ("attention", "head", "select")},
                    "seeds": len(row["seeds"]),
                    "failed_seeds": len(row["failed_seeds"]),
                    "accuracy_mean": row["accuracy"]["mean"],
                    "accuracy_std": row["accuracy"]["std"],
                    "accuracy_ci95_low": low,
                    "accuracy_ci95_high": high,
                    "macro_f1_mean": row["macro_f1"]["mean"],
                    "macro_f1_std": row["macro_f1"]["std"],
                    "parameters_attention": row["parameters"]["attention"],
                    "parameters_total": row["parameters"]["total"],
                    "seconds_per_seed": row["seconds_per_seed"],
                    "majority_accuracy": table.majority_accuracy,
                    "settings": settings,
                    **_more(table, row),
                    **_comparison(row["comparison"]),
                    **learned_table.flat(row),
                    **({"temperature": _mean(row["temperature"])} if table.temperature else {}),
                }
            )
        return lines + [_final(table, final) for final in table.finals]


def _mean(temperature: dict[str, Any] | None) -> float | None:
    """Of all seeds and folds; nothing where none was fitted."""
    return temperature["mean"] if temperature else None


def _final(table: Table, final: FinalModel) -> dict[str, Any]:
    return {
        **{key: table.cache[key] for key in ("fingerprint", "encoder", "dataset")},
        **{key: getattr(final, key) for key in ("attention", "head", "select", "settings")},
        "seeds": len(final.seeds),
        "failed_seeds": len(final.failed),
        "parameters_attention": final.parameters["attention"],
        "parameters_total": final.parameters["total"],
        "seconds_per_seed": final.seconds_per_seed,
        "evaluated": False,
        **_recipe(final.recipe),
    }


def _recipe(recipe: dict[str, Any]) -> dict[str, Any]:
    return {f"recipe_{name}": recipe.get(name) for name in RECIPE}


def _more(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    low, high = row["accuracy_ci95_seeds_and_rows"] or (None, None)
    found = row["published"] or {}
    return {
        "optimistic": row["optimistic"],
        "tested_on_training_rows": row["tested_on_training_rows"],
        "tested_on": table.where,
        "test_rows": table.num_test_rows,
        "accuracy_ci95_seeds_and_rows_low": low,
        "accuracy_ci95_seeds_and_rows_high": high,
        "undertrained": row["undertrained"],
        "published_mean": found.get("mean"),
        "published_std": found.get("std"),
        "published_encoder": found.get("encoder"),
        "evaluated": True,
        **_recipe(row["recipe"]),
        "compared_by": table.score,
        **{
            f"{name.replace('-', '_')}_{of}": row["scores"].get(name, {}).get(of)
            for name in OTHERS
            for of in ("mean", "std")
        },
    }


def _comparison(found: dict[str, Any] | None) -> dict[str, Any]:
    if found is None:
        return {}
    low, high = found["ci95_seeds_and_rows"] or (None, None)
    here = found["on_these_test_rows"]
    low_here, high_here = here["ci95"] or (None, None)
    votes = found["mcnemar"] or {}
    return {
        **{name: found[name] for name in FROM_COMPARISON},
        "paired_seeds": len(found["paired_seeds"]),
        "ci95_seeds_and_rows_low": low,
        "ci95_seeds_and_rows_high": high,
        "these_rows_verdict": here["verdict"],
        "these_rows_std": here["std"],
        "these_rows_ci95_low": low_here,
        "these_rows_ci95_high": high_here,
        "these_rows_p_sign_flip": here["p_sign_flip"],
        "these_rows_p_equivalent": here["p_equivalent"],
        "minimum_detectable_difference": here["minimum_detectable_difference"],
        "p_other_training_sets": (found["other_training_sets"] or {}).get("p"),
        "mcnemar_p": votes.get("p"),
        "mcnemar_p_holm": votes.get("p_holm"),
    }


# at the beginning of a cell, also where a spreadsheet takes semicolons for the separator, and in
# the full-width forms that some take as well
_FORMULA = re.compile("(^|;)(?=\\s*[=+\\-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}"
                      "\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}])")  # fmt: skip
_BEFORE_TEXT = re.compile(r"^(?=[\t\r])")


def write_lines(stream: TextIO, fields: Sequence[str], lines: Iterable[dict[str, Any]]) -> None:
    """Write a header and lines; numbers stay numbers, and text that begins like a formula is text.

    Args:
        stream: takes the lines.
        fields: columns.
        lines: column -> value; what is not there, or None, is empty.
    """
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_cell, fields))
    writer.writerows([_cell(line.get(name)) for name in fields] for line in lines)


def left_out(table: Table) -> str | None:
    """How many runs were left out of a report, and by what; None where none were."""
    return (table.selection and table.selection.left_out_in_words()) or None


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return _FORMULA.sub(r"\1'", visible(_BEFORE_TEXT.sub("'", value)))
