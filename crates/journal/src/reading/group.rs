//! A whole group by one of its records: records committed together are sent on together.

use crate::disks::disk::{Disk, DiskFile};
use crate::error::{Damage, DamageKind, ReadError};
use crate::layout::format::{GroupEnd, RecordHeader};
use crate::reading::scan::{GroupHead, Window};
use crate::record::{Payload, Record};
use crate::retaining::index::READ_STEP_BYTES;
use crate::writing::journal::Journal;
use bytes::Bytes;
use postroad_model::{PartitionId, Position};
use std::path::Path;
use std::sync::Arc;

/// Where a group is.
pub(crate) struct FoundGroup<F> {
    file: Arc<F>,
    path: std::path::PathBuf,
    head: GroupHead,
    pub end: GroupEnd,
}

impl<D: Disk> Journal<D> {
    /// All records of the group that holds this one, in the order in which they were committed,
    /// each with the key that it is encrypted with.
    ///
    /// # Errors
    /// [`ReadError::NotFound`]: never committed, recycled, or compacted, which takes groups apart.
    /// [`ReadError::Damaged`] and [`ReadError::Io`]: the group cannot be read, or a part of it.
    pub fn read_group(&self, partition: PartitionId, position: Position) -> Result<Vec<Record>, ReadError> {
        let FoundGroup { file, path, head, .. } = self.find_group(partition, position)?;
        let mut window = Window::with_keys(&*file, READ_STEP_BYTES, head.end(), &self.keys);
        records_of(&mut window, &head, &path)
    }

    /// The group that holds this record and the later ones, each as [`Journal::read_group`] returns
    /// it, to the end of their segment or until they have `bytes_max` of payload: one look at the
    /// segment for many groups.
    ///
    /// # Errors
    /// Those of [`Journal::read_group`].
    pub fn read_groups(
        &self,
        partition: PartitionId,
        position: Position,
        bytes_max: u64,
    ) -> Result<Vec<Vec<Record>>, ReadError> {
        let FoundGroup { file, path, mut head, end } = self.find_group(partition, position)?;
        let segment = self.segments.get(end.segment);
        let (salt, end) = segment.map_or((head.header.salt, end.offset), |of| (of.header.salt, of.end));
        let mut window = Window::with_keys(&*file, READ_STEP_BYTES, end, &self.keys);
        let (mut groups, mut bytes) = (Vec::new(), 0);
        loop {
            let records = records_of(&mut window, &head, &path)?;
            bytes += records.iter().map(|record| record.payload.byte_length()).sum::<u64>();
            groups.extend((!records.is_empty()).then_some(records));
            let offset = head.end();
            if end <= offset || bytes_max <= bytes {
                return Ok(groups);
            }
            let next = window.head(salt, offset);
            match next.map_err(|source| ReadError::Io { file: path.clone(), source })? {
                Some(next) => head = next,
                None => return Ok(groups),
            }
        }
    }

    /// Looks through the groups of the record's segment from where the index says.
    pub(crate) fn find_group(
        &self,
        partition: PartitionId,
        position: Position,
    ) -> Result<FoundGroup<D::File>, ReadError> {
        let segment = self.segments.find(partition, position).filter(|segment| segment.compacted.is_none());
        let number = segment.map(|segment| segment.header.number);
        let index = number.and_then(|number| self.indexes.look(number));
        let index = segment.and_then(|segment| segment.index.clone()).or(index);
        let start = segment.and_then(|segment| segment.start_of(partition, position, index.as_deref()));
        let Some((segment, start)) = segment.zip(start) else {
            return Err(ReadError::NotFound { partition, position });
        };
        let (name, salt, number) = (segment.file_name(), segment.header.salt, segment.header.number);
        let file = match number == self.current.header.number {
            true => self.current.file.clone(),
            false => self.open_segment(&name, Some(partition))?,
        };
        let path = self.disk.path(&name);
        let mut window = Window::with_keys(&*file, READ_STEP_BYTES, segment.end, &self.keys);
        let mut offset = start.offset;
        while offset < segment.end {
            let head = window.head(salt, offset);
            let head = head.map_err(|source| ReadError::Io { file: path.clone(), source })?;
            let Some(head) = head else { break };
            offset = head.end();
            let is_it = |record: &RecordHeader| (record.partition, record.position) == (partition, position);
            if head.records.iter().any(|entry| is_it(&entry.header)) {
                drop(window);
                let end = GroupEnd { segment: number, offset, number: head.header.number };
                return Ok(FoundGroup { file, path, head, end });
            }
        }
        let kind = DamageKind::Group;
        Err(ReadError::Damaged(Damage { partition: Some(partition), file: path, offset, kind }))
    }
}

/// The records of a group.
fn records_of<F: DiskFile>(
    window: &mut Window<'_, F>,
    head: &GroupHead,
    path: &Path,
) -> Result<Vec<Record>, ReadError> {
    let mut records = Vec::with_capacity(head.records.len());
    for entry in &head.records {
        let RecordHeader { partition, position, reserve, key, .. } = entry.header;
        let payload = window.payload(entry);
        let payload = payload.map_err(|source| ReadError::Io { file: path.to_owned(), source })?;
        let payload = payload.map(Bytes::copy_from_slice).map_err(|kind| {
            let (file, offset) = (path.to_owned(), entry.payload_offset);
            ReadError::Damaged(Damage { partition: Some(partition), file, offset, kind })
        })?;
        records.push(Record { partition, position, payload: Payload::from(payload), reserve, key });
    }
    Ok(records)
}
