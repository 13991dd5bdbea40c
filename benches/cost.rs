//! What a phase and a step cost in the layer and its export, and a record and a diagnosis in the engine.

#![allow(missing_docs)] // criterion_group! makes public items without any.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use phasescope::counters::scripted::Scripted;
use phasescope::diagnosis::{Diagnoser, Policy, RunFacts};
use phasescope::export::{Export, Sampling};
use phasescope::{Counters, Phase, PhaseRecord, phase, step};
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

fn step_of_five() {
    let _step = step!(1_u64).entered();
    phase!(input).in_scope(|| black_box(1));
    phase!(forward).in_scope(|| black_box(1));
    phase!(backward).in_scope(|| black_box(1));
    phase!(optimizer_step).in_scope(|| black_box(1));
    phase!(clear_gradients).in_scope(|| black_box(1));
}

/// An exporter that takes everything and keeps nothing.
#[derive(Debug)]
struct Nowhere;

impl SpanExporter for Nowhere {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

fn steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a step of five phases");
    let builder = || phasescope::builder().source(Arc::new(Scripted::new("cuda:0")));
    group.bench_function("phase layer", |bencher| {
        let (layer, _guard) = builder().build();
        with_default(registry().with(layer), || bencher.iter(step_of_five));
    });
    group.bench_function("with spans", |bencher| {
        let (layer, _guard) = builder().build();
        let provider = SdkTracerProvider::builder().with_batch_exporter(Nowhere).build();
        let spans = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("cost"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false);
        with_default(registry().with(layer).with(spans), || bencher.iter(step_of_five));
    });
    for (name, around_change) in [("with spans held back", 4), ("with spans left out", 0)] {
        group.bench_function(name, |bencher| {
            let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
            let export = Export::to_file(folder.path().join("none.jsonl"));
            let sampling = Sampling { first: 0, every: 0, around_change };
            let export = export.unwrap_or_else(|error| panic!("{error}")).sampling(sampling);
            let (layer, guard) = builder().export(export).build();
            let stack = registry().with(layer).with(guard.opentelemetry_layer());
            with_default(stack, || bencher.iter(step_of_five));
        });
    }
    group.bench_function("with a ring file", |bencher| {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let (layer, _guard) = builder().ring_in(folder.path()).build();
        with_default(registry().with(layer), || bencher.iter(step_of_five));
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

criterion_group!(benches, layer, steps, engine);
criterion_main!(benches);
