"""Authenticates a client by SASL's mechanisms PLAIN (RFC 4616) and SCRAM (RFC 5802)."""

from collections.abc import Callable

from scramp import ScramClient, ScramException

SCRAM = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})
MECHANISMS = SCRAM | {"PLAIN"}


def authenticate(mechanism: str, user: str, password: str, ask: Callable[[bytes], bytes]) -> None:
    """Exchange the mechanism's messages. `ask` sends one to the broker and returns its answer.

    Raises ValueError if the broker does not prove its knowledge of the password, as SCRAM demands.
    """
    if mechanism not in SCRAM:
        ask(f"\0{user}\0{password}".encode())
        return
    try:
        client = ScramClient([mechanism], user, password)
        client.set_server_first(ask(client.get_client_first().encode()).decode())
        client.set_server_final(ask(client.get_client_final().encode()).decode())
    except ScramException as err:
        raise ValueError(f"{mechanism}: {err}") from err
