"""What an audit found, in numbers, words and a picture."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dplateau._json import dumps, plain
from dplateau.accounting.privacy_loss.conversions import gdp_epsilon
from dplateau.auditing.statistics import Look
from dplateau.plan.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CONSISTENT = "consistent"
VIOLATED = "violated"

Curve = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class AuditResult:
    """The outcome of `dplateau.audit`.

    Attributes
    ----------
    epsilon_lower, mu_lower : float
        Lower bounds, both with probability ``confidence``: epsilon at ``delta``, and the least mu
        for which the trained models could be mu-GDP.
    epsilon, bound, composition : float, str, float
        What the accountant guarantees at ``delta``, by which theorem, and what plain composition
        would say.
    exact_lower : float or None
        Epsilon of the worst case whose law is known exactly: no guarantee can be below it.
    verdict : {"consistent", "violated"}
        Whether any look contradicts the guarantee; ``violations`` says how.
    curve, roc : pairs of tuples
        (type I, type II) errors: the guaranteed trade-off, and the attack's on held-out runs.
    looks : tuple of Look
        The tests behind the statements, with confidence limits of their errors.
    """

    plan: Plan
    canary: str
    repeats: int
    confidence: float
    delta: float
    looks: tuple[Look, ...]
    epsilon: float
    bound: str
    composition: float
    exact_lower: float | None
    violations: tuple[str, ...]
    curve: Curve = field(repr=False)
    roc: Curve = field(repr=False)
    seconds: float = field(repr=False, compare=False)

    @property
    def epsilon_lower(self) -> float:
        """Lower bound on epsilon at ``delta``."""
        return max(look.epsilon(self.delta) for look in self.looks)

    @property
    def mu_lower(self) -> float:
        """Lower bound on mu."""
        return max(look.mu for look in self.looks)

    @property
    def epsilon_if_gaussian(self) -> float:
        """Epsilon at ``delta`` of a Gaussian mechanism with ``mu_lower``.

        A lower bound only for mechanisms whose trade-off curve is Gaussian; else an indication.
        """
        return gdp_epsilon(self.mu_lower, self.delta)

    @property
    def verdict(self) -> str:
        """Whether the attack contradicts the guarantee."""
        return VIOLATED if self.violations else CONSISTENT

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values (infinities as the string ``"inf"``)."""
        found = {
            "verdict": self.verdict,
            "violations": self.violations,
            "epsilon_lower": self.epsilon_lower,
            "mu_lower": self.mu_lower,
            "epsilon_if_gaussian": self.epsilon_if_gaussian,
            "confidence": self.confidence,
            "delta": self.delta,
            "epsilon": self.epsilon,
            "bound": self.bound,
            "composition": self.composition,
            "exact_lower_bound": self.exact_lower,
            "canary": self.canary,
            "repeats": self.repeats,
            "relation": self.plan.neighboring_relation,
            "looks": [look.to_dict() for look in self.looks],
            "guaranteed_tradeoff": self.curve,
            "roc": self.roc,
            "seconds": self.seconds,
            "plan": self.plan.to_dict(),
        }
        plain_values: dict[str, Any] = plain(found)
        return plain_values

    def to_json(self) -> str:
        """`to_dict` as one line of JSON."""
        return dumps(self.to_dict())

    def summary(self) -> str:
        """The finding in a few lines of plain text."""
        lines = [f"{label:<34}{value}" for label, value in _rows(self)]
        return "\n".join([*lines, *(f"  {violation}" for violation in self.violations)])

    def plot(self, ax: Axes | None = None) -> Axes:
        """The attack's errors against the guaranteed trade-off curve (needs matplotlib)."""
        from dplateau.auditing.figure import draw

        return draw(self, ax)

    def to_html(self) -> str:
        """A self-contained ``<section>`` for the report of a model trained by this plan."""
        from dplateau.auditing.figure import svg

        rows = "".join(
            f"<tr><th scope='row'>{html.escape(label)}</th><td>{html.escape(value)}</td></tr>"
            for label, value in _rows(self)
        )
        found = "".join(f"<li>{html.escape(violation)}</li>" for violation in self.violations)
        return (
            f"<section class='audit {self.verdict}'><h2>Audit</h2>"
            f"<p>{html.escape(_sentence(self))}</p><table>{rows}</table>"
            f"{f'<ul>{found}</ul>' if found else ''}<figure>{svg(self)}"
            "<figcaption>Errors of the best attack on held-out models. Its curve wobbles by luck; "
            "the dots are what is certain. Privacy forbids the shaded region.</figcaption></figure>"
            "</section>"
        )

    def _repr_html_(self) -> str:
        return self.to_html()


def _sentence(result: AuditResult) -> str:
    models = f"{2 * result.repeats:,} models, half of them trained on the canary '{result.canary}'"
    if result.verdict == CONSISTENT:
        return (
            f"An attacker who saw {models}, found nothing that contradicts the guarantee. "
            "That is evidence, not proof: the proof is the guarantee's theorem."
        )
    return (
        f"An attacker who saw {models}, contradicts the guarantee with confidence "
        f"{result.confidence:g}. Do not release models trained this way."
    )


def _rows(result: AuditResult) -> list[tuple[str, str]]:
    exact = "not known for this plan" if result.exact_lower is None else f"{result.exact_lower:.4g}"
    return [
        ("verdict", result.verdict),
        ("audited epsilon, at least", f"{result.epsilon_lower:.4g}"),
        ("audited mu, at least", f"{result.mu_lower:.4g}"),
        ("exact worst case, at least", exact),
        ("guaranteed epsilon, at most", f"{result.epsilon:.4g} ({result.bound})"),
        ("composition alone, at most", f"{result.composition:.4g}"),
        ("delta", f"{result.delta:g}"),
        ("confidence of the audit", f"{result.confidence:g}"),
        ("neighbouring relation", result.plan.neighboring_relation),
        ("unit of privacy", result.plan.unit),
        ("canary", result.canary),
        ("models per data set", f"{result.repeats:,}"),
        ("plan", result.plan.fingerprint()[:16]),
    ]
