"""Restores an archived Schema Registry into an empty or a filled one, reads it back and compares.

If the target knows the mode IMPORT, as Confluent's does, schemas get their old ids and versions. If it does not, or if
one of the ids is used by another schema, the target gives new ids, and restores of records map the old ones to them.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_s3_platform.connect.converters.registry import NewSchema, Registry
from kafka_s3_platform.connect.converters.registry_contents import (
    RegistryContents,
    ScopeSettings,
    find_context,
    qualify_subject,
)
from kafka_s3_platform.connect.registries.read import read_contents
from kafka_s3_platform.connect.restore.outgoing.schemas import MappedVersion, SchemaRegistrar
from kafka_s3_platform.core.errors import ConfigError, ErrorCode, IntegrityError, PreflightError
from kafka_s3_platform.core.model.schema import ArchivedSchema, find_references_flaw

logger = logging.getLogger(__name__)

IMPORT = "IMPORT"
MOST_SENTENCES = 20
REPORT_EACH = 500

Version = tuple[str, int]
"""A subject, and the number of one of its versions."""


@dataclass(frozen=True)
class RegistryReport:
    """The outcome of a restore, after the target was read back and compared.

    `registered` is the number of missing versions that were registered or, on a dry run, would be. `new_ids` maps, for
    each context, archived ids to different ids in the target. `differences` are sentences about everything different in
    the target. On a dry run, `obstacle` is the reason why ids would not stay as they are.
    """

    subjects: int
    versions: int
    registered: int
    new_ids: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    obstacle: str | None = None


def choose_subjects(contents: RegistryContents, subjects: Collection[str]) -> RegistryContents:
    """Return the contents of these subjects and of those that their schemas refer to, without wider settings.

    They are whole subjects: a target may hold other versions of them, and the archive has to know these.
    """
    referenced: dict[str, set[str]] = defaultdict(set)
    for (subject, _), schema in contents.versions.items():
        referenced[subject].update(name for name, _ in _list_references(schema))
    chosen_subjects: set[str] = set()
    pending = [*subjects]
    while pending:
        chosen_subjects.add(subject := pending.pop())
        pending += referenced[subject] - chosen_subjects
    schemas = []
    for schema in contents.schemas:
        places = tuple(place for place in schema.subjects if place.subject in chosen_subjects)
        schemas += [replace(schema, subjects=places)] if places else []
    return replace(
        contents,
        schemas=tuple(schemas),
        deleted=tuple(place for place in contents.deleted if place[0] in chosen_subjects),
        settings=tuple(scope for scope in contents.settings if scope.subject in chosen_subjects),
        unreadable=tuple(place for place in contents.unreadable if place[0] in chosen_subjects),
    )


def restore_registry(archived: RegistryContents, target: Registry, *, dry_run: bool) -> RegistryReport:
    """Register missing versions and settings, and compare. Versions already there stay, so this may run again.

    Raises:
        PreflightError: a subject of the target has another schema. Nothing was written.
        RegistryUnavailableError, AuthorizationError, ConfigError: the target does not answer, or refuses.
    """
    present = read_contents(target)
    if conflicts := list(_list_conflicts(archived, present)):
        shown = "; ".join(conflicts[:MOST_SENTENCES])
        more = f"; and {len(conflicts) - MOST_SENTENCES:,} more" if len(conflicts) > MOST_SENTENCES else ""
        raise PreflightError(
            f"the Schema Registry at {target.url} has other schemas in archived subjects, and nothing was registered:"
            f" {shown}{more}. Delete these subjects there, permanently, or choose"
            " others by --subject"
        )
    # A version that somebody has soft-deleted there since is as good as missing.
    live_there = present.versions.keys() - ({*present.deleted} - {*archived.deleted})
    missing = [
        place
        for place, schema in archived.versions.items()
        if place not in live_there or _describe(present.versions[place]) != _describe(schema)
    ]
    if dry_run:
        obstacle = _find_clash(archived, present) if missing else None
        new_ids = _map_ids(archived, present, {})
        return RegistryReport(len(archived.subjects), len(archived.versions), len(missing), new_ids, obstacle=obstacle)
    places = _register(archived, present, target, missing)
    # Where a registry numbers anew, a deleted version and one that was registered again later may be the same one.
    staying = {places[version] for version in places.keys() - {*archived.deleted}} | {*present.deleted}
    # A registry does not delete a version as long as one that is not deleted refers to it.
    for version in reversed([*_order(archived, archived.deleted)]):
        place = places.get(version)
        if place is not None and place not in staying:
            target.delete_version(*place)
    # The subjects decide this, not emptiness, because a killed restore has already registered some.
    is_alone = {*present.subjects} <= {*archived.subjects}
    _write_settings(archived, read_contents(target), target, is_alone=is_alone)
    registered = {*places.values()} - live_there
    return _compare(archived, read_contents(target), places, len(registered))


def _list_conflicts(archived: RegistryContents, target: RegistryContents) -> Iterator[str]:
    """List target versions of archived subjects whose schema occurs in no archived version of the subject."""
    described: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for (subject, _), schema in archived.versions.items():
        described[subject].append(_describe(schema))
    for (subject, version), schema in sorted(target.versions.items(), key=lambda item: item[0]):
        if subject in described and _describe(schema) not in described[subject]:
            yield f"version {version} of {subject}"


def _describe(schema: ArchivedSchema) -> Mapping[str, Any]:
    """Return the facts of a schema without its ids and versions, because another registry may number anew."""
    referrer = schema.subjects[0].subject
    return {
        "type": schema.schema_type,
        "text": schema.schema_text,
        "references": sorted((r.name, qualify_subject(r.subject, referrer)) for r in schema.schema_references),
        "metadata and rules": schema.other_fields,
    }


def _list_references(schema: ArchivedSchema) -> list[Version]:
    """Return the versions that a schema refers to, with the full names of their subjects."""
    referrer = schema.subjects[0].subject
    return [(qualify_subject(r.subject, referrer), r.version) for r in schema.schema_references]


def _register(
    archived: RegistryContents, present: RegistryContents, target: Registry, missing: Collection[Version]
) -> dict[Version, Version]:
    """Register the missing versions. Return the subject and version in the target of each archived version."""
    if not missing:
        return {place: place for place in archived.versions}
    obstacle = _find_obstacle(archived, present, target, next(iter(missing))[0])
    if obstacle is None:
        _import(archived, target, set(missing))
        return {place: place for place in archived.versions}
    logger.info("the registry at %s gives its own ids and versions: %s", target.url, obstacle)
    registrar = SchemaRegistrar(target, _number_schemas(archived))
    registrar.versions |= _map_deleted(archived, present)
    registrar.register()
    return {place: (mapped.subject, mapped.version) for place, mapped in registrar.versions.items()}


def _map_deleted(archived: RegistryContents, present: RegistryContents) -> dict[Version, MappedVersion]:
    """Map archived deleted versions to those of the target. A registry does not find these by their schemas."""
    deleted_there: dict[str, list[Version]] = defaultdict(list)
    for place in {*present.deleted} & present.versions.keys():
        deleted_there[place[0]].append(place)
    mapped: dict[Version, MappedVersion] = {}
    for version in {*archived.deleted} & archived.versions.keys():
        for place in deleted_there[version[0]]:
            if _describe(present.versions[place]) == _describe(archived.versions[version]):
                mapped[version] = MappedVersion(*place, present.versions[place].schema_id)
    return mapped


def _number_schemas(archived: RegistryContents) -> dict[int, ArchivedSchema]:
    """Return the schemas, numbered across all contexts, also in references. Ids are unique within one context only."""
    numbers: dict[Version, int] = {}
    for number, schema in enumerate(archived.schemas, 1):
        numbers |= dict.fromkeys(((place.subject, place.version) for place in schema.subjects), number)
    numbered: dict[int, ArchivedSchema] = {}
    for number, schema in enumerate(archived.schemas, 1):
        references = (
            replace(reference, subject=place[0], schema_id=numbers.get(place, 0))
            for reference, place in zip(schema.schema_references, _list_references(schema), strict=True)
        )
        numbered[number] = replace(schema, schema_references=tuple(references))
    return numbered


def _find_clash(archived: RegistryContents, present: RegistryContents) -> str | None:
    """Describe an archived id or version that the target has for another schema, so that ids would differ, or None."""
    schemas_by_id = {_name_id(schema): schema for schema in present.schemas}
    for schema in archived.schemas:
        other = schemas_by_id.get(_name_id(schema), schema)
        if _describe(other) != _describe(schema):
            return f"there, id {schema.schema_id} is of another schema, such as in {other.subjects[0].subject}"
    for place, schema in archived.versions.items():
        # An import would replace it, and its id would lead to the archived schema.
        if _describe(present.versions.get(place, schema)) != _describe(schema):
            return f"there, version {place[1]} of {place[0]} is another schema"
    return None


def _find_obstacle(archived: RegistryContents, present: RegistryContents, target: Registry, subject: str) -> str | None:
    """Return why schemas cannot have their old ids, or None if they can. If so, the subject now has the mode IMPORT."""
    if clash := _find_clash(archived, present):
        return clash
    try:
        target.write_mode(subject, IMPORT)
    except ConfigError as err:
        # Some registries have no modes, or let nobody change theirs.
        if err.code is not ErrorCode.REGISTRY_URL:
            raise
    return None if target.read_scope(subject).mode == IMPORT else f"it knows no mode {IMPORT}"


def _import(archived: RegistryContents, target: Registry, missing: Collection[Version]) -> None:
    """Register the missing versions with their old ids and versions, in the mode IMPORT of their subjects."""
    for subject in sorted({subject for subject, _ in missing}):
        target.write_mode(subject, IMPORT)
    for count, place in enumerate(_order(archived, missing), 1):
        schema = archived.versions[place]
        new = NewSchema(schema.schema_type, schema.schema_text, schema.schema_references, schema.other_fields)
        target.import_version(*place, schema.schema_id, new)
        if count % REPORT_EACH == 0:
            logger.info("registered %d of %d versions", count, len(missing))


def _name_id(schema: ArchivedSchema) -> tuple[str, int]:
    """Return the context and the id of a schema, since each context has its own ids."""
    return find_context(schema.subjects[0].subject), schema.schema_id


def _order(archived: RegistryContents, missing: Collection[Version]) -> Iterator[Version]:
    """Order versions by their number in their subject, each after the versions that its schema refers to."""
    visited: set[Version] = set()

    def visit(place: Version, outer: tuple[Version, ...]) -> Iterator[Version]:
        if place in visited or place not in archived.versions:
            return
        if flaw := find_references_flaw(outer, place):
            raise IntegrityError(
                f"version {place[1]} of {place[0]} {flaw}: no registry takes that, so somebody wrote to the archive"
            )
        for referenced in _list_references(archived.versions[place]):
            yield from visit(referenced, (*outer, place))
        visited.add(place)
        if place in missing:
            yield place

    for place in sorted(missing):
        yield from visit(place, ())


def _write_settings(archived: RegistryContents, now: RegistryContents, target: Registry, *, is_alone: bool) -> None:
    """Give each subject its settings and, if there are no others (`is_alone`), the registry and its contexts theirs."""
    there = {scope.subject: scope for scope in now.settings}
    has_modes = any(scope.mode for scope in now.settings)
    wider = _list_wider_scopes(archived) if is_alone else []
    for scope in [*_list_subject_scopes(archived), *wider]:
        scope_there = _find_scope(there, scope.subject)
        if _list_settings(scope_there) != _list_settings(scope) and (scope.subject or scope.compatibility):
            if scope.subject and _list_settings(scope_there) != _NONE:
                # Registries keep what a request does not name.
                target.remove_settings(scope.subject)
            target.write_settings(scope.subject, scope.compatibility, scope.others)
        if has_modes and scope_there.mode != scope.mode and (scope.subject or scope.mode):
            target.write_mode(scope.subject, scope.mode)


_NONE = (None, "{}")


def _list_settings(scope: ScopeSettings) -> tuple[str | None, str]:
    """Return the compatibility and the other settings of a scope."""
    return scope.compatibility, scope.others


def _list_subject_scopes(archived: RegistryContents) -> list[ScopeSettings]:
    """Return the settings of each archived subject. A subject without settings of its own gets empty ones."""
    scopes = {scope.subject: scope for scope in archived.settings}
    return [_find_scope(scopes, subject) for subject in archived.subjects]


def _list_wider_scopes(archived: RegistryContents) -> list[ScopeSettings]:
    """Return the settings of the contexts and, last, the registry's. There are none if subjects were chosen."""
    wider = [scope for scope in archived.settings if not scope.subject or scope.subject.endswith(":")]
    return sorted(wider, key=lambda scope: not scope.subject)


def _compare(
    archived: RegistryContents,
    target: RegistryContents,
    places: Mapping[Version, Version],
    registered: int,
) -> RegistryReport:
    """Compare each archived version and scope with the target's present contents."""
    differences = (
        *(f"version {version} of {subject} is archived by its name alone" for subject, version in archived.unreadable),
        *_compare_versions(archived, target, places),
        *_compare_settings(archived, target),
    )
    new_ids = _map_ids(archived, target, places)
    return RegistryReport(len(archived.subjects), len(archived.versions), registered, new_ids, differences)


def _map_ids(
    archived: RegistryContents, target: RegistryContents, places: Mapping[Version, Version]
) -> dict[str, dict[int, int]]:
    """Return the archived ids that differ in the target, by context: archived id -> the id there."""
    new_ids: dict[str, dict[int, int]] = defaultdict(dict)
    for place, schema in archived.versions.items():
        there = target.versions.get(places.get(place, place))
        if there is not None and there.schema_id != schema.schema_id:
            new_ids[find_context(place[0])][schema.schema_id] = there.schema_id
    return dict(new_ids)


def _compare_versions(
    archived: RegistryContents, target: RegistryContents, places: Mapping[Version, Version]
) -> Iterator[str]:
    """Yield a sentence for each archived version missing or different in the target."""
    for place, schema in archived.versions.items():
        name = f"version {place[1]} of {place[0]}"
        place_there = places.get(place, place)
        there = target.versions.get(place_there)
        if there is None:
            yield f"{name} is not there"
            continue
        was = _describe(schema)
        now = _describe(there)
        yield from (f"{name} has another {what}" for what in was if was[what] != now[what])
        if place_there != place:
            yield f"{name} is version {place_there[1]} there"
        if (place in archived.deleted) != (place_there in target.deleted):
            yield f"{name} is {'not ' if place in archived.deleted else ''}deleted there"


def _compare_settings(archived: RegistryContents, target: RegistryContents) -> Iterator[str]:
    """Yield a sentence for each archived compatibility or mode that has another value in the target."""
    there = {scope.subject: scope for scope in target.settings}
    has_modes = any(scope.mode for scope in target.settings)
    for was in [*_list_subject_scopes(archived), *_list_wider_scopes(archived)]:
        now = _find_scope(there, was.subject)
        name = was.subject or "the registry as a whole"
        if _list_settings(was) != _list_settings(now) and (was.subject or was.compatibility):
            yield f"{name} has the compatibility {now.compatibility} {now.others}, not {was.compatibility} {was.others}"
        if was.mode != now.mode and (has_modes or was.mode not in {None, "READWRITE"}):
            yield f"{name} has the mode {now.mode}, not {was.mode}"


def _find_scope(scopes: Mapping[str, ScopeSettings], subject: str) -> ScopeSettings:
    """Return the settings of a subject, empty ones if it has none of its own."""
    return scopes.get(subject, ScopeSettings(subject, None, None))
