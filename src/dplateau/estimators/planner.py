"""A good plan from public facts: sizes, bounds and the budget. It never sees the data.

The rule (studied in docs/planner.md). Write ``R`` for the bound on the augmented feature norm,
``mu`` for the Gaussian parameter of the budget, ``Delta`` for the gradient sensitivity, ``d`` for
the number of weights and ``tau`` for step size times steps. Starting at 0,

* what is not yet learned after ``tau`` is at most ``reach**2 / (2 tau R**2)``, the classical bound
  for gradient descent towards weights of norm ``reach / R``, nor, in regression on means, more
  than there was to learn;
* noise adds at most ``min(kappa (tau R)**2 / 2, d tau / 4) * (Delta / (n mu))**2``: in flat
  directions it adds up as a random walk, in curved ones it settles, whatever the step size.

``tau`` minimises the sum. The step is ``STEP`` over the curvature, logistic gradients are clipped
at half of ``R``, and all records take part in every step until that is too much work, from where
on Poisson batches carry the same noise at less cost. A softmax may be clipped only if composition
is all that is claimed; it nearly always pays (a third of the noise), so both kinds are forecast.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from scipy.optimize import brentq

from dplateau._validate import non_negative, positive, probability, whole
from dplateau.accounting.calibration import calibrate
from dplateau.accounting.privacy_loss.conversions import gdp_of
from dplateau.errors import PlanError
from dplateau.plan.batches import REPLACE_ONE, Batches, FullBatch, Poisson, relation_name
from dplateau.plan.checks import largest_step
from dplateau.plan.domains import Domain, Everywhere
from dplateau.plan.losses import Loss
from dplateau.plan.plan import Plan
from dplateau.plan.schedules import Schedule, schedule

INTERCEPT = 0.25  # the constant feature's value, in units of data_norm
STEP = 1.5  # step size times smoothness; 2 is the contraction limit
LEAST_STEPS, MOST_STEPS = 20, 2000
SOFTMAX_STEPS = 4 * MOST_STEPS  # leave as little unlearned as MOST_STEPS of a logistic loss do
TARGET_STEPS = 5 * MOST_STEPS  # regression is judged by its loss itself, to the last percent
PATIENCE = 10  # times as many steps where somebody grants the time
LEAST_BATCH = 256
WORK = 3e10  # records read in all steps, times weights: well below a minute on two cores


@dataclass(frozen=True, kw_only=True)
class _Task:
    """The public facts that a plan is made for."""

    records: int  # what is divided by
    likely: int  # how many there probably are
    features: int
    data_norm: float
    relation: str
    mu: float | None  # of the budget; None where the noise multiplier is given instead
    work: float
    most: int | None  # steps that a time budget has room for, where there is one

    @property
    def hit(self) -> float:
        """How many gradients' lengths one record can change a sum by."""
        return 2.0 if self.relation == REPLACE_ONE else 1.0

    @property
    def filled(self) -> float:
        """The mean gradient as computed, in units of the mean over the records there are."""
        return self.likely / self.records

    def weights(self, loss: Loss) -> int:
        return (self.features + (loss.intercept > 0)) * loss.outputs


def suggest_plan(
    loss: Loss,
    n_samples: int,
    n_features: int,
    *,
    data_norm: float,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    neighboring_relation: str = REPLACE_ONE,
    likely_records: int | None = None,
    domain: Domain | None = None,
    regularization: float | None = None,
    l1: float = 0.0,
    batches: Batches | None = None,
    iterations: float | None = None,
    step_size: Any = None,
    hidden_state: bool | None = None,
    work: float = WORK,
    most_steps: int | None = None,
) -> Plan:
    """The plan with the least predicted excess loss for a budget, from public facts alone.

    Whatever is given is kept; what is left out is chosen.

    Parameters
    ----------
    loss : Loss
        What to train. The plan's own loss may clip gradients (``plan.loss``): run that one.
    n_samples, n_features : int
        Records and features, the intercept excluded.
    data_norm : float
        The public bound on feature norms; longer rows are scaled down to it.
    epsilon, delta : float
        The budget; or give ``noise_multiplier``, and the plan spends what that costs.
    likely_records : int, optional
        Where ``n_samples`` is only an upper bound (``add_or_remove_one``): how many records there
        probably are. It sets how far to go, never what is divided by.
    iterations : int or math.inf, optional
        ``inf``: an L2 penalty is chosen that makes the guarantee hold for any number of steps.
    work : float
        Compute budget: records read in all steps, times weights.
    most_steps : int, optional
        How many steps there is time for. By default as many as leave little to learn.

    Returns
    -------
    Plan
        Complete and calibrated: ``account(plan).epsilon(delta) <= epsilon``.

    Examples
    --------
    >>> from dplateau import Logistic
    >>> plan = suggest_plan(Logistic(intercept=0.25), 10_000, 20, data_norm=1.0,
    ...                     epsilon=1.0, delta=1e-6)
    >>> plan.batches, plan.hidden_state
    (FullBatch(), True)
    """
    _check_given(loss, epsilon, noise_multiplier, delta)
    if iterations is not None and iterations != math.inf:
        iterations = whole("iterations", iterations, way_out="Or pass math.inf.")
    if step_size is not None:
        step_size = _positive_schedule(step_size)
    records = whole("n_samples", n_samples)
    task = _Task(
        records=records,
        likely=min(whole("likely_records", likely_records or records), records),
        features=whole("n_features", n_features),
        data_norm=positive("data_norm", data_norm),
        relation=relation_name(neighboring_relation),
        mu=None
        if epsilon is None
        else gdp_of(positive("epsilon", epsilon), probability("delta", delta)),
        work=positive("work", work),
        most=None if most_steps is None else whole("most_steps", most_steps),
    )
    given = {
        "domain": Everywhere() if domain is None else domain,
        "regularization": regularization,
        "l1": l1,
        "batches": batches,
        "iterations": iterations,
        "step_size": step_size,
    }
    kinds = _kinds(loss, task, hidden_state, endless=iterations == math.inf)
    drafts = _drafts(task, kinds, given, noise_multiplier)

    def forecast(plan: Plan) -> float:
        return predicted_excess(plan, task.features, filled=task.filled)

    if epsilon is None or delta is None:
        return min(drafts, key=forecast)
    if any(plan.diameter < math.inf or plan.regularization > 0 for plan in drafts):
        # A plateau may make hidden iterates cheaper than composition: price every kind exactly.
        return min((calibrate(plan, epsilon, delta) for plan in drafts), key=forecast)
    return calibrate(min(drafts, key=forecast), epsilon, delta)


def _check_given(loss: object, epsilon: object, noise_multiplier: object, delta: object) -> None:
    if not isinstance(loss, Loss):
        raise PlanError(
            f"loss must be a Loss such as Logistic(intercept=0.25); found {loss!r}. "
            "Others are Softmax, Huber, SmoothedHinge and SmoothedPinball."
        )
    if (epsilon is None) == (noise_multiplier is None):
        raise PlanError("give exactly one of epsilon and noise_multiplier.")
    if epsilon is not None and delta is None:
        raise PlanError("delta is missing: choose one far below 1 / n_samples, such as 1e-6.")


def _positive_schedule(step_size: Any) -> Schedule:
    steps = schedule(step_size)
    if steps.smallest(1) <= 0:
        raise PlanError(
            f"step_size must be positive; found {step_size!r}. Leave it out to have it chosen."
        )
    return steps


def predicted_excess(plan: Plan, n_features: int, *, filled: float = 1.0) -> float:
    """The rule's forecast of the expected loss above the best, from public facts alone.

    ``filled`` is the likely number of records divided by ``plan.records``.
    """
    loss, eta = _loss_of(plan), plan.step_size.largest(1)
    norm = loss.augmented_norm(plan.data_norm)  # type: ignore[arg-type]
    weights = (n_features + (loss.intercept > 0)) * loss.outputs
    decay = eta * plan.regularization
    steps = min(plan.iterations, 1 / decay) if decay else plan.iterations
    spread = steps * (eta * plan.sigma) ** 2
    noise = min(loss.curvature * norm**2 * spread / 2, weights * eta * plan.sigma**2 / 4 / filled)
    return _unlearned(loss, filled * eta * steps * norm**2) + noise


def best_travel(loss: Loss, sensitivity: float, weights: int, norm: float, privacy: float) -> float:
    """``tau``: step size times steps, by the rule in this module's head.

    ``privacy`` is ``n mu``; ``norm`` the bound on augmented feature rows.
    """
    noise = (sensitivity / (privacy * norm)) ** 2  # per unit of t = tau R**2
    gain, start = 2 / loss.reach**2, 1 / loss.start

    def excess(t: float) -> float:
        return _unlearned(loss, t) + min(loss.curvature * t**2 / 2, weights * t / 4) * noise

    # Where a little more travel gains, gain / (start + gain t)**2, what its noise costs.
    settled = (math.sqrt(4 * gain / (weights * noise)) - start) / gain
    walking = (1 / (gain * loss.curvature * noise)) ** (1 / 3)
    if start:
        walking = brentq(
            lambda t: loss.curvature * noise * t * (start + gain * t) ** 2 - gain, 0.0, walking
        )
    return min((t for t in (walking, settled) if t > 0), key=excess) / norm**2


def _unlearned(loss: Loss, t: float) -> float:
    """What gradient descent has not learned after ``t = tau R**2``, at most.

    As ``d/dt excess <= -2 (excess / reach)**2`` along the way, from what there was at the start.
    """
    return 1 / (1 / loss.start + 2 * t / loss.reach**2)


def _kinds(
    loss: Loss, task: _Task, hidden_state: bool | None, *, endless: bool
) -> list[tuple[Loss, bool]]:
    """The losses to consider, each with whether its iterates may stay hidden.

    A loss of one score is clipped for free, one of many only where composition is claimed.
    """
    share, clipped = loss.planned_clip, loss
    if share is not None and loss.clip is None:
        clipped = dataclasses.replace(loss, clip=share * loss.augmented_norm(task.data_norm))
    if share is None or loss.outputs == 1:
        return [(clipped, hidden_state is not False)]
    if loss.clip is not None or hidden_state is False:
        return [(clipped, False)]
    return [(loss, True)] if hidden_state or endless else [(clipped, False), (loss, True)]


def _drafts(
    task: _Task,
    kinds: list[tuple[Loss, bool]],
    given: dict[str, Any],
    noise_multiplier: float | None,
) -> list[Plan]:
    """A draft of every kind that what was given allows; refused if it allows none."""
    drafts, refusals = [], []
    for loss, hidden in kinds:
        try:
            drafts.append(_draft(task, loss, hidden, given, noise_multiplier))
        except PlanError as refusal:  # such as a step too long for hidden iterates
            refusals.append(refusal)
    if not drafts:
        raise refusals[0]
    return drafts


def _draft(
    task: _Task, loss: Loss, hidden: bool, given: dict[str, Any], noise_multiplier: float | None
) -> Plan:
    """A complete plan; where noise is to be found, it has what composition of its steps needs."""
    tau = _travel(task, loss, noise_multiplier)
    endless = given["iterations"] == math.inf
    alpha = given["regularization"]
    if alpha is None:
        # The plateau of a penalty alpha has the noise of tau = 2/alpha and the bias of
        # tau = 1/alpha; their sum is least here.
        alpha = math.sqrt(2) / tau if endless else 0.0
    eta, steps = _step_and_steps(task, loss, hidden, alpha, tau, given)
    batches = given["batches"] or _batches(task, loss, steps)
    noise = noise_multiplier
    if noise is None:
        assert task.mu is not None
        walk = min(steps, _most_steps(task, loss))
        if endless and alpha:
            walk = 2 / (eta.largest(1) * alpha)
        q = batches.inclusion_probability(task.records)
        noise = q * task.hit * math.sqrt(walk) / task.mu
    return Plan(
        records=task.records,
        batches=batches,
        iterations=steps,
        step_size=eta,
        noise_multiplier=schedule(noise),
        regularization=alpha,
        l1=given["l1"],
        domain=given["domain"],
        neighboring_relation=task.relation,
        hidden_state=hidden,
        dimension=task.weights(loss),
        loss=loss,
        data_norm=task.data_norm,
    )


def _travel(task: _Task, loss: Loss, noise_multiplier: float | None) -> float:
    """``tau`` for the budget, or past which less is left to learn than the given noise hides."""
    lipschitz = loss.constants(task.data_norm).lipschitz
    norm, weights = loss.augmented_norm(task.data_norm), task.weights(loss)
    if task.mu is not None:
        privacy = task.likely * task.mu
        return best_travel(loss, task.hit * lipschitz, weights, norm, privacy) / task.filled
    eta = STEP / (loss.curvature * norm**2)
    sigma = non_negative("noise_multiplier", noise_multiplier) * lipschitz / task.likely
    longest = _most_steps(task, loss) * eta
    settled = weights * eta * sigma**2 / 4
    left = (loss.reach / norm) ** 2 / 2
    return (left / settled if settled > left / longest else longest) / task.filled


def _step_and_steps(
    task: _Task, loss: Loss, hidden: bool, alpha: float, tau: float, given: dict[str, Any]
) -> tuple[Schedule, float]:
    """Step size and number of steps whose product is ``tau``, as far as neither is given."""
    norm = loss.augmented_norm(task.data_norm)
    curvature = loss.curvature * norm**2 if hidden else _curvature_at_start(loss, norm)
    longest = STEP / (curvature + non_negative("regularization", alpha))
    if hidden and given["batches"] is not None:
        roomy = largest_step(given["batches"], task.records, curvature, alpha)
        longest = min(longest, roomy)
    steps, eta, most = given["iterations"], given["step_size"], _most_steps(task, loss)
    if eta is not None:
        eta = schedule(eta)
        if steps is None:
            steps = min(max(math.ceil(tau / eta.largest(math.inf)), LEAST_STEPS), most)
        return eta, steps
    if steps is None:
        steps = min(max(math.ceil(tau / longest), LEAST_STEPS), most)
        if given["batches"] is not None:  # an epoch that was begun is ended
            epoch = given["batches"].hits(task.records).epoch or 1
            steps = math.ceil(steps / epoch) * epoch
    return schedule(min(longest, tau / steps) if steps < math.inf else longest), steps


def _batches(task: _Task, loss: Loss, steps: float) -> Batches:
    """All records, or as many as the work allows: sampling leaves the noise as it is."""
    rows = task.work / (task.weights(loss) * min(steps, _most_steps(task, loss)))
    if rows >= task.likely:
        return FullBatch()
    size = max(round(rows / task.filled), LEAST_BATCH)
    return Poisson(size) if size < task.records else FullBatch()


def _most_steps(task: _Task, loss: Loss) -> int:
    """Where more steps are not worth their time; with a time budget, what it has room for.

    After `MOST_STEPS` steps of ``STEP`` over the curvature at the start some 0.01 nats are left to
    learn of a logistic loss, and after `SOFTMAX_STEPS` of a softmax of any number of classes. Of
    a regression's loss a percent may be left then, which is worth five times as many.
    """
    enough = SOFTMAX_STEPS if loss.outputs > 1 else TARGET_STEPS
    if loss.outputs == 1 and hasattr(loss, "classes"):
        enough = MOST_STEPS
    return enough if task.most is None else min(task.most, PATIENCE * enough)


def _curvature_at_start(loss: Loss, norm: float) -> float:
    """Largest curvature at the weights 0: where steps need not contract, this sets their size."""
    return loss.curvature * norm**2 if loss.outputs == 1 else norm**2 / loss.outputs


def _loss_of(plan: Plan) -> Loss:
    if plan.loss is None or plan.data_norm is None:
        raise PlanError("the forecast needs the plan's loss and data_norm.")
    return plan.loss


__all__ = ["best_travel", "predicted_excess", "suggest_plan"]
