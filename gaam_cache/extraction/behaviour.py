"""Compares what a loaded encoder does with what the encoder of a cache did.

Hashes of files and settings do not name the libraries that compute with them. Another
version may lower the case of a text, or normalise a layer differently, and every hash
stays the same. So an encoder is also known by its behaviour. The fingerprint holds its
token ids of fixed texts (``Encoder.identity``) and whether it acts causal
(``with_measured_fields``). The plan holds its states of two short rows; these are
compared up to rounding.

R reference rows, L layers, D hidden size, B rows of a batch.
"""

import warnings
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError, GaamError, GaamWarning
from gaam_cache.encoders.base import Encoder
from gaam_cache.store.plan import Plan, installed_versions, recorded_versions
from gaam_cache.store.reference import encode_sketch, largest_deviation, sketch
from gaam_cache.store.rounding import recompute_limit

ACTS_CAUSAL = "acts_causal"
"""Field of an encoder's identity: whether no state depends on later tokens."""


def with_measured_fields(fields: Mapping[str, Any], encoder: Encoder) -> dict[str, Any]:
    """The fields of a cache's fingerprint, with what was measured of its encoder.

    Args:
        fields: the fields before the encoder was loaded; they are not changed.
        encoder: whether it acts causal is added. This may not have been measured: then
            nothing is added.
    """
    if encoder.acts_causal is None:
        return dict(fields)
    identity = {**fields["encoder"], ACTS_CAUSAL: encoder.acts_causal}
    return {**fields, "encoder": identity}


def measure_reference(encoder: Encoder) -> dict[str, str]:
    """Sketch the states of an encoder's reference rows: two rows, always the same.

    Returns:
        Pooling -> sketch, as a plan records it: a few random projections of every
        state. Empty if the encoder has no reference rows, or cannot encode them.
    """
    try:
        states_by_pooling = _reference_states(encoder)
    except GaamError:
        # a cache can be made without this check
        return {}
    return {
        pooling: encode_sketch(sketch(states_RLD))
        for pooling, states_RLD in states_by_pooling.items()
    }


def check_behaviour(encoder: Encoder, plan: Plan) -> None:
    """Refuse a loaded encoder that behaves differently from the encoder of a cache.

    Two things are compared: whether it acts causal, so that no state depends on later
    tokens; and its states of the reference rows, two short rows that never change.

    Raises:
        ConfigError: one of the two acts causal and the other does not, or their states
            of the reference rows differ by more than rounding explains. The message
            names both versions.

    Warns:
        GaamWarning: an earlier gaam made the cache and did not record the states of the
            reference rows.
    """
    _check_causal(encoder, plan)
    reference = measure_reference(encoder)
    if plan.reference:
        _check_reference(encoder, plan, reference)
    # The plan records no states of reference rows. If this encoder has such rows, the
    # plan is of an earlier version; otherwise there is nothing to record.
    elif reference:
        warnings.warn(_missing_reference_warning(plan), GaamWarning, stacklevel=2)


def warn_of_contradiction(encoder: Encoder) -> None:
    """Warn when a model acts causal and its configuration says otherwise, or reverse.

    A causal model reads from left to right: no state depends on later tokens.
    """
    # None: the configuration says nothing, or nothing was measured
    setting = encoder.causal_setting
    if setting is None or encoder.acts_causal is None:
        return
    if setting.is_causal == encoder.acts_causal:
        return
    meaning = "causal" if setting.is_causal else "bidirectional"
    message = (
        f"the configuration of '{encoder.label}' says {meaning} ({setting.text}), "
        f"but with transformers {version('transformers')} the model "
        f"{_describe_acting(encoder.acts_causal)}: its states are not those that its "
        "authors meant"
    )
    warnings.warn(message, GaamWarning, stacklevel=2)


def _check_causal(encoder: Encoder, plan: Plan) -> None:
    """Refuse an encoder that acts causal if the cache's encoder did not, or reverse."""
    recorded = plan.identity.get(ACTS_CAUSAL)
    measured = encoder.acts_causal
    # None: it was not measured, as for an encoder that is loaded for a few rows
    if recorded is None or measured is None or recorded == measured:
        return
    difference = (
        f"the model {_describe_acting(measured)} here, and then it "
        f"{_describe_acting(recorded)}"
    )
    raise _behaviour_error(plan, difference)


def _check_reference(
    encoder: Encoder, plan: Plan, reference: Mapping[str, str]
) -> None:
    """Refuse an encoder whose states of the reference rows differ beyond rounding.

    Reference rows are two short rows that never change. A sketch of their states has a
    few random projections of every state.

    Args:
        encoder: the encoder here.
        plan: of the cache, with the sketches of the states when the cache was begun.
        reference: pooling -> sketch of the states here.
    """
    # sketches are stored in float32, whatever the type of the stored states is
    limit = recompute_limit(encoder.dtype, storage_dtype="float32")
    for pooling, recorded in plan.reference.items():
        if pooling not in reference:
            raise _behaviour_error(plan, "the reference rows cannot be encoded here")
        deviation, layer = largest_deviation(reference[pooling], recorded)
        # 'not <=' also refuses NaN, which '>' would let pass
        if not deviation <= limit:
            raise _behaviour_error(
                plan,
                f"states of the reference rows differ by {deviation:.1e} of their norm "
                f"in layer {layer + plan.first_layer} ({pooling}); rounding explains "
                f"{limit:.1e}",
            )


def _reference_states(encoder: Encoder) -> dict[str, NDArray[np.float32]]:
    """States of the reference rows, a few rows that never change: pooling -> (R, L, D).

    Reference rows of which the encoder makes no tokens are left out.
    """
    rows = encoder.reference_rows()
    if not rows:
        return {}

    # each row is encoded alone: which rows may share a batch need not be known
    inputs = encoder.prepare(rows)
    states_by_pooling: dict[str, list[NDArray[np.float32]]] = {}
    for row, length in enumerate(inputs.lengths):
        if length == 0:
            continue
        for pooling, x_BLD in encoder.encode_alone(inputs.items[row]).items():
            x_LD = x_BLD[0].float().cpu().numpy()
            states_by_pooling.setdefault(pooling, []).append(x_LD)
    return {
        pooling: np.stack(states_of_rows)
        for pooling, states_of_rows in states_by_pooling.items()
    }


def _describe_acting(acts_causal: bool) -> str:
    return "acts causal" if acts_causal else "acts bidirectional"


def _behaviour_error(plan: Plan, difference: str) -> ConfigError:
    """The error for an encoder that behaves differently from that of the cache.

    ``difference`` says in words what differs.
    """
    return ConfigError(
        f"'{plan.encoder_label}' computes other states here than those of the cache; "
        "nothing was encoded",
        expected=(
            f"what it computed when the cache was begun, with {recorded_versions(plan)}"
        ),
        found=f"{difference}, with {installed_versions()}",
        hint="install those versions; or extract anew with these, to another --out",
    )


def _missing_reference_warning(plan: Plan) -> str:
    """The warning that the plan of an earlier gaam records no reference states."""
    version_of_cache = plan.created_with.get("gaam")
    maker = f"gaam {version_of_cache}" if version_of_cache else "an earlier gaam"
    return (
        f"{maker} began the cache and did not record what its encoder does "
        f"(with {recorded_versions(plan)}): gaam would not notice that other libraries "
        f"(here {installed_versions()}) compute other states; "
        "gaam verify --recompute 20 compares rows"
    )
