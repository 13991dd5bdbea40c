//! Every name on the wire stands in `docs/fields.md` with its type and unit, and every name there is
//! on the wire.
#![cfg(feature = "otlp")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use phasescope::counters::scripted::Scripted;
use phasescope::diagnosis::RunFacts;
use phasescope::export::Export;
use phasescope::phase::RunIdentity;
use phasescope::{Counters, phase, run, step};
use serde_json::Value;
use tracing_subscriber::layer::SubscriberExt;

/// Name and type of attributes, as they were sent.
type Attributes = BTreeMap<String, String>;

/// Everything that was sent: attributes by where they stood, and metrics with unit and attributes.
#[derive(Debug, Default)]
struct Sent {
    phases: Attributes,
    steps: Attributes,
    events: Attributes,
    resource: Attributes,
    names: BTreeSet<String>,
    metrics: BTreeMap<String, (String, String, BTreeSet<String>)>,
}

fn everything(level: u64) -> Counters {
    Counters {
        allocated: Some(level),
        reserved: Some(level + 1),
        peak_allocated: Some(level),
        active: Some(level),
        requested: Some(level),
        inactive_split: Some(1),
        alloc_retries: Some(2),
        ooms: Some(3),
        device_used: Some(level + 10),
        device_total: Some(1 << 40),
        process_device_used: Some(level + 5),
        host_rss: Some(7),
    }
}

/// A run with everything that the contract names: three devices with every counter, a failed phase of
/// every kind, a disturbed peak, a growth that is found.
fn run_everything() -> String {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("run.jsonl");
    let devices: Vec<_> =
        (0..3).map(|place| Arc::new(Scripted::new(&format!("cuda:{place}")))).collect();
    let mut builder = phasescope::builder()
        .identity(RunIdentity::new("contract").with_rank(1, 4))
        .facts(RunFacts {
            parameter_bytes: Some(1 << 20),
            device_total: Some(1 << 40),
            local_batch_size: Some(2),
        })
        .export(Export::to_file(&path).unwrap_or_else(|error| panic!("{error}")));
    for device in &devices {
        builder = builder.source(device.clone());
    }
    let (layer, guard) = builder.build();
    let stack = tracing_subscriber::registry().with(layer).with(guard.opentelemetry_layer());
    let set = |level: u64| devices.iter().for_each(|device| device.set(everything(level << 20)));
    set(100);
    tracing::subscriber::with_default(stack, || {
        let _run = run!("contract").entered();
        phase!(model).in_scope(|| {});
        for number in 0..10_u64 {
            let _step = step!(number, phasescope.optimizer_stepped = true).entered();
            phase!(forward, phasescope.input_elements = 64_u64)
                .in_scope(|| set(100 + (number + 1) * 50));
            phase!(backward).in_scope(|| {});
            phase!(other, "augment").in_scope(|| {});
        }
        phase!(eval).in_scope(|| tracing::error!("it went wrong"));
        let fails = |message: &'static str| {
            let unwound = std::panic::catch_unwind(|| {
                let _phase = phase!(checkpoint).entered();
                panic!("{message}");
            });
            assert!(unwound.is_err());
        };
        fails("CUDA out of memory. Tried to allocate 20.00 MiB.");
        fails("something else");
        // The program sets the peak back itself.
        phase!(collective).in_scope(|| {
            let below = Counters { peak_allocated: Some(1), ..everything(900 << 20) };
            devices.iter().for_each(|device| device.set(below));
        });
    });
    drop(guard);
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{error}"))
}

fn parse(text: &str) -> Sent {
    let mut sent = Sent::default();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}"));
        for group in items(&line["resourceSpans"]) {
            collect(&group["resource"]["attributes"], &mut sent.resource);
            for span in items(&group["scopeSpans"]).flat_map(|scope| items(&scope["spans"])) {
                sent.names.insert(text_of(&span["name"]));
                let keys = || items(&span["attributes"]).map(|pair| text_of(&pair["key"]));
                let duplicates = keys().count() - keys().collect::<BTreeSet<_>>().len();
                assert_eq!(duplicates, 0, "a key of {} is set twice", span["name"]);
                if keys().any(|key| key == "phasescope.phase") {
                    collect(&span["attributes"], &mut sent.phases);
                } else if keys().any(|key| key == "phasescope.step") {
                    collect(&span["attributes"], &mut sent.steps);
                }
                let changes = items(&span["events"])
                    .filter(|event| event["name"] == "phasescope.verdict_changed");
                changes.for_each(|event| collect(&event["attributes"], &mut sent.events));
            }
        }
        for group in items(&line["resourceMetrics"]) {
            let metrics = items(&group["scopeMetrics"]).flat_map(|scope| items(&scope["metrics"]));
            metrics.for_each(|metric| collect_metric(metric, &mut sent));
        }
    }
    sent
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("expected text, found {value}")).to_owned()
}

fn collect(attributes: &Value, into: &mut Attributes) {
    for pair in items(attributes) {
        let kind = pair["value"].as_object().and_then(|value| value.keys().next());
        let kind = match kind.map(String::as_str) {
            Some("intValue") => "integer",
            Some("doubleValue") => "double",
            Some("boolValue") => "boolean",
            Some("stringValue") => "string",
            Some("arrayValue") => "strings",
            other => panic!("{}: an unexpected type {other:?}", pair["key"]),
        };
        let key = text_of(&pair["key"]);
        let before = into.insert(key.clone(), kind.to_owned());
        assert!(before.is_none_or(|before| before == kind), "{key} has two types");
    }
}

fn collect_metric(metric: &Value, sent: &mut Sent) {
    let (kind, data) = ["gauge", "sum", "histogram"]
        .into_iter()
        .find_map(|kind| metric.get(kind).map(|data| (kind, data)))
        .unwrap_or_else(|| panic!("an unexpected kind of metric: {metric}"));
    let kind = match (kind, data["isMonotonic"].as_bool()) {
        ("sum", Some(true)) => "counter",
        ("sum", _) => "up-down counter",
        (kind, _) => kind,
    };
    let attributes = items(&data["dataPoints"])
        .flat_map(|point| items(&point["attributes"]))
        .map(|pair| text_of(&pair["key"]))
        .collect();
    let unit = metric["unit"].as_str().unwrap_or_default().to_owned();
    sent.metrics.insert(text_of(&metric["name"]), (kind.to_owned(), unit, attributes));
}

/// The rows of the table under a heading or sentence, as cells without their backticks.
fn table(after: &str) -> Vec<Vec<String>> {
    let contract = include_str!("../docs/fields.md");
    let (_, rest) =
        contract.split_once(after).unwrap_or_else(|| panic!("no \"{after}\" in the contract"));
    let rows = rest.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Names and types of a table; `<counter>` and the further devices written out.
fn attributes(after: &str) -> Attributes {
    let counters = Counters::default().edge_values().map(|(name, _)| name);
    let mut found = Attributes::new();
    for row in table(after) {
        let [name] = &quoted(&row[0])[..] else { panic!("one name a row: {}", row[0]) };
        let names: Vec<String> = if name.contains("<counter>") {
            counters.iter().map(|counter| name.replace("<counter>", counter)).collect()
        } else {
            vec![name.clone()]
        };
        for name in names {
            let of_device = name.starts_with("phasescope.allocated.")
                || name.starts_with("phasescope.device.")
                || row[0].contains("<counter>");
            for place in 1..3 {
                if of_device {
                    let further = format!("phasescope.device{place}.");
                    found.insert(name.replacen("phasescope.", &further, 1), row[1].clone());
                }
            }
            found.insert(name, row[1].clone());
        }
    }
    found
}

#[test]
fn the_contract_names_what_is_sent_and_nothing_else() {
    let sent = parse(&run_everything());

    let program = attributes("# Fields that a program sets");
    let mut phases = attributes("On phases, at their end.");
    let mut steps = attributes("On steps, at their end:");
    // A program's own fields are attributes of its spans too.
    for name in ["phasescope.phase", "phasescope.input_elements"] {
        phases.insert(name.to_owned(), program[name].clone());
    }
    for name in ["phasescope.step", "phasescope.optimizer_stepped"] {
        steps.insert(name.to_owned(), program[name].clone());
    }
    assert_eq!(sent.phases, phases);
    assert_eq!(sent.steps, steps);
    assert_eq!(sent.events, attributes("The event `phasescope.verdict_changed`"));
    let mut resource = attributes("# Resource");
    for name in ["telemetry.sdk.language", "telemetry.sdk.name", "telemetry.sdk.version"] {
        // The SDK's own.
        resource.insert(name.to_owned(), "string".to_owned());
    }
    assert_eq!(sent.resource, resource);

    let named: BTreeSet<_> = table("# Spans").iter().flat_map(|row| quoted(&row[0])).collect();
    let unnamed: Vec<_> = sent.names.difference(&named).collect();
    assert_eq!(unnamed, ["augment"], "but for the program's own name");
}

#[test]
fn the_contract_names_every_metric_with_kind_unit_and_attributes() {
    let sent = parse(&run_everything());
    let mut expected = BTreeMap::new();
    for row in table("# Metrics") {
        let [name] = &quoted(&row[0])[..] else { panic!("one name a row: {}", row[0]) };
        let mut attributes: BTreeSet<_> =
            ["phasescope.run_id", "phasescope.rank"].map(str::to_owned).into_iter().collect();
        let own = quoted(row[4].split(':').next().unwrap_or_default());
        attributes.extend(own);
        expected.insert(name.clone(), (row[1].clone(), row[3].clone(), attributes));
    }
    assert_eq!(sent.metrics, expected);
    let steps = sent.metrics.values().filter(|(.., own)| own.contains("phasescope.step"));
    assert_eq!(steps.count(), 0, "the step is never an attribute of a metric");
}

#[test]
fn no_name_is_the_prefix_of_another_and_none_become_one_when_dots_go() {
    let sent = parse(&run_everything());
    for names in [&sent.phases, &sent.steps, &sent.events, &sent.resource] {
        for name in names.keys() {
            let prefix = format!("{name}.");
            let under: Vec<_> = names.keys().filter(|other| other.starts_with(&prefix)).collect();
            assert_eq!(under, Vec::<&String>::new(), "{name} is also a prefix");
        }
        let flat: BTreeSet<_> = names.keys().map(|name| name.replace('.', "_")).collect();
        assert_eq!(flat.len(), names.len());
    }
}
