"""Prices of S3, from a file: ``prices.toml`` has the list prices, and users can give their own."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamvault.common.errors import Usage
from streamvault.common.options import load_file

GB = 2**30
LIST_PRICES = Path(__file__).with_name("prices.toml")

Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=0)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StorageStep(_Table):
    """The price of a GB and month, for so many GB; None for the rest."""

    gb: Annotated[float | None, Field(gt=0)] = None
    usd: Price


class ClassPrices(_Table):
    """The prices of a storage class; ``prices.toml`` says what each is."""

    put: Price
    get: Price
    storage: Annotated[tuple[StorageStep, ...], Field(min_length=1)]
    retrieve: Price = 0.0
    retrieve_request: Price = 0.0
    least_bytes: Bytes = 0
    more_bytes: Bytes = 0
    standard_bytes: Bytes = 0
    least_days: Bytes = 0

    def usd_a_month(self, objects: int, size: int, standard: ClassPrices) -> float:
        """Return the price of storing so many objects of `size` bytes in total, alike in size."""
        billed = max(size, objects * self.least_bytes) + objects * self.more_bytes
        extra = objects * self.standard_bytes
        return self._stored(billed) + (standard._stored(extra) if extra else 0.0)

    def _stored(self, size: int) -> float:
        left, usd = size / GB, 0.0
        for step in self.storage:
            part = left if step.gb is None else min(left, step.gb)
            usd, left = usd + part * step.usd, left - part
        return usd + left * self.storage[-1].usd

    def usd_to_retrieve(self, objects: int, size: int) -> float:
        """Return the price of retrieving so many objects of `size` bytes in total, besides their GET requests."""
        return size / GB * self.retrieve + objects * self.retrieve_request


class Prices(_Table):
    """The prices of a file: by storage class, with their source and date."""

    source: str
    date: str
    classes: dict[str, ClassPrices]

    @property
    def standard(self) -> ClassPrices:
        """The prices of the class in which plans, rows, indexes and manifests are stored."""
        return self.classes["STANDARD"]


@cache
def list_prices() -> Prices:
    """Return the list prices."""
    return load_prices(str(LIST_PRICES))


def load_prices(name: str) -> Prices:
    """Read a file of prices.

    Raises:
        Usage: it cannot be read, or is not valid; the message says where.
    """
    todo = "A file of prices is TOML: copy streamvault/manifests/verbs/prices.toml, and change it."
    try:
        prices = Prices.model_validate(tomllib.loads(load_file(name, "--prices", todo)))
    except tomllib.TOMLDecodeError as error:
        raise Usage("--prices is not TOML", where=f"{name}: {error}", todo=todo) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Usage(
            "--prices has a value that is not valid", where=f"{name}: {where}: {first['msg']}", todo=todo
        ) from None
    if "STANDARD" not in prices.classes:
        raise Usage("--prices has no prices of STANDARD", where=name, todo=todo)
    return prices
