"""What a sample raises where a library isn't installed. Without torch, so that anybody may catch it."""


class MissingLibraryError(ImportError):
    """A sample needs a library that isn't here."""
