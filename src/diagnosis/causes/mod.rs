//! One file a cause. Each has one function that looks at the profile and answers one of three:
//! found, clear, or not enough data. A new cause is a new file, its line in [`ALL`] and its [`Code`].

mod activations;
mod cache_only;
mod capacity;
mod growing;
mod optimizer_state;
mod persistent_gradients;
mod retained_graph;
mod retained_tensors;
mod variable_shapes;
mod workspace;

use std::cmp::Reverse;

pub(super) use capacity::steps_left;

use super::profile::Profile;
use super::{
    Code, Confidence, Diagnosis, Evidence, Finding, Insufficient, Measure, Policy, Rejected,
    Response, RunnerUp, Severity,
};
use crate::units::Readable;

type Rule = fn(&Profile<'_>, &Policy) -> Answer;

/// Every cause with its rule.
pub(super) const ALL: [(Code, Rule); 9] = [
    (Code::RetainedGraph, retained_graph::judge),
    (Code::RetainedTensors, retained_tensors::judge),
    (Code::PersistentGradients, persistent_gradients::judge),
    (Code::OptimizerState, optimizer_state::judge),
    (Code::Activations, activations::judge),
    (Code::Capacity, capacity::judge),
    (Code::VariableShapes, variable_shapes::judge),
    (Code::Workspace, workspace::judge),
    (Code::CacheOnly, cache_only::judge),
];

/// What a rule answers.
pub(super) enum Answer {
    Found(Box<Finding>),
    Clear,
    /// With what is missing.
    NotEnough(String),
}

impl Answer {
    pub(super) fn file(self, code: Code, diagnosis: &mut Diagnosis) {
        match self {
            Self::Found(finding) => diagnosis.findings.push(*finding),
            Self::Clear => {}
            Self::NotEnough(missing) => {
                diagnosis.insufficient.push(Insufficient { code, missing });
            }
        }
    }

    fn missing(what: &str) -> Self {
        Self::NotEnough(what.to_owned())
    }
}

/// What a rule found, before it is a finding.
struct Found {
    code: Code,
    severity: Severity,
    confidence: Confidence,
    title: String,
    bytes: u64,
    /// For a growth what it has come to; else the bytes themselves.
    growth_total: Option<u64>,
    evidence: Vec<Evidence>,
    responses: Vec<Response>,
    rejected: Vec<Rejected>,
}

impl Found {
    fn answer(self, profile: &Profile<'_>) -> Answer {
        let held_bytes = self.growth_total.unwrap_or(self.bytes);
        Answer::Found(Box::new(Finding {
            code: self.code,
            label: self.code.label().map(str::to_owned),
            severity: self.severity,
            title: self.title,
            bytes: self.bytes,
            per_step: self.growth_total.is_some(),
            held_bytes,
            // What is in use on the device is more than this allocator's tensors.
            share_of_peak: profile.share(held_bytes).filter(|_| self.code != Code::Capacity),
            confidence: self.confidence,
            runner_up: None,
            evidence: self.evidence,
            responses: self.responses,
            rejected: self.rejected,
        }))
    }
}

/// Orders findings: severity, then causes before what merely accompanies them, then size.
pub(super) fn order(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| {
        (Reverse(finding.severity), accompanies(finding.code), Reverse(finding.held_bytes))
    });
    for place in 1..findings.len() {
        let (before, rest) = findings.split_at_mut(place);
        let finding = &mut before[place - 1];
        // What accompanies a cause holds no bytes of its own to be compared with.
        finding.runner_up = rest.iter().find(|next| accompanies(next.code) == 0).map(|next| {
            let margin_bytes = super::step::difference(finding.held_bytes, next.held_bytes);
            RunnerUp { code: next.code, margin_bytes }
        });
    }
}

/// Codes that say where a limit is or what is normal, not what takes the memory.
fn accompanies(code: Code) -> u8 {
    match code {
        Code::Capacity => 1,
        Code::VariableShapes | Code::Workspace | Code::CacheOnly => 2,
        _ => 0,
    }
}

fn evidence(
    sentence: String,
    bytes: i64,
    measures: impl IntoIterator<Item = Option<Measure>>,
) -> Evidence {
    Evidence { sentence, bytes, measures: measures.into_iter().flatten().collect() }
}

fn response(action: &str, saves_bytes: Option<u64>, why: &str) -> Response {
    Response { action: action.to_owned(), saves_bytes, why: why.to_owned() }
}

fn rejected(action: &str, why: &str) -> Rejected {
    Rejected { action: action.to_owned(), why: why.to_owned() }
}

/// A level for a sentence.
fn shown(bytes: u64) -> Readable {
    Readable::level(bytes)
}

/// What a run needs is no fault, until the device is nearly full: then it is as serious as that.
fn cost_severity(profile: &Profile<'_>, policy: &Policy) -> Severity {
    capacity::pressure(profile, policy).unwrap_or(Severity::Info)
}
