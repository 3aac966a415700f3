"""Writes onnx/tests/all/cpu_sessions.tsv: what ONNX Runtime itself says about running single nodes on the CPU.

Usage, from the repository root, in a virtual environment with the packages onnx, onnxruntime (versions as in schemas.py) and ml_dtypes:
    python xtask/gen/cpu_sessions.py
Each row is an operator, the version of its schema, element types of its inputs and outputs (`-` for none, unknown or not a
tensor), and whether a session for that one node can be created, over the node cases of the onnx package.
"""

import pathlib

import onnx
import onnxruntime
from onnx.backend.test.case.node import collect_testcases
from schemas import type_name

# Refused for the value of an attribute, not for want of a kernel (or for a locale that a machine may lack).
SKIPPED = ("layout", "batchwise", "strnormalizer", "image_decoder")


def session_works(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return True
    except Exception:
        return False


def main():
    rows = {}
    for case in collect_testcases(None):
        model = case.model
        if len(model.graph.node) != 1 or any(word in case.name for word in SKIPPED):
            continue
        node = model.graph.node[0]
        opsets = {entry.domain: entry.version for entry in model.opset_import}
        try:
            schema = onnx.defs.get_schema(node.op_type, opsets[node.domain], node.domain)
        except onnx.defs.SchemaError:
            continue
        types = {
            value.name: type_name(f"tensor({onnx.helper.tensor_dtype_to_string(value.type.tensor_type.elem_type)[12:].lower()})")
            for value in [*model.graph.input, *model.graph.output]
            if value.type.HasField("tensor_type")
        }
        names = lambda values: ",".join(types.get(value, "-") for value in values)
        key = (node.domain, node.op_type, schema.since_version, names(node.input), names(node.output))
        works = session_works(model)
        # Cases of one row can differ in attributes; a node that runs in one case has its kernel.
        rows[key] = rows.get(key, False) or works
    lines = ["\t".join([*map(str, key), "yes" if works else "no"]) for key, works in sorted(rows.items())]
    head = f"# Written by xtask/gen/cpu_sessions.py with onnx {onnx.__version__} and ONNX Runtime {onnxruntime.__version__}."
    pathlib.Path("onnx/tests/all/cpu_sessions.tsv").write_text("\n".join([head, *lines]) + "\n")


main()
