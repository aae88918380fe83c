"""How often claims and intervals are wrong, in simulated experiments whose truth is known.

    python -m tests.benchmarks.bench_error_rates [--of claims] [--repetitions 250]

Markdown tables, in percent. ``--of claims``: every scenario over 2, 3, 6 and 20 seeds and 50, 300
and 2,000 test rows together, and in brackets the worst of these. Beside the claim stands the
sign-flip test over seeds alone, from 6 seeds on. ``labels swapped``: one pair of mechanisms that do
differ, of which on every row chance decides which is called which. ``scores``: every score. Silent:
no claim was made, where there is no difference and where there is one; all others are of the claims
that were made. ``tuned``: rates that validation chose. ``groups``: rows that belong together, over
groups and, behind the stroke, as if rows were independent. ``trained``: of real trainings, 20 s a
repetition. ``many``: of seven mechanisms over many data sets.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from tests.benchmarks import trained_experiments
from tests.decoder.stats import (
    experiments,
    grouped_experiments,
    many_sets,
    scored_experiments,
    tuned_experiments,
)
from tests.decoder.stats.experiments import Rates

OF_CHOICES = {"held": "difference in interval", "held_without": "without the choice"}
OF_CHOICES |= {"found": "difference found", "found_without": "without the choice"}
SWAPPED = ((6, 300), (6, 2000), (20, 2000))
Line = Sequence[object]


def percent(count: float, of: int) -> str:
    """Of what there is."""
    return f"{100 * count / of:.1f}" if of else "-"


def share(
    found: Sequence[Rates], of: Callable[[Rates], int], *, worst: Callable = max
) -> str:
    """Percent of all, and of the worst."""
    if not found:
        return "-"
    shares = [100 * of(rates) / rates.repetitions for rates in found]
    return f"{sum(shares) / len(shares):.1f} ({worst(shares):.1f})"


def claims(repetitions: int) -> Iterator[Line]:
    """Of accuracies."""
    yield ("scenario", "accuracy", "false difference", "by seeds alone", "labels swapped",
           "by seeds alone", "false equivalence", "difference in interval",
           "accuracy in interval")  # fmt: skip
    for name, scenario in experiments.SCENARIOS.items():
        cells = experiments.cells(name)
        found = {cell: experiments.simulate(name, *cell, repetitions) for cell in cells}
        mixed = [experiments.swapped(name, *size, 2 * repetitions) for size in SWAPPED]
        same = [rates for (difference, *_), rates in found.items() if difference == 0]
        by_seeds = [
            rates for (d, seeds, _), rates in found.items() if d == 0 and seeds >= 6
        ]
        other = [rates for (difference, *_), rates in found.items() if difference > 0]
        yield (name, f"{100 * scenario.accuracy(0.0, first=False):.1f}",
               share(same, lambda r: r.found), share(by_seeds, lambda r: r.found_by_seeds),
               share(mixed, lambda r: r.found), share(mixed, lambda r: r.found_by_seeds),
               share(other, lambda r: r.equivalent),
               share([*found.values()], lambda r: r.held, worst=min),
               share([*found.values()], lambda r: r.accuracy_held, worst=min))  # fmt: skip


def scores(repetitions: int) -> Iterator[Line]:
    """Of every score."""
    yield ("scenario", "seeds", "rows", "score", "silent", "false difference",
           "no difference in interval", "difference in interval", "false equivalence", "power",
           "score in interval")  # fmt: skip
    for name in scored_experiments.SCENARIOS:
        for size in scored_experiments.SIZES:
            of_same, of_other = (
                scored_experiments.simulate(name, size, repetitions, differ=differ)
                for differ in (False, True)
            )
            for score, same in of_same.items():
                other = of_other[score]
                silent = " / ".join(
                    percent(one.silent, repetitions) for one in (same, other)
                )
                held = (
                    same.value_held + other.value_held,
                    same.with_value + other.with_value,
                )
                yield (name, *size, score, silent, percent(same.found, same.claimed),
                       percent(same.held, same.claimed), percent(other.held, other.claimed),
                       percent(other.equivalent, other.claimed),
                       percent(other.found, other.claimed), percent(*held))  # fmt: skip


def tuned(repetitions: int) -> Iterator[Line]:
    """Of mechanisms whose rates validation chose; the truth is that of the best rates."""
    yield ("mechanisms", "rows that choose", "test rows", *OF_CHOICES.values())
    for world in tuned_experiments.WORLDS:
        for size in tuned_experiments.SIZES:
            found = tuned_experiments.simulate(world, *size, repetitions)
            yield (
                world,
                *size,
                *(percent(found[name], repetitions) for name in OF_CHOICES),
            )


def groups(repetitions: int) -> Iterator[Line]:
    """Of 6 seeds on 400 rows that belong together: over groups / over rows."""
    columns = {
        "found": "false difference",
        "equivalent": "false equivalence",
        "held": "difference in interval",
        "accuracy_held": "accuracy in interval",
        "power": "difference of 5 points found",
        "equivalence": "equivalence within 5 points found",
    }
    yield ("rows", "sd of groups", *columns.values())
    for layout, effect in product(
        grouped_experiments.LAYOUTS, grouped_experiments.EFFECTS
    ):
        found = grouped_experiments.simulate(layout, effect, repetitions)
        shares = (
            " / ".join(
                percent(getattr(found, name + end), repetitions)
                for end in ("", "_by_rows")
            )
            for name in columns
        )
        yield (layout, effect, *shares)


def many(repetitions: int) -> Iterator[Line]:
    """Of seven mechanisms over many data sets; the mean over spreads, and the worst."""

    def share(counts: Sequence[int], worst: Callable[[Sequence[int]], int]) -> str:
        """The mean share over the spreads of data sets, with the worst in brackets."""
        mean = percent(sum(counts), repetitions * len(counts))
        return f"{mean} ({percent(worst(counts), repetitions)})"

    yield (
        "encoders of a data set",
        "data sets",
        "any false difference",
        "any false equivalence",
        "mean in interval",
        "another data set in its interval",
    )
    for name, (num_encoders, alike) in many_sets.ENCODERS.items():
        for num_sets in many_sets.NUMBERS_OF_SETS:
            found = [
                many_sets.simulate(
                    num_sets,
                    between,
                    repetitions,
                    num_encoders=num_encoders,
                    alike=alike,
                )
                for between in many_sets.BETWEEN
            ]
            yield (
                name,
                num_sets,
                share([rates.found_any for rates in found], max),
                share([rates.equivalent_any for rates in found], max),
                share([rates.held for rates in found], min),
                share([rates.other_held for rates in found], min),
            )


def trained(repetitions: int) -> Iterator[Line]:
    """Of mechanisms that were tuned and trained; the truth is what their best rates give."""
    yield (
        "mechanism",
        "rows of train",
        "test rows",
        "difference",
        *OF_CHOICES.values(),
    )
    for which, name in enumerate(("mirrored", "averaged"), 1):
        for size in product(trained_experiments.SIZES, trained_experiments.TEST):
            found = trained_experiments.simulate(which, *size, repetitions)
            shares = (percent(found[key], repetitions) for key in OF_CHOICES)
            yield (name, *size, f"{100 * found['truth']:+.2f}", *shares)


TABLES = {
    "claims": claims,
    "scores": scores,
    "tuned": tuned,
    "groups": groups,
    "many": many,
    "trained": trained,
}


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--of", choices=TABLES, default="claims")
    parser.add_argument("--repetitions", type=int, default=250)
    options = parser.parse_args()
    for number, line in enumerate(TABLES[options.of](options.repetitions)):
        print(f"| {' | '.join(map(str, line))} |", flush=True)
        if not number:
            print(f"|:--|{'--:|' * (len(line) - 1)}")
    error = 100 * (0.05 * 0.95 / options.repetitions) ** 0.5
    print(
        f"\n{options.repetitions} repetitions of each: a rate of 5% is known to +-{error:.1f}"
    )


if __name__ == "__main__":
    main()
