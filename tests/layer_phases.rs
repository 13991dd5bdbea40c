//! What the layer measures at the edges of phases.

use std::sync::Arc;

use phasescope::counters::scripted::Scripted;
use phasescope::counters::{CounterSource, DeviceName, Scope};
use phasescope::layer::{Guard, MeasuredPhase, PeakMode};
use phasescope::phase::Outcome;
use phasescope::report::Series;
use phasescope::{Counters, Phase, PhaseRecord, phase, step};
use tracing::{Subscriber, info_span};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, registry};

fn device() -> Arc<Scripted> {
    Arc::new(Scripted::new("cuda:0"))
}

/// Runs `work` under a layer with these sources and gives what was measured.
fn measured(sources: &[&Arc<Scripted>], work: impl FnOnce()) -> Vec<Series> {
    let mut builder = phasescope::builder().keep_records();
    for source in sources {
        builder = builder.source(Arc::clone(source) as _);
    }
    let (layer, guard) = builder.build();
    tracing::subscriber::with_default(registry().with(layer), work);
    guard.series()
}

fn records(source: &Arc<Scripted>, work: impl FnOnce()) -> Vec<PhaseRecord> {
    measured(&[source], work).swap_remove(0).records
}

#[track_caller]
fn find(records: &[PhaseRecord], phase: Phase) -> &PhaseRecord {
    records.iter().find(|record| record.phase == phase).unwrap_or_else(|| panic!("no {phase}"))
}

#[test]
fn a_phase_has_the_counters_of_its_edges_and_its_peak() {
    let device = device();
    device.allocate(100);
    let records = records(&device, || {
        let _step = step!(7_u64).entered();
        phase!(forward, phasescope.input_elements = 512_u64).in_scope(|| {
            device.allocate(80);
            device.free(30);
        });
    });
    let forward = find(&records, Phase::Forward);
    assert_eq!((forward.start.allocated, forward.end.allocated), (Some(100), Some(150)));
    assert_eq!(forward.peak_allocated, Some(180));
    assert_eq!((forward.step, forward.input_elements), (Some(7), Some(512)));
    assert_eq!(forward.end.reserved, None, "absent is not zero");
}

#[test]
fn nested_phases_do_not_destroy_each_others_peak() {
    let device = device();
    let records = records(&device, || {
        let outer = phase!(forward).entered();
        device.allocate(500);
        device.free(500);
        phase!(other, "block").in_scope(|| {
            device.allocate(300);
            device.free(300);
        });
        device.allocate(100);
        drop(outer);
    });
    assert_eq!(find(&records, Phase::Other).peak_allocated, Some(300));
    assert_eq!(find(&records, Phase::Other).depth, 1);
    assert_eq!(find(&records, Phase::Other).name.as_deref(), Some("block"));
    assert_eq!(find(&records, Phase::Forward).peak_allocated, Some(500));
}

#[test]
fn a_peak_inside_a_nested_phase_is_the_outer_ones_too() {
    let device = device();
    let records = records(&device, || {
        phase!(forward).in_scope(|| {
            phase!(other, "block").in_scope(|| {
                device.allocate(300);
                device.free(300);
            });
        });
    });
    assert_eq!(find(&records, Phase::Forward).peak_allocated, Some(300));
}

#[test]
fn observing_resets_no_peak_and_knows_only_new_maxima() {
    let device = device();
    let (layer, guard) = phasescope::builder()
        .source(device.clone())
        .peak_mode(PeakMode::Observe)
        .keep_records()
        .build();
    tracing::subscriber::with_default(registry().with(layer), || {
        phase!(forward).in_scope(|| {
            device.allocate(300);
            device.free(300);
        });
        phase!(backward).in_scope(|| {
            device.allocate(200);
            device.free(200);
        });
    });
    let records = guard.series().swap_remove(0).records;
    assert_eq!(find(&records, Phase::Forward).peak_allocated, Some(300));
    assert_eq!(find(&records, Phase::Backward).peak_allocated, None);
}

#[test]
fn a_program_that_resets_the_peak_itself_is_noticed() {
    use phasescope::CounterSource;
    let device = device();
    device.allocate(1000);
    let records = records(&device, || {
        phase!(forward).in_scope(|| {
            device.free(900);
            device.read_and_reset_peak();
        });
    });
    assert!(find(&records, Phase::Forward).peak_disturbed);
}

#[test]
fn what_changes_between_phases_is_kept_as_an_account_of_its_own() {
    let device = device();
    let records = records(&device, || {
        phase!(forward).in_scope(|| device.allocate(100));
        device.allocate(40);
        phase!(backward).in_scope(|| device.free(100));
    });
    assert_eq!(find(&records, Phase::Forward).outside_change, None);
    assert_eq!(find(&records, Phase::Backward).outside_change, Some(40));
}

#[test]
fn any_span_with_the_reserved_field_is_a_phase() {
    #[tracing::instrument(skip_all, fields(phasescope.phase = "backward"))]
    fn my_backward(device: &Scripted) {
        device.allocate(10);
    }
    let device = device();
    let records = records(&device, || {
        let _step = info_span!("epoch", phasescope.step = 3).entered();
        info_span!("mine", phasescope.phase = "forward").in_scope(|| device.allocate(5));
        my_backward(&device);
    });
    let forward = find(&records, Phase::Forward);
    assert_eq!((forward.step, forward.name.as_deref()), (Some(3), Some("mine")));
    assert_eq!(find(&records, Phase::Backward).end.allocated, Some(15));
}

#[test]
fn records_stand_in_the_order_of_their_ends_whatever_handles_are_kept() {
    let device = device();
    let records = records(&device, || {
        let _step = step!(0_u64).entered();
        let forward = phase!(forward);
        forward.in_scope(|| device.allocate(10));
        phase!(backward).in_scope(|| device.free(10));
        // `forward` is dropped only here.
        drop(forward);
    });
    let order: Vec<Phase> = records.iter().map(|record| record.phase).collect();
    assert_eq!(order, [Phase::Forward, Phase::Backward]);
}

#[test]
fn a_panic_and_what_it_asked_for_are_in_the_record() {
    let device = device();
    let records = records(&device, || {
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _forward = phase!(forward).entered();
            device.allocate(100);
            panic!("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 ...");
        }));
        assert!(unwound.is_err());
    });
    let forward = find(&records, Phase::Forward);
    assert!(
        matches!(&forward.outcome, Outcome::OutOfMemory(oom) if oom.requested == Some(2 << 30)),
        "{:?}",
        forward.outcome
    );
    assert_eq!(forward.peak_allocated, Some(100));
}

#[test]
fn an_error_event_marks_its_phase_as_failed() {
    let device = device();
    let records = records(&device, || {
        phase!(checkpoint).in_scope(|| tracing::error!("the disk is full"));
    });
    let expected = Outcome::Failed("the disk is full".to_owned());
    assert_eq!(find(&records, Phase::Checkpoint).outcome, expected);
}

#[test]
fn several_devices_stay_apart() {
    let (first, second) = (device(), Arc::new(Scripted::new("cuda:1")));
    let series = measured(&[&first, &second], || {
        phase!(forward).in_scope(|| second.allocate(64));
    });
    let ends: Vec<_> = series
        .iter()
        .map(|series| (series.device.as_str(), series.records[0].end.allocated))
        .collect();
    assert_eq!(ends, [("cuda:0", Some(0)), ("cuda:1", Some(64))]);
}

#[test]
fn sources_of_one_device_complete_each_other() {
    let allocator = device();
    allocator.allocate(10);
    let driver = Arc::new(Scripted::playing(
        "cuda:0",
        vec![Counters { device_used: Some(99), ..Counters::default() }],
    ));
    let series = measured(&[&allocator, &driver], || phase!(forward).in_scope(|| {}));
    let end = series[0].records[0].end;
    assert_eq!((end.allocated, end.device_used), (Some(10), Some(99)));
    assert_eq!(series.len(), 1);
}

#[test]
fn phases_on_several_threads_are_all_measured() {
    let device = device();
    let (layer, guard) = phasescope::builder().source(device.clone()).keep_records().build();
    let dispatch = tracing::Dispatch::new(registry().with(layer));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                tracing::dispatcher::with_default(&dispatch, || {
                    for _ in 0..100 {
                        phase!(forward).in_scope(|| {
                            device.allocate(16);
                            device.free(16);
                        });
                    }
                });
            });
        }
    });
    let records = guard.series().swap_remove(0).records;
    assert_eq!(records.len(), 800);
    assert!(records.iter().all(|record| record.peak_allocated >= Some(16)));
    assert!(records.iter().all(|record| record.peak_allocated <= Some(128)));
}

#[test]
fn spans_that_are_no_phases_and_a_filtered_stack_leave_no_trace() {
    let device = device();
    let (layer, guard) = phasescope::builder().source(device.clone()).keep_records().build();
    let stack = registry().with(EnvFilter::new("off")).with(layer);
    tracing::subscriber::with_default(stack, || {
        phase!(forward).in_scope(|| device.allocate(10));
    });
    assert!(guard.series()[0].records.is_empty());
    let records = records(&device, || info_span!("mine", step = 1).in_scope(|| {}));
    assert!(records.is_empty());
}

#[test]
fn outer_layers_read_the_record_when_the_span_closes() {
    struct Collect(Arc<std::sync::Mutex<Vec<Option<u64>>>>);

    impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collect {
        fn on_close(&self, id: tracing::span::Id, ctx: Context<'_, S>) {
            let Some(span) = ctx.span(&id) else { return };
            if let Some(measured) = span.extensions().get::<MeasuredPhase>() {
                let ends = measured.records.iter().map(|(_, record)| record.end.allocated);
                self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(ends);
            }
        }
    }

    let device = device();
    let (layer, _guard): (_, Guard) = phasescope::builder().source(device.clone()).build();
    let seen = Arc::default();
    let stack = registry().with(layer).with(Collect(Arc::clone(&seen)));
    tracing::subscriber::with_default(stack, || {
        phase!(forward).in_scope(|| device.allocate(10));
    });
    assert_eq!(*seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner()), [Some(10)]);
}

#[test]
fn the_engine_in_the_process_names_a_leak() {
    let device = device();
    device.allocate(1000);
    let series = measured(&[&device], || {
        for number in 0..8_u64 {
            let _step = step!(number).entered();
            phase!(forward).in_scope(|| device.allocate(500));
            phase!(backward).in_scope(|| {});
            phase!(clear_gradients).in_scope(|| {});
        }
    });
    assert_eq!(series[0].diagnosis.findings[0].code.name(), "retained_graph");
}

/// A source that writes to the log whenever it is read.
#[derive(Debug)]
struct Talkative;

impl CounterSource for Talkative {
    fn scope(&self) -> Scope {
        Scope::Device(DeviceName::new("cuda:0"))
    }

    fn read(&self) -> Counters {
        tracing::error!("the driver is slow");
        Counters { allocated: Some(7), ..Counters::default() }
    }
}

#[test]
fn a_source_that_logs_does_not_hang_the_training() {
    let (layer, guard) = phasescope::builder().source(Arc::new(Talkative)).keep_records().build();
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        tracing::subscriber::with_default(registry().with(layer), || {
            phase!(forward).in_scope(|| {});
        });
        let _ = done.send(());
    });
    let waited = wait.recv_timeout(std::time::Duration::from_secs(20));
    assert!(waited.is_ok(), "the phase has not ended");
    assert_eq!(guard.series()[0].records[0].end.allocated, Some(7));
}
