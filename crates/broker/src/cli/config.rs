//! `postroad config`: the reference of all keys, the check of a file, and the translation of
//! configuration files of other brokers.
//!
//! Never here: the translation, which is the room `migrate`; reading Postroad's own file, which is
//! `crate::config`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use postroad_migrate::{Translation, decode};

use crate::config::{Config as Configuration, REFERENCE};

/// A larger file is not a configuration.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Commands for configuration files.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Translate an activemq.xml of ActiveMQ Classic into a configuration file of Postroad.
    Import(ImportArguments),
    /// Print a configuration file with every key, its default, its unit and its meaning.
    Reference,
    /// Check a configuration file of Postroad as `serve` does, without starting a broker.
    Check(CheckArguments),
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Configuration file of Postroad.
    file: PathBuf,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// Configuration file of ActiveMQ, usually conf/activemq.xml.
    file: PathBuf,
    /// New file to write [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Carries it out.
pub fn run(config: &Config) -> anyhow::Result<()> {
    match config {
        Config::Import(arguments) => import(arguments),
        Config::Reference => {
            std::io::stdout().write_all(REFERENCE.as_bytes()).context("cannot write to standard output")
        }
        Config::Check(arguments) => check(&arguments.file),
    }
}

fn check(file: &Path) -> anyhow::Result<()> {
    let config = Configuration::check_file(file)?;
    eprintln!("{} is valid", file.display());
    for bridge in config.bridges()? {
        eprintln!("{bridge}");
    }
    Ok(())
}

fn import(arguments: &ImportArguments) -> anyhow::Result<()> {
    let file = arguments.file.display();
    let bytes = std::fs::metadata(&arguments.file).with_context(|| format!("cannot read {file}"))?.len();
    if bytes > FILE_BYTES_MAX {
        bail!("{file} has {bytes} bytes; a configuration has {FILE_BYTES_MAX} at most");
    }
    let bytes = std::fs::read(&arguments.file).with_context(|| format!("cannot read {file}"))?;
    let text = decode(&bytes).with_context(|| format!("cannot read {file}"))?;
    let translation = translate(&text).with_context(|| format!("in {file}"))?;
    let toml = translation.to_toml(&file.to_string());
    let notes = translation.notes_text(&file.to_string());
    match &arguments.output {
        None => std::io::stdout().write_all(toml.as_bytes()).context("cannot write to standard output")?,
        Some(path) => {
            let mut output = OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(path)
                .with_context(|| format!("cannot make {}", path.display()))?;
            output.write_all(toml.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    eprint!("{notes}");
    Ok(())
}

/// A translation that a broker accepts.
///
/// # Errors
/// The file cannot be translated, or a broker could not start with the result.
fn translate(text: &str) -> anyhow::Result<Translation> {
    let translation = postroad_migrate::translate(text)?;
    let toml = translation.to_toml("it");
    Configuration::check_text(&toml).context("the translated configuration is invalid")?;
    Ok(translation)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sections whose translation has keys of its own, and limits that the broker checks.
    #[test]
    fn a_broker_accepts_translations() {
        let redelivery = |attributes: &str| {
            format!(
                "<plugins><redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry><redeliveryPolicy {attributes}/>
                 </defaultEntry></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin></plugins>"
            )
        };
        let policy = |attributes: &str, inside: &str| {
            format!(
                "<destinationPolicy><policyMap><policyEntries><policyEntry topic='t' {attributes}>{inside}</policyEntry>
                 <policyEntry queue='q' {attributes}>{inside}</policyEntry></policyEntries></policyMap></destinationPolicy>"
            )
        };
        let pending = |inside: &str| {
            policy("", &format!("<pendingMessageLimitStrategy>{inside}</pendingMessageLimitStrategy>"))
        };
        let evicted = |inside: &str| {
            policy("", &format!("<messageEvictionStrategy>{inside}</messageEvictionStrategy>"))
        };
        let link = |attributes: &str| {
            format!(
                "<networkConnectors><networkConnector uri='static:(tcp://a:1)' {attributes}/></networkConnectors>"
            )
        };
        for inside in [
            redelivery(""),
            redelivery("maximumRedeliveries='10' redeliveryDelay='300000'"),
            redelivery("initialRedeliveryDelay='0' redeliveryDelay='5'"),
            redelivery("useExponentialBackOff='true' backOffMultiplier='1.5' maximumRedeliveryDelay='60000'"),
            redelivery("useExponentialBackOff='true' initialRedeliveryDelay='0' redeliveryDelay='7'"),
            pending("<constantPendingMessageLimitStrategy limit='0'/>"),
            pending("<prefetchRatePendingMessageLimitStrategy multiplier='1.25'/>"),
            evicted("<oldestMessageEvictionStrategy/>"),
            evicted("<oldestMessageWithLowestPriorityEvictionStrategy/>"),
            policy("timeBeforeDispatchStarts='200' consumersBeforeDispatchStarts='3'", ""),
            link("prefetchSize='2000000000' networkTTL='3' consumerPriorityBase='-300'"),
            link("prefetchSize='0' userName='link' password='secret'"),
            "<systemUsage><systemUsage><memoryUsage><memoryUsage limit='64 kb'/></memoryUsage>
             <storeUsage><storeUsage limit='1 mb'/></storeUsage></systemUsage></systemUsage>"
                .to_owned(),
        ] {
            let translated = translate(&format!("<broker brokerName='b'>{inside}</broker>"));
            assert!(translated.is_ok(), "{inside}: {translated:?}");
        }
        let example = include_str!("../../../migrate/src/testdata/activemq.xml");
        assert!(translate(example).is_ok());
    }

    #[test]
    fn routes_of_camel_are_routes_of_a_broker() {
        let text = r#"<camelContext><route id="orders"><from uri="activemq:queue:orders"/>
            <setHeader name="key"><simple>${header.region}-x</simple></setHeader>
            <choice><when><simple>${header.n} > 5</simple><to uri="activemq:big"/></when>
            <otherwise><to uri="activemq:small"/></otherwise></choice></route>
            <route id="list"><from uri="broker:queue:list"/><recipientList><header>cc</header></recipientList></route>
            </camelContext>"#;
        let toml = translate(text).unwrap().to_toml("camel.xml");
        let config: Configuration = toml::from_str(&toml).unwrap();
        let routes = config.policies().unwrap().routes;
        let names: Vec<&str> = routes.rules().map(|rule| &*rule.name).collect();
        assert_eq!(names, ["orders", "list"], "{toml}");
    }

    #[test]
    fn a_translation_that_no_broker_accepts_is_refused() {
        let text = "<broker><destinationInterceptors><virtualDestinationInterceptor><virtualDestinations>
            <compositeQueue name='c'><forwardTo><filteredDestination selector='k =' queue='q'/></forwardTo></compositeQueue>
            </virtualDestinations></virtualDestinationInterceptor></destinationInterceptors></broker>";
        let error = translate(text).unwrap_err().to_string();
        assert!(error.contains("the translated configuration is invalid"), "{error}");
    }
}
