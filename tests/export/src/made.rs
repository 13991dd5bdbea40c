use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use std::time::{SystemTime, UNIX_EPOCH};

const MIB: i64 = 1 << 20;
/// Nanoseconds since the first span, half an hour.
const AGE: u64 = 1800 * 1_000_000_000;

/// The spans of one rank as a producer of another language would send them: every attribute of the
/// contract that a GPU has, and no verdict.
#[derive(Clone, Debug)]
pub struct Made {
    /// The run.
    pub run: String,
    /// The rank.
    pub rank: u32,
    /// How many there are.
    pub world_size: u32,
    leak_from: Option<u64>,
    sequence: u64,
    level: i64,
    time: u64,
}

impl Made {
    /// A rank that has sent nothing yet.
    #[must_use]
    pub fn new(run: &str, rank: u32, world_size: u32) -> Self {
        let run = run.to_owned();
        // Backends look at the last hours, and not ahead.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX) - AGE;
        Self { run, rank, world_size, leak_from: None, sequence: 0, level: 100 * MIB, time }
    }

    /// From this step on its activations are kept.
    #[must_use]
    pub fn leaking_from(self, step: u64) -> Self {
        Self { leak_from: Some(step), ..self }
    }

    /// The spans of a step: four phases and the step, which ends last.
    pub fn step(&mut self, step: u64) -> Vec<Span> {
        let leaks = self.leak_from.is_some_and(|from| step >= from);
        let trace = self.id(u64::MAX - step).repeat(2);
        let parent = self.id(1 << 40 | step);
        let begin = self.time;
        let changes = [
            ("forward", 50 * MIB),
            ("backward", if leaks { 0 } else { -50 * MIB } + 30 * MIB),
            ("optimizer_step", 0),
            ("clear_gradients", -30 * MIB),
        ];
        let mut spans = Vec::with_capacity(5);
        for (phase, change) in changes {
            let mut span = self.phase(step, phase, change);
            span.trace_id.clone_from(&trace);
            span.parent_span_id.clone_from(&parent);
            spans.push(span);
        }
        let attributes = vec![
            integer("phasescope.step", step.cast_signed()),
            text("phasescope.run_id", &self.run),
            integer("phasescope.rank", self.rank.into()),
            integer("phasescope.world_size", self.world_size.into()),
        ];
        spans.push(Span {
            trace_id: trace,
            span_id: parent,
            name: "step".to_owned(),
            kind: 1,
            start_time_unix_nano: begin,
            end_time_unix_nano: self.time + 1000,
            attributes,
            ..Span::default()
        });
        self.time += 2000;
        spans
    }

    fn phase(&mut self, step: u64, phase: &str, change: i64) -> Span {
        let (start, end) = (self.level, self.level + change);
        self.level = end;
        let mut attributes = vec![
            text("phasescope.phase", phase),
            text("phasescope.run_id", &self.run),
            integer("phasescope.rank", self.rank.into()),
            integer("phasescope.world_size", self.world_size.into()),
            integer("phasescope.sequence", self.sequence.cast_signed()),
            integer("phasescope.depth", 0),
            integer("phasescope.step", step.cast_signed()),
            double("phasescope.host_duration", 0.004),
            integer("phasescope.parameter_bytes", 30 * MIB),
            integer("phasescope.device_bytes", 80_000 * MIB),
            text("phasescope.device.name", "cuda:0"),
            integer("phasescope.allocated.peak", start.max(end)),
            integer("phasescope.allocated.outside_delta", 0),
        ];
        for (counter, start, end) in [
            ("allocated", start, end),
            ("reserved", 400 * MIB + start, 400 * MIB + end),
            ("active", start, end),
            ("requested", start, end),
            ("inactive_split", MIB, MIB),
            ("alloc_retries", 0, 0),
            ("ooms", 0, 0),
            ("device_used", 2000 * MIB + start, 2000 * MIB + end),
            ("device_total", 80_000 * MIB, 80_000 * MIB),
            ("process_device_used", 1000 * MIB + start, 1000 * MIB + end),
            ("host_rss", 900 * MIB, 900 * MIB),
        ] {
            attributes.push(integer(&format!("phasescope.{counter}.start"), start));
            attributes.push(integer(&format!("phasescope.{counter}.end"), end));
            attributes.push(integer(&format!("phasescope.{counter}.delta"), end - start));
        }
        let begin = self.time;
        self.time += 4_000_000;
        let span = Span {
            span_id: self.id(self.sequence),
            name: phase.to_owned(),
            kind: 1,
            start_time_unix_nano: begin,
            end_time_unix_nano: self.time,
            attributes,
            ..Span::default()
        };
        self.sequence += 1;
        span
    }

    /// An id that no other span of any rank has.
    fn id(&self, number: u64) -> Vec<u8> {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (&self.run, self.rank, number).hash(&mut hasher);
        hasher.finish().to_be_bytes().to_vec()
    }

    /// A group of spans of this rank.
    #[must_use]
    pub fn group(&self, spans: Vec<Span>) -> ResourceSpans {
        let attributes = vec![
            text("service.name", "made"),
            text("service.instance.id", &format!("{}-{}", self.run, self.rank)),
            text("phasescope.run_id", &self.run),
            integer("phasescope.rank", self.rank.into()),
            integer("phasescope.world_size", self.world_size.into()),
            text("telemetry.sdk.language", "python"),
        ];
        let scope = InstrumentationScope { name: "made".to_owned(), ..Default::default() };
        ResourceSpans {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }
    }

    /// A request with some steps of this rank.
    pub fn request(&mut self, steps: std::ops::Range<u64>) -> ExportTraceServiceRequest {
        let spans = steps.flat_map(|step| self.step(step)).collect();
        ExportTraceServiceRequest { resource_spans: vec![self.group(spans)] }
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    pair(key, Value::StringValue(value.to_owned()))
}

fn integer(key: &str, value: i64) -> KeyValue {
    pair(key, Value::IntValue(value))
}

fn double(key: &str, value: f64) -> KeyValue {
    pair(key, Value::DoubleValue(value))
}

fn pair(key: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}
