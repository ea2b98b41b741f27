//! Lock files name the public registries only: a mirror that one machine uses would bind every
//! contributor to it.

use super::{Fault, Repository};

const CRATES: &str = "registry+https://github.com/rust-lang/crates.io-index";
const NPM: &str = "https://registry.npmjs.org/";

pub fn check(repository: &Repository) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in repository.texts() {
        let (key, registry) = match path.rsplit('/').next() {
            Some("Cargo.lock") => ("source = \"", CRATES),
            Some("package-lock.json") => ("\"resolved\": \"", NPM),
            _ => continue,
        };
        for (index, line) in text.lines().enumerate() {
            let source = line.trim().strip_prefix(key).and_then(|rest| rest.split('"').next());
            if source.is_some_and(|source| !source.starts_with(registry)) {
                let right = format!("lock against {registry}");
                faults.push(Fault::new(path, index + 1, "this is not the public registry", right));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_registries_are_locked() {
        let public = format!("name = \"a\"\nsource = \"{CRATES}\"\n");
        for (name, path, text, want) in [
            ("crates.io", "Cargo.lock", public.as_str(), None),
            (
                "another index",
                "fuzz/Cargo.lock",
                "name = \"a\"\nsource = \"sparse+https://crates.example/\"\n",
                Some(2),
            ),
            ("git", "Cargo.lock", "source = \"git+https://git.example/a\"\n", Some(1)),
            (
                "npm",
                "console/package-lock.json",
                "  \"resolved\": \"https://registry.npmjs.org/a.tgz\",\n",
                None,
            ),
            (
                "npm mirror",
                "console/package-lock.json",
                "\"resolved\": \"https://npm.example/a.tgz\",\n",
                Some(1),
            ),
            ("another file", "docs/a.md", "source = \"x\"\n", None),
        ] {
            let faults = check(&Repository::of(&[(path, text)]));
            assert_eq!(faults.first().map(|fault| fault.line), want, "case: {name}");
        }
    }
}
