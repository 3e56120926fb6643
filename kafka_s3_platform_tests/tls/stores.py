"""Key stores that Java's own keytool makes."""

import subprocess
from pathlib import Path

PASSWORD, KEY_PASSWORD = "store-secret", "key-secret"


def make_truststore(ca: Path, path: Path, kind: str) -> Path:
    """A truststore with one certificate."""
    _run("-importcert", "-noprompt", "-alias", "ca", "-file", ca, "-keystore", path, "-storetype", kind)
    return path


def make_keystore(both: Path, path: Path, kind: str) -> Path:
    """A keystore with a private key and its certificates, from a PEM file of both. A JKS has two passwords."""
    packed = path.with_suffix(".packed")
    command = f"openssl pkcs12 -export -in {both} -name me -out {packed} -passout pass:packed".split()
    subprocess.run(command, check=True, capture_output=True)
    of_key = ("-destkeypass", KEY_PASSWORD) if kind == "JKS" else ()
    target = ("-destkeystore", path, "-deststoretype", kind, "-deststorepass", PASSWORD, *of_key)
    _run("-importkeystore", "-srckeystore", packed, "-srcstorepass", "packed", "-alias", "me", *target, store=False)
    return path


def _run(*arguments: str | Path, store: bool = True) -> None:
    password = ("-storepass", PASSWORD) if store else ()
    subprocess.run(["keytool", *map(str, arguments), *password], check=True, capture_output=True)
