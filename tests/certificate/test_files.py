"""Artefacts are written whole or not at all, by one writer at a time, and through no link."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest

from dplateau import _disk as disk
from dplateau.certificate import files
from dplateau.certificate.files import CERTIFICATE, MODEL, REPORT, reserved, write_file
from dplateau.errors import DataError, LeftoverWarning


def pair(number):
    return {MODEL: f"model {number}", CERTIFICATE: f"certificate {number}"}


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_release_appears_whole_and_takes_the_old_report_with_it(tmp_path):
    out = tmp_path / "out"
    with reserved(out) as place:
        assert [path.name for path in place.publish(pair(1))] == [MODEL, CERTIFICATE]
    (out / REPORT).write_text("of the first")
    (out / "notes.txt").write_text("mine")
    (out / "pictures").mkdir()
    with pytest.raises(DataError, match="not empty"), reserved(out):
        pass
    with reserved(out, force=True) as place:
        place.publish(pair(2))
    assert names(out) == [CERTIFICATE, MODEL, "notes.txt", "pictures"]
    assert (out / MODEL).read_text() == "model 2"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("why", ["the system cannot exchange", "it is the current directory"])
def test_without_an_exchange_files_are_replaced_one_by_one(tmp_path, monkeypatch, why):
    out = tmp_path / "out"
    with reserved(out) as place:
        place.publish(pair(1))
    (out / REPORT).write_text("of the first")
    before = out.stat().st_ino
    if why == "it is the current directory":
        monkeypatch.chdir(out)
    else:
        monkeypatch.setattr(disk, "take_place", lambda *_: False)
    with reserved(out, force=True) as place:
        place.publish(pair(2))
    assert out.stat().st_ino == before
    assert names(out) == [CERTIFICATE, MODEL]
    assert (out / CERTIFICATE).read_text() == "certificate 2"
    assert names(tmp_path) == ["out"]


def test_a_directory_is_reserved_before_the_work_and_given_back_after(tmp_path):
    out = tmp_path / "a" / "out"
    with reserved(out):
        with pytest.raises(DataError, match="in use by another run"), reserved(out, force=True):
            pass
        assert out.is_dir()
    assert not out.exists()
    with reserved(out) as place:
        place.publish(pair(1))
        # the new directory is taken as well, until the block ends
        with pytest.raises(DataError, match="in use"), reserved(out, force=True):
            pass
    with reserved(out, force=True):
        pass
    assert (out / MODEL).read_text() == "model 1"


def test_of_many_writers_at_once_exactly_one_succeeds(tmp_path):
    for number in range(60):
        out, start, ends = tmp_path / str(number), threading.Barrier(4), []

        def write(own, out=out, start=start, ends=ends):
            start.wait()
            try:
                with reserved(out) as place:
                    place.publish(pair(own))
                ends.append(own)
            except DataError:
                pass

        writers = [threading.Thread(target=write, args=(own,)) for own in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert len(ends) == 1
        assert (out / MODEL).read_text() == f"model {ends[0]}"
        assert (out / CERTIFICATE).read_text() == f"certificate {ends[0]}"


def test_a_directory_that_was_replaced_meanwhile_is_not_written_to(tmp_path):
    out = tmp_path / "out"
    with reserved(out) as place:
        out.rename(tmp_path / "elsewhere")
        out.mkdir()
        with pytest.raises(DataError, match="replaced"):
            place.publish(pair(1))
    assert not list(tmp_path.rglob(MODEL))


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("x")
    for where in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(DataError), reserved(where):
            pytest.fail("the work began")
    with pytest.raises(DataError, match="no directory"):
        files.check_file(tmp_path / "nowhere" / "a.csv", force=True)
    if os.geteuid() != 0:  # who may do anything is refused nothing
        (tmp_path / "locked").mkdir(mode=0o500)
        with pytest.raises(DataError, match="cannot"), reserved(tmp_path / "locked" / "out"):
            pytest.fail("the work began")


def test_an_existing_file_is_never_replaced_unasked(tmp_path):
    file = write_file(tmp_path / "a.csv", "one")
    with pytest.raises(DataError, match="exists"):
        write_file(file, "two")
    assert write_file(file, b"two", force=True).read_bytes() == b"two"
    part = disk.temporary(file)
    part.write_text("three")
    with pytest.raises(FileExistsError):  # one that appeared after the first look
        disk.put_new(part, file)
    assert file.read_text() == "two"


def test_no_link_is_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    link = tmp_path / "page.html"
    link.symlink_to(victim)
    with pytest.raises(DataError, match="exists"):
        write_file(link, "page")
    write_file(link, "page", force=True)
    assert not link.is_symlink()
    assert victim.read_text() == "mine"
    part = tmp_path / ".part"
    part.symlink_to(victim)
    with pytest.raises(FileExistsError), disk.written(part, b"page"):
        pass
    assert victim.read_text() == "mine"
    assert len({disk.temporary(link) for _ in range(100)}) == 100


def test_everything_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    events = []
    real = {"fsync": os.fsync, "replace": os.replace, "rename": os.rename, "link": os.link}
    for name, function in real.items():

        def record(*arguments, _name=name, _function=function, **options):
            events.append(_name)
            return _function(*arguments, **options)

        monkeypatch.setattr(os, name, record)
    write_file(tmp_path / "a", "one")
    write_file(tmp_path / "a", "two", force=True)
    assert events == ["fsync", "link", "fsync", "fsync", "replace", "fsync"]
    events.clear()
    with reserved(tmp_path / "out") as place:
        events.clear()
        place.publish(pair(1))
    assert events[:5] == ["fsync", "fsync", "fsync", "rename", "fsync"]


def test_leftovers_are_removed_and_named(tmp_path):
    out = tmp_path / "out"
    left = disk.temporary(out)
    left.mkdir()
    (left / MODEL).write_text("a second release")
    (left / "notes.txt").write_text("of the user")
    beside = disk.temporary(out / MODEL)
    out.mkdir()
    beside.write_text("half a model")
    assert files.leftovers(out) == sorted([left, beside])
    with pytest.warns(LeftoverWarning) as said, reserved(out, force=True):
        pass
    assert {str(left), str(beside)} <= {str(one.message).split()[1].rstrip(",") for one in said}
    assert names(tmp_path) == ["out"]
    assert names(out) == ["notes.txt"]
    part = disk.temporary(tmp_path / "a.csv")
    part.write_text("half")
    with pytest.warns(LeftoverWarning, match="removed"):
        write_file(tmp_path / "a.csv", "whole")
    assert names(tmp_path) == ["a.csv", "out"]


def test_what_another_writer_is_using_is_no_leftover(tmp_path):
    part = disk.temporary(tmp_path / "a.csv")
    with disk.written(part, b"half"), warnings.catch_warnings():
        warnings.simplefilter("error")
        write_file(tmp_path / "a.csv", "whole")
        assert part.exists()


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for where in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(OSError):
            disk.read_bytes(where, 100)
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 2**30)
    with pytest.raises(OSError, match="larger than 100 bytes"):
        disk.read_bytes(tmp_path / "large", 100)
    (tmp_path / "small").write_bytes(b"x" * 100)
    assert disk.read_bytes(tmp_path / "small", 100) == b"x" * 100


def test_a_release_is_of_known_files_only(tmp_path):
    with pytest.raises(ValueError, match="secrets"), reserved(tmp_path / "out") as place:
        place.publish({"secrets.txt": ""})
    assert names(tmp_path) == []


WRITER = """
import sys, warnings
from dplateau.certificate.files import CERTIFICATE, MODEL, reserved
warnings.simplefilter("ignore")
print("ready", flush=True)
for number in range(100_000):
    with reserved(sys.argv[1], force=True) as place:
        place.publish({MODEL: f"{number}" * 500, CERTIFICATE: f"{number}" * 500})
"""


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_a_kill_leaves_one_whole_release(tmp_path, kills):
    """SIGKILL at any moment: both files are of one release, and the next run cleans up."""
    out = tmp_path / "out"
    (out).mkdir()
    (out / "notes.txt").write_text("mine")
    for kill in range(kills):
        command = [sys.executable, "-c", WRITER, str(out)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            time.sleep(0.01 + 0.0137 * (kill % 7))
            writer.send_signal(signal.SIGKILL)
        if (out / MODEL).exists():
            assert (out / MODEL).read_text() == (out / CERTIFICATE).read_text() != ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LeftoverWarning)
            with reserved(out, force=True):
                pass
        assert names(tmp_path) == ["out"]
        assert set(names(out)) <= {MODEL, CERTIFICATE, "notes.txt"}
        assert (out / "notes.txt").read_text() == "mine"
