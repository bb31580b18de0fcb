"""What the page edits: a plan in its JSON form, and a delta. And what every field means."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from dplateau.accounting.privacy_loss.conversions import check_delta
from dplateau.errors import PlanError
from dplateau.plan.batches import KINDS
from dplateau.plan.plan import Plan
from dplateau.plan.schedules import schedule


@dataclass(frozen=True)
class Field:
    """One field of the form: its name in the plan, and its meaning in a sentence or two.

    ``low`` and ``high`` are the ends of its logarithmic slider; ``below`` and ``above`` what lies
    past them, if anything ("0", "inf").
    """

    name: str
    label: str
    meaning: str
    low: float = 0.0
    high: float = 0.0
    below: str = ""
    above: str = ""
    whole: bool = False
    also: tuple[str, ...] = ()  # other words by which a refusal means this field


FIELDS = (
    Field(
        "records",
        "Records",
        "How many records the data has. Every sum of gradients is divided by a public number, and "
        "one record of many moves it less. Under add_or_remove_one: a public upper bound.",
        10,
        1e8,
        whole=True,
    ),
    Field(
        "batches",
        "Batches",
        "How every step chooses its records: all of them (full), fixed slices in turn (cyclic), a "
        "fresh subset of fixed size (fixed), a coin for every record (poisson), or one step of "
        "every epoch for each record (allocation). Random batches hide who took part.",
        also=("batches kind", "batches do not go"),
    ),
    Field(
        "size",
        "Batch size",
        "Records per step; the mean where a coin decides. Smaller batches hide more and learn "
        "slower.",
        1,
        1e6,
        whole=True,
        also=("Poisson size", "Cyclic size", "FixedSize size", "batch larger", "RandomAllocation"),
    ),
    Field(
        "iterations",
        "Steps",
        "How many noisy steps are made before the model is released. ∞ means: the guarantee holds "
        "for any number of steps that does not depend on the data.",
        1,
        1e9,
        above="inf",
        whole=True,
    ),
    Field(
        "noise_multiplier",
        "Noise multiplier",
        "Standard deviation of the Gaussian noise on every summed gradient, divided by the bound "
        "on one record's gradient. More noise, smaller ε.",
        0.1,
        1e4,
    ),
    Field(
        "step_size",
        "Step size",
        "The learning rate. Steps up to 2/(smoothness + penalty) contract, which hidden models "
        "need; larger steps also carry more noise, so the past is forgotten sooner.",
        1e-4,
        1e3,
        also=("step size",),
    ),
    Field(
        "regularization",
        "Penalty",
        "Weight α of the penalty α/2·‖w‖². It makes every step contract, so the past fades even "
        "without a bounded domain.",
        1e-6,
        10,
        below="0",
    ),
    Field(
        "radius",
        "Radius",
        "All weights are projected onto a ball of this radius after every step. A smaller ball is "
        "forgotten sooner. ∞: no projection, and then only a penalty brings a plateau.",
        1e-3,
        1e4,
        above="inf",
        also=("L2Ball radius", "L1Ball radius", "domain", "diameter"),
    ),
    Field(
        "neighboring_relation",
        "Relation",
        "What it means to differ in one record: one is replaced by any other (replace_one), added "
        "or removed (add_or_remove_one), or blanked out (replace_special).",
        also=("relation",),
    ),
    Field(
        "delta",
        "δ",
        "The probability with which the promise may fail altogether. Far below one over the number "
        "of records; 1e-6 is a common choice.",
        1e-12,
        0.1,
    ),
    Field(
        "lipschitz",
        "Gradient bound",
        "The largest norm of any record's gradient, by clipping or by the loss. The noise is in "
        "units of it, so it moves ε only through the domain.",
        1e-3,
        1e3,
    ),
    Field(
        "smoothness",
        "Smoothness",
        "The largest curvature of any record's loss: 1/4 for logistic regression on rows of norm "
        "1. Needed where only the last model is released.",
        1e-3,
        1e3,
        below="0",
    ),
    Field(
        "strong_convexity",
        "Strong convexity",
        "The least curvature of every record's loss, the penalty not counted. 0 for most losses.",
        1e-6,
        10,
        below="0",
    ),
    Field(
        "hidden_state",
        "Only the last model is released",
        "Ticked: the models in between stay secret, which the plateau rests on. Else every step "
        "is priced as if it had been published, and no convexity is needed.",
    ),
)


def read(state: Any) -> tuple[Plan, float]:
    """The plan and the delta that the page describes, or a refusal that names the field."""
    if not isinstance(state, dict) or not isinstance(state.get("plan"), dict):
        raise refusal("The page sent no plan. Reload it.")
    for name in ("step_size", "noise_multiplier"):  # a schedule does not know whose it is
        try:
            schedule(state["plan"].get(name))
        except PlanError as trouble:
            raise refusal(str(trouble), name) from None
    try:
        plan = Plan.from_dict(state["plan"])
        return plan, check_delta(state.get("delta"))
    except PlanError as trouble:
        raise refusal(str(trouble)) from None
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as trouble:
        raise refusal(
            f"This is not a plan: {str(trouble)[:200] or type(trouble).__name__}. Fill every "
            "field, or begin with a preset."
        ) from None


def refusal(message: str, field: str = "") -> PlanError:
    """The same refusal, with the field that it is about in ``field``."""
    found = PlanError(message)
    found.field = field or field_of(message)  # type: ignore[attr-defined]
    return found


def field_of(message: str) -> str:
    """The field that a refusal is about: the one that it names first.

    Examples
    --------
    >>> field_of("records must be a whole number of at least 1; found 0.")
    'records'
    >>> field_of("step size 9 is above the contraction limit 2/(smoothness + regularization)")
    'step_size'
    """
    places = []
    for field in FIELDS:
        for word in (field.name, *field.also):
            found = re.search(rf"(?<![\w.]){re.escape(word)}(?!\w)", message)
            if found:
                places.append((found.start(), -len(word), field.name))
    return min(places)[2] if places else ""


def describe() -> dict[str, Any]:
    """What the form is built from: fields, kinds of batches, relations."""
    kinds = [
        {
            "kind": kind,
            "sized": "size" in getattr(cls, "__dataclass_fields__", {}),
            "relations": list(cls.relations),
            "about": (cls.__doc__ or kind).strip().splitlines()[0],
        }
        for kind, cls in KINDS.items()
    ]
    return {"fields": [asdict(field) for field in FIELDS], "batches": kinds}
