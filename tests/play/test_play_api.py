"""JSON API of `fillin play`: the responses of each tool, and the messages of errors."""

import base64
import csv
import io
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from fillin.play import limits
from fillin.play.curves import CURVE_MODELS

POINTS = [[-1.5, 0.2], [-0.7, 0.6], [0.1, -0.4], [1.2, 0.3]]


def post(client, path, **body):
    return client.post(path, json=body)


@pytest.mark.parametrize("model", CURVE_MODELS)
def test_a_curve_has_prediction_intervals_and_function_samples(client, model):
    curve = post(client, "/api/curves", points=POINTS, model=model, samples=3, n_targets=41).json()
    mean, low, high = (np.array(curve[name]) for name in ("mean", "low95", "high95"))
    assert len(curve["x"]) == 41
    assert np.array(curve["samples"]).shape == (3, 41)
    assert (low < curve["low50"]).all()
    assert (curve["high50"] < high).all()
    assert (low < mean).all()
    again = post(client, "/api/curves", points=POINTS, model=model, samples=3, n_targets=41).json()
    assert {**curve, "milliseconds": 0} == {**again, "milliseconds": 0}


@pytest.mark.parametrize("model", CURVE_MODELS)
def test_predictions_of_translation_equivariant_models_shift_with_the_points(client, model):
    curve = post(client, "/api/curves", points=POINTS, model=model, shift=50.0, samples=0).json()
    assert (curve["max_change"] < 1e-3) == CURVE_MODELS[model].equivariant
    assert curve["x"][0] == 47.5


@pytest.mark.parametrize("model", CURVE_MODELS)
def test_an_empty_context_is_valid(client, model):
    assert post(client, "/api/curves", points=[], model=model).status_code == 200
    assert post(client, "/api/curves/attention", points=[], model=model, at=0).json()["heads"] == []


@pytest.mark.parametrize(("model", "heads"), [("te-tnp", 4), ("anp", 4), ("convcnp", 1), ("gp", 1)])
def test_each_head_has_attention_weights(client, model, heads):
    attention = post(client, "/api/curves/attention", points=POINTS, model=model, at=0.1).json()
    weights = np.array(attention["heads"])
    assert weights.shape == (heads, 4)
    if heads > 1:
        np.testing.assert_allclose(weights.sum(1), 1, atol=1e-3)


def test_predictions_are_in_the_units_of_the_points(client):
    plain = post(client, "/api/curves", points=POINTS, samples=2).json()
    units = {"x0": 2000.0, "x1": 10.0, "y0": 300.0, "y1": 50.0}
    points = [[2000 + 10 * x, 300 + 50 * y] for x, y in POINTS]
    curve = post(client, "/api/curves", points=points, units=units, window=[1975, 2025], samples=2).json()
    np.testing.assert_allclose(curve["mean"], 300 + 50 * np.array(plain["mean"]), atol=1e-2)
    np.testing.assert_allclose(curve["samples"], 300 + 50 * np.array(plain["samples"]), atol=1e-1)


@pytest.mark.parametrize("model", ["te-tnp", "gp"])
def test_the_program_computes_the_same_prediction(client, model):
    request = {
        "points": [[10 + x, 5 * y] for x, y in POINTS], "model": model, "shift": 3.0, "window": [8, 12],
        "n_targets": 31, "samples": 2, "units": {"x0": 10, "x1": 1, "y0": 0, "y1": 5},
    }  # fmt: skip
    program = post(client, "/api/curves/code", **request).text
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    rows = list(csv.DictReader(io.StringIO(process.stdout)))
    curve = post(client, "/api/curves", **request).json()
    for name in ("x", "mean", "low50", "high95"):
        np.testing.assert_allclose([float(row[name]) for row in rows], curve[name], atol=1e-3)
    lines = [line.split()[2:] for line in process.stderr.splitlines() if line.startswith("# sample")]
    np.testing.assert_allclose([[float(v) for v in line] for line in lines], curve["samples"], atol=1e-3)


@pytest.fixture(scope="module")
def images(client):
    return {example["name"]: example["image"] for example in client.get("/api/images").json()}


@pytest.mark.parametrize("model", ["sheet-2d", "digits"])
@pytest.mark.parametrize("pattern", ["few", "half", "coarse", "painted"])
def test_an_image_is_completed(client, images, pattern, model):
    context = {"image": images["digit-3"], "pattern": pattern, "observed_pixels": [1, 9, 17, 60], "model": model}
    completion = post(client, "/api/images/complete", **context, scale=2, samples=2).json()
    sizes = {name: _decode(completion[name]).size for name in ("observed", "mean", "std")}
    assert sizes == {"observed": (8, 8), "mean": (16, 16), "std": (16, 16)}
    assert len(completion["samples"]) == 2
    assert completion["max_std"] > 0
    assert len(completion["observed_pixels"]) == {"few": 19, "half": 32, "coarse": 0, "painted": 4}[pattern]
    attention = post(client, "/api/images/attention", **context, row=5, column=2).json()
    np.testing.assert_allclose(np.array(attention["layers"]).sum(-1), 1, atol=1e-2)
    assert len(attention["layers"][0][0]) == len(attention["points"])


def test_the_digits_model_predicts_digits_better(client, images):
    errors = {}
    for model in ("sheet-2d", "digits"):
        squares = []
        for label in range(1, 10, 2):
            image = images[f"digit-{label}"]
            completion = post(client, "/api/images/complete", image=image, pattern="few", model=model).json()
            mean = np.asarray(_decode(completion["mean"]).convert("L"), float)
            truth = np.array(image["pixels"], float).reshape(8, 8, -1)[..., 0]
            squares.append(np.square(mean - truth).mean())
        errors[model] = np.mean(squares) ** 0.5
    assert errors["digits"] < 0.9 * errors["sheet-2d"]


def test_the_digits_model_completes_a_small_photograph_and_refuses_a_large_one(client, images):
    flower = images["flower"]
    completion = post(client, "/api/images/complete", image=flower, pattern="half", model="digits", samples=0).json()
    mean = np.asarray(_decode(completion["mean"]), float)
    assert mean.shape[:2] == (flower["height"], flower["width"])
    truth = np.array(flower["pixels"], float).reshape(flower["height"], flower["width"], 3)
    assert np.abs(mean - truth)[: len(mean) // 2].mean() < 5  # of 255: observed pixels are reproduced
    large = {"height": 40, "width": 33, "channels": 1, "pixels": [0] * 1320}
    response = post(client, "/api/images/complete", image=large, model="digits")
    assert response.status_code == 422
    assert "at most 32 × 32 pixels; choose the model sheet-2d" in response.json()["detail"]


def test_the_example_digits_are_held_out(client):
    from fillin.data.images import read_images

    training = {image.tobytes() for image in read_images("digits", "train").pixels}
    digits = [example for example in client.get("/api/images").json() if example["name"].startswith("digit-")]
    assert len(digits) == 10
    for example in digits:
        assert example["model"] == "digits"
        assert np.array(example["image"]["pixels"], np.uint8).tobytes() not in training


def _decode(url):
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


def random_png(width, height):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def test_an_uploaded_image_is_downsampled_with_a_note(client):
    headers = {"content-type": "image/png"}
    response = client.post("/api/images/read", content=random_png(200, 100), headers=headers).json()
    assert (response["image"]["width"], response["image"]["height"]) == (64, 32)
    assert response["note"] == "downsampled: 200 × 100 → 64 × 32 pixels"
    assert response["model"] == "sheet-2d"
    invalid = client.post("/api/images/read", content=b"\x89PNG no", headers=headers)
    assert invalid.status_code == 422
    assert "cannot be read as PNG or JPEG" in invalid.json()["detail"]


@pytest.fixture(scope="module")
def table(client):
    x = np.random.default_rng(0).normal(size=60).round(2)
    rows = [
        f"{'' if i % 9 == 4 else v},{'' if i % 7 == 2 else round(2 * v, 2)},{'high' if v > 0 else 'low'}"
        for i, v in enumerate(x)
    ]
    rows[3] = rows[3].rpartition(",")[0] + ","
    response = client.post("/api/tables", content="\n".join(["a,b,c", *rows]), headers={"content-type": "text/csv"})
    return response.json()


def test_a_table_is_filled_with_confidences(table):
    assert table["columns"] == ["a", "b", "c"]
    assert table["kinds"] == ["number", "number", "class"]
    missing = {(i, j) for i, row in enumerate(table["cells"]) for j, cell in enumerate(row) if not cell}
    assert {(cell["row"], cell["column"]) for cell in table["filled"]} == missing
    assert all(0 <= cell["confidence"] <= 1 for cell in table["filled"])
    numbers = [cell for cell in table["filled"] if cell["column"] < 2]
    assert all(float(cell["low"]) <= float(cell["value"]) <= float(cell["high"]) for cell in numbers)


def test_a_filled_cell_is_explained_by_rows_and_columns(client, table):
    cell = next(cell for cell in table["filled"] if cell["column"] == 1)
    explanation = post(client, "/api/tables/cell", id=table["id"], row=cell["row"], column=1).json()
    weights = [weight for _, weight in explanation["rows"]]
    assert weights == sorted(weights, reverse=True)
    assert abs(sum(weights) + explanation["other_rows"] - 1) < 1e-2
    assert all(table["cells"][row][1] for row, _ in explanation["rows"])  # rows that lack the value have no weight
    assert explanation["columns"][1] is None
    assert explanation["columns"][0] > explanation["columns"][2] - 1
    observed = post(client, "/api/tables/cell", id=table["id"], row=0, column=0)
    assert observed.status_code == 422
    assert "is not a filled cell" in observed.json()["detail"]
    unknown = post(client, "/api/tables/cell", id="0" * 16, row=0, column=0)
    assert unknown.status_code == 422
    assert "send it again" in unknown.json()["detail"]


def test_the_window_reduces_the_number_of_pairs(client):
    response = post(client, "/api/span", points=600, share=0.02).json()
    native, bias, fused = response["costs"]
    assert native["pairs"] < 0.03 * bias["pairs"] == 0.03 * fused["pairs"] == 0.03 * 600**2
    assert all(cost["measured"] and cost["milliseconds"] > 0 for cost in response["costs"])
    locations = client.get("/api/span/points", params={"points": 600}).json()
    assert len(locations["x"]) == len(locations["y"]) == 600


def test_expensive_costs_are_extrapolated_and_marked(client, monkeypatch):
    monkeypatch.setattr(limits, "MAX_BIAS_POINTS", 200)
    response = post(client, "/api/span", points=500, share=0.02).json()
    assert [cost["measured"] for cost in response["costs"]] == [True, False, True]
    assert response["costs"][1]["megabytes"] is not None


def test_noise_widens_the_learned_window(client):
    quiet, noisy = (post(client, "/api/span/learn", points=1000, noise=noise).json() for noise in (0.0, 1.5))
    assert noisy["radius"][-1] > quiet["radius"][-1]
    assert noisy["error"][-1] < noisy["error"][0]


INVALID_REQUESTS = {
    "unknown model": ("/api/curves", {"points": [], "model": "gpt"}, "model: input should be"),
    "too many points": ("/api/curves", {"points": [[0, 0]] * 201}, "points: .*200"),
    "a decreasing window": ("/api/curves", {"points": [], "window": [1, 0]}, "window: the lower end must be below"),
    "points far away": ("/api/curves", {"points": [[1e9, 0]]}, "units in which they are of order one"),
    "a huge grid": ("/api/curves", {"points": [[5000, 0]], "model": "convcnp"}, "more than 200"),
    "unknown field": ("/api/curves", {"points": [], "colour": "red"}, "colour: extra inputs"),
    "text instead of a number": ("/api/curves", {"points": [["a", 0]]}, "points.0.0: input should be a valid number"),
    "missing pixels": (
        "/api/images/complete",
        {"image": {"height": 2, "width": 2, "channels": 1, "pixels": [0]}},
        "height × width × channels is 4",
    ),
    "no observed pixels": (
        "/api/images/complete",
        {"image": {"height": 2, "width": 2, "channels": 1, "pixels": [0] * 4}, "pattern": "painted"},
        "observed_pixels: give at least one",
    ),
    "too many points in the plane": ("/api/span", {"points": 20_001}, "20000"),
}


@pytest.mark.parametrize(("path", "body", "message"), INVALID_REQUESTS.values(), ids=INVALID_REQUESTS.keys())
def test_an_invalid_request_has_a_message(client, path, body, message):
    response = client.post(path, json=body)
    assert response.status_code == 422
    assert re.search(message, response.json()["detail"])


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ("a,b\n" + "1,2\n" * 1001, "1,000 rows"), ("a,b\n1,2,3\n", "3 cells"), ("a\n" * 9000, "line"),
     (",".join(f"c{i}" for i in range(31)) + "\n" + ",".join(["1"] * 31) + "\n", "30")],
)  # fmt: skip
def test_a_table_that_cannot_be_filled_has_a_message(client, text, message):
    response = client.post("/api/tables", content=text, headers={"content-type": "text/csv"})
    assert response.status_code == 422
    assert message in response.json()["detail"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(client, number):
    response = client.post(
        "/api/curves", content=f'{{"points": [[0, {number}]]}}', headers={"content-type": "application/json"}
    )
    assert response.status_code == 422
    assert "points.0.1" in response.json()["detail"]


def test_every_path_is_described(client):
    paths = client.get("/openapi.json").json()["paths"]
    tools = {"curves", "images", "tables", "span"}
    assert {path.split("/")[2] for path in paths} == tools
    assert all("422" in operation["responses"] for path in paths.values() for operation in path.values())


def test_missing_weights_are_an_error(monkeypatch):
    from fillin import pretrained
    from fillin.errors import InputError
    from fillin.play.curves import check_weights

    monkeypatch.setattr(pretrained, "names", lambda: [])
    with pytest.raises(InputError, match=r"te-tnp-kernels; they come with the package, so reinstall"):
        check_weights(["te-tnp-kernels"])
