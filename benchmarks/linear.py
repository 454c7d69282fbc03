"""One linear layer of SmolLM2 by MKL (torch's choice for fp32) and by oneDNN: GFLOP/s by number of rows.

    python benchmarks/linear.py

Forward is y = x W^T, backward the gradient of x, W being larger than the caches together. Both alternate, the best of
`REPETITIONS` counts: it is what the machine can do, and the machine is shared.
"""

import torch
from _machine import report, timed

from site_interp.model.linear import quick_linear

SHAPES = {"gate": (1536, 576), "down": (576, 1536), "unembed": (49152, 576)}
ROWS = (1, 4, 10, 40, 100, 400, 1600)
REPETITIONS, BYTES = 7, 200 << 20


def main() -> None:
    numbers: dict[str, object] = {"benchmark": "linear", "repetitions": REPETITIONS}
    for name, shape in SHAPES.items():
        layers = [
            torch.nn.Linear(shape[1], shape[0], bias=False) for _ in range(max(1, BYTES // (4 * shape[0] * shape[1])))
        ]
        for layer in layers:
            layer.requires_grad_(False)
        quick = [quick_linear(layer) for layer in layers]
        for rows in ROWS:
            x = torch.randn(rows, shape[1], requires_grad=True)
            g = torch.randn(rows, shape[0])
            some = range(max(1, min(len(layers), 20_000 // rows)))
            best: dict[str, float] = {}
            for _ in range(REPETITIONS):
                for kind, held in (("mkl", layers), ("onednn", quick)):
                    with torch.no_grad():
                        forward = timed(lambda held=held, x=x, some=some: [held[i](x) for i in some]).seconds
                    both = timed(lambda held=held, x=x, g=g, some=some: [held[i](x).backward(g) for i in some]).seconds
                    for part, seconds, work in (("forward", forward, 1), ("both", both, 2)):
                        rate = 2e-9 * work * len(some) * rows * shape[0] * shape[1] / seconds
                        best[f"{kind}_{part}"] = max(best.get(f"{kind}_{part}", 0.0), rate)
            numbers[f"{name}_{rows}"] = {key: round(value, 1) for key, value in best.items()}
    report(numbers)


if __name__ == "__main__":
    main()
