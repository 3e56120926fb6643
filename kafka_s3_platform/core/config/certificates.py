"""Advises on a server certificate that a client has refused, by the message of OpenSSL or rustls."""

import re

# Words of OpenSSL, rustls and Python's ssl.
_TIME = re.compile(r"expired|not yet valid|not valid (after|before|until)", re.IGNORECASE)
_NAME = re.compile(r"hostname|host name|IP address mismatch|not valid for name|doesn't match", re.IGNORECASE)


def explain_certificate(message: str, address: str, authority: str) -> str:
    """Return advice, as a sentence without its full stop.

    Args:
        message: the client's message.
        address: the key that names the server.
        authority: the advice if the client does not know the certificate's authority.
    """
    if _TIME.search(message):
        return "Have the server's certificate renewed, or set this machine's clock if it is the clock that is wrong"
    if _NAME.search(message):
        return (
            f"Call the server in {address} by a name that its certificate holds, or give it a certificate of its name"
        )
    return authority
