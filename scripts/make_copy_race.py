"""Write a task in RACE's format that looking solves: the right option is copied from the passage.

A passage is some common nouns; the right option is two that stand side by side in it, each wrong one two that
do not occur. What a fine-tuning reaches on held-out questions shows whether it has learned to look.

usage: python scripts/make_copy_race.py OUT [--train 512] [--dev 500] [--words 12] [--seed 1]
writes OUT/train.jsonl and OUT/dev.jsonl
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

_NOUNS = (
    "apple arm bag ball bank bed bell bird boat body book box boy bread bridge brother building bus "
    "camp car card cat chair child church city cloud coat coffee corn country cow cup dance desk "
    "dinner doctor dog door dream dress earth egg engine eye face family farm father field finger "
    "fire fish floor flower food foot forest friend garden gate girl glass gold grass hair hand hat "
    "head heart hill horse hotel hour house ice island job key king kitchen knife lake land letter "
    "light line lion machine market meat milk money moon morning mother mountain mouth music name "
    "neck night nose ocean office oil orange page paper park path picture plant plate pocket queen "
    "rain ring river road rock roof room school sea ship shirt shoe shop sister sky smile snow song "
    "star station stone storm street sugar summer sun table tail tea teacher tower town train tree "
    "valley village voice wall watch water wheel wind window wine winter woman wood yard year "
)
NOUNS = _NOUNS.split()


def record(draw: random.Random, number: int, words: int) -> dict[str, object]:
    """One passage with one question."""
    drawn = draw.sample(NOUNS, words + 6)
    passage, others = drawn[:words], drawn[words:]
    at, answer = draw.randrange(words - 1), draw.randrange(4)
    options = [" ".join(others[2 * place : 2 * place + 2]) for place in range(3)]
    options.insert(answer, " ".join(passage[at : at + 2]))
    return {
        "article": " ".join(passage) + ".",
        "questions": ["Which words are in the text?"],
        "options": [options],
        "answers": ["ABCD"[answer]],
        "id": f"copy{number}.txt",
    }


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", type=int, default=512, help="training questions (%(default)s)")
    parser.add_argument("--dev", type=int, default=500, help="held-out questions (%(default)s)")
    parser.add_argument("--words", type=int, default=12, help="words of a passage (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", options.train), ("dev", options.dev)):
        lines = [json.dumps(record(draw, number, options.words)) for number in range(count)]
        (options.out / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        print(f"{options.out / name}.jsonl: {count:,} questions; guessing is right in 25 %")


if __name__ == "__main__":
    main()
