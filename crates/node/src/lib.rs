//! Node room: runs the state machines of one process: cores, the routers of their connections,
//! mailboxes, rings.
//!
//! In: events of sessions and clients, through a [`Router`]. Out: messages for sessions, in a
//! [`Mailbox`] each. The broker runs it over sockets and disks; the simulator can run it without
//! either.
//! Never here: sockets, files, threads, clocks (they are passed in as [`Clocks`]), configuration.
//!
//! Start at [`Core`]: its partitions, its share of the log, and its ways to the other cores.

mod client;
mod core;
mod draining;
mod equip;
mod fair;
mod fair_share;
mod gate;
mod logs;
mod mailbox;
mod offline_ends;
mod outstanding;
mod pace;
mod places;
mod ring;
mod router;
mod steps;
mod tenant_keys;
mod tenant_meters;
mod tracer;
mod translate;

pub use self::core::{Clocks, ConnectionCounts, Core, Links, ToCore, owner};
pub use client::{
    Answer, Attachment, Client, ClientError, ClientLimits, ClientOptions, Clients, Consumer, CoreHandle,
    Held, JoiningClient, LocalClient, MailboxTask, Receipt, admit,
};
pub use draining::Draining;
pub use equip::equip;
pub use fair::{Fair, Seat};
pub use logs::{JournalWriter, LogLink, LogRing, Logs};
pub use mailbox::{Call, Mailbox, Taken};
pub use offline_ends::OfflineEnds;
pub use outstanding::{Outstanding, Share};
pub use places::{Places, SharedPlaces};
pub use ring::{Receiver, Sender, ThreadWaker, Wake, WakingSender, ring};
pub use router::{Router, WRITTEN_STEP_BYTES, is_echo};
pub use tenant_keys::TenantKeys;
pub use tenant_meters::{Ahead, ConnectionPermit, ShareWaits, TenantMeters};
pub use tracer::{SharedTracer, TraceBook, TraceCounts, TraceOptions, Traced, Tracer};
pub use translate::{Rewriter, change_headers, properties_of, read_portable, with_body, write_message};
