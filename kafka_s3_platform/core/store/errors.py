"""Translates S3's answers, and boto3's exceptions, to the platform's errors."""

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 - boto3's own, not the builtin
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from urllib3.exceptions import HTTPError
from urllib3.util.ssl_match_hostname import CertificateError

from kafka_s3_platform.core.config.certificates import explain_certificate
from kafka_s3_platform.core.errors import (
    AuthorizationError,
    ClockError,
    ConfigError,
    ErrorCode,
    IntegrityError,
    MissingBucketError,
    PermanentError,
    PlatformError,
    StoreUnavailableError,
    iterate_causes,
)

_REFUSALS: Mapping[str, str] = {
    "AllAccessDisabled": "The bucket or the account is closed: ask who runs the store",
    "ExpiredToken": (
        "The session token has expired: give a new access key with its session token, or a role (sts.role.arn), "
        "whose tokens are renewed"
    ),
    "InvalidAccessKeyId": (
        "The store knows no such access key: correct aws.access.key.id, or the role, the profile or the class that "
        "gives it"
    ),
    "InvalidSecurity": "Correct aws.access.key.id, its secret and its session token",
    "InvalidToken": "The session token is none, or belongs to another access key: correct it",
    "SignatureDoesNotMatch": (
        "The secret does not belong to the access key: correct aws.secret.access.key. If it is right, something "
        "between here and the store changes requests"
    ),
}
"""Answers about credentials, with advice."""

_RIGHTS: Mapping[str, str] = {
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "CompleteMultipartUpload": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "DeleteObject": "s3:DeleteObject",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListObjectsV2": "s3:ListBucket",
    "PutObject": "s3:PutObject",
    "PutObjectTagging": "s3:PutObjectTagging",
    "RestoreObject": "s3:RestoreObject",
    "UploadPart": "s3:PutObject",
}
"""The right for each request."""

BAD_BODY = frozenset({"BadDigest", "XAmzContentSHA256Mismatch"})
"""S3's codes for a body that does not have the given checksum or signed digest."""

PASSING_CODES = frozenset(
    {
        "BandwidthLimitExceeded",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestTimeout",
        "RequestTimeoutException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
"""Codes of S3 and other services of AWS for a request that may succeed later, also with a status below 500."""

_MOVED = 301
_BAD_REQUEST = 400
_FORBIDDEN = 403
_NOT_FOUND = 404
_CONFLICT = 409
_PRECONDITION_FAILED = 412
_TOO_MANY = 429
_SERVER_ERROR = 500

_ELSEWHERE = "The bucket is in another region, or behind another endpoint: correct s3.region or store.url"


@dataclass(frozen=True, slots=True)
class RefusedAnswer:
    """The meaning of an answer: the class and the code of the error to raise, and advice."""

    error: type[PlatformError]
    code: ErrorCode
    advice: str

    def make_error(self, message: str) -> PlatformError:
        """Return the error, with the advice after the message."""
        return self.error(f"{message}. {self.advice}", code=self.code)


_DAMAGED = RefusedAnswer(
    StoreUnavailableError,
    ErrorCode.STORE_FAILS,
    "The body does not have its checksum: it was damaged on its way, or something between changes it; run again",
)
_BY_CODE: Mapping[str, RefusedAnswer] = {
    **dict.fromkeys(BAD_BODY, _DAMAGED),
    "AuthorizationHeaderMalformed": RefusedAnswer(
        ConfigError, ErrorCode.STORE_REGION, "The store expects another region in the signature: correct s3.region"
    ),
    "IllegalLocationConstraintException": RefusedAnswer(ConfigError, ErrorCode.STORE_REGION, _ELSEWHERE),
    "PermanentRedirect": RefusedAnswer(ConfigError, ErrorCode.STORE_REGION, _ELSEWHERE),
    "InvalidObjectState": RefusedAnswer(
        IntegrityError, ErrorCode.STORE_OBJECT, "It lies in a cold storage class and was not thawed"
    ),
    "NotImplemented": RefusedAnswer(
        ConfigError,
        ErrorCode.STORE_REFUSED,
        "The store does not know this request, or its condition: use one that does",
    ),
    "RequestTimeTooSkewed": RefusedAnswer(
        ClockError,
        ErrorCode.CLOCK,
        "This machine's clock and the store's differ too much: set the one that is wrong (NTP)",
    ),
}

UNREACHABLE = (ConnectionError, HTTPClientError, IncompleteReadError, HTTPError)
"""The errors for no answer, or one that broke off. For the body of a refusal, urllib3's own error is raised."""

BROKEN_OFF = (ReadTimeoutError, ResponseStreamingError, IncompleteReadError, HTTPError, FlexibleChecksumError)
"""The errors of reading a body that breaks off or does not have its checksum. Another try may succeed."""


_UNTRUSTED_CAUSES = (ssl.SSLCertVerificationError, CertificateError)

UNTRUSTED = "Have AWS_CA_BUNDLE and SSL_CERT_FILE name a PEM file with the authority that the store's certificate is of"


_MAYBE_TLS = "If that port speaks TLS, write https:// there"
NO_TLS = "The server does not speak TLS at that port: correct the port in the URL, or write http:// there"


class PreconditionError(IntegrityError):
    """The condition of a request is false: the object exists, is gone or was replaced."""

    code = ErrorCode.STORE_OBJECT


class RefusedRequestError(PermanentError):
    """The store does not take the request as it is, and gives no reason."""

    code = ErrorCode.STORE_REFUSED


class NotFoundError(IntegrityError):
    """The object, or the multipart upload, does not exist."""

    code = ErrorCode.STORE_OBJECT


_NO_OBJECT = RefusedAnswer(NotFoundError, ErrorCode.STORE_OBJECT, "It does not exist, or was deleted")
_NO_STORE = RefusedAnswer(
    ConfigError,
    ErrorCode.STORE_REFUSED,
    "No S3 server answers so: correct store.url, its port above all. A proxy before the store may answer for it",
)


@dataclass(frozen=True, slots=True)
class Attempted:
    """An attempted request, for the message of an error."""

    operation: str
    bucket: str
    key: str
    endpoint: str

    def __str__(self) -> str:
        return f"{self.operation} of s3://{self.bucket}/{self.key} at {self.endpoint}"


@contextmanager
def translate_errors(attempted: Attempted) -> Iterator[None]:
    """Raise boto3's exceptions as the platform's. No message holds a credential or a signed URL."""
    try:
        yield
    except ClientError as err:
        raise translate_response(err, attempted) from err
    except (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError) as err:
        raise AuthorizationError(
            f"{attempted}: {err}. Set aws.access.key.id and aws.secret.access.key", code=ErrorCode.STORE_LOGIN
        ) from err
    except UNREACHABLE as err:
        if is_untrusted(err):
            raise build_untrusted_error(str(attempted), str(err)) from err
        reason = find_silence_reason(err)
        raise StoreUnavailableError(
            f"{attempted}: no answer ({reason}). {advise_on_silence(reason, attempted.endpoint)}"
        ) from err
    except FlexibleChecksumError as err:
        raise IntegrityError(
            f"{attempted}: the bytes do not have the store's checksum of them: they were damaged in the store, or on "
            f"their way. Run again; if it happens again, put the object back from a copy"
        ) from err
    except BotoCoreError as err:
        raise ConfigError(f"{attempted}: {err}. Correct the bucket's name or the store's settings") from err
    except (ValueError, RuntimeError) as err:
        # botocore follows redirects by calling itself, and reads dates and numbers as they come
        raise StoreUnavailableError(
            f"{attempted}: the answer is not S3's ({type(err).__name__}: {str(err)[:200]}). Check that store.url is "
            f"the URL of an S3 server",
            code=ErrorCode.STORE_FAILS,
        ) from err


def find_silence_reason(err: Exception) -> str:
    """Return the reason for the lack of an answer, in the system's words if there are any, without URLs."""
    reasons = (str(cause.strerror) for cause in iterate_causes(err) if isinstance(cause, OSError) and cause.strerror)
    return next(reasons, type(err).__name__)


def advise_on_silence(reason: str, endpoint: str) -> str:
    """Advise on a connection to the store that failed, or was closed without an answer."""
    advice = "Check that the store is up and store.url is right"
    if endpoint.startswith("http:") and re.search("closed|reset", reason, re.IGNORECASE):
        return f"{advice}. {_MAYBE_TLS}"
    return advice


def is_untrusted(err: Exception) -> bool:
    """Return True if the server's certificate was not accepted, or it has none, so another try does not help."""
    return any(
        isinstance(cause, _UNTRUSTED_CAUSES) or "WRONG_VERSION_NUMBER" in str(cause) for cause in iterate_causes(err)
    )


def build_untrusted_error(what: str, message: str) -> ConfigError:
    """Return the error for an untrusted server; `what` describes the attempt, `message` is the error's text."""
    if "WRONG_VERSION_NUMBER" in message:
        return ConfigError(f"{what}: {message}. {NO_TLS}", code=ErrorCode.STORE_TLS)
    return ConfigError(f"{what}: {message}. {advise_on_certificate(message)}", code=ErrorCode.STORE_CERT)


def advise_on_certificate(message: str) -> str:
    """Advise on the store's certificate, by the error's text."""
    return explain_certificate(message, "store.url", UNTRUSTED)


def translate_response(err: ClientError, attempted: Attempted) -> PlatformError:
    """Return the platform's error for an error response."""
    status = err.response["ResponseMetadata"]["HTTPStatusCode"]
    code = err.response["Error"].get("Code", "")
    refusal = choose_error(status, code, attempted)
    answer = describe_answer(refusal.error, status, code, err.response["Error"].get("Message", ""))
    return refusal.make_error(f"{attempted}: {answer}")


def describe_answer(error_class: type[PlatformError], status: int, code: str, message: str) -> str:
    """Describe the store's answer. Its message is only shown if the class of error needs it."""
    shown_message = message if error_class in (RefusedRequestError, ConfigError) else ""
    # the answer to a HEAD has no body, and its status is all that botocore knows
    return f"answered {' '.join(word for word in dict.fromkeys((str(status), code, shown_message)) if word)}"


def choose_error(status: int, code: str, attempted: Attempted) -> RefusedAnswer:
    """Return the meaning of an answer. `code` is S3's word for it, if the answer has one."""
    if status == _MOVED:
        return RefusedAnswer(ConfigError, ErrorCode.STORE_REGION, _ELSEWHERE)
    return _BY_CODE.get(code) or _choose_by_status(status, code, attempted)


def choose_forbidden(code: str, operation: str) -> RefusedAnswer:
    """Return the meaning of a store's refusal of credentials, by the code of its answer, if it has one."""
    if code in _REFUSALS:
        return RefusedAnswer(AuthorizationError, ErrorCode.STORE_LOGIN, _REFUSALS[code])
    right = f"the right {_RIGHTS[operation]} here" if operation in _RIGHTS else "a right here"
    if code == "AccessDenied":
        advice = f"The access key lacks {right}, or a policy refuses it: docs/iam.md lists the rights of each run"
    else:
        advice = f"Check aws.access.key.id, its secret or session token, and whether it has {right}: docs/iam.md"
    return RefusedAnswer(AuthorizationError, ErrorCode.STORE_RIGHTS, advice)


def _choose_by_status(status: int, code: str, attempted: Attempted) -> RefusedAnswer:
    """Return the error class, code and advice for an answer of the store, by its HTTP status and its code."""
    if code == "NoSuchBucket":
        advice = f"Create bucket {attempted.bucket}, or correct s3.bucket.name"
        return RefusedAnswer(MissingBucketError, ErrorCode.STORE_BUCKET, advice)
    if status == _FORBIDDEN or code in _REFUSALS or code == "AccessDenied":
        return choose_forbidden(code, attempted.operation)
    if status == _PRECONDITION_FAILED or (code == "ConditionalRequestConflict" and attempted.operation == "PutObject"):
        return RefusedAnswer(
            PreconditionError, ErrorCode.STORE_OBJECT, "Somebody else created, replaced or deleted the object"
        )
    if status == _NOT_FOUND:
        is_no_store = attempted.operation == "ListObjectsV2" and code in {"", str(status), "Not Found"}
        return _NO_STORE if is_no_store else _NO_OBJECT
    if status >= _SERVER_ERROR or status in (_CONFLICT, _TOO_MANY) or code in PASSING_CODES:
        advice = "The store is overloaded, failing, or its disk is full: make sure it is not, run again"
        return RefusedAnswer(StoreUnavailableError, ErrorCode.STORE_FAILS, advice)
    advice = "The store refused the request itself: its key, or a setting of the store's"
    # S3's own answers have a code, except to a HEAD
    if status == _BAD_REQUEST and code in {"", str(status), "Bad Request"} and attempted.endpoint.startswith("http:"):
        advice = f"{advice}. {_MAYBE_TLS}"
    return RefusedAnswer(RefusedRequestError, ErrorCode.STORE_REFUSED, advice)
