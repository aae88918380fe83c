"""What an encoder does with fixed rows: measured, so that no other one passes for it.

Files and settings do not say which library computes with them: another version of it may lower the
case of a text, or normalise a layer otherwise, and every hash stays the same. So an encoder is also
known by what it does. Its token ids of fixed texts and whether it acts causal are part of the
fingerprint (``Encoder.identity``, ``covered_fields``). The states of two short rows, which rounding
moves, stand in the plan beside it and are compared within the limit of a recomputation.

R reference rows, L layers, D hidden size, K numbers that are kept of a state.
"""

import warnings
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from gaam_cache.common.errors import ConfigError, GaamError, GaamWarning
from gaam_cache.encoders.base import Encoder
from gaam_cache.store.plan import Plan, installed_versions, recorded_versions
from gaam_cache.store.reference import encode_sketch, largest_deviation, sketch
from gaam_cache.store.rounding import recompute_limit

ACTS_CAUSAL = "acts_causal"


def covered_fields(fields: Mapping[str, Any], encoder: Encoder) -> dict[str, Any]:
    """The fields of a fingerprint with what only the loaded encoder shows."""
    if encoder.acts_causal is None:
        return dict(fields)
    identity = {**fields["encoder"], ACTS_CAUSAL: encoder.acts_causal}
    return {**fields, "encoder": identity}


def measure_reference(encoder: Encoder) -> dict[str, str]:
    """For every pooling a sketch of the states of the reference rows, as a plan keeps it.

    Empty where the encoder has no reference rows, or cannot encode them.
    """
    try:
        states_by_pooling = _reference_states(encoder)
    except GaamError:
        return {}
    return {
        pooling: encode_sketch(sketch(states_RLD))
        for pooling, states_RLD in states_by_pooling.items()
    }


def check_behaviour(encoder: Encoder, plan: Plan) -> None:
    """Refuse a loaded encoder that does not do what the encoder of a cache did.

    Raises:
        ConfigError: it acts causal where that one did not, or the reverse, or its states of the
            reference rows differ by more than rounding explains; both versions are named.

    Warns:
        GaamWarning: the cache is of an earlier gaam, which did not measure this.
    """
    recorded_causal = plan.identity.get(ACTS_CAUSAL)
    measured_both = None not in (recorded_causal, encoder.acts_causal)
    if measured_both and recorded_causal != encoder.acts_causal:
        raise _refusal(
            plan,
            f"the model {_acting(encoder.acts_causal)} here, and then it "
            f"{_acting(recorded_causal)}",
        )
    reference = measure_reference(encoder)
    if not plan.reference:
        if reference:
            warnings.warn(_unmeasured(plan), GaamWarning, stacklevel=2)
        return
    limit = recompute_limit(encoder.dtype, "float32")
    for pooling, recorded in plan.reference.items():
        if pooling not in reference:
            raise _refusal(plan, "the reference rows cannot be encoded here")
        deviation, layer = largest_deviation(reference[pooling], recorded)
        if not deviation <= limit:
            raise _refusal(
                plan,
                f"states of the reference rows differ by {deviation:.1e} of their norm in layer "
                f"{layer + plan.first_layer} ({pooling}); rounding explains {limit:.1e}",
            )


def warn_of_contradiction(encoder: Encoder) -> None:
    """Warn where the configuration says causal and the model acts otherwise, or the reverse."""
    setting = encoder.causal_setting
    if setting is None or encoder.acts_causal is None:
        return
    name, says_causal = setting
    if says_causal == encoder.acts_causal:
        return
    meaning = "causal" if says_causal else "bidirectional"
    message = (
        f"the configuration of '{encoder.label}' says {meaning} ({name}), and with transformers "
        f"{version('transformers')} the model {_acting(encoder.acts_causal)}: its states are not "
        "those that its authors meant"
    )
    warnings.warn(message, GaamWarning, stacklevel=2)


def _reference_states(encoder: Encoder) -> dict[str, np.ndarray]:
    """For every pooling the states of the reference rows that have a length, (R, L, D)."""
    rows = encoder.reference_rows()
    if not rows:
        return {}
    inputs = encoder.prepare(rows)
    lengths = np.asarray(inputs.lengths)
    states: dict[str, list[np.ndarray]] = {}
    for row in range(len(rows)):
        if lengths[row] == 0:
            continue
        for pooling, x_BLD in encoder.encode_alone(inputs.items[row]).items():
            states.setdefault(pooling, []).append(x_BLD[0].float().cpu().numpy())
    return {pooling: np.stack(rows_LD) for pooling, rows_LD in states.items()}


def _acting(causal: bool | None) -> str:
    return "acts causal" if causal else "acts bidirectional"


def _refusal(plan: Plan, difference: str) -> ConfigError:
    return ConfigError(
        f"'{plan.encoder_label}' computes other states here than those of the cache; nothing was "
        "encoded",
        expected=f"what it did when the cache was begun, with {recorded_versions(plan)}",
        found=f"{difference}, with {installed_versions()}",
        hint="install those versions; or extract anew with these, to another --out",
    )


def _unmeasured(plan: Plan) -> str:
    gaam_version = plan.created_with.get("gaam", "an earlier version")
    return (
        f"the cache was begun by gaam {gaam_version}, which did not record what its encoder does "
        f"(with {recorded_versions(plan)}): other states by other libraries would not be noticed "
        f"(here {installed_versions()}); gaam verify --recompute 20 compares rows"
    )
