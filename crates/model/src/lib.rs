//! Model room: the words every other room speaks.
//!
//! Holds ids, destinations, messages, and the three vocabularies of the core: [`Command`]
//! (durable), [`Event`] (not durable) and [`Effect`] (work to do now); [`portable`], messages in a
//! form for all protocols; and the parts of every protocol's [`Session`]: [`Replies`],
//! [`Liveness`].
//! Never here: IO, async, clocks, locks, protocol details, decisions.

pub mod address;
mod ask;
mod bridge;
mod command;
mod date;
mod destination;
mod document;
mod effect;
mod elsewhere;
mod event;
mod explain;
mod first_bytes;
mod growth;
mod header;
mod ids;
mod lease;
mod link;
mod liveness;
mod login;
mod lookup;
mod message;
mod notice;
mod permission;
pub mod portable;
mod redrive;
mod refusal;
mod replies;
mod schedule;
mod session;
mod spill;
mod trace;
mod user;

pub use ask::{
    Ask, BindingRow, ConnectionRow, ConsumerRow, Inquiry, Order, Page, PageMaker, ProducerRow, Question,
    QueueRow, Row, RowKey, ScheduleRecord, ScheduleRow, SessionRow, SortBy, TopicRow,
};
pub use bridge::{Figure, LinkBar, LinkFigures, LinkQueues, LinkedPeer, QueuesOfLink, link_to, peer_of_link};
pub use command::{
    Binding, Changes, Command, Compression, Durability, LINK_INBOUND, LINK_PREFIX, LeaseEnd, Sent,
    SettleCause, Settlement, Subscription, Urgency,
};
pub use date::{Date, rfc3339};
pub use destination::{Destination, DestinationKind, PartitionRange, Placement};
pub use document::{
    DOCUMENT_BYTES_MAX, DOCUMENT_NAME_BYTES_MAX, DOCUMENTS_MAX, DocumentChange, DocumentRequest,
    DocumentVersion,
};
pub use effect::{Delivery, DetachCause, Effect, Moving, OfflineEnd};
pub use elsewhere::{Elsewhere, Endpoint};
pub use event::{
    Attach, CarriedPiece, ConsumerMode, Decision, Delivered, Event, Hold, Outcome, Pace, Peer, Publish,
    Retain, RoutedSend, Routing, Settle, Share,
};
pub use explain::{Change, Decisive, Explained, Verdict, VerdictRow, decisive};
pub use first_bytes::protocol_of;
pub use growth::{ConsumerFlow, Growth, GrowthCause, QueueFlow, judge};
pub use header::{HeaderChanges, HeaderValue, SETTABLE_HEADERS};
pub use ids::{
    BranchId, BranchStanding, BranchTextError, ConnectionId, ConsumerKey, EntryTag, MessageKey, MessageRow,
    PartitionId, Position, QueueId, Ticket, TransactionId, TransactionKey,
};
pub use lease::{
    Duplicate, Handle, HandleAction, HandleEntries, LeaseAnswer, LeaseEvent, LeaseId, Post, QueueDescription,
    QueueOptions, Reserve, Reserved, Stale, Take, Watch,
};
pub use link::{LinkDelivery, LinkEvent, LinkName, ResumeLink};
pub use liveness::{Liveness, Silence, Silences};
pub use login::{Login, LoginAnswer};
pub use lookup::LookupMap;
pub use message::{
    Aim, CHUNK_BYTES, Chunks, DEDUPLICATION_MS, DeadLetter, Deduplication, Encoding, Group, HIGHEST_PRIORITY,
    Message, NORMAL_PRIORITY, Origin, Protocol, RareHeaders, Revived,
};
pub use notice::{
    Announcement, BridgeNotice, ClientNotice, ConsumerNotice, MessageEvent, NetworkPath, Notice,
    ProducerNotice,
};
pub use permission::{Action, Federated, Principal};
pub use redrive::{REDRIVE_TARGETS_MAX, Redrive, RedriveCounts, RedriveId, RedriveMark, RedriveWay};
pub use refusal::Refusal;
pub use replies::Replies;
pub use schedule::{Due, JobsWanted, NotScheduleId, Recurrence, RouteRetry, Schedule, ScheduleId};
pub use session::{Deadline, Now, Parting, Session, ToSession, Underway};
pub use spill::{Piece, Snapshot, Spill, Spilled};
pub use trace::{TraceKey, TraceStep, TracedStep};
pub use user::UserKey;
