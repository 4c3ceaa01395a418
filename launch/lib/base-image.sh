#!/usr/bin/env bash
# base-image.sh BASE: make sure that a base image with Python and a C++ compiler is on the engine.
# Prints its name. BASE may be empty or an image of the user's own.
#
# No registry is needed: where BASE is not given, a Debian is put together by debootstrap from the
# host's own package mirror and imported (about 75 s, once).
set -euo pipefail

base=${1:-}
suite=${SPARK_RECIPE_DEBIAN_SUITE:-bookworm}
packages=python3,python3-venv,python3-dev,g++,libnuma1
docker=${SPARK_RECIPE_DOCKER:-docker}

say() { printf '%s\n' "$*" >&2; }

if [ -n "$base" ]; then
  "$docker" image inspect "$base" >/dev/null 2>&1 || "$docker" pull "$base" >&2
  printf '%s\n' "$base"
  exit 0
fi

key=$(printf '%s %s' "$suite" "$packages" | sha256sum | cut -c1-12)
name=spark-recipe/base:$suite-$key
if "$docker" image inspect "$name" >/dev/null 2>&1; then
  printf '%s\n' "$name"
  exit 0
fi

if ! command -v debootstrap >/dev/null 2>&1; then
  say "base image: debootstrap is missing; apt-get install debootstrap, or name an image of your own with SPARK_RECIPE_BASE"
  exit 3
fi
if [ "$(id -u)" -ne 0 ]; then
  say "base image: debootstrap needs root; run this once with sudo, or name an image of your own with SPARK_RECIPE_BASE"
  exit 3
fi

# The mirror that this host already uses, so that a site with its own mirror needs no setting.
mirror=${SPARK_RECIPE_DEBIAN_MIRROR:-}
if [ -z "$mirror" ] && command -v apt-get >/dev/null 2>&1; then
  mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 2>/dev/null |
    awk -v s="$suite" '$2 == s && $3 == "main" { print $1; exit }')
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/spark-recipe-base.XXXXXX")
trap 'rm -rf "$work"' EXIT
say "base image: debootstrap $suite with $packages"
if ! debootstrap --variant=minbase --include="$packages" "$suite" "$work/root" ${mirror:+"$mirror"} >"$work/log" 2>&1; then
  tail -n 20 "$work/log" >&2
  exit 4
fi
rm -rf "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/*
say "base image: importing $name"
tar -C "$work/root" -c . | "$docker" import --change 'CMD ["/bin/bash"]' - "$name" >/dev/null
printf '%s\n' "$name"
