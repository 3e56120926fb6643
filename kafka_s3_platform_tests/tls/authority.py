"""A private certificate authority, and what it issues for the tests' servers and clients."""

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

_LONG_AGO, _AGO = (datetime(year, 1, 1, tzinfo=timezone.utc) for year in (2020, 2021))


@dataclass(frozen=True)
class Identity:
    """PEM files: the certificate with its chain, its private key (PKCS 8), and both in one."""

    certificate: Path
    key: Path
    both: Path


@dataclass(frozen=True)
class Authority:
    """`ca` is its own certificate. The server is 127.0.0.1; the clients' common names are `alice` and `bob`.

    `expired` was that server's; `elsewhere` is another server's.
    """

    ca: Path
    server: Identity
    client: Identity
    bob: Identity
    expired: Identity
    elsewhere: Identity


def new_authority(folder: Path) -> Authority:
    """An authority nobody else trusts, with its files in `folder`."""
    made = trustme.CA()
    ca = folder / "ca.pem"
    made.cert_pem.write_to_path(str(ca))
    server = made.issue_cert("127.0.0.1")
    return Authority(
        ca,
        _written(folder, "server", server),
        _written(folder, "client", made.issue_cert("alice@example.com", common_name="alice")),
        _written(folder, "bob", made.issue_cert("bob@example.com", common_name="bob")),
        _written(folder, "expired", made.issue_cert("127.0.0.1", not_before=_LONG_AGO, not_after=_AGO)),
        _written(folder, "elsewhere", made.issue_cert("elsewhere.example.com")),
    )


def _written(folder: Path, name: str, issued: trustme.LeafCert) -> Identity:
    found = Identity(folder / f"{name}.crt", folder / f"{name}.key", folder / f"{name}.pem")
    chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
    # Kafka's brokers read no other form of private keys.
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    found.certificate.write_bytes(chain)
    found.key.write_bytes(key)
    found.both.write_bytes(key + chain)
    return found
