"""The keys that say where the store's credentials come from. Two ways at once are refused."""

import re
from collections.abc import Mapping

from pydantic import SecretStr

from kafka_s3_platform.config import values
from kafka_s3_platform.config.plugins import CREDENTIALS_PROVIDER, load_class
from kafka_s3_platform.config.settings import ProviderSettings, RoleSettings
from kafka_s3_platform.config.sheet import Sheet
from kafka_s3_platform.config.table import alias, honoured, refused
from kafka_s3_platform.errors import ConfigError

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
"""AWS's chain, and its members by themselves: their names in botocore, none for all of them."""

_KNOWN = {
    known: name
    for name in (*_CHAIN_OF, _ASSUME_ROLE)
    for known in (name, name.rpartition(".")[2], name.replace("com.amazonaws.", "com.amazon."))
}
_SYSTEM_PROPERTIES = re.compile(r"(.*\.)?SystemProper(ties|ty)CredentialsProvider")
_JAVA = re.compile(r"^(com|io|org|software|net)\.|^[^.]+$")
_ROLE_ARN = re.compile(r"arn:[a-z0-9-]+:iam::[0-9]*:role/\S+")
_SESSION_NAME = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)

CREDENTIALS_KEYS = (
    honoured("aws.access.key.id", _CHAIN, "Access key id; needs `aws.secret.access.key`."),
    honoured("aws.secret.access.key", _CHAIN, "Secret access key; needs `aws.access.key.id`."),
    alias("s3.credentials.provider.aws.access.key.id", "aws.access.key.id", "Another"),
    alias("s3.credentials.provider.aws.secret.access.key", "aws.secret.access.key", "Another"),
    alias("s3.credentials.provider.access_key_id", "aws.access.key.id", "Aiven's"),
    alias("s3.credentials.provider.secret_access_key", "aws.secret.access.key", "Aiven's"),
    alias("aws_access_key_id", "aws.access.key.id", "Aiven's old"),
    alias("aws_secret_access_key", "aws.secret.access.key", "Aiven's old"),
    honoured(
        "s3.credentials.provider.class",
        _CHAIN,
        "`DefaultAWSCredentialsProviderChain` or `DefaultCredentialsProvider` (the default chain), one of its members"
        " alone (`EnvironmentVariableCredentialsProvider`, `ProfileCredentialsProvider`, those of a web identity, the"
        " container and the instance), `AwsAssumeRoleCredentialsProvider` (the role of `sts.role.arn`), each by full or"
        " short name, or the dotted name of an allowed Python class of yours, which is code. Other Java classes are"
        " refused.",
    ),
    honoured("s3.credentials.provider.*", None, "An option that your own provider class is called with."),
    honoured("sts.role.arn", None, "The role to assume, with or without `s3.credentials.provider.class`."),
    honoured("sts.role.session.name", None, "Name of the role's session; needed with `sts.role.arn`."),
    honoured("sts.role.external.id", None, "External id that the role's trust policy asks for."),
    honoured("sts.region", "`s3.region`", "Region of the Security Token Service."),
    alias("s3.credentials.provider.sts.role.arn", "sts.role.arn", "Confluent's full"),
    alias("s3.credentials.provider.sts.role.session.name", "sts.role.session.name", "Confluent's full"),
    alias("s3.credentials.provider.sts.role.external.id", "sts.role.external.id", "Confluent's full"),
    alias("s3.credentials.provider.sts.region", "sts.region", "Confluent's full"),
    alias("aws.sts.role.arn", "sts.role.arn", "Aiven's"),
    alias("aws.sts.role.session.name", "sts.role.session.name", "Aiven's"),
    alias("aws.sts.role.external.id", "sts.role.external.id", "Aiven's"),
    honoured("aws.sts.role.session.duration", "3600", "Seconds that a role's credentials last, 900 to 43200."),
    honoured("aws.sts.config.endpoint", "the region's own", "Endpoint of the Security Token Service."),
    alias("aws.credentials.provider", "s3.credentials.provider.class", "Aiven's"),
    refused(
        "authentication.method",
        "provider integrations exist in Confluent Cloud only; use `aws.access.key.id`, or `sts.role.arn`",
        "",
        "Access Keys",
    ),
    refused(
        "provider.integration.id",
        "provider integrations exist in Confluent Cloud only; use `aws.access.key.id`, or `sts.role.arn`",
        "",
    ),
)


def role_settings(sheet: Sheet, region: str) -> RoleSettings | None:
    """The role to assume, None where the file names none."""
    if _class_of(sheet) == _ASSUME_ROLE:
        sheet.require("sts.role.arn", "s3.credentials.provider.class assumes a role, so name it")
    if "sts.role.arn" not in sheet:
        _refuse_without_role(sheet)
        return None
    sheet.require("sts.role.session.name", "AWS asks for a name of the role's session")
    external_id = sheet.text("sts.role.external.id")
    return RoleSettings(
        arn=sheet.read("sts.role.arn", _role_arn, ""),
        session_name=sheet.read("sts.role.session.name", _session_name, ""),
        external_id=SecretStr(external_id) if external_id else None,
        duration_s=sheet.read("aws.sts.role.session.duration", values.integer(900, 43_200), 3600),
        region=sheet.read("sts.region", str, region),
        endpoint_url=sheet.read("aws.sts.config.endpoint", endpoint, None),
    )


def chain_settings(sheet: Sheet) -> tuple[str, ...]:
    """The members of AWS's default chain that are asked, by botocore's names; none for all of them."""
    return _CHAIN_OF.get(_class_of(sheet), ())


def provider_settings(sheet: Sheet) -> ProviderSettings | None:
    """The user's own provider, None where the file names none."""
    options = sheet.under(PROVIDER_PREFIX)
    name = options.pop("class", "")
    if not name or _class_of(sheet) in _KNOWN.values():
        for option in options:
            sheet.refuse(
                PROVIDER_PREFIX + option, "no provider reads it: s3.credentials.provider.class names no own one"
            )
        return None
    try:
        load_class(_python_class(name), CREDENTIALS_PROVIDER)
    except (ConfigError, ValueError) as err:
        sheet.refuse("s3.credentials.provider.class", str(err))
        return None
    return ProviderSettings(
        class_name=name, options=tuple((option, SecretStr(value)) for option, value in sorted(options.items()))
    )


def refuse_two_methods(
    sheet: Sheet, role: RoleSettings | None, provider: ProviderSettings | None, chain: tuple[str, ...]
) -> None:
    """Refuses a file that says in two ways where credentials come from."""
    key, arn = (sheet.written(name) for name in ("aws.access.key.id", "sts.role.arn"))
    has_key = "aws.access.key.id" in sheet
    if (provider is not None or chain) and (has_key or role is not None):
        sheet.refuse(
            "s3.credentials.provider.class", f"{key if has_key else arn} says where credentials come from; keep one"
        )
    elif role is not None and has_key and not key.startswith(PROVIDER_PREFIX):
        sheet.refuse(
            "sts.role.arn",
            f"{key} says where credentials come from; keep one, or, if the role is to be assumed with that key, write"
            f" it as {PROVIDER_PREFIX}aws.access.key.id and {PROVIDER_PREFIX}aws.secret.access.key",
        )


def endpoint(text: str) -> str:
    """An endpoint; `https://` where it names no scheme, as Confluent's sink has it."""
    return values.url(text if "://" in text else f"https://{text}")


def _refuse_without_role(sheet: Sheet) -> None:
    own = ("sts.role.session.name", "sts.role.external.id", "sts.region")
    for name in (*own, "aws.sts.role.session.duration", "aws.sts.config.endpoint"):
        if name in sheet:
            sheet.refuse(name, "there is no role to assume; set sts.role.arn")


def _class_of(sheet: Sheet) -> str:
    name = sheet.text("s3.credentials.provider.class")
    return _KNOWN.get(name, name)


def _python_class(name: str) -> str:
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


def _role_arn(text: str) -> str:
    if not _ROLE_ARN.fullmatch(text):
        raise ValueError(f"{text!r} is no role such as arn:aws:iam::123456789012:role/archive")
    return text


def _session_name(text: str) -> str:
    if not _SESSION_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no session name: 2 to 64 letters, digits and any of _+=,.@-")
    return text
