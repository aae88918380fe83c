"""The positive control: a cache whose labels depend on the states through a known gate.

A teacher reads the states as a mechanism of ``attention/`` does, with parameters that are known;
a random linear head and a softmax say how probable every class is; labels are drawn from that. A
decoder of the same mechanism with a linear head can express the teacher exactly.

N rows, L layers, D hidden size, C classes, F = L * D features behind the gate.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import visible
from gaam_cache.common.paths import shown_path
from gaam_cache.importing.states import write
from gaam_cache.store.files import check_writable, short_digest
from gaam_cache.store.plan import GAUSSIAN
from gaam_cache.store.reader import EmbeddingCache, open_cache
from gaam_decoder.analysis.learned import GATES
from gaam_decoder.attention.base import Attention
from gaam_decoder.config import PlantConfig
from gaam_decoder.specs import Spec, build
from gaam_decoder.tasks import CLASSIFICATION

Floats = NDArray[np.float64]
States = NDArray[Any]  # (N, L, D), as the cache will store it
ROWS, LAYERS, WIDTH = 6000, 16, 8
"""Of Gaussian states where nobody says: 4,000 rows to learn from, on which a linear head (512
numbers) is within 2 points of its teacher, and enough layers for 1, 2, 4 and 8 heads."""
BLOCK_ROWS = (
    512  # computed with at once; of Gaussian states each block has a seed of its own
)
MEAN = 3.0
"""Distance of the mean of every feature of Gaussian states from 0, in standard deviations: a gate
multiplies it, which no linear decoder can follow."""
STATES, CHOICE, HEAD, LABELS = 1, 2, 3, 4  # random streams of a seed
ROUNDING = (
    1e-12  # spread of a feature beside its mean that is none: float64 rounds at 1e-16
)
MOST_FITTED = 2**27  # numbers that are fitted at most: 1 GB
ROWS_PER_FEATURE = (
    2  # with fewer a linear map of rows says what they are, and nothing of others
)
PENALTY = (
    1e-6  # beside the mean loss: one optimum, and too little to be seen in an accuracy
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlantSummary:
    """What was planted. Accuracies are fractions of the test rows."""

    path: str
    fingerprint: str
    gate: str
    mechanism: str  # that can express the gate exactly, with one head and a linear head
    strength: float
    num_layers: int
    hidden_size: int
    storage_dtype: str
    rows: dict[str, int]
    teacher_accuracy: (
        float  # expected of the teacher, and the most that any decoder can expect
    )
    teacher_accuracy_drawn: float  # of the teacher, on the labels that were drawn
    linear_accuracy: (
        float | None
    )  # expected of the best linear decoder; None: not known

    to_dict = asdict

    def in_words(self) -> str:
        about, best, linear = GATES[self.gate], self.teacher_accuracy, "not known"
        if self.linear_accuracy is not None:
            gap = 100 * (best - self.linear_accuracy)
            linear = f"{100 * self.linear_accuracy:.1f}%, {gap:z.1f} points less"
        return f"""\
the cache in '{visible(shown_path(self.path))}' is complete
  gate         {self.gate}: {about.formula}; --attn {about.attn} can express it
  states       {self.num_layers} layers x {self.hidden_size}, stored as {self.storage_dtype}
  rows         {", ".join(f"{name} {count:,}" for name, count in self.rows.items())}
  accuracy     teacher {100 * best:.1f}% expected, {100 * self.teacher_accuracy_drawn:.1f}% on the \
labels that were drawn;
               the best linear decoder of the states: {linear}
  fingerprint  {short_digest(self.fingerprint)}"""


def plant(
    config: PlantConfig, *, progress: Callable[[int, int, str], None] | None = None
) -> PlantSummary:
    """Make a cache whose labels depend on the states through a known gate, or complete one.

    Everything is decided by the configuration; every number is computed from the states as the
    cache stores them. The chosen rows of a given cache are read into memory. ``progress`` is called
    with (rows done, rows in all, what is going on).

    >>> config = gaam_decoder.PlantConfig(out="planted", rows=90)
    >>> gaam_decoder.plant(config).mechanism
    'laplace'

    Raises:
        ConfigError: more rows than the given cache has, or the folder holds something else.
        NotFoundError, CacheError: the given cache is not there, incomplete or damaged.
        NumericsError: a state of the given cache that cannot be stored in the type asked for.
    """
    check_writable(config.out, option="--out")
    source = open_cache(config.from_cache) if config.from_cache is not None else None
    train, test = states = _states(config, source)
    of_gate, seed = GATES[config.gate], config.seed
    if train.shape[1] < 3 and config.gate != "none":
        raise ConfigError(
            f"the gate '{config.gate}' standardises over layers, and of two every value is 1 or -1",
            expected="states of 3 layers or more, or --gate none",
        )
    options: dict[str, Any] = {"classes": config.classes, "strength": config.strength}
    teacher = make_teacher(config.gate, train, seed=seed, **options)
    p = [teacher.probabilities(of_split) for of_split in states]
    label = [draw_labels(p_NC, seed, split) for split, p_NC in enumerate(p)]
    right_N = CLASSIFICATION.hits(CLASSIFICATION.predictions(p[1]), label[1])
    accuracy = {
        "teacher_accuracy": float(p[1].max(1).mean()),
        "teacher_accuracy_drawn": float(CLASSIFICATION.accuracy(right_N)),
        "linear_accuracy": linear_accuracy(train, p[0], test, p[1]),
    }
    recorded = {
        "gate": config.gate,
        "mechanism": of_gate.mechanism,
        "parameters": {
            name: _shortest(value) for name, value in of_gate.parameters.items()
        },
        "strength": _shortest(config.strength),
        "seed": seed,
        "states": source.fingerprint if source else GAUSSIAN,
    }
    figures = {
        name: f"{value:.4f}" for name, value in accuracy.items() if value is not None
    }
    made = write(
        config.out,
        {"train": (train, label[0]), "test": (test, label[1])},
        class_names=[str(number) for number in range(config.classes)],
        storage_dtype=config.storage_dtype
        or (source.plan.storage_dtype if source else "float32"),
        axes="nld",
        encoder_name=f"states of {source.plan.encoder_label}"
        if source
        else "Gaussian states",
        dataset_name=f"planted {config.gate} strength {config.strength:g} seed {seed}",
        pool=source.plan.pooling[0] if source else GAUSSIAN,
        planted=(recorded, figures),
        progress=progress,
    )
    kept = ("path", "fingerprint", "num_layers", "hidden_size", "storage_dtype")
    about = {name: getattr(made, name) for name in kept} | accuracy
    about |= {
        "gate": config.gate,
        "mechanism": of_gate.mechanism,
        "strength": config.strength,
    }
    return PlantSummary(rows=dict(made.rows), **about)


def _shortest(value: float) -> str:
    """The shortest text that is that number again."""
    return short if float(short := f"{value:g}") == value else repr(value)


def _states(config: PlantConfig, cache: EmbeddingCache | None) -> tuple[States, States]:
    """Of the training and of the test rows, drawn or taken from a cache."""
    there = sum(len(cache[name]) for name in cache) if cache else 0
    rows = config.rows or (there if cache else ROWS)
    train = rows - rows // 3
    if rows < (least := 3 * config.classes):
        expected = f"--rows of at least {least:,}, of which a third is 'test'"
        raise ConfigError(
            "more classes than rows", expected=expected, found=f"{rows:,}"
        )
    if cache is None:
        shape = rows, config.layers or LAYERS, config.width or WIDTH
        dtype = config.storage_dtype
        x_NLD = gaussian_states(shape, config.seed).astype(dtype or "float32")
        return x_NLD[:train], x_NLD[train:]
    if rows > there:
        message, expected = (
            "the cache has fewer rows than --rows",
            f"--rows of at most {there:,}",
        )
        raise ConfigError(message, expected=expected, found=f"--rows {rows:,}")
    order_N = np.random.default_rng([config.seed, CHOICE]).permutation(there)
    parts: tuple[list[States], list[States]] = [], []
    first = 0
    for split in cache.values():  # rows are counted over all of them in order
        for part, row_N in zip(
            parts, (order_N[:train], order_N[train:rows]), strict=True
        ):
            mine = np.sort(
                row_N[(row_N >= first) & (row_N < first + len(split))] - first
            )
            taken = split.embeddings[mine]
            with np.errstate(
                over="ignore"
            ):  # what overflows is refused where it is stored
                part.append(taken.astype(config.storage_dtype or taken.dtype))
        first += len(split)
    return np.concatenate(parts[0]), np.concatenate(parts[1])


def gaussian_states(shape: tuple[int, int, int], seed: int) -> NDArray[np.float32]:
    """``x = mean + z``, (N, L, D): z standard normal, the mean of every feature 3 or -3.

    The first rows are the same however many there are.
    """
    signs_D = np.random.default_rng([seed, STATES]).integers(0, 2, shape[2])
    x_NLD = np.empty(shape, np.float32)
    for block, start in enumerate(range(0, len(x_NLD), BLOCK_ROWS)):
        part = x_NLD[start : start + BLOCK_ROWS]
        generator = np.random.default_rng([seed, STATES, block])
        part[:] = generator.standard_normal(part.shape, dtype=np.float32)
    return x_NLD + (MEAN * (2.0 * signs_D - 1)).astype(np.float32)


def blocks(states: States) -> Iterator[Floats]:
    """All rows, some hundred at once."""
    for start in range(0, len(states), BLOCK_ROWS):
        yield states[start : start + BLOCK_ROWS].astype(np.float64)


def planted_mechanism(gate: str, num_layers: int, hidden_size: int) -> Attention:
    """The mechanism of a key of ``GATES`` with one head and its parameters, in float64."""
    about = GATES[gate]
    spec = Spec(about.mechanism, (("heads", 1),) if about.parameters else ())
    module: Attention = build(spec, "mechanism", num_layers, hidden_size).double()
    with torch.no_grad():
        for name, value in about.parameters.items():
            module.get_parameter(name).fill_(value)
    return module


@dataclass(frozen=True, slots=True)
class Teacher:
    """``p(c | x) = softmax(strength * (W vec(attention(x)) - mean) / spread)_c``.

    W is drawn once: normal numbers divided by the standard deviation of their feature over the
    training rows, those of which are the means of classes and the spread of all logits too. Where
    no gate is planted all layers share one W: the mean over the layers decides.
    """

    attention: Attention
    weight_CF: Floats
    bias_C: Floats

    def logits(self, x_NLD: Floats) -> Floats:
        """(N, L, D) -> (N, C)."""
        return _behind(self.attention, x_NLD) @ self.weight_CF.T + self.bias_C

    def probabilities(self, states: States) -> Floats:
        """Of every row, (N, C)."""
        return softmax(np.concatenate([self.logits(x) for x in blocks(states)]), 1)


def _behind(attention: Attention, x_NLD: Floats) -> Floats:
    """What the head reads, (N, F)."""
    with torch.inference_mode():
        y_NLD: Floats = attention(torch.from_numpy(x_NLD)).numpy()
    return y_NLD.reshape(len(y_NLD), -1)


def make_teacher(
    gate: str, train: States, *, classes: int, strength: float, seed: int
) -> Teacher:
    """Draw a teacher whose logits have the standard deviation ``strength`` over the training rows.

    A ConfigError says that these are all the same behind the gate.
    """
    _, num_layers, hidden_size = train.shape
    attention = planted_mechanism(gate, num_layers, hidden_size)
    shared = not GATES[gate].parameters
    mean_F, spread_F = _moments(attention, train, shared)
    differs_F = spread_F > ROUNDING * np.abs(mean_F)
    if not differs_F.any():
        found = f"{len(train):,} rows that are all the same behind the gate '{gate}'"
        raise ConfigError("no teacher can tell the rows apart", found=found)
    generator = np.random.default_rng([seed, HEAD])
    weight_CF = generator.standard_normal((classes, len(mean_F)))
    weight_CF = np.divide(
        weight_CF, spread_F, out=np.zeros_like(weight_CF), where=differs_F
    )
    if shared:
        weight_CF, mean_F = (
            np.tile(weight_CF / num_layers, num_layers),
            np.tile(mean_F, num_layers),
        )
    centred = Teacher(attention, weight_CF, -(weight_CF @ mean_F))
    square = sum(float(np.square(centred.logits(x)).sum()) for x in blocks(train))
    factor = strength / max((square / (len(train) * classes)) ** 0.5, 1e-300)
    return Teacher(attention, factor * weight_CF, factor * centred.bias_C)


def _moments(
    attention: Attention, train: States, shared: bool
) -> tuple[Floats, Floats]:
    """Mean and standard deviation of what is weighted, (F,), or (D,) of means over the layers."""

    def read(x_NLD: Floats) -> Floats:
        return x_NLD.mean(1) if shared else _behind(attention, x_NLD)

    first_F = read(next(blocks(train)))[0]  # what is subtracted first keeps digits
    total_F, square_F = np.zeros_like(first_F), np.zeros_like(first_F)
    for x_NLD in blocks(train):
        moved_NF = read(x_NLD) - first_F
        total_F += moved_NF.sum(0)
        square_F += np.square(moved_NF).sum(0)
    mean_F = total_F / len(train)
    return first_F + mean_F, np.sqrt(np.maximum(square_F / len(train) - mean_F**2, 0))


def draw_labels(p_NC: Floats, seed: int, split: int) -> NDArray[np.int64]:
    """One class of every row, as probable as it says; every split has draws of its own."""
    u_N1 = np.random.default_rng([seed, LABELS, split]).random((len(p_NC), 1))
    label_N: NDArray[np.int64] = (u_N1 >= np.cumsum(p_NC, 1)).sum(1)
    return np.minimum(label_N, p_NC.shape[1] - 1)


def linear_accuracy(
    train: States, p_train_NC: Floats, test: States, p_test_NC: Floats
) -> float | None:
    """Accuracy to expect on the test rows of the best linear decoder of the states.

    It is fitted by L-BFGS to the teacher's own probabilities of the training rows. None where rows
    are too few for that, or too many for the memory.
    """
    count, features = len(train), train.shape[1] * train.shape[2]
    if count < ROWS_PER_FEATURE * features or count * features > MOST_FITTED:
        return None
    z_NF = np.concatenate([x.reshape(len(x), -1) for x in blocks(train)])
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
        value = -(p_train_NC * log_p_NC).sum() / count + PENALTY / 2 * float(
            flat @ flat
        )
        return value, (slope_CF1 + PENALTY * weight_CF1).ravel()

    start, options = np.zeros(classes * (features + 1)), {"maxiter": 500}
    found = minimize(loss, start, method="L-BFGS-B", jac=True, options=options).x
    weight_CF1 = found.reshape(classes, features + 1)
    z_NF = np.concatenate([x.reshape(len(x), -1) for x in blocks(test)])
    logits_NC = (z_NF - mean_F) * scale_F @ weight_CF1[:, :-1].T + weight_CF1[:, -1]
    predicted_N1 = CLASSIFICATION.predictions(logits_NC)[:, None]
    return float(np.take_along_axis(p_test_NC, predicted_N1, 1).mean())
