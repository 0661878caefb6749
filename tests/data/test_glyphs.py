"""Glyphs of fonts: distinct characters, varied images, the same in every process."""

import subprocess
import sys
import unicodedata
import zlib

import numpy as np
import torch

from fillin.data.images import FewShot, read_images
from fillin.data.images.glyphs import COPIES, FACES, SIDE, _distort, _draw_glyph, _open_fonts, read_glyphs


def test_every_character_is_a_class_of_images_that_differ():
    pixels, labels, characters = read_glyphs()
    per_class = len(FACES) * COPIES
    assert pixels.shape == (len(characters) * per_class, SIDE, SIDE, 1)
    assert labels.tolist() == sorted(labels.tolist())
    assert set(np.bincount(labels)) == {per_class}
    assert len(characters) == len(set(characters)) > 400
    for alphabet in ("DIGIT", "LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN"):
        assert sum(unicodedata.name(character).startswith(alphabet) for character in characters) >= 5
    assert list(characters) == sorted(characters)
    assert len({image.tobytes() for image in pixels}) == len(pixels)
    ink = pixels.reshape(len(pixels), -1).mean(1)
    assert 5 < ink.min() < ink.max() < 200  # nothing is empty or full


def test_characters_that_look_alike_are_one_class():
    characters = read_glyphs()[2]
    for first, other in ("Ss", "PΡ", "AА", "XХ"):  # the others are a small s, Rho, and Cyrillic letters
        assert first in characters
        assert other not in characters


def test_the_last_classes_are_whole_alphabets():
    """The recipe holds out Armenian and Georgian and validates on Cyrillic."""
    characters = read_glyphs()[2]
    names = [unicodedata.name(character).split()[0] for character in characters]
    assert set(names[-98:]) == {"ARMENIAN", "GEORGIAN"}
    assert set(names[-98 - 67 : -98]) == {"CYRILLIC"}
    assert not {"ARMENIAN", "GEORGIAN", "CYRILLIC"} & set(names[: -98 - 67])


def test_parts_divide_the_images():
    train, test = (read_images("glyphs", part) for part in ("train", "test"))
    assert len(train) + len(test) == len(read_glyphs()[0])
    assert set(np.unique(test.labels)) == set(np.unique(train.labels))


def test_distortions_keep_the_glyph_and_move_it():
    """Without distortions a glyph is only reduced; with them its centre moves by less than a tenth of the side."""
    font = _open_fonts()[0]
    glyph = _draw_glyph(font, "H")
    assert glyph.amax() > 0.99
    rows = (glyph.amax(1) > 0.5).nonzero()
    assert (int(rows[0]), int(rows[-1])) == (0, 63)  # the longer side fills the raster
    images = _distort(glyph.expand(200, -1, -1), torch.Generator().manual_seed(0))
    axis = torch.arange(SIDE) - (SIDE - 1) / 2
    mass = images.sum((1, 2))
    centre = torch.stack([(images.sum(2) * axis).sum(1), (images.sum(1) * axis).sum(1)]) / mass
    assert centre.abs().max() < 0.1 * SIDE
    assert centre.std(1).min() > 0.5
    assert centre.mean(1).abs().max() < 0.3
    border = torch.cat([images[:, [0, -1]].flatten(1), images[:, :, [0, -1]].flatten(1)], 1)
    assert border.mean() < 0.02  # little is cut off


def test_few_shot_tasks_of_glyphs():
    stream = FewShot("glyphs", ways=5, shots=(1, 5), held_out=98, validation=67)
    assert (stream.dim_x, stream.dim_y) == (1, 5)
    assert stream.task(0).images.shape[2:] == (SIDE, SIDE, 1)


def test_glyphs_are_the_same_in_every_process():
    code = "from fillin.data.images import glyphs; import zlib; print(zlib.crc32(glyphs.read_glyphs()[0].tobytes()))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(other) == zlib.crc32(read_glyphs()[0].tobytes())
