"""The one exception that means: the user can put this right."""


class UserError(ValueError):
    """Bad input, settings or files; its text says what was being done, what was wrong and what to do.

    The command line prints the text as one sentence and exits with code 2.
    """
