"""Processes that attend to the context through a few pseudo-tokens: cost linear in the number of points.

lbanp  latents attend to the context, then to one another (Feng et al. 2023a)
istnp  induced set attention: the context attends back to the latents (Lee et al. 2019, Ashman et al. 2024)
cmanp  constant-memory attention: the context may be processed in chunks (Feng et al. 2023b)

In all of them layer l of a target attends to the latents of layer l.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Distribution

from fillin.attention import expand_key_mask
from fillin.errors import InputError
from fillin.layers import CMAB, ISAB, CMABState, LatentBottleneck, PseudoTokens
from fillin.models.base import MaskC, MaskT, Points, Targets, origin, read
from fillin.models.tnp import Tokens, TransformerProcess

Locations = Float[Tensor, "b n dx"]


class LatentLayers(NamedTuple):
    latents: list[Tokens]  # one set per layer
    x: Locations | None
    alive: Bool[Tensor, "b M"] | None  # False for a task without context, where latents have no location


class PseudoProcess(TransformerProcess):
    """Base of the three models: pseudo-tokens, and targets that attend to them."""

    def __init__(self, dim_x: int = 1, pseudo_tokens: int = 32, **options):
        super().__init__(dim_x, **options)
        locations = None if not self.equivariant else "attention" if options.get("radial") else "mean"
        self.pseudo = PseudoTokens(pseudo_tokens, self.width, locations, dim_x)
        self.readers = nn.ModuleList(self.make_block(self.width, cross=True) for _ in range(self.layers))

    def alive(self, context: Points) -> Bool[Tensor, "b M"] | None:
        """Return the mask of latents: in an equivariant model none without a context that defines their locations."""
        if not self.equivariant or (context.keep is None and len(context)):
            return None
        return context.valid.any(1, keepdim=True).expand(-1, len(self.pseudo.tokens))

    def decode(self, encoded: LatentLayers, targets: Targets) -> Tokens:
        tokens, mask = self.tokens(targets.without_values(self.dim_y)), expand_key_mask(encoded.alive)
        for reader, latents in zip(self.readers, encoded.latents, strict=True):
            tokens = reader(tokens, latents, xq=self.where(targets.x), xk=encoded.x, mask=mask)
        return self.features(tokens)


class LBANP(PseudoProcess):
    def __init__(self, **options):
        super().__init__(**options)
        self.blocks = nn.ModuleList(LatentBottleneck(self.width, self.make_block) for _ in range(self.layers))

    def encode(self, context: Points, targets: Targets) -> LatentLayers:
        tokens, stages = self.tokens(context), []
        latents, xl = self.pseudo(tokens, context.x, context.keep)
        for block in self.blocks:
            latents = block(latents, tokens, xl=xl, x=self.where(context.x), mask=context.keep)
            stages.append(latents)
        return LatentLayers(stages, xl, self.alive(context))


class ISTNP(PseudoProcess):
    def __init__(self, **options):
        super().__init__(**options)
        self.blocks = nn.ModuleList(ISAB(self.width, self.make_block) for _ in range(self.layers - 1))
        self.gather = self.make_block(self.width, cross=True)  # the last layer skips context tokens, which are not read

    def encode(self, context: Points, targets: Targets) -> LatentLayers:
        tokens, stages, xc = self.tokens(context), [], self.where(context.x)
        latents, xl = self.pseudo(tokens, context.x, context.keep)
        for block in self.blocks:
            tokens, latents = block(latents, tokens, xl=xl, x=xc, mask=context.keep)
            stages.append(latents)
        stages.append(self.gather(latents, tokens, xq=xl, xk=xc, mask=expand_key_mask(context.keep)))
        return LatentLayers(stages, xl, self.alive(context))


class CMANPState(NamedTuple):
    """Memory of a context of any size: for each layer the statistics of its latents and, in an equivariant model, the
    locations of the latents and their origin. The first points of a task fix both."""

    layers: list[CMABState]
    x: Locations | None
    origin: Locations
    alive: Bool[Tensor, "b 1"]


class CMANP(PseudoProcess):
    """`model.update(None, xc, yc)` → state, `model.update(state, xc, yc)` → state, `model.predict(state, xt)`.

    Processing a context in chunks equals processing it at once, at constant memory. (In an equivariant model the first
    chunk defines the locations of the latents, so there it is the same for a given first chunk.)
    """

    def __init__(self, **options):
        super().__init__(**options)
        number = len(self.pseudo.tokens)
        self.blocks = nn.ModuleList(CMAB(number, self.width, self.make_block) for _ in range(self.layers))

    def encode(self, context: Points, targets: Targets) -> LatentLayers:
        return self._update_latents(self._add_points(self._empty_state(context.x), context))

    def update(
        self, state: CMANPState | None, xc: Float[Tensor, "b nc dx"], yc: Float[Tensor, "b nc dy"], mask_c: MaskC = None
    ) -> CMANPState:
        """Return the state after these points. Start with None."""
        context, _ = read(xc, yc, xc[:, :0], mask_c, None, self.dim_x, self.dim_y, self.norm.weight.dtype)
        if state is not None and len(xc) != len(state.alive):
            raise InputError(f"xc has a batch of {len(xc)} tasks, but the state has {len(state.alive)}")
        return self._add_points(self._empty_state(xc) if state is None else state, context)

    def predict(self, state: CMANPState, xt: Float[Tensor, "b nt dx"], mask_t: MaskT = None) -> Distribution:
        """Return the predictive distribution at xt given all points of the state."""
        if len(xt) != len(state.alive):
            raise InputError(f"xt has a batch of {len(xt)} tasks, but the state has {len(state.alive)}")
        empty = xt.new_zeros(len(xt), 0, self.dim_y)
        _, targets = read(xt[:, :0], empty, xt, None, mask_t, self.dim_x, self.dim_y, self.norm.weight.dtype)
        if self.equivariant:
            targets = targets.relative_to(state.origin)
        return self.head(self.decode(self._update_latents(state), targets), targets.keep)

    def _empty_state(self, x: Locations) -> CMANPState:
        """Return the state without any point."""
        b, zero = len(x), x.new_zeros(len(x), 1, x.shape[-1])
        xl = zero.expand(-1, len(self.pseudo.tokens), -1) if self.equivariant else None
        layers = [block.start(b, x.shape[-1] if self.equivariant else None) for block in self.blocks]  # type: ignore[operator]
        return CMANPState(layers, xl, zero, torch.zeros(b, 1, dtype=torch.bool, device=x.device))

    def _add_points(self, state: CMANPState, context: Points) -> CMANPState:
        fresh = ~state.alive[..., None]  # tasks without points so far: these points define their origin
        start = torch.where(fresh, origin(context), state.origin)
        if self.equivariant:
            context = context.relative_to(start)
        tokens, xl = self.tokens(context), state.x
        here = self.pseudo.locate(tokens, context.x, context.keep)
        if here is not None and xl is not None:
            xl = torch.where(fresh, here, xl)
        layers = [
            block.update(layer, tokens, xl=xl, x=self.where(context.x), mask=context.keep)  # type: ignore[operator]
            for block, layer in zip(self.blocks, state.layers, strict=True)
        ]
        return CMANPState(layers, xl, start, state.alive | context.valid.any(1, keepdim=True))

    def _update_latents(self, state: CMANPState) -> LatentLayers:
        latents, stages = self.pseudo.tokens.expand(len(state.alive), -1, -1), []
        for block, layer in zip(self.blocks, state.layers, strict=True):
            latents = block(latents, layer, xl=state.x)
            stages.append(latents)
        masked = self.equivariant and not state.alive.all()
        return LatentLayers(stages, state.x, state.alive.expand(-1, latents.shape[1]) if masked else None)
