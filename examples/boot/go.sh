#!/bin/sh
# The command of an environment of kind PROCESS for Go; see README.md beside it. PURLIN names the binary.
exec "${PURLIN:-purlin}" boot go "$@"
