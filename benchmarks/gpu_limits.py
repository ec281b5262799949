"""What a step can take at least, from a machine's roofs: the busiest of compute, link, host memory and
disk, because everything else overlaps with it. Pure; `python3 gpu_limits.py` tests itself.

Per parameter, bytes in mixed precision: 2 up and 2 down the link for parameters updated on the host and
gradients, 4 up for parameters that live there (once forward, once backward); AdamW on the host reads and
writes 28, and the link's copies 6 more of the same memory; the disk reads and writes 12 of states, both at
once where that was measured. An exact norm stands between the backward pass and any update, so a step
takes at least the backward pass and the longer of forward pass and update. Where a run moved less, because
there was room for copies of what lives elsewhere, its own bytes count."""

import re

VOCAB, CONTEXT = 50257, 1024
ROOF_EDGE = 4096  # of the least square product that keeps a GPU busy
SHAPES = {"gpt2": (12, 768), "gpt2-medium": (24, 1024), "gpt2-large": (36, 1280),
          "gpt2-xl": (48, 1600)}
PLACES = ("resident", "optimizer", "host", "nvme")

# Dense bf16 of tensor cores as the makers state it, by a part of the GPU's name: for "MFU" alone.
STATED_FLOPS = (("H200", 989.4e12), ("H100 PCIe", 756e12), ("H100", 989.4e12), ("A100", 312e12),
                ("B200", 2250e12))


def count_parameters(layers, width, vocab=VOCAB, context=CONTEXT):
    return vocab * width + context * width + layers * (12 * width ** 2 + 13 * width) + 2 * width


def count_step_flops(layers, width, batch, seq, vocab=VOCAB, context=CONTEXT):
    """6 per parameter and token, and 6 * layers * width * seq a token for causal attention."""
    parameters = count_parameters(layers, width, vocab, context)
    return batch * seq * (6 * parameters + 6 * layers * width * seq)


def find_stated_flops(name):
    return next((flops for part, flops in STATED_FLOPS if part in (name or "")), None)


def is_roof(row):
    """Of products: on a GPU the square, if it is large enough (the quick bench's is not)."""
    square = re.match(r"linear (\d+)x\1, \1 rows", row["name"])
    return "roof" not in row and (not square or int(square[1]) >= ROOF_EDGE)


def read_roofs(report, precision):
    """From the JSON of `sluice bench`; what it does not hold is None."""
    rows = report["rows"]

    def find(group, name, kind=None):
        return next((row["median"] for row in rows if row["group"] == group and
                     name in row["name"] and kind in (None, row["type"])), None)

    return {"flops": next((row["median"] for row in rows if row["group"] == "gemm" and
                           row["type"] == precision and is_roof(row)), None),
            "h2d": find("copy", "host to device"), "d2h": find("copy", "device to host"),
            "memory": find("memory", "4 reads"), "read": find("disk", "read 1 MiB"),
            "write": find("disk", "write 1 MiB"),
            "read_and_write": find("disk", "at once, together"), "shares_cores": not report.get("gpu")}


def count_bytes(place, parameters, moved):
    """Bytes of a step by lane: as the formats demand, or what a run moved, if that is less."""
    asked = {"h2d": (4 if place in ("host", "nvme") else 2) * parameters, "d2h": 2 * parameters}
    if place == "nvme":
        asked.update(disk_read=12 * parameters, disk_written=12 * parameters)
    return {name: min(size, moved.get(name + "_bytes", size)) for name, size in asked.items()}


def disk_seconds(read, written, roofs):
    """One after the other, unless it is known how fast the disk does both at once."""
    reading, writing = read / roofs["read"], written / roofs["write"]
    if not roofs.get("read_and_write"):
        return reading + writing
    return max(reading, writing, (read + written) / roofs["read_and_write"])


def step_seconds(place, parameters, flops, roofs, recomputes=False, moved=None):
    """Seconds by resource and the least a step can take, for one micro-batch with clipping."""
    compute = flops / roofs["flops"] * (8 / 6 if recomputes else 1)
    parts = {"compute": compute}
    if place != "resident":
        size = count_bytes(place, parameters, moved or {})
        parts["adam"] = 34 * parameters / roofs["memory"]
        parts["h2d"] = size["h2d"] / roofs["h2d"]
        parts["d2h"] = size["d2h"] / roofs["d2h"]
    if place == "nvme":
        parts["disk"] = disk_seconds(size["disk_read"], size["disk_written"], roofs)
    if roofs["shares_cores"]:
        parts["compute"] += parts.pop("adam", 0)
    update = max((parts.get(name, 0) for name in ("adam", "disk")), default=0)
    if place != "resident":
        update = max(update, min(parts["h2d"], 2 * parameters / roofs["h2d"]))
    forward = compute / 3
    least = max(*parts.values(), compute - forward + max(forward, update))
    return parts, least


def test():
    assert abs(count_parameters(12, 768) - 124.44e6) < 0.01e6
    assert abs(count_parameters(48, 1600) - 1557.6e6) < 0.1e6
    roofs = {"flops": 790e12, "h2d": 55e9, "d2h": 55e9, "memory": 200e9, "read": 10e9,
             "write": 5e9, "shares_cores": False}
    parameters = 1e9
    few, many = 6 * parameters * 1000, 6 * parameters * 1e6
    assert step_seconds("resident", parameters, few, roofs)[1] == few / 790e12
    parts, least = step_seconds("optimizer", parameters, few, roofs)
    assert abs(parts["adam"] - 0.17) < 1e-9 and abs(least - 0.17 - few / 790e12 * 2 / 3) < 1e-9
    assert step_seconds("host", parameters, few, roofs)[0]["h2d"] == 4 * parameters / 55e9
    assert step_seconds("optimizer", parameters, many, roofs)[1] == many / 790e12
    assert abs(step_seconds("nvme", parameters, few, roofs)[0]["disk"] - 3.6) < 1e-9
    moved = {"h2d_bytes": parameters, "disk_read_bytes": 0}
    assert step_seconds("host", parameters, few, roofs, moved=moved)[0]["h2d"] == parameters / 55e9
    assert abs(step_seconds("nvme", parameters, few, roofs, moved=moved)[0]["disk"] - 2.4) < 1e-9
    both = {**roofs, "read_and_write": 12e9}
    assert abs(step_seconds("nvme", parameters, few, both)[0]["disk"] - 2.4) < 1e-9
    assert abs(disk_seconds(24e9, 0, both) - 2.4) < 1e-9 and disk_seconds(12e9, 12e9, both) == 2.4
    shared = {**roofs, "shares_cores": True}
    assert step_seconds("optimizer", parameters, many, shared)[1] > many / 790e12 + 0.16
    rows = [{"group": "gemm", "type": "bf16", "name": "linear", "median": 7.0},
            {"group": "gemm", "type": "bf16", "name": "linear", "median": 5.0, "roof": 7.0},
            {"group": "copy", "type": "", "name": "host to device", "median": 2.0}]
    found = read_roofs({"rows": rows, "gpu": "X"}, "bf16")
    assert found["flops"] == 7.0 and found["h2d"] == 2.0 and found["read"] is None
    assert not found["shares_cores"]
    rows = [{"group": "gemm", "type": "bf16", "name": f"linear {n}x{n}, {n} rows", "median": n}
            for n in (512, 8192)]
    assert read_roofs({"rows": rows[:1], "gpu": "X"}, "bf16")["flops"] is None
    assert read_roofs({"rows": rows, "gpu": "X"}, "bf16")["flops"] == 8192
    assert find_stated_flops("NVIDIA H100 PCIe") == 756e12 and find_stated_flops("Z80") is None
    print("the limits are as they should be")


if __name__ == "__main__":
    test()
