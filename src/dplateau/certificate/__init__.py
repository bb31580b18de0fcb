"""The certificate: record, wording, verification."""
