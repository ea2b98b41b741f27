//! `postroad ctl plan`: costs of messages, headroom, and the forecast for another load.

use std::io::Write;

use anyhow::Context;
use clap::Args;
use serde_json::Value;

use super::http::{BrokerArguments, Method, request};

/// Which change of the load.
#[derive(Debug, Args)]
pub struct PlanArguments {
    /// This many more subscribers for each message.
    #[arg(long, value_name = "N")]
    subscribers: Option<f64>,
    /// The share of the messages that each of them gets, from 0 to 1 [default: 1].
    #[arg(long, value_name = "SHARE", requires = "subscribers")]
    matching: Option<f64>,
    /// Messages are this many times as large.
    #[arg(long, value_name = "FACTOR")]
    size: Option<f64>,
    /// There are this many times as many messages.
    #[arg(long, value_name = "FACTOR")]
    rate: Option<f64>,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &PlanArguments) -> anyhow::Result<()> {
    let PlanArguments { subscribers, matching, size, rate, broker, json } = arguments;
    let given = [("subscribers", subscribers), ("matching", matching), ("size", size), ("rate", rate)];
    let pairs = given.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", (*value)?)));
    let path = format!("/api/v1/planner?{}", pairs.collect::<Vec<_>>().join("&"));
    let plan = request(broker, Method::Get, &path, None)?;
    let text = if *json { format!("{plan}\n") } else { text_of(&plan) };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

fn text_of(plan: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let percent = |value: &Value| number(value) * 100.0;
    let now = &plan["now"];
    let mut text = format!(
        "now       {:.0} messages/s in, {:.0}/s out, {:.0} syncs/s; {:.1} % of {} processors\n",
        number(&now["received"]),
        number(&now["delivered"]),
        number(&now["syncs"]),
        percent(&now["busy"]),
        number(&plan["processors"]),
    );
    let costs = plan["costs"].as_array().map(Vec::as_slice).unwrap_or_default();
    if costs.is_empty() {
        text += &format!("costs     not known yet: {} observations\n", plan["observations"]);
    }
    for cost in costs {
        let (term, micros, error) =
            (cost["term"].as_str().unwrap_or_default(), number(&cost["micros"]), number(&cost["error"]));
        text += &match cost["is_known"].as_bool() {
            Some(true) => format!("cost      {term:<9}{micros:>12.4} µs ± {error:.4}\n"),
            _ => format!("cost      {term:<9}           ? µs: this load does not show it\n"),
        };
    }
    let headroom = &plan["headroom"];
    text += &match headroom.is_null() {
        true => "headroom  not known without a load\n".to_owned(),
        false => format!(
            "headroom  {:.1} times this load up to {:.0} % of the processors ({:.1} to {:.1})\n",
            number(&headroom["likely"]),
            percent(&plan["load_max"]),
            number(&headroom["least"]),
            number(&headroom["most"]),
        ),
    };
    let forecast = &plan["forecast"];
    if !forecast.is_null() {
        text += &format!(
            "forecast  {:.0} messages/s in, {:.0}/s out: {:.1} % of the processors ± {:.1}; {}\n",
            number(&forecast["received"]),
            number(&forecast["delivered"]),
            percent(&forecast["busy"]),
            percent(&forecast["busy_error"]),
            if forecast["fits"] == true { "it fits" } else { "it does not fit for certain" },
        );
    }
    for (name, error) in [("2 s", &plan["error_next"]), ("10 min", &plan["error_later"])] {
        text += &match error["forecasts"].as_u64() {
            Some(0) | None => format!("checked   no forecast over {name} yet\n"),
            Some(forecasts) => format!(
                "checked   {forecasts} forecasts over {name}: mean error {:.1} %, bias {:+.1} %\n",
                percent(&error["error"]),
                percent(&error["bias"]),
            ),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plan_is_told_with_its_errors() {
        let load = json!({ "received": 100.4, "delivered": 200.0, "syncs": 9.6, "busy": 0.123 });
        let errors = json!({ "forecasts": 3, "error": 0.05, "bias": -0.01 });
        let mut forecast = load.clone();
        forecast["busy_error"] = json!(0.02);
        forecast["fits"] = json!(true);
        let plan = json!({
            "observations": 9, "processors": 2.0, "load_max": 0.8, "now": load, "forecast": forecast,
            "costs": [
                { "term": "receive", "micros": 5.25, "error": 0.5, "is_known": true },
                { "term": "filter", "micros": 0.0, "error": 90.0, "is_known": false },
            ],
            "headroom": { "least": 5.9, "likely": 6.5, "most": 7.2 },
            "error_next": errors, "error_later": { "forecasts": 0 },
        });
        let want = "now       100 messages/s in, 200/s out, 10 syncs/s; 12.3 % of 2 processors\n\
                    cost      receive        5.2500 µs ± 0.5000\n\
                    cost      filter              ? µs: this load does not show it\n\
                    headroom  6.5 times this load up to 80 % of the processors (5.9 to 7.2)\n\
                    forecast  100 messages/s in, 200/s out: 12.3 % of the processors ± 2.0; it fits\n\
                    checked   3 forecasts over 2 s: mean error 5.0 %, bias -1.0 %\n\
                    checked   no forecast over 10 min yet\n";
        assert_eq!(text_of(&plan), want);
        let bare = text_of(&json!({ "observations": 1 }));
        assert!(bare.contains("not known yet: 1 observations") && bare.contains("without a load"), "{bare}");
    }
}
