//! `install()` sets the subscriber of a whole process, so this file is a process of its own.
#![cfg(feature = "otlp")]

use std::fs;
use std::sync::Arc;

use phasescope::counters::scripted::Scripted;
use phasescope::export::Export;
use phasescope::phase;

#[test]
fn install_exports_after_a_scoped_subscriber_and_is_refused_a_second_time() {
    // A subscriber for a part of the program only is no reason to refuse.
    tracing::subscriber::with_default(tracing_subscriber::registry(), || {});

    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let [first, second] = ["first.jsonl", "second.jsonl"].map(|name| folder.path().join(name));
    let to = |path| Export::to_file(path).unwrap_or_else(|error| panic!("{error}"));
    let device = Arc::new(Scripted::new("cuda:0"));
    let guard = phasescope::builder()
        .source(device.clone())
        .export(to(&first))
        .install()
        .unwrap_or_else(|error| panic!("{error}"));
    let rings = folder.path().join("rings");
    fs::create_dir(&rings).unwrap_or_else(|error| panic!("{error}"));
    let refused = phasescope::builder().export(to(&second)).ring_in(&rings).install();
    let error = refused.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("add the layer from `build()`"), "{error}");

    phase!(forward).in_scope(|| device.allocate(7));
    drop(guard);
    let text = fs::read_to_string(first).unwrap_or_else(|error| panic!("{error}"));
    assert!(text.contains("\"name\":\"forward\""), "{text}");
    let text = fs::read_to_string(second).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(text, "", "what never ran sends nothing");
    let left = fs::read_dir(rings).unwrap_or_else(|error| panic!("{error}")).count();
    assert_eq!(left, 0, "and leaves no ring file");
}
