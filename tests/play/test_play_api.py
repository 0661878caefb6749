"""The JSON API of `fillin play`: what each tool answers, and what it says of mistakes."""

import csv
import io
import re
import subprocess
import sys

import numpy as np
import pytest

from fillin.play import limits
from fillin.play.models import CHOICES

POINTS = [[-1.5, 0.2], [-0.7, 0.6], [0.1, -0.4], [1.2, 0.3]]


def post(client, path, **body):
    return client.post(path, json=body)


@pytest.mark.parametrize("model", CHOICES)
def test_a_curve_has_bands_and_whole_functions(client, model):
    told = post(client, "/api/curves", points=POINTS, model=model, samples=3, places=41).json()
    mean, low, high = (np.array(told[name]) for name in ("mean", "low95", "high95"))
    assert len(told["x"]) == 41
    assert np.array(told["samples"]).shape == (3, 41)
    assert (low < told["low50"]).all()
    assert (told["high50"] < high).all()
    assert (low < mean).all()
    again = post(client, "/api/curves", points=POINTS, model=model, samples=3, places=41).json()
    assert {**told, "milliseconds": 0} == {**again, "milliseconds": 0}


@pytest.mark.parametrize("model", CHOICES)
def test_who_is_translation_equivariant_moves_with_the_points(client, model):
    told = post(client, "/api/curves", points=POINTS, model=model, shift=50.0, samples=0).json()
    assert (told["change"] < 1e-3) == CHOICES[model].equivariant
    assert told["x"][0] == 47.5


@pytest.mark.parametrize("model", CHOICES)
def test_nothing_known_is_a_context(client, model):
    assert post(client, "/api/curves", points=[], model=model).status_code == 200
    assert post(client, "/api/curves/attention", points=[], model=model, at=0).json()["heads"] == []


@pytest.mark.parametrize(("model", "heads"), [("te-tnp", 4), ("anp", 4), ("convcnp", 1), ("gp", 1)])
def test_each_head_looks_somewhere(client, model, heads):
    told = post(client, "/api/curves/attention", points=POINTS, model=model, at=0.1).json()
    weights = np.array(told["heads"])
    assert weights.shape == (heads, 4)
    if heads > 1:
        np.testing.assert_allclose(weights.sum(1), 1, atol=1e-3)


def test_units_are_those_of_the_points(client):
    plain = post(client, "/api/curves", points=POINTS, samples=2).json()
    units = {"x0": 2000.0, "x1": 10.0, "y0": 300.0, "y1": 50.0}
    points = [[2000 + 10 * x, 300 + 50 * y] for x, y in POINTS]
    told = post(client, "/api/curves", points=points, units=units, window=[1975, 2025], samples=2).json()
    np.testing.assert_allclose(told["mean"], 300 + 50 * np.array(plain["mean"]), atol=1e-2)
    np.testing.assert_allclose(told["samples"], 300 + 50 * np.array(plain["samples"]), atol=1e-1)


@pytest.mark.parametrize("model", ["te-tnp", "gp"])
def test_the_code_gives_the_same_numbers(client, model):
    asked = {
        "points": [[10 + x, 5 * y] for x, y in POINTS], "model": model, "shift": 3.0, "window": [8, 12], "places": 31,
        "samples": 2, "units": {"x0": 10, "x1": 1, "y0": 0, "y1": 5},
    }  # fmt: skip
    text = post(client, "/api/curves/code", **asked).text
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    rows = list(csv.DictReader(io.StringIO(ran.stdout)))
    told = post(client, "/api/curves", **asked).json()
    for name in ("x", "mean", "low50", "high95"):
        np.testing.assert_allclose([float(row[name]) for row in rows], told[name], atol=1e-3)
    drawn = [[float(v) for v in line.split()[2:]] for line in ran.stderr.splitlines() if line.startswith("# sample")]
    np.testing.assert_allclose(drawn, told["samples"], atol=1e-3)


@pytest.fixture(scope="module")
def pictures(client):
    return {one["name"]: one["picture"] for one in client.get("/api/images").json()}


@pytest.mark.parametrize("model", ["surface", "digits"])
@pytest.mark.parametrize("pattern", ["few", "half", "coarse", "painted"])
def test_a_picture_is_completed(client, pictures, pattern, model):
    asked = {"picture": pictures["digit-3"], "pattern": pattern, "painted": [1, 9, 17, 60], "model": model}
    told = post(client, "/api/images/complete", **asked, scale=2, samples=2).json()
    size = {name: _size(told[name]) for name in ("known", "mean", "deviation")}
    assert size == {"known": (8, 8), "mean": (16, 16), "deviation": (16, 16)}
    assert len(told["samples"]) == 2
    assert told["largest"] > 0
    assert len(told["painted"]) == {"few": 19, "half": 32, "coarse": 0, "painted": 4}[pattern]
    looked = post(client, "/api/images/attention", **asked, row=5, column=2).json()
    np.testing.assert_allclose(np.array(looked["layers"]).sum(-1), 1, atol=1e-2)
    assert len(looked["layers"][0][0]) == len(looked["points"])


def test_who_knows_digits_tells_more_of_them(client, pictures):
    missed = {}
    for model in ("surface", "digits"):
        squares = []
        for label in range(1, 10, 2):
            picture = pictures[f"digit-{label}"]
            told = post(client, "/api/images/complete", picture=picture, pattern="few", model=model).json()
            mean = np.asarray(_image(told["mean"]).convert("L"), float)
            truth = np.array(picture["pixels"], float).reshape(8, 8, -1)[..., 0]
            squares.append(np.square(mean - truth).mean())
        missed[model] = np.mean(squares) ** 0.5
    assert missed["digits"] < 0.9 * missed["surface"]


def test_who_knows_digits_completes_a_small_photograph_too_and_refuses_a_large_one(client, pictures):
    flower = pictures["flower"]
    told = post(client, "/api/images/complete", picture=flower, pattern="half", model="digits", samples=0).json()
    assert _size(told["mean"]) == (flower["width"], flower["height"])
    mean = np.asarray(_image(told["mean"]), float)
    known = mean.shape[0] // 2
    truth = np.array(flower["pixels"], float).reshape(flower["height"], flower["width"], 3)
    assert np.abs(mean - truth)[:known].mean() < 5  # of 255: what is known is told again
    large = {"height": 40, "width": 33, "channels": 1, "pixels": [0] * 1320}
    refused = post(client, "/api/images/complete", picture=large, model="digits")
    assert refused.status_code == 422
    assert "at most 32 × 32 pixels; ask surface" in refused.json()["detail"]


def test_digits_to_play_with_are_such_as_were_held_out(client):
    from fillin.data.images import read_images

    seen = {image.tobytes() for image in read_images("digits", "train").pixels}
    digits = [one for one in client.get("/api/images").json() if one["name"].startswith("digit-")]
    assert len(digits) == 10
    for one in digits:
        assert one["model"] == "digits"
        assert np.array(one["picture"]["pixels"], np.uint8).tobytes() not in seen


def _size(url):
    return _image(url).size


def _image(url):
    import base64

    from PIL import Image

    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


def _png(width, height):
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8)).save(out, "PNG")
    return out.getvalue()


def test_a_picture_that_is_dropped_is_made_smaller_and_said_so(client):
    told = client.post("/api/images/read", content=_png(200, 100), headers={"content-type": "image/png"}).json()
    assert (told["picture"]["width"], told["picture"]["height"]) == (64, 32)
    assert told["note"] == "made smaller: 200 × 100 → 64 × 32 pixels"
    assert told["model"] == "surface"
    bad = client.post("/api/images/read", content=b"\x89PNG no", headers={"content-type": "image/png"})
    assert bad.status_code == 422
    assert "cannot be read as PNG or JPEG" in bad.json()["detail"]


@pytest.fixture(scope="module")
def table(client):
    x = np.random.default_rng(0).normal(size=60).round(2)
    rows = [
        f"{'' if i % 9 == 4 else v},{'' if i % 7 == 2 else round(2 * v, 2)},{'high' if v > 0 else 'low'}"
        for i, v in enumerate(x)
    ]
    rows[3] = rows[3].rpartition(",")[0] + ","
    answer = client.post("/api/tables", content="\n".join(["a,b,c", *rows]), headers={"content-type": "text/csv"})
    return answer.json()


def test_a_table_is_filled_and_shaded(table):
    assert table["columns"] == ["a", "b", "c"]
    assert table["kinds"] == ["number", "number", "class"]
    blanks = {(i, j) for i, row in enumerate(table["cells"]) for j, cell in enumerate(row) if not cell}
    assert {(cell["row"], cell["column"]) for cell in table["filled"]} == blanks
    assert all(0 <= cell["confidence"] <= 1 for cell in table["filled"])
    numbers = [cell for cell in table["filled"] if cell["column"] < 2]
    assert all(float(cell["low"]) <= float(cell["value"]) <= float(cell["high"]) for cell in numbers)


def test_a_cell_tells_where_it_was_told_from(client, table):
    cell = next(cell for cell in table["filled"] if cell["column"] == 1)
    told = post(client, "/api/tables/cell", id=table["id"], row=cell["row"], column=1).json()
    weights = [weight for _, weight in told["rows"]]
    assert weights == sorted(weights, reverse=True)
    assert abs(sum(weights) + told["others"] - 1) < 1e-2
    assert all(table["cells"][row][1] for row, _ in told["rows"])  # a row that does not know it tells nothing
    assert told["columns"][1] is None
    assert told["columns"][0] > told["columns"][2] - 1
    wrong = post(client, "/api/tables/cell", id=table["id"], row=0, column=0)
    assert wrong.status_code == 422
    assert "no cell that was filled" in wrong.json()["detail"]
    gone = post(client, "/api/tables/cell", id="0" * 16, row=0, column=0)
    assert gone.status_code == 422
    assert "send it again" in gone.json()["detail"]


def test_the_window_saves_pairs(client):
    told = post(client, "/api/span", points=600, share=0.02).json()
    native, bias, fused = told["costs"]
    assert native["pairs"] < 0.03 * bias["pairs"] == 0.03 * fused["pairs"] == 0.03 * 600**2
    assert all(cost["measured"] and cost["milliseconds"] > 0 for cost in told["costs"])
    places = client.get("/api/span/points", params={"points": 600}).json()
    assert len(places["x"]) == len(places["y"]) == 600


def test_what_is_too_dear_is_estimated_and_says_so(client, monkeypatch):
    monkeypatch.setattr(limits, "DENSE", 200)
    told = post(client, "/api/span", points=500, share=0.02).json()
    assert [cost["measured"] for cost in told["costs"]] == [True, False, True]
    assert told["costs"][1]["megabytes"] is not None


def test_a_window_learns_to_be_wider_where_noise_is(client):
    quiet, noisy = (post(client, "/api/span/learn", points=1000, noise=noise).json() for noise in (0.0, 1.5))
    assert noisy["radius"][-1] > quiet["radius"][-1]
    assert noisy["error"][-1] < noisy["error"][0]


MISTAKES = {
    "a model that is not there": ("/api/curves", {"points": [], "model": "gpt"}, "model: input should be"),
    "too many points": ("/api/curves", {"points": [[0, 0]] * 201}, "points: .*200"),
    "a window that falls": ("/api/curves", {"points": [], "window": [1, 0]}, "lower end"),
    "points far away": ("/api/curves", {"points": [[1e9, 0]]}, "units in which they are about one"),
    "a grid that is endless": ("/api/curves", {"points": [[5000, 0]], "model": "convcnp"}, "more than 200"),
    "a name that is not known": ("/api/curves", {"points": [], "colour": "red"}, "colour: extra inputs"),
    "a number that is text": ("/api/curves", {"points": [["a", 0]]}, "points.0.0: input should be a valid number"),
    "pixels that are missing": (
        "/api/images/complete",
        {"picture": {"height": 2, "width": 2, "channels": 1, "pixels": [0]}},
        "are 4",
    ),
    "nothing painted": (
        "/api/images/complete",
        {"picture": {"height": 2, "width": 2, "channels": 1, "pixels": [0] * 4}, "pattern": "painted"},
        "no pixel is known",
    ),
    "too many points in the plane": ("/api/span", {"points": 20_001}, "20000"),
}


@pytest.mark.parametrize(("path", "body", "said"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_sentence(client, path, body, said):
    answer = client.post(path, json=body)
    assert answer.status_code == 422
    assert re.search(said, answer.json()["detail"])


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "is empty"), ("a,b\n" + "1,2\n" * 1001, "at most 1,000"), ("a,b\n1,2,3\n", "3 cells"), ("a\n" * 9000, "line"),
     (",".join(f"c{i}" for i in range(31)) + "\n" + ",".join(["1"] * 31) + "\n", "30")],
)  # fmt: skip
def test_a_table_that_cannot_be_filled_says_why(client, text, said):
    answer = client.post("/api/tables", content=text, headers={"content-type": "text/csv"})
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_what_is_no_number_is_refused(client, number):
    answer = client.post(
        "/api/curves", content=f'{{"points": [[0, {number}]]}}', headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422
    assert "points.0.1" in answer.json()["detail"]


def test_every_path_is_described(client):
    paths = client.get("/openapi.json").json()["paths"]
    tools = {"curves", "images", "tables", "span"}
    assert {path.split("/")[2] for path in paths} == tools
    assert all("422" in one["responses"] for path in paths.values() for one in path.values())


def test_missing_weights_are_said(monkeypatch):
    from fillin import pretrained
    from fillin.errors import InputError
    from fillin.play.models import check_weights

    monkeypatch.setattr(pretrained, "names", lambda: [])
    with pytest.raises(InputError, match=r"te-tnp-kernels; they come with the package, so install"):
        check_weights(["te-tnp-kernels"])
