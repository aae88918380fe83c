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
from torch import Tensor, nn
from torch.func import functional_call, vmap

from gaam_cache import devices
from gaam_cache.encode import OPENING
from gaam_cache.errors import CacheError, ConfigError, DataError, NumericsError
from gaam_cache.store.plan import Plan
from gaam_decoder.decoder import DecoderSpec, build_decoder
from gaam_decoder.specs import parse_attention, parse_head
from gaam_decoder.training.arithmetic.engine import LOWER
from gaam_decoder.training.memory import EVAL_BATCH_SIZE, rows_at_once

if TYPE_CHECKING:
    from gaam_cache.encode import Placed, RowEncoder

CHUNK_ROWS = 2048
"""Rows that are encoded together, as many as a shard of a cache has at most."""
CPU_BATCH_SIZE = 16
"""Rows of a batch of the decoders on a CPU. Measured on one core with states of 6 x 384: with the
head conv a row takes half as long as in batches of 32 and more, and as long with linear."""
_TURN = threading.Lock()
"""Held while a decoder runs: the weights of a seed are put into a module that threads share."""


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Everything that an exported decoder is, but for its weights. JSON values."""

    attention: str
    """Mechanism, such as ``laplace:heads=4``."""
    head: str
    layers: tuple[int, ...]
    """Places of the layers that it reads, of those that a row has, from 0."""
    num_layers: int
    """Layers that a row has."""
    hidden_size: int
    pooling: str
    class_names: tuple[str, ...]
    seeds: tuple[int, ...]
    """Those whose decoders are here."""
    dtype: str
    """Arithmetic of the matrix products, as the run was evaluated."""
    plugins: dict[str, str]
    """Parts of other packages, and their code."""
    fingerprint: str
    """Of the cache that it learned from."""
    key: str
    """Of the run: mechanism, recipe and cache."""
    plan: dict[str, Any]
    """Of that cache; names no path."""
    signature: dict[str, Any]
    """What repeats it: version of gaam, recipe, seeds."""

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """What ``asdict`` gives; TypeError or ValueError where it is something else."""
        tuples = {name: tuple(value[name]) for name in ("layers", "class_names", "seeds")}
        Plan.from_dict(value["plan"])
        return cls(**value | tuples)

    @property
    def spec(self) -> DecoderSpec:
        """What it takes to build one decoder."""
        return DecoderSpec(
            attention=parse_attention(self.attention),
            head=parse_head(self.head),
            num_layers=len(self.layers),
            hidden_size=self.hidden_size,
            num_classes=len(self.class_names),
        )


class Ensemble(nn.Module):
    """``logits_s = head_s(attention_s(x))`` for every seed s, evaluated and never trained.

    Names of the parameters are those of one decoder behind ``decoder.``, each with the seeds as
    its first axis.

    Shape:
        x (B, L, D) of the layers that the decoders learned from -> logits (S, B, C), float32.

    Args:
        spec: of the decoders.
        weights: of them, each (S, ...).
        dtype: of matrix products: float32, bfloat16 or float16.

    Raises:
        CacheError: weights of another decoder.
        ConfigError: decoders that have no answer for one row: they predict it by those beside it.
    """

    def __init__(
        self, spec: DecoderSpec, weights: Mapping[str, Tensor], *, dtype: str = "float32"
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.num_seeds = len(next(iter(weights.values()), ()))
        with OPENING:
            self.decoder = build_decoder(spec, seed=0)
        own = self.decoder.state_dict()  # without buffers that are no part of it
        expected = {(name, self.num_seeds, *one.shape) for name, one in own.items()}
        if other := expected ^ {(name, *one.shape) for name, one in weights.items()}:
            raise CacheError(
                "the weights are of another decoder",
                expected=f"those of {spec.attention} + {spec.head}, as this gaam has them",
                found=f"others of {', '.join(sorted({name for name, *_ in other})[:4])}",
                hint="an earlier gaam may have meant another one by that name: train it again",
            )
        if self.decoder.attention.depends_on_batch:
            raise ConfigError(
                f"'{spec.attention}' predicts a row by the rows beside it",
                expected="a mechanism that looks at one row at a time",
                hint="its test accuracy is that of batches as they were: gaam report",
            )
        for name, one in own.items():
            path, _, last = name.rpartition(".")
            owner, stacked = self.decoder.get_submodule(path), weights[name].to(one.dtype)
            if isinstance(getattr(owner, last), nn.Parameter):
                stacked = nn.Parameter(stacked, requires_grad=False)
            setattr(owner, last, stacked)
        self.eval()

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (S, B, C)."""
        with _TURN:
            x_BLD, stacked = x_BLD.float(), self.decoder.state_dict()
            # one after the other where nothing waits for launches: convolutions of stacked seeds
            # take four times as long on a CPU, and nothing there is faster for it; products of
            # fewer bits would be rounded elsewhere than in the training, which stacks them
            apart = x_BLD.device.type == "cpu" and self.dtype == "float32"
            stackable = self.decoder.attention.stackable and self.decoder.head.stackable
            if self.num_seeds > 1 and stackable and not apart:
                return vmap(lambda one: self._logits(one, x_BLD))(stacked)
            seeds = range(self.num_seeds)
            each = [{name: value[place] for name, value in stacked.items()} for place in seeds]
            return torch.stack([self._logits(one, x_BLD) for one in each])

    def _logits(self, one: dict[str, Tensor], x_BLD: Tensor) -> Tensor:
        """Of one seed, as its training evaluates it."""
        lower = LOWER.get(self.dtype)
        with torch.autocast(x_BLD.device.type, lower, enabled=lower is not None):
            logits_BC: Tensor = functional_call(self.decoder, one, (x_BLD,))
        return logits_BC.float()


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """Classes of rows, and how sure the decoders of all seeds are of them."""

    probabilities_NC: NDArray[np.float64]  # noqa: N815 a shape suffix
    """Mean over the seeds of each one's ``softmax(logits)``, (N, C); with temperatures of its
    ``softmax(logits / T)``."""
    agreement_N: NDArray[np.float64]  # noqa: N815
    """Share of the seeds that by themselves predict the same class, (N,)."""
    class_names: tuple[str, ...]

    @classmethod
    def of(
        cls,
        logits_SNC: NDArray[np.float32],
        class_names: Sequence[str],
        *,
        temperatures: Sequence[float] = (),
    ) -> Self:
        """Average the seeds.

        Formula: ``p = 1/S sum_s softmax(logits_s / T_s)``; the class is ``argmax p``, of equal ones
        the first.
        """
        z_SNC = logits_SNC.astype(np.float64)
        z_SNC -= z_SNC.max(-1, keepdims=True)
        if temperatures:
            with np.errstate(over="ignore"):  # what is beyond float64 has a probability of 0
                z_SNC /= np.array(temperatures)[:, None, None]
        exp_SNC = np.exp(z_SNC)
        mean_NC = (exp_SNC / exp_SNC.sum(-1, keepdims=True)).mean(0)
        same_SN = logits_SNC.argmax(-1) == mean_NC.argmax(-1)
        return cls(
            probabilities_NC=mean_NC, agreement_N=same_SN.mean(0), class_names=tuple(class_names)
        )

    @classmethod
    def joined(cls, parts: Iterable[Self], class_names: Sequence[str]) -> Self:
        """Rows of several, one behind the other."""
        found = [cls.of(np.empty((1, 0, len(class_names)), np.float32), class_names), *parts]
        return cls(
            probabilities_NC=np.concatenate([part.probabilities_NC for part in found]),
            agreement_N=np.concatenate([part.agreement_N for part in found]),
            class_names=tuple(class_names),
        )

    def __len__(self) -> int:
        """N."""
        return len(self.agreement_N)

    @property
    def labels(self) -> list[str]:
        """Name of the most probable class of every row."""
        return [self.class_names[number] for number in self.probabilities_NC.argmax(-1).tolist()]

    def rows(self, top: int = 1) -> list[dict[str, Any]]:
        """Of every row what ``result_names`` says."""
        order_NK = np.argsort(-self.probabilities_NC, axis=-1, kind="stable")[:, :top]
        p_NK = np.take_along_axis(self.probabilities_NC, order_NK, -1).astype(object)
        pairs = np.stack([np.array(self.class_names, object)[order_NK], p_NK], -1)
        values = np.insert(pairs.reshape(len(self), -1), 2, self.agreement_N, axis=1)
        return [dict(zip(result_names(top), row, strict=True)) for row in values.tolist()]


def result_names(top: int) -> list[str]:
    """predicted, probability, agreement, predicted_2, probability_2, ... up to ``top``."""
    more = [f"{name}_{k}" for k in range(2, top + 1) for name in ("predicted", "probability")]
    return ["predicted", "probability", "agreement", *more]


class Predictor:
    """Decoders of a run, and the encoder that its rows were encoded by.

    The encoder is looked for when the first rows are to be encoded; states need none. Several
    threads may use one, as those of a server do: they take turns.

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
        ensemble: Ensemble,
        plan: Plan,
        *,
        temperatures: Sequence[float] = (),
        device: str = "auto",
        **opens: Any,
    ) -> None:
        """Use ``gaam_decoder.load``."""
        self.class_names = config.class_names
        self.seeds = config.seeds
        self.temperatures = tuple(temperatures)
        self.pooling = config.pooling
        self.fingerprint = config.fingerprint
        self.plan = None if plan.imported else plan
        self._device = devices.resolve_device(device)
        self._ensemble = ensemble.to(self._device)
        self._layers = list(config.layers)
        self._shape = config.num_layers, config.hidden_size
        self._plan, self._opens = plan, {"device": device, **opens}
        self._opened: RowEncoder | None = None
        self._opening = threading.Lock()

    def predict(self, rows: Sequence[str]) -> list[str]:
        """The name of the most probable class of every row; see ``predictions``."""
        return self.predictions(rows).labels

    def predict_proba(self, rows: Sequence[str]) -> NDArray[np.float64]:
        """Probabilities of all classes of every row, (N, C); see ``predictions``."""
        return self.predictions(rows).probabilities_NC

    def predictions(self, rows: Sequence[str], *, origin: str = "the rows") -> Predictions:
        """Encode rows as those of the cache were, and predict their classes.

        Args:
            rows: N texts, or paths of N sounds or pictures.
            origin: what to call where they are from, in messages.

        Raises:
            ConfigError: another encoder than that of the run.
            DataError: rows that cannot be used, such as empty ones.
        """
        if isinstance(rows, str):
            raise ConfigError("rows are a list", expected="[text, ...]", found="one string")
        chunks = (rows[at : at + CHUNK_ROWS] for at in range(0, len(rows), CHUNK_ROWS))
        return Predictions.joined(self.stream(chunks, origin=origin), self.class_names)

    def stream(
        self, chunks: Iterable[Sequence[str] | Placed], *, origin: str = "the rows"
    ) -> Iterator[Predictions]:
        """The same of chunk after chunk; the next one is made ready while one is encoded.

        What a chunk gives depends on nothing but its rows.

        Args:
            chunks: of some 2,048 rows each; in smaller ones more positions are padding.
            origin: what to call where the rows are from, in messages.
        """
        from gaam_cache.encode import RowEncoder

        with self._opening:
            if self._opened is None:
                self._opened = RowEncoder.open(self._plan, **self._opens)
        first = 0
        for states_NLD in self._opened.stream(chunks, pooling=self.pooling, origin=origin):
            yield self._predicted(states_NLD, origin, first)
            first += len(states_NLD)

    def predict_states(self, states: Any) -> Predictions:
        """Predict from states, such as ``cache["test"].embeddings``.

        Shape:
            (N, L, D): all layers of the cache, of the run's pooling.

        Args:
            states: anything with that shape that gives rows as floating-point arrays when it is
                sliced; a split of a cache need not fit into memory.
        """
        if isinstance(states, torch.Tensor):
            states = states.detach().float().cpu().numpy()
        elif not hasattr(states, "shape"):
            states = np.asarray(states)
        if len(states.shape) != 3 or tuple(states.shape[1:]) != self._shape:
            expected = f"(rows, {self._shape[0]}, {self._shape[1]}): all layers of the cache"
            raise DataError("states of another shape", expected=expected, found=str(states.shape))
        parts = []
        for first in range(0, len(states), CHUNK_ROWS):
            part_NLD = np.asarray(states[first : first + CHUNK_ROWS])
            if part_NLD.dtype.kind != "f":
                raise DataError("states are no floating-point numbers", found=str(part_NLD.dtype))
            with np.errstate(over="ignore"):  # what is too large is infinite, and said below
                part_NLD = part_NLD.astype(np.float32, copy=False)
            finite_N = np.isfinite(part_NLD).all((1, 2))
            if not finite_N.all():
                where = f"row {first + int(finite_N.argmin()) + 1}"
                raise DataError("a state is not finite in float32", where=where)
            parts.append(self._predicted(part_NLD, "the states", first))
        return Predictions.joined(parts, self.class_names)

    @torch.inference_mode()
    def _predicted(self, states_NLD: NDArray[Any], origin: str, first: int) -> Predictions:
        x_NLD = torch.from_numpy(np.ascontiguousarray(states_NLD[:, self._layers], np.float32))
        numbers = max(1, x_NLD[:1].numel() * len(self.seeds))
        most = CPU_BATCH_SIZE if self._device.type == "cpu" else EVAL_BATCH_SIZE
        size = min(most, rows_at_once(self._device.type, numbers))
        parts = [self._ensemble(x.to(self._device)).cpu().numpy() for x in x_NLD.split(size)]
        logits_SNC = np.concatenate(parts, axis=1)
        finite_N = np.isfinite(logits_SNC).all((0, 2))
        if not finite_N.all():
            where = f"{origin}, row {first + int(finite_N.argmin()) + 1}"
            raise NumericsError("the logits of a row are not finite", where=where)
        return Predictions.of(logits_SNC, self.class_names, temperatures=self.temperatures)
