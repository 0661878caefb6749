"""What a compiler makes of the kernel, in a process without the shape checks of the test run: they end every graph.

Prints a line for each case: its name, and how far compiled is from exact (a score) or from eager (a model).
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from fillin.attention import attend, make_score
from support.attention_problems import exact, scattered, window
from support.helpers import distance, random_task, tiny


def of_score(name: str, dim_x: int, extent: float) -> float:
    """Values against the reference in float64."""
    p = scattered(1, 2, 60, 60, dim_x, extent=extent, score=make_score(name, 2, 8, dim_x), span=window(dim_x))

    def out(q, k, v, xq, xk):
        return attend(q, k, v, xq=xq, xk=xk, score=p.score, span=p.span, backend="native")

    return distance(torch.compile(out, backend="aot_eager")(p.q, p.k, p.v, p.xq, p.xk).double(), exact(p).out)


def of_model(score: str) -> float:
    """The mean and every gradient against those of the same model, not compiled."""
    model = tiny("te-tnp", dtype=torch.float32, span=1.0, score=score, backend="native", layers=1)
    task, found = random_task(nc=60, nt=50, dtype=torch.float32), []
    for run in (model, torch.compile(model, backend="aot_eager")):
        model.zero_grad()
        mean = run(task.xc, task.yc, task.xt).mean
        mean.sin().sum().backward()
        found.append([mean, *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    return max(distance(compiled, eager, 0.1) for eager, compiled in zip(*found, strict=True))


CASES = {
    "window": lambda: of_score("nothing", 2, 2.0),
    "score": lambda: of_score("rbf", 2, 2.0),  # a bump of 0.05: no table that is fixed beforehand is fine enough
    "model": lambda: of_model("laplace"),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, case in CASES.items():
        torch.manual_seed(0)
        print(name, case())
