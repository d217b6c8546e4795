#!/bin/bash
# run.sh [PURLIN] [SCALE]: measures Purlin, Prism and the Python SDK's own runner side by side, in Python and in Go, and prints
# medians of three with ratios. PURLIN is the binary (default: what `cargo xtask` has built), SCALE is 1 or less.
# Environment: SDKS ("python go"), CASES ("map5,gbk,..."), REPEAT (3). Results are kept beside the caches.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(dirname "$HERE")
PURLIN=${1:-${CARGO_TARGET_DIR:-$ROOT/target}/release/purlin} SCALE=${2:-1}
CASES=${CASES:-map5,gbk,reshuffle,combine,wordcount}
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/purlin
OUT=$CACHE/benches
[ -x "$PURLIN" ] || { echo "no binary $PURLIN: \`cargo xtask demo\` builds one" >&2; exit 2; }
export PURLIN=$(readlink -f "$PURLIN")
mkdir -p "$OUT"

# Prism and the Go pipelines, at the versions of go/go.mod.
(cd "$HERE/go" && go build -o "$OUT/gobench" . && go build -o "$OUT/prism" github.com/apache/beam/sdks/v2/go/cmd/prism)

# Python with Beam: the environment of the tests, made when it is not there.
PYTHON=${PURLIN_PYTHON:-$CACHE/python-beam-2.77.0/bin/python}
if [ ! -x "$PYTHON" ]; then
  python3 -m venv "$CACHE/python-beam-2.77.0"
  "$PYTHON" -m pip install -q -r "$ROOT/tests/beam/python/requirements.txt"
  printf 2.77.0 >"$CACHE/python-beam-2.77.0/complete"
fi

RESULTS=$OUT/$(date +%Y%m%d-%H%M%S).jsonl
for sdk in ${SDKS:-python go}; do
  "$PYTHON" "$HERE/baseline.py" --sdk "$sdk" --case "$CASES" --scale "$SCALE" --repeat "${REPEAT:-3}" \
    --runner "purlin=$PURLIN" --runner "prism=$OUT/prism" --runner fnapi | tee -a "$RESULTS" >&2
done
"$PYTHON" "$HERE/baseline.py" --table "$RESULTS"
echo "$RESULTS"
