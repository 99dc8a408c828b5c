"""A real HTTP server on this machine, with ranges, tags and faults on demand."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Faults:
    """What goes wrong, for every request from now on."""

    status: int | None = None
    """Answer with this instead of a file."""
    cuts: list[int] = field(default_factory=list)
    """Bytes after which the next connections break off, one after the other."""
    stall: float = 0.0
    """Seconds of silence in the middle of every file."""
    tags: bool = True
    """Whether files have an ETag and a time of their last change."""
    weak_tags: bool = False
    ranges: bool = True
    """Whether parts of files can be asked for."""
    careless: bool = False
    """Whether parts are given even if the file has changed."""
    announced: int | None = None
    """A wrong Content-Length."""
    lengths: bool = True
    """Whether there is a Content-Length at all."""
    redirect: str | None = None


@dataclass
class FileServer:
    """Files by their paths, and what was asked of them."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    requests: list[tuple[str, str | None, int]] = field(default_factory=list)
    """Path, range and status of every answer."""


@contextmanager
def serve():
    """Run a server until the block ends."""
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    httpd.state = FileServer(f"http://127.0.0.1:{httpd.server_port}")
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield httpd.state
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        state = self.server.state
        faults = state.faults
        asked = self.headers.get("Range")
        content = state.files.get(self.path)
        status = faults.status or (302 if faults.redirect else 404 if content is None else 200)
        if status != 200:
            return self.answer_without_file(status, asked)
        tag = f'{"W/" if faults.weak_tags else ""}"{hashlib.md5(content).hexdigest()}"'
        changed = f"Mon, 16 Nov 2026 10:00:{len(content) % 60:02} GMT"
        first = self.first_byte(asked, tag, changed)
        if first >= len(content) and first:
            return self.answer_without_file(416, asked)
        self.log_answer(206 if first else 200, asked)
        self.send_response(206 if first else 200)
        if faults.tags:
            self.send_header("ETag", tag)
            self.send_header("Last-Modified", changed)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        if faults.lengths:
            self.send_header("Content-Length", str(faults.announced or len(content) - first))
        self.send_header("Connection", "close")
        self.end_headers()
        self.send_bytes(content[first:])
        return None

    def first_byte(self, asked, tag, changed):
        if asked is None or not self.server.state.faults.ranges:
            return 0
        careless = self.server.state.faults.careless
        if self.headers.get("If-Range") not in (tag, changed) and not careless:
            return 0
        return int(re.fullmatch(r"bytes=(\d+)-", asked)[1])

    def send_bytes(self, content):
        faults = self.server.state.faults
        cut = faults.cuts.pop(0) if faults.cuts else len(content)
        half = min(cut, len(content)) // 2
        try:
            self.wfile.write(content[:half])
            self.wfile.flush()
            time.sleep(faults.stall)
            self.wfile.write(content[half:cut])
        except OSError:  # the other side has lost its patience
            pass
        self.close_connection = True

    def answer_without_file(self, status, asked):
        self.log_answer(status, asked)
        self.send_response(status)
        if self.server.state.faults.redirect and status == 302:
            self.send_header("Location", self.server.state.faults.redirect)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def log_answer(self, status, asked):
        self.server.state.requests.append((self.path, asked, status))

    def log_message(self, *arguments):
        pass
