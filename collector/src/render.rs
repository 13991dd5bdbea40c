use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use phasescope::diagnosis::{Budget, Finding, Severity};
use phasescope::units::Readable;

use crate::judge::Judged;
use crate::process::Process;

/// Width of the text where there is no terminal to ask.
const PIPE_WIDTH: usize = 100;
/// Longest bar of the budget.
const BAR_WIDTH: u64 = 24;

/// One rank's diagnosis for people.
pub(crate) fn text(judged: &Judged) -> String {
    let page = Page { width: width(), text: String::new() };
    page.judged(judged)
}

fn width() -> usize {
    use std::io::IsTerminal;
    if std::io::stdout().is_terminal() { textwrap::termwidth().clamp(40, 120) } else { PIPE_WIDTH }
}

struct Page {
    width: usize,
    text: String,
}

impl Page {
    fn judged(mut self, judged: &Judged) -> String {
        let device = judged
            .device
            .as_deref()
            .map_or_else(String::new, |device| format!(" · {}", plain(device)));
        // A report is one run; other files may hold several.
        let several = judged.instance.is_some() || judged.process.is_some();
        let run = judged.run_id.as_deref().filter(|_| several);
        let run = run.map_or_else(String::new, |run| format!(" · run {}", plain(run)));
        let bold = Style::new().bold();
        let source = plain(&judged.source);
        self.line(&format!("{bold}{source}{run} · rank {}{device}{bold:#}", judged.rank));
        for line in judged.process.iter().flat_map(Process::lines) {
            self.wrapped("  ", "  ", &plain(&line));
        }
        self.verdict(judged);
        if let Some(budget) = &judged.budget {
            self.budget(budget);
        }
        for finding in &judged.findings {
            self.finding(finding);
        }
        if !judged.insufficient.is_empty() {
            self.line("");
            self.line("  could not be judged");
            for rule in &judged.insufficient {
                self.wrapped("    ", "    ", &format!("{}: needs {}", rule.code, rule.missing));
            }
        }
        self.text
    }

    fn verdict(&mut self, judged: &Judged) {
        if judged.healthy() {
            self.line("  healthy: nothing of severity warning");
        }
        let Some(first) = judged.findings.first() else {
            self.line("  no cause was named");
            return;
        };
        let share = first
            .share_of_peak
            .map_or_else(String::new, |share| format!(", {:.0} % of the peak", 100.0 * share));
        let style = style(first.severity);
        self.line(&format!(
            "  dominant: {style}{}{style:#}, {}{share} ({}, {})",
            named(first),
            amount(first),
            first.severity,
            first.confidence
        ));
        if let Some(next) = first.runner_up {
            let by = Readable(next.margin_bytes);
            self.line(&format!("  ahead of {} by {by}", next.code));
        }
    }

    fn budget(&mut self, budget: &Budget) {
        self.line("");
        let step =
            budget.step.map_or_else(|| "before training".to_owned(), |step| format!("step {step}"));
        self.line(&format!(
            "  memory at the peak: {} in {}, {step}",
            Readable::level(budget.peak),
            budget.phase
        ));
        let parts = budget.parts.iter().map(|share| (share.part.name(), share.bytes));
        for (name, bytes) in parts.chain([("unexplained", budget.unexplained)]) {
            if bytes == 0 && name != "unexplained" {
                continue;
            }
            let bar = (bytes.saturating_mul(BAR_WIDTH) / budget.peak.max(1)) as usize;
            let line = format!(
                "    {name:<22}{:>12}  {}",
                Readable::level(bytes).to_string(),
                "#".repeat(bar)
            );
            self.line(line.trim_end());
        }
        if let [first, second] = &budget.highest_phases[..] {
            self.line(&format!(
                "  highest phases: {} {}, then {} {}",
                first.phase,
                Readable::level(first.bytes),
                second.phase,
                Readable::level(second.bytes)
            ));
        }
    }

    fn finding(&mut self, finding: &Finding) {
        let style = style(finding.severity);
        self.line("");
        self.line(&format!(
            "  {style}{:<8}{style:#}  {}: {}",
            finding.severity,
            named(finding),
            finding.title
        ));
        for evidence in &finding.evidence {
            self.wrapped("    - ", "      ", &evidence.sentence);
        }
        for response in &finding.responses {
            let saves = response
                .saves_bytes
                .map_or_else(String::new, |bytes| format!(" (saves {})", Readable::level(bytes)));
            let text = format!("{}{saves}: {}", response.action, response.why);
            self.wrapped("    do:  ", "         ", &text);
        }
        for rejected in &finding.rejected {
            self.wrapped(
                "    not: ",
                "         ",
                &format!("{}: {}", rejected.action, rejected.why),
            );
        }
    }

    fn line(&mut self, line: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn wrapped(&mut self, first: &str, rest: &str, text: &str) {
        let options =
            textwrap::Options::new(self.width).initial_indent(first).subsequent_indent(rest);
        self.line(&textwrap::fill(text, options));
    }
}

/// Text from a file, without what a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

fn named(finding: &Finding) -> String {
    match &finding.label {
        Some(label) => format!("{} ({label})", finding.code),
        None => finding.code.to_string(),
    }
}

fn amount(finding: &Finding) -> String {
    let bytes = Readable::level(finding.bytes);
    if finding.per_step { format!("{bytes} a step") } else { bytes.to_string() }
}

fn style(severity: Severity) -> Style {
    match severity {
        Severity::Critical => AnsiColor::Red.on_default().bold(),
        Severity::Warning => AnsiColor::Yellow.on_default().bold(),
        _ => Style::new().bold(),
    }
}
