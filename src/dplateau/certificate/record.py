"""The certificate: what is promised about one released model, checkable by a third party.

A certificate *is* its text. It holds the complete plan, so everything it claims can be computed
again from the record alone, and `Certificate.verify` does exactly that. It never holds data,
seeds or iterates; the model is named by the fingerprint of its released weights, and the file that
holds them by a digest of the whole document.
"""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dplateau import _disk as disk
from dplateau._json import digest, loads
from dplateau._validate import probability
from dplateau.certificate import claims
from dplateau.certificate import verify as verification
from dplateau.certificate.bought import Bought
from dplateau.certificate.claims import KIND, SCHEMA, Counting, fingerprint
from dplateau.certificate.files import write_file
from dplateau.certificate.verify import Check, Verification
from dplateau.errors import CertificateError
from dplateau.plan.plan import Plan

LARGEST = 16_000_000  # bytes: a schedule of half a million steps, written out


class Released(Protocol):
    """What a certificate reads of a run (`dplateau.Release` has it)."""

    @property
    def plan(self) -> Plan: ...
    @property
    def weights(self) -> NDArray[np.float64]: ...
    @property
    def iterations_run(self) -> int: ...
    @property
    def noise_source(self) -> str: ...
    @property
    def seeded(self) -> bool: ...
    @property
    def grid(self) -> float | None: ...


@dataclass(frozen=True, repr=False)
class Certificate:
    """An immutable record of one released model's privacy guarantee.

    Build one with `Certificate.of` or `Certificate.read`. Reading checks the JSON schema;
    believing takes `verify`.

    Parameters
    ----------
    text : str
        The record as JSON.

    Guarantee
    ---------
    ``epsilon`` is `account`'s upper bound for ``plan`` at ``delta``, plus the price of counting the
    records where their number was not stated. A change of any character
    breaks the digest; a change of the plan, of ``delta`` or of a claim that follows from them is
    found by recomputing even when the digest is forged with it. The digest is not a signature: who
    wrote the record, which versions computed it, for which model, and whether the run was seeded,
    only a signature on the file can vouch for.

    Examples
    --------
    >>> import dplateau as dp
    >>> plan = dp.Plan(records=100, batches=dp.FullBatch(), iterations=20, step_size=1.0,
    ...                noise_multiplier=60.0, loss=dp.Logistic(), data_norm=1.0)
    >>> X = np.eye(100)[:, :3]
    >>> released = dp.release(plan, dp.Logistic(), X, X[:, 0])
    >>> certificate = Certificate.of(released, delta=1e-4)
    >>> round(certificate.epsilon, 3), certificate.fit_for_release
    (0.432, True)
    >>> certificate.verify(released.weights).checks[0].found
    'as issued'
    """

    text: str

    def __post_init__(self) -> None:
        record = _parse(self.text)
        _check_schema(record)
        object.__setattr__(self, "text", _pretty(record))

    @classmethod
    def of(
        cls,
        release: Released,
        delta: float,
        *,
        counting: Counting | None = None,
        bought: Bought | None = None,
        facts: Mapping[str, Any] | None = None,
        remarks: Sequence[str] = (),
        with_lower_bound: bool = False,
    ) -> Certificate:
        """The certificate of a finished run.

        Parameters
        ----------
        release : Release
            What `dplateau.release` returned: the plan as executed and the last iterate.
        delta : float
            The ``delta`` at which ``epsilon`` is stated.
        counting : Counting, optional
            How ``plan.records`` was found, where it is the result of a private count.
        bought : Bought, optional
            What else was bought with the same budget.
        facts : mapping, optional
            What the model's predictions depend on beside weights and plan: the name of its
            ``estimator``, the ``target_bounds`` of a regression.
        remarks : sequence of str
            What you want to add in your own words. It is shown as yours, and `verify` says that
            nobody can check it.
        with_lower_bound : bool
            State as well what no proof can go below; that costs more than all the rest.
        """
        weights = np.asarray(release.weights, dtype=np.float64)
        record = claims.record(
            release.plan,
            probability("delta", delta),
            run={
                "iterations_run": int(release.iterations_run),
                "noise_source": str(release.noise_source),
                "seeded": bool(release.seeded),
                "grid": None if release.grid is None else float(release.grid),
            },
            model={
                "sha256": fingerprint(weights),
                "shape": list(weights.shape),
                **({} if facts is None else {"facts": dict(facts)}),
            },
            versions=claims.versions(),
            counting=counting,
            bought=bought,
            remarks=remarks,
            with_lower_bound=with_lower_bound,
        )
        return cls(json.dumps(record, allow_nan=False))

    def bound_to(self, document: Mapping[str, Any]) -> Certificate:
        """The same certificate, issued for this document (a ``model.json``) as a whole.

        `verify` then finds any change of the document: of a class, a bound, a name, and anything
        added to it.
        """
        record = self.to_dict()
        record["model"]["document"] = digest(dict(document))
        stored = {name: value for name, value in record.items() if name != "digest"}
        return Certificate(json.dumps({**stored, "digest": digest(stored)}))

    # -- reading and writing --------------------------------------------------------------------

    @classmethod
    def read(cls, path: str | Path) -> Certificate:
        """Read a certificate file, refusing what is not one or has an unknown schema."""
        try:
            return cls(disk.read_bytes(path, LARGEST).decode())
        except (OSError, UnicodeDecodeError) as trouble:
            raise CertificateError(
                f"cannot read a certificate from {str(path)!r}: {disk.reason(trouble)}."
            ) from None

    def write(self, path: str | Path) -> Path:
        """Write the certificate as JSON, over what is there, and return the path."""
        return write_file(path, self.text, force=True)

    def to_json(self) -> str:
        """The record as readable JSON."""
        return self.text

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """The inverse of `to_json`."""
        return cls(text)

    def to_dict(self) -> dict[str, Any]:
        """A fresh copy of the record; changing it does not change the certificate."""
        return _parse(self.text)

    # -- what it says ---------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan as executed."""
        return Plan.from_dict(self.to_dict()["plan"])

    @property
    def epsilon(self) -> float:
        """The claimed bound under `relation`, at `delta`."""
        return claims.number(self.to_dict()["guarantee"]["epsilon"])

    @property
    def delta(self) -> float:
        """The ``delta`` at which `epsilon` is stated."""
        return float(self.to_dict()["guarantee"]["delta"])

    @property
    def relation(self) -> str:
        """The neighbouring relation of the plan."""
        return str(self.to_dict()["guarantee"]["relation"])

    @property
    def counting(self) -> Counting:
        """How the number of records was found; empty where a public bound was stated."""
        return Counting.from_record(self.to_dict())

    @property
    def bought(self) -> Bought:
        """What else was bought with the same budget; empty where nothing was."""
        return Bought.from_record(self.to_dict())

    @property
    def statement(self) -> str:
        """The guarantee in plain words."""
        return str(self.to_dict()["statement"])

    def __repr__(self) -> str:
        return (
            f"Certificate(epsilon={self.epsilon:.4g}, delta={self.delta:g}, "
            f"relation={self.relation!r}, fit_for_release={self.fit_for_release})"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the promise, and whether it is fit for release."""
        verdict = "fit for release" if self.fit_for_release else "not for release"
        return (
            f"<p><b>dplateau certificate</b> ({verdict})</p><p>{html.escape(self.statement)}</p>"
            f"<p>ε = {self.epsilon:.4g} at δ = {self.delta:g} under "
            f"<code>{html.escape(self.relation)}</code></p>"
        )

    @property
    def fit_for_release(self) -> bool:
        """False for seeded runs, an epsilon above 20, one record, or a delta of 1/records or more.

        The limits are `RELEASE_EPSILON` and `RELEASE_DELTA` of `dplateau.accounting.guarantee`.
        """
        return bool(self.to_dict()["fit_for_release"])

    # -- checking it ----------------------------------------------------------------------------

    def examine(self, weights: Any = None, *, time_limit: float | None = None) -> Verification:
        """Everything `verify` looks at, passed or not; parameters as there."""
        return verification.examine(self.to_dict(), weights, time_limit=time_limit)

    def check(self, weights: Any = None) -> tuple[Check, ...]:
        """The checks of `examine`."""
        return self.examine(weights).checks

    def identify(self, model: Any) -> tuple[Check, ...]:
        """Those of `check`'s checks that ask whether this is the model it was issued for: cheap."""
        return tuple(verification.model_checks(self.to_dict(), self.plan, model))

    def verify(self, weights: Any = None, *, time_limit: float | None = None) -> Verification:
        """Compute every claim again from the record alone, and compare.

        Parameters
        ----------
        weights : array_like, fitted estimator or document, optional
            The released weights, the estimator that predicts with them, or the content of a
            ``model.json``; what was not given is not checked, and a line says so.
        time_limit : float, optional
            Seconds after which to give up, for a certificate from somebody you do not know: a plan
            can be written that takes long to account for. Works in the main thread.

        Returns
        -------
        Verification
            The checks, all passed, and the record as it was recomputed.

        Raises
        ------
        CertificateError
            When any check fails; the message names each.
        """
        found = self.examine(weights, time_limit=time_limit)
        if not found.holds:
            raise CertificateError(
                "this certificate does not hold: "
                + "; ".join(
                    f"{check.name}: {check.found}" for check in found.checks if not check.passed
                )
            )
        return found


# -- the text --------------------------------------------------------------------------------------


def _parse(text: str) -> dict[str, Any]:
    record = loads(text, "this is not a certificate: it", CertificateError)
    if not isinstance(record, dict):
        raise CertificateError("this is not a certificate: the JSON is not an object.")
    return record


def _check_schema(record: dict[str, Any]) -> None:
    if record.get("kind") != KIND:
        raise CertificateError(
            f"this is not a certificate: its kind is {record.get('kind')!a:.40}, not {KIND!r}."
        )
    if record.get("schema") != SCHEMA or isinstance(record.get("schema"), bool):
        raise CertificateError(
            f"certificate schema {record.get('schema')!a:.40} is unknown; this version of dplateau "
            f"reads schema {SCHEMA}. Use the version that wrote it, or a newer one."
        )
    wrong = next(iter(_validator().iter_errors(record)), None)
    if wrong is not None:
        if _before_rounding(record):
            raise CertificateError(
                "this certificate was written by a version of dplateau that did not count "
                "rounding in epsilon and delta: train again with this version."
            )
        where = ascii("/".join(map(str, wrong.absolute_path)))[1:-1][:80] or "the record"
        raise CertificateError(
            f"this certificate breaks its schema at {where} ({wrong.validator})."
        )


def _before_rounding(record: dict[str, Any]) -> bool:
    """Whether the record lacks what its rounding was charged by, as all once did."""
    stated = record.get("rounding", {})
    return isinstance(stated, dict) and not {"mu", "unlike"} <= stated.keys()


@functools.cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    text = resources.files("dplateau.certificate").joinpath("schema.json").read_text("utf-8")
    whole = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, found: _whole(found))
    return extend(Draft202012Validator, type_checker=whole)(json.loads(text))


def _whole(found: object) -> bool:
    """An integer that 63 bits count: 1e308 is none, which JSON's own word allows."""
    return type(found) is int and abs(found) < 1 << 63


def _pretty(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


__all__ = ["Certificate", "Check", "Counting", "Verification", "fingerprint"]
