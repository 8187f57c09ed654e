"""The model `mlm` of lm-evaluation-harness: requests as ids to our workers, answers as it wants them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import simple_parse_args_string
from tqdm import tqdm

from mlm.data.tokenizers import Tokenizer
from mlm.errors import DataError
from mlm.eval.encode import encode
from mlm.eval.locate import read_tokenizer
from mlm.harness.messages import Drawing, Prompt
from mlm.harness.requests import continuation, drawing, prompt_room, rolling
from mlm.harness.settings import settle
from mlm.harness.workers import Workers

logger = logging.getLogger(__name__)

REQUESTS_AT_ONCE = 2048
"""Requests that go to the workers together; with --use_cache their results are kept after each such lot."""

_DEVICE_BY_DEFAULT = "cuda:0"
"""What lm_eval names when nobody has, on machines without a GPU too."""

T = TypeVar("T")


@register_model("mlm")
class MlmLM(TemplateLM):
    """A checkpoint of ours, at any tp and dp on this machine.

    Contexts, continuations and windows are cut as lm_eval's own model of Hugging Face checkpoints does, so
    that the same weights give the same figures.
    """

    def __init__(
        self, batch_size: int | str | None = None, max_batch_size: int | None = None, **arguments: Any
    ):
        """arguments: those of mlm.harness.settings, checkpoint foremost.

        Raises ConfigError with all that is wrong with them before a process is started, DataError or
        CheckpointError when the tokenizer cannot be read, LaunchError when the workers fail.
        """
        super().__init__()
        arguments = {name: value for name, value in arguments.items() if value is not None}
        self.settings = settle(arguments)
        self.mlm_tokenizer: Tokenizer = read_tokenizer(self.settings.checkpoint)
        if str(batch_size) not in ("None", "1", "auto"):
            logger.warning(
                "batch_size=%s means nothing here: batch_tokens=N, in --model_args, does", batch_size
            )
        for warning in self.settings.launch.warnings:
            logger.warning(warning)
        self._workers = Workers(self.settings)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None
    ) -> MlmLM:
        """From --model_args and what lm_eval adds to them, batch sizes and a device."""
        added = dict(additional_config or {})
        if added.get("device") == _DEVICE_BY_DEFAULT:
            del added["device"]
        return cls(**added | arg_dict)

    @classmethod
    def create_from_arg_string(
        cls, arg_string: str, additional_config: dict[str, Any] | None = None
    ) -> MlmLM:
        """The same from `checkpoint=runs/first,tp=2`."""
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    @property
    def eot_token_id(self) -> int:
        """The end-of-text token; DataError when the tokenizer has none."""
        eod = self.mlm_tokenizer.eod
        if eod is None:
            raise DataError(
                f"the tokenizer ({self.mlm_tokenizer.name}) has no end-of-text token to begin a text with: "
                "name another, prefix_token_id=N in --model_args"
            )
        return eod

    @property
    def prefix_token_id(self) -> int:
        """What stands before the first token of a text."""
        given = self.settings.prefix_token_id
        return self.eot_token_id if given is None else given

    @property
    def max_length(self) -> int:
        """Tokens that the model reads at once."""
        return self.settings.max_length

    @property
    def max_gen_toks(self) -> int:
        """New tokens of a request that does not say how many."""
        return self.settings.max_gen_toks

    @property
    def tokenizer_name(self) -> str:
        """Tells tokenizers apart in lm_eval's cache of requests."""
        return f"{self.mlm_tokenizer.kind}-{self.mlm_tokenizer.fingerprint[:16]}"

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """The ids of a text; none is added before or after, as with GPT-2's tokenizer."""
        ids: list[int] = encode(self.mlm_tokenizer, string, f"the text {string[:40]!r}").tolist()
        return ids

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of each whole text after the prefix token, in windows that do not overlap."""
        prefix = self.prefix_token_id
        results: list[float] = []
        with _bar("loglikelihood_rolling", "token", disable_tqdm) as report:
            for lot in _lots(requests):
                per_text = [rolling(prefix, self.tok_encode(r.args[0]), self.max_length) for r in lot]
                scores = self._workers.score([s for segments in per_text for s in segments], report())
                ends = np.cumsum([0, *map(len, per_text)])
                for request, start, end in zip(lot, ends, ends[1:], strict=False):
                    results.append(0.0 - float(scores.nll[start:end].sum()))
                    self.cache_hook.add_partial("loglikelihood_rolling", request.args, results[-1])
        return results

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """The continuation of each context, up to the first of the strings that end it."""
        groups: dict[Drawing, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(drawing(request.args[1], self.max_gen_toks), []).append(number)
        rooms = {how: prompt_room(how, self.max_length) for how in groups}
        texts: dict[int, str] = {}
        with _bar("generate_until", "text", disable_tqdm) as report:
            for how, numbers in groups.items():
                for lot in _lots(numbers):
                    prompts = [self._prompt(n, requests[n].args[0], rooms[how]) for n in lot]
                    made = self._workers.generate(prompts, how, self.settings.seed, report())
                    texts |= zip(lot, made, strict=True)
                    for number in lot:
                        self.cache_hook.add_partial("generate_until", requests[number].args, texts[number])
        return [texts[number] for number in range(len(requests))]

    def close(self) -> None:
        """End the workers, which otherwise end with this process."""
        self._workers.close()

    def get_model_info(self) -> dict[str, Any]:
        """What lm_eval writes beside its results."""
        config = self.settings.config
        return {
            "model_checkpoint": str(self.settings.checkpoint.directory),
            "model_step": self.settings.checkpoint.step,
            "model_name": self.settings.model.name,
            "model_layout": {"tp": config.tp, "dp": config.dp, "device": config.launch.device},
            "model_precision": config.precision.name,
            "model_max_length": self.max_length,
            "model_tokenizer": self.mlm_tokenizer.name,
        }

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        """(log-likelihood, whether it is the greedy one) of each ((context, continuation), ids, ids)."""
        results: list[tuple[float, bool]] = []
        with _bar("loglikelihood", "token", disable_tqdm) as report:
            for lot in _lots(requests):
                segments = [continuation(c, scored, self.max_length, texts[1]) for texts, c, scored in lot]
                scores = self._workers.score(segments, report())
                for (texts, _, _), nll, greedy in zip(lot, scores.nll, scores.all_greedy, strict=True):
                    results.append((-float(nll), bool(greedy)))
                    self.cache_hook.add_partial("loglikelihood", texts, results[-1])
        return results

    def _prompt(self, number: int, context: str, room: int) -> Prompt:
        ids = self.tok_encode(context)[-room:] or [self.prefix_token_id]
        return Prompt(number, np.asarray(ids, dtype=np.int64))


def _lots(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), REQUESTS_AT_ONCE):
        yield items[start : start + REQUESTS_AT_ONCE]


@contextmanager
def _bar(name: str, unit: str, disable: bool) -> Iterator[Callable[[], Callable[[int, int], None]]]:
    """A progress bar over several lots: each call of what is given begins the next one."""
    with tqdm(desc=name, unit=unit, unit_scale=unit == "token", disable=disable, total=0) as bar:

        def begin() -> Callable[[int, int], None]:
            before, known = bar.n, [0]

            def report(done: int, total: int) -> None:
                bar.total += total - known[0]
                known[0] = total
                bar.update(before + done - bar.n)

            return report

        yield begin
