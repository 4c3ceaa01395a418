# engine.sh, to be sourced: find a container engine, or install and start one.
#
# After `find_or_start_engine` the variable ENGINE is "docker" or "process", and DOCKERD_PID is the
# daemon that was started here (empty when it ran before, or when a service manager keeps it).

say() { printf '%s\n' "$*" >&2; }

docker_answers() { command -v docker >/dev/null 2>&1 && docker version >/dev/null 2>&1; }

# Runs a command as root: directly, or by a sudo that does not ask.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    sudo "$@"
  else
    return 1
  fi
}

# Installs Debian packages that are missing. apt's own output is shown only when it fails.
apt_install() {
  local missing=() package log
  for package in "$@"; do
    # A removed package that left its settings is known to dpkg, and not installed.
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null 2>&1 || return 1
  as_root true || return 1
  say "installing ${missing[*]}"
  log=$(mktemp)
  if ! { as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

find_or_start_engine() {
  ENGINE=docker DOCKERD_PID=""
  docker_answers && return 0
  # debootstrap: the base image is made from Debian's packages, no registry is needed.
  if [ "$(uname -s)" = Linux ] && apt_install docker.io debootstrap iptables; then
    start_engine && return 0
  fi
  ENGINE=process
  say "no container engine can be had here: using the process engine"
}

start_engine() {
  local log socket
  if [ -d /run/systemd/system ]; then
    as_root systemctl start docker && docker_answers && return 0
  fi
  as_root true || return 1
  log=${TMPDIR:-/tmp}/spark-recipe-dockerd.$$.log
  say "starting dockerd (its log: $log)"
  if [ "$(id -u)" -eq 0 ]; then
    setsid dockerd >"$log" 2>&1 </dev/null &
    DOCKERD_PID=$!
  else
    return 1
  fi
  for _ in $(seq 60); do
    docker_answers && return 0
    kill -0 "$DOCKERD_PID" 2>/dev/null || break
    sleep 0.5
  done
  tail -n 5 "$log" >&2
  stop_engine
  return 1
}

# Ends the daemon that `start_engine` started, and no other.
stop_engine() {
  [ -n "${DOCKERD_PID:-}" ] || return 0
  kill "$DOCKERD_PID" 2>/dev/null || true
  wait "$DOCKERD_PID" 2>/dev/null || true
  DOCKERD_PID=""
}
