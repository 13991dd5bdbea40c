//! The ring file, of a process that is still there. What a kill leaves is proved with real kills in
//! `tests/export`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use phasescope::counters::scripted::Scripted;
use phasescope::diagnosis::RunFacts;
use phasescope::layer::Guard;
use phasescope::phase::RunIdentity;
use phasescope::ring::{self, HEAD_SLOTS, RING_BYTES, Ring, SLOT, TAIL_SLOTS};
use phasescope::{Phase, phase, step};
use tempfile::TempDir;
use tracing_subscriber::layer::SubscriberExt;

struct Run {
    folder: TempDir,
    guard: Guard,
    path: PathBuf,
}

/// Runs `work` on two devices with a ring file.
fn run(work: impl FnOnce(&Scripted, &Path)) -> Run {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let device = Arc::new(Scripted::new("cuda:0"));
    let (layer, guard) = phasescope::builder()
        .identity(RunIdentity::new("night/42").with_rank(3, 8))
        .source(device.clone())
        .source(Arc::new(Scripted::new("cuda:1")))
        .keep_records()
        .ring_in(folder.path())
        .build();
    let path = guard.ring_path().unwrap_or_else(|| panic!("{:?}", guard.problems())).to_owned();
    let stack = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(stack, || work(&device, &path));
    Run { folder, guard, path }
}

fn read(path: &Path) -> Ring {
    ring::read(path).unwrap_or_else(|error| panic!("{error}"))
}

fn train(device: &Scripted, steps: u64) {
    for number in 0..steps {
        let _step = step!(number).entered();
        phase!(forward).in_scope(|| device.allocate(50 << 20));
        phase!(backward).in_scope(|| {});
    }
}

#[test]
fn it_holds_every_phase_of_a_short_run_and_the_same_findings() {
    let run = run(|device, _| {
        phase!(model).in_scope(|| device.allocate(100 << 20));
        train(device, 20);
    });
    let facts = RunFacts { parameter_bytes: Some(100 << 20), ..RunFacts::default() };
    run.guard.set_facts(facts);
    let ring = read(&run.path);
    assert_eq!(ring.series, run.guard.series());
    assert_eq!(ring.series[0].diagnosis.findings[0].code.name(), "retained_graph");
    assert_eq!((ring.facts, ring.ended, ring.open.len()), (facts, false, 0));
    assert_eq!((ring.identity.run_id.as_str(), ring.identity.rank), ("night/42", 3));
    assert_eq!(ring.pid, std::process::id());
    drop(run.guard);
    assert!(read(&run.path).ended, "the guard was let go of");
    let name = format!("night_42-rank3-{}.ring", std::process::id());
    assert_eq!(run.path, run.folder.path().join(name));
}

#[test]
fn it_says_which_phases_are_open_since_which_counters() {
    run(|device, path| {
        device.allocate(64);
        let _step = step!(9_u64).entered();
        let _eval = phase!(eval).entered();
        device.allocate(36);
        let _inner = phase!(other, "decode").entered();
        let ring = read(path);
        let open: Vec<_> = ring
            .open
            .iter()
            .map(|open| (open.phase, open.name.as_deref(), open.step, open.start.allocated))
            .collect();
        assert_eq!(
            open,
            [
                (Phase::Eval, None, Some(9), Some(64)),
                (Phase::Other, Some("decode"), Some(9), Some(100))
            ]
        );
    });
}

#[test]
fn of_a_long_run_it_keeps_the_first_and_the_last_phases_at_the_same_size() {
    let run = run(|device, _| train(device, 5000));
    let ring = read(&run.path);
    // Two devices, two phases a step.
    let kept: usize = ring.series.iter().map(|series| series.records.len()).sum();
    assert_eq!(kept, HEAD_SLOTS + TAIL_SLOTS);
    assert_eq!(ring.overwritten, (5000 * 2 * 2 - HEAD_SLOTS - TAIL_SLOTS) as u64);
    let steps: Vec<_> = ring.series[0].records.iter().filter_map(|record| record.step).collect();
    assert_eq!((steps[0], steps[steps.len() - 1]), (0, 4999));
    assert_eq!(ring.series[0].diagnosis.findings[0].code.name(), "retained_graph");
    let size = fs::metadata(&run.path).map(|file| file.len()).ok();
    assert_eq!(size, Some(RING_BYTES as u64));
}

#[test]
fn a_message_that_is_too_long_for_a_line_is_shortened_and_the_phase_kept() {
    let run = run(|_, _| {
        phase!(forward).in_scope(|| tracing::error!("{}", "far ".repeat(1000)));
    });
    let ring = read(&run.path);
    let outcome = format!("{:?}", ring.series[0].records[0].outcome);
    assert!(outcome.contains("far far") && outcome.len() < 200, "{outcome}");
}

#[test]
fn a_line_that_was_written_in_part_is_counted_and_the_others_are_read() {
    let run = run(|device, _| train(device, 3));
    let mut bytes = fs::read(&run.path).unwrap_or_else(|error| panic!("{error}"));
    let line = bytes
        .chunks(SLOT)
        .position(|line| line.windows(10).any(|text| text == b"\"number\":5"))
        .unwrap_or_else(|| panic!("no record 5"));
    bytes[line * SLOT + 40] ^= 1;
    let torn = run.folder.path().join("torn.ring");
    fs::write(&torn, &bytes).unwrap_or_else(|error| panic!("{error}"));
    let ring = read(&torn);
    assert_eq!(ring.damaged, 1);
    let kept: usize = ring.series.iter().map(|series| series.records.len()).sum();
    assert_eq!(kept, 3 * 2 * 2 - 1);
}

#[test]
fn what_is_no_ring_file_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("no.ring");
    for (bytes, words) in [
        (b"short".to_vec(), "expected a ring file of 1048576 bytes, found 5 bytes"),
        (vec![0; RING_BYTES], "expected a line of phasescope.ring/v1, found none"),
    ] {
        fs::write(&path, bytes).unwrap_or_else(|error| panic!("{error}"));
        let error = ring::read(&path).unwrap_err().to_string();
        assert!(error.contains("no.ring: ") && error.contains(words), "{error}");
    }
    assert!(ring::read(&folder.path().join("none")).is_err());
}

#[test]
fn a_folder_that_is_missing_is_a_problem_and_training_goes_on() {
    let device = Arc::new(Scripted::new("cuda:0"));
    let (layer, guard) =
        phasescope::builder().source(device.clone()).ring_in("/nowhere/at/all").build();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        train(&device, 3);
    });
    assert_eq!(guard.ring_path(), None);
    let [problem] = &guard.problems()[..] else { panic!("{:?}", guard.problems()) };
    assert!(problem.contains("no ring file in /nowhere/at/all: "), "{problem}");
    assert!(guard.series()[0].diagnosis.budget.is_some());
}

#[test]
fn a_process_of_the_same_name_and_id_gets_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let make = || {
        let identity = RunIdentity::new("again");
        phasescope::builder().identity(identity).ring_in(folder.path()).build().1
    };
    let (first, second) = (make(), make());
    assert_eq!(second.problems(), Vec::<String>::new());
    assert_ne!(first.ring_path(), second.ring_path());
    let name = second.ring_path().and_then(Path::file_name).unwrap_or_default();
    assert!(name.to_string_lossy().ends_with("-2.ring"), "{name:?}");
}
