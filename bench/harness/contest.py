"""What comparisons of one measure have in common: their options, and brokers that have their turns one after the other."""

import argparse
import os
import shutil
import sys
import tempfile

from . import brokers


def options(description, names):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", default=names, help="the first is the base of the ratios")
    parser.add_argument("--cache", default=os.path.join(brokers.HERE, "target", "peers"), help="where other brokers are kept")
    parser.add_argument("--scratch", help="where data directories go (default: a temporary folder)")
    return parser


def chosen(parser, names, known):
    """What these names, with commas between them, stand for; ends with an error if one stands for nothing."""
    unknown = [name for name in names.split(",") if name not in known]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    return [known[name] for name in names.split(",")]


def turns(kinds, settings, name, measure):
    """The result of `measure` for each broker, and the versions; `measure` gets a broker and the results so far."""
    scratch = settings.scratch or tempfile.mkdtemp(prefix=f"postroad-{name}.")
    os.makedirs(scratch, exist_ok=True)
    contenders = [kind(settings.cache, scratch) for kind in kinds]
    results = []
    try:
        for broker in contenders:
            broker.install()
            results.append(measure(broker, results))
            print(results[-1], file=sys.stderr, flush=True)
    finally:
        if settings.scratch is None:
            shutil.rmtree(scratch, ignore_errors=True)
    return results, ", ".join(f"{broker.name} {broker.version}" for broker in contenders)
