"""Train the seeds of one decoder together, from initialisation to results.

S seeds, N training rows, V validation rows, B batch, L layers, D hidden size, C
classes, K random numbers per row.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor

from gaam_cache.common.devices import copy_to_device
from gaam_decoder.decoder import (
    Decoder,
    DecoderSpec,
    StateScale,
    TargetScale,
    build_decoder,
    stream_seed,
    without_random_numbers,
)
from gaam_decoder.losses.base import Loss, balanced, balanced_labels
from gaam_decoder.optimizers.base import Stacked
from gaam_decoder.recipe import Recipe
from gaam_decoder.runs.write import SeedResult
from gaam_decoder.specs import build, is_foreign
from gaam_decoder.tasks import task_of
from gaam_decoder.training.arithmetic.compiled import Compiler
from gaam_decoder.training.arithmetic.engine import (
    EVAL_BATCH_SIZE,
    Engine,
    rows_at_once,
)
from gaam_decoder.training.arithmetic.state import Batch, State, Weights
from gaam_decoder.training.arithmetic.step import StepCache
from gaam_decoder.training.checkpoint import Checkpoint
from gaam_decoder.training.data import (
    Subset,
    TrainData,
    epoch_batches,
    labels_by_seed,
    measure_layers,
)
from gaam_decoder.training.own_decoder import (
    ROWS_REBUILT,
    check_rebuilt,
    has_own_part,
)
from gaam_decoder.training.seed_result import (
    FinishedSeed,
    add_attention_maps,
    result_of,
)
from gaam_decoder.training.seed_state import (
    EpochScaling,
    Plateau,
    Score,
    SeedState,
    cosine,
)


class SeedBatch:
    """The seeds of one decoder that are trained together, with stacked parameters.

    Args:
        spec: of the decoder.
        data: training, validation and test rows.
        recipe: of the training.
        seeds: of the batch.
        engine: how seeds are run (device, type, compiled or not).
        loss_function: default: that of the recipe.
        dtype: of the parameters.
        steps: compiled steps of earlier seed batches of the decoder.

    Attributes:
        seed_states: of each seed, what is no tensor: learning rate, best epoch, log.
        state: parameters and optimizer of all seeds, after the last step.
        kept_weights: weights of all seeds after their best epoch so far.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        data: TrainData,
        recipe: Recipe,
        seeds: Sequence[int],
        *,
        engine: Engine,
        loss_function: Loss | None = None,
        dtype: torch.dtype = torch.float32,
        steps: StepCache | None = None,
    ) -> None:
        self.spec = spec
        self.data = data
        self.recipe = recipe
        self.seeds = list(seeds)
        self.loss_function: Loss = loss_function or build(recipe.loss, "loss")
        self.epochs_done = 0
        self.seconds = 0.0
        # the cosine schedule multiplies all learning rates by this factor and changes
        # it at every step; the other schedules leave it at 1
        # of the cosine schedule at the last step; 1 without that schedule
        self._rate_factor = 1.0
        self.seed_states = [SeedState.before_training(seed, recipe) for seed in seeds]
        self.task = task_of(spec.task)
        self._has_own_part = has_own_part(spec)
        self._has_own_code = self._has_own_part or is_foreign(recipe.loss, "loss")

        # the labels of each seed, which a control experiment shuffles
        self._label_SN, self._validation_label_SV = labels_by_seed(
            data, seeds, shuffle=recipe.shuffle_labels
        )
        self._class_weight_SC = self._balancing_weights(dtype)

        # one module computes for all seeds, whose parameters are stacked
        device = data.train.label_N.device
        decoders = [build_decoder(spec, seed).to(dtype) for seed in seeds]
        self._target_scales = self._add_target_scales(decoders)
        self._scale_states(decoders)
        self._learned_target_SN = self._learned_targets(self._label_SN)
        self.decoder = copy.deepcopy(decoders[0]).to(device)
        self.step = (steps or StepCache()).get(
            spec, recipe, engine, self.decoder, self.loss_function, len(seeds)
        )
        has_loss_scales = recipe.loss_scale == "dynamic"
        self.state = State.initial(
            decoders, device, self.step.optimizer, self.task, scaled=has_loss_scales
        )
        self.kept_weights = self.state.weights.cloned()

    def _balancing_weights(self, dtype: torch.dtype) -> Tensor | None:
        """Weights of the classes, or of the labels of label sets, in the loss, (S, C).

        None where all weigh the same.
        """
        if self.recipe.class_weights == "none":
            return None
        if self.task.has_classes:
            return balanced(self._label_SN, self.spec.num_classes, dtype)
        return balanced_labels(self._label_SN, dtype)

    def _add_target_scales(self, decoders: Sequence[Decoder]) -> list[TargetScale]:
        """Add the mean and deviation of its training targets to the decoder of a seed.

        A decoder of numbers learns targets of mean 0 and deviation 1. In evaluation it
        returns numbers in the unit of the data.

        Returns:
            The scale of each seed, because the targets of seeds may be shuffled in
            different ways; empty for other tasks than regression.
        """
        scales: list[TargetScale] = []
        if not self.task.standardises:
            return scales
        for decoder, target_NC in zip(decoders, self._label_SN, strict=True):
            scale = TargetScale.from_targets(target_NC)
            scale = scale.to(target_NC.device, decoder.dtype)
            decoder.targets = scale
            scales.append(scale)
        return scales

    def _scale_states(self, decoders: Sequence[Decoder]) -> None:
        """Fit the factors of the states to the training rows, if decoders have any."""
        if not self.spec.scales_states:
            return
        train = self.data.train
        sizes = measure_layers(train.features, train.rows)
        for decoder in decoders:
            assert isinstance(decoder.states, StateScale)
            decoder.states.fit(sizes.mean_square_L)

    def _learned_targets(self, label_SN: Tensor) -> Tensor:
        """The targets of rows in the form in which each seed learns them."""
        if self.task.standardises:
            return self._standardised(label_SN)
        return self.task.learned_targets(label_SN)

    def _standardised(self, number_SNC: Tensor) -> Tensor:
        """Numbers in the unit of the data, scaled by each seed's mean and deviation."""
        standardised = [
            scale.standardised(number_NC)
            for scale, number_NC in zip(self._target_scales, number_SNC, strict=True)
        ]
        return torch.stack(standardised)

    @property
    def compiler(self) -> Compiler:
        """Compiles the steps, or has failed to."""
        return self.step.compiler

    def train(
        self,
        checkpoint: Checkpoint | None = None,
        on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
    ) -> list[SeedResult]:
        """Train all epochs; a loss that is not finite ends its seed for good.

        Args:
            checkpoint: file to go on from and to save to.
            on_epoch: called with (epoch from 1, mean training loss).

        Returns:
            One result per seed, in order.
        """
        if checkpoint is not None:
            self.resume(checkpoint)
        while not self.is_finished():
            loss = self.train_epoch()
            if checkpoint is not None and checkpoint.is_due and not self.is_finished():
                self.save(checkpoint)
            on_epoch(self.epochs_done, loss)
        return self.results()

    def train_epoch(self) -> float:
        """Train one epoch, evaluate it on the validation rows, and log it.

        Returns:
            The mean training loss over the seeds whose loss is finite.
        """
        start = time.perf_counter()
        epoch = self.epochs_done + 1
        with without_random_numbers(has_own_code=self._has_own_code):
            self._train_on_all_rows(epoch)

        # evaluate on the validation rows, unless all seeds have failed
        losses, training_scores = self._training_scores()
        loss_scalings = self._epoch_scalings()
        finite_losses = [loss for loss in losses if np.isfinite(loss)]
        scores: list[Score] | None = None
        if finite_losses:
            scores = self._validation_scores()
        self.seconds += time.perf_counter() - start

        # log the epoch of every seed
        for index, seed_state in enumerate(self.seed_states):
            if seed_state.failed is not None:
                continue
            is_kept = seed_state.log_epoch(
                self.recipe,
                epoch,
                losses[index],
                training_scores[index],
                None if scores is None else scores[index],
                loss_scalings[index],
                self.task,
            )
            if is_kept:
                self._keep_weights(index)
            # the seed may have failed in this epoch
            if seed_state.failed is None:
                entry = seed_state.log[-1]
                # the rate of the last step: the factor is that of the cosine schedule
                entry["lr"] *= self._rate_factor
                entry["seconds"] = round(self.seconds / len(self.seed_states), 4)
        self.epochs_done = epoch
        return float(np.mean(finite_losses)) if finite_losses else float("nan")

    def _training_scores(self) -> tuple[list[float], list[float]]:
        """Mean training loss and score of every seed in the last epoch."""
        count = len(self.data.train)
        # rows whose loss was not finite were left out of both sums
        num_summed: int | Tensor = count
        if self.state.scaling is not None:
            num_summed = count - self.state.scaling.rows_without_loss_S
        losses: list[float] = (self.state.loss_S / num_summed).tolist()
        score_S = self.task.training_score(self.state.score_S, num_summed)
        scores: list[float] = score_S.tolist()
        return losses, scores

    def _epoch_scalings(self) -> list[EpochScaling] | list[None]:
        """The loss scaling of every seed after an epoch; None where there is none."""
        scaling = self.state.scaling
        if scaling is None:
            return [None] * len(self.seed_states)
        scales = scaling.scale_S.tolist()
        skipped = scaling.skipped_steps_S.tolist()
        steps = scaling.steps_S.tolist()
        return list(map(EpochScaling, scales, skipped, steps))

    def _validation_scores(self) -> list[Score] | None:
        """Score and loss of every seed on V validation rows; None without any."""
        label_SV = self._validation_label_SV
        if self.data.selection is None or label_SV is None:
            return None
        logits_SVC = self.logits(self.data.selection, self.state.weights)
        score_S = self.task.selection_score(logits_SVC, label_SV)

        # the loss gets outputs and targets in the same form as in training
        learned_target_SV = self._learned_targets(label_SV)
        if self.task.standardises:
            logits_SVC = self._standardised(logits_SVC)
        losses = [
            float(self.loss_function(logits_VC, label_V))
            for logits_VC, label_V in zip(logits_SVC, learned_target_SV, strict=True)
        ]
        return list(map(Score, score_S.tolist(), losses))

    def _keep_weights(self, index: int) -> None:
        """Copy the weights of one seed, as those of its best epoch so far."""
        # first the parameters, then the buffers
        for kept, current in zip(self.kept_weights, self.state.weights, strict=True):
            for name, value in current.items():
                kept[name][index].copy_(value[index])

    def _train_on_all_rows(self, epoch: int) -> None:
        """Train every seed on each of its rows once, in an order of its own.

        The learning rate of a step is that of the seed, which a plateau schedule may
        reduce after an epoch, times the factor of a cosine schedule (else 1).
        """
        train = self.data.train
        generators = [
            torch.Generator().manual_seed(stream_seed(seed, "noise", epoch))
            for seed in self.seeds
        ]

        lr_S = self.state.loss_S.new_tensor(
            [seed_state.schedule.rate for seed_state in self.seed_states]
        )
        # rows through batch size, rounded up
        num_steps = -(-len(train) // self.recipe.batch_size)
        step_numbers = range((epoch - 1) * num_steps + 1, epoch * num_steps + 1)
        # for each step the constants of the optimizer, such as corrections of a bias
        constants_by_step = self.state.loss_S.new_tensor(
            [self.step.optimizer.numbers(step) for step in step_numbers]
        )

        self._reset_sums_of_epoch()
        batches = epoch_batches(
            train, self._learned_target_SN, self.recipe, self.seeds, epoch
        )
        for index, (x_SBLD, label_SB) in enumerate(batches):
            if self.recipe.schedule == "cosine":
                all_steps = num_steps * self.recipe.epochs
                self._rate_factor = cosine(step_numbers[index], all_steps)
            scheduled_lr_S = lr_S
            if self._rate_factor != 1:
                scheduled_lr_S = lr_S * self._rate_factor
            batch = Batch(
                x_SBLD=x_SBLD,
                label_SB=label_SB,
                noise_SBK=self._draw_noise(generators, num_rows=x_SBLD.shape[1]),
                lr_S=scheduled_lr_S,
                step_constants=constants_by_step[index],
                weight_SB=self._loss_weights(label_SB),
            )
            is_short = x_SBLD.shape[1] < min(self.recipe.batch_size, len(train))
            self.step(self.state, batch, is_short=is_short)

    def _reset_sums_of_epoch(self) -> None:
        """Set the sums of losses, scores and skipped steps to zero."""
        self.state.loss_S.zero_()
        self.state.score_S.zero_()
        if self.state.scaling is not None:
            self.state.scaling.skipped_steps_S.zero_()
            self.state.scaling.rows_without_loss_S.zero_()

    def _loss_weights(self, label_SB: Tensor) -> Tensor | None:
        """The weights of a batch in the loss; None where all weigh the same.

        With classes, the weight of every row (S, B). With label sets, the weight of
        every label (S, C), see ``weighted_label_mean``.
        """
        if self._class_weight_SC is None:
            return None
        if self.task.has_classes:
            return self._class_weight_SC.gather(1, label_SB)
        return self._class_weight_SC

    def _draw_noise(
        self, generators: Sequence[torch.Generator], num_rows: int
    ) -> Tensor | None:
        """Uniform random numbers in [0, 1) for every row, such as for dropout.

        Args:
            generators: one for each of S seeds.
            num_rows: B.

        Returns:
            (S, B, K): K numbers for each row, as many as the head needs. None if it
            needs none.
        """
        num_per_row = self.decoder.head.num_noise
        if not num_per_row:
            return None
        noise_SBK = torch.stack(
            [
                torch.rand((num_rows, num_per_row), generator=generator)
                for generator in generators
            ]
        )
        return copy_to_device(noise_SBK, self.data.train.label_N.device)

    def logits(self, subset: Subset, weights: Weights) -> Tensor:
        """Logits of all rows of a subset under every seed, (S, N, C)."""
        rows = subset.rows
        size = self.eval_batch_size(subset)
        if not self.decoder.attention.depends_on_batch:
            # repeat the first row until all batches have one shape: another shape
            # would be compiled again
            num_repeats = -len(rows) % size
            rows = np.concatenate([rows, np.repeat(rows[:1], num_repeats)])
        parts = [
            self.step.logits(weights, x_BLD)
            for x_BLD in subset.features.batches(rows, size)
        ]
        return torch.cat(parts, dim=1)[:, : len(subset)]

    def eval_batch_size(self, subset: Subset) -> int:
        """Rows of a batch in evaluation, by the memory."""
        if self.decoder.attention.depends_on_batch:
            return self.recipe.batch_size
        device_type = subset.label_N.device.type
        # a GPU computes all seeds at the same time
        seeds = 1 if device_type == "cpu" else len(self.seed_states)
        numbers_per_row = int(np.prod(subset.features.shape[1:])) * seeds
        rows_in_memory = rows_at_once(device_type, numbers_per_row)
        largest = min(EVAL_BATCH_SIZE, max(rows_in_memory, self.recipe.batch_size))
        # the last batch is filled up to this size, so divide the rows evenly
        num_batches = -(-len(subset) // largest)
        return -(-len(subset) // num_batches)

    def is_finished(self) -> bool:
        """Whether all epochs are done or all seeds have failed."""
        have_failed = (seed_state.failed is not None for seed_state in self.seed_states)
        return self.epochs_done >= self.recipe.epochs or all(have_failed)

    def _tensors(self) -> Stacked:
        """All tensors that a checkpoint holds, by name."""
        kept_tensors = self.kept_weights.parameters | self.kept_weights.buffers
        tensors = self.state.tensors()
        tensors |= {f"kept.{name}": value for name, value in kept_tensors.items()}
        return tensors

    def save(self, checkpoint: Checkpoint) -> None:
        """Write the state after the last epoch."""
        progress = {
            "seeds": self.seeds,
            "epochs_done": self.epochs_done,
            "seconds": self.seconds,
            "members": [asdict(seed_state) for seed_state in self.seed_states],
        }
        checkpoint.save(self._tensors(), progress)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint; do nothing if its tensors have other shapes."""
        saved_tensors, progress = checkpoint.load()
        tensors = self._tensors()

        # a file that is absent or only planned has no tensors, and so no equal shapes
        shapes = {name: value.shape for name, value in tensors.items()}
        saved_shapes = {name: value.shape for name, value in saved_tensors.items()}
        if shapes != saved_shapes:
            return
        for name, value in tensors.items():
            value.copy_(saved_tensors[name])
        self.epochs_done = progress["epochs_done"]
        self.seconds = progress["seconds"]
        # checkpoints hold the seed states under this older name
        saved_states = progress["members"]
        for seed_state, saved in zip(self.seed_states, saved_states, strict=True):
            for name, value in saved.items():
                setattr(seed_state, name, value)
            # JSON has neither dataclasses nor named tuples
            seed_state.schedule = Plateau(**saved["schedule"])
            if saved["best"] is not None:
                seed_state.best = Score(*saved["best"])

    def results(self) -> list[SeedResult]:
        """The result of every seed, with the weights of its kept epoch.

        A result has the logits of N test and V validation rows, if there are any.
        """
        start = time.perf_counter()
        test = self.data.test
        validation = self.data.validation(self.recipe)

        # compute the logits of all seeds together
        test_logits_SNC = torch.empty(len(self.seeds), 0, self.spec.num_classes)
        if test is not None:
            test_logits_SNC = self.logits(test, self.kept_weights).float().cpu()
        validation_logits_SVC: Tensor | None = None
        if validation is not None:
            validation_logits_SVC = (
                self.logits(validation, self.kept_weights).float().cpu()
            )

        results: list[SeedResult] = []
        finished: list[FinishedSeed] = []
        for index, seed_state in enumerate(self.seed_states):
            self._load_kept_weights(index)
            validation_logits_VC = (
                None if validation_logits_SVC is None else validation_logits_SVC[index]
            )
            result = result_of(
                self.decoder, seed_state, test_logits_SNC[index], validation_logits_VC
            )
            results.append(result)
            if result.failed is None:
                attention = copy.deepcopy(self.decoder.attention)
                states = copy.deepcopy(self.decoder.states)
                finished.append(FinishedSeed(result, attention, states))
        if self._has_own_part:
            self._check_rebuilt(results, test_logits_SNC)

        # average the attention maps over the test rows
        if test is not None:
            add_attention_maps(finished, test, self.eval_batch_size(test))
        for result in results:
            seconds = self.seconds + time.perf_counter() - start
            result.seconds = seconds / len(self.seeds)
        return results

    def _check_rebuilt(
        self, results: Sequence[SeedResult], test_logits_SNC: Tensor
    ) -> None:
        """Refuse a user's decoder whose saved weights do not give its logits again.

        Args:
            results: of the seeds.
            test_logits_SNC: logits of the N test rows; without rows for a final model,
                whose training rows take their place.
        """
        num_rows = ROWS_REBUILT
        # such a mechanism needs all the rows of a batch
        if self.decoder.attention.depends_on_batch:
            num_rows = self.recipe.batch_size
        subset = self.data.test or self.data.train
        subset = Subset(
            features=subset.features,
            rows=subset.rows[:num_rows],
            label_N=subset.label_N[:num_rows],
        )
        logits_SBC = test_logits_SNC[:, :num_rows]
        if not self.data.test:
            logits_SBC = self.logits(subset, self.kept_weights).float().cpu()
        [x_BLD] = subset.features.batches(subset.rows, len(subset))
        check_rebuilt(
            self.spec,
            results,
            x_BLD.to(self.decoder.dtype),
            logits_SBC,
            self.step.eval_autocast,
        )

    def _load_kept_weights(self, index: int) -> None:
        """Load the kept weights of one seed into the decoder."""
        # ``state_dict`` leaves out buffers that are no part of a decoder
        kept = self.kept_weights.parameters | self.kept_weights.buffers
        weights = {name: kept[name][index] for name in self.decoder.state_dict()}
        self.decoder.load_state_dict(weights)
