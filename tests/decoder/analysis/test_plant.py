"""A planted cache is one like any other, and its labels are draws of a teacher that is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

import gaam_cache
from gaam_cache.common.errors import ConfigError
from gaam_decoder import PlantConfig, plant
from gaam_decoder.analysis.learned import GATES
from gaam_decoder.analysis.planting import (
    draw_labels,
    gaussian_states,
    linear_accuracy,
    make_teacher,
    planted_mechanism,
)
from gaam_decoder.decoder import Decoder
from gaam_decoder.heads.linear import LinearHead
from tests.conftest import shard_bytes

SMALL: dict[str, Any] = {"rows": 60, "layers": 4, "width": 3, "classes": 2}
OPTIONS: list[dict[str, Any]] = [
    {}, {"seed": 1}, {"strength": 1.5}, {"classes": 3}, {"layers": 6}, {"width": 5}, {"rows": 90},
    {"storage_dtype": "float16"},
    *({"gate": gate} for gate in GATES if gate != "laplace"),
]  # fmt: skip
L, D, C = 6, 4, 3
FORMULAS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "laplace": lambda r: np.exp(-np.abs(r) / 0.5),
    "gaussian": lambda r: np.exp(-(r**2) / (2 * 0.5)),
    "student-t": lambda r: (1 + r**2 / (1.0 * 0.25)) ** (-(1.0 + 1) / 2),
    "two-peaks": lambda r: (r**2 / 0.5 / 2) * np.exp(-(r**2 / 0.5 - 2) / 2),
    "none": lambda r: np.ones_like(r),
}
"""As ATTENTION.md writes the densities, with the planted numbers."""


def content(cache: Path) -> dict[str, bytes]:
    return {"cache.json": (cache / "cache.json").read_bytes(), **shard_bytes(cache)}


def states(rows: int, first: int = 0) -> np.ndarray:
    return gaussian_states((first + rows, L, D), 1)[first:]


def test_the_same_options_give_the_same_bytes_and_others_other_ones(
    tmp_path: Path,
) -> None:
    seen = set()
    for number, options in enumerate(OPTIONS):
        a, b = tmp_path / f"a{number}", tmp_path / f"b{number}"
        given: dict[str, Any] = {**SMALL, **options}
        first, second = (plant(PlantConfig(out=out, **given)) for out in (a, b))
        assert content(a) == content(b)
        assert first.fingerprint == second.fingerprint
        assert gaam_cache.verify(a).good
        assert plant(PlantConfig(out=a, **given)).fingerprint == first.fingerprint
        seen.add(first.fingerprint)
    assert len(seen) == len(OPTIONS)
    with pytest.raises(ConfigError, match=r"a0'(.|\n)*planted\.seed .* 2, .* 0"):
        plant(PlantConfig(out=tmp_path / "a0", **SMALL, seed=2))


def test_states_of_a_cache_are_taken_as_they_are_and_none_twice(
    tiny_cache: Path, tmp_path: Path
) -> None:
    source = gaam_cache.open_cache(tiny_cache)
    whole = sorted(
        row.tobytes() for split in source.values() for row in split.embeddings[:]
    )
    for rows in (None, len(whole) - 3):
        made = plant(PlantConfig(out=tmp_path / f"{rows}", from_cache=tiny_cache, classes=2,
                                 rows=rows))  # fmt: skip
        cache = gaam_cache.open_cache(made.path)
        taken = sorted(
            row.tobytes() for split in cache.values() for row in split.embeddings[:]
        )
        assert len(taken) == (rows or len(whole)) == sum(made.rows.values())
        assert taken == whole if rows is None else set(taken) <= set(whole)
        planted = cache.plan.fingerprint_fields["encoder"]["imported"]["planted"]
        assert planted["states"] == source.fingerprint


def test_mistakes_are_refused_and_leave_nothing(
    tiny_cache: Path, tmp_path: Path
) -> None:
    states, label = np.full((1400, 4, 3), 0.7, np.float32), np.arange(1400) % 2
    gaam_cache.write(tmp_path / "flat", {"train": (states, label)})
    for given, said in {
        (("classes", 1),): r"classes(.|\n)* 2 to",
        (("rows", 30), ("classes", 11)): "--rows .* 33",
        (("layers", 2),): r"'laplace'(.|\n)*--gate none",
        (("from_cache", tiny_cache), ("rows", 10**6)): r" 84\n.* 1,000,000",
        (("from_cache", tmp_path / "flat"), ("classes", 2)): "934 rows",
    }.items():
        with pytest.raises(ConfigError, match=said):
            plant(PlantConfig(**{"out": tmp_path / "new", **dict(given)}))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("gate", GATES)
def test_a_decoder_of_the_planted_mechanism_with_a_linear_head_expresses_the_teacher(
    gate: str,
) -> None:
    train, strength = states(1000), 2.5
    teacher = make_teacher(gate, train, classes=C, strength=strength, seed=3)
    attention = planted_mechanism(gate, L, D)
    decoder = Decoder(attention, LinearHead(L, D, C)).double()
    x_NLD = states(200, first=1000)[:].astype(np.float64)
    with torch.no_grad():
        decoder.head.fc.weight.copy_(torch.from_numpy(teacher.weight_CF))
        decoder.head.fc.bias.copy_(torch.from_numpy(teacher.bias_C))
        logits_NC = decoder(torch.from_numpy(x_NLD)).numpy()
        gated_NLD = attention(torch.from_numpy(x_NLD)).numpy()
    np.testing.assert_allclose(teacher.logits(x_NLD), logits_NC, rtol=1e-9, atol=1e-9)
    of_train_NC = teacher.logits(train[:].astype(np.float64))
    np.testing.assert_allclose(of_train_NC.mean(0), 0, atol=1e-9)
    assert np.sqrt(np.square(of_train_NC).mean()) == pytest.approx(strength)
    p_NC = scipy.special.softmax(of_train_NC, 1)
    np.testing.assert_allclose(teacher.probabilities(train), p_NC, rtol=1e-9)
    # the gate is its formula; logarithms of q have 1e-12 added
    gate_NLD = FORMULAS[gate](standardised(x_NLD))
    np.testing.assert_allclose(gated_NLD, x_NLD * gate_NLD, rtol=1e-9, atol=1e-10)
    # where none is planted the mean over the layers decides
    same_NLD = np.repeat(x_NLD.mean(1, keepdims=True), L, axis=1)
    assert np.allclose(teacher.logits(x_NLD), teacher.logits(same_NLD)) == (
        gate == "none"
    )


def standardised(x_NLD: np.ndarray) -> np.ndarray:
    variance_N1D = np.abs(
        (x_NLD**2).mean(1, keepdims=True) - x_NLD.mean(1, keepdims=True) ** 2
    )
    return (x_NLD - x_NLD.mean(1, keepdims=True)) / np.sqrt(variance_N1D + 1e-8 + 1e-5)


def test_others_see_as_much_of_a_gate_as_is_said() -> None:
    """Of one layer and feature, for all are alike: the squared correlation with the best width."""
    x_NLD = gaussian_states((8000, 16, 2), 0).astype(np.float64)
    r, x = standardised(x_NLD)[:, 0, 0], x_NLD[:, 0, 0]
    widths = np.geomspace(0.02, 50, 200)

    def seen(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.corrcoef(a, b)[0, 1] ** 2)

    left = {}
    for gate, formula in FORMULAS.items():
        y = x * formula(r)
        assert seen(x, y) < {"two-peaks": 0.22, "none": 1.01}.get(gate, 0.05), gate
        left[gate] = 1 - max(
            seen(x * np.exp(-(r**2) / (2 * width)), y) for width in widths
        )
    assert 0.03 < left["laplace"] < 0.05
    assert 0.015 < left["student-t"] < 0.03
    assert left["two-peaks"] > 0.45
    assert left["gaussian"] < 1e-3


def test_labels_are_draws_of_the_teacher() -> None:
    train = states(6000)
    p_NC = make_teacher(
        "laplace", train, classes=C, strength=2.0, seed=5
    ).probabilities(train)
    label_N = draw_labels(p_NC, 5, 0)

    def chi_square(p_NC: np.ndarray) -> float:
        """p of the hypothesis that in every decile of a class's probability it is as frequent."""
        p_values = []
        for number in range(C):
            deciles = np.array_split(np.argsort(p_NC[:, number]), 10)
            due = [p_NC[rows, number].sum() for rows in deciles]
            spread = [
                (p_NC[rows, number] * (1 - p_NC[rows, number])).sum()
                for rows in deciles
            ]
            off = np.array([(label_N[rows] == number).sum() for rows in deciles]) - due
            p_values.append(scipy.stats.chi2.sf((off**2 / spread).sum(), 10))
        return float(scipy.stats.false_discovery_control(p_values).min())

    assert chi_square(p_NC) > 0.01
    assert chi_square(p_NC**1.3 / (p_NC**1.3).sum(1, keepdims=True)) < 1e-6, (
        "another temperature"
    )
    assert (draw_labels(p_NC, 5, 1) != label_N).any()


def test_the_best_linear_decoder_is_the_teacher_only_where_no_gate_is_planted() -> None:
    train, test = states(2000), states(1000, first=2000)
    for gate in GATES:
        teacher = make_teacher(gate, train, classes=C, strength=4.0, seed=2)
        p, of_test = teacher.probabilities(train), teacher.probabilities(test)
        found, best = linear_accuracy(train, p, test, of_test), of_test.max(1).mean()
        assert found is not None
        if gate == "none":
            assert found == pytest.approx(best, abs=1e-3)
        else:
            assert 1 / C - 0.1 < found < best - 0.2, gate
    assert linear_accuracy(states(2 * L * D - 1), p, test, of_test) is None
