"""The receivers of alerts, as they are set in the environment."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.errors import ConfigError

_PORTS = {"starttls": 587, "tls": 465, "none": 25}


def _check_secret_url(secret: SecretStr) -> SecretStr:
    environment.check_url(secret.get_secret_value())
    return secret


def _check_address(text: str) -> str:
    if "@" not in text.strip("@") or not text.isascii() or not text.isprintable() or set(text) & set(' <>,;"'):
        raise ValueError(f"{text!r} is no address such as archive@example.com")
    return text


def _split_addresses(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_Address = Annotated[str, AfterValidator(_check_address)]


class AlertSettings(BaseModel):
    """The settings of alerts in the environment. A webhook's URL is a secret, since whoever knows it can post there."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=lambda name: f"{environment.ALERT_PREFIX}{name.upper()}"
    )

    webhook_url: Annotated[SecretStr, AfterValidator(_check_secret_url)] | None = None
    email_to: Annotated[tuple[_Address, ...], BeforeValidator(_split_addresses)] = ()
    email_from: _Address | None = None
    smtp_host: str | None = None
    smtp_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    smtp_user: str | None = None
    smtp_password: SecretStr | None = None

    def choose_port(self) -> int:
        """Return the port in the settings, or the usual port for the chosen security."""
        return self.smtp_port or _PORTS[self.smtp_security]


def read_alert_settings(env: Mapping[str, str]) -> AlertSettings:
    """Read the settings. An empty variable counts as not set.

    Raises:
        ConfigError: a variable is unknown or unusable, or another one it needs is missing. No secret is quoted.
    """
    try:
        settings = AlertSettings.model_validate(select_alert_variables(env))
    except ValidationError as err:
        problems = [
            f"{error['loc'][0]}: {'is unknown' if error['type'] == 'extra_forbidden' else error['msg']}"
            for error in err.errors()
        ]
        raise ConfigError("alerts cannot be sent:\n" + "\n".join(dict.fromkeys(problems))) from None
    _check_email(settings)
    return settings


def select_alert_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for alerts, without empty ones."""
    return {name: value for name, value in env.items() if name.startswith(environment.ALERT_PREFIX) and value}


def _check_email(settings: AlertSettings) -> None:
    """Raise ConfigError if the settings for email are incomplete, or would send the password in clear text."""
    problem = ""
    if settings.email_to and not settings.smtp_host:
        problem = f"set {environment.ALERT_SMTP_HOST} to the server that takes emails"
    elif settings.email_to and not settings.email_from:
        problem = f"set {environment.ALERT_EMAIL_FROM} to the sender's address"
    elif (settings.smtp_user is None) != (settings.smtp_password is None):
        problem = f"set both {environment.ALERT_SMTP_USER} and {environment.ALERT_SMTP_PASSWORD}, or neither"
    elif settings.smtp_password is not None and settings.smtp_security == "none":
        problem = f"{environment.ALERT_SMTP_SECURITY}=none would send the password in clear text; use starttls or tls"
    if problem:
        raise ConfigError(f"alerts cannot be sent by email: {problem}")
