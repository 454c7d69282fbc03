"""`site-interp models`: the models that need no hub."""

from site_interp.cli import options
from site_interp.cli.console import show, table


def models_verb(as_json: options.AsJson = False) -> None:
    """List the bundled models; any Hugging Face id or folder works as well."""
    from site_interp.model.bundled import bundled_models, is_cached

    models = bundled_models().values()
    if as_json:
        from site_interp.files import json_line

        print(
            json_line(
                [
                    {"name": m.name, "layers": m.n_layers, "heads": m.n_heads, "licence": m.licence}
                    | {"description": m.description, "cached": is_cached(m.name)}
                    for m in models
                ]
            )
        )
        return
    rows = [
        [m.name, f"{m.n_layers} x {m.n_heads}", m.licence, "yes" if is_cached(m.name) else "no", m.description]
        for m in models
    ]
    show(table(["model", "layers x heads", "licence", "cached", "what it is"], rows))
