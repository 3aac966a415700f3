"""Write ONNX files with the standard library alone: just the messages that the benchmark models need.

A message is a list of byte strings, so that weights are joined once, when the file is written.
Field numbers are those of onnx.proto.
"""

FLOAT, INT64 = 1, 7


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field, value):
    return [varint(field << 3), varint(value & (1 << 64) - 1)]


def chunk(field, parts):
    return [varint(field << 3 | 2), varint(sum(map(len, parts))), *parts]


def text(field, value):
    return chunk(field, [value.encode()])


def attribute(name, value):
    """AttributeProto: an int, or a list of ints."""
    body = text(1, name)
    if isinstance(value, int):
        return body + integer(3, value) + integer(20, 2)
    return body + [part for v in value for part in integer(8, v)] + integer(20, 7)


def node(op_type, inputs, outputs, name="", **attributes):
    """NodeProto as field 1 of a graph."""
    body = [part for value in inputs for part in text(1, value)]
    body += [part for value in outputs for part in text(2, value)]
    body += (text(3, name) if name else []) + text(4, op_type)
    for key, value in attributes.items():
        body += chunk(5, attribute(key, value))
    return chunk(1, body)


def initializer(name, dtype, dims, raw):
    """TensorProto with raw data, as field 5 of a graph."""
    body = [part for dim in dims for part in integer(1, dim)]
    return chunk(5, body + integer(2, dtype) + text(8, name) + chunk(9, [raw]))


def value_info(field, name, dtype, dims):
    """ValueInfoProto as field 11 (input) or 12 (output) of a graph; a str dim is a dim_param."""
    shape = []
    for dim in dims:
        shape += chunk(1, text(2, dim) if isinstance(dim, str) else integer(1, dim))
    return chunk(field, text(1, name) + chunk(2, chunk(1, integer(1, dtype) + chunk(2, shape))))


def graph_input(name, dtype, dims):
    return value_info(11, name, dtype, dims)


def graph_output(name, dtype, dims):
    return value_info(12, name, dtype, dims)


def write_model(path, name, graph, opset=17, ir_version=8):
    """Write a ModelProto whose graph has the given fields."""
    model = integer(1, ir_version) + text(2, "trtc-bench") + chunk(7, graph + text(2, name)) + chunk(8, integer(2, opset))
    with open(path, "wb") as f:
        f.writelines(model)
