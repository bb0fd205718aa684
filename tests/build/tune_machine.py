#!/usr/bin/env python3
"""tools/tune-machine for a small model: rows, lookup table and a command that takes them; started
again, it measures nothing and changes nothing.

usage: tune_machine.py WORK_FOLDER [CMAKE_ARGUMENT...]

With the arguments of the main build, ccache serves what that compiled."""
import json
import sys
import time

from consumer import Failed, Project, run, script

MODEL = {"model_type": "llama", "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1,
         "num_hidden_layers": 1, "head_dim": 64, "torch_dtype": "float32",
         "max_position_embeddings": 512}


def rows_in(path):
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return {line for line in lines if line}


def main():
    project = Project(sys.argv[1])
    model = project.folder / "small.json"
    model.write_text(json.dumps(MODEL))
    results = project.folder / "tuned"
    commands = project.build_folder / "bin"
    run("cmake", "-S", project.sources, "-B", project.build_folder, "-G", "Ninja",
        "-DCMAKE_BUILD_TYPE=Release", "-DTESSERA_BUILD_TESTS=OFF", *sys.argv[2:],
        environment=project.environment)
    tune = (project.sources / "tools/tune-machine", model, "--output", results, "--tokens", "64",
            "--budget", "60", "--backends", "cpu_avx2")
    start = time.monotonic()
    first = run(*tune, environment=project.environment)[1]
    seconds = time.monotonic() - start

    rows = rows_in(results / "rows.txt")
    lookup = (results / "lookup.txt").read_text()
    wide = run(commands / "tessera-wide", "list", "--json")[1]
    tuned = {row["name"] for row in json.loads(run(commands / "tessera-tuned", "list", "--json")[1])["rows"]}
    if not rows or tuned != rows:
        raise Failed(f"tessera-tuned has the rows {sorted(tuned)}, rows.txt has {sorted(rows)}")
    for candidate in (".decode.16x64", ".decode.16x256", "x128", "x512"):
        if f'{candidate}"' not in wide:
            raise Failed(f"the wide table has no row with the tile {candidate}")
    if not any(row in lookup for row in rows):
        raise Failed(f"the lookup table names none of {sorted(rows)}")
    answer = run(commands / "tessera-tuned", "model", model, "--tokens", "64", "--json", "--quiet",
                 environment={"TESSERA_TABLE_DIR": str(project.folder / "none")})[1]
    if '"persistent"' not in answer:
        raise Failed(f"no layer takes its row from the lookup table inside:\n{answer[:3000]}")

    # The lookup table says when it was written. What a busy machine disturbed is measured again.
    again = (results / "wide") if "disturbed" in first else results
    before = {path: path.read_bytes() for path in again.rglob("*.txt") if path.name != "lookup.txt"}
    second = run(*tune, environment=project.environment)[1]
    changed = [str(path) for path, text in before.items() if path.read_bytes() != text]
    if changed:
        raise Failed(f"the second run changed {', '.join(changed)}:\n{second[-3000:]}")
    print(f"a tuned build in {seconds:.0f} s: {', '.join(sorted(rows))}")


if __name__ == "__main__":
    script(main)
