"""Names in pictures tell all rows apart, wherever they differ."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from gaam_decoder.reports.figures.accuracy import forest, strip
from gaam_decoder.reports.figures.axes import accuracy_along
from gaam_decoder.reports.figures.curves import learning_curves
from gaam_decoder.reports.figures.names import distinct, on_two_lines

POINTS = ([1.0, 2.0], [80.0, 81.0], [(79.0, 82.0), None])
PICTURES: dict[str, Callable[[Sequence[str]], Figure]] = {
    "strip": lambda n: strip(n, [np.ones(2)] * len(n), [None] * len(n), [None] * len(n)),
    "forest": lambda n: forest(
        n, [0.0] * len(n), [None] * len(n), [None] * len(n), [False] * len(n),
        baseline="none", margin=0.5,
    ),
    "curves": lambda n: learning_curves(n, [np.ones((2, 3))] * len(n), what="loss"),
    "axes": lambda n: accuracy_along(n, [POINTS] * len(n), "lr", log=False),
}  # fmt: skip


def test_every_picture_names_every_row_differently() -> None:
    """Long names that differ at one place alone."""
    generator = random.Random(0)
    common = "".join(generator.choice("abcdefgh =,:") for _ in range(70))
    for picture, draw in PICTURES.items():
        for at in (0, 35, 70):
            figure = draw([f"{common[:at]}, layers={n}{common[at:]}" for n in range(8)])
            if figure.legends and picture in ("curves", "axes"):
                shown = [text.get_text() for text in figure.legends[0].get_texts()]
            else:
                shown = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
            assert len(shown) == len(set(shown)) == 8, (picture, at, shown)


def test_names_stay_different_and_short_whatever_they_are() -> None:
    generator = random.Random(0)
    for _ in range(300):
        longest = generator.choice([26, 40, 52])
        base = "".join(generator.choice("ab, =") for _ in range(generator.randint(1, 90)))
        given: dict[str, None] = {}
        while len(given) < generator.randint(2, 9):
            text = base
            for _ in range(generator.randint(1, 2)):
                at = generator.randint(0, len(text))
                text = text[:at] + generator.choice("xyzpqr") * generator.randint(1, 3) + text[at:]
            given[text] = None
        short = distinct(list(given), longest)
        assert len(set(short)) == len(given), (given, short)
        assert max(map(len, short)) <= longest
        lines = on_two_lines(list(given), 26)
        assert len(set(lines)) == len(given)
        assert all(len(part) <= 26 for line in lines for part in line.split("\n"))
    fit = ["gaam", "mha:heads=4", "gaam layers=3, lr=0.001"]
    assert distinct(fit, 26) == on_two_lines(fit, 26) == fit
