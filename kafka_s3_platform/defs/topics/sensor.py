"""The topics sensor: finds new topics that match a connector's `topics.regex`, and reloads the definitions."""

import logging
import threading

import dagster as dg
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.names import make_op_name
from kafka_s3_platform.defs.topics.discovery import find_topics_folder, look_for_topics
from kafka_s3_platform.errors import TransientError

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 60


def make_topics_sensor(connector: ConnectorConfig) -> dg.SensorDefinition:
    """Make the topics sensor of one connector. It is on from the start and requests no run."""

    @dg.sensor(
        name=make_op_name("topics", connector.name),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Finds new topics for connector {connector.name}, which archives every topic that "
        f"`{connector.topics_regex}` matches.",
    )
    def topics(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        try:
            found = look_for_topics(connector, find_topics_folder())
        except TransientError as err:
            return dg.SkipReason(str(err))
        new = sorted(set(found.topics) - set(connector.topics))
        if not new:
            return dg.SkipReason(f"no new topic matches {connector.topics_regex}{found.told}")
        return dg.SkipReason(f"new: {', '.join(new)}; {_reload(context)}{found.told}")

    return topics


def _reload(context: dg.SensorEvaluationContext) -> str:
    """Have this code server replaced by one that reads the new list. Return what happens next, for people.

    Dagster's webserver and daemon notice a new server by themselves. If each of them manages a server of its own, the
    daemon replaces its server every minute, and the webserver when somebody reloads the location.
    """
    origin = context.code_location_origin
    if not isinstance(origin, GrpcServerCodeLocationOrigin):
        return "they are defined when this code location is loaded again: press Reload on the Deployment page"
    timeout = context.instance.code_server_reload_timeout
    # Do not wait for the reply: it comes after the end of this server, and the tick has to end before that.
    threading.Thread(target=_ask_to_reload, args=(origin, timeout), daemon=True).start()
    return "this code location is being loaded again"


def _ask_to_reload(origin: GrpcServerCodeLocationOrigin, timeout: int) -> None:
    try:
        origin.create_client().reload_code(timeout=timeout)
    except dg.DagsterError as err:
        logger.warning("code location %s was not loaded again: %s", origin.location_name, err)
