#!/usr/bin/env python3
"""Write a ResNet-50 as ONNX: f32, dynamic batch, 122 nodes, 102 MB of random weights; the same bytes each time.

    make_resnet50.py OUT.onnx

Batch normalisation is folded into the convolutions, as exporters do. Input x [N, 3, 224, 224], output y [N, 1000].
"""

import array
import math
import random
import sys

from onnx_writer import FLOAT, graph_input, graph_output, initializer, node, write_model

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # inner channels, blocks, stride of the first block


def random_floats(source, count, scale):
    """`count` little-endian f32: either sign, magnitude spread over one octave, root mean square near `scale`."""
    # Values of [1, 2) have a root mean square of sqrt(7/3); the exponent is the nearest power of two. Random mantissas
    # under one exponent come from a single big integer, which is 50 times faster than a call for each weight.
    exponent = 127 + round(math.log2(scale / math.sqrt(7 / 3)))
    keep = int.from_bytes(b"\xff\xff\x7f\x80" * count, "little")
    fixed = int.from_bytes((exponent << 23).to_bytes(4, "little") * count, "little")
    return (source.getrandbits(32 * count) & keep | fixed).to_bytes(4 * count, "little")


class Net:
    def __init__(self, seed):
        self.source = random.Random(seed)
        self.nodes, self.weights, self.count = [], [], 0

    def add(self, op_type, inputs, **attributes):
        self.count += 1
        output = f"v{self.count}"
        self.nodes += node(op_type, inputs, [output], f"{op_type}_{self.count}", **attributes)
        return output

    def weight(self, dims, scale):
        name = f"w{len(self.weights)}"
        self.weights.append(initializer(name, FLOAT, dims, random_floats(self.source, math.prod(dims), scale)))
        return name

    def zeros(self, count):
        name = f"w{len(self.weights)}"
        self.weights.append(initializer(name, FLOAT, [count], array.array("f", bytes(4 * count)).tobytes()))
        return name

    def conv(self, value, cin, cout, kernel, stride=1, gain=1.0):
        weight = self.weight([cout, cin, kernel, kernel], gain * math.sqrt(2 / (cin * kernel * kernel)))
        return self.add(
            "Conv", [value, weight, self.zeros(cout)],
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, dilations=[1, 1], group=1,
        )  # fmt: skip

    def relu(self, value):
        return self.add("Relu", [value])

    def bottleneck(self, value, cin, inner, stride):
        inside = self.relu(self.conv(value, cin, inner, 1))
        inside = self.relu(self.conv(inside, inner, inner, 3, stride))
        # A quiet last convolution keeps 16 summed blocks in range without normalisation.
        inside = self.conv(inside, inner, 4 * inner, 1, gain=0.25)
        if stride != 1 or cin != 4 * inner:
            value = self.conv(value, cin, 4 * inner, 1, stride)
        return self.relu(self.add("Add", [inside, value]))


def build(path, seed=50):
    net = Net(seed)
    value = net.relu(net.conv("x", 3, 64, 7, 2))
    value = net.add("MaxPool", [value], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for inner, blocks, stride in STAGES:
        for block in range(blocks):
            value = net.bottleneck(value, channels, inner, stride if block == 0 else 1)
            channels = 4 * inner
    value = net.add("Flatten", [net.add("GlobalAveragePool", [value])], axis=1)
    weight = net.weight([1000, channels], math.sqrt(1 / channels))
    net.count += 1
    net.nodes += node("Gemm", [value, weight, net.zeros(1000)], ["y"], f"Gemm_{net.count}", transB=1)
    graph = net.nodes + [part for weight in net.weights for part in weight]
    graph += graph_input("x", FLOAT, ["N", 3, 224, 224]) + graph_output("y", FLOAT, ["N", 1000])
    write_model(path, "resnet50", graph)
    return net.count


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(f"{build(sys.argv[1])} nodes in {sys.argv[1]}")
