#!/usr/bin/env python3
"""What the benchmarks for GPUs would run on cards of three sizes, planned without one: a plan does not ask
whose memory it is. Wrong could be: a run that does not fit; a device with so much room, or AdamW on its
side, that a run which is there to measure a lane gives the lane nothing to do; a check that does not see
this when it happens.

usage: plans.py SLUICE DEVICE REPOSITORY"""

import concurrent.futures
import os
import sys
import tempfile

# MiB that a card has left at least once it is open: what nvidia-smi calls its total (23028 of an A10,
# 46068 of an L40S, 81559 of an H100), less a context and what a plan leaves to libraries.
CARDS = {"24 GB": 22000, "48 GB": 45000, "80 GB": 78000}
HOST, DISK = "60G", "200G"


def check(is_so, text):
    if not is_so:
        raise SystemExit(f"FAILED: {text}")


def parse(script, card, more=()):
    return script.parse(["--sluice", sluice, "--device", device, "--device-memory",
                         f"{CARDS[card]}M", "--host-memory", HOST, "--disk-space", DISK, *more])


def check_plan(what, options, model, words, lanes):
    """It fits, and each lane moves a byte a parameter at least; AdamW's has moments on its side."""
    planned = gpu_common.plan(options, model, words)
    check(planned, f"{what}: it does not fit")
    parameters = gpu_limits.count_parameters(*gpu_limits.SHAPES[model])
    for lane in set(lanes) - {"host"}:
        moved = planned["moved_bytes_per_step"][lane]
        check(moved >= parameters, f"{what}: the lane {lane} moves {moved} bytes a step, of "
              f"{parameters} parameters")
    tiers = planned["tiers"]
    if "host" in lanes:
        check(planned["choice"]["adam"] == "host" and
              tiers["host"]["moment1"] + tiers["disk"]["moment1"] > 0,
              f"{what}: AdamW of the host has no moments")
    return planned, parameters


# ---- one script each ----


def check_offload(card, model, drive):
    options = parse(gpu_offload, card, ["--disk-dir", drive])
    fitting, words = gpu_offload.prepare(options, model)
    rows = {("24 GB", "gpt2-xl"): 4, ("48 GB", "gpt2-xl"): 8}.get((card, model), 16)
    check(fitting.batch == rows, f"{model} on {card}: {fitting.batch} rows, not {rows}")
    without = [place for place in options.places if place not in words]
    check(without == (["resident"] if (card, model) == ("24 GB", "gpt2-xl") else []),
          f"{model} on {card}: {without} is left out")
    for place in words:
        what = f"gpu_offload, {model}, {place}, {card}"
        planned, parameters = check_plan(what, fitting, model, words[place], gpu_offload.LANES[place])
        gone = planned["tiers"]["device"]["moment1"] == 0
        check(gone == (place != "resident"), f"{what}: moments are on the wrong side")
        if place in gpu_offload.SQUEEZED: # 2 bytes of each go up anyhow, updated; some once more
            check(planned["moved_bytes_per_step"]["h2d"] > 2.2 * parameters,
                  f"{what}: parameters do not leave the device")


def check_agreement(card, place, drive):
    parsed = parse(gpu_agreement, card, ["--disk-dir", drive])
    for precision in parsed.precisions:
        options = gpu_agreement.shape_options(parsed, precision)
        check_plan(f"gpu_agreement, {precision}, {place[0]}, {card}", options, options.model,
                   gpu_agreement.find_words(options, place), place[-1])


def check_memory(card, _, _drive):
    options = parse(gpu_memory, card)
    for model in options.models:
        for name, words in gpu_memory.PLACES:
            check_plan(f"gpu_memory, {model}, {name}, {card}", options, model, words,
                       () if name == "device" else ("h2d", "d2h", "host"))


def check_pair(card, model, _drive):
    fitting = gpu_common.fit_rows(parse(gpu_pair, card), model, gpu_pair.RESIDENT)
    rows = {("24 GB", "gpt2-xl"): 0, ("48 GB", "gpt2-xl"): 8}.get((card, model), 16)
    check((fitting.batch if fitting else 0) == rows, f"gpu_pair, {model}, {card}: not {rows} rows")


def check_largest(card, _, _drive):
    options = parse(gpu_largest, card, ["--seconds", "1200"])
    layers, planned = gpu_largest.search(options)
    check(layers > 0, f"gpu_largest, {card}: nothing fits")
    moved = planned["moved_bytes_per_step"]
    check(moved["h2d"] > 0 and moved["d2h"] > 0, f"gpu_largest, {card}: the host is not used")


# ---- the check that runs make of themselves ----


def is_refused(lanes, moved):
    try:
        gpu_common.check_lanes(lanes, moved)
    except SystemExit as end:
        return lanes[-1] in str(end)
    return False


def check_lanes():
    moved = gpu_common.read_moved({"h2d_bytes": 5, "d2h_bytes": 0, "disk_read_bytes": 0})
    check(not is_refused(("h2d", "host"), moved), "a busy lane is taken for an idle one")
    for lanes in (("d2h",), ("h2d", "read")):
        check(is_refused(lanes, moved), f"idle lanes of {lanes} are not seen")


def main(drive):
    check_lanes()
    jobs = [(check_offload, card, model) for card in CARDS for model in ("gpt2-xl", "gpt2")]
    jobs += [(check_pair, card, model) for card in CARDS for model in ("gpt2-xl", "gpt2")]
    jobs += [(check_memory, card, None) for card in CARDS]
    # Of a model that every card holds, and of a search that takes longest where most fits.
    jobs += [(check_agreement, "80 GB", place) for place in gpu_agreement.PLACES]
    jobs += [(check_largest, "24 GB", None)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(job, card, what, drive) for job, card, what in jobs]:
            done.result()
    print(f"{len(jobs)} parts of the benchmarks have what they measure")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    sluice, device, root = sys.argv[1:]
    sys.path.insert(0, os.path.join(root, "benchmarks"))
    import gpu_agreement
    import gpu_common
    import gpu_largest
    import gpu_limits
    import gpu_memory
    import gpu_offload
    import gpu_pair
    with tempfile.TemporaryDirectory(prefix="sluice-plans-") as scratch:
        os.environ["XDG_CONFIG_HOME"] = scratch # no machine profile but the guess
        main(scratch)
