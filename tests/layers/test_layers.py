"""Blocks of transformers, SetConv and convolutional networks on grids."""

import pytest
import torch
from support.helpers import distance

import fillin
from fillin.layers import CNN, Block, Grid, SetConv, UNet, mlp


def test_a_post_norm_block_ends_in_a_norm():
    """LayerNorm(x + Sublayer(x)) (Vaswani et al. 2017): initially each row has mean 0 and standard deviation 1."""
    out = Block(16, 4, norm="post")(torch.randn(2, 5, 16))
    assert out.mean(-1).abs().max() < 1e-5
    assert (out.var(-1, correction=0) - 1).abs().max() < 1e-2


def test_setconv_equals_its_formula():
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
def test_setconv_produces_no_denormal_numbers(dim_x):
    """They make convolutions slow, and occur where a Gaussian is tiny but not zero."""
    x, v = torch.rand(2, 6, dim_x), torch.randn(2, 6, 3)
    grid = Grid.over([(x, None)], spacing=0.05, margin=20, multiple=1)
    conv = SetConv(dim_x, init=0.07)
    on_grid = conv.to_grid(grid, x, v)
    features = on_grid.detach().requires_grad_()
    conv.to_points(grid, features, x).sum().backward()
    for values in (on_grid, features.grad):
        size = values.abs()
        assert (size > 0).any()
        assert (size == 0).any()
        assert size[size > 0].min() > torch.finfo(torch.float32).tiny


@pytest.mark.parametrize("dim_x", [1, 2])
def test_a_tiny_length_scale_gives_the_nearest_grid_point(dim_x):
    grid = Grid(tuple(torch.arange(6.0).expand(2, 6) for _ in range(dim_x)))
    conv, features = SetConv(dim_x, init=1e-3), torch.randn(2, 3, *[6] * dim_x, requires_grad=True)
    x = torch.full((2, 5, dim_x), 2.4)
    values = conv.to_points(grid, features, x)
    values.sum().backward()
    assert torch.allclose(values, features[(..., *[2] * dim_x)][:, None].expand(2, 5, 3), atol=1e-6)
    assert all(p.grad.isfinite().all() for p in [features, *conv.parameters()])


def test_both_setconvs_of_a_model_start_with_its_length():
    for name in ("convcnp", "convnp"):
        model = fillin.create(name, size="small", points_per_unit=4, length=0.3)
        for conv in (model.on_grid.setconv, model.off_grid):
            assert abs(conv.kernels[0].scale.item() - 0.3 / 4) < 1e-6


@pytest.mark.parametrize("dim_x", [1, 2])
@pytest.mark.parametrize("network_class", [CNN, UNet])
def test_receptive_field_of_networks(network_class, dim_x):
    """A change at one grid point reaches `reach` points; U-Nets commute with shifts by `multiple`."""
    network = network_class(dim_x, 2, 3, 8, 2, 3).double()
    size = 4 * network.multiple * (network.reach // network.multiple + 1)
    centre = size // 2
    x = torch.randn(1, 2, *[size] * dim_x).double()
    other = x.clone()
    other[(0, 0, *[centre] * dim_x)] += 1
    changed = (network(x) - network(other)).abs().sum((0, 1)).nonzero()
    assert (changed - centre).abs().max() <= network.reach
    rolled = network(x.roll([network.multiple] * dim_x, list(range(2, 2 + dim_x))))
    inner = [slice(centre - 1, centre + 1)] * dim_x
    shifted = [slice(centre - 1 + network.multiple, centre + 1 + network.multiple)] * dim_x
    assert torch.allclose(network(x)[(0, 0, *inner)], rolled[(0, 0, *shifted)])


def test_grids_cover_their_points_with_a_margin():
    x = torch.tensor([[[0.0], [3.3]], [[-2.0], [0.1]]])
    (axis,) = Grid.over([(x, None)], spacing=0.5, margin=3, multiple=4).axes
    assert axis.shape[1] % 4 == 0
    assert (axis[:, 0] <= x.amin((1, 2)) - 1.5).all()
    assert (axis[:, -1] >= x.amax((1, 2)) + 1.5).all()
    assert torch.equal((axis / 0.5).round(), axis / 0.5)


def test_number_of_layers_of_an_mlp():
    assert sum(isinstance(layer, torch.nn.Linear) for layer in mlp(2, 3, 8, 4)) == 4
