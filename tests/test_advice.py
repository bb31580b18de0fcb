"""No refusal gives advice that no test has followed."""

from __future__ import annotations

from functools import cache

import advised


@cache  # when a test asks: workers that run none of these tests read no sources
def messages() -> list[advised.Message]:
    return list(advised.advice())


def named(words: str) -> set[str]:
    """The texts of the messages that hold these words."""
    return {message.text for message in messages() if message.has(words)}


def test_every_piece_of_advice_is_followed_by_a_test():
    followed = set[str]()
    for words in dict(advised.executed()):
        texts = named(words)
        followed |= texts if len(texts) == 1 else set()
    left = [message for message in messages() if message.text not in followed]
    assert not left, "advice that no test follows, or whose words do not tell it apart:\n" + (
        "\n".join(f"{m.file}:{m.line} {m.text!r}" for m in left)
    )


def test_the_scan_sees_advice():
    assert len(messages()) > 250
    assert named("Ask for less, or agree on a larger budget")  # put together by another function
