"""Predict classes of rows with the decoders of a finished run, averaged over seeds.

S seeds, N rows or B of a batch, L layers, D hidden size, C classes.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, vmap

from gaam_cache.common import devices
from gaam_cache.common.errors import CacheError, ConfigError, DataError, NumericsError
from gaam_cache.common.messages import excerpt, join_first
from gaam_cache.config import has_columns
from gaam_cache.extraction.rows import LocatedRows, RowEncoder
from gaam_cache.importing.arrays import refuse_mask
from gaam_cache.store.plan import Plan
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder
from gaam_decoder.recipe import Recipe
from gaam_decoder.specs import Settings, parse_attention, parse_head
from gaam_decoder.tasks import CLASSIFICATION, task_of
from gaam_decoder.training.arithmetic.engine import (
    AUTOCAST_TYPES,
    EVAL_BATCH_SIZE,
    rows_at_once,
    without_denormals,
)
from gaam_decoder.use.results import (
    LabelSetPredictions,
    NumberPredictions,
    result_types,
)

InputRows = Sequence[Any] | NDArray[Any] | Tensor
"""Texts, sounds or pictures, one a row; or an array of states."""
CHUNK_ROWS = 2048
"""Rows to encode at once, as many as a shard of a cache has at most."""
MOST_NAMES = 5  # columns that a message names
CPU_BATCH_SIZE = 16
"""Rows of one batch on a CPU: with the head conv twice as fast as 32, on one core."""
_MODULE_LOCK = threading.Lock()
"""Held while a decoder computes: threads share its module, which gets the weights of
one seed after another."""


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Everything that a decoder is made of, without its weights."""

    attention: str
    head: str
    recipe: Recipe  # of its training
    settings: Settings  # the recipe as run.json spells it
    layers: tuple[int, ...]
    """Positions of the layers that it reads, among the layers of a row, from 0."""
    seeds: tuple[int, ...]  # a decoder for each
    key: str  # of the run: mechanism, recipe and cache
    gaam: str  # the version that made this
    plan: Plan  # of the cache that it learned from
    classes: tuple[bool | int | float | str, ...] | None = None
    """Classes of the type that ``fit`` was given; None: the names of the plan."""
    feature_names: tuple[str, ...] | None = None
    """Names of the columns of the table that ``fit`` was given; None: an array."""

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Undo ``to_dict``.

        Raises:
            KeyError, TypeError, ValueError: the value is something else.
        """
        fields = dict(value)
        fields["layers"] = tuple(value["layers"])
        fields["seeds"] = tuple(value["seeds"])
        # ``recipe`` is parsed, ``settings`` are the same as JSON values; groups decide
        # which rows train, and do not matter any more
        fields["settings"] = value["recipe"]
        fields["recipe"] = Recipe.from_dict(
            value["recipe"], attention=value["attention"], head=value["head"], groups={}
        )
        fields["plan"] = Plan.from_dict(value["plan"])
        for name in ("classes", "feature_names"):
            if name in value:
                fields[name] = tuple(value[name])
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; they name no path."""
        values = vars(self) | {"recipe": self.settings}
        del values["settings"]
        for name in ("classes", "feature_names"):
            if values[name] is None:
                del values[name]
        return values | {"plan": self.plan.portable().to_dict()}

    @property
    def dtype(self) -> str:
        """Type of the matrix products in which the run was evaluated."""
        if self.recipe.eval_dtype == "float32":
            return "float32"
        return self.recipe.dtype


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """Classes of N rows, and how sure the decoders of all seeds are of them."""

    probabilities_NC: NDArray[np.float64]  # mean over the seeds
    agreement_N: NDArray[np.float64]
    """Share of the seeds that predict the same class by themselves."""
    class_names: tuple[str, ...]

    @classmethod
    def from_logits(
        cls,
        logits_SNC: NDArray[np.float32],
        class_names: Sequence[str],
        *,
        temperatures: Sequence[float] = (),
    ) -> Self:
        """``p = 1/S sum_s softmax(logits_s / T_s)``.

        The predicted class is the first ``argmax p``.

        Args:
            logits_SNC: of every seed, row and class.
            class_names: names of the C classes.
            temperatures: T of every seed; empty: 1.
        """
        z_SNC = logits_SNC.astype(np.float64)
        z_SNC -= z_SNC.max(-1, keepdims=True)
        if temperatures:
            z_SNC /= np.array(temperatures)[:, None, None]
        exp_SNC = np.exp(z_SNC)
        mean_NC = (exp_SNC / exp_SNC.sum(-1, keepdims=True)).mean(0)
        agrees_SN = CLASSIFICATION.hits(
            CLASSIFICATION.predictions(logits_SNC), CLASSIFICATION.predictions(mean_NC)
        )
        return cls(
            probabilities_NC=mean_NC,
            agreement_N=agrees_SN.mean(0),
            class_names=tuple(class_names),
        )

    def __len__(self) -> int:
        return len(self.agreement_N)

    @property
    def labels(self) -> list[str]:
        """Name of the most probable class of every row."""
        numbers = CLASSIFICATION.predictions(self.probabilities_NC).tolist()
        return [self.class_names[number] for number in numbers]

    def rows(self, top: int = 1) -> list[dict[str, Any]]:
        """The results of every row, by ``result_types``, for its likeliest classes."""
        order_NK = np.argsort(-self.probabilities_NC, axis=-1, kind="stable")[:, :top]
        probability_NK = np.take_along_axis(self.probabilities_NC, order_NK, -1)
        names = list(result_types(CLASSIFICATION, self.class_names, top))
        records = []
        for classes, probabilities, agreement in zip(
            order_NK.tolist(),
            probability_NK.tolist(),
            self.agreement_N.tolist(),
            strict=True,
        ):
            values: list[Any] = []
            for number, probability in zip(classes, probabilities, strict=True):
                is_likeliest = not values
                values += [self.class_names[number], probability]
                # the seeds agree, or not, about the likeliest class
                if is_likeliest:
                    values.append(agreement)
            records.append(dict(zip(names, values, strict=True)))
        return records


AnyPredictions = Predictions | NumberPredictions | LabelSetPredictions


class Predictor:
    """The decoders of all seeds, and the encoder that makes states of new rows.

    The encoder is opened at its first use: states need none. Several threads may use
    one predictor, as those of a server do: they take turns.

    Attributes:
        class_names: in the order of the columns of probabilities; empty for other
            tasks than classification.
        names: of the classes, of the numbers, or of the labels.
        task: what is predicted.
        seeds: seeds whose decoders are averaged.
        temperatures: divisors of the logits of every seed; empty: not divided.
        pooling: pooling of the states that the decoders read.
        fingerprint: of the cache that they learned from.
        plan: of that cache, which says how rows are encoded; None if its states were
            imported.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: Mapping[str, Tensor],
        *,
        temperatures: Sequence[float] = (),
        dtype: str | None = None,
        device: str = "auto",
        encoder: str | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        """Users call ``gaam_decoder.load``, which makes the predictor.

        Args:
            config: of the decoders.
            weights: by name, of all seeds, (S, ...).
            temperatures: divisors of the logits of every seed; empty: not divided.
            dtype: of matrix products; None: that in which the run was evaluated.
            device: auto, cpu, cuda, cuda:N or mps.
            encoder: folder or id of the encoder, if it has moved.
            batch_tokens: tokens of a batch of the encoder; None: by the device.

        Raises:
            CacheError: the weights do not fit the decoder.
            ConfigError: a mechanism that reads several rows at once.
        """
        plan = config.plan
        self.class_names = plan.class_names
        self.names = plan.target_names
        self.task = task_of(plan.task)
        self.seeds = config.seeds
        self.temperatures = tuple(temperatures)
        self.pooling: str = config.recipe.pool
        self.fingerprint = plan.fingerprint
        self.encoder_label: str = plan.encoder_label
        # the plan of imported states names no encoder for new rows
        self.plan = None if plan.imported else plan
        self._config = config
        # of matrix products; None: float32, as the parameters are
        self._product_dtype = AUTOCAST_TYPES.get(dtype or config.dtype)
        self._device_name = device
        self._device = devices.resolve_device(device)
        self._encoder_source = encoder
        self._batch_tokens = batch_tokens
        self._row_encoder: RowEncoder | None = None
        self._opening_lock = threading.Lock()

        # the module of one seed, which gets the weights of each seed in turn
        self._decoder = self._build_decoder(weights)
        parameters = self._decoder.state_dict()
        self._check_decoder(weights, parameters)
        # on the device and in the type of the module's own parameters
        self._stacked_weights = {
            name: weights[name].to(parameter) for name, parameter in parameters.items()
        }

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of the table that ``fit`` was given; None of others."""
        return self._config.feature_names

    def _build_decoder(self, weights: Mapping[str, Tensor]) -> Decoder:
        """A module for evaluation, with a head of the size of these weights.

        ``weights`` are by name, of all seeds, (S, ...).
        """
        decoder = build_decoder(_decoder_spec(self._config), seed=0)
        decoder = decoder.eval().to(self._device)
        decoder.head.resize(_head_weights(weights))
        return decoder

    def _check_decoder(
        self, weights: Mapping[str, Tensor], parameters: Mapping[str, Tensor]
    ) -> None:
        """Check that the decoder fits the weights and predicts each row by itself.

        Args:
            weights: by name, of all seeds, (S, ...).
            parameters: of the module of one seed, by name.
        """
        attention, head = self._config.attention, self._config.head
        if _shapes(weights) != _stacked_shapes(parameters, len(self.seeds)):
            raise CacheError(f"the weights are not those of {attention} + {head}")
        if self._decoder.attention.depends_on_batch:
            message = f"'{attention}' predicts a row by the rows beside it"
            raise ConfigError(message)

    def predict(self, rows: InputRows) -> list[Any]:
        """The name of the most probable class of every row; see ``predictions``.

        Of a decoder that ``fit`` trained, the class in the type of its targets. Of
        other tasks a list of numbers, or of labels, for every row.
        """
        predictions = self.predictions(rows)
        classes = self._config.classes
        if classes is None or not isinstance(predictions, Predictions):
            return predictions.labels
        numbers = CLASSIFICATION.predictions(predictions.probabilities_NC).tolist()
        return [classes[number] for number in numbers]

    def predict_proba(self, rows: InputRows) -> NDArray[np.float64]:
        """Probabilities of all classes of every row, (N, C); see ``predictions``.

        Of label sets the probability of each label by itself.

        Raises:
            ConfigError: the decoders predict numbers.
        """
        if not self.task.has_probabilities:
            raise ConfigError(
                f"{self.task.name} has no probabilities",
                expected="predict, which returns the numbers",
            )
        predictions = self.predictions(rows)
        assert not isinstance(predictions, NumberPredictions)
        return predictions.probabilities_NC

    def predictions(
        self, rows: InputRows, *, origin: str = "the rows"
    ) -> AnyPredictions:
        """Encode N rows as those of the cache, and predict their classes.

        Args:
            rows: texts; or sounds and pictures, each a path, the bytes of a file, a
                picture of Pillow, or ``(samples, rate)`` with samples (T,) or, of
                several channels, (T, C): fractions from -1 to 1, int16 or int32. An
                array of states (N, L, D) or, of one layer, (N, D) is not encoded: see
                ``predict_states``.
            origin: name of the source of the rows, for messages.

        Raises:
            ConfigError: another encoder than that of the run; or the rows are one text,
                a table or a dictionary.
            DataError: rows that cannot be used, such as empty ones.
        """
        has_states = isinstance(rows, np.ndarray | Tensor) and _has_shape_of_states(
            rows
        )
        # of imported states no encoder is known: a table can only hold states
        if has_states or (self.plan is None and has_columns(rows)):
            return self.predict_states(rows)
        _check_sequence(rows)
        inputs = list(rows)
        chunks = (
            inputs[start : start + CHUNK_ROWS]
            for start in range(0, len(inputs), CHUNK_ROWS)
        )
        return self._predict_all(self._encode(chunks, origin), origin)

    def stream(
        self, chunks: Iterable[Sequence[str] | LocatedRows], *, origin: str = "the rows"
    ) -> Iterator[AnyPredictions]:
        """Predict chunk after chunk of some 2,048 rows; the next is read ahead.

        Args:
            chunks: rows, as ``predictions`` takes them.
            origin: name of the source of the rows, for messages.
        """
        return (
            self._predict_all([x_NLD], origin) for x_NLD in self._encode(chunks, origin)
        )

    def predict_states(self, states: Any) -> AnyPredictions:
        """Predict from states.

        Args:
            states: of all layers of the cache and of the run's pooling, such as
                ``cache["test"].embeddings``, which are read slice by slice.

        Shape:
            (N, L, D) or, of one layer, (N, D); floating-point.

        Raises:
            DataError: states of another shape or type, a state that is not finite, or a
                table whose columns are not those of ``fit``.
        """
        refuse_mask(states, "the states")
        if has_columns(states):
            if self.feature_names is not None:
                check_feature_names(feature_names_of(states), self.feature_names)
            states = np.asarray(states)
        if isinstance(states, torch.Tensor):
            states = states.detach().float().cpu()
        if not hasattr(states, "shape"):
            states = np.asarray(states)
        plan = self._config.plan
        shape = (plan.num_layers, plan.hidden_size)
        has_layer_axis = plan.num_layers > 1 or len(states.shape) != 2
        row_shape = shape if has_layer_axis else shape[1:]
        if tuple(states.shape[1:]) != row_shape:
            raise DataError(
                "states of another shape",
                expected=f"(rows, {shape[0]}, {shape[1]}): all layers of the cache",
                found=str(states.shape),
            )
        return self._predict_all(_state_chunks(states), "the states")

    def _encode(
        self, chunks: Iterable[Sequence[str] | LocatedRows], origin: str
    ) -> Iterator[NDArray[np.float32]]:
        """States of every chunk of rows, (N, L, D)."""
        with self._opening_lock:
            if self._row_encoder is None:
                self._row_encoder = RowEncoder.open(
                    self._config.plan,
                    encoder=self._encoder_source,
                    device=self._device_name,
                    batch_tokens=self._batch_tokens,
                )
        return self._row_encoder.stream(chunks, pooling=self.pooling, origin=origin)

    @torch.inference_mode()
    def _predict_all(
        self, chunks: Iterable[NDArray[Any]], origin: str
    ) -> AnyPredictions:
        """Predict the rows of all chunks of states, each (N, L, D)."""
        # so that the concatenation has a shape where there are no rows
        no_rows = np.empty((len(self.seeds), 0, len(self.names)), np.float32)
        parts = [no_rows]
        for states_NLD in chunks:
            read_NLD = states_NLD[:, list(self._config.layers)]
            x_NLD = torch.from_numpy(np.ascontiguousarray(read_NLD, np.float32))
            for x_BLD in torch.split(x_NLD, self._batch_size(x_NLD)):
                with without_denormals():
                    logits_SBC = self._logits(x_BLD.to(self._device))
                parts.append(logits_SBC.cpu().numpy())
        logits_SNC = np.concatenate(parts, axis=1)
        if not np.isfinite(logits_SNC).all():
            raise NumericsError("the logits of a row are not finite", where=origin)
        if self.task.has_classes:
            return Predictions.from_logits(
                logits_SNC, self.class_names, temperatures=self.temperatures
            )
        if self.task.has_probabilities:
            return LabelSetPredictions.from_outputs(
                logits_SNC, self.names, temperatures=self.temperatures
            )
        return NumberPredictions.from_outputs(logits_SNC, self.names)

    def _batch_size(self, x_NLD: Tensor) -> int:
        """Rows of one batch, by the memory that a row takes for all seeds."""
        numbers_of_row = max(1, x_NLD[:1].numel() * len(self.seeds))
        is_cpu = self._device.type == "cpu"
        largest = CPU_BATCH_SIZE if is_cpu else EVAL_BATCH_SIZE
        return min(largest, rows_at_once(self._device.type, numbers_of_row))

    def _logits(self, x_BLD: Tensor) -> Tensor:
        """Logits of every seed, (S, B, C), in float32, as training evaluates them."""

        def logits_of_seed(weights: dict[str, Tensor]) -> Tensor:
            has_autocast = self._product_dtype is not None
            with torch.autocast(
                self._device.type, self._product_dtype, enabled=has_autocast
            ):
                logits_BC: Tensor = functional_call(self._decoder, weights, (x_BLD,))
            return logits_BC.float()

        # one thread at a time: a call puts the weights of its seed into the module
        with _MODULE_LOCK:
            if self._computes_seeds_at_once():
                logits_SBC: Tensor = vmap(logits_of_seed)(self._stacked_weights)
                return logits_SBC
            logits = []
            for index in range(len(self.seeds)):
                weights = {
                    name: tensor[index]
                    for name, tensor in self._stacked_weights.items()
                }
                logits.append(logits_of_seed(weights))
            return torch.stack(logits)

    def _computes_seeds_at_once(self) -> bool:
        """Whether all seeds are computed at once, with stacked weights.

        On a CPU, seeds are computed one after the other in float32: stacked
        convolutions take four times as long. In a lower type they are stacked, as
        training does it: one after the other, they would be rounded differently.
        """
        if len(self.seeds) < 2:
            return False
        if self._device.type == "cpu" and self._product_dtype is None:
            return False
        return self._decoder.attention.stackable and self._decoder.head.stackable


def _has_shape_of_states(values: Any) -> bool:
    """Whether an array is (N, L, D) or (N, D); texts may be an array of one axis."""
    return len(getattr(values, "shape", ())) in (2, 3)


def _check_sequence(rows: object) -> None:
    """Refuse one text, and tables and dictionaries: these yield names, not rows."""
    if has_columns(rows) or isinstance(rows, Mapping):
        raise ConfigError(
            "rows are a list, not a table",
            expected="a row for each entry, such as [text, ...]",
            found=type(rows).__name__,
            hint='pass the column that holds the rows, such as df["text"]',
        )
    # such as the states of a cache or of an HDF5 file
    if _has_shape_of_states(rows):
        raise ConfigError(
            "these rows look like states, and are not encoded",
            expected="texts, sounds or pictures; or a NumPy array of states",
            found=repr(rows),
            hint="predict_states reads them slice by slice",
        )
    if isinstance(rows, str | bytes | PurePath) or not isinstance(rows, Iterable):
        raise ConfigError(
            "rows are a list",
            expected="a row for each entry, such as [text, ...]",
            found=f"one {type(rows).__name__}",
        )


def feature_names_of(X: object) -> tuple[str, ...] | None:
    """The names of the columns of a table; None of an array.

    As in scikit-learn, names count if all of them are texts.

    Raises:
        DataError: some names are texts, and others are not.
    """
    if not has_columns(X):
        return None
    # a table of Arrow has its names under another attribute than that of pandas
    attribute = "column_names" if hasattr(X, "column_names") else "columns"
    names = list(getattr(X, attribute))
    are_texts = [isinstance(name, str) for name in names]
    if all(are_texts):
        return tuple(names) or None
    if any(are_texts):
        raise DataError(
            "some columns have texts as names, and others have not",
            expected="texts alone, or no texts",
            found=", ".join(map(repr, names[:6])),
            where="X",
            hint="X.columns = X.columns.astype(str)",
        )
    return None


def check_feature_names(
    names: tuple[str, ...] | None, fitted_names: tuple[str, ...]
) -> None:
    """Refuse a table whose columns are not those of ``fit``, in their order.

    Args:
        names: of the columns of a table; None of an array, which has no names.
        fitted_names: of the columns of ``fit``.

    Raises:
        DataError: other names, or another order.
    """
    if names is None or names == fitted_names:
        return
    expected_names = set(fitted_names)
    actual_names = set(names)
    missing = [name for name in fitted_names if name not in actual_names]
    unexpected = [name for name in names if name not in expected_names]
    difference = "the same names in another order"
    if len(actual_names) < len(names):
        difference = "a name twice"
    elif missing or unexpected:
        difference = f"missing: {_some_names(missing)}; new: {_some_names(unexpected)}"
    raise DataError(
        "the feature names should match those that were passed during fit",
        expected=f"the columns {_some_names(fitted_names)}, in this order",
        found=difference,
        where="X",
        hint="pass the columns of fit in their order: X[list(names)], names being "
        "estimator.feature_names_in_ or decoder.feature_names",
    )


def _some_names(names: Sequence[str]) -> str:
    """The first names of a list, and the number of the others, for messages."""
    if not names:
        return "none"
    return join_first(list(map(excerpt, names)), MOST_NAMES)


def _decoder_spec(config: DecoderConfig) -> DecoderSpec:
    """The mechanism and head of a decoder, and their sizes."""
    return DecoderSpec(
        attention=parse_attention(config.attention),
        head=parse_head(config.head),
        num_layers=len(config.layers),
        hidden_size=config.plan.hidden_size,
        num_classes=len(config.plan.target_names),
        task=config.plan.task,
        scales_states=config.recipe.state_scale != "none",
    )


def _head_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the head of the first seed, by their names in the head.

    Weights without an axis of seeds are left out: the check of all shapes refuses them.
    """
    prefix = "head."
    return {
        name.removeprefix(prefix): tensor[0]
        for name, tensor in weights.items()
        if name.startswith(prefix) and tensor.ndim > 0 and len(tensor)
    }


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor, by name."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _stacked_shapes(
    parameters: Mapping[str, Tensor], num_seeds: int
) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters of one seed when all seeds are stacked."""
    return {name: (num_seeds, *shape) for name, shape in _shapes(parameters).items()}


def _state_chunks(states: Any) -> Iterator[NDArray[np.float32]]:
    """States in float32, 2,048 rows at a time, (n, L, D).

    Args:
        states: (N, L, D) or, of one layer, (N, D).

    Raises:
        DataError: states that are no floating-point numbers, or not finite.
    """
    for first_row in range(0, len(states), CHUNK_ROWS):
        x_NLD = np.asarray(states[first_row : first_row + CHUNK_ROWS])
        if x_NLD.ndim == 2:
            x_NLD = x_NLD[:, None]
        if x_NLD.dtype.kind != "f":
            raise DataError(f"states are {x_NLD.dtype}, no floating-point numbers")
        x_NLD = x_NLD.astype(np.float32, copy=False)
        is_finite_NLD = np.isfinite(x_NLD)
        if not is_finite_NLD.all():
            row, layer, feature = np.argwhere(~is_finite_NLD)[0].tolist()
            raise DataError(
                "a state is not finite in float32",
                expected="finite numbers",
                found=str(x_NLD[row, layer, feature]),
                where=f"row {first_row + row + 1}, layer {layer + 1}, "
                f"feature {feature}",
                hint="correct the state, or remove the row",
            )
        yield x_NLD
