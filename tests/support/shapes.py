"""Runtime type checker of the tests: beartype, which accepts an int where a float is expected."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
