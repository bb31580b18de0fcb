"""Signatures: who vouches for a certificate and its model.

A digest shows that a text was changed; a signature shows whose text it is. The signature is
detached, a small JSON file beside the certificate, made with Ed25519 over the digest of the whole
certificate and the digests of the model that it names. Keys are those of OpenSSH: `dplateau keys
new` makes one, ``ssh-keygen -t ed25519`` makes another, and public keys in OpenSSH's form or in PEM
are read. Needs the extra ``dplateau[signatures]``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dplateau import _disk as disk
from dplateau._json import canonical, digest, loads
from dplateau.certificate.record import Certificate
from dplateau.certificate.verify import Check
from dplateau.errors import CertificateError, DataError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

KIND = "dplateau signature"
SCHEMA = 1
_FIELDS = {"kind", "schema", "certificate", "weights", "document", "key", "signature"}
_LARGEST = 100_000  # bytes, of keys and signatures
_NOBODY = "Nobody vouches for this certificate"


@dataclass(frozen=True)
class PublicKey:
    """A key whose word is taken, and the name that its owner's file gives it."""

    key: Ed25519PublicKey
    name: str = ""

    @property
    def line(self) -> str:
        """As OpenSSH writes it."""
        return _line(self.key)

    @property
    def fingerprint(self) -> str:
        """As ``ssh-keygen -l`` shows it."""
        return fingerprint(self.line)


@dataclass(frozen=True)
class Voucher:
    """Who vouches for a certificate.

    Attributes
    ----------
    sentence : str
        For people: the first thing they should read.
    signer : str or None
        Fingerprint of the key whose signature is right; None where there is none.
    trusted : bool
        Whether that key is one of those that the reader named.
    check : Check or None
        For `verify`: None where nothing was signed and nobody was named.
    """

    sentence: str
    signer: str | None = None
    trusted: bool = False
    check: Check | None = None


# -- keys ------------------------------------------------------------------------------------------


def new_key(comment: str = "", passphrase: str | None = None) -> tuple[bytes, str]:
    """A new private key in OpenSSH's form (encrypted: PEM), and the line of its public key.

    Examples
    --------
    >>> private, public = new_key("alice@example.org")
    >>> private.splitlines()[0], public.split()[0], public.split()[2]
    (b'-----BEGIN OPENSSH PRIVATE KEY-----', 'ssh-ed25519', 'alice@example.org')
    """
    ed25519, serialization = _cryptography()
    key = ed25519.Ed25519PrivateKey.generate()
    form, sealed = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    if passphrase:  # OpenSSH's own encryption would need one package more
        form = serialization.PrivateFormat.PKCS8
        sealed = serialization.BestAvailableEncryption(passphrase.encode())
    private = key.private_bytes(serialization.Encoding.PEM, form, sealed)
    words = " ".join(comment.split())
    return private, f"{_line(key.public_key())} {words}".strip()


def private_key(path: str | Path, passphrase: str | None = None) -> Ed25519PrivateKey:
    """The Ed25519 key in a file, in OpenSSH's form or PEM.

    Raises
    ------
    PassphraseNeeded
        When the key is encrypted and no passphrase was given.
    DataError
        When there is no such key in it.
    """
    ed25519, serialization = _cryptography()
    content = _read(path, "a private key")
    secret = passphrase.encode() if passphrase else None
    load = serialization.load_pem_private_key
    if b"OPENSSH PRIVATE KEY" in content:
        load = serialization.load_ssh_private_key
    try:
        key = load(content, secret)
    except TypeError:  # says that a passphrase is missing, or that one is too many
        if secret is not None:
            return private_key(path)
        raise PassphraseNeeded(f"the key in {Path(path).name} needs its passphrase.") from None
    except Exception:
        if secret is None and b"ENCRYPTED" in content:
            raise PassphraseNeeded(f"the key in {Path(path).name} needs its passphrase.") from None
        raise DataError(
            f"{Path(path).name} holds no private key that can be read{' so' if secret else ''}. "
            "Make one with: dplateau keys new FILE."
        ) from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise DataError(
            f"{Path(path).name} holds a key of another kind. Only Ed25519 is used here: "
            "dplateau keys new FILE."
        )
    found: Ed25519PrivateKey = key
    return found


class PassphraseNeeded(DataError):
    """The key is there and encrypted."""


def public_keys(path: str | Path) -> list[PublicKey]:
    """The Ed25519 public keys in a file: one PEM key, or OpenSSH's, one a line."""
    ed25519, serialization = _cryptography()
    content = _read(path, "a public key")
    found: list[PublicKey] = []
    try:
        if content.lstrip().startswith(b"-----BEGIN PUBLIC KEY"):
            key = serialization.load_pem_public_key(content)
            found = [PublicKey(key)] if isinstance(key, ed25519.Ed25519PublicKey) else []
        else:
            found = [_parsed(line) for line in content.decode().splitlines() if "ssh-ed" in line]
    except Exception:
        found = []
    if not found:
        raise DataError(
            f"{Path(path).name} holds no Ed25519 public key. Give the .pub file that `dplateau "
            "keys new` or `ssh-keygen -t ed25519` wrote, or a PEM file."
        )
    return found


def _parsed(line: str) -> PublicKey:
    """A line of a .pub, authorized_keys or allowed_signers file."""
    ed25519, serialization = _cryptography()
    words = line.split()
    start = words.index("ssh-ed25519")
    key = serialization.load_ssh_public_key(" ".join(words[start : start + 2]).encode())
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise ValueError("another kind of key")
    return PublicKey(key, " ".join((*words[start + 2 :], *words[:start]))[:100])


def fingerprint(line: str) -> str:
    """OpenSSH's fingerprint of a public key's line."""
    found = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return "SHA256:" + base64.b64encode(found).decode().rstrip("=")


def _line(key: Ed25519PublicKey) -> str:
    _, serialization = _cryptography()
    form = serialization.PublicFormat.OpenSSH
    return str(key.public_bytes(serialization.Encoding.OpenSSH, form).decode())


def _read(path: str | Path, what: str) -> bytes:
    try:
        return disk.read_bytes(path, _LARGEST)
    except OSError as trouble:
        raise DataError(f"cannot read {what} from {str(path)!r}: {disk.reason(trouble)}.") from None


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise DataError(
            "signatures need the package cryptography: pip install 'dplateau[signatures]'."
        ) from None
    return ed25519, serialization


# -- signatures ------------------------------------------------------------------------------------


def _signed(certificate: Certificate) -> dict[str, Any]:
    """What a signature is over: the whole certificate, and the model that it names."""
    record = certificate.to_dict()
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "certificate": digest(record),
        "weights": record["model"]["sha256"],
        "document": record["model"].get("document"),
    }


def sign(certificate: Certificate, key: Ed25519PrivateKey) -> str:
    """The signature of a certificate and its model, as the text of a JSON file."""
    signed = _signed(certificate)
    made = key.sign(canonical(signed).encode())
    whole = {
        **signed,
        "key": _line(key.public_key()),
        "signature": base64.b64encode(made).decode(),
    }
    return canonical(whole) + "\n"


def signature_path(certificate: str | Path) -> Path:
    """Where the signature of a certificate file lies: ``certificate.sig.json`` beside it."""
    path = Path(certificate)
    return path.with_name(f"{path.stem}.sig.json")


def voucher(
    certificate: Certificate, path: str | Path, trusted: Sequence[PublicKey] = ()
) -> Voucher:
    """Who vouches for a certificate, by the signature file at ``path``, if there is one.

    Parameters
    ----------
    certificate : Certificate
        What should have been signed.
    path : path
        See `signature_path`.
    trusted : sequence of PublicKey
        Whose word the reader takes.
    """
    named = {key.line: key for key in trusted}
    try:
        content = disk.read_bytes(path, _LARGEST).decode()
    except FileNotFoundError:
        found = "it is not signed"
        check = Check("signature", False, "there is none") if trusted else None
        return Voucher(f"{_NOBODY}: {found}.", check=check)
    except (OSError, UnicodeDecodeError) as trouble:
        return _refused(f"its signature cannot be read ({disk.reason(trouble)})")
    try:
        line = _checked(certificate, content)
    except CertificateError as refusal:
        return _refused(str(refusal))
    print_of_key = fingerprint(line)
    if line in named:
        name = named[line].name
        who = f"{print_of_key} ({name})" if name else print_of_key
        check = Check("signature", True, f"by {print_of_key}, a key you named")
        return Voucher(f"{who} vouches for this certificate.", print_of_key, True, check)
    if trusted:
        found = f"it is signed by {print_of_key}, which is no key you named"
        return Voucher(f"{_NOBODY}: {found}.", print_of_key, check=Check("signature", False, found))
    return Voucher(
        f"{_NOBODY} but whoever owns the key {print_of_key}, which signed it: name the keys you "
        "trust with --public-key.",
        print_of_key,
        check=Check("signature", True, f"by {print_of_key}, a key you did not name"),
    )


def _refused(why: str) -> Voucher:
    return Voucher(f"{_NOBODY}: {why}.", check=Check("signature", False, why))


def _checked(certificate: Certificate, content: str) -> str:
    """The public key's line of a signature that is right; refused otherwise."""
    from cryptography.exceptions import InvalidSignature

    stored = loads(content, "its signature", CertificateError)
    if not isinstance(stored, dict) or stored.keys() != _FIELDS:
        raise CertificateError("the file beside it is no signature")
    signed = _signed(certificate)
    if {name: stored[name] for name in signed} != signed:
        raise CertificateError("its signature is of another certificate or model")
    try:
        key = _parsed(str(stored["key"]))
        made = base64.b64decode(str(stored["signature"]), validate=True)
        key.key.verify(made, canonical(signed).encode())
    except (InvalidSignature, ValueError, IndexError, binascii.Error):
        raise CertificateError("its signature is wrong") from None
    return key.line
