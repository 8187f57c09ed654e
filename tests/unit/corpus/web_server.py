"""Files at plain addresses on this machine: their sizes, all of one, or what is missing of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietHandler(BaseHTTPRequestHandler):
    """Answers HEAD and GET alike, but for the body, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def answer(self, with_body: bool) -> None:
        raise NotImplementedError

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server with these answers; its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def web_server(files: Mapping[str, bytes]) -> Iterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """Serve files by path; the server's URL, and (method and path, headers) of the requests as they come."""
    requests: list[tuple[str, dict[str, str]]] = []

    class Handler(QuietHandler):
        def answer(self, with_body: bool) -> None:
            requests.append((f"{self.command} {self.path}", {k.lower(): v for k, v in self.headers.items()}))
            body = files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
            self.send_response(206 if first else 200)
            if first:
                self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - first))
            self.end_headers()
            if with_body:
                self.wfile.write(body[first:])

    with serving(Handler) as url:
        yield url, requests
