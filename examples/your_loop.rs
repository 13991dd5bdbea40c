//! The smallest integration: a loop of your own with its phases named.

use phasescope::{phase, step};
use tch::nn::{self, Module, OptimizerConfig};
use tch::{Device, Kind, Tensor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let guard =
        phasescope::builder().source(phasescope::torch::for_device(Device::Cpu)?).install()?;

    let vars = nn::VarStore::new(Device::Cpu);
    let model = phase!(model).in_scope(|| nn::linear(vars.root(), 1024, 1024, Default::default()));
    let mut optimizer = nn::AdamW::default().build(&vars, 1e-3)?;

    for number in 0..8_u64 {
        let _step = step!(number).entered();
        let batch =
            phase!(input).in_scope(|| Tensor::randn([32, 1024], (Kind::Float, Device::Cpu)));
        let loss = phase!(forward).in_scope(|| model.forward(&batch).square().mean(Kind::Float));
        phase!(backward).in_scope(|| loss.backward());
        phase!(optimizer_step).in_scope(|| optimizer.step());
        phase!(clear_gradients).in_scope(|| optimizer.zero_grad());
    }

    for finding in &guard.series()[0].diagnosis.findings {
        println!("{} {}: {}", finding.severity, finding.code, finding.title);
    }
    Ok(())
}
