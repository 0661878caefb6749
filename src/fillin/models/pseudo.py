"""Processes that read the context through a few pseudo-tokens: cost linear in the number of points.

lbanp  latents read the context, then one another (Feng et al. 2023a)
istnp  induced set attention: the context reads the latents back (Lee et al. 2019, Ashman et al. 2024)
cmanp  constant-memory attention: the context may come in chunks that are then forgotten (Feng et al. 2023b)

In all of them layer l of a target reads the latents of layer l.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributions import Distribution

from fillin.attention import expand_key_mask
from fillin.errors import InputError
from fillin.layers import CMAB, ISAB, CMABState, LatentBottleneck, PseudoTokens
from fillin.models.base import MaskC, MaskT
from fillin.models.points import Points, Targets, origin, read
from fillin.models.tnp import Tokens, TransformerProcess

Places = Float[Tensor, "b n dx"]


class Stages(NamedTuple):
    latents: list[Tokens]  # one set a layer
    x: Places | None
    alive: Bool[Tensor, "b M"] | None  # False for a task without context, where latents stand nowhere


class PseudoProcess(TransformerProcess):
    """Base of the three models with pseudo-tokens: pseudo-tokens, and targets that read them."""

    def __init__(self, dim_x: int = 1, dim_y: int = 1, width: int = 128, pseudo_tokens: int = 32, **options):
        super().__init__(dim_x, dim_y, width, **options)
        places = None if not self.equivariant else "attention" if options.get("radial") else "mean"
        self.pseudo = PseudoTokens(pseudo_tokens, width, places, dim_x)
        self.readers = nn.ModuleList(self.make_block(width, cross=True) for _ in range(self.layers))

    def alive(self, context: Points) -> Bool[Tensor, "b M"] | None:
        """Which latents may be read: in an equivariant model none where there is no context to place them."""
        if not self.equivariant or (context.keep is None and len(context)):
            return None
        return context.real.any(1, keepdim=True).expand(-1, len(self.pseudo.tokens))

    def decode(self, encoded: Stages, targets: Targets) -> Tokens:
        tokens, mask = self.tokens(targets.unknown(self.dim_y)), expand_key_mask(encoded.alive)
        for reader, latents in zip(self.readers, encoded.latents, strict=True):
            tokens = reader(tokens, latents, xq=self.where(targets.x), xk=encoded.x, mask=mask)
        return self.features(tokens)


class LBANP(PseudoProcess):
    def __init__(self, dim_x: int = 1, dim_y: int = 1, width: int = 128, **options):
        super().__init__(dim_x, dim_y, width, **options)
        self.blocks = nn.ModuleList(LatentBottleneck(width, self.make_block) for _ in range(self.layers))

    def encode(self, context: Points, targets: Targets) -> Stages:
        tokens, stages = self.tokens(context), []
        latents, xl = self.pseudo(tokens, context.x, context.keep)
        for block in self.blocks:
            latents = block(latents, tokens, xl=xl, xc=self.where(context.x), mask=context.keep)
            stages.append(latents)
        return Stages(stages, xl, self.alive(context))


class ISTNP(PseudoProcess):
    def __init__(self, dim_x: int = 1, dim_y: int = 1, width: int = 128, **options):
        super().__init__(dim_x, dim_y, width, **options)
        self.blocks = nn.ModuleList(ISAB(width, self.make_block) for _ in range(self.layers - 1))
        self.gather = self.make_block(width, cross=True)  # the last layer's context tokens would be read by nobody

    def encode(self, context: Points, targets: Targets) -> Stages:
        tokens, stages, xc = self.tokens(context), [], self.where(context.x)
        latents, xl = self.pseudo(tokens, context.x, context.keep)
        for block in self.blocks:
            tokens, latents = block(latents, tokens, xl=xl, x=xc, mask=context.keep)
            stages.append(latents)
        stages.append(self.gather(latents, tokens, xq=xl, xk=xc, mask=expand_key_mask(context.keep)))
        return Stages(stages, xl, self.alive(context))


class CMANPState(NamedTuple):
    """All that is kept of a context, however large: for each layer what its latents have gathered, and, in an
    equivariant model, where the latents stand and relative to what. The first points of a task fix both."""

    layers: list[CMABState]
    x: Places | None
    origin: Places
    alive: Bool[Tensor, "b 1"]


class CMANP(PseudoProcess):
    """`model.update(None, xc, yc)` → state, `model.update(state, xc, yc)` → state, `model.predict(state, xt)`.

    Reading a context in chunks is the same as reading it at once, at constant memory. (An equivariant model's latents
    stand where the first chunk puts them, so there it is the same for a given first chunk.)
    """

    def __init__(self, dim_x: int = 1, dim_y: int = 1, width: int = 128, **options):
        super().__init__(dim_x, dim_y, width, **options)
        number = len(self.pseudo.tokens)
        self.blocks = nn.ModuleList(CMAB(number, width, self.make_block) for _ in range(self.layers))

    def encode(self, context: Points, targets: Targets) -> Stages:
        return self._pass_on(self._see(self._nothing(context.x), context))

    def update(
        self,
        state: CMANPState | None,
        xc: Float[Tensor, "b nc dx"],
        yc: Float[Tensor, "b nc dy"],
        mask_c: MaskC = None,
    ) -> CMANPState:
        """State after these further points. Begin with None."""
        context, _ = read(xc, yc, xc[:, :0], mask_c, None, self.dim_x, self.dim_y, self.norm.weight.dtype)
        if state is not None and len(xc) != len(state.alive):
            raise InputError(f"xc has a batch of {len(xc)} tasks, but the state is of {len(state.alive)}")
        return self._see(self._nothing(xc) if state is None else state, context)

    def predict(self, state: CMANPState, xt: Float[Tensor, "b nt dx"], mask_t: MaskT = None) -> Distribution:
        """The distribution at xt given all points seen."""
        if len(xt) != len(state.alive):
            raise InputError(f"xt has a batch of {len(xt)} tasks, but the state is of {len(state.alive)}")
        nothing = xt.new_zeros(len(xt), 0, self.dim_y)
        _, targets = read(xt[:, :0], nothing, xt, None, mask_t, self.dim_x, self.dim_y, self.norm.weight.dtype)
        if self.equivariant:
            targets = targets.relative_to(state.origin)
        return self.head(self.decode(self._pass_on(state), targets), targets.keep)

    def _nothing(self, x: Places) -> CMANPState:
        """The state before any point."""
        b, zero = len(x), x.new_zeros(len(x), 1, x.shape[-1])
        xl = zero.expand(-1, len(self.pseudo.tokens), -1) if self.equivariant else None
        layers = [block.start(b, x.shape[-1] if self.equivariant else None) for block in self.blocks]  # type: ignore[operator]
        return CMANPState(layers, xl, zero, torch.zeros(b, 1, dtype=torch.bool, device=x.device))

    def _see(self, state: CMANPState, context: Points) -> CMANPState:
        fresh = ~state.alive[..., None]  # tasks of which nothing was seen yet: these points say where they are
        place = torch.where(fresh, origin(context), state.origin)
        if self.equivariant:
            context = context.relative_to(place)
        tokens, xl = self.tokens(context), state.x
        here = self.pseudo.locate(tokens, context.x, context.keep)
        if here is not None and xl is not None:
            xl = torch.where(fresh, here, xl)
        layers = [
            block.update(layer, tokens, xl=xl, x=self.where(context.x), mask=context.keep)  # type: ignore[operator]
            for block, layer in zip(self.blocks, state.layers, strict=True)
        ]
        return CMANPState(layers, xl, place, state.alive | context.real.any(1, keepdim=True))

    def _pass_on(self, state: CMANPState) -> Stages:
        latents, stages = self.pseudo.tokens.expand(len(state.alive), -1, -1), []
        for block, layer in zip(self.blocks, state.layers, strict=True):
            latents = block(latents, layer, xl=state.x)
            stages.append(latents)
        hidden = self.equivariant and not state.alive.all()
        return Stages(stages, state.x, state.alive.expand(-1, latents.shape[1]) if hidden else None)
