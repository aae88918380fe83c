"""The positive control: a cache whose labels depend on the states through a known gate.

A teacher reads the states as a mechanism of ``attention/`` does, with parameters that are known;
a random linear head and a softmax say how probable every class is; labels are drawn from that. A
decoder of the same mechanism with a linear head can express the teacher exactly.

N rows, L layers, D hidden size, C classes, F = L * D features behind the gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.errors import ConfigError
from gaam_cache.messages import visible
from gaam_cache.store.digest import short_digest
from gaam_cache.store.files import check_folder
from gaam_cache.store.importing import write
from gaam_cache.store.plan import GAUSSIAN, PLAN_FILE, SHARD_FOLDER, Planted
from gaam_decoder.attention._base import Attention
from gaam_decoder.plant_config import GATES, LAYERS, LEAST_LAYERS, ROWS, WIDTH, PlantConfig
from gaam_decoder.specs import Spec, build

Progress = Callable[[int, int, str], None]
Floats = NDArray[np.float64]
SPLITS = ("train", "test")
SHOWN = 0.05
"""Smallest difference in points that a digit shows."""
BLOCK_ROWS = 512
"""Rows that are in memory at once; of Gaussian states each such block has a seed of its own."""
MEAN = 3.0
"""Distance of the mean of every feature of Gaussian states from 0, in standard deviations. Real
states have such means; a gate multiplies them, which no linear decoder of the states can follow:
without (mean 0) a linear map sees 37 to 74% of the variance that gates let
through, with it 2 to 19%."""
STATES, CHOICE, HEAD, LABELS = 1, 2, 3, 4
"""Random streams of a seed."""
ROUNDING = 1e-12
"""Spread of a feature beside its mean that is none: float64 rounds at 1e-16, states are stored in
float32 at the finest, 6e-8 apart."""
MOST_FITTED = 2**27
"""Of the rows that are fitted: 1 GB."""
ROWS_PER_FEATURE = 2
"""With fewer rows a linear map of them says what they are, and nothing of others."""
PENALTY = 1e-6
"""Beside the mean loss: enough for one optimum, and too little to be seen in an accuracy."""
ITERATIONS = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class PlantSummary:
    """What was planted. Accuracies are fractions of the test rows."""

    path: str
    fingerprint: str
    gate: str
    mechanism: str
    """The one that can express the gate exactly, with one head and a linear head."""
    strength: float
    num_layers: int
    hidden_size: int
    storage_dtype: str
    rows: dict[str, int]
    teacher_accuracy: float
    """What is to be expected of the teacher, and the most that any decoder can expect."""
    teacher_accuracy_drawn: float
    """Of the teacher, on the labels that were drawn."""
    linear_accuracy: float | None
    """To be expected of the best linear decoder of the states; None where it is not known."""

    @property
    def attn(self) -> str:
        """What can express it, as ``--attn`` takes it."""
        return GATES[self.gate].attn

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """Lines for people."""
        rows = ", ".join(f"{name} {count:,}" for name, count in self.rows.items())
        linear = "a linear decoder of the states: not known, they have too many features"
        if self.linear_accuracy is not None:
            gap = 100 * (self.teacher_accuracy - self.linear_accuracy)
            gap = 0.0 if abs(gap) < SHOWN else gap
            linear = (
                f"the best linear decoder of the states {100 * self.linear_accuracy:.1f}%: "
                f"strength {self.strength:g} is {gap:.1f} points here"
            )
        return "\n".join(
            [
                f"the cache in '{visible(self.path)}' is complete",
                f"  gate         {self.gate}: {GATES[self.gate].formula}; "
                f"--attn {self.attn} can express it",
                f"  states       {self.num_layers} layers x {self.hidden_size}, "
                f"stored as {self.storage_dtype}",
                f"  rows         {rows}",
                f"  accuracy     teacher {100 * self.teacher_accuracy:.1f}% expected, "
                f"{100 * self.teacher_accuracy_drawn:.1f}% on the labels that were drawn;",
                f"               {linear}",
                f"  fingerprint  {short_digest(self.fingerprint)}",
            ]
        )


def plant(config: PlantConfig, *, progress: Progress | None = None) -> PlantSummary:
    """Make a cache whose labels depend on the states through a known gate, or complete one.

    Everything is decided by the configuration; every number is computed from the states as the
    cache stores them. At most some hundred rows of states are in memory, but for the rows to which
    a linear decoder is fitted (1 GB at most).

    Args:
        config: what to plant, in what, and where to.
        progress: called with (rows done, rows in all, what is going on).

    Raises:
        ConfigError: more rows than the given cache has, or the folder holds something else.
        NotFoundError: no cache where one was given.
        CacheError: the given cache is incomplete or damaged.
        NumericsError: a state of the given cache that cannot be stored in the type asked for.
        StorageError: the file system refused.
    """
    check_folder(config.out, option="OUT")
    _check_folder(config.out)
    source = open_cache(config.from_cache) if config.from_cache is not None else None
    states = states_of(config, source)
    train, test = states
    if train.shape[1] < LEAST_LAYERS and config.gate != "none":
        raise ConfigError(
            f"the gate '{config.gate}' standardises over layers, and of two every value is 1 or -1",
            expected=f"states of {LEAST_LAYERS} layers or more, or --gate none",
            found=f"{train.shape[1]}",
        )
    p, label = planted_labels(config, states)
    linear = linear_accuracy(train, p[0], test, p[1])
    expected = float(p[1].max(1).mean())
    drawn = float((p[1].argmax(1) == label[1]).mean())
    about = GATES[config.gate]
    figures = {"teacher_accuracy": f"{expected:.4f}", "teacher_accuracy_drawn": f"{drawn:.4f}"}
    if linear is not None:
        figures["linear_accuracy"] = f"{linear:.4f}"
    made = write(
        config.out,
        {
            name: (of_split, label_N)
            for name, of_split, label_N in zip(SPLITS, states, label, strict=True)
        },
        class_names=[str(number) for number in range(config.classes)],
        storage_dtype=config.storage_dtype or (_stored(source) if source else "float32"),
        axes="nld",
        encoder_name=f"states of {source.plan.encoder_label}" if source else "Gaussian states",
        dataset_name=f"planted {config.gate} strength {config.strength:g} seed {config.seed}",
        pool=source.plan.pooling[0] if source else GAUSSIAN,
        planted=Planted(parameters=recorded(config, source), figures=figures),
        progress=progress,
    )
    return PlantSummary(
        path=made.path,
        fingerprint=made.fingerprint,
        gate=config.gate,
        mechanism=about.mechanism,
        strength=config.strength,
        num_layers=made.num_layers,
        hidden_size=made.hidden_size,
        storage_dtype=made.storage_dtype,
        rows=dict(made.rows),
        teacher_accuracy=expected,
        teacher_accuracy_drawn=drawn,
        linear_accuracy=linear,
    )


def recorded(config: PlantConfig, source: EmbeddingCache | None) -> dict[str, Any]:
    """All that decides the labels, as the plan of the cache says it; see FORMAT.md."""
    about = GATES[config.gate]
    return {
        "gate": config.gate,
        "mechanism": about.mechanism,
        "parameters": {name: _exact(value) for name, value in about.parameters.items()},
        "strength": _exact(config.strength),
        "seed": config.seed,
        "states": GAUSSIAN if source is None else source.fingerprint,
    }


def _exact(value: float) -> str:
    """The shortest text that is that number again."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def planted_labels(
    config: PlantConfig, states: Sequence[States]
) -> tuple[list[Floats], list[NDArray[np.int64]]]:
    """Probabilities that the teacher gives every row of every split, (N, C), and labels, (N,).

    Raises:
        ConfigError: the rows to learn from are all the same behind the gate.
    """
    teacher = make_teacher(
        config.gate, states[0], classes=config.classes, strength=config.strength, seed=config.seed
    )
    p = [teacher.probabilities(of_split) for of_split in states]
    return p, [draw_labels(p_NC, config.seed, split) for split, p_NC in enumerate(p)]


def _check_folder(out: Path) -> None:
    """Refuse what is there and is no cache; another cache is refused where its plan is compared."""
    folder = out.expanduser()
    others = folder.exists() and not folder.is_dir()
    if folder.is_dir():
        # a process that is about to write the plan, or was killed then, leaves no more than these
        found = (path for path in folder.rglob("*") if path != folder / SHARD_FOLDER)
        others = not all(fnmatch(path.name, ".*.tmp") for path in found)
    if others and not (folder / PLAN_FILE).exists():
        raise ConfigError(
            f"'{out}' is there already, and is no cache",
            expected="a new folder, or one that this command began",
            where=str(folder.absolute()),
        )


def states_of(config: PlantConfig, source: EmbeddingCache | None) -> list[States]:
    """Of every split, drawn or taken from a cache."""
    return _given_states(config, source) if source else _gaussian_states(config)


def _sizes(rows: int) -> tuple[int, int]:
    return rows - rows // 3, rows // 3


def _gaussian_states(config: PlantConfig) -> list[States]:
    sizes = _sizes(config.rows or ROWS)
    shape = (config.layers or LAYERS, config.width or WIDTH)
    dtype = config.storage_dtype or "float32"
    return [
        GaussianStates((count, *shape), config.seed, first, dtype)
        for count, first in zip(sizes, (0, sizes[0]), strict=True)
    ]


def _stored(cache: EmbeddingCache) -> Any:
    return cache.plan.storage_dtype


def _given_states(config: PlantConfig, cache: EmbeddingCache) -> list[States]:
    there = sum(len(cache[name]) for name in cache)
    rows = config.rows or there
    if rows > there:
        raise ConfigError(
            "the cache has fewer rows than --rows",
            expected=f"--rows of at most {there:,}",
            found=f"--rows {rows:,}",
            where=str(cache.root.absolute()),
        )
    config.check_rows(rows)
    dtype = config.storage_dtype or str(next(iter(cache.values())).embeddings.dtype)
    chosen = chosen_rows(there, _sizes(rows), config.seed)
    return [CachedStates(cache, np.asarray(row_N), dtype) for row_N in chosen]


class States:
    """What can be sliced by rows, (N, L, D); as the cache will store it."""

    shape: tuple[int, int, int]
    dtype: np.dtype[np.generic]

    def __len__(self) -> int:
        """Number of rows."""
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[np.generic]:
        """Of a range of rows."""
        raise NotImplementedError

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """All rows in parts, and which they are."""
        for start in range(0, len(self), BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, len(self)))
            yield rows, self[rows].astype(np.float64)


class GaussianStates(States):
    """``x = mean + z``: z independent and standard normal, the mean 3 or -3, one of each feature.

    Args:
        shape: (N, L, D).
        seed: decides the numbers.
        first: number of the first row, so that splits of one seed do not share rows.
        dtype: float32 or float16.
    """

    def __init__(self, shape: tuple[int, int, int], seed: int, first: int, dtype: str) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self._seed, self._first = seed, first
        signs_D = np.random.default_rng([seed, STATES]).integers(0, 2, shape[2])
        self._mean_D = (MEAN * (2.0 * signs_D - 1)).astype(np.float32)

    def _block(self, block: int) -> NDArray[np.float32]:
        generator = np.random.default_rng([self._seed, STATES, block])
        shape = (BLOCK_ROWS, *self.shape[1:])
        return generator.standard_normal(shape, dtype=np.float32) + self._mean_D

    def __getitem__(self, rows: slice) -> NDArray[np.generic]:
        start, stop, _ = rows.indices(len(self))
        start, stop = start + self._first, stop + self._first
        parts = [np.empty((0, *self.shape[1:]), np.float32)]
        for block in range(start // BLOCK_ROWS, -(-stop // BLOCK_ROWS)):
            before = block * BLOCK_ROWS
            parts.append(self._block(block)[max(0, start - before) : stop - before])
        return np.concatenate(parts).astype(self.dtype)


class CachedStates(States):
    """Chosen rows of a cache, of its first pooling.

    Args:
        cache: whose states.
        row_N: which rows, counted over all its splits in order, ascending.
        dtype: float32 or float16.
    """

    def __init__(self, cache: EmbeddingCache, row_N: NDArray[np.int64], dtype: str) -> None:
        self.shape = (len(row_N), cache.num_layers, cache.hidden_size)
        self.dtype = np.dtype(dtype)
        self._cache, self._row_N = cache, row_N
        self._ends = np.cumsum([len(cache[name]) for name in cache])

    def __getitem__(self, rows: slice) -> NDArray[np.generic]:
        wanted_N = self._row_N[rows]
        split_N = np.searchsorted(self._ends, wanted_N, side="right")
        parts = [np.empty((0, *self.shape[1:]), self.dtype)]
        for place, name in enumerate(self._cache):
            of_split_N = wanted_N[split_N == place]
            if len(of_split_N):
                first = int(self._ends[place]) - len(self._cache[name])
                states_NLD = self._cache[name].embeddings[of_split_N - first]
                with np.errstate(over="ignore"):  # what overflows is refused where it is stored
                    parts.append(states_NLD.astype(self.dtype))
        return np.concatenate(parts)


def chosen_rows(there: int, wanted: Sequence[int], seed: int) -> list[NDArray[np.int64]]:
    """Rows for every split, by chance and none twice, each in ascending order.

    Args:
        there: number of rows to choose from.
        wanted: number of rows of every split.
        seed: decides which.
    """
    order_N = np.random.default_rng([seed, CHOICE]).permutation(there)
    ends = np.cumsum(wanted)
    return [np.sort(order_N[end - n : end]) for end, n in zip(ends, wanted, strict=True)]


def planted_mechanism(gate: str, num_layers: int, hidden_size: int) -> Attention:
    """The mechanism of a gate with one head and the planted parameters, in float64.

    Args:
        gate: a key of ``GATES``.
        num_layers: L.
        hidden_size: D.
    """
    about = GATES[gate]
    options = (("heads", 1),) if about.parameters else ()
    module: Attention = build(
        Spec(about.mechanism, options), "mechanism", num_layers, hidden_size
    ).double()
    with torch.no_grad():
        for name, value in about.parameters.items():
            module.get_parameter(name).fill_(value)
    return module


@dataclass(frozen=True, kw_only=True, slots=True)
class Teacher:
    """``p(c | x) = softmax(strength * (W vec(attention(x)) - mean) / spread)_c``.

    W is drawn once: normal numbers divided by the standard deviation of their feature over the
    training rows, so that every feature counts alike, whatever its scale. The mean of every class
    and the spread of all logits are those of the training rows too, so that classes are about
    equally frequent and ``strength`` means the same for all states. All of that is a linear head.

    Where no gate is planted all layers share one W: the mean over the layers decides.
    """

    attention: Attention
    weight_CF: Floats  # noqa: N815 a shape suffix
    bias_C: Floats  # noqa: N815

    def logits(self, x_NLD: Floats) -> Floats:
        """(N, L, D) -> (N, C)."""
        return _behind(self.attention, x_NLD) @ self.weight_CF.T + self.bias_C

    def probabilities(self, states: States) -> Floats:
        """Of every row, (N, C)."""
        found: Floats = softmax(np.concatenate([self.logits(x) for _, x in states.blocks()]), 1)
        return found


def _behind(attention: Attention, x_NLD: Floats) -> Floats:
    """What the head reads, (N, F)."""
    with torch.inference_mode():
        y_NLD: Floats = attention(torch.from_numpy(x_NLD)).numpy()
    return y_NLD.reshape(len(y_NLD), -1)


def make_teacher(gate: str, train: States, *, classes: int, strength: float, seed: int) -> Teacher:
    """Draw a teacher.

    Args:
        gate: a key of ``GATES``.
        train: the training rows.
        classes: C.
        strength: standard deviation of the logits over rows and classes.
        seed: decides the head.

    Raises:
        ConfigError: the training rows are all the same behind the gate.
    """
    _, num_layers, hidden_size = train.shape
    attention = planted_mechanism(gate, num_layers, hidden_size)
    shared = not GATES[gate].parameters
    mean_F, spread_F = _moments(attention, train, shared)
    differs_F = spread_F > ROUNDING * np.abs(mean_F)
    if not differs_F.any():
        raise ConfigError(
            "no teacher can tell the rows apart, and labels would be drawn at chance",
            expected="states that differ from row to row",
            found=f"{len(train):,} rows to learn from that are all the same behind the gate "
            f"'{gate}', in each of {len(mean_F):,} features",
            hint="take a cache of other states, or leave out --from",
        )
    generator = np.random.default_rng([seed, HEAD])
    weight_CF = generator.standard_normal((classes, len(mean_F)))
    weight_CF = np.divide(weight_CF, spread_F, out=np.zeros_like(weight_CF), where=differs_F)
    if shared:
        weight_CF, mean_F = np.tile(weight_CF / num_layers, num_layers), np.tile(mean_F, num_layers)
    centred = Teacher(attention=attention, weight_CF=weight_CF, bias_C=-(weight_CF @ mean_F))
    square = sum(float(np.square(centred.logits(x)).sum()) for _, x in train.blocks())
    factor = strength / max((square / (len(train) * classes)) ** 0.5, 1e-300)
    return Teacher(
        attention=attention, weight_CF=factor * weight_CF, bias_C=factor * centred.bias_C
    )


def _moments(attention: Attention, train: States, shared: bool) -> tuple[Floats, Floats]:
    """Mean and standard deviation of what is weighted, (F,), or (D,) of means over the layers."""

    def read(x_NLD: Floats) -> Floats:
        return x_NLD.mean(1) if shared else _behind(attention, x_NLD)

    first_F = read(next(train.blocks())[1])[0]  # what is subtracted first keeps digits
    total_F, square_F = np.zeros_like(first_F), np.zeros_like(first_F)
    for _, x_NLD in train.blocks():
        moved_NF = read(x_NLD) - first_F
        total_F += moved_NF.sum(0)
        square_F += np.square(moved_NF).sum(0)
    mean_F = total_F / len(train)
    return first_F + mean_F, np.sqrt(np.maximum(square_F / len(train) - mean_F**2, 0))


def draw_labels(p_NC: Floats, seed: int, split: int) -> NDArray[np.int64]:
    """One class of every row, as probable as it says.

    Args:
        p_NC: probabilities.
        seed: decides the draws.
        split: number of the split, each of which has draws of its own.
    """
    u_N1 = np.random.default_rng([seed, LABELS, split]).random((len(p_NC), 1))
    label_N: NDArray[np.int64] = (u_N1 >= np.cumsum(p_NC, 1)).sum(1)
    return np.minimum(label_N, p_NC.shape[1] - 1)


def linear_accuracy(
    train: States, p_train_NC: Floats, test: States, p_test_NC: Floats
) -> float | None:
    """Accuracy to expect on the test rows of the best linear decoder of the states.

    It is fitted by L-BFGS to the teacher's own probabilities of the training rows, which no draw
    of a label disturbs, so that no decoder ``none + linear`` that sees labels does better but by
    chance. None where rows are too few for that, or too many for the memory.
    """
    count, features = len(train), train.shape[1] * train.shape[2]
    if count < ROWS_PER_FEATURE * features or count * features > MOST_FITTED:
        return None
    z_NF = np.concatenate([x.reshape(len(x), -1) for _, x in train.blocks()])
    mean_F, spread_F = z_NF.mean(0), z_NF.std(0)
    scale_F = np.divide(1.0, spread_F, out=np.zeros_like(spread_F), where=spread_F > 0)
    z_NF -= mean_F
    z_NF *= scale_F
    classes = p_train_NC.shape[1]

    def loss(flat: Floats) -> tuple[float, Floats]:
        weight_CF1 = flat.reshape(classes, features + 1)
        log_p_NC = log_softmax(z_NF @ weight_CF1[:, :-1].T + weight_CF1[:, -1], 1)
        wrong_NC = (np.exp(log_p_NC) - p_train_NC) / count
        slope_CF1 = np.concatenate([wrong_NC.T @ z_NF, wrong_NC.sum(0)[:, None]], 1)
        value = -(p_train_NC * log_p_NC).sum() / count + PENALTY / 2 * float(flat @ flat)
        return value, (slope_CF1 + PENALTY * weight_CF1).ravel()

    start = np.zeros(classes * (features + 1))
    options = {"maxiter": ITERATIONS}
    found = minimize(loss, start, method="L-BFGS-B", jac=True, options=options).x
    weight_CF1 = found.reshape(classes, features + 1)
    right = 0.0
    for rows, x_NLD in test.blocks():
        z_BF = (x_NLD.reshape(len(x_NLD), -1) - mean_F) * scale_F
        chosen_B = (z_BF @ weight_CF1[:, :-1].T + weight_CF1[:, -1]).argmax(1)
        right += float(np.take_along_axis(p_test_NC[rows], chosen_B[:, None], 1).sum())
    return right / len(test)
