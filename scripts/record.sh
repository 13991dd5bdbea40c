#!/usr/bin/env bash
# Records the cases on this machine's GPU: scripts/record.sh FOLDER
# Needs the examples built in release (`make demo` builds them) and, where the libtorch they were
# built against is not the one to use, LD_LIBRARY_PATH.
set -euo pipefail
folder=${1:?expected a folder for the reports}
examples=$(dirname "$0")/../target/release/examples
record() {
    local name=$1 case=$2
    shift 2
    "$examples/$case" --device cuda:0 --output "$folder/$name.json" "$@"
}
record alpha alpha
record beta beta
record gamma gamma
record control control
record gamma-fixed gamma --fixed
record beta-medium beta --preset medium --batch-size-per-device 1
record alpha-batch16 alpha --batch-size-per-device 16
