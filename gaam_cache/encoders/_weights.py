"""The weights of an encoder: trained ones from disk, or random ones as a control."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from gaam_cache.errors import ConfigError


def load_trained(folder: Path, name: str, dtype: str, device_map: str | None) -> Any:
    """The model with the weights that lie in a folder; safetensors only.

    Args:
        folder: where configuration and weights are.
        name: what the user calls the encoder.
        dtype: arithmetic.
        device_map: 'auto' spreads it over GPUs.

    Raises:
        ConfigError: weights that do not fit the architecture.
    """
    options = {} if device_map is None else {"device_map": device_map}
    try:
        model, info = transformers.AutoModel.from_pretrained(
            folder,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            **options,
        )
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise ConfigError(
            f"cannot load the weights of '{name}'",
            found=str(error).strip().splitlines()[0],
            where=str(folder),
            hint="pip install accelerate" if "accelerate" in str(error).lower() else None,
        ) from error
    # a pooler sits on top of the last layer and plays no part here
    missing = [key for key in info["missing_keys"] if "pooler" not in key]
    if missing:
        raise ConfigError(
            f"the weights of '{name}' are incomplete",
            expected="a tensor for every parameter of the architecture",
            found=f"{len(missing)} missing, first {sorted(missing)[0]}",
            where=str(folder),
        )
    return model


def draw_untrained(model_config: transformers.PretrainedConfig, seed: int, dtype: str) -> Any:
    """A model with the architecture's own initialisation: what does pre-training contribute?

    The same seed gives the same bits; the global random state is left as it was. No weight file
    is read.

    Numerics:
        Weights are drawn on the CPU and in float32, so that every device and every arithmetic
        gets the same network (rounded). That takes 4 bytes of memory per parameter.
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
