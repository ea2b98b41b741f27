//! Embeds the web console, if `console/` has been built: each file as it is, and compressed where
//! the build made that.
//!
//! Without it the crate builds just the same, and serves a page that says how to build the console.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let variable = |name| env::var_os(name).map(PathBuf::from).ok_or(io::ErrorKind::NotFound);
    let (own, out) = (variable("CARGO_MANIFEST_DIR")?, variable("OUT_DIR")?);
    let dist = own.join("../../console/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    let app = dist.join("app");
    if app.is_dir() {
        gather(&app, &mut files)?;
    }
    files.sort();
    let mut text = String::from("const ASSETS: &[Asset] = &[\n");
    for file in files {
        let extension = file.extension().unwrap_or_default();
        if extension == "br" || extension == "gz" {
            continue;
        }
        let name = file.strip_prefix(&app).map_err(io::Error::other)?;
        let name = name.to_string_lossy().replace('\\', "/");
        let etag = fnv(&fs::read(&file)?);
        let compressed = |suffix: &str| {
            let path = with_suffix(&file, suffix);
            match path.is_file() {
                true => format!("Some(include_bytes!({:?}))", path.display().to_string()),
                false => "None".to_owned(),
            }
        };
        let (brotli, gzip) = (compressed(".br"), compressed(".gz"));
        let plain = file.display().to_string();
        let _ = writeln!(
            text,
            "    Asset {{ path: {name:?}, etag: \"\\\"{etag:016x}\\\"\", plain: include_bytes!({plain:?}), \
             brotli: {brotli}, gzip: {gzip} }},"
        );
    }
    text.push_str("];\n");
    fs::write(out.join("console_assets.rs"), text)
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => gather(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// FNV-1a: distinguishes versions of a file.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
