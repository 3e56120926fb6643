"""The sensor of a source connector: looks for objects that came since the last restore, and asks for a run of them."""

import hashlib
import json

import dagster as dg
from dagster._grpc.utils import default_sensor_grpc_timeout

from kafka_s3_platform.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.defs.foreign import EVERY_TOPIC, foreign_key, foreign_op, poll_sensor_name
from kafka_s3_platform.defs.jobs import Job
from kafka_s3_platform.defs.runs import reason_to_wait, request, unfinished
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.restore.chain import Polls

SHARE = 2 / 3
"""How much of the time that Dagster gives a tick may go by until no further answer is waited for."""


def poll_sensor(config: ConnectorConfig, job: Job) -> dg.SensorDefinition:
    """One connector's sensor, which asks for runs of its restore job. It is always turned on by hand: runs send."""
    topics, name = ArchivedTopic(config, EVERY_TOPIC), config.name
    interval_ms = (config.source or SourceSettings()).poll_interval_ms

    @dg.sensor(
        name=poll_sensor_name(name),
        job=job,
        minimum_interval_seconds=-(-interval_ms // 1000),
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=(
            f"Looks every {interval_ms / 1000:g} s for objects that no restore poll.{name}.1, poll.{name}.2 and so on "
            f"has sent, and asks for the next of them. The first one sends all that there is. While one is under way, "
            f"or has failed, no other is asked for; one that failed goes on under its own id."
        ),
    )
    def poll(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        # a tick that lists millions of objects is given more time by Dagster's own setting
        seconds = default_sensor_grpc_timeout() * SHARE
        tick = Tick(json.loads(context.cursor or "{}"), context.log, seconds)
        tick.each("poll", [topics], lambda found: ask(context.instance, found, job.name, tick))
        return tick.result()

    return poll


def ask(instance: dg.DagsterInstance, topics: ArchivedTopic, job_name: str, tick: Tick) -> None:
    """Ask for the newest restore where it is not finished, else for the next one where there is anything new.

    The cursor only spares a listing: what was sent is known by the documents of the restores.
    """
    polls, key = Polls(topics.config), foreign_key(topics.config.name)
    seen = tick.cursor.get(EVERY_TOPIC, 0)
    newest = tick.read("which restores there are", lambda: polls.newest(seen))
    if newest:
        tick.cursor[EVERY_TOPIC] = newest
    last = polls.restore_id(newest)
    is_open = bool(newest) and not tick.read(f"the report of restore {last}", lambda: polls.is_finished(newest))
    number = newest if is_open else newest + 1
    restore_id = polls.restore_id(number)
    fingerprint = hashlib.sha256(json.dumps([topics.config_digest, restore_id]).encode()).hexdigest()[:16]
    if runs := unfinished(instance, key):
        tick.reasons.append(f"restore {restore_id}: run {runs[0].run_id} is queued or under way")
    elif reason := reason_to_wait(instance, key, fingerprint):
        tick.reasons.append(f"restore {restore_id}: {reason}")
    elif is_open or _is_anything_new(polls, newest, tick):
        after = {"after": polls.restore_id(number - 1)} if number > 1 else {}
        config = {"ops": {foreign_op(topics.config.name): {"config": {"restore_id": restore_id, **after}}}}
        tick.requests.append(request(instance, key, job_name, [], fingerprint, config))


def _is_anything_new(polls: Polls, newest: int, tick: Tick) -> bool:
    unsent = tick.read("which objects there are", lambda: polls.new_objects(newest))
    if not unsent.objects:
        since = f"no new object since restore {polls.restore_id(newest)}" if newest else "there are no objects"
        tick.reasons.extend([since, *unsent.notes])
    return bool(unsent.objects)
