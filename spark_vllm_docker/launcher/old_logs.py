"""Before a container is replaced, its log is kept as a file: a log is never lost."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

from spark_vllm_docker.engine.protocol import Deployed, Engine

KEPT = 5


def find_log_folder(environ: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/spark-recipe/logs`."""
    home = environ.get("XDG_STATE_HOME") or str(
        Path(environ.get("HOME", "~")).expanduser() / ".local/state"
    )
    return Path(home) / "spark-recipe" / "logs"


def save_log(engine: Engine, deployed: Deployed, environ: Mapping[str, str]) -> Path:
    """Write the whole log to a file that only the user can read; keep the last few of each name."""
    folder = find_log_folder(environ)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    moment = time.strftime("%Y%m%d-%H%M%S", time.localtime(deployed.started_at or None))
    path = folder / f"{deployed.name}.{moment}.log"
    path.touch(mode=0o600)
    with path.open("wb") as file:
        for chunk in engine.follow_log(deployed.id, follow=False):
            file.write(chunk)
    own = re.compile(re.escape(deployed.name) + r"\.\d{8}-\d{6}\.log")
    others = sorted(p for p in folder.iterdir() if own.fullmatch(p.name) and p != path)
    for old in others[: -(KEPT - 1)]:
        old.unlink(missing_ok=True)
    return path
