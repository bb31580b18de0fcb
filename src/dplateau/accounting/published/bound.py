"""What a published bound is, and the plans it can be asked about."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

from dplateau.accounting.privacy_loss.conversions import (
    check_delta,
    gdp_epsilon,
    rdp_epsilon,
    rdp_epsilon_simple,
)
from dplateau.errors import PlanError
from dplateau.plan.batches import REPLACE_SPECIAL, Batches
from dplateau.plan.plan import Plan

Vector = NDArray[np.float64]
Curve = Callable[[Vector], Vector]
SplitCurve = Callable[[Vector, float], Vector]

PROVED, AS_PUBLISHED = "proved", "as published"
_CONVERSIONS = {"simple": rdp_epsilon_simple, "tight": rdp_epsilon}
_WHOLE_SPLIT = (-14.0, 14.0)  # log-odds of the share of the variance: 1e-6 to 1 - 1e-6
_LARGEST = 1e100


@dataclass(frozen=True)
class PublishedBound:
    """A privacy bound of the literature for one plan.

    See docs/theory.md#section-8.

    Attributes
    ----------
    name, reference : str
        Who published it, and where.
    status : {"proved", "as published"}
        "proved": the statement holds for this plan. "as published": the formula is reported, but
        its proof has a gap for plans of this kind, so it is a comparison and not a guarantee.
    mu : float or None
        The Gaussian privacy parameter, for bounds of that kind.
    curve : callable or None
        The Renyi curve, from an array of orders.
    split_curve : callable or None
        ``split_curve(alphas, split)``: another Renyi curve for every way to split the noise;
        ``split`` is the log-odds of the share of the variance that is spent on forgetting the past.
    profile : callable or None
        ``epsilon(delta)`` where the bound is a trade-off function tighter than its Renyi curve.
    """

    name: str
    reference: str
    status: str
    mu: float | None = None
    curve: Curve | None = field(default=None, repr=False, compare=False)
    split_curve: SplitCurve | None = field(default=None, repr=False, compare=False)
    profile: Callable[[float], float] | None = field(default=None, repr=False, compare=False)

    def rdp(self, alphas: ArrayLike) -> Vector:
        """The Renyi bound at each order, minimised over the noise split where there is one."""
        orders = np.atleast_1d(np.asarray(alphas, dtype=np.float64))
        if not np.all((orders > 1) & np.isfinite(orders)):
            raise PlanError(f"Renyi orders must be finite and above 1; found {alphas!r}.")
        if self.curve is None:
            assert self.mu is not None
            return orders * (self.mu * self.mu / 2)
        unsplit = self.curve(orders)
        if self.split_curve is None:
            return unsplit
        return np.minimum(unsplit, _least_over_split(self.split_curve, orders))

    def epsilon(self, delta: float, *, conversion: str = "simple") -> float:
        """``epsilon(delta)``.

        Parameters
        ----------
        delta : float
            Between 0 and 1.
        conversion : {"simple", "tight"}
            From Renyi to ``(epsilon, delta)``: "simple" is the papers' own
            ``rho + log(1/delta)/(alpha-1)``, "tight" that of Canonne, Kamath and Steinke 2020.
        """
        delta = check_delta(delta)
        if conversion not in _CONVERSIONS:
            raise PlanError(
                f"conversion must be one of {list(_CONVERSIONS)}; found {conversion!r}."
            )
        if self.profile is not None:
            return self.profile(delta)
        if self.curve is None:
            assert self.mu is not None
            return gdp_epsilon(self.mu, delta)
        convert = _CONVERSIONS[conversion]
        curve, split_curve = self.curve, self.split_curve
        best = least_epsilon(lambda orders, _: curve(orders), delta, convert, (0.0, 0.0))
        if split_curve is None:
            return best
        return min(best, least_epsilon(split_curve, delta, convert, _WHOLE_SPLIT))


def least_epsilon(
    curve: SplitCurve,
    delta: float,
    convert: Callable[[ArrayLike, ArrayLike, float], float],
    splits: tuple[float, float],
) -> float:
    """Zoom in on the best order and noise split together; every point seen is a valid bound.

    See docs/theory.md#section-2.
    """
    logs = (math.log(1e-5), math.log(1e9))  # of alpha - 1
    to_split = splits[0] < splits[1]
    best, where, at = math.inf, (logs[0], splits[0]), (2.0, math.inf)
    for _ in range(7 if to_split else 5):
        log_grid = np.linspace(*logs, 25)
        orders = 1 + np.exp(log_grid)
        penalty = np.array([convert(order, 0.0, delta) for order in orders.tolist()])
        for split in np.linspace(*splits, 7 if to_split else 1).tolist():
            rho = curve(orders, split)
            k = int(np.argmin(rho + penalty))
            if rho[k] + penalty[k] < best:
                best, at = float(rho[k] + penalty[k]), (float(orders[k]), float(rho[k]))
                where = (float(log_grid[k]), split)
        logs, splits = _around(where[0], logs, 12), _around(where[1], splits, 5)
    return convert(*at, delta)


def _around(centre: float, interval: tuple[float, float], cells: int) -> tuple[float, float]:
    reach = (interval[1] - interval[0]) / cells
    return (centre - reach, centre + reach)


def _least_over_split(curve: SplitCurve, orders: Vector) -> Vector:
    """The best noise split at each order: a coarse look, then a search around its minimum."""
    grid = np.linspace(*_WHOLE_SPLIT, 29)
    table = np.stack([curve(orders, split) for split in grid.tolist()])
    result = table.min(axis=0)
    for i in np.flatnonzero(np.isfinite(result)).tolist():
        at = int(table[:, i].argmin())
        found = minimize_scalar(
            lambda split, i=i: float(curve(orders[i : i + 1], split)[0]),
            bounds=(grid[max(at - 1, 0)], grid[min(at + 1, grid.size - 1)]),
            method="bounded",
            options={"xatol": 1e-4},
        )
        result[i] = min(result[i], found.fun)
    return np.asarray(result)


class Setting(NamedTuple):
    """A plan's scalars in the letters of the papers.

    See docs/theory.md#section-8.
    """

    T: float  # iterations
    eta: float  # step size (the largest, where it varies)
    sigma: float  # noise on the mean gradient
    sensitivity: float  # 2L under replacement, L otherwise
    b: float  # batch size
    q: float  # inclusion probability
    epoch: int  # batches per pass over the data, l
    D: float  # diameter
    c: float  # contraction
    kappa: float  # chance that a capped Poisson batch is full without the record

    @property
    def s(self) -> float:
        """How far one hit of the differing record moves the iterate."""
        return self.eta * self.sensitivity / self.b

    @property
    def u(self) -> float:
        """One hit in units of the noise."""
        return self.sensitivity / (self.b * self.sigma) if self.sigma > 0 else math.inf

    @property
    def far(self) -> float:
        """The diameter in units of the noise."""
        return self.D / (self.eta * self.sigma) if self.eta * self.sigma > 0 else math.inf

    @property
    def scales(self) -> list[float]:
        """Every length that the formulas square or divide by; none of a plan without noise."""
        noisy = [self.eta * self.sigma, self.u] if self.sigma > 0 else []
        far = [self.D, self.far] if math.isfinite(self.D) and noisy else []
        rate = [1 - self.c] if self.c < 1 else []
        return [self.eta, self.s, *noisy, *far, *rate]

    @property
    def epochs(self) -> float:
        """Passes over the data, the started one included: how often the worst record is hit."""
        return self.T if math.isinf(self.T) else float(-(-int(self.T) // self.epoch))


def refuse(name: str, found: str, way_out: str) -> NoReturn:
    """One sentence for every bound that does not cover a plan."""
    raise PlanError(f"{name} does not cover {found}. {way_out}")


def displaced_share(plan: Plan) -> float:
    """``kappa`` where a record can displace another: capped Poisson batches, unless zeroed out.

    See docs/theory.md#section-1.
    """
    return 0.0 if plan.neighboring_relation == REPLACE_SPECIAL else plan.overflow


def setting(
    plan: Plan,
    name: str,
    kinds: tuple[str, ...],
    *,
    varying_steps: bool = False,
    hidden: bool = True,
) -> Setting:
    """The plan's scalars, or a refusal of what the bound called ``name`` does not cover.

    See docs/theory.md#section-8.
    """
    if plan.batches.kind not in kinds:
        allowed = ", ".join(Batches.kinds[kind].__name__ for kind in kinds)
        refuse(
            name,
            f"{type(plan.batches).__name__} batches",
            f"It is stated for {allowed}; dplateau.account covers every kind.",
        )
    if hidden and not plan.hidden_state:
        refuse(
            name,
            "a plan whose iterates are released (hidden_state=False)",
            "Set hidden_state=True and meet the hypotheses of contraction, or use "
            "published.simple_composition.",
        )
    varies = not plan.noise_multiplier.is_constant or not (
        varying_steps or plan.step_size.is_constant
    )
    if varies:
        refuse(
            name,
            "this varying schedule",
            "It is stated for constant "
            + ("noise" if varying_steps else "steps and noise")
            + "; dplateau.account covers any schedule.",
        )
    eta = plan.step_size.largest(plan.iterations)
    found = Setting(
        T=plan.iterations,
        eta=eta,
        sigma=plan.sigma,
        sensitivity=plan.sensitivity,
        b=plan.batch_size,
        q=min(plan.inclusion_probability, 1.0),
        epoch=plan.batches.per_epoch(plan.records),
        D=plan.diameter if hidden else math.inf,
        c=float(plan.contraction(eta)) if hidden else 1.0,
        kappa=displaced_share(plan),
    )
    beyond = [each for each in found.scales if not 1 / _LARGEST <= each <= _LARGEST]
    if beyond:
        refuse(
            name,
            f"distances or noise of {beyond[0]:g}",
            f"Its formulas are evaluated between {1 / _LARGEST:g} and {_LARGEST:g}, where squares "
            "stay within floats; dplateau.account covers every plan.",
        )
    return found
