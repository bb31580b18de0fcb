"""What a bound is, and how bounds are found.

A theorem family is one class in a file of this folder. Defining the class registers it: `account`
asks every registered bound that applies. A bound chooses its free parameters (window, split,
horizon, blocks) for the delta asked for; the choice looks at the plan and the delta only, so what
is valid for every choice is valid for the best one.

See docs/theory.md#section-7.
"""

from __future__ import annotations

import abc
import importlib
import math
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import ClassVar, NamedTuple

from dplateau.accounting.privacy_loss.profiles import PrivacyProfile
from dplateau.plan.plan import Plan


class Chosen(NamedTuple):
    """A bound with its parameters fixed: valid for every delta, best near one of them."""

    name: str
    profile: PrivacyProfile
    last_steps: float
    failure: float = 0.0

    def epsilon(self, delta: float) -> float:
        """The epsilon that is proved at this delta; trouble fails closed."""
        value = self.profile.epsilon(delta)
        return value if value >= 0 else math.inf  # NaN fails closed


class Bound(abc.ABC):
    """One family of theorems.

    Attributes
    ----------
    name : str
        The key under which `Guarantee.bounds` reports it.
    sentence : str
        The theorem in a sentence, for people.
    link : str
        Where it is stated and proved.
    rank : int
        Bounds with the same floor are asked in this order: first those that make others
        superfluous.
    shown : int
        Bounds are listed in this order: the oldest first.
    needs_hidden_state, looks_at_domain : bool
        Whether it is about the last iterate only, and whether it may depend on the domain.
    """

    name: ClassVar[str]
    sentence: ClassVar[str]
    link: ClassVar[str]
    rank: ClassVar[int] = 50
    shown: ClassVar[int] = 50
    needs_hidden_state: ClassVar[bool] = True
    looks_at_domain: ClassVar[bool] = True

    def __init_subclass__(cls, register: bool = True) -> None:
        """``register=False``: a statement that is not asked of plans, such as a selection's."""
        super().__init_subclass__()
        missing = [field for field in ("name", "sentence", "link") if not hasattr(cls, field)]
        if missing:
            raise TypeError(f"{cls.__name__} is a Bound without {', '.join(missing)}.")
        if register:
            _REGISTERED[cls.name] = cls()

    @abc.abstractmethod
    def applies_to(self, plan: Plan) -> bool:
        """Whether the theorem's hypotheses hold for this plan; asked where the state is hidden."""

    @abc.abstractmethod
    def at(self, plan: Plan, delta: float) -> Chosen | None:
        """The bound with the parameters that are best at this delta; None where it has none."""

    def floor(self, plan: Plan, delta: float) -> float:
        """An epsilon that this bound will not undercut, in closed form: the least is asked first.

        Infinite where another bound is never larger.
        """
        return 0.0

    def outlook(self, plan: Plan, delta: float, found: Mapping[str, Chosen]) -> float:
        """A closer one, which may take some work: asked for only where the floor is promising.

        ``found`` holds what other bounds chose before.
        """
        return 0.0

    @abc.abstractmethod
    def reason(self, chosen: Chosen) -> str:
        """Why the guarantee holds, in a plain sentence for the person who signs."""

    def hypotheses(self, plan: Plan, chosen: Chosen) -> list[str]:
        """What was checked for this theorem beyond what every one of them needs."""
        return []


_REGISTERED: dict[str, Bound] = {}


@cache  # a directory is listed once, not for every question
def _import_all() -> None:
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__, f"{__package__}."):
        importlib.import_module(module.name)


def registered() -> list[Bound]:
    """Every bound there is, in the order in which they are asked."""
    _import_all()
    return sorted(_REGISTERED.values(), key=lambda bound: (bound.rank, bound.name))


def bound_named(name: str) -> Bound:
    """The registered bound of that name."""
    _import_all()
    return _REGISTERED[name]


def withdraw(name: str) -> None:
    """Take a bound out again, such as one that was tried in a notebook."""
    _REGISTERED.pop(name, None)


def applicable(plan: Plan) -> list[Bound]:
    """The bounds that apply to a plan, in the order in which they are asked."""
    return [
        bound
        for bound in registered()
        if (plan.hidden_state or not bound.needs_hidden_state) and bound.applies_to(plan)
    ]
