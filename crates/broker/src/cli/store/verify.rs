//! `postroad store verify`: every byte that counts is read; damage is named by file and offset.

use std::io::Write;

use anyhow::bail;
use clap::Args;
use postroad_journal::{Damage, DamageKind, ReadError};

use super::Place;
use crate::cli::words::counted;

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArguments {
    #[command(flatten)]
    place: Place,
}

/// Reads all segments and checkpoints. Damage is printed on standard output, and is an error.
pub fn run(arguments: &VerifyArguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let stopped = arguments.place.open_with_or_without_keys()?;
    let lost = stopped.report.lost.iter().map(|lost| lost.damage.clone());
    let mut places: Vec<Damage> = stopped.report.damaged.iter().cloned().chain(lost).collect();
    let (mut segments, mut records, mut bytes, mut locked) = (0_u64, 0_u64, 0_u64, 0_u64);
    for used in stopped.journal.segments() {
        let walk = match stopped.journal.walk(used.number) {
            // It is among the places already, if anything is missed.
            Err(ReadError::Damaged(_)) => continue,
            walk => walk?,
        };
        let Some(walk) = walk else { continue };
        let found = walk.run(&mut (), &mut |seen| {
            records += 1;
            bytes += u64::from(seen.stored_bytes);
            locked += u64::from(matches!(seen.payload, Err(DamageKind::KeyUnknown { .. })));
        })?;
        segments += 1;
        if let Some(index) = stopped.journal.damaged_index(used.number) {
            let file = index.display().to_string();
            say_line(
                &mut out,
                arguments.place.json,
                &file,
                0,
                None,
                "the index is damaged; it will be rebuilt",
            )?;
        }
        let new = |damage: &Damage| {
            !places.iter().any(|known| (&known.file, known.offset) == (&damage.file, damage.offset))
        };
        let found: Vec<Damage> = found.into_iter().filter(new).collect();
        places.extend(found);
    }
    for damage in &places {
        say(&mut out, arguments.place.json, damage)?;
    }
    for checkpoint in &stopped.report.skipped_checkpoints {
        say_line(
            &mut out,
            arguments.place.json,
            &checkpoint.display().to_string(),
            0,
            None,
            "the checkpoint is damaged; the previous one is used",
        )?;
    }
    let damaged = places.len() + stopped.report.skipped_checkpoints.len();
    let sums = Sums { segments, records, bytes, locked, damaged };
    let torn = stopped.report.torn.as_ref().map(|torn| (torn.file.display().to_string(), torn.offset));
    sum_up(&mut out, arguments.place.json, &sums, torn)?;
    if 0 < damaged {
        let places = counted(damaged as u64, "damaged place");
        bail!("{places} in {}", arguments.place.data.display());
    }
    Ok(())
}

/// The counts.
struct Sums {
    segments: u64,
    records: u64,
    bytes: u64,
    /// Records that are encrypted with a key that was not given.
    locked: u64,
    damaged: usize,
}

fn sum_up(out: &mut impl Write, json: bool, sums: &Sums, torn: Option<(String, u64)>) -> std::io::Result<()> {
    let Sums { segments, records, bytes, locked, damaged } = sums;
    if json {
        let summary = serde_json::json!({
            "segments": segments, "records": records, "payload_bytes": bytes, "damaged": damaged,
            "locked": locked,
            "torn": torn.map(|(file, offset)| serde_json::json!({"file": file, "offset": offset})),
        });
        writeln!(out, "{summary}")?;
    } else {
        if let Some((file, offset)) = torn {
            writeln!(
                out,
                "{file}: byte {offset}: an unconfirmed write ends here; the next start truncates it"
            )?;
        }
        if 0 < *locked {
            writeln!(
                out,
                "{locked} records are encrypted: their checksums are valid; --config checks their content too"
            )?;
        }
        writeln!(
            out,
            "{}, {}, {} of payload: {}",
            counted(*segments, "segment"),
            counted(*records, "record"),
            counted(*bytes, "byte"),
            counted(*damaged as u64, "damaged place"),
        )?;
    }
    Ok(())
}

fn say(out: &mut impl Write, json: bool, damage: &Damage) -> std::io::Result<()> {
    let partition = damage.partition.map(|partition| partition.0);
    say_line(
        out,
        json,
        &damage.file.display().to_string(),
        damage.offset,
        partition,
        &damage.kind.to_string(),
    )
}

fn say_line(
    out: &mut impl Write,
    json: bool,
    file: &str,
    offset: u64,
    partition: Option<u16>,
    what: &str,
) -> std::io::Result<()> {
    if json {
        let line = serde_json::json!({"file": file, "offset": offset, "partition": partition, "what": what});
        return writeln!(out, "{line}");
    }
    let whose = partition.map(|partition| format!(" (partition {partition})")).unwrap_or_default();
    writeln!(out, "{file}: byte {offset}: {what}{whose}")
}
