//! What a phase costs in the layer, and a record and a diagnosis in the engine.

#![allow(missing_docs)] // criterion_group! makes public items without any.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use phasescope::counters::scripted::Scripted;
use phasescope::diagnosis::{Diagnoser, Policy, RunFacts};
use phasescope::{Counters, Phase, PhaseRecord, phase};
use tracing::subscriber::with_default;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

fn layer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a phase");
    group.bench_function("no subscriber", |bencher| {
        bencher.iter(|| phase!(forward).in_scope(|| black_box(1)));
    });
    group.bench_function("registry only", |bencher| {
        with_default(registry(), || bencher.iter(|| phase!(forward).in_scope(|| black_box(1))));
    });
    group.bench_function("phase layer", |bencher| {
        let (layer, _guard) =
            phasescope::builder().source(Arc::new(Scripted::new("cuda:0"))).build();
        with_default(registry().with(layer), || {
            bencher.iter(|| phase!(forward).in_scope(|| black_box(1)));
        });
    });
    group.finish();
}

fn engine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    let record = |step: u64, phase, start, end| {
        let mut record = PhaseRecord::new(Some(step), phase);
        record.start = Counters { allocated: Some(start), ..Counters::default() };
        record.end = Counters { allocated: Some(end), ..Counters::default() };
        record
    };
    group.bench_function("a record", |bencher| {
        let mut diagnoser = Diagnoser::new(Policy::default(), RunFacts::default());
        let mut number = 0_u64;
        bencher.iter(|| {
            // Three phases a step, so that the cost of closing a step is in it.
            let phase =
                [Phase::Forward, Phase::Backward, Phase::ClearGradients][number as usize % 3];
            diagnoser.observe(&record(number / 3, phase, 100 << 20, 150 << 20));
            number += 1;
        });
    });
    group.bench_function("a diagnosis", |bencher| {
        let mut diagnoser = Diagnoser::new(Policy::default(), RunFacts::default());
        for step in 0..1000 {
            diagnoser.observe(&record(step, Phase::Forward, 100 << 20, 150 << 20));
            diagnoser.observe(&record(step, Phase::Backward, 150 << 20, 130 << 20));
            diagnoser.observe(&record(step, Phase::ClearGradients, 130 << 20, 100 << 20));
        }
        bencher.iter(|| black_box(diagnoser.diagnosis()));
    });
    group.finish();
}

criterion_group!(benches, layer, engine);
criterion_main!(benches);
