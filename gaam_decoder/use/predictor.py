"""Predict classes of new rows with the decoders of a finished run, several seeds as one model.

S seeds, N rows or B of a batch, L layers, D hidden size, C classes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, vmap

from gaam_cache.common import devices
from gaam_cache.common.errors import CacheError, ConfigError, DataError, NumericsError
from gaam_cache.extraction.rows import LOADING_LOCK
from gaam_cache.store.plan import Plan
from gaam_decoder.decoder import DecoderSpec, build_decoder
from gaam_decoder.specs import parse_attention, parse_head
from gaam_decoder.tasks import CLASSIFICATION
from gaam_decoder.training.arithmetic.engine import EVAL_BATCH_SIZE, LOWER, rows_at_once

if TYPE_CHECKING:
    from gaam_cache.extraction.rows import LocatedRows, RowEncoder

CHUNK_ROWS = (
    2048  # rows that are encoded together, as many as a shard of a cache has at most
)
CPU_BATCH_SIZE = (
    16  # of the decoders: with the head conv twice as fast as 32, on one core
)
_TURN = (
    threading.Lock()
)  # while a decoder runs: threads share a module that gets a seed's weights


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Everything that a decoder to be used is, but for its weights."""

    attention: str
    head: str
    recipe: dict[str, Any]  # that it was trained by
    layers: tuple[
        int, ...
    ]  # places of the layers that it reads, of those that a row has, from 0
    seeds: tuple[int, ...]  # those whose decoders are here
    key: str  # of the run: mechanism, recipe and cache
    gaam: str  # the version that made this
    plan: Plan  # of the cache that it learned from

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """What ``to_dict`` gives; TypeError or ValueError where it is something else."""
        tuples = {name: tuple(value[name]) for name in ("layers", "seeds")}
        return cls(**value | tuples | {"plan": Plan.from_dict(value["plan"])})

    def to_dict(self) -> dict[str, Any]:
        """JSON values; they name no path."""
        return vars(self) | {"plan": self.plan.portable().to_dict()}

    @property
    def dtype(self) -> str:
        """Of matrix products, as the run was evaluated."""
        same = self.recipe.get("eval_dtype") != "float32"
        return str(self.recipe.get("dtype", "float32")) if same else "float32"


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """Classes of rows, and how sure the decoders of all seeds are of them."""

    probabilities_NC: NDArray[np.float64]  # mean over the seeds, (N, C)
    agreement_N: NDArray[
        np.float64
    ]  # share of the seeds that by themselves say the same, (N,)
    class_names: tuple[str, ...]

    @classmethod
    def of(
        cls,
        logits_SNC: NDArray[np.float32],
        class_names: Sequence[str],
        *,
        temperatures: Sequence[float] = (),
    ) -> Self:
        """``p = 1/S sum_s softmax(logits_s / T_s)``; the class is the first ``argmax p``."""
        z_SNC = logits_SNC.astype(np.float64)
        z_SNC -= z_SNC.max(-1, keepdims=True)
        if temperatures:
            z_SNC /= np.array(temperatures)[:, None, None]
        exp_SNC = np.exp(z_SNC)
        mean_NC = (exp_SNC / exp_SNC.sum(-1, keepdims=True)).mean(0)
        same_SN = CLASSIFICATION.hits(
            CLASSIFICATION.predictions(logits_SNC), CLASSIFICATION.predictions(mean_NC)
        )
        names = tuple(class_names)
        return cls(
            probabilities_NC=mean_NC, agreement_N=same_SN.mean(0), class_names=names
        )

    def __len__(self) -> int:
        return len(self.agreement_N)

    @property
    def labels(self) -> list[str]:
        predicted_N = CLASSIFICATION.predictions(self.probabilities_NC)
        return [self.class_names[number] for number in predicted_N.tolist()]

    def rows(self, top: int = 1) -> list[dict[str, Any]]:
        """Of every row what ``result_names`` says."""
        order_NK = np.argsort(-self.probabilities_NC, axis=-1, kind="stable")[:, :top]
        p_NK = np.take_along_axis(self.probabilities_NC, order_NK, -1).astype(object)
        pairs = np.stack([np.array(self.class_names, object)[order_NK], p_NK], -1)
        values = np.insert(pairs.reshape(len(self), -1), 2, self.agreement_N, axis=1)
        return [
            dict(zip(result_names(top), row, strict=True)) for row in values.tolist()
        ]


def result_names(top: int) -> list[str]:
    """predicted, probability, agreement, predicted_2, probability_2, ... up to ``top``."""
    more = [
        f"{name}_{k}"
        for k in range(2, top + 1)
        for name in ("predicted", "probability")
    ]
    return ["predicted", "probability", "agreement", *more]


class Predictor:
    """``logits_s = head_s(attention_s(x))`` of decoders s, and the encoder that makes x of rows.

    The encoder is opened when it is needed: states need none. Several threads may use one, as those
    of a server do: they take turns.

    Attributes:
        class_names: in the order of the columns of probabilities.
        seeds: whose decoders are averaged.
        temperatures: by which the logits of each are divided; empty: by none.
        fingerprint: of the cache that they learned from.
        plan: of that cache, by which rows are encoded; None where others made the states.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: Mapping[str, Tensor],
        *,
        temperatures: Sequence[float] = (),
        dtype: str | None = None,
        device: str = "auto",
        **opens: Any,
    ) -> None:
        """Use ``gaam_decoder.load``."""
        plan = config.plan
        self.class_names, self.fingerprint = plan.class_names, plan.fingerprint
        self.seeds, self.temperatures = config.seeds, tuple(temperatures)
        self.pooling: str = config.recipe["pool"]
        self.plan = None if plan.imported else plan
        self._config, self._lower = config, LOWER.get(dtype or config.dtype)
        self._opens = {"device": device, **opens}
        self._opened: RowEncoder | None = None
        self._opening, self._device = threading.Lock(), devices.resolve_device(device)
        spec = DecoderSpec(
            attention=parse_attention(config.attention),
            head=parse_head(config.head),
            num_layers=len(config.layers),
            hidden_size=plan.hidden_size,
            num_classes=len(plan.class_names),
        )
        with LOADING_LOCK:
            self._decoder = build_decoder(spec, seed=0).eval().to(self._device)
        own = self._decoder.state_dict()  # without buffers that are no part of it
        shapes = {(name, len(self.seeds), *one.shape) for name, one in own.items()}
        if shapes != {(name, *one.shape) for name, one in weights.items()}:
            raise CacheError(
                f"the weights are not those of {spec.attention} + {spec.head}"
            )
        if self._decoder.attention.depends_on_batch:
            raise ConfigError(
                f"'{spec.attention}' predicts a row by the rows beside it"
            )
        self._stacked = {name: weights[name].to(one) for name, one in own.items()}

    def predict(self, rows: Sequence[Any]) -> list[str]:
        """The name of the most probable class of every row; see ``predictions``."""
        return self.predictions(rows).labels

    def predict_proba(self, rows: Sequence[Any]) -> NDArray[np.float64]:
        """Probabilities of all classes of every row, (N, C); see ``predictions``."""
        return self.predictions(rows).probabilities_NC

    def predictions(
        self, rows: Sequence[Any], *, origin: str = "the rows"
    ) -> Predictions:
        """Encode N rows as those of the cache, and predict their classes.

        Rows are texts; or sounds and pictures, each a path, the bytes of a file, a picture of
        Pillow, or ``(samples, rate)`` with samples (T,) or, of several channels, (T, C).

        Messages say that they are from ``origin``.

        Raises:
            ConfigError: another encoder than that of the run.
            DataError: rows that cannot be used, such as empty ones.
        """
        if isinstance(rows, str):
            raise ConfigError(
                "rows are a list", expected="[text, ...]", found="one string"
            )
        chunks = (rows[at : at + CHUNK_ROWS] for at in range(0, len(rows), CHUNK_ROWS))
        return self._predictions(self._encoded(chunks, origin), origin)

    def stream(
        self, chunks: Iterable[Sequence[str] | LocatedRows], *, origin: str = "the rows"
    ) -> Iterator[Predictions]:
        """The same of chunk after chunk of some 2,048 rows; the next is read ahead."""
        return (
            self._predictions([x_NLD], origin)
            for x_NLD in self._encoded(chunks, origin)
        )

    def predict_states(self, states: Any) -> Predictions:
        """Predict from states, such as ``cache["test"].embeddings``, which are read by slices.

        Shape:
            (N, L, D), floating-point: all layers of the cache, of the run's pooling.
        """
        if isinstance(states, torch.Tensor):
            states = states.detach().float().cpu()
        states = states if hasattr(states, "shape") else np.asarray(states)
        shape = self._config.plan.num_layers, self._config.plan.hidden_size
        if len(states.shape) != 3 or tuple(states.shape[1:]) != shape:
            expected = f"(rows, {shape[0]}, {shape[1]}): all layers of the cache"
            raise DataError(
                "states of another shape", expected=expected, found=str(states.shape)
            )

        def chunks() -> Iterator[NDArray[Any]]:
            for first in range(0, len(states), CHUNK_ROWS):
                part_NLD = np.asarray(states[first : first + CHUNK_ROWS])
                if part_NLD.dtype.kind != "f":
                    raise DataError(
                        f"states are {part_NLD.dtype}, no floating-point numbers"
                    )
                part_NLD = part_NLD.astype(np.float32, copy=False)
                if not (finite_N := np.isfinite(part_NLD).all((1, 2))).all():
                    where = f"row {first + int(finite_N.argmin()) + 1}"
                    raise DataError("a state is not finite in float32", where=where)
                yield part_NLD

        return self._predictions(chunks(), "the states")

    def _encoded(
        self, chunks: Iterable[Sequence[str] | LocatedRows], origin: str
    ) -> Iterator[NDArray[np.float32]]:
        from gaam_cache.extraction.rows import RowEncoder

        with self._opening:
            if self._opened is None:
                self._opened = RowEncoder.open(self._config.plan, **self._opens)
        return self._opened.stream(chunks, pooling=self.pooling, origin=origin)

    @torch.inference_mode()
    def _predictions(self, chunks: Iterable[NDArray[Any]], origin: str) -> Predictions:
        parts = [np.empty((len(self.seeds), 0, len(self.class_names)), np.float32)]
        for states_NLD in chunks:
            own_NLD = states_NLD[:, list(self._config.layers)]
            x_NLD = torch.from_numpy(np.ascontiguousarray(own_NLD, np.float32))
            numbers = max(1, x_NLD[:1].numel() * len(self.seeds))
            most = CPU_BATCH_SIZE if self._device.type == "cpu" else EVAL_BATCH_SIZE
            size = min(most, rows_at_once(self._device.type, numbers))
            parts += [
                self._logits(x.to(self._device)).cpu().numpy()
                for x in x_NLD.split(size)
            ]
        logits_SNC = np.concatenate(parts, axis=1)
        if not np.isfinite(logits_SNC).all():
            raise NumericsError("the logits of a row are not finite", where=origin)
        return Predictions.of(
            logits_SNC, self.class_names, temperatures=self.temperatures
        )

    def _logits(self, x_BLD: Tensor) -> Tensor:
        """(S, B, C), float32, as the training evaluates them."""

        def logits_of(one: dict[str, Tensor]) -> Tensor:
            with torch.autocast(
                self._device.type, self._lower, enabled=self._lower is not None
            ):
                logits_BC: Tensor = functional_call(self._decoder, one, (x_BLD,))
            return logits_BC.float()

        # on a CPU one after the other: stacked convolutions take four times as long; products of
        # fewer bits would be rounded elsewhere than in the training, which stacks them
        apart = self._device.type == "cpu" and self._lower is None
        stackable = self._decoder.attention.stackable and self._decoder.head.stackable
        with _TURN:
            if len(self.seeds) > 1 and stackable and not apart:
                return vmap(logits_of)(self._stacked)
            each = (
                {n: of[at] for n, of in self._stacked.items()}
                for at in range(len(self.seeds))
            )
            return torch.stack(list(map(logits_of, each)))
