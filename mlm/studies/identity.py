"""When two configurations mean the same run: a hash over everything that bears on what a run computes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

from mlm.config.fields import flatten, schema_fields
from mlm.config.schema import TrainConfig
from mlm.config.store import load_config
from mlm.errors import ConfigError

_LAUNCH_THAT_COUNTS = ("launch.device", "launch.threads")
"""The rest of `launch` says how processes come to be, not what they compute or how fast."""


def asked(config: TrainConfig) -> dict[str, Any]:
    """What a composed configuration leaves to the launcher: nulls, auto, and files of tasks to be looked for.

    What they become in config.yaml may depend on the machine the run lands on, so a run is recognised by
    having been asked for the same and by agreeing in everything else.
    """
    values = flatten(config)
    return {
        key: value
        for key, value in values.items()
        if _counts(key) and (value in (None, "auto") or key == "eval.task_paths")
    }


def config_hash(config: TrainConfig, open_values: Mapping[str, Any] | None = None) -> str:
    """sha256 of what is run: where it writes, how it is launched and who else logs it are left out.

    open_values, asked() of the composed configuration, stands in for what a resolved one has filled in:
    config_hash(composed) == config_hash(resolved, asked(composed)). Values that are their field's default are
    left out too, so that a field that a later mlm adds does not make strangers of finished runs.
    """
    values = flatten(config) | dict(open_values or {})
    fields = schema_fields()
    counted = {key: value for key, value in values.items() if _counts(key) and value != fields[key].default}
    return hashlib.sha256(json.dumps(counted, sort_keys=True, default=_as_json).encode()).hexdigest()


def is_finished(run_dir: Path, wanted: str, open_values: Mapping[str, Any]) -> bool:
    """Whether the directory holds the summary of a run of the configuration with the hash wanted."""
    if not (run_dir / "summary.json").is_file():
        return False
    try:
        return config_hash(load_config(run_dir / "config.yaml"), open_values) == wanted
    except ConfigError:
        return False


def _as_json(value: Any) -> Any:
    """An Enum by its name, an element of a list of mappings as a mapping."""
    return value.name if isinstance(value, Enum) else asdict(value)


def _counts(key: str) -> bool:
    section = key.partition(".")[0]
    if section == "launch":
        return key in _LAUNCH_THAT_COUNTS
    return key not in ("run_dir", "sweep_dir", "resume", "data.cache_dir") and section != "logger"
