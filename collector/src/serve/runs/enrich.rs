use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::Event;
use phasescope::contract::{
    COLLECTOR_PATH, FindingValue, Origin, SpanRead, SpanReader, VERDICT_CHANGED, finding_fields,
    verdict_fields,
};
use phasescope::diagnosis::{Finding, Verdict};
use prost::Message;
use tracing::info;

use super::judged::Verdicts;
use super::rank::{Observed, Rank};
use super::table::{Run, Runs, Unjudged};
use crate::serve::metrics::Counts;
use crate::serve::wire::{self, Additions, SpanParts, SpanView};

/// The run of spans that name neither a run nor an instance.
const UNKNOWN: &str = "unknown";

/// Judges the spans of a request and adds to it what the engine says.
#[derive(Debug)]
pub(crate) struct Enricher {
    reader: SpanReader,
    runs: Arc<Runs>,
    counts: Arc<Counts>,
    /// This collector in the path of the spans.
    id: String,
    /// Longest name that is kept.
    longest: usize,
}

/// A request with what the engine says.
#[derive(Debug)]
pub(crate) struct Enriched {
    pub(crate) request: Bytes,
    /// Spans that have been here before, and are not sent on a second time.
    pub(crate) looped: u64,
    /// Whether anything else was in it.
    pub(crate) empty: bool,
    pub(crate) verdicts: Verdicts,
}

/// A span of the contract, and where it stands in the request.
struct Item<'a> {
    end: u64,
    place: usize,
    id: [u8; 8],
    read: SpanRead<'a>,
}

/// By run, then by rank.
type Groups<'a> = HashMap<&'a str, BTreeMap<u32, Vec<Item<'a>>>>;

impl Enricher {
    pub(crate) fn new(runs: Arc<Runs>, counts: Arc<Counts>, longest: usize) -> Self {
        let id = uuid::Uuid::new_v4().to_string();
        Self { reader: SpanReader::new(), runs, counts, id, longest }
    }

    /// Judges a request that has been checked.
    pub(crate) fn enrich(&self, request: &Bytes, now: Instant) -> Enriched {
        let mut groups = Groups::new();
        let mut attributes = Vec::new();
        let (mut place, mut looped, mut without) = (0, 0, Vec::new());
        let mut count = 0;
        for (number, group) in wire::resource_spans(request).enumerate() {
            count += 1;
            if group.texts(COLLECTOR_PATH).any(|passed| passed == self.id) {
                let spans = group.spans().count();
                looped += spans as u64;
                place += spans;
                without.push(number);
                continue;
            }
            let origin = Origin::of_resource(group.attributes());
            for span in group.spans() {
                self.read(origin, &span, place, &mut attributes, &mut groups);
                place += 1;
            }
        }
        let mut additions = Additions::new();
        let mut verdicts = Verdicts::default();
        for (id, ranks) in groups {
            let spans = ranks.values().map(Vec::len).sum();
            let run = match self.runs.enter(id, spans, now) {
                Ok(run) => run,
                Err(reason) => {
                    self.counts.unjudged(reason, spans as u64);
                    continue;
                }
            };
            for (rank, items) in ranks {
                match self.runs.enter_rank(id, rank, now) {
                    Ok(()) => self.judge(&run, rank, items, &mut additions, &mut verdicts),
                    Err(reason) => self.counts.unjudged(reason, items.len() as u64),
                }
            }
        }
        additions.sort_unstable_by_key(|(place, _)| *place);
        Enriched {
            request: wire::splice(request, &additions, &without, &self.id).into(),
            looped,
            empty: !without.is_empty() && without.len() == count,
            verdicts,
        }
    }

    fn read<'a>(
        &self,
        resource: Origin<'a>,
        span: &SpanView<'a>,
        place: usize,
        attributes: &mut Vec<&'a [u8]>,
        groups: &mut Groups<'a>,
    ) {
        let SpanParts { head, id } = span.parts(attributes);
        let pairs = wire::scalars(attributes.iter().copied());
        let read = match self.reader.read(resource, head, pairs) {
            Ok(read) => read,
            Err(_) => return self.counts.unjudged(Unjudged::AbsurdNumber, 1),
        };
        let origin = match &read {
            SpanRead::Phase(phase) => phase.origin,
            SpanRead::Step(step) => step.origin,
            SpanRead::Other => return,
        };
        let devices: &[_] = match &read {
            SpanRead::Phase(phase) => &phase.records,
            _ => &[],
        };
        let long = |name: &str| name.len() > self.longest;
        let names = [origin.run_id, origin.instance, origin.service];
        if names.into_iter().flatten().any(long)
            || devices.iter().any(|(device, _)| long(device.as_str()))
        {
            return self.counts.unjudged(Unjudged::LongName, 1);
        }
        let run = origin.run_id.or(origin.instance).unwrap_or(UNKNOWN);
        let item = Item { end: head.end_unix_nano, place, id, read };
        let ranks = groups.entry(run).or_default();
        ranks.entry(origin.rank.unwrap_or(0)).or_default().push(item);
    }

    /// Judges the spans of one rank, in the order in which they ended: a step ends after its phases.
    fn judge(
        &self,
        run: &Arc<Run>,
        number: u32,
        mut items: Vec<Item<'_>>,
        additions: &mut Additions,
        verdicts: &mut Verdicts,
    ) {
        items.sort_by_key(|item| (item.end, matches!(item.read, SpanRead::Step(_)), item.place));
        let mut ranks = run.ranks();
        let Some(first) = items.first().and_then(|item| origin(&item.read)) else { return };
        let rank = ranks.entry(number).or_insert_with(|| Rank::new(first));
        let before = rank.announced;
        for item in items {
            if origin(&item.read).is_some_and(|origin| !rank.is_current(origin)) {
                self.counts.late();
                continue;
            }
            match item.read {
                SpanRead::Phase(phase) => match rank.observe(phase, item.id, self.longest) {
                    Observed::New => self.counts.judged(),
                    Observed::Repeated => self.counts.repeated(),
                    Observed::Late => self.counts.late(),
                },
                SpanRead::Step(step) => {
                    let changed = |finding: &Finding| tell(&run.id, number, step.step, finding);
                    if let Some((verdict, finding)) = rank.end_step(step, changed) {
                        additions.push((item.place, fields(verdict, finding, item.end)));
                    }
                }
                SpanRead::Other => {}
            }
        }
        let after = rank.announced;
        drop(ranks);
        verdicts.announced(run.clone(), number, before, after);
    }
}

fn origin<'a>(read: &SpanRead<'a>) -> Option<Origin<'a>> {
    match read {
        SpanRead::Phase(phase) => Some(phase.origin),
        SpanRead::Step(step) => Some(step.origin),
        SpanRead::Other => None,
    }
}

fn tell(run_id: &str, rank: u32, step: u64, finding: &Finding) {
    info!(
        run_id,
        rank,
        step,
        code = finding.code.name(),
        severity = %finding.severity,
        held_bytes = finding.held_bytes,
        "{}",
        finding.title
    );
}

/// What is added to a step: its verdict, and the event with the whole finding when it is new.
fn fields(verdict: Verdict, finding: Option<&Finding>, end: u64) -> Vec<u8> {
    let attributes = verdict_fields(verdict).map(|(key, value)| pair(key, Any::StringValue(value)));
    let events = finding.map(|finding| Event {
        time_unix_nano: end,
        name: VERDICT_CHANGED.to_owned(),
        attributes: finding_fields(finding)
            .into_iter()
            .map(|(key, value)| pair(key, of_finding(value)))
            .collect(),
        dropped_attributes_count: 0,
    });
    let added = Span {
        attributes: attributes.into(),
        events: events.into_iter().collect(),
        ..Span::default()
    };
    added.encode_to_vec()
}

fn of_finding(value: FindingValue) -> Any {
    match value {
        FindingValue::Text(text) => Any::StringValue(text),
        FindingValue::Bytes(bytes) => Any::IntValue(bytes.try_into().unwrap_or(i64::MAX)),
        FindingValue::Texts(texts) => {
            let text = |text| AnyValue { value: Some(Any::StringValue(text)) };
            Any::ArrayValue(ArrayValue { values: texts.into_iter().map(text).collect() })
        }
    }
}

fn pair(key: &str, value: Any) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}
