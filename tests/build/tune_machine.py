#!/usr/bin/env python3
"""tools/tune-machine for a small model: rows, lookup table and a command that takes them; started
again, it measures nothing and changes nothing.

usage: tune_machine.py WORK_FOLDER"""
import json
import pathlib
import shutil
import sys
import time

from consumer import ROOT, Failed, run, script

MODEL = {"model_type": "llama", "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1,
         "num_hidden_layers": 1, "head_dim": 64, "torch_dtype": "float32", "vocab_size": 512,
         "intermediate_size": 256, "max_position_embeddings": 512}


def rows_in(path):
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return {line for line in lines if line}


def main():
    work = pathlib.Path(sys.argv[1]).absolute()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    model = work / "small.json"
    model.write_text(json.dumps(MODEL))
    results = work / "tuned"
    tune = (ROOT / "tools/tune-machine", model, "--output", results, "--tokens", "64", "--budget", "20")
    environment = {"TESSERA_BUILD_DIR": str(work / "build")}
    start = time.monotonic()
    run(*tune, environment=environment)
    seconds = time.monotonic() - start

    rows = rows_in(results / "rows.txt")
    lookup = (results / "lookup.txt").read_text()
    wide = run(work / "build/bin/tessera-wide", "list", "--json")[1]
    tuned = {row["name"] for row in json.loads(run(work / "build/bin/tessera-tuned", "list", "--json")[1])["rows"]}
    if not rows or tuned != rows:
        raise Failed(f"tessera-tuned has the rows {sorted(tuned)}, rows.txt has {sorted(rows)}")
    for candidate in (".decode.16x64", ".decode.16x256", "x128", "x512"):
        if f'{candidate}"' not in wide:
            raise Failed(f"the wide table has no row with the tile {candidate}")
    if not any(row in lookup for row in rows):
        raise Failed(f"the lookup table names none of {sorted(rows)}")
    answer = run(work / "build/bin/tessera-tuned", "model", model, "--tokens", "64", "--json", "--quiet",
                 environment={"TESSERA_TABLE_DIR": str(work / "none")})[1]
    if '"persistent"' not in answer:
        raise Failed(f"no layer takes its row from the lookup table inside:\n{answer[:3000]}")

    # The lookup table says when it was written.
    before = {path: path.read_bytes() for path in results.rglob("*.txt") if path.name != "lookup.txt"}
    again = run(*tune, environment=environment)[1]
    changed = [str(path) for path, text in before.items() if path.read_bytes() != text]
    if changed:
        raise Failed(f"the second run changed {', '.join(changed)}:\n{again[-3000:]}")
    print(f"a tuned build in {seconds:.0f} s: {', '.join(sorted(rows))}")


if __name__ == "__main__":
    script(main)
