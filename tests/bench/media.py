"""Numbers of `ask`, `watch` and `gateway`, each beside its reference in the same run."""

from __future__ import annotations

import base64
import concurrent.futures
import http.client
import json
import os
import statistics
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from spark_vllm_docker.media.cutting import cut_part, plan_parts
from spark_vllm_docker.media.probing import probe
from tests.conftest import ROOT, free_port
from tests.media_files import ffmpeg, make_speech, make_video

COMMAND = str(Path(sys.executable).parent / "spark-recipe")
GIB = 1 << 30


class _Drain(BaseHTTPRequestHandler):
    """Takes bodies of any size and answers one word."""

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(json.dumps({"data": [{"id": "m", "max_model_len": 8192}]}), "application/json")

    def do_POST(self) -> None:
        left = int(self.headers["Content-Length"])
        while left > 0:
            left -= len(self.rfile.read(min(left, 1 << 20)))
        choice = {"delta": {"content": "a"}, "finish_reason": "stop"}
        text = f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n"
        self._answer(text, "text/event-stream")

    def _answer(self, text: str, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def ask_memory(folder: Path) -> tuple[float, float]:
    """Peak MiB of `ask` with a video of 2 GB, and the seconds that it took."""
    path = make_video(folder / "large.mp4", 4, sound=make_speech(folder / "s.wav"))
    size = path.stat().st_size
    with path.open("r+b") as file:  # a box of free space fills it up
        file.seek(size)
        file.write(struct.pack(">I4sQ", 1, b"free", 2 * GIB - size))
        file.truncate(2 * GIB)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Drain)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    began = time.monotonic()
    process = subprocess.Popen(
        [COMMAND, "ask", "--url", url, "What?", "--video", str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # Not by wait4: what that tells begins with the memory of the process that forked.
    most = 0.0
    while process.poll() is None:
        most = max(most, _most_memory(process.pid))
        time.sleep(0.02)
    server.shutdown()
    server.server_close()
    path.unlink()
    assert process.returncode == 0
    return most, time.monotonic() - began


def _most_memory(pid: int) -> float:
    """MiB that a process has had at most; 0 when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = status.partition("VmHWM:")[2].split()
    return int(found[0]) / 1024 if found else 0.0


@contextmanager
def _stand_in(**environ: str) -> Iterator[int]:
    port = free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "uvicorn", "tests.stand_in.asgi_server:app"),
            *("--port", str(port), "--log-level", "critical"),
        ],
        cwd=ROOT,
        env={**os.environ, **environ},
    )
    _wait(port, "/v1/models")
    try:
        yield port
    finally:
        process.kill()  # it would finish what its clients have left
        process.wait()


@contextmanager
def _gateway(backend: int, *options: str) -> Iterator[tuple[int, int]]:
    """Its port and its process."""
    port = free_port()
    process = subprocess.Popen(
        [
            *(COMMAND, "gateway", "--engine", "process", "--port", str(port)),
            *("--backend", f"http://127.0.0.1:{backend}", *options),
        ],
        stderr=subprocess.DEVNULL,
    )
    _wait(port, "/health")
    try:
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def _wait(port: int, path: str) -> None:
    for _ in range(400):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"nothing answers at {port}")


def _chat(connection: http.client.HTTPConnection, content: object = "Hi") -> float:
    body = {"model": "m", "messages": [{"role": "user", "content": content}], "stream": True}
    began = time.perf_counter()
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    response = connection.getresponse()
    response.read()
    assert response.status == 200, response.status
    return time.perf_counter() - began


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, round(share * len(values)))]


def gateway_overhead(requests: int = 600) -> tuple[float, float, float]:
    """Milliseconds added to a streamed chat at the 50th and 99th percentile, and the direct time."""
    with _stand_in() as backend, _gateway(backend) as (port, _):
        direct = http.client.HTTPConnection("127.0.0.1", backend)
        through = http.client.HTTPConnection("127.0.0.1", port)
        times: dict[str, list[float]] = {"direct": [], "through": []}
        for number in range(requests):
            for name, connection in (("direct", direct), ("through", through)):
                value = _chat(connection)
                if number >= 50:
                    times[name].append(value)
        direct.close()
        through.close()
    half = 1000 * (statistics.median(times["through"]) - statistics.median(times["direct"]))
    worst = 1000 * (_percentile(times["through"], 0.99) - _percentile(times["direct"], 0.99))
    return half, worst, 1000 * statistics.median(times["direct"])


def gateway_memory(streams: int = 200) -> float:
    """Resident MiB of the gateway with open streams."""
    with (
        _stand_in(PIECE_S="0.4") as backend,
        _gateway(backend, "--text-at-once", str(streams)) as (port, pid),
    ):
        connections = [http.client.HTTPConnection("127.0.0.1", port) for _ in range(streams)]
        for connection in connections:
            body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        time.sleep(2)
        most = _most_memory(pid)
        for connection in connections:
            connection.close()
    return most


def text_beside_videos(folder: Path, requests: int = 200) -> tuple[float, float, float]:
    """99th percentile in milliseconds of short chats: alone, under a full queue of videos through
    the gateway, and under the same videos sent to the server directly.
    """
    clip = make_video(folder / "clip.mp4", 1)
    url = f"data:video/mp4;base64,{base64.b64encode(clip.read_bytes()).decode()}"
    video = [{"type": "video_url", "video_url": {"url": url}}]

    def keep_sending(port: int, stop: threading.Event) -> None:
        while not stop.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port)
            try:
                _chat(connection, video)
            except (AssertionError, OSError):
                time.sleep(0.05)
            finally:
                connection.close()

    def texts(port: int, requests: int = requests) -> float:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        values = []
        for _ in range(requests):
            values.append(_chat(connection))
            time.sleep(0.01)
        connection.close()
        return 1000 * _percentile(values, 0.99)

    found = []
    with _stand_in(PIECE_S="0.002") as backend, _gateway(backend) as (port, _):
        texts(port)
        found.append(texts(port))
        for target in (port, backend):
            stop = threading.Event()
            with concurrent.futures.ThreadPoolExecutor(9) as pool:
                for _ in range(9):
                    pool.submit(keep_sending, target, stop)
                time.sleep(1.5)
                found.append(texts(target, requests if target == port else 15))
                stop.set()
    return found[0], found[1], found[2]


def cutting_time(folder: Path) -> tuple[float, int]:
    """Seconds for planning and cutting one hour of 720p with sound, and the number of parts."""
    minute = folder / "minute.mp4"
    speech = make_speech(folder / "speech.wav")
    ffmpeg(
        *("-f", "lavfi", "-i", "testsrc2=s=1280x720:r=24", "-stream_loop", "-1", "-i", str(speech)),
        *("-t", "60", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "96"),
        *("-c:a", "aac", "-ac", "1", str(minute)),
    )
    hour = folder / "hour.mp4"
    ffmpeg("-stream_loop", "59", "-i", str(minute), "-c", "copy", str(hour))
    began = time.perf_counter()
    video = probe(hour)
    parts = plan_parts(video, 600)
    for part in parts:
        target = folder / f"part-{part.number}.mp4"
        cut_part(video, part, target)
        target.unlink()
    seconds = time.perf_counter() - began
    hour.unlink()
    return seconds, len(parts)
