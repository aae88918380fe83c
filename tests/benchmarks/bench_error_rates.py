"""How often claims and intervals are wrong, in simulated experiments whose truth is known.

    python -m tests.benchmarks.bench_error_rates [--repetitions 250] [--all]

A Markdown table: every scenario over 2, 3, 6 and 20 seeds and 50, 300 and 2,000 test rows together,
and in brackets the worst of these. Beside the claim stands the sign-flip test over seeds alone,
from 6 seeds on. ``labels swapped``: one pair of mechanisms that do differ, of which on every row
chance decides which is called which.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from tests.decoder.stats.experiments import SCENARIOS, Rates, cells, simulate, swapped

HEADER = [
    "scenario", "accuracy", "false difference", "by seeds alone", "labels swapped",
    "by seeds alone", "false equivalence", "difference in interval", "accuracy in interval",
]  # fmt: skip
SWAPPED = ((6, 300), (6, 2000), (20, 2000))
Cell = tuple[float, int, int]


def share(found: Sequence[Rates], of: Callable[[Rates], int], *, worst: Callable = max) -> str:
    """Percent of all, and of the worst."""
    if not found:
        return "-"
    shares = [100 * of(rates) / rates.repetitions for rates in found]
    return f"{sum(shares) / len(shares):.1f} ({worst(shares):.1f})"


def line(name: str, found: dict[Cell, Rates], of_swapped: dict[tuple[int, int], Rates]) -> str:
    """All of one scenario."""
    same = [rates for (difference, _, _), rates in found.items() if difference == 0]
    by_seeds = [rates for (difference, seeds, _), rates in found.items()
                if difference == 0 and seeds >= 6]  # fmt: skip
    other = [rates for (difference, _, _), rates in found.items() if difference > 0]
    every, mixed = [*found.values()], [*of_swapped.values()]
    parts = [
        name,
        f"{100 * SCENARIOS[name].accuracy(0.0, first=False):.1f}",
        share(same, lambda r: r.found),
        share(by_seeds, lambda r: r.found_by_seeds),
        share(mixed, lambda r: r.found),
        share(mixed, lambda r: r.found_by_seeds),
        share(other, lambda r: r.equivalent),
        share(every, lambda r: r.held, worst=min),
        share(every, lambda r: r.accuracy_held, worst=min),
    ]
    return f"| {' | '.join(parts)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=250)
    parser.add_argument("--all", action="store_true", help="every number of seeds and rows too")
    options = parser.parse_args()
    print(f"| {' | '.join(HEADER)} |\n|:--|{'--:|' * (len(HEADER) - 1)}")
    kept: dict[str, dict[Cell, Rates]] = {}
    for name in SCENARIOS:
        found = {cell: simulate(name, *cell, options.repetitions) for cell in cells(name)}
        mixed = {size: swapped(name, *size, 2 * options.repetitions) for size in SWAPPED}
        print(line(name, found, mixed), flush=True)
        kept[name] = found
    print(
        f"\nPercent, the worst of all sizes in brackets; {options.repetitions} repetitions of each "
        f"size: a rate of 5% is known to +-{100 * (0.05 * 0.95 / options.repetitions) ** 0.5:.1f}"
    )
    if options.all:
        print("\n| scenario | difference | seeds | rows | found | equivalent | difference in "
              "interval | accuracy in interval |\n|:--|--:|--:|--:|--:|--:|--:|--:|")  # fmt: skip
        for name, found in kept.items():
            for (difference, seeds, rows), rates in found.items():
                counts = (rates.found, rates.equivalent, rates.held, rates.accuracy_held)
                shares = " | ".join(f"{100 * n / rates.repetitions:.1f}" for n in counts)
                print(f"| {name} | {100 * difference:g} | {seeds} | {rows} | {shares} |")


if __name__ == "__main__":
    main()
