"""A list of mixed changes as one, all or none: each is decided on the result of those before it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fencepost.coordinator.metadata.acl_controller import AclController
from fencepost.coordinator.metadata.commands import DONE, ConfigEdits, MorePartitions, NewTopic, Outcome, TopicRef
from fencepost.coordinator.metadata.config_controller import ConfigController
from fencepost.coordinator.metadata.controller import TopicController
from fencepost.coordinator.metadata.delta import MetadataDelta
from fencepost.coordinator.metadata.image import Acl, MetadataImage
from fencepost.coordinator.metadata.image_fold import ImageFold
from fencepost.coordinator.metadata.ports import MutationQuota
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_entries import MetadataEntry, record_count

NOT_TRIED = Outcome(ErrorCode.OPERATION_NOT_ATTEMPTED, "Another change of the same request was refused.")


class CreateAcl(NamedTuple):
    """An ACL to create; it is not an error if it exists already."""

    acl: Acl


class DeleteAcl(NamedTuple):
    """An ACL to delete; it is not an error if there is no such ACL."""

    acl: Acl


ClusterEdit = NewTopic | TopicRef | MorePartitions | ConfigEdits | CreateAcl | DeleteAcl
"""One change: a topic to create, to delete or to grow, settings, or an ACL."""


@dataclass(frozen=True, slots=True)
class AppliedEdits:
    """The result of a list of changes.

    `outcomes` has one for each, in their order. If one is refused, the others are OPERATION_NOT_ATTEMPTED and nothing
    is changed. `delta` is the changes that they make, or with `validate_only` would make; None if refused.
    """

    outcomes: list[Outcome]
    delta: MetadataDelta | None

    @property
    def refused(self) -> bool:
        return self.delta is None


class DecidedEdits(NamedTuple):
    """The answer, and the records to append for it."""

    applied: AppliedEdits
    records: tuple[MetadataEntry, ...]


class EditsController:
    """Combines decisions of the other controllers, one after the other."""

    def __init__(
        self, topics: TopicController, configs: ConfigController, acls: AclController, records_max: int
    ) -> None:
        self._topics = topics
        self._configs = configs
        self._acls = acls
        self._records_max = records_max

    def decide(
        self, image: MetadataImage, edits: Sequence[ClusterEdit], mutations: MutationQuota | None = None
    ) -> DecidedEdits:
        """Decide all of `edits` on `image`, or an error for the first invalid one."""
        fold, now = ImageFold(image), image
        records: list[MetadataEntry] = []
        place = count = 0
        while place < len(edits):
            alike = _alike(edits, place)
            outcomes, found = self._decide_alike(now, edits[place : place + alike], mutations)
            count += record_count(found)
            if count > self._records_max:
                text = f"The request needs more than the {self._records_max} metadata records it may have"
                outcomes[0] = Outcome(ErrorCode.POLICY_VIOLATION, text)
            if any(outcome.code is not ErrorCode.NONE for outcome in outcomes):
                blamed = [outcome if outcome.code is not ErrorCode.NONE else NOT_TRIED for outcome in outcomes]
                rest = [NOT_TRIED] * (len(edits) - place - alike)
                return DecidedEdits(AppliedEdits([*[NOT_TRIED] * place, *blamed, *rest], None), ())
            step = ImageFold(now)
            for record in found:
                fold.replay(image.offset, record)
                step.replay(image.offset, record)
            now = step.apply(image.offset).image
            records += found
            place += alike
        return DecidedEdits(AppliedEdits([DONE] * len(edits), fold.apply(image.offset)), tuple(records))

    def _decide_alike(
        self, image: MetadataImage, edits: Sequence[ClusterEdit], mutations: MutationQuota | None
    ) -> tuple[list[Outcome], list[MetadataEntry]]:
        """Decide on edits of one kind that are about different topics, resources or ACLs."""
        match edits[0]:
            case NewTopic():
                topics = [edit for edit in edits if isinstance(edit, NewTopic)]
                created = self._topics.create_topics(image, topics, mutations=mutations)
                return [reply.outcome for reply in created.reply], list(created.log)
            case TopicRef():
                refs = [edit for edit in edits if isinstance(edit, TopicRef)]
                deleted = self._topics.delete_topics(image, refs, mutations)
                wrong = {TopicRef(r.name, r.topic_id): r.outcome for r in deleted.reply if r.outcome.code}
                return [wrong.get(ref, DONE) for ref in refs], list(deleted.log)
            case MorePartitions():
                grown = self._topics.create_partitions(
                    image, [edit for edit in edits if isinstance(edit, MorePartitions)], mutations=mutations
                )
                return [outcome for _, outcome in grown.reply], list(grown.log)
            case ConfigEdits():
                altered = self._configs.alter(image, [edit for edit in edits if isinstance(edit, ConfigEdits)])
                return list(altered.reply), list(altered.log)
            case CreateAcl():
                made = self._acls.create(image, [edit.acl for edit in edits if isinstance(edit, CreateAcl)])
                return list(made.reply), list(made.log)
            case DeleteAcl():
                gone = self._acls.delete(image, [edit.acl for edit in edits if isinstance(edit, DeleteAcl)])
                return list(gone.reply), list(gone.log)


def _alike(edits: Sequence[ClusterEdit], start: int) -> int:
    """How many from `start` on can be decided together: of one kind, each about another topic, resource or ACL."""
    kind, seen = _kind(edits[start]), set()
    for place in range(start, len(edits)):
        edit = edits[place]
        if _kind(edit) != kind or (what := _what(edit)) in seen:
            return place - start
        seen.add(what)
    return len(edits) - start


def _kind(edit: ClusterEdit) -> object:
    """The kind of an edit. A topic's name and its id may mean the same topic, so these are different kinds."""
    return (TopicRef, edit.name is None) if isinstance(edit, TopicRef) else type(edit)


def _what(edit: ClusterEdit) -> object:
    match edit:
        case NewTopic() | MorePartitions():
            return edit.name
        case ConfigEdits():
            return edit.resource_type, edit.resource_name
        case _:
            return edit
