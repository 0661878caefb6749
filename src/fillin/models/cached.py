"""Transformer processes that encode the context once, as keys and values to which targets and new points are added.

tnp-buffer  a causal buffer of targets attends to the encoded context (Hassan et al. 2026)
inctnp      context tokens attend to those before them, so that new observations leave the old ones as they are
            (Mortimer et al. 2026)
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.distributions import Distribution

from fillin.attention import attend, combine, expand_key_mask
from fillin.errors import InputError
from fillin.heads import Autoregressive
from fillin.layers import Block, KeyValues
from fillin.models.base import MaskC, MaskT, Points, Targets, origin, read
from fillin.models.tnp import Tokens, TransformerProcess


class Memory(NamedTuple):
    """Encoded points: their keys and values in every layer, their locations, and the mask of valid ones (None: all)."""

    layers: list[KeyValues]
    x: Float[Tensor, "b m dx"]
    keep: Bool[Tensor, "b m"] | None

    def __len__(self) -> int:
        return self.x.shape[1]

    def valid(self) -> Bool[Tensor, "b m"]:
        return self.x.new_ones(self.x.shape[:2], dtype=torch.bool) if self.keep is None else self.keep


def _join(old: KeyValues, new: KeyValues) -> KeyValues:
    k = None if old.k is None or new.k is None else torch.cat([old.k, new.k], 2)
    return KeyValues(k, torch.cat([old.v, new.v], 2))


def _part(targets: Targets, first: int, last: int) -> Targets:
    return Targets(targets.x[:, first:last], None if targets.keep is None else targets.keep[:, first:last])


class CachedTNP(TransformerProcess):
    """Base of both models: p(yt) = Π_i p(y_i | context, y_1 … y_{i−1}), continued from the encoded context.

    A target with a value attends to the context and to the targets with values up to itself; a target without a value
    attends to the context and to the targets before it, and predicts.
    """

    kind = "autoregressive"

    def __init__(self, **options):
        super().__init__(**options)
        self.blocks = nn.ModuleList(self.make_block(self.width) for _ in range(self.layers))

    def buffer_size(self, targets: int) -> int:
        """Return the number of targets with values after which these join the context, which is encoded again."""
        return max(targets, 1)

    def forward(self, xc, yc, xt, mask_c=None, mask_t=None) -> Autoregressive:
        context, targets = self.read(xc, yc, xt, mask_c, mask_t)
        return self.predict_from(self.encode(context, targets), targets, context)

    def encode(self, context: Points, targets: Targets | None = None) -> Memory:
        return self.extend(None, context)

    def extend(self, memory: Memory | None, points: Points) -> Memory:
        """Encode points that attend to a memory and to one another: all to all, or causally (`ordered_context`)."""
        tokens, x, old = self.tokens(points), self.where(points.x), 0 if memory is None else len(memory)
        keep = points.keep
        if memory is not None and (memory.keep is not None or keep is not None):
            keep = torch.cat([memory.valid(), points.valid], 1)
        every = points.x if memory is None else torch.cat([memory.x, points.x], 1)
        mask = expand_key_mask(keep)
        if old:
            causal = torch.ones(len(points), old + len(points), dtype=torch.bool, device=points.x.device).tril(old)
            mask = causal[None, None] if mask is None else mask & causal
        layers: list[KeyValues] = []
        for number, block in enumerate(self.blocks):
            added: KeyValues = block.project_context(tokens, x)  # type: ignore[operator]
            layers.append(added if memory is None else _join(memory.layers[number], added))
            if number + 1 < len(self.blocks):  # nobody reads the tokens of the last layer
                alone = self.ordered_context and not old
                tokens = block(tokens, layers[-1], xq=x, xk=self.where(every), mask=mask, causal=alone)
        return Memory(layers, every, keep)

    def decode(self, encoded: Memory, targets: Targets) -> Tokens:
        """Return features of the marginals p(y_i | context)."""
        tokens, xq, xk = self.tokens(targets.without_values(self.dim_y)), self.where(targets.x), self.where(encoded.x)
        for block, layer in zip(self.blocks, encoded.layers, strict=True):
            tokens = block(tokens, layer, xq=xq, xk=xk, mask=expand_key_mask(encoded.keep))
        return self.features(tokens)

    def predict_from(self, memory: Memory, targets: Targets, context: Points | None = None) -> Autoregressive:
        """Return the prediction at targets given a memory. A model with a buffer needs the context too."""
        return Autoregressive(
            torch.Size([*targets.x.shape[:2], self.dim_y]),
            targets.keep,
            marginals=lambda: self.head(self.decode(memory, targets)),
            conditionals=lambda y: self.head(self.teacher_forced(memory, targets, y, context)),
            draw=lambda n: self.draw(memory, targets, n, context),
        )

    def teacher_forced(
        self, memory: Memory, targets: Targets, yt: Float[Tensor, "b nt dy"], context: Points | None = None
    ) -> Tokens:
        """Return features of p(y_i | context, y_1 … y_{i−1}) for all i: one pass for each full buffer."""
        nt, parts = targets.x.shape[1], []
        size = self.buffer_size(nt)
        for first in range(0, max(nt, 1), size):
            part = _part(targets, first, first + size)
            if first:
                assert context is not None
                memory = self.encode(context.join(_part(targets, 0, first).with_values(yt[:, :first])))
            pairs = torch.ones(part.x.shape[1], part.x.shape[1], dtype=torch.bool, device=yt.device)
            mask = torch.cat([pairs.tril(), pairs.tril(-1)])[None]
            parts.append(self.continue_from(memory, part.with_values(yt[:, first : first + size]), part, mask))
        return torch.cat(parts, 1)

    def continue_from(
        self, memory: Memory, values: Points, queries: Targets, mask: Bool[Tensor, "#b n k"]
    ) -> Float[Tensor, "b nt c"]:
        """Return features of queries that attend to a memory and to k further points with values.

        `mask` says which of the points each of the n = k + nt tokens, [points | queries], attends to.
        """
        k, x = len(values), torch.cat([values.x, queries.x], 1)
        tokens = torch.cat([self.tokens_of_values(values), self.tokens(queries.without_values(self.dim_y))], 1)
        xq, xk = self.where(x), self.where(torch.cat([memory.x, values.x], 1))
        b, n, m = len(x), tokens.shape[1], len(memory)
        pairs = [memory.valid()[:, None].expand(b, n, m), (mask & values.valid[:, None]).expand(b, n, k)]
        allowed = torch.cat(pairs, 2)[:, None]
        for block, layer in zip(self.blocks[:-1], memory.layers[:-1], strict=True):
            added = block.project_context(tokens[:, :k], self.where(values.x))  # type: ignore[operator]
            tokens = block(tokens, _join(layer, added), xq=xq, xk=xk, mask=allowed)
        last, xq = self.blocks[-1], self.where(queries.x)  # the tokens of the points are not read after it
        added = last.project_context(tokens[:, :k], self.where(values.x))  # type: ignore[operator]
        joined = _join(memory.layers[-1], added)
        return self.features(last(tokens[:, k:], joined, xq=xq, xk=xk, mask=allowed[:, :, k:]))

    def tokens_of_values(self, values: Points) -> Tokens:
        """Return tokens of targets with values, to which later ones attend."""
        return self.tokens(values)

    @torch.no_grad()
    def draw(
        self, memory: Memory, targets: Targets, n: int, context: Points | None = None
    ) -> Float[Tensor, "n b nt dy"]:
        """Draw n coherent functions, target by target.

        A step costs two tokens a function: the last target with its drawn y, and the next target without y. All
        functions read one copy of the encoded context.
        """
        b, nt = targets.x.shape[:2]
        xt, keep = targets.x.repeat(n, 1, 1), None if targets.keep is None else targets.keep.repeat(n, 1, 1)
        every, drawn, own, size = Targets(xt, keep), xt.new_zeros(n * b, 0, self.dim_y), None, self.buffer_size(nt)
        for i in range(nt):
            first = i - 1 if i % size else i
            if i and first == i:  # the buffer is full: its targets join the context
                assert context is not None
                memory, own = self.encode(_repeat(context, n).join(_part(every, 0, i).with_values(drawn))), None
            previous = _part(every, first, i).with_values(drawn[:, first:])  # none where the buffer is empty
            own, features = self._step(memory, own, previous, _part(every, i, i + 1))
            drawn = torch.cat([drawn, self.head(features).sample()], 1)
        return drawn.view(n, b, nt, self.dim_y)

    def _step(self, memory: Memory, own: Memory | None, previous: Points, here: Targets) -> tuple[Memory, Tokens]:
        """Add the last target and its value to those of each function; return these and the features at the next."""
        query, k = here.without_values(self.dim_y), len(previous)
        tokens = torch.cat([self.tokens_of_values(previous), self.tokens(query)], 1)
        x = torch.cat([previous.x, here.x], 1)
        locations = previous.x if own is None else torch.cat([own.x, previous.x], 1)
        keep = previous.valid if own is None else torch.cat([own.valid(), previous.valid], 1)
        layers: list[KeyValues] = []
        extended = Memory(layers, locations, keep)
        for number, block in enumerate(self.blocks):
            added: KeyValues = block.project_context(tokens[:, :k], self.where(previous.x))  # type: ignore[operator]
            layers.append(added if own is None else _join(own.layers[number], added))
            tokens = self._attend_to_both(block, number, tokens, x, memory, extended)  # type: ignore[arg-type]
        return extended, self.features(tokens[:, -1:])

    def _attend_to_both(
        self, block: Block, number: int, tokens: Tokens, x: Tensor, shared: Memory, own: Memory
    ) -> Tokens:
        """Attend to a memory that several functions share, and to that of each function."""
        attention, b = block.attention, len(shared.x)
        copies, n = len(tokens) // b, tokens.shape[1]
        options = {"score": attention.score, "span": attention.span, "return_lse": True}
        options["backend"] = "auto" if attention.backend == "fused" else attention.backend  # fused returns no lse
        q, xq = attention.project_queries(block.norm_attention(tokens) if block.pre else tokens), self.where(x)

        def fold(t: Tensor | None, axis: int) -> Tensor | None:  # the functions of a task become queries of one task
            if t is None:
                return None
            return t.unflatten(0, (copies, b)).movedim(0, axis).flatten(axis, axis + 1)

        k, v = shared.layers[number]
        mask = expand_key_mask(shared.keep)
        out, lse = attend(fold(q, 2), k, v, xq=fold(xq, 1), xk=self.where(shared.x), mask=mask, **options)
        out, lse = (t.unflatten(2, (copies, n)).movedim(2, 0).flatten(0, 1) for t in (out, lse))
        (k, v), mask = own.layers[number], expand_key_mask(own.keep)
        out, _ = combine(out, lse, *attend(q, k, v, xq=xq, xk=self.where(own.x), mask=mask, **options))
        return block.finish(tokens, attention.join_heads(out, xq))


def _repeat(points: Points, n: int) -> Points:
    x, y, observed = (t.repeat(n, 1, 1) for t in (points.x, points.y, points.observed))
    return Points(x, y, observed, None if points.keep is None else points.keep.repeat(n, 1))


class BufferedTNP(CachedTNP):
    """TNP with a causal buffer of targets beside a context that is encoded once (Hassan et al. 2026).

    Parameters
    ----------
    buffer : int, default=16
        Number of targets that the buffer holds. Then they join the context, which is encoded again. A larger buffer
        makes joint samples and likelihoods cheaper, a smaller one closer to encoding the context again for each target.

    Notes
    -----
    The context attends to itself in both directions, so that its order does not matter. Target i of a buffer attends to
    the context and to the buffered targets 1 … i−1, so that

        ln p(yt | context) = Σ_i ln p(y_i | context, y_1 … y_{i−1})

    takes one pass for each full buffer, where encoding again takes one for each target. n samples share the keys and
    values of the context. buffer=1 is the autoregressive mode of any neural process. A buffer that holds all targets is
    TNP-A, up to the learned vector that marks buffered tokens. The objective "random-prefixes" trains for marginal and
    joint predictions together. The vector, the size of the buffer and the shares of that objective are ours.
    """

    def __init__(self, buffer: int = 16, **options):
        super().__init__(**options)
        self.buffer = buffer
        self.role = nn.Parameter(torch.zeros(self.width))

    def buffer_size(self, targets: int) -> int:
        return self.buffer

    def tokens_of_values(self, values: Points) -> Tokens:
        return self.tokens(values) + self.role

    def after_prefixes(
        self,
        xc: Float[Tensor, "b nc dx"],
        yc: Float[Tensor, "b nc dy"],
        xt: Float[Tensor, "b nt dx"],
        yt: Float[Tensor, "b nt dy"],
        lengths: Int[Tensor, "b nt"],
        mask_c: MaskC = None,
        mask_t: MaskT = None,
    ) -> Distribution:
        """Return p(y_i | context, y_1 … y_r) for all i, where r = `lengths`[i] is less than i and fits the buffer."""
        context, targets = self.read(xc, yc, xt, mask_c, mask_t)
        buffered = _part(targets, 0, self.buffer).with_values(yt[:, : self.buffer])
        k = len(buffered)
        among = torch.ones(k, k, dtype=torch.bool, device=yt.device).tril().expand(len(xt), -1, -1)
        prefix = torch.arange(k, device=yt.device) < lengths[..., None]
        mask = torch.cat([among, prefix], 1)
        return self.head(self.continue_from(self.encode(context), buffered, targets, mask), targets.keep)


class StreamState(NamedTuple):
    """Observations so far. The first ones of a task fix the origin of its locations in an equivariant model."""

    memory: Memory | None
    origin: Float[Tensor, "b 1 dx"]
    known: Bool[Tensor, "b 1 1"]  # False for a task without observations


class IncTNP(CachedTNP):
    """TNP whose context tokens attend to those before them, for streams of observations (Mortimer et al. 2026).

    `model.update(None, xc, yc)` → state, `model.update(state, xc, yc)` → state, `model.predict(state, xt)`.

    Notes
    -----
    A new observation attends to all earlier ones and changes none of them: an update costs O(n), where a TNP-D encodes
    the context again in O(n²). A context in pieces gives the same predictions as at once. The price is that predictions
    depend on the order of the context. A target that joins the context continues the same sequence, so that the joint
    likelihood and samples, in one pass and with cached keys, equal those of encoding everything again for each target.
    Training by log-likelihood scores each target after all before it (as incTNP-Seq does for every point; the context
    itself is not scored here).
    """

    ordered_context = True

    def update(
        self,
        state: StreamState | None,
        xc: Float[Tensor, "b nc dx"],
        yc: Float[Tensor, "b nc dy"],
        mask_c: MaskC = None,
    ) -> StreamState:
        """Return the state after these observations, in their order. Start with None; earlier states stay valid.

        Examples
        --------
        >>> model = __import__("fillin").create("inctnp", size="small")
        >>> x, y = torch.rand(1, 6, 1), torch.rand(1, 6, 1)
        >>> state = model.update(model.update(None, x[:, :4], y[:, :4]), x[:, 4:], y[:, 4:])
        >>> torch.allclose(model.predict(state, x).mean, model(x, y, x).mean, atol=1e-4)
        True
        """
        points, _ = read(xc, yc, xc[:, :0], mask_c, None, self.dim_x, self.dim_y, self.norm.weight.dtype)
        if state is None:
            unknown = torch.zeros(len(xc), 1, 1, dtype=torch.bool, device=xc.device)
            state = StreamState(None, xc.new_zeros(len(xc), 1, xc.shape[-1]), unknown)
        elif len(xc) != len(state.known):
            raise InputError(f"xc has a batch of {len(xc)} tasks, but the state has {len(state.known)}")
        start = torch.where(state.known, state.origin, origin(points))
        known = state.known | points.valid.any(1)[:, None, None]
        memory = self.extend(state.memory, points.relative_to(start) if self.equivariant else points)
        return StreamState(memory, start, known)

    def predict(self, state: StreamState, xt: Float[Tensor, "b nt dx"], mask_t: MaskT = None) -> Autoregressive:
        """Return the predictive distribution at xt given all observations of the state."""
        if len(xt) != len(state.known):
            raise InputError(f"xt has a batch of {len(xt)} tasks, but the state has {len(state.known)}")
        empty = xt.new_zeros(len(xt), 0, self.dim_y)
        none, targets = read(xt[:, :0], empty, xt, None, mask_t, self.dim_x, self.dim_y, self.norm.weight.dtype)
        memory = self.extend(None, none) if state.memory is None else state.memory
        if self.equivariant:
            targets = targets.relative_to(torch.where(state.known, state.origin, origin(none, targets)))
        return self.predict_from(memory, targets)
