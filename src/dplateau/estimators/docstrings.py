"""An estimator's page lists all of its parameters: its own, then those that all of them share."""

from __future__ import annotations

import re

_HEADING = "    Parameters\n    ----------\n"
_NEXT = re.compile(r"\n\n    \S[^\n]*\n    -{3,}\n")  # the heading of the section that follows


def with_shared_parameters(own: str, shared: str) -> str:
    """The docstring ``own`` with the parameters of the docstring ``shared`` after its own ones.

    Examples
    --------
    >>> own = "A.\\n\\n" + _HEADING + "    a : int\\n\\n    Notes\\n    -----\\n    N."
    >>> shared = "B.\\n\\n" + _HEADING + "    b : int\\n    "
    >>> print(with_shared_parameters(own, shared))
    A.
    <BLANKLINE>
        Parameters
        ----------
        a : int
        b : int
    <BLANKLINE>
        Notes
        -----
        N.
    """
    if _HEADING not in own:
        return own
    found = _NEXT.search(own, own.index(_HEADING) + len(_HEADING))
    end = found.start() if found else len(own.rstrip())
    inherited = shared[shared.index(_HEADING) + len(_HEADING) :].rstrip()
    return f"{own[:end].rstrip()}\n{inherited}{own[end:]}"
