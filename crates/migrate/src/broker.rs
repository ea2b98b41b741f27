//! The broker element: its name, limits, connectors, and further children.

use super::access::Access;
use super::element::Element;
use super::translation::Translation;
use super::{addresses, network, policies};

/// Attributes of the broker that need no key, or have none; an empty reason says that nothing need
/// be said.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("start", ""),
    ("useShutdownHook", ""),
    ("useJmx", "not needed: the admin API and metrics take the place of JMX"),
    ("dataDirectory", "Postroad does not read ActiveMQ's store: let consumers drain it before you switch"),
    (
        "persistent",
        "persistent messages go to disk: for memory only, set durability = \"memory\" in a [[policy]]",
    ),
    ("schedulerSupport", "not needed: always on"),
    ("advisorySupport", "not translated: see docs/features/advisories.md for what is published"),
    ("deleteAllMessagesOnStartup", "not translated: remove the data directory before a start instead"),
    ("populateJMSXUserID", "not translated: JMSXUserID is not set"),
    ("useAuthenticatedPrincipalForJMSXUserID", "not translated: JMSXUserID is not set"),
    ("keepDurableSubsActive", "not needed: always so"),
    (
        "enableMessageExpirationOnActiveDurableSubs",
        "not needed: expired messages are removed within a second",
    ),
    ("rejectDurableConsumers", "not translated: grant no create on the topics in [[security.permission]]"),
    ("maxPurgedDestinationsPerSweep", "not translated: idle queues are kept"),
    ("timeBeforePurgeTempDestinations", "not needed: a temporary destination ends with its connection"),
    ("cacheTempDestinations", "not needed: a temporary destination ends with its connection"),
    ("maxUncommittedCount", "not translated: limits.transaction_bytes bounds a transaction"),
    ("maxSchedulerRepeatAllowed", "not translated"),
    ("maxInflatedDataSize", "not translated: openwire.max_frame_bytes bounds a message"),
    ("adjustUsageLimits", "not needed: memory_bytes and store.disk_bytes_max count as they are"),
    ("schedulePeriodForDiskUsageCheck", "not needed: the disk is watched"),
    ("diskUsageCheckRegrowThreshold", "not needed: the disk is watched"),
    ("schedulerDirectory", "not needed: schedules are in the store"),
    ("schedulerDirectoryFile", "not needed: schedules are in the store"),
    ("tmpDataDirectory", "not needed: there is one data directory"),
    ("enableStatistics", "not needed: statistics are always on"),
    ("useTempMirroredQueues", "not translated"),
    ("useVirtualDestSubsOnCreation", ""),
    ("anonymousProducerAdvisorySupport", "not translated: see docs/features/advisories.md"),
    ("rollbackOnlyOnAsyncException", ""),
    ("storeOpenWireVersion", ""),
    ("dedicatedTaskRunner", ""),
    ("taskRunnerPriority", ""),
    ("virtualThreadTaskRunner", ""),
    ("persistenceThreadPriority", ""),
    ("startAsync", ""),
    ("systemExitOnShutdown", ""),
    ("systemExitOnShutdownExitCode", ""),
    ("useLocalHostBrokerName", "not translated: set broker_name"),
    ("useLoggingForShutdownErrors", ""),
    ("monitorConnectionSplits", ""),
    ("populateUserNameInMBeans", ""),
    ("mbeanInvocationTimeout", ""),
    ("brokerObjectName", ""),
    ("brokerId", ""),
    ("vmConnectorURI", "not needed: no client runs inside the broker's process"),
    ("passiveSlave", CLUSTER),
    ("waitForSlave", CLUSTER),
    ("waitForSlaveTimeout", CLUSTER),
    ("shutdownOnMasterFailure", CLUSTER),
    ("shutdownOnSlaveFailure", CLUSTER),
    ("splitSystemUsageForProducersConsumers", "memory is one budget, memory_bytes"),
    ("schedulePeriodForDestinationPurge", "not translated: idle queues are kept"),
    (
        "allowTempAutoCreationOnSend",
        "not translated: a temporary destination exists until its connection ends",
    ),
    ("restartAllowed", ""),
    ("networkConnectorStartAsync", ""),
    ("consumerSystemUsagePortion", ""),
    ("producerSystemUsagePortion", ""),
];

const CLUSTER: &str = "not translated: docs/features/cluster.md has replication";

const SPREAD: &str =
    "not translated: set openwire.published_url, update_clients and rebalance_clients by hand";

/// Files of the broker's certificate and key, in PEM form.
const CERTIFICATE: &str = "broker.pem";
const KEY: &str = "broker-key.pem";

/// Elements that need no key, or have none.
const ELEMENTS: &[(&str, &str)] = &[
    ("managementContext", "not needed: the admin API and metrics take the place of JMX"),
    (
        "persistenceAdapter",
        "Postroad does not read ActiveMQ's store: let consumers drain it before you switch",
    ),
    ("persistenceFactory", "Postroad has a journal of its own"),
    ("jmsBridgeConnectors", "not translated: a [[bridge]] speaks OpenWire only"),
    (
        "sslContext",
        "its Java key stores are not read: convert them to PEM files, see docs/guides/from-activemq.md",
    ),
    ("proxyConnectors", "not translated: Postroad has no proxy"),
    ("jobSchedulerStore", "not needed: schedules are in the store"),
    ("taskRunnerFactory", "not needed: Postroad has threads of its own"),
    ("persistenceTaskRunnerFactory", "not needed: Postroad has threads of its own"),
    ("transportConnectorURIs", "not translated: write <transportConnector> elements"),
    ("networkConnectorURIs", "not translated: write <networkConnector> elements"),
    ("shutdownHooks", "not needed: they belong to ActiveMQ's process"),
    ("ioExceptionHandler", "not needed: after a failed write the broker recovers by itself"),
    ("services", "not translated: Postroad runs no Java plugins"),
    ("destinations", "not needed: queues and topics are created at first use"),
    ("tempDataStore", "not needed: there is no second store"),
    ("messageAuthorizationPolicy", "not translated: Postroad runs no Java plugins"),
];

/// The whole element.
pub fn translate(broker: &Element<'_>, translation: &mut Translation) {
    if let Some(name) = broker.value("brokerName", translation) {
        translation.set("", "broker_name", name, broker);
    }
    let mut mirrors = broker.flag("useMirroredQueues", translation) == Some(true);
    let virtual_topics = broker.flag("useVirtualTopics", translation) != Some(false);
    offline_subscriptions(broker, translation);
    broker.note_the_rest(ATTRIBUTES, translation);
    let mut rules = policies::Rules::default();
    let (mut intercepts, mut unguarded) = (false, false);
    for child in broker.children() {
        match child.name() {
            "destinationPolicy" => rules.read_policies(&child, translation),
            "plugins" => unguarded |= plugins(&child, &mut rules, translation),
            "destinationInterceptors" => {
                intercepts = true;
                mirrors |= addresses::translate(&child, translation);
            }
            "systemUsage" => usage(&child, translation),
            "transportConnectors" => connectors(&child, translation),
            "networkConnectors" => network::translate(&child, translation),
            "persistenceAdapter" if child.child("mKahaDB").is_some() => {
                translation.note(&child, "not translated: docs/features/stores.md has several stores");
            }
            name => match ELEMENTS.iter().find(|(known, _)| *known == name) {
                Some((_, why)) => translation.note(&child, why),
                None => translation.note(&child, "is unknown"),
            },
        }
    }
    if !translation.has("ports", "amqp") {
        translation.note(
            broker,
            "has no AMQP connector that could be translated: Postroad listens on ports.amqp nevertheless",
        );
    }
    if translation.has("ports", "openwire_tls") || translation.has("ports", "amqp_tls") {
        translation.set("tls", "certificate", CERTIFICATE, broker);
        translation.set("tls", "key", KEY, broker);
        let why = format!("for the TLS ports make {CERTIFICATE} and {KEY}, see docs/guides/from-activemq.md");
        translation.note(broker, &why);
    }
    if unguarded {
        translation.unset("", "bind");
        translation.note(broker, "bind stays 127.0.0.1, because users and permissions are not translated: configure them (docs/guides/from-activemq.md), then set bind");
    }
    let is_local = translation.is("", "bind", "127.0.0.1") || translation.is("", "bind", "::1");
    if translation.has("", "bind") && !is_local && !translation.has("security", "users") {
        translation.set("security", "anonymous", true, broker);
        let right =
            "every client of the network is let in, as without plug-ins in ActiveMQ: set security.users";
        translation.note(broker, right);
    }
    if mirrors {
        translation.set("mirrored_queues", "queues", ">", broker);
    }
    // ActiveMQ has its own rule for virtual topics only where the file has no interceptors.
    if !translation.has_table("virtual_topic") && (intercepts || !virtual_topics) {
        translation.set("", "virtual_topic", super::translation::Value::list([]), broker);
    }
    rules.write(translation);
}

/// When durable subscriptions without a reader end. ActiveMQ looks for them at intervals; without
/// an interval they stay.
fn offline_subscriptions(broker: &Element<'_>, translation: &mut Translation) {
    let limit_ms = broker.number("offlineDurableSubscriberTimeout", translation);
    let interval_ms = broker.number("offlineDurableSubscriberTaskSchedule", translation);
    match (limit_ms, interval_ms) {
        (None | Some(-1), Some(_)) => {
            translation.note(broker, "offlineDurableSubscriberTaskSchedule has no effect without a time-out");
        }
        (Some(1..), Some(-1)) => {
            let why = "offlineDurableSubscriberTaskSchedule=\"-1\" switches the time-out off: not translated";
            translation.note(broker, why);
        }
        (Some(limit_ms @ 1..), _) => {
            translation.set("limits", "offline_subscription_ms", limit_ms, broker);
        }
        (None | Some(-1), None) => {}
        (Some(_), _) => {
            let why = "offlineDurableSubscriberTimeout is not translated: limits.offline_subscription_ms is 1 or more";
            translation.note(broker, why);
        }
    }
}

/// Login modules of ActiveMQ's `login.config`, and what takes their place.
const LOGIN_MODULES: [(&str, &str); 3] = [
    ("PropertiesLoginModule", "create users with postroad user add, and set security.users to their file"),
    ("LDAPLoginModule", "[security.ldap] has its options, see docs/guides/from-activemq.md"),
    ("TextFileCertificateLoginModule", "each line of its users file is a [[security.certificate]]"),
];

/// Whether one of them keeps out those who may not come in.
fn plugins(plugins: &Element<'_>, rules: &mut policies::Rules, translation: &mut Translation) -> bool {
    let (mut guards, mut access) = (false, Access::default());
    for plugin in plugins.children() {
        match plugin.name() {
            "redeliveryPlugin" => rules.read_redelivery(&plugin, translation),
            "discardingDLQBrokerPlugin" => discarding(&plugin, translation),
            "timeStampingBrokerPlugin" => rules.read_time_to_live(&plugin, translation),
            "simpleAuthenticationPlugin" => access.read_users(&plugin, translation),
            "authorizationPlugin" => access.read_permissions(&plugin, translation),
            "jaasAuthenticationPlugin"
            | "jaasCertificateAuthenticationPlugin"
            | "jaasDualAuthenticationPlugin" => {
                guards = true;
                for (module, how) in LOGIN_MODULES {
                    translation.note(&plugin, &format!("translate by hand: {module} of login.config: {how}"));
                }
            }
            "statisticsBrokerPlugin" => {
                let why =
                    "not translated: ActiveMQ.Statistics.* does not answer; use metrics or the admin API";
                translation.note(&plugin, why);
            }
            "loggingBrokerPlugin" | "traceBrokerPathPlugin" => {
                translation.note(&plugin, "not translated: it only logs");
            }
            _ => translation.note(&plugin, "not translated: Postroad runs no Java plugins"),
        }
    }
    access.write(translation);
    guards
}

fn discarding(plugin: &Element<'_>, translation: &mut Translation) {
    if plugin.flag("dropAll", translation) != Some(false) && plugin.value("dropOnly", translation).is_none() {
        translation.set("", "dead_letter_queue", "", plugin);
    }
    let why = "not translated: dead_letter_queue = \"\" in a [[policy]] of these destinations discards their dead letters";
    plugin.note_the_rest(
        &[
            ("dropOnly", why),
            ("dropTemporaryQueues", why),
            ("dropTemporaryTopics", why),
            ("reportInterval", ""),
        ],
        translation,
    );
}

/// `<systemUsage><systemUsage><memoryUsage><memoryUsage …/>`: names are said twice.
fn usage(outer: &Element<'_>, translation: &mut Translation) {
    let Some(usage) = outer.child("systemUsage") else {
        return translation.note(outer, "contains no <systemUsage>");
    };
    let why = "not translated: a full store refuses persistent messages with an exception at once, and memory makes producers wait";
    usage.note_the_rest(&[("sendFailIfNoSpace", why), ("sendFailIfNoSpaceAfterTimeout", why)], translation);
    for kind in usage.children() {
        let Some(limit) = kind.child(kind.name()) else {
            translation.note(&kind, "contains no element of its own name");
            continue;
        };
        match kind.name() {
            "memoryUsage" => {
                if let Some(bytes) = limit.bytes("limit", translation) {
                    let bytes = at_least(bytes, MEMORY_BYTES_MIN, &limit, translation);
                    translation.set("", "memory_bytes", bytes, &limit);
                }
            }
            "storeUsage" => {
                if let Some(bytes) = limit.bytes("limit", translation) {
                    let bytes = at_least(bytes, DISK_BYTES_MIN, &limit, translation);
                    translation.set("store", "disk_bytes_max", bytes, &limit);
                }
            }
            "tempUsage" | "jobSchedulerUsage" => {
                translation.note(&limit, "not needed: there is one store, bounded by store.disk_bytes_max");
                continue;
            }
            _ => translation.note(&limit, "is unknown"),
        }
        let percent =
            "not translated: the default is a quarter of the machine's memory; set memory_bytes to change it";
        let of_disk = "not translated: set store.disk_bytes_max";
        limit.note_the_rest(
            &[
                ("percentOfJvmHeap", percent),
                ("percentLimit", of_disk),
                ("total", of_disk),
                ("store", ""),
                ("name", ""),
            ],
            translation,
        );
    }
}

/// The smallest memory_bytes.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// The smallest store.disk_bytes_max.
const DISK_BYTES_MIN: u64 = 256 << 20;

/// The limit, raised to the smallest that there is, which is noted.
fn at_least(bytes: u64, least: u64, limit: &Element<'_>, translation: &mut Translation) -> u64 {
    if bytes < least {
        translation.note(limit, &format!("limit of {bytes} bytes is raised to the minimum of {least}"));
    }
    bytes.max(least)
}

fn connectors(connectors: &Element<'_>, translation: &mut Translation) {
    for connector in connectors.children() {
        let Some(uri) = connector.value("uri", translation) else {
            translation.note(&connector, "not translated: its uri is missing or invalid");
            continue;
        };
        connector.note_the_rest(
            &[
                ("name", ""),
                ("updateClusterClients", SPREAD),
                ("updateClusterClientsOnRemove", SPREAD),
                ("updateClusterFilter", SPREAD),
                ("rebalanceClusterClients", SPREAD),
            ],
            translation,
        );
        connect(&connector, uri, translation);
    }
}

/// `tcp://0.0.0.0:61616?maximumConnections=1000&wireFormat.maxFrameSize=104857600`
fn connect(connector: &Element<'_>, uri: &str, translation: &mut Translation) {
    let (address, options) = uri.split_once('?').unwrap_or((uri, ""));
    let Some((scheme, place)) = address.split_once("://") else {
        return translation.note(connector, &format!("not translated: {uri} has no scheme"));
    };
    let (section, key) = match scheme {
        "tcp" | "nio" | "auto" | "auto+nio" => ("openwire", "openwire"),
        "amqp" | "amqp+nio" => ("amqp", "amqp"),
        "ssl" | "nio+ssl" | "auto+ssl" | "auto+nio+ssl" => ("openwire", "openwire_tls"),
        "amqp+ssl" | "amqp+nio+ssl" => ("amqp", "amqp_tls"),
        "vm" => {
            return translation.note(connector, "not needed: no client runs inside the broker's process");
        }
        _ => {
            let text =
                format!("not translated: {scheme}://; see docs/postroad.toml for the supported protocols");
            return translation.note(connector, &text);
        }
    };
    let Some((host, port)) = place.trim_end_matches('/').rsplit_once(':') else {
        return translation.note(connector, &format!("not translated: {uri} has no port"));
    };
    match port.parse::<u16>() {
        Ok(port) => translation.set("ports", key, u64::from(port), connector),
        Err(_) => return translation.note(connector, &format!("not translated: {port} is not a port")),
    }
    let host = host.trim_matches(['[', ']']);
    match host.parse::<core::net::IpAddr>() {
        Ok(ip) => translation.set("", "bind", ip.to_string().as_str(), connector),
        Err(_) if host == "localhost" => translation.set("", "bind", "127.0.0.1", connector),
        Err(_) => translation
            .note(connector, &format!("bind needs an IP address, not the host name {host}: set it by hand")),
    }
    for option in options.split('&').filter(|option| !option.is_empty()) {
        connector_option(connector, section, option, translation);
    }
}

/// The number, brought into the range that there is, which is noted.
fn within(
    option: &str,
    number: u64,
    range: std::ops::RangeInclusive<u64>,
    connector: &Element<'_>,
    translation: &mut Translation,
) -> u64 {
    let found = number.clamp(*range.start(), *range.end());
    if found != number {
        translation.note(connector, &format!("{option}: {found} is the closest setting"));
    }
    found
}

/// Certificates that clients show, for all TLS ports.
fn client_certificates(clients: &str, option: &str, connector: &Element<'_>, translation: &mut Translation) {
    translation.set("tls", "clients", clients, connector);
    translation.set("tls", "client_authorities", network::TRUST, connector);
    let how = format!("export the authorities of client certificates to {}", network::TRUST);
    translation.note(connector, &format!("{option}: {how}"));
}

fn connector_option(
    connector: &Element<'_>,
    section: &'static str,
    option: &str,
    translation: &mut Translation,
) {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let number = value.parse::<u64>().ok();
    match (name, section, number) {
        ("wireFormat.maxFrameSize", "openwire", Some(bytes)) => {
            let bytes = within(option, bytes, 1024..=i32::MAX as u64, connector, translation);
            translation.set("openwire", "max_frame_bytes", bytes, connector);
        }
        ("wireFormat.maxFrameSize", "amqp", Some(bytes)) => {
            let bytes = within(option, bytes, 1024..=3 << 30, connector, translation);
            translation.set("amqp", "max_message_bytes", bytes, connector);
        }
        ("wireFormat.maxInactivityDuration" | "transport.wireFormat.idleTimeout", _, Some(ms)) => {
            translation.set(section, "max_inactivity_ms", ms, connector);
        }
        ("wireFormat.tightEncodingEnabled", "openwire", None) if value == "true" => {
            translation.set("openwire", "tight_encoding", true, connector);
        }
        ("wireFormat.cacheEnabled", "openwire", None) if value == "true" => {
            translation.set("openwire", "cache", true, connector);
        }
        ("maximumConnections", ..) => {
            translation.note(
                connector,
                &format!("{option}: not translated: the limit on open files bounds connections"),
            );
        }
        ("needClientAuth" | "transport.needClientAuth", ..) if value == "true" => {
            client_certificates("required", option, connector, translation);
        }
        ("wantClientAuth" | "transport.wantClientAuth", ..) if value == "true" => {
            client_certificates("optional", option, connector, translation);
        }
        ("transport.enabledProtocols" | "transport.enabledCipherSuites", ..) => {
            translation.note(connector, &format!("{option}: not needed: TLS 1.2 and 1.3 with safe ciphers"));
        }
        _ => translation.note(connector, &format!("{option}: not translated")),
    }
}
