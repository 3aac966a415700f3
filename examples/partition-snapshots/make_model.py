#!/usr/bin/env python3
"""Write detector.onnx: a small convolutional network and a tail that selects what scores above a threshold.

Needs the package onnx. The file is committed; run this only to change the model.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def weights(name, shape, seed):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 0.1
    return numpy_helper.from_array(values, name)


def main():
    node = helper.make_node
    nodes = [
        node("Conv", ["image", "w1"], ["c1"], name="/backbone/conv1", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c1"], ["r1"], name="/backbone/relu1"),
        node("Conv", ["r1", "w2"], ["c2"], name="/backbone/conv2", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c2"], ["r2"], name="/backbone/relu2"),
        node("Conv", ["r2", "w3"], ["c3"], name="/head/conv"),
        node("Sigmoid", ["c3"], ["scores"], name="/head/score"),
        node("Greater", ["scores", "threshold"], ["above"], name="/select/above"),
        node("NonZero", ["above"], ["at"], name="/select/nonzero"),
        node("Transpose", ["at"], ["selected"], name="/select/rows", perm=[1, 0]),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 64, 64])],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 4, 16, 16]),
            helper.make_tensor_value_info("selected", TensorProto.INT64, ["count", 4]),
        ],
        [
            weights("w1", (8, 3, 3, 3), 1),
            weights("w2", (8, 8, 3, 3), 2),
            weights("w3", (4, 8, 1, 1), 3),
            numpy_helper.from_array(np.float32(0.5), "threshold"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, "detector.onnx")


if __name__ == "__main__":
    main()
