"""The command line, called in the test's own process."""

import sys

import pytest

from dplateau.cli import main


@pytest.fixture
def dplateau(monkeypatch, capsys):
    """Call the command line: exit code, standard output, standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["dplateau", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        return code, *capsys.readouterr()

    return call
