# Loligo. `make help` lists what there is. Each target installs what it needs and is missing (with apt; as root or
# with sudo), so a bare Debian 12 with a Rust toolchain is enough.

SHELL := /bin/bash
PREFIX ?= /usr/local
BIN = $(or $(CARGO_TARGET_DIR),target)/release/loligo

.PHONY: help demo demo-ceph test test-vm test-releases test-aarch64 build install deb lint fmt deny clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: ## build, then show a slow disk before and after (under 4 minutes once built)
	@scripts/build.sh fio
	@exec $(BIN) demo

demo-ceph: ## build, install Ceph's packages where missing, then show an RBD image before and after (about 6 minutes once built)
	@scripts/build.sh fio ceph-mon ceph-osd ceph-mgr ceph-common librbd1
	@exec $(BIN) demo ceph

test: ## every test; the last line counts them. FUZZ_S=60 and LOLIGO_SEEDS=N run longer
	@scripts/test.sh

test-vm: ## ublk, the kernel's own caches, and fences on LIO in a small virtual machine (kernel 6.12); LOLIGO_LONG=1 runs longer
	@scripts/test-vm.sh

test-releases: ## the RBD, OSD and tuner suites on Ceph 18.2 and 20.2, in roots of Debian 13 and sid (root; FILTER=name, SUITES=rbd)
	@scripts/test-releases.sh

test-aarch64: ## the program built for aarch64, and tests of block, cache and sim under qemu-user (LOLIGO_SEEDS=N); LOLIGO_LONG=1: pages of 16 KiB, too
	@mkdir -p $(or $(CARGO_TARGET_DIR),target); scripts/test-aarch64.sh | tee $(or $(CARGO_TARGET_DIR),target)/test-aarch64.log; \
	awk -f scripts/tally.awk $(or $(CARGO_TARGET_DIR),target)/test-aarch64.log

build: ## the program, in target/release/loligo
	@scripts/build.sh

install: build ## build, and install program, man pages, unit and udev rule below PREFIX (default /usr/local; DESTDIR too)
	@d=$(DESTDIR)$(PREFIX); \
	if [ -w "$$d" ] || { [ ! -e "$$d" ] && [ "$$(id -u)" = 0 ]; } || [ -n "$(DESTDIR)" ]; \
	then DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" scripts/install.sh $(BIN); \
	else sudo env PREFIX="$(PREFIX)" scripts/install.sh "$$(realpath $(BIN))"; fi

deb: build ## build, and make a Debian package beside it
	@scripts/deb.sh $(BIN) "$(dir $(BIN))"

lint: ## format check and clippy, warnings are errors
	@. scripts/need.sh; need_build; cargo fmt --all --check && cargo clippy --workspace --all-targets -- -D warnings

fmt: ## format all code
	@cargo fmt --all

deny: ## licences and advisories of all dependencies (needs cargo-deny)
	@command -v cargo-deny >/dev/null || { echo "cargo-deny is missing: cargo install --locked cargo-deny" >&2; exit 1; }
	@cargo deny check

clean: ## remove everything that was built
	@cargo clean
