"""Keeps one server process: `python -m spark_vllm_docker.engine.supervisor FOLDER ARGV…`.

It returns 0 to its caller as soon as the server runs and goes on in the background: the server's
output goes to FOLDER/log, its end to FOLDER/exit.json. When the main process ends, what it left in
its process group is killed, as a container does. Uses the standard library only: it lives as long
as the server.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def main(argv: list[str]) -> int:
    folder, command = Path(argv[1]), argv[2:]
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as answer:
            error = answer.read()
        if error:
            sys.stderr.write(error)
        return 1 if error else 0
    os.close(reading)
    os.setsid()
    if os.fork():
        os._exit(0)
    try:
        _supervise(folder, command, writing)
    finally:
        os._exit(0)


def _supervise(folder: Path, command: list[str], answer: int) -> None:
    environ = dict(os.environ)
    environ["PYTHONPATH"] = environ.pop("SPARK_RECIPE_PYTHONPATH", "")
    if not environ["PYTHONPATH"]:
        del environ["PYTHONPATH"]
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    # The terminal's signals and a stop of the group are for the server; the supervisor sees its
    # end.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    with (folder / "log").open("ab", buffering=0) as log:
        try:
            server = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environ,
                start_new_session=True,
                preexec_fn=_default_signals,  # noqa: PLW1509 - there are no threads here
            )
        except OSError as error:
            os.write(answer, f"{error.strerror}: {command[0]}".encode())
            return
    try:
        identities = {"supervisor": _identity(os.getpid()), "server": _identity(server.pid)}
        _write(folder / "running.json", identities)
    except OSError as error:  # a server that nobody could find again must not run
        os.killpg(server.pid, signal.SIGKILL)
        os.write(answer, f"{folder} cannot be written: {error.strerror}".encode())
        return
    os.close(answer)
    code = server.wait()
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    _write(folder / "exit.json", {"code": code if code >= 0 else 128 - code})


def _default_signals() -> None:
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)


def _identity(pid: int) -> dict[str, int]:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return {"pid": pid, "started_ticks": int(stat.rpartition(")")[2].split()[19])}


def _write(path: Path, data: object) -> None:
    if not path.parent.is_dir():  # removed while the server ended
        return
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data), encoding="utf-8")
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
