"""How often tests of several mechanisms say that they differ, where none does.

    python -m tests.benchmarks.bench_omnibus [--repetitions 150]

A Markdown table, in percent: the smallest Holm p of all pairs, and Friedman's test over seeds.
"""

from __future__ import annotations

import argparse

from tests.decoder.stats.experiments import SCENARIOS
from tests.decoder.stats.many import CELLS, false_alarms


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=150)
    repetitions = parser.parse_args().repetitions
    header = [f"{ways} x {seeds} x {rows}" for ways, seeds, rows in CELLS]
    print(f"| scenario | {' | '.join(header)} |\n|{'---|' * (len(CELLS) + 1)}")
    for name in SCENARIOS:
        found = [false_alarms(name, *cell, repetitions) for cell in CELLS]
        shares = [" / ".join(f"{100 * n / repetitions:.1f}" for n in both) for both in found]
        print(f"| {name} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main()
