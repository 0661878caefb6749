"""Building blocks of the models. Those that mix points do it through `fillin.attention`."""

from fillin.layers.block import Block, FeedForward, KeyValues, MultiHeadAttention, mlp
from fillin.layers.conv import CNN, Grid, SetConv, UNet
from fillin.layers.pseudo import CMAB, ISAB, PMA, CMABState, LatentBottleneck, PseudoTokens, masked_mean
from fillin.layers.transformer import Decoder, DecoderState, Encoder

__all__ = [
    "CMAB", "CNN", "ISAB", "PMA", "Block", "CMABState", "Decoder", "DecoderState", "Encoder", "FeedForward", "Grid",
    "KeyValues", "LatentBottleneck", "MultiHeadAttention", "PseudoTokens", "SetConv", "UNet", "masked_mean", "mlp",
]  # fmt: skip
