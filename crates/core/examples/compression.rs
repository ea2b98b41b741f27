//! Gain and cost of each compression of bodies: `cargo run --release -p postroad-core --example
//! compression`. Records are written and read as the broker does, one thread, no disk.
#![allow(clippy::print_stdout, reason = "a measuring tool")]

use std::fmt::Write as _;
use std::time::Instant;

use bytes::Bytes;
use postroad_core::{decode_record, encode_record};
use postroad_model::{Command, Compression, Destination, Encoding, Message, NORMAL_PRIORITY, Protocol, Sent};

/// Bodies of each kind, so that no two measured one after the other are alike.
const BODIES: usize = 64;

/// The best of this many runs, because the machine has other load.
const ROUNDS: usize = 50;

/// A sequence without a pattern, and always the same.
struct Noise(u64);

impl Noise {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }
}

const COLOURS: [&str; 6] = ["red", "green", "blue", "anthracite", "white", "silver"];
const CITIES: [&str; 8] = ["Rotterdam", "Lyon", "Turin", "Kraków", "Bergen", "Porto", "Graz", "Cork"];

fn xml(noise: &mut Noise, bytes: usize) -> String {
    let mut body = format!("<?xml version=\"1.0\"?><order id=\"{}\">", noise.below(u64::MAX));
    while body.len() < bytes {
        let (number, amount, price) = (noise.below(1_000_000), noise.below(90), noise.below(100_000));
        let (colour, city) = (noise.of(&COLOURS), noise.of(&CITIES));
        let _ = write!(
            body,
            "<line><article>{number:06}</article><amount>{amount}</amount><colour>{colour}</colour><price>{price}</price><from>{city}</from></line>"
        );
    }
    body + "</order>"
}

fn json(noise: &mut Noise, bytes: usize) -> String {
    let mut body = format!("{{\"trace\":\"{:016x}\",\"events\":[", noise.below(u64::MAX));
    while body.len() < bytes {
        let (at, user, took) =
            (1_790_000_000_000 + noise.below(100_000_000), noise.below(50_000), noise.below(900));
        let _ = write!(
            body,
            "{{\"at\":{at},\"user\":\"u{user}\",\"city\":\"{}\",\"took_ms\":{took}}},",
            noise.of(&CITIES)
        );
    }
    body + "{}]}"
}

/// Microseconds that one body takes, the best of all rounds.
fn micros(mut all: impl FnMut()) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let begin = Instant::now();
        all();
        begin.elapsed().as_secs_f64()
    });
    rounds.fold(f64::MAX, f64::min) * 1e6 / BODIES as f64
}

fn main() {
    println!("{:<14} {:>6} {:>7} {:>10} {:>9}", "bodies", "way", "share", "write µs", "read µs");
    let mut noise = Noise(1);
    for (name, make) in [("XML", xml as fn(&mut Noise, usize) -> String), ("JSON", json)] {
        for kib in [1, 4, 16] {
            let bodies: Vec<Command> = (0..BODIES)
                .map(|_| {
                    let message = Message {
                        encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
                        persistent: true,
                        priority: NORMAL_PRIORITY,
                        expires_at_ms: 0,
                        rare: None,
                        bytes: make(&mut noise, kib << 10).into(),
                    };
                    Command::Enqueue(Sent::new(Destination::queue("orders"), message))
                })
                .collect();
            let written = |compression| -> Vec<Bytes> {
                bodies.iter().map(|body| encode_record(body, compression).concat().into()).collect()
            };
            let plain: usize = written(Compression::None).iter().map(Bytes::len).sum();
            for (way, compression) in
                [("none", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)]
            {
                let records = written(compression);
                let share = records.iter().map(Bytes::len).sum::<usize>() as f64 / plain as f64;
                let write = micros(|| drop(std::hint::black_box(written(compression))));
                let read = micros(|| {
                    for record in &records {
                        std::hint::black_box(decode_record(record)).expect("it was just written");
                    }
                });
                println!(
                    "{:<14} {way:>6} {share:>7.2} {write:>10.2} {read:>9.2}",
                    format!("{name}, {kib} KiB")
                );
            }
        }
    }
}
