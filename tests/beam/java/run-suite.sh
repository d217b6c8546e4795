#!/bin/bash
# run-suite.sh HOST:PORT OUTDIR [maven options...]: Beam's Java ValidatesRunner tests, unmodified and with no category left out,
# against a running job endpoint, with the harness in the tests' own process (LOOPBACK).
#   run-suite.sh localhost:8073 /tmp/out
#   run-suite.sh localhost:8073 /tmp/out -Dtest='GroupByKeyTest*' -DpipelineTimeoutSecs=120
# Needs Maven, a JDK from 11 on and 3 GB. OUTDIR/table.tsv: class, method, verdict, seconds, categories, reason; a test that did not
# end is only STARTED. OUTDIR/log.txt: what Maven says. It is built in OUTDIR; Maven keeps what it fetches where it always does.
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
ENDPOINT=$1 OUT=$2; shift 2
mkdir -p "$OUT"; OUT=$(cd "$OUT" && pwd); rm -f "$OUT/table.tsv"
cp -r "$HERE/suite" "$OUT/"; chmod -R u+w "$OUT/suite"
(cd "$OUT/suite" && mvn -B -ntp test -DjobEndpoint="$ENDPOINT" -Dtable="$OUT/table.tsv" -Dsurefire.failIfNoSpecifiedTests=false "$@") \
  >"$OUT/log.txt" 2>&1
ended=$?
# The last line about a test is its verdict.
awk -F'\t' '{ last[$1 "." $2] = $3 } END { for (test in last) count[last[test]]++; for (v in count) printf "%d %s ", count[v], v; print "" }' \
  "$OUT/table.tsv"
exit $ended
