"""The guarantee in plain words, for a reader who has never heard of Rényi divergence.

Certificate and report say the same thing because both say it with these functions. Every number
is rounded to the safe side.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from dplateau.accounting.guarantee import RELEASE_DELTA, RELEASE_EPSILON, WEAK_EPSILON
from dplateau.accounting.record_count import RecordCount, SeveralCounts
from dplateau.plan.batches import ADD_OR_REMOVE_ONE
from dplateau.plan.plan import Plan
from dplateau.plan.units import PERSON, RECORD, in_units

RELATIONS = {
    "replace_one": "one record is replaced by any other",
    "add_or_remove_one": "one record is added or removed",
    "replace_special": "one record is blanked out",
}

THEOREMS = {
    "composition": "Composition: the costs of all steps added up, as if every intermediate model "
    "had been published (theory, section 3).",
    "shift": "Amplification by iteration: hidden intermediate models and contracting steps blur "
    "what early steps learned (theory, sections 4 and 5; Altschuler and Talwar 2022; Bok, Su and "
    "Altschuler 2024).",
    "selection": "Private selection: the best of a random number of trials, none of the others "
    "being shown (theory, section 16; Liu and Talwar 2019; Papernot and Steinke 2022).",
    "forgetting": "Forgetting: two runs from any two starting points meet after enough noisy "
    "steps, so only the last ones count (theory, section 6).",
    "patterns": "Hidden hits: the noise of later steps covers in which of the earlier ones a "
    "record took part (theory, section 14).",
    "coupling": "Coupling: runs on the two data sets are made to meet by the noise they draw, at a "
    "price that looks at the privacy lost so far (theory, section 24).",
}


_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
_NO_LIMIT = 0.99  # a test that finds so many of the records present is as good as certain


def above(value: float, digits: int = 3) -> str:
    """``value`` rounded *up* to so many significant digits.

    Examples
    --------
    >>> above(0.98011), above(1.0), above(12345.0), above(math.inf)
    ('0.981', '1', '12400', 'infinity')
    """
    return _rounded(value, digits, math.ceil)


def below(value: float, digits: int = 3) -> str:
    """``value`` rounded *down* to so many significant digits.

    Examples
    --------
    >>> below(0.98099)
    '0.98'
    """
    return _rounded(value, digits, math.floor)


def _rounded(value: float, digits: int, to_integer: object) -> str:
    if math.isnan(value) or value == math.inf:
        return "infinity"
    if value == 0:
        return "0"
    scale = digits - 1 - math.floor(math.log10(abs(value)))
    # The product is off by a few ulps; without the slack 0.3 would become 0.301.
    shifted = value * 10.0**scale
    nearest = round(shifted)
    whole = nearest if math.isclose(shifted, nearest, rel_tol=1e-12) else to_integer(shifted)  # type: ignore[operator]
    text = f"{whole / 10.0**scale:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e15 else text


def visible(page: str) -> str:
    """A page whose every character can be seen: controls and marks of direction are spelt out.

    A name from outside could turn the text around it, or hide a part of itself.

    Examples
    --------
    >>> print(visible("ab\u202ecd"))
    ab\\u202ecd
    """
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", page)


def short(value: float) -> str:
    """A given number in its shortest form.

    Examples
    --------
    >>> short(1e-06), short(0.25)
    ('1e-6', '0.25')
    """
    return f"{value:g}".replace("e-0", "e-").replace("e+0", "e")


def percent(rate: float) -> str:
    """A probability as a percentage, rounded up.

    Examples
    --------
    >>> percent(0.0311), percent(1.0)
    ('3.2 %', '100 %')
    """
    return f"{above(100 * rate, 2 if rate < 0.995 else 3)} %"


def statement(
    plan: Plan,
    epsilon: float,
    delta: float,
    rates: Mapping[str, float],
    *,
    seeded: bool,
    count: RecordCount | None = None,
) -> str:
    """The promise in two or three sentences."""
    relation = RELATIONS[plan.neighboring_relation]
    if not math.isfinite(epsilon):
        return (
            "NOT FOR RELEASE. This run has no finite privacy guarantee: too little noise, or no "
            "theorem that covers the plan."
        )
    what = "the final model" if plan.hidden_state else "the final model and every one before it"
    warning = ""
    if seeded:
        warning = (
            "NOT FOR RELEASE: the noise came from a seed, so whoever knows the seed can take it "
            "off. With secret noise the following would hold. "
        )
    elif unfit(plan.records, delta):
        warning = f"NOT FOR RELEASE: {unfit(plan.records, delta)}. "
    weak = is_weak(epsilon)
    if weak:
        lead = (
            f"WEAK GUARANTEE: at an epsilon above {WEAK_EPSILON:g}, seeing {what} may tell much "
            f"about whether {relation}"
        )
    else:
        lead = f"Seeing {what} tells almost the same whether or not {relation}"
    tests = " ".join(
        f"Whoever tests for a record and is wrong about absent ones {100 * float(rate):g} % of the "
        f"time finds a present one at most {percent(found)} of the time."
        for rate, found in list(rates.items())[:1]
    )
    if weak and any(found >= _NO_LIMIT for found in list(rates.values())[:1]):
        tests = "It sets no useful limit to what a test for one record can find."
    if weak and epsilon > RELEASE_EPSILON:
        tests += f" NOT FOR RELEASE: nobody can rely on an epsilon above {RELEASE_EPSILON:g}."
    text = (
        f"{warning}{lead}: differential "
        f"privacy with epsilon = {above(epsilon)} at delta = {short(delta)}. {tests}"
        + (f" {_upper_bound(plan, count)}" if count else "")
    )
    return in_units(text, plan.unit)


def unfit(records: int, delta: float) -> str:
    """Why nothing with this ``delta`` is for release, known before any training; else nothing.

    Examples
    --------
    >>> unfit(1000, 1e-6), unfit(1000, 0.001)[:41]
    ('', 'delta must be far below one over the numb')
    """
    if records < 2:
        return "a model of one record tells about that record alone"
    if delta * records >= 1:
        return (
            f"delta must be far below one over the number of records ({records:,}), or the "
            "guarantee would allow to publish one of them in full"
        )
    if delta > RELEASE_DELTA:
        return f"a delta above {RELEASE_DELTA:g} is too large a chance of no protection at all"
    return ""


def is_weak(epsilon: float) -> bool:
    """Whether an epsilon is too large to be called privacy without a warning.

    Examples
    --------
    >>> is_weak(10.0), is_weak(11.0)
    (False, True)
    """
    return epsilon > WEAK_EPSILON


def records(plan: Plan) -> str:
    """How many records, where the relation lets their number be known."""
    bound = "at most " if plan.neighboring_relation == ADD_OR_REMOVE_ONE else ""
    return in_units(f"{bound}{plan.records:,} records", plan.unit)


def _upper_bound(plan: Plan, count: RecordCount) -> str:
    return (
        f"The number of records is protected too: {plan.records:,} is an upper bound on it with "
        f"noise in it, and {above(count.epsilon)} of epsilon pays for that."
    )


def counted(count: RecordCount | None) -> tuple[str, ...]:
    """What makes a noisy upper bound on the number of records private, in one sentence."""
    if count is None:
        return ()
    if isinstance(count, SeveralCounts):
        return tuple(each for part in count.counts for each in counted(part))
    m = f"{count.half_width:,}"
    return (
        f"the number of records is known as n + {m} + Z only, Z geometric at rate "
        f"{short(count.epsilon)} on both sides and cut at {m}: never below n, and by itself "
        f"private with epsilon = {above(count.epsilon)} at delta = {short(count.delta)}, which "
        "is added to the training's (theory, section 13)",
    )


def attack(rates: Mapping[str, float], advantage: float, unit: str = RECORD) -> str:
    """The trade-off curve in words."""
    at = " and ".join(
        f"{percent(found)} of the records that are there at {100 * float(rate):g} % false positives"
        for rate, found in rates.items()
    )
    text = (
        "No attack on one record, however clever and whatever else it knows, can do better than "
        f"this: it finds at most {at}. Its advantage (true-positive rate minus false-positive "
        f"rate) is at most {percent(advantage)} at any threshold."
    )
    return in_units(text, unit)


def theorem(bound: str, sentence: str, link: str) -> str:
    """Which theorem a bound's name stands for: in words for here, or else in its own."""
    return THEOREMS.get(bound, f"{sentence} ({link})")


def reproducibility(*, seeded: bool) -> str:
    """What a seed means for a release."""
    if seeded:
        return "reproducible: not for release"
    return "not reproducible: the noise came from the operating system's entropy and was not kept"


def rounding(epsilon: float, delta: float) -> str:
    """What of the guarantee pays for floating point."""
    if epsilon == math.inf:
        return (
            "In floating point nothing is proved: there is no noise, no bound on the weights, or "
            "what is set aside of delta does not pay for the rounding."
        )
    return (
        "This holds for the program as it computes, in floating point: every rounding of sums, "
        f"steps and noise is counted, and {above(epsilon)} of epsilon and {above(delta)} of delta "
        "pay for it."
    )


def covered(plan: Plan, count: RecordCount | None = None) -> tuple[str, ...]:
    """What the guarantee is about."""
    if plan.hidden_state:
        first = (
            "The final model only: the last iterate, as written, and whatever is computed from it."
        )
    else:
        first = "The final model and every intermediate one: the guarantee is composition's."
    return (
        first,
        "One person at a time, with all their rows, whatever anybody knows about all the others."
        if plan.unit == PERSON
        else "One record at a time, whatever anybody knows about all the others.",
        "Any number of predictions made with the model.",
        *(
            (
                in_units(
                    "The number of records, and this certificate, which shows a noisy one.",
                    plan.unit,
                ),
            )
            * bool(count)
        ),
    )


def not_covered(
    plan: Plan, count: RecordCount | None = None, *, planned: bool = True
) -> tuple[str, ...]:
    """What the guarantee says nothing about.

    ``planned`` is whether a budget was fixed before the records were counted.
    """
    hidden = (
        "Intermediate models, training losses or logs of this run: none of them may be shown.",
    )
    stated = (
        in_units(
            "A count of the records: what is stated for adding or removing one holds if ", plan.unit
        )
        + f"{plan.records:,} is a public upper bound on their number.",
    )
    after_the_fact = (
        "Other outcomes of the count of records: the noise was given, so epsilon follows from the "
        "number of records that came out, and with another it would have been another.",
    )
    people = "People with several records: their guarantee is weaker, up to the number of records."
    if plan.unit == PERSON:
        people = (
            "Groups of people, such as families: their guarantee is weaker, up to their number."
        )
    return (
        *(hidden if plan.hidden_state else ()),
        *(stated if count is None and ADD_OR_REMOVE_ONE in plan.batches.relations else ()),
        "Preprocessing that looked at the data, such as standardising by its own mean.",
        "Hyper-parameters, features or bounds chosen by looking at the data.",
        in_units("Other releases from the same records: their losses add up.", plan.unit),
        people,
        "What the model rightly teaches about a population, including people not in the data.",
        "Side channels of the machine that trained it (timing, memory, the raw data itself).",
        *(after_the_fact if count is not None and not planned else ()),
    )
