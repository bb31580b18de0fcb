"""A certificate as an entry of the OpenDP deployments registry.

What follows from the record is filled in; what only a person knows is a clear blank.
"""

from __future__ import annotations

import json
import math
from typing import Any

from dplateau.accounting.privacy_loss.conversions import gdp_of
from dplateau.certificate import wording
from dplateau.certificate.record import Certificate
from dplateau.plan.units import PERSON, in_units

BLANK = "TO FILL IN: "


def registry_entry(certificate: Certificate) -> str:
    """The YAML text of an entry."""
    digest = certificate.to_dict()["digest"]
    return f"# certificate {digest}\n{_yaml(registry(certificate))}\n"


def registry(certificate: Certificate) -> dict[str, Any]:
    """The entry as plain values, in the registry's own names."""
    record, plan = certificate.to_dict(), certificate.plan
    epsilon, delta = certificate.epsilon, certificate.delta
    unit = "a person with all their rows" if plan.unit == PERSON else "one record of the table"
    relation = in_units(wording.RELATIONS[certificate.relation], plan.unit)
    mu = "unbounded" if math.isinf(epsilon) else f"{gdp_of(epsilon, delta):.4g}"
    shown = "only the last" if plan.hidden_state else "every"
    return {
        "url_slug": f"{BLANK}a short name for the address of the entry",
        "status": "Draft",
        "tier": f"{BLANK}the registry's tier",
        "deployment": {
            "basic": {
                "name": f"{BLANK}what is deployed",
                "data_curators": [f"{BLANK}who holds the data"],
                "description": certificate.statement,
                "intended_use": f"{BLANK}what the model is for",
                "data_product_type": "Machine learning model",
                "data_product_region": f"{BLANK}where the people in the data live",
                "publication_date": f"{BLANK}YYYY-MM-DD",
            },
            "dp_variant": {
                "variant_name": "Approximate differential privacy",
                "data_domain": f"{BLANK}what the table holds",
                "unprotected_quantities": _unprotected(certificate),
            },
            "privacy_loss": {
                "privacy_unit": unit,
                "privacy_unit_details": f"Neighbouring: {relation} ({certificate.relation}).",
                "privacy_parameters": {"epsilon": epsilon, "delta": delta},
                "privacy_parameters_details": f"mu = {mu}: the Gaussian mechanism of "
                f"this epsilon at this delta. {record['attack']['words']}",
            },
            "deployment_model": "Central",
            "accounting": {
                "post_processing": "Weights are rounded to a public grid; predictions are computed "
                "from the released weights alone.",
                "composition": f"{record['guarantee']['theorem']} Plain composition would give "
                f"epsilon = {record['guarantee']['composition']}.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": f"{BLANK}how bounds, features and "
                "settings were chosen; the certificate does not cover choices made by looking at "
                "the data",
                "mechanisms": f"Noisy projected gradient descent, {plan.iterations} steps, "
                f"{plan.batches!r}, Gaussian noise; {shown} iterate is released.",
                "justification": "dplateau "
                f"{record['versions']['dplateau']}, certificate {record['digest']}; every number "
                "is recomputed by `dplateau verify`.",
            },
            "administrative": {"registry_authors": [f"{BLANK}who wrote this entry"]},
        },
    }


def _unprotected(certificate: Certificate) -> list[str]:
    """What the release tells without noise."""
    units = in_units("the number of records", certificate.plan.unit)
    if certificate.counting.count is not None:
        return []
    if certificate.relation == "add_or_remove_one":
        return [f"a public upper bound on {units}"]
    return [units]


def _yaml(value: Any, depth: int = 0) -> str:
    """Plain values as YAML, every text quoted as JSON is, which YAML reads alike."""
    pad = "  " * depth
    if isinstance(value, dict):
        lines = []
        for name, inner in value.items():
            nested = isinstance(inner, (dict, list)) and inner
            lines.append(f"{pad}{name}:" + ("\n" if nested else " ") + _yaml(inner, depth + 1))
        return "\n".join(lines)
    if isinstance(value, list) and value:
        return "\n".join(f"{pad}- {_yaml(inner)}" for inner in value)
    if isinstance(value, float) and math.isinf(value):
        return ".inf"
    if isinstance(value, float):
        text = repr(value)  # YAML takes 1e-06 for text, and 1.0e-06 for a number
        return text if "." in text else text.replace("e", ".0e")
    return json.dumps(value, ensure_ascii=False)
