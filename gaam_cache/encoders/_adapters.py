"""Puts an adapter of peft into a loaded model."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from gaam_cache.common.download import ADAPTER_WEIGHTS
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import install_command, visible
from gaam_cache.encoders._located import Adapter, count_more, library_errors_as
from gaam_cache.encoders._unused import unexplained

PREFIX = "base_model.model."
"""Prefix that peft writes before the names of the adapted model's modules."""


def check_peft_is_installed(adapter: Adapter) -> None:
    """Refuse an adapter if the package that applies it is missing."""
    if importlib.util.find_spec("peft") is None:
        raise ConfigError(
            "an adapter needs a package that is missing",
            expected="the package peft",
            where=str(adapter.folder),
            hint=install_command("adapters"),
        )


def apply_adapter(model: Any, adapter: Adapter, name: str) -> None:
    """Put an adapter into the layers of a model.

    Args:
        model: a model of transformers, which is changed in place.
        adapter: the adapter's folder.
        name: the encoder's name, for messages.

    Raises:
        ConfigError: peft cannot apply the adapter, a tensor of the adapter has no place
            in the model, or a place has no tensor.
    """
    from peft import PeftModel, set_peft_model_state_dict

    base_tensor_ids = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    with library_errors_as(f"cannot apply the adapter of '{name}'", adapter.folder):
        tensors = load_file(adapter.folder / ADAPTER_WEIGHTS)
        settings = _read_settings(adapter, name)
        adapted = _as_trained(model, tensors)
        _drop_missing_modules(settings, adapted)
        peft_model = PeftModel(adapted, settings, autocast_adapter_dtype=False)
        result: Any = set_peft_model_state_dict(peft_model, tensors)

    # One tensor may have several names. It is filled if any of its names was loaded, or
    # if it belongs to the base model.
    missing_keys = set(result.missing_keys)
    tensor_by_key = peft_model.state_dict(keep_vars=True)
    loaded_tensor_ids = {
        id(tensor) for key, tensor in tensor_by_key.items() if key not in missing_keys
    }
    filled = base_tensor_ids | loaded_tensor_ids
    missing = [
        key for key in result.missing_keys if id(tensor_by_key.get(key)) not in filled
    ]
    if missing:
        raise _misfit_error(adapter, name, missing, "is missing")

    unexpected = [key.removeprefix(PREFIX) for key in result.unexpected_keys]
    unused = unexplained(model, unexpected, {})
    if unused:
        raise _misfit_error(adapter, name, unused, "has no place in it")


def _read_settings(adapter: Adapter, name: str) -> Any:
    """Read an adapter's configuration; refuse any adapter but one of layers."""
    from peft import PeftConfig

    settings: Any = PeftConfig.from_pretrained(str(adapter.folder))
    settings.inference_mode = True
    problem = None
    if settings.is_prompt_learning:
        problem = "adds tokens of its own to every text"
    elif settings.peft_type == "XLORA" or getattr(settings, "megatron_config", None):
        problem = "names files or modules to load"
    if problem is not None:
        raise ConfigError(
            f"the adapter of '{name}' {problem}, and is not applied here",
            expected="an adapter of layers, such as LoRA",
            found=str(settings.peft_type.value),
            where=str(adapter.folder),
        )
    return settings


def _drop_missing_modules(settings: Any, adapted: nn.Module) -> None:
    """Remove modules from the settings that were trained but are not in the model.

    An example is a head, which was trained beside the adapter and is no part of the
    encoder.
    """
    if not getattr(settings, "modules_to_save", None):
        return
    module_names = {path.split(".")[-1] for path, _ in adapted.named_modules()}
    existing = [module for module in settings.modules_to_save if module in module_names]
    settings.modules_to_save = existing or None


def _as_trained(model: nn.Module, tensors: dict[str, Tensor]) -> nn.Module:
    """Give the model the names that the adapter's tensors use.

    An adapter may have been trained in a model for a task, which contains the encoder
    under a name. The result then is an outer module with the model under this name.
    """
    prefix = str(model.base_model_prefix)
    names_inner = any(key.startswith(f"{PREFIX}{prefix}.") for key in tensors)
    if not prefix or not names_inner or hasattr(model, prefix):
        return model
    task_model = nn.Module()
    task_model.add_module(prefix, model)
    return task_model


def _misfit_error(
    adapter: Adapter, name: str, keys: Sequence[str], problem: str
) -> ConfigError:
    """Build the error for tensors of an adapter that do not fit the base model."""
    return ConfigError(
        f"the adapter of '{name}' does not fit its base model, {adapter.base}",
        expected="a tensor for every place of the adapter, "
        "and a place for every tensor",
        found=f"{visible(keys[0])} {problem}{count_more(keys)}",
        where=str(adapter.folder),
    )
