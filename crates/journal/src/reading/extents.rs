//! Ranges of one file that are read together: close ones in one read, and all of them announced to
//! the disk, as it serves many at once in little more than the time of one.

use crate::disks::disk::{DiskFile, read_full_at};
use std::ops::Range;

/// Ranges that are no further apart are read together: a disk reads the gap in less time than it
/// finds the next one.
pub(crate) const GAP_BYTES: u64 = 16 << 10;

/// The most that is read in one go, unless one stretch alone is longer.
pub(crate) const READ_BYTES_MAX: u64 = 256 << 10;

/// Bytes of a table are copied from memory once it is there: that takes less than another call, up
/// to this gap.
const TABLE_GAP_BYTES: u64 = 2 << 10;

/// Reads stretches of a file, given in the order in which they begin, and hands over each that is
/// there, with its place among them. Unreadable ones are left out: a separate read reports the
/// fault.
pub(crate) fn read_extents<F: DiskFile>(file: &F, wanted: &[Range<u64>], each: impl FnMut(usize, &[u8])) {
    let reads = merged(wanted, GAP_BYTES);
    if let [_, _, ..] = reads[..] {
        reads.iter().for_each(|(read, _)| file.will_need(read.clone()));
    }
    read_merged(file, wanted, reads, each);
}

/// The same of a table that is so small that all between the first and the last of them may be read
/// into the system's memory.
pub(crate) fn read_of_table<F: DiskFile>(file: &F, wanted: &[Range<u64>], each: impl FnMut(usize, &[u8])) {
    if let [first, .., last] = wanted {
        file.will_need(first.start..last.end);
    }
    read_merged(file, wanted, merged(wanted, TABLE_GAP_BYTES), each);
}

fn read_merged<F: DiskFile>(
    file: &F,
    wanted: &[Range<u64>],
    reads: Vec<(Range<u64>, Range<usize>)>,
    mut each: impl FnMut(usize, &[u8]),
) {
    let mut buffer = Vec::new();
    for (read, members) in reads {
        buffer.resize((read.end - read.start) as usize, 0);
        let Ok(filled) = read_full_at(file, &mut buffer, read.start) else { continue };
        for member in members {
            let Range { start, end } = wanted[member];
            let place = (start - read.start) as usize..(end - read.start) as usize;
            if let Some(bytes) = buffer[..filled].get(place) {
                each(member, bytes);
            }
        }
    }
}

/// One read, and the requested ranges in it.
fn merged(wanted: &[Range<u64>], gap_bytes: u64) -> Vec<(Range<u64>, Range<usize>)> {
    let mut reads: Vec<(Range<u64>, Range<usize>)> = Vec::new();
    for (member, Range { start, end }) in wanted.iter().cloned().enumerate() {
        if let Some((read, members)) = reads.last_mut()
            && read.start <= start
            && start <= read.end.saturating_add(gap_bytes)
            && end.max(read.end) - read.start <= READ_BYTES_MAX
        {
            read.end = read.end.max(end);
            members.end = member + 1;
        } else {
            reads.push((start..end.max(start), member..member + 1));
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::disk::{Disk, write_all_at};
    use crate::disks::simulated_disk::SimulatedDisk;
    use std::io::IoSlice;

    #[test]
    fn what_lies_close_is_read_in_one_go() {
        let far = GAP_BYTES + 1;
        for (name, wanted, want) in [
            ("nothing", vec![], vec![]),
            ("two that touch", vec![7..8, 8..9], vec![(7..9, 0..2)]),
            ("neighbours", vec![0..10, 10..30, 40..50], vec![(0..50, 0..3)]),
            ("the widest gap", vec![0..10, 10 + GAP_BYTES..20 + GAP_BYTES], vec![(0..20 + GAP_BYTES, 0..2)]),
            ("a wider gap", vec![0..10, 10 + far..20 + far], vec![(0..10, 0..1), (10 + far..20 + far, 1..2)]),
            ("one within another", vec![0..50, 10..20, 55..60], vec![(0..60, 0..3)]),
            (
                "one too long for others",
                vec![0..READ_BYTES_MAX, READ_BYTES_MAX..READ_BYTES_MAX + 1],
                vec![(0..READ_BYTES_MAX, 0..1), (READ_BYTES_MAX..READ_BYTES_MAX + 1, 1..2)],
            ),
        ] {
            assert_eq!(merged(&wanted, GAP_BYTES), want, "case: {name}");
        }
    }

    #[test]
    fn each_stretch_that_is_there_is_handed_over() {
        let file = SimulatedDisk::new(1).create("file").unwrap();
        let bytes: Vec<u8> = (0..100_000).map(|at| (at / 7) as u8).collect();
        write_all_at(&file, &mut [IoSlice::new(&bytes)], 0).unwrap();
        let wanted = [5..9, 1000..3000, 60_000..60_001, 99_990..100_000, 99_995..100_001];
        let mut found = Vec::new();
        read_extents(&file, &wanted, |place, read| found.push((place, read.to_vec())));
        let mut of_table = Vec::new();
        read_of_table(&file, &wanted, |place, read| of_table.push((place, read.to_vec())));
        assert_eq!(of_table, found);
        let there =
            wanted[..4].iter().map(|wanted| bytes[wanted.start as usize..wanted.end as usize].to_vec());
        assert_eq!(found, (0..).zip(there).collect::<Vec<_>>());
    }
}
