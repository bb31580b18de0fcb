"""``dplateau report``, ``verify``, ``keys`` and ``sign``: what leaves the building with a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dplateau._json import dumps
from dplateau.cli import app, options
from dplateau.cli.terminal import say

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from dplateau.certificate.record import Certificate
    from dplateau.certificate.sign import Voucher
    from dplateau.certificate.verify import Verification

FAILED, UNCHECKED = 1, 3  # exit codes
TIME_LIMIT = 60.0  # seconds

Keys = Annotated[
    Path | None,
    typer.Option(
        "--public-key", help="Whose word you take: an OpenSSH .pub file (or PEM); several lines."
    ),
]
TimeLimit = Annotated[
    float, typer.Option(min=0.001, help="Seconds after which verification is given up.")
]


@app.command()
def report(
    directory: Annotated[
        Path, typer.Argument(help="What `dplateau train` wrote, or a certificate file.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where to write; report.html beside the certificate.")
    ] = None,
    audit: Annotated[
        Path | None, typer.Option(help="An audit to include, from `dplateau audit --out FILE`.")
    ] = None,
    public_key: Keys = None,
    time_limit: TimeLimit = TIME_LIMIT,
    as_json: options.AsJson = False,
) -> None:
    """Write a self-contained HTML report of a certificate, after verifying it."""
    from dplateau.report.page import make_report

    written = make_report(directory, out, audit=audit, public_key=public_key, time_limit=time_limit)
    record = written.verification.record
    assert record is not None
    if as_json:
        say(
            dumps(
                {
                    "report": str(written.path),
                    "epsilon": record["guarantee"]["epsilon"],
                    "delta": record["guarantee"]["delta"],
                    "relation": record["guarantee"]["relation"],
                    "fit_for_release": record["fit_for_release"],
                    "vouched_for_by": written.voucher.signer if written.voucher.trusted else None,
                }
            )
        )
        return
    say(record["statement"])
    say(written.voucher.sentence)
    say(f"Report: {written.path}")


@app.command()
def verify(
    certificate: Annotated[
        Path, typer.Argument(help="A certificate, or the directory that holds one.")
    ],
    model: Annotated[
        Path | None, typer.Argument(help="The model it should belong to (a file or directory).")
    ] = None,
    public_key: Keys = None,
    time_limit: TimeLimit = TIME_LIMIT,
    allow_unchecked: Annotated[
        bool,
        typer.Option("--allow-unchecked", help="Exit with 0 though something was not checked."),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Compute a certificate's numbers again from the record alone, and say who vouches for it.

    A directory stands for the certificate and the model in it. Exit code 1: it does not hold; 3:
    it holds, but what is marked -- was not checked.
    """
    from dplateau.certificate.files import MODEL
    from dplateau.certificate.record import Certificate
    from dplateau.report.surrounding import certificate_path, read_model, voucher_of

    path = certificate_path(certificate)
    found = Certificate.read(path)
    if model is None and (certificate / MODEL).is_file():
        model = certificate
    voucher = voucher_of(found, path, public_key)
    verification = found.examine(
        None if model is None else read_model(model), time_limit=time_limit
    ).with_check(voucher.check)
    _name_leftovers(path)
    if as_json:
        say(dumps(_facts(verification, voucher)))
    else:
        _tell(verification, voucher)
    if not verification.holds:
        raise typer.Exit(FAILED)
    if not verification.complete and not allow_unchecked:
        raise typer.Exit(UNCHECKED)


def _facts(verification: Verification, voucher: Voucher) -> dict[str, object]:
    """Numbers and verdicts as computed here; null where the certificate does not hold."""
    from dplateau.certificate.verify import MODEL_CHECKS

    record = verification.record
    guarantee = {} if record is None else record["guarantee"]
    checks = verification.checks
    return {
        "verified": verification.holds,
        "complete": verification.complete,
        "vouched_for_by": voucher.signer if voucher.trusted else None,
        "signed_by": voucher.signer,
        "epsilon": guarantee.get("epsilon"),
        "delta": guarantee.get("delta"),
        "relation": guarantee.get("relation"),
        "fit_for_release": record is not None and record["fit_for_release"],
        "model_checked": verification.holds
        and all(check.checked for check in checks if check.name in MODEL_CHECKS),
        "checks": [vars(check) for check in checks],
    }


def _tell(verification: Verification, voucher: Voucher) -> None:
    from dplateau.certificate.wording import above, is_weak

    say(voucher.sentence)
    say(str(verification))
    if not verification.holds:
        say("This certificate does NOT hold.")
        return
    assert verification.record is not None
    say("This certificate holds.")
    if is_weak(verification.epsilon):
        say(f"But it is weak: epsilon = {above(verification.epsilon)}. See its statement.")
    if not verification.record["fit_for_release"]:
        say("But the model is not for release: see its statement.")
    if not verification.complete:
        say("What is marked -- was not checked.")


def _name_leftovers(certificate: Path) -> None:
    """An interrupted run may have left another release in hiding."""
    import warnings

    from dplateau.certificate.files import leftovers
    from dplateau.errors import LeftoverWarning

    for left in leftovers(certificate.parent):
        warnings.warn(f"{left} was left by an interrupted run.", LeftoverWarning, stacklevel=2)


# -- signatures ------------------------------------------------------------------------------------

keys = typer.Typer(no_args_is_help=True, help="Keys to sign certificates with.")
app.add_typer(keys, name="keys")


@keys.command("new")
def new(
    file: Annotated[Path, typer.Argument(help="Where to write; the public key goes to FILE.pub.")],
    comment: Annotated[str, typer.Option(help="Whose key it is, in the public file.")] = "",
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Ask for a passphrase to encrypt it with.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Make an Ed25519 key in OpenSSH's form; what is there is never replaced."""
    from dplateau.certificate.files import check_file, write_file
    from dplateau.certificate.sign import fingerprint, new_key

    check_file(file, force=False)
    public_file = check_file(file.with_name(f"{file.name}.pub"), force=False)
    secret = None
    if passphrase:
        secret = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True)
    private, public = new_key(comment, secret)
    write_file(file, private, mode=0o600)
    write_file(public_file, public + "\n")
    if as_json:
        found = {
            "key": str(file),
            "public_key": str(public_file),
            "fingerprint": fingerprint(public),
        }
        say(dumps(found))
        return
    say(f"{fingerprint(public)}")
    say(f"Keep {file} to yourself. Hand out {public_file}.")


@app.command()
def sign(
    directory: Annotated[
        Path, typer.Argument(help="What `dplateau train` wrote, or a certificate file.")
    ],
    key: Annotated[Path, typer.Option(help="An Ed25519 private key: `dplateau keys new`.")],
    allow_unchecked: Annotated[
        bool, typer.Option("--allow-unchecked", help="Sign though something cannot be checked.")
    ] = False,
    time_limit: TimeLimit = TIME_LIMIT,
    as_json: options.AsJson = False,
) -> None:
    """Vouch for a certificate and its model with your key, after verifying both."""
    from dplateau.certificate import sign as signatures
    from dplateau.certificate.files import MODEL, write_file
    from dplateau.certificate.record import Certificate
    from dplateau.errors import CertificateError
    from dplateau.report.surrounding import certificate_path, read_model

    path = certificate_path(directory)
    certificate = Certificate.read(path)
    model = path.with_name(MODEL)
    found = certificate.verify(
        read_model(model) if model.is_file() else None, time_limit=time_limit
    )
    if not found.complete and not allow_unchecked:
        left = "; ".join(f"{c.name}: {c.found}" for c in found.checks if not c.checked)
        raise CertificateError(
            f"not signed, for not all of it was checked ({left}). Sign the directory that holds "
            "the model too, or pass --allow-unchecked."
        )
    text = signatures.sign(certificate, _unlocked(key))
    written = write_file(signatures.signature_path(path), text, force=True)
    _say_signed(certificate, written, found, as_json)


def _say_signed(
    certificate: Certificate, written: Path, found: Verification, as_json: bool
) -> None:
    from dplateau.certificate.sign import voucher

    signer = voucher(certificate, written).signer
    assert found.record is not None
    fit = bool(found.record["fit_for_release"])
    if as_json:
        say(dumps({"signature": str(written), "signer": signer, "fit_for_release": fit}))
        return
    say(found.record["statement"])
    say(f"Signed by {signer}: {written}")


def _unlocked(path: Path) -> Ed25519PrivateKey:
    """The key, its passphrase asked for where it has one."""
    from dplateau.certificate.sign import PassphraseNeeded, private_key

    try:
        return private_key(path)
    except PassphraseNeeded:
        return private_key(path, typer.prompt("Passphrase", hide_input=True, err=True))
