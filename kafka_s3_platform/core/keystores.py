"""Reads Java's key stores (JKS and PKCS 12) as PEM, and has Python's TLS use PEM texts from memory.

JKS is the format of `sun.security.provider.JavaKeyStore`: entries, then a digest of them and the password. Private keys
in it are masked by a stream of SHA-1 digests.
"""

import hashlib
import os
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography import x509

_JKS = b"\xfe\xed\xfe\xed"
_PKCS12 = b"\x30"
_SALT = b"Mighty Aphrodite"
_COVER = bytes.fromhex("060a2b060104012a021101010500")
"""The name of the algorithm that masks a private key: 1.3.6.1.4.1.42.2.17.1.1, and no parameters."""

_DIGEST = 20


@dataclass(frozen=True)
class KeyStore:
    """PEM texts: the trusted certificates, a private key, and its chain of certificates up to the authority's."""

    trusted: str = ""
    chain: str = ""
    key: str = field(default="", repr=False)


def read_key_store(path: Path, password: str, key_password: str = "") -> KeyStore:
    """Read a key store by its content, as Java does, whatever its type is said to be.

    `key_password` is the password of its private key, if it is a different one.

    Raises:
        ValueError: it cannot be read, or a password is wrong.
    """
    try:
        content = path.read_bytes()
    except OSError as err:
        raise ValueError(f"{path} cannot be read: {err.strerror}") from err
    if not content.startswith((_JKS, _PKCS12)):
        raise ValueError(f"{path} is no key store of type JKS or PKCS12; a PEM file has type PEM, and no password")
    try:
        if content.startswith(_JKS):
            return _read_jks(content, password, key_password or password)
        return _read_pkcs12(content, password)
    except (ValueError, IndexError):
        # not chained: nothing of a store is to be in a message
        raise ValueError(
            f"{path}: its password or that of its key (ssl.key.password) is wrong, or it is broken"
        ) from None


def _read_pkcs12(content: bytes, password: str) -> KeyStore:
    """Read a PKCS 12 store: a private key with its chain of certificates, or trusted certificates alone."""
    from cryptography.hazmat.primitives.serialization import pkcs12

    store = pkcs12.load_pkcs12(content, password.encode() or None)
    certificates = [entry.certificate for entry in store.additional_certs]
    if store.key is None or store.cert is None:
        return KeyStore(trusted=_write_pem(certificates))
    chain = [store.cert.certificate]
    by_subject = {certificate.subject: certificate for certificate in certificates}
    while (issuer := by_subject.pop(chain[-1].issuer, None)) is not None:
        chain.append(issuer)
    return _write_store(certificates, store.key, chain)


def _read_jks(content: bytes, password: str, key_password: str) -> KeyStore:
    """Read a JKS store: its first private key with its chain of certificates, and the trusted certificates."""
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    body = content[:-_DIGEST]
    # as in Java, certificates are read without a password, too
    if password and _hash(password, _SALT + body) != content[-_DIGEST:]:
        raise ValueError("another password")
    stream = BytesIO(body[len(_JKS) :])
    version = _read_number(stream, 4)
    trusted: list[x509.Certificate] = []
    identities: list[tuple[bytes, list[x509.Certificate]]] = []
    for _ in range(_read_number(stream, 4)):
        is_trusted = _read_number(stream, 4) == 2
        # the alias, and when it was added
        stream.read(_read_number(stream, 2) + 8)
        if is_trusted:
            trusted.append(_read_certificate(stream, version))
        else:
            key = stream.read(_read_number(stream, 4))
            identities.append((key, [_read_certificate(stream, version) for _ in range(_read_number(stream, 4))]))
    if not identities:
        return KeyStore(trusted=_write_pem(trusted))
    covered, chain = identities[0]
    return _write_store(trusted, load_der_private_key(_uncover_key(covered, key_password), None), chain)


def _read_number(stream: BytesIO, size: int) -> int:
    """Read an unsigned number of `size` bytes, the high ones first."""
    return int.from_bytes(stream.read(size), "big")


def _read_certificate(stream: BytesIO, version: int) -> "x509.Certificate":
    """Read the next certificate of a JKS store in this version of the format."""
    from cryptography import x509

    if version > 1:
        # its type, which is always X.509
        stream.read(_read_number(stream, 2))
    return x509.load_der_x509_certificate(stream.read(_read_number(stream, 4)))


def _uncover_key(covered: bytes, password: str) -> bytes:
    """Return the private key. Salt, key and check form an octet string after the name of the algorithm."""
    at = covered.index(_COVER) + len(_COVER) + 1
    length_bytes = covered[at] & 0x7F if covered[at] & 0x80 else 0
    octets = covered[at + 1 + length_bytes :]
    digest = octets[:_DIGEST]
    hidden = octets[_DIGEST:-_DIGEST]
    cover = bytearray()
    while len(cover) < len(hidden):
        digest = _hash(password, digest)
        cover += digest
    key = bytes(byte ^ mask for byte, mask in zip(hidden, cover, strict=False))
    if _hash(password, key) != octets[-_DIGEST:]:
        raise ValueError("another password")
    return key


def _hash(password: str, content: bytes) -> bytes:
    """Return the digest with which JKS checks and masks: SHA-1 of the password and the content."""
    return hashlib.sha1(password.encode("utf-16-be") + content, usedforsecurity=False).digest()


def _write_pem(certificates: Iterable["x509.Certificate"]) -> str:
    """Return the certificates as one PEM text."""
    from cryptography.hazmat.primitives.serialization import Encoding

    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates)


def _write_store(trusted: Iterable["x509.Certificate"], key: Any, chain: Iterable["x509.Certificate"]) -> KeyStore:
    """Return a key store made of a private key, its chain and the trusted certificates."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return KeyStore(_write_pem(trusted), _write_pem(chain), text)


PEM_PROPERTIES = ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem")


def load_pem(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    """Have a context trust only `ssl.ca.pem`, and identify itself by `ssl.certificate.pem` and `ssl.key.pem`, if given.

    Python reads keys only from files, so this one is a file in memory, without a name.
    """
    if "ssl.ca.pem" in properties:
        context.verify_mode = ssl.CERT_REQUIRED
        context.check_hostname = True
        context.load_verify_locations(cadata=properties["ssl.ca.pem"])
    if "ssl.certificate.pem" in properties:
        with os.fdopen(os.memfd_create("identity"), "w") as file:
            file.write(f"{properties.get('ssl.key.pem', '')}\n{properties['ssl.certificate.pem']}")
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=properties.get("ssl.key.password"))
