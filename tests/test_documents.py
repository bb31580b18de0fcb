"""Every code block of the README and of the documentation is run, and what it prints is compared.

The rules for a page:

* ``python`` blocks of one page run in order in one namespace, ``bash`` blocks in a shell that stops
  at the first failing command; both in one empty directory per page. A plain call of ``dplateau``,
  also one whose output goes into a file or to another command, is made in the test's own process:
  importing it takes longer than most commands.
* A ``text`` block straight after a block that was run is what it must print (``...`` stands for
  anything, as in a doctest).
* ``json`` and ``toml`` blocks must parse. Any other kind of fence fails: no code slips by.
* ``<!-- not run: reason -->`` on the line before a fence leaves it out, and says why.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from dplateau.cli import main

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"^(?P<note><!-- not run:[^\n]*-->\n)?(?P<pad>[ ]*)```(?P<kind>\S*)[^\n]*\n"
    r"(?P<code>.*?)^(?P=pad)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
PLAIN_CALL = re.compile(r"dplateau [^|&;<>$`*]*")  # nothing in it that only a shell understands
GENERATED = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import generate
page = (pathlib.Path(sys.argv[1]) / "cli.md").read_text(encoding="utf-8")
print(json.dumps([generate.reference(), generate.command_page(page)]))
"""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    kind: str
    code: str
    line: int
    adjoins: bool  # nothing but blank lines between the block before and this one


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found, end = [], 0
    for match in FENCE.finditer(text):
        line = text[: match.start()].count("\n") + 1
        kind = "not run" if match["note"] else match["kind"]
        adjoins = not text[end : match.start()].strip()
        code = re.sub(rf"^{match['pad']}", "", match["code"], flags=re.MULTILINE)
        found.append(Block(kind, code, line, adjoins))
        end = match.end()
    return found


def run_python(block: Block, page: Path, names: dict[str, object]) -> str:
    printed = io.StringIO()
    code = compile("\n" * block.line + block.code, str(page), "exec", dont_inherit=True)
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def run_commands(block: Block, page: Path) -> str:
    """One command after the other; a block without plain calls goes to a shell as it is."""
    given = commands(block.code)
    if not any(plain_call(command) or sent_on(command) for command in given):
        return run_shell(block.code, block, page)
    return "".join(run_command(command, block, page) for command in given)


def run_command(command: str, block: Block, page: Path) -> str:
    if plain_call(command):
        return run_here(command, block, page)
    if sent := sent_on(command):
        line, rest = sent
        return run_shell(rest, block, page, run_here(line, block, page))
    return run_shell(command, block, page)


def commands(code: str) -> list[str]:
    """The commands of a block: its lines, with what is continued and what is fed to them."""
    found: list[str] = []
    ends = ""
    for line in code.replace("\\\n", " ").splitlines():
        if ends:
            found[-1] += f"\n{line}"
            ends = "" if line.split(" ")[0] == ends else ends
        elif line.strip() and not line.startswith("#"):
            found.append(line)
            fed = re.search(r"<<'(\w+)'", line)
            ends = fed[1] if fed else "done" if line.endswith("; do") else ""
    return found


def plain_call(command: str) -> bool:
    """A call of ``dplateau`` with nothing in it, outside of quotes, for a shell alone."""
    return PLAIN_CALL.fullmatch(re.sub(r"'[^']*'", "quoted", command)) is not None


def sent_on(command: str) -> tuple[str, str] | None:
    """A plain call whose output goes into a file or to another command, and what takes it."""
    if match := re.fullmatch(r"(.*?)\s> ([\w./-]+)", command):
        return (match[1], f"cat > {match[2]}") if plain_call(match[1]) else None
    line, _, rest = command.partition(" | ")
    return (line, rest) if rest and plain_call(line) else None


def run_here(line: str, block: Block, page: Path) -> str:
    printed, complaints = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", shlex.split(line))
        patch.setenv("COLUMNS", "100")
        patch.setenv("NO_COLOR", "1")
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaints):
            try:
                main()
                code: object = 0
            except SystemExit as end:
                code = end.code or 0
    assert code == 0, f"{page.name}:{block.line}\n{line}\n{complaints.getvalue()}"
    return printed.getvalue()


def run_shell(code: str, block: Block, page: Path, given: str | None = None) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        capture_output=True,
        text=True,
        input=given,
        timeout=300,
        env={**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"},
    )
    assert done.returncode == 0, f"{page.name}:{block.line}\n{code}\n{done.stderr}"
    return done.stdout


def check_printed(wanted: Block, printed: str, page: Path) -> None:
    if not doctest.OutputChecker().check_output(wanted.code, printed, FLAGS):
        pytest.fail(f"{page.name}:{wanted.line} shows\n{wanted.code}\nbut it prints\n{printed}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__page__"}
    printed: str | None = None
    for block in blocks(page):
        if block.kind == "text" and block.adjoins and printed is not None:
            check_printed(block, printed, page)
        printed = None
        if block.kind == "python":
            printed = run_python(block, page, names)
        elif block.kind == "bash":
            printed = run_commands(block, page)
        elif block.kind == "json":
            json.loads(block.code)
        elif block.kind == "toml":
            tomllib.loads(block.code)
        elif block.kind not in ("text", "not run"):
            pytest.fail(f"{page.name}:{block.line} is a block of unknown kind {block.kind!r}")


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    present = {str(page.relative_to(ROOT / "docs")) for page in PAGES if "docs" in page.parts[-3:]}
    assert present <= listed


def test_generated_pages_are_what_the_code_says():
    """docs/reference.md and all options in docs/cli.md: python docs/generate.py writes them.

    By a process of its own: other tests define kinds of batches that a help text would list.
    """
    made = subprocess.run(
        [sys.executable, "-c", GENERATED, str(ROOT / "docs")], capture_output=True, check=True
    )
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [(ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), page] == json.loads(
        made.stdout
    )
    listed = page[page.index("| command |") : page.index("## Tables")]
    commands = {line.split()[2] for line in page.splitlines() if line.startswith("### dplateau ")}
    assert all(f"`dplateau {name}" in listed for name in commands)


def test_nothing_is_fetched_from_the_network():
    """Pictures of README and pages lie in the repository."""
    for page in PAGES:
        for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)", page.read_text(encoding="utf-8")):
            assert "://" not in target, f"{page.name} loads {target}"
            assert (page.parent / target).is_file(), f"{page.name} lacks {target}"


@pytest.mark.slow  # run by `make types`, whose cache makes it quick
def test_the_readmes_code_passes_mypy(tmp_path):
    code = "\n".join(b.code for b in blocks(ROOT / "README.md") if b.kind == "python")
    (tmp_path / "readme.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml"]
    done = subprocess.run(
        [*command, str(tmp_path / "readme.py")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
