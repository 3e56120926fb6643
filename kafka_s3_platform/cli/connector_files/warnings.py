"""Warnings of `check` and `doctor` about files that load, but may contain mistakes."""

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.local.settings import HOST, StackSettings, name_variable
from kafka_s3_platform.partitioners.folders import explain_shared_folder


def list_warnings(config: ConnectorConfig, stack: StackSettings) -> Iterator[str]:
    """Yield likely mistakes. `stack` is the embedded stack of the variables in force."""
    if shared := explain_shared_folder(config.layout):
        yield shared
    for what, field, address in _list_addresses(config):
        port = getattr(stack, field)
        if _is_of_this_machine(address) and urlsplit(f"//{address}").port != port:
            variable = name_variable(field)
            yield (
                f"{what} is at {address} of this machine. The embedded stack has {HOST}:{port}, by {variable}: write "
                f"{HOST}:${{env:{variable}}}, if that is meant and not another stack"
            )


def _list_addresses(config: ConnectorConfig) -> Iterator[tuple[str, str, str]]:
    """Yield each server of the file: a name for it, the field of the stack's port, its host and port."""
    for server in config.kafka.bootstrap_servers.split(","):
        yield "the broker (bootstrap.servers)", "kafka_port", server.strip().rpartition("//")[2]
    if config.store.endpoint_url:
        yield "the store (store.url)", "s3_port", urlsplit(config.store.endpoint_url).netloc.rpartition("@")[2]
    converters = (config.records.value, config.records.key)
    urls = dict.fromkeys(converter.registry.url for converter in converters if converter.registry)
    for url in ",".join(urls).split(","):
        if url:
            yield "the Schema Registry", "registry_port", urlsplit(url.strip()).netloc.rpartition("@")[2]


def _is_of_this_machine(address: str) -> bool:
    host = urlsplit(f"//{address}").hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
