"""Train small attention decoders on a cache over many seeds, and report the results.

    import gaam_decoder

    config = gaam_decoder.TrainConfig(attn=("gaam", "laplace"))
    runs = gaam_decoder.train(config)  # or load_runs("runs")
    print(gaam_decoder.report("runs", baseline="gaam"))
    gaam_decoder.load("runs/gaam-linear-...").predict(["a text"])
    runs.to_frame()  # pandas: a row per run and seed

The pages in docs/ of the repository say how: docs/index.md is the first, and
docs/tutorials/python.md goes through a notebook.

Import it before torch. Nothing in this package imports transformers: what ``load``
returns asks ``gaam_cache`` to encode.
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
    from gaam_decoder.use.estimator import Estimator, fit
    from gaam_decoder.use.export import export_run
    from gaam_decoder.use.load import load
    from gaam_decoder.use.predict import PredictConfig, predict

_MODULES = {
    "Estimator": "use.estimator",
    "PlantConfig": "config",
    "PredictConfig": "use.predict",
    "Report": "reports.report",
    "RunResult": "runs.result",
    "Runs": "runs.loading",
    "TrainConfig": "config",
    "ablate": "analysis.ablate",
    "check_failures": "training.sweep",
    "estimate": "training.estimate",
    "export_run": "use.export",
    "fit": "use.estimator",
    "load": "use.load",
    "load_runs": "runs.loading",
    "plant": "analysis.planting",
    "predict": "use.predict",
    "report": "reports.report",
    "stats": "stats",
    "train": "training.sweep",
}
"""Public name -> the module that defines it, or that is it."""

__all__ = [
    "Estimator",
    "PlantConfig",
    "PredictConfig",
    "Report",
    "RunResult",
    "Runs",
    "TrainConfig",
    "ablate",
    "check_failures",
    "estimate",
    "export_run",
    "fit",
    "load",
    "load_runs",
    "plant",
    "predict",
    "report",
    "stats",
    "train",
]

# Threads that spin while they wait make small steps ten times slower and more where
# another process uses the cores, and gain nothing where none does. GNU OpenMP reads the
# variable once, when torch is imported: later it has no effect.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# each name imports its module on first use
gaam_cache.offer(__name__, _MODULES)
