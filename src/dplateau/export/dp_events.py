"""dp_accounting's events as JSON, and the event of a plan.

An event describes what a plan releases if *every* iterate is shown, which is all that dp_accounting
knows how to price: reading it back gives the composition price of the plan. It is never less than
the certificate's but for what floating point adds to that (theory, section 20).
"""

from __future__ import annotations

import json
import math
from typing import Any

import attr
from dp_accounting import dp_event

from dplateau.certificate.record import Certificate
from dplateau.errors import DataError, PlanError
from dplateau.plan.batches import REPLACE_ONE
from dplateau.plan.plan import Plan

_DEEPEST = 20  # levels of events within events


def event_of(plan: Plan) -> dp_event.DpEvent:
    """What running the plan with every iterate released is to dp_accounting.

    See docs/theory.md#section-3. dp_accounting's PLD accountant scales noise by what a single
    record adds, and doubles that itself where records are replaced.

    Examples
    --------
    >>> import dplateau as dp
    >>> plan = dp.Plan(records=1000, batches=dp.Poisson(10), iterations=50, step_size=0.1,
    ...                noise_multiplier=2.0, lipschitz=1.0, smoothness=0.25)
    >>> event_of(plan).count, event_of(plan).event.sampling_probability
    (50, 0.01)
    """
    if math.isinf(plan.iterations):
        raise PlanError(
            "a plan of any number of steps has no composition price, so dp_accounting has no event "
            "for it. Export the plan as it was run, with its number of steps."
        )
    if not plan.noise_multiplier.is_constant:
        noises = plan.noise_multiplier.values(0, int(plan.iterations))
        least = float(noises.min())
    else:
        least = plan.noise_multiplier.largest(1)
    steps, law = int(plan.iterations), plan.hits
    if law.deterministic or law.epoch is not None:
        # every record takes part once an epoch, wherever it stands in it
        return dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(least), law.most_hits(steps))
    if law.exchanged:  # read by the Renyi accountant, which does not double a replacement
        scaled = dp_event.GaussianDpEvent(least * plan.lipschitz / plan.sensitivity)
        drawn = dp_event.SampledWithoutReplacementDpEvent(
            plan.records, int(plan.batch_size), scaled
        )
        return dp_event.SelfComposedDpEvent(drawn, steps)
    one = dp_event.PoissonSampledDpEvent(law.chance, dp_event.GaussianDpEvent(least))
    return dp_event.SelfComposedDpEvent(one, steps)


def certified_event(certificate: Certificate) -> dp_event.DpEvent:
    """The event of all that a certificate covers: the training, and noisy sums beside it.

    dp_accounting has no event for a private count, nor one that a search of many candidates with
    scores of their own is; less than the certificate's price must not be read back, so these are
    refused.
    """
    plan, bought = certificate.plan, certificate.bought
    for what, there in (("search", bought.search), ("count", certificate.counting.count)):
        if there is not None:
            raise PlanError(
                f"this release contains a private {what}, for which dp_accounting has no event. "
                "Enter the certificate itself in a ledger, or state its epsilon and delta by hand."
            )
    event = event_of(plan)
    if not bought.mu:
        return event
    # The accountant that reads the training doubles a replacement, or does not: see `event_of`.
    doubled = plan.neighboring_relation == REPLACE_ONE and not plan.hits.exchanged
    look = dp_event.GaussianDpEvent((2.0 if doubled else 1.0) / bought.mu)
    return dp_event.ComposedDpEvent([look, event])


def event_to_dict(event: dp_event.DpEvent) -> dict[str, Any]:
    """An event and all inside it as plain JSON values."""

    def plain(value: Any) -> Any:
        if isinstance(value, dp_event.DpEvent):
            return event_to_dict(value)
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return value

    fields = {field.name: plain(getattr(event, field.name)) for field in attr.fields(type(event))}
    return {"class_name": type(event).__name__, **fields}


def event_from_dict(stored: Any, depth: int = 0) -> dp_event.DpEvent:
    """The inverse of `event_to_dict`; what is not an event of dp_accounting is refused."""
    if isinstance(stored, dict) and "class_name" not in stored and "dp_event" in stored:
        stored = stored["dp_event"]  # a file of `dplateau export --format dp_accounting`
    if not isinstance(stored, dict) or depth > _DEEPEST:
        raise DataError("this is not a dp_accounting event, as `dplateau export` writes it.")
    rest = dict(stored)
    name = rest.pop("class_name", None)
    kind = getattr(dp_event, name, None) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, dp_event.DpEvent)):
        raise DataError(f"dp_accounting has no event {name!r:.60}.")

    def restored(value: Any) -> Any:
        if isinstance(value, dict):
            return event_from_dict(value, depth + 1)
        if isinstance(value, list):
            return [restored(item) for item in value]
        return value

    try:
        return kind(**{key: restored(value) for key, value in rest.items()})
    except (TypeError, ValueError) as trouble:
        raise DataError(f"{name} has other fields than these ({trouble}).") from None


def event_file(certificate: Certificate) -> str:
    """The event of a release as JSON, with what it costs there and the certificate's digest."""
    plan = certificate.plan
    found = {
        "kind": "dp_accounting event",
        "certificate": certificate.to_dict()["digest"],
        "neighboring_relation": certificate.relation,
        "unit": plan.unit,
        "composition": {
            "epsilon": certificate.to_dict()["guarantee"]["composition"],
            "delta": certificate.delta,
        },
        "about": "Every iterate released: dp_accounting prices the composition, never less than "
        "the certificate's own epsilon.",
        "dp_event": event_to_dict(certified_event(certificate)),
    }
    return json.dumps(found, indent=2, allow_nan=False) + "\n"
