"""The audit's section in a report: which plan it attacked, and a digest that an edit breaks."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from dplateau.errors import DataError

CONSISTENT = "consistent"
VIOLATED = "violated"

_SECTION = re.compile(
    r"<section class='audit (?P<verdict>[a-z]+)' data-plan='(?P<plan>[0-9a-f]{64})' "
    r"data-sha256='(?P<digest>[0-9a-f]{64})'>(?P<body>.*)</section>",
    re.DOTALL,
)


@dataclass(frozen=True)
class Section:
    """An audit as HTML, with what a report compares before it shows it.

    The digest finds what was edited by accident or in passing; it is no signature.

    Parameters
    ----------
    verdict : {"consistent", "violated"}
    plan : str
        The fingerprint of the plan that was attacked.
    body : str
        What is shown.

    Examples
    --------
    >>> section = Section("consistent", 64 * "0", "<p>Nothing was found.</p>")
    >>> Section.parse(section.html) == section
    True
    >>> Section.parse(section.html.replace("Nothing", "Much"))
    Traceback (most recent call last):
    ...
    dplateau.errors.DataError: this audit was edited after it was written. ...
    """

    verdict: str
    plan: str
    body: str

    @property
    def html(self) -> str:
        """The section as text, with its digest."""
        text = "\n".join((self.verdict, self.plan, self.body))
        digest = hashlib.sha256(text.encode()).hexdigest()
        return (
            f"<section class='audit {self.verdict}' data-plan='{self.plan}' "
            f"data-sha256='{digest}'>{self.body}</section>"
        )

    @classmethod
    def parse(cls, text: str) -> Section:
        """The section that a file holds, refused when it was edited or is none."""
        found = _SECTION.fullmatch(text.strip())
        if found is None or "<script" in text.lower():
            raise DataError(
                "this is not an audit's section. Write one with: dplateau audit --html FILE."
            )
        section = cls(found["verdict"], found["plan"], found["body"])
        if section.html != found[0]:
            raise DataError(
                "this audit was edited after it was written. Write it again with: "
                "dplateau audit --html FILE."
            )
        return section


__all__ = ["CONSISTENT", "VIOLATED", "Section"]
