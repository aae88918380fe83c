"""Adapters of peft, put into a loaded model."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from safetensors.torch import load_file
from torch import nn

from gaam_cache.common.download import ADAPTER_WEIGHTS
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import install, visible
from gaam_cache.encoders._located import Adapter, foreign
from gaam_cache.encoders._unused import unexplained

PREFIX = "base_model.model."
"""What peft writes before the name of a module of the model that it adapted."""


def check_package(adapter: Adapter) -> None:
    """Refuse an adapter where the package that applies it is missing."""
    if importlib.util.find_spec("peft") is None:
        raise ConfigError(
            "an adapter needs a package that is missing",
            expected="the package peft",
            where=str(adapter.folder),
            hint=install("adapters"),
        )


def apply_adapter(model: Any, adapter: Adapter, name: str) -> None:
    """Put an adapter into a model, whose layers compute with it from then on.

    Raises:
        ConfigError: peft cannot do it, a tensor of the adapter has no place in the model, or a
            place has no tensor.
    """
    from peft import PeftConfig, PeftModel, set_peft_model_state_dict

    base_tensors = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    with foreign(f"cannot apply the adapter of '{name}'", adapter.folder):
        tensors = load_file(adapter.folder / ADAPTER_WEIGHTS)
        settings: Any = PeftConfig.from_pretrained(str(adapter.folder))
        settings.inference_mode = True
        problem = None
        if settings.is_prompt_learning:
            problem = "adds tokens of its own to every text"
        elif settings.peft_type == "XLORA" or getattr(
            settings, "megatron_config", None
        ):
            problem = "names files or modules to load"
        if problem is not None:
            raise ConfigError(
                f"the adapter of '{name}' {problem}, and is not applied here",
                expected="an adapter of layers, such as LoRA",
                found=str(settings.peft_type.value),
                where=str(adapter.folder),
            )
        adapted = _as_trained(model, tensors)
        if getattr(settings, "modules_to_save", None):
            # a head that was trained beside the adapter is no part of this model
            there = {path.split(".")[-1] for path, _ in adapted.named_modules()}
            settings.modules_to_save = [
                m for m in settings.modules_to_save if m in there
            ] or None
        wrapped = PeftModel(adapted, settings, autocast_adapter_dtype=False)
        loaded: Any = set_peft_model_state_dict(wrapped, tensors)
    placed = wrapped.state_dict(keep_vars=True)
    # several names may stand for one tensor
    taken = {
        id(tensor) for key, tensor in placed.items() if key not in loaded.missing_keys
    }
    filled = base_tensors | taken
    missing = [key for key in loaded.missing_keys if id(placed.get(key)) not in filled]
    unused = unexplained(
        model, [key.removeprefix(PREFIX) for key in loaded.unexpected_keys], {}
    )
    for keys, problem in ((missing, "is missing"), (unused, "has no place in it")):
        if keys:
            _refuse(adapter, name, keys, problem)


def _as_trained(model: Any, tensors: dict[str, Any]) -> nn.Module:
    """The model, within another one where the adapter was trained in a model for a task."""
    prefix = str(model.base_model_prefix)
    inner = any(key.startswith(f"{PREFIX}{prefix}.") for key in tensors)
    if not prefix or not inner or hasattr(model, prefix):
        return model
    outer = nn.Module()
    outer.add_module(prefix, model)
    return outer


def _refuse(adapter: Adapter, name: str, keys: Sequence[str], problem: str) -> None:
    more = f", and {len(keys) - 1} more" if len(keys) > 1 else ""
    raise ConfigError(
        f"the adapter of '{name}' does not fit its base model, {adapter.base}",
        expected="a tensor for every place of the adapter, and a place for every tensor",
        found=f"{visible(keys[0])} {problem}{more}",
        where=str(adapter.folder),
    )
