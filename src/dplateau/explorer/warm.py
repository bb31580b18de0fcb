"""Imported once by the fork server, so that every worker starts with everything loaded.

A quick question about every preset is answered on import: first calls are slow ones.
"""

from __future__ import annotations

from dplateau.explorer import presets
from dplateau.explorer.questions import answer


def _warm_up() -> None:
    for preset in presets.PRESETS:
        state = {"plan": preset.plan.to_dict(), "delta": preset.delta}
        answer({"ask": "quick", "state": state}, lambda _: None)


_warm_up()
