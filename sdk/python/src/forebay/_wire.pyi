# Generated from internal/wire/forebay.proto by make generate. Not to be edited.
from collections.abc import Iterable
from typing import Final

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer, RepeatedScalarFieldContainer
from google.protobuf.message import Message

TYPE_UNSPECIFIED: Final = 0
TYPE_HELLO: Final = 1
TYPE_CANCEL: Final = 2
TYPE_PROVE: Final = 5
TYPE_PULSE: Final = 6
TYPE_STATUS: Final = 3
TYPE_SUBSCRIBE: Final = 4
TYPE_BUFFER_CREATE: Final = 10
TYPE_BUFFER_GET: Final = 11
TYPE_BUFFER_LIST: Final = 12
TYPE_BUFFER_DESTROY: Final = 13
TYPE_BUFFER_REBUILD: Final = 14
TYPE_STAT: Final = 20
TYPE_LIST: Final = 21
TYPE_MKDIR: Final = 22
TYPE_RENAME: Final = 23
TYPE_REMOVE: Final = 24
TYPE_SETATTR: Final = 25
TYPE_LOST: Final = 26
TYPE_MKNOD: Final = 27
TYPE_SET_XATTR: Final = 28
TYPE_XATTRS: Final = 29
TYPE_EXCHANGE: Final = 19
TYPE_OPEN: Final = 30
TYPE_COMMIT: Final = 31
TYPE_EXTENTS: Final = 32
TYPE_UNPIN: Final = 33
TYPE_CLOSE: Final = 34
TYPE_LEASE: Final = 35
TYPE_RETURN: Final = 36
TYPE_DRAIN: Final = 40
TYPE_STAGE_IN: Final = 41
TYPE_STAGE_OUT: Final = 42
TYPE_VERIFY: Final = 43
TYPE_RECEIPT: Final = 44
TYPE_NODES: Final = 50
TYPE_NODE_DRAIN: Final = 51
TYPE_NODE_UNDRAIN: Final = 48
TYPE_NODE_FORGET: Final = 52
TYPE_NODE_LOSS: Final = 47
TYPE_TOKEN: Final = 53
TYPE_JOBS: Final = 54
TYPE_JOB: Final = 55
TYPE_JOB_CANCEL: Final = 56
TYPE_LIFETIME_OPEN: Final = 57
TYPE_LIFETIME_LEAVE: Final = 58
TYPE_LIFETIME_END: Final = 59
TYPE_LIFETIME_DUE: Final = 46
TYPE_LIFETIMES: Final = 45
TYPE_TXN_BEGIN: Final = 70
TYPE_TXN_ADOPT: Final = 71
TYPE_TXN_COMMIT: Final = 72
TYPE_TXN_ABORT: Final = 73
TYPE_TXN_RENEW: Final = 74
TYPE_TXN_GET: Final = 75
TYPE_TXN_LIST: Final = 76
TYPE_HOLD: Final = 60
TYPE_TAKE: Final = 61
TYPE_DISCARD: Final = 62
TYPE_REPLICATE: Final = 63
TYPE_RECHECK: Final = 64
TYPE_PLACE_RENAME: Final = 65
TYPE_PLACE_REMOVE: Final = 66
TYPE_NAMES: Final = 67
TYPE_FOLLOW: Final = 68

class Empty(Message):
    def __init__(self) -> None: ...

class Hello(Message):
    min_version: int
    max_version: int
    @property
    def capabilities(self) -> RepeatedScalarFieldContainer[str]: ...
    client: str
    pid: int
    uid: int
    gid: int
    nonce: bytes
    node: str
    instance: int
    system: bool
    token: bytes
    connection: bytes
    succession: int
    def __init__(self, *, min_version: int | None = ..., max_version: int | None = ..., capabilities: Iterable[str] | None = ..., client: str | None = ..., pid: int | None = ..., uid: int | None = ..., gid: int | None = ..., nonce: bytes | None = ..., node: str | None = ..., instance: int | None = ..., system: bool | None = ..., token: bytes | None = ..., connection: bytes | None = ..., succession: int | None = ...) -> None: ...

class Challenge(Message):
    nonce: bytes
    proof: bytes
    def __init__(self, *, nonce: bytes | None = ..., proof: bytes | None = ...) -> None: ...

class Prove(Message):
    proof: bytes
    def __init__(self, *, proof: bytes | None = ...) -> None: ...

class Pulse(Message):
    held: int
    def __init__(self, *, held: int | None = ...) -> None: ...

class Welcome(Message):
    version: int
    @property
    def capabilities(self) -> RepeatedScalarFieldContainer[str]: ...
    node: str
    instance: int
    epoch: int
    server: str
    map_regions: bool
    max_message: int
    max_data: int
    max_in_flight: int
    inline_threshold: int
    uid: int
    gid: int
    data_address: str
    session: int
    data_ticket: bytes
    ofi_address: str
    ofi_provider: str
    ofi_endpoint: str
    ofi_network: str
    def __init__(self, *, version: int | None = ..., capabilities: Iterable[str] | None = ..., node: str | None = ..., instance: int | None = ..., epoch: int | None = ..., server: str | None = ..., map_regions: bool | None = ..., max_message: int | None = ..., max_data: int | None = ..., max_in_flight: int | None = ..., inline_threshold: int | None = ..., uid: int | None = ..., gid: int | None = ..., data_address: str | None = ..., session: int | None = ..., data_ticket: bytes | None = ..., ofi_address: str | None = ..., ofi_provider: str | None = ..., ofi_endpoint: str | None = ..., ofi_network: str | None = ...) -> None: ...

class Error(Message):
    kind: int
    op: str
    path: str
    node: str
    reason: str
    remedy: str
    outcome: int
    def __init__(self, *, kind: int | None = ..., op: str | None = ..., path: str | None = ..., node: str | None = ..., reason: str | None = ..., remedy: str | None = ..., outcome: int | None = ...) -> None: ...

class Cancel(Message):
    request: int
    overdue: bool
    def __init__(self, *, request: int | None = ..., overdue: bool | None = ...) -> None: ...

class StatusRequest(Message):
    buffer: str
    node: str
    cluster: bool
    def __init__(self, *, buffer: str | None = ..., node: str | None = ..., cluster: bool | None = ...) -> None: ...

class StatusReply(Message):
    json: bytes
    node: bytes
    def __init__(self, *, json: bytes | None = ..., node: bytes | None = ...) -> None: ...

class Subscribe(Message):
    buffer: str
    @property
    def kinds(self) -> RepeatedScalarFieldContainer[str]: ...
    confirm: bool
    def __init__(self, *, buffer: str | None = ..., kinds: Iterable[str] | None = ..., confirm: bool | None = ...) -> None: ...

class Event(Message):
    json: bytes
    def __init__(self, *, json: bytes | None = ...) -> None: ...

class BufferName(Message):
    name: str
    def __init__(self, *, name: str | None = ...) -> None: ...

class BufferDestroy(Message):
    name: str
    discard: bool
    def __init__(self, *, name: str | None = ..., discard: bool | None = ...) -> None: ...

class BufferRebuilt(Message):
    served: bool
    files: int
    directories: int
    read: int
    aside: int
    kept: int
    on_store: int
    lost: int
    links: int
    committed: int
    @property
    def found(self) -> RepeatedCompositeFieldContainer[RebuiltFile]: ...
    def __init__(self, *, served: bool | None = ..., files: int | None = ..., directories: int | None = ..., read: int | None = ..., aside: int | None = ..., kept: int | None = ..., on_store: int | None = ..., lost: int | None = ..., links: int | None = ..., committed: int | None = ..., found: Iterable[RebuiltFile] | None = ...) -> None: ...

class RebuiltFile(Message):
    path: str
    bytes: int
    became: str
    reason: str
    def __init__(self, *, path: str | None = ..., bytes: int | None = ..., became: str | None = ..., reason: str | None = ...) -> None: ...

class Buffers(Message):
    @property
    def buffers(self) -> RepeatedCompositeFieldContainer[Buffer]: ...
    def __init__(self, *, buffers: Iterable[Buffer] | None = ...) -> None: ...

class Buffer(Message):
    name: str
    uid: int
    gid: int
    mode: int
    capacity: int
    backing: str
    durability: str
    codec: str
    @property
    def keep(self) -> RepeatedScalarFieldContainer[str]: ...
    flush_limit: int
    dirty_age_ns: int
    no_wait: bool
    receipt: bool
    job: str
    created_ns: int
    state: str
    keep_default: bool
    replicas: int
    @property
    def tiers(self) -> RepeatedCompositeFieldContainer[TierRule]: ...
    existing: str
    found: str
    found_total: int
    shared: bool
    @property
    def flush(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(self, *, name: str | None = ..., uid: int | None = ..., gid: int | None = ..., mode: int | None = ..., capacity: int | None = ..., backing: str | None = ..., durability: str | None = ..., codec: str | None = ..., keep: Iterable[str] | None = ..., flush_limit: int | None = ..., dirty_age_ns: int | None = ..., no_wait: bool | None = ..., receipt: bool | None = ..., job: str | None = ..., created_ns: int | None = ..., state: str | None = ..., keep_default: bool | None = ..., replicas: int | None = ..., tiers: Iterable[TierRule] | None = ..., existing: str | None = ..., found: str | None = ..., found_total: int | None = ..., shared: bool | None = ..., flush: Iterable[str] | None = ...) -> None: ...

class TierRule(Message):
    pattern: str
    tier: int
    def __init__(self, *, pattern: str | None = ..., tier: int | None = ...) -> None: ...

class Entry(Message):
    name: str
    type: int
    file: int
    generation: int
    size: int
    checksum: int
    open: bool
    @property
    def holders(self) -> RepeatedScalarFieldContainer[str]: ...
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    state: int
    reason: str
    dir: int
    @property
    def flushed(self) -> Flushed: ...
    path: str
    target: bytes
    def __init__(self, *, name: str | None = ..., type: int | None = ..., file: int | None = ..., generation: int | None = ..., size: int | None = ..., checksum: int | None = ..., open: bool | None = ..., holders: Iterable[str] | None = ..., mode: int | None = ..., uid: int | None = ..., gid: int | None = ..., mtime_ns: int | None = ..., state: int | None = ..., reason: str | None = ..., dir: int | None = ..., flushed: Flushed | None = ..., path: str | None = ..., target: bytes | None = ...) -> None: ...

class Entries(Message):
    @property
    def entries(self) -> RepeatedCompositeFieldContainer[Entry]: ...
    def __init__(self, *, entries: Iterable[Entry] | None = ...) -> None: ...

class Flushed(Message):
    generation: int
    etag: str
    size: int
    checksum: int
    codec: str
    at_ns: int
    by: str
    layout: str
    def __init__(self, *, generation: int | None = ..., etag: str | None = ..., size: int | None = ..., checksum: int | None = ..., codec: str | None = ..., at_ns: int | None = ..., by: str | None = ..., layout: str | None = ...) -> None: ...

class PathRequest(Message):
    buffer: str
    path: str
    def __init__(self, *, buffer: str | None = ..., path: str | None = ...) -> None: ...

class ListRequest(Message):
    buffer: str
    path: str
    after: str
    limit: int
    def __init__(self, *, buffer: str | None = ..., path: str | None = ..., after: str | None = ..., limit: int | None = ...) -> None: ...

class ListReply(Message):
    @property
    def entries(self) -> RepeatedCompositeFieldContainer[Entry]: ...
    more: bool
    def __init__(self, *, entries: Iterable[Entry] | None = ..., more: bool | None = ...) -> None: ...

class Mkdir(Message):
    buffer: str
    path: str
    mode: int
    parents: bool
    def __init__(self, *, buffer: str | None = ..., path: str | None = ..., mode: int | None = ..., parents: bool | None = ...) -> None: ...

class Mknod(Message):
    buffer: str
    path: str
    type: int
    target: bytes
    mode: int
    def __init__(self, *, buffer: str | None = ..., path: str | None = ..., type: int | None = ..., target: bytes | None = ..., mode: int | None = ...) -> None: ...

class Rename(Message):
    buffer: str
    to: str
    no_replace: bool
    def __init__(self, *, buffer: str | None = ..., to: str | None = ..., no_replace: bool | None = ..., **fields: str) -> None: ...

class ExchangeNames(Message):
    buffer: str
    to: str
    from_id: int
    to_id: int
    def __init__(self, *, buffer: str | None = ..., to: str | None = ..., from_id: int | None = ..., to_id: int | None = ..., **fields: str) -> None: ...

class Remove(Message):
    buffer: str
    path: str
    recursive: bool
    page: int
    def __init__(self, *, buffer: str | None = ..., path: str | None = ..., recursive: bool | None = ..., page: int | None = ...) -> None: ...

class Removed(Message):
    files: int
    directories: int
    more: bool
    def __init__(self, *, files: int | None = ..., directories: int | None = ..., more: bool | None = ...) -> None: ...

class SetAttr(Message):
    buffer: str
    path: str
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    def __init__(self, *, buffer: str | None = ..., path: str | None = ..., mode: int | None = ..., uid: int | None = ..., gid: int | None = ..., mtime_ns: int | None = ...) -> None: ...

class SetXattr(Message):
    buffer: str
    path: str
    name: bytes
    value: bytes
    op: int
    def __init__(self, *, buffer: str | None = ..., path: str | None = ..., name: bytes | None = ..., value: bytes | None = ..., op: int | None = ...) -> None: ...

class Xattrs(Message):
    @property
    def xattrs(self) -> RepeatedCompositeFieldContainer[Xattr]: ...
    unreadable: bool
    def __init__(self, *, xattrs: Iterable[Xattr] | None = ..., unreadable: bool | None = ...) -> None: ...

class Xattr(Message):
    name: bytes
    value: bytes
    stored: bool
    def __init__(self, *, name: bytes | None = ..., value: bytes | None = ..., stored: bool | None = ...) -> None: ...

class Open(Message):
    handle: int
    buffer: str
    path: str
    write: bool
    create: bool
    exclusive: bool
    truncate: bool
    mode: int
    resume_file: int
    resume_generation: int
    resume_committed: bool
    want: int
    file: int
    generation: int
    resume_writer: int
    linear: bool
    fence: bool
    def __init__(self, *, handle: int | None = ..., buffer: str | None = ..., path: str | None = ..., write: bool | None = ..., create: bool | None = ..., exclusive: bool | None = ..., truncate: bool | None = ..., mode: int | None = ..., resume_file: int | None = ..., resume_generation: int | None = ..., resume_committed: bool | None = ..., want: int | None = ..., file: int | None = ..., generation: int | None = ..., resume_writer: int | None = ..., linear: bool | None = ..., fence: bool | None = ...) -> None: ...

class Opened(Message):
    @property
    def entry(self) -> Entry: ...
    generation: int
    @property
    def extents(self) -> Extents: ...
    already_closed: bool
    committed: int
    tier: int
    def __init__(self, *, entry: Entry | None = ..., generation: int | None = ..., extents: Extents | None = ..., already_closed: bool | None = ..., committed: int | None = ..., tier: int | None = ...) -> None: ...

class LeaseRequest(Message):
    buffer: str
    bytes: int
    fits: int
    tier: int
    files: int
    commits: bool
    def __init__(self, *, buffer: str | None = ..., bytes: int | None = ..., fits: int | None = ..., tier: int | None = ..., files: int | None = ..., commits: bool | None = ...) -> None: ...

class Lease(Message):
    id: int
    @property
    def region(self) -> Region: ...
    offset: int
    length: int
    data_start: int
    record_floor: int
    tiered: bool
    def __init__(self, *, id: int | None = ..., region: Region | None = ..., offset: int | None = ..., length: int | None = ..., data_start: int | None = ..., record_floor: int | None = ..., tiered: bool | None = ...) -> None: ...

class ReturnLease(Message):
    id: int
    def __init__(self, *, id: int | None = ...) -> None: ...

class Region(Message):
    id: int
    path: str
    length: int
    key: bytes
    def __init__(self, *, id: int | None = ..., path: str | None = ..., length: int | None = ..., key: bytes | None = ...) -> None: ...

class Commit(Message):
    handle: int
    @property
    def extents(self) -> RepeatedCompositeFieldContainer[NewExtent]: ...
    close: bool
    abort: bool
    mtime_ns: int
    writer: int
    number: int
    extend: int
    def __init__(self, *, handle: int | None = ..., extents: Iterable[NewExtent] | None = ..., close: bool | None = ..., abort: bool | None = ..., mtime_ns: int | None = ..., writer: int | None = ..., number: int | None = ..., extend: int | None = ...) -> None: ...

class NewExtent(Message):
    file_offset: int
    length: int
    checksum: int
    lease: int
    segment_offset: int
    def __init__(self, *, file_offset: int | None = ..., length: int | None = ..., checksum: int | None = ..., lease: int | None = ..., segment_offset: int | None = ...) -> None: ...

class Committed(Message):
    size: int
    generation: int
    file: int
    alone: bool
    def __init__(self, *, size: int | None = ..., generation: int | None = ..., file: int | None = ..., alone: bool | None = ...) -> None: ...

class ExtentsRequest(Message):
    handle: int
    offset: int
    length: int
    inline: bool
    layout: bool
    def __init__(self, *, handle: int | None = ..., offset: int | None = ..., length: int | None = ..., inline: bool | None = ..., layout: bool | None = ...) -> None: ...

class Extents(Message):
    pin: int
    @property
    def extents(self) -> RepeatedCompositeFieldContainer[Extent]: ...
    @property
    def regions(self) -> RepeatedCompositeFieldContainer[Region]: ...
    size: int
    data_length: int
    def __init__(self, *, pin: int | None = ..., extents: Iterable[Extent] | None = ..., regions: Iterable[Region] | None = ..., size: int | None = ..., data_length: int | None = ...) -> None: ...

class Extent(Message):
    file_offset: int
    length: int
    region: int
    offset: int
    checksum: int
    check_offset: int
    check_length: int
    def __init__(self, *, file_offset: int | None = ..., length: int | None = ..., region: int | None = ..., offset: int | None = ..., checksum: int | None = ..., check_offset: int | None = ..., check_length: int | None = ...) -> None: ...

class Unpin(Message):
    @property
    def pins(self) -> RepeatedScalarFieldContainer[int]: ...
    def __init__(self, *, pins: Iterable[int] | None = ...) -> None: ...

class Close(Message):
    handle: int
    def __init__(self, *, handle: int | None = ...) -> None: ...

class Drain(Message):
    buffer: str
    timeout_ns: int
    local: bool
    key: str
    below: str
    overwrite: bool
    def __init__(self, *, buffer: str | None = ..., timeout_ns: int | None = ..., local: bool | None = ..., key: str | None = ..., below: str | None = ..., overwrite: bool | None = ...) -> None: ...

class Stage(Message):
    buffer: str
    path: str
    url: str
    dry_run: bool
    parallel: int
    key: str
    def __init__(self, *, buffer: str | None = ..., path: str | None = ..., url: str | None = ..., dry_run: bool | None = ..., parallel: int | None = ..., key: str | None = ...) -> None: ...

class Verify(Message):
    url: str
    deep: bool
    def __init__(self, *, url: str | None = ..., deep: bool | None = ...) -> None: ...

class Progress(Message):
    files_total: int
    files_done: int
    bytes_total: int
    bytes_done: int
    files_skipped: int
    done: bool
    @property
    def failed(self) -> RepeatedCompositeFieldContainer[Failure]: ...
    @property
    def held(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def open(self) -> RepeatedScalarFieldContainer[str]: ...
    held_total: int
    open_total: int
    failed_total: int
    last_error: str
    @property
    def names(self) -> RepeatedScalarFieldContainer[str]: ...
    job: str
    timed_out: bool
    bytes_not_copied: int
    @property
    def superseded(self) -> RepeatedScalarFieldContainer[str]: ...
    superseded_total: int
    node_local_total: int
    def __init__(self, *, files_total: int | None = ..., files_done: int | None = ..., bytes_total: int | None = ..., bytes_done: int | None = ..., files_skipped: int | None = ..., done: bool | None = ..., failed: Iterable[Failure] | None = ..., held: Iterable[str] | None = ..., open: Iterable[str] | None = ..., held_total: int | None = ..., open_total: int | None = ..., failed_total: int | None = ..., last_error: str | None = ..., names: Iterable[str] | None = ..., job: str | None = ..., timed_out: bool | None = ..., bytes_not_copied: int | None = ..., superseded: Iterable[str] | None = ..., superseded_total: int | None = ..., node_local_total: int | None = ...) -> None: ...

class Failure(Message):
    path: str
    kind: int
    reason: str
    bytes: int
    def __init__(self, *, path: str | None = ..., kind: int | None = ..., reason: str | None = ..., bytes: int | None = ...) -> None: ...

class JobRequest(Message):
    id: str
    watch: bool
    def __init__(self, *, id: str | None = ..., watch: bool | None = ...) -> None: ...

class JobReply(Message):
    json: bytes
    @property
    def superseded(self) -> RepeatedScalarFieldContainer[str]: ...
    superseded_total: int
    def __init__(self, *, json: bytes | None = ..., superseded: Iterable[str] | None = ..., superseded_total: int | None = ...) -> None: ...

class Lifetime(Message):
    json: bytes
    @property
    def superseded(self) -> RepeatedCompositeFieldContainer[SupersededSteps]: ...
    @property
    def dropped(self) -> RepeatedCompositeFieldContainer[DroppedFiles]: ...
    def __init__(self, *, json: bytes | None = ..., superseded: Iterable[SupersededSteps] | None = ..., dropped: Iterable[DroppedFiles] | None = ...) -> None: ...

class SupersededSteps(Message):
    buffer: str
    total: int
    files: int
    bytes: int
    @property
    def steps(self) -> RepeatedCompositeFieldContainer[SupersededStep]: ...
    def __init__(self, *, buffer: str | None = ..., total: int | None = ..., files: int | None = ..., bytes: int | None = ..., steps: Iterable[SupersededStep] | None = ...) -> None: ...

class SupersededStep(Message):
    step: str
    by: str
    files: int
    bytes: int
    def __init__(self, *, step: str | None = ..., by: str | None = ..., files: int | None = ..., bytes: int | None = ...) -> None: ...

class DroppedFiles(Message):
    node: str
    files: int
    bytes: int
    def __init__(self, *, node: str | None = ..., files: int | None = ..., bytes: int | None = ...) -> None: ...

class LifetimeOpen(Message):
    json: bytes
    @property
    def create(self) -> RepeatedCompositeFieldContainer[Buffer]: ...
    attach: bool
    begin: bool
    ran: bool
    def __init__(self, *, json: bytes | None = ..., create: Iterable[Buffer] | None = ..., attach: bool | None = ..., begin: bool | None = ..., ran: bool | None = ...) -> None: ...

class LifetimeLeave(Message):
    key: str
    node: str
    failed: bool
    def __init__(self, *, key: str | None = ..., node: str | None = ..., failed: bool | None = ...) -> None: ...

class LifetimeEnd(Message):
    key: str
    hurry: bool
    failed: bool
    when_left: bool
    def __init__(self, *, key: str | None = ..., hurry: bool | None = ..., failed: bool | None = ..., when_left: bool | None = ...) -> None: ...

class LifetimeDue(Message):
    key: str
    due_ns: int
    warned: bool
    def __init__(self, *, key: str | None = ..., due_ns: int | None = ..., warned: bool | None = ...) -> None: ...

class Lifetimes(Message):
    key: str
    job: str
    def __init__(self, *, key: str | None = ..., job: str | None = ...) -> None: ...

class Txn(Message):
    buffer: str
    id: str
    destination: str
    key: str
    state: str
    path: str
    uid: int
    gid: int
    created_ns: int
    ended_ns: int
    lease_ns: int
    @property
    def replace(self) -> RepeatedScalarFieldContainer[str]: ...
    reason: str
    tasks: int
    def __init__(self, *, buffer: str | None = ..., id: str | None = ..., destination: str | None = ..., key: str | None = ..., state: str | None = ..., path: str | None = ..., uid: int | None = ..., gid: int | None = ..., created_ns: int | None = ..., ended_ns: int | None = ..., lease_ns: int | None = ..., replace: Iterable[str] | None = ..., reason: str | None = ..., tasks: int | None = ...) -> None: ...

class Txns(Message):
    @property
    def txns(self) -> RepeatedCompositeFieldContainer[Txn]: ...
    def __init__(self, *, txns: Iterable[Txn] | None = ...) -> None: ...

class TxnBegin(Message):
    buffer: str
    destination: str
    key: str
    lease_ns: int
    def __init__(self, *, buffer: str | None = ..., destination: str | None = ..., key: str | None = ..., lease_ns: int | None = ...) -> None: ...

class TxnName(Message):
    buffer: str
    id: str
    def __init__(self, *, buffer: str | None = ..., id: str | None = ...) -> None: ...

class TxnAdopt(Message):
    buffer: str
    id: str
    task: str
    attempt: str
    def __init__(self, *, buffer: str | None = ..., id: str | None = ..., task: str | None = ..., attempt: str | None = ...) -> None: ...

class TxnAdopted(Message):
    winner: str
    def __init__(self, *, winner: str | None = ...) -> None: ...

class TxnCommit(Message):
    buffer: str
    id: str
    @property
    def replace(self) -> RepeatedScalarFieldContainer[str]: ...
    wait: bool
    def __init__(self, *, buffer: str | None = ..., id: str | None = ..., replace: Iterable[str] | None = ..., wait: bool | None = ...) -> None: ...

class Nodes(Message):
    @property
    def nodes(self) -> RepeatedCompositeFieldContainer[Node]: ...
    def __init__(self, *, nodes: Iterable[Node] | None = ...) -> None: ...

class Node(Message):
    name: str
    instance: int
    state: str
    session: str
    fabric: str
    admin: str
    min_version: int
    max_version: int
    server: str
    memory: int
    memory_free: int
    memory_dirty: int
    disk: int
    disk_free: int
    disk_dirty: int
    since_ns: int
    refused: str
    def __init__(self, *, name: str | None = ..., instance: int | None = ..., state: str | None = ..., session: str | None = ..., fabric: str | None = ..., admin: str | None = ..., min_version: int | None = ..., max_version: int | None = ..., server: str | None = ..., memory: int | None = ..., memory_free: int | None = ..., memory_dirty: int | None = ..., disk: int | None = ..., disk_free: int | None = ..., disk_dirty: int | None = ..., since_ns: int | None = ..., refused: str | None = ...) -> None: ...

class NodeName(Message):
    name: str
    def __init__(self, *, name: str | None = ...) -> None: ...

class NodeDrain(Message):
    name: str
    local: bool
    @property
    def to(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(self, *, name: str | None = ..., local: bool | None = ..., to: Iterable[str] | None = ...) -> None: ...

class NodeForgotten(Message):
    @property
    def lost(self) -> RepeatedCompositeFieldContainer[Entry]: ...
    lost_total: int
    lost_bytes: int
    kept_total: int
    def __init__(self, *, lost: Iterable[Entry] | None = ..., lost_total: int | None = ..., lost_bytes: int | None = ..., kept_total: int | None = ...) -> None: ...

class TokenRequest(Message):
    buffer: str
    lifetime_ns: int
    def __init__(self, *, buffer: str | None = ..., lifetime_ns: int | None = ...) -> None: ...

class Token(Message):
    token: bytes
    expires_ns: int
    def __init__(self, *, token: bytes | None = ..., expires_ns: int | None = ...) -> None: ...

class Hold(Message):
    buffer: str
    @property
    def paths(self) -> RepeatedScalarFieldContainer[str]: ...
    freeze: bool
    def __init__(self, *, buffer: str | None = ..., paths: Iterable[str] | None = ..., freeze: bool | None = ...) -> None: ...

class Take(Message):
    buffer: str
    dir: int
    name: str
    file: int
    generation: int
    replica: bool
    def __init__(self, *, buffer: str | None = ..., dir: int | None = ..., name: str | None = ..., file: int | None = ..., generation: int | None = ..., replica: bool | None = ...) -> None: ...

class Recheck(Message):
    buffer: str
    path: str
    tree: bool
    def __init__(self, *, buffer: str | None = ..., path: str | None = ..., tree: bool | None = ...) -> None: ...

class Names(Message):
    buffer: str
    call: bytes
    def __init__(self, *, buffer: str | None = ..., call: bytes | None = ...) -> None: ...

class NamesReply(Message):
    answer: bytes
    def __init__(self, *, answer: bytes | None = ...) -> None: ...

class PlaceRename(Message):
    buffer: str
    from_dir: int
    from_name: str
    to_dir: int
    to_name: str
    expect: int
    replace: bool
    def __init__(self, *, buffer: str | None = ..., from_dir: int | None = ..., from_name: str | None = ..., to_dir: int | None = ..., to_name: str | None = ..., expect: int | None = ..., replace: bool | None = ...) -> None: ...

class PlaceRemove(Message):
    buffer: str
    dir: int
    name: str
    expect: int
    generation: int
    path: str
    def __init__(self, *, buffer: str | None = ..., dir: int | None = ..., name: str | None = ..., expect: int | None = ..., generation: int | None = ..., path: str | None = ...) -> None: ...

class Follow(Message):
    buffer: str
    file: int
    dir: int
    name: str
    to_dir: int
    to_name: str
    def __init__(self, *, buffer: str | None = ..., file: int | None = ..., dir: int | None = ..., name: str | None = ..., to_dir: int | None = ..., to_name: str | None = ...) -> None: ...

class Discard(Message):
    buffer: str
    file: int
    generation: int
    def __init__(self, *, buffer: str | None = ..., file: int | None = ..., generation: int | None = ...) -> None: ...

class Replicate(Message):
    buffer: str
    file: int
    generation: int
    whole: bool
    @property
    def extents(self) -> RepeatedCompositeFieldContainer[NewExtent]: ...
    parts: int
    before: int
    more: bool
    def __init__(self, *, buffer: str | None = ..., file: int | None = ..., generation: int | None = ..., whole: bool | None = ..., extents: Iterable[NewExtent] | None = ..., parts: int | None = ..., before: int | None = ..., more: bool | None = ...) -> None: ...
