"""Finds values in AWS Secrets Manager and in the Parameter Store of Systems Manager, for config providers.

A process uses an answer for `ttl_ms`, and then asks again.
"""

import json
import logging
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

logger = logging.getLogger(__name__)

DEFAULT_TTL_MS = "300000"
_TTL = re.compile(r"\?ttl=[0-9]+$")
_answers: dict[tuple[object, ...], tuple[float, str]] = {}
"""The time and the text of each answer, by service, parameters and name."""


def find_secret(parameters: Mapping[str, str], path: str, key: str) -> str:
    """Return the value of a key in a secret (a JSON object), or the whole secret if there is no path.

    `parameters` may have region, endpoint, access_key, secret_key, prefix, type (JSON or STRING) and ttl_ms.

    Raises:
        ValueError: there is no such value, or AWS does not give it. No message quotes a value.
    """
    key = _TTL.sub("", key)
    name = unquote(path or key)
    if prefix := parameters.get("prefix"):
        name = f"{prefix.rstrip('/')}/{name}"
    text = _ask(parameters, "secretsmanager", name)
    if not path or parameters.get("type") == "STRING":
        return text
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    value = fields.get(key) if isinstance(fields, dict) else None
    if value is None:
        raise ValueError(f"the secret {name!r} of AWS Secrets Manager is no JSON object with a value of {key!r}")
    return value if isinstance(value, str) else json.dumps(value)


def find_parameter(parameters: Mapping[str, str], path: str, key: str) -> str:
    """Return the decrypted value of a parameter. The `parameters` and the errors are those of `find_secret`."""
    if path:
        raise ValueError(f"{path!r} has no meaning: write the parameter's name alone, as in ${{ssm::/my/parameter}}")
    return _ask(parameters, "ssm", _TTL.sub("", key))


def _ask(parameters: Mapping[str, str], service: str, name: str) -> str:
    """Ask AWS, unless it answered recently. If AWS does not answer, use its last answer, with a warning."""
    question = (service, *sorted(parameters.items()), name)
    asked_at, answer = _answers.get(question, (None, ""))
    now = time.monotonic()
    if asked_at is not None and (now - asked_at) * 1000 < int(parameters.get("ttl_ms", DEFAULT_TTL_MS)):
        return answer
    try:
        answer = _request(_open_client(parameters, service), service, name)
    except OSError as err:
        if asked_at is None:
            raise ValueError(str(err)) from err
        logger.warning("%s; its last answer is used", err)
    _answers[question] = (now, answer)
    return answer


def _open_client(parameters: Mapping[str, str], service: str) -> Any:
    """Open a client of an AWS service. Raise ValueError if the parameters or the environment are not enough for one."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    session: Any = boto3.session.Session()
    try:
        return session.client(
            service,
            region_name=parameters.get("region"),
            endpoint_url=parameters.get("endpoint"),
            aws_access_key_id=parameters.get("access_key"),
            aws_secret_access_key=parameters.get("secret_key"),
            config=Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3}),
        )
    except (BotoCoreError, ValueError) as err:
        raise ValueError(f"AWS's {service} cannot be asked: {err}") from err


def _request(client: Any, service: str, name: str) -> str:
    """Return the text of a secret or parameter. Raise OSError if AWS gives no answer now, but may do so later."""
    from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, HTTPClientError

    from kafka_s3_platform.core.store.errors import PASSING_CODES

    what = f"{name!r} at {client.meta.endpoint_url}"
    try:
        if service == "ssm":
            return str(client.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])
        answer = client.get_secret_value(SecretId=name)
        return str(answer["SecretString"] if "SecretString" in answer else answer["SecretBinary"].decode())
    except ClientError as err:
        code = err.response["Error"].get("Code")
        message = f"{what}: AWS answered {code}"
        if err.response["ResponseMetadata"]["HTTPStatusCode"] >= 500 or code in PASSING_CODES:
            raise OSError(message) from err
        raise ValueError(
            f"{message}; check the name and the region, and that these AWS credentials may read it"
        ) from err
    except (EndpointConnectionError, HTTPClientError) as err:
        raise OSError(f"{what}: no answer ({type(err).__name__})") from err
    except (BotoCoreError, UnicodeDecodeError) as err:
        raise ValueError(f"{what} cannot be read: {err}") from err
