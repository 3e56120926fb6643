"""Logs in to Amazon MSK with IAM: librdkafka asks for OAUTHBEARER tokens, and AWS credentials sign them.

Files configure it as for Java: `sasl.mechanism=AWS_MSK_IAM`, or OAUTHBEARER with Amazon's callback handler, and the
options of Amazon's login module in `sasl.jaas.config`.
"""

import logging
import os
import re
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from kafka_s3_platform.core.errors import AuthorizationError, ErrorCode

logger = logging.getLogger(__name__)

MSK_MECHANISM = "AWS_MSK_IAM"
MSK_OPTIONS: Mapping[str, str] = {
    "awsProfileName": "sasl.aws.profile",
    "awsRoleArn": "sasl.aws.role.arn",
    "awsRoleSessionName": "sasl.aws.role.session.name",
    "awsRoleExternalId": "sasl.aws.role.external.id",
    "awsStsRegion": "sasl.aws.sts.region",
}
"""The options of Amazon's login module, and our names for them."""

MSK_PROPERTIES = frozenset({*MSK_OPTIONS.values(), "sasl.oauthbearer.method"})
_OF_AMAZON = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


def replace_msk_login(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return librdkafka's properties for a file's properties: a login to MSK becomes a callback that signs its tokens.

    Raises AuthorizationError if no token can be signed, since librdkafka would not say why.
    """
    if not is_msk_login(properties):
        return dict(properties)
    sign_msk_token(properties)
    others = {name: value for name, value in properties.items() if name not in MSK_PROPERTIES}
    return {**others, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: sign_msk_token(properties)}


def is_msk_login(properties: Mapping[str, str]) -> bool:
    """Return True if the properties ask for a login to MSK with IAM."""
    return MSK_MECHANISM in {properties.get("sasl.mechanism"), properties.get("sasl.oauthbearer.method")}


def sign_msk_token(properties: Mapping[str, str]) -> tuple[str, float]:
    """Return a token, and when it expires, in seconds since 1970. AWS's tokens last for 15 minutes.

    Raises:
        AuthorizationError: there is no token. This is logged as well, since librdkafka's callbacks raise nothing.
    """
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    from botocore.credentials import CredentialProvider

    class Provider(CredentialProvider):
        def load(self) -> Any:
            return _open_credentials(options).get_frozen_credentials()

    options = tuple(properties.get(name) for name in MSK_OPTIONS.values())
    try:
        region = _find_region(properties["bootstrap.servers"], options[0])
        token, expiry_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(region, Provider())
    except Exception as err:
        message = f"no token for MSK at {properties['bootstrap.servers']}: {type(err).__name__}: {err}"
        logger.warning("%s", message)
        raise AuthorizationError(message, code=ErrorCode.KAFKA_LOGIN) from err
    return token, expiry_ms / 1000


def _find_region(bootstrap_servers: str, profile: str | None) -> str:
    """Return the AWS region: from the brokers' names, else from the environment, else from the profile."""
    from botocore.session import Session

    if named := _OF_AMAZON.search(bootstrap_servers):
        return named[1]
    # as AWS's SDK for Java does; botocore knows AWS_DEFAULT_REGION, and the profile's
    region = os.environ.get("AWS_REGION") or Session(profile=profile).get_config_variable("region")
    if not region:
        raise ValueError("bootstrap.servers name no region of AWS; set AWS_REGION, or one in the profile")
    return str(region)


@cache
def _open_credentials(options: tuple[str | None, ...]) -> Any:
    """Return credentials that renew themselves: from AWS's chain or a profile, or of a role assumed with these."""
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.session import Session

    profile, role_arn, session_name, external_id, sts_region = options
    session = Session(profile=profile)
    credentials = session.get_credentials()
    if credentials is None:
        raise ValueError("no AWS credentials in the environment, a profile, the container or the instance")
    if role_arn is None:
        return credentials
    request = {"RoleSessionName": session_name or "kafka-s3-platform", "ExternalId": external_id}
    fetcher = AssumeRoleCredentialFetcher(
        partial(session.create_client, region_name=sts_region) if sts_region else session.create_client,
        credentials,
        role_arn,
        extra_args={name: value for name, value in request.items() if value},
    )
    return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
