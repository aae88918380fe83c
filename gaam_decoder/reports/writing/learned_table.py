"""The table of learned parameters below the accuracies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gaam_cache.messages import brief

if TYPE_CHECKING:
    from gaam_decoder.analysis.learned import ExponentDistribution, ParameterRange
    from gaam_decoder.reports.rows import Row

TITLE = "learned parameters after training, over heads, features and seeds"
HEADER = ["parameter", "start", "min", "median", "max", "sd of seed medians"]


def cells(row: Row) -> list[list[str]]:
    """One list of cells for every learned parameter of a mechanism, as in ``HEADER``."""
    return [
        [
            brief(name, 40),
            _span(found.start),
            *map(_number, (found.min, found.median, found.max)),
            "-" if found.seed_medians_sd is None else _number(found.seed_medians_sd),
        ]
        for name, found in row.learned.items()
    ]


def notes(rows: Sequence[Row]) -> list[str]:
    """What the exponents of generalised Gaussians say, where there are any."""
    return [
        line
        for row in rows
        for found in row.learned.values()
        if found.distribution is not None
        for line in _in_words(brief(row.attention), found, found.distribution)
    ]


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """The learned parameters of a row's JSON as columns, such as ``learned_xi_median``."""
    columns: dict[str, Any] = {}
    for name, found in row["learned"].items():
        values = {key: found[key] for key in ("min", "median", "max", "seed_medians_sd")}
        if about := found.get("distribution"):
            values |= {f"q{percent}": value for percent, value in about["quantiles"].items()}
            values |= {
                k: about[k] for k in ("nearer_to_laplace", "below_laplace", "above_gaussian")
            }
        columns |= {f"learned_{name}_{key}": value for key, value in values.items()}
    return columns


def to_dict(learned: dict[str, ParameterRange]) -> dict[str, Any]:
    """JSON values."""
    return {name: found.to_dict() for name, found in learned.items()}


def _in_words(attention: str, beta: ParameterRange, found: ExponentDistribution) -> list[str]:
    quantiles = ", ".join(f"{q}%: {_number(value)}" for q, value in found.quantiles.items())
    heads = ", ".join(map(_number, found.head_medians))
    return [
        f"{attention}: {100 * found.nearer_to_laplace:.1f}% of beta are nearer to 1 (Laplace) than "
        f"to 2 (Gaussian), {100 * found.below_laplace:.1f}% below 1, "
        f"{100 * found.above_gaussian:.1f}% above 2",
        f"{attention}: quantiles of beta {quantiles}; median of each head {heads}",
        f"{attention}: beta starts at {_span(beta.start)}; a value near it may only not have moved",
    ]


def _span(bounds: tuple[float, float] | None) -> str:
    if bounds is None:
        return "-"
    low, high = map(_number, bounds)
    return low if low == high else f"{low} to {high}"


def _number(value: float) -> str:
    return f"{value:.3g}"
