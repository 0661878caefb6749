"""The kernel under torch.compile, in a process without the shape checks of the tests, which break every graph.

Prints a line per case: its name, and the error of the compiled result against the exact one (a score) or against
eager mode (a model).
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from fillin.attention import attend, make_score
from support.attention_problems import random_problem, random_span, solve_exactly
from support.helpers import distance, random_task, tiny


def score_error(name: str) -> float:
    """Error of the output against the reference in float64."""
    p = random_problem(1, 2, 60, 60, 2, score=make_score(name, 2, 8, 2), span=random_span(2))

    def out(q, k, v, xq, xk):
        return attend(q, k, v, xq=xq, xk=xk, score=p.score, span=p.span, backend="native")

    compiled = torch.compile(out, backend="aot_eager")(p.q, p.k, p.v, p.xq, p.xk)
    return distance(compiled.double(), solve_exactly(p).out)


def model_error(score: str) -> float:
    """Largest difference of the mean and of every gradient between eager and compiled model."""
    model = tiny("te-tnp", dtype=torch.float32, span=1.0, score=score, backend="native", layers=1)
    task, results = random_task(nc=60, nt=50, dtype=torch.float32), []
    for run in (model, torch.compile(model, backend="aot_eager")):
        model.zero_grad()
        mean = run(task.xc, task.yc, task.xt).mean
        mean.sin().sum().backward()
        results.append([mean, *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    return max(distance(compiled, eager, 0.1) for eager, compiled in zip(*results, strict=True))


CASES = {
    "window": lambda: score_error("nothing"),
    "score": lambda: score_error("rbf"),  # as narrow as 0.05: no table of a fixed size is fine enough
    "model": lambda: model_error("laplace"),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, case in CASES.items():
        torch.manual_seed(0)
        print(name, case())
