"""Properties computed once, at their first use, perhaps after a long wait."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy_property(Generic[T]):  # noqa: N801 - it is used as `property` is
    """Like `functools.cached_property`, without Python 3.11's lock, which all instances of a class share.

    Under this lock, one hanging store would hold up the reading of all others. Two threads may find the same twice.
    """

    def __init__(self, find: Callable[[Any], T]) -> None:
        self._find = find
        self.__doc__ = find.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> "lazy_property[T]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> "T | lazy_property[T]":
        if instance is None:
            return self
        # Python looks in the instance first, so this is asked only once
        value = instance.__dict__[self._find.__name__] = self._find(instance)
        return value
