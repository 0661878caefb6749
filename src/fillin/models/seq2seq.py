"""Encoder–decoder transformer: sequences of tokens to sequences of tokens (Vaswani et al. 2017).

Three tokens have a meaning in every vocabulary: 0 is padding, 1 starts a target, 2 ends it. Symbols follow from 3 on.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor, nn

from fillin.attention import LearnedPositions, Sinusoid, record_weights
from fillin.data.sequences import END, PADDING, SPECIAL, START
from fillin.errors import InputError, InputTypeError, choose
from fillin.layers import Decoder, DecoderState, Encoder
from fillin.linear import LinearLayer
from fillin.models.classifier import check_dropout

POSITIONS = ("sinusoid", "learned", "relative")
Tokens = Int[Tensor, "b n"]


class Seq2Seq(nn.Module):
    """Transformer from sequences of `dim_x` symbols to sequences of `dim_y` symbols.

        memory = encoder(e(source) + p)
        p(y_{i+1} | y_1 … y_i, source) = softmax(W · decoder(e(y) + p, memory)_i + b)

    `forward` uses teacher forcing: the decoder reads the true tokens and predicts, at all positions at once, the token
    that follows. `greedy` decodes: the decoder reads its own predictions, until it predicts the end.

    Parameters
    ----------
    dim_x, dim_y : int
        Numbers of symbols of source and target. Symbol i is token i + 3, after padding (0), start (1) and end (2).
    width, heads, layers, hidden : int
        Width of a token, heads, layers of each stack, width of the feed-forward network.
    positions : {"sinusoid", "learned", "relative"}
        Encoding of positions p: fixed sinusoids, or a learned vector for each position, is added to tokens; "relative"
        adds nothing to tokens, but learned vectors of the clipped displacement to the keys and values of
        self-attention (Shaw et al. 2018).
    clip : int
        Largest displacement that "relative" distinguishes.
    max_length : int
        Largest number of tokens that `greedy` decodes, and that "learned" positions exist for.
    norm : {"pre", "post"}
        Normalise the input of each sublayer, or, as Vaswani et al. 2017, its output.
    dropout : float
        Share of features that are dropped in training.

    Notes
    -----
    Padding may be anywhere in a source, and changes no prediction: padded tokens are nobody's keys, and positions count
    valid tokens only. An empty source is valid.

    References
    ----------
    Vaswani et al. 2017, "Attention is all you need". Shaw et al. 2018, "Self-attention with relative position
    representations". Sivaraya 2023, sections 1.2 to 1.8.

    Examples
    --------
    >>> import fillin
    >>> model = fillin.create("seq2seq", dim_x=10, dim_y=6, size="small")
    >>> source, target = torch.tensor([[3, 4, 5, 0]]), torch.tensor([[1, 5, 4]])
    >>> model(source, target).shape  # logits of the tokens after <start>, 5 and 4
    torch.Size([1, 3, 9])
    >>> model.greedy(source, max_length=7).shape[1] <= 7
    True
    """

    kind = "tokens"
    equivariant = False

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        hidden: int = 128,
        positions: str = "sinusoid",
        clip: int = 8,
        max_length: int = 64,
        norm: str = "pre",
        dropout: float = 0.0,
    ):
        super().__init__()
        check_dropout("seq2seq", dropout)
        choose("norm", norm, ["pre", "post"])
        self.config: dict[str, Any] = {}  # arguments of `create`
        self.dim_x, self.dim_y, self.n_layers = dim_x, dim_y, layers
        self.positions, self.max_length = choose("positions", positions, POSITIONS), max_length
        options: dict[str, Any] = {
            "norm": norm, "hidden": hidden, "dropout": dropout, "clip": clip if positions == "relative" else None,
        }  # fmt: skip
        self.embed_source = nn.Embedding(len(SPECIAL) + dim_x, width)
        self.embed_target = nn.Embedding(len(SPECIAL) + dim_y, width)
        self.position_source, self.position_target = (self._make_positions(width) for _ in range(2))
        self.encoder = Encoder(width, heads, layers, **options)
        self.decoder = Decoder(width, heads, layers, **options)
        self.out = LinearLayer(width, len(SPECIAL) + dim_y)

    def _make_positions(self, width: int) -> nn.Module | None:
        """Return the encoding that is added to tokens, if any."""
        if self.positions == "learned":
            return LearnedPositions(0, self.max_length - 1, width)
        return Sinusoid(width) if self.positions == "sinusoid" else None

    def forward(self, source: Int[Tensor, "b m"], target: Tokens) -> Float[Tensor, "b n v"]:
        """Return the logits of the token that follows each token of `target`, which begins with the start token."""
        memory, mask = self.encode(source)
        self._check("target", target, self.dim_y, len(source))
        tokens, valid, positions = self._embed("target", target)
        return self.out(self.decoder(tokens, memory, mask, valid, positions))

    def encode(self, source: Int[Tensor, "b m"]) -> tuple[Float[Tensor, "b m c"], Bool[Tensor, "b m"]]:
        """Return the memory that the decoder attends to, and which of its tokens are valid."""
        self._check("source", source, self.dim_x)
        tokens, valid, positions = self._embed("source", source)
        return self.encoder(tokens, valid, positions), valid

    @torch.no_grad()
    def greedy(self, source: Int[Tensor, "b m"], max_length: int | None = None) -> Int64[Tensor, "b n"]:
        """Decode the most likely token after another, until every sequence has ended.

        Parameters
        ----------
        source : int Tensor [b m]
            Source tokens; 0 is padding.
        max_length : int, optional
            Largest number of tokens, the end included; by default that of the model.

        Returns
        -------
        int Tensor [b n]
            Decoded tokens with the end token where a sequence has ended, and padding behind it; n ≤ max_length.
        """
        max_length = self.max_length if max_length is None else max_length
        longest = self.max_length if self.positions == "learned" else None
        if type(max_length) is not int or max_length < 1 or (longest is not None and max_length > longest):
            limit = "" if longest is None else f" and at most {longest}, for which the model has learned positions"
            raise InputError(f"seq2seq: max_length must be a whole number of at least 1{limit}, got {max_length!r}")
        training = self.training
        self.eval()  # without dropout
        try:
            memory, mask = self.encode(source)
            state, tokens = self.decoder.start(memory, mask), []
            token = source.new_full((len(source), 1), START, dtype=torch.long)
            ended = torch.zeros_like(token, dtype=torch.bool)
            while len(tokens) < max_length and not (tokens and bool(ended.all())):
                logits, state = self.step(token, len(tokens), state)
                logits[:, [PADDING, START]] = -torch.inf  # neither follows a token
                token = logits.argmax(-1, keepdim=True).masked_fill(ended, PADDING)
                ended = ended | (token == END)
                tokens.append(token)
        finally:
            self.train(training)
        return torch.cat(tokens, 1)

    def step(
        self, token: Int64[Tensor, "b 1"], position: int, state: DecoderState
    ) -> tuple[Float[Tensor, "b v"], DecoderState]:
        """Return the logits of the token after the one at `position`, and the state that includes that one."""
        tokens = self.embed_target(token)
        locations = torch.arange(position + 1, device=token.device, dtype=tokens.dtype)[None, :, None]
        locations = locations.expand(len(token), -1, -1)
        if self.position_target is not None:
            tokens = tokens + self.position_target(locations[:, -1:])
        features, state = self.decoder.step(tokens, state, locations if self.positions == "relative" else None)
        return self.out(features)[:, 0], state

    @torch.no_grad()
    def align(self, source: Int[Tensor, "b m"], target: Tokens) -> list[Float[Tensor, "b h n m"]]:
        """Return the weights with which target tokens attend to source tokens, for each layer of the decoder."""
        with record_weights() as records:
            self(source, target)
        # the encoder attends once a layer; a decoder layer attends to its past, then to the memory
        return [record.weights for record in records[self.n_layers :][1::2]]

    def _embed(self, name: str, tokens: Tokens) -> tuple[Float[Tensor, "b n c"], Bool[Tensor, "b n"], Tensor | None]:
        """Return embedded tokens, which of them are valid, and their positions for relative attention."""
        reads = name == "source"
        embed = self.embed_source if reads else self.embed_target
        encode = self.position_source if reads else self.position_target
        embedded, valid = embed(tokens), tokens != PADDING
        positions = (valid.cumsum(1) - 1).clamp_min(0)[..., None].to(embedded.dtype)
        if encode is None:
            return embedded, valid, positions
        if self.positions == "learned" and tokens.numel() and int(positions.max()) >= self.max_length:
            raise InputError(
                f"seq2seq: the {name} has {int(positions.max()) + 1} tokens, but learned positions exist for "
                f"{self.max_length}; create the model with a larger max_length, or with positions='sinusoid'"
            )
        return embedded + encode(positions), valid, None

    def _check(self, name: str, tokens: Tensor, symbols: int, batch: int | None = None) -> None:
        """Raise an error unless tokens are whole numbers [b n] of the vocabulary."""
        if not isinstance(tokens, Tensor) or tokens.dtype not in (torch.int64, torch.int32):
            kind = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
            raise InputTypeError(f"seq2seq: {name} must be a tensor of token numbers, got {kind}; use {name}.long()")
        if tokens.ndim != 2:
            raise InputError(f"seq2seq: {name} must be [b n], got shape {tuple(tokens.shape)}; one sequence has b = 1")
        if batch is not None and len(tokens) != batch:
            raise InputError(f"seq2seq: source has a batch of {batch} sequences, {name} of {len(tokens)}")
        largest = len(SPECIAL) + symbols - 1
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) <= largest:
            raise InputError(
                f"seq2seq: {name} has tokens from {tokens.min()} to {tokens.max()}, but the model has 0 to {largest}: "
                f"three special tokens and {symbols} symbols"
            )
