#!/usr/bin/env python3
"""Write the test cases of the onnx package into .sdk/conformance/ (make conformance, make test).

    python3 tests/conformance/write_cases.py [--dest DIR]

DIR/<kind>/<case>/model.onnx, case.json (tolerances, and whether a node case is plain or an expanded function) and
test_data_set_<k>/{input,output}_<i>.pb, as onnx's own backend tests have them. Kinds: node, which the package makes in
memory; simple, pytorch-converted and pytorch-operator, which it ships; light, whose inputs are made here and whose
expected outputs it ships.

pip installs the packages of requirements.txt beside the cases; nothing else uses them. A second run looks at the stamp
and returns.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
REQUIREMENTS = os.path.join(HERE, "requirements.txt")
sys.path.insert(0, os.path.join(ROOT, "xtask", "sdk"))

from packages import Failure, find_pip, last_lines, locked, report_failures, sha256_file  # noqa: E402

# A change here, in the pins or in the Python that runs this writes everything again.
FORMAT = 2
# What onnx 1.23.2 has: a package that makes fewer is not the one that the lists beside this file speak of.
COUNTS = {"plain": 1404, "expanded": 480}


def install(folder):
    """The pinned packages in a folder of their own: a virtual environment would need more than pip."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [
        *find_pip(), "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:",
        "--require-hashes", "--requirement", REQUIREMENTS, "--target", folder,
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise Failure(
            f"pip could not install the packages of tests/conformance/requirements.txt for Python {version}\n"
            f"(they are pinned for Python 3.10 to 3.14):\n{last_lines(done.stdout)}"
        )


def write_proto(path, proto):
    with open(path, "wb") as f:
        f.write(proto.SerializeToString())


def to_proto(onnx, value, info):
    """A value of a case as the message that its type in the model says."""
    kind = info.type.WhichOneof("value")
    helper = onnx.numpy_helper
    if kind == "sequence_type":
        return value if isinstance(value, onnx.SequenceProto) else helper.from_list(value, info.name)
    if kind == "optional_type":
        return value if isinstance(value, onnx.OptionalProto) else helper.from_optional(value, info.name)
    if kind == "map_type":
        return helper.from_dict(value, info.name)
    return value if isinstance(value, onnx.TensorProto) else helper.from_array(value, info.name)


def write_case(folder, facts, write_model, data_sets):
    os.makedirs(folder)
    write_model(os.path.join(folder, "model.onnx"))
    for k, (inputs, outputs) in enumerate(data_sets):
        data = os.path.join(folder, f"test_data_set_{k}")
        os.makedirs(data)
        for name, protos in (("input", inputs), ("output", outputs)):
            for i, proto in enumerate(protos):
                write_proto(os.path.join(data, f"{name}_{i}.pb"), proto)
    with open(os.path.join(folder, "case.json"), "w", encoding="utf-8") as f:
        json.dump(facts, f, sort_keys=True)


def node_cases(onnx, dest):
    from onnx.backend.test.loader import load_model_tests

    counts = {"plain": 0, "expanded": 0}
    for case in load_model_tests(kind="node"):
        plain = "_expanded" not in case.name
        counts["plain" if plain else "expanded"] += 1
        graph = case.model.graph
        sets = [
            (
                [to_proto(onnx, value, info) for value, info in zip(inputs, graph.input)],
                [to_proto(onnx, value, info) for value, info in zip(outputs, graph.output)],
            )
            for inputs, outputs in case.data_sets
        ]
        facts = {"plain": plain, "rtol": case.rtol, "atol": case.atol}
        folder = os.path.join(dest, "node", case.name)
        write_case(folder, facts, lambda path, model=case.model: write_proto(path, model), sets)
    if counts != COUNTS:
        raise Failure(f"the onnx package makes {counts} node cases instead of {COUNTS}")


def shipped_cases(dest, kind):
    from onnx.backend.test.loader import load_model_tests

    for case in load_model_tests(kind=kind):
        folder = os.path.join(dest, kind, case.name)
        shutil.copytree(case.model_dir, folder)
        with open(os.path.join(folder, "case.json"), "w", encoding="utf-8") as f:
            json.dump({"plain": False, "rtol": case.rtol, "atol": case.atol}, f, sort_keys=True)


def light_cases(onnx, dest):
    import numpy as np
    from onnx.backend.test.loader import load_model_tests

    package = os.path.dirname(onnx.__file__)
    for case in load_model_tests(kind="real"):
        source = os.path.join(os.path.dirname(package), *case.url.split("/"))
        graph = onnx.load(source).graph
        given = {tensor.name for tensor in graph.initializer}
        inputs = []
        for info in graph.input:
            if info.name not in given:
                shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
                count = np.prod(shape)
                # As onnx's own runner makes them for the expected outputs that it ships.
                values = (np.arange(count).reshape(shape) / count).astype(np.float32)
                inputs.append(onnx.numpy_helper.from_array(values, info.name))
        outputs = []
        for i, info in enumerate(graph.output):
            with open(source.replace(".onnx", f"_output_{i}.pb"), "rb") as f:
                outputs.append(onnx.TensorProto.FromString(f.read()))
        facts = {"plain": False, "rtol": case.rtol, "atol": case.atol}
        folder = os.path.join(dest, "light", case.name)
        write_case(folder, facts, lambda path, source=source: shutil.copy(source, path), [(inputs, outputs)])


def write(dest, packages):
    # Cases of overflow and of division by zero say so.
    warnings.simplefilter("ignore", RuntimeWarning)
    sys.path.insert(0, packages)
    import onnx
    import onnx.numpy_helper

    for kind in ("node", "simple", "pytorch-converted", "pytorch-operator", "light"):
        shutil.rmtree(os.path.join(dest, kind), ignore_errors=True)
        if kind == "node":
            node_cases(onnx, dest)
        elif kind == "light":
            light_cases(onnx, dest)
        else:
            shipped_cases(dest, kind)


def main():
    parser = argparse.ArgumentParser(description="Write the test cases of the onnx package.")
    parser.add_argument("--dest", default=os.path.join(ROOT, ".sdk", "conformance"), help="folder to fill")
    options = parser.parse_args()
    dest = os.path.realpath(options.dest)
    with locked(dest):
        stamp = os.path.join(dest, "stamp.json")
        want = {"format": FORMAT, "requirements": sha256_file(REQUIREMENTS)}
        try:
            with open(stamp, encoding="utf-8") as f:
                if json.load(f) == want:
                    print("conformance: cases are up to date", file=sys.stderr)
                    return
            os.remove(stamp)
        except (FileNotFoundError, ValueError):
            pass
        packages = os.path.join(dest, "python")
        print("conformance: fetching the onnx package (pip, 60 MB)", file=sys.stderr)
        install(packages)
        print("conformance: writing its test cases", file=sys.stderr)
        write(dest, packages)
        # Only the cases are needed from here on.
        shutil.rmtree(packages, ignore_errors=True)
        with open(stamp, "w", encoding="utf-8") as f:
            json.dump(want, f)


if __name__ == "__main__":
    with report_failures("conformance"):
        main()
