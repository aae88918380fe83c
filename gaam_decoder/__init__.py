"""Train small attention decoders on a cache, over many seeds, and say what came of it.

    import gaam_decoder

    config = gaam_decoder.TrainConfig(attn=("gaam", "laplace"))
    runs = gaam_decoder.train(config)  # or load_runs("runs")
    print(gaam_decoder.report("runs", baseline="gaam"))
    gaam_decoder.load("runs/gaam-linear-...").predict(["a text"])
    runs.to_frame()  # pandas: a row per run and seed

Import it before torch. Nothing in this package imports transformers; what ``load`` returns asks
``gaam_cache`` to encode.
"""
# ruff: noqa: F401 names that ``__all__`` holds, for type checkers

import os
from typing import TYPE_CHECKING

import gaam_cache

if TYPE_CHECKING:
    from gaam_decoder import stats
    from gaam_decoder.analysis.ablate import ablate
    from gaam_decoder.analysis.planting import plant
    from gaam_decoder.config import PlantConfig, TrainConfig
    from gaam_decoder.reports.report import Report, report
    from gaam_decoder.runs.loading import Runs, load_runs
    from gaam_decoder.runs.result import RunResult
    from gaam_decoder.training.estimate import estimate
    from gaam_decoder.training.sweep import check_failures, train
    from gaam_decoder.use.export import export_run
    from gaam_decoder.use.load import load
    from gaam_decoder.use.predict import PredictConfig, predict

if "OMP_WAIT_POLICY" not in os.environ:
    # Threads of a step that spin while they wait make small steps ten times slower and more where
    # another process uses the cores, and gain nothing where none does. GNU OpenMP reads this once,
    # when torch is imported: it counts where that has not been done yet.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_HOMES = {
    **dict.fromkeys(("PlantConfig", "TrainConfig"), "config"),
    **dict.fromkeys(("PredictConfig", "predict"), "use.predict"),
    **dict.fromkeys(("Report", "report"), "reports.report"),
    **dict.fromkeys(("Runs", "load_runs"), "runs.loading"),
    **dict.fromkeys(("check_failures", "train"), "training.sweep"),
    "RunResult": "runs.result",
    "ablate": "analysis.ablate",
    "estimate": "training.estimate",
    "export_run": "use.export",
    "load": "use.load",
    "plant": "analysis.planting",
    "stats": "stats",
}
__all__ = list(_HOMES)

gaam_cache.offer(__name__, _HOMES)
