#!/usr/bin/env bash
# kcat.sh archive|restore SERVERS TOPIC REMOTE KAFKA_PARTITIONS
# The values of a topic as lines, one object for each kafka partition, two at a time; and back. REMOTE is rclone's.
set -euo pipefail
export MODE=$1 SERVERS=$2 TOPIC=$3 REMOTE=$4

pass_on() {
  set -euo pipefail
  object="$REMOTE/partition=$1.json.gz"
  if [ "$MODE" = archive ]; then
    kcat -C -q -e -b "$SERVERS" -t "$TOPIC" -p "$1" -o beginning -f '%s\n' -X queued.min.messages=1000000 |
      gzip -1 | rclone rcat "$object"
  else
    rclone cat "$object" | gunzip | kcat -P -b "$SERVERS" -t "$TOPIC" -p "$1" -X enable.idempotence=true -X linger.ms=20
  fi
}
export -f pass_on
seq 0 $(($5 - 1)) | xargs -P 2 -I{} bash -c 'pass_on {}'
