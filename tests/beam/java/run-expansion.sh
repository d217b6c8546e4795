#!/bin/bash
# run-expansion.sh PORT [pipeline options...]: Beam's Java expansion service, for pipelines in other languages that use Java's
# transforms; the options say where those run. Ends with its standard input.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
PORT=$1; shift
CP=$("$HERE/class-path.sh")
java -Xmx512m -Djava.util.logging.config.file="$HERE/wordcount/logging.properties" -cp "$CP" \
  org.apache.beam.sdk.expansion.service.ExpansionService "$PORT" "$@" </dev/null &
trap 'kill $!' EXIT
cat >/dev/null
