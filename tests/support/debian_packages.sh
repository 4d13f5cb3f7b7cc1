# Packages of another Debian release, for scripts that source this: downloaded through a private apt state and unpacked,
# which touches nothing of the machine's own package manager.

readonly unavailable=75

# Say on stderr what cannot be had, and exit with the status that means so.
cannot_be_had() { echo "$(basename "$(dirname "$0")"): $*" >&2; exit "$unavailable"; }

# unpack_debian RELEASE FOLDER PACKAGE...: unpack the packages, without what they depend on, into FOLDER.
unpack_debian() {
    local release=$1 folder=$2 state keyring mirror apt deb
    shift 2
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || cannot_be_had "no apt-get on this machine"
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    [[ -r $keyring ]] || cannot_be_had "no Debian archive keyring on this machine"
    mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
    [[ -n $mirror ]] || mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list 2>/dev/null | head -n 1)

    state=$(mktemp -d -p "$PWD")
    mkdir -p "$state"/{lists,cache/archives}/partial "$state/debs" "$folder"
    : >"$state/status"
    echo "deb [signed-by=$keyring] ${mirror:-http://deb.debian.org/debian} $release main" >"$state/sources.list"
    apt=(-q -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$state/lists"
        -o Dir::Cache="$state/cache" -o Dir::State::status="$state/status" -o APT::Sandbox::User=
        -o APT::Update::Error-Mode=any -o Acquire::Languages=none)
    apt-get "${apt[@]}" update || cannot_be_had "the package lists of Debian $release cannot be had"
    (cd "$state/debs" && apt-get "${apt[@]}" download "$@") || cannot_be_had "a package of Debian $release cannot be had"
    for deb in "$state"/debs/*.deb; do dpkg-deb -x "$deb" "$folder"; done
    rm -rf "$state"
}

# fetch_program OUTPUT RELEASE PACKAGE PATH: unpack a package, or several with blanks between, and keep one program or folder of
# it. A second call waits for the first.
fetch_program() {
    local output=$1 release=$2 packages path=$4
    read -ra packages <<<"$3"
    mkdir -p "$(dirname "$output")"
    exec 9>"$output.lock"
    flock 9
    [[ -x $output ]] && return
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    unpack_debian "$release" "$work/unpacked" "${packages[@]}"
    mv "$work/unpacked/$path" "$output.new"
    mv "$output.new" "$output"
}
