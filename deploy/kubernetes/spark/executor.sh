#!/usr/bin/env bash
# Starts an executor, as the entry point of Spark's own image does. Ours has none: Spark comes with PySpark.
set -euo pipefail
spark=$(python -c 'from importlib.util import find_spec; print(*find_spec("pyspark").submodule_search_locations)')
readarray -t options < <(env | grep '^SPARK_JAVA_OPT_' | sort -t_ -k4n | cut -d= -f2-)
exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$spark/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
