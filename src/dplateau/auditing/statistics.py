"""From counted mistakes of an attack to statements that hold with a stated confidence.

An attack that says "present" too often on one neighbour (false alarms) or "absent" too often on the
other (misses) is summarised by exact upper confidence limits of the two error rates. Everything
else here is monotone in them, so it inherits their confidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtri

from dplateau._validate import probability

Array = NDArray[np.float64]


def clopper_pearson_upper(counts: ArrayLike, trials: int, failure: float) -> Array:
    """Upper confidence limit of a probability, exact for every sample size.

    Guarantee
    ---------
    With ``counts ~ Binomial(trials, p)`` the limit is at least ``p`` with probability at least
    ``1 - failure``, whatever ``p`` is.

    References
    ----------
    Clopper and Pearson, Biometrika 26 (1934).

    Examples
    --------
    >>> clopper_pearson_upper([0, 5, 10], 10, 0.05).round(4).tolist()
    [0.2589, 0.7776, 1.0]
    """
    failure = probability("failure", failure)
    k = np.asarray(counts, dtype=np.float64)
    limit = betaincinv(k + 1.0, np.maximum(trials - k, 1.0), 1.0 - failure)
    return np.where(k >= trials, 1.0, limit)


def epsilon_lower(false_alarms: ArrayLike, misses: ArrayLike, delta: float) -> Array:
    """The least epsilon that a test with these errors leaves possible at ``delta``.

    (epsilon, delta)-privacy says ``P(S) <= exp(epsilon) Q(S) + delta`` for every event and both
    orders. The event "the attack says present" and its complement give

        epsilon >= log((1 - misses - delta) / false_alarms),
        epsilon >= log((1 - false_alarms - delta) / misses).

    Non-increasing in both errors: upper limits go in, a lower limit comes out.

    References
    ----------
    Kairouz, Oh, Viswanath, "The composition theorem for differential privacy" (2015).

    Examples
    --------
    >>> float(epsilon_lower(0.1, 0.5, 0.0).round(4))
    1.6094
    """
    a = np.asarray(false_alarms, dtype=np.float64)
    b = np.asarray(misses, dtype=np.float64)
    return np.asarray(np.maximum(_log_ratio(1.0 - b - delta, a), _log_ratio(1.0 - a - delta, b)))


def _log_ratio(above: Array, below: Array) -> Array:
    """``max(0, log(above / below))``, infinite where an event is impossible for one of them."""
    with np.errstate(divide="ignore"):
        ratio = np.log(np.maximum(above, 0.0)) - np.log(np.where(above > 0, below, 1.0))
    return np.asarray(np.maximum(ratio, 0.0))


def mu_lower(false_alarms: ArrayLike, misses: ArrayLike) -> Array:
    """The least ``mu`` for which a mu-GDP mechanism allows a test with these errors.

    mu-GDP says ``misses >= Phi(Phi^-1(1 - false_alarms) - mu)`` for every test. Non-increasing in
    both errors.

    References
    ----------
    Dong, Roth, Su, "Gaussian differential privacy" (2022), section 2.

    Examples
    --------
    >>> float(mu_lower(0.308537539, 0.308537539).round(6))
    1.0
    """
    a = np.asarray(false_alarms, dtype=np.float64)
    b = np.asarray(misses, dtype=np.float64)
    tells = a + b < 1  # guessing has errors that add up to 1, and 1 and 0 would be inf - inf
    mu = -(ndtri(np.where(tells, a, 0.5)) + ndtri(np.where(tells, b, 0.5)))
    return np.asarray(np.maximum(mu, 0.0))


@dataclass(frozen=True)
class Look:
    """One test, fixed before the runs it is evaluated on were seen.

    ``false_alarms`` and ``misses`` are upper confidence limits of its two error rates; both hold
    together with the probability that the audit paid for this look.
    """

    aim: str
    attacker: str
    threshold: float
    false_alarms: float
    misses: float

    def epsilon(self, delta: float) -> float:
        """Lower limit on epsilon at ``delta``."""
        return float(epsilon_lower(self.false_alarms, self.misses, delta))

    @property
    def mu(self) -> float:
        """Lower limit on mu."""
        return float(mu_lower(self.false_alarms, self.misses))

    def to_dict(self) -> dict[str, Any]:
        """The fields under their names."""
        return dict(vars(self))


def roc(absent: Array, present: Array, most: int = 512) -> tuple[Array, NDArray[np.intp], Any]:
    """Thresholds with the number of false alarms and misses at each.

    The attack says "present" at or above the threshold. At most ``most`` thresholds, spread evenly
    over the sorted scores of both neighbours.

    Examples
    --------
    >>> thresholds, false_alarms, misses = roc(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    >>> thresholds.tolist(), false_alarms.tolist(), misses.tolist()
    ([0.0, 1.0, 2.0, inf], [2, 1, 0, 0], [0, 0, 1, 2])
    """
    thresholds = np.unique(np.concatenate([absent, present]))
    if thresholds.size > most:
        thresholds = thresholds[np.linspace(0, thresholds.size - 1, most).round().astype(np.intp)]
    thresholds = np.append(thresholds, np.inf)
    false_alarms = absent.size - np.searchsorted(np.sort(absent), thresholds, side="left")
    misses = np.searchsorted(np.sort(present), thresholds, side="left")
    return thresholds, false_alarms, misses
