#!/usr/bin/env python3
"""Write a chain of N elementwise nodes as ONNX: what a partitioner must not be quadratic in.

    make_chain.py N OUT.onnx

Input x, output y, f32 [N, 64]. The nodes have no names, as in many real files.
"""

import sys

from onnx_writer import FLOAT, graph_input, graph_output, node, write_model

# Unary operators in turn; each keeps its values in a range where the next is well behaved.
OPERATORS = ("Sigmoid", "Neg", "Tanh", "Abs", "Relu", "Sqrt")


def build(count, path):
    graph, value = [], "x"
    for index in range(count):
        output = "y" if index == count - 1 else f"v{index}"
        graph += node(OPERATORS[index % len(OPERATORS)], [value], [output])
        value = output
    graph += graph_input("x", FLOAT, ["N", 64]) + graph_output("y", FLOAT, ["N", 64])
    write_model(path, "chain", graph)


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[1].isdigit() or sys.argv[1] == "0":
        sys.exit(__doc__)
    build(int(sys.argv[1]), sys.argv[2])
