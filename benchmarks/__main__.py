"""`python -m benchmarks [speed|startup|store|zoo|quality|mixing]`; without a word: speed."""

from __future__ import annotations

import argparse
from importlib import import_module

PARTS = {
    "speed": "whole commands against cp and against scripts, over file sizes and formats",
    "startup": "what --help, inspect, a dry run and a conversion import, and what that costs",
    "store": "conversions between objects on SeaweedFS, against download, resize and upload",
    "zoo": "batch throughput against cp -r",
    "quality": "accuracy of trained models after right and wrong resizes",
    "mixing": "accuracy of MLP-Mixer, ResMLP and gMLP on other grids, without fine-tuning",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parts = "; ".join(f"{name}: {text}" for name, text in PARTS.items())
    parser.add_argument("part", nargs="?", default="speed", choices=PARTS, help=parts)
    words, rest = parser.parse_known_args()
    import_module(f"benchmarks.{words.part}").main(rest)


if __name__ == "__main__":
    main()
