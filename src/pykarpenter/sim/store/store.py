"""The store: every object of the embedded cluster, and the rules of writing them.

One sequence of versions numbers all writes. Calls are synchronous and whole: a write is checked, stored, seen by
watches and followed by garbage collection before it returns. Refusals are `kube.errors.ApiError`s with the words of
an API server.
"""

from __future__ import annotations

from typing import Any

from pykarpenter.api.timestamps import format_timestamp
from pykarpenter.kube.contract import PatchType
from pykarpenter.kube.errors import ServerFault
from pykarpenter.runtime.clock import Clock
from pykarpenter.sim.schema.kubernetes import root_schema
from pykarpenter.sim.store import definitions, deletion, metadata, namespaces
from pykarpenter.sim.store.admission import Admission
from pykarpenter.sim.store.applying import applied, check_config
from pykarpenter.sim.store.binding import bind
from pykarpenter.sim.store.entries import Entry, Json, has_nulls, object_key, plain_copy, with_metadata, without_nulls
from pykarpenter.sim.store.eviction import evict
from pykarpenter.sim.store.garbage import GarbageCollector
from pykarpenter.sim.store.history import Change
from pykarpenter.sim.store.identity import Identity
from pykarpenter.sim.store.listing import Listing, check_not_future, list_page, parse_version
from pykarpenter.sim.store.ownership import track
from pykarpenter.sim.store.patches import apply_json_patch, merge
from pykarpenter.sim.store.refusals import (
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    no_such_resource,
    not_found,
    unsupported_patch,
)
from pykarpenter.sim.store.requests import (
    PLAIN_DELETE,
    PLAIN_WRITE,
    DeleteRequest,
    ListRequest,
    WatchRequest,
    WriteOptions,
)
from pykarpenter.sim.store.resources import BUILTIN, Resource
from pykarpenter.sim.store.scale import scale_of, with_replicas
from pykarpenter.sim.store.selectors import Filter, parse_field_selector, parse_label_selector
from pykarpenter.sim.store.strategic import strategic_merge
from pykarpenter.sim.store.tables import Table
from pykarpenter.sim.store.watches import BOOKMARK, RawEvent, Watch

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
# Enough for a story of 10,000 pods to be watched from its start; a day-long run forgets what lies further back.
HISTORY_LIMIT = 100_000


class Store:
    def __init__(
        self,
        clock: Clock,
        *,
        seed: int = 0,
        history_limit: int = HISTORY_LIMIT,
        collect_garbage: bool = True,
        taint_new_nodes: bool = False,
    ) -> None:
        """`taint_new_nodes` is for clusters with a node controller, which takes the not-ready taint off again."""
        self._clock = clock
        self._history_limit = history_limit
        self._tables: dict[tuple[str, str], Table] = {}
        self._watches_opened = 0
        self._last_second = -1
        self._last_timestamp = ""
        self.rv = 0
        self.identity = Identity(seed)
        self.garbage = GarbageCollector(self, collect_garbage)
        self.admission = Admission(self, taint_new_nodes=taint_new_nodes)
        for resource in BUILTIN:
            self.serve(resource)
        for name in FIRST_NAMESPACES:
            self.create(self.resource("", "namespaces"), {"metadata": {"name": name}})
        for name, value in SYSTEM_PRIORITIES.items():
            self.create(
                self.resource("scheduling.k8s.io", "priorityclasses"), {"metadata": {"name": name}, "value": value}
            )

    # -- kinds ---------------------------------------------------------------------------------------------------

    def serve(self, resource: Resource) -> None:
        """Starts serving a kind, or serves it anew with what its objects already are."""
        where = (resource.group, resource.plural)
        table = self._tables.get(where)
        if table is None:
            self._tables[where] = Table(resource, self._history_limit, self.rv)
        else:
            table.resource = resource

    def stop_serving(self, resource: Resource) -> None:
        self._tables.pop((resource.group, resource.plural), None)

    def table(self, group: str, plural: str) -> Table:
        """The table of a kind; raises NotFound when it is not served."""
        table = self._tables.get((group, plural))
        if table is None:
            raise no_such_resource()
        return table

    def resource(self, group: str, plural: str) -> Resource:
        return self.table(group, plural).resource

    def resources(self) -> list[Resource]:
        return [table.resource for table in self._tables.values()]

    def _table_of(self, resource: Resource) -> Table:
        return self.table(resource.group, resource.plural)

    # -- reads ---------------------------------------------------------------------------------------------------

    def timestamp(self, offset_s: float = 0.0) -> str:
        """The clock's time as metadata writes it."""
        second = int((self._clock.now() + offset_s) // 1)
        if second != self._last_second:
            self._last_second, self._last_timestamp = second, format_timestamp(second)
        return self._last_timestamp

    def now(self) -> float:
        return self._clock.now()

    def find(self, resource: Resource, name: str, namespace: str = "") -> Entry | None:
        return self._table_of(resource).entries.get(object_key(namespace if resource.namespaced else "", name))

    def get(self, resource: Resource, name: str, namespace: str = "") -> Entry:
        entry = self.find(resource, name, namespace)
        if entry is None:
            raise not_found(resource, name)
        return entry

    def _filter(self, resource: Resource, request: ListRequest | WatchRequest) -> Filter:
        selectable = resource.custom.selectable_fields if resource.custom is not None else ()
        return Filter(
            request.namespace if resource.namespaced else "",
            parse_label_selector(request.label_selector),
            parse_field_selector(resource.plural, selectable, request.field_selector),
        )

    def list_page(self, resource: Resource, request: ListRequest | None = None) -> Listing:
        request = request or ListRequest()
        return list_page(self._table_of(resource), self._filter(resource, request), request, self.rv)

    def watch(self, resource: Resource, request: WatchRequest | None = None) -> Watch:
        """A watch after a version; without one (or `0`) it begins with the current objects as ADDED."""
        request = request or WatchRequest()
        table, wanted = self._table_of(resource), self._filter(resource, request)
        from_start = request.send_initial_events or request.resource_version in ("", "0")
        if request.resource_version:
            check_not_future(parse_version(request.resource_version), self.rv)
        if from_start:
            position, rv = table.history.end, self.rv
        else:
            rv = parse_version(request.resource_version)
            position = table.history.position_after(rv)
        self._watches_opened += 1
        watch = Watch(self._watches_opened, table, wanted, position, rv)
        if from_start:
            watch.queue([RawEvent("ADDED", entry.rv, entry) for entry in table.select(wanted)])
        if request.send_initial_events:
            watch.queue([RawEvent(BOOKMARK, self.rv, initial_events_end=True)])
        return watch

    def compact(self, rv: int | None = None) -> None:
        """Forgets history up to a version (all of it by default): older watches and pages get 410."""
        upto = self.rv if rv is None else rv
        for table in self._tables.values():
            table.history.compact(upto)

    # -- writes --------------------------------------------------------------------------------------------------

    def create(
        self,
        resource: Resource,
        body: Any,
        namespace: str = "",
        options: WriteOptions = PLAIN_WRITE,
        *,
        applying: bool = False,
    ) -> Entry:
        """Stores a new object; an applied one brings the record of its owner along."""
        obj = metadata.check_type(resource, self._received(resource, body))
        obj = metadata.place_in_namespace(resource, obj, namespace)
        meta = dict(obj["metadata"])
        if meta.get("resourceVersion"):
            # An API server lets its storage refuse this, which answers 500.
            raise ServerFault("resourceVersion should not be set on objects to be created")
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._free_name(resource, meta["generateName"], meta.get("namespace", ""))
        self._check_namespace(resource, meta)
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            meta.pop(field, None)
        meta["uid"] = self.identity.uid()
        meta["creationTimestamp"] = self.timestamp()
        if resource.tracks_generation:
            meta["generation"] = 1
        obj = metadata.initial_status(resource, {**obj, "metadata": meta})
        obj = self.admission.on_create(resource, obj, options)
        errors = metadata.metadata_errors(resource, obj["metadata"])
        if errors:
            raise invalid(resource, meta.get("name", ""), errors)
        if self.find(resource, meta["name"], meta.get("namespace", "")) is not None:
            raise already_exists(resource, meta["name"])
        if not applying:
            obj = track(resource, obj, None, options.field_manager, "", self.timestamp())
        if options.dry_run:
            return Entry(obj, self.rv)
        return self._commit(resource, "ADDED", obj, None)

    def _received(self, resource: Resource, body: Any) -> Any:
        copy = plain_copy(body)
        # Custom resources may hold null where their schema says nullable; typed kinds read it as absent.
        return without_nulls(copy) if resource.custom is None and has_nulls(copy) else copy

    def _free_name(self, resource: Resource, prefix: str, namespace: str) -> str:
        # Kubernetes tries eight times before it answers AlreadyExists.
        for _ in range(8):
            name = self.identity.generated_name(prefix)
            if self.find(resource, name, namespace) is None:
                break
        return name

    def _check_namespace(self, resource: Resource, meta: Json) -> None:
        if not resource.namespaced:
            return
        namespace = self.resource("", "namespaces")
        entry = self.find(namespace, meta["namespace"])
        if entry is None:
            raise not_found(namespace, meta["namespace"])
        if "deletionTimestamp" in entry.metadata:
            why = f"unable to create new content in namespace {meta['namespace']} because it is being terminated"
            raise forbidden(resource, meta.get("name", ""), why)

    def update(
        self,
        resource: Resource,
        name: str,
        body: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        options: WriteOptions = PLAIN_WRITE,
    ) -> Entry:
        """Replaces an object (PUT). Through `scale` the body is a Scale; the answer is the scaled object."""
        old = self.get(resource, name, namespace)
        if subresource == "scale":
            return self.replace(resource, old, with_replicas(resource, old.obj, plain_copy(body)), options=options)
        wanted = metadata.check_type(resource, self._received(resource, body))
        uid = wanted["metadata"].get("uid")
        if uid and uid != old.metadata["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old.metadata['uid']}"
            raise conflict(resource, name, why)
        return self.replace(resource, old, wanted, subresource=subresource, options=options)

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        options: WriteOptions = PLAIN_WRITE,
    ) -> Entry:
        """Changes parts of an object; a resourceVersion in the patch must be the current one."""
        change = plain_copy(patch)
        if patch_type is PatchType.APPLY:
            return self._apply(resource, name, change, namespace, subresource, options)
        old = self.get(resource, name, namespace)
        if subresource == "scale":
            wanted = with_replicas(
                resource, old.obj, _patched(resource, scale_of(resource, old.obj), change, patch_type)
            )
            return self.replace(resource, old, wanted, options=options)
        wanted = metadata.check_type(resource, _patched(resource, old.obj, change, patch_type))
        if resource.custom is None and has_nulls(change):
            wanted = without_nulls(wanted)
        return self.replace(resource, old, wanted, subresource=subresource, options=options)

    def _apply(
        self, resource: Resource, name: str, config: Any, namespace: str, subresource: str, options: WriteOptions
    ) -> Entry:
        """Server-side apply: creates the object, or changes the stated fields of it."""
        check_config(config, options.field_manager)
        live = self.find(resource, name, namespace)
        config = metadata.check_type(resource, config)
        config = {**config, "metadata": {"name": name, **config["metadata"]}}
        if resource.namespaced:
            config["metadata"].setdefault("namespace", namespace)
        if live is None and subresource:
            raise not_found(resource, name)
        wanted = applied(
            resource,
            config,
            live.obj if live is not None else None,
            options.field_manager,
            force=options.force,
            subresource=subresource,
            timestamp=self.timestamp(),
        )
        if live is None:
            return self.create(resource, wanted, namespace, options, applying=True)
        return self.replace(resource, live, wanted, subresource=subresource, options=options, applying=True)

    def replace(
        self,
        resource: Resource,
        old: Entry,
        wanted: Json,
        *,
        subresource: str = "",
        options: WriteOptions = PLAIN_WRITE,
        applying: bool = False,
    ) -> Entry:
        """Stores a new state of an existing object, made from the old one without touching it."""
        metadata.check_lock(resource, wanted, old.obj)
        metadata.check_identity(resource, wanted, old.obj)
        obj = metadata.merged_for_update(resource, wanted, old.obj, subresource)
        obj = self.admission.on_update(resource, obj, old.obj, subresource, options)
        metadata.check_finalizers(resource, obj, old.obj)
        errors = [] if obj["metadata"] == old.metadata else metadata.metadata_errors(resource, obj["metadata"])
        if errors:
            raise invalid(resource, obj["metadata"]["name"], errors)
        if not applying:
            obj = track(resource, obj, old.obj, options.field_manager, subresource, self.timestamp())
        if resource.tracks_generation and metadata.spec_changed(obj, old.obj):
            obj = with_metadata(obj, generation=old.metadata.get("generation", 0) + 1)
        if options.dry_run:
            return Entry(obj, old.rv)
        if deletion.is_finished(obj):
            return self._remove(resource, obj, old)
        if obj == old.obj:
            return old
        return self._commit(resource, "MODIFIED", obj, old)

    def delete(
        self, resource: Resource, name: str, namespace: str = "", request: DeleteRequest = PLAIN_DELETE
    ) -> Entry:
        """Deletes, or marks for deletion when finalizers or a grace period hold the object; its last state."""
        old = self.get(resource, name, namespace)
        deletion.check_preconditions(resource, old.obj, request)
        obj = deletion.marked(resource, old.obj, request, self.now())
        if request.dry_run:
            return old
        if obj is None:
            return self._remove(resource, deletion.last_state(resource, old.obj, self.now()), old)
        if obj == old.obj:
            return old
        return self._commit(resource, "MODIFIED", obj, old)

    def delete_collection(
        self, resource: Resource, selection: ListRequest, request: DeleteRequest = PLAIN_DELETE
    ) -> list[Entry]:
        """Deletes everything a list would show."""
        deleted = []
        for entry in self.list_page(resource, selection).entries:
            meta = entry.metadata
            if self.find(resource, meta["name"], meta.get("namespace", "")) is not None:
                deleted.append(self.delete(resource, meta["name"], meta.get("namespace", ""), request))
        return deleted

    def evict(self, name: str, namespace: str, request: DeleteRequest = PLAIN_DELETE) -> None:
        evict(self, name, namespace, request)

    def bind(self, pod_name: str, namespace: str, node_name: str, uid: str = "") -> Entry:
        return bind(self, pod_name, namespace, node_name, uid)

    def store_as_is(self, resource: Resource, obj: Json, old: Entry) -> Entry:
        """Stores a state that a subresource has made and checked itself."""
        return self._commit(resource, "MODIFIED", obj, old)

    def remove_finalizer(self, resource: Resource, entry: Entry, finalizer: str) -> None:
        left = [item for item in entry.metadata.get("finalizers") or () if item != finalizer]
        self.replace(resource, entry, with_metadata(entry.obj, finalizers=left or None))

    def drop_owner_references(self, resource: Resource, entry: Entry, uids: set[str]) -> None:
        kept = [reference for reference in entry.metadata["ownerReferences"] if reference.get("uid") not in uids]
        self.replace(resource, entry, with_metadata(entry.obj, ownerReferences=kept or None))

    def _commit(self, resource: Resource, change: str, obj: Json, old: Entry | None) -> Entry:
        self.rv += 1
        # Everything above shares what it did not change; this metadata dict is made here and nobody else holds it.
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.rv)}}
        entry = Entry(obj, self.rv)
        self._table_of(resource).record(Change(change, self.rv, entry, old))
        self.garbage.observe(resource, entry, old, removed=False)
        self._follow(resource, entry, removed=False)
        return entry

    def _remove(self, resource: Resource, obj: Json, old: Entry) -> Entry:
        self.rv += 1
        entry = Entry(with_metadata(obj, resourceVersion=str(self.rv)), self.rv)
        self._table_of(resource).record(Change("DELETED", self.rv, entry, old))
        self.garbage.observe(resource, entry, old, removed=True)
        self._follow(resource, entry, removed=True)
        return entry

    def _follow(self, resource: Resource, entry: Entry, removed: bool) -> None:
        """What a cluster's own controllers would do next."""
        self.garbage.settle()
        if removed or resource.plural == "namespaces":
            namespaces.follow(self, resource, entry, removed)
        if resource.plural == "customresourcedefinitions":
            definitions.follow(self, entry, removed)
        elif removed and resource.custom is not None:
            definitions.end_if_empty(self, resource)


def _patched(resource: Resource, old: Json, change: Any, patch_type: PatchType) -> Json:
    if patch_type is PatchType.JSON:
        if not isinstance(change, list):
            raise bad_request("a JSON patch is a list of operations")
        return apply_json_patch(old, change)
    if not isinstance(change, dict):
        raise bad_request("a merge patch is a JSON object")
    if patch_type is PatchType.MERGE:
        return merge(old, change)  # type: ignore[no-any-return]
    if resource.custom is not None:
        raise unsupported_patch()
    return strategic_merge(root_schema(resource.group, resource.version, resource.kind), old, change)
