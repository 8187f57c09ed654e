"""One file from the Hugging Face hub or from its makers' address: what stands there, and the download.

Both go through the hub's own library, which takes up broken downloads and shows progress.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mlm.corpus.public.catalogue import HubFile, WebFile
from mlm.errors import ConfigError, DataError, Problem

TIMEOUT_S = 5.0
"""For the first answer. Without a network the message has to come within seconds, not after retries."""


class Unreachable(DataError):
    """Where a file is cannot be asked, or does not give it."""


@dataclass(frozen=True)
class Standing:
    """What is stated of a file. sha256: empty where none is. size: bytes, 0 where unknown."""

    size: int
    sha256: str


def library_problems(needs_parquet: bool) -> list[Problem]:
    """What has to be installed for a download; [] when all of it is."""
    from importlib.util import find_spec

    needed = ["huggingface_hub", *(["pyarrow"] if needs_parquet else [])]
    missing = [name for name in needed if find_spec(name) is None]
    if not missing:
        return []
    wrong = f"needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
    return [Problem("mlm-data fetch", wrong, "pip install 'mlm[hub]'")]


def ask(file: HubFile | WebFile) -> Standing:
    """Size and checksum of a file as its place states them. Raises Unreachable within seconds."""
    import huggingface_hub as hub

    if isinstance(file, WebFile):
        url, token = file.url, False  # the hub's token is for the hub
    else:
        url = hub.hf_hub_url(file.repository, file.path, repo_type="dataset", revision=file.revision)
        token = None
    try:
        found = hub.get_hf_file_metadata(url, token=token, timeout=TIMEOUT_S)
    except Exception as error:  # of whichever HTTP library this version of the hub's is built on
        raise Unreachable(f"{_host(url)} cannot be asked ({_reason(error)})") from None
    etag = found.etag or ""
    # For large files the hub's ETag is their sha256; for small ones git's hash, which says other things.
    return Standing(found.size or 0, etag if re.fullmatch(r"[0-9a-f]{64}", etag) else "")


def download(file: HubFile | WebFile, folder: Path) -> Path:
    """The file below folder, resumed where an earlier download into it was broken off.

    Raises Unreachable, and ConfigError where it cannot be written.
    """
    try:
        return _from_web(file, folder) if isinstance(file, WebFile) else _from_hub(file, folder)
    except OSError as error:
        # The hub's library raises subclasses of OSError of its own, which have no number.
        if error.errno is None:
            raise Unreachable(f"{file.url} broke off ({_reason(error)})") from None
        wrong = f"cannot be written ({error.strerror})"
        raise ConfigError(Problem(f"{folder}", wrong, "choose another --to")) from None
    except Exception as error:  # as above
        raise Unreachable(f"{file.url} broke off ({_reason(error)})") from None


def _from_hub(file: HubFile, folder: Path) -> Path:
    import huggingface_hub as hub

    path = hub.hf_hub_download(
        file.repository,
        file.path,
        repo_type="dataset",
        revision=file.revision,
        local_dir=folder,
        etag_timeout=TIMEOUT_S,
    )
    return Path(path)


def _from_web(file: WebFile, folder: Path) -> Path:
    from huggingface_hub.file_download import http_get

    arrived, begun = folder / file.name, folder / f"{file.name}.incomplete"
    if arrived.is_file():
        return arrived  # an archive that another file has been taken out of
    with open(begun, "ab") as out:
        if out.tell() > file.size:
            out.truncate(0)  # of another file, and nothing follows its end
            out.seek(0)
        http_get(file.url, out, resume_size=out.tell(), expected_size=file.size)
    return begun.rename(arrived)


def _host(url: str) -> str:
    return "/".join(url.split("/")[:3])


def _reason(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0].strip()
    return first or type(error).__name__
