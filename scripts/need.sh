# Sourced by the other scripts: sees to the Rust toolchain and to Debian packages. Installs nothing that is there
# already, and refreshes the package lists only when something is missing.

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        if [ -n "${CI:-}" ]; then sudo -n "$@"; else sudo "$@"; fi
    else
        return 1
    fi
}

installed() { dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed; }

# need PACKAGE...: all of them are installed afterwards; 1 where that did not work.
need() {
    local package missing=()
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        say "No apt here: make sure that your distribution's forms of these are installed: $*"
        return 0
    fi
    for package; do installed "$package" || missing+=("$package"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "Installing ${missing[*]}"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
    if ! as_root "${apt[@]}" update </dev/null >&2; then
        say "The package lists could not be refreshed; trying with those that are there."
    fi
    as_root "${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null >&2 && return 0
    say "Could not be installed: ${missing[*]}. As root: apt-get install ${missing[*]}"
    return 1
}

# 0 where `cargo` is there and as new as the workspace wants (rust-version in Cargo.toml).
rust_is_new_enough() {
    local want have
    want=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    have=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
    [ -n "$have" ] && [ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n 1)" = "$want" ]
}

need_rust() {
    case ":$PATH:" in
        *":$HOME/.cargo/bin:"*) ;;
        *) PATH="$HOME/.cargo/bin:$PATH" ;;
    esac
    rust_is_new_enough && return 0
    if command -v apt-cache >/dev/null && ! command -v rustup >/dev/null &&
        apt-cache policy rustup 2>/dev/null | grep -q 'Candidate: [0-9]'; then
        need rustup && rustup default stable >&2 || true
        rust_is_new_enough && return 0
    fi
    die "Loligo needs Rust $(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml) or newer:" \
        "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y (with rustup there: rustup update stable)"
}

# What every build needs.
need_build() {
    need build-essential pkg-config libssl-dev ca-certificates || exit 1
    need_rust
}

target_dir() { printf '%s\n' "${CARGO_TARGET_DIR:-target}"; }
