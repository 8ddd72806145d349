"""The one exception a user ever sees: a sentence that says what, where, the rule and what to do."""


class NfadError(ValueError):
    """Bad input, told in one sentence. The command line prints it and exits with 2, without a traceback."""
