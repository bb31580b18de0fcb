"""An environment of its own for every peer, made on first use.

None of these packages is a dependency of dplateau. A peer that cannot be installed is *absent*: its
measurements say so, and nothing is claimed about it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".venvs"
SCRIPTS = Path(__file__).resolve().parent / "peers"
INSTALL_LIMIT = 1200  # seconds
WALL_LIMIT = 3600  # seconds
IMPORT_LIMIT = 120  # seconds
INSTALL = True  # False: a peer that is not installed yet stays absent

# The CPU build of torch is the pinned one; an unpinned "torch" would fetch gigabytes of CUDA.
REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "opacus": ("torch==2.13.0", "opacus==1.6.0"),
    "jax": ("jax==0.10.2", "jax-privacy==2.0.0"),
    "diffprivlib": ("diffprivlib==0.6.6", "scikit-learn==1.7.0"),
    "prv": ("prv-accountant==0.2.0",),
    "autodp": ("autodp==0.2.3.1",),
}


class Absent(RuntimeError):
    """The peer could not be installed or does not import here."""


@dataclass(frozen=True)
class Answer:
    """What a peer's script said, or how it failed: ``ok``, ``error`` or ``timeout``."""

    status: str
    numbers: dict[str, Any] = field(default_factory=dict)
    detail: str = ""


def python_of(peer: str) -> Path:
    """The peer's interpreter, whether or not it exists yet."""
    return ENVIRONMENTS / peer / "bin" / "python"


def prepare(peer: str) -> Path:
    """Make the peer's environment if needed; its interpreter, or `Absent` with the reason."""
    stamp = ENVIRONMENTS / peer / "installed.json"
    if stamp.exists():
        stored = json.loads(stamp.read_text())
        if stored["requirements"] == list(REQUIREMENTS[peer]):
            if stored["failure"]:
                raise Absent(stored["failure"])
            return python_of(peer)
    if not INSTALL:
        raise Absent("not installed here, and installing was not asked for")
    failure = _install(peer)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(json.dumps({"requirements": REQUIREMENTS[peer], "failure": failure}))
    if failure:
        raise Absent(failure)
    return python_of(peer)


def _install(peer: str) -> str:
    """Empty if all went well, else why not."""
    pip = [str(python_of(peer)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    commands = [
        [sys.executable, "-m", "venv", "--clear", str(ENVIRONMENTS / peer)],
        [*pip, *REQUIREMENTS[peer]],
        [str(python_of(peer)), str(SCRIPTS / f"with_{peer}.py"), "versions", "{}"],
    ]
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT)
        except (OSError, subprocess.TimeoutExpired) as trouble:
            return f"{type(trouble).__name__} during set-up"
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            return f"set-up failed: {lines[-1][:200]}"
    return ""


def ask_many(
    python: str | Path, script: Path, task: str, cap: float, questions: list[dict[str, Any]]
) -> list[Answer]:
    """Ask one process after the other of the same kind, each at most ``cap`` processor seconds.

    The process does not survive a question that exceeds the cap (``timeout``) or that crashes it
    (``error``); later questions are then ``not tried``.
    """
    process = _start(python, script, task, {"questions": questions, "cap": cap})
    try:
        printed, complaints = process.communicate(timeout=WALL_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        printed, complaints = process.communicate()
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    answers = [
        Answer("error", detail=line["failure"]) if "failure" in line else Answer("ok", line)
        for line in lines
    ]
    if len(answers) < len(questions):
        hung = process.returncode in (-signal.SIGPROF, -signal.SIGKILL)
        last = (complaints.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        found = Answer("timeout", detail=f"more than {cap:g} s") if hung else None
        answers.append(found or Answer("error", detail=last[:200]))
    missing = len(questions) - len(answers)
    return answers + [Answer("not tried", detail="a shorter one got no answer")] * missing


def ask(
    peer: str, task: str, *, limit: float = 60.0, one_core: bool = False, **arguments: Any
) -> Answer:
    """Run one task of a peer's script in its environment; the script prints one JSON object.

    ``limit`` counts seconds after the script has imported its libraries, which it announces by a
    line on standard output: an import is not what is being measured.
    """
    script = SCRIPTS / f"with_{peer}.py"
    return run_script(prepare(peer), script, task, limit, arguments, one_core=one_core)


def run_script(
    python: str | Path,
    script: Path,
    task: str,
    limit: float,
    arguments: dict[str, Any],
    *,
    one_core: bool = False,
) -> Answer:
    """Run a script that prints ``ready`` and then one JSON object, with a cap on the second."""
    process = _start(python, script, task, arguments, one_core=one_core)
    assert process.stdout is not None
    watchdog = threading.Timer(IMPORT_LIMIT, process.kill)
    watchdog.start()
    process.stdout.readline()  # "ready", or nothing if the imports failed or took too long
    watchdog.cancel()
    try:
        printed, complaints = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Answer("timeout", detail=f"no answer within {limit:g} s")
    if process.returncode:
        lines = complaints.strip().splitlines() or [f"exit code {process.returncode}"]
        return Answer("error", detail=lines[-1][:300])
    return Answer("ok", json.loads(printed.strip().splitlines()[-1]))


def _start(
    python: str | Path, script: Path, task: str, arguments: dict[str, Any], one_core: bool = False
) -> subprocess.Popen[str]:
    def pin() -> None:
        if one_core:  # every library then sizes its thread pools for one
            os.sched_setaffinity(0, {random.choice(sorted(os.sched_getaffinity(0)))})

    quiet = {**os.environ, "PYTHONWARNINGS": "ignore", "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [str(python), str(script), task, json.dumps(arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=quiet,
        cwd=ROOT,
        preexec_fn=pin,
    )
