//! The redrive that moved a message, in its headers: by it the redrive is undone.

use std::sync::Arc;

use postroad_model::{RedriveId, RedriveMark};

use crate::log::reader::Reader;
use crate::log::record::{RecordError, Writer};

/// Writes it, if there is one.
pub fn write(mark: Option<&Arc<RedriveMark>>, out: &mut Writer) {
    let Some(RedriveMark { id, from, origin, reason }) = mark.map(|mark| &**mark) else { return };
    out.u64(id.0).destination(from).list(&origin.iter().collect::<Vec<_>>(), |out, origin| {
        out.destination(origin);
    });
    out.text(reason.as_deref().unwrap_or_default());
}

/// Reads it, if it is there.
pub fn read(is_there: bool, input: &mut Reader<'_>) -> Result<Option<Arc<RedriveMark>>, RecordError> {
    if !is_there {
        return Ok(None);
    }
    let (id, from) = (RedriveId(input.u64()?), input.destination()?);
    let origin = input.list(Reader::destination)?.pop();
    let reason = Some(input.text()?).filter(|reason| !reason.is_empty());
    Ok(Some(Arc::new(RedriveMark { id, from, origin, reason })))
}
