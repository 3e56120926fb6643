"""Gets the store's credentials.

They come from AWS's default chain, from a fixed access key, from a role assumed at AWS's Security Token Service (STS),
or from a user's own class. A process has one provider for each of these ways. boto3 and delta-rs share it, and it
renews credentials before they expire.
"""

import logging
import os
import threading
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, Protocol

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import CredentialProvider, CredentialResolver, EnvProvider, RefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.utils import parse_timestamp
from pydantic import SecretStr

from kafka_s3_platform.core.config.plugins import CREDENTIALS_PROVIDER, choose_cause, load_class, mask_options
from kafka_s3_platform.core.config.settings import ProviderSettings, RoleSettings, StoreSettings
from kafka_s3_platform.core.errors import (
    AuthorizationError,
    ConfigError,
    ErrorCode,
    PlatformError,
    StoreUnavailableError,
    TransientError,
)
from kafka_s3_platform.core.store.errors import (
    PASSING_CODES,
    UNREACHABLE,
    build_untrusted_error,
    find_silence_reason,
    is_untrusted,
)

ADVISORY_SECONDS = 120
MANDATORY_SECONDS = 60
"""The times before their expiry at which credentials are renewed.

A renewal that fails in the advisory time is tried again, since the old credentials are still valid. In the mandatory
time it is an error.
"""

_NEVER = datetime.max.replace(tzinfo=timezone.utc)
_LOCK = threading.RLock()
"""Threads may share botocore's clients but not its sessions."""

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


def _shorten_record(record: logging.LogRecord) -> bool:
    """Filter botocore's log: drop tracebacks, and records of errors that are also raised, since we report those."""
    if record.exc_info:
        record.msg = f"{record.getMessage()} {record.exc_info[1]}"
        record.args = ()
        record.exc_info = None
    return not record.msg.startswith(("Refreshing temporary credentials failed during mandatory", "Error retrieving"))


logging.getLogger("botocore.credentials").addFilter(_shorten_record)


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key. A temporary one has a `token`, and an `expiry` with a timezone (None if it never expires)."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    expiry: datetime | None = None


class CredentialsProvider(Protocol):
    """The class in `s3.credentials.provider.class`. It is called with a mapping of its options, from name to text."""

    def credentials(self) -> Credentials:
        """Return valid credentials. Called again before they expire."""
        ...


def new_client(settings: StoreSettings, **options: Any) -> Any:
    """Return a boto3 client of S3 with the provider's credentials.

    Raises:
        AuthorizationError: the provider refuses, or there are no credentials.
        StoreUnavailableError: the provider does not answer.
        ConfigError: the provider's class cannot be used.
    """
    with _LOCK:
        _require_credentials(settings)
        return _get_session(_Method.of(settings)).client("s3", **options)


def find_credentials(settings: StoreSettings) -> Credentials:
    """Return the provider's credentials, renewed if they end within MANDATORY_SECONDS. Raises as `new_client` does."""
    credentials = _require_credentials(settings)
    with _translate_refusals("refreshing the store's credentials"):
        frozen = credentials.get_frozen_credentials()
    return Credentials(frozen.access_key, frozen.secret_key, frozen.token)


def describe_credentials(settings: StoreSettings) -> str:
    """Describe the provider and its access key id, masked. Raises the errors of `find_credentials`."""
    credentials = _require_credentials(settings)
    method = credentials.method
    source = method
    if _build_loader(_Method.of(settings)) is None:
        setting = "s3.credentials.provider.class" if settings.chain else "AWS's default chain"
        source = f"{setting}: {_CHAIN.get(method, method)}"
    return f"{source}; access key id {_mask_key(find_credentials(settings).access_key)}"


def _mask_key(access_key: str) -> str:
    """Return both ends of an access key id, so people can recognise it. A short one is hidden completely."""
    if len(access_key) >= 16:
        return f"{access_key[:4]}****{access_key[-4:]}"
    return "****"


def _require_credentials(settings: StoreSettings) -> Any:
    """Return botocore's credentials for these settings. Raises AuthorizationError if there are none."""
    with _LOCK:
        session = _get_session(_Method.of(settings))
        with _translate_refusals("looking for AWS credentials"):
            credentials = session.get_credentials()
    if credentials is None:
        raise AuthorizationError(_explain_no_credentials(settings.chain), code=ErrorCode.STORE_LOGIN)
    return credentials


def _explain_no_credentials(chain: tuple[str, ...]) -> str:
    """List the places where no credentials were found. `chain` has the allowed providers, and is empty for all."""
    if chain:
        names = " or ".join(_CHAIN.get(name, name) for name in chain)
        return f"no AWS credentials: s3.credentials.provider.class names only {names}, and there are none"
    return (
        "no AWS credentials: none in the connector file, the environment, a profile, the container or the instance."
        " Set aws.access.key.id and aws.secret.access.key, or one of the others"
    )


@dataclass(frozen=True)
class _Method:
    """One way to get credentials; AWS's default chain if nothing is set. `region` is for a profile without one."""

    region: str
    access_key_id: SecretStr | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    role: RoleSettings | None = None
    provider: ProviderSettings | None = None
    chain: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: StoreSettings) -> "_Method":
        return cls(**{f.name: getattr(settings, f.name) for f in fields(cls)})


_NO_PROFILE: Any = {"profile": (None, None, None, None), "config_file": (None, None, os.devnull, None)}
"""The variables of a session that uses no profile, whatever `AWS_PROFILE` and `AWS_CONFIG_FILE` name."""


@cache
def _get_session(method: _Method) -> Any:
    """Return the process's only session for a method. A new one would read S3's service model again (60 ms)."""
    load = _build_loader(method)
    if load is None:
        session = _build_default_chain(method.region, method.chain)
    else:
        session = botocore.session.Session(session_vars=_NO_PROFILE)
        session.register_component("credential_provider", CredentialResolver([_OwnProvider(load)]))
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
    return boto3.session.Session(botocore_session=session)


def parse_time(text: Any) -> datetime:
    """Parse a time as botocore does, but S3's two forms a hundred times as fast: each object of a listing has one."""
    with suppress(AttributeError, TypeError, ValueError):
        if text.endswith("Z"):
            return datetime.fromisoformat(f"{text[:-1]}+00:00")
        if text.endswith(" GMT"):
            return parsedate_to_datetime(text)
    parsed: datetime = parse_timestamp(text)
    return parsed


def _build_default_chain(region: str, members: tuple[str, ...]) -> botocore.session.Session:
    """Build AWS's default chain of providers, or a chain of only some of its `members`.

    A profile with `credential_source = Environment` assumes its role with the environment's access key. In the default
    chain the key itself would come first and hide the role. The profile comes first if it is named explicitly.
    """
    session = botocore.session.Session()
    with _translate_refusals("reading AWS's profiles"):
        if session.get_scoped_config().get("credential_source") == "Environment":
            session = botocore.session.Session(profile=session.get_config_variable("profile") or "default")
        if session.get_config_variable("region") is None:
            session.set_config_variable("region", region)
        providers = session.get_component("credential_provider").providers
        # AWS's first SDK for Java reads these variables where the common ones are not set.
        names = {"AWS_ACCESS_KEY_ID": "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY": "AWS_SECRET_KEY"}
        environment = ChainMap(os.environ, {name: os.environ[old] for name, old in names.items() if old in os.environ})
        providers[:] = [
            EnvProvider(environment) if provider.METHOD == EnvProvider.METHOD else provider
            for provider in providers
            if not members or provider.METHOD in members
        ]
    return session


def _build_loader(method: _Method) -> Callable[[], Any] | None:
    """Return a function that gets botocore's credentials by a user's class, a role, or a key. Else return None."""
    if (provider := method.provider) is not None:
        return lambda: _build_refreshable(
            f"s3.credentials.provider.class {provider.class_name}", _make_provider_fetcher(provider)
        )
    if (role := method.role) is not None:
        source = _get_session(
            _Method(role.region, method.access_key_id, method.secret_access_key, method.session_token)
        )
        return lambda: _build_refreshable(
            f"sts.role.arn {role.arn}, session {role.session_name}", _make_role_fetcher(role, source)
        )
    if method.access_key_id is None or method.secret_access_key is None:
        return None
    key = method.access_key_id.get_secret_value()
    secret = method.secret_access_key.get_secret_value()
    token = None if method.session_token is None else method.session_token.get_secret_value()
    return lambda: botocore.credentials.Credentials(key, secret, token, method="aws.access.key.id")


class _OwnProvider(CredentialProvider):
    """The only member of a chain: it returns the result of `load`."""

    METHOD = CANONICAL_NAME = "kafka-s3-platform"

    def __init__(self, load: Callable[[], Any]) -> None:
        super().__init__()
        self._load = load

    def load(self) -> Any:
        return self._load()


def _build_refreshable(method: str, fetch: Callable[[], Credentials]) -> RefreshableCredentials:
    """Build botocore's credentials, which `fetch` renews. Refuse expired ones."""

    def metadata() -> dict[str, str | None]:
        credentials = _refuse_expired(fetch(), method)
        return {
            "access_key": credentials.access_key,
            "secret_key": credentials.secret_key,
            "token": credentials.token,
            "expiry_time": (credentials.expiry or _NEVER).isoformat(),
        }

    return RefreshableCredentials.create_from_metadata(
        metadata(), metadata, method, advisory_timeout=ADVISORY_SECONDS, mandatory_timeout=MANDATORY_SECONDS
    )


def _refuse_expired(credentials: Credentials, method: str) -> Credentials:
    """Return the credentials, unless they have expired."""
    if credentials.expiry is not None and credentials.expiry <= datetime.now(timezone.utc):
        raise AuthorizationError(
            f"{method}: its credentials expired at {credentials.expiry}; check the clocks", code=ErrorCode.STORE_LOGIN
        )
    return credentials


def _make_role_fetcher(role: RoleSettings, source: Any) -> Callable[[], Credentials]:
    """Return a function that gets the role's credentials from STS. `source` is the session that may assume the role."""
    attempt = f"AssumeRole of {role.arn} at {role.endpoint_url or f'the STS of {role.region}'}"
    config = Config(  # type: ignore[call-arg]  # the stubs do not know `ignore_configured_endpoint_urls`
        connect_timeout=5,
        read_timeout=20,
        retries={"mode": "standard", "total_max_attempts": 4},
        # variables and profiles name services of others
        ignore_configured_endpoint_urls=True,
    )
    request: dict[str, Any] = {
        "RoleArn": role.arn,
        "RoleSessionName": role.session_name,
        "DurationSeconds": role.duration_s,
    }
    if role.external_id is not None:
        request["ExternalId"] = role.external_id.get_secret_value()
    with _translate_refusals(attempt):
        client = source.client("sts", region_name=role.region, endpoint_url=role.endpoint_url, config=config)

    def fetch() -> Credentials:
        with _translate_refusals(attempt):
            key = client.assume_role(**request)["Credentials"]
        return Credentials(key["AccessKeyId"], key["SecretAccessKey"], key["SessionToken"], key["Expiration"])

    return fetch


def _make_provider_fetcher(provider: ProviderSettings) -> Callable[[], Credentials]:
    """Return a function that gets credentials from a user's class, and refuses invalid ones."""
    setting = f"s3.credentials.provider.class {provider.class_name}"
    options: Mapping[str, str] = {name: value.get_secret_value() for name, value in provider.options}
    with _translate_provider_errors(setting, options.values()):
        source: CredentialsProvider = load_class(provider.class_name, CREDENTIALS_PROVIDER)(options)

    def fetch() -> Credentials:
        with _translate_provider_errors(setting, options.values()):
            answer = source.credentials()
            credentials = Credentials(answer.access_key, answer.secret_key, answer.token, answer.expiry)
        if not credentials.access_key or not credentials.secret_key:
            raise ConfigError(f"{setting}: its credentials have no access_key, or no secret_key")
        if credentials.expiry is not None and credentials.expiry.tzinfo is None:
            raise ConfigError(f"{setting}: the expiry {credentials.expiry} of its credentials has no timezone")
        return credentials

    return fetch


@contextmanager
def _translate_provider_errors(what: str, options: Collection[str]) -> Iterator[None]:
    """Translate the errors of a user's class. An unreachable service or a TransientError is transient, the rest is not.

    The values of the options are masked in the message, since they may be secrets.
    """
    try:
        yield
    except Exception as err:
        cause = choose_cause(err, options)
        if isinstance(err, PlatformError) and cause is not None:
            raise
        raise _build_provider_error(what, err, mask_options(str(err), options)) from cause


def _build_provider_error(what: str, err: Exception, message: str) -> PlatformError:
    """Return the platform's error for an error of a user's class; `message` is its text without secrets."""
    if isinstance(err, PlatformError):
        if isinstance(err, TransientError):
            return StoreUnavailableError(message)
        return AuthorizationError(message, code=ErrorCode.STORE_LOGIN)
    if isinstance(err, (OSError, *UNREACHABLE)):
        if is_untrusted(err):
            return build_untrusted_error(what, message)
        return StoreUnavailableError(f"{what}: no credentials: {type(err).__name__}: {message}")
    if isinstance(err, AttributeError):
        return ConfigError(
            f"{what}: {message}. It has to have credentials(), with access_key, secret_key, token and expiry"
        )
    return AuthorizationError(f"{what}: no credentials: {type(err).__name__}: {message}", code=ErrorCode.STORE_LOGIN)


@contextmanager
def _translate_refusals(what: str) -> Iterator[None]:
    """Raise a platform error for an error of botocore, such as a refusal by STS. `what` names the attempt."""
    try:
        yield
    except ClientError as err:
        status = err.response["ResponseMetadata"]["HTTPStatusCode"]
        code = err.response["Error"].get("Code", "")
        if status >= 500 or code in PASSING_CODES:
            raise StoreUnavailableError(f"{what}: answered {status} {code}; run again when it does") from err
        raise AuthorizationError(
            f"{what}: answered {status} {code}. Check the role's trust policy, its external id, and the credentials"
            " that assume it",
            code=ErrorCode.STORE_LOGIN,
        ) from err
    except UNREACHABLE as err:
        if is_untrusted(err):
            raise build_untrusted_error(what, str(err)) from err
        raise StoreUnavailableError(
            f"{what}: no answer ({find_silence_reason(err)}). Check that it is up and that this machine reaches it"
        ) from err
    except BotoCoreError as err:
        raise AuthorizationError(f"{what}: {err}", code=ErrorCode.STORE_LOGIN) from err
