"""What a plan's fields are kept as: checked, and in one form however they were written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dplateau._validate import as_number, non_negative, positive, whole
from dplateau.errors import PlanError
from dplateau.plan.batches import Batches, relation_name
from dplateau.plan.checks import ROUNDING
from dplateau.plan.domains import Domain
from dplateau.plan.loss import Loss
from dplateau.plan.parts import Part
from dplateau.plan.schedules import Constant, schedule
from dplateau.plan.units import UNITS

if TYPE_CHECKING:
    from dplateau.plan.plan import Plan

_SMOOTH = (
    "Hidden iterates need a smooth loss: give its constant, smooth the loss, or set "
    "hidden_state=False to claim composition only."
)


def normalised(plan: Plan) -> dict[str, Any]:
    """The fields that are numbers, schedules or names, by name; what is none of these is refused.

    The constants of a plan with a loss follow from it, unless they were given.
    """
    iterations: float = math.inf
    found: dict[str, Any] = {"records": whole("records", plan.records)}
    if plan.dimension is not None:
        found["dimension"] = whole("dimension", plan.dimension)
    if plan.iterations != math.inf:
        iterations = whole("iterations", plan.iterations, way_out="Or pass math.inf.")
    found["iterations"] = iterations
    _check_part("batches", plan.batches, Batches)
    _check_part("domain", plan.domain, Domain)
    if not isinstance(plan.hidden_state, bool):
        raise PlanError(f"hidden_state must be True or False; found {plan.hidden_state!r}.")
    if plan.unit not in UNITS:
        raise PlanError(f"unit must be one of {list(UNITS)}; found {plan.unit!r}.")
    found["neighboring_relation"] = relation_name(plan.neighboring_relation)
    for name in ("step_size", "noise_multiplier"):
        values = schedule(getattr(plan, name))
        if values.is_constant and values.length >= iterations:
            values = Constant(values.largest(1))  # however it was written, it is one number
        found[name] = values
    found |= _constants(plan)
    for name in ("strong_convexity", "regularization", "l1"):
        found[name] = non_negative(name, getattr(plan, name))
    return found


def _check_part(name: str, part: Any, kind: type[Part]) -> None:
    if not isinstance(part, kind):
        names = sorted(cls.__name__ for cls in kind.kinds.values())
        raise PlanError(f"{name} must be one of {names}; found {part!r}.")
    part.check_kind()


def _constants(plan: Plan) -> dict[str, Any]:
    """Feature norm, Lipschitz constant and smoothness, from the loss where it has them."""
    norm = None if plan.data_norm is None else positive("data_norm", plan.data_norm)
    found = {"lipschitz": plan.lipschitz, "smoothness": plan.smoothness}
    if plan.loss is not None:
        found = _from_loss(plan, plan.loss, norm)
    elif norm is not None:
        raise PlanError("data_norm says nothing without a loss: give the plan its loss as well.")
    elif plan.lipschitz is None:
        raise PlanError(
            "lipschitz is missing: give the bound on every record's gradient, "
            "or a loss with its data_norm."
        )
    lipschitz = positive("lipschitz", found["lipschitz"])
    smoothness = found["smoothness"]
    if not plan.hidden_state and smoothness in (None, math.inf):
        smoothness = math.inf
    elif smoothness is None:
        raise PlanError(f"smoothness is missing. {_SMOOTH}")
    else:
        smoothness = non_negative("smoothness", smoothness, way_out=_SMOOTH)
    return {"data_norm": norm, "lipschitz": lipschitz, "smoothness": smoothness}


def _from_loss(plan: Plan, loss: Loss, norm: float | None) -> dict[str, Any]:
    """The loss's constants, or larger ones that were given."""
    _check_part("loss", loss, Loss)
    if norm is not None:
        constants = tuple(loss.constants(norm))
    elif loss.clip is None or plan.hidden_state:
        raise PlanError(
            "data_norm is missing: the loss's constants follow from a public bound on the "
            "feature norm. State one; rows are clipped to it."
        )
    else:
        constants = (loss.clip, math.inf)
    found: dict[str, Any] = {}
    for name, least in zip(("lipschitz", "smoothness"), constants, strict=True):
        given = getattr(plan, name)
        needed = plan.hidden_state or name == "lipschitz"
        if given is not None and needed and as_number(name, given) < least * (1 - ROUNDING):
            raise PlanError(
                f"{name}={given!r} is below {least!r}, the constant of {loss!r} with "
                f"data_norm={norm!r}. Leave it out, or lower data_norm."
            )
        found[name] = least if given is None else given
    return found
