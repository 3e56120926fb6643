"""Where the store's credentials come from.

A process has one provider for each way of getting them, shared by boto3 and delta-rs, and refreshed before its
credentials expire: AWS's default chain, a fixed access key, a role assumed by AWS's Security Token Service (STS), or a
user's own class.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from typing import Any, Protocol

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import CredentialProvider, CredentialResolver, RefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import SecretStr

from kafka_s3_platform.config.plugins import CREDENTIALS_PROVIDER, chained, load_class, without_options
from kafka_s3_platform.config.settings import ProviderSettings, RoleSettings, StoreSettings
from kafka_s3_platform.errors import (
    AuthorizationError,
    ConfigError,
    PlatformError,
    StoreUnavailableError,
    TransientError,
)
from kafka_s3_platform.store.errors import UNREACHABLE, is_untrusted, untrusted

ADVISORY_SECONDS, MANDATORY_SECONDS = 120, 60
"""How long before their expiry credentials are refreshed: where that works, and where it must."""

_NEVER = datetime.max.replace(tzinfo=timezone.utc)
_LOCK = threading.RLock()
"""botocore's clients may be shared by threads, its sessions not."""

_CHAIN = {
    "env": "environment variables",
    "shared-credentials-file": "a profile of the credentials file",
    "config-file": "a profile of the config file",
    "assume-role": "a profile with role_arn",
    "assume-role-with-web-identity": "a web identity token",
    "sso": "a profile with single sign-on",
    "custom-process": "a profile with credential_process",
    "container-role": "the container",
    "iam-role": "the instance",
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key. `token` belongs to temporary ones, which end at `expiry` (with a timezone; None: never)."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    expiry: datetime | None = None


class CredentialsProvider(Protocol):
    """What `s3.credentials.provider.class` names: a class called with its options, by their names without prefix."""

    def credentials(self) -> Credentials:
        """Valid credentials. Called again before they expire."""
        ...


def new_client(settings: StoreSettings, service: str, **options: Any) -> Any:
    """A boto3 client with the provider's credentials.

    Raises:
        AuthorizationError: the provider refuses.
        StoreUnavailableError: it does not answer.
        ConfigError: its class cannot be used.
    """
    with _LOCK:
        session = _session(_Method.of(settings))
        _resolved(session)
        return session.client(service, **options)


def current(settings: StoreSettings) -> Credentials:
    """Credentials that are valid for `MANDATORY_SECONDS` at least, where the provider's last that long.

    Raises as `new_client`, and AuthorizationError where there are none at all.
    """
    found = _found(settings)
    with _refusals("refreshing the store's credentials"):
        frozen = found.get_frozen_credentials()
    return Credentials(frozen.access_key, frozen.secret_key, frozen.token)


def describe(settings: StoreSettings) -> str:
    """Which provider wins, and the access key id that it gives, masked. Raises as `current`."""
    found = _found(settings)
    how = _chain(found.method, settings.chain) if _loader(_Method.of(settings)) is None else found.method
    return f"{how}; access key id {_masked(current(settings).access_key)}"


def _chain(method: str, only: tuple[str, ...]) -> str:
    whose = "AWS's default chain" if not only else "s3.credentials.provider.class"
    return f"{whose}: {_CHAIN.get(method, method)}"


def _masked(access_key: str) -> str:
    return f"{access_key[:4]}****{access_key[-4:]}" if len(access_key) >= 16 else "****"


def _found(settings: StoreSettings) -> Any:
    with _LOCK:
        found = _resolved(_session(_Method.of(settings)))
    if found is None:
        raise AuthorizationError(_none_found(settings.chain))
    return found


def _none_found(chain: tuple[str, ...]) -> str:
    if chain:
        asked = " or ".join(_CHAIN.get(name, name) for name in chain)
        found = f"no AWS credentials: s3.credentials.provider.class names only {asked}, and there are none"
    else:
        found = (
            "no AWS credentials: none in the connector file, the environment, a profile, the container or the instance."
            " Set aws.access.key.id and aws.secret.access.key, or one of the others"
        )
    if not {"AWS_ACCESS_KEY", "AWS_SECRET_KEY"} & os.environ.keys():
        return found
    return (
        f"{found}. AWS_ACCESS_KEY and AWS_SECRET_KEY are set, which only AWS's SDK for Java reads: call them"
        f" AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )


def _resolved(session: Any) -> Any:
    """The session's credentials, None where the default chain finds none."""
    with _refusals("looking for AWS credentials"):
        return session.get_credentials()


@dataclass(frozen=True)
class _Method:
    """One way to get credentials; without any value AWS's default chain. `region` is for profiles that have none."""

    region: str
    access_key_id: SecretStr | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    role: RoleSettings | None = None
    provider: ProviderSettings | None = None
    chain: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: StoreSettings) -> "_Method":
        return cls(
            settings.region,
            settings.access_key_id,
            settings.secret_access_key,
            settings.session_token,
            settings.role,
            settings.provider,
            settings.chain,
        )


@cache
def _session(method: _Method) -> Any:
    """The process's one session of a method: each new one would read S3's service model again (60 ms)."""
    load = _loader(method)
    if load is None:
        return boto3.session.Session(botocore_session=_default_chain(method.region, method.chain))
    session = botocore.session.Session()
    session.register_component("credential_provider", CredentialResolver([_Loaded(load)]))
    return boto3.session.Session(botocore_session=session)


def _default_chain(region: str, only: tuple[str, ...]) -> botocore.session.Session:
    """AWS's default chain, or `only` some members of it.

    A profile whose source is the environment can only mean to come before it.
    """
    session = botocore.session.Session()
    with _refusals("reading AWS's profiles"):
        if session.get_scoped_config().get("credential_source") == "Environment":
            session = botocore.session.Session(profile=session.get_config_variable("profile") or "default")
        if session.get_config_variable("region") is None:
            session.set_config_variable("region", region)
        if only:
            members = session.get_component("credential_provider").providers
            members[:] = [member for member in members if member.METHOD in only]
    return session


def _loader(method: _Method) -> Callable[[], Any] | None:
    if (provider := method.provider) is not None:
        return lambda: _refreshed(f"s3.credentials.provider.class {provider.class_name}", _own_provider(provider))
    if (role := method.role) is not None:
        source = _session(_Method(role.region, method.access_key_id, method.secret_access_key, method.session_token))
        return lambda: _refreshed(f"sts.role.arn {role.arn}, session {role.session_name}", _assumed(role, source))
    if method.access_key_id is None or method.secret_access_key is None:
        return None
    key, secret = method.access_key_id.get_secret_value(), method.secret_access_key.get_secret_value()
    token = None if method.session_token is None else method.session_token.get_secret_value()
    return lambda: botocore.credentials.Credentials(key, secret, token, method="aws.access.key.id")


class _Loaded(CredentialProvider):
    """A chain of one."""

    METHOD = CANONICAL_NAME = "kafka-s3-platform"

    def __init__(self, load: Callable[[], Any]) -> None:
        super().__init__()
        self._load = load

    def load(self) -> Any:
        return self._load()


def _refreshed(method: str, fetch: Callable[[], Credentials]) -> RefreshableCredentials:
    """Credentials of botocore that `fetch` renews; each is checked not to have expired already."""

    def metadata() -> dict[str, str | None]:
        found = _checked(fetch(), method)
        return {
            "access_key": found.access_key,
            "secret_key": found.secret_key,
            "token": found.token,
            "expiry_time": (found.expiry or _NEVER).isoformat(),
        }

    return RefreshableCredentials.create_from_metadata(
        metadata(), metadata, method, advisory_timeout=ADVISORY_SECONDS, mandatory_timeout=MANDATORY_SECONDS
    )


def _checked(found: Credentials, method: str) -> Credentials:
    if found.expiry is not None and found.expiry <= datetime.now(timezone.utc):
        raise AuthorizationError(f"{method}: gave credentials that expired at {found.expiry}; check the clocks")
    return found


def _assumed(role: RoleSettings, source: Any) -> Callable[[], Credentials]:
    what = f"AssumeRole of {role.arn} at {role.endpoint_url or f'the STS of {role.region}'}"
    quick = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 4})
    asked: dict[str, Any] = {
        "RoleArn": role.arn,
        "RoleSessionName": role.session_name,
        "DurationSeconds": role.duration_s,
    }
    if role.external_id is not None:
        asked["ExternalId"] = role.external_id.get_secret_value()
    with _refusals(what):
        client = source.client("sts", region_name=role.region, endpoint_url=role.endpoint_url, config=quick)

    def fetch() -> Credentials:
        with _refusals(what):
            given = client.assume_role(**asked)["Credentials"]
        return Credentials(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"], given["Expiration"])

    return fetch


def _own_provider(provider: ProviderSettings) -> Callable[[], Credentials]:
    what = f"s3.credentials.provider.class {provider.class_name}"
    options: Mapping[str, str] = {name: value.get_secret_value() for name, value in provider.options}
    with _faults_of_a_user(what, options.values()):
        source: CredentialsProvider = load_class(provider.class_name, CREDENTIALS_PROVIDER)(options)

    def fetch() -> Credentials:
        with _faults_of_a_user(what, options.values()):
            given = source.credentials()
            found = Credentials(given.access_key, given.secret_key, given.token, given.expiry)
        if not found.access_key or not found.secret_key:
            raise ConfigError(f"{what}: its credentials have no access_key, or no secret_key")
        if found.expiry is not None and found.expiry.tzinfo is None:
            raise ConfigError(f"{what}: the expiry {found.expiry} of its credentials has no timezone")
        return found

    return fetch


@contextmanager
def _faults_of_a_user(what: str, options: Collection[str]) -> Iterator[None]:
    """A user's class raises what it likes: what cannot be reached may be later, the rest is refused.

    What it says is told without its options.
    """
    try:
        yield
    except Exception as err:
        cause = chained(err, options)
        if isinstance(err, PlatformError) and cause is not None:
            raise
        raise _fault(what, err, without_options(str(err), options)) from cause


def _fault(what: str, err: Exception, said: str) -> PlatformError:
    if isinstance(err, PlatformError):
        return StoreUnavailableError(said) if isinstance(err, TransientError) else AuthorizationError(said)
    if isinstance(err, (OSError, *UNREACHABLE)):
        if is_untrusted(err):
            return untrusted(what, said)
        return StoreUnavailableError(f"{what}: no credentials: {type(err).__name__}: {said}")
    if isinstance(err, AttributeError):
        return ConfigError(
            f"{what}: {said}. It has to have credentials(), which gives access_key, secret_key, token and expiry"
        )
    return AuthorizationError(f"{what}: no credentials: {type(err).__name__}: {said}")


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    try:
        yield
    except ClientError as err:
        status, code = err.response["ResponseMetadata"]["HTTPStatusCode"], err.response["Error"].get("Code", "")
        if status >= 500 or code == "Throttling":
            raise StoreUnavailableError(f"{what}: answered {status} {code}; run again when it does") from err
        raise AuthorizationError(
            f"{what}: answered {status} {code}. Check the role's trust policy, its external id, and the credentials"
            " that assume it"
        ) from err
    except UNREACHABLE as err:
        if is_untrusted(err):
            raise untrusted(what, str(err)) from err
        raise StoreUnavailableError(f"{what}: no answer ({type(err).__name__})") from err
    except BotoCoreError as err:
        raise AuthorizationError(f"{what}: {err}") from err
