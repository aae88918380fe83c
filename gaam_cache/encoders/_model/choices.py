"""What an encoder computes in, where nobody says, and what is no encoder for such rows."""

from __future__ import annotations

import inspect

import torch
import transformers

from gaam_cache.devices import check_arithmetic, has_bfloat16
from gaam_cache.errors import ConfigError
from gaam_cache.messages import visible

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
    parts = (getattr(model_config, name, None) for name in model_config.sub_configs)
    for part in (model_config, model_config.get_text_config(), *parts):
        layers = getattr(part, "num_hidden_layers", None)
        if isinstance(layers, int) and layers > MOST_LAYERS:
            raise ConfigError(
                "the configuration of the encoder has too many layers",
                expected=f"at most {MOST_LAYERS:,}",
                found=f"num_hidden_layers: {layers:,}",
            )


def check_reads(
    model_config: transformers.PretrainedConfig, name: str, given: str, reads: str
) -> None:
    """Refuse a model for another kind of rows, whose files would be looked for in vain.

    Args:
        model_config: of the encoder.
        name: what the user calls it.
        given: what a model of this kind is called with.
        reads: what it is, for the message.

    Raises:
        ConfigError: the model that transformers makes of the configuration is called otherwise.
    """
    mapped = transformers.MODEL_MAPPING.get(type(model_config), None)
    for model in mapped if isinstance(mapped, tuple) else (mapped,):
        if model is None or given in inspect.signature(model.forward).parameters:
            return  # one that is not mapped is refused by the library, in its words
    raise ConfigError(
        f"'{name}' does not read such rows",
        expected=reads,
        found=f"model_type: {visible(str(model_config.model_type))}",
        hint="choose another --encoder, or look at what the --dataset holds",
    )
