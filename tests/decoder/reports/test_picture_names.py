"""Names in pictures tell all rows apart, wherever they differ."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from matplotlib.figure import Figure

from gaam_decoder.reports.figures.accuracy import forest, strip
from gaam_decoder.reports.figures.axes import accuracy_along
from gaam_decoder.reports.figures.curves import learning_curves
from gaam_decoder.reports.figures.names import distinct, wrapped

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


def names(place: float, length: int, count: int, word: str = "") -> list[str]:
    """Long names that differ at one place alone."""
    generator = random.Random(length)
    common = "".join(generator.choice("abcdefgh =,:") for _ in range(length))
    at = round(place * length)
    return [f"{common[:at]}{word}{number}{common[at:]}" for number in range(count)]


@pytest.mark.parametrize("picture", PICTURES)
def test_every_picture_names_every_row_differently(picture: str) -> None:
    for place in (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1):
        for length in (5, 27, 45, 70, 200):
            given = names(place, length, 8, ", layers=")
            figure = PICTURES[picture](given)
            if figure.legends and picture in ("curves", "axes"):
                shown = [text.get_text() for text in figure.legends[0].get_texts()]
            else:
                shown = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
            assert len(shown) == len(set(shown)) == 8, (place, length, shown)


def test_names_stay_different_and_short_whatever_they_are() -> None:
    generator = random.Random(0)
    for _ in range(1500):
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
        lines = [wrapped(name, 26) for name in distinct(list(given), 52)]
        assert len(set(lines)) == len(given)
        assert all(len(part) <= 26 for line in lines for part in line.split("\n"))


def test_names_that_fit_are_left_as_they_are() -> None:
    given = ["gaam", "mha:heads=4", "gaam layers=3, lr=0.001"]
    assert distinct(given, 26) == given
