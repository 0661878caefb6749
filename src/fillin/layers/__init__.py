"""Networks that models are made of. Those that mix points do it through `fillin.attention`."""

from fillin.layers.cnn import CNN, UNet
from fillin.layers.mlp import mlp
from fillin.layers.setconv import Grid, SetConv
from fillin.layers.transformer import Decoder, Encoder, Seq2Seq

__all__ = ["CNN", "Decoder", "Encoder", "Grid", "Seq2Seq", "SetConv", "UNet", "mlp"]
