"""The description of fitted sections: what is read of each file, its tables, and the tables of all files together."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
import scipy.sparse as sp

from spatialpdvi.description.differences import difference_table, group_sections, why_no_p
from spatialpdvi.description.genes import gene_table
from spatialpdvi.description.neighbourhoods import contact_table, load_squidpy, section_graph
from spatialpdvi.description.sizes import composition_table, domain_sizes, section_row
from spatialpdvi.description.tables import Description
from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.described import (
    ComparedDomains,
    DescribedKeys,
    SectionDomains,
    compared_domains,
    read_sections,
)
from spatialpdvi.io.results.expression import read_genes
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.left_out import select_fitted
from spatialpdvi.options.validation import check_seed, read_kind, refuse_without_genes
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.version import library_versions

__all__ = ["DescribeOptions", "Part", "describe_source", "join_parts"]


@dataclass(frozen=True, kw_only=True)
class DescribeOptions:
    """What the caller chose for all sections, which is checked before anything is read.

    Raises
    ------
    InputError
        Where an option is out of its range, or squidpy is not installed.
    """

    keys: Keys
    where: DescribedKeys
    layer: str | None
    gene_key: str | None
    n_genes: int
    n_perms: int
    seed: int
    store: bool
    memory: int | None = None

    def __post_init__(self) -> None:
        for name in ("n_genes", "n_perms"):
            read_kind(name, getattr(self, name), int)
        if self.n_genes < 0:
            raise InputError("at least 0", str(self.n_genes), option="n_genes")
        if not self.n_genes:
            refuse_without_genes("genes", layer=self.layer, gene_key=self.gene_key)
        if self.n_perms < 2:
            raise InputError("at least 2", str(self.n_perms), f"Give {option('n_perms', 1000)}.", option="n_perms")
        check_seed(self.seed)
        if self.store and self.where.domain_key is not None:
            raise InputError(
                f"no {option('domain_key')} with {option('store')}",
                repr(self.where.domain_key),
                "Only the description of the fit's own domains is stored with the fit; write this one to a folder.",
            )
        load_squidpy()

    @property
    def compares_domains(self) -> bool:
        """Whether the domains of a fit are compared between sections."""
        return self.where.domain_key is None and self.where.condition is not None


class Part(NamedTuple):
    """What was found in one file."""

    sections: pd.DataFrame
    domains: pd.DataFrame
    contacts: pd.DataFrame
    composition: pd.DataFrame | None
    genes: pd.DataFrame | None
    compared: ComparedDomains | None  # domains of the fit, with those of other files; None where they are not


def describe_source(source: Source, name: str, options: DescribeOptions, progress: Progress) -> Part:
    """Describe every section of a file.

    Parameters
    ----------
    source
        With the result of a fit, or with other domains.
    name
        Of its section, where it has no column of sections.
    options
        What is described.
    progress
        Shows the stages.

    Raises
    ------
    InputError
        Where there are no domains, or a column cannot be used.
    """
    if options.where.domain_key is None:
        source = select_fitted(source, options.keys)
    with progress.stage("read") as stage:
        sections = read_sections(source, options.keys, options.where, name=name)
        stage.note(f"{sum(section.spots.size for section in sections):,} spots of {name}")
    rows, sizes, contacts, composition, graphs = [], [], [], [], []
    with progress.stage("contacts") as stage:
        for done, section in enumerate(sections):
            stage.advance(done, len(sections))
            stage.note(section.name)
            graph, neighbours = section_graph(section)
            rows.append(section_row(section) | {"neighbours": neighbours})
            sizes.append(domain_sizes(section, rows[-1]["spot_area"]))
            contacts.append(contact_table(section, graph, n_perms=options.n_perms, seed=options.seed))
            graphs.append(graph)
            if section.types is not None:
                composition.append(composition_table(section))
    return Part(
        sections=pd.DataFrame(rows),
        domains=pd.concat(sizes, ignore_index=True),
        contacts=pd.concat(contacts, ignore_index=True),
        composition=pd.concat(composition, ignore_index=True) if composition else None,
        genes=_genes(source, sections, graphs, options, progress),
        compared=compared_domains(source, options.keys) if options.compares_domains else None,
    )


def _genes(
    source: Source,
    sections: Sequence[SectionDomains],
    graphs: Sequence[sp.csr_matrix],
    options: DescribeOptions,
    progress: Progress,
) -> pd.DataFrame | None:
    """Test the genes of each domain of a file; None, and a warning, where it has no counts."""
    if not options.n_genes:
        return None
    with progress.stage("genes"):
        try:
            counts, genes = read_genes(
                source, options.keys, layer=options.layer, gene_key=options.gene_key, memory=options.memory
            )
        except InputError as error:
            if options.layer is not None or options.gene_key is not None:
                raise
            text = f"No genes are tested. {error.sentence(option)} {option('n_genes', 0)} says that none are wanted."
            warnings.warn(InputWarning(text), stacklevel=5)
            return None
        return gene_table(counts, genes, sections, graphs, n_genes=options.n_genes)


def join_parts(parts: Sequence[Part], options: DescribeOptions) -> Description:
    """Return the tables of all files as one description, with the differences between conditions.

    Parameters
    ----------
    parts
        One for each file, from `describe_source`.
    options
        What is described.

    Raises
    ------
    InputError
        Where sections have the same name, or all have the same condition.
    """

    def joined(tables: Iterator[pd.DataFrame | None]) -> pd.DataFrame | None:
        found = [table for table in tables if table is not None]
        return pd.concat(found, ignore_index=True) if found else None

    sections = pd.concat([part.sections for part in parts], ignore_index=True)
    _check_names(sections)
    domains = pd.concat([part.domains for part in parts], ignore_index=True)
    composition = joined(part.composition for part in parts)
    differences, reason = None, ""
    if options.where.condition is not None:
        groups = group_sections(list(sections["condition"]))
        if len(groups.names) < 2:
            raise InputError(
                f"sections of at least two conditions in obs[{options.where.condition!r}]",
                f"{len(sections)} of {groups.names[0]!r}",
                f"Name another column with {option('condition')}, give files of other conditions too, or name the "
                f"column of the sections with {option('sample_key')}.",
            )
        _warn_of_other_domains(parts)
        reason = why_no_p(groups)
        if reason:
            warnings.warn(InputWarning(reason), stacklevel=4)
        compared = [difference_table(domains, sections, groups, seed=options.seed)]
        if composition is not None:
            compared.append(difference_table(composition, sections, groups, seed=options.seed))
        differences = pd.concat(compared, ignore_index=True)
        if composition is not None:
            differences.insert(1, "type", differences.pop("type").fillna(""))
    return Description(
        sections=sections,
        domains=domains,
        contacts=pd.concat([part.contacts for part in parts], ignore_index=True),
        composition=composition,
        genes=joined(part.genes for part in parts),
        differences=differences,
        no_p_values=reason,
        params=_params(options),
    )


def _check_names(sections: pd.DataFrame) -> None:
    repeated = sections["section"][sections["section"].duplicated()]
    if len(repeated):
        raise InputError(
            "sections with different names", f"{repeated.iloc[0]!r} twice", "Rename a file, or the sections in it."
        )


def _warn_of_other_domains(parts: Sequence[Part]) -> None:
    """Warn where files are compared whose domains are not the same."""
    found = [(str(part.sections["section"].iloc[0]), part.compared) for part in parts if part.compared is not None]
    if len(found) < 2:
        return
    (section, first), *others = found
    unlike = [(name, other) for name, other in others if not first.has_names_of(other)]
    if not all(first.is_of_fit_of(other) for _, other in others):
        text = (
            "The files are not of one fit or model, so that domains of the same number have nothing in common, and "
            "their shares should not be compared. Fit the files together, or predict with one model."
        )
    elif unlike:
        name, other = unlike[0]
        text = (
            f"The files do not have the same domains ({', '.join(map(repr, first.names or ()))} in {section!r}, "
            f"{', '.join(map(repr, other.names or ()))} in {name!r}). A domain that a file has under another name, or "
            "as part of another one, has no spots there, so that its shares should not be compared. Rename or merge "
            "the same domains in every file."
        )
    elif any(domains.were_divided for _, domains in found):
        text = (
            "Domains were divided by the spots of each file alone, so that parts of the same name need not be the same "
            "tissue. Look at them before their shares are compared."
        )
    else:
        return
    warnings.warn(InputWarning(text), stacklevel=5)


def _params(options: DescribeOptions) -> dict[str, Any]:
    return {
        "key_added": options.keys.prefix,
        **options.where._asdict(),
        "layer": options.layer,
        "gene_key": options.gene_key,
        "n_genes": options.n_genes,
        "n_perms": options.n_perms,
        "seed": options.seed,
        "versions": library_versions("pandas", "squidpy"),
    }
