"""Building blocks of the models. Those that mix points do it through `fillin.attention`."""

from fillin.layers.block import Block, Decoder, Encoder, FeedForward, KeyValues, MultiHeadAttention, Seq2Seq, mlp
from fillin.layers.conv import CNN, Grid, SetConv, UNet
from fillin.layers.pseudo import CMAB, ISAB, PMA, CMABState, LatentBottleneck, PseudoTokens, masked_mean

__all__ = [
    "CMAB", "CNN", "ISAB", "PMA", "Block", "CMABState", "Decoder", "Encoder", "FeedForward", "Grid", "KeyValues",
    "LatentBottleneck", "MultiHeadAttention", "PseudoTokens", "Seq2Seq", "SetConv", "UNet", "masked_mean", "mlp",
]  # fmt: skip
