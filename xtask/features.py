#!/usr/bin/env python3
"""Check that every crate of the workspace builds with no feature, with each one alone, and with all (make features)."""

import json
import os
import subprocess
import sys

CARGO = os.environ.get("CARGO", "cargo")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def packages():
    out = subprocess.run(
        [CARGO, "metadata", "--no-deps", "--format-version", "1"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    return json.loads(out)["packages"]


def main():
    checked = 0
    for package in packages():
        features = sorted(set(package["features"]) - {"default"})
        if not features:
            continue  # `cargo test --workspace` builds it in its one form
        variants = [["--no-default-features"], *(["--no-default-features", "--features", f] for f in features)]
        for variant in [*variants, ["--all-features"]]:
            command = [CARGO, "check", "--quiet", "--package", package["name"], *variant]
            if subprocess.run(command, cwd=ROOT).returncode:
                sys.exit("features: failed: " + " ".join(command))
            checked += 1
    print(f"features: {checked} combinations build")


if __name__ == "__main__":
    main()
