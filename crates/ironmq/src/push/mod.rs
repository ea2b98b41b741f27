//! Push queues: which message goes to which endpoint, and when; without HTTP, clock or threads.
//!
//! ```text
//!                       room at the endpoint           2xx
//!  reserved ──▶ InLine ────────────────────▶ Sending ───────▶ Done
//!                 ▲                           │  │  202                    deleted
//!                 │ due                 other │  └──────▶ Accepted ──────▶ Done
//!                 │                           ▼              │ time is over
//!                 └─────────────────────── Waiting ◀─────────┘
//!                                             │ no retry is left
//!                                             ▼
//!                                           Failed
//! ```
//! The [`Engine`] holds messages of push queues by leases that it extends. The driver carries its
//! [`Action`]s out and reports the results. If the broker ends, the leases do too, and all
//! subscribers that had not answered, and with multicast those that had, get the message again.
//! Bodies are kept for messages that are about to be sent alone; for a retry the driver reads them
//! again.
//!
//! Endpoints are shared by all queues: see [`endpoint`].

mod delivery;
mod endpoint;
mod engine;
mod settings;

pub use delivery::{Delivery, Fresh, Key, Pushed};
pub use engine::{Acknowledged, Action, Answer, Attempt, Engine, LEASE_MS};
pub(crate) use settings::{
    CONCURRENCY, HEADER_CHARS_MAX, HEADERS_MAX, NAME_CHARS_MAX, RATE_MAX, RETRIES, RETRIES_DELAY_S,
    SUBSCRIBERS_MAX, TIMEOUT_S_MAX, URL_CHARS_MAX,
};
pub use settings::{PushKind, PushSettings, Subscriber, of_webhook};
pub(crate) use settings::{add, headers, subscribers};
