#!/usr/bin/env python3
"""The demo: compile four real models, read a line of text with one of them, verify all (make demo).

    demo.py [--trtc PATH] [--target T]

Bundles, reports and outputs stay in target/demo/. Exit 1 when a step fails or the text is not the one in the picture.
"""

import argparse
import collections
import json
import os
import re
import shlex
import subprocess
import sys
import time

import text_line
from fetch import ROOT, manifest

# Engines for three GPU generations in one file. No GPU is needed to build them.
TARGET = "rtx-1.7:sm86,sm89,sm120"
READER = "rapidocr-rec"
MODELS = {READER: "text recognition", "rapidocr-det": "text detection", "silero-vad": "voice activity", "magika": "file types"}


def relative(path):
    return os.path.relpath(path, ROOT)


def run(command):
    """Run one trtc command from the project's root, show it, and return its stdout; the demo ends when it fails."""
    shown = [relative(part) if os.path.isabs(part) else part for part in command]
    print("$ " + shlex.join(shown), flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(done.stdout, end="")
        sys.exit(f"demo: exit status {done.returncode}")
    return done.stdout


def size(count):
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def print_partition(report):
    """The report's partition: a line a segment, then why nodes stayed on the host."""
    target = report["targets"][0]
    totals = target["totals"]
    placed = [f"{totals[key]} {word}" for key, word in (
        ("engine_nodes", "in engines"), ("host_nodes", "on the host"), ("schedule_nodes", "control flow"),
        ("folded", "folded"), ("removed", "removed"),
    ) if totals[key]]  # fmt: skip
    print(f"  {totals['nodes']} nodes: {', '.join(placed)}")
    for segment in target["segments"]:
        built = ""
        if segment.get("engine_bytes"):
            built = f"{size(segment['engine_bytes']):>9}, built in {segment['build_s']:.2f} s"
        print(f"  {segment['id']:<6} {segment['kind']:<7} {len(segment['nodes']):>5} nodes  {segment['status']:<9} {built}".rstrip())
    reasons = collections.Counter(
        (node["code"], node["op"], node["reason"]) for node in target["nodes"] if node["placement"] == "host"
    )
    for (code, op, reason), count in reasons.most_common(5):
        print(f"  host: {count} x {op}: {code or ''} {reason}")
    if len(reasons) > 5:
        print(f"  host: {len(reasons) - 5} more reasons in the report")


def largest_difference(text):
    """The largest absolute difference that `trtc verify` printed."""
    found = [float(value) for value in re.findall(r"max(?:imum)?[ _-]abs(?:olute)?[^0-9a-z]*([0-9.]+(?:e[-+]?\d+)?)", text, re.I)]
    return max(found, default=None)


def compile_model(options, name, model, folder):
    bundle, report = os.path.join(folder, f"{name}.trtc"), os.path.join(folder, f"{name}.json")
    start = time.perf_counter()
    run([options.trtc, "compile", model, "-o", bundle, "--target", options.target, "--report", report])
    seconds = time.perf_counter() - start
    with open(report, encoding="utf-8") as f:
        data = json.load(f)
    print_partition(data)
    print(f"  {relative(bundle)}: {size(os.path.getsize(bundle))}, {seconds:.1f} s\n")
    return bundle, seconds, data["targets"][0]["totals"]


def read_line(options, bundle, model, folder):
    outputs = os.path.join(folder, "text_line.npz")
    run([options.trtc, "run", bundle, "--inputs", text_line.NPZ, "--outputs", outputs])
    text = text_line.read_text(model, outputs)
    print(f"  {relative(text_line.PNG)} reads: {text}\n")
    if text != text_line.TEXT:
        sys.exit(f"demo: the picture says {text_line.TEXT!r}")


def verify(options, name, bundle, model):
    given = ["--inputs", text_line.NPZ] if name == READER else ["--random", "1"]
    said = run([options.trtc, "verify", bundle, "--model", model, "--segments", "--networks", *given])
    print("  " + said.strip().replace("\n", "\n  ") + "\n")
    return largest_difference(said)


def main():
    parser = argparse.ArgumentParser(description="Compile, run and verify four real models.")
    parser.add_argument("--trtc", default=os.path.join(ROOT, "target", "release", "trtc"))
    parser.add_argument("--target", default=TARGET)
    options = parser.parse_args()
    files = {m["name"]: os.path.join(ROOT, ".sdk", "models", m["file"]) for m in manifest()}
    folder = os.path.join(ROOT, "target", "demo")
    os.makedirs(folder, exist_ok=True)

    compiled = {name: compile_model(options, name, files[name], folder) for name in MODELS}
    read_line(options, compiled[READER][0], files[READER], folder)
    differences = {name: verify(options, name, compiled[name][0], files[name]) for name in MODELS}

    print(f"{'model':<14}{'':<18}{'nodes':>6}{'engines':>9}{'host nodes':>12}{'compile s':>11}{'largest difference':>20}")
    for name, purpose in MODELS.items():
        _, seconds, totals = compiled[name]
        difference = "-" if differences[name] is None else f"{differences[name]:.1e}"
        row = f"{totals['nodes']:>6}{totals['engines']:>9}{totals['host_nodes']:>12}{seconds:>11.1f}{difference:>20}"
        print(f"{name:<14}{purpose:<18}{row}")


if __name__ == "__main__":
    main()
