"""MoleculeNet classification as yes-or-no questions about a SMILES string: BACE, BBBP, ClinTox.

rdkit reads the molecules and is imported inside the functions: it is an optional extra, and other tasks do without it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from site_interp.errors import UserError, did_you_mean
from site_interp.tasks.files import encoding_of, read_records
from site_interp.tasks.function_vectors import data_folder
from site_interp.tasks.options import Options
from site_interp.tasks.rows import Columns, Record
from site_interp.tasks.source import Source

SOURCE = "moleculenet"
COLUMNS = Columns("input", "output")
ANSWERS = {"1": "Yes", "0": "No"}
SHARES = (0.6, 0.1)  # of the molecules, for train and valid of a scaffold split


@dataclass(frozen=True)
class MoleculeTask:
    """A file and what is asked of its molecules.

    Args:
        file: Its name.
        label: Column of the answer, 0 or 1.
        question: What stands after the molecule, before the answer cue (ChemLLMBench's words).
        shown: Columns shown before the question, with their words.
    """

    file: str
    label: str
    question: str
    shown: tuple[tuple[str, str], ...] = ()


MOLECULES: Mapping[str, MoleculeTask] = {
    "bace": MoleculeTask("bace.csv", "Class", "BACE-1 Inhibit"),
    "bbbp": MoleculeTask("BBBP.csv", "p_np", "Penetration"),
    "clintox": MoleculeTask("clintox.csv", "CT_TOX", "Clinically-trial-toxic"),
    "clintox_fda": MoleculeTask("clintox.csv", "CT_TOX", "Clinically-trial-toxic", (("FDA_APPROVED", "FDA-approved"),)),
}
"""`clintox_fda` shows a field that nearly gives the answer away; it is there to measure that."""


def molecule_names(data_dir: Path | str | None) -> tuple[str, ...]:
    """The molecule tasks of a data folder, `moleculenet/name`."""
    folder = data_folder(data_dir)
    if folder is None:
        return ()
    return tuple(f"{SOURCE}/{name}" for name, task in MOLECULES.items() if (folder / SOURCE / task.file).is_file())


def smiles_of(text: str) -> str:
    """The molecule of an input of these tasks.

    Example:
        >>> smiles_of("CCO\\nBACE-1 Inhibit")
        'CCO'
    """
    return text.partition("\n")[0]


def read_molecules(name: str, data_dir: Path | str | None) -> Source:
    """Read a molecule task: one example for each molecule, in canonical spelling.

    Rows that rdkit cannot read, and molecules that stand there with both answers, are left out; the description says
    how many. Splits are random within each answer, or by Murcko scaffold where the name ends in `:scaffold`: the
    scaffolds with the most molecules go to train, so that no scaffold stands in two splits.

    Args:
        name: `moleculenet/bace` or `moleculenet/bace:scaffold`.
        data_dir: Folder that holds `moleculenet/`; None reads SITE_INTERP_DATA.

    Raises:
        UserError: No data folder, no such task or split in it, no rdkit, or a row without molecule or label.
    """
    _, _, rest = name.partition("/")
    task_name, _, split = rest.partition(":")
    if task_name not in MOLECULES or split not in ("", "scaffold"):
        known = [f"{SOURCE}/{one}" for one in MOLECULES]
        raise UserError(
            f"Cannot load task {name!r}: there are {', '.join(known)}, each also with :scaffold behind it."
            f"{did_you_mean(name, known)}"
        )
    folder, task = data_folder(data_dir), MOLECULES[task_name]
    if folder is None or not (folder / SOURCE / task.file).is_file():
        raise UserError(
            f"Cannot load task {name!r}: no data folder with {SOURCE}/{task.file} was named. Give it as --data-dir "
            "(data_dir), or set SITE_INTERP_DATA."
        )
    path = folder / SOURCE / task.file
    rows = [_row(record, task) for record in read_records(path)]
    molecules: dict[str, dict[str, Record]] = {}
    n_unread = 0
    for smiles, answer, record in rows:
        canonical = canonical_smiles(smiles)
        if canonical is None:
            n_unread += 1
        else:
            molecules.setdefault(canonical, {}).setdefault(answer, _record(record, canonical, answer, task))
    records = [next(iter(by_answer.values())) for by_answer in molecules.values() if len(by_answer) == 1]
    n_both = len(molecules) - len(records)
    return Source(
        name=f"{SOURCE}/{rest}",
        description=(
            f"MoleculeNet {task_name}: {task.question} ({len(rows)} rows, {n_unread} unreadable and {n_both} molecules "
            "with both answers left out)"
        ),
        splits=_scaffold_splits(records) if split else {"all rows": tuple(records)},
        columns=COLUMNS,
        encodings={str(path): encoding_of(path.read_bytes())},
        options=Options(tuple(ANSWERS.values())),
        stratified=True,
    )


def _row(record: Record, task: MoleculeTask) -> tuple[str, str, Record]:
    """Molecule and answer of a row."""
    where = f"Cannot load a task from {record.source!r}: {record.place}"
    smiles, label = record.values.get("smiles"), record.values.get(task.label)
    if not isinstance(smiles, str) or not smiles.strip():
        raise UserError(f"{where} has no molecule in its column 'smiles'. Give the original file.")
    if label not in ANSWERS:
        raise UserError(f"{where} has {label!r} in its column {task.label!r}, and not 0 or 1. Give the original file.")
    return smiles.strip(), ANSWERS[str(label)], record


def _record(record: Record, canonical: str, answer: str, task: MoleculeTask) -> Record:
    shown = [f"{words}: {ANSWERS.get(str(record.values.get(column)), '')}" for column, words in task.shown]
    text = "\n".join([canonical, *shown, task.question])
    return Record(record.source, record.place, {COLUMNS.input: text, COLUMNS.output: answer})


def canonical_smiles(smiles: str) -> str | None:
    """The one spelling that rdkit gives a molecule, or None for what is none.

    Raises:
        UserError: rdkit is not there.
    """
    rdkit = _rdkit()
    with rdkit.rdBase.BlockLogs():  # what cannot be read is counted
        molecule = rdkit.Chem.MolFromSmiles(smiles)
    return None if molecule is None or not molecule.GetNumAtoms() else str(rdkit.Chem.MolToSmiles(molecule))


def _scaffold_splits(records: Sequence[Record]) -> dict[str, tuple[Record, ...]]:
    """Records by Murcko scaffold: large groups first into train, then valid, the rest test."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(scaffold(smiles_of(str(record.values[COLUMNS.input]))), []).append(record)
    ordered = sorted(groups.values(), key=len, reverse=True)  # stable: by first appearance among equals
    n_train, n_valid = (round(share * len(records)) for share in SHARES)
    parts: dict[str, list[Record]] = {"train": [], "valid": [], "test": []}
    for group in ordered:
        if len(parts["train"]) + len(group) <= n_train:
            parts["train"] += group
        elif not parts["valid"] or len(parts["valid"]) + len(group) <= n_valid:
            parts["valid"] += group
        else:
            parts["test"] += group
    return {split: tuple(part) for split, part in parts.items()}


def scaffold(smiles: str) -> str:
    """The Murcko scaffold of a molecule; empty without rings.

    Raises:
        UserError: rdkit is not there.
    """
    return str(_rdkit().Chem.Scaffolds.MurckoScaffold.MurckoScaffoldSmiles(smiles=smiles))


RADIUS, N_BITS = 2, 2048  # of Morgan fingerprints


def fingerprint(smiles: str, *, counts: bool = False) -> Any:
    """The Morgan fingerprint of a molecule, of radius 2: 2,048 bits, or counts.

    Raises:
        UserError: rdkit is not there, or cannot read the molecule.
    """
    rdkit = _rdkit()
    with rdkit.rdBase.BlockLogs():
        molecule = rdkit.Chem.MolFromSmiles(smiles)
    if molecule is None:
        raise UserError(f"Cannot read the molecule {smiles[:60]!r}: rdkit takes it for none. Mend its SMILES.")
    generator = rdkit.Chem.rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=N_BITS)
    return generator.GetSparseCountFingerprint(molecule) if counts else generator.GetFingerprint(molecule)


def fingerprint_similarities(bank: Sequence[str], *, counts: bool = False) -> Callable[[str], Sequence[float]]:
    """A function from a molecule to its Tanimoto similarity with each of a bank, whose fingerprints are made once.

    Raises:
        UserError: rdkit is not there, or cannot read a molecule.
    """
    known = [fingerprint(smiles, counts=counts) for smiles in bank]
    bulk = _rdkit().DataStructs.BulkTanimotoSimilarity
    return lambda smiles: list(bulk(fingerprint(smiles, counts=counts), known))


def _rdkit() -> Any:
    try:
        import rdkit.Chem.rdFingerprintGenerator
        import rdkit.Chem.Scaffolds.MurckoScaffold
        import rdkit.DataStructs
    except ImportError:
        raise UserError(
            "Cannot read molecules: rdkit is not installed. Add it with: pip install 'site-interp[molecules]'"
        ) from None
    return rdkit


__all__ = [
    "MOLECULES",
    "canonical_smiles",
    "fingerprint",
    "fingerprint_similarities",
    "molecule_names",
    "read_molecules",
    "scaffold",
    "smiles_of",
]
