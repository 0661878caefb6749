"""Transformers on sequences, and the road to a grid and back."""

import pytest
import torch
from support.helpers import distance

import fillin
from fillin.layers import CNN, Block, Decoder, Encoder, Grid, Seq2Seq, SetConv, UNet, mlp


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_decoder_does_not_see_the_future(norm):
    decoder, memory, x = Decoder(16, 4, 2, norm=norm), torch.randn(2, 5, 16), torch.randn(2, 6, 16)
    other = x.clone()
    other[:, 4:] = other[:, 4:].flip(-1)
    same, changed = decoder(x, memory), decoder(other, memory)
    assert torch.allclose(same[:, :4], changed[:, :4], atol=1e-6)
    assert not torch.allclose(same[:, 4:], changed[:, 4:], atol=1e-2)
    assert not torch.allclose(decoder(x, memory.flip(-1)), same, atol=1e-3)  # and it sees the encoder


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_is_a_set_function_and_heeds_its_mask(norm):
    encoder, x, order = Encoder(16, 4, 2, norm=norm), torch.randn(2, 6, 16), torch.randperm(6)
    assert distance(encoder(x[:, order]), encoder(x)[:, order]) < 1e-5
    mask = torch.tensor([[True] * 4 + [False] * 2] * 2)
    assert distance(encoder(x, mask)[:, :4], encoder(x[:, :4])) < 1e-5


def test_a_post_norm_block_ends_in_a_norm():
    """LayerNorm(x + Sublayer(x)), report §1.5: each row has mean 0 and deviation 1 at the start."""
    out = Block(16, 4, norm="post")(torch.randn(2, 5, 16))
    assert out.mean(-1).abs().max() < 1e-5
    assert (out.var(-1, correction=0) - 1).abs().max() < 1e-2


def test_a_sequence_task_is_learned_by_teacher_forcing_and_decoded_greedily():
    """Reverse a word of five letters: 1 is <start>, letters are 2 … 7."""
    model = Seq2Seq(8, dim=32, heads=4, layers=1)
    adam = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(250):
        word = torch.randint(2, 8, (32, 5))
        read = torch.cat([torch.ones(32, 1, dtype=torch.long), word.flip(1)], 1)
        loss = torch.nn.functional.cross_entropy(model(word, read[:, :-1]).flatten(0, 1), read[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
    word = torch.randint(2, 8, (50, 5))
    right = (model.greedy(word, start=1, length=5) == word.flip(1)).float().mean()
    assert right > 0.95


def test_setconv_by_hand():
    """Σ_j exp(−½‖(g − x_j)/ℓ‖²) v_j on a grid of one and of two dimensions, and the weighted mean back."""
    for dim_x in (1, 2):
        x, v = torch.rand(2, 6, dim_x).double(), torch.randn(2, 6, 3).double()
        mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
        grid = Grid.over([(x, mask)], spacing=0.25, margin=1, multiple=1)
        conv = SetConv(dim_x, init=0.5).double()
        length = conv.kernels[0].scale.item()
        points = torch.cartesian_prod(*(axis[1] for axis in grid.axes)).view(-1, dim_x)
        delta = (points[:, None] - x[1, None, :4]) / length
        sums = torch.exp(-0.5 * delta.square().sum(-1)) @ v[1, :4]
        got = conv.to_grid(grid, x, v, mask)
        assert distance(got[1].flatten(1).T, sums) < 1e-12
        back = conv.to_points(grid, got, x)
        weights = torch.softmax(-0.5 * delta.square().sum(-1), 0).T
        assert distance(back[1, :4], weights @ sums) < 1e-12


@pytest.mark.parametrize("dim_x", [1, 2])
def test_no_denormal_number_comes_to_a_grid_or_back(dim_x):
    """They are slow, and convolutions met them wherever a Gaussian had almost, but not quite, ended."""
    x, v = torch.rand(2, 6, dim_x), torch.randn(2, 6, 3)
    grid = Grid.over([(x, None)], spacing=0.05, margin=20, multiple=1)
    conv = SetConv(dim_x, init=0.07)
    there = conv.to_grid(grid, x, v)
    features = there.detach().requires_grad_()
    conv.to_points(grid, features, x).sum().backward()
    for found in (there, features.grad):
        size = found.abs()
        assert (size > 0).any()
        assert (size == 0).any()
        assert size[size > 0].min() > torch.finfo(torch.float32).tiny


@pytest.mark.parametrize("dim_x", [1, 2])
def test_however_short_its_length_a_point_is_told_by_the_nearest_of_the_grid(dim_x):
    grid = Grid(tuple(torch.arange(6.0).expand(2, 6) for _ in range(dim_x)))
    conv, features = SetConv(dim_x, init=1e-3), torch.randn(2, 3, *[6] * dim_x, requires_grad=True)
    x = torch.full((2, 5, dim_x), 2.4)
    told = conv.to_points(grid, features, x)
    told.sum().backward()
    assert torch.allclose(told, features[(..., *[2] * dim_x)][:, None].expand(2, 5, 3), atol=1e-6)
    assert all(p.grad.isfinite().all() for p in [features, *conv.parameters()])


def test_the_length_of_a_convolutional_model_is_that_of_both_ways():
    for name in ("convcnp", "convnp"):
        model = fillin.create(name, size="small", points_per_unit=4, length=0.3)
        for conv in (model.on_grid.setconv, model.off_grid):
            assert abs(conv.kernels[0].scale.item() - 0.3 / 4) < 1e-6


@pytest.mark.parametrize("dim_x", [1, 2])
@pytest.mark.parametrize("network", [CNN, UNet])
def test_networks_see_no_further_than_they_say(network, dim_x):
    """A change at one grid point reaches `reach` points, no more; and U-Nets commute with shifts by `multiple`."""
    made = network(dim_x, 2, 3, 8, 2, 3).double()
    size = 4 * made.multiple * (made.reach // made.multiple + 1)
    centre = size // 2
    x = torch.randn(1, 2, *[size] * dim_x).double()
    other = x.clone()
    other[(0, 0, *[centre] * dim_x)] += 1
    changed = (made(x) - made(other)).abs().sum((0, 1)).nonzero()
    assert (changed - centre).abs().max() <= made.reach
    rolled = made(x.roll([made.multiple] * dim_x, list(range(2, 2 + dim_x))))
    inner = [slice(centre - 1, centre + 1)] * dim_x
    there = [slice(centre - 1 + made.multiple, centre + 1 + made.multiple)] * dim_x
    assert torch.allclose(made(x)[(0, 0, *inner)], rolled[(0, 0, *there)])


def test_grids_cover_their_points_with_a_margin():
    x = torch.tensor([[[0.0], [3.3]], [[-2.0], [0.1]]])
    (axis,) = Grid.over([(x, None)], spacing=0.5, margin=3, multiple=4).axes
    assert axis.shape[1] % 4 == 0
    assert (axis[:, 0] <= x.amin((1, 2)) - 1.5).all()
    assert (axis[:, -1] >= x.amax((1, 2)) + 1.5).all()
    assert torch.equal((axis / 0.5).round(), axis / 0.5)


def test_an_mlp_has_as_many_maps_as_asked():
    assert sum(isinstance(layer, torch.nn.Linear) for layer in mlp(2, 3, 8, 4)) == 4
