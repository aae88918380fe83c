"""Train small attention decoders on a cache, over many seeds, and say what came of it.

>>> import gaam_decoder
>>> config = gaam_decoder.TrainConfig(attn=("gaam", "laplace"))  # doctest: +SKIP
>>> gaam_decoder.train(config)  # doctest: +SKIP
>>> gaam_decoder.load_runs("runs")[0].accuracy.mean()  # doctest: +SKIP

Nothing in this package loads an encoder or imports transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaam_cache.registry import lazy_attributes

if TYPE_CHECKING:
    from gaam_decoder.ablate import ablate
    from gaam_decoder.config import TrainConfig
    from gaam_decoder.failures import check_failures
    from gaam_decoder.plan import plan
    from gaam_decoder.run_folders import load_runs
    from gaam_decoder.runs import RunResult
    from gaam_decoder.sweep import train

__all__ = ["RunResult", "TrainConfig", "ablate", "check_failures", "load_runs", "plan", "train"]

lazy_attributes(
    __name__,
    {
        "RunResult": "runs",
        "TrainConfig": "config",
        "ablate": "ablate",
        "check_failures": "failures",
        "load_runs": "run_folders",
        "plan": "plan",
        "train": "sweep",
    },
)
