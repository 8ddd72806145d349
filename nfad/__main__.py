"""`python -m nfad`, for a machine whose scripts folder is not on the path."""

from nfad.cli.main import main

main()
