//! Trace room: which messages are traced, and where each of them spent its time.
//!
//! In: [`Point`]s, each a step of one message with its time. Out: the [`Report`] of a message.
//! The [`Sampler`] decides which messages are traced; [`TraceTable`] keeps the last ones, bounded.
//! Never here: clocks, sockets, threads, locks, how a protocol carries its trace context.
//!
//! Start at [`TraceTable::take`], then [`Report`].

mod context;
mod otlp;
mod point;
mod report;
mod sampler;
mod span;
mod table;

pub use context::TraceContext;
pub use otlp::otlp_request;
pub use point::{Begun, EntryOf, Point, TraceTime, What};
pub use report::{Report, Stage, StageKind};
pub use sampler::{Sampler, Sampling, Verdict};
pub use span::{Attribute, Span};
pub use table::{KEPT_MAX, SPANS_MAX, TraceTable};
