"""The section of learned gates: curves, what was planted, and what is left out and said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gaam_decoder.analysis.gates import (
    MOST_CELLS,
    RESIDUALS,
    distance,
    learned_cells,
    learned_curves,
    planted_curve,
)
from gaam_decoder.plant_config import GATES
from gaam_decoder.reports.pictures.pictures import save_pictures
from gaam_decoder.reports.sections.gates import MOST
from gaam_decoder.reports.table import build_tables
from gaam_decoder.reports.writing.section import Section, sections
from tests.decoder.reports.conftest import answers, build_run

D = 8
PLANTED: dict[str, Any] = {"gate": "laplace", "teacher_accuracy": "0.8"}
STORED = {"laplace": ("b",), "gaam": ("xi",), "student-t": ("nu", "xi"), "chi2": ("k", "xi")}
CURVES = {
    "laplace": lambda r, b: np.exp(-np.abs(r) / b),
    "gaam": lambda r, xi: np.exp(-(r**2) / (2 * xi)),
    "student-t": lambda r, nu, xi: (1 + r**2 / (nu * xi)) ** (-(nu + 1) / 2),
    "chi2": lambda r, k, xi: (
        (r**2 / xi / (k - 2)) ** ((k - 2) / 2) * np.exp(-(r**2 / xi - (k - 2)) / 2)
    ),
}


def learned(mechanism: str, heads: int = 2) -> dict[str, np.ndarray]:
    """Of 6 seeds, (6, H, D)."""
    draw = np.random.default_rng(0)
    shape = (6, heads, D)
    values = {name: draw.uniform(0.3, 3, shape) for name in STORED[mechanism]}
    if "k" in values:
        values["k"] += 2.5
    return {"offset": draw.standard_normal(shape), **values}


def run_of(mechanism: str, planted: Any = None, **changes: Any) -> Any:
    about = {} if planted is None else {"cache": {"planted": planted}}
    right = answers(6, 0.8, 0) if "right" not in changes else changes.pop("right")
    return build_run(mechanism, right, learned=learned(mechanism.partition(":")[0]),
                     **about, **changes)  # fmt: skip


def section_of(*runs: Any) -> Section | None:
    (table,) = build_tables(runs)
    return next((one for one in sections(table) if one.name == "gates"), None)


def test_a_curve_is_the_mean_of_the_densities_of_all_cells() -> None:
    for mechanism, names in STORED.items():
        cells = learned_cells([run_of(mechanism)])
        assert cells is not None
        found_SP = learned_curves(f"{mechanism}:heads=2", cells)
        assert found_SP is not None
        every = {name: value.reshape(6, -1, 1) for name, value in learned(mechanism).items()}
        assert every["offset"].shape[1] <= MOST_CELLS  # none is left out
        expected = CURVES[mechanism](RESIDUALS, *(every[name] for name in names)).mean(1)
        np.testing.assert_allclose(found_SP, expected, atol=1e-5)


def test_a_gate_is_nearest_to_itself_whatever_its_factor() -> None:
    curves = {gate: planted_curve(gate) for gate in GATES}
    for gate, curve in curves.items():
        for other, theirs in curves.items():
            far = distance(0.3 * theirs, curve)
            assert far < 1e-9 if other == gate else far > 0.02, (gate, other)
            assert far == pytest.approx(distance(curve, theirs))


def test_the_section_draws_at_most_eight_rows_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    names = [f"laplace:heads={n}" for n in (1, 2, 3)] + [f"gaam:heads={n}" for n in (1, 2, 3)]
    names += ["student-t", "chi2", "chi2:heads=3"]
    for planted in (None, PLANTED):
        about = {} if planted is None else {"cache": {"planted": planted}}
        none = build_run("none", answers(6, 0.5, 1), **about)
        mixture = {"offset": np.ones((6, 2, 3)), "c": np.ones((6, 2, 3))}
        other = build_run("gaussian-mixture", answers(6, 0.5, 1), learned=mixture, **about)
        found = section_of(*(run_of(name, planted) for name in names), none, other)
        assert found is not None
        assert found.folded
        text = "\n".join(found.lines)
        assert f"the {MOST} most accurate of {len(names)} rows are drawn" in text
        assert "no density: gaussian-mixture, none" in text
        assert ("planted" in found.lead) == (planted is not None) == bool(found.sheets)
        (picture,) = found.pictures
        axes = picture.draw().axes[0]
        assert len(axes.lines) == MOST + (planted is not None)
        above = [line for line in axes.lines if line.get_zorder() == 3]
        assert len(above) == (planted is not None)
        if planted is not None:
            np.testing.assert_allclose(above[0].get_ydata(), planted_curve("laplace"))
            (sheet,) = found.sheets
            assert len(sheet.lines) == len(names)
            assert "teacher 0.8" in sheet.caption
    (table,) = build_tables([run_of("laplace", PLANTED), none])
    saved = save_pictures([table], tmp_path)
    assert any("gates" in path.name for path in saved)


def test_what_is_not_known_to_be_planted_is_not_drawn() -> None:
    for planted in (7, {}, {"gate": "no-such"}):
        found = section_of(run_of("laplace", planted))
        assert found is not None
        assert not found.sheets
        assert "planted" not in found.lead
        assert found.values["planted"] is None
