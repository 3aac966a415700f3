"""What the fetchers share: pip by pinned version, hashes, one message a failure."""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys

CHUNK = 1 << 20


class Failure(Exception):
    """A message for the user: what is wrong, and what to do."""


class HashMismatch(Failure):
    """A download differs from its pinned hash; the text is pip's."""


@contextlib.contextmanager
def report_failures(name):
    """End the program with exit 1 and one message, instead of a traceback, on what a user can mend."""
    try:
        yield
    except (Failure, OSError) as failure:
        sys.exit(f"{name}: {failure}")
    except KeyboardInterrupt:
        sys.exit(f"{name}: interrupted; repeat to go on")


@contextlib.contextmanager
def locked(folder):
    """Make `folder`, and hold it alone: two builds that start together must not fetch twice."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sha256_file(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while chunk := f.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def last_lines(text, count=12):
    return "\n".join("    " + line for line in text.strip().splitlines()[-count:])


def find_pip():
    candidates = [[sys.executable, "-m", "pip"]]
    candidates += [[path] for name in ("pip3", "pip") if (path := shutil.which(name))]
    for command in candidates:
        if subprocess.run([*command, "--version"], capture_output=True).returncode == 0:
            return command
    raise Failure(
        f"pip is missing: neither '{sys.executable} -m pip' nor pip3 runs.\n"
        "Install it (Debian, Ubuntu: apt-get install python3-pip; elsewhere: python3 -m ensurepip) and repeat."
    )


def pip_download(requirements, folder):
    """Download wheels of `requirements` (pip arguments) into `folder`; nothing is installed or built."""
    # The Python version only chooses a wheel and need not be the one that runs this script. pip does not widen
    # manylinux_2_28 to older tags, so the ones that occur are named.
    command = [
        *find_pip(), "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:",
        "--implementation", "cp", "--python-version", "3.12", "--abi", "cp312", "--abi", "abi3", "--abi", "none",
        "--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64", "--platform", "manylinux2010_x86_64",
        "--dest", folder, *requirements,
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode == 0:
        return
    said = last_lines(done.stdout)
    if "DO NOT MATCH THE HASHES" in done.stdout:
        raise HashMismatch(said)
    if re.search(r"Connection\w*Error|Temporary failure|[Tt]imed? ?out|No matching distribution", done.stdout):
        raise Failure(
            "pip could not download the packages: no network, or an index that does not hold them.\n"
            "pip's own settings (PIP_INDEX_URL, PIP_FIND_LINKS, a proxy) are respected.\n" + said
        )
    raise Failure(f"pip failed (exit {done.returncode}):\n{said}")
