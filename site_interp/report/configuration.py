"""How the numbers of a run were made: model, data, settings and versions, from its records and adapters."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from site_interp.report.contents import FLOORS, Contents, Row, label_of
from site_interp.report.markup import Html, grid, joined, tag
from site_interp.report.tables import seed_words

LEFT_OUT = ("trace", "fingerprint.probe")  # long lists of numbers; the first is drawn as a figure
LONGEST = 12  # characters shown of a hash


def configuration_section(contents: Contents) -> Html:
    """What was run, on which splits, with which settings, and how the adapters were fitted."""
    records, first = contents.records, contents.records[-1]
    lines = {
        "model": first.model,
        "fingerprint": first.model_fingerprint,
        "precision": first.dtype,
        "version of site_interp": _listed(record.version for record in records),
        "metrics": _listed(record.metric for record in records if record.metric is not None),
    }
    splits = [
        [tag("th", task, scope="row"), tag("td", tag("code", _listed(r.split_hash for r in records if r.task == task))),
         tag("td", _listed(str(r.n) for r in records if r.task == task and r.status == "ok") or "–")]
        for task in contents.tasks
    ]  # fmt: skip
    methods = [_method_row(contents, method) for method in contents.methods]
    return joined(
        [
            _pairs(lines),
            grid(["task", "hash of its split", "test examples"], splits, "Tasks"),
            grid(["method", "settings that differ from the defaults", "seeds"], methods, "Methods"),
            _adapters(contents.adapters),
        ]
    )


def _method_row(contents: Contents, method: str) -> list[Html]:
    own = [record for record in contents.records if label_of(record) == method]
    seeds = sorted({record.seed for record in own})
    name = own[0].method + (" (floor)" if own[0].method in FLOORS else "")
    return [tag("th", name, scope="row"), tag("td", own[0].variant or "none"), tag("td", seed_words(seeds))]


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def _pairs(lines: Mapping[str, str]) -> Html:
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", text)) for name, text in lines.items()))


def _adapters(adapters: Mapping[str, Row]) -> Html:
    """What all adapters share, once, and what differs between them as a table."""
    if not adapters:
        return tag("p", "The run's folder holds no adapters.")
    flat = {name: dict(_flat(config)) for name, config in adapters.items()}
    keys = list(dict.fromkeys(key for config in flat.values() for key in config))
    first = next(iter(flat.values()))
    shared = {key: first[key] for key in keys if all(config.get(key) == first.get(key) for config in flat.values())}
    differing = [key for key in keys if key not in shared]
    rows = [
        [tag("th", name, scope="row"), *(tag("td", _cut(config.get(key, "–"))) for key in differing)]
        for name, config in flat.items()
    ]
    return joined(
        [
            tag("h3", f"Adapters ({len(adapters)})"),
            tag("p", "Settings, template and versions that all of them share:"),
            _pairs(shared),
            grid(["adapter", *differing], rows, "What differs between the adapters") if differing else "",
        ]
    )


def _flat(value: Any, key: str = "") -> Iterable[tuple[str, str]]:
    """The leaves of a configuration under dotted names, as text."""
    if key in LEFT_OUT:
        return
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _flat(part, f"{key}.{name}" if key else name)
    else:
        yield key, _leaf(value)


def _leaf(value: Any) -> str:
    """A text as it is, unless its spaces and line ends would be lost; fractions short."""
    if isinstance(value, float):
        return f"{value:.6g}"
    plain = isinstance(value, str) and value == " ".join(value.split()) and value
    return value if plain else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    """A long hash by its first characters."""
    return text if len(text) <= 2 * LONGEST or " " in text else f"{text[:LONGEST]}…"
