"""A certificate authority for the processes of one server. Nobody else has a certificate of it."""

from datetime import datetime, timedelta, timezone
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kafka_s3_platform.local.processes import write_atomically
from kafka_s3_platform.local.settings import HOST

_VALID = timedelta(days=3650)
# The clock may be set back after the certificate is made.
_SKEW = timedelta(days=1)


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a new key and its self-signed certificate to `folder`, as PEM files. Return certificate and key file."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(timezone.utc)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kafka-s3")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(HOST))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_file = folder / "certificate.pem"
    key_file = folder / "key.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_atomically(certificate_file, certificate.public_bytes(pem).decode())
    write_atomically(key_file, private.decode())
    return certificate_file, key_file
