"""mlm-data fetch: public data sets, checked, where mlm-eval and mlm-data prepare find them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mlm.corpus.public.catalogue import SETS
from mlm.errors import ConfigError, Problem

DESCRIPTION = """\
Get public data sets from the Hugging Face hub or their makers, each file checked against its published sha256
where there is one. Evaluation files go where mlm-eval looks for them: $MLM_DATA/NAME, else the cache. What is
there already is not fetched again. Without a network it says which file to get from where; --from takes it
from there, checked too. HF_ENDPOINT names a mirror of the hub. Needs the extra: pip install 'mlm[hub]'"""
EXAMPLES = """\
  mlm-data fetch --list                              what there is, with sizes and licences
  mlm-data fetch lambada wikitext103                 what mlm-eval measures by default
  mlm-data fetch lambada --from lambada_test.jsonl   the same from a file got elsewhere
  mlm-data fetch squad_v2 --to SQuAD                 what finetune=squad_v2 learns from
  mlm-data fetch openwebtext-sample --to texts       something to train on: mlm-data prepare texts ..."""

EXIT_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SETS)}")
    parser.add_argument("--list", action="store_true", help="the data sets, their files, and which are there")
    parser.add_argument("--from", dest="sources", nargs="+", type=Path, default=[], metavar="FILE",
                        help="take the files of NAME from here instead of the network")  # fmt: skip
    parser.add_argument("--to", type=Path, metavar="DIR", help="put the files there instead")


def run(args: argparse.Namespace) -> int:
    from mlm.corpus.public import fetch

    if args.list:
        print(fetch.listing(args.to))
        return 0
    if not args.names:
        raise ConfigError(Problem("mlm-data fetch", "names no data set", "give one; --list shows them"))
    if args.sources and len(args.names) > 1:
        raise ConfigError(Problem("--from", "belongs to one data set", "name one at a time"))
    sets = [fetch.public_set(name) for name in dict.fromkeys(args.names)]
    status = 0
    for public in sets:
        if args.sources:
            outcome = fetch.register(public, args.sources, args.to, print)
        else:
            outcome = fetch.fetch(public, args.to, print)
        if outcome.missing:
            status = EXIT_FAILED
            print(f"mlm-data fetch: {public.name} is not complete; what to do by hand:", file=sys.stderr)
            print("\n".join(f"  {line}" for line in outcome.missing), file=sys.stderr, flush=True)
    return status
