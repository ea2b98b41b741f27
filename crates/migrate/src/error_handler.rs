//! Error handlers of Camel that become redelivery and the dead-letter queue of routes: those with a
//! dead letter channel, of a route or its context, as elements or as beans.

use super::camel::address_of;
use super::element::Element;
use super::translation::{Translation, Value};

/// Redeliveries of one copy at most; Camel's -1 is without end.
const REDELIVERIES_MAX: i64 = 10_000;

/// Defaults of Camel's `RedeliveryPolicy`.
const DELAY_MS: i64 = 1_000;
const DELAY_MAX_MS: i64 = 60_000;
const MULTIPLIER: f64 = 2.0;

/// Whether a bean is an error handler or a part of one.
pub fn is_bean(class: &str) -> bool {
    class.starts_with("org.apache.camel.")
        && ["DeadLetterChannelBuilder", "RedeliveryPolicy"].iter().any(|name| class.ends_with(name))
}

/// The keys of a route for its error handler, or that of its context.
pub fn keys_of(
    route: &Element<'_>,
    context: &Element<'_>,
    translation: &mut Translation,
) -> Vec<(&'static str, Value)> {
    let of_context = || context.children().find(|child| is_handler(child) && !child.has("id"));
    let handler = route
        .child("errorHandler")
        .or_else(|| referred(route, "errorHandlerRef", translation))
        .or_else(of_context)
        .or_else(|| referred(context, "errorHandlerRef", translation));
    handler.map(|handler| keys(&handler, translation)).unwrap_or_default()
}

fn is_handler(element: &Element<'_>) -> bool {
    element.name() == "errorHandler"
}

/// The element whose id this attribute names.
fn referred<'a>(from: &Element<'a>, attribute: &str, translation: &mut Translation) -> Option<Element<'a>> {
    let id = from.value(attribute, translation)?;
    let found = from.with_id(id);
    if found.is_none() {
        translation
            .note(from, &format!("{attribute}=\"{id}\" is not in this file: its route has no redelivery"));
    }
    found
}

fn keys(handler: &Element<'_>, translation: &mut Translation) -> Vec<(&'static str, Value)> {
    // Camel 3.20 and later have an element for each type.
    let inner = handler.children().find(|child| child.name().ends_with("Channel") || is_typed(child));
    let of = inner.as_ref().unwrap_or(handler);
    let kind = match handler.name() {
        "bean" => of.value("class", translation).unwrap_or_default(),
        _ if inner.is_some() => of.name(),
        _ => of.value("type", translation).unwrap_or_default(),
    };
    if !kind.to_ascii_lowercase().contains("deadletterchannel") {
        translation.note(
            handler,
            "not translated: without a dead letter channel a send fails if a target of the route is full",
        );
        return Vec::new();
    }
    let uri = ["deadLetterUri", "deadLetterQueue"].iter().find_map(|name| setting(of, name, translation));
    let Some((queue, None)) = uri.as_deref().and_then(address_of) else {
        translation
            .note(of, "not translated: its dead letter channel is not a queue or topic of this broker");
        return Vec::new();
    };
    let mut keys = policy_keys(of, translation);
    keys.push(("dead_letter_queue", queue.as_str().into()));
    keys
}

fn is_typed(element: &Element<'_>) -> bool {
    ["defaultErrorHandler", "noErrorHandler", "jtaTransactionErrorHandler", "springTransactionErrorHandler"]
        .contains(&element.name())
}

fn policy_keys(of: &Element<'_>, translation: &mut Translation) -> Vec<(&'static str, Value)> {
    let policy = of
        .child("redeliveryPolicy")
        .or_else(|| referred(of, "redeliveryPolicyRef", translation))
        .or_else(|| bean_property(of, "redeliveryPolicy", translation));
    let Some(policy) = policy else { return vec![("redelivery_count", 0_u64.into())] };
    let mut number = |name: &str, fallback: i64| number(&policy, name, translation).unwrap_or(fallback);
    let (count, delay_ms, delay_max_ms) = (
        number("maximumRedeliveries", 0),
        number("redeliveryDelay", DELAY_MS),
        number("maximumRedeliveryDelay", DELAY_MAX_MS),
    );
    if !(0..=REDELIVERIES_MAX).contains(&count) {
        let why = format!("maximumRedeliveries is {count}: {REDELIVERIES_MAX} is the most, and used");
        translation.note(&policy, &why);
    }
    let count = if count < 0 { REDELIVERIES_MAX } else { count.min(REDELIVERIES_MAX) };
    let ms = |ms: i64| Value::from(ms.max(1));
    let mut keys = vec![("redelivery_count", count.into()), ("redelivery_delay_ms", ms(delay_ms))];
    if setting(&policy, "useExponentialBackOff", translation).as_deref() == Some("true") {
        let factor = setting(&policy, "backOffMultiplier", translation);
        keys.push(("redelivery_multiplier", multiplier(&policy, factor.as_deref(), translation).into()));
    }
    keys.push(("redelivery_delay_max_ms", ms(delay_max_ms)));
    if setting(&policy, "delayPattern", translation).is_some() {
        translation.note(&policy, "delayPattern is not translated: set redelivery_multiplier by hand");
    }
    keys
}

fn multiplier(policy: &Element<'_>, text: Option<&str>, translation: &mut Translation) -> f64 {
    let Some(text) = text else { return MULTIPLIER };
    match text.parse::<f64>().ok().filter(|factor| (1.0..=1_000.0).contains(factor)) {
        Some(factor) => (factor * 1000.0).round() / 1000.0,
        None => {
            let why = format!("backOffMultiplier is {text}: {MULTIPLIER} is used; it must be from 1 to 1000");
            translation.note(policy, &why);
            MULTIPLIER
        }
    }
}

fn number(of: &Element<'_>, name: &str, translation: &mut Translation) -> Option<i64> {
    let text = setting(of, name, translation)?;
    let number = text.parse().ok();
    if number.is_none() {
        translation
            .note(of, &format!("{name} is {text:?}, which is not a whole number; the default is used"));
    }
    number
}

/// An attribute, or the property of a bean.
fn setting(of: &Element<'_>, name: &str, translation: &mut Translation) -> Option<String> {
    let property = of.children().find(|child| {
        child.name() == "property" && child.value("name", &mut Translation::default()) == Some(name)
    });
    let value = match property {
        Some(property) => property.value("value", translation),
        None => of.value(name, translation),
    };
    value.map(str::to_owned)
}

/// The bean inside of a property, or that it refers to.
fn bean_property<'a>(of: &Element<'a>, name: &str, translation: &mut Translation) -> Option<Element<'a>> {
    let property = of.children().find(|child| {
        child.name() == "property" && child.value("name", &mut Translation::default()) == Some(name)
    })?;
    property.child("bean").or_else(|| referred(&property, "ref", translation))
}

#[cfg(test)]
mod tests {
    use crate::translate;

    /// The keys of the routes, without others, and the notes.
    fn translated(context: &str, beside: &str, inside: &str) -> (String, String) {
        let text = format!(
            "<beans>{beside}<camelContext {context}<route id=\"r\" {inside}<from uri=\"activemq:queue:a\"/>\
             <to uri=\"activemq:queue:b\"/></route></camelContext></beans>"
        );
        let translation = translate(&text).expect("a translation");
        let toml = translation.to_toml("camel.xml");
        let is_of_handler = |line: &&str| line.starts_with("redelivery") || line.starts_with("dead_letter");
        let keys: Vec<&str> = toml.lines().filter(is_of_handler).collect();
        (keys.join("; "), translation.notes_text("camel.xml"))
    }

    const CHANNEL: &str = "type=\"DeadLetterChannel\" deadLetterUri=\"jms:queue:dead\"";

    #[test]
    fn a_dead_letter_channel_becomes_redelivery_and_a_dead_letter_queue() {
        let all = "redelivery_count = 5; redelivery_delay_ms = 250; redelivery_multiplier = 3; \
                   redelivery_delay_max_ms = 9000; dead_letter_queue = \"queue://dead\"";
        let plain = "redelivery_count = 2; redelivery_delay_ms = 1000; redelivery_delay_max_ms = 60000; \
                     dead_letter_queue = \"queue://dead\"";
        let policy = "maximumRedeliveries=\"5\" redeliveryDelay=\"250\" useExponentialBackOff=\"true\" \
                      backOffMultiplier=\"3\" maximumRedeliveryDelay=\"9000\"";
        let two = "<redeliveryPolicy maximumRedeliveries=\"2\"/>";
        let bean = "<bean id=\"h\" class=\"org.apache.camel.builder.DeadLetterChannelBuilder\">\
                    <property name=\"deadLetterUri\" value=\"activemq:dead\"/><property name=\"redeliveryPolicy\" ref=\"p\"/></bean>\
                    <bean id=\"p\" class=\"org.apache.camel.processor.errorhandler.RedeliveryPolicy\">\
                    <property name=\"maximumRedeliveries\" value=\"2\"/></bean>";
        for (case, context, beside, inside, want) in [
            (
                "of the context, by reference",
                format!(
                    "errorHandlerRef=\"h\"><errorHandler id=\"h\" {CHANNEL}><redeliveryPolicy {policy}/></errorHandler>"
                ),
                "",
                ">".to_owned(),
                all,
            ),
            (
                "of the route, with a profile",
                format!(
                    "><redeliveryPolicyProfile id=\"p\" {policy}/><errorHandler id=\"h\" {CHANNEL} redeliveryPolicyRef=\"p\"/>"
                ),
                "",
                "errorHandlerRef=\"h\">".to_owned(),
                all,
            ),
            (
                "an element of its own",
                ">".to_owned(),
                "",
                format!(
                    "><errorHandler><deadLetterChannel deadLetterUri=\"activemq:dead\">{two}</deadLetterChannel></errorHandler>"
                ),
                plain,
            ),
            ("beans", "errorHandlerRef=\"h\">".to_owned(), bean, ">".to_owned(), plain),
            (
                "without redelivery",
                ">".to_owned(),
                "",
                format!("><errorHandler {CHANNEL}/>"),
                "redelivery_count = 0; dead_letter_queue = \"queue://dead\"",
            ),
            ("none", ">".to_owned(), "", ">".to_owned(), ""),
        ] {
            let (keys, notes) = translated(&context, beside, &inside);
            assert_eq!(keys, want, "case: {case}\n{notes}");
            assert!(!notes.contains("errorHandler") && !notes.contains("bean"), "case: {case}\n{notes}");
        }
    }

    #[test]
    fn other_error_handlers_are_noted_with_the_reason() {
        for (case, context, inside, want_keys, want_note) in [
            (
                "no channel",
                "><errorHandler type=\"DefaultErrorHandler\"/>",
                ">",
                "",
                "without a dead letter channel",
            ),
            (
                "a channel elsewhere",
                "><errorHandler type=\"DeadLetterChannel\" deadLetterUri=\"log:dead\"/>",
                ">",
                "",
                "is not a queue or topic of this broker",
            ),
            ("unknown", "errorHandlerRef=\"x\">", ">", "", "errorHandlerRef=\"x\" is not in this file"),
            (
                "without end",
                "><errorHandler type=\"DeadLetterChannel\" deadLetterUri=\"jms:d\"><redeliveryPolicy maximumRedeliveries=\"-1\" redeliveryDelay=\"0\"/></errorHandler>",
                ">",
                "redelivery_count = 10000; redelivery_delay_ms = 1; redelivery_delay_max_ms = 60000; dead_letter_queue = \"queue://d\"",
                "maximumRedeliveries is -1",
            ),
            (
                "on exception",
                ">",
                "><onException><exception>java.lang.Exception</exception></onException>",
                "",
                "onException> not translated",
            ),
        ] {
            let (keys, notes) = translated(context, "", inside);
            assert_eq!(keys, want_keys, "case: {case}");
            assert!(notes.contains(want_note), "case: {case}\n{notes}");
        }
    }
}
