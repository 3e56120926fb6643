"""Checks parts of object keys. Refuses parts that are ambiguous or unwritable, or that lead out of a folder."""

import re

MAX_KEY_BYTES = 1024
"""S3's limit of a key, in bytes of UTF-8."""

TOPIC = r"[a-zA-Z0-9._-]+"
REWRITTEN = r"(?:@(?P<ordinal>\d+))?(?:\+(?P<epoch>\d+))?"
"""Follows the first offset if an object begins inside the outputs of a record, or if it replaces other objects."""

_TOPIC_CHARACTER = re.compile(r"[a-zA-Z0-9._-]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""Control characters, halves of surrogate pairs, and characters that the XML of a listing cannot hold."""


def explain_bad_folders(folders: str) -> str | None:
    """Explain why folders joined by slashes cannot be a part of a key, or return None if they can.

    Some stores (SeaweedFS) read a backslash as a slash, so `..` after one leads out of a folder too.
    """
    if _UNWRITABLE.search(folders):
        return "holds a control character, or another one that no listing can show"
    if "" in folders.split("/"):
        return "holds a folder that is empty"
    if not {".", ".."}.isdisjoint(re.split(r"[/\\]", folders)):
        return "holds a folder that is '.' or '..'"
    return None


def check_delimiters(directory_delim: str, file_delim: str) -> None:
    """Refuse ambiguous delimiters, which could give two different objects the same key.

    A directory delimiter must show where the topic's name ends and the file's begins. The parts of a file's name are
    joined by the file delimiter and, if the object is rewritten, by `+` and `@`. Raises ValueError with the reason.
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
