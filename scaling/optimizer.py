"""AdamW and Muon with a warm-up and a decay; which parameter gets what is its group's business."""

import jax
import optax
from optax.contrib import MuonDimensionNumbers, muon

from scaling.study import Train


def schedule(train: Train, steps: int) -> optax.Schedule:
    """Learning rate by step: linear warm-up, then cosine, or stable and linear decay (wsd)."""
    peak, final = train.learning_rate, train.learning_rate * train.final_learning_rate_fraction
    warmup = round(train.warmup_fraction * steps)
    if train.schedule == "cosine":
        after = optax.cosine_decay_schedule(
            peak, max(1, steps - warmup), train.final_learning_rate_fraction
        )
    else:
        decay = min(max(1, round(train.decay_fraction * steps)), max(1, steps - warmup))
        after = optax.join_schedules(
            [optax.constant_schedule(peak), optax.linear_schedule(peak, final, decay)],
            [steps - warmup - decay],
        )
    if warmup == 0:
        return after
    # The first step already learns: 1/warmup of the peak, not zero.
    rise = optax.linear_schedule(peak / warmup, peak, max(1, warmup - 1))
    return optax.join_schedules([rise, after], [warmup])


def make_optimizer(train: Train, steps: int, groups: dict) -> optax.GradientTransformation:
    """The optimizer of a cell.

    Args:
      train: the recipe; `learning_rate` is the peak.
      steps: optimizer steps of the whole run.
      groups: of each parameter, shaped like the parameters; see models.params.Group.
        Vectors (gains, pseudo-queries) get no weight decay unless `decay_vectors`; Muon takes the
        matrices of a layer, each on its own (arXiv 2502.16982), and AdamW the rest.
    """
    rate = schedule(train, steps)

    def adamw(weight_decay: float) -> optax.GradientTransformation:
        return optax.adamw(rate, b1=train.beta1, b2=train.beta2, weight_decay=weight_decay)

    matrices = adamw(train.weight_decay)
    if train.optimizer == "muon":
        matrices = muon(
            rate,
            weight_decay=train.weight_decay,
            consistent_rms=0.2,  # updates as large as AdamW's, so that one learning rate fits both
            # Layers are stacked in front, so the two matrix axes count from the end.
            muon_weight_dimension_numbers=lambda params: jax.tree.map(
                lambda p: MuonDimensionNumbers(p.ndim - 2, p.ndim - 1), params
            ),
        )
    by_group = {
        "matrix": matrices,
        "embedding": adamw(train.weight_decay),
        "vector": adamw(train.weight_decay if train.decay_vectors else 0.0),
    }
    if "mixing" in jax.tree.leaves(groups):  # else the state is as it always was
        by_group["mixing"] = adamw(train.weight_decay)
    return optax.chain(
        optax.clip_by_global_norm(train.clip_norm), optax.partition(by_group, groups)
    )
