"""Building blocks of the models. Those that mix points do it through `fillin.attention`."""

from fillin.layers.block import Block, FeedForward, KeyValues, MultiHeadAttention, mlp
from fillin.layers.cnn import CNN, UNet
from fillin.layers.pseudo import CMAB, ISAB, PMA, CMABState, LatentBottleneck, PseudoTokens, masked_mean
from fillin.layers.setconv import Grid, SetConv
from fillin.layers.transformer import Decoder, Encoder, Seq2Seq

__all__ = [
    "CMAB", "CNN", "ISAB", "PMA", "Block", "CMABState", "Decoder", "Encoder", "FeedForward", "Grid", "KeyValues",
    "LatentBottleneck", "MultiHeadAttention", "PseudoTokens", "Seq2Seq", "SetConv", "UNet", "masked_mean", "mlp",
]  # fmt: skip
