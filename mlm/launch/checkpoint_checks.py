"""What can be said of a checkpoint by itself, and of its tokenizer beside another one. No torch."""

from __future__ import annotations

from mlm.checkpoint.folder import newest
from mlm.checkpoint.locate import Checkpoint
from mlm.checkpoint.manifest import damage
from mlm.data.prepared import PreparedData
from mlm.errors import ConfigError, Problem


def sentences(key: str, checkpoint: Checkpoint, *, contents: bool) -> list[Problem]:
    """What is damaged, each as a problem that names the file."""
    found = damage(checkpoint.directory, contents=contents)
    if not found:
        return []
    others = [path for path in (newest(checkpoint.directory.parent, contents=contents).directory,) if path]
    remedy = f"the newest whole one there is {others[0]}" if others else "use another checkpoint"
    where, inside = f"{key}={checkpoint.directory}", f"{checkpoint.directory}/"
    return [Problem(where, f"is damaged: {sentence.replace(inside, '')}", remedy) for sentence in found]


def other_tokenizer(checkpoint: Checkpoint, data: PreparedData) -> list[Problem]:
    """Whether the data were encoded as those that the checkpoint learned with."""
    before, now = data_of(checkpoint).tokenizer, data.tokenizer
    if before["fingerprint"] == now["fingerprint"]:
        return []
    wrong = f"gives other ids than the {before['kind']} tokenizer that {checkpoint.directory} learned with"
    remedy = f"use tokenizer={before['kind']}"
    if before["kind"] == now["kind"]:
        remedy = "use the text, or the file of the tokenizer, of that run"
    return [Problem(f"tokenizer.kind={now['kind']}", wrong, remedy)]


def data_of(checkpoint: Checkpoint) -> PreparedData:
    """Raises ConfigError when its data.json is not what it has to be."""
    path = checkpoint.data_path
    try:
        return PreparedData.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        wrong = f"does not describe the data of the run ({type(error).__name__}: {error})"
        raise ConfigError(Problem(str(path), wrong, "use another checkpoint")) from None
