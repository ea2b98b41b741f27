//! `postroad store dump`: the records of a journal, one to a line.

use std::io::{BufWriter, Write};

use anyhow::bail;
use bytes::Bytes;
use clap::Args;
use postroad_core::decode_record;
use postroad_journal::{ReadError, Seen, SegmentNumber};

use super::Place;
use crate::cli::words::counted;

/// Arguments of `dump`.
#[derive(Debug, Args)]
pub struct DumpArguments {
    #[command(flatten)]
    place: Place,
    /// Only this segment: the hexadecimal number in its file name.
    #[arg(long, value_name = "NUMBER", value_parser = parse_segment)]
    segment: Option<u64>,
}

fn parse_segment(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|error| format!("{error}; as in the file's name: 000000000000001f"))
}

/// Prints all records that are on the disk, live or not, in the order of the files.
pub fn run(arguments: &DumpArguments) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let stopped = arguments.place.open()?;
    let numbers: Vec<SegmentNumber> = stopped.journal.segments().map(|used| used.number).collect();
    if let Some(only) = arguments.segment
        && numbers.iter().all(|number| number.0 != only)
    {
        let ends = numbers.first().zip(numbers.last());
        let there = ends.map(|(first, last)| format!("; they go from {:x} to {:x}", first.0, last.0));
        bail!("there is no segment {only:x}{}", there.unwrap_or_default());
    }
    let wanted = |number: &SegmentNumber| arguments.segment.is_none_or(|only| only == number.0);
    let mut damaged = 0;
    for number in numbers.into_iter().filter(wanted) {
        let walk = match stopped.journal.walk(number) {
            // Its file is gone; the others are there.
            Err(ReadError::Damaged(damage)) => {
                eprintln!("{damage}");
                damaged += 1;
                continue;
            }
            walk => walk?,
        };
        let Some(walk) = walk else { continue };
        let mut written = Ok(());
        let damage = walk.run(&mut (), &mut |seen| {
            if written.is_ok() {
                written = record(&mut out, arguments.place.json, number, seen);
            }
        })?;
        written?;
        for damage in &damage {
            eprintln!("{damage}");
        }
        damaged += damage.len() as u64;
    }
    out.flush()?;
    if 0 < damaged {
        bail!("{}", counted(damaged, "damaged place"));
    }
    Ok(())
}

fn record(out: &mut impl Write, json: bool, segment: SegmentNumber, seen: &Seen<'_>) -> std::io::Result<()> {
    let (partition, position, group, offset) =
        (seen.partition.0, seen.position.get(), seen.group, seen.offset);
    let bytes = seen.payload.as_ref().ok().map(|payload| payload.len());
    let kind = kind(seen);
    if json {
        let line = serde_json::json!({
            "segment": segment.0, "offset": offset, "group": group, "partition": partition, "position": position,
            "bytes": bytes, "record": kind,
        });
        return writeln!(out, "{line}");
    }
    let bytes = bytes.unwrap_or(0);
    writeln!(
        out,
        "{:016x} {offset:>10} group {group} partition {partition} position {position} {bytes} bytes {kind}",
        segment.0
    )
}

/// The kind of the record, in a word.
fn kind(seen: &Seen<'_>) -> String {
    let Ok(payload) = seen.payload else { return "damaged".to_owned() };
    match decode_record(&Bytes::copy_from_slice(payload)) {
        Ok(command) => {
            let text = format!("{command:?}");
            text.chars().take_while(|letter| letter.is_alphanumeric()).collect()
        }
        Err(error) => format!("not understood: {error}"),
    }
}
