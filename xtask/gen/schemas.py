"""Writes onnx/src/schema/{schemas,kernels}.tsv from the packages onnx and onnxruntime.

Usage, from the repository root, in a virtual environment with both packages:
    python xtask/gen/schemas.py
The tables are committed; they change only when one of the two versions below does. Operators of the com.microsoft domain come from
ONNX Runtime, which defines them; all others from ONNX.
"""

import pathlib

import numpy
import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort

VERSIONS = {"onnx": "1.23.2", "onnxruntime": "1.32.0"}
ONNX_DOMAINS = ["", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"]
OPEN_ENDED = 2**31 - 1

DTYPES = {
    "float": "f32", "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "int32": "i32", "int64": "i64",
    "string": "str", "bool": "bool", "float16": "f16", "double": "f64", "uint32": "u32", "uint64": "u64",
    "complex64": "c64", "complex128": "c128", "bfloat16": "bf16", "float8e4m3fn": "f8e4m3",
    "float8e4m3fnuz": "f8e4m3uz", "float8e5m2": "f8e5m2", "float8e5m2fnuz": "f8e5m2uz", "uint4": "u4", "int4": "i4",
    "float4e2m1": "f4e2m1", "float8e8m0": "f8e8m0", "uint2": "u2", "int2": "i2", "float6e2m3": "f6e2m3",
    "float6e3m2": "f6e3m2",
}
ORDER = {name: at for at, name in enumerate(DTYPES.values())}
KINDS = {
    "FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "FLOATS": "fs", "INTS": "is", "STRINGS": "ss",
    "TENSORS": "ts", "GRAPHS": "gs", "SPARSE_TENSOR": "sp", "SPARSE_TENSORS": "sps", "TYPE_PROTO": "tp", "TYPE_PROTOS": "tps",
    # ONNX Runtime's binding has no name for type attributes.
    "???": "tp",
}


def type_name(text):
    """`tensor(float)` -> `f32`, `seq(tensor(float))` -> `seq(f32)`; what is neither -> `other`."""
    if text.startswith("tensor(") and text[7:-1] in DTYPES:
        return DTYPES[text[7:-1]]
    if text.startswith("seq(tensor(") and text[11:-2] in DTYPES:
        return f"seq({DTYPES[text[11:-2]]})"
    return "other"


class Sets:
    """Sets of types, numbered in order of appearance: the same few occur hundreds of times."""

    def __init__(self):
        self.numbers = {}

    def number(self, types):
        names = {type_name(text) for text in types}
        tensors = sorted((n for n in names if n in ORDER), key=ORDER.get)
        sequences = sorted((n[4:-1] for n in names if n.startswith("seq(")), key=ORDER.get)
        key = "\t".join([",".join(tensors), ",".join(sequences), "other" if "other" in names else ""]).rstrip("\t")
        return self.numbers.setdefault(key, len(self.numbers))

    def lines(self):
        return [f"@{number}\t{key}" for key, number in self.numbers.items()]


def default_text(attribute):
    """`=value` of a default, or nothing."""
    value = getattr(attribute, "default_value", None)
    if value is None:
        value = onnx.AttributeProto()
        value.ParseFromString(attribute._default_value)
    kinds = onnx.AttributeProto
    real = lambda number: str(numpy.float32(number))
    match value.type:
        case kinds.UNDEFINED:
            return ""
        case kinds.FLOAT:
            text = real(value.f)
        case kinds.INT:
            text = str(value.i)
        case kinds.STRING:
            text = value.s.decode()
        case kinds.FLOATS:
            text = ",".join(map(real, value.floats))
        case kinds.INTS:
            text = ",".join(map(str, value.ints))
        case kinds.STRINGS:
            text = ",".join(item.decode() for item in value.strings)
        case _:
            raise ValueError(f"default of kind {value.type}")
    assert not set(text) & set("\t\n"), text
    return f"={text}"


def parameter(value):
    """`X:T`, with `?` after an optional one, `*` after a variadic one, `~` after a variadic one of mixed types."""
    name, homogeneous = (
        (value.type_str, value.is_homogeneous) if hasattr(value, "type_str") else (value.typeStr, value.isHomogeneous)
    )
    name = type_name(name) if "(" in name else name
    option = str(value.option).rsplit(".")[-1]
    mark = {"Single": "", "Optional": "?", "Variadic": "*" if homogeneous else "~"}[option]
    return f"{value.name}:{name}{mark}"


def schema_lines(sets):
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain in ONNX_DOMAINS]
    schemas += [s for s in ort.get_all_operator_schema() if s.domain == "com.microsoft"]
    for s in sorted(schemas, key=lambda s: (s.domain, s.name, s.since_version)):
        function = getattr(s, "has_function", False) or getattr(s, "has_context_dependent_function", False)
        flags = ("d" if s.deprecated else "") + ("f" if function else "")
        most = lambda count: "*" if count == OPEN_ENDED else str(count)
        yield "\t".join([
            s.domain, s.name, str(s.since_version), flags,
            f"{s.min_input}..{most(s.max_input)}", f"{s.min_output}..{most(s.max_output)}",
            " ".join(map(parameter, s.inputs)), " ".join(map(parameter, s.outputs)),
            " ".join(f"{c.type_param_str}@{sets.number(c.allowed_type_strs)}" for c in s.type_constraints),
            *(
                f"{name}:{KINDS[str(a.type).rsplit('.')[-1]]}{'!' if a.required else ''}{default_text(a)}"
                for name, a in sorted(s.attributes.items())
            ),
        ])


def kernel_lines(sets):
    kernels = {}
    for k in ort.get_all_opkernel_def():
        if k.provider != "CPUExecutionProvider" or k.domain == "com.microsoft.nchwc":
            continue
        first, last = k.version_range
        rows = kernels.setdefault((k.domain, k.op_name, first, last), [])
        rows.append({name: set(types) for name, types in k.type_constraints.items()})
    for (domain, op, first, last), rows in sorted(kernels.items()):
        # Kernels that differ in one constraint only are one row with the union.
        merged = []
        for row in rows:
            for other in merged:
                differing = [name for name in row if row[name] != other.get(name)]
                if row.keys() == other.keys() and len(differing) <= 1:
                    for name in differing:
                        other[name] = other[name] | row[name]
                    break
            else:
                merged.append(row)
        for row in merged:
            constraints = " ".join(f"{name}@{sets.number(types)}" for name, types in sorted(row.items()))
            yield "\t".join([domain, op, str(first), "" if last == OPEN_ENDED else str(last), constraints])


def write(name, head, sets, lines):
    path = pathlib.Path("onnx/src/schema") / name
    lines = list(lines)
    path.write_text("\n".join([f"# Written by xtask/gen/schemas.py. {head}", *sets.lines(), *lines]) + "\n")


def main():
    found = {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__}
    assert found == VERSIONS, f"versions {found}, wanted {VERSIONS}"
    sets = Sets()
    write("schemas.tsv", f"Operator schemas of onnx {VERSIONS['onnx']}.", sets, schema_lines(sets))
    sets = Sets()
    write("kernels.tsv", f"CPU kernels of ONNX Runtime {VERSIONS['onnxruntime']}.", sets, kernel_lines(sets))


if __name__ == "__main__":
    main()
