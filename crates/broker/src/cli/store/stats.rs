//! `postroad store stats`: how much each segment holds, and how much of it is live.

use std::io::Write;

use clap::Args;
use postroad_journal::{ReadError, SegmentUse};

use super::Place;
use crate::cli::words::counted;

/// Arguments of `stats`.
#[derive(Debug, Args)]
pub struct StatsArguments {
    #[command(flatten)]
    place: Place,
}

/// Prints a line for each segment, a line for each queue, and a summary.
pub fn run(arguments: &StatsArguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let stopped = arguments.place.open_with_or_without_keys()?;
    // Without the keys it is unknown which of a message's bytes are live.
    let knows_bytes = !stopped.partitions.is_empty();
    let json = arguments.place.json;
    let (mut file_bytes, mut live_bytes, mut segments, mut missing) = (0, 0, 0, 0);
    if !json {
        writeln!(
            out,
            "{:<34} {:>12} {:>12} {:>10} {:>10} {:>12}",
            "segment", "file bytes", "used", "records", "live", "live bytes"
        )?;
    }
    for mut used in stopped.journal.segments() {
        let is_missing = matches!(stopped.journal.walk(used.number), Err(ReadError::Damaged(_)));
        if is_missing {
            used.file_bytes = 0;
            missing += 1;
        }
        segment(&mut out, json, &used, is_missing, knows_bytes.then_some(used.live_bytes))?;
        (file_bytes, live_bytes, segments) =
            (file_bytes + used.file_bytes, live_bytes + used.live_bytes, segments + 1);
    }
    for (id, partition) in &stopped.partitions {
        for (queue, entries) in partition.queues() {
            if json {
                let line =
                    serde_json::json!({"queue": queue.to_string(), "partition": id.0, "entries": entries});
                writeln!(out, "{line}")?;
            } else {
                writeln!(out, "{queue}: {entries} entries (partition {})", id.0)?;
            }
        }
    }
    for (key, bytes) in stopped.journal.bytes_by_key() {
        let key = key.map(|key| key.to_string());
        if json {
            writeln!(out, "{}", serde_json::json!({"key": key, "payload_bytes": bytes}))?;
        } else {
            let of = key.map_or("no key".to_owned(), |key| format!("key {key}"));
            writeln!(out, "{of}: {bytes} bytes of payload")?;
        }
    }
    if json {
        let summary = serde_json::json!({
            "segments": segments, "missing": missing, "file_bytes": file_bytes,
            "live_bytes": knows_bytes.then_some(live_bytes),
        });
        writeln!(out, "{summary}")?;
        return Ok(());
    }
    let files = match missing {
        0 => format!("{}, {file_bytes} bytes in files", counted(segments, "segment")),
        _ => format!("{} ({missing} missing), {file_bytes} bytes in files", counted(segments, "segment")),
    };
    if knows_bytes {
        writeln!(out, "{files}, {live_bytes} bytes of bodies live")?;
    } else {
        writeln!(
            out,
            "{files}; contents of queues and live bytes are encrypted: give the keys with --config"
        )?;
    }
    Ok(())
}

fn segment(
    out: &mut impl Write,
    json: bool,
    used: &SegmentUse,
    is_missing: bool,
    live_bytes: Option<u64>,
) -> std::io::Result<()> {
    let SegmentUse { number, compacted_from, file_bytes, used_bytes, records, live_messages, .. } = *used;
    let from = compacted_from.map(|first| first.0);
    if json {
        let line = serde_json::json!({
            "segment": number.0, "compacted_from": from, "file_bytes": file_bytes, "used_bytes": used_bytes,
            "records": records, "live_messages": live_messages, "live_bytes": live_bytes, "missing": is_missing,
        });
        return writeln!(out, "{line}");
    }
    let name = match from {
        Some(first) => format!("{:x} (compacted from {first:x})", number.0),
        None => format!("{:x}", number.0),
    };
    let file_bytes = if is_missing { "missing".to_owned() } else { file_bytes.to_string() };
    let live_bytes = live_bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
    writeln!(
        out,
        "{name:<34} {file_bytes:>12} {used_bytes:>12} {records:>10} {live_messages:>10} {live_bytes:>12}"
    )
}
