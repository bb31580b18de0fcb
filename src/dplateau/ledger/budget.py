"""The rules of a budget: what may be reserved, bought, settled and given back.

Pure functions of what happened before; theory, section 19, proves them. A *pool* is what is left to
be chosen freely: at first all of ``(epsilon, delta)``, which releases known by an epsilon alone are
subtracted from; after the first release with a Gaussian-like loss it is a Gaussian with a failure,
whose squares and failures add up, however later plans are chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dplateau.accounting.privacy_loss.conversions import gdp_epsilon, gdp_of
from dplateau.accounting.privacy_loss.profiles import PLD
from dplateau.errors import DataError, PlanError
from dplateau.ledger.mechanisms import (
    Mechanism,
    Stated,
    composed,
    gaussian_pld,
)

STATED, GAUSSIAN, WHOLE = "stated", "gaussian", "whole"
ADAPTIVE, FIXED = "adaptive", "fixed"
RESERVED, RUNNING, RELEASED, REFUNDED = "reserved", "running", "released", "refunded"

_SLACK = 1e-12  # relative: sums of floats, no more
_FAILURES = 0.1  # share of the delta left that a Gaussian pool sets aside for failures
_SMALL_FAILURE = 0.01  # share of a requested delta that a reservation holds for failures
_SHARES = (1e-3, 1e-2, 0.05)  # of the failures left, tried for one release
_RESOLUTION = 4_000  # grid points of a privacy loss per budget


class Remaining(NamedTuple):
    """What one further release may still cost: ``epsilon`` at ``delta``."""

    epsilon: float
    delta: float


class Charge(NamedTuple):
    """What an entry holds of a pool: an epsilon and a delta, or a squared mu and a failure.

    ``whole`` entries were bought together with the pool that follows them, and hold nothing of it.
    """

    kind: str
    amount: float
    failure: float


@dataclass(frozen=True)
class Pool:
    """What may be spent freely: in epsilon and delta, or in squared mu and failure."""

    shape: str
    amount: float
    failure: float

    def to_list(self) -> list[Any]:
        return [self.shape, self.amount, self.failure]


@dataclass(frozen=True)
class Entry:
    """One release of a data set, from its reservation to its end."""

    number: int
    status: str
    requested: tuple[float, float]
    charge: Charge
    pool: int
    mechanism: Mapping[str, Any] | None = None
    note: str = ""
    counted: bool = False
    certificate: str | None = None
    context: tuple[float, float, float, float] | None = None
    fingerprint: str | None = None

    @property
    def live(self) -> bool:
        return self.status != REFUNDED

    def release(self) -> Mechanism:
        """What it is priced as; a reservation as the Gaussian of its target."""
        if self.mechanism is None:
            return Stated(*self.requested)
        found = Mechanism.from_dict(dict(self.mechanism))
        return found if self.certificate is None else found.as_released()

    @property
    def rounded(self) -> bool:
        """Whether what floating point adds is part of its figures (theory, section 20)."""
        return self.certificate is not None or self.release().rounded


@dataclass(frozen=True)
class Account:
    """A data set's budget with everything that happened to it."""

    dataset: str
    epsilon: float
    delta: float
    unit: str
    relation: str
    plans: str
    pools: tuple[Pool, ...] = ()
    entries: Mapping[int, Entry] = field(default_factory=dict)

    @property
    def interval(self) -> float:
        """Spacing of the grid that its privacy losses are composed on."""
        return min(1e-3, self.epsilon / _RESOLUTION)

    @property
    def pool(self) -> Pool:
        return self.pools[-1]

    @property
    def live(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.live]

    def check_unit(self, unit: str) -> None:
        """Refuse a release that protects another unit than the budget does."""
        if self.unit != unit:
            raise PlanError(
                f"the budget of {self.dataset!r} protects a {self.unit}; this release protects "
                f"a {unit!s:.20}. "
                + (
                    "Say who the rows belong to: fit(groups=...), --person COLUMN."
                    if self.unit == "person"
                    else "Keep a budget with unit='person' for it."
                )
            )

    def check_new(self, certificate: str) -> None:
        """Refuse a certificate that is entered already."""
        twice = next((e for e in self.live if e.certificate == certificate), None)
        if twice is not None:
            raise DataError(
                f"this certificate is entered already, as entry {twice.number} of {self.dataset!r}."
            )

    def _others(self, number: int | None) -> list[Entry]:
        return [entry for entry in self.live if entry.number != number]

    def free(self, number: int | None = None) -> tuple[float, float]:
        """What is left of the pool when the entry ``number`` is given back."""
        here = [
            entry.charge
            for entry in self._others(number)
            if entry.pool == len(self.pools) - 1 and entry.charge.kind == self.pool.shape
        ]
        return (
            self.pool.amount - math.fsum(charge.amount for charge in here),
            self.pool.failure - math.fsum(charge.failure for charge in here),
        )

    def fits(self, charge: Charge, number: int | None = None) -> bool:
        amount, failure = self.free(number)
        return charge.amount <= amount + _SLACK * self.pool.amount and (
            charge.failure <= failure + _SLACK * self.pool.failure
        )

    # -- what is left ---------------------------------------------------------------------------

    def remaining(self) -> Remaining:
        """The largest target that `reserve` would still accept, at the budget's delta."""
        if self.plans == FIXED:
            return self._remaining_losses()
        amount, failure = (max(value, 0.0) for value in self.free())
        if self.pool.shape == STATED:
            return Remaining(amount, failure)
        return Remaining(gdp_epsilon(math.sqrt(amount), self.delta) if amount else 0.0, self.delta)

    def _remaining_losses(self) -> Remaining:
        if not self.live:
            return Remaining(self.epsilon, self.delta)
        spent = self.losses()
        low, high = 0.0, self.epsilon
        for _ in range(12):
            middle = (low + high) / 2
            mu = gdp_of(middle, self.delta)
            total = spent.compose(gaussian_pld(mu, self.interval))
            fits = total.get_delta_for_epsilon(self.epsilon) <= self.delta
            low, high = (middle, high) if fits else (low, middle)
        return Remaining(low, self.delta)

    # -- the tight sum and the plain one ----------------------------------------------------------

    def losses(self, number: int | None = None) -> PLD:
        """The composed privacy loss of all live entries but the entry ``number``."""
        return composed([self._loss(entry) for entry in self._others(number)])

    def _loss(self, entry: Entry) -> PLD:
        if entry.mechanism is None and self.plans == FIXED:
            return gaussian_pld(gdp_of(*entry.requested), self.interval)
        return entry.release().pld(self.interval)

    def tight(self) -> float:
        """Epsilon at the budget's delta if all privacy losses are added up.

        Never below what one release is known by at this delta or a larger one: grids and shares of
        delta differ a little, and a total must not look cheaper than its part.
        """
        stated = (entry.release().stated(self.delta) for entry in self.live)
        alone = [epsilon for epsilon, delta in stated if delta >= self.delta]
        total = float(self.losses().get_epsilon_for_delta(self.delta)) if self.live else 0.0
        return max(total, *alone, 0.0)

    def plain(self) -> tuple[float, float]:
        """The sum of all epsilons, and of all deltas."""
        share = self.delta / max(len(self.live), 1)
        pairs = [entry.release().stated(share) for entry in self.live]
        return math.fsum(e for e, _ in pairs), math.fsum(d for _, d in pairs)

    # -- decisions --------------------------------------------------------------------------------

    def reserve(self, epsilon: float, delta: float, *, counted: bool) -> Decision:
        """Hold a target's price back, before anything is known of the plan."""
        if self.plans == FIXED:
            return self._fixed(None, Stated(epsilon, delta), gdp_of(epsilon, delta))
        failure = _SMALL_FAILURE * delta
        square = gdp_of(epsilon, delta) ** 2
        if self.pool.shape == GAUSSIAN:
            return self._charged(None, Charge(GAUSSIAN, square, failure), (epsilon, delta))
        if counted and not self.live:
            # The count will choose the plan: take the Gaussian's shape before it is drawn.
            pool = self._gaussian_pool(*self.free())
            if square <= pool.amount and failure <= pool.failure:
                return Decision(Charge(GAUSSIAN, square, failure), pool)
        return self._charged(None, Charge(STATED, epsilon, delta), (epsilon, delta))

    def buy(self, mechanism: Mechanism, number: int | None = None) -> Decision:
        """Price a release just before it is made, in place of its reservation if it has one."""
        target = mechanism.stated(self.delta)
        if self.plans == FIXED:
            return self._fixed(number, mechanism)
        entry = self.entries.get(number) if number is not None else None
        if entry is not None and entry.charge.kind == WHOLE:
            return self._again(entry, mechanism)
        if self.pool.shape == GAUSSIAN:
            if entry is not None and entry.charge.kind == STATED:
                return self._within(entry, target)
            return self._charged(number, self._square(mechanism, number), target)
        basic = Charge(STATED, *target)
        if not mechanism.pure:
            whole = self._whole(mechanism, number)
            if whole is not None and not (
                self.fits(basic, number) and self._worth(basic, number) >= whole.new_pool_mu
            ):
                return whole
        return self._charged(number, basic, target)

    def _worth(self, basic: Charge, number: int | None) -> float:
        """The Gaussian that would be left after a plain subtraction."""
        amount, failure = self.free(number)
        left = amount - basic.amount, failure - basic.failure
        return math.sqrt(self._gaussian_pool(*left).amount) if min(left) > 0 else 0.0

    @staticmethod
    def _gaussian_pool(epsilon: float, delta: float) -> Pool:
        failure = _FAILURES * delta
        return Pool(GAUSSIAN, gdp_of(epsilon, delta - failure) ** 2, failure)

    def _square(self, mechanism: Mechanism, number: int | None) -> Charge:
        """The cheapest ``(mu, phi)``: the share of the pool that runs out first decides."""
        amount, failure = (max(value, 1e-300) for value in self.free(number))
        shares = [share * self.pool.failure for share in _SHARES]
        tried = [mechanism.gaussian(min(share, failure), self.interval) for share in shares]
        mu, phi = min(tried, key=lambda pair: max(pair[0] ** 2 / amount, pair[1] / failure))
        return Charge(GAUSSIAN, mu**2, phi)

    def _charged(self, number: int | None, charge: Charge, target: tuple[float, float]) -> Decision:
        if not self.fits(charge, number):
            raise self.refusal(target)
        return Decision(charge)

    def _within(self, entry: Entry, target: tuple[float, float]) -> Decision:
        """A release that was reserved in epsilon and delta before the pool changed its shape."""
        if target[0] > entry.charge.amount * (1 + _SLACK) or target[1] > entry.charge.failure:
            raise self.refusal(target)
        return Decision(entry.charge)

    def _whole(self, mechanism: Mechanism, number: int | None) -> Decision | None:
        """Buy with the exact loss, and fix the Gaussian that is left: None if it does not fit.

        Nothing has been released from what the pool holds now, so only the total must keep to
        ``(epsilon, delta)``: the release, the open reservations, and the largest Gaussian beside.
        """
        waiting = [
            entry.charge
            for entry in self._others(number)
            if entry.status == RESERVED and entry.charge.kind == STATED
        ]
        held = math.fsum(c.amount for c in waiting), math.fsum(c.failure for c in waiting)
        amount, failure = self.free(number)
        total = amount + held[0], failure + held[1]
        found = mechanism.pld(self.interval)
        if waiting:
            found = found.compose(Stated(*held).pld(self.interval))
        spent = float(found.get_delta_for_epsilon(total[0]))
        if not spent <= total[1]:
            return None
        failures = _FAILURES * (total[1] - spent)
        mu = _largest_beside(found, total[0], total[1] - failures, self.interval)
        context = (*total, *held)
        return Decision(Charge(WHOLE, 0.0, 0.0), Pool(GAUSSIAN, mu**2, failures), context)

    def _again(self, entry: Entry, mechanism: Mechanism) -> Decision:
        """A release whose plan ended otherwise than it was bought: checked beside the same pool."""
        assert entry.context is not None
        epsilon, delta, *held = entry.context
        pool = self.pools[entry.pool]
        parts = [mechanism.pld(self.interval)]
        if any(held):
            parts.append(Stated(held[0], held[1]).pld(self.interval))
        if pool.amount:
            parts.append(gaussian_pld(math.sqrt(pool.amount), self.interval))
        spent = float(composed(parts).get_delta_for_epsilon(epsilon))
        if not spent + pool.failure <= delta:
            raise self.refusal(mechanism.stated(self.delta))
        return Decision(entry.charge)

    def _fixed(
        self, number: int | None, mechanism: Mechanism, placeholder: float | None = None
    ) -> Decision:
        """All losses together keep to the budget: for plans that no release has influenced."""
        target = mechanism.stated(self.delta)
        charge = Charge(STATED, *target)
        others = self._others(number)
        if not others:
            fits = target[0] <= self.epsilon and target[1] <= self.delta
            if fits:
                return Decision(charge)
        loss = (
            mechanism.pld(self.interval)
            if placeholder is None
            else gaussian_pld(placeholder, self.interval)
        )
        if others:
            loss = loss.compose(self.losses(number))
        if not loss.get_delta_for_epsilon(self.epsilon) <= self.delta:
            raise self.refusal(target)
        return Decision(charge)

    # -- words ------------------------------------------------------------------------------------

    def refusal(self, target: tuple[float, float]) -> PlanError:
        """Why a release is not made: what it asks for, what is left, and the ways out."""
        left = self.remaining()
        waiting = sum(entry.status in (RESERVED, RUNNING) for entry in self.live)
        held = (
            f" {waiting} of its entries {'is' if waiting == 1 else 'are'} still open and held "
            "back: wait, settle or refund them."
            if waiting
            else ""
        )
        return PlanError(
            f"the budget of {self.dataset!r} does not allow this release: it asks for epsilon = "
            f"{target[0]:.4g} at delta = {target[1]:.4g}, and epsilon = {_down(left.epsilon)} at "
            f"delta = {_down(left.delta)} is left of {self.epsilon:g} at {self.delta:g}.{held} "
            "Nothing was released. Ask for less, or agree on a larger budget with whoever keeps it."
        )


@dataclass(frozen=True)
class Decision:
    """What an entry is charged, and the pool that its purchase leaves, where it makes one."""

    charge: Charge
    pool: Pool | None = None
    context: tuple[float, float, float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """What an event records of it."""
        return {
            "charge": list(self.charge),
            "pool": None if self.pool is None else self.pool.to_list(),
            "context": None if self.context is None else list(self.context),
        }

    @property
    def new_pool_mu(self) -> float:
        return 0.0 if self.pool is None else math.sqrt(self.pool.amount)


def _down(value: float) -> str:
    """Three digits, rounded down: what is left is never overstated."""
    if value <= 0:
        return "0"
    scale = 10.0 ** (2 - math.floor(math.log10(value)))
    return f"{math.floor(value * scale * (1 + 1e-9)) / scale:.3g}"


def _largest_beside(found: PLD, epsilon: float, delta: float, interval: float) -> float:
    """The largest ``mu`` whose Gaussian keeps to ``(epsilon, delta)`` beside other losses."""

    def fits(mu: float) -> bool:
        total = found.compose(gaussian_pld(mu, interval))
        return bool(total.get_delta_for_epsilon(epsilon) <= delta)

    low, high = 0.0, gdp_of(epsilon, delta)
    if not high > 1e-6 or not fits(1e-3 * high):
        return 0.0
    low = 1e-3 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
