"""The planner's forecast: what training leaves unlearned and what noise adds (docs/planner.md)."""

from __future__ import annotations

import math

from scipy.optimize import brentq

from dplateau.errors import PlanError
from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan

VIEW = 0.1  # of what there is to learn: noise that a long view puts up with
BORNE = 0.07  # of what there may be to learn: noise that a regression puts up with
FAINT = 1 / 3  # residual clips: half of it only where a released mean would have that much noise
MEAN_SHARE = 0.9  # the constant feature's in R**2 where little but the targets' mean can be learned
MEANS = 1 / 3  # squared, if the mean of targets in [-1, 1] may lie anywhere alike
FEW = 0.5  # share of the reach that is worth going for where records are few
ENOUGH = 600.0  # n mu R / Delta per class from which on all of it is
MANY_WEIGHTS = 1000  # features that many separate classes as a rule; with fewer the view shortens
FEW_WEIGHTS = 6  # a regression with fewer has learned all of them before noise counts that little
LEARNED = 0.01  # nats, by the bound, that rows drawn in to their usual length leave behind for good


def predicted_excess(plan: Plan, n_features: int, *, filled: float = 1.0) -> float:
    """The rule's forecast of the expected loss above the best, from public facts alone.

    ``filled`` is the likely number of records divided by ``plan.records``.
    """
    if plan.loss is None or plan.data_norm is None:
        raise PlanError("the forecast needs the plan's loss and data_norm.")
    loss, eta = plan.loss, plan.step_size.largest(1)
    norm = loss.augmented_norm(plan.data_norm)
    weights = (n_features + (loss.intercept > 0)) * loss.outputs
    decay = eta * plan.regularization
    steps = min(plan.iterations, 1 / decay) if decay else plan.iterations
    return excess(loss, norm, weights, eta, steps, plan.sigma**2, filled)


def excess(
    loss: Loss, norm: float, weights: int, eta: float, steps: float, variance: float, filled: float
) -> float:
    """Unlearned and noise after so many steps with gradients of this variance per weight."""
    t = filled * eta * steps * norm**2
    spread = steps * eta**2 * variance
    noise = min(loss.curvature * norm**2 * spread / 2, weights * eta * variance / 4 / filled)
    per_travel = variance / (steps * (norm * filled) ** 2) if steps < math.inf else 0.0
    return unlearned(loss, t) + noise / _flattened(loss, weights, per_travel)


def _flattened(loss: Loss, weights: int, noise: float) -> float:
    """How many times less than at the start curvature is once a long view has been learned.

    It is what makes the best travel the one whose noise costs `VIEW` of the stake at the start;
    far less where features are few and labels hardly follow from them.
    """
    if not loss.labels or noise == 0:
        return 1.0
    view = VIEW * min(1.0, weights / loss.outputs / MANY_WEIGHTS) ** 2
    return max(1.0, (4 * view * loss.stake / loss.reach) ** 2 / (2 * weights * noise))


def best_travel(
    loss: Loss,
    sensitivity: float,
    weights: int,
    norm: float,
    privacy: float,
    *,
    drawn_in: bool = False,
    mean_first: bool = False,
) -> float:
    """``tau``: step size times steps, by the planner's rule.

    ``privacy`` is ``n mu``; ``norm`` the bound on augmented feature rows; ``drawn_in`` says whether
    a look has centred them and cut the bound to their usual length; ``mean_first`` whether the
    constant feature grows where the mean of the targets is all that can be learned.
    """
    noise = (sensitivity / (privacy * norm)) ** 2  # per unit of t = tau R**2
    known = _known(loss, noise)
    noise /= _flattened(loss, weights, noise)
    gain, start = 2 / (known * loss.reach) ** 2, 1 / loss.start

    def total(t: float) -> float:
        return (
            unlearned(loss, t / known**2) + min(loss.curvature * t**2 / 2, weights * t / 4) * noise
        )

    # Where a little more travel gains, gain / (start + gain t)**2, what its noise costs.
    walking = (1 / (gain * loss.curvature * noise)) ** (1 / 3)
    if start:
        walking = brentq(
            lambda t: loss.curvature * noise * t * (start + gain * t) ** 2 - gain, 0.0, walking
        )
        t = max(walking, _bearable(loss, weights, noise))
        t = max(t, _mean_learned(loss, noise)) if mean_first else t
    else:
        t = min(walking, math.sqrt(4 / (gain * weights * noise)), key=total)
    if drawn_in and loss.labels:
        t = 1 / (1 / t + 1 / _all_learned(loss, weights))
    return float(t / norm**2)


def _bearable(loss: Loss, weights: int, noise: float) -> float:
    """``tau R**2`` at which noise in all directions costs `BORNE` of what a regression can learn.

    That is ``start`` if a few directions carry all of it, and ``reach**2 / (2 d)`` if weights of
    that length are spread over ``d`` that bend the loss alike; their geometric mean is taken. Where
    the mean itself is hard to tell less is borne, so that slopes add no more noise than it has;
    where budgets are large what is left to learn ends the travel, as in every forecast.
    """
    spread = max(weights, FEW_WEIGHTS)
    stake = math.sqrt(loss.start * loss.reach**2 / (2 * spread))
    told = 1 / (1 + _released_mean(loss, noise) / (FAINT * loss.slope_bound) ** 2)
    bearable = 4 * BORNE * told * stake / (spread * noise)
    settled = loss.reach * math.sqrt(2 / (weights * noise))
    return 1 / math.hypot(1 / bearable, 1 / settled)


def _released_mean(loss: Loss, noise: float) -> float:
    """Variance of a mean of targets in [-1, 1] that spends the whole budget."""
    return noise / loss.slope_bound**2


def _mean_learned(loss: Loss, noise: float) -> float:
    """``tau R**2`` after which the targets' mean is learned as well as if it were all there is.

    All residuals being clipped, the constant's score moves by ``slope_bound`` times its share of
    ``R**2`` for a unit of travel: to either end of [-1, 1] here. The noise of all scores is then at
    most ``1 / MEAN_SHARE**2`` times that of a released mean. Where even that noise is larger than
    means are, the part of the way is gone that a released mean would best be shrunk to.
    """
    kept = MEANS / (MEANS + _released_mean(loss, noise))
    return kept / (loss.slope_bound * MEAN_SHARE)


def _all_learned(loss: Loss, weights: int) -> float:
    """``tau R**2`` after which more budget is not worth more travel.

    It leaves `LEARNED` by the bound, which is far too high for rows that are centred and as long as
    they may be: all their directions bend the loss. The more features there are, the less each.
    """
    left = min(LEARNED, loss.outputs / weights)
    return loss.reach**2 / (2 * left)


def _known(loss: Loss, noise: float) -> float:
    """The share of the loss's reach that is worth going for: half of it where records are few.

    Large scores of a class whose records do not stand out from the noise are chance.
    """
    if not loss.labels:
        return 1.0
    return min(max(1 / math.sqrt(noise) / (len(loss.labels) * ENOUGH), FEW), 1.0)


def unlearned(loss: Loss, t: float) -> float:
    """What gradient descent has not learned after ``t = tau R**2``, at most.

    As ``d/dt excess <= -2 (excess / reach)**2`` along the way, from what there was at the start.
    """
    return 1 / (1 / loss.start + 2 * t / loss.reach**2)


def at_stake(loss: Loss) -> float:
    """What there is to learn that time is weighed against.

    A class is right or wrong; regression is judged by its loss itself, to the last percent.
    """
    return loss.stake if loss.labels else loss.stake / 4


def curvature_at_start(loss: Loss, norm: float) -> float:
    """Largest curvature at the weights 0: where steps need not contract, this sets their size."""
    return loss.curvature * norm**2 if loss.outputs == 1 else norm**2 / loss.outputs
