"""Signs evidence with the deployment's Ed25519 key (RFC 8032), and checks a signature with the public key alone.

A signature is made from the bytes of a file, and lies beside it, so that OpenSSL can check it without this platform.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_s3_platform.core.config.environment import EVIDENCE_KEY
from kafka_s3_platform.core.errors import ConfigError, IntegrityError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_MAKE_KEY = "`openssl genpkey -algorithm ed25519 -out FILE` makes one"
_MAKE_PUBLIC = "`openssl pkey -in PRIVATE -pubout -out FILE` makes it"


@dataclass(frozen=True)
class EvidenceKey:
    """A private key. `name` is the SHA-256 of its public key (DER): it tells which public key checks a signature."""

    name: str
    private_key: "Ed25519PrivateKey" = field(repr=False)

    def sign(self, content: bytes) -> bytes:
        """Return the signature, of 64 bytes."""
        return self.private_key.sign(content)


def read_evidence_key(env: Mapping[str, str]) -> EvidenceKey | None:
    """Read the key from the file named by `KAFKA_S3_EVIDENCE_KEY`. Return None if the variable is not set, or empty.

    Raises:
        ConfigError: the file cannot be read, or holds no such key.
    """
    path = env.get(EVIDENCE_KEY)
    if not path:
        return None
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    where = f"{EVIDENCE_KEY}={path}"
    try:
        key = load_pem_private_key(Path(path).read_bytes(), None)
    except OSError as err:
        raise ConfigError(f"{where} cannot be read: {err.strerror}") from err
    except (ValueError, TypeError):
        # not chained: nothing of a key is to be in a message
        raise ConfigError(f"{where} is not a private key in PEM without a passphrase: {_MAKE_KEY}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{where} is not an Ed25519 key: {_MAKE_KEY}")
    return EvidenceKey(_name_key(key.public_key()), key)


def check_signature(path: Path, content: bytes, signature: bytes, public_key: Path) -> str:
    """Check the signature of the file at `path` with a public key in PEM. Return the key's name.

    Raises:
        ConfigError: the public key cannot be read, or is no Ed25519 key.
        IntegrityError: the signature was not made from this content with this key.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(public_key.read_bytes())
    except OSError as err:
        raise ConfigError(f"{public_key} cannot be read: {err.strerror}") from err
    except ValueError:
        raise ConfigError(f"{public_key} is not a public key in PEM: {_MAKE_PUBLIC}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"{public_key} is not an Ed25519 public key: {_MAKE_PUBLIC}")
    name = _name_key(key)
    try:
        key.verify(signature, content)
    except InvalidSignature:
        raise IntegrityError(
            f"the signature of {path} does not match. Somebody changed the file or its signature, or a key other "
            f"than {name} signed it. Fetch both from the archive again, and get the public key from its owner"
        ) from None
    return name


def _name_key(key: "Ed25519PublicKey") -> str:
    """Return the name of a key: the SHA-256 of the public key (DER), in hex."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
