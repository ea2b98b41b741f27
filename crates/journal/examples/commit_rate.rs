//! How fast this disk makes groups durable: one 1 KiB record to a group, one writer.
//!
//! `cargo run --release -p postroad-journal --example commit_rate [directory] [groups]`
//!
//! The first rows use the journal; the others write and sync the same bytes into one file of zeros,
//! to see whether another way of asking the kernel would be faster.
#![allow(clippy::print_stdout)]

use bytes::Bytes;
use postroad_journal::{Journal, Key, KeySet, Keys, Options, Payload, RealDisk, Record};
use postroad_model::{PartitionId, Position};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn Error>>;

const PAYLOAD_BYTES: usize = 1024;
/// Bytes on disk of such a record: header, table and payload, up to the next sector.
const GROUP_BYTES: usize = 1536;
const DIRECT_BYTES: usize = 4096;
const FILE_BYTES: u64 = 64 << 20;
/// They fit in the first segment.
const APPENDS: u64 = 900;

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap_or_else(|| "target/commit-rate".to_owned()));
    let groups: u64 = arguments.next().map_or(Ok(5000), |text| text.parse())?;
    std::fs::create_dir_all(&directory)?;
    let plain = Keys::default();
    let key = Key::new(&std::array::from_fn(|index| index as u8));
    let encrypted = Keys::new(KeySet { current: Some(key), former: Vec::new() }, []);
    let path = directory.join("journal");
    journal("journal, first segment (allocated only)", &path, groups, false, &plain)?;
    for _ in 0..2 {
        journal("journal, zeroed segment", &path, groups, true, &plain)?;
        journal("journal, zeroed segment, encrypted", &path, groups, true, &encrypted)?;
    }
    for _ in 0..3 {
        appends("64 KiB appended, not synced", &path, &plain)?;
        appends("64 KiB appended, not synced, encrypted", &path, &encrypted)?;
    }
    files(&directory, groups)?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

/// Processor time for each byte: only data that exceeds memory waits for the disk.
fn appends(name: &str, directory: &Path, keys: &Keys) -> Outcome {
    let _ = std::fs::remove_dir_all(directory);
    let (mut journal, _) =
        Journal::open_with(RealDisk::open(directory)?, Options::default(), keys.clone(), &mut |_, _| ())?;
    let body = Bytes::from(vec![7; 64 << 10]);
    let mut times = Vec::new();
    let mut position = Position::FIRST;
    let before = processor_nanos()?;
    for _ in 0..APPENDS {
        let payload = Payload::from(body.clone());
        let record = Record { partition: PartitionId(0), position, payload, reserve: false, key: None };
        position = position.next();
        let began = Instant::now();
        journal.append(&[record])?;
        times.push(began.elapsed());
    }
    let nanos = processor_nanos()? - before;
    report(name, &mut times);
    let bytes = APPENDS * body.len() as u64;
    println!("{:<44} {:>9.2} ns of the processor for each byte", "", nanos as f64 / bytes as f64);
    Ok(())
}

/// Processor time of this thread so far.
fn processor_nanos() -> Result<u64, Box<dyn Error>> {
    let figures = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(figures.split(' ').next().unwrap_or_default().parse()?)
}

fn journal(name: &str, directory: &Path, groups: u64, zeroed: bool, keys: &Keys) -> Outcome {
    let _ = std::fs::remove_dir_all(directory);
    let disk = RealDisk::open(directory)?;
    let began = Instant::now();
    let (mut journal, _) =
        Journal::open_with(disk.clone(), Options::default(), keys.clone(), &mut |_, _| ())?;
    let opened = began.elapsed();
    let mut position = Position::FIRST;
    let mut commit = |journal: &mut Journal<RealDisk>, bytes: usize| -> Result<Duration, Box<dyn Error>> {
        let payload = Payload::from(Bytes::from(vec![7; bytes]));
        let record = Record { partition: PartitionId(0), position, payload, reserve: false, key: None };
        position = position.next();
        let began = Instant::now();
        journal.commit(&[record])?;
        Ok(began.elapsed())
    };
    if zeroed {
        let request = journal.wants_segment().ok_or("a spare segment is there already")?;
        let began = Instant::now();
        journal.provide(request.prepare(&disk, &mut ()));
        println!("{:<44} {:>9.1?} to make", "a zeroed segment of 64 MiB", began.elapsed());
        // Leaves too little space after itself for a further group.
        commit(&mut journal, (Options::default().segment_bytes - 2560) as usize)?;
    }
    let mut times = Vec::new();
    for _ in 0..groups {
        times.push(commit(&mut journal, PAYLOAD_BYTES)?);
    }
    report(name, &mut times);
    drop(journal);
    drop(disk);
    let began = Instant::now();
    let disk = RealDisk::open(directory)?;
    let (_, recovered) = Journal::open_with(disk, Options::default(), keys.clone(), &mut |_, _| ())?;
    let records = recovered.records().count();
    let (again, whole) = (recovered.elapsed, began.elapsed());
    println!(
        "{:<44} {opened:>9.1?} new, {again:.1?} again, {whole:.1?} with {records} records replayed",
        "  opening"
    );
    Ok(())
}

fn files(directory: &Path, groups: u64) -> Outcome {
    let zeros = Mode::from_raw_mode(0o600);
    for (name, flags, bytes, allocated_only, sync) in [
        ("pwrite + fdatasync", OFlags::empty(), GROUP_BYTES, false, true),
        ("pwrite + fdatasync, allocated only", OFlags::empty(), GROUP_BYTES, true, true),
        ("pwrite on O_DSYNC", OFlags::DSYNC, GROUP_BYTES, false, false),
        ("pwrite on O_DIRECT + fdatasync", OFlags::DIRECT, DIRECT_BYTES, false, true),
        ("pwrite on O_DIRECT and O_DSYNC", OFlags::DIRECT.union(OFlags::DSYNC), DIRECT_BYTES, false, false),
    ] {
        let path = directory.join("plain");
        let _ = std::fs::remove_file(&path);
        let plain = rustix::fs::open(&path, OFlags::CREATE | OFlags::RDWR, zeros)?;
        rustix::fs::fallocate(&plain, FallocateFlags::empty(), 0, FILE_BYTES)?;
        if !allocated_only {
            let block = vec![0; 1 << 20];
            for offset in (0..FILE_BYTES).step_by(block.len()) {
                rustix::io::pwrite(&plain, &block, offset)?;
            }
        }
        rustix::fs::fsync(&plain)?;
        let file = match rustix::fs::open(&path, OFlags::RDWR | flags, zeros) {
            Ok(file) => file,
            Err(error) => {
                println!("{name:<44} not possible here: {error}");
                continue;
            }
        };
        // O_DIRECT wants memory on a boundary of blocks.
        let memory = vec![7_u8; DIRECT_BYTES * 2];
        let skip = memory.as_ptr().align_offset(DIRECT_BYTES);
        let block = &memory[skip..skip + bytes];
        let mut times = Vec::new();
        for group in 0..groups {
            let offset = group * bytes as u64 % (FILE_BYTES - bytes as u64) / bytes as u64 * bytes as u64;
            let began = Instant::now();
            rustix::io::pwrite(&file, block, offset)?;
            if sync {
                rustix::fs::fdatasync(&file)?;
            }
            times.push(began.elapsed());
        }
        report(name, &mut times);
    }
    Ok(())
}

fn report(name: &str, times: &mut [Duration]) {
    let total: Duration = times.iter().sum();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let rate = times.len() as f64 / total.as_secs_f64();
    println!(
        "{name:<44} {rate:>7.0}/s  median {:>8.1?}  p99 {:>8.1?}  max {:>8.1?}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
