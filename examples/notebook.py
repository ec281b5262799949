"""A tiny GPT-2 on the bytes of a file, from Python: losses, memory by tier, a sample.

usage: notebook.py FILE [STEPS]

Each part between the lines "# %%" is a cell for notebooks that read such files. Needs the module of
python/README.md, and no numpy.
"""

# %% a session: a plan, its memory, and a model with random weights
import sys
import tempfile

import sluice

step_count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
folder = tempfile.TemporaryDirectory()
session = sluice.Session(
    device="cpu", layers=2, width=64, heads=2, context=64, vocab=257,
    data=sys.argv[1], tokenizer="byte", micro_batch=8, steps=step_count, lr=3e-3,
    policy="host", device_memory="8M", host_memory="64M", save=folder.name,
)

# %% the plan: what lies where, known before the first step
for tier, kinds in session.account["tiers"].items():
    if kinds["peak_bytes"]:
        print(f"{tier:6} {kinds['peak_bytes'] / 2**20:6.2f} MiB planned: ", end="")
        parts = {kind: size for kind, size in kinds.items() if size and not kind.endswith("_bytes")}
        print(", ".join(f"{kind} {size / 2**20:.2f}" for kind, size in parts.items()))

# %% training
for _ in range(step_count):
    step = session.step()
    if step.step == 1 or step.step % 20 == 0:
        print(f"step {step.step:4}  loss {step.loss:.4f}  {1e3 * step.seconds:.1f} ms")
print(f"device {step.peak_bytes.device / 2**20:.2f} MiB measured at most")

# %% what the model has learnt, and a checkpoint
print("The " + session.generate("The ", tokens=60, seed=1))
session.save()
session.close()
