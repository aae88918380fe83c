"""What is said of two mechanisms, against definitions, laws and other implementations.

``tests/contract/test_6_verdicts.py`` computes p, intervals and equivalence from their definitions.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.stats

from gaam_decoder import stats
from gaam_decoder.stats import LEAST_SEEDS, Claim, claim
from gaam_decoder.stats.limits import Limits
from gaam_decoder.stats.paired import FEW, sign_flip_of_rows

SHAPES = [(2, 2), (2, 9), (2, 300), (3, 40), (6, 12), (6, 300), (8, 1000), (21, 60)]
OPPOSITE = {"better": "worse", "worse": "better", "equivalent": "equivalent"}


def latent(
    generator: np.random.Generator,
    num_seeds: int,
    num_rows: int,
    *,
    shift: float = 0.0,
    own: float = 0.5,
    seeds: float = 0.1,
    noise: float = 0.5,
    ease: float = 2.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Hits of two mechanisms: rows are easy or hard for both, and for each in its own way."""
    easy = generator.normal(ease, 2, (1, num_rows))

    def one(better: float) -> np.ndarray:
        rows = own * generator.normal(0, 1, (1, num_rows))
        of_seed = seeds * generator.normal(0, 1, (num_seeds, 1))
        rest = noise * generator.normal(0, 1, (num_seeds, num_rows))
        return easy + rows + of_seed + rest + better > 0

    return one(shift), one(0.0)


def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Hits of all sizes: as bits, and as shares of several tests."""
    generator = np.random.default_rng(0)
    for shape, shift in itertools.product(SHAPES, (0.0, 0.05, 0.3, 1.5)):
        one, other = latent(
            generator, *shape, shift=shift, noise=generator.choice([0.0, 0.5])
        )
        yield one, other
        yield one * generator.integers(1, 6, (1, shape[1])) / 5, other


def numbers(found: Claim) -> list[float]:
    here = found.on_these_rows
    bounds = [*(found.interval or ()), *(here.interval or ())]
    values = [found.p, found.p_equivalent, here.p_equivalent, here.std, here.detectable]
    values += [here.sign_flip.p if here.sign_flip else None, found.difference, *bounds]
    return [-1.0 if value is None else value for value in values]


def test_swapping_the_two_negates_the_difference_and_changes_no_p() -> None:
    seen = set()
    for one, other in pairs():
        found, swapped = claim(one, other, margin=0.05), claim(other, one, margin=0.05)
        *p, difference, low, high, here_low, here_high = numbers(found)
        expected = [*p, -difference, -high, -low, -here_high, -here_low]
        np.testing.assert_allclose(numbers(swapped), expected, rtol=1e-9, atol=1e-12)
        assert swapped.verdict == OPPOSITE.get(found.verdict, "undecided")
        assert swapped.seeds_to_decide == found.seeds_to_decide
        assert swapped.rows_to_decide == found.rows_to_decide
        seen.add(found.verdict)
    assert seen == {"better", "worse", "equivalent", "undecided"}, (
        "the loop goes through all"
    )


def test_what_is_identical_is_never_better_or_worse() -> None:
    for one, _ in pairs():
        found = claim(one, one, margin=0.005)
        assert (found.p, found.difference) == (1, 0)
        assert found.verdict in ("equivalent", "undecided")
        assert found.interval is not None
        assert found.interval[0] == pytest.approx(-found.interval[1])
        assert found.interval[1] > 0, (
            "rows that did not differ do not show that none would"
        )
    # what was never seen in N rows is rarer than -ln(0.05) / N, and not surely rarer than that
    for num_rows in (200, 5000):
        same = np.ones((6, num_rows), bool)
        limit = -math.log(0.05) / num_rows
        assert claim(same, same, margin=1.02 * limit).verdict == "equivalent"
        undecided = claim(same, same, margin=0.98 * limit)
        assert (undecided.verdict, undecided.seeds_to_decide) == ("undecided", None)
        assert undecided.rows_to_decide == pytest.approx(num_rows / 0.98, rel=0.1)


def test_the_interval_holds_0_exactly_where_nothing_is_found() -> None:
    generator = np.random.default_rng(3)
    count = {True: 0, False: 0}
    for trial in range(300):
        shape = SHAPES[trial % len(SHAPES)]
        shift = generator.choice([0, 0, 0.1, 0.3, 1.0]) * generator.choice([-1, 1])
        noise, own = generator.choice([0.0, 0.1, 1.0], 2)
        one, other = latent(
            generator, *shape, shift=shift, noise=noise, own=own, ease=1 + trial % 4
        )
        weight = generator.integers(1, 6, (1, shape[1])) / 5 if trial % 3 == 0 else True
        found = claim(one * weight, other * weight)
        assert found.p is not None
        assert found.interval is not None
        low, high = found.interval
        assert -1 <= low <= found.difference + 1e-12
        assert found.difference - 1e-12 <= high <= 1
        assert 0 < found.p <= 1
        assert (found.p >= stats.ALPHA) == (low <= 0 <= high), (shape, found)
        count[bool(found.p >= stats.ALPHA)] += 1
    assert min(count.values()) > 25


def test_the_exact_test_over_rows_equals_scipys_permutation_test_and_mcnemar() -> None:
    generator = np.random.default_rng(0)
    for num_rows in range(2, 12):
        for shares in (1, 5):
            difference_N = generator.integers(-4, 5, num_rows)
            difference_N[0] = 3
            values = difference_N if shares == 1 else difference_N / shares
            expected = scipy.stats.permutation_test(
                (values.astype(float),),
                lambda d, axis: np.round(d.sum(axis), 9),
                permutation_type="samples",
                n_resamples=np.inf,
                vectorized=True,
            )
            assert sign_flip_of_rows(values) == pytest.approx(
                expected.pvalue, abs=1e-12
            )
    for num_rows in (5, 60, 400):  # seeds that do not differ
        one, other = generator.random((2, num_rows)) < 0.9
        found = sign_flip_of_rows(6 * (one.astype(int) - other))
        only = int((one & ~other).sum()), int((other & ~one).sum())
        expected = scipy.stats.binomtest(only[0], sum(only)).pvalue if sum(only) else 1
        assert found == pytest.approx(expected)
    assert sign_flip_of_rows(np.zeros(50, int)) == 1
    assert sign_flip_of_rows(np.ones(FEW, int)) == 0, "many rows: it has no say"


def test_a_claim_needs_six_seeds_and_rows_that_differ() -> None:
    for num_seeds in range(1, LEAST_SEEDS):
        for baseline in (
            np.zeros((num_seeds, 500), bool),
            np.ones((num_seeds, 500), bool),
        ):
            found = claim(np.ones((num_seeds, 500), bool), baseline, margin=0.4)
            assert found.verdict == found.on_these_rows.verdict == "undecided"
            assert found.significant is found.negligible is False
            assert found.rows_to_decide is None, "no number of rows makes up for seeds"
    sure = claim(np.ones((LEAST_SEEDS, 500), bool), np.zeros((LEAST_SEEDS, 500), bool))
    assert sure.verdict == sure.on_these_rows.verdict == "better"
    for num_seeds in (6, 200):  # the same two rows: of other rows no seed says anything
        other = np.ones((num_seeds, 300), bool)
        other[:, :2] = False
        found = claim(np.ones((num_seeds, 300), bool), other)
        assert (found.verdict, found.on_these_rows.verdict) == ("undecided", "better")
        assert found.seeds_to_decide is None
        assert found.rows_to_decide is not None
    for shape in ((1, 1), (1, 50), (6, 1)):
        found = claim(np.ones(shape, bool), np.zeros(shape, bool))
        assert (found.p, found.interval, found.p_equivalent) == (None, None, None)
        assert (found.difference, found.verdict) == (1, "undecided")


def test_a_correction_decides_the_verdict() -> None:
    one, other = np.ones((6, 400), bool), np.ones((6, 400), bool)
    other[:, :200] = False
    better, equal = claim(one, other), claim(one, one, margin=0.05)
    assert (better.verdict, equal.verdict) == ("better", "equivalent")
    for p, p_equivalent, verdict in (
        (0.049, 1.0, "better"), (0.05, 1.0, "undecided"), (0.05, 0.04, "equivalent"),
        (0.01, 0.01, "better"),
    ):  # fmt: skip
        assert (
            dataclasses.replace(
                better, p_holm=p, p_equivalent_holm=p_equivalent
            ).verdict
            == verdict
        )
    assert (
        dataclasses.replace(equal, p_holm=1.0, p_equivalent_holm=0.05).verdict
        == "undecided"
    )
    found = claim(*latent(np.random.default_rng(5), 8, 600, shift=0.5))
    undecided = dataclasses.replace(found, p_holm=0.06, p_equivalent_holm=1.0)
    needed = [
        dataclasses.replace(undecided, num_tests=n).seeds_to_decide
        for n in (2, 20, 200)
    ]
    assert needed == sorted(needed), "other comparisons make more seeds necessary"  # type: ignore[type-var]


def test_fewer_training_rows_make_as_wide_as_so_few_test_rows() -> None:
    rows_2N = np.random.default_rng(0).random((2, 2000)) < 0.8
    one, other = (np.tile(row_N, (8, 1)) for row_N in rows_2N)
    many, any_number = stats.claim(one, other, train_rows=2000), stats.claim(one, other)
    assert (many.p, many.interval) == (any_number.p, any_number.interval)
    low, high = stats.claim(one, other, train_rows=500).interval or (0.0, 0.0)
    error = (one[0] * 1.0 - other[0]).std(ddof=1) / 500**0.5
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.02)
    near = one.copy()
    near[:, ::8] = other[:, ::8]
    assert stats.claim(near, one, train_rows=100).rows_to_decide is None, (
        "more cannot count"
    )
    for bad in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="training rows"):
            stats.claim(one, other, train_rows=bad)


@pytest.mark.slow
def test_as_many_rows_as_are_said_to_decide_do_about_every_second_time() -> None:
    """Told of the variances and the difference that there are, not of what one experiment saw."""
    num_seeds, trials = 7, 200
    for scenario in (
        {"shift": 0.12, "own": 0.5, "seeds": 0.05, "noise": 0.5},
        {"shift": 0.0, "own": 0.1, "seeds": 0.0, "noise": 0.1},  # equivalence
    ):
        generator = np.random.default_rng(8)
        seen = [
            claim(*latent(generator, num_seeds, 400, **scenario)) for _ in range(400)
        ]
        limits = [found.limits for found in seen if isinstance(found.limits, Limits)]
        mean = {
            name: float(np.mean([getattr(one.effects, name) for one in limits]))
            for name in ("mean", "seeds", "rows", "rest")
        }
        typical = dataclasses.replace(
            limits[0],
            effects=limits[0].effects._replace(**mean),
            better=float(np.mean([one.better for one in limits])),
            worse=float(np.mean([one.worse for one in limits])),
            p_rows=0.0,
        )
        told = next(found for found in seen if found.verdict == "undecided")
        told = dataclasses.replace(
            told,
            difference=mean["mean"],
            limits=typical,
            p=typical.p,
            p_equivalent=typical.p_equivalent(told.margin),
        )
        size = told.rows_to_decide
        assert size is not None
        decided = [
            claim(*latent(generator, num_seeds, size, **scenario)).verdict
            for _ in range(trials)
        ]
        share = 1 - decided.count("undecided") / trials
        assert 0.38 < share < 0.8, (size, share)


def test_many_rows_that_count_little_do_not_outweigh_the_few_that_were_not_seen() -> (
    None
):
    """Rare rows on which the one alone is right, and scattered errors of the same weight."""
    generator = np.random.default_rng(1)
    for num_seeds, num_rows in ((20, 1000), (100, 100), (6, 200)):
        for expected in (1, 3):
            found = 0
            for _ in range(25):
                hard_N = generator.random(num_rows) < expected / num_rows
                hits = generator.random((num_seeds, num_rows)) >= expected / num_rows
                found += claim(hits, np.repeat(~hard_N[None], num_seeds, 0)).significant
            assert found <= 4, (num_seeds, num_rows, expected, found)  # 5% are 1
