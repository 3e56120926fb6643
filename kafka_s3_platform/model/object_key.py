"""Checks parts of objects' keys, and refuses those that lead out of a folder or cannot be written."""

import re

MAX_KEY_BYTES = 1024
"""S3's limit of a key, in bytes of UTF-8."""

_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""Control characters, halves of surrogate pairs, and characters that the XML of a listing cannot hold."""


def explain_bad_folders(folders: str) -> str | None:
    """Explain why folders joined by slashes cannot be a part of a key. None if they can.

    Some stores (SeaweedFS) read a backslash as a slash, so `..` behind one leads out of a folder too.
    """
    if _UNWRITABLE.search(folders):
        return "holds a control character, or another one that no listing can show"
    if "" in folders.split("/"):
        return "holds a folder that is empty"
    if not {".", ".."}.isdisjoint(re.split(r"[/\\]", folders)):
        return "holds a folder that is '.' or '..'"
    return None
