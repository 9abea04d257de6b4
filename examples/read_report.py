"""Reading a session's report: what each kernel computes, reads and costs, and what stayed apart.

`bytes`, `weight_bytes` and `flops` are of one execution with every run-time dimension 1. Below
about one flop per byte a kernel waits for memory: time is bytes over the rate of the cache.
"""

from usage import arguments

arguments(__doc__)

import ostinato
from ostinato.demo import MODEL

report = ostinato.InferenceSession(MODEL).report()
print(report)

print("op counts before and after the graph passes:")
before, after = report["ops"]["before"], report["ops"]["after"]
for op in sorted({*before, *after}):
    if before.get(op, 0) != after.get(op, 0):
        print(f"  {op}: {before.get(op, 0)} -> {after.get(op, 0)}")

print("kernels:")
for kernel in report["kernels"]:
    intensity = kernel["flops"] / max(kernel["bytes"], 1)
    print(
        f"  {kernel['name']}: nodes {len(kernel['fused'])}, {kernel['weight_bytes']:,} bytes of "
        f"weights, {kernel['flops']:,} flop, {intensity:.2f} flop/byte, tile {kernel['tile']}"
    )

print("kernels that stayed apart, and why:")
for refusal in report["refusals"]:
    print(f"  {refusal['producer']} -> {refusal['consumer']}: {refusal['reason']}")

assert report.native, report.fallback
streamed = sum(k["weight_bytes"] for k in report["kernels"] if k["in_loop"])
print(f"every step of the loop reads {streamed:,} bytes of weights")
