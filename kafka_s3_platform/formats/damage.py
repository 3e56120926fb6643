"""How the damage of an object is told, and that it asks for too much."""

from kafka_s3_platform.errors import IntegrityError


def damaged(key: str, what: str) -> IntegrityError:
    """The error that names an object and what is wrong with it."""
    return IntegrityError(f"object {key} {what}. It is damaged or cut off, or something else wrote it")


def beyond(key: str, what: str, limit: str) -> IntegrityError:
    """The error of an object that asks for more than the limit `archive.read.max.<limit>` allows."""
    return IntegrityError(
        f"object {key} {what}, which is more than archive.read.max.{limit} allows. It is damaged, or made to use up "
        f"memory or time; if it is what it should be, set that key higher"
    )
