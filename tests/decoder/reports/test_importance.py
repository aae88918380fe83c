"""Importance beside the accuracy of layers alone: what belongs together, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.stats

from gaam_decoder import RunResult, stats
from gaam_decoder.reports.comparisons.layers import Beside
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.build import build_tables
from gaam_decoder.reports.writing.section import Section, sections
from tests.decoder.reports.conftest import answers, build_run

LAYERS = 6
SHAPES = {"features": (LAYERS, 8), "layers": (LAYERS, 1), "queries": (2, 3, LAYERS)}


def gate(seeds: int = 8, shape: str = "features", seed: int = 0) -> np.ndarray:
    """A map in which later layers weigh more."""
    generator = np.random.default_rng(seed)
    rising = np.arange(1.0, LAYERS + 1)
    rising = rising if shape == "queries" else rising[:, None]
    noise = generator.normal(0, 0.3, (seeds, *SHAPES[shape]))
    return np.asarray(rising + noise, np.float32)


def single(layer: int, *, count: int = 8, mechanism: str = "none", **changes: Any) -> RunResult:
    right = changes.pop("right", None)
    right = answers(count, 0.3 + 0.1 * layer, layer) if right is None else right
    path = f"{mechanism}{layer}{sorted(changes.items())}"
    return build_run(mechanism, right, layers=str(layer), path=path, **changes)


def singles(layers: Any = range(1, LAYERS + 1), **changes: Any) -> list[RunResult]:
    return [single(layer, **changes) for layer in layers]


def whole(mechanism: str = "gaam", *, count: int = 8, **changes: Any) -> RunResult:
    maps = {"attention_map": gate(count)} | changes
    return build_run(mechanism, answers(count, 0.9, 99), **maps)


def found_in(*runs: RunResult, **how: Any) -> tuple[Beside, ...]:
    tables = build_tables(runs, **how)
    return tuple(one for table in tables if table.layers for one in table.layers.found)


def section_of(table: Table) -> Section | None:
    return next((one for one in sections(table) if one.name == "importance"), None)


def by_hand(map_S: np.ndarray, runs: list[RunResult], seeds: list[int]) -> float:
    """In float64, by SciPy."""
    wide = np.asarray(map_S, np.float64)
    wide = wide.mean((1, 2)) if wide.ndim == 4 else wide
    factors = [(one - one.min()) / (one.max() - one.min()) for one in wide]
    importance = np.mean([f if f.ndim == 1 else f.mean(1) for f in factors], 0)
    of = [[(r.logits[r.seeds.index(s)].argmax(1) == r.labels).mean() for s in seeds] for r in runs]
    return float(scipy.stats.spearmanr(importance, np.mean(of, 1)).statistic)


def test_the_correlation_is_that_of_means_over_seeds() -> None:
    for shape, seeds, seed in product(SHAPES, (6, 8), range(2)):
        noisy = gate(seeds, shape, seed)
        noisy = np.random.default_rng(seed).permuted(noisy, axis=-1 if shape == "queries" else 1)
        some = singles()
        (one,) = found_in(*some, whole(count=seeds, attention_map=noisy))
        assert one.found.rho == pytest.approx(by_hand(noisy, some, list(range(8))), abs=1e-12)
        assert one.found.num_seeds == (seeds, 8)
        assert one.importance.shape == (seeds, LAYERS)
        assert one.accuracy.shape == (8, LAYERS)


def test_seeds_that_a_layer_lacks_or_that_failed_count_for_no_layer() -> None:
    right = answers(8, 0.5, 3)
    lacking = single(3, right=right, seeds=tuple(range(1, 9)))
    some = [*singles((1, 2)), lacking, single(4, failed={5: "a reason"}), *singles((5, 6))]
    attention_map = gate(8)
    attention_map[2] = np.nan
    failing = whole(attention_map=attention_map, failed={2: "a reason"})
    (one,) = found_in(*some, failing)
    kept = [1, 2, 3, 4, 6, 7]
    assert list(one.seeds) == kept
    assert one.left_out == 3
    assert one.found.num_seeds == (7, 6)
    expected = by_hand(np.delete(attention_map, 2, 0), some, kept)
    assert one.found.rho == pytest.approx(expected)
    (table,) = build_tables([*some, failing])
    found = section_of(table)
    assert found is not None
    assert "none: without 3 seeds that some layers lack or failed" in found.lines
    assert found.values["mechanisms"][0]["seeds_alone"] == kept


def test_only_mechanisms_over_all_of_the_layers_stand_beside_them() -> None:
    for layers in ((1, 3, 5, 6), (2, 3, 4, 5)):
        (one,) = found_in(*singles(layers), whole())
        assert one.layers == layers
        columns = [layer - 1 for layer in layers]
        factor = (gate() - gate().min((1, 2), keepdims=True)) / np.ptp(gate(), (1, 2))[
            :, None, None
        ]
        np.testing.assert_allclose(one.importance, factor[:, columns].mean(2), rtol=1e-5)
    part = whole("laplace", attention_map=gate()[:, 1:5], layers="2-5")
    assert found_in(*singles(), part) == ()
    (one,) = found_in(*singles((2, 3, 4, 5)), part)
    assert one.layers == (2, 3, 4, 5)
    assert found_in(*singles((1, 2, 3)), whole()) == ()  # three layers say nothing


def test_the_own_mechanism_counts_before_others_and_recipes_have_to_agree() -> None:
    own = singles(mechanism="gaam")
    (one,) = found_in(*own, *singles(), whole())
    assert {row.attention for row in one.singles} == {"gaam"}
    found = found_in(*singles(mechanism="dot"), *singles(), whole())
    assert [one.singles[0].attention for one in found] == ["dot", "none"]
    for other in ({"head": "conv"}, {"epochs": 9}, {"train_rows": 7}, {"loss": "focal"}):
        assert found_in(*singles(), whole(**other)) == (), other
    assert found_in(*singles(shuffle_labels=True), whole()) == ()
    assert found_in(*singles(), whole(shuffle_labels=True)) == ()
    # rows of other test rows are in another table
    assert found_in(*singles(cache={"fingerprint": "e" * 64}), whole()) == ()


def test_seeds_that_chose_are_in_neither() -> None:
    rates = (0.001, 0.01)

    def tuned(make: Any, lr: float) -> list[RunResult]:
        return [
            make(lr=lr, validation=lr, tuning_seeds=(0, 1), seeds=(0, 1), number=2),
            make(lr=lr, validation=lr, tuning_seeds=(0, 1), seeds=tuple(range(2, 10)), number=8),
        ]

    def alone(layer: int) -> Any:
        return lambda number, **about: single(layer, right=answers(number, 0.1 * layer, 1), **about)

    def over_all(number: int, **about: Any) -> RunResult:
        path, maps = f"w{about['lr']}{number}", gate(number)
        if number == 2:
            maps = maps[:, ::-1]
        return build_run("gaam", answers(number, 0.9, 9), attention_map=maps, path=path, **about)

    makers = [*(alone(layer) for layer in range(1, 7)), over_all]
    (one,) = found_in(*(run for make in makers for lr in rates for run in tuned(make, lr)))
    assert one.seeds == tuple(range(2, 10))
    assert one.row.scores.seeds == one.seeds
    np.testing.assert_allclose(one.importance.mean(0)[-1], 1, atol=0.2)
    assert one.found.num_seeds == (8, 8)


def odd() -> Iterator[tuple[str, list[RunResult], str]]:
    flat = np.ones((8, LAYERS, 4), np.float32)
    same = answers(8, 0.5, 1)
    yield "constant importance", [*singles(), whole(attention_map=flat)], "importance of all layers"
    yield "constant accuracy", [*singles(right=same), whole()], "accuracy of all layers"
    yield "fewer seeds", [*singles(count=5), whole()], "5 seeds, and a claim needs 6"
    yield "fewer maps", [*singles(), whole(count=3)], "3 seeds, and a claim needs 6"
    yield "four layers", [*singles((1, 2, 3, 4)), whole()], "of 4 layers no order has p < 0.05"
    yield "optimistic", [*singles(select="test"), whole(select="test")], "are optimistic"
    other = whole("perceiver", attention_map=None)
    yield "no map", [*singles(), whole(), other], "without an attention map: perceiver"
    nan = whole("laplace", attention_map=np.full((8, LAYERS, 4), np.nan, np.float32))
    yield "no numbers", [*singles(), whole(), nan], "without an attention map: laplace"


def test_what_allows_no_claim_is_said() -> None:
    for what, runs, said in odd():
        (table,) = build_tables(runs)
        found = section_of(table)
        assert found is not None
        assert said in " ".join([found.lead, *found.lines]), (found.lead, found.lines)
        if what not in ("optimistic", "no map", "no numbers"):
            assert found.values["mechanisms"][0]["verdict"] == "undecided"
            assert "the more important" not in found.lead
        for picture in found.pictures:
            picture.draw()


def test_holm_corrects_for_all_of_a_report_and_for_what_filters_left_out() -> None:
    names = ("gaam", "laplace", "chi2")
    runs = [*singles(), *(whole(name, attention_map=gate(seed=n)) for n, name in enumerate(names))]
    every = found_in(*runs)
    assert len(every) == len(names)
    p = np.array([one.found.p for one in every])
    assert [one.found.p_holm for one in every] == stats.holm(p).tolist()
    assert all(one.found.verdict == "together" for one in every)
    (table,) = build_tables(runs[:7], beside=runs[7:])
    assert table.layers is not None
    (one,) = table.layers.found
    assert one.found.num_tests == len(names)
    assert one.found.p_holm == pytest.approx(len(names) * p[0])
    other = {"cache": {"fingerprint": "e" * 64}}
    two = found_in(*runs, *singles(**other), whole(**other))
    assert {one.found.num_tests for one in two} == {len(names) + 1}


def test_its_picture_shows_the_means() -> None:
    (table,) = build_tables([*singles(), whole()])
    found = section_of(table)
    assert found is not None
    (picture,) = found.pictures
    (axes,) = picture.draw().axes
    (one,) = found_in(*singles(), whole())
    line = axes.lines[0]
    np.testing.assert_allclose(line.get_xdata(), one.importance.mean(0))
    np.testing.assert_allclose(line.get_ydata(), 100 * one.accuracy.mean(0))
    assert [text.get_text() for text in axes.texts] == [str(n) for n in one.layers]
