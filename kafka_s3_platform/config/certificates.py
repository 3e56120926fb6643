"""What to do about a server's certificate that a client does not accept, by what OpenSSL or rustls says of it."""

import re

_TIME = re.compile(r"expired|not yet valid|not valid (after|before|until)", re.IGNORECASE)
_NAME = re.compile(r"hostname|host name|IP address mismatch|not valid for name|doesn't match", re.IGNORECASE)


def advice(said: str, address: str, authority: str) -> str:
    """A sentence without its full stop.

    Args:
        said: the client's words.
        address: the key that holds the server's name.
        authority: what to do where nobody was told of the certificate's authority.
    """
    if _TIME.search(said):
        return "Have the server's certificate renewed, or set this machine's clock if it is the clock that is wrong"
    if _NAME.search(said):
        return (
            f"Call the server in {address} by a name that its certificate holds, or give it a certificate of its name"
        )
    return authority
