//! Reports that real runs write are read again, and samples are not given what they did not measure.

use phasescope::counters::scripted::Scripted;
use phasescope::report::{self, Report};
use phasescope::{phase, step};
use std::sync::Arc;
use tracing_subscriber::layer::SubscriberExt;

fn s(step: i64, phase: &str, a: f64, p: Option<f64>) -> serde_json::Value {
    serde_json::json!({"step":step,"phase":phase,"allocated_mib":a,"peak_allocated_mib":p})
}
fn rep(samples: Vec<serde_json::Value>) -> Report {
    Report::parse(&serde_json::json!({"rank_reports":[{"samples":samples}]}).to_string(), "x.json")
        .unwrap()
}
#[test]
fn peak_after_an_unmeasured_peak_is_unknown() {
    let r = rep(vec![s(0, "after_forward", 90.0, None), s(0, "after_backward", 40.0, Some(95.0))]);
    assert_eq!(r.records(&r.rank_reports[0])[1].peak_allocated, None);
}
fn own(run: impl FnOnce(&Scripted)) -> Result<Report, String> {
    let device = Arc::new(Scripted::new("cuda:0"));
    let (layer, guard) = phasescope::builder().source(device.clone()).keep_records().build();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || run(&device));
    let report = Report::of(guard.identity(), &guard.series());
    let f = tempfile::tempdir().unwrap();
    let p = f.path().join("r.json");
    report::write(&report, &p, false).map_err(|e| format!("write {e}"))?;
    report::read(&p).map_err(|e| format!("read: {e}").replace(f.path().to_str().unwrap(), ""))
}
fn one(n: u64, d: &Scripted) {
    let _s = step!(n).entered();
    phase!(forward).in_scope(|| d.allocate(1 << 20));
    phase!(clear_gradients).in_scope(|| d.free(1 << 20));
}
#[test]
fn own_report_with_eval_after_training() {
    own(|d| {
        for n in 0..3 {
            one(n, d)
        }
        phase!(eval).in_scope(|| {});
    })
    .unwrap();
}
#[test]
fn own_report_with_eval_between_steps() {
    own(|d| {
        one(0, d);
        phase!(eval).in_scope(|| {});
        one(1, d);
    })
    .unwrap();
}
#[test]
fn own_report_of_a_resumed_run() {
    own(|d| {
        for n in 100..103 {
            one(n, d)
        }
    })
    .unwrap();
}
#[test]
fn own_report_that_failed_in_the_model_phase() {
    own(|_| {
        phase!(model).in_scope(|| {});
    })
    .unwrap();
}
#[test]
fn report_with_a_code_of_a_later_version_is_read() {
    let text = serde_json::to_string(
        &own(|d| {
            for n in 0..8 {
                let _s = step!(n).entered();
                phase!(forward).in_scope(|| d.allocate(50 << 20));
                phase!(backward).in_scope(|| {});
                phase!(clear_gradients).in_scope(|| {});
            }
        })
        .unwrap(),
    )
    .unwrap();
    assert!(text.contains("\"retained_graph\""));
    Report::parse(&text.replace("\"retained_graph\"", "\"fragmentation\""), "later.json").unwrap();
}
#[test]
fn two_threads_writing_one_path_keep_one_whole_file() {
    let r = rep((0..400).map(|i| s(0, "after_forward", i as f64, None)).collect());
    for _ in 0..40 {
        let f = tempfile::tempdir().unwrap();
        let p = f.path().join("r.json");
        let ok: usize = std::thread::scope(|t| {
            let h: Vec<_> = (0..4).map(|_| t.spawn(|| report::write(&r, &p, false))).collect();
            h.into_iter()
                .map(|h| match h.join().unwrap() {
                    Ok(()) => 1,
                    Err(e) => {
                        if !e.to_string().contains("not overwritten") {
                            println!("{e}");
                        }
                        0
                    }
                })
                .sum()
        });
        assert_eq!(ok, 1);
        report::read(&p).unwrap();
    }
}
