"""Reads and writes safetensors files with numpy alone, so that the references need no package that
may change under them. Only what the references use: F32, F64 and I32."""

import json
import struct

import numpy as np

TYPES = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8"), "I32": np.dtype("<i4")}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def write(path, tensors):
    """Writes {name: array}, sorted by name, the header padded with spaces to 8 bytes."""
    header = {"__metadata__": {"format": "pt"}}
    arrays, end = [], 0
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        dtype = NAMES[array.dtype.newbyteorder("<")]
        header[name] = {"dtype": dtype, "shape": list(np.shape(tensors[name])),
                        "data_offsets": [end, end + array.nbytes]}
        arrays.append(array)
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for array in arrays:
            file.write(array.data)


def read(path):
    """{name: array} of a file that this writer or sluice's made."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    header_bytes = struct.unpack("<Q", data[:8].tobytes())[0]
    header = json.loads(data[8:8 + header_bytes].tobytes())
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        first, last = (8 + header_bytes + offset for offset in entry["data_offsets"])
        tensors[name] = data[first:last].view(TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors
