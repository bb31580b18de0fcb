"""Advice of refusals: read off the source, and followed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import dplateau as dp

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dplateau"
PLAN = dp.Plan(  # small, and as anybody has it: tests of advice change a field or two
    records=60,
    batches=dp.FullBatch(),
    iterations=3,
    step_size=0.5,
    noise_multiplier=20.0,
    loss=dp.Logistic(),
    data_norm=1.0,
)
HOLE = "\0"  # where a message quotes what was found
_VERBS = (
    "account|add|ask|audit|begin|bound|call|change|check|choose|clean|clear|close|compare|"
    "connect|convert|copy|correct|create|cut|declare|define|delete|derive|describe|divide|"
    "draw|drop|encode|enter|evaluate|export|fill|fit|gather|get|give|hold|import|install|"
    "keep|leave|let|limit|look|lower|make|mark|move|name|open|pass|pip|put|raise|read|"
    "rechunk|reload|remove|rename|repeat|replace|reshape|resume|retry|run|save|say|see|set|"
    "sign|split|start|state|swap|take|train|try|use|wait|widen|work|write"
)
_ADVICE = re.compile(
    rf"(?:^|[.:;?)] |, or |, and | or |: )(?:{_VERBS})\b(?! (?:is|was|are|were)\b)", re.I
)


class Message(NamedTuple):
    """A text of a refusal: the file, the line, and the text with holes."""

    file: str
    line: int
    text: str

    def has(self, words: str) -> bool:
        """Whether the message holds these words; what it quotes may be written as {}."""
        return words in self.text.replace(HOLE, "{}")


REFUSALS = (dp.PlanError, dp.DataError, dp.CertificateError, dp.ClusterError)


def obey(refused: Callable[[], Any], words: str, followed: Callable[[], Any]) -> Any:
    """See something refused with these words, do what they say, and give back what comes of it."""
    with pytest.raises(REFUSALS) as refusal:
        refused()
    assert words in str(refusal.value)
    return followed()


def executed() -> Iterator[tuple[str, str]]:
    """The words of advice that tests follow, with the file of the test.

    They are second in a row of a table of three in a file of advice, the second argument of
    `obey` or called ``words``, or arguments of the mark ``advice`` on a test that follows them in
    its own way.
    """
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            found: list[ast.expr] = []
            if isinstance(node, ast.Tuple) and len(node.elts) == 3 and "advice" in path.name:
                found = [node.elts[1]]
            elif isinstance(node, ast.Call):
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                found = node.args if called == "advice" else []
                found = node.args[1:2] if called == "obey" else found
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "words":
                found = [node.value]
            for each in found:
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.value, str(path.relative_to(ROOT))


def advice() -> Iterator[Message]:
    """Every refusal of the package that tells what to do."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        helpers = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        seen: set[int] = set()
        for raised in (node for node in ast.walk(tree) if isinstance(node, ast.Raise)):
            if raised.exc is None:
                continue
            called = [n.func for n in ast.walk(raised.exc) if isinstance(n, ast.Call)]
            names = {getattr(f, "id", getattr(f, "attr", "")) for f in called}
            bodies: list[ast.AST] = [
                node
                for name in names & helpers.keys()
                for node in helpers[name].body
                if not isinstance(node, ast.Expr)
            ]
            for body in (raised.exc, *bodies):
                for node, text in texts(body):
                    if _ADVICE.search(text) and node.lineno not in seen:
                        seen.add(node.lineno)
                        yield Message(str(path.relative_to(SOURCE)), node.lineno, text)


def texts(body: ast.AST) -> Iterator[tuple[Any, str]]:
    """The texts in an expression, the outermost of each."""
    if isinstance(body, ast.Constant) and isinstance(body.value, str):
        yield body, body.value
    elif isinstance(body, ast.JoinedStr):
        parts = [p.value if isinstance(p, ast.Constant) else HOLE for p in body.values]
        yield body, "".join(map(str, parts))
        for part in body.values:
            if isinstance(part, ast.FormattedValue):
                yield from texts(part.value)
    else:
        for child in ast.iter_child_nodes(body):
            yield from texts(child)
