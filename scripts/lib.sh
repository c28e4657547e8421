# The common part of the scripts: paths, messages, and the Rust to use. Sourced, not run.
# shellcheck shell=bash

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# The build folder holds all that is made: nothing else in the checkout changes.
build=${CARGO_TARGET_DIR:-$root/target}
case $build in
    /*) ;;
    *) build=$PWD/$build ;;
esac
export CARGO_TARGET_DIR=$build

# A service of an init system may have no HOME; cargo, rustup, Go and npm keep their files there.
if [ -z "${HOME:-}" ]; then
    HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
    export HOME
fi

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "error: $*"
    exit 1
}

# Whether version $1 is at least version $2.
version_at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# The oldest Rust that the workspace builds with.
rust_needed() {
    sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$root/Cargo.toml"
}

# shellcheck disable=SC2030,SC2031 # what is tried in a subshell is set when it was good
# Puts a Rust that is new enough in front: the one on the PATH, else rustup's, else rustup's stable one. False if there
# is none. Somebody's default toolchain is left as it is.
use_rust() {
    local folder toolchain have needed
    needed=$(rust_needed)
    for folder in "" "${CARGO_HOME:-$HOME/.cargo}/bin"; do
        for toolchain in "${RUSTUP_TOOLCHAIN:-}" stable; do
            # Asking for a toolchain that is not there must not install it unannounced.
            have=$(
                PATH=${folder:+$folder:}$PATH
                if [ "$toolchain" = stable ] && ! rustup toolchain list 2>/dev/null | grep -q '^stable'; then exit; fi
                if [ -n "$toolchain" ]; then export RUSTUP_TOOLCHAIN=$toolchain; fi
                RUSTUP_AUTO_INSTALL=0 cargo --version 2>/dev/null | cut -d ' ' -f 2
            ) || true
            if [ -n "$have" ] && version_at_least "$have" "$needed"; then
                export PATH="${folder:+$folder:}$PATH"
                if [ -n "$toolchain" ]; then export RUSTUP_TOOLCHAIN=$toolchain; fi
                return 0
            fi
        done
    done
    return 1
}

# The files of the repository, without what is ignored; works in a copy without git, too.
repository_files() {
    if git -C "$root" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git -C "$root" ls-files --cached --others --exclude-standard
    else
        (cd "$root" && find . -type f -not -path './target/*' -not -path './.git/*' | sed 's|^\./||')
    fi
}
