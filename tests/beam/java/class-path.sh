#!/bin/bash
# class-path.sh: builds the Java pipelines and prints the class path of all that they need, Beam's harness too.
# Needs Maven and a JDK from 11 on; what it builds is kept below ~/.cache/purlin until the sources change.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
DIR=${XDG_CACHE_HOME:-$HOME/.cache}/purlin/java-wordcount
mkdir -p "$DIR"
# Tests run side by side, and build it once.
exec 9>"$DIR/lock"
flock 9
sources=$(cd "$HERE/wordcount" && find . -type f | LC_ALL=C sort | xargs cat | sha256sum)
if [ "$(cat "$DIR/built" 2>/dev/null)" != "$sources" ]; then
  cp -r "$HERE/wordcount/." "$DIR/"; chmod -R u+w "$DIR"
  (cd "$DIR" && mvn -B -ntp -q package dependency:build-classpath -Dmdep.outputFile=target/cp.txt >&2)
  echo "$sources" >"$DIR/built"
fi
echo "$DIR/target/java-wordcount-1.jar:$(cat "$DIR/target/cp.txt")"
