"""Writes onnx/tests/all/function_sessions.tsv: at which opsets ONNX Runtime itself runs operators that are functions.

Usage, from the repository root, in a virtual environment with the packages onnx and onnxruntime (versions as in schemas.py):
    python xtask/gen/function_sessions.py
Each row is an operator of ai.onnx whose schema has a function body, the version of that schema, an element type of its first
type parameter, and the opsets (from 7 to 27) in which the version is in force and a session for one node can be created: by a
kernel, or by the body, which holds only together with the versions of the operators in it.
"""

import collections
import pathlib

import onnx
import onnxruntime
from onnx import TensorProto, helper
from schemas import type_name

DTYPES = "FLOAT DOUBLE FLOAT16 INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 BOOL".split()
OLDEST, NEWEST = 7, 27
# Sequences, outputs of another type than the first parameter, bodies that want shapes; the widened form of one is refused at
# opset 18 alone.
SKIPPED = {"SequenceMap", "BlackmanWindow", "HannWindow", "HammingWindow", "MeanVarianceNormalization"}
SKIPPED |= {"CausalConvWithState", "LinearAttention"}
KIND = onnx.defs.OpSchema.FormalParameterOption


def spelled(dtype):
    return f"tensor({ {'DOUBLE': 'double'}.get(dtype, dtype.lower())})"


FLOATS = set(map(spelled, ("FLOAT", "DOUBLE", "FLOAT16")))
NUMBERS = {spelled(dtype): getattr(TensorProto, dtype) for dtype in DTYPES}


def bound(schema, dtype):
    """The type of each parameter, the first one being `dtype`; None where it cannot be."""
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    formals = [*schema.inputs, *schema.outputs]
    first = next((p.type_str for p in formals if p.type_str in allowed), None)
    if first is None or dtype not in allowed[first]:
        return None
    usual = (*([dtype] if dtype in FLOATS else []), "tensor(int64)", "tensor(float)")
    types = {name: next((t for t in usual if t in types), types[0]) for name, types in allowed.items()}
    types[first] = dtype
    return types


def model(schema, types, opset):
    ports = lambda formals, letter: [
        helper.make_tensor_value_info(f"{letter}{k}", NUMBERS[types.get(p.type_str, p.type_str)], None)
        for k, p in enumerate(formals)
        if p.option != KIND.Optional
    ]
    inputs, outputs = ports(schema.inputs, "x"), ports(schema.outputs, "y")
    values = {"INT": 1, "FLOAT": 1.0, "INTS": [1], "STRING": "x"}
    attributes = {
        name: values[str(a.type).split(".")[-1]] for name, a in schema.attributes.items() if a.required
    }
    node = helper.make_node(schema.name, [v.name for v in inputs], [v.name for v in outputs], **attributes)
    graph = helper.make_graph([node], "graph", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def works(proto):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return True
    except Exception:
        return False


def main():
    history = collections.defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and not schema.deprecated:
            history[schema.name].append(schema)
    lines = []
    for name, schemas in sorted(history.items()):
        schemas.sort(key=lambda schema: schema.since_version)
        for k, schema in enumerate(schemas):
            if name in SKIPPED or not (schema.has_function or schema.has_context_dependent_function):
                continue
            last = schemas[k + 1].since_version - 1 if k + 1 < len(schemas) else NEWEST
            for dtype in map(spelled, DTYPES):
                types = bound(schema, dtype)
                try:
                    opsets = [
                        opset
                        for opset in range(max(schema.since_version, OLDEST), min(last, NEWEST) + 1)
                        if types and works(model(schema, types, opset))
                    ]
                except KeyError:  # a sequence, or a required attribute that is a tensor
                    continue
                if types:
                    row = (name, schema.since_version, type_name(dtype), ",".join(map(str, opsets)) or "-")
                    lines.append("\t".join(map(str, row)))
    head = f"# Written by xtask/gen/function_sessions.py with onnx {onnx.__version__} and ONNX Runtime {onnxruntime.__version__}."
    pathlib.Path("onnx/tests/all/function_sessions.tsv").write_text("\n".join([head, *lines]) + "\n")


main()
