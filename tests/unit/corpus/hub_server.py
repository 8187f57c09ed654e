"""A Hugging Face hub of a few files on this machine: what hf_hub_download asks for, answered over HTTP."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import unquote

from tests.unit.corpus.web_server import QuietHandler, serving

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub_server(
    files: Mapping[str, bytes], stated: Mapping[str, str] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Serve files by "REPOSITORY/PATH"; the endpoint's URL, and the requests as they come.

    stated: sha256 to claim for a file instead of its own.
    """
    requests: list[str] = []

    class Handler(QuietHandler):
        def answer(self, with_body: bool) -> None:
            requests.append(f"{self.command} {self.path}")
            repository, _, rest = unquote(self.path).removeprefix("/datasets/").partition("/resolve/")
            key = f"{repository}/{rest.partition('/')[2]}"
            body = files.get(key)
            if body is None:
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            sha256 = (stated or {}).get(key) or hashlib.sha256(body).hexdigest()
            self.send_response(200)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{sha256}"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

    with serving(Handler) as url:
        yield url, requests
