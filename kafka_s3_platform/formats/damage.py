"""Builds the errors for damaged objects, and for objects beyond a limit."""

from kafka_s3_platform.errors import HEAL_OBJECT, IntegrityError


def build_damage_error(key: str, what: str) -> IntegrityError:
    """Return the error for a damaged object. `what` names the damage."""
    return IntegrityError(f"object {key} {what}. It is damaged or cut off, or something else wrote it")


def build_limit_error(key: str, what: str, limit: str) -> IntegrityError:
    """Return the error for an object beyond the limit `archive.read.max.<limit>`."""
    return IntegrityError(
        f"object {key} {what}, which is more than archive.read.max.{limit} allows. It is damaged, or made to use up "
        f"memory or time; if it is what it should be, set that key higher"
    )


def add_remedy(error: IntegrityError) -> IntegrityError:
    """Return the error with the remedy for an object of this platform, once."""
    text = str(error)
    return IntegrityError(text if HEAL_OBJECT in text else f"{text}; {HEAL_OBJECT}")
