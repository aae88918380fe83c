"""Train a decoder on arrays, without folders: an estimator as scikit-learn has them.

It writes a cache into a temporary folder and trains as ``gaam train`` does. It needs no
scikit-learn: that library asks for methods, not for a base class.

N rows, L layers, D hidden size, C classes, K numbers or labels.
"""

import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.cells import is_blank, is_missing_word, value_with_type
from gaam_cache.common.errors import ConfigError, DataError, GaamWarning
from gaam_cache.common.messages import did_you_mean, excerpt
from gaam_cache.common.plugins import unknown
from gaam_cache.common.terminal import show_progress
from gaam_cache.importing.arrays import refuse_mask
from gaam_cache.importing.labels import task_of_labels
from gaam_cache.importing.states import write
from gaam_cache.targets.base import CLASSIFICATION, MatrixTarget, target_class
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import EACH
from gaam_decoder.recipe import NO_TEST
from gaam_decoder.specs import parse_plugin
from gaam_decoder.tasks import task_of
from gaam_decoder.training.sweep import check_failures, train
from gaam_decoder.use.export import card, write_export
from gaam_decoder.use.load import check_code, open_decoder
from gaam_decoder.use.predictor import (
    AnyPredictions,
    DecoderConfig,
    Predictor,
    check_feature_names,
    feature_names_of,
)
from gaam_decoder.use.results import NumberPredictions

if TYPE_CHECKING:
    from sklearn.utils import Tags
    from torch import Tensor

    from gaam_decoder.runs.result import RunResult

GROUPS = "group"
"""The kept column of the temporary cache that holds the groups of rows."""
OWN_SETTINGS = ("task", "verbose")
"""Settings of an estimator that ``TrainConfig`` lacks."""


@dataclass(frozen=True, kw_only=True)
class _Fitted:
    """The result of ``Estimator.fit``."""

    config: DecoderConfig
    weights: "dict[str, Tensor]"
    """By name, of all seeds: (S, ...)."""
    card: str
    """The page in Markdown that an export gets."""
    classes: NDArray[Any] | None
    """The targets that occur, sorted; None for other tasks than classification."""
    is_column: bool
    """Whether the targets were (N,) and not (N, K)."""


class _State(TypedDict):
    """What is pickled: the predictor has a lock and is built again."""

    settings: dict[str, Any]
    fitted: _Fitted | None


@dataclass(kw_only=True, eq=False, repr=False)
class Estimator:
    """A decoder of one mechanism over several seeds, with ``fit`` and ``predict``.

    ``clone``, ``cross_val_score``, ``GridSearchCV`` and ``Pipeline`` of scikit-learn
    (1.6 or later) take it. Settings have the names, values and defaults of
    ``TrainConfig``. Weights and outputs are those of ``gaam train`` on a cache of the
    same arrays, bit for bit.

    >>> estimator = gaam_decoder.Estimator(attn="gaam", seeds=2, epochs=2, lr=1e-3)
    >>> estimator.fit(train_states, train_labels).predict(test_states).shape
    (30,)

    Args:
        task: classification, multi-label (0 and 1 for every label) or regression.
        verbose: show progress on stderr.

    Attributes:
        classes_: the distinct targets, sorted, in the order of the probabilities.
        feature_names_in_: names of the columns, if ``fit`` got a table with such names.
        lr_, weight_decay_: those that were trained with.
        seeds_: seeds that finished; predictions are means over them.
        predictor_: predicts from states, as ``load`` does.
    """

    task: str = CLASSIFICATION
    attn: Any = "gaam"
    head: Any = "linear"
    loss: Any = None
    class_weights: Literal["none", "balanced"] = "none"
    state_scale: Literal["auto", "none", "layer"] = "auto"
    seeds: int | str | Sequence[int] = 10
    tune_seeds: int | str | Sequence[int] | None = None
    epochs: int = 25
    batch_size: int = 32
    optimizer: Any = "adamw"
    lr: float | str | Sequence[float] | None = None
    weight_decay: float | str | Sequence[float] = 0.01
    schedule: Literal["constant", "plateau", "cosine"] = "constant"
    clip_grad_norm: float | None = None
    select: Literal["val", "last"] = "val"
    val_fraction: float = 0.1
    val_folds: int | None = None
    split_seed: int = 0
    layers: str | None = None
    device: str = "auto"
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    seed_batch: int | None = None
    compile: Literal["auto", "on", "off"] = "auto"
    verbose: bool = False

    def __post_init__(self) -> None:
        self._fitted: _Fitted | None = None
        self._predictor: Predictor | None = None

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Train on states and targets.

        Args:
            X: states, (N, L, D) or, of one layer, (N, D); float16, float32 or float64
                (kept as float32). If it is a table with column names, later tables
                must have the same columns in the same order.
            y: targets: classes of any one type (N,); numbers (N,) or (N, K); 0 and 1
                for every label, (N, K).
            groups: a name or number for every row, none missing. Rows of one group are
                never split between training and validation.

        Raises:
            ConfigError: a setting is wrong, or means several decoders.
            DataError: states or targets are unusable.
            NumericsError: every seed failed.
        """
        task_of(self.task)
        states = _usable_states(X)
        feature_names = feature_names_of(X)
        targets = _target_array(y)
        _check_count("y", len(targets), len(states))
        classes: NDArray[Any] | None = None
        names: tuple[str, ...] = ()
        labels = targets
        if self.task == CLASSIFICATION:
            classes, labels = _classes_and_codes(targets)
            names = _names_of(classes)
        columns = _group_columns(groups, len(states))

        # a folder of its own, and nothing in the folder of the user
        with tempfile.TemporaryDirectory(
            prefix="gaam-", ignore_cleanup_errors=True
        ) as folder:
            config = self._train_config(Path(folder), has_groups=bool(columns))
            self._write_cache(config.cache, states, labels, names, columns)
            run = self._train(config)
            opened = open_decoder(run.path)
            decoder_config = replace(
                opened.config,
                classes=_classes_to_save(classes),
                feature_names=feature_names,
            )
            self._fitted = _Fitted(
                config=decoder_config,
                weights=opened.weights,
                card=card(run, decoder_config),
                classes=classes,
                is_column=targets.ndim == 1,
            )
        self._predictor = None
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict from states, (N, L, D) or (N, D), as ``fit`` takes them.

        Returns:
            Classes of the type of ``fit`` (N,); numbers in the form of ``fit``; or 0
            and 1 for every label, (N, K).
        """
        return self._values(self._predictions(X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities, the mean over the seeds: (N, C) of classes, (N, K) of labels.

        Raises:
            ConfigError: the task is regression.
        """
        predictions = self._predictions(X)
        if isinstance(predictions, NumberPredictions):
            raise ConfigError(
                "numbers have no probabilities",
                expected="an estimator of classes or sets of labels",
                found=f"task='{self.task}'",
                hint="predict returns the numbers",
            )
        return predictions.probabilities_NC

    def score(self, X: Any, y: Any) -> float:
        """The score of the task: accuracy, R2 or micro-F1 of the mean over the seeds.

        Args:
            X: states.
            y: targets, as ``fit`` takes them; a class that ``fit`` lacked is wrong.

        Raises:
            DataError: targets of another form than those of ``fit``, a missing target,
                or none is a class of ``fit``.
        """
        predictions = self._predictions(X)
        targets = _target_array(y)
        predicted = self._values(predictions)
        if targets.shape != predicted.shape:
            raise DataError(
                "y is not like the targets of fit",
                expected=str(predicted.shape),
                found=str(targets.shape),
                where="y",
                hint="pass a target for every row of X, in the form that fit took",
            )
        classes = self._learned().classes
        if classes is not None:
            _check_scored_classes(classes, targets)
            return float((predicted == targets).mean())
        _check_matrix(targets, self.task)
        if isinstance(predictions, NumberPredictions):
            outputs = predictions.numbers_NK
        else:
            # the score takes logits, where above 0 is a predicted label
            outputs = predictions.probabilities_NC - 0.5
        task = self.predictor_.task
        return float(task.selection_score(outputs, targets.reshape(outputs.shape)))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the folder that ``gaam export`` writes; ``gaam_decoder.load`` reads it.

        Args:
            folder: a folder that is not there yet, or is empty.
            overwrite: replace an earlier export.

        Returns:
            The folder.

        Raises:
            DataError: JSON cannot hold classes of this type, such as bytes or dates;
                nothing is written.
        """
        learned = self._learned()
        if learned.classes is not None and learned.config.classes is None:
            raise DataError(
                "classes of this type cannot be saved",
                expected="texts, whole numbers or truth values, which JSON can hold",
                found=f"{_two_values(learned.classes)}, {learned.classes.dtype}",
                where="y of fit",
                hint="fit with y.astype(str)",
            )
        write_export(
            folder, learned.config, learned.weights, learned.card, overwrite=overwrite
        )
        return Path(folder)

    @property
    def classes_(self) -> NDArray[Any]:
        """The distinct targets, sorted; of label sets the numbers of the columns."""
        learned = self._learned()
        if learned.classes is not None:
            return learned.classes
        task = self.predictor_.task
        if not task.has_probabilities:
            raise AttributeError(f"{task.name} has no classes")
        return np.arange(len(learned.config.plan.target_names))

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns of ``fit``; AttributeError if it got no such names."""
        names = None if self._fitted is None else self._fitted.config.feature_names
        if names is None:
            raise AttributeError("fit got no table with feature names")
        return np.array(names, object)

    @property
    def lr_(self) -> float:
        """The learning rate, typed or tuned."""
        return self._learned().config.recipe.lr

    @property
    def weight_decay_(self) -> float:
        """The weight decay, typed or tuned."""
        return self._learned().config.recipe.weight_decay

    @property
    def seeds_(self) -> tuple[int, ...]:
        """Seeds that finished."""
        return self._learned().config.seeds

    @property
    def predictor_(self) -> Predictor:
        """What ``gaam_decoder.load`` returns of a run."""
        learned = self._learned()
        if self._predictor is None:
            # The parsing registers a mechanism or head of the user, which the predictor
            # finds by its name. An unpickled estimator may be in another process, which
            # has registered none.
            parse_plugin(self.attn, "mechanism")
            parse_plugin(self.head, "head")
            # their code may have changed since ``fit``
            check_code(learned.config, "this estimator")
            self._predictor = Predictor(
                learned.config, learned.weights, device=self.device
            )
        return self._predictor

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 no parts
        """The settings by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change settings; they count from the next ``fit`` on."""
        known_settings = self.get_params()
        for name, value in params.items():
            if name not in known_settings:
                suggestion = did_you_mean(name, known_settings) or ""
                options = "options of a mechanism: attn='gaam:heads=2'"
                raise unknown(
                    "setting",
                    name,
                    known_settings,
                    where=type(self).__name__,
                    hint=f"{suggestion} {options}".strip(),
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """The settings that differ from the defaults."""
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __getstate__(self) -> _State:
        return _State(settings=self.get_params(), fitted=self._fitted)

    def __setstate__(self, state: _State) -> None:
        vars(self).update(state["settings"])
        self._predictor = None
        self._fitted = state["fitted"]

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None

    def __sklearn_tags__(self) -> "Tags":
        """What scikit-learn asks of every estimator; it is imported only here."""
        from sklearn.utils import (
            ClassifierTags,
            InputTags,
            RegressorTags,
            Tags,
            TargetTags,
        )

        has_numbers = not task_of(self.task).has_probabilities
        is_multi = not task_of(self.task).has_classes
        return Tags(
            estimator_type="regressor" if has_numbers else "classifier",
            target_tags=TargetTags(
                required=True, multi_output=is_multi, single_output=True
            ),
            classifier_tags=None
            if has_numbers
            else ClassifierTags(multi_label=is_multi),
            regressor_tags=RegressorTags() if has_numbers else None,
            input_tags=InputTags(two_d_array=True, three_d_array=True),
        )

    def _learned(self) -> _Fitted:
        """The result of ``fit``; ConfigError before ``fit``."""
        if self._fitted is None:
            raise ConfigError(
                "the estimator has learned nothing yet",
                expected="fit before predict, score and save",
                found=repr(self),
                hint="estimator.fit(states, targets)",
            )
        return self._fitted

    def _values(self, predictions: AnyPredictions) -> NDArray[Any]:
        """Predicted classes, numbers or labels, in the form that ``fit`` got."""
        learned = self._learned()
        if isinstance(predictions, NumberPredictions):
            number_NK = predictions.numbers_NK
            return number_NK[:, 0] if learned.is_column else number_NK
        probability_NC = predictions.probabilities_NC
        if learned.classes is None:
            return (probability_NC > 0.5).astype(np.int64)
        predicted: NDArray[Any] = learned.classes[probability_NC.argmax(1)]
        return predicted

    def _predictions(self, X: Any) -> AnyPredictions:
        """The predictions for states, averaged over the seeds.

        Raises:
            DataError: states of another shape than those of ``fit``, or a table of
                other columns.

        Warns:
            GaamWarning: only one of ``fit`` and this call got a table with names.
        """
        plan = self._learned().config.plan
        states = _usable_states(X)
        self._check_names(X)
        has_layer_axis = states.ndim == 3
        if not has_layer_axis:
            states = states[:, None]
        if states.shape[1:] != (plan.num_layers, plan.hidden_size):
            raise DataError(
                "these states are not like those of fit",
                expected=f"(rows, {plan.num_layers}, {plan.hidden_size}): "
                "rows, layers, features",
                found=str(np.shape(X)),
                where="X",
                hint="pass states of the same encoder, layers and pooling",
            )
        return self.predictor_.predict_states(states)

    def _check_names(self, X: Any) -> None:
        """Refuse other columns than those of ``fit``; warn where one of both has names.

        An array (N, L, D) never has names.
        """
        names = feature_names_of(X)
        fitted_names = self._learned().config.feature_names
        if fitted_names is not None:
            check_feature_names(names, fitted_names)
        if (names is None) == (fitted_names is None) or np.ndim(X) == 3:
            return
        text = "X has no feature names, and fit had them"
        if fitted_names is None:
            text = "X has feature names, and fit had none"
        warnings.warn(
            f"{text}: columns are taken in their order", GaamWarning, stacklevel=4
        )

    def _train_config(self, folder: Path, *, has_groups: bool) -> TrainConfig:
        """The settings of ``gaam train`` for one decoder, without test rows.

        Args:
            folder: where cache and runs lie.
            has_groups: whether the cache has the column ``GROUPS``.

        Raises:
            ConfigError: the settings mean several decoders, or several candidates
                without tuning seeds.
        """
        settings = {
            name: value
            for name, value in self.get_params().items()
            if name not in OWN_SETTINGS and value is not None
        }
        if has_groups:
            settings["groups"] = GROUPS
        config = TrainConfig(
            **settings,
            cache=folder / "cache",
            runs=folder / "runs",
            test_split=NO_TEST,
            probe=False,
        )
        # several values of one of these settings would make several decoders
        has_several = {
            "attn": len(config.attn) > 1,
            "head": len(config.head) > 1,
            "layers": len(config.layers) > 1 or EACH in config.layers,
        }
        for name, is_several in has_several.items():
            if is_several:
                raise ConfigError(
                    f"several values of {name} are several decoders",
                    expected="one decoder for one estimator",
                    found=f"{name}={getattr(self, name)!r}",
                    hint="GridSearchCV of scikit-learn, or gaam_decoder.train",
                )
        num_candidates = len(config.rates) * len(config.weight_decay)
        if num_candidates > 1 and not config.resolved_tune_seeds:
            raise ConfigError(
                "several learning rates or weight decays need tuning seeds",
                expected="seeds that choose on validation rows",
                found=f"{num_candidates} candidates, and tune_seeds=None",
                hint="tune_seeds='1000-1002'",
            )
        return config

    def _write_cache(
        self,
        folder: Path,
        states: NDArray[Any],
        labels: NDArray[Any],
        class_names: tuple[str, ...],
        columns: dict[str, dict[str, list[str]]],
    ) -> None:
        """Write the cache that the decoder learns from.

        Args:
            folder: of the cache.
            states: (N, L, D) or (N, D).
            labels: numbers of classes (N,), numbers, or 0 and 1 for every label.
            class_names: empty for other tasks than classification.
            columns: see ``_group_columns``.
        """
        write(
            folder,
            {"train": (states, labels)},
            columns=columns,
            task=self.task,
            class_names=class_names,
            axes="nld" if states.ndim == 3 else "nd",
            dataset_name="arrays in memory",
        )

    def _train(self, config: TrainConfig) -> "RunResult":
        """Train, and return the only run of reporting seeds.

        Raises:
            NumericsError: every seed failed.
        """
        showing = show_progress("fit", "seed-epochs", quiet=not self.verbose)
        with showing as progress:
            runs = train(config, progress=progress)
        reporting = [run for run in runs if not run.tuning_only]
        check_failures(reporting, config.seeds)
        [run] = reporting
        return run


def fit(
    states: Any,
    targets: Any,
    *,
    task: str | None = None,
    groups: Any = None,
    **settings: Any,
) -> Estimator:
    """Train a decoder on arrays: ``Estimator(...).fit(states, targets)`` in one call.

    >>> decoder = gaam_decoder.fit(
    ...     train_states, train_labels, attn="gaam", seeds=2, lr=1e-3
    ... )
    >>> decoder.predict_proba(test_states).shape
    (30, 3)

    Args:
        states: (N, L, D) or (N, D).
        targets: see ``Estimator.fit``.
        task: classification, multi-label or regression; default: fractions are numbers,
            several truth values a row are sets of labels, all else are classes.
        groups: see ``Estimator.fit``.
        settings: of ``Estimator``.

    Raises:
        ConfigError: there is no such setting.
        GaamError: as for ``Estimator.fit``.
    """
    if task is None:
        task = _task_of(_as_array(targets, "y"))
    # ``set_params`` refuses a misspelt setting and names similar ones
    estimator = Estimator(task=task).set_params(**settings)
    return estimator.fit(states, targets, groups=groups)


def _task_of(targets: NDArray[Any]) -> str:
    """The task that the type and shape of targets suggest, see ``fit``."""
    # ``task_of_labels`` refuses one truth value a row: a cache cannot store them. Here
    # they are two classes, which ``fit`` numbers before it writes the cache.
    if targets.dtype.kind == "b" and targets.ndim == 1:
        return CLASSIFICATION
    return task_of_labels(targets)


def _as_array(values: Any, name: str) -> NDArray[Any]:
    """An array of NumPy: of a list, of pandas or of torch.

    Args:
        values: the numbers or texts.
        name: of the argument, for messages.

    Raises:
        DataError: rows have different lengths, or values are masked.
    """
    refuse_mask(values, name)
    # only a tensor of torch has this method
    if hasattr(values, "detach"):
        tensor = values.detach().cpu()
        # NumPy has no bfloat16
        values = tensor.float() if "bfloat16" in str(tensor.dtype) else tensor
    try:
        return np.asarray(values)
    except ValueError as error:
        raise DataError(
            "the rows have different lengths",
            expected="an array, or lists of equal length",
            found=str(error),
            hint="sets of labels are 0 and 1 for every label: MultiLabelBinarizer of "
            "scikit-learn makes them",
        ) from error


def _target_array(y: Any) -> NDArray[Any]:
    """Targets as an array, in which values of several types stay what they are.

    NumPy makes texts of numbers that stand in a list beside texts, and numbers of truth
    values beside numbers.
    """
    targets = _as_array(y, "y")
    is_flat_list = isinstance(y, list | tuple) and targets.ndim == 1
    if is_flat_list and len(set(map(_type_in_words, y))) > 1:
        return np.array(y, object)
    return targets


def _type_in_words(value: object) -> str:
    """The type of a target: 'number' of whole numbers and fractions alike."""
    if isinstance(value, bool | np.bool_):
        return "truth value"
    if isinstance(value, Number):
        return "number"
    return "text" if isinstance(value, str) else type(value).__name__


def _usable_states(X: Any) -> NDArray[Any]:
    """States as an array; refuse what no decoder can read."""
    states = _as_array(X, "X")
    has_axes = states.ndim in (2, 3) and 0 not in states.shape
    if not has_axes or states.dtype.kind != "f":
        hint = "states of tokens have to be pooled before"
        if has_axes:
            hint = "X.astype('float32')"
        raise DataError(
            "these are no states",
            expected="floating-point numbers, (rows, layers, features) or (rows, "
            "features)",
            found=f"{states.dtype} {states.shape}",
            where="X",
            hint=hint,
        )
    return states


def _check_count(name: str, count: int, num_rows: int) -> None:
    """Refuse targets or groups that are not one for every row."""
    if count != num_rows:
        raise DataError(
            f"{name} and X have different lengths",
            expected=f"{num_rows:,} entries, one for every row of X",
            found=f"{count:,}",
            where=name,
            hint="pass both of the same rows, in the same order",
        )


def _group_columns(groups: Any, num_rows: int) -> dict[str, dict[str, list[str]]]:
    """The kept column of the cache that names the group of every row, if there are any.

    Returns:
        Name of the column -> split -> a name for every row; empty without groups.

    Raises:
        DataError: a group is missing, or there is not one for every row.
    """
    if groups is None:
        return {}
    refuse_mask(groups, "groups")
    group_names = list(map(str, np.asarray(groups).tolist()))
    _check_count("groups", len(group_names), num_rows)
    for row, name in enumerate(group_names, start=1):
        # NumPy turns a NaN beside texts into the text 'nan'
        if name == "None" or is_blank(name) or is_missing_word(name):
            raise DataError(
                "a row has no group",
                expected="a name or number for every row",
                found=excerpt(name),
                where=f"groups, row {row}",
                hint="give the row a group of its own, or leave it out",
            )
    return {GROUPS: {"train": group_names}}


def _check_scored_classes(classes: NDArray[Any], targets: NDArray[Any]) -> None:
    """Refuse targets that ``fit`` would refuse, and those of another type.

    If no target is a class of ``fit``, their type may be another.

    Args:
        classes: of ``fit``.
        targets: a class for every row.

    Raises:
        DataError: a target is missing, the targets are no classes, or none of them is a
            class of ``fit``.
    """
    scored_classes, _ = _classes_and_codes(targets)
    known_classes = set(classes.tolist())
    for value in scored_classes.tolist():
        # an array of texts holds a missing value as the text 'nan' or 'None'
        is_word = isinstance(value, str) and (value == "None" or is_missing_word(value))
        if is_word and value not in known_classes:
            row = int(np.argmax(targets == value))
            raise _no_classes_error(f"{value!r} in row {row + 1}")
    if any(np.any(targets == label) for label in classes):
        return
    raise DataError(
        "no target is a class of fit",
        expected=f"targets such as {_two_values(classes)}",
        found=_two_values(targets),
        where="y",
        hint="pass targets of the type that fit took",
    )


def _two_values(values: NDArray[Any]) -> str:
    """The first two distinct values with their types, for messages."""
    distinct_values = dict.fromkeys(values.tolist())
    return ", ".join(map(value_with_type, list(distinct_values)[:2]))


def _classes_and_codes(targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The sorted classes (C,), and the index of every row's class among them (N,).

    Raises:
        DataError: the targets are no classes, such as fractions.
    """
    problem = ""
    if targets.ndim != 1:
        problem = f"an array {targets.shape}"
    elif targets.dtype.kind == "f" and not (targets == np.floor(targets)).all():
        problem = "fractions, or nan"
    elif _mixes_truth_values(targets):
        problem = "True or False beside other values"
    else:
        problem = _missing_in_words(targets)
    if not problem:
        try:
            classes, code_N = np.unique(targets, return_inverse=True)
        except TypeError:
            problem = "values of several types"
        else:
            return classes, code_N.astype(np.int64)
    raise _no_classes_error(problem)


def _no_classes_error(problem: str) -> DataError:
    """The error for targets that are no classes; ``problem`` says what they are."""
    return DataError(
        "these targets are no classes",
        expected="a class for every row: words, or whole numbers, all of one type",
        found=problem,
        where="y",
        hint="task='regression' for numbers, task='multi-label' for 0 and 1 of "
        "labels; y.argmax(1) of one-hot classes",
    )


def _missing_in_words(targets: NDArray[Any]) -> str:
    """The first missing target and its row, in words; empty if none is missing.

    None, NaN, NaT and the NA of pandas are missing.
    """
    # only objects, dates and durations may be missing; of numbers NaN is no class
    if targets.dtype.kind not in "OMm":
        return ""
    for row, value in enumerate(targets.tolist(), start=1):
        is_text = isinstance(value, str | bytes)
        if value is None or (not is_text and is_missing_word(str(value))):
            return f"a missing value in row {row}"
    return ""


def _check_matrix(targets: NDArray[Any], task: str) -> None:
    """Refuse numbers, or 0 and 1 for every label, that ``fit`` would refuse.

    Args:
        targets: (N,) or (N, K).
        task: regression or multi-label.

    Raises:
        DataError: another type, a number that is missing or not finite, or a label that
            is neither 0 nor 1.
    """
    target = target_class(task)
    assert issubclass(target, MatrixTarget), "classes are no matrix"
    is_usable = np.zeros(targets.shape, bool)
    if targets.dtype.name.startswith(target.array_dtypes):
        has_numbers = not task_of(task).has_probabilities
        is_usable = np.isfinite(targets) if has_numbers else np.isin(targets, (0, 1))
    if is_usable.all():
        return
    index = tuple(np.argwhere(~is_usable)[0].tolist())
    raise DataError(
        "a target cannot be scored",
        expected=target.array_words,
        found=value_with_type(targets[index]),
        where=f"y, row {index[0] + 1}",
        hint="correct the target, or leave the row out",
    )


def _mixes_truth_values(targets: NDArray[Any]) -> bool:
    """Whether some targets, not all, are True or False, which equal 1 and 0."""
    if targets.dtype.kind != "O":
        return False
    is_truth_value = {isinstance(value, bool | np.bool_) for value in targets}
    return len(is_truth_value) > 1


def _classes_to_save(
    classes: NDArray[Any] | None,
) -> tuple[bool | int | float | str, ...] | None:
    """The classes as an export keeps them; None where JSON lacks their type."""
    # ``tolist`` makes whole numbers of dates in nanoseconds
    if classes is None or classes.dtype.kind in "Mm":
        return None
    values = tuple(classes.tolist())
    is_json = all(isinstance(value, bool | int | float | str) for value in values)
    return values if is_json else None


def _names_of(classes: NDArray[Any]) -> tuple[str, ...]:
    """Names of the classes for an export; numbers where texts are not distinct."""
    # a cache has no class with an empty name
    names = tuple(str(value) or "(empty)" for value in classes.tolist())
    if len(set(names)) < len(names):
        return tuple(map(str, range(len(names))))
    return names
