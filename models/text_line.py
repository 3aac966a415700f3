#!/usr/bin/env python3
"""The text line that the demo reads: picture, model input, and the way back from a model's output to text.

    text_line.py draw                  text_line.png, from the font that Pillow carries (only this needs Pillow)
    text_line.py tensor [--check]      text_line.npz, from text_line.png: the input of PP-OCR recognition
    text_line.py read MODEL OUT.npz    print the text in the model's output (greedy CTC)

`tensor` takes any 48 pixel high 8-bit PNG: gray, RGB or RGBA (alpha is ignored). `--check` says whether the npz is current.
"""

import argparse
import array
import ast
import os
import struct
import sys
import zipfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
PNG = os.path.join(HERE, "text_line.png")
NPZ = os.path.join(HERE, "text_line.npz")
TEXT = "Hello trtc 2026"
HEIGHT = 48  # the only height that PP-OCR recognition accepts
FONT_SIZE = 36  # at this size recognition is most certain: every step leads by 0.8 or more
INPUT = "x"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def draw(text=TEXT, path=PNG):
    """Render `text` in black on white and write it as a gray PNG."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(FONT_SIZE)
    left, top, right, bottom = font.getbbox(text)
    width = right - left + 24
    image = Image.new("L", (width, HEIGHT), 255)
    ImageDraw.Draw(image).text((12 - left, (HEIGHT - (bottom - top)) // 2 - top), text, fill=0, font=font)
    rows = b"".join(b"\0" + image.tobytes()[y * width : (y + 1) * width] for y in range(HEIGHT))
    with open(path, "wb") as f:
        f.write(PNG_SIGNATURE)
        f.write(png_chunk(b"IHDR", struct.pack(">2I5B", width, HEIGHT, 8, 0, 0, 0, 0)))
        f.write(png_chunk(b"IDAT", zlib.compress(rows, 9)))
        f.write(png_chunk(b"IEND", b""))


def png_chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def read_png(path):
    """Read an 8-bit PNG; return (width, height, channels, bytes in row order)."""
    with open(path, "rb") as f:
        data = f.read()
    if not data.startswith(PNG_SIGNATURE):
        raise ValueError(f"{path} is no PNG")
    at, packed, header = len(PNG_SIGNATURE), b"", None
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + length]
        at += length + 12
        if kind == b"IHDR":
            header = struct.unpack(">2I5B", body)
        elif kind == b"IDAT":
            packed += body
    width, height, depth, colour, _, _, interlace = header
    if depth != 8 or colour not in (0, 2, 6) or interlace:
        raise ValueError(f"{path}: only 8-bit gray, RGB or RGBA without interlacing is read")
    channels = {0: 1, 2: 3, 6: 4}[colour]
    return width, height, channels, unfilter(zlib.decompress(packed), width * channels, height, channels)


def unfilter(raw, stride, height, step):
    """Undo PNG's row filters (PNG specification, section 9)."""
    out, above = bytearray(), bytearray(stride)
    for y in range(height):
        kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        for i in range(stride):
            left = row[i - step] if i >= step else 0
            corner = above[i - step] if i >= step else 0
            row[i] = (row[i] + (0, left, above[i], (left + above[i]) // 2, paeth(left, above[i], corner))[kind]) & 255
        out += row
        above = row
    return bytes(out)


def paeth(left, above, corner):
    guess = left + above - corner
    return min((left, above, corner), key=lambda value: abs(guess - value))


def recognition_input(path):
    """Return (shape, f32 values) of PP-OCR recognition's input: [1, 3, 48, width], BGR, (v / 255 - 0.5) / 0.5."""
    width, height, channels, pixels = read_png(path)
    if height != HEIGHT:
        raise ValueError(f"{path} is {height} pixels high; PP-OCR recognition wants {HEIGHT}")
    planes = (0, 0, 0) if channels == 1 else (2, 1, 0)
    scaled = [(v / 255 - 0.5) / 0.5 for v in range(256)]
    values = array.array("f", (scaled[v] for plane in planes for v in pixels[plane::channels]))
    return (1, 3, height, width), values


def write_npz(path, arrays):
    """Write {name: (shape, array.array of f32)} as a compressed .npz, the same bytes each time."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (shape, values) in arrays.items():
            head = repr({"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}).encode()
            head += b" " * (-(len(head) + 11) % 64) + b"\n"
            body = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + values.tobytes()
            member = zipfile.ZipInfo(name + ".npy")  # dated 1980
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, body)


def read_npz(path):
    """Read the f32 arrays of a .npz as {name: (shape, array.array)}."""
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            data = archive.read(member)
            size, start = (struct.unpack_from("<H", data, 8)[0], 10) if data[6] == 1 else (struct.unpack_from("<I", data, 8)[0], 12)
            head = ast.literal_eval(data[start : start + size].decode("latin-1"))
            if head["descr"] == "<f4" and not head["fortran_order"]:
                arrays[member.removesuffix(".npy")] = (head["shape"], array.array("f", data[start + size :]))
    return arrays


def fields(data):
    """The fields of a protobuf message: (number, value), a length-delimited value as a memoryview."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        wire = key & 7
        if wire == 0:
            yield key >> 3, varint()
            continue
        length = varint() if wire == 2 else {1: 8, 5: 4}[wire]
        yield key >> 3, data[at : at + length]
        at += length


def characters(model):
    """The classes of a PP-OCR recognition model: blank, its `character` list, space."""
    with open(model, "rb") as f:
        data = memoryview(f.read())
    for number, entry in fields(data):
        if number != 14:  # ModelProto.metadata_props
            continue
        pair = dict(fields(entry))
        if bytes(pair[1]) == b"character":
            return ["", *bytes(pair[2]).decode("utf-8").splitlines(), " "]
    raise ValueError(f"{model} has no metadata entry `character`")


def greedy_text(classes, shape, scores):
    """Greedy CTC over scores [1, steps, classes]: best class a step, repeats merged, blanks dropped."""
    _, steps, count = shape
    text, last = [], 0
    for step in range(steps):
        row = scores[step * count : (step + 1) * count]
        best = row.index(max(row))
        if best != last:
            text.append(classes[best])
        last = best
    return "".join(text)


def read_text(model, outputs):
    (shape, scores), *_ = read_npz(outputs).values()
    return greedy_text(characters(model), shape, scores)


def main():
    parser = argparse.ArgumentParser(description="Picture, model input and read-out of the demo's text line.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("draw")
    tensor = verbs.add_parser("tensor")
    tensor.add_argument("--png", default=PNG)
    tensor.add_argument("--out", default=NPZ)
    tensor.add_argument("--check", action="store_true")
    read = verbs.add_parser("read")
    read.add_argument("model")
    read.add_argument("outputs")
    options = parser.parse_args()
    if options.verb == "draw":
        draw()
    elif options.verb == "read":
        print(read_text(options.model, options.outputs))
    elif options.check:
        if read_npz(options.out) != {INPUT: recognition_input(options.png)}:
            sys.exit(f"text_line: {options.out} is not what {options.png} gives; run: {sys.argv[0]} tensor")
    else:
        write_npz(options.out, {INPUT: recognition_input(options.png)})


if __name__ == "__main__":
    main()
