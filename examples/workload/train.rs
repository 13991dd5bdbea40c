use indicatif::{ProgressBar, ProgressStyle};
use phasescope::diagnosis::RunFacts;
use phasescope::layer::Guard;
use phasescope::{phase, run, step};
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};

use super::args::Args;
use super::case::Case;
use super::model::{Dimensions, Transformer};
use super::{Failure, device};

/// What became of a run.
#[derive(Debug)]
pub(crate) struct Trained {
    pub(crate) device: String,
    pub(crate) final_loss: f64,
    pub(crate) parameters: u64,
}

/// Trains, with every phase in a span.
pub(crate) fn train(
    case: Case,
    args: &Args,
    on: Device,
    guard: &Guard,
) -> Result<Trained, Failure> {
    let _run = run!(guard.identity().run_id.as_str()).entered();
    let size = Dimensions::of(args.preset);
    tch::manual_seed(args.seed);
    let batch = args.batch(case);
    let mut variables = VarStore::new(on);
    let model = phase!(model).in_scope(|| {
        let model = Transformer::new(&variables.root(), size);
        variables.set_kind(args.precision.kind());
        model
    });
    let parameters: u64 =
        variables.trainable_variables().iter().map(|variable| variable.numel() as u64).sum();
    guard.set_facts(RunFacts {
        parameter_bytes: Some(parameters * args.precision.kind().elt_size_in_bytes() as u64),
        local_batch_size: u64::try_from(batch).ok(),
        device_total: None,
    });
    let mut optimizer =
        phase!(optimizer_create).in_scope(|| case.optimizer(&variables, args.fixed))?;
    let elements = (batch * size.sequence) as u64;
    let (tokens, labels) =
        phase!(input, phasescope.input_elements = elements).in_scope(|| size.batch(batch, on));

    let mut kept: Vec<Tensor> = Vec::new();
    let mut losses: Vec<f64> = Vec::new();
    let progress = progress(args.steps);
    for number in 0..args.steps {
        let _step = step!(number).entered();
        let loss = phase!(forward, phasescope.input_elements = elements).in_scope(|| {
            let logits = model.forward(&tokens);
            logits.to_kind(Kind::Float).cross_entropy_for_logits(&labels)
        });
        phase!(backward).in_scope(|| case.backward(&loss, args.fixed));
        let value = loss.double_value(&[]);
        if !value.is_finite() {
            return Err(Failure::run(format!(
                "expected a finite loss, found {value} in step {number}"
            )));
        }
        losses.push(value);
        if case.keeps_tensors(args.fixed) {
            kept.push(loss);
        }
        phase!(optimizer_step).in_scope(|| optimizer.step());
        phase!(clear_gradients).in_scope(|| optimizer.zero_grad());
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(Trained {
        device: device::name(on),
        final_loss: losses.last().copied().unwrap_or(f64::NAN),
        parameters,
    })
}

/// A bar on a terminal; nothing in a pipe.
fn progress(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("step {pos}/{len} {wide_bar} {eta}");
    let bar = ProgressBar::new(steps);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
