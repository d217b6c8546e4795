#!/bin/bash
# Run test files that ship in the apache-beam wheel and use TestPipeline() against
# any portable runner: a fresh server for each file.
#   run_wheel.sh BINARY OUTDIR FILE...      FILE below apache_beam/, as in
#                                           transforms/trigger_test.py[::Class]
#   run_wheel.sh DirectRunner|FnApiRunner OUTDIR FILE...   the same on one of Python's own
# Environment: VENV (virtual environment with requirements.txt), ENV_TYPE, MARK
#   (pytest -m), TEST_TIMEOUT (seconds), EXTRA_OPTS (more pipeline options),
#   SERVER_OPTS (more words for BINARY), PYTEST_ARGS.
# OUTDIR/table.tsv: see junit2tab.py. OUTDIR/log.txt: what pytest and the servers say.
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
VENV=${VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/purlin/python-beam-2.77.0}
BINARY=$1 OUT=$2; shift 2
mkdir -p "$OUT"; OUT=$(cd "$OUT" && pwd); rm -f "$OUT"/*.xml; : >"$OUT/log.txt"; : >"$OUT/table.tsv"
export PYTHONPATH=$HERE GRPC_ENABLE_FORK_SUPPORT=false VENV VIRTUAL_ENV=$VENV
BEAM=$("$VENV/bin/python" -c 'import importlib.util as u; print(u.find_spec("apache_beam").submodule_search_locations[0])') || exit 2
server=
trap '[ -z "$server" ] || kill $server 2>/dev/null' EXIT
start() {
  port=$("$VENV/bin/python" -c 'import socket; s = socket.socket(); s.bind(("localhost", 0)); print(s.getsockname()[1])')
  "$BINARY" --job_port "$port" --serve_http=false ${SERVER_OPTS:-} >>"$OUT/log.txt" 2>&1 &
  server=$!
  for _ in $(seq 100); do (exec 3<>"/dev/tcp/localhost/$port") 2>/dev/null && return; sleep 0.1; done
  echo "the server does not start" >&2; exit 2
}
for file in "$@"; do
  options=--runner=$BINARY
  if [ -x "$BINARY" ]; then
    start
    options="--runner=PortableRunner --job_endpoint=localhost:$port --environment_type=${ENV_TYPE:-LOOPBACK} ${EXTRA_OPTS:-}"
    [ "${ENV_TYPE:-}" != PROCESS ] || options="$options --environment_options=process_command=$HERE/../../../examples/boot/python.sh"
  fi
  results=$OUT/${file//[\/:]/_}.xml
  (cd "$OUT" && "$VENV/bin/python" -m pytest -p beamopts -p beamjobs -c "$HERE/pytest.ini" --rootdir "$HERE" -q -rfE --tb=native \
    --timeout "${TEST_TIMEOUT:-60}" --timeout-method signal --junitxml "$results" ${MARK:+-m "$MARK"} \
    "--test-pipeline-options=$options" ${PYTEST_ARGS:-} "$BEAM/$file" >>"$OUT/log.txt" 2>&1 </dev/null)
  ended=$?
  "$VENV/bin/python" "$HERE/junit2tab.py" "$results" >"$OUT/one.tsv" || echo "$file: no results, pytest ended with $ended" >&2
  cat "$OUT/one.tsv" >>"$OUT/table.tsv"
  echo "$file: $(cut -f3 "$OUT/one.tsv" | sort | uniq -c | tr -s ' \n' ' ')"
  if [ -n "$server" ]; then
    kill -0 $server 2>/dev/null || { printf '%s\tserver\tDIED\n' "$file" >>"$OUT/table.tsv"; echo "  the server has died"; }
    kill $server 2>/dev/null; wait $server 2>/dev/null; server=
  fi
done
rm -f "$OUT/one.tsv"
