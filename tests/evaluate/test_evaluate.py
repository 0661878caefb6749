"""Evaluation: exact posteriors have no gap, overconfidence is detected, and test tasks are unseen in training."""

import json
import math
import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal, OneHotCategorical

import fillin
from fillin import metrics, objectives
from fillin.cli import main
from fillin.data import GaussianProcessPrior, curves
from fillin.data.kernels import RBFKernel
from fillin.evaluate import evaluate
from fillin.evaluate.curves import make_conditions, open_curves
from fillin.evaluate.scores import TEST_SEED, to_test_stream
from fillin.heads import LatentMixture, to_predictive
from fillin.models import Process
from fillin.predictive import GaussianMixture
from fillin.train.recipe import build_model, dump_recipe, read_recipe

FIXED = {"length": (0.4, 0.4), "scale": (0.8, 0.8), "noise": 0.1}


class ExactPosterior(Process):
    """The posterior of the process of `curves("rbf", **FIXED)`, with a factor on its std and a bias of its mean."""

    def __init__(self, std_factor: float = 1.0, bias: float = 0.0):
        super().__init__(1, 1, features=1)
        self.std_factor, self.bias = std_factor, bias

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None):
        kernel = RBFKernel(length=FIXED["length"], scale=FIXED["scale"])
        posterior = GaussianProcessPrior(kernel, FIXED["noise"]).posterior(xc, yc, xt)
        mean, std = posterior.mean[..., None] + self.bias, self.std_factor * posterior.stddev[..., None]
        return Normal(mean, std, validate_args=False)

    def encode(self, context, targets):
        return None

    def decode(self, encoded, targets):
        return targets.x


@pytest.fixture(scope="module")
def stream():
    return curves("rbf", **FIXED)


@pytest.fixture(scope="module")
def exact_scores(stream):
    return evaluate(ExactPosterior(), stream, batches=60, limit_samples=2, autoregressive=3)


def test_the_exact_posterior_has_no_gap(exact_scores):
    assert exact_scores.gap == pytest.approx(0, abs=1e-5)
    assert exact_scores.gap_error == pytest.approx(0, abs=1e-5)
    assert exact_scores.limit == pytest.approx(exact_scores.known, abs=1e-9)  # the prior has only one setting
    assert exact_scores.log_likelihood == pytest.approx(exact_scores.known, abs=1e-5)
    assert exact_scores.joint.gap == pytest.approx(0, abs=1e-4)  # the chain rule gives the joint posterior
    assert exact_scores.joint.log_likelihood > exact_scores.log_likelihood


def test_the_exact_posterior_is_calibrated(exact_scores):
    assert (exact_scores.tasks, exact_scores.joint.tasks) == (60 * 16, 3 * 16)
    for level in (50, 80, 95):
        p = level / 100
        error = math.sqrt(p * (1 - p) / exact_scores.targets)
        assert abs(exact_scores.coverage[str(level)] - p) < 4 * error
    assert sum(exact_scores.pit) == pytest.approx(1)
    assert all(abs(share - 0.1) < 4 * math.sqrt(0.09 / exact_scores.targets) for share in exact_scores.pit)
    assert exact_scores.ks < 2 / math.sqrt(exact_scores.targets)


def test_crps_is_the_closed_form(stream):
    """E CRPS of a calibrated Normal is σ/√π; of one forecast, σ(z(2Φ(z) − 1) + 2φ(z) − 1/√π)."""
    task = to_test_stream(stream, 0).task(0)
    prediction = ExactPosterior()(*task.inputs)
    normal = Normal(torch.zeros((), dtype=torch.float64), 1)
    z = (task.yt - prediction.mean) / prediction.stddev
    expected = z * (2 * normal.cdf(z) - 1) + 2 * normal.log_prob(z).exp() - 1 / math.sqrt(math.pi)
    expected = float((prediction.stddev * expected).mean())
    assert evaluate(ExactPosterior(), stream, batches=1, limit_samples=0).crps == pytest.approx(expected, rel=1e-6)


def test_overconfidence_is_detected(stream, exact_scores):
    overconfident = evaluate(ExactPosterior(std_factor=0.5), stream, batches=60, limit_samples=0)
    assert overconfident.coverage["95"] < 0.75
    assert overconfident.coverage["50"] < 0.35
    assert overconfident.pit[0] > 0.15
    assert overconfident.pit[-1] > 0.15
    assert overconfident.ks > 5 * exact_scores.ks
    assert overconfident.crps > exact_scores.crps
    assert overconfident.log_likelihood < exact_scores.log_likelihood
    assert overconfident.rmse == pytest.approx(exact_scores.rmse)
    assert overconfident.limit is overconfident.known is overconfident.gap is overconfident.gap_error is None
    underconfident = evaluate(ExactPosterior(std_factor=2.0), stream, batches=20, limit_samples=0)
    assert underconfident.coverage["50"] > 0.7


def test_rmse_and_likelihood_by_hand(stream):
    model, tasks = ExactPosterior(bias=0.3), [to_test_stream(stream, 5).task(step) for step in range(3)]
    scores = evaluate(model, stream, batches=3, seed=5, limit_samples=0)
    squared = [((model(*task.inputs).mean - task.yt) ** 2).mean() for task in tasks]
    assert scores.rmse == pytest.approx(float(sum(squared) / 3) ** 0.5)
    likelihoods = torch.stack([objectives.log_likelihood(model, task).mean() for task in tasks])
    assert scores.log_likelihood == pytest.approx(float(likelihoods.mean()))
    assert scores.standard_error == pytest.approx(float(likelihoods.std()) / 3**0.5)  # a batch counts as one draw


def test_the_standard_error_is_that_of_the_mean():
    """With correlated tasks in a batch, the reported standard error is the std of the mean over repetitions."""
    repetitions = torch.randn(500, 20, 1) + 0.3 * torch.randn(500, 20, 8)
    means, errors = torch.tensor([metrics.average(values) for values in repetitions]).T
    assert float(errors.mean() / means.std()) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("name", ["tnp-a", "tnp-nd", "np"])
def test_joint_models_have_marginal_and_joint_scores(name, stream):
    model = fillin.create(name, size="small").requires_grad_(False)
    scores = evaluate(model, stream, batches=2, limit_samples=2)
    tasks = [to_test_stream(stream, 0).task(step) for step in range(2)]
    joint = sum(float(objectives.log_likelihood(model, task).mean()) for task in tasks) / 2
    assert scores.joint.log_likelihood == pytest.approx(joint, rel=1e-5)
    assert scores.joint.limit > scores.limit  # correlated targets are likelier jointly
    assert scores.joint.gap == pytest.approx(scores.joint.limit - scores.joint.log_likelihood)
    assert scores.crps > 0
    with pytest.raises(fillin.FillinError, match="drop autoregressive"):
        evaluate(model, stream, batches=1, autoregressive=1)


def test_a_mixture_of_equal_components_scores_like_one_gaussian():
    y, mean, std = torch.randn(2, 3, 1), torch.randn(2, 3, 1), torch.rand(2, 3, 1) + 0.1
    normal = Normal(mean, std)
    components = Normal(mean[..., None].expand(-1, -1, -1, 4), std[..., None].expand(-1, -1, -1, 4))
    head = MixtureSameFamily(Categorical(probs=torch.rand(2, 3, 1, 4)), components)
    latent = LatentMixture(Normal(mean.expand(5, -1, -1, -1), std.expand(5, -1, -1, -1)), None)
    single, values = to_predictive(normal), y.double().numpy()
    for prediction, number in ((head, 4), (latent, 5)):
        mixture = to_predictive(prediction)
        assert mixture.means.shape == (2, 3, 1, number)
        for metric in (GaussianMixture.log_prob, metrics.pit, metrics.crps):
            np.testing.assert_allclose(metric(mixture, values), metric(single, values), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.from_numpy(single.log_prob(values)).float(), normal.log_prob(y))
    torch.testing.assert_close(torch.from_numpy(metrics.pit(single, values)).float(), normal.cdf(y))


def test_classes_have_no_crps(stream, monkeypatch):
    model = fillin.create("cnp", size="small", dim_y=2, head="categorical").requires_grad_(False)
    draw = type(stream).draw

    def draw_one_hot(self, step):
        task, parameters = draw(self, step)
        yc, yt = (torch.cat([y > 0, y <= 0], -1).float() for y in (task.yc, task.yt))
        return replace(task, yc=yc, yt=yt), parameters

    monkeypatch.setattr(type(stream), "draw", draw_one_hot)
    monkeypatch.setattr(type(stream), "dim_y", 2)
    scores = evaluate(model, stream, batches=1, limit_samples=0)
    task = to_test_stream(stream, 0).task(0)
    assert scores.log_likelihood == pytest.approx(float(objectives.log_likelihood(model, task).mean()), rel=1e-5)
    assert scores.crps is scores.coverage is scores.pit is scores.ks is None
    latent = to_predictive(LatentMixture(OneHotCategorical(torch.full((3, 2, 4, 2), 0.5)), None))
    np.testing.assert_allclose(latent.probabilities, np.full((2, 4, 2), 0.5))


def test_missing_targets_do_not_count(stream, monkeypatch):
    unpadded, draw = evaluate(ExactPosterior(), stream, batches=1, limit_samples=0), type(stream).draw

    def draw_padded(self, step):
        task, parameters = draw(self, step)
        extra = torch.zeros(len(task.xt), 2, 1)
        observed = torch.ones(task.xt.shape[:2], dtype=torch.bool)
        mask = torch.cat([observed, torch.zeros(len(task.xt), 2, dtype=torch.bool)], 1)
        yt = torch.cat([task.yt, extra + math.nan], 1)
        return replace(task, xt=torch.cat([task.xt, extra], 1), yt=yt, mask_t=mask), parameters

    monkeypatch.setattr(type(stream), "draw", draw_padded)
    padded = evaluate(ExactPosterior(), stream, batches=1, limit_samples=0)
    assert (padded.targets, padded.coverage, padded.pit) == (unpadded.targets, unpadded.coverage, unpadded.pit)
    for name in ("log_likelihood", "standard_error", "rmse", "crps"):
        assert getattr(padded, name) == pytest.approx(getattr(unpadded, name))


def test_a_limit_that_has_not_converged_is_none():
    """Hardly one of 64 settings falls into the posterior of a period."""
    scores = evaluate(fillin.create("cnp", size="small"), curves("periodic"), batches=2, limit_samples=64)
    assert scores.limit is scores.gap is None
    assert scores.known > 0


def test_training_validation_and_evaluation_use_different_tasks():
    from fillin.train.loop import HELD_OUT

    train = curves("rbf", batch=1)
    tasks = {}
    for seed in (0, 1, 2**30 - 1):
        streams = train, replace(train, seed=HELD_OUT), to_test_stream(train, 0)
        for kind, stream in zip(("train", "validate", "evaluate"), streams, strict=True):
            seeded = replace(stream, seed=stream.seed + seed)
            tasks |= {(kind, seed, step): tuple(seeded.task(step).yt.flatten().tolist()) for step in range(20)}
    assert len(set(tasks.values())) == len(tasks)
    # numpy cuts a seed into words of 32 bits: longer seeds equal another (seed, step)
    assert TEST_SEED + 2**30 <= 2**32
    assert torch.equal(replace(train, seed=2**32).task(0).yt, train.task(1).yt)


def test_evaluation_restores_the_training_mode_and_random_state(stream):
    model = fillin.create("cnp", size="small")
    state = torch.random.get_rng_state()
    assert model.train() is model
    first, second = (evaluate(model, replace(stream, seed=seed), batches=1, limit_samples=0) for seed in (0, 7))
    assert model.training
    assert first == second  # the seed of evaluate selects the tasks
    assert torch.equal(state, torch.random.get_rng_state())
    assert first != evaluate(model, stream, batches=1, seed=1, limit_samples=0)


def test_the_conditions_of_a_report():
    model = fillin.create("cnp", size="small")
    data = {"function": "rbf", "protocol": "sawtooth", "range": (-1.0, 1.0)}
    conditions = make_conditions(model, data)
    assert [condition.kind for condition in conditions[:5]] == ["training", "shift", "beyond", "function", "function"]
    sizes = [condition.value for condition in conditions if condition.kind == "context"]
    assert (sizes[0], sizes[-1]) == (0, 30)
    assert sizes == sorted(set(sizes))
    assert all(condition.stream.layout.range == (-1.0, 1.0) for condition in conditions)
    assert conditions[1].stream.task(0).xt.min() > 2
    assert {conditions[-1].stream.task(step).xc.shape[1] for step in range(3)} == {30}
    few = make_conditions(model, data, functions=["linear", "rbf"], shift=0, contexts=[9, 2])
    assert [setting.label for setting in few] == [
        "training: rbf",
        "beyond the context",
        "linear",
        "2 points",
        "9 points",
    ]
    predator_prey = make_conditions(fillin.create("cnp", dim_y=2, size="small"), {"function": "predator-prey"})
    assert "function" not in {condition.kind for condition in predator_prey}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder like that of `fillin train`, without training."""
    folder = tmp_path_factory.mktemp("evaluate") / "run"
    recipe = read_recipe("te-tnp", ["--model.width", "16", "--model.layers", "1", "--model.heads", "2"])
    fillin.save(build_model(recipe, curves()), folder / "best")
    (folder / "recipe.yaml").write_text(dump_recipe(recipe))
    return folder


def test_report_of_a_run(run, tmp_path, capsys):
    arguments = ["evaluate", str(run), "--batches", "2", "--limit", "4", "--contexts", "3", "9", "--threads", "1"]
    arguments += ["--autoregressive", "--functions", "matern-5/2"]
    assert main([*arguments, "--json", str(tmp_path / "deep" / "all.json")]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("training: rbf", "shifted by 4", "matern-5/2", "9 points", "joint"))
    content = json.loads((tmp_path / "deep" / "all.json").read_text(), parse_constant=pytest.fail)
    assert content["command"] == ["fillin", *arguments, "--json", str(tmp_path / "deep" / "all.json")]
    assert content["budget"] == {"threads": 1, "batches": 2, "batch": 4, "settings": 4, "autoregressive": 1}
    assert content["model"]["model"] == "te-tnp"
    assert content["machine"]["torch"] == torch.__version__
    assert content["seed"] == 0
    assert [row["kind"] for row in content["rows"]] == ["training", "shift", "beyond", "function", "context", "context"]
    for row in content["rows"]:
        assert set(row["scores"]) == set(
            asdict(evaluate(ExactPosterior(), curves("rbf", batch=1), batches=1, limit_samples=0))
        )
        assert row["scores"]["joint"]["log_likelihood"] < 100
    names = {path.name for path in (run / "evaluation").iterdir()}
    assert names == {"curves.png", "calibration.png", "context.png"}
    unshifted, shifted = (row["scores"]["log_likelihood"] for row in content["rows"][:2])
    assert unshifted == pytest.approx(shifted, abs=1e-4)  # translation equivariant


def test_report_of_a_saved_model(tmp_path, capsys):
    fillin.save(fillin.create("np", size="small"), tmp_path / "model")
    arguments = [
        "evaluate",
        str(tmp_path / "model"),
        "--function",
        "sawtooth",
        "--protocol",
        "sawtooth",
        "--batches",
        "1",
    ]
    arguments += ["--functions", "square-wave", "--contexts", "0", "--threads", "1", "--shift", "0", "--json", "-"]
    assert main([*arguments, "--out", str(tmp_path / "pictures")]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["value"] for row in rows] == ["sawtooth", 4.0, "square-wave", 0]
    assert all(row["scores"]["limit"] is None for row in rows)
    assert len(list((tmp_path / "pictures").iterdir())) == 3


@pytest.mark.slow
def test_report_of_a_model_with_windows(tmp_path):
    fillin.save(fillin.create("te-tnp", size="small", span=0.3), tmp_path / "model")
    arguments = ["evaluate", str(tmp_path / "model"), "--batches", "1", "--limit", "0", "--functions", "matern-5/2"]
    assert main([*arguments, "--contexts", "3", "--threads", "1", "--out", str(tmp_path / "pictures")]) == 0
    assert (tmp_path / "pictures" / "windows.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["nowhere"], "fillin train makes one"),
        (["RUN", "--batches", "0"], "batches must be at least 1"),
        (["RUN", "--seed", "-1"], "between 0 and"),
        (["RUN", "--functions", "rfb"], "did you mean 'rbf'"),
        (["RUN", "--functions", "predator-prey"], "choose another function"),
        (["RUN", "--function", "rbf"], "drop function"),
        (["RUN", "--contexts", "-3"], "0 ≤ first"),
        (["RUN/best", "--protocol", "tmp"], "did you mean 'tnp'"),
        (["RUN/best", "--function", "predator-prey"], "dim_y=2"),
        (["RUN", "--out", "RUN/recipe.yaml/deeper"], "--out"),
        (["RUN", "--json", "RUN"], "name a file in it"),
        (["RUN", "--wrong", "1"], "unrecognized"),
    ],
)
def test_bad_input_names_the_remedy(arguments, remedy, run, capsys):
    assert main(["evaluate", *(word.replace("RUN", str(run)) for word in arguments)]) == 2
    error = capsys.readouterr().err
    assert remedy in error
    assert "Traceback" not in error


def test_a_run_without_weights_names_the_command_to_continue(tmp_path):
    (tmp_path / "recipe.yaml").write_text("model: {name: cnp}\nbudget: {steps: 1}\n")
    with pytest.raises(fillin.FillinError, match="--resume"):
        open_curves(tmp_path)


def test_a_diverged_model_is_an_error(stream):
    with pytest.raises(fillin.FillinError, match="older weights"):
        evaluate(ExactPosterior(bias=math.nan), stream, batches=1, limit_samples=0)


def test_importing_does_not_import_matplotlib():
    code = "import fillin.evaluate, sys; print({'matplotlib', 'scoringrules'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


def test_a_mixture_far_below_y_has_a_pit_of_one():
    """Weights of a float32 softmax do not sum to 1 exactly; the histogram must still contain every value."""
    logits = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    mixture = MixtureSameFamily(Categorical(logits=logits), Normal(torch.zeros(500, 4), torch.ones(500, 4)))
    u = metrics.pit(to_predictive(mixture), np.full(500, 100.0))
    assert u.max() <= 1
    assert metrics.pit_histogram(u)[-1] == 1
