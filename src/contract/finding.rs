//! A verdict and a finding as attributes, the same in the process and in the collector.

use super as contract;
use crate::diagnosis::{Finding, Verdict};
use crate::units::Readable;

/// The value of a finding's attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingValue {
    /// Text.
    Text(String),
    /// A number of bytes.
    Bytes(u64),
    /// Sentences.
    Texts(Vec<String>),
}

/// The attributes of a step with this verdict.
#[must_use]
pub fn verdict_fields(verdict: Verdict) -> [(&'static str, String); 2] {
    [
        (contract::VERDICT_CODE, verdict.code.name().to_owned()),
        (contract::VERDICT_SEVERITY, verdict.severity.to_string()),
    ]
}

/// The attributes of the event [`VERDICT_CHANGED`](super::VERDICT_CHANGED): the whole finding. Lists
/// that are empty are left out.
#[must_use]
pub fn finding_fields(finding: &Finding) -> Vec<(&'static str, FindingValue)> {
    let text = |text: &str| FindingValue::Text(text.to_owned());
    let mut fields = vec![
        (contract::FINDING_CODE, text(finding.code.name())),
        (contract::FINDING_SEVERITY, FindingValue::Text(finding.severity.to_string())),
        (contract::FINDING_CONFIDENCE, FindingValue::Text(finding.confidence.to_string())),
        (contract::FINDING_TITLE, text(&finding.title)),
        (contract::FINDING_HELD, FindingValue::Bytes(finding.held_bytes)),
    ];
    fields.extend(finding.label.as_deref().map(|label| (contract::FINDING_LABEL, text(label))));
    let responses = finding.responses.iter().map(|response| {
        let saves = response
            .saves_bytes
            .map_or_else(String::new, |bytes| format!(" (saves {})", Readable::level(bytes)));
        format!("{}{saves}: {}", response.action, response.why)
    });
    let rejected =
        finding.rejected.iter().map(|rejected| format!("{}: {}", rejected.action, rejected.why));
    let lists: [(_, Vec<String>); 3] = [
        (contract::FINDING_EVIDENCE, finding.evidence.iter().map(|e| e.sentence.clone()).collect()),
        (contract::FINDING_RESPONSES, responses.collect()),
        (contract::FINDING_REJECTED, rejected.collect()),
    ];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    fields.extend(lists.map(|(name, list)| (name, FindingValue::Texts(list))));
    fields
}
