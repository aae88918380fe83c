"""Puts an adapter of peft into a loaded model."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from gaam_cache.common.download import ADAPTER_WEIGHTS
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import install_command, join_first, visible
from gaam_cache.encoders._located import Adapter, library_errors_as
from gaam_cache.encoders._unused import find_suspicious_tensors

PEFT_PREFIX = "base_model.model."
"""Beginning of every tensor's name in an adapter's file, before that of a module.

An example is "base_model.model.layers.0.attention.lora_A.weight".
"""


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

    peft replaces layers inside of the model itself, so that nothing has to be returned.

    Args:
        model: a model of transformers, which is changed in place.
        adapter: the adapter's folder.
        name: the encoder's name, for messages.

    Raises:
        ConfigError: peft cannot apply the adapter; or the adapter's file holds a tensor
            for which the model has no parameter; or it lacks the tensor of a parameter
            that the adapter adds to the model.
    """
    from peft import PeftModel, set_peft_model_state_dict

    base_tensor_ids = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    with library_errors_as(f"cannot apply the adapter of '{name}'", adapter.folder):
        tensors = load_file(adapter.folder / ADAPTER_WEIGHTS)
        settings = _read_settings(adapter, name)
        outer_model = _name_modules_as_in_adapter(model, tensors)
        _drop_missing_modules(settings, outer_model)
        # By default, peft would turn an adapter of half precision into float32.
        peft_model = PeftModel(outer_model, settings, autocast_adapter_dtype=False)
        result: Any = set_peft_model_state_dict(peft_model, tensors)

    missing = _without_values(peft_model, result.missing_keys, base_tensor_ids)
    if missing:
        raise _misfit_error(adapter, name, missing, "is missing")

    # The file may hold harmless tensors that the model does not take, such as those of
    # a head. All other tensors that the model does not take are refused.
    unused = [key.removeprefix(PEFT_PREFIX) for key in result.unexpected_keys]
    suspicious = find_suspicious_tensors(model, unused, shapes={})
    if suspicious:
        raise _misfit_error(adapter, name, suspicious, "has no place in it")


def _without_values(
    peft_model: nn.Module, missing_keys: Sequence[str], base_tensor_ids: set[int]
) -> list[str]:
    """Of the keys that peft reports as missing, those whose tensors have no values.

    Two parameters may share one tensor, which then has two keys. The file holds it
    under one of them, and peft reports the other one.

    Args:
        peft_model: the model after the adapter was loaded.
        missing_keys: keys of the model's tensors that are not in the adapter's file.
        base_tensor_ids: ids of the tensors that the model had before the adapter. They
            have their values.
    """
    reported = set(missing_keys)
    tensor_by_key = peft_model.state_dict(keep_vars=True)
    loaded_tensor_ids = {
        id(tensor) for key, tensor in tensor_by_key.items() if key not in reported
    }
    filled_tensor_ids = base_tensor_ids | loaded_tensor_ids
    without_values = []
    for key in missing_keys:
        tensor = tensor_by_key.get(key)
        if tensor is None or id(tensor) not in filled_tensor_ids:
            without_values.append(key)
    return without_values


def _read_settings(adapter: Adapter, name: str) -> Any:
    """Read an adapter's configuration, as peft's own object.

    An adapter that does more than change layers is refused.
    """
    from peft import PeftConfig

    settings: Any = PeftConfig.from_pretrained(str(adapter.folder))
    settings.inference_mode = True
    problem = None
    if settings.is_prompt_learning:
        problem = "adds tokens of its own to every text"
    # X-LoRA names the folders of more adapters, and Megatron a Python module.
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


def _drop_missing_modules(settings: Any, model: nn.Module) -> None:
    """Remove from ``settings.modules_to_save`` the modules that the model lacks.

    The setting lists whole modules that were trained beside the adapter. A head is one:
    it is no part of the encoder, and peft would look for it in vain.

    Args:
        settings: peft's configuration of the adapter, which is changed in place.
        model: the model to which the adapter will be applied.
    """
    if not getattr(settings, "modules_to_save", None):
        return
    module_names = {path.split(".")[-1] for path, _ in model.named_modules()}
    existing = [module for module in settings.modules_to_save if module in module_names]
    settings.modules_to_save = existing or None


def _name_modules_as_in_adapter(
    model: nn.Module, tensors: dict[str, Tensor]
) -> nn.Module:
    """Return the model, with modules named as the adapter's tensors name them.

    An adapter may have been trained inside of a model for a task, which holds the
    encoder under a name such as "bert". Its tensors are then called
    "base_model.model.bert.layer...". In this case, the result is an empty outer module
    that holds the model under this name; otherwise it is the model itself.

    Args:
        model: the encoder.
        tensors: the adapter's tensors, by name.
    """
    name_in_task_model = str(model.base_model_prefix)
    prefix = f"{PEFT_PREFIX}{name_in_task_model}."
    was_in_task_model = any(key.startswith(prefix) for key in tensors)
    if not name_in_task_model or not was_in_task_model:
        return model
    # A model that has a module of this name itself needs no outer module.
    if hasattr(model, name_in_task_model):
        return model
    task_model = nn.Module()
    task_model.add_module(name_in_task_model, model)
    return task_model


def _misfit_error(
    adapter: Adapter, name: str, keys: Sequence[str], problem: str
) -> ConfigError:
    """Build the error for tensors of an adapter that do not fit the base model.

    Args:
        adapter: the adapter's folder and its base model.
        name: the encoder's name.
        keys: names of the tensors, at least one; the message shows the first.
        problem: what is wrong with the tensors, as a predicate: "is missing".
    """
    return ConfigError(
        f"the adapter of '{name}' does not fit its base model, {adapter.base}",
        expected="a tensor for every place of the adapter, "
        "and a place for every tensor",
        found=f"{visible(join_first(keys, 1))}: {problem}",
        where=str(adapter.folder),
    )
