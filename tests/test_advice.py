"""No refusal gives advice that no test has followed."""

from __future__ import annotations

import advised

MESSAGES = list(advised.advice())
EXECUTED = dict(advised.executed())


def named(words: str) -> set[str]:
    """The texts of the messages that hold these words."""
    return {message.text for message in MESSAGES if message.has(words)}


def test_every_piece_of_advice_is_followed_by_a_test():
    followed = {text for words in EXECUTED for text in named(words) if len(named(words)) == 1}
    left = [message for message in MESSAGES if message.text not in followed]
    assert not left, "advice that no test follows, or whose words do not tell it apart:\n" + (
        "\n".join(f"{m.file}:{m.line} {m.text!r}" for m in left)
    )


def test_the_scan_sees_advice():
    assert len(MESSAGES) > 250
    assert named("Ask for less, or agree on a larger budget")  # put together by another function
