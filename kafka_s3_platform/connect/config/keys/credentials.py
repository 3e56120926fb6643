"""The keys of the store's credentials. A file with two sources of them is refused."""

import re
from collections.abc import Mapping

from pydantic import SecretStr

from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.connect.config.keys.config_file import ConfigFile
from kafka_s3_platform.connect.config.keys.table import (
    Key,
    declare_aliases,
    declare_honoured,
    declare_key,
    declare_refused,
    declare_setting,
    keys_by_field,
)
from kafka_s3_platform.core.config.plugins import CREDENTIALS_PROVIDER, load_class
from kafka_s3_platform.core.config.settings import ProviderSettings, RoleSettings, StoreSettings
from kafka_s3_platform.core.errors import ConfigError

PROVIDER_PREFIX = "s3.credentials.provider."

_CHAIN = "AWS's credentials chain"
_DEFAULT_CHAIN = (
    "com.amazon.auth.DefaultAWSCredentialsProviderChain",
    "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
    "io.aiven.kafka.connect.util.AivenAWSCredentialsProvider",
)
_ASSUME_ROLE = "io.confluent.connect.s3.auth.AwsAssumeRoleCredentialsProvider"
_V1, _V2 = "com.amazonaws.auth.", "software.amazon.awssdk.auth.credentials."
_PROFILE = ("assume-role", "sso", "shared-credentials-file", "login", "custom-process", "config-file")
_CHAIN_OF: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_DEFAULT_CHAIN, ()),
    f"{_V1}EnvironmentVariableCredentialsProvider": ("env",),
    f"{_V1}profile.ProfileCredentialsProvider": _PROFILE,
    f"{_V1}WebIdentityTokenCredentialsProvider": ("assume-role-with-web-identity",),
    f"{_V1}ContainerCredentialsProvider": ("container-role",),
    f"{_V1}EC2ContainerCredentialsProviderWrapper": ("container-role", "iam-role"),
    f"{_V1}InstanceProfileCredentialsProvider": ("iam-role",),
    f"{_V2}EnvironmentVariableCredentialsProvider": ("env",),
    f"{_V2}ProfileCredentialsProvider": _PROFILE,
    f"{_V2}WebIdentityTokenFileCredentialsProvider": ("assume-role-with-web-identity",),
    f"{_V2}ContainerCredentialsProvider": ("container-role",),
    f"{_V2}InstanceProfileCredentialsProvider": ("iam-role",),
}
"""The classes of AWS's chain and of its members, each with its members' names in botocore, or () for all members."""

_KNOWN = {
    alias: name
    for name in (*_CHAIN_OF, _ASSUME_ROLE)
    for alias in (name, name.rpartition(".")[2], name.replace("com.amazonaws.", "com.amazon."))
}
_SYSTEM_PROPERTIES = re.compile(r"(.*\.)?SystemProper(ties|ty)CredentialsProvider")
# The first parts of common Java packages, or a class without a package.
_JAVA = re.compile(r"^(com|io|org|software|net)\.|^[^.]+$")
_ROLE_ARN = values.expect_match(
    r"arn:[a-z0-9-]+:iam::[0-9]*:role/[!-~]+", "role such as arn:aws:iam::123456789012:role/archive"
)
_SESSION_NAME = values.expect_match(r"[\w+=,.@-]{2,64}", "session name: 2 to 64 letters, digits and any of _+=,.@-")


def parse_endpoint(text: str) -> str:
    """Parse an endpoint. As in Confluent's sink, an endpoint without a scheme gets `https`."""
    return values.parse_endpoint_url(text if "://" in text else f"https://{text}")


ACCESS_KEY_ID = declare_setting(
    StoreSettings,
    "access_key_id",
    "aws.access.key.id",
    SecretStr,
    "Access key ID. Needs `aws.secret.access.key`.",
    shown=_CHAIN,
)
SECRET_ACCESS_KEY = declare_setting(
    StoreSettings,
    "secret_access_key",
    "aws.secret.access.key",
    SecretStr,
    "Secret access key. Needs `aws.access.key.id`.",
    shown=_CHAIN,
)
ROLE_ARN = declare_key(
    "sts.role.arn",
    _ROLE_ARN,
    "ARN of the role to assume, with or without `s3.credentials.provider.class`.",
    default="",
)
SESSION_NAME = declare_key(
    "sts.role.session.name",
    _SESSION_NAME,
    "Name of the role's session. Required with `sts.role.arn`.",
    default="",
)
EXTERNAL_ID = declare_setting(
    RoleSettings, "external_id", "sts.role.external.id", SecretStr, "External ID that the role's trust policy requires."
)
ROLE_REGION = declare_setting(
    RoleSettings, "region", "sts.region", str, "Region of the Security Token Service.", shown="`s3.region`"
)


SESSION_DURATION = declare_setting(
    RoleSettings,
    "duration_s",
    "aws.sts.role.session.duration",
    values.expect_integer(900, 43_200),
    "How long a role's credentials last, in seconds: 900 to 43200.",
)
ROLE_ENDPOINT = declare_setting(
    RoleSettings,
    "endpoint_url",
    "aws.sts.config.endpoint",
    parse_endpoint,
    "Endpoint of the Security Token Service.",
    shown="the region's own",
)


CREDENTIALS_KEYS: tuple[Key, ...] = (
    *declare_aliases(
        "Another",
        """s3.credentials.provider.aws.access.key.id=aws.access.key.id
        s3.credentials.provider.aws.secret.access.key=aws.secret.access.key""",
    ),
    *declare_aliases(
        "Aiven's",
        """s3.credentials.provider.access_key_id=aws.access.key.id
        s3.credentials.provider.secret_access_key=aws.secret.access.key""",
    ),
    *declare_aliases("Aiven's old", "aws_access_key_id=aws.access.key.id aws_secret_access_key=aws.secret.access.key"),
    declare_honoured(
        "s3.credentials.provider.class",
        "Where credentials come from, by full or short name: `DefaultAWSCredentialsProviderChain` or"
        " `DefaultCredentialsProvider` (the default chain); one member of that chain"
        " (`EnvironmentVariableCredentialsProvider`, `ProfileCredentialsProvider`, those of a web identity, the"
        " container and the instance); `AwsAssumeRoleCredentialsProvider` (the role of `sts.role.arn`). Or the dotted"
        " name of your own allowed Python class, which runs as code. Other Java classes are refused.",
        _CHAIN,
    ),
    declare_honoured("s3.credentials.provider.*", "An option that is passed to your own provider class."),
    ROLE_ARN,
    SESSION_NAME,
    *keys_by_field(RoleSettings).values(),
    *declare_aliases(
        "Confluent's full",
        """s3.credentials.provider.sts.role.arn=sts.role.arn
        s3.credentials.provider.sts.role.session.name=sts.role.session.name
        s3.credentials.provider.sts.role.external.id=sts.role.external.id
        s3.credentials.provider.sts.region=sts.region""",
    ),
    *declare_aliases(
        "Aiven's",
        """aws.sts.role.arn=sts.role.arn aws.sts.role.session.name=sts.role.session.name
        aws.sts.role.external.id=sts.role.external.id aws.credentials.provider=s3.credentials.provider.class""",
    ),
    declare_refused(
        "authentication.method",
        "provider integrations exist in Confluent Cloud only; use `aws.access.key.id`, or `sts.role.arn`",
        "",
        "Access Keys",
    ),
    declare_refused(
        "provider.integration.id",
        "provider integrations exist in Confluent Cloud only; use `aws.access.key.id`, or `sts.role.arn`",
        "",
    ),
)


def read_role(file: ConfigFile, region: str) -> RoleSettings | None:
    """Read the role to assume. Return None if the file names none."""
    if _find_class(file) == _ASSUME_ROLE:
        file.require("sts.role.arn", "s3.credentials.provider.class assumes a role, so name it")
    if "sts.role.arn" not in file:
        of_role = (SESSION_NAME, *keys_by_field(RoleSettings).values())
        file.refuse_if_set((key.name for key in of_role), "there is no role to assume; set sts.role.arn")
        return None
    file.require("sts.role.session.name", "AWS asks for a name of the role's session")
    return file.fill(
        RoleSettings,
        arn=file.value(ROLE_ARN),
        session_name=file.value(SESSION_NAME),
        region=file.value_or(ROLE_REGION, region),
    )


def read_chain(file: ConfigFile) -> tuple[str, ...]:
    """Read the members of AWS's default chain to ask, by botocore's names. Return () if all are to be asked."""
    return _CHAIN_OF.get(_find_class(file), ())


def read_provider(file: ConfigFile) -> ProviderSettings | None:
    """Read the user's own provider. Return None if the file names none."""
    options = file.read_prefix(PROVIDER_PREFIX)
    name = options.pop("class", "")
    if not name or _find_class(file) in _KNOWN.values():
        for option in options:
            file.refuse(
                PROVIDER_PREFIX + option, "no provider reads it: s3.credentials.provider.class names no own one"
            )
        return None
    try:
        load_class(_check_python_class(name), CREDENTIALS_PROVIDER)
    except ConfigError as err:
        file.refuse("s3.credentials.provider.class", err.text)
    except ValueError as err:
        file.refuse("s3.credentials.provider.class", str(err))
        return None
    return ProviderSettings(
        class_name=name, options=tuple((option, SecretStr(value)) for option, value in sorted(options.items()))
    )


def refuse_two_methods(
    file: ConfigFile, role: RoleSettings | None, provider: ProviderSettings | None, chain: tuple[str, ...]
) -> None:
    """Refuse a file with two sources of credentials."""
    key, arn = (file.name_in_file(name) for name in ("aws.access.key.id", "sts.role.arn"))
    has_key = "aws.access.key.id" in file
    if (provider is not None or chain) and (has_key or role is not None):
        file.refuse(
            "s3.credentials.provider.class", f"{key if has_key else arn} says where credentials come from; keep one"
        )
    elif role is not None and has_key and not key.startswith(PROVIDER_PREFIX):
        file.refuse(
            "sts.role.arn",
            f"{key} says where credentials come from; keep one, or, if the role is to be assumed with that key, write"
            f" it as {PROVIDER_PREFIX}aws.access.key.id and {PROVIDER_PREFIX}aws.secret.access.key",
        )


def _find_class(file: ConfigFile) -> str:
    """Return the full Java name of the credentials provider, or the name as it is if it is not a known one."""
    name = file.text("s3.credentials.provider.class")
    return _KNOWN.get(name, name)


def _check_python_class(name: str) -> str:
    """Return the name of a class. Raise ValueError, with advice, if it looks like a Java class."""
    if _SYSTEM_PROPERTIES.fullmatch(name):
        raise ValueError(
            f"{name} reads the system properties of a Java process, and there is none; set AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY in the environment, or the keys aws.access.key.id and aws.secret.access.key"
        )
    if _JAVA.match(name):
        raise ValueError(
            f"{name!r} is a Java class, which cannot run here; leave the key out for AWS's default chain (environment,"
            " profile, container, instance), or name a Python class of yours as my_package.my_module.MyClass"
        )
    return name
