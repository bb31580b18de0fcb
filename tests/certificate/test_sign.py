"""Signatures: who vouches is the first thing that is said, and nobody can borrow a name."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess

import numpy as np
import pytest

import dplateau as dp
from dplateau.certificate import claims, sign
from dplateau.certificate.record import Certificate
from dplateau.errors import DataError
from oracles.runs import Run

WEIGHTS = np.array([0.25, -0.5])


def certificate_of(records=1000):
    plan = dp.Plan(
        records=records,
        batches=dp.FullBatch(),
        iterations=20,
        step_size=1.0,
        noise_multiplier=30.0,
        lipschitz=1.0,
        smoothness=1.0,
        domain=dp.L2Ball(1.0),
    )
    return Certificate.of(Run(plan, WEIGHTS, iterations_run=20), 1e-6)


@pytest.fixture(scope="module")
def certificate():
    return certificate_of()


@pytest.fixture
def keys(tmp_path):
    """Two key pairs, as files."""
    for name in ("alice", "mallory"):
        private, public = sign.new_key(f"{name}@example.org")
        (tmp_path / name).write_bytes(private)
        (tmp_path / f"{name}.pub").write_text(public + "\n")
    return tmp_path


@pytest.fixture
def signed(certificate, keys):
    certificate.write(keys / "certificate.json")
    text = sign.sign(certificate, sign.private_key(keys / "alice"))
    (keys / "certificate.sig.json").write_text(text)
    np.save(keys / "weights.npy", WEIGHTS)
    return keys


def test_the_first_line_says_who_vouches(dplateau, signed):
    both = signed / "certificate.json", signed / "weights.npy"
    code, out, _ = dplateau("verify", *both, "--public-key", signed / "alice.pub")
    first = out.splitlines()[0]
    assert code == 0
    assert first.startswith("SHA256:")
    assert first.endswith("(alice@example.org) vouches for this certificate.")
    code, out, _ = dplateau("verify", *both)
    assert code == 0
    assert "a key" not in out.splitlines()[-1]
    assert out.splitlines()[0].startswith("Nobody vouches for this certificate but whoever owns")
    _, out, _ = dplateau("verify", *both, "--public-key", signed / "alice.pub", "--json")
    assert json.loads(out)["vouched_for_by"].startswith("SHA256:")
    _, out, _ = dplateau("verify", *both, "--json")
    assert json.loads(out)["vouched_for_by"] is None


def test_an_unsigned_certificate_says_so(dplateau, signed):
    (signed / "certificate.sig.json").unlink()
    both = signed / "certificate.json", signed / "weights.npy"
    code, out, _ = dplateau("verify", *both)
    assert code == 0
    assert out.startswith("Nobody vouches for this certificate: it is not signed.\n")
    code, out, _ = dplateau("verify", *both, "--public-key", signed / "alice.pub")
    assert code == 1
    assert "FAIL signature: there is none" in out


def test_another_key_does_not_vouch(dplateau, signed):
    both = signed / "certificate.json", signed / "weights.npy"
    code, out, _ = dplateau("verify", *both, "--public-key", signed / "mallory.pub")
    assert code == 1
    assert out.startswith("Nobody vouches")
    trusted = (signed / "mallory.pub").read_text() + "# ours\n" + (signed / "alice.pub").read_text()
    (signed / "both.pub").write_text(trusted)
    assert dplateau("verify", *both, "--public-key", signed / "both.pub")[0] == 0


def forgeries(certificate, text, keys):
    """Signature files that must not pass for Alice's."""
    true = json.loads(text)
    other = certificate_of(records=1001)
    theirs = json.loads(sign.sign(other, sign.private_key(keys / "alice")))
    mallory = json.loads(sign.sign(certificate, sign.private_key(keys / "mallory")))
    yield "of another certificate", theirs
    yield "of another, renamed", {**theirs, **{k: true[k] for k in ("certificate", "weights")}}
    yield "by another, under her key", {**mallory, "key": true["key"]}
    yield "her signature under another key", {**true, "key": mallory["key"]}
    yield "no signature", {**true, "signature": ""}
    yield "one byte off", {**true, "signature": "A" + true["signature"][1:]}
    yield "not base64", {**true, "signature": "\x1b[2K" * 9}
    yield "a document planted", {**true, "document": "0" * 64}
    yield "another schema", {**true, "schema": 2}
    yield "one field more", {**true, "note": "x"}
    yield "no key", {**true, "key": ""}
    yield "a list", [true]


def test_no_forged_signature_passes(certificate, signed):
    file = signed / "certificate.sig.json"
    trusted = sign.public_keys(signed / "alice.pub")
    assert sign.voucher(certificate, file, trusted).trusted
    for name, forged in forgeries(certificate, file.read_text(), signed):
        file.write_text(json.dumps(forged))
        found = sign.voucher(certificate, file, trusted)
        assert not found.trusted, name
        assert not found.check.passed, name
        assert found.sentence.startswith("Nobody vouches"), name
        if name != "her signature under another key":
            assert "alice" not in found.sentence, name
    for content in (b"\xff", b"", b"[" * 5000, b'{"kind": 1e999}'):
        file.write_bytes(content)
        assert not sign.voucher(certificate, file, trusted).check.passed


def test_an_edited_certificate_loses_its_signature(certificate, signed):
    record = certificate.to_dict()
    record["versions"]["numpy"] = "1.0"
    record["digest"] = claims.digest({k: v for k, v in record.items() if k != "digest"})
    edited = Certificate(json.dumps(record))
    assert edited.verify(WEIGHTS).holds, "nothing but the signature can tell"
    found = sign.voucher(
        edited, signed / "certificate.sig.json", sign.public_keys(signed / "alice.pub")
    )
    assert not found.check.passed


def test_sign_verifies_before_it_vouches(dplateau, signed, certificate):
    file = signed / "certificate.sig.json"
    file.unlink()
    code, _, err = dplateau("sign", signed, "--key", signed / "alice")
    assert code == 2
    assert "not all of it was checked" in err
    code, out, _ = dplateau("sign", signed, "--key", signed / "alice", "--allow-unchecked")
    assert code == 0
    assert "Signed by SHA256:" in out
    assert sign.voucher(certificate, file, sign.public_keys(signed / "alice.pub")).trusted
    file.unlink()
    text = (signed / "certificate.json").read_text().replace('"seeded": false', '"seeded": true')
    (signed / "certificate.json").write_text(text)
    assert dplateau("sign", signed, "--key", signed / "alice", "--allow-unchecked")[0] == 2
    assert not file.exists()


def test_new_keys_are_private_and_never_replaced(dplateau, tmp_path):
    key = tmp_path / "key"
    code, out, _ = dplateau("keys", "new", key, "--comment", "bob", "--json")
    assert code == 0
    assert json.loads(out)["fingerprint"].startswith("SHA256:")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_bytes()
    assert dplateau("keys", "new", key)[0] == 2
    assert key.read_bytes() == before
    (public,) = sign.public_keys(tmp_path / "key.pub")
    assert public.name == "bob"
    assert public.fingerprint == json.loads(out)["fingerprint"]


def test_keys_with_a_passphrase(tmp_path):
    private, _ = sign.new_key("x", "correct horse")
    (tmp_path / "key").write_bytes(private)
    with pytest.raises(sign.PassphraseNeeded):
        sign.private_key(tmp_path / "key")
    with pytest.raises(DataError, match="no private key that can be read"):
        sign.private_key(tmp_path / "key", "wrong")
    assert sign.private_key(tmp_path / "key", "correct horse")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")
def test_keys_of_openssh_work_both_ways(tmp_path, certificate):
    key = tmp_path / "id"
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "carol", "-f", str(key)]
    subprocess.run(make, check=True)
    file = tmp_path / "certificate.sig.json"
    file.write_text(sign.sign(certificate, sign.private_key(key)))
    found = sign.voucher(certificate, file, sign.public_keys(tmp_path / "id.pub"))
    assert found.trusted
    shown = subprocess.run(["ssh-keygen", "-lf", str(key)], capture_output=True, text=True)
    assert found.signer in shown.stdout


def test_other_kinds_of_keys_and_files_are_refused(tmp_path):
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    other = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "ec").write_bytes(
        other.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    )
    (tmp_path / "ec.pub").write_bytes(
        other.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    )
    (tmp_path / "junk").write_bytes(b"\x00\xff" * 100)
    (tmp_path / "cut.pub").write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI")
    for name in ("ec", "junk", "nowhere"):
        with pytest.raises(DataError):
            sign.private_key(tmp_path / name)
    for name in ("ec.pub", "junk", "cut.pub", "nowhere"):
        with pytest.raises(DataError):
            sign.public_keys(tmp_path / name)
