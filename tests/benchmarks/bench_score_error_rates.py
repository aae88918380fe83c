"""How often claims by every score are wrong, in simulated experiments whose truth is known.

    python -m tests.benchmarks.bench_score_error_rates [--repetitions 150] [--scenario NAME]

A Markdown table of every scenario, number of seeds and rows, and score, in percent. ``silent``: no
claim was made, where there is no difference and where there is one; all others are of the claims
that were made. ``power`` is of the difference that the scenario has.
"""

from __future__ import annotations

import argparse

from tests.decoder.stats.scored_experiments import SCENARIOS, SIZES, Rates, simulate

HEADER = [
    "scenario", "seeds", "rows", "score", "silent", "false difference", "no difference in interval",
    "difference in interval", "false equivalence", "power", "score in interval",
]  # fmt: skip


def percent(count: int, of: int) -> str:
    """Of what there is."""
    return f"{100 * count / of:.1f}" if of else "-"


def line(name: str, size: tuple[int, int], score: str, same: Rates, other: Rates) -> str:
    """All of one score."""
    silent = " / ".join(percent(rate.silent, rate.repetitions) for rate in (same, other))
    cells = [
        name, *map(str, size), score, silent, percent(same.found, same.claimed),
        percent(same.held, same.claimed), percent(other.held, other.claimed),
        percent(other.equivalent, other.claimed), percent(other.found, other.claimed),
        percent(same.value_held + other.value_held, same.with_value + other.with_value),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=150)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    options = parser.parse_args()
    print(f"| {' | '.join(HEADER)} |\n|{':--|' * len(HEADER)}")
    for name in options.scenario or SCENARIOS:
        for size in SIZES:
            same = simulate(name, size, options.repetitions, differ=False)
            other = simulate(name, size, options.repetitions, differ=True)
            for score in same:
                print(line(name, size, score, same[score], other[score]), flush=True)


if __name__ == "__main__":
    main()
