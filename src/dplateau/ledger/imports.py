"""What others have released from the same data, in the ledger's own terms.

An Opacus accountant's history, dp_accounting's events, a certificate, a plan. What no rule here
knows is priced by dp_accounting as one ``(epsilon, delta)``, or refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import dp_accounting
from dp_accounting import dp_event, pld, rdp

from dplateau._validate import as_number, whole
from dplateau.certificate.record import Certificate
from dplateau.errors import PlanError
from dplateau.ledger.mechanisms import (
    GaussianQuery,
    LaplaceQuery,
    Mechanism,
    Several,
    Stated,
)
from dplateau.ledger.trained import Training, under
from dplateau.plan.batches import REPLACE_ONE, FullBatch, Poisson
from dplateau.plan.plan import Plan

_ROUNDING = 1e-6
_ANY_RECORDS = 1_000_000  # a plan needs a number; composition depends on the sampling rate alone


def mechanism_of(release: Any, relation: str, delta: float) -> Mechanism:
    """Whatever was released, as a mechanism accounted under ``relation``.

    Parameters
    ----------
    release : Mechanism, Certificate, fitted estimator, Plan, dp_accounting event, Opacus accountant
        Or the accountant's ``history``: triples of noise multiplier, sample rate and steps.
    relation : str
        The data set's neighbouring relation.
    delta : float
        Where an epsilon is stated for what brings none of its own.
    """
    if isinstance(release, Mechanism):
        return release
    release = getattr(release, "certificate_", release)
    if isinstance(release, Certificate):
        return from_certificate(release, relation)
    if isinstance(release, Plan):
        return _finite(Training(under(release, relation), delta).as_released())
    if isinstance(release, dp_accounting.DpEvent):
        parts = tuple(_parts(release, 1, relation, delta))
        return parts[0] if len(parts) == 1 else Several(parts) if parts else Stated(0.0)
    history = getattr(release, "history", release)
    if isinstance(history, Sequence) and not isinstance(history, str) and history:
        return from_opacus(history, relation, delta)
    raise PlanError(
        f"a release of type {type(release).__name__} is unknown. Give a certificate, a plan, a "
        "dp_accounting event, an Opacus accountant or its history, dplateau.ledger.GaussianQuery "
        "or LaplaceQuery, or epsilon and delta by themselves."
    )


def from_certificate(certificate: Certificate, relation: str) -> Mechanism:
    """The certified plan, priced anew: what the certificate claims is not taken on trust.

    See docs/theory.md#section-20: what floating point adds is part of the price, for the shape of
    the weights that were released.
    """
    certificate.verify()
    counting, plan = certificate.counting, _complete(certificate)
    if certificate.bought:
        return _claimed(certificate, relation)
    if counting.count is None:
        own = _finite(Training(plan, certificate.delta))
        if certificate.epsilon > own.stated(own.delta)[0] * (1 + _ROUNDING):
            return _claimed(certificate, relation)
        return _finite(Training(under(plan, relation), certificate.delta))
    if certificate.plan.neighboring_relation != relation:
        raise PlanError(
            f"this release counted its records privately, under "
            f"{certificate.plan.neighboring_relation!r}; the data set's budget is kept under "
            f"{relation!r}. Train with that relation."
        )
    count = counting.count.together
    return _finite(Training(plan, certificate.delta, count, certificate.epsilon))


def _complete(certificate: Certificate) -> Plan:
    """The certified plan with the number of weights, which rounding is charged by."""
    plan = certificate.plan
    if plan.dimension is not None:
        return plan
    return plan.replace(dimension=math.prod(certificate.to_dict()["model"]["shape"]))


def _claimed(certificate: Certificate, relation: str) -> Stated:
    """A certificate that counts more than its plan (a search, a scaling): its total alone."""
    found = certificate.to_dict()["relations"].get(relation, "inf")
    if found == "inf":
        raise PlanError(
            f"this release states no epsilon under {relation!r}, which the data set's budget is "
            "kept under. Train with that relation."
        )
    return Stated(float(found), certificate.delta)


def _finite(mechanism: Training) -> Training:
    if math.isinf(mechanism.stated(mechanism.delta)[0]):
        raise PlanError(
            "this release has no finite epsilon, so no budget covers it. Add noise, or limit the "
            "number of steps."
        )
    return mechanism


def from_opacus(history: Sequence[Any], relation: str, delta: float) -> Mechanism:
    """An Opacus accountant's history: Poisson batches of DP-SGD, every step counted.

    Guarantee
    ---------
    The price of a run whose batches were drawn as Opacus accounts them (Poisson), under the data
    set's own relation.

    Examples
    --------
    >>> found = from_opacus([(1.1, 0.01, 1000)], "add_or_remove_one", 1e-5)
    >>> round(found.stated(1e-5)[0], 2)
    1.52
    """
    parts: list[Mechanism] = []
    for step in history:
        if not isinstance(step, Sequence) or len(step) != 3:
            raise PlanError(
                "an Opacus history is a list of (noise multiplier, sample rate, steps); found "
                f"{step!r:.60}."
            )
        noise, rate, steps = step
        share = delta / len(history)
        parts.append(_sampled(as_number("noise multiplier", noise), rate, steps, relation, share))
    return parts[0] if len(parts) == 1 else Several(tuple(parts))


def _sampled(noise: float, rate: Any, steps: Any, relation: str, delta: float) -> Training:
    rate = as_number("sample rate", rate)
    if not 0 < rate <= 1:
        raise PlanError(f"a sample rate lies in (0, 1]; found {rate!r}.")
    return _finite(
        Training(
            Plan(
                records=_ANY_RECORDS,
                batches=FullBatch() if rate == 1 else Poisson(rate * _ANY_RECORDS),
                iterations=whole("steps", steps),
                step_size=1.0,
                noise_multiplier=noise,
                lipschitz=1.0,
                neighboring_relation=relation,
                hidden_state=False,
            ),
            delta,
        )
    )


def _parts(event: Any, count: int, relation: str, delta: float) -> Iterator[Mechanism]:
    """An event and what is inside it, as mechanisms of their own."""
    if isinstance(event, dp_event.NoOpDpEvent):
        return
    if isinstance(event, dp_event.ComposedDpEvent):
        for inner in event.events:
            yield from _parts(inner, count, relation, delta / len(event.events))
        return
    if isinstance(event, dp_event.SelfComposedDpEvent):
        yield from _parts(event.event, count * event.count, relation, delta)
        return
    # dp_accounting scales noise by what *adding* a record can change; a replacement is twice that
    doubled = 2.0 if relation == REPLACE_ONE else 1.0
    inner = getattr(event, "event", None)
    if isinstance(event, dp_event.GaussianDpEvent):
        yield GaussianQuery(event.noise_multiplier, doubled, count)
    elif isinstance(event, dp_event.LaplaceDpEvent):
        yield LaplaceQuery(event.noise_multiplier, doubled, count)
    elif isinstance(event, dp_event.PoissonSampledDpEvent) and isinstance(
        inner, dp_event.GaussianDpEvent
    ):
        yield _sampled(inner.noise_multiplier, event.sampling_probability, count, relation, delta)
    else:
        yield _stated(event, count, relation, delta)


def _stated(event: Any, count: int, relation: str, delta: float) -> Stated:
    """Any other event by what dp_accounting says of it at one delta."""
    neighbours = dp_accounting.NeighboringRelation[relation.upper()]
    makers = (pld.PLDAccountant, rdp.RdpAccountant)
    for make in makers:
        accountant = make(neighboring_relation=neighbours)
        if accountant.supports(event):
            epsilon = float(accountant.compose(event, count).get_epsilon(delta))
            if math.isfinite(epsilon):
                return Stated(epsilon, delta)
    raise PlanError(
        f"dp_accounting knows no finite price of {type(event).__name__} under {relation!r}. State "
        "an epsilon and a delta for it by hand."
    )
