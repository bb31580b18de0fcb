"""A good plan from public facts: sizes, bounds and the budget. It never sees the data.

The rule (studied in docs/planner.md). Write ``R`` for the bound on the augmented feature norm,
``mu`` for the Gaussian parameter of the budget, ``Delta`` for the gradient sensitivity, ``d`` for
the number of weights and ``tau`` for step size times steps. Starting at 0,

* what is not yet learned after ``tau`` is at most ``reach**2 / (2 tau R**2)``, the classical bound
  for gradient descent towards weights of norm ``reach / R``, nor, in regression on means, more
  than there was to learn;
* noise adds at most ``min(kappa (tau R)**2 / 2, d tau / 4) * (Delta / (n mu))**2``: in flat
  directions it adds up as a random walk, in curved ones it settles, whatever the step size.

``tau`` minimises the sum; in regression on means it is such that noise costs `forecast.BORNE` of
what there may be to learn, and no less than the mean alone takes, for which the constant feature is
made large enough. In classification
the curvature falls as scores grow, and with it what noise costs: with a large budget ``tau`` is
such that noise would cost `forecast.VIEW` of what there is to learn at the curvature of the start;
where rows are centred and drawn in to their usual length, all is learned after some travel whatever
the budget. The step is ``STEP`` over the curvature, logistic gradients are clipped at half of
``R``. Steps follow the forecast as long as they gain what their time is worth (`effort.price`),
within the announced time; batches are as small as that makes them and as the accountant leaves the
noise as it is. A softmax may be clipped only if composition is all that is claimed; it nearly
always pays (a third of the noise), so both kinds are forecast.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from scipy.optimize import brentq

from dplateau._validate import non_negative, positive, probability, whole
from dplateau.accounting.bounds.composition import composition
from dplateau.accounting.calibration import calibrate
from dplateau.accounting.privacy_loss.conversions import gdp_of
from dplateau.accounting.program import plan_within
from dplateau.errors import PlanError
from dplateau.estimators.effort import (
    ANNOUNCED,
    COMPOSED,
    ORDINARY,
    Pace,
    accounting_seconds,
    excess_noise,
    price,
    sizes,
)
from dplateau.estimators.forecast import (
    MEAN_SHARE,
    at_stake,
    best_travel,
    curvature_at_start,
    excess,
    predicted_excess,
    unlearned,
)
from dplateau.plan.batches import REPLACE_ONE, Batches, FullBatch, relation_name
from dplateau.plan.checks import largest_step
from dplateau.plan.domains import Domain, Everywhere
from dplateau.plan.loss import Loss
from dplateau.plan.plan import Plan
from dplateau.plan.schedules import Schedule, schedule

INTERCEPT = 0.25  # the constant feature's value, in units of data_norm
STEP = 1.5  # step size times smoothness; 2 is the contraction limit
LEAST_STEPS = 20
_SPREAD = 0.25  # of records' gradients around their mean, relative to the largest, squared
_MORE = (1.0, 1.0005, 1.003, 1.01)  # noise, where hidden plans ask for a little more


@dataclass(frozen=True, kw_only=True)
class _Task:
    """The public facts that a plan is made for."""

    records: int  # what is divided by
    likely: int  # how many there probably are
    features: int
    data_norm: float
    relation: str
    mu: float | None  # of the budget; None where the noise multiplier is given instead
    pace: Pace
    seconds: float
    granted: bool  # whether time was given, and costs nothing
    from_disk: bool
    drawn_in: bool  # rows are centred and as long as data_norm, as a rule
    mean_first: bool  # the constant feature may grow for the mean of the targets

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
    seconds: float | None = None,
    pace: Pace = ORDINARY,
    from_disk: bool = False,
    drawn_in: bool = False,
    raise_intercept: bool = False,
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
    seconds : float, optional
        How long the steps may take. By default as long as they are worth it, a minute at most.
    pace : Pace
        How fast steps are; by default an ordinary machine's.
    from_disk : bool
        Records are read from disk: batches, where there are any, are allocated in one pass.
    drawn_in : bool
        Rows will be centred and ``data_norm`` is their usual length, as after a bought look:
        classes are then learned after less travel.
    raise_intercept : bool
        The loss's constant feature may be made larger, up to three times ``data_norm``, so that
        the mean of targets in [-1, 1] is learned first (``plan.loss`` says how large).

    Returns
    -------
    Plan
        Complete and calibrated: ``account(plan).epsilon(delta) <= epsilon``, with room for what
        floating point adds to a run (docs/theory.md#section-20).

    Examples
    --------
    >>> from dplateau import Logistic, account
    >>> plan = suggest_plan(Logistic(intercept=0.25), 10_000, 20, data_norm=1.0,
    ...                     epsilon=1.0, delta=1e-6)
    >>> account(plan).epsilon(1e-6) <= 1.0, plan.hidden_state
    (True, True)
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
        pace=pace,
        seconds=ANNOUNCED if seconds is None else positive("seconds", seconds),
        granted=seconds is not None,
        from_disk=from_disk,
        drawn_in=drawn_in,
        mean_first=raise_intercept and epsilon is not None,
    )
    if task.mean_first:
        loss = _with_intercept(task, loss)
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

    def priced(epsilon: float, delta: float) -> Plan:
        plain = math.isinf(drafts[0].diameter) and not regularization and iterations != math.inf
        if batches is None and plain:
            return _calibrated(min(drafts, key=forecast), epsilon, delta)
        if any(plan.diameter < math.inf or plan.regularization > 0 for plan in drafts):
            # A plateau may make hidden iterates cheaper than composition: price every kind exactly.
            return min((calibrate(plan, epsilon, delta) for plan in drafts), key=forecast)
        return calibrate(min(drafts, key=forecast), epsilon, delta)

    return plan_within(priced, epsilon, delta)


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


def _with_intercept(task: _Task, loss: Loss) -> Loss:
    """The loss with a constant feature whose weight gets from 0 to either end of the targets.

    All residuals being clipped, the score moves by ``slope_bound`` times the squared feature for
    every unit of ``tau``. ``tau R**2`` does not depend on it.
    """
    travel = task.filled * _travel(task, loss, None) * loss.augmented_norm(task.data_norm) ** 2
    share = min(1 / (loss.slope_bound * travel), MEAN_SHARE)  # of its square in R**2
    intercept = max(math.sqrt(share / (1 - share)) * task.data_norm, loss.intercept)
    return dataclasses.replace(loss, intercept=intercept)


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
    options = (
        [given["batches"]] if given["batches"] else sizes(task.records, from_disk=task.from_disk)
    )
    choices = [
        _choice(task, loss, hidden, alpha, tau, {**given, "batches": b}, noise_multiplier)
        for b in options
    ]
    _, batches, eta, steps, noise = min(choices, key=lambda choice: choice[0])
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


def _choice(
    task: _Task,
    loss: Loss,
    hidden: bool,
    alpha: float,
    tau: float,
    given: dict[str, Any],
    noise_multiplier: float | None,
) -> tuple[float, Batches, Schedule, float, float]:
    """Steps and noise for these batches, and their forecast with the price of time."""
    batches, norm = given["batches"], loss.augmented_norm(task.data_norm)
    eta, steps = _step_and_steps(task, loss, hidden, alpha, tau, given)
    decay = eta.largest(1) * alpha
    walk = steps
    if steps == math.inf:  # the noise of a penalty's plateau, or of the travel
        walk = 2 / decay if decay else max(tau / eta.largest(1), LEAST_STEPS)
    second = task.pace.of_step(batches, task.records, task.weights(loss))
    taken, rate = walk * second, batches.inclusion_probability(task.records)
    noise = noise_multiplier
    if noise is None:
        assert task.mu is not None
        kind: dict[str, Any] = {"relation": task.relation, "hidden": hidden}
        noise = rate * task.hit * math.sqrt(walk) / task.mu
        hits = batches.hits(task.records)
        taken += accounting_seconds(hits, noise, **kind)
        noise *= min(excess_noise(hits, noise, **kind), 1e6)
    lipschitz = loss.constants(task.data_norm).lipschitz
    size = batches.batch_size(task.records)
    sampled = _SPREAD * (1 - rate) / size / task.weights(loss)
    variance = lipschitz**2 * ((noise / size) ** 2 + sampled)
    forecast = excess(loss, norm, task.weights(loss), eta.largest(1), walk, variance, task.filled)
    late = max(taken / task.seconds - 1, 0.0)  # what is given may leave no way to be in time
    cost = late + price(taken, task.likely) / (1e3 if task.granted else 1.0)
    return forecast + at_stake(loss) * cost, batches, eta, steps, noise


def _travel(task: _Task, loss: Loss, noise_multiplier: float | None) -> float:
    """``tau`` for the budget, or past which less is left to learn than the given noise hides."""
    lipschitz = loss.constants(task.data_norm).lipschitz
    norm, weights = loss.augmented_norm(task.data_norm), task.weights(loss)
    if task.mu is not None:
        privacy = task.likely * task.mu
        facts = (loss, task.hit * lipschitz, weights, norm, privacy)
        tau = best_travel(*facts, drawn_in=task.drawn_in, mean_first=task.mean_first)
        return tau / task.filled
    eta = STEP / (loss.curvature * norm**2)
    sigma = non_negative("noise_multiplier", noise_multiplier) * lipschitz / task.likely
    longest = _worth(task, loss, FullBatch(), eta) * eta
    settled = weights * eta * sigma**2 / 4
    left = (loss.reach / norm) ** 2 / 2
    return (left / settled if settled > left / longest else longest) / task.filled


def _step_and_steps(
    task: _Task, loss: Loss, hidden: bool, alpha: float, tau: float, given: dict[str, Any]
) -> tuple[Schedule, float]:
    """Step size and number of steps whose product is ``tau``, as far as neither is given."""
    norm, batches = loss.augmented_norm(task.data_norm), given["batches"]
    curvature = loss.curvature * norm**2 if hidden else curvature_at_start(loss, norm)
    longest = STEP / (curvature + non_negative("regularization", alpha))
    if hidden:
        longest = min(longest, largest_step(batches, task.records, curvature, alpha))
    steps, eta = given["iterations"], given["step_size"]
    if eta is not None:
        longest = eta.largest(math.inf)
    if steps is None:
        worth = min(math.ceil(tau / longest), _worth(task, loss, batches, longest))
        steps = max(worth, LEAST_STEPS)
        epoch = batches.hits(task.records).epoch or 1  # one that was begun is ended
        steps = math.ceil(steps / epoch) * epoch
    if eta is not None:
        return eta, steps
    return schedule(min(longest, tau / steps) if steps < math.inf else longest), steps


def _worth(task: _Task, loss: Loss, batches: Batches, eta: float) -> int:
    """How many steps of this size there is time for, each gaining what its time is worth."""
    second = task.pace.of_step(batches, task.records, task.weights(loss))
    room = max(math.floor(task.seconds / second), 1)
    if task.granted:
        return room
    travel = task.filled * eta * loss.augmented_norm(task.data_norm) ** 2

    def gain(steps: float) -> float:  # of an e-th more of them, beyond its price
        more = unlearned(loss, travel * steps) - unlearned(loss, travel * steps * math.e)
        taken = second * steps
        extra = price(taken * math.e, task.likely) - price(taken, task.likely)
        return more - at_stake(loss) * extra

    if gain(1.0) <= 0:
        return 1
    return room if gain(room) >= 0 else math.floor(brentq(gain, 1.0, room, rtol=1e-3))


def _calibrated(plan: Plan, epsilon: float, delta: float) -> Plan:
    """The least noise, by composition where sampled batches of its own choice lose nothing by it.

    Hidden hits are dear to work out; where they gain next to nothing they are left alone.
    """
    coins = plan.hits.independent and not plan.hits.exchanged
    if not coins or not plan.hidden_state:
        return calibrate(plan, epsilon, delta)
    plain = plan.inclusion_probability * math.sqrt(plan.iterations) / gdp_of(epsilon, delta)
    plain *= 2.0 if plan.neighboring_relation == REPLACE_ONE else 1.0
    composed = calibrate(plan.replace(hidden_state=False), epsilon, delta).noise_multiplier
    plan = plan.replace(noise_multiplier=composed)
    if composed.largest(1) <= (1 + 2 * COMPOSED) * plain:
        for more in _MORE:  # hidden iterates cap batches, which costs a trace
            chosen = plan.replace(noise_multiplier=composed.scaled(more))
            if composition(chosen).epsilon(delta) <= epsilon:
                return chosen
    return calibrate(plan, epsilon, delta)


__all__ = ["best_travel", "predicted_excess", "suggest_plan"]
