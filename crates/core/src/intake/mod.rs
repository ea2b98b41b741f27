//! Intake: a message comes in. Its checks, its waits, and the queues that get it.
//!
//! Start at [`publish`]. Never here: consumers.

pub mod account;
pub mod arrivals;
pub mod audit;
pub mod blocked;
pub mod chunks;
pub mod homes;
pub mod limit;
pub mod link;
pub mod parked;
pub mod policy_round;
pub mod publish;
pub mod queue_quota;
pub mod recent;
pub mod route_retries;
pub mod routes;
pub mod unparking;
pub mod wait_queues;
pub mod waiting;
