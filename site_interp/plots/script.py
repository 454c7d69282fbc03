"""The script that draws figures in a page, for pages that must need no network and no second file."""


def drawing_script() -> str:
    """JavaScript that defines `Plotly`, as the installed plotly ships it (about 4.8 MB)."""
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script
