"""Wall time of `headrace train sac HalfCheetah-v5 --until 3000`, three seeds, the whole command.

    python bench/cheetah.py [more options of headrace train]

The tuner's choice is made beforehand, once (it takes up to 20 s at the first run on a machine, and is remembered).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import report

MORE = sys.argv[1:]
COMMAND = ["train", "sac", "HalfCheetah-v5", "--until", "3000"]


def main() -> None:
    figures: dict[str, object] = {"command": " ".join(["headrace", *COMMAND, *MORE, "--seed S"])}
    subprocess.run([sys.executable, "-m", "headrace", "train", *COMMAND[1:3], "--seconds", "45", *MORE], check=True)
    for seed in (1, 2, 3):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            words = [sys.executable, "-m", "headrace", *COMMAND, *MORE, "--seed", str(seed), "--seconds", "400"]
            began = time.monotonic()
            subprocess.run([*words, "--out", str(out), "--quiet"], check=True)
            taken = time.monotonic() - began
            last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
        figures[f"seed {seed}, seconds"] = taken
        figures[f"seed {seed}, return reached"] = last["eval/mean_reward"]
        figures[f"seed {seed}, env steps"] = last["time/env_steps"]
        figures[f"seed {seed}, updates"] = last["time/updates"]
        print(figures, flush=True)
    report("cheetah", figures)


if __name__ == "__main__":
    main()
