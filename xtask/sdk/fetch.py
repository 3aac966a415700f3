#!/usr/bin/env python3
"""Fetch what trtc is built and run with into .sdk/ (make sdk).

    python3 xtask/sdk/fetch.py [--verify] [--dest DIR]

.sdk/lib/       libtensorrt_rtx.so.1 and libtensorrt_onnxparser_rtx.so.1 (TensorRT-RTX), libnvinfer_lean.so.11
                (TensorRT lean runtime), libonnxruntime.so.1.32.0, libclang.so (bindgen)
.sdk/include/   TRT-RTX-1.7/, TRT-Enterprise-11.4/, cuda_runtime_api.h
.sdk/licenses/  the licence of each package
.sdk/stamp.json versions, and size, time and sha256 of each file

Wheels come through pip (requirements.txt: exact versions and hashes), the headers through cargo from a crate whose
archive hash is checked here. A second run looks at the stamp and returns; --verify also hashes every file again.
Every file is moved into place by a rename, and the stamp is written last, so an interrupted run is simply repeated.
"""

import argparse
import glob
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from packages import CHUNK, Failure, HashMismatch, last_lines, locked, pip_download, report_failures, sha256_file

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
REQUIREMENTS = os.path.join(HERE, "requirements.txt")

# Target file in .sdk <- (wheel, member).
WHEEL_FILES = {
    "lib/libtensorrt_rtx.so.1": ("tensorrt_rtx_cu13_libs", "tensorrt_rtx_libs/libtensorrt_rtx.so.1"),
    "lib/libtensorrt_onnxparser_rtx.so.1": (
        "tensorrt_rtx_cu13_libs",
        "tensorrt_rtx_libs/libtensorrt_onnxparser_rtx.so.1",
    ),
    "lib/libnvinfer_lean.so.11": ("tensorrt_lean_cu13_libs", "tensorrt_lean_libs/libnvinfer_lean.so.11"),
    "lib/libonnxruntime.so.1.32.0": ("onnxruntime", "onnxruntime/capi/libonnxruntime.so.1.32.0"),
    "lib/libclang.so": ("libclang", "libclang-18.1.1.data/platlib/clang/native/libclang.so"),
    "licenses/tensorrt-rtx.txt": (
        "tensorrt_rtx_cu13_libs",
        "tensorrt_rtx_cu13_libs-1.7.1.116.dist-info/licenses/LICENSE.txt",
    ),
    "licenses/tensorrt-lean.txt": (
        "tensorrt_lean_cu13_libs",
        "tensorrt_lean_cu13_libs-11.3.0.99.dist-info/licenses/LICENSE.txt",
    ),
    "licenses/onnxruntime.txt": ("onnxruntime", "onnxruntime/LICENSE"),
    "licenses/libclang.txt": ("libclang", "libclang-18.1.1.dist-info/LICENSE.TXT"),
}

# The crate is never built: it only carries NVIDIA's Apache-2.0 headers.
HEADERS_CRATE = "trtx-sys"
HEADERS_VERSION = "0.9.1"
HEADERS_SHA256 = "5480ee056292951daa1bc74532162d6cb75190f091e45d7d97c0c356916ae171"
HEADERS_TAKEN = ("TRT-RTX-1.7/", "TRT-Enterprise-11.4/", "cuda_runtime_api.h")


def pinned():
    """What a complete .sdk was made from; compared with the stamp."""
    with open(REQUIREMENTS, encoding="utf-8") as f:
        wheels = [line.strip() for line in f if line.strip() and not line.startswith("#")]
    return {
        "wheels": wheels,
        "headers": f"{HEADERS_CRATE}=={HEADERS_VERSION} --hash=sha256:{HEADERS_SHA256}",
        "files": sorted(WHEEL_FILES),
    }


def download_wheels(folder):
    try:
        pip_download(["--require-hashes", "--requirement", REQUIREMENTS], folder)
    except HashMismatch as mismatch:
        raise Failure(
            "a downloaded wheel is not the one that xtask/sdk/requirements.txt pins (its sha256 differs).\n"
            "Nothing of it was used. If a mirror or cache stands in between, empty it (pip cache purge) and repeat.\n"
            f"{mismatch}"
        ) from None


def unpack_wheels(wheels, stage):
    for target, (wheel, member) in WHEEL_FILES.items():
        found = glob.glob(os.path.join(wheels, wheel + "-*.whl"))
        if len(found) != 1:
            raise Failure(f"expected one wheel of {wheel}, pip brought {len(found)}")
        with zipfile.ZipFile(found[0]) as archive:
            try:
                source = archive.open(member)
            except KeyError:
                raise Failure(f"{os.path.basename(found[0])} holds no {member}") from None
            path = os.path.join(stage, target)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with source, open(path, "wb") as out:
                shutil.copyfileobj(source, out, CHUNK)


def find_crate():
    home = os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo")
    pattern = f"{HEADERS_CRATE}-{HEADERS_VERSION}*.crate"
    archives = glob.glob(os.path.join(home, "registry", "cache", "*", pattern))
    for path in archives:
        if sha256_file(path) == HEADERS_SHA256:
            return path
    if archives:
        raise Failure(
            f"the archive of crate {HEADERS_CRATE} {HEADERS_VERSION} is not the pinned one (its sha256 differs from\n"
            f"{HEADERS_SHA256}): {archives[0]}\nNothing of it was used. Remove the file and repeat."
        )
    return None


def download_crate(scratch):
    path = find_crate()
    if path:
        return path
    cargo = os.environ.get("CARGO") or shutil.which("cargo")
    if not cargo:
        raise Failure("cargo is missing: install Rust 1.92 or newer (https://rustup.rs) and repeat.")
    # `cargo info` downloads just the one crate. Its cache is no documented promise, so a manifest that depends on the
    # crate, and `cargo fetch`, stand behind it.
    empty = os.path.join(scratch, "manifest")
    os.makedirs(os.path.join(empty, "src"))
    open(os.path.join(empty, "src", "lib.rs"), "w").close()
    attempts = [["info", "--quiet", f"{HEADERS_CRATE}@{HEADERS_VERSION}"], ["fetch", "--quiet"]]
    output = ""
    for arguments in attempts:
        if arguments[0] == "fetch":
            with open(os.path.join(empty, "Cargo.toml"), "w", encoding="utf-8") as f:
                f.write('[package]\nname = "headers"\nversion = "0.0.0"\nedition = "2021"\n\n[workspace]\n\n')
                f.write(f'[dependencies]\n{HEADERS_CRATE} = "={HEADERS_VERSION}"\n')
        done = subprocess.run(
            [cargo, *arguments], cwd=empty, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        output = done.stdout if done.returncode else output
        path = find_crate()
        if path:
            return path
    raise Failure(
        f"cargo could not download crate {HEADERS_CRATE} {HEADERS_VERSION}, which carries the TensorRT headers.\n"
        + last_lines(output)
    )


def unpack_headers(crate, stage):
    taken = 0
    with tarfile.open(crate) as archive:
        for member in archive:
            _, _, inner = member.name.partition("/TensorRT-Headers/")
            if not member.isfile() or not inner.startswith(HEADERS_TAKEN) or ".." in inner:
                continue
            path = os.path.join(stage, "include", inner)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with archive.extractfile(member) as source, open(path, "wb") as out:
                shutil.copyfileobj(source, out, CHUNK)
            taken += 1
    if not taken:
        raise Failure(f"{os.path.basename(crate)} holds no TensorRT-Headers")


def files_below(folder):
    for base, _, names in os.walk(folder):
        for name in names:
            yield os.path.relpath(os.path.join(base, name), folder)


def install(stage, sdk):
    files = {}
    for name in sorted(files_below(stage)):
        source, target = os.path.join(stage, name), os.path.join(sdk, name)
        digest = sha256_file(source)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.replace(source, target)
        status = os.stat(target)
        files[name] = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": digest}
    stamp = os.path.join(sdk, "stamp.json")
    with open(stamp + ".part", "w", encoding="utf-8") as f:
        json.dump({"pinned": pinned(), "files": files}, f, indent=1, sort_keys=True)
        f.write("\n")
    os.replace(stamp + ".part", stamp)


def complete(sdk, verify):
    """Whether `sdk` holds what the pins say; a reason on stderr when a file was changed or lost."""
    try:
        with open(os.path.join(sdk, "stamp.json"), encoding="utf-8") as f:
            stamp = json.load(f)
        if stamp["pinned"] != pinned():
            return False
        for name, want in stamp["files"].items():
            path = os.path.join(sdk, name)
            status = os.stat(path)
            same = (status.st_size, status.st_mtime_ns) == (want["size"], want["mtime_ns"])
            if (verify or not same) and sha256_file(path) != want["sha256"]:
                print(f"sdk: {name} is not what was fetched; fetching again", file=sys.stderr)
                return False
    except FileNotFoundError:
        return False
    except (KeyError, TypeError, ValueError):
        print("sdk: stamp.json is unreadable; fetching again", file=sys.stderr)
        return False
    return True


def fetch(sdk, verify):
    if complete(sdk, verify):
        return False
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=sdk) as scratch:
        stage, wheels = os.path.join(scratch, "stage"), os.path.join(scratch, "wheels")
        print("sdk: fetching TensorRT headers (cargo)", file=sys.stderr)
        unpack_headers(download_crate(scratch), stage)
        print("sdk: fetching TensorRT-RTX, TensorRT lean, ONNX Runtime, libclang (pip, 190 MB)", file=sys.stderr)
        download_wheels(wheels)
        unpack_wheels(wheels, stage)
        install(stage, sdk)
    return True


def main():
    parser = argparse.ArgumentParser(description="Fetch the libraries and headers that trtc needs, by pinned hash.")
    parser.add_argument("--dest", default=os.path.join(ROOT, ".sdk"), help="folder to fill (default: .sdk)")
    parser.add_argument("--verify", action="store_true", help="hash every file again, not only size and time")
    options = parser.parse_args()
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise Failure(f"the libraries are for x86-64 Linux; this is {platform.machine()} {sys.platform}.")
    sdk = os.path.realpath(options.dest)
    with locked(sdk):
        fetched = fetch(sdk, options.verify)
    print(f"sdk: {'ready' if fetched else 'up to date'} ({os.path.relpath(options.dest)})")


if __name__ == "__main__":
    with report_failures("sdk"):
        main()
