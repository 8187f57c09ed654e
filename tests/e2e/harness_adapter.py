"""Run tasks of lm-evaluation-harness on a checkpoint of ours: on transformers' model, and on our own adapter.

    python -W ignore -m tests.e2e.harness_adapter CHECKPOINT FOLDER

prints one JSON line: by model (`hf`, `tp=1`, `tp=2`) the figures and answers of each task, and the answers to
single requests with their edges. FOLDER holds pages.jsonl, lambada.jsonl, choices.jsonl and stories.jsonl.
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
            "generation_kwargs": {"until": ["\n\n", " of"], "max_gen_toks": 24, "do_sample": False},
            "metric_list": [{"metric": "exact_match"}],
        },
    ]
    hf = harness.transformers_model(checkpoint)
    found = {"hf": {**evaluated(lm_eval, hf, tasks), "single": (edges := single(hf, None))}}
    for tp in (1, 2):
        model = MlmLM(checkpoint=checkpoint, tp=tp)
        answers = single(model, edges["answers"][0])
        found[f"tp={tp}"] = {**evaluated(lm_eval, model, tasks), "single": answers}
        model.close()
    return found


def single(model: Any, generated: list[str] | None) -> dict[str, Any]:
    """Answers to requests with edges. generated: what transformers generates, None: what this one does."""
    from lm_eval.api.instance import Instance

    def ask(kind: str, *arguments: Any) -> Any:
        requests = [Instance(kind, {}, args, number) for number, args in enumerate(arguments)]
        return getattr(model, kind)(requests, disable_tqdm=True)

    story = "What light through yonder window breaks? It is the east, and Juliet is the sun. "
    prompts = ["ROMEO:", "O", story, story * 20, "KING RICHARD", "the house of", "1 2 3"]
    first = {"max_gen_toks": 1, "until": []}
    kinds = (
        first,
        {"max_gen_toks": 16, "until": []},
        {"max_new_tokens": 16, "until": ["e"], "temperature": 0.0},
        {"max_gen_toks": 60, "until": ["is", "a", "\n"], "do_sample": False, "temperature": 0.7},
    )
    made = ask("generate_until", *((prompt, how) for how in kinds for prompt in prompts))
    pairs = [("", "Good"), ("", " morrow to you"), ("My lord ", "Duke"), ("My lord   ", " Duke of York")]
    pairs += [(story * 20, "Arise"), ("a" * 3000, " b"), ("O", story)]
    # The likeliest token, and that with one more.
    likeliest = list(zip(prompts, (generated or made)[: len(prompts)], strict=True))
    pairs += [*likeliest, *((prompt, f"{text} Q") for prompt, text in likeliest)]
    whole = ask("loglikelihood_rolling", (story,), ("O",), (story * 20,), ("",))
    return {"figures": {}, "answers": [made, ask("loglikelihood", *pairs), whole]}


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
