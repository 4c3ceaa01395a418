"""A container registry on loopback that serves one image, or misbehaves. Docker trusts 127.0.0.0/8."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _layer(number: int, size: int) -> tuple[bytes, bytes]:
    """A layer with one file of noise, as tar and as gzip."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        noise = hashlib.shake_256(bytes([number])).digest(size)
        entry = tarfile.TarInfo(f"file{number}")
        entry.size = size
        archive.addfile(entry, io.BytesIO(noise))
    return raw.getvalue(), gzip.compress(raw.getvalue(), 1)


class Image:
    def __init__(self, layers: int = 3, size: int = 2_000_000) -> None:
        made = [_layer(number, size) for number in range(layers)]
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Labels": {"made-by": "tests"}},
            "rootfs": {"type": "layers", "diff_ids": [_digest(raw) for raw, _ in made]},
        }
        self.config = json.dumps(config).encode()
        self.blobs = {_digest(packed): packed for _, packed in made}
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {
                    "mediaType": "application/vnd.docker.container.image.v1+json",
                    "size": len(self.config),
                    "digest": _digest(self.config),
                },
                "layers": [
                    {
                        "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
                        "size": len(packed),
                        "digest": digest,
                    }
                    for digest, packed in self.blobs.items()
                ],
            }
        ).encode()
        self.blobs[_digest(self.config)] = self.config


@contextmanager
def serve_registry(image: Image, *, corrupt: bool = False, slow_s: float = 0.0) -> Iterator[str]:
    """Gives `127.0.0.1:port`. `corrupt` sends other bytes than promised, `slow_s` delays each layer."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(with_body=True)

        def do_HEAD(self) -> None:
            self.answer(with_body=False)

        def answer(self, *, with_body: bool) -> None:
            kind, body, status = "application/json", b"{}", 200
            if "/manifests/" in self.path and "/app/" in self.path:
                kind, body = MANIFEST, image.manifest
            elif "/blobs/" in self.path:
                kind, body = "application/octet-stream", image.blobs[self.path.rpartition("/")[2]]
                if corrupt and len(body) > 100_000:
                    body = bytes(len(body))
            elif self.path != "/v2/":
                error = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
                body, status = json.dumps(error).encode(), 404
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Content-Digest", _digest(body))
            self.end_headers()
            if not with_body:
                return
            half = len(body) // 2
            self.wfile.write(body[:half])
            if slow_s and len(body) > 100_000:
                self.wfile.flush()
                time.sleep(slow_s)
            self.wfile.write(body[half:])

        def log_message(self, form: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
