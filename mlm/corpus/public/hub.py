"""One file from the Hugging Face hub, through its own library: what stands there, and the download."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mlm.corpus.public.catalogue import HubFile
from mlm.errors import ConfigError, DataError, Problem

TIMEOUT_S = 5.0
"""For the first answer. Without a network the message has to come within seconds, not after retries."""


class Unreachable(DataError):
    """The hub cannot be asked, or does not give the file."""


@dataclass(frozen=True)
class Standing:
    """What the hub says of a file. sha256: empty where it states none. size: bytes, 0 where unknown."""

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


def ask(file: HubFile) -> Standing:
    """Size and checksum of a file as the hub states them. Raises Unreachable within seconds."""
    import huggingface_hub as hub

    url = hub.hf_hub_url(file.repository, file.path, repo_type="dataset", revision=file.revision)
    try:
        found = hub.get_hf_file_metadata(url, timeout=TIMEOUT_S)
    except Exception as error:  # of whichever HTTP library this version of the hub's is built on
        raise Unreachable(f"{_host(url)} cannot be asked ({_reason(error)})") from None
    etag = found.etag or ""
    # For large files the hub's ETag is their sha256; for small ones git's hash, which says other things.
    return Standing(found.size or 0, etag if re.fullmatch(r"[0-9a-f]{64}", etag) else "")


def download(file: HubFile, folder: Path) -> Path:
    """The file below folder, resumed where an earlier download into it was broken off. Raises Unreachable."""
    import huggingface_hub as hub

    try:
        path = hub.hf_hub_download(
            file.repository,
            file.path,
            repo_type="dataset",
            revision=file.revision,
            local_dir=folder,
            etag_timeout=TIMEOUT_S,
        )
    except OSError as error:
        if error.errno is None:
            raise Unreachable(f"{file.url} broke off ({_reason(error)})") from None
        where = f"{folder}"
        raise ConfigError(
            Problem(where, f"cannot be written ({error.strerror})", "choose another --to")
        ) from None
    except Exception as error:  # as above
        raise Unreachable(f"{file.url} broke off ({_reason(error)})") from None
    return Path(path)


def _host(url: str) -> str:
    return "/".join(url.split("/")[:3])


def _reason(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0].strip()
    return first or type(error).__name__
