"""Try a decoder with code of a user's own on a few random rows, before it is trained.

B rows, L layers, D hidden size, C outputs.
"""

import warnings

import torch
from torch import Tensor, nn

from gaam_cache.common.errors import ConfigError, GaamWarning
from gaam_decoder.attention.base import Attention
from gaam_decoder.attention.frames.density import DensityGate
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder
from gaam_decoder.specs import is_foreign, own_code

ROWS_TRIED = 3
"""Random rows on which a decoder is tried, together and one at a time."""
MIXING_SHARE = 1e-3
"""If other rows change a logit by more than this share of the largest logit, the
decoder mixes rows; rounding changes it by far less."""


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
