"""What requests and answers of several tools are made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from fillin.play import limits

Number = Annotated[float, Field(ge=-limits.LARGEST, le=limits.LARGEST, allow_inf_nan=False)]
Positive = Annotated[float, Field(ge=1 / limits.LARGEST, le=limits.LARGEST, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Asked(BaseModel):
    """A request: a name that is not known is a mistake, not something to pass over."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """What was wrong, where, and what to do."""

    detail: str
