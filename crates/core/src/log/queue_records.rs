//! Records about one queue: its leases, its options, its pause.

use postroad_model::{Command, EntryTag, LeaseId, QueueId};

use crate::log::reader::Reader;
use crate::log::record::{RecordError, kind};

/// The command of such a record.
pub fn of_queue(kind: u8, input: &mut Reader<'_>) -> Result<Command, RecordError> {
    match kind {
        kind::LEASE => {
            let (before_first, until) = (LeaseId(input.u64()?), input.lease_end()?);
            let queue = QueueId(input.u64()?);
            let tags = input.list(|input| Ok(EntryTag(input.u64()?)))?;
            Ok(Command::Lease { queue, before_first, until, tags })
        }
        kind::TOUCH => {
            let (queue, until) = (QueueId(input.u64()?), input.list(Reader::lease_end)?.pop());
            let entries = input.list(|input| Ok((EntryTag(input.u64()?), input.lease()?)))?;
            Ok(Command::Touch { queue, until, entries })
        }
        kind::PAUSE => Ok(Command::Pause { queue: input.destination()?, paused: input.boolean("paused")? }),
        _ => Ok(Command::Configure { queue: input.destination()?, options: input.queue_options()? }),
    }
}
