use phasescope::counters::Counters;
use phasescope::phase::Phase;
use phasescope::report::Series;
use phasescope::ring::Ring;
use phasescope::units::Readable;
use serde::Serialize;

/// What a ring file tells of the process that wrote it.
#[derive(Debug, Serialize)]
pub(crate) struct Process {
    pid: u32,
    /// Whether the program let go of its guard: it was not killed in training.
    ended: bool,
    /// The phases that had begun and not ended, the outermost first.
    open: Vec<Moment>,
    last_finished: Option<Moment>,
    /// Records, one a phase and device, that were overwritten.
    overwritten: u64,
    /// Lines that were written in part.
    damaged: u64,
}

/// A phase, and the counters at its start or end.
#[derive(Debug, Serialize)]
struct Moment {
    step: Option<u64>,
    phase: Phase,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    counters: Counters,
}

impl Process {
    pub(crate) fn of(ring: &Ring, series: &Series) -> Self {
        let open = ring.open.iter().map(|open| Moment {
            step: open.step,
            phase: open.phase,
            name: open.name.clone(),
            counters: open.start,
        });
        let last_finished = series.records.last().map(|record| Moment {
            step: record.step,
            phase: record.phase,
            name: record.name.as_deref().map(str::to_owned),
            counters: record.end,
        });
        Self {
            pid: ring.pid,
            ended: ring.ended,
            open: open.collect(),
            last_finished,
            overwritten: ring.overwritten,
            damaged: ring.damaged,
        }
    }

    /// The same in sentences.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.push(match self.ended {
            true => format!("process {} ended by itself", self.pid),
            false => format!("process {} did not end by itself: killed, or still there", self.pid),
        });
        for open in &self.open {
            lines.push(format!("it was in {}, which began at {}", open.place(), open.level()));
        }
        match &self.last_finished {
            Some(last) => {
                lines.push(format!("last finished: {}, at {}", last.place(), last.level()));
            }
            None => lines.push("no phase has finished".to_owned()),
        }
        if self.overwritten > 0 {
            lines.push(format!(
                "{} records between the first and the last ones are not kept",
                self.overwritten
            ));
        }
        if self.damaged > 0 {
            lines.push(format!("{} lines of the file are damaged", self.damaged));
        }
        lines
    }
}

impl Moment {
    fn place(&self) -> String {
        let step = self.step.map_or_else(String::new, |step| format!(", step {step}"));
        match &self.name {
            Some(name) => format!("{} \"{name}\"{step}", self.phase),
            None => format!("{}{step}", self.phase),
        }
    }

    fn level(&self) -> String {
        match self.counters.allocated {
            Some(bytes) => format!("{} allocated", Readable::level(bytes)),
            None => "allocated bytes that were not measured".to_owned(),
        }
    }
}
