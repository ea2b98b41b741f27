//! Migrate room: configurations of other brokers, translated into one of Postroad.
//!
//! In: the bytes of ActiveMQ's `activemq.xml` or of a `camel.xml`.
//! Out: TOML, and a list of the parts that are not translated. Each attribute and element ends in one of three ways: a key of Postroad, a note that
//! it is not needed, or a note that it is not translated and why.
//! Never here: files, and the check that a broker accepts the result, which is the caller's.
//! Start at [`translate`].

mod access;
mod addresses;
mod broker;
mod camel;
mod element;
mod error;
mod error_handler;
mod network;
mod policies;
mod text;
mod translation;

pub use error::MigrateError;
pub use text::decode;
pub use translation::Translation;

use element::Element;

/// No configuration has more elements and texts; entities could make many of few bytes.
const NODES_MAX: u32 = 1 << 20;

/// Translates the text of an `activemq.xml`, or of a `camel.xml` with routes alone.
///
/// # Errors
/// The text is not XML, has no `broker` element, or configures something that Postroad cannot do.
pub fn translate(text: &str) -> Result<Translation, MigrateError> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, nodes_limit: NODES_MAX, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(text, options).map_err(MigrateError::NotXml)?;
    let named = |node: &roxmltree::Node| node.is_element() && node.tag_name().name() == "broker";
    let mut translation = Translation::default();
    let is_camel = |node: &roxmltree::Node| {
        node.is_element() && ["camelContext", "routes"].contains(&node.tag_name().name())
    };
    // One inside of the other is a part of it.
    let is_outermost = |node: &roxmltree::Node| !node.ancestors().skip(1).any(|outer| is_camel(&outer));
    for context in document.descendants().filter(is_camel).filter(is_outermost) {
        camel::translate(&Element::new(context), &mut translation);
    }
    let Some(node) = document.descendants().find(named) else {
        if document.descendants().any(|node| is_camel(&node)) {
            return Ok(translation);
        }
        return Err(MigrateError::NoBroker);
    };
    let root = Some(document.root_element()).filter(|root| *root != node);
    let beside = root.iter().flat_map(roxmltree::Node::children);
    for outside in beside.filter(|other| other.is_element() && *other != node && !is_camel(other)) {
        let is_of_camel = outside.attribute("class").is_some_and(error_handler::is_bean);
        if !is_of_camel && !outside.descendants().any(|inner| inner == node) {
            let element = Element::new(outside);
            translation
                .note(&element, "is outside <broker>: Postroad has no beans and resolves no placeholders");
        }
    }
    broker::translate(&Element::new(node), &mut translation);
    let refusals = translation.refusals();
    if !refusals.is_empty() {
        return Err(MigrateError::Refused(refusals));
    }
    Ok(translation)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the shape of the file that ActiveMQ comes with, and of its examples, in words of our own.
    const BROKER: &str = include_str!("testdata/activemq.xml");

    #[test]
    fn a_whole_file_becomes_a_configuration_and_the_rest_is_named_by_line() {
        let translation = translate(BROKER).unwrap();
        let name = "activemq.xml";
        let translated = format!("{}----\n{}", translation.to_toml(name), translation.notes_text(name));
        assert_eq!(translated, include_str!("testdata/translated.txt"));
    }

    #[test]
    fn routes_of_camel_become_routes_or_are_left_out_with_the_step() {
        let text = r#"<camelContext><route id="orders"><from uri="activemq:queue:orders"/>
            <setHeader name="stage"><constant>2</constant></setHeader>
            <setHeader name="key"><simple>${header.region}-x</simple></setHeader>
            <filter><simple>${header.region} == 'eu'</simple><to uri="activemq:queue:eu"/></filter>
            <wireTap uri="activemq:topic:seen"/>
            <choice><when><simple>${header.n} > 5</simple><to uri="activemq:big"/></when>
            <otherwise><to uri="activemq:small"/></otherwise></choice></route>
            <route id="list"><from uri="broker:queue:list"/><recipientList><header>cc</header></recipientList></route>
            <route id="java"><from uri="activemq:queue:j"/><bean ref="b"/><to uri="activemq:queue:k"/></route>
            </camelContext>"#;
        let translation = translate(text).unwrap();
        let config: toml::Table = toml::from_str(&translation.to_toml("camel.xml")).unwrap();
        let routes = config["route"].as_array().unwrap();
        let names: Vec<&str> = routes.iter().filter_map(|route| route["name"].as_str()).collect();
        assert_eq!(names, ["orders-1", "orders-2", "list"]);
        let toml = translation.to_toml("camel.xml");
        for want in [
            "{ destination = \"queue://eu\", selector = \"region = 'eu'\", set = { \"stage\" = \"2\", \"key\" = \"${region}-x\" } }",
            "distribute = \"first\"",
            "otherwise = [{ destination = \"queue://small\"",
            "recipients = \"cc\"",
        ] {
            assert!(toml.contains(want), "{want}\n{toml}");
        }
        let notes = translation.notes_text("camel.xml");
        assert!(notes.contains("camel.xml:9: <bean> not translated"), "{notes}");
        assert!(notes.contains("the route java is left out"), "{notes}");
        // The first route has an otherwise; the list may be empty.
        let stays = "a message that no target matches stays";
        assert_eq!(notes.matches(stays).count(), 1, "{notes}");
    }

    #[test]
    fn what_is_no_broker_is_refused_with_the_reason() {
        for (case, text, want) in [
            ("no XML", "broker = 1", "no XML"),
            ("cut off", "<broker><a></broker>", "no XML"),
            ("no broker", "<beans/>", "no <broker> element"),
            ("entities in a circle", "<!DOCTYPE a [<!ENTITY b '&c;'><!ENTITY c '&b;'>]><broker>&b;</broker>", "no XML"),
            (
                "a factor that would be rounded",
                "<broker><plugins><redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry>
                 <redeliveryPolicy useExponentialBackOff='true' backOffMultiplier='1.23456'/>
                 </defaultEntry></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin></plugins></broker>",
                "line 2: <redeliveryPolicy> backOffMultiplier=\"1.23456\"",
            ),
        ] {
            let error = translate(text).unwrap_err().to_string();
            assert!(error.contains(want), "{case}: {error}");
        }
    }

    #[test]
    fn redelivery_delays_stay_what_they_are() {
        for (attributes, want) in [
            (
                "maximumRedeliveries='10' redeliveryDelay='300000'",
                "redelivery_delay_ms = 1000\nredelivery_delay_next_ms = 300000\nredelivery_multiplier = 1\n",
            ),
            ("", "redelivery_delay_ms = 1000\nredelivery_multiplier = 1\n"),
            (
                "initialRedeliveryDelay='0' redeliveryDelay='5'",
                "redelivery_delay_ms = 0\nredelivery_delay_next_ms = 5\nredelivery_multiplier = 1\n",
            ),
            (
                "useExponentialBackOff='true' backOffMultiplier='1.5' maximumRedeliveryDelay='60000'",
                "redelivery_delay_ms = 1000\nredelivery_multiplier = 1.5\nredelivery_delay_max_ms = 60000\n",
            ),
            (
                "useExponentialBackOff='true' initialRedeliveryDelay='0' redeliveryDelay='7'",
                "redelivery_delay_ms = 0\nredelivery_delay_next_ms = 7\nredelivery_multiplier = 5\n",
            ),
            (
                "useExponentialBackOff='true' backOffMultiplier='1'",
                "redelivery_delay_ms = 1000\nredelivery_multiplier = 1\n",
            ),
        ] {
            let text = toml(&format!(
                "<plugins><redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry><redeliveryPolicy {attributes}/>
                 </defaultEntry></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin></plugins>"
            ));
            assert!(text.contains(want), "{attributes}: {text}");
            toml::from_str::<toml::Table>(&text).expect("a configuration");
        }
    }

    #[test]
    fn directories_and_certificates_are_named_without_their_passwords() {
        let notes = translate(
            "<broker><plugins><jaasAuthenticationPlugin configuration='activemq'/><authorizationPlugin><map>
             <cachedLDAPAuthorizationMap connectionURL='ldap://d:389' connectionPassword='hush' refreshInterval='300000'
             queueSearchBase='ou=Queue,ou=ActiveMQ,dc=example'/></map></authorizationPlugin></plugins></broker>",
        );
        let notes = notes.unwrap().notes_text("f");
        for note in [
            "LDAPLoginModule of login.config: [security.ldap] has its options",
            "TextFileCertificateLoginModule of login.config: each line",
            "write each permission of the directory as a [[security.permission]]",
            "connectionURL=\"ldap://d:389\": as security.ldap.urls",
            "queueSearchBase=\"ou=Queue,ou=ActiveMQ,dc=example\": its entries name queues and groups",
        ] {
            assert!(notes.contains(note), "{note}: {notes}");
        }
        assert!(!notes.contains("hush") && !notes.contains("is unknown"), "{notes}");
    }

    #[test]
    fn the_time_out_of_durable_subscriptions_is_translated() {
        for (attributes, key, note) in [
            ("", "", ""),
            ("Timeout='-1'", "", ""),
            ("Timeout='864000000'", "offline_subscription_ms = 864000000", ""),
            ("Timeout='5000' {}TaskSchedule='1000'", "offline_subscription_ms = 5000", ""),
            ("Timeout='5000' {}TaskSchedule='-1'", "", "switches the time-out off"),
            ("TaskSchedule='1000'", "", "no effect"),
            ("Timeout='0'", "", "1 or more"),
            ("Timeout='soon'", "", "not a whole number"),
        ] {
            let name = "offlineDurableSubscriber";
            let attributes = match attributes {
                "" => String::new(),
                some => format!("{name}{}", some.replace("{}", name)),
            };
            let translation = translate(&format!("<broker brokerName='b' {attributes}/>")).unwrap();
            let (toml, notes) = (translation.to_toml("f"), translation.notes_text("f"));
            let has_key = toml.contains("offline_subscription_ms");
            assert!(toml.contains(key) && has_key != key.is_empty(), "{attributes}: {toml}");
            let is_noted = notes.contains(name);
            assert!(notes.contains(note) && is_noted != note.is_empty(), "{attributes}: {notes}");
        }
    }

    #[test]
    fn a_broker_that_is_the_root_has_nothing_beside_it() {
        let text = "<!DOCTYPE broker [<!ENTITY name 'b'>]>\n<broker xmlns='http://activemq.apache.org/schema/core' brokerName='&name;'>
                    <destinationPolicy><policyMap><policyEntries><policyEntry queue='q.%zone%' allConsumersExclusiveByDefault='true'/>
                    <policyEntry queue='q' allConsumersExclusiveByDefault='true'/></policyEntries></policyMap></destinationPolicy>
                    <systemUsage><systemUsage><memoryUsage><memoryUsage limit='64 kb'/></memoryUsage>
                    <storeUsage><storeUsage limit='1 mb'/></storeUsage></systemUsage></systemUsage></broker>";
        let translation = translate(text).unwrap();
        let (toml, notes) = (translation.to_toml("f"), translation.notes_text("f"));
        assert!(
            toml.contains("broker_name = \"b\"") && toml.contains("\"queue://q\"") && !toml.contains('%'),
            "{toml}"
        );
        assert!(!notes.contains("is outside <broker>"), "{notes}");
        for note in [
            "q.%zone%",
            "65536 bytes is raised to the minimum of 1048576",
            "1048576 bytes is raised to the minimum of 268435456",
        ] {
            assert!(notes.contains(note), "{note}: {notes}");
        }
    }

    fn toml(inside: &str) -> String {
        let translation = translate(&format!("<broker brokerName='b'>{inside}</broker>")).unwrap();
        translation.to_toml("f")
    }

    #[test]
    fn policies_that_activemq_keeps_apart_are_put_together_by_pattern() {
        let text = toml(
            "<destinationPolicy><policyMap>
               <defaultEntry><policyEntry alwaysRetroactive='true'/></defaultEntry>
               <policyEntries>
                 <policyEntry queue='orders.>'><deadLetterStrategy><individualDeadLetterStrategy queuePrefix='DLQ.' processExpired='false'/></deadLetterStrategy></policyEntry>
               </policyEntries></policyMap></destinationPolicy>
             <plugins><timeStampingBrokerPlugin zeroExpirationOverride='9' ttlCeiling='10'/><redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap>
               <redeliveryPolicyEntries><redeliveryPolicy queue='orders.eu' maximumRedeliveries='4' initialRedeliveryDelay='50' useExponentialBackOff='true' backOffMultiplier='2'/></redeliveryPolicyEntries>
               <defaultEntry><redeliveryPolicy maximumRedeliveries='-1' redeliveryDelay='70' initialRedeliveryDelay='70'/></defaultEntry>
             </redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin></plugins>",
        );
        let config: toml::Table = toml::from_str(&text).unwrap();
        let policies = config["policy"].as_array().unwrap();
        let short: Vec<String> =
            policies.iter().map(|policy| policy.to_string().replace('\n', " ")).collect();
        let find =
            |name: &str| short.iter().find(|policy| policy.contains(&format!("\"{name}\""))).unwrap().clone();
        for (name, keys) in [
            (
                "queue://orders.eu",
                &[
                    "\"DLQ.*\"",
                    "dead_letter_expired = false",
                    "redelivery_count = 4",
                    "redelivery_delay_ms = 50",
                    "redelivery_multiplier = 2",
                ][..],
            ),
            (
                "queue://orders.>",
                &[
                    "\"DLQ.*\"",
                    "redelivery_count = 4294967295",
                    "redelivery_delay_ms = 70",
                    "ttl_max_ms = 10",
                ],
            ),
            ("queue://>", &["redelivery_count = 4294967295"]),
            ("topic://>", &["retroactive_always = true"]),
        ] {
            for key in keys {
                assert!(find(name).contains(key), "{name} has {key}: {short:?}");
            }
        }
    }

    #[test]
    fn what_may_wait_for_volatile_subscribers_is_translated() {
        let entry = |inside: &str| {
            let text = format!(
                "<broker><destinationPolicy><policyMap><policyEntries><policyEntry topic='t'>{inside}</policyEntry>
                 <policyEntry queue='q' allConsumersExclusiveByDefault='true'>{inside}</policyEntry></policyEntries></policyMap></destinationPolicy></broker>"
            );
            let translation = translate(&text).unwrap();
            (translation.to_toml("f"), translation.notes_text("f"))
        };
        let limit = |strategy: &str| {
            entry(&format!("<pendingMessageLimitStrategy>{strategy}</pendingMessageLimitStrategy>"))
        };
        let evicted =
            |strategy: &str| entry(&format!("<messageEvictionStrategy>{strategy}</messageEvictionStrategy>"));
        for (case, (toml, notes), key, note) in [
            (
                "a number",
                limit("<constantPendingMessageLimitStrategy limit='7'/>"),
                Some("pending_max = 7\n"),
                None,
            ),
            (
                "the default",
                limit("<constantPendingMessageLimitStrategy/>"),
                Some("pending_max = 50\n"),
                None,
            ),
            (
                "none may wait",
                limit("<constantPendingMessageLimitStrategy limit='0'/>"),
                Some("pending_max = 1\n"),
                Some("the minimum is one pending message"),
            ),
            ("no limit", limit("<constantPendingMessageLimitStrategy limit='-1'/>"), None, None),
            (
                "by prefetch",
                limit("<prefetchRatePendingMessageLimitStrategy multiplier='1.25'/>"),
                Some("pending_max_percent = 125\n"),
                None,
            ),
            (
                "its default",
                limit("<prefetchRatePendingMessageLimitStrategy/>"),
                Some("pending_max_percent = 250\n"),
                None,
            ),
            (
                "no number",
                limit("<prefetchRatePendingMessageLimitStrategy multiplier='x'/>"),
                None,
                Some("it is not a number"),
            ),
            ("a class of one's own", limit("<bean class='Mine'/>"), None, Some("runs no Java plugins")),
            (
                "oldest",
                evicted("<oldestMessageEvictionStrategy/>"),
                Some("pending_evicted = \"oldest\"\n"),
                None,
            ),
            (
                "priority",
                evicted(
                    "<oldestMessageWithLowestPriorityEvictionStrategy evictExpiredMessagesHighWatermark='9'/>",
                ),
                Some("pending_evicted = \"lowest-priority\"\n"),
                Some("within a second"),
            ),
            (
                "last value",
                evicted("<uniquePropertyMessageEvictionStrategy propertyName='p'/>"),
                None,
                Some("last_value_property"),
            ),
        ] {
            let (topic, queue) = (toml.contains("pending"), toml.contains("exclusive = true"));
            assert_eq!((topic, queue), (key.is_some(), true), "case: {case}: {toml}");
            assert_eq!(
                toml.matches("pending").count(),
                usize::from(key.is_some()),
                "case: {case}: not for queues"
            );
            assert!(key.is_none_or(|key| toml.contains(key)), "case: {case}: {toml}");
            assert_eq!(
                notes.contains("Strategy>") || notes.contains("<bean>"),
                note.is_some(),
                "case: {case}: {notes}"
            );
            assert!(note.is_none_or(|note| notes.contains(note)), "case: {case}: {notes}");
            toml::from_str::<toml::Table>(&toml).expect("a configuration");
        }
    }

    #[test]
    fn whom_the_first_consumers_wait_for_is_translated() {
        for (case, attributes, want) in [
            ("a number", "consumersBeforeDispatchStarts='2'", "consumers_before_dispatch = 2\n"),
            ("a time", "timeBeforeDispatchStarts='200'", "time_before_dispatch_ms = 200\n"),
            (
                "both",
                "timeBeforeDispatchStarts='200' consumersBeforeDispatchStarts='3'",
                "consumers_before_dispatch = 3\ntime_before_dispatch_ms = 200\n",
            ),
            ("nobody", "timeBeforeDispatchStarts='0' consumersBeforeDispatchStarts='-1'", ""),
        ] {
            let text = format!(
                "<broker><destinationPolicy><policyMap><policyEntries><policyEntry queue='q' {attributes}/><policyEntry topic='t' {attributes}/>\
                 </policyEntries></policyMap></destinationPolicy></broker>"
            );
            let toml = translate(&text).unwrap().to_toml("f");
            let found: String = toml
                .lines()
                .filter(|line| line.contains("before_dispatch"))
                .map(|line| format!("{line}\n"))
                .collect();
            assert_eq!(found, want, "case: {case}: {toml}");
            toml::from_str::<toml::Table>(&toml).expect("a configuration");
        }
    }

    /// All attributes of ActiveMQ's `PolicyEntry`.
    const POLICY_ENTRY: &str = "advancedMessageStatisticsEnabled advancedNetworkStatisticsEnabled advisoryForConsumed advisoryForDelivery \
        advisoryForDiscardingMessages advisoryForDispatched advisoryForFastProducers advisoryForSlowConsumers advisoryWhenFull \
        allConsumersExclusiveByDefault allowTempDestinationStealing alwaysRetroactive blockedProducerWarningInterval \
        consumersBeforeDispatchStarts cursorMemoryHighWaterMark doOptimzeMessageStorage durableTopicPrefetch enableAudit \
        expireMessagesPeriod gcInactiveDestinations gcWithNetworkConsumers inactiveTimeoutBeforeGC inactiveTimoutBeforeGC \
        includeBodyForAdvisory lazyDispatch maxAuditDepth maxBrowsePageSize maxDestinations maxExpirePageSize maxPageSize \
        maxProducersToAudit maxQueueAuditDepth memoryLimit messageGroupMapFactoryType minimumMessageSize \
        optimizeMessageStoreInFlightLimit optimizedDispatch persistJMSRedelivered prioritizedMessages producerFlowControl \
        queueBrowserPrefetch queuePrefetch reduceMemoryFootprint sendAdvisoryIfNoConsumers sendDuplicateFromStoreToDLQ \
        sendFailIfNoSpace sendFailIfNoSpaceAfterTimeout storeUsageHighWaterMark strictOrderDispatch timeBeforeDispatchStarts \
        topicPrefetch useCache useConsumerPriority usePrefetchExtension useTopicSubscriptionInflightStats";

    /// Attributes of ActiveMQ's `broker` that hold a value.
    const BROKER_ATTRIBUTES: &str = "adjustUsageLimits advisorySupport allowTempAutoCreationOnSend anonymousProducerAdvisorySupport \
        brokerId brokerName brokerObjectName cacheTempDestinations consumerSystemUsagePortion dataDirectory dedicatedTaskRunner \
        deleteAllMessagesOnStartup diskUsageCheckRegrowThreshold enableMessageExpirationOnActiveDurableSubs enableStatistics \
        keepDurableSubsActive maxInflatedDataSize maxPurgedDestinationsPerSweep maxSchedulerRepeatAllowed maxUncommittedCount \
        mbeanInvocationTimeout monitorConnectionSplits networkConnectorStartAsync offlineDurableSubscriberTaskSchedule \
        offlineDurableSubscriberTimeout passiveSlave persistenceThreadPriority persistent populateJMSXUserID \
        populateUserNameInMBeans producerSystemUsagePortion rejectDurableConsumers restartAllowed rollbackOnlyOnAsyncException \
        schedulePeriodForDestinationPurge schedulePeriodForDiskUsageCheck schedulerDirectory schedulerSupport \
        shutdownOnMasterFailure shutdownOnSlaveFailure splitSystemUsageForProducersConsumers start startAsync storeOpenWireVersion \
        systemExitOnShutdown systemExitOnShutdownExitCode taskRunnerPriority timeBeforePurgeTempDestinations tmpDataDirectory \
        useAuthenticatedPrincipalForJMSXUserID useJmx useLocalHostBrokerName useLoggingForShutdownErrors useMirroredQueues \
        useShutdownHook useTempMirroredQueues useVirtualDestSubsOnCreation useVirtualTopics virtualThreadTaskRunner vmConnectorURI \
        waitForSlave waitForSlaveTimeout";

    #[test]
    fn every_attribute_of_a_broker_is_known() {
        for attribute in BROKER_ATTRIBUTES.split_whitespace() {
            let notes = translate(&format!("<broker {attribute}='true'/>")).unwrap().notes_text("f");
            assert!(!notes.contains("is unknown"), "{attribute}: {notes}");
        }
    }

    #[test]
    fn every_attribute_of_a_policy_entry_is_known() {
        for attribute in POLICY_ENTRY.split_whitespace() {
            let is_number =
                attribute.to_lowercase().contains("prefetch") || attribute.contains("BeforeDispatch");
            let value = if is_number { "5" } else { "true" };
            let text = format!(
                "<broker><destinationPolicy><policyMap><policyEntries><policyEntry queue='q' topic='t' {attribute}='{value}'/></policyEntries></policyMap></destinationPolicy></broker>"
            );
            let translation = translate(&text).unwrap();
            let (toml, notes) = (translation.to_toml("f"), translation.notes_text("f"));
            assert!(!notes.contains("is unknown"), "{attribute}: {notes}");
            let is_silent =
                attribute == "blockedProducerWarningInterval" || attribute == "usePrefetchExtension";
            assert!(
                is_silent || notes.contains(attribute) || toml.contains("[[policy]]"),
                "{attribute}: neither translated nor named"
            );
        }
    }
}
