"""What tests of names share."""

from named_models import bundled, cache, hdf5, language_model, mirror  # noqa: F401
