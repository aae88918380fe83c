"""The control that asks what pre-training contributes: the same architecture, random weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers


def build_untrained(model_config: transformers.PretrainedConfig, seed: int, dtype: str) -> Any:
    """A model with the architecture's own initialisation; the same seed gives the same bits.

    The global random state is left as it was. Weights are drawn on the CPU and in float32, so
    that every device and every arithmetic gets the same network (rounded); that takes 4 bytes of
    memory per parameter. No weight file is read.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModel.from_config(
            model_config, dtype=torch.float32, trust_remote_code=False
        )
    return model.to(getattr(torch, dtype))


def untrained_identity(seed: int) -> dict[str, Any]:
    """What decides random weights, beside the configuration: JSON values.

    Neither library promises to draw the same numbers in another version.
    """
    return {
        "seed": seed,
        "torch": torch.__version__.partition("+")[0],
        "transformers": transformers.__version__,
    }
