"""What an encoder computes in, where nobody says, and what is no encoder."""

from __future__ import annotations

import torch
import transformers

from gaam_cache.devices import check_arithmetic, has_bfloat16
from gaam_cache.errors import ConfigError

MOST_LAYERS = 10_000


def choose_dtype(asked: str, device: torch.device) -> str:
    """The arithmetic for ``auto``: bfloat16 where the device has instructions for it.

    Else float16 on a GPU of NVIDIA, float32 elsewhere.

    Raises:
        ConfigError: the device is not used for what is asked.
    """
    check_arithmetic(asked, device)
    if asked != "auto":
        return asked
    if has_bfloat16(device):
        return "bfloat16"
    return "float16" if device.type == "cuda" else "float32"


def check_depth(model_config: transformers.PretrainedConfig) -> None:
    """Refuse a number of layers that no encoder has: only to build it would take for ever.

    Raises:
        ConfigError: naming it.
    """
    layers = getattr(model_config.get_text_config(), "num_hidden_layers", None)
    if isinstance(layers, int) and layers > MOST_LAYERS:
        raise ConfigError(
            "the configuration of the encoder has too many layers",
            expected=f"at most {MOST_LAYERS:,}",
            found=f"num_hidden_layers: {layers:,}",
        )
