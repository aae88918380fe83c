"""Try a decoder with code of a user's own, before and after it is trained.

S seeds, B rows, L layers, D hidden size, C outputs.
"""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, GaamWarning
from gaam_decoder.attention.base import Attention
from gaam_decoder.attention.frames.density import DensityGate
from gaam_decoder.decoder import (
    Decoder,
    DecoderSpec,
    build_decoder,
    without_random_numbers,
)
from gaam_decoder.optimizers.base import Stacked
from gaam_decoder.runs.write import SeedResult
from gaam_decoder.specs import head_class, is_foreign, own_code

ROWS_TRIED = 3
"""Random rows on which a decoder is tried, together and one at a time."""
MIXING_SHARE = 1e-3
"""If other rows change a logit by more than this share of the largest logit, the
decoder mixes rows; rounding changes it by far less."""
CALLS_BEFORE = 3
"""Batches that a decoder sees in training before it is compared with a fresh one."""
ROWS_REBUILT = 64
"""Most rows on which a decoder is compared with one rebuilt from its weights."""
TRAINED_SHARE = 0.01
"""As ``MIXING_SHARE``, of trained decoders, whose seeds were computed together: a part
may round to 16 bits by itself."""
LOW_PRECISION_SHARE = 0.05
"""As ``TRAINED_SHARE``, where all matrix products are rounded to 16 bits."""


def check_own_decoder(spec: DecoderSpec) -> None:
    """Refuse a user's own mechanism or head that cannot be trained as it is written.

    Raises:
        ConfigError: its code fails, or gives something else than it promises; or the
            output for a row depends on other rows, and the mechanism does not say so.

    Warns:
        GaamWarning: parameters that no gradient reaches.
    """
    has_own_attention = is_foreign(spec.attention, "mechanism")
    has_own_head = is_foreign(spec.head, "head")
    if not (has_own_attention or has_own_head):
        return
    decoder = build_decoder(spec, seed=0).eval()
    _check_names_of_weights(decoder, spec)
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS_TRIED, spec.num_layers, spec.hidden_size)
    x_BLD = torch.randn(shape, generator=generator)
    if has_own_attention:
        name = f"the mechanism '{spec.attention}'"
        with own_code(spec.attention, "mechanism", f"forward takes {shape}"):
            _check_density(decoder.attention, x_BLD, name)
            _check_output(decoder.attention, x_BLD, name)
            _check_what_reports_read(decoder.attention, x_BLD, name)
            _check_parameters(decoder.attention, x_BLD, name)
    if has_own_head:
        with own_code(spec.head, "head", "forward takes the output of the mechanism"):
            _check_logits(decoder, x_BLD, f"the head '{spec.head}'", spec.num_classes)
    if not decoder.attention.depends_on_batch:
        with own_code(spec.attention, "mechanism", "forward takes a single row"):
            _check_rows_stay_apart(decoder, x_BLD, spec)
    # the head that is fitted has no weights yet
    if head_class(spec.head).trained_by == "steps":
        with plugins.own_code(
            f"'{spec.attention}' + '{spec.head}'", "forward runs in training"
        ):
            _check_state_is_saved(spec, x_BLD)


def _check_names_of_weights(decoder: Decoder, spec: DecoderSpec) -> None:
    """Refuse weights that have two names, or that are no tensors of the decoder.

    Raises:
        ConfigError: the weights cannot be saved, or none is trained.
    """
    named_tensors = dict(decoder.named_parameters()) | dict(decoder.named_buffers())
    others = sorted(decoder.state_dict().keys() - named_tensors.keys())
    if others:
        raise ConfigError(
            f"'{spec.attention}' + '{spec.head}' cannot be saved",
            expected="each parameter and buffer has one name, and nothing else is "
            "in state_dict",
            found=f"{others[0]}, which is the tensor of another name or no tensor",
            hint="register a shared module once, and read it from there",
        )
    is_trained = decoder.head.trained_by == "steps"
    if is_trained and decoder.num_parameters()["total"] == 0:
        raise ConfigError(
            f"'{spec.attention}' + '{spec.head}' has nothing to train",
            expected="a parameter with requires_grad",
            found="none",
        )


def has_own_part(spec: DecoderSpec) -> bool:
    """Whether the mechanism or the head is not one of gaam's own."""
    return is_foreign(spec.attention, "mechanism") or is_foreign(spec.head, "head")


def check_rebuilt(
    spec: DecoderSpec,
    results: Sequence[SeedResult],
    x_BLD: Tensor,
    logits_SBC: Tensor,
    product_dtype: torch.dtype | None,
) -> None:
    """Refuse trained seeds whose saved weights do not give their logits again.

    Args:
        spec: of the decoder.
        results: of S seeds; failed seeds are left out.
        x_BLD: states of rows, in the type of the parameters.
        logits_SBC: logits that the trained seeds gave these rows.
        product_dtype: of matrix products; None: that of the parameters.

    Raises:
        ConfigError: the logits differ by more than rounding on most rows.
    """
    # of none of the seeds, so that a random number that is not saved is another one
    unused_seed = max(result.seed for result in results) + 1
    decoder = build_decoder(spec, unused_seed).to(x_BLD.device, x_BLD.dtype).eval()
    device_type = x_BLD.device.type
    share = TRAINED_SHARE if product_dtype is None else LOW_PRECISION_SHARE
    # in another order, rows have other neighbours
    row_B = torch.arange(len(x_BLD), device=x_BLD.device)
    if not decoder.attention.depends_on_batch:
        row_B = row_B.flip(0)
    for result, logits_BC in zip(results, logits_SBC, strict=True):
        if result.failed is not None:
            continue
        _load_weights(decoder, result.weights)
        with (
            torch.no_grad(),
            torch.autocast(
                device_type, product_dtype, enabled=product_dtype is not None
            ),
        ):
            rebuilt_BC = decoder(x_BLD[row_B])[row_B].to(logits_BC)
        # numbers far from 0 would hide a difference
        if decoder.targets is not None:
            logits_BC = decoder.targets.standardised(logits_BC)
            rebuilt_BC = decoder.targets.standardised(rebuilt_BC)
        where = f"seed {result.seed}, after the training"
        _check_same_logits(logits_BC, rebuilt_BC, share, spec, where)


def _load_weights(decoder: Decoder, weights: Stacked) -> None:
    """Load the weights of a seed into a decoder, as a predictor does."""
    decoder.head.resize(
        {
            name.removeprefix("head."): value
            for name, value in weights.items()
            if name.startswith("head.")
        }
    )
    decoder.load_state_dict(weights)


def _check_state_is_saved(spec: DecoderSpec, x_BLD: Tensor) -> None:
    """Refuse a decoder that keeps something beside its weights.

    A decoder that has seen other rows in training is compared with a decoder of another
    seed that got its weights.

    Raises:
        ConfigError: both give other logits.
    """
    generator = torch.Generator().manual_seed(1)
    used = build_decoder(spec, seed=0).train()
    noise_BK = None
    if used.head.num_noise:
        noise_BK = torch.rand(len(x_BLD), used.head.num_noise, generator=generator)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        with without_random_numbers(has_own_code=True):
            for _ in range(CALLS_BEFORE):
                used(torch.randn(x_BLD.shape, generator=generator), noise_BK)
        rebuilt = build_decoder(spec, seed=1)
        _load_weights(rebuilt, used.state_dict())
        # the last call may change buffers
        for training in (False, True):
            logits = []
            for decoder in (used, rebuilt):
                torch.default_generator.manual_seed(0)
                noise = noise_BK if training else None
                logits.append(decoder.train(training)(x_BLD.clone(), noise))
            where = "in training" if training else "in evaluation"
            _check_same_logits(logits[0], logits[1], MIXING_SHARE, spec, where)


def _check_same_logits(
    logits_BC: Tensor,
    rebuilt_BC: Tensor,
    share: float,
    spec: DecoderSpec,
    where: str,
) -> None:
    """Refuse a decoder if one rebuilt from its weights gives most rows other logits.

    Rounding can change a mechanism that sorts or counts, but not on most rows.

    Args:
        logits_BC: of the decoder.
        rebuilt_BC: of the rebuilt decoder.
        share: of the largest logit that rounding may change.
        spec: of the decoder, for the message.
        where: the logits were computed, for the message.
    """
    distance_B = (logits_BC - rebuilt_BC).abs().amax(1)
    largest_logit = logits_BC.abs().max()
    # the median; written so that a distance that is no number is refused
    distance = distance_B.median()
    if distance <= share * largest_logit:
        return
    raise ConfigError(
        f"the logits of '{spec.attention}' + '{spec.head}' depend on more than its "
        "saved weights",
        expected="all that a part keeps between calls is a parameter or a persistent "
        "buffer",
        found="a decoder rebuilt from the weights, whose logits differ by "
        f"{distance:.1e} of {largest_logit:.1e}",
        where=where,
        hint="self.register_buffer for tensors and counts, nn.ModuleList for modules; "
        "no random generator of its own; nothing computed over the rows of a batch",
    )


def _check_density(attention: Attention, x_BLD: Tensor, name: str) -> None:
    """Refuse a density of another shape than r, which might broadcast unseen."""
    if not isinstance(attention, DensityGate):
        return
    r_BHGD = torch.unflatten(x_BLD, 1, (attention.heads, -1))
    with torch.inference_mode():
        density = attention.gate(r_BHGD)
    if not isinstance(density, Tensor) or density.shape != r_BHGD.shape:
        raise ConfigError(
            f"the density of {name} has a wrong shape",
            expected=f"the shape of r, here {tuple(r_BHGD.shape)}",
            found=_describe(density),
        )


def _check_output(attention: Attention, x_BLD: Tensor, name: str) -> None:
    """Check the output of ``forward``: its shape and type, and that it is finite.

    The input must be as it was.
    """
    given_BLD = x_BLD.clone()
    expected_shape = (len(x_BLD), *attention.output_shape)
    with torch.inference_mode():
        output = attention(given_BLD)
    expected = f"forward gives finite numbers {expected_shape}, {x_BLD.dtype}"
    actual = _describe(output)
    is_as_promised = (
        isinstance(output, Tensor)
        and output.shape == expected_shape
        and output.dtype == x_BLD.dtype
    )
    if is_as_promised and not bool(output.isfinite().all()):
        is_as_promised = False
        actual = "nan or inf"
    if is_as_promised and not torch.equal(given_BLD, x_BLD):
        is_as_promised = False
        expected = "forward leaves its input as it is"
        actual = "it changes its input in place"
    if not is_as_promised:
        raise ConfigError(
            f"{name} gives a wrong output", expected=expected, found=actual
        )


def _check_what_reports_read(attention: Attention, x_BLD: Tensor, name: str) -> None:
    """Check the results of ``attention_map`` and ``learned``."""
    with torch.inference_mode():
        weights = attention.attention_map(x_BLD.clone())
        learned = attention.learned()
    rows, layers, size = x_BLD.shape
    if weights is not None and not _is_attention_map(weights, x_BLD):
        raise ConfigError(
            f"attention_map of {name} gives a wrong result",
            expected=f"None, ({rows}, {layers}, {size}), ({rows}, {layers}, 1) or "
            f"({rows}, heads, queries, {layers})",
            found=_describe(weights),
        )
    is_dictionary = isinstance(learned, dict)
    if not is_dictionary or not all(
        isinstance(value, Tensor) for value in learned.values()
    ):
        raise ConfigError(
            f"learned of {name} gives a wrong result",
            expected="a dictionary of tensors by name",
            found=_describe(learned),
        )


def _is_attention_map(weights: object, x_BLD: Tensor) -> bool:
    """Whether weights have a shape that ``Attention.attention_map`` allows."""
    if not isinstance(weights, Tensor):
        return False
    rows, layers, size = x_BLD.shape
    if weights.ndim == 4:
        return weights.shape[0] == rows and weights.shape[3] == layers
    return tuple(weights.shape) in ((rows, layers, size), (rows, layers, 1))


def _check_parameters(attention: Attention, x_BLD: Tensor, name: str) -> None:
    """Refuse tensors that would never learn; warn of parameters without a gradient."""
    for module in attention.modules():
        for attribute, value in vars(module).items():
            if isinstance(value, Tensor) and value.requires_grad:
                raise ConfigError(
                    f"{name} would never learn its tensor '{attribute}'",
                    expected=f"self.{attribute} = nn.Parameter(...)",
                    found="a tensor that is no parameter",
                )
    unreached = _parameters_without_gradient(attention, x_BLD)
    if unreached:
        warnings.warn(
            f"{name} never learns {', '.join(unreached)}: its output does not depend "
            "on it by a gradient",
            GaamWarning,
            stacklevel=2,
        )


def _parameters_without_gradient(attention: nn.Module, x_BLD: Tensor) -> list[str]:
    """Names of the parameters that no gradient of the output reaches."""
    parameters = {
        name: parameter
        for name, parameter in attention.named_parameters()
        if parameter.requires_grad
    }
    with torch.random.fork_rng(devices=[]):
        total = attention.train()(x_BLD.clone()).sum()
    attention.eval()
    if not parameters or not total.requires_grad:
        return list(parameters)
    gradients = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    return [
        name
        for name, gradient in zip(parameters, gradients, strict=True)
        if gradient is None
    ]


def _check_logits(decoder: Decoder, x_BLD: Tensor, name: str, num_outputs: int) -> None:
    """Check that a head gives a number for every output."""
    with torch.inference_mode():
        logits = decoder(x_BLD.clone())
    expected_shape = (len(x_BLD), num_outputs)
    if not isinstance(logits, Tensor) or logits.shape != expected_shape:
        raise ConfigError(
            f"{name} gives a wrong output",
            expected=f"a tensor {expected_shape}",
            found=_describe(logits),
        )


def _describe(value: object) -> str:
    """Shape and type of a tensor, or the type of something else."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)}, {value.dtype}"
    return f"{type(value).__name__}, no tensor"


def _check_rows_stay_apart(decoder: Decoder, x_BLD: Tensor, spec: DecoderSpec) -> None:
    """Refuse a decoder whose output for a row depends on the other rows.

    The decoder is evaluated on the rows together and one at a time. A mechanism that
    reads other rows on purpose says ``depends_on_batch = True``.

    Raises:
        ConfigError: rows are mixed.
    """
    with torch.inference_mode():
        together_BC = decoder(x_BLD)
        alone_BC = torch.cat(
            [decoder(x_BLD[row : row + 1]) for row in range(ROWS_TRIED)]
        )

    distance = (together_BC - alone_BC).abs().max()
    largest_logit = alone_BC.abs().max()
    # Written so that a distance that is no number is refused.
    if distance <= MIXING_SHARE * largest_logit:
        return
    raise ConfigError(
        f"the logits that '{spec.attention}' + '{spec.head}' gives a row depend on "
        "other rows",
        expected="the same logits for a row, whatever rows share its batch",
        found=f"logits that differ by {distance:.1e} of {largest_logit:.1e}",
        hint="compute nothing over the first axis, such as x - x.mean(0), and draw no "
        "random numbers; a mechanism that reads other rows on purpose has "
        "depends_on_batch = True in its class",
    )
