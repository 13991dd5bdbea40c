use phasescope::diagnosis::Severity;
use phasescope::report::{Framework, Report, Series};
use phasescope::units::{Readable, to_mib};

use super::args::Args;
use super::case::Case;
use super::model::Dimensions;
use super::train::Trained;

/// libtorch that `tch` 0.24 goes with.
const LIBTORCH_VERSION: &str = "2.11.0";

/// Fills in what the layer does not know.
pub(crate) fn describe(report: &mut Report, case: Case, args: &Args, trained: Option<&Trained>) {
    let batch = u64::try_from(args.batch(case)).ok();
    let twin = if args.fixed { "-fixed" } else { "" };
    report.case = Some(format!("{}{twin}", case.name()));
    report.preset = Some(args.preset.name().to_owned());
    report.model_config = Some(Dimensions::of(args.preset).config());
    report.parameter_count = trained.map(|trained| trained.parameters);
    report.parameters_fp32_mib = trained.map(|trained| to_mib(trained.parameters * 4));
    report.batch_size_per_device = batch;
    report.rank_zero_extra_samples = Some(0);
    report.steps = Some(args.steps);
    report.precision = Some(args.precision.name().to_owned());
    report.seed = u64::try_from(args.seed).ok();
    report.final_loss_rank_zero = trained.map(|trained| trained.final_loss);
    report.framework =
        Some(Framework { name: "libtorch".to_owned(), version: Some(LIBTORCH_VERSION.to_owned()) });
    for rank in &mut report.rank_reports {
        rank.local_batch_size = batch;
    }
}

/// Says in a few lines what happened.
pub(crate) fn print(case: Case, args: &Args, series: &[Series], trained: &Trained) {
    let twin = if args.fixed { " (fixed)" } else { "" };
    println!(
        "{}{twin}: {} steps on {}, final loss {:.3}",
        case.name(),
        args.steps,
        trained.device,
        trained.final_loss
    );
    for series in series {
        let diagnosis = &series.diagnosis;
        if let Some(budget) = &diagnosis.budget {
            println!("  peak {} in {}", Readable::level(budget.peak), budget.phase);
        }
        if let Some(first) = diagnosis.findings.first() {
            println!("  {} {}: {}", first.severity, first.code, first.title);
        }
        if diagnosis.worst() < Some(Severity::Warning) {
            println!("  healthy: nothing of severity warning");
        }
    }
    if let Some(path) = &args.output {
        println!("  report: {}", path.display());
    }
}
