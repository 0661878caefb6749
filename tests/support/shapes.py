"""The checker of shapes and types under test: beartype, with a whole number accepted where a float is asked for."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
