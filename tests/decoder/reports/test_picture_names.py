"""Names in pictures tell all rows apart, wherever they differ."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from matplotlib.figure import Figure

from gaam_cache import plugins
from gaam_decoder.reports.figures.accuracy import forest, strip
from gaam_decoder.reports.figures.axes import accuracy_along
from gaam_decoder.reports.figures.curves import learning_curves
from gaam_decoder.reports.figures.names import MARK, distinct, on_two_lines

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
        lines = on_two_lines(list(given), 26)
        assert len(set(lines)) == len(given)
        assert all(len(part) <= 26 for line in lines for part in line.split("\n"))


def test_names_that_fit_are_left_as_they_are() -> None:
    given = ["gaam", "mha:heads=4", "gaam layers=3, lr=0.001"]
    assert distinct(given, 26) == given


OPTIONS = ("", ":heads=4", ":heads=16,offset=1e-05,scale=0.3333333333333333", ":path=a-b-c")
SETTINGS = ("", " lr=0.001", " epochs=35, layers=6, lr=0.0003", " labels shuffled",
            " lr=0.0001, weight_decay=1e-06, train_rows=1000, max_grad_norm=0.5",
            " split_seed=123456789012345678901234567890123456789")  # fmt: skip
HEADS = ("", " + linear", " + conv", " + a-head:hidden=512,dropout=0.25")


def test_lines_of_a_name_end_between_words_and_tell_all_rows_apart() -> None:
    attention = plugins.names("gaam_decoder.attention")
    assert len(attention) > 5
    every = [
        f"{name}{options}{head}{settings}"
        for name in attention for options in OPTIONS for head in HEADS for settings in SETTINGS
    ]  # fmt: skip
    generator = random.Random(0)
    sets = [every[start::96] for start in range(96)]  # one of every mechanism, all else alike
    sets += [[label for label in every if label.startswith(name)] for name in attention]
    sets += [generator.sample(every, 12) for _ in range(300)]
    parted = 0
    for width in (20, 26, 40):
        for given in sets:
            shown = on_two_lines(given, width)
            assert len(set(shown)) == len(given)
            for label, text in zip(given, shown, strict=True):
                first, *second = text.split("\n")
                assert len(second) < 2
                assert all(len(line) <= width for line in (first, *second))
                if len(label) <= width:
                    assert text == label
                if not second:
                    continue
                parted += 1
                begin = first.removesuffix(f" {MARK}")
                end = second[0].removesuffix(f" {MARK}")
                assert label.startswith(begin)
                places = [m.start() for m in re.finditer(re.escape(end), label)]
                assert any(place >= len(begin) for place in places)
                assert end_of_word(label, len(begin)), text
                assert any(end_of_word(label, place) for place in places), text
                if second[0] == end:
                    assert label.endswith(end)
                if MARK not in text:  # nothing was left out but a space
                    assert label in (begin + end, f"{begin} {end}")
    assert parted > 3000


def end_of_word(label: str, place: int) -> bool:
    """Whether a line may end at this place of a label."""
    before, behind = label[:place], label[place:]
    return (
        before.endswith((" ", ":", ",")) or behind.startswith(" ")
        or (before.endswith("-") and before[-2:-1].isalpha() and behind[:1].isalpha())
    )  # fmt: skip
