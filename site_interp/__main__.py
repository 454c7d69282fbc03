"""`python -m site_interp` is `site-interp`."""

from site_interp.cli import main

if __name__ == "__main__":
    main()
