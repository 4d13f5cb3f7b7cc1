"""Runs the example beside an OTLP receiver in this process, and writes down what that received."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests"))

from support.otlp_receiver import running_receiver  # noqa: E402 - the line above says where


def main():
    with running_receiver() as receiver:
        example = subprocess.run(
            [sys.executable, str(ROOT / "docs" / "examples" / "rl_ray.py")],
            env={**os.environ, **receiver.environ("http/protobuf"), "NEMO_LENS_EXPORTER": "otlp"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=120,
        )
        Path(os.environ["RECEIVED"]).write_text(json.dumps(receiver.spans()), encoding="utf-8")
        print(json.dumps({"curve": [float(text) for text in example.stdout.split()]}))


if __name__ == "__main__":
    main()
