"""Run lm-evaluation-harness's `wikitext` and `lambada_openai` on one of our checkpoints, in its own process.

    python -W ignore -m tests.e2e.harness CHECKPOINT PAGES.jsonl LAMBADA.jsonl

prints its results as one JSON line. The model and its tokenizer are what transformers makes of our export,
the task definitions the harness's own but for their data, which are local files.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def main(checkpoint: str, pages: str, lambada: str) -> dict[str, Any]:
    import lm_eval

    model, tasks = transformers_model(checkpoint), published_tasks(pages, lambada)
    results = lm_eval.simple_evaluate(model=model, tasks=tasks, bootstrap_iters=0, log_samples=False)
    return {task: dict(figures) for task, figures in results["results"].items()}


def transformers_model(checkpoint: str) -> Any:
    """The harness's own model, of what is exported of our checkpoint to Hugging Face's format."""
    from lm_eval.models.huggingface import HFLM

    from mlm.checkpoint.locate import resolve_checkpoint
    from mlm.convert.exporting import outgoing
    from mlm.convert.huggingface.export import export

    with TemporaryDirectory() as folder:
        out = Path(folder) / "exported"
        export(out, outgoing(resolve_checkpoint(checkpoint)))
        return HFLM(pretrained=str(out), batch_size=4, device="cpu", dtype="float32")


def published_tasks(pages: str, lambada: str) -> list[dict[str, Any]]:
    """The harness's `wikitext` and `lambada_openai` on local files."""
    import lm_eval
    from lm_eval.tasks.wikitext.preprocess_wikitext import process_results, wikitext_detokenizer

    own = Path(lm_eval.__file__).parent / "tasks"
    wikitext = definition(own / "wikitext" / "wikitext.yaml", pages) | {
        "doc_to_target": wikitext_detokenizer,
        "process_results": process_results,
    }
    return [wikitext, definition(own / "lambada" / "lambada_openai.yaml", lambada)]


def definition(path: Path, data: str) -> dict[str, Any]:
    """A task of the harness on a local JSON lines file; its functions are for the caller to put back."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("!function", lambda loader, suffix, node: None)
    task: dict[str, Any] = yaml.load(path.read_text(), Loader)
    for name in ("dataset_name", "training_split", "validation_split", "tag"):
        task.pop(name, None)
    return task | {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": data}}}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:]), default=str))
