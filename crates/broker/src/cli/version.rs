//! `postroad version`.

use std::io::Write;

use clap::Args;
use postroad_openwire::codec::VERSION_MAX;

/// Arguments of `version`.
#[derive(Debug, Args)]
pub struct VersionArguments {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Prints the version.
pub fn run(arguments: &VersionArguments) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let mut out = std::io::stdout();
    if arguments.json {
        let object = serde_json::json!({
            "name": "postroad",
            "version": version,
            "openwire_version_max": VERSION_MAX,
        });
        writeln!(out, "{object}")?;
    } else {
        writeln!(out, "postroad {version}")?;
    }
    Ok(())
}
