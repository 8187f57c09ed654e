"""Run tasks of lm-evaluation-harness on a checkpoint of ours: on transformers' model, and on our own adapter.

    python -W ignore -m tests.e2e.harness_adapter CHECKPOINT FOLDER

prints one JSON line: by model (`hf`, `tp=1`, `tp=2`), by task, its figures and what the model answered. The
folder holds pages.jsonl, lambada.jsonl, choices.jsonl and stories.jsonl.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.e2e import harness


def main(checkpoint: str, folder: str) -> dict[str, Any]:
    import lm_eval

    from mlm.harness import MlmLM

    tasks = [
        *harness.published_tasks(f"{folder}/pages.jsonl", f"{folder}/lambada.jsonl"),
        {
            "task": "choices",
            **local(f"{folder}/choices.jsonl"),
            "output_type": "multiple_choice",
            "doc_to_text": "{{question}}",
            "doc_to_choice": "{{choices}}",
            "doc_to_target": "{{answer}}",
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
        },
        {
            "task": "stories",
            **local(f"{folder}/stories.jsonl"),
            "output_type": "generate_until",
            "doc_to_text": "{{text}}",
            "doc_to_target": "{{text}}",
            "generation_kwargs": {"until": ["\n", " the"], "max_gen_toks": 24, "do_sample": False},
            "metric_list": [{"metric": "exact_match"}],
        },
    ]
    found = {"hf": evaluated(lm_eval, harness.transformers_model(checkpoint), tasks)}
    for tp in (1, 2):
        model = MlmLM(checkpoint=checkpoint, tp=tp)
        found[f"tp={tp}"] = evaluated(lm_eval, model, tasks)
        model.close()
    return found


def local(data: str) -> dict[str, Any]:
    return {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": data}}, "test_split": "test"}


def evaluated(lm_eval: Any, model: Any, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures and answers, the numbers of each answer rounded to what two programs can agree on."""
    results = lm_eval.simple_evaluate(model=model, tasks=tasks, bootstrap_iters=0, log_samples=True)
    return {
        task: {
            "figures": {name: value for name, value in figures.items() if isinstance(value, float)},
            "answers": [sample["resps"] for sample in results["samples"][task]],
        }
        for task, figures in results["results"].items()
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:]), default=str))
