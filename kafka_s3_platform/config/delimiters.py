"""Which `directory.delim` and `file.delim` leave a key that says what it was made of."""

import re

_TOPIC_CHARACTER = re.compile(r"[a-zA-Z0-9._-]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_delimiters(directory_delim: str, file_delim: str) -> None:
    """Raises ValueError, with the reason, where two different objects could get the same key.

    A directory delimiter must tell where the topic's name ends, and where the file's begins, whose parts are joined by
    the file delimiter and, once rewritten, by `+` and `@`.
    """
    if not directory_delim or not file_delim:
        raise ValueError("directory.delim and file.delim cannot be empty")
    if _CONTROL.search(directory_delim + file_delim):
        raise ValueError("directory.delim and file.delim cannot hold control characters")
    if _TOPIC_CHARACTER.search(directory_delim):
        raise ValueError(f"directory.delim {directory_delim!r} can be a part of a topic's name; use '/'")
    if set(directory_delim) & {"+", "@", *file_delim}:
        raise ValueError(f"directory.delim {directory_delim!r} can be a part of a file's name; use '/'")
    if re.search(r"[0-9/]", file_delim):
        raise ValueError(f"file.delim {file_delim!r} cannot hold digits or '/'; use '+'")
