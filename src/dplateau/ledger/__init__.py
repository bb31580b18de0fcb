"""Budgets of data sets over many releases: reserved, spent, chained, checked."""

from dplateau.ledger.budget import Remaining
from dplateau.ledger.ledger import Ledger
from dplateau.ledger.mechanisms import (
    GaussianQuery,
    LaplaceQuery,
    Mechanism,
    Several,
    Stated,
)
from dplateau.ledger.reservation import Reservation
from dplateau.ledger.trained import Training

__all__ = [
    "GaussianQuery",
    "LaplaceQuery",
    "Ledger",
    "Mechanism",
    "Remaining",
    "Reservation",
    "Several",
    "Stated",
    "Training",
]
