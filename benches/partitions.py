#!/usr/bin/env python3
"""How trtc splits each real model, beside what NVIDIA's parser says that it supports (make bench-partitions).

    partitions.py [--only NAME...] [--write FILE] [--trtc PATH] [--peer PATH]

For each model of models/manifest.tsv that was fetched: trtc's engines, host nodes, boundary bytes and estimated time of its
partition, of maximal clusters and of the host alone (`trtc partition`); and of supportsModelV2 the supported subgraphs and
the nodes in and out of them, and whether the parser and builder then really build the whole model with the same ranges
where all of it is said to be supported. Nodes are those of the top graph: the parser does not count those in bodies.
--write FILE keeps the parser's part as TSV: tests/models.rs compares with it.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TARGET = "rtx-1.7:sm89"
BUILD_LIMIT_S = 300
COLUMNS = ("name", "subgraphs", "nodes_supported", "nodes_unsupported", "builds")


def models():
    with open(os.path.join(ROOT, "models", "manifest.tsv"), encoding="utf-8", newline="") as f:
        for row in csv.DictReader(f, delimiter="\t"):
            path = os.path.join(ROOT, ".sdk", "models", row["file"])
            if os.path.exists(path):
                yield row["name"], path
            else:
                print(f"{row['name']}: not fetched (make models)", file=sys.stderr)


def run(command):
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=BUILD_LIMIT_S)


def shapes(report):
    """--shape arguments for the parser: the ranges that trtc derived for the dynamic inputs."""
    ranges = {}
    for line in report.get("ranges", []):
        found = re.match(r"(.*): (\d+)\.\.(\d+)\.\.(\d+) ", line + " ")
        if found:
            ranges[found[1]] = found.groups()[1:]
    for crossing in report["targets"][0]["crossings"]:
        dims = re.match(r"\w+\[(.*)\]$", crossing["type"])
        dims = dims[1].split(" x ") if dims and dims[1] else []
        if crossing["from"] is None and any(dim in ranges for dim in dims):
            each = ("x".join(ranges[dim][k] if dim in ranges else dim for dim in dims) for k in range(3))
            yield from ("--shape", f"{crossing['value']}={'..'.join(each)}")


def supports(options, name, path, report):
    """What supportsModelV2 says of a model, and whether it is true."""
    done = run([options.peer, "--supports", path])
    if done.returncode > 0:
        sys.exit(f"bench: {name}: {done.stderr.strip()}")
    if done.returncode:  # a signal
        return dict(zip(COLUMNS, (name, 0, 0, report["model"]["nodes"], "crash")))
    parts = json.loads(done.stdout)["subgraphs"]
    inside = sum(len(part["nodes"]) for part in parts if part["supported"])
    outside = sum(len(part["nodes"]) for part in parts if not part["supported"])
    builds = "-"
    if inside and not outside:
        builds = "yes" if run([options.peer, "--sm", "89", *shapes(report), path]).returncode == 0 else "no"
    return dict(zip(COLUMNS, (name, sum(part["supported"] for part in parts), inside, outside, builds)))


def main():
    parser = argparse.ArgumentParser(description="Compare partitions of the real models with supportsModelV2.")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--write", metavar="FILE", help="keep what the parser says, as TSV")
    parser.add_argument("--trtc", default=os.path.join(ROOT, "target", "release", "trtc"))
    parser.add_argument("--peer", default=os.path.join(ROOT, "target", "peer", "nvidia_parser"))
    options = parser.parse_args()
    for tool in (options.trtc, options.peer):
        if not os.path.exists(tool):
            sys.exit(f"bench: {tool} is missing; `make bench-partitions` builds it")
    os.chdir(ROOT)
    rows = []
    print("| model | engines (maximal) | host nodes | boundary, bytes | estimate, us | maximal, us | host, us | parser: subgraphs | nodes in, out | builds |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, path in models():
        if options.only and name not in options.only:
            continue
        done = run([options.trtc, "partition", path, "--target", TARGET, "--format", "json"])
        if done.returncode:
            sys.exit(f"bench: {name}: {done.stderr.strip()}")
        report = json.loads(done.stdout)
        totals, estimate = (report["targets"][0][key] for key in ("totals", "estimate"))
        theirs = supports(options, name, path, report)
        rows.append(theirs)
        times = (f"{estimate[key] / 1e3:.0f}" for key in ("total_ns", "maximal_ns", "host_ns"))
        print(
            f"| {name} | {totals['engines']} ({estimate['maximal_engines']}) | {totals['host_nodes']} | {totals['boundary_bytes']} "
            f"| {' | '.join(times)} | {theirs['subgraphs']} | {theirs['nodes_supported']}, {theirs['nodes_unsupported']} | {theirs['builds']} |",
            flush=True,
        )
    if options.write:
        with open(options.write, "w", encoding="utf-8", newline="") as f:
            writer = csv.DictWriter(f, COLUMNS, delimiter="\t", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
